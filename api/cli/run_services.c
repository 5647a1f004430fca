#include "run_services.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/state_dir.h"
#include "cli.h"
#include "cli_program.h"
#include "run_spawn.h"

#define RUN_SERVICES_FIRST_RETRY_NS INT64_C(500000000)
#define RUN_SERVICES_CHECK_NS       INT64_C(2000000000)
#define RUN_SERVICES_AGENT_END_NS   INT64_C(3500000000)
#define RUN_SERVICES_END_NS         INT64_C(5000000000)
#define RUN_SERVICES_TICK_MS        10

static void run_services_find(struct run_service *service, const char *name) {
    service->name = name;
    cli_program_find(name, service->program);
}

static void run_services_pause(void) {
    struct timespec tick = {.tv_nsec = RUN_SERVICES_TICK_MS * 1000000L};
    (void)nanosleep(&tick, NULL);
}

/* 1 once `pid` has ended and is reaped. */
static int run_services_await_end(pid_t pid, int64_t patience_ns) {
    int64_t until_ns = clock_monotonic_ns() + patience_ns;
    while (waitpid(pid, NULL, WNOHANG) == 0) {
        if (clock_monotonic_ns() >= until_ns) {
            return 0;
        }
        run_services_pause();
    }
    return 1;
}

static enum deft_status run_services_spawn_controller(struct run_services *services,
                                                      struct deft_error *error) {
    char database[PATH_MAX];
    char port_file[PATH_MAX];
    char port[8];
    const struct run_options *options = services->options;
    enum deft_status status = state_dir_join(options->state_dir, CLI_CONTROLLER_DATABASE, database,
                                             sizeof(database), error);
    if (status == DEFT_OK) {
        status = state_dir_join(options->state_dir, CLI_CONTROLLER_PORT_FILE, port_file,
                                sizeof(port_file), error);
    }
    if (status != DEFT_OK) {
        return status;
    }
    /* A controller that comes back must be where the agents look for it. */
    (void)snprintf(port, sizeof(port), "%u", services->port);
    const char *argv[] = {services->controller.program,
                          "--listen",
                          "127.0.0.1",
                          "--port",
                          port,
                          "--db",
                          database,
                          "--port-file",
                          port_file,
                          NULL};
    const struct run_spawn spawn = {.argv = argv,
                                    .stdout_fd = services->log_fd,
                                    .stderr_fd = services->log_fd,
                                    .pass_fd = -1,
                                    .death_signal = options->keep ? 0 : SIGTERM,
                                    .session = 1};
    status = run_spawn(&spawn, &services->controller.pid, error);
    services->controller.n_starts++;
    services->controller.retry_ns = 0;
    return status;
}

/* The agent is who we are; what is in the environment it inherits. */
static size_t run_services_credentials(const struct run_services *services, const char **argv,
                                       size_t n) {
    const struct client_options *credentials = &services->at.credentials;
    const char *token_file =
        services->at.token_file[0] != '\0' ? services->at.token_file : credentials->token_file;
    const char *const pairs[][2] = {{"--token-file", token_file},
                                    {"--ca-file", credentials->ca_file},
                                    {"--client-cert", credentials->cert_file},
                                    {"--client-key", credentials->key_file},
                                    {"--proxy", credentials->proxy}};
    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
        if (pairs[i][1] != NULL) {
            argv[n++] = pairs[i][0];
            argv[n++] = pairs[i][1];
        }
    }
    return n;
}

