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

#include "base/log.h"
#include "base/parse.h"
#include "base/state_dir.h"
#include "http/http_server.h"
#include "jobs.h"
#include "replay.h"
#include "service.h"
#include "store/store.h"

#define MAIN_PORT            7600u
#define MAIN_PATH_BYTES      4096u
#define MAIN_THREADS         4u
#define MAIN_MAX_CONNECTIONS 16384u
#define MAIN_EXIT_USAGE      2
/* Far beyond any job; what is counted from here must not overflow. */
#define MAIN_MAX_ITERATIONS 1000000000u

struct main_options {
    const char *listen;
    uint16_t port;
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
    {"listen", 'l', "HOST", 0, "Loopback address to listen on (127.0.0.1)", 0},
    {"port", 'p', "N", 0, "Port; 0: the system chooses (7600)", 0},
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
    uint64_t number = 0;
    switch (key) {
    case 'l':
        options->listen = argument;
        return 0;
    case 'p':
        main_number(state, "--port", argument, 0, UINT16_MAX, &number);
        options->port = (uint16_t)number;
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

/* Without tokens anybody who reaches the port may steer every job. */
static enum deft_status main_check_listen(const char *host, struct deft_error *error) {
    if (strcmp(host, "localhost") == 0 || strcmp(host, "::1") == 0 ||
        strncmp(host, "127.", 4) == 0) {
        return DEFT_OK;
    }
    return deft_fail(error, DEFT_INVALID, 0,
                     "--listen %s is not a loopback address: there are no access tokens yet, so "
                     "other hosts are not served",
                     host);
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

/* Signals are blocked everywhere and waited for here: no handler, no race. */
static void main_wait(const struct log *log, const sigset_t *signals) {
    int number = 0;
    (void)sigwait(signals, &number);
    log_line(log, LOG_LEVEL_INFO, "stopping on signal %d", number);
}

static enum deft_status main_run(const struct main_options *options, const struct log *log,
                                 const sigset_t *signals, struct deft_error *error) {
    struct service service = {0};
    struct http_server *server = NULL;
    enum deft_status status = store_open(options->db, &service.store, error);
    if (status != DEFT_OK) {
        return status;
    }
    struct jobs_options jobs = {.store = service.store,
                                .log = log,
                                .tuner = options->tuner,
                                .mode = options->mode,
                                .limits = options->limits};
    const struct http_server_options http = {.listen_host = options->listen,
                                             .port = options->port,
                                             .n_threads = MAIN_THREADS,
                                             .max_connections = MAIN_MAX_CONNECTIONS,
                                             .max_body_bytes = WIRE_MAX_BODY_BYTES,
                                             .literal_hosts_only = 1,
                                             .routes = service_routes,
                                             .n_routes = service_n_routes,
                                             .context = &service};
    status = jobs_start(&jobs, &service.jobs, error);
    if (status != DEFT_OK) {
        goto done;
    }
    status = http_server_start(&http, &server, error);
    if (status != DEFT_OK) {
        goto done;
    }
    log_line(log, LOG_LEVEL_INFO, "listening on %s port %u, database %s", options->listen,
             (unsigned)http_server_port(server), options->db);
    if (options->port_file != NULL) {
        status = main_write_port(options->port_file, http_server_port(server), error);
        if (status != DEFT_OK) {
            goto done;
        }
    }
    main_wait(log, signals);
done:
    http_server_stop(server);
    jobs_stop(service.jobs);
    store_close(service.store);
    return status;
}

int main(int argc, char **argv) {
    static const struct argp argp = {
        .options = main_argp_options,
        .parser = main_parse,
        .doc = "The controller of DeFT Tuner: takes the reports of training jobs, plans their "
               "communication, and answers the REST API. 'deft-controller replay --help' tells how "
               "its decisions are checked.\v"
               "Exit status: 0 after SIGTERM or SIGINT, 1 when it cannot run, 2 for a wrong "
               "command line."};
    struct main_options options = {.listen = "127.0.0.1", .port = MAIN_PORT, .mode = TUNER_OBSERVE};
    struct deft_error error = {0};
    struct log log;
    sigset_t signals;
    argp_err_exit_status = MAIN_EXIT_USAGE;
    if (argc > 1 && strcmp(argv[1], "replay") == 0) {
        return replay_main(argc - 1, argv + 1);
    }
    tuner_defaults(&options.tuner);
    quantify_default_limits(&options.limits);
    (void)argp_parse(&argp, argc, argv, 0, NULL, &options);
    if (main_check_listen(options.listen, &error) != DEFT_OK) {
        (void)fprintf(stderr, "deft-controller: %s\n", error.text);
        return MAIN_EXIT_USAGE;
    }
    (void)sigemptyset(&signals);
    (void)sigaddset(&signals, SIGTERM);
    (void)sigaddset(&signals, SIGINT);
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
