#include <argp.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/notify.h"
#include "base/settings.h"
#include "base/state_dir.h"
#include "base/streams.h"
#include "config.h"
#include "controller_options.h"
#include "db_command.h"
#include "file_watch.h"
#include "http/http_server.h"
#include "jobs.h"
#include "listen_options.h"
#include "replay.h"
#include "service.h"
#include "service_changes.h"
#include "store/store.h"
#include "token_main.h"
#include "webhook.h"

#define MAIN_PATH_BYTES 4096u
/* Not one per processor: with each answer that comes later libmicrohttpd looks at all connections
 * of a thread that wait, and streams wait for ever. */
#define MAIN_THREADS 8u
/* How often the tokens are looked at, whatever made or revoked them. */
#define MAIN_TICK_NS INT64_C(500000000)
/* How often certificates are looked at. */
#define MAIN_FILES_NS   INT64_C(5000000000)
#define MAIN_EXIT_USAGE 2

/* glibc's argp looks it up by name, past the hidden default of this build. */
__attribute__((visibility("default"))) const char *argp_program_version =
    "deft-controller " DEFT_VERSION_TEXT;

static enum deft_status main_db(const struct controller_options *options, char out[MAIN_PATH_BYTES],
                                struct deft_error *error) {
    char dir[MAIN_PATH_BYTES];
    if (options->db != NULL) {
        (void)snprintf(out, MAIN_PATH_BYTES, "%s", options->db); /* checked to be shorter */
        return DEFT_OK;
    }
    enum deft_status status = state_dir_default(dir, sizeof(dir), error);
    if (status == DEFT_OK) {
        status = state_dir_make(dir, error);
    }
    return status == DEFT_OK ? state_dir_join(dir, "deft.db", out, MAIN_PATH_BYTES, error) : status;
}

/* Whoever waits for the file must never read half a number. */
static enum deft_status main_write_port(const char *path, uint16_t port, struct deft_error *error) {
    char text[16];
    char *temporary = NULL;
    int n = snprintf(text, sizeof(text), "%u\n", (unsigned)port);
    if (asprintf(&temporary, "%s.%d", path, (int)getpid()) < 0) {
        return deft_fail(error, DEFT_NO_MEMORY, 0, "no memory to write the port file");
    }
    int fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    int failed = fd < 0 || write(fd, text, (size_t)n) != n;
    if (fd >= 0) {
        failed |= close(fd) != 0;
    }
    failed = failed || rename(temporary, path) != 0;
    enum deft_status status =
        failed ? deft_fail(error, DEFT_IO, errno, "the port file '%s' cannot be written: %s", path,
                           strerrordesc_np(errno))
               : DEFT_OK;
    if (failed && fd >= 0) {
        (void)unlink(temporary);
    }
    free(temporary);
    return status;
}

struct main_parts {
    const struct controller_options *options;
    struct log *log;
    const sigset_t *signals;
    char db[MAIN_PATH_BYTES];
    struct service service;
    struct http_server *server;
    struct webhook *webhook; /* NULL: none */
    struct access_mark mark; /* when streams were last looked at */
    struct file_watch files; /* certificates and keys in use */
    int64_t files_ns;        /* when they are looked at again */
};

static enum log_level main_level(const struct controller_options *options) {
    return options->verbose ? LOG_LEVEL_DEBUG : LOG_LEVEL_INFO;
}

/* Takes up what may change while it runs; the rest of the news is named only. */
static void main_take_news(struct main_parts *parts, const struct config_news *news) {
    const struct controller_options *options = news->options;
    jobs_set_defaults(parts->service.jobs, options->mode, &options->limits);
    store_set_keep(parts->service.store, &options->store);
    /* The address is that of the start. */
    struct listen_options listen = {.host = parts->options->listen.host,
                                    .has_rate = options->listen.has_rate,
                                    .max_rate = options->listen.max_rate};
    http_server_set_rate(parts->server, listen_rate(&listen));
    log_set_least(parts->log, main_level(options));
    log_line(parts->log, LOG_LEVEL_INFO, "SIGHUP: the settings were read again%s%s",
             news->changed[0] != '\0' ? ", changed: " : ", nothing has changed", news->changed);
    if (news->waiting[0] != '\0') {
        log_line(parts->log, LOG_LEVEL_WARNING, "SIGHUP: needs a restart: %s", news->waiting);
    }
}

static void main_reload_settings(struct main_parts *parts) {
    struct deft_error error = {0};
    struct config_news news;
    if (config_reload(parts->service.config, &news, &error) == DEFT_OK) {
        main_take_news(parts, &news);
    } else {
        log_line(parts->log, LOG_LEVEL_ERROR, "SIGHUP: the old settings stay in use: %s",
                 error.text);
    }
}

