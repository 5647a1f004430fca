/* An incarnation in memory, and the registry of them. Only for the jobs*.c files. */
#ifndef JOBS_LIVE_H
#define JOBS_LIVE_H

#include <pthread.h>

#include "jobs.h"
#include "tuning/observe.h"
#include "tuning/tuner.h"

#define JOBS_BUCKETS 1024u
/* One stream per agent, and agents that reconnect before their old stream is seen to be dead. */
#define JOBS_MAX_STREAMS 8192u

/* A plan that was not searched for: one that an operator pins, or that did well before. */
struct jobs_offer {
    char id[STORE_ID_BYTES];
    uint64_t hash;
    char *text; /* malloc'ed deft.plan/1; NULL: none */
};
void jobs_offer_done(struct jobs_offer *offer); /* and zeroes it */
DEFT_NODISCARD enum deft_status jobs_offer_copy(const struct jobs_offer *from,
                                                struct jobs_offer *out, struct deft_error *error);

struct jobs_live {
    int64_t id;
    char id_text[STORE_ID_BYTES];
    char job[WIRE_ID_BYTES];
    char state[16];
    struct wire_registration registration;
    struct observe *observe;
    struct tuner tuner;
    int solving; /* a task for the solver is queued or under way */
    uint64_t n_iterations;
    int64_t coverage_ppm; /* 0: unknown */
    uint8_t *ends;        /* [n_ranks] 1: finished, 2: failed */
    uint32_t n_ended;
    int changing;          /* a task that records its state is queued */
    int is_unrecorded;     /* the database refused its state: it is written again */
    int is_superseded;     /* the job has started anew: it gets no plans any more */
    int has_looked;        /* for a plan of the past to begin with */
    struct jobs_offer pin; /* what the operator wants */
    int64_t registered_ns;
    int64_t heard_ns; /* monotonic */
    int64_t updated_ns;
    char decision[WIRE_TEXT_BYTES];
    uint64_t plan_seq; /* newest plan; 0: none */
    char *plan_event;  /* its event's data */
    size_t n_streams;
    size_t stream_capacity;
    struct http_stream **streams;
    struct jobs_live *next;       /* of the bucket */
    struct jobs_live *next_named; /* of the bucket of its job */
};

enum jobs_task_kind { JOBS_SOLVE, JOBS_ENACT, JOBS_CHANGE };
/* Work for the thread. */
struct jobs_task {
    enum jobs_task_kind kind;
    int64_t id;
    struct tuner_decision decision; /* JOBS_ENACT */
    struct jobs_task *next;
};

struct jobs {
    struct jobs_options options;
    pthread_t thread;
    int has_thread;
    pthread_mutex_t lock;
    pthread_cond_t work;
    int stopping;
    int64_t round_ns; /* monotonic: when the thread came round last */
    uint64_t n_decisions[TUNER_N_KINDS];
    struct jobs_live *buckets[JOBS_BUCKETS]; /* by id */
    struct jobs_live *named[JOBS_BUCKETS];   /* by job */
    struct jobs_task *first;
    struct jobs_task **last;
};

/* A plan as it goes out; `text` is a deft.plan/1. */
struct jobs_live_plan {
    uint64_t seq;
    uint64_t hash;
    const char *text;
    double max_loss; /* the fuse; NaN: not watched */
    double max_grad_sq;
};
/* The data of its event; malloc'ed. */
DEFT_NODISCARD enum deft_status jobs_live_plan_event(const struct jobs_live_plan *plan, char **out,
                                                     struct deft_error *error);

/* All with the lock held, except where stated. */
struct jobs_live *jobs_live_find(struct jobs *jobs, int64_t id);
/* The newest of a job, or NULL. */
struct jobs_live *jobs_live_find_job(struct jobs *jobs, const char *job);
/* The first of those among which a job's are; they go on by next_named. */
struct jobs_live *jobs_live_named(struct jobs *jobs, const char *job);
void jobs_live_add(struct jobs *jobs, struct jobs_live *live);
void jobs_live_remove(struct jobs *jobs, struct jobs_live *live); /* and destroys it */
void jobs_live_destroy(struct jobs_live *live);                   /* any time; takes NULL */
/* Without the lock: from the database. */
DEFT_NODISCARD enum deft_status jobs_live_load(struct jobs *jobs, int64_t id,
                                               struct jobs_live **out, struct deft_error *error);
/* Sends to all streams and drops those that have ended. */
void jobs_live_send(struct jobs_live *live, const char *id, const char *event, const char *data);
void jobs_live_send_mode(struct jobs_live *live);
DEFT_NODISCARD enum deft_status jobs_live_add_stream(struct jobs_live *live,
                                                     struct http_stream *stream);
void jobs_live_view(const struct jobs_live *live, struct wire_job *out);
/* 1 while an agent listens for its plans. */
int jobs_live_is_watched(struct jobs_live *live);
/* malloc'ed; NULL when memory is short. */
char *jobs_live_summary(const struct jobs_live *live);
/* Its state is recorded soon, once however often this is called before. */
void jobs_live_changed(struct jobs *jobs, struct jobs_live *live);
/* Queues what a decision asks for. */
void jobs_live_decided(struct jobs *jobs, struct jobs_live *live,
                       const struct tuner_decision *decision);

/* --- plans that were not searched for; in jobs_offer.c -----------------------------------------
 */

struct jobs_offer_terms {
    const struct dsched_profile *profile;
    const struct dsched_table *table;
    const struct dsched_planner_options *options; /* limits, and rules that the ranks can run */
    const struct quantify_price *price;
    int is_pinned; /* the operator answers for its price */
};
/* The plan with a forecast for this profile, and what it costs in progress (0: unknown).
 * DEFT_MISMATCH: it does not fit; the sentence says why. `out` is released with dsched_plan_done.
 */
DEFT_NODISCARD enum deft_status jobs_offer_fit(const struct jobs_offer *offer,
                                               const struct jobs_offer_terms *terms,
                                               struct dsched_plan *out, uint32_t *out_progress_ppm,
                                               struct deft_error *error);
/* DEFT_MISMATCH: the ranks of this registration cannot run it. */
DEFT_NODISCARD enum deft_status jobs_offer_check(const struct jobs_offer *offer,
                                                 const struct wire_registration *registration,
                                                 struct deft_error *error);
/* Reads a plan of the job; DEFT_NOT_FOUND when there is none of this id. */
DEFT_NODISCARD enum deft_status jobs_offer_read(struct store *store, const char *job,
                                                const char *id, struct jobs_offer *out,
                                                struct deft_error *error);
/* The plan that did well before, for a start that has had none yet; the offer stays as it is where
 * there is none. Without the lock. */
void jobs_offer_warm(struct jobs *jobs, int64_t incarnation, const struct store_warm_key *key,
                     struct jobs_offer *out);
/* What that is looked for by. */
void jobs_offer_key(const struct wire_registration *registration, struct store_warm_key *out);
/* Rules that the ranks of a registration can run, as a set of DSCHED_RULE_BIT, and that a search
 * may choose from. `delayed` is not among them: nobody can prove it harmless, but an operator may
 * pin it. */
uint32_t jobs_offer_rules(const struct wire_registration *registration);
/* The tensors of a registration; malloc'ed, borrows nothing; NULL when memory is short. */
struct dsched_table *jobs_offer_table(const struct wire_registration *registration);

/* The thread; in jobs_engine.c. */
void *jobs_engine(void *context);
/* One task of it, without the lock: a plan is searched for, and the tuner's answer carried out; in
 * jobs_solve.c. */
void jobs_solve(struct jobs *jobs, int64_t id);

#endif
