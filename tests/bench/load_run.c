/* A controller under the load of many agents: tests/bench/load runs it. Starts deft-controller with
 * a database of its own, lets a fleet of agents register, hold their streams and report at their
 * pace, lets an operator change the mode of the largest job, and in the end compares the database
 * with what was acknowledged. The last line is one JSON object. */
#include <argp.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/parse.h"
#include "load_fleet.h"

#define RUN_NS_PER_S INT64_C(1000000000)
/* Descriptors of the controller, and of this program, beside those of agents. */
#define RUN_RESERVE 256u
/* For whatever must happen before the measurement and after it. */
#define RUN_PATIENCE_NS (120 * RUN_NS_PER_S)
/* A push that has not arrived after this time is counted as lost. */
#define RUN_PUSH_NS (10 * RUN_NS_PER_S)
/* Between two calls of the operator. */
#define RUN_PAUSE_NS (2 * RUN_NS_PER_S)

struct run_options {
    struct load_options fleet;
    const char *controller;
    const char *dir;
    int64_t seconds;
    int keeps;
};
struct run {
    struct run_options options;
    char dir[256];
    char db[288];
    char log[288];
    char port_file[288];
    pid_t pid;
    struct load_fleet *fleet;
    int64_t told_ns;
};

static volatile sig_atomic_t run_stop;

static void run_on_signal(int number) {
    run_stop = number;
}

/* --- options ------------------------------------------------------------------------------------
 */

enum run_key {
    KEY_LARGE = 256,
    KEY_SMALL,
    KEY_INTERVAL,
    KEY_REPORTS,
    KEY_RESTARTS,
    KEY_CONTROLLER,
    KEY_DIR,
    KEY_KEEP,
};
static const struct argp_option run_table[] = {
    {"agents", 'a', "N", 0, "Agents, one rank each (10000)", 0},
    {"seconds", 's', "S", 0, "Length of the measurement (30)", 0},
    {"large", KEY_LARGE, "N", 0, "Agents of the first job, whose plans are pushed (1000)", 0},
    {"small", KEY_SMALL, "N", 0, "Agents of each other job (8)", 0},
    {"interval", KEY_INTERVAL, "MS", 0, "Between two reports of an agent (1000)", 0},
    {"reports", KEY_REPORTS, "N", 0,
     "Of each agent, the next as soon as one is acknowledged, instead of a length and a pace", 0},
    {"restarts", KEY_RESTARTS, "N", 0,
     "An agent is started anew once in so many reports; 0: never (3000)", 0},
    {"controller", KEY_CONTROLLER, "FILE", 0, "deft-controller (that of this build)", 0},
    {"dir", KEY_DIR, "DIR", 0, "Folder for the database, on the disk that is meant (TMPDIR)", 0},
    {"keep", KEY_KEEP, NULL, 0, "Leave the database and the controller's log there", 0},
    {0}};