static enum deft_status run_services_spawn_agent(struct run_services *services,
                                                 struct deft_error *error) {
    const struct run_options *options = services->options;
    int fds[2];
    char merge[12];
    char delay[12];
    const char *argv[32];
    size_t n = 0;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0) {
        return deft_fail(error, DEFT_IO, errno, "a socket cannot be made: %s", strerror(errno));
    }
    (void)snprintf(merge, sizeof(merge), "%u", options->max_merge);
    (void)snprintf(delay, sizeof(delay), "%u", options->max_delay);
    argv[n++] = services->agent.program;
    argv[n++] = "--socket";
    argv[n++] = services->socket;
    argv[n++] = "--controller";
    argv[n++] = services->at.url;
    argv[n++] = "--job";
    argv[n++] = options->job;
    argv[n++] = "--mode";
    argv[n++] = options->mode;
    argv[n++] = "--ready-fd=3";
    argv[n++] = "--exit-with-fd=3";
    argv[n++] = "--log";
    argv[n++] = services->agent_log;
    if (options->max_merge > 0) {
        argv[n++] = "--max-merge";
        argv[n++] = merge;
    }
    if (options->max_delay > 0) {
        argv[n++] = "--max-delay";
        argv[n++] = delay;
    }
    n = run_services_credentials(services, argv, n);
    argv[n] = NULL;
    const struct run_spawn spawn = {.argv = argv,
                                    .stdout_fd = services->log_fd,
                                    .stderr_fd = services->log_fd,
                                    .pass_fd = fds[1],
                                    .session = 1};
    enum deft_status status = run_spawn(&spawn, &services->agent.pid, error);
    (void)close(fds[1]);
    services->agent.n_starts++;
    services->agent.retry_ns = 0;
    if (status != DEFT_OK) {
        (void)close(fds[0]);
        return status;
    }
    services->agent_fd = fds[0];
    return DEFT_OK;
}

/* Whether the controller of the state directory answers at this port. */
static enum deft_status run_services_reach(struct run_services *services, uint16_t port,
                                           struct deft_error *error) {
    enum deft_status status =
        cli_controller_local(&services->at, services->options->state_dir, port, error);
    return status == DEFT_OK ? cli_controller_health(&services->at, error) : status;
}

/* 1 when `url` answers; else waits for a controller to come up. */
static enum deft_status run_services_await_controller(struct run_services *services,
                                                      run_services_interrupt_fn interrupted,
                                                      void *context, struct deft_error *error) {
    int64_t until_ns = clock_monotonic_ns() + RUN_SERVICES_START_NS;
    while (clock_monotonic_ns() < until_ns && !interrupted(context)) {
        uint16_t port = 0;
        int status;
        if (cli_controller_port(services->options->state_dir, &port, error) == DEFT_OK) {
            if (run_services_reach(services, port, error) == DEFT_OK) {
                services->port = port;
                return DEFT_OK;
            }
        }
        if (services->controller.pid > 0 &&
            waitpid(services->controller.pid, &status, WNOHANG) == services->controller.pid) {
            /* Another `deft run` may have been quicker: then its controller is ours to use. */
            services->controller.pid = 0;
            until_ns = clock_monotonic_ns() + RUN_SERVICES_START_NS / 10;
            (void)deft_fail(error, DEFT_IO, 0, "it has ended; %.200s/%s says why",
                            services->options->state_dir, CLI_CONTROLLER_LOG);
        }
        run_services_pause();
    }
    services->at.url[0] = '\0';
    return deft_fail(error, DEFT_TIMEOUT, 0, "it does not answer; %.200s/%s may say why",
                     services->options->state_dir, CLI_CONTROLLER_LOG);
}

static enum deft_status run_services_want_controller(struct run_services *services,
                                                     run_services_interrupt_fn interrupted,
                                                     void *context, struct deft_error *error) {
    const struct run_options *options = services->options;
    char path[PATH_MAX];
    uint16_t port = 0;
    if (options->controller != NULL) {
        (void)snprintf(services->at.url, sizeof(services->at.url), "%s", options->controller);
        return cli_controller_health(&services->at, error);
    }
    if (cli_controller_port(options->state_dir, &port, error) == DEFT_OK) {
        if (run_services_reach(services, port, error) == DEFT_OK) {
            services->port = port;
            return DEFT_OK;
        }
    }
    /* What is written there is of one that has died. */
    enum deft_status status =
        state_dir_join(options->state_dir, CLI_CONTROLLER_PORT_FILE, path, sizeof(path), error);
    if (status == DEFT_OK) {
        (void)unlink(path);
        status = run_services_spawn_controller(services, error);
    }
    if (status == DEFT_OK) {
        status = run_services_await_controller(services, interrupted, context, error);
    }
    return status;
}

