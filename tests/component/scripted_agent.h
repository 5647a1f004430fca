/* An agent whose ranks are made up: it reports step times, losses and gradients over HTTP, and its
 * ranks take up what is pushed. Works against a controller_child. */
#ifndef SCRIPTED_AGENT_H
#define SCRIPTED_AGENT_H

#include <stdint.h>

#include "controller_child.h"
#include "wire/wire.h"

#define SCRIPTED_RANKS 2u
/* Forward, backward, optimizer, and what exact waits for: a link that is slower than both. */
#define SCRIPTED_COMPUTE_NS INT64_C(200000000)
#define SCRIPTED_EXPOSED_NS INT64_C(180000000)

struct scripted_agent {
    const struct controller *controller;
    const char *job;
    char path[128]; /* of the incarnation */
    uint64_t seq;   /* of the newest report */
    uint64_t iteration;
    uint64_t plan_seq; /* what the ranks run */
    uint64_t seen_seq; /* the newest that was pushed */
    int is_exact;      /* of what they run */
    int64_t step_ns;
    uint64_t random;
    double level; /* of the loss, for `loss` to use */
    double (*loss)(struct scripted_agent *agent);
    struct wire_job view; /* of the job, after the newest report */
};

/* The registration of a job's only agent, as JSON; malloc'ed. */
char *scripted_agent_registration(void);
/* Registers a job whose owner wishes no mode; `limits` of the registration are 0. */
void scripted_agent_start(struct scripted_agent *agent, const struct controller *controller,
                          const char *job, double (*loss)(struct scripted_agent *agent));
/* Reports `n` iterations, and answers what the controller has pushed by then: the decisions are the
 * same, however fast it is. */
void scripted_agent_run(struct scripted_agent *agent, uint32_t n);
/* Runs until the job is in this phase; fails after `most` iterations. */
void scripted_agent_run_to(struct scripted_agent *agent, const char *phase, uint64_t most);
/* The ranks leave the plan for exact, and say so. */
void scripted_agent_fuse(struct scripted_agent *agent, const char *why);
/* All decisions so far; release with wire_decisions_done. */
void scripted_agent_decisions(const struct scripted_agent *agent, struct wire_decisions *out);
/* How many of a kind there are. */
uint32_t scripted_agent_count(const struct scripted_agent *agent, const char *kind);

/* A power law with 5 % of noise, the same under every plan. */
double scripted_agent_decaying(struct scripted_agent *agent);

#endif
