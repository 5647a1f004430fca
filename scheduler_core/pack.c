/* Which bucket goes on which link, by a search over labels. */
#include "labels.h"
#include "muldiv.h"

#include <dsched/planner.h>

#include <stdlib.h>
#include <string.h>

/* Sums of times and of values stay below this, so that bounds cannot overflow. */
#define MAX_SUM (INT64_MAX / 4)
/* Labels held at once, whatever the number of buckets: below 60 MiB. */
#define MAX_HELD 524288u

struct pack {
    const struct dsched_packing *packing;
    uint32_t *order;     /* [n] bucket behind each piece */
    uint32_t *fuse_from; /* [n] */
    int64_t *ready_ns;   /* [n], of pieces, like all below */
    int64_t *costs_ns;   /* [n_links * n] */
    int64_t *values;     /* [n] */
    uint32_t *last;      /* [n] of the search's result; piece i, since none are fused */
    uint8_t *links;      /* [n] best so far */
};

static enum dsched_status check_sums(const struct dsched_packing *packing) {
    uint32_t n = packing->n_buckets;
    int64_t most_ns = 0;
    int64_t value = 0;
    for (uint32_t b = 0; b < n; b++) {
        int64_t ready_ns = packing->ready_ns == NULL ? 0 : packing->ready_ns[b];
        int64_t before_ns = packing->ready_ns == NULL || b == 0 ? 0 : packing->ready_ns[b - 1];
        int64_t item = packing->values == NULL ? 0 : packing->values[b];
        if (ready_ns < before_ns || item < 0) {
            return DSCHED_INVALID;
        }
        if (ready_ns > MAX_SUM - most_ns || item > MAX_SUM - value) {
            return DSCHED_LIMIT;
        }
        most_ns += b + 1 == n ? ready_ns : 0;
        value += item;
    }
    for (size_t i = 0; i < (size_t)n * packing->n_links; i++) {
        if (packing->costs_ns[i] < 0) {
            return DSCHED_INVALID;
        }
        if (packing->costs_ns[i] > MAX_SUM - most_ns) {
            return DSCHED_LIMIT;
        }
        most_ns += packing->costs_ns[i];
    }
    return DSCHED_OK;
}

static enum dsched_status check(const struct dsched_packing *packing) {
    if (packing->n_links > DSCHED_MAX_LINKS || packing->n_labels == 0 ||
        packing->n_labels > DSCHED_MAX_LABELS) {
        return DSCHED_INVALID;
    }
    if (packing->n_buckets > DSCHED_MAX_BUCKETS) {
        return DSCHED_LIMIT;
    }
    return check_sums(packing);
}

/* --- pieces ----------------------------------------------------------------------------------- */

struct ranked {
    int64_t cost_ns;
    uint32_t bucket;
};

static int by_cost(const void *a, const void *b) {
    const struct ranked *x = a;
    const struct ranked *y = b;
    if (x->cost_ns != y->cost_ns) {
        return x->cost_ns > y->cost_ns ? -1 : 1;
    }
    return x->bucket < y->bucket ? -1 : x->bucket > y->bucket;
}

/* Without readiness any order will do, and large ones first leaves small ones to balance with. */
static enum dsched_status set_order(struct pack *pack) {
    const struct dsched_packing *packing = pack->packing;
    uint32_t n = packing->n_buckets;
    struct ranked *ranked = NULL;
    for (uint32_t i = 0; i < n; i++) {
        pack->order[i] = i;
    }
    if (packing->ready_ns != NULL || packing->values != NULL) {
        return DSCHED_OK;
    }
    ranked = calloc(n, sizeof(*ranked));
    if (ranked == NULL) {
        return DSCHED_NO_MEMORY;
    }
    for (uint32_t i = 0; i < n; i++) {
        ranked[i] = (struct ranked){.cost_ns = packing->costs_ns[i], .bucket = i};
        for (uint32_t l = 1; l < packing->n_links; l++) {
            int64_t ns = packing->costs_ns[(size_t)l * n + i];
            ranked[i].cost_ns = ns < ranked[i].cost_ns ? ns : ranked[i].cost_ns;
        }
    }
    qsort(ranked, n, sizeof(*ranked), by_cost);
    for (uint32_t i = 0; i < n; i++) {
        pack->order[i] = ranked[i].bucket;
    }
    free(ranked);
    return DSCHED_OK;
}

static void fill_pieces(struct pack *pack) {
    const struct dsched_packing *packing = pack->packing;
    uint32_t n = packing->n_buckets;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t b = pack->order[i];
        pack->fuse_from[i] = i;
        pack->ready_ns[i] = packing->ready_ns == NULL ? 0 : packing->ready_ns[b];
        pack->values[i] = packing->values == NULL ? 0 : packing->values[b];
        for (uint32_t l = 0; l < packing->n_links; l++) {
            pack->costs_ns[(size_t)l * n + i] = packing->costs_ns[(size_t)l * n + b];
        }
    }
}