static enum deft_status run_services_await_agent(struct run_services *services,
                                                 run_services_interrupt_fn interrupted,
                                                 void *context, struct deft_error *error) {
    int64_t until_ns = clock_monotonic_ns() + RUN_SERVICES_START_NS;
    while (clock_monotonic_ns() < until_ns && !interrupted(context)) {
        struct pollfd poll_fd = {.fd = services->agent_fd, .events = POLLIN};
        char byte;
        if (poll(&poll_fd, 1, RUN_SERVICES_TICK_MS) > 0) {
            if (read(services->agent_fd, &byte, 1) == 1) {
                return DEFT_OK;
            }
            return deft_fail(error, DEFT_IO, 0, "it has ended; %.250s says why",
                             services->agent_log);
        }
    }
    return deft_fail(error, DEFT_TIMEOUT, 0, "it did not get ready");
}

static enum deft_status run_services_want_agent(struct run_services *services,
                                                run_services_interrupt_fn interrupted,
                                                void *context, struct deft_error *error) {
    const char *base = getenv("TMPDIR");
    /* A socket's path has 107 bytes at most. */
    if (base == NULL || base[0] != '/' || strlen(base) > 32) {
        base = "/tmp";
    }
    (void)snprintf(services->folder, sizeof(services->folder), "%s/deft-run-XXXXXX", base);
    if (mkdtemp(services->folder) == NULL) {
        services->folder[0] = '\0';
        return deft_fail(error, DEFT_IO, errno, "no folder for its socket in %.32s: %s", base,
                         strerror(errno));
    }
    (void)snprintf(services->socket, sizeof(services->socket), "%s/agent", services->folder);
    run_guard_watch_socket(services->guard, services->socket);
    enum deft_status status = run_services_spawn_agent(services, error);
    if (status == DEFT_OK) {
        status = run_services_await_agent(services, interrupted, context, error);
    }
    if (status != DEFT_OK) {
        run_services_stop_agent(services);
    }
    return status;
}

static enum deft_status run_services_logs(struct run_services *services, struct deft_error *error) {
    char path[PATH_MAX];
    const char *dir = services->options->state_dir;
    /* Without one it is the default that cannot be had: asked for again, for the reason. */
    enum deft_status status =
        dir[0] != '\0' ? state_dir_make(dir, error) : state_dir_default(path, sizeof(path), error);
    if (status == DEFT_OK) {
        status = state_dir_join(dir, CLI_CONTROLLER_LOG, path, sizeof(path), error);
    }
    if (status == DEFT_OK) {
        status = state_dir_join(dir, "agent.log", services->agent_log, sizeof(services->agent_log),
                                error);
    }
    if (status == DEFT_OK) {
        services->log_fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, S_IRUSR | S_IWUSR);
        if (services->log_fd < 0) {
            status = deft_fail(error, DEFT_IO, errno, "'%.250s' cannot be written: %s", path,
                               strerror(errno));
        }
    }
    return status;
}

void run_services_start(struct run_services *services, const struct run_options *options,
                        struct run_guard *guard, run_services_interrupt_fn interrupted,
                        void *context) {
    struct deft_error error = {0};
    const char *what = "the state directory";
    *services = (struct run_services){.options = options,
                                      .guard = guard,
                                      .at.credentials = options->credentials,
                                      .agent_fd = -1,
                                      .log_fd = -1};
    run_services_find(&services->controller, "deft-controller");
    run_services_find(&services->agent, "deft-agent");
    enum deft_status status = run_services_logs(services, &error);
    if (status == DEFT_OK) {
        what = "deft-controller";
        status = run_services_want_controller(services, interrupted, context, &error);
    }
    if (status == DEFT_OK) {
        what = "deft-agent";
        status = run_services_want_agent(services, interrupted, context, &error);
    }
    if (status != DEFT_OK && !interrupted(context)) {
        cli_warn("the job runs untuned, because of %s: %s", what, error.text);
    }
}

