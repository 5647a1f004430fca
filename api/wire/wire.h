/* JSON of the REST API as C structs, both ways. The only room that knows cJSON.
 *
 * Decoders are strict: duplicate keys, unknown enum texts, numbers out of range, NaN, depth > 32
 * and trailing bytes are refused with one sentence that names the field ("iterations[3].rank:
 * ..."). Unknown keys are ignored, so that an older controller takes a newer agent. Missing
 * optional keys give the stated default. Encoders never emit NaN or infinities: such a number
 * becomes null, and null decodes to NaN where a number may be absent. Durations and byte counts are
 * JSON integers (< 2^53, which every reader keeps exactly); 64-bit hashes are 16 hexadecimal digits
 * in a string, wall clocks in nanoseconds are decimal digits in a string. An encoder refuses what
 * its decoder would.
 *
 * Decoded structs own what they point to; release with the matching _done (NULL and zeroed are
 * fine). Encoders return a malloc'ed zero-terminated string in *out. */
#ifndef WIRE_H
#define WIRE_H

#include <stddef.h>
#include <stdint.h>

#include <deft/status.h>
#include <dsched/plan.h>
#include <dsched/planner.h>
#include <dsched/profile.h>
#include <dsched/simulate.h>
#include <dsched/window.h>

#define WIRE_ID_BYTES   128u
#define WIRE_TEXT_BYTES 512u
/* A report of 8 ranks x 60 s at 100 iterations/s is 6 MiB. */
#define WIRE_MAX_BODY_BYTES (8u << 20)
/* No message of ours nests deeper than 6; the bound keeps hostile input off the stack. */
#define WIRE_MAX_DEPTH 32u
/* Values of a message that is read. Each takes some 80 bytes while it is, as much as forty of the
 * shortest take in the text, and packed those take next to nothing. That report has a million. */
#define WIRE_MAX_VALUES (1u << 20)
/* The largest legal plan has two million, and comes from a controller. */
#define WIRE_MAX_PLAN_VALUES (1u << 22)

/* --- profile: deft.profile/1, the files of design/scheduling.md ------------------------------ */
DEFT_NODISCARD enum deft_status wire_profile_decode(const char *text, size_t n_bytes,
                                                    struct dsched_profile *out,
                                                    struct deft_error *error);
DEFT_NODISCARD enum deft_status wire_profile_encode(const struct dsched_profile *profile,
                                                    char **out, struct deft_error *error);

/* --- plan: deft.plan/1 ------------------------------------------------------------------------
 * {"schema":"deft.plan/1","rule":"averaged","links":1,"cycle":2,"buckets":[[begin,end],...],
 *  "generations":[{"merge":2,"links":[...],"delays":[...]}],
 *  "forecast":{"step_ns":..,"exposed_ns":..,"compute_ns":..,"updates_per_step":0.5,
 *  "mean_delay_steps":..,"max_delay_steps":..,"pending_bytes":..},"hash":"16 hex digits"}
 * A hash that is present and wrong is refused. */
DEFT_NODISCARD enum deft_status wire_plan_decode(const char *text, size_t n_bytes,
                                                 struct dsched_plan *out, struct deft_error *error);
DEFT_NODISCARD enum deft_status wire_plan_encode(const struct dsched_plan *plan, char **out,
                                                 struct deft_error *error);
/* Candidates and the reason of the choice, for /explain and `deft plan --json`. Each has its
 * progress relative to exact and its cost_ns, null where there is no progress. */
DEFT_NODISCARD enum deft_status wire_solution_encode(const struct dsched_solution *solution,
                                                     char **out, struct deft_error *error);

/* --- solve: deft.solve/1, all that dsched_solve is given ---------------------------------------
 * {"schema":"deft.solve/1","rules":7,"max_merge":3,...,"progress":[{"rule":"averaged",
 *  "merge":[ppm of merge 1, 2, ...],"delay":[ppm of delay 0, 1, ...]},...],"profile":{..}}
 * Entries that are left out are 0; without "progress" there is no table. */
struct wire_solve {
    struct dsched_planner_options options; /* progress: &progress below, or NULL */
    struct dsched_profile profile;
    struct dsched_progress progress;
};
void wire_solve_done(struct wire_solve *solve);
DEFT_NODISCARD enum deft_status wire_solve_encode(const struct dsched_profile *profile,
                                                  const struct dsched_planner_options *options,
                                                  char **out, struct deft_error *error);
