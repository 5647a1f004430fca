/* DeFT as its abstract describes it (Meng and Sun, arXiv 2503.16815), nothing of our planner: stage
 * by stage, each link is a knapsack that takes what it can of the pending generation; meanwhile
 * gradients merge into the next. A generation is applied as a whole once all of it has been
 * packed. DDP's buckets, which are not reordered. */
#include "plan_run.h"
#include "policies.h"

#include "../refuse.h"

#include <dsched/planner.h>

#include <stdio.h>
#include <stdlib.h>

/* Per knapsack: an optimum at the sizes that occur, and a bound on the time. */
#define NODE_LIMIT 4000u
#define ON_NO_LINK UINT8_MAX

struct packing {
    const struct dsched_profile *profile;
    struct dsched_plan *plan;
    uint32_t n_pending;
    int64_t *costs_ns;                     /* [links * buckets], link-major */
    int64_t capacity_ns[DSCHED_MAX_LINKS]; /* left over from earlier stages, too */
    uint8_t *links;                        /* [buckets] or ON_NO_LINK: pending */
    struct dsched_item *items;             /* pending buckets */
    uint32_t *buckets;                     /* behind each item */
    uint8_t *taken;
};

static enum dsched_status pack_link(struct packing *packing, uint32_t l,
                                    struct dsched_error *error) {
    uint32_t n_buckets = packing->plan->n_buckets;
    const int64_t *costs_ns = &packing->costs_ns[(size_t)l * n_buckets];
    uint32_t n = 0;
    int64_t value;
    uint32_t gap_ppm;
    enum dsched_status status;
    for (uint32_t b = 0; b < n_buckets; b++) {
        if (packing->links[b] == ON_NO_LINK) {
            packing->items[n] =
                (struct dsched_item){.weight = costs_ns[b], .value = packing->costs_ns[b]};
            packing->buckets[n++] = b;
        }
    }
    if (n == 0) {
        return DSCHED_OK;
    }
    status = dsched_knapsack(packing->items, n, packing->capacity_ns[l], NODE_LIMIT, packing->taken,
                             &value, &gap_ppm);
    if (status != DSCHED_OK) {
        return refuse(error, status, "%u buckets could not be packed onto link %u", n, l);
    }
    for (uint32_t i = 0; i < n; i++) {
        if (packing->taken[i]) {
            packing->links[packing->buckets[i]] = (uint8_t)l;
            packing->capacity_ns[l] -= costs_ns[packing->buckets[i]];
            packing->n_pending--;
        }
    }
    return DSCHED_OK;
}

/* A transfer may run from one stage into the next, so what a stage leaves unused is merged into the
 * capacity of the next. */
static enum dsched_status pack_stage(struct packing *packing, int64_t stage_ns,
                                     struct dsched_error *error) {
    enum dsched_status status = DSCHED_OK;
    for (uint32_t l = 0; status == DSCHED_OK && l < packing->profile->n_links; l++) {
        packing->capacity_ns[l] += stage_ns;
        status = pack_link(packing, l, error);
    }
    return status;
}

/* Iterations until all of a generation is packed. What even the longest merge leaves over goes to
 * the first link, whose queue then sets the step. */
static enum dsched_status pack(struct packing *packing, uint32_t *out_n_iterations,
                               struct dsched_error *error) {
    const struct dsched_profile *profile = packing->profile;
    uint32_t n_buckets = packing->plan->n_buckets;
    uint32_t n_iterations = 0;
    enum dsched_status status = DSCHED_OK;
    packing->n_pending = n_buckets;
    for (uint32_t b = 0; b < n_buckets; b++) {
        packing->links[b] = ON_NO_LINK;
    }
    do {
        n_iterations++;
        status = pack_stage(packing, profile->forward_ns, error);
        if (status == DSCHED_OK) {
            status = pack_stage(packing, profile->backward_ns + profile->optimizer_ns, error);
        }
    } while (status == DSCHED_OK && packing->n_pending > 0 && n_iterations < DSCHED_MAX_MERGE);
    *out_n_iterations = n_iterations;
    return status;
}

static void fill_costs(struct packing *packing, const struct space *space, uint64_t *bytes) {
    uint32_t n = packing->plan->n_buckets;
    space_measure(space, packing->plan->buckets, n, NULL, bytes);
    for (uint32_t l = 0; l < packing->profile->n_links; l++) {
        for (uint32_t b = 0; b < n; b++) {
            packing->costs_ns[(size_t)l * n + b] =
                dsched_link_ns(&packing->profile->links[l], bytes[b]);
        }
    }
}

static void fill_plan(const struct packing *packing, uint32_t n_iterations) {
    struct dsched_plan *plan = packing->plan;
    plan->rule = DSCHED_DELAYED;
    plan->n_links = packing->profile->n_links;
    plan->merge[0] = (uint16_t)n_iterations;
    for (uint32_t b = 0; b < plan->n_buckets; b++) {
        uint8_t link = packing->links[b];
        plan->ops[b] = (struct dsched_op){.link = link == ON_NO_LINK ? 0 : link,
                                          .delay = (uint8_t)n_iterations};
    }
}

static enum dsched_status make(const struct dsched_profile *profile, const struct space *space,
                               struct dsched_plan *out, char *note, struct dsched_error *error) {
    struct dsched_plan plan = {0};
    struct packing packing = {.profile = profile, .plan = &plan};
    uint64_t *bytes = NULL;
    uint32_t n_iterations = 0;
    enum dsched_status status = plan_run_ddp(profile, space, &plan, note, error);
    if (status != DSCHED_OK) {
        return status;
    }
    bytes = calloc(plan.n_buckets, sizeof(*bytes));
    packing.costs_ns = calloc((size_t)plan.n_buckets * profile->n_links, sizeof(*packing.costs_ns));
    packing.links = calloc(plan.n_buckets, sizeof(*packing.links));
    packing.items = calloc(plan.n_buckets, sizeof(*packing.items));
    packing.buckets = calloc(plan.n_buckets, sizeof(*packing.buckets));
    packing.taken = calloc(plan.n_buckets, sizeof(*packing.taken));
    if (bytes == NULL || packing.costs_ns == NULL || packing.links == NULL ||
        packing.items == NULL || packing.buckets == NULL || packing.taken == NULL) {
        status = refuse_memory(error, "the knapsacks of a policy");
        goto done;
    }
    fill_costs(&packing, space, bytes);
    status = pack(&packing, &n_iterations, error);
    if (status == DSCHED_OK) {
        fill_plan(&packing, n_iterations);
        (void)snprintf(note, POLICIES_NOTE_BYTES, "merge %u, delay %u", n_iterations, n_iterations);
        *out = plan;
        plan = (struct dsched_plan){0};
    }
done:
    free(bytes);
    free(packing.costs_ns);
    free(packing.links);
    free(packing.items);
    free(packing.buckets);
    free(packing.taken);
    dsched_plan_done(&plan);
    return status;
}

static enum dsched_status deft_paper_simulate(const struct dsched_profile *profile,
                                              dsched_span_fn on_span, void *context,
                                              struct dsched_outcome *out,
                                              struct dsched_error *error) {
    return plan_run(profile, make, PROGRAM_READY_DURING_BACKWARD, on_span, context, out, error);
}

const struct dsched_policy policy_deft_paper = {
    .name = "deft-paper",
    .summary = "DeFT by its abstract: stages as knapsacks, generations merged and delayed whole",
    .simulate = deft_paper_simulate,
};
