/* SAPipe (Chen et al., NeurIPS 2022): only the gradients that are ready last, on the input side,
 * may be one iteration late; all others are applied fresh. */
#include "plan_run.h"
#include "policies.h"

#include "../muldiv.h"
#include "../refuse.h"
#include "../simulation.h"

#include <stdio.h>

/* Messages are made by fusing tensors up to this size, the coarsest first. */
static const uint64_t fusions_bytes[] = {
    UINT64_C(128) << 20, UINT64_C(64) << 20, UINT64_C(32) << 20, UINT64_C(16) << 20,
    UINT64_C(8) << 20,   UINT64_C(4) << 20,  UINT64_C(2) << 20,  UINT64_C(1) << 20};
#define N_FUSIONS (sizeof(fusions_bytes) / sizeof(fusions_bytes[0]))
/* Steps that differ by less are the same: no gradient is late for less. */
#define SAME_STEP_PPM 1000u

struct tried {
    uint64_t fusion_bytes;
    uint32_t n_fresh;
    struct dsched_report report;
};

static void set_fresh(struct dsched_plan *plan, uint32_t n_fresh) {
    plan->rule = n_fresh == plan->n_buckets ? DSCHED_EXACT : DSCHED_DELAYED;
    for (uint32_t b = 0; b < plan->n_buckets; b++) {
        plan->ops[b].delay = b >= n_fresh;
    }
}

static enum dsched_status measure(const struct dsched_profile *profile, const struct space *space,
                                  struct dsched_plan *plan, uint32_t n_fresh,
                                  struct dsched_report *out, struct dsched_error *error) {
    struct simulation simulation = {.profile = profile, .space = space, .plan = plan};
    set_fresh(plan, n_fresh);
    simulation.ready = program_ready_of(plan->rule);
    return simulation_run(&simulation, NULL, NULL, out, error);
}

/* With no bucket fresh the step is the shortest that a fusion has. */
static enum dsched_status shortest(const struct dsched_profile *profile, const struct space *space,
                                   uint64_t fusion_bytes, int64_t *least_ns,
                                   struct dsched_error *error) {
    struct dsched_plan plan = {0};
    struct dsched_report report;
    enum dsched_status status = plan_run_fuse(space, fusion_bytes, fusion_bytes, &plan, error);
    if (status == DSCHED_OK) {
        status = measure(profile, space, &plan, 0, &report, error);
    }
    if (status == DSCHED_OK && report.step_ns < *least_ns) {
        *least_ns = report.step_ns;
    }
    dsched_plan_done(&plan);
    return status;
}

static int is_better(const struct tried *a, const struct tried *b) {
    return b->fusion_bytes == 0 || a->report.mean_delay_milli < b->report.mean_delay_milli ||
           (a->report.mean_delay_milli == b->report.mean_delay_milli &&
            a->report.ops_per_step_milli < b->report.ops_per_step_milli);
}

/* As many buckets are fresh as a step of at most `most_ns` allows, if it allows any number. */
static enum dsched_status freshest(const struct dsched_profile *profile, const struct space *space,
                                   uint64_t fusion_bytes, int64_t most_ns, struct tried *best,
                                   struct dsched_error *error) {
    struct dsched_plan plan = {0};
    struct tried tried = {.fusion_bytes = fusion_bytes};
    int is_allowed = 0;
    uint32_t low = 0; /* numbers below are allowed, `high` and above are not */
    uint32_t high;
    enum dsched_status status = plan_run_fuse(space, fusion_bytes, fusion_bytes, &plan, error);
    if (status != DSCHED_OK) {
        return status;
    }
    high = plan.n_buckets + 1;
    while (status == DSCHED_OK && low < high) {
        uint32_t middle = low + (high - low) / 2;
        struct dsched_report report = {0};
        status = measure(profile, space, &plan, middle, &report, error);
        if (status == DSCHED_OK && report.step_ns <= most_ns) {
            is_allowed = 1;
            tried.n_fresh = middle;
            tried.report = report;
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    if (status == DSCHED_OK && is_allowed && is_better(&tried, best)) {
        *best = tried;
    }
    dsched_plan_done(&plan);
    return status;
}

static enum dsched_status make(const struct dsched_profile *profile, const struct space *space,
                               struct dsched_plan *out, char *note, struct dsched_error *error) {
    struct dsched_error reason = {.text = ""};
    struct tried best = {0};
    int64_t least_ns = INT64_MAX;
    uint32_t n = 0;
    enum dsched_status status = DSCHED_OK;
    while (status == DSCHED_OK && n < N_FUSIONS) {
        status = shortest(profile, space, fusions_bytes[n], &least_ns, &reason);
        n += status == DSCHED_OK;
    }
    if (status != DSCHED_OK && (status != DSCHED_LIMIT || n == 0)) {
        return refuse(error, status, "%s", reason.text);
    }
    status = DSCHED_OK; /* finer fusions than those are too many buckets, which is no loss */
    for (uint32_t f = 0; status == DSCHED_OK && f < n; f++) {
        status = freshest(profile, space, fusions_bytes[f], muldiv_stretch(least_ns, SAME_STEP_PPM),
                          &best, error);
    }
    if (status == DSCHED_OK) {
        status = plan_run_fuse(space, best.fusion_bytes, best.fusion_bytes, out, error);
    }
    if (status == DSCHED_OK) {
        set_fresh(out, best.n_fresh);
        (void)snprintf(note, POLICIES_NOTE_BYTES, "fusion %u MiB, %u of %u buckets late",
                       (unsigned)(best.fusion_bytes >> 20), out->n_buckets - best.n_fresh,
                       out->n_buckets);
    }
    return status;
}

static enum dsched_status sapipe_simulate(const struct dsched_profile *profile,
                                          dsched_span_fn on_span, void *context,
                                          struct dsched_outcome *out, struct dsched_error *error) {
    return plan_run(profile, make, PROGRAM_READY_DURING_BACKWARD, on_span, context, out, error);
}

const struct dsched_policy policy_sapipe = {
    .name = "sapipe",
    .summary = "SAPipe: gradients that cannot land in time are one iteration late, tuned",
    .simulate = sapipe_simulate,
};