/* --- greedy ----------------------------------------------------------------------------------- */

/* Each piece where it lands first. Returns the result, or INT64_MAX when it breaks the limit. */
static int64_t first_landed(struct pack *pack) {
    const struct dsched_packing *packing = pack->packing;
    int64_t free_ns[DSCHED_MAX_LINKS] = {0};
    int64_t last_ns = 0;
    int64_t late = 0;
    for (uint32_t i = 0; i < packing->n_buckets; i++) {
        int64_t best_ns = INT64_MAX;
        for (uint32_t l = 0; l < packing->n_links; l++) {
            int64_t begin_ns = free_ns[l] > pack->ready_ns[i] ? free_ns[l] : pack->ready_ns[i];
            int64_t landed_ns = begin_ns + pack->costs_ns[(size_t)l * packing->n_buckets + i];
            if (landed_ns < best_ns) {
                best_ns = landed_ns;
                pack->links[i] = (uint8_t)l;
            }
        }
        free_ns[pack->links[i]] = best_ns;
        last_ns = best_ns > last_ns ? best_ns : last_ns;
        if (packing->values != NULL && best_ns > packing->deadline_ns) {
            late += pack->values[i];
        }
    }
    if (packing->values == NULL) {
        return last_ns;
    }
    return last_ns <= packing->limit_ns ? late : INT64_MAX;
}

static int64_t cost(const void *context, uint32_t first, uint32_t last, uint32_t link) {
    const struct pack *pack = context;
    (void)last; /* none are fused */
    return pack->costs_ns[(size_t)link * pack->packing->n_buckets + first];
}

static enum dsched_status search(struct pack *pack, int64_t *out_result, int64_t *out_bound) {
    const struct dsched_packing *packing = pack->packing;
    uint32_t most = MAX_HELD / packing->n_buckets;
    struct labels_problem problem = {
        .n = packing->n_buckets,
        .n_links = packing->n_links,
        .width = packing->n_labels < most ? packing->n_labels : most,
        .ready_ns = pack->ready_ns,
        .fuse_from = pack->fuse_from,
        .least_ns = pack->costs_ns,
        .cost = cost,
        .context = pack,
        .values = packing->values == NULL ? NULL : pack->values,
        .deadline_ns = packing->deadline_ns,
        .limit_ns = packing->limit_ns,
        .known = first_landed(pack),
    };
    struct labels_packing result = {.last = pack->last, .links = pack->links};
    enum dsched_status status = labels_search(&problem, &result);
    if (status != DSCHED_OK) {
        return status;
    }
    if (result.result == INT64_MAX) {
        return DSCHED_INFEASIBLE;
    }
    *out_result = result.result;
    *out_bound = result.bound;
    return DSCHED_OK;
}

enum dsched_status dsched_pack(const struct dsched_packing *packing, uint8_t *out_links,
                               int64_t *out_result, uint32_t *out_gap_ppm) {
    struct pack pack = {.packing = packing};
    uint32_t n = packing->n_buckets;
    size_t n_costs = (size_t)n * packing->n_links;
    int64_t result = 0;
    int64_t bound = 0;
    enum dsched_status status = n_costs == 0 ? DSCHED_INVALID : check(packing);
    if (status != DSCHED_OK) {
        return status;
    }
    pack.order = calloc(n, sizeof(*pack.order));
    pack.fuse_from = calloc(n, sizeof(*pack.fuse_from));
    pack.ready_ns = calloc(n, sizeof(*pack.ready_ns));
    pack.costs_ns = calloc(n_costs, sizeof(*pack.costs_ns));
    pack.values = calloc(n, sizeof(*pack.values));
    pack.last = calloc(n, sizeof(*pack.last));
    pack.links = calloc(n, sizeof(*pack.links));
    if (pack.order == NULL || pack.fuse_from == NULL || pack.ready_ns == NULL ||
        pack.costs_ns == NULL || pack.values == NULL || pack.last == NULL || pack.links == NULL) {
        status = DSCHED_NO_MEMORY;
        goto done;
    }
    status = set_order(&pack);
    if (status != DSCHED_OK) {
        goto done;
    }
    fill_pieces(&pack);
    status = search(&pack, &result, &bound);
    if (status != DSCHED_OK) {
        goto done;
    }
    for (uint32_t i = 0; i < n; i++) {
        out_links[pack.order[i]] = pack.links[i];
    }
    *out_result = result;
    *out_gap_ppm = (uint32_t)muldiv_up((uint64_t)(result - bound), MULDIV_PPM,
                                       result > 0 ? (uint64_t)result : 1, MULDIV_PPM);
done:
    free(pack.order);
    free(pack.fuse_from);
    free(pack.ready_ns);
    free(pack.costs_ns);
    free(pack.values);
    free(pack.last);
    free(pack.links);
    return status;
}