static error_t run_parse(int key, char *argument, struct argp_state *state) {
    struct run_options *options = state->input;
    struct deft_error error = {0};
    uint64_t number = 0;
    if (key == KEY_CONTROLLER || key == KEY_DIR || key == KEY_KEEP) {
        options->controller = key == KEY_CONTROLLER ? argument : options->controller;
        options->dir = key == KEY_DIR ? argument : options->dir;
        options->keeps |= key == KEY_KEEP;
        return 0;
    }
    if (argument == NULL || key == ARGP_KEY_ARG) {
        return ARGP_ERR_UNKNOWN;
    }
    uint64_t least = key == KEY_RESTARTS || key == KEY_REPORTS ? 0 : 1;
    if (parse_u64("the number", argument, least, 1000000, &number, &error) != DEFT_OK) {
        argp_error(state, "%s", error.text);
    }
    switch (key) {
    case 'a':
        options->fleet.n_agents = (uint32_t)number;
        return 0;
    case 's':
        options->seconds = (int64_t)number;
        return 0;
    case KEY_LARGE:
        options->fleet.n_large = (uint32_t)number;
        return 0;
    case KEY_SMALL:
        options->fleet.n_small = (uint32_t)number;
        return 0;
    case KEY_INTERVAL:
        options->fleet.interval_ns = (int64_t)number * 1000000;
        return 0;
    case KEY_REPORTS:
        options->fleet.n_reports = number;
        return 0;
    case KEY_RESTARTS:
        options->fleet.restart_every = (uint32_t)number;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* --- the controller -----------------------------------------------------------------------------
 */

_Noreturn static void run_fail(const char *what) {
    (void)fprintf(stderr, "load: %s\n", what);
    exit(1);
}

_Noreturn static void run_exec(const struct run *run, int log_fd) {
    const char *argv[] = {run->options.controller, "--port",       "0",        "--db", run->db,
                          "--port-file",           run->port_file, "--warmup", "0",    NULL};
    char *const *arguments;
    memcpy(&arguments, &(const char *const *){argv}, sizeof(arguments));
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)dup2(log_fd, STDERR_FILENO);
    (void)execv(run->options.controller, arguments);
    (void)fprintf(stderr, "load: %s cannot be started: %s\n", run->options.controller,
                  strerrordesc_np(errno));
    _exit(127);
}

static uint16_t run_read_port(const struct run *run) {
    char text[16] = "";
    FILE *file = fopen(run->port_file, "re");
    if (file != NULL) {
        size_t n = fread(text, 1, sizeof(text) - 1, file);
        text[n] = '\0';
        (void)fclose(file);
    }
    return (uint16_t)strtoul(text, NULL, 10);
}

static uint16_t run_start(struct run *run) {
    int64_t until_ns = clock_monotonic_ns() + RUN_PATIENCE_NS;
    int log_fd = open(run->log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (log_fd < 0) {
        run_fail("the controller's log cannot be made");
    }
    run->pid = fork();
    if (run->pid == 0) {
        run_exec(run, log_fd);
    }
    (void)close(log_fd);
    uint16_t port = 0;
    while (port == 0 && run_stop == 0 && clock_monotonic_ns() < until_ns) {
        if (run->pid < 0 || waitpid(run->pid, NULL, WNOHANG) == run->pid) {
            run->pid = 0;
            break;
        }
        (void)poll(NULL, 0, 5);
        port = run_read_port(run);
    }
    return port;
}

static void run_end(struct run *run) {
    int status = 0;
    if (run->pid > 0) {
        (void)kill(run->pid, SIGTERM);
        (void)waitpid(run->pid, &status, 0);
        if (status != 0) {
            (void)fprintf(stderr, "load: the controller ended with status %d, see %s\n", status,
                          run->log);
            run->options.keeps = 1;
        }
    }
    run->pid = 0;
}

/* Seconds of a processor that it has used. */
static double run_cpu_s(const struct run *run) {
    char path[64];
    char text[1024] = "";
    (void)snprintf(path, sizeof(path), "/proc/%d/stat", (int)run->pid);
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return (double)NAN;
    }
    text[fread(text, 1, sizeof(text) - 1, file)] = '\0';
    (void)fclose(file);
    char *at = strrchr(text, ')');
    double ticks = 0;
    for (int field = 3; at != NULL && field <= 15; field++) {
        at = strchr(at + 1, ' ');
        ticks += at != NULL && field >= 14 ? (double)strtoul(at + 1, NULL, 10) : 0;
    }
    return ticks / (double)sysconf(_SC_CLK_TCK);
}

/* A line of /proc/PID/status in MiB. */
static double run_memory_mb(const struct run *run, const char *name) {
    char path[64];
    char line[256];
    double mb = (double)NAN;
    (void)snprintf(path, sizeof(path), "/proc/%d/status", (int)run->pid);
    FILE *file = fopen(path, "re");
    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        if (strncmp(line, name, strlen(name)) == 0) {
            mb = (double)strtoul(line + strlen(name) + 1, NULL, 10) / 1024;
        }
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    return mb;
}

static double run_own_cpu_s(void) {
    struct rusage usage;
    (void)getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

/* --- the course ---------------------------------------------------------------------------------
 */

static void run_tell(struct run *run) {
    struct load_figures figures;
    const struct load_times *acks = load_fleet_acks(run->fleet);
    load_fleet_figures(run->fleet, &figures);
    (void)fprintf(stderr,
                  "load: %u agents stand, %" PRIu64 " reports acknowledged, p50 %.1f ms, p99 %.1f"
                  " ms, %" PRIu64 " busy, %" PRIu64 " broken, RSS %.0f MiB\n",
                  figures.n_ready, figures.n_acknowledged, load_times_quantile_ms(acks, 0.5),
                  load_times_quantile_ms(acks, 0.99), figures.n_busy, figures.n_broken,
                  run_memory_mb(run, "VmRSS:"));
}

/* As load_fleet_run, telling how it goes. */
static int run_until(struct run *run, int64_t until_ns, load_fleet_fn is_done) {
    int done = 0;
    while (!done && run_stop == 0 && clock_monotonic_ns() < until_ns) {
        int64_t next_ns = run->told_ns + RUN_NS_PER_S;
        done = load_fleet_run(run->fleet, next_ns < until_ns ? next_ns : until_ns, is_done, NULL);
        if (clock_monotonic_ns() >= next_ns) {
            run->told_ns = clock_monotonic_ns();
            run_tell(run);
        }
    }
    return done;
}

static int64_t run_least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* The operator: as soon as a plan runs, the mode is set to observe, which pushes the exact plan;
 * then to auto again, after which the next plan comes. */
static void run_operate(struct run *run, int64_t end_ns) {
    while (run_stop == 0 && clock_monotonic_ns() < end_ns) {
        if (!run_until(run, end_ns, load_fleet_has_plan)) {
            return;
        }
        for (int i = 0; i < 2 && clock_monotonic_ns() + RUN_PUSH_NS / 10 < end_ns; i++) {
            load_fleet_call(run->fleet, i == 0 ? "observe" : "auto");
            (void)run_until(run, clock_monotonic_ns() + RUN_PUSH_NS, load_fleet_is_pushed);
            (void)run_until(run, end_ns, load_fleet_has_switched);
            (void)run_until(run, run_least(end_ns, clock_monotonic_ns() + RUN_PAUSE_NS), NULL);
        }
        (void)run_until(run, run_least(end_ns, clock_monotonic_ns() + RUN_PAUSE_NS), NULL);
    }
}

/* What was used between two moments. */
struct run_usage {
    int64_t at_ns;
    double cpu_s;
    double own_cpu_s;
    uint64_t n_acknowledged;
    double rss_mb;
};

static void run_use(const struct run *run, struct run_usage *out) {
    struct load_figures figures;
    load_fleet_figures(run->fleet, &figures);
    *out = (struct run_usage){.at_ns = clock_monotonic_ns(),
                              .cpu_s = run_cpu_s(run),
                              .own_cpu_s = run_own_cpu_s(),
                              .n_acknowledged = figures.n_acknowledged,
                              .rss_mb = run_memory_mb(run, "VmRSS:")};
}

static void run_number(const char *key, double value, int digits) {
    if (isnan(value)) {
        (void)printf("\"%s\":null,", key);
    } else {
        (void)printf("\"%s\":%.*f,", key, digits, value);
    }
}

/* 1 when all is well. */
static int run_report(struct run *run, const struct run_usage *from, const struct run_usage *to,
                      double peak_mb) {
    struct load_figures figures;
    uint64_t lost = 0;
    uint64_t twice = 0;
    const struct load_times *acks = load_fleet_acks(run->fleet);
    const struct load_times *plans = load_fleet_plans(run->fleet);
    const struct load_times *modes = load_fleet_modes(run->fleet);
    double seconds = (double)(to->at_ns - from->at_ns) / 1e9;
    double cores = (double)sysconf(_SC_NPROCESSORS_ONLN);
    load_fleet_figures(run->fleet, &figures);
    load_fleet_check(run->fleet, run->db, &lost, &twice);
    (void)printf("{\"agents\":%u,", run->options.fleet.n_agents);
    run_number("seconds", seconds, 1);
    run_number("reports_per_s", (double)(to->n_acknowledged - from->n_acknowledged) / seconds, 0);
    run_number("ack_p50_ms", load_times_quantile_ms(acks, 0.5), 1);
    run_number("ack_p99_ms", load_times_quantile_ms(acks, 0.99), 1);
    run_number("ack_max_ms", (double)acks->most_ns / 1e6, 1);
    run_number("push_p50_ms", load_times_quantile_ms(plans, 0.5), 1);
    run_number("push_p99_ms", load_times_quantile_ms(plans, 0.99), 1);
    run_number("mode_p99_ms", load_times_quantile_ms(modes, 0.99), 1);
    run_number("rss_mb", peak_mb, 0);
    run_number("rss_growth_mb", to->rss_mb - from->rss_mb, 1);
    run_number("cpu_frac", (to->cpu_s - from->cpu_s) / seconds / cores, 3);
    run_number("own_cpu_frac", (to->own_cpu_s - from->own_cpu_s) / seconds / cores, 3);
    (void)printf("\"pushes\":%" PRIu64 ",\"unpushed\":%" PRIu64 ",\"acknowledged\":%" PRIu64
                 ",\"busy\":%" PRIu64 ",\"broken\":%" PRIu64 ",\"refused\":%" PRIu64
                 ",\"restarts\":%" PRIu64 ",\"lost\":%" PRIu64 ",\"duplicated\":%" PRIu64 "}\n",
                 figures.n_pushes, figures.n_unpushed, figures.n_acknowledged, figures.n_busy,
                 figures.n_broken, figures.n_refused, figures.n_starts, lost, twice);
    return lost == 0 && twice == 0 && figures.n_unpushed == 0 && figures.n_refused == 0;
}

static int run_measure(struct run *run) {
    struct run_usage from;
    struct run_usage to = {0};
    if (!run_until(run, clock_monotonic_ns() + RUN_PATIENCE_NS + run->options.fleet.ramp_ns,
                   load_fleet_is_ready)) {
        run_tell(run);
        (void)fprintf(stderr, "load: not all agents have come to stand\n");
        return 0;
    }
    /* What waited for the last of them to come. */
    (void)run_until(run, clock_monotonic_ns() + 3 * RUN_NS_PER_S, NULL);
    load_fleet_begin(run->fleet);
    run_use(run, &from);
    if (run->options.fleet.n_reports == 0) {
        run_operate(run, from.at_ns + run->options.seconds * RUN_NS_PER_S);
        run_use(run, &to);
        load_fleet_drain(run->fleet);
    }
    int is_idle = run_until(run, clock_monotonic_ns() + 10 * RUN_PATIENCE_NS, load_fleet_is_idle);
    if (run->options.fleet.n_reports > 0) {
        run_use(run, &to);
    }
    if (!is_idle) {
        run_tell(run);
        (void)fprintf(stderr, "load: not all reports were acknowledged\n");
    }
    double peak_mb = run_memory_mb(run, "VmHWM:");
    run_end(run);
    return run_report(run, &from, &to, peak_mb) && is_idle;
}

static void run_prepare(struct run *run) {
    struct rlimit limit;
    uint32_t n_agents = run->options.fleet.n_agents;
    const char *dir = run->options.dir != NULL ? run->options.dir : getenv("TMPDIR");
    (void)getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_max < n_agents + 2 * RUN_RESERVE) {
        (void)fprintf(stderr,
                      "load: a process may hold %llu descriptors here, but %u agents need %u; a"
                      " higher limit (ulimit -Hn) or fewer agents were expected\n",
                      (unsigned long long)limit.rlim_max, n_agents, n_agents + 2 * RUN_RESERVE);
        exit(1);
    }
    uint64_t kept = limit.rlim_max - n_agents - RUN_RESERVE;
    run->options.fleet.n_kept = kept < n_agents ? (uint32_t)kept : n_agents;
    (void)snprintf(run->dir, sizeof(run->dir), "%s/deft-load-XXXXXX", dir != NULL ? dir : "/tmp");
    if (mkdtemp(run->dir) == NULL) {
        run_fail("the folder for the database cannot be made");
    }
    (void)snprintf(run->db, sizeof(run->db), "%s/deft.db", run->dir);
    (void)snprintf(run->log, sizeof(run->log), "%s/log", run->dir);
    (void)snprintf(run->port_file, sizeof(run->port_file), "%s/port", run->dir);
}

static void run_clean(const struct run *run) {
    static const char *const names[] = {"deft.db",      "deft.db-wal", "deft.db-shm",
                                        "deft.db.lock", "log",         "port"};
    for (size_t i = 0; !run->options.keeps && i < sizeof(names) / sizeof(names[0]); i++) {
        char path[320];
        (void)snprintf(path, sizeof(path), "%s/%s", run->dir, names[i]);
        (void)unlink(path);
    }
    if (run->options.keeps) {
        (void)fprintf(stderr, "load: database and log are in %s\n", run->dir);
    } else {
        (void)rmdir(run->dir);
    }
}

int main(int argc, char **argv) {
    static const struct argp argp = {
        .options = run_table, .parser = run_parse, .doc = "deft-controller under load."};
    static struct run run = {.options = {.controller = DEFT_CONTROLLER,
                                         .seconds = 30,
                                         .fleet = {.n_agents = 10000,
                                                   .n_large = 1000,
                                                   .n_small = 8,
                                                   .interval_ns = RUN_NS_PER_S,
                                                   .restart_every = 3000,
                                                   .seed = 20261130,
                                                   .log_fd = -1,
                                                   .stop = &run_stop}}};
    const struct sigaction on_signal = {.sa_handler = run_on_signal};
    struct load_options *fleet = &run.options.fleet;
    (void)argp_parse(&argp, argc, argv, 0, NULL, &run.options);
    (void)sigaction(SIGINT, &on_signal, NULL);
    (void)sigaction(SIGTERM, &on_signal, NULL);
    run_prepare(&run);
    if (fleet->n_reports > 0) {
        fleet->interval_ns = 0;
    }
    fleet->ramp_ns = (int64_t)fleet->n_agents * 1000000;
    fleet->port = run_start(&run);
    int is_well = 0;
    if (fleet->port != 0) {
        run.told_ns = clock_monotonic_ns();
        run.fleet = load_fleet_new(fleet);
        is_well = run.fleet != NULL && run_measure(&run);
    } else if (run_stop == 0) {
        (void)fprintf(stderr, "load: the controller has not started, see %s\n", run.log);
        run.options.keeps = 1;
    }
    run_end(&run);
    load_fleet_free(run.fleet);
    run_clean(&run);
    if (run_stop != 0) {
        return 128 + (int)run_stop;
    }
    return is_well ? 0 : 1;
}