/* `why`: what the log says before the sentence. */
static void main_reload_webhook(struct main_parts *parts, const char *why) {
    struct deft_error error = {0};
    if (parts->webhook == NULL) {
        return;
    }
    if (webhook_reload(parts->webhook, &error) == DEFT_OK) {
        log_line(parts->log, LOG_LEVEL_INFO, "%s: the webhook's certificate was read again", why);
    } else {
        log_line(parts->log, LOG_LEVEL_ERROR, "%s: the webhook's old certificate stays in use: %s",
                 why, error.text);
    }
}

static void main_reload_tls(struct main_parts *parts, const char *why) {
    struct deft_error error = {0};
    if (parts->service.tls == NULL) {
        return;
    }
    if (http_tls_reload(parts->service.tls, &error) == DEFT_OK) {
        log_line(parts->log, LOG_LEVEL_INFO, "%s: the certificate was read again", why);
    } else {
        log_line(parts->log, LOG_LEVEL_ERROR, "%s: the old certificate stays in use: %s", why,
                 error.text);
    }
}

static void main_reload(struct main_parts *parts) {
    int has_file = settings_file(config_settings(parts->service.config)) != NULL;
    if (has_file) {
        main_reload_settings(parts);
    }
    file_watch_take(&parts->files); /* before they are read: what comes meanwhile is read again */
    main_reload_webhook(parts, "SIGHUP");
    main_reload_tls(parts, "SIGHUP");
    if (!has_file && parts->service.tls == NULL && parts->webhook == NULL) {
        log_line(parts->log, LOG_LEVEL_INFO, "SIGHUP: there is nothing to be read again");
    }
}

static void main_look_at_files(struct main_parts *parts) {
    int64_t now_ns = clock_monotonic_ns();
    if (now_ns < parts->files_ns) {
        return;
    }
    parts->files_ns = now_ns + MAIN_FILES_NS;
    if (file_watch_look(&parts->files)) {
        main_reload_webhook(parts, "new files");
        main_reload_tls(parts, "new files");
    }
}

/* Tokens made or revoked by another program, and those that have expired. */
static void main_look_at_tokens(struct main_parts *parts) {
    struct deft_error error = {0};
    if (access_refresh(parts->service.access, &error) != DEFT_OK) {
        log_line(parts->log, LOG_LEVEL_DEBUG, "the tokens cannot be read: %s", error.text);
    }
    if (access_has_changed(parts->service.access, &parts->mark, clock_wall_ns())) {
        http_server_check_streams(parts->server, service_keeps_stream, &parts->service);
    }
}

/* Signals are blocked everywhere and waited for here: no handler, no race. */
static void main_wait(struct main_parts *parts) {
    const struct timespec tick = {.tv_nsec = MAIN_TICK_NS};
    for (;;) {
        int number = sigtimedwait(parts->signals, NULL, &tick);
        if (number == SIGHUP) {
            main_reload(parts);
        } else if (number > 0) {
            log_line(parts->log, LOG_LEVEL_INFO, "stopping on signal %d", number);
            return;
        }
        main_look_at_tokens(parts);
        main_look_at_files(parts);
        service_changes_tick(parts->service.changes);
    }
}

static void main_watch_files(struct main_parts *parts) {
    const struct listen_options *listen = &parts->options->listen;
    const struct webhook_options *webhook = &parts->options->webhook;
    const char *const paths[] = {listen->cert_file,  listen->key_file,  listen->client_ca_file,
                                 webhook->cert_file, webhook->key_file, webhook->client_ca_file};
    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
        file_watch_add(&parts->files, paths[i]);
    }
}

static void main_tell(const struct main_parts *parts) {
    const struct listen_options *listen = &parts->options->listen;
    if (!listen_is_private(listen) && parts->service.tls == NULL) {
        log_line(parts->log, LOG_LEVEL_WARNING,
                 "without --tls-cert tokens and reports travel in the clear");
    }
    if (access_is_open(parts->service.access)) {
        log_line(parts->log, LOG_LEVEL_INFO,
                 "open to every user of this machine, since no token was ever made");
    }
    log_line(parts->log, LOG_LEVEL_INFO, "listening on %s port %u%s, database %s", listen->host,
             (unsigned)http_server_port(parts->server), parts->service.tls != NULL ? " (TLS)" : "",
             parts->db);
}

static enum deft_status main_start_webhook(struct main_parts *parts, struct deft_error *error) {
    const struct webhook_parts webhook = {.options = &parts->options->webhook,
                                          .host = parts->options->listen.host,
                                          .store = parts->service.store,
                                          .access = parts->service.access,
                                          .log = parts->log};
    return webhook.options->cert_file != NULL ? webhook_start(&webhook, &parts->webhook, error)
                                              : DEFT_OK;
}

