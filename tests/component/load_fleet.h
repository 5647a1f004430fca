/* Thousands of agents in one thread: each registers, holds its event stream open, and reports at
 * its pace, with the sequence numbers, retries and back-off of deft-agent. */
#ifndef LOAD_FLEET_H
#define LOAD_FLEET_H

#include <signal.h>
#include <stdint.h>

#include "load_times.h"

struct load_options {
    uint16_t port;          /* of the controller, on 127.0.0.1 */
    uint32_t n_agents;      /* one rank each */
    uint32_t n_large;       /* of them in the first job, which is in mode auto */
    uint32_t n_small;       /* in each other job */
    int64_t interval_ns;    /* between two reports of an agent; 0: the next one at once */
    uint64_t n_reports;     /* of each agent; 0: no end */
    int64_t ramp_ns;        /* over which the agents begin */
    uint32_t restart_every; /* an agent is started anew about once in so many reports; 0: never */
    uint32_t n_kept;        /* agents that keep their connection for reports; the others have no
                               descriptor for that and open one per report */
    uint64_t seed;
    int log_fd;                        /* what comes there is read and dropped; -1: nothing */
    const volatile sig_atomic_t *stop; /* non-zero ends load_fleet_run; may be NULL */
};

struct load_fleet;

struct load_figures {
    uint64_t n_registered;   /* answers to registrations */
    uint64_t n_acknowledged; /* reports */
    uint64_t n_late;         /* acknowledged already when they were registered again */
    uint64_t n_busy;         /* answers with 429 and 503 */
    uint64_t n_refused;      /* any other answer that agents give a report up for */
    uint64_t n_broken;       /* requests without an answer */
    uint64_t n_starts;       /* of agents, beyond the first */
    uint64_t n_opened;       /* streams that came to stand */
    uint32_t n_ready;        /* agents that are registered and have their stream, now */
    uint64_t n_pushes;       /* of plans, that an operator's call set off */
    uint64_t n_calls;        /* of the operator */
    uint64_t n_unpushed;     /* streams that a push has not reached */
    int64_t longest_gap_ns;  /* in which one agent got nothing acknowledged */
};

/* NULL: memory or descriptors are short; says so on stderr. */
struct load_fleet *load_fleet_new(const struct load_options *options);
void load_fleet_free(struct load_fleet *fleet); /* takes NULL */

/* Runs until `is_done` says so, the time has come (monotonic), or *stop. 1 when it is done. */
typedef int (*load_fleet_fn)(struct load_fleet *fleet, void *context);
int load_fleet_run(struct load_fleet *fleet, int64_t until_ns, load_fleet_fn is_done,
                   void *context);
/* For `is_done`. */
int load_fleet_is_ready(struct load_fleet *fleet, void *context);   /* all agents are */
int load_fleet_is_idle(struct load_fleet *fleet, void *context);    /* nothing is under way */
int load_fleet_has_answer(struct load_fleet *fleet, void *context); /* to load_fleet_call */
int load_fleet_is_pushed(struct load_fleet *fleet, void *context);  /* the call reached everybody */
int load_fleet_has_plan(struct load_fleet *fleet, void *context); /* a plan runs in the first job */
/* Its ranks have reported the newest plan, and once more since. */
int load_fleet_has_switched(struct load_fleet *fleet, void *context);

/* No agent begins another report; those that are due go out. */
void load_fleet_drain(struct load_fleet *fleet);
/* Where the controller is found from now on, and its log. */
void load_fleet_move(struct load_fleet *fleet, uint16_t port, int log_fd);

/* The operator sets the mode of the first job; from here on the time until its streams have it is
 * taken: the mode's event, and the plan's where the mode ends one. */
void load_fleet_call(struct load_fleet *fleet, const char *mode);

void load_fleet_figures(const struct load_fleet *fleet, struct load_figures *out);
/* Reports of the agent that has got the fewest acknowledged, or the most. */
uint64_t load_fleet_least_acknowledged(const struct load_fleet *fleet);
uint64_t load_fleet_most_acknowledged(const struct load_fleet *fleet);
/* Forgets the times that were taken. */
void load_fleet_begin(struct load_fleet *fleet);
const struct load_times *load_fleet_acks(const struct load_fleet *fleet);
const struct load_times *load_fleet_modes(const struct load_fleet *fleet);
const struct load_times *load_fleet_plans(const struct load_fleet *fleet);

/* Compares what was acknowledged with the database at `path`. A report whose answer never came may
 * be there or not. Returns rows of reports that are not there, and rows beyond them. */
void load_fleet_check(const struct load_fleet *fleet, const char *path, uint64_t *out_lost,
                      uint64_t *out_twice);

#endif