/* `out` must not be moved afterwards: its options point into it. */
DEFT_NODISCARD enum deft_status wire_solve_decode(const char *text, size_t n_bytes,
                                                  struct wire_solve *out, struct deft_error *error);

/* --- timeline: deft.timeline/1, what a policy or plan does on a profile ------------------------
 * {"schema":"deft.timeline/1","profile":"gpt2","world_size":16,"policy":"deft","rule":"averaged",
 *  "note":"","compute_ns":..,"coverage":1.3,"links":["nccl",...],"report":{"step_ns":..,...},
 *  "window":{"first_iteration":..,"n_iterations":..,"span_ns":..,"cut":false,
 *   "stages":[["forward",iteration,begin_ns,end_ns],...],
 *   "transfers":[[link,generation,bucket,bytes,begin_ns,end_ns],...]}}
 * Stages are "forward", "backward", "optimizer" and "exposed", the wait for communication. Times
 * count from the begin of the window and are negative for what began before it; bytes are null
 * where a policy does not tell them. "cut" says that spans at the end were left out. Without a
 * window only the figures are there. For pictures: there is no decoder in C. */
struct wire_timeline {
    const struct dsched_profile *profile;
    const char *policy;
    const struct dsched_outcome *outcome;
    const struct dsched_window *window; /* NULL: none */
};
DEFT_NODISCARD enum deft_status wire_timeline_encode(const struct wire_timeline *in, char **out,
                                                     struct deft_error *error);

/* --- registration: POST /jobs/{job}/incarnations ---------------------------------------------- */
struct wire_link {
    char name[WIRE_ID_BYTES];
    uint32_t n_probes;
    struct dsched_sample *probes;
};
struct wire_registration {
    char key[WIRE_ID_BYTES]; /* incarnation key: registering twice is the same incarnation */
    char name[WIRE_ID_BYTES];
    char user[WIRE_ID_BYTES];
    char agent[WIRE_ID_BYTES]; /* host-pid-start, unique per agent process */
    char version[32];
    char mode[16];       /* wished mode: "off", "observe", "auto"; "" leaves the job's */
    uint64_t started_ns; /* client wall clock; stored clamped */
    uint32_t n_ranks;    /* world */
    uint32_t restart_count;
    uint64_t table_hash;
    uint32_t capabilities; /* DEFT_CAN_* | IPC_CAN_AVERAGE as names: "preview","skip","average" */
    uint64_t max_pending_bytes;
    char optimizer[16]; /* "unknown", "sgd", "adam", "adamw" */
    double momentum;
    double learning_rate;
    uint64_t batch_per_rank;
    uint32_t max_merge; /* 0: controller's default */
    uint32_t max_delay; /* 0: controller's default */
    double epsilon;     /* as in wire_limits; NaN, 0: the job's own */
    uint32_t n_local_ranks;
    uint32_t *local_ranks; /* ranks behind this agent */
    uint32_t n_tensors;
    struct dsched_tensor *tensors; /* name, elements, dtype; times 0 */
    uint32_t n_links;
    struct wire_link *links;
};
#define WIRE_CAN_PREVIEW (1u << 0)
#define WIRE_CAN_SKIP    (1u << 1)
#define WIRE_CAN_AVERAGE (1u << 16)
void wire_registration_done(struct wire_registration *registration);
DEFT_NODISCARD enum deft_status wire_registration_encode(const struct wire_registration *in,
                                                         char **out, struct deft_error *error);
DEFT_NODISCARD enum deft_status wire_registration_decode(const char *text, size_t n_bytes,
                                                         struct wire_registration *out,
                                                         struct deft_error *error);
struct wire_registered {
    char incarnation[WIRE_ID_BYTES];
    char job[WIRE_ID_BYTES];
    char mode[16];
    uint64_t committed_seq; /* of this agent; a restarted agent goes on behind it */
};
DEFT_NODISCARD enum deft_status wire_registered_encode(const struct wire_registered *in, char **out,
                                                       struct deft_error *error);
