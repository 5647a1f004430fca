/* libdeft: the runtime inside a training process. This header is the manual.
 *
 * The life of a rank:
 *
 *     deft_options_init(&options);            // rank, world, job, links: from the environment
 *     deft_open(&options, &rt, &error);       // meets the other ranks
 *     for each parameter tensor, in forward order:
 *         deft_tensor_add(rt, &tensor, &id, &error);
 *     deft_commit(rt, &error);                // compares tables, opens and probes links
 *
 *     for each iteration:
 *         deft_forward_begin(rt);
 *         ... forward, loss ...
 *         deft_loss(rt, loss);
 *         deft_backward_begin(rt);
 *         ... for each tensor, as backward finishes it:
 *             deft_grad_ready(rt, id, gradient);
 *         do {
 *             deft_step(rt, &update, &error);
 *             if (update.action == DEFT_APPLY)
 *                 step the optimizer with update.gradients[id], skipping NULL entries;
 *             if (update.action == DEFT_PREVIEW)
 *                 move the parameters as the optimizer would, with update.gradients[id], without
 *                 touching the optimizer's state, skipping NULL entries;
 *         } while (update.action != DEFT_DONE);
 *
 *     do { deft_drain(rt, &update, &error); ... the same ... } while (update.action != DEFT_DONE);
 *     deft_close(rt);
 *
 * One loop serves every update rule; a plan that arrives while the job runs may change the rule at
 * a boundary where nothing is in flight. What a rule does to the parameters is in
 * docs/update-rules.md. Until a first plan arrives, and for ever if none does, the rule is exact:
 * the mathematics of synchronous data parallel training, bit for bit.
 *
 * A plan may carry a fuse: limits on the mean loss and on the mean squared norm of the gradients.
 * The ranks watch them together and, when one is passed, go back to exact at the same boundary,
 * without agent or controller (docs/update-rules.md). Losses are worth giving for that alone.
 *
 * Contract with the job. The library never exits, prints, installs handlers or blocks on anything
 * but the other ranks of the job. Agent and controller may be absent, slow, dead or wrong: the job
 * trains on. Gradients given to deft_grad_ready are copied, never aliased while in flight.
 *
 * Threads. One thread at a time may use a runtime; deft_stop_request and deft_drain_request are
 * safe from any thread and from signal handlers. Collective calls (open, commit, step, drain,
 * average, broadcast) must be made by all ranks in the same order; DEFT_MISMATCH says that they are
 * not.
 *
 * Failure. Every call that can fail returns enum deft_status and fills `error` (NULL is fine) with
 * one sentence. After DEFT_PEER_LOST, DEFT_TIMEOUT, DEFT_IO or DEFT_MISMATCH from a collective call
 * the runtime is dead: only deft_close is useful. */
#ifndef DEFT_H
#define DEFT_H

#include <stddef.h>
#include <stdint.h>

#include <deft/status.h>

