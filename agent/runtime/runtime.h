/* The inside of struct deft_runtime. Rooms, in the order of an iteration:
 *   options.c    environment -> struct deft_options
 *   runtime.c    open, commit, close, statistics
 *   star*.c      bootstrap and watch          probe.c      first use of the links
 *   gradients.c  forward, backward, grad_ready: accumulate and post
 *   boundary.c   step and drain: the state machine, plan switch
 *   vote.c       what the ranks agree on at a boundary
 *   fuse.c       when a plan must be left
 *   admission.c  may this rank run that plan?
 *   averaged.c   what a boundary does under averaged
 *   state.c      optimizer state, averaged at a drain
 *   failure.c    from a broken link to one sentence
 *   device_host.c  the host as a device         passed.c  what a device tells, later
 *   telemetry.c  the thread that talks to the agent */
#ifndef RUNTIME_H
#define RUNTIME_H

#include <pthread.h>
#include <stdint.h>

#include <deft/deft.h>

#include "ipc/ipc.h"
#include "link/device.h"
#include "link/link.h"
#include "runtime/control.h"
#include "runtime/engine.h"
#include "runtime/fuse.h"
#include "runtime/gradspace.h"
#include "runtime/mailbox.h"
#include "runtime/ring.h"
#include "runtime/star.h"

struct telemetry;
struct state_buffer; /* state.c */

struct runtime_link {
    const struct link_ops *ops;
    struct link *link;
    char spec[DSCHED_NAME_BYTES]; /* "gloo:eth0" */
    uint32_t n_probes;
    struct dsched_sample probes[IPC_MAX_PROBES];
};

enum runtime_life { RUNTIME_OPEN, RUNTIME_COMMITTED };

/* Where a boundary stands. Each names what runs when deft_step or deft_drain goes on; the arrows
 * are in boundary.c. */
enum runtime_phase {
    PHASE_COMPUTE, /* between two boundaries: gradients come in */
    PHASE_OWN,     /* averaged: the caller has stepped on its own gradient */
    PHASE_LAND,    /* find and await what this boundary applies */
    PHASE_LANDED,  /* the caller has stepped on landed averages */
    PHASE_PREVIEW, /* lookahead: hand out this rank's own gradient */
    PHASE_SETTLE,  /* the iteration is complete: advance in the cycle */
    PHASE_DRAIN,   /* apply what is in flight, generation by generation */
    PHASE_DRAINED, /* the caller has stepped on a drained generation */
    PHASE_FINISH,  /* tell the caller */
};

struct deft_runtime {
    struct deft_options options; /* strings owned by `strings` */
    char *strings[6];
    void *first_plan; /* owned copy; NULL: none */
    enum runtime_life life;
    char incarnation_key[IPC_ID_BYTES];
    uint64_t started_ns; /* wall clock of rank 0's open, the same on all ranks */

    struct device host;    /* what `device` is, unless the tensors are elsewhere */
    struct device *device; /* also `space.device` */
    void *stream;          /* the caller's, for devices that have some */
    char notice[768];      /* what was asked for and is not there; "": nothing */
    struct gradspace space;
    struct runtime_link links[DSCHED_MAX_LINKS];
    uint32_t n_links;
    struct runtime_link control_link;
    struct control control;
    /* For blocking collectives beside the engine. After a failure a link may still write here, so
     * none of it is on a stack or the caller's; the next one has it, or deft_close. */
    struct link_op scratch[2];
    int64_t scratch_values[CONTROL_VALUES];
    void *scratch_data;          /* NULL between collectives */
    struct state_buffer *states; /* registered optimizer state */
    uint32_t n_states;
    struct star *star;
    deft_allgather_fn allgather;
    void *allgather_context;

    /* Plans. */
    struct dsched_plan builtin; /* the exact plan to begin with and to fall back to */
    struct engine *engine;      /* running */
    struct engine *candidate;   /* this rank votes for it */
    uint64_t candidate_until;   /* results up to this boundary may still switch to it; 0: voting */
    uint64_t newest_seq;        /* atomic: of the plans that were taken; older ones are ignored */
    struct mailbox mailbox;
    struct fuse fuse;
    struct control_figures own_figures; /* of this rank, since they were last posted */
    char fuse_text[IPC_TEXT_BYTES];     /* why it has blown */