DEFT_NODISCARD enum deft_status wire_registered_decode(const char *text, size_t n_bytes,
                                                       struct wire_registered *out,
                                                       struct deft_error *error);

/* --- report: POST /incarnations/{id}/reports ---------------------------------------------------
 * iterations and ops are arrays of arrays, in the order of the members below: a third of the bytes
 * of objects. A longer row of a newer agent is fine; bytes .. learning_rate may be absent. */
struct wire_iteration {
    uint32_t rank;
    uint64_t iteration;
    uint64_t plan_seq;
    int64_t forward_ns, backward_ns, exposed_ns, optimizer_ns, runtime_ns, step_ns;
    uint64_t bytes;
    double loss;                             /* NaN: none */
    double grad_sq_local;                    /* NaN: none */
    double grad_sq_mean;                     /* NaN: none */
    uint32_t updates, skipped, merge, flags; /* WIRE_ITERATION_* */
    double change_sq_local;                  /* averaged: |D_r|^2; NaN: none */
    double learning_rate;                    /* NaN: unknown */
};
#define WIRE_ITERATION_DRAINED  (1u << 0)
#define WIRE_ITERATION_SWITCHED (1u << 1)
#define WIRE_ITERATION_BAD_LOSS (1u << 2) /* given, not finite */
/* All-reduces of one size on one link, since the last report. */
struct wire_op_summary {
    uint32_t rank;
    uint32_t link;
    uint64_t bytes;
    uint32_t count;
    int64_t min_ns, median_ns, max_ns;
};
struct wire_readiness {
    uint32_t rank;
    uint64_t iteration;
    uint32_t n_offsets;
    int64_t *offsets_ns; /* per tensor id, from backward_begin */
};
struct wire_event {
    uint32_t rank;
    char kind[16]; /* "switched", "refused", "finished", "failed", "dropped", "fused" */
    uint64_t plan_seq;
    uint64_t iteration;
    uint64_t count;
    char text[WIRE_TEXT_BYTES];
};
struct wire_report {
    char agent[WIRE_ID_BYTES];
    uint64_t seq; /* per agent, growing, gaps where it dropped; sending one again changes nothing */
    uint32_t n_iterations;
    struct wire_iteration *iterations;
    uint32_t n_ops;
    struct wire_op_summary *ops;
    uint32_t n_readiness;
    struct wire_readiness *readiness;
    uint32_t n_events;
    struct wire_event *events;
};
void wire_report_done(struct wire_report *report);
DEFT_NODISCARD enum deft_status wire_report_encode(const struct wire_report *in, char **out,
                                                   struct deft_error *error);
DEFT_NODISCARD enum deft_status wire_report_decode(const char *text, size_t n_bytes,
                                                   struct wire_report *out,
                                                   struct deft_error *error);
/* {"committed": 17} */
DEFT_NODISCARD enum deft_status wire_committed_encode(uint64_t seq, char **out,
                                                      struct deft_error *error);
DEFT_NODISCARD enum deft_status wire_committed_decode(const char *text, size_t n_bytes,
                                                      uint64_t *out_seq, struct deft_error *error);

/* --- events: GET /incarnations/{id}/events (server-sent events) --------------------------------
 * event: plan     id: <seq>  data: {"seq":3,"hash":"..","plan":{deft.plan/1},
 *                                   "max_loss":2.4,"max_grad_sq":1e3}; null or absent: no fuse
 * event: mode                data: {"mode":"auto"}
 * event: command             data: {"command":"drain"|"stop"} */
struct wire_plan_event {
    uint64_t seq;
    struct dsched_plan plan;
    double max_loss; /* the fuse (ipc.h): positive; NaN: not watched */
    double max_grad_sq;
};
void wire_plan_event_done(struct wire_plan_event *event);
DEFT_NODISCARD enum deft_status wire_plan_event_encode(const struct wire_plan_event *in, char **out,
                                                       struct deft_error *error);
DEFT_NODISCARD enum deft_status wire_plan_event_decode(const char *text, size_t n_bytes,
                                                       struct wire_plan_event *out,
                                                       struct deft_error *error);

/* --- jobs: GET /jobs, /jobs/{job} --------------------------------------------------------------
 * Figures are of the newest incarnation. Times are 0 and ratios NaN while they are unknown. */