#ifdef __cplusplus
extern "C" {
#endif
#if defined(__GNUC__)
#pragma GCC visibility push(default)
#endif

#define DEFT_VERSION_MAJOR 0
#define DEFT_VERSION_MINOR 1
#define DEFT_VERSION_PATCH 0

/* "0.1.0" of the library that is loaded. */
const char *deft_version(void);

struct deft_runtime;

/* Gathers `n_bytes` from every rank into `out` (n_ranks * n_bytes, in rank order). Blocking,
 * collective. Returns 0, or non-zero when the ranks cannot meet. */
typedef int (*deft_allgather_fn)(void *context, const void *in, size_t n_bytes, void *out);

enum deft_dtype { DEFT_F32 = 0, DEFT_F64 = 1, DEFT_F16 = 2, DEFT_BF16 = 3 };

/* What the caller's loop is able to do; a plan that needs more is refused. */
#define DEFT_CAN_PREVIEW (1u << 0) /* handles DEFT_PREVIEW: needed for lookahead */
#define DEFT_CAN_SKIP    (1u << 1) /* an iteration without DEFT_APPLY is fine: needed for delayed */
/* Optimizer state is registered with deft_state_add, or there is none: needed for averaged. */
#define DEFT_CAN_AVERAGE (1u << 2)

/* Optimizer classes, for telemetry and admission. */
enum deft_optimizer {
    DEFT_OPT_UNKNOWN = 0,
    DEFT_OPT_SGD = 1,
    DEFT_OPT_ADAM = 2,
    DEFT_OPT_ADAMW = 3
};

struct deft_options {
    size_t size_bytes; /* sizeof(struct deft_options), set by deft_options_init */
    int32_t rank;      /* 0..n_ranks - 1 */
    int32_t n_ranks;   /* 1..DEFT_MAX_RANKS */
    /* Identity of the job, e.g. "36199_0"; the same on all ranks. */
    const char *job_id;
    const char *job_name;
    uint32_t restart_count;
    /* How ranks meet. NULL: a TCP all-gather at master_host:master_port (rank 0 listens). */
    deft_allgather_fn allgather;
    void *allgather_context;
    const char *master_host;
    uint16_t master_port;
    /* Rank 0: a listening TCP socket for the others to meet at, instead of one on master_port; -1:
     * none. deft_open takes it over and closes it, also when it fails. */
    int32_t master_fd;
    /* Comma-separated "backend:name", fastest first: "gloo:eth0,gloo:eth1"; "gloo" picks the
     * interface that reaches the master. The first is the primary link. */
    const char *links;
    /* Where gradients and parameters are, the same kind on all ranks: "cpu" (also NULL), "cuda"
     * (the device that is current in deft_open) or "cuda:NUMBER". On CUDA see deft_stream; the
     * links may contain "nccl", and others take copies in host memory (docs/gpu.md). */
    const char *device;
    /* Path of the node agent's socket ('@' first: abstract); NULL or "": no agent. */
    const char *agent_socket;
    uint32_t capabilities; /* DEFT_CAN_* */
    /* 1: what deft_grad_ready is given is writable, and DEFT_APPLY under exact and delayed hands
     * out that memory, with the average in it: copied bucket by bucket while the next one lands. */
    uint32_t write_back;
    uint64_t max_pending_bytes; /* plans needing more are refused; 0: no limit */
    int64_t connect_timeout_ns; /* meeting the other ranks; default 60 s */
    int64_t op_timeout_ns; /* one all-reduce; default 1800 s, since a slow rank is not a lost one */
    /* The plan to start with, as deft_plan_export gave it (NULL: the built-in exact one): to go on
     * from a checkpoint as the job would have, or to hold one plan. Read by deft_commit, which
     * refuses it like a plan that arrives; the same on all ranks. It counts as plan 0. */
    const void *first_plan;
    size_t first_plan_bytes;
    enum deft_optimizer optimizer;
    double momentum;
    double learning_rate; /* of the first iteration (deft_learning_rate); 0 or NaN: unknown */
    uint64_t batch_per_rank;
};

/* Sets defaults, then reads the environment: DEFT_RANK, DEFT_WORLD_SIZE, DEFT_JOB_ID,
 * DEFT_JOB_NAME, DEFT_RESTART_COUNT, DEFT_MASTER_ADDR, DEFT_MASTER_PORT, DEFT_LINKS,
 * DEFT_AGENT_SOCKET, DEFT_DEVICE, DEFT_MAX_PENDING_BYTES; where those are absent torchrun's (RANK,
 * WORLD_SIZE, MASTER_ADDR, MASTER_PORT) and Slurm's (SLURM_PROCID, SLURM_NTASKS, SLURM_JOB_ID,
 * SLURM_JOB_NAME) serve. Strings point into the environment. A malformed number fails with
 * DEFT_INVALID and its name. */
DEFT_NODISCARD enum deft_status deft_options_init(struct deft_options *options,
                                                  struct deft_error *error);

/* Meets the other ranks. Strings are copied. `*out` is untouched on failure. */
DEFT_NODISCARD enum deft_status deft_open(const struct deft_options *options,
                                          struct deft_runtime **out, struct deft_error *error);

struct deft_tensor {
    const char *name;  /* unique; copied */
    uint64_t elements; /* >= 1 */
    enum deft_dtype dtype;
    void *parameters; /* [elements] of dtype, on the device, alive and unmoved until deft_close;
                         NULL: only exact and delayed plans can run */
};
/* Forward order. Between open and commit. `*out_id` counts from 0. */
DEFT_NODISCARD enum deft_status deft_tensor_add(struct deft_runtime *rt,
                                                const struct deft_tensor *tensor, uint32_t *out_id,
                                                struct deft_error *error);

/* Optimizer state that follows the parameters: momentum, Adam's moments; [elements] of dtype, on
 * the device, alive and unmoved until deft_close. Under averaged each rank's optimizer sees its own
 * gradients, so states drift apart; a drain replaces them by their mean over the ranks (a buffer
 * that is not finite on some rank becomes zeros on all), so that after it the ranks are alike in
 * everything and may go on under any rule. Between open and close, between iterations; the same
 * buffers in the same order on all ranks. */
DEFT_NODISCARD enum deft_status deft_state_add(struct deft_runtime *rt, void *state,
                                               uint64_t elements, enum deft_dtype dtype,
                                               struct deft_error *error);

/* Collective. Checks that all ranks have the same tensors, opens the links, measures them (a few
 * all-reduces, well under a second on a 500 Mbit/s link), copies rank 0's parameters to all ranks
 * (registered ones), allocates pending copies and starts the control channel. */
DEFT_NODISCARD enum deft_status deft_commit(struct deft_runtime *rt, struct deft_error *error);

/* Marks of an iteration; cheap, never block. The loss of this rank, its mean over the batch, may
 * come at any time before the next deft_forward_begin; the last one counts. One that is not finite
 * is reported as such. */
void deft_forward_begin(struct deft_runtime *rt);
void deft_loss(struct deft_runtime *rt, double loss);
void deft_backward_begin(struct deft_runtime *rt);

/* The optimizer's learning rate in this iteration, any time before its first deft_step; stays for
 * the next ones until another is given. For telemetry alone. Not finite or negative: unknown.
 * Cheap, never blocks. */
void deft_learning_rate(struct deft_runtime *rt, double rate);

/* On CUDA: `stream` (a cudaStream_t; NULL: the default stream, which it is until told otherwise) is
 * where the caller's work goes on. Gradients are read behind what the stream has been given by the
 * call of deft_grad_ready; what deft_step and deft_drain hand out, and the parameters they move,
 * may be used behind what it has been given when they return. Before any of these calls, as often
 * as the stream changes; the new one waits for what the runtime gave the old one. Cheap, never
 * blocks. On the host it does nothing. */
void deft_stream(struct deft_runtime *rt, void *stream);

/* The gradient of tensor `id` for this iteration: [elements], on the device, readable until the
 * iteration's last deft_step has returned (on CUDA: in the order of the stream). Once per tensor
 * and iteration, any order; every tensor before deft_step (a tensor without gradient is passed as
 * NULL and counts as zeros). Copies or adds it into the pending generation and posts every bucket
 * that became complete. Fails for wrong calls alone (DEFT_INVALID, DEFT_STATE): what links and
 * peers do is told by the next deft_step. */
DEFT_NODISCARD enum deft_status deft_grad_ready(struct deft_runtime *rt, uint32_t id,
                                                const void *gradient);

enum deft_action {
    DEFT_DONE = 0,    /* the boundary is complete: start the next iteration */
    DEFT_APPLY = 1,   /* step the optimizer with `gradients`, then call again */
    DEFT_PREVIEW = 2, /* preview a step with `gradients`, then call again */
};

struct deft_update {
    enum deft_action action;
    /* [n tensors]; entry NULL: this tensor does not take part. On the device, of the tensor's
     * dtype, valid until the next call into the runtime. Writable for DEFT_APPLY (clipping in
     * place). */
    void *const *gradients;
    uint32_t merge;         /* iterations behind these gradients; they are their mean */
    uint32_t delay;         /* boundaries since the last of them */
    uint32_t landed;        /* 1: averages of all ranks; 0: this rank's own (averaged, preview) */
    uint32_t skipped;       /* generations dropped at this boundary: non-finite on some rank */
    uint32_t stop_agreed;   /* 1 (with DEFT_DONE): all ranks stop after this iteration */
    uint32_t drain_agreed;  /* 1 (with DEFT_DONE): all ranks call deft_drain now */
    uint32_t finish_agreed; /* 1 (with DEFT_DONE): every rank has asked to finish */
    uint64_t iteration;     /* counted from 0 */
};

/* Ends the iteration; call until DEFT_DONE. On CUDA and links of NCCL it does not wait: the stream
 * does. There a generation that is not finite on some rank is handed out as it is, alike on all
 * ranks, and `skipped` stays 0; under averaged the device drops it, `skipped` tells at a later
 * boundary, and the rank concerned steps with gradients that were set to zeros in place. Else it
 * blocks only for what the plan applies at this boundary; returns at once when nothing is due.
 * Collective: same number of calls on all ranks, except that a rank whose own gradient is not
 * finite may see no DEFT_APPLY under averaged. */
DEFT_NODISCARD enum deft_status deft_step(struct deft_runtime *rt, struct deft_update *out,
                                          struct deft_error *error);

/* Between iterations: applies everything in flight; call until DEFT_DONE. Afterwards parameters are
 * bit-equal on all ranks under every rule, and training may go on, also from other parameters that
 * the caller loads now, the same on all ranks. Collective. */
DEFT_NODISCARD enum deft_status deft_drain(struct deft_runtime *rt, struct deft_update *out,
                                           struct deft_error *error);

/* Wishes of this rank that all ranks agree on in band, seen as stop_agreed and drain_agreed at the
 * same boundary everywhere. Async-signal-safe. */
void deft_stop_request(struct deft_runtime *rt);
void deft_drain_request(struct deft_runtime *rt);
/* This rank has no more input, but goes on with iterations without gradients until the others have
 * none either: a stop needs one wish, a finish needs all. */
void deft_finish_request(struct deft_runtime *rt);

/* Between iterations: the caller loads other parameters now, the same on all ranks, and does not
 * drain before. What is in flight lands on them, as under delayed; without this call lookahead
 * takes parameters that wait for an average back to what they were. Not collective. */
void deft_parameters_loaded(struct deft_runtime *rt);

/* Between iterations: replaces `data` by its mean over the ranks (zeros when it is not finite on
 * some rank), for buffers that no gradient moves. Collective, blocking; bit-equal on all ranks. */
DEFT_NODISCARD enum deft_status deft_average(struct deft_runtime *rt, void *data, uint64_t elements,
                                             enum deft_dtype dtype, struct deft_error *error);

/* Between iterations: the bytes of rank `root`, the same number on all ranks, to all ranks.
 * Collective, blocking. */
DEFT_NODISCARD enum deft_status deft_broadcast(struct deft_runtime *rt, int32_t root, void *data,
                                               size_t n_bytes, struct deft_error *error);

/* The caller has found out that its loop cannot do some DEFT_CAN_* after all: plans that need them
 * are refused from now on. Any thread. */
void deft_capabilities_drop(struct deft_runtime *rt, uint32_t capabilities);

/* In a child of fork(): closes the connections that it has inherited, so that peers and agent see
 * the parent's end while the child lives on. Nothing else may be called with `rt` there, whose
 * memory and threads are the parent's. Takes NULL. */
void deft_forked(struct deft_runtime *rt);

/* The canonical encoding of the running plan, for deft_options.first_plan of a later job with the
 * same tensors. Returns its size; writes when `capacity_bytes` suffices (`out` may be NULL). 0
 * before deft_commit. */
size_t deft_plan_export(const struct deft_runtime *rt, void *out, size_t capacity_bytes);

/* One sentence about what was asked for and is not there, such as NCCL without its library or an
 * agent that does not answer (it may still come); "" when there is nothing to tell. Known behind
 * deft_commit, valid until deft_close. */
const char *deft_notice(const struct deft_runtime *rt);

/* Sums, maxima and counters since commit, for logs and tests. Times in ns. */
struct deft_stats {
    uint64_t iterations;
    uint64_t updates;   /* landed generations applied */
    uint64_t skipped;   /* landed generations dropped */
    uint64_t switches;  /* plans switched to */
    uint64_t refused;   /* plans refused */
    int64_t exposed_ns; /* waiting at boundaries, total */
    int64_t control_ns; /* of which: waiting for the control channel */
    uint64_t plan_seq;  /* running plan; 0: the built-in exact plan; when the fuse of a plan has
                           blown it stays that plan's, and `rule` is exact */
    uint64_t plan_hash;
    uint64_t pending_bytes; /* held now: pending copies, anchors, working weights */
    uint64_t telemetry_dropped;
    /* Means over all ranks and the 4 iterations of the newest set of figures that has any, the same
     * on all ranks; they are 3 to 6 iterations old. NaN until known. */
    double mean_loss;          /* of the losses that were given and are finite */
    double mean_grad_sq_local; /* of each rank's own |g|^2 */
    /* |G|^2 of the mean gradient that landed last; under averaged of the mean change. NaN until
     * known. */
    double grad_sq_mean;
    uint32_t agent_connected;
    char rule[16];
};
void deft_stats(const struct deft_runtime *rt, struct deft_stats *out);

/* FNV-1a of the anchor: the registered parameters as landed averages alone have moved them.
 * Bit-equal on all ranks at every boundary. Costs a pass over the parameters. Without registered
 * parameters 0. */
uint64_t deft_anchor_hash(const struct deft_runtime *rt);

/* Takes NULL and half-built runtimes. Tells the peers that this rank leaves in order. Gives the
 * telemetry at most 2 s to leave; never blocks longer than that. */
void deft_close(struct deft_runtime *rt);

#define DEFT_MAX_RANKS 65536

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif
#endif