    /* The present iteration. */
    uint64_t iteration;
    enum runtime_phase phase;
    int draining;       /* deft_drain is in progress */
    int switching;      /* this boundary ends with the candidate running */
    int leaving;        /* or with exact, because the fuse has blown; not both */
    int is_fresh;       /* nothing is in flight and the caller may have loaded other parameters */
    void **gradients;   /* [n_tensors], handed out in struct deft_update */
    const void **given; /* [n_tensors], this iteration's deft_grad_ready pointers */
    uint8_t *was_given; /* [n_tensors] */
    uint32_t n_given;
    int own_bad;          /* this rank's gradient is not finite */
    double learning_rate; /* NaN: unknown */
    int64_t begin_ns, backward_ns, boundary_ns, handed_ns;
    struct ipc_iteration record;   /* of this iteration */
    int64_t passed_exposed_ns;     /* of the one that the device told of last */
    struct ipc_iteration finished; /* of the last one, until its step time is known */
    int has_finished;
    struct deft_update update; /* figures of the present boundary */

    /* Readiness of gradients since the last publication. */
    int64_t *readiness_sum_ns; /* [n_tensors] */
    int64_t *readiness_ns;     /* [n_tensors], of one iteration of a device */
    uint32_t n_readiness;

    /* Wishes: written by any thread or signal handler. */
    int stop_wished; /* atomic */
    int drain_wished;
    int finish_wished;
    uint64_t drain_quiet_until; /* results up to this boundary are of votes before the agreement */
    uint64_t finish_quiet_until;

    /* Failure: the watch's thread may write `lost`. */
    pthread_mutex_t failure_lock;
    pthread_cond_t failure_known;
    struct deft_error lost;    /* what the watch found */
    struct deft_error failure; /* why this runtime is dead; training thread only */

    struct telemetry *telemetry;
    struct ring iterations; /* struct ipc_iteration */
    struct ring ops;        /* struct ipc_op */
    int64_t clock_origin_ns;
    struct deft_stats stats; /* training thread; telemetry's fields are filled on reading */
    uint64_t n_refused;      /* atomic: counted by the telemetry thread */
};

/* FNV-1a, continued from `hash`. */
#define RUNTIME_HASH_START UINT64_C(14695981039346656037)
uint64_t runtime_hash(uint64_t hash, const void *bytes, size_t n_bytes);

/* failure.c */
/* Turns a link's failure into the runtime's: asks the watch who is gone, aborts everything. */
enum deft_status failure_from_link(struct deft_runtime *rt, const struct runtime_link *link,
                                   enum deft_status status, struct deft_error *error);
/* The device's failure, if any, becomes the runtime's. */
enum deft_status failure_from_device(struct deft_runtime *rt, struct deft_error *error);
/* For star_watch. */
void failure_lost(void *context, const struct deft_error *reason);
/* The sticky failure, if any. */
enum deft_status failure_check(const struct deft_runtime *rt, struct deft_error *error);

/* probe.c */
DEFT_NODISCARD enum deft_status probe_links(struct deft_runtime *rt, struct deft_error *error);
DEFT_NODISCARD enum deft_status probe_share_parameters(struct deft_runtime *rt,
                                                       struct deft_error *error);

/* gradients.c */
/* Memory of the links for the ops of `plan`, on any thread, one at a time. DEFT_NO_MEMORY: what ran
 * before can go on. */
DEFT_NODISCARD enum deft_status gradients_reserve(const struct deft_runtime *rt,
                                                  const struct dsched_plan *plan,
                                                  struct deft_error *error);
/* Posts op (generation, bucket): its data is complete. */
DEFT_NODISCARD enum deft_status gradients_post(struct deft_runtime *rt, struct engine_op *op,
                                               uint32_t merged);
/* Starts waiting for an iteration's gradients. */
void gradients_expect(struct deft_runtime *rt);

/* boundary.c */
/* Waits for `op`, counts the exposed time; on a link that can, has the device wait instead. */
DEFT_NODISCARD enum deft_status boundary_wait(struct deft_runtime *rt, struct engine_op *op,
                                              struct deft_error *error);