struct wire_job {
    char id[WIRE_ID_BYTES];
    char name[WIRE_ID_BYTES];
    char user[WIRE_ID_BYTES];
    char state[16]; /* "running", "finished", "failed", "lost" */
    char mode[16];  /* "off", "observe", "auto" */
    char phase[16]; /* of the tuner: "observing", "solving", "switching", "canary", "committed",
                       "returning", "halted", "comparing", "resuming" */
    char incarnation[WIRE_ID_BYTES];
    uint32_t n_ranks;
    uint32_t n_ranks_heard;   /* running jobs: of which reports have come lately */
    uint32_t first_unheard;   /* the lowest rank of the others; n_ranks when all are heard */
    uint64_t iterations;      /* stored, counted once for all ranks */
    char plan[WIRE_ID_BYTES]; /* id for /plans/{id}; "" while the built-in exact plan runs */
    uint64_t plan_seq;        /* running plan; 0: the built-in exact plan */
    char rule[16];
    uint32_t merge; /* largest of the plan */
    uint32_t delay; /* largest of the plan */
    double updates_per_step;
    int64_t exact_step_ns;     /* median before the first plan */
    int64_t step_ns;           /* of the running plan, newest window */
    int64_t predicted_step_ns; /* of the running plan, or in mode observe of the best one */
    double gain;               /* exact_step_ns / step_ns */
    double predicted_gain;     /* exact_step_ns / predicted_step_ns: in mode observe what is left */
    double coverage;           /* one all-reduce on the primary link / (forward + backward) */
    uint32_t n_switches;
    uint32_t n_rollbacks;
    uint32_t max_merge;
    uint32_t max_delay;
    double epsilon; /* as in wire_limits */
    double min_progress;
    double loss_floor;
    int frozen;              /* no plan is looked for */
    char pin[WIRE_ID_BYTES]; /* id of the plan that an operator wants; "": none */
    double progress;      /* per sample under the running plan, relative to exact, as predicted */
    double noise_samples; /* gradient noise scale */
    double disagreement;  /* of the ranks under averaged: |D_r - M| / |M| */
    double loss;          /* robust mean of the newest */
    char loss_state[16];  /* "fine", or what is wrong with the losses (dsched/loss.h) */
    char status[WIRE_TEXT_BYTES];   /* what is going on: "warming up, 34 of 100 iterations" */
    char decision[WIRE_TEXT_BYTES]; /* the last one, in one sentence */
    char registered_at[32];         /* RFC 3339, UTC, the controller's clock */
    char updated_at[32];
};
DEFT_NODISCARD enum deft_status wire_job_encode(const struct wire_job *in, char **out,
                                                struct deft_error *error);
DEFT_NODISCARD enum deft_status wire_job_decode(const char *text, size_t n_bytes,
                                                struct wire_job *out, struct deft_error *error);
struct wire_jobs {
    uint32_t n_jobs;
    struct wire_job *jobs;
    uint64_t total; /* that match the filter, on all pages */
};
void wire_jobs_done(struct wire_jobs *jobs);
DEFT_NODISCARD enum deft_status wire_jobs_encode(const struct wire_jobs *in, char **out,
                                                 struct deft_error *error);
DEFT_NODISCARD enum deft_status wire_jobs_decode(const char *text, size_t n_bytes,
                                                 struct wire_jobs *out, struct deft_error *error);

/* --- decisions: GET /incarnations/{id}/decisions ---------------------------------------------- */
struct wire_decision {
    char at[32];   /* RFC 3339 */
    char kind[16]; /* "observed", "push", "commit", "rollback", "keep", "refused", "halt",
                      "compare", "resume", "fused" */
    uint64_t iteration;
    uint64_t plan_seq;
    int64_t exact_step_ns;
    int64_t before_step_ns;
    int64_t predicted_step_ns;
    int64_t measured_step_ns;
    char reason[WIRE_TEXT_BYTES];
};
struct wire_decisions {
    uint32_t n_decisions;
    struct wire_decision *decisions; /* oldest first */
};
void wire_decisions_done(struct wire_decisions *decisions);
DEFT_NODISCARD enum deft_status wire_decisions_encode(const struct wire_decisions *in, char **out,
                                                      struct deft_error *error);
