/* Controller and agent behind a job: found or started, watched, started again, ended.
 *
 * Nothing here may fail or delay the job: what cannot be had is said in one warning. */
#ifndef RUN_SERVICES_H
#define RUN_SERVICES_H

#include <stdint.h>
#include <sys/types.h>

#include <deft/status.h>

#include "cli_controller.h"
#include "run_guard.h"
#include "run_options.h"

/* A service that keeps dying is given up after this many starts. */
#define RUN_SERVICES_MAX_STARTS 6
/* A controller opens its database, an agent a socket: both take milliseconds. */
#define RUN_SERVICES_START_NS INT64_C(10000000000)

struct run_service {
    const char *name;
    char program[PATH_MAX];
    pid_t pid;        /* 0: not running as our child */
    int n_starts;     /* by us */
    int64_t retry_ns; /* monotonic; when to start it again; 0: not wanted */
    int given_up;
};

struct run_services {
    const struct run_options *options;
    struct run_guard *guard;
    struct cli_controller at; /* its URL is "" without one */
    uint16_t port;            /* of a controller on loopback; 0: it is elsewhere */
    struct run_service controller;
    struct run_service agent;
    int agent_fd; /* our end: the agent ends when it is closed */
    int log_fd;   /* of the controller, for standard error */
    char folder[64];
    char socket[96]; /* "": no agent */
    char agent_log[PATH_MAX];
    int64_t checked_ns; /* monotonic; the last look at a controller that is not our child */
};

/* Called while something is awaited; non-zero gives up. */
typedef int (*run_services_interrupt_fn)(void *context);

/* Finds or starts what is missing. Leaves `socket` empty when tuning is not to be had. */
void run_services_start(struct run_services *services, const struct run_options *options,
                        struct run_guard *guard, run_services_interrupt_fn interrupted,
                        void *context);
/* A child has ended; reaps it. 1 if it was one of ours. */
int run_services_ended(struct run_services *services, pid_t pid, int exit_code);
/* Starts again what has died, once its time has come. Never blocks. */
void run_services_tick(struct run_services *services, int64_t now_ns);
/* Lets the agent flush (it takes at most 3 s) and end. */
void run_services_stop_agent(struct run_services *services);
/* Ends a controller of ours, unless it is to be kept. */
void run_services_stop_controller(struct run_services *services);

#endif
