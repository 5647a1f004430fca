#include "muldiv.h"

#include <dsched/planner.h>

#include <stdlib.h>
#include <string.h>

/* Depth-first branch and bound after Horowitz and Sahni: items by falling value per weight, taken
 * while they fit; a node is cut when even the fractional fill of what is left cannot beat the best
 * found. Prefix sums make that bound a binary search. */

struct entry {
    int64_t weight;
    int64_t value;
    uint32_t item;
};

struct search {
    uint32_t n;
    struct entry *entries; /* sorted */
    int64_t *weights;      /* [n + 1] prefix sums */
    int64_t *values;       /* [n + 1] */
    uint8_t *taken;        /* of the node being looked at */
    uint8_t *best;
    int64_t best_value;
};

static int by_density(const void *a, const void *b) {
    const struct entry *x = a;
    const struct entry *y = b;
    muldiv_wide left = (muldiv_wide)(uint64_t)x->value * (uint64_t)y->weight;
    muldiv_wide right = (muldiv_wide)(uint64_t)y->value * (uint64_t)x->weight;
    if (left != right) {
        return left > right ? -1 : 1;
    }
    if (x->weight != y->weight) {
        return x->weight > y->weight ? -1 : 1; /* large ones first leave small ones to fill with */
    }
    return x->item < y->item ? -1 : x->item > y->item;
}

