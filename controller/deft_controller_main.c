#include <argp.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/parse.h"
#include "base/state_dir.h"
#include "db_command.h"
#include "http/http_server.h"
#include "jobs.h"
#include "keep_options.h"
#include "listen_options.h"
#include "replay.h"
#include "service.h"
#include "store/store.h"
#include "token_main.h"

#define MAIN_PATH_BYTES 4096u
#define MAIN_THREADS    4u
/* How often the tokens are looked at, whatever made or revoked them. */
#define MAIN_TICK_NS    INT64_C(500000000)
#define MAIN_EXIT_USAGE 2
/* Far beyond any job; what is counted from here must not overflow. */
#define MAIN_MAX_ITERATIONS 1000000000u

struct main_options {
    struct listen_options listen;
    struct store_options store;
    char db[MAIN_PATH_BYTES];
    const char *port_file;
    struct wire_limits limits;
    struct tuner_config tuner;
    enum tuner_mode mode;
    int verbose;
};

enum main_key {
    KEY_MAX_MERGE = 256,
    KEY_MAX_DELAY,
    KEY_EPSILON,
    KEY_MIN_PROGRESS,
    KEY_WARMUP,
    KEY_GUARD,
    KEY_PORT_FILE,
    KEY_MODE,
};

/* glibc's argp looks it up by name, past the hidden default of this build. */
__attribute__((visibility("default"))) const char *argp_program_version =
    "deft-controller " DEFT_VERSION_TEXT;

static const struct argp_option main_argp_options[] = {
    {"db", 'd', "FILE", 0, "Database (deft.db in the state directory)", 0},
    {"port-file", KEY_PORT_FILE, "FILE", 0, "Write the port there once requests are taken", 0},
    {"mode", KEY_MODE, "MODE", 0, "Of new jobs: off, observe or auto (observe)", 0},
    {"max-merge", KEY_MAX_MERGE, "K", 0, "Of new jobs: iterations merged at most (3)", 0},
    {"max-delay", KEY_MAX_DELAY, "N", 0, "Of new jobs: boundaries of delay at most (8)", 0},
    {"epsilon", KEY_EPSILON, "E", 0,
     "Of new jobs: excess loss over exact's at most, a fraction (0.01)", 0},
    {"min-progress", KEY_MIN_PROGRESS, "P", 0,
     "Of new jobs: progress per sample at least, as a fraction of exact's (0.5)", 0},
    {"warmup", KEY_WARMUP, "N", 0, "First iterations of a job, which stay exact (100)", 0},
    {"guard", KEY_GUARD, "N", 0,
     "Iterations until a committed plan is first compared with exact again (2000)", 0},
    {"verbose", 'v', NULL, 0, "Log more", 0},
    {0}};

static void main_number(struct argp_state *state, const char *name, const char *text,
                        uint64_t least, uint64_t most, uint64_t *out) {
    struct deft_error error = {0};
    if (parse_u64(name, text, least, most, out, &error) != DEFT_OK) {
        argp_error(state, "%s", error.text);
    }
}

static void main_fraction(struct argp_state *state, const char *name, const char *text,
                          double *out) {
    struct deft_error error = {0};
    if (parse_real(name, text, 0, 1, out, &error) != DEFT_OK) {
        argp_error(state, "%s", error.text);
    }
}