DEFT_NODISCARD enum deft_status wire_decisions_decode(const char *text, size_t n_bytes,
                                                      struct wire_decisions *out,
                                                      struct deft_error *error);

/* --- operator: PUT /jobs/{job}/mode, /limits; mode is also an event of the stream --------------
 */
struct wire_mode {
    char mode[16]; /* "off", "observe", "auto" */
};
DEFT_NODISCARD enum deft_status wire_mode_encode(const struct wire_mode *in, char **out,
                                                 struct deft_error *error);
DEFT_NODISCARD enum deft_status wire_mode_decode(const char *text, size_t n_bytes,
                                                 struct wire_mode *out, struct deft_error *error);
/* PUT /jobs/{job}/pin, /freeze, /keep. */
struct wire_pin {
    char plan[WIRE_ID_BYTES]; /* id of a plan of the job, or its hash; "": none */
};
DEFT_NODISCARD enum deft_status wire_pin_encode(const struct wire_pin *in, char **out,
                                                struct deft_error *error);
DEFT_NODISCARD enum deft_status wire_pin_decode(const char *text, size_t n_bytes,
                                                struct wire_pin *out, struct deft_error *error);
struct wire_freeze {
    int frozen;
};
DEFT_NODISCARD enum deft_status wire_freeze_encode(const struct wire_freeze *in, char **out,
                                                   struct deft_error *error);
DEFT_NODISCARD enum deft_status wire_freeze_decode(const char *text, size_t n_bytes,
                                                   struct wire_freeze *out,
                                                   struct deft_error *error);
struct wire_keep {
    char keep[WIRE_ID_BYTES]; /* "raw=30d,jobs=forever" or "default" */
};
DEFT_NODISCARD enum deft_status wire_keep_encode(const struct wire_keep *in, char **out,
                                                 struct deft_error *error);
DEFT_NODISCARD enum deft_status wire_keep_decode(const char *text, size_t n_bytes,
                                                 struct wire_keep *out, struct deft_error *error);
struct wire_limits {
    uint32_t max_merge;  /* 1..DSCHED_MAX_MERGE */
    uint32_t max_delay;  /* 0..DSCHED_MAX_DELAY */
    double epsilon;      /* 0..1: excess loss over exact's at equal samples; absent: 0.01 */
    double min_progress; /* 0..1: progress per sample, relative to exact's; absent: 0.5 */
    double loss_floor;   /* least loss the job can reach; NaN, absent: 0, or, when losses are
                            negative, what they suggest */
};
DEFT_NODISCARD enum deft_status wire_limits_encode(const struct wire_limits *in, char **out,
                                                   struct deft_error *error);
DEFT_NODISCARD enum deft_status wire_limits_decode(const char *text, size_t n_bytes,
                                                   struct wire_limits *out,
                                                   struct deft_error *error);

/* --- comparison: POST /simulate, `deft compare --json` -----------------------------------------
 * {"profile":"gpt2","bound":{"exact_step_ns":..,"deft_step_ns":..,"updates_per_step":..},
 *  "policies":[{"policy":"wfbp","step_ns":..,...},...]} There is no decoder in C. */
struct wire_comparison_row {
    const struct dsched_policy *policy;
    struct dsched_outcome outcome;
    int64_t solve_ns;
    double speedup; /* over wfbp; 0: unknown */
};
DEFT_NODISCARD enum deft_status wire_comparison_encode(const struct dsched_profile *profile,
                                                       const struct dsched_bounds *bounds,
                                                       const struct wire_comparison_row *rows,
                                                       size_t n_rows, char **out,
                                                       struct deft_error *error);
/* Fills in the speed-ups. */
void wire_comparison_relate(struct wire_comparison_row *rows, size_t n_rows);

/* --- problem: RFC 9457 ------------------------------------------------------------------------ */
/* {"type":"about:blank","title":..,"status":..,"code":"invalid","detail":..,"field":..} */
DEFT_NODISCARD enum deft_status wire_problem_encode(int http_status, const char *code,
                                                    const char *detail, const char *field,
                                                    char **out);
/* Reads "detail" of a problem body into `out_detail` (at most WIRE_TEXT_BYTES); "" if there is
 * none. */
void wire_problem_decode(const char *text, size_t n_bytes, char *out_detail);

#endif