static enum deft_status main_serve(struct main_parts *parts, struct deft_error *error) {
    const struct controller_options *options = parts->options;
    struct service *service = &parts->service;
    struct http_server_options http = {.n_threads = MAIN_THREADS,
                                       .max_body_bytes = WIRE_MAX_BODY_BYTES,
                                       .routes = service_routes,
                                       .n_routes = service_n_routes,
                                       .authorize = service_authorize,
                                       .context = service};
    const struct jobs_options jobs = {.store = service->store,
                                      .log = parts->log,
                                      .tuner = options->tuner,
                                      .mode = options->mode,
                                      .limits = options->limits};
    enum deft_status status =
        access_open(service->store, listen_is_private(&options->listen), &service->access, error);
    if (status == DEFT_OK) {
        status = jobs_start(&jobs, &service->jobs, error);
    }
    if (status == DEFT_OK) {
        status = service_changes_open(service->jobs, &service->changes, error);
    }
    if (status == DEFT_OK) {
        listen_fill(&options->listen, service->tls, &http);
        status = http_server_start(&http, &parts->server, error);
    }
    if (status == DEFT_OK) {
        main_tell(parts);
        main_watch_files(parts);
        status = main_start_webhook(parts, error);
    }
    if (status == DEFT_OK && options->port_file != NULL) {
        status = main_write_port(options->port_file, http_server_port(parts->server), error);
    }
    if (status == DEFT_OK) {
        notify_send(NOTIFY_READY);
        main_wait(parts);
        notify_send(NOTIFY_STOPPING);
    }
    return status;
}

static enum deft_status main_run(struct config *config, struct log *log, const sigset_t *signals,
                                 struct deft_error *error) {
    const struct controller_options *options = config_options(config);
    struct main_parts parts = {.options = options, .log = log, .signals = signals};
    struct service *service = &parts.service;
    service->config = config;
    service->wants_certificates = options->listen.client_ca_file != NULL;
    service->n_metric_jobs = options->listen.metrics_jobs;
    enum deft_status status = main_db(options, parts.db, error);
    if (status == DEFT_OK) {
        status = listen_open_tls(&options->listen, &service->tls, error);
    }
    if (status == DEFT_OK) {
        status = store_open_with(parts.db, &options->store, &service->store, error);
    }
    if (status == DEFT_OK) {
        status = main_serve(&parts, error);
    }
    webhook_stop(parts.webhook);
    http_server_stop(parts.server);
    service_changes_close(service->changes);
    jobs_stop(service->jobs);
    access_close(service->access);
    store_close(service->store);
    http_tls_close(service->tls);
    return status;
}

/* 1 when the command line was one of a subcommand, whose exit status is `*out`. */
static int main_subcommand(int argc, char **argv, int *out) {
    if (argc > 1 && strcmp(argv[1], "replay") == 0) {
        *out = replay_main(argc - 1, argv + 1);
        return 1;
    }
    if (argc > 1 && strcmp(argv[1], "db") == 0) {
        *out = db_command_main(argc - 1, argv + 1);
        return 1;
    }
    if (argc > 1 && strcmp(argv[1], "token") == 0) {
        *out = token_main(argc - 1, argv + 1);
        return 1;
    }
    return 0;
}

/* Reads all settings; what --check-config and --print-config ask for is done here. */
static enum deft_status main_settings(int argc, char **argv, struct config **out,
                                      struct deft_error *error) {
    struct settings *settings = NULL;
    enum deft_status status =
        settings_read(&controller_options_program, argc, argv, environ, &settings, error);
    if (status == DEFT_OK) {
        status = config_open(settings, out, error);
    }
    if (status == DEFT_OK && settings_task(settings) == SETTINGS_PRINT) {
        status = settings_print(settings, stdout, error);
    }
    return status;
}

/* As many descriptors as there may be: each agent takes two, and most systems give 1,024 to those
 * that do not ask. */
static void main_raise_descriptors(void) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &limit);
    }
}

static enum deft_status main_start(struct config *config, struct deft_error *error) {
    struct log log;
    sigset_t signals;
    (void)sigemptyset(&signals);
    (void)sigaddset(&signals, SIGTERM);
    (void)sigaddset(&signals, SIGINT);
    (void)sigaddset(&signals, SIGHUP);
    (void)pthread_sigmask(SIG_BLOCK, &signals, NULL);
    (void)signal(SIGPIPE, SIG_IGN);
    (void)umask(0077);
    main_raise_descriptors();
    enum deft_status status =
        log_open(&log, "deft-controller", NULL, main_level(config_options(config)), error);
    if (status == DEFT_OK) {
        status = main_run(config, &log, &signals, error);
        log_close(&log);
    }
    return status;
}

int main(int argc, char **argv) {
    struct config *config = NULL;
    struct deft_error error = {0};
    int exit_status = 0;
    streams_begin("deft-controller");
    argp_err_exit_status = MAIN_EXIT_USAGE;
    if (main_subcommand(argc, argv, &exit_status)) {
        return exit_status;
    }
    enum deft_status status = main_settings(argc, argv, &config, &error);
    if (status != DEFT_OK) {
        exit_status = MAIN_EXIT_USAGE;
    } else if (settings_task(config_settings(config)) == SETTINGS_RUN) {
        status = main_start(config, &error);
        exit_status = status == DEFT_OK ? 0 : 1;
    }
    if (status != DEFT_OK) {
        (void)fprintf(stderr, "deft-controller: %s\n", error.text);
    }
    config_close(config);
    return exit_status;
}