/* Its times, which are known, to the agent. */
void boundary_tell(struct deft_runtime *rt, const struct engine_op *op);
/* The op's data has been used, or that is queued: its lane is free again. */
void boundary_retire(struct deft_runtime *rt, struct engine_op *op);
/* Onto a figure of the record that is NaN until there is some. */
void boundary_add(double *figure, double more);
/* The parameters of now become the running engine's anchor, where its rule keeps one. */
void boundary_anchor(struct deft_runtime *rt);

/* passed.c */
/* A device waits for all that is due at this boundary, and stamps how long; on a host nothing
 * happens: there each bucket is waited for when it is its turn. */
DEFT_NODISCARD enum deft_status passed_await(struct deft_runtime *rt, struct deft_error *error);
/* A boundary of a device: ends its iteration there, and takes figures of an earlier one. */
void passed_iteration(struct deft_runtime *rt);
/* A device that has done all it was given: takes what has landed since. */
void passed_drain(struct deft_runtime *rt);

/* vote.c */
/* Says what this rank wishes and knows, and takes in what all ranks said CONTROL_LAG boundaries
 * ago.
 */
DEFT_NODISCARD enum deft_status vote_boundary(struct deft_runtime *rt, struct deft_error *error);
/* Before anything else that all ranks do together; waits for them. DEFT_MISMATCH when one is
 * elsewhere in its loop, or, unless `out_same` takes that, has another `detail`. */
DEFT_NODISCARD enum deft_status vote_call(struct deft_runtime *rt, enum control_kind kind,
                                          int64_t detail, int *out_same, struct deft_error *error);

/* admission.c */
/* A plan from the agent that this rank could run next: `head` as checked by ipc_check_payload, and
 * the encoding that follows it. Takes ownership of nothing. Does nothing when the same or a newer
 * one was taken before: agents send their plan again. Any thread. */
DEFT_NODISCARD enum deft_status admission_offer(struct deft_runtime *rt,
                                                const struct ipc_plan *head, const void *bytes,
                                                size_t n_bytes, struct deft_error *error);
/* The caller's loop can run plans of `rule`, as far as it has said by now. */
int admission_allows(const struct deft_runtime *rt, enum dsched_rule rule);
/* The plan of options.first_plan, which there is, runs from the first iteration on. */
DEFT_NODISCARD enum deft_status admission_first(struct deft_runtime *rt, struct deft_error *error);

/* averaged.c */
/* Before the caller's own step: on a device, where no thread has seen whether it can be made. */
void averaged_guard(const struct deft_runtime *rt);
/* After the caller's own step: captures, posts, lands. */
DEFT_NODISCARD enum deft_status averaged_boundary(struct deft_runtime *rt,
                                                  struct deft_error *error);
/* Lands everything; afterwards the parameters are the anchor. */
DEFT_NODISCARD enum deft_status averaged_drain(struct deft_runtime *rt, struct deft_error *error);
/* Copies between registered parameters and a flat buffer. */
void averaged_save(const struct deft_runtime *rt, uint8_t *flat);
void averaged_restore(const struct deft_runtime *rt, const uint8_t *flat);

/* state.c */
/* Registered optimizer state becomes its mean over the ranks. Collective, blocking. */
DEFT_NODISCARD enum deft_status state_average(struct deft_runtime *rt, struct deft_error *error);
/* Forgets what was registered. */
void state_done(struct deft_runtime *rt);

/* telemetry.c */
DEFT_NODISCARD enum deft_status telemetry_start(struct deft_runtime *rt, struct deft_error *error);
/* Sends what is left, at most for 2 s. `failure` NULL: the rank ends in order. Takes NULL. */
void telemetry_stop(struct telemetry *telemetry, const struct deft_error *failure);
int telemetry_connected(const struct telemetry *telemetry);
uint64_t telemetry_dropped(const struct telemetry *telemetry);
/* In a child of fork(): closes what it has inherited, and nothing else. Takes NULL. */
void telemetry_forked(struct telemetry *telemetry);

#endif
