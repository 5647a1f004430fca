/* One discrete-event timeline for every policy: what a plan or a peer's rule would cost per step.
 */
#ifndef DSCHED_SIMULATE_H
#define DSCHED_SIMULATE_H

#include <stdint.h>

#include <dsched/plan.h>
#include <dsched/profile.h>
#include <dsched/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Steady state over whole cycles after the prologue; per iteration. */
struct dsched_report {
    int64_t step_ns;
    int64_t exposed_ns;          /* waiting for communication, all stages */
    int64_t exposed_forward_ns;  /* the part before forward layers */
    int64_t exposed_boundary_ns; /* the part at boundaries */
    uint32_t link_busy_ppm[DSCHED_MAX_LINKS];
    uint32_t updates_per_step_ppm;
    uint32_t mean_delay_milli; /* element-weighted */
    uint32_t max_delay;
    uint32_t ops_per_step_milli;
    uint64_t pending_bytes;
    uint32_t cycle; /* iterations after which the schedule repeats; 0: no plan says so */
};

/* A span of the timeline, for pictures and tests. Streams of one simulation arrive by begin time.
 */
enum dsched_lane {
    DSCHED_LANE_FORWARD,
    DSCHED_LANE_BACKWARD,
    DSCHED_LANE_OPTIMIZER,
    DSCHED_LANE_EXPOSED,
    DSCHED_LANE_LINK, /* + link index */
};
struct dsched_span {
    enum dsched_lane lane;
    uint32_t link;       /* for DSCHED_LANE_LINK */
    uint64_t iteration;  /* counted from the drained start */
    uint64_t generation; /* for DSCHED_LANE_LINK, counted from the start */
    uint32_t bucket;
    uint64_t bytes; /* for DSCHED_LANE_LINK; 0: not known */
    int64_t begin_ns;
    int64_t end_ns;
};
typedef void (*dsched_span_fn)(void *context, const struct dsched_span *span);

/* Runs `plan` on `profile`. Ops start when first in their link's order, the link is free and their
 * bucket is ready (under averaged all buckets of a generation are ready at its boundary, after the
 * optimizer). A boundary waits for what the plan applies there. `jitter_ppm`
 * (0..1,000,000) stretches every communication. `on_span` may be NULL; it sees the prologue and two
 * steady cycles. */
DSCHED_NODISCARD enum dsched_status
dsched_simulate_plan(const struct dsched_profile *profile, const struct dsched_plan *plan,
                     uint32_t jitter_ppm, dsched_span_fn on_span, void *context,
                     struct dsched_report *out, struct dsched_error *error);

/* What a policy comes to on a profile. */
struct dsched_outcome {
    struct dsched_report report;
    enum dsched_rule rule; /* whose statistics it has, not who invented it */
    char note[128];        /* what was tuned to which value; "" when there was nothing to tune */
};

/* A policy by name: how `deft simulate --policy X` and `deft compare` find their rows. A policy
 * that its authors tune is tuned here too, by simulation, before `on_span` sees the best run. */
struct dsched_policy {
    const char *name;
    const char *summary; /* one line for --help */
    enum dsched_status (*simulate)(const struct dsched_profile *profile, dsched_span_fn on_span,
                                   void *context, struct dsched_outcome *out,
                                   struct dsched_error *error);
};
/* NULL-terminated, in the order tables show them: serial, wfbp, ..., deft. */
extern const struct dsched_policy *const dsched_policies[];
const struct dsched_policy *dsched_policy_find(const char *name);

/* Lower bounds of design/scheduling.md, "Bounds". */
struct dsched_bounds {
    int64_t
        exact_step_ns; /* any exact schedule that updates layer by layer, any partition, link 0 */
    int64_t deft_step_ns;          /* T: reached when updates_per_step allows it */
    uint32_t updates_per_step_ppm; /* min(1, T / S) */
};
DSCHED_NODISCARD enum dsched_status dsched_bounds(const struct dsched_profile *profile,
                                                  struct dsched_bounds *out,
                                                  struct dsched_error *error);

#ifdef __cplusplus
}
#endif
#endif