/* Best value, items taken in part allowed, of entries from..n-1 in `room`. */
static int64_t bound(const struct search *search, uint32_t from, int64_t room) {
    uint32_t low = from; /* entries from..low-1 fit */
    uint32_t high = search->n;
    int64_t value;
    while (low < high) {
        uint32_t middle = low + (high - low + 1) / 2;
        if (search->weights[middle] - search->weights[from] <= room) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    value = search->values[low] - search->values[from];
    if (low < search->n) {
        uint64_t left = (uint64_t)(room - (search->weights[low] - search->weights[from]));
        uint64_t weight = (uint64_t)search->entries[low].weight;
        if (weight > left) { /* always: it is the first that does not fit */
            value +=
                (int64_t)muldiv_down((uint64_t)search->entries[low].value, left, weight, INT64_MAX);
        }
    }
    return value;
}

static int is_twin(const struct search *search, uint32_t i) {
    return i > 0 && search->entries[i].weight == search->entries[i - 1].weight &&
           search->entries[i].value == search->entries[i - 1].value;
}

/* Goes down from entry `i`, taking what fits, and keeps the result when it is better. Returns the
 * depth reached. */
static uint32_t descend(struct search *search, uint32_t i, int64_t *room, int64_t *value,
                        uint64_t *n_nodes) {
    for (; i < search->n; i++) {
        const struct entry *entry = &search->entries[i];
        if (*value + bound(search, i, *room) <= search->best_value) {
            return i;
        }
        (*n_nodes)++;
        /* Of equal items only the first ones are ever taken: the others give the same sets. */
        search->taken[i] = entry->weight <= *room && !(is_twin(search, i) && !search->taken[i - 1]);
        if (search->taken[i]) {
            *room -= entry->weight;
            *value += entry->value;
        }
    }
    if (*value > search->best_value) {
        search->best_value = *value;
        memcpy(search->best, search->taken, search->n);
    }
    return search->n;
}

/* Undoes the deepest entry taken above depth `i`; returns the depth behind it, or 0 when there is
 * none. */
static uint32_t ascend(struct search *search, uint32_t i, int64_t *room, int64_t *value) {
    while (i > 0 && !search->taken[i - 1]) {
        i--;
    }
    if (i > 0) {
        search->taken[i - 1] = 0;
        *room += search->entries[i - 1].weight;
        *value -= search->entries[i - 1].value;
    }
    return i;
}

/* Returns an upper bound of the optimum: the best value when the search was complete. */
static int64_t run(struct search *search, int64_t capacity, uint64_t node_limit) {
    int64_t room = capacity;
    int64_t value = 0;
    int64_t upper;
    uint64_t n_nodes = 0;
    uint32_t i = 0;
    do {
        i = descend(search, i, &room, &value, &n_nodes);
        i = ascend(search, i, &room, &value);
    } while (i > 0 && n_nodes < node_limit);
    /* What a stopped search has left open hangs off the entries still taken. */
    upper = search->best_value;
    while (i > 0) {
        int64_t open = value + bound(search, i, room);
        upper = open > upper ? open : upper;
        i = ascend(search, i, &room, &value);
    }
    return upper;
}

static enum dsched_status sum(const struct dsched_item *items, uint32_t n_items) {
    int64_t weight = 0;
    int64_t value = 0;
    for (uint32_t i = 0; i < n_items; i++) {
        if (items[i].weight < 0 || items[i].value < 0) {
            return DSCHED_INVALID;
        }
        if (items[i].weight > INT64_MAX - weight || items[i].value > INT64_MAX - value) {
            return DSCHED_LIMIT;
        }
        weight += items[i].weight;
        value += items[i].value;
    }
    return DSCHED_OK;
}

/* Items that weigh nothing are taken beforehand, those that are worth nothing or never fit are left
 * out. Returns the value of the former. */
static int64_t fill(struct search *search, const struct dsched_item *items, uint32_t n_items,
                    int64_t capacity, uint8_t *out_taken) {
    int64_t value = 0;
    for (uint32_t i = 0; i < n_items; i++) {
        out_taken[i] = items[i].weight == 0 && items[i].value > 0;
        if (out_taken[i]) {
            value += items[i].value;
        } else if (items[i].value > 0 && items[i].weight <= capacity) {
            search->entries[search->n++] =
                (struct entry){.weight = items[i].weight, .value = items[i].value, .item = i};
        }
    }
    if (search->n > 0) {
        qsort(search->entries, search->n, sizeof(*search->entries), by_density);
    }
    for (uint32_t i = 0; i < search->n; i++) {
        search->weights[i + 1] = search->weights[i] + search->entries[i].weight;
        search->values[i + 1] = search->values[i] + search->entries[i].value;
    }
    return value;
}

enum dsched_status dsched_knapsack(const struct dsched_item *items, uint32_t n_items,
                                   int64_t capacity, uint64_t node_limit, uint8_t *out_taken,
                                   int64_t *out_value, uint32_t *out_gap_ppm) {
    struct search search = {0};
    enum dsched_status status;
    int64_t free_value;
    int64_t upper;
    int64_t total;
    if (n_items == 0 || capacity < 0) {
        return DSCHED_INVALID;
    }
    if (n_items > DSCHED_MAX_BUCKETS) {
        return DSCHED_LIMIT;
    }
    status = sum(items, n_items);
    if (status != DSCHED_OK) {
        return status;
    }
    search.entries = calloc(n_items, sizeof(*search.entries));
    search.weights = calloc((size_t)n_items + 1, sizeof(*search.weights));
    search.values = calloc((size_t)n_items + 1, sizeof(*search.values));
    search.taken = calloc(n_items, 1);
    search.best = calloc(n_items, 1);
    if (search.entries == NULL || search.weights == NULL || search.values == NULL ||
        search.taken == NULL || search.best == NULL) {
        status = DSCHED_NO_MEMORY;
        goto done;
    }
    free_value = fill(&search, items, n_items, capacity, out_taken);
    upper = run(&search, capacity, node_limit);
    for (uint32_t i = 0; i < search.n; i++) {
        out_taken[search.entries[i].item] = search.best[i];
    }
    *out_value = free_value + search.best_value;
    total = free_value + upper;
    *out_gap_ppm = (uint32_t)muldiv_up((uint64_t)(upper - search.best_value), MULDIV_PPM,
                                       total > 0 ? (uint64_t)total : 1, MULDIV_PPM);
done:
    free(search.entries);
    free(search.weights);
    free(search.values);
    free(search.taken);
    free(search.best);
    return status;
}