/* The limits of new jobs, and how long things take. */
static error_t main_parse_tuning(int key, const char *argument, struct argp_state *state) {
    struct main_options *options = state->input;
    uint64_t number = 0;
    switch (key) {
    case KEY_MAX_MERGE:
        main_number(state, "--max-merge", argument, 1, DSCHED_MAX_MERGE, &number);
        options->limits.max_merge = (uint32_t)number;
        return 0;
    case KEY_MAX_DELAY:
        main_number(state, "--max-delay", argument, 0, DSCHED_MAX_DELAY, &number);
        options->limits.max_delay = (uint32_t)number;
        return 0;
    case KEY_EPSILON:
        main_fraction(state, "--epsilon", argument, &options->limits.epsilon);
        return 0;
    case KEY_MIN_PROGRESS:
        main_fraction(state, "--min-progress", argument, &options->limits.min_progress);
        return 0;
    case KEY_WARMUP:
        main_number(state, "--warmup", argument, 0, MAIN_MAX_ITERATIONS, &number);
        options->tuner.n_warmup = (uint32_t)number;
        return 0;
    case KEY_GUARD:
        main_number(state, "--guard", argument, 1, MAIN_MAX_ITERATIONS, &number);
        options->tuner.n_guard = (uint32_t)number;
        if (options->tuner.n_guard_most < options->tuner.n_guard) {
            options->tuner.n_guard_most = options->tuner.n_guard;
        }
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static error_t main_parse(int key, char *argument, struct argp_state *state) {
    struct main_options *options = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &options->listen;
        state->child_inputs[1] = &options->store;
        return 0;
    case 'd':
        if (strlen(argument) >= sizeof(options->db)) {
            argp_error(state, "--db is longer than %u bytes", MAIN_PATH_BYTES - 1);
        }
        (void)snprintf(options->db, sizeof(options->db), "%s", argument);
        return 0;
    case KEY_PORT_FILE:
        options->port_file = argument;
        return 0;
    case KEY_MODE:
        if (tuner_mode_parse(argument, &options->mode) != DEFT_OK) {
            argp_error(state, "--mode is '%s', expected off, observe or auto", argument);
        }
        return 0;
    case 'v':
        options->verbose = 1;
        return 0;
    case ARGP_KEY_ARG:
        argp_error(state, "'%s' was not expected", argument);
        return EINVAL;
    default:
        return main_parse_tuning(key, argument, state);
    }
}

static enum deft_status main_default_db(struct main_options *options, struct deft_error *error) {
    char dir[MAIN_PATH_BYTES];
    if (options->db[0] != '\0') {
        return DEFT_OK;
    }
    enum deft_status status = state_dir_default(dir, sizeof(dir), error);
    if (status == DEFT_OK) {
        status = state_dir_make(dir, error);
    }
    return status == DEFT_OK
               ? state_dir_join(dir, "deft.db", options->db, sizeof(options->db), error)
               : status;
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
    const struct main_options *options;
    const struct log *log;
    const sigset_t *signals;
    struct service service;
    struct http_server *server;
    struct access_mark mark; /* when streams were last looked at */
};

static void main_reload(struct main_parts *parts) {
    struct deft_error error = {0};
    if (parts->service.tls == NULL) {
        log_line(parts->log, LOG_LEVEL_INFO, "SIGHUP: there is nothing to be read again");
    } else if (http_tls_reload(parts->service.tls, &error) == DEFT_OK) {
        log_line(parts->log, LOG_LEVEL_INFO, "SIGHUP: the certificate was read again");
    } else {
        log_line(parts->log, LOG_LEVEL_ERROR, "SIGHUP: the old certificate stays in use: %s",
                 error.text);
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
             parts->options->db);
}

static enum deft_status main_serve(struct main_parts *parts, struct deft_error *error) {
    const struct main_options *options = parts->options;
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
        listen_fill(&options->listen, service->tls, &http);
        status = http_server_start(&http, &parts->server, error);
    }
    if (status == DEFT_OK) {
        main_tell(parts);
    }
    if (status == DEFT_OK && options->port_file != NULL) {
        status = main_write_port(options->port_file, http_server_port(parts->server), error);
    }
    if (status == DEFT_OK) {
        main_wait(parts);
    }
    return status;
}

static enum deft_status main_run(const struct main_options *options, const struct log *log,
                                 const sigset_t *signals, struct deft_error *error) {
    struct main_parts parts = {.options = options, .log = log, .signals = signals};
    struct service *service = &parts.service;
    service->wants_certificates = options->listen.client_ca_file != NULL;
    service->n_metric_jobs = options->listen.metrics_jobs;
    enum deft_status status = listen_open_tls(&options->listen, &service->tls, error);
    if (status == DEFT_OK) {
        status = store_open_with(options->db, &options->store, &service->store, error);
    }
    if (status == DEFT_OK) {
        status = main_serve(&parts, error);
    }
    http_server_stop(parts.server);
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

int main(int argc, char **argv) {
    static const struct argp_child children[] = {
        {&listen_options_argp, 0, NULL, 0}, {&keep_options_argp, 0, NULL, 0}, {0}};
    static const struct argp argp = {
        .options = main_argp_options,
        .parser = main_parse,
        .children = children,
        .doc = "The controller of DeFT Tuner: takes the reports of training jobs, plans their "
               "communication, and answers the REST API. 'deft-controller replay --help' tells how "
               "its decisions are checked, 'deft-controller token --help' how access is given, "
               "'deft-controller db "
               "--help' what can be done with its database.\v"
               "SIGHUP reads the certificate again. Exit status: 0 after SIGTERM or SIGINT, 1 when "
               "it cannot run, 2 for a wrong "
               "command line."};
    struct main_options options = {.mode = TUNER_OBSERVE};
    struct deft_error error = {0};
    struct log log;
    sigset_t signals;
    int exit_status = 0;
    argp_err_exit_status = MAIN_EXIT_USAGE;
    if (main_subcommand(argc, argv, &exit_status)) {
        return exit_status;
    }
    listen_options_defaults(&options.listen);
    store_defaults(&options.store);
    tuner_defaults(&options.tuner);
    quantify_default_limits(&options.limits);
    (void)argp_parse(&argp, argc, argv, 0, NULL, &options);
    if (listen_check(&options.listen, &error) != DEFT_OK) {
        (void)fprintf(stderr, "deft-controller: %s\n", error.text);
        return MAIN_EXIT_USAGE;
    }
    (void)sigemptyset(&signals);
    (void)sigaddset(&signals, SIGTERM);
    (void)sigaddset(&signals, SIGINT);
    (void)sigaddset(&signals, SIGHUP);
    (void)pthread_sigmask(SIG_BLOCK, &signals, NULL);
    (void)signal(SIGPIPE, SIG_IGN);
    (void)umask(0077);
    enum deft_status status = log_open(&log, "deft-controller", NULL,
                                       options.verbose ? LOG_LEVEL_DEBUG : LOG_LEVEL_INFO, &error);
    if (status == DEFT_OK) {
        status = main_default_db(&options, &error);
    }
    if (status == DEFT_OK) {
        status = main_run(&options, &log, &signals, &error);
    }
    if (status != DEFT_OK) {
        (void)fprintf(stderr, "deft-controller: %s\n", error.text);
        return 1;
    }
    log_close(&log);
    return 0;
}
