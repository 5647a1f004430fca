/* MG-WFBP (Shi et al., arXiv 1912.09268): WFBP that merges a tensor's gradient into the next one
 * where that saves more latency than it costs waiting. */
#include "plan_run.h"
#include "policies.h"

#include "../refuse.h"

#include <stdio.h>

/* What one message instead of two saves. A measured curve has no latency of its own, and where it
 * is steeper for the longer message this is below 0. */
static int64_t saved_ns(const struct dsched_link *link, uint64_t bytes, uint64_t more_bytes) {
    if (link->n_samples == 0) {
        return link->alpha_ns;
    }
    return dsched_link_ns(link, bytes) + dsched_link_ns(link, more_bytes) -
           dsched_link_ns(link, bytes + more_bytes);
}

static uint64_t bytes_of(const struct space_piece *piece) {
    return (piece->end - piece->begin) * piece->element_bytes;
}

/* The authors' rule, from the output side on. The group so far would start at `start_ns`; `next` is
 * the tensor that becomes ready after it. They are merged when `next` would have to wait for the
 * group anyway, and the group waits for it, if at all, no longer than the merge saves. */
static int is_merged(const struct dsched_link *link, uint64_t open_bytes, int64_t start_ns,
                     const struct space_piece *next) {
    int64_t saved = saved_ns(link, open_bytes, bytes_of(next));
    return next->ready_ns < start_ns + dsched_link_ns(link, open_bytes) && saved >= 0 &&
           next->ready_ns - start_ns < saved;
}

/* Writes buckets when `out` is not NULL. */
static uint32_t walk(const struct dsched_link *link, const struct space *space,
                     struct dsched_bucket *out) {
    uint64_t begin = 0;
    uint64_t n_bytes = 0;
    int64_t start_ns = 0;
    int64_t free_ns = 0;
    uint32_t n = 0;
    for (uint32_t p = 0; p < space->n_pieces; p++) {
        const struct space_piece *piece = &space->pieces[p];
        if (p > 0 && (piece->dtype != space->pieces[p - 1].dtype ||
                      !is_merged(link, n_bytes, start_ns, piece))) {
            if (out != NULL) {
                out[n] = (struct dsched_bucket){.begin = begin, .end = piece->begin};
            }
            n++;
            free_ns = start_ns + dsched_link_ns(link, n_bytes);
            begin = piece->begin;
            n_bytes = 0;
        }
        n_bytes += bytes_of(piece);
        start_ns = piece->ready_ns > free_ns ? piece->ready_ns : free_ns;
    }
    if (out != NULL) {
        out[n] = (struct dsched_bucket){.begin = begin, .end = space->n_elements};
    }
    return n + 1;
}

static enum dsched_status make(const struct dsched_profile *profile, const struct space *space,
                               struct dsched_plan *out, char *note, struct dsched_error *error) {
    const struct dsched_link *link = &profile->links[0];
    struct dsched_plan plan = {0};
    uint32_t n_buckets = walk(link, space, NULL);
    enum dsched_status status = dsched_plan_init(&plan, n_buckets, 1);
    if (status != DSCHED_OK) {
        return refuse(error, status, "MG-WFBP's %u groups could not be made into buckets",
                      n_buckets);
    }
    (void)walk(link, space, plan.buckets);
    plan.rule = DSCHED_EXACT;
    plan.n_links = 1;
    plan.merge[0] = 1;
    (void)snprintf(note, POLICIES_NOTE_BYTES, "%u groups", n_buckets);
    *out = plan;
    return DSCHED_OK;
}

static enum dsched_status mg_wfbp_simulate(const struct dsched_profile *profile,
                                           dsched_span_fn on_span, void *context,
                                           struct dsched_outcome *out, struct dsched_error *error) {
    return plan_run(profile, make, PROGRAM_READY_DURING_BACKWARD, on_span, context, out, error);
}

const struct dsched_policy policy_mg_wfbp = {
    .name = "mg-wfbp",
    .summary = "MG-WFBP: WFBP with tensors merged where latency outweighs waiting",
    .simulate = mg_wfbp_simulate,
};