static int run_services_one_ended(struct run_service *service, pid_t pid, int exit_code) {
    if (service->pid != pid) {
        return 0;
    }
    (void)waitpid(pid, NULL, 0);
    service->pid = 0;
    if (service->n_starts >= RUN_SERVICES_MAX_STARTS) {
        service->given_up = 1;
        cli_warn("%s has died %d times and is given up; the job goes on without new plans",
                 service->name, service->n_starts);
        return 1;
    }
    service->retry_ns =
        clock_monotonic_ns() + (RUN_SERVICES_FIRST_RETRY_NS << (service->n_starts - 1));
    cli_warn("%s has ended with exit status %d and is started again; the job goes on",
             service->name, exit_code);
    return 1;
}

int run_services_ended(struct run_services *services, pid_t pid, int exit_code) {
    if (run_services_one_ended(&services->controller, pid, exit_code)) {
        return 1;
    }
    if (run_services_one_ended(&services->agent, pid, exit_code)) {
        (void)close(services->agent_fd);
        services->agent_fd = -1;
        return 1;
    }
    return 0;
}

/* A refused connection on loopback is certain and immediate. */
static int run_services_is_gone(uint16_t port) {
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return 0;
    }
    int is_gone = connect(fd, (const struct sockaddr *)&address, sizeof(address)) != 0 &&
                  errno == ECONNREFUSED;
    (void)close(fd);
    return is_gone;
}

void run_services_tick(struct run_services *services, int64_t now_ns) {
    struct run_service *controller = &services->controller;
    struct run_service *agent = &services->agent;
    struct deft_error error = {0};
    /* One that another `deft run` had started ends with that one. */
    if (services->port != 0 && controller->pid == 0 && controller->retry_ns == 0 &&
        !controller->given_up && now_ns - services->checked_ns >= RUN_SERVICES_CHECK_NS) {
        services->checked_ns = now_ns;
        if (run_services_is_gone(services->port)) {
            controller->retry_ns = now_ns;
        }
    }
    if (controller->retry_ns != 0 && now_ns >= controller->retry_ns) {
        if (run_services_spawn_controller(services, &error) != DEFT_OK) {
            controller->given_up = 1;
            cli_warn("deft-controller cannot be started again: %s", error.text);
        }
    }
    if (agent->retry_ns != 0 && now_ns >= agent->retry_ns) {
        if (run_services_spawn_agent(services, &error) != DEFT_OK) {
            agent->given_up = 1;
            cli_warn("deft-agent cannot be started again: %s", error.text);
        }
    }
}

void run_services_stop_agent(struct run_services *services) {
    if (services->agent_fd >= 0) {
        (void)close(services->agent_fd);
        services->agent_fd = -1;
    }
    if (services->agent.pid > 0 &&
        !run_services_await_end(services->agent.pid, RUN_SERVICES_AGENT_END_NS)) {
        (void)kill(services->agent.pid, SIGKILL);
        (void)waitpid(services->agent.pid, NULL, 0);
    }
    services->agent.pid = 0;
    services->agent.retry_ns = 0;
    if (services->socket[0] != '\0') {
        (void)unlink(services->socket);
        services->socket[0] = '\0';
    }
    if (services->folder[0] != '\0') {
        (void)rmdir(services->folder);
        services->folder[0] = '\0';
    }
}

void run_services_stop_controller(struct run_services *services) {
    struct run_service *controller = &services->controller;
    if (services->options->keep && services->at.url[0] != '\0') {
        if (controller->pid > 0) {
            (void)fprintf(stderr, "deft: the controller stays at %s (pid %ld)\n", services->at.url,
                          (long)controller->pid);
        } else {
            (void)fprintf(stderr, "deft: the controller stays at %s\n", services->at.url);
        }
    } else if (controller->pid > 0) {
        (void)kill(controller->pid, SIGTERM);
        if (!run_services_await_end(controller->pid, RUN_SERVICES_END_NS)) {
            (void)kill(controller->pid, SIGKILL);
            (void)waitpid(controller->pid, NULL, 0);
        }
        controller->pid = 0;
    }
    if (services->log_fd >= 0) {
        (void)close(services->log_fd);
        services->log_fd = -1;
    }
}
