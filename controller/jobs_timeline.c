/* What a plan does on the job's profile, as a picture shows it. */
#include <stdlib.h>
#include <string.h>

#include <dsched/simulate.h>
#include <dsched/window.h>

#include "jobs.h"

static enum deft_status timeline_failed(enum dsched_status status, const struct dsched_error *why,
                                        struct deft_error *error) {
    return deft_fail(error, status == DSCHED_NO_MEMORY ? DEFT_NO_MEMORY : DEFT_MISMATCH, 0,
                     "plan: it cannot be drawn on the profile that is there now: %s", why->text);
}

static enum deft_status timeline_encode(const struct dsched_profile *profile,
                                        const struct dsched_plan *plan, char **out,
                                        struct deft_error *error) {
    struct dsched_window window = {0};
    struct dsched_outcome outcome = {.rule = plan->rule};
    struct dsched_error why = {0};
    enum dsched_status status =
        dsched_simulate_plan(profile, plan, 0, dsched_window_add, &window, &outcome.report, &why);
    if (status == DSCHED_OK) {
        uint32_t cycle = outcome.report.cycle > 0 ? outcome.report.cycle : 1;
        status = dsched_window_close(&window, 2 * cycle, outcome.report.step_ns, &why);
    }
    enum deft_status result = DEFT_OK;
    if (status == DSCHED_OK) {
        const struct wire_timeline timeline = {
            .profile = profile, .policy = "deft", .outcome = &outcome, .window = &window};
        result = wire_timeline_encode(&timeline, out, error);
    } else {
        result = timeline_failed(status, &why, error);
    }
    dsched_window_done(&window);
    return result;
}

enum deft_status jobs_timeline(struct jobs *jobs, struct store *store, int64_t incarnation,
                               uint64_t seq, char **out, struct deft_error *error) {
    struct dsched_profile profile = {0};
    struct dsched_plan plan = {0};
    char *plan_text = NULL;
    char *profile_text = NULL;
    uint64_t hash = 0;
    enum deft_status status =
        store_read_plan_text(store, incarnation, seq, &plan_text, &hash, error);
    if (status == DEFT_NOT_FOUND) {
        (void)deft_fail(error, status, 0, "there is no such plan");
    }
    if (status == DEFT_OK) {
        status = jobs_profile(jobs, incarnation, &profile_text, error);
    }
    if (status == DEFT_OK) {
        status = wire_profile_decode(profile_text, strlen(profile_text), &profile, error);
    }
    if (status == DEFT_OK) {
        status = wire_plan_decode(plan_text, strlen(plan_text), &plan, error);
    }
    if (status == DEFT_OK) {
        status = timeline_encode(&profile, &plan, out, error);
    }
    dsched_plan_done(&plan);
    dsched_profile_done(&profile);
    free(profile_text);
    free(plan_text);
    return status;
}
