#include "labels.h"

#include "muldiv.h"

#include <stdlib.h>
#include <string.h>

/* Prices are fractions with this many bits behind the point. */
#define PRICE_BITS 20u

struct label {
    int64_t free_ns[DSCHED_MAX_LINKS]; /* never before the next piece is ready */
    int64_t late;
    int64_t busiest_ns;
    int64_t priced_ns; /* priced sum of free_ns, rounded down */
    int64_t bound;
    uint32_t parent; /* index of the label it was made from */
    uint32_t first;  /* first piece of its last bucket */
    uint8_t link;
};

struct search {
    const struct labels_problem *problem;
    /* Lagrangian prices of a link's time; they sum to one. Whatever the packing, the landing time
     * is at least the priced sum of the links' ends, and a piece adds at least its cheapest priced
     * time: a bound that costs one product per link. */
    uint64_t prices[DSCHED_MAX_LINKS];
    uint64_t price_sum;
    muldiv_wide *work;    /* [n + 1] priced least work of the pieces from here on */
    int64_t *latest_ns;   /* [n + 1] when the pieces from here on land at the earliest */
    int64_t *value_left;  /* [n + 1] value of the pieces from here on */
    uint32_t *cheapest;   /* [n + 1] of the pieces from here on, that with least value per work */
    int64_t *least_ns;    /* [n_links * (n + 1)] prefix sums of the problem's least_ns */
    uint32_t *counts;     /* [n + 1] labels per prefix */
    uint32_t *worst;      /* [n + 1] which of them goes first, when there are `width` */
    struct label *labels; /* [(n + 1) * width] */
    int64_t best;
    int64_t open_bound; /* least bound among labels that were dropped for want of room */
    struct label best_label;
};

static int64_t later(int64_t a, int64_t b) {
    return a > b ? a : b;
}

/* --- what is fixed ---------------------------------------------------------------------------- */

/* Prices in proportion to the links' speeds on the whole: 1 / sum of this link's time over each
 * link's, so that only ratios of times matter. */
static void set_prices(struct search *search) {
    const struct labels_problem *problem = search->problem;
    const uint64_t one = UINT64_C(1) << PRICE_BITS;
    uint64_t all_ns[DSCHED_MAX_LINKS];
    search->price_sum = 0;
    for (uint32_t l = 0; l < problem->n_links; l++) {
        all_ns[l] = (uint64_t)search->least_ns[(size_t)l * (problem->n + 1) + problem->n];
        all_ns[l] = all_ns[l] == 0 ? 1 : all_ns[l];
    }
    for (uint32_t l = 0; l < problem->n_links; l++) {
        uint64_t sum = 0;
        for (uint32_t k = 0; k < problem->n_links; k++) {
            sum += muldiv_up(all_ns[l], one, all_ns[k], UINT64_MAX / DSCHED_MAX_LINKS);
        }
        search->prices[l] = muldiv_down(one, one, sum, one);
        search->price_sum += search->prices[l];
    }
}

static void sum_least(struct search *search) {
    const struct labels_problem *problem = search->problem;
    uint32_t n = problem->n;
    for (uint32_t l = 0; l < problem->n_links; l++) {
        int64_t *sums = &search->least_ns[(size_t)l * (n + 1)];
        for (uint32_t i = 0; i < n; i++) {
            sums[i + 1] = sums[i] + problem->least_ns[(size_t)l * n + i];
        }
    }
}

/* Priced least work of one piece, rounded up and never 0. */
static uint64_t piece_work_ns(const struct search *search, uint32_t i) {
    return (uint64_t)((search->work[i] - search->work[i + 1]) >> PRICE_BITS) + 1;
}

static void sum_values(struct search *search) {
    const struct labels_problem *problem = search->problem;
    for (uint32_t i = problem->n; i-- > 0;) {
        uint32_t other = search->cheapest[i + 1];
        search->value_left[i] = search->value_left[i + 1] + problem->values[i];
        search->cheapest[i] = i;
        if (i + 1 < problem->n &&
            (muldiv_wide)(uint64_t)problem->values[other] * piece_work_ns(search, i) <
                (muldiv_wide)(uint64_t)problem->values[i] * piece_work_ns(search, other)) {
            search->cheapest[i] = other;
        }
    }
}

static void sum_left(struct search *search) {
    const struct labels_problem *problem = search->problem;
    uint32_t n = problem->n;
    for (uint32_t i = n; i-- > 0;) {
        muldiv_wide cheapest = 0;
        int64_t quickest_ns = 0;
        int64_t landed_ns;
        for (uint32_t l = 0; l < problem->n_links; l++) {
            int64_t ns = problem->least_ns[(size_t)l * n + i];
            muldiv_wide priced = (muldiv_wide)(uint64_t)ns * search->prices[l];
            cheapest = l == 0 || priced < cheapest ? priced : cheapest;
            quickest_ns = l == 0 || ns < quickest_ns ? ns : quickest_ns;
        }
        search->work[i] = search->work[i + 1] + cheapest;
        landed_ns = (int64_t)((search->work[i] +
                               (muldiv_wide)(uint64_t)problem->ready_ns[i] * search->price_sum) >>
                              PRICE_BITS);
        landed_ns = later(landed_ns, problem->ready_ns[i] + quickest_ns);
        search->latest_ns[i] = later(search->latest_ns[i + 1], landed_ns);
    }
}

/* --- labels ----------------------------------------------------------------------------------- */

static int64_t landing_bound(const struct search *search, struct label *label, uint32_t at) {
    muldiv_wide priced = 0;
    for (uint32_t l = 0; l < search->problem->n_links; l++) {
        priced += (muldiv_wide)(uint64_t)label->free_ns[l] * search->prices[l];
    }
    label->priced_ns = (int64_t)(priced >> PRICE_BITS);
    priced = (priced + search->work[at]) >> PRICE_BITS;
    return later(later(label->busiest_ns, search->latest_ns[at]), (int64_t)priced);
}

/* Of the work that is left, what exceeds the links' time before the deadline is late, and it is
 * worth at least what the piece of least value per work would be. */
static int64_t late_bound(const struct search *search, const struct label *label, uint32_t at) {
    const struct labels_problem *problem = search->problem;
    muldiv_wide room = 0;
    uint64_t excess_ns;
    uint32_t i = search->cheapest[at];
    for (uint32_t l = 0; l < problem->n_links; l++) {
        if (label->free_ns[l] < problem->deadline_ns) {
            room += (muldiv_wide)(uint64_t)(problem->deadline_ns - label->free_ns[l]) *
                    search->prices[l];
        }
    }
    if (at == problem->n || search->work[at] <= room) {
        return label->late;
    }
    excess_ns = (uint64_t)((search->work[at] - room) >> PRICE_BITS);
    return label->late + (int64_t)muldiv_down(excess_ns, (uint64_t)problem->values[i],
                                              piece_work_ns(search, i),
                                              (uint64_t)search->value_left[at]);
}

/* Fills the bounds; 0 when the label cannot lead to anything better. */
static int is_promising(const struct search *search, struct label *label, uint32_t at) {
    int64_t landed_ns = landing_bound(search, label, at);
    if (search->problem->values == NULL) {
        label->bound = landed_ns;
        return label->bound < search->best;
    }
    label->bound = late_bound(search, label, at);
    return landed_ns <= search->problem->limit_ns && label->bound < search->best;
}

/* Nowhere worse. */
static int dominates(const struct search *search, const struct label *a, const struct label *b) {
    if (a->late > b->late) {
        return 0;
    }
    for (uint32_t l = 0; l < search->problem->n_links; l++) {
        if (a->free_ns[l] > b->free_ns[l]) {
            return 0;
        }
    }
    return 1;
}

static int is_worse(const struct label *a, const struct label *b) {
    return a->bound != b->bound ? a->bound > b->bound : a->busiest_ns > b->busiest_ns;
}

static void drop(struct search *search, const struct label *label) {
    search->open_bound = label->bound < search->open_bound ? label->bound : search->open_bound;
}

static void keep(struct search *search, uint32_t at, const struct label *label) {
    struct label *labels = &search->labels[(size_t)at * search->problem->width];
    uint32_t width = search->problem->width;
    uint32_t n = 0;
    uint32_t worst = 0;
    if (search->counts[at] == width && !is_worse(&labels[search->worst[at]], label)) {
        drop(search, label);
        return;
    }
    for (uint32_t i = 0; i < search->counts[at]; i++) {
        if (dominates(search, &labels[i], label)) {
            return; /* then it dominated none of those before: dominance is transitive */
        }
        if (dominates(search, label, &labels[i])) {
            continue;
        }
        if (n != i) {
            labels[n] = labels[i];
        }
        worst = is_worse(&labels[n], &labels[worst]) ? n : worst;
        n++;
    }
    if (n == width) {
        drop(search, &labels[worst]);
        labels[worst] = *label;
    } else {
        labels[n++] = *label;
    }
    search->counts[at] = n;
    for (uint32_t i = 0; n == width && i < n; i++) {
        search->worst[at] =
            i == 0 || is_worse(&labels[i], &labels[search->worst[at]]) ? i : search->worst[at];
    }
}

static void finish(struct search *search, const struct label *label) {
    int64_t result = search->problem->values == NULL ? label->busiest_ns : label->late;
    if (result < search->best) {
        search->best = result;
        search->best_label = *label;
    }
}

/* --- the search ------------------------------------------------------------------------------- */

/* What all labels of one prefix share when a bucket is sent next. */
struct step {
    uint32_t first;
    uint32_t last;
    uint32_t link;
    int64_t cost_ns;
    int64_t ready_ns; /* of the bucket */
    int64_t next_ns;  /* of the piece after it; 0: none */
    int64_t value;
    int64_t work_ns; /* priced, of all that comes after, rounded down */
    int64_t most_ns; /* to land by, for an improvement */
};

/* Sends the bucket after everything that `from` stands for. Most labels lead nowhere: that shows in
 * two comparisons, before anything is copied. */
static void extend(struct search *search, const struct step *step, uint32_t parent) {
    const struct labels_problem *problem = search->problem;
    const struct label *from = &search->labels[parent];
    int64_t free_ns = from->free_ns[step->link];
    int64_t landed_ns = later(free_ns, step->ready_ns) + step->cost_ns;
    int64_t added_ns =
        (int64_t)(((muldiv_wide)(uint64_t)(landed_ns - free_ns) * search->prices[step->link]) >>
                  PRICE_BITS);
    struct label made;
    if (landed_ns > step->most_ns || from->priced_ns + added_ns + step->work_ns > step->most_ns) {
        return;
    }
    for (uint32_t l = 0; l < problem->n_links; l++) {
        made.free_ns[l] = later(from->free_ns[l], step->next_ns);
    }
    made.free_ns[step->link] = later(landed_ns, step->next_ns);
    made.busiest_ns = later(from->busiest_ns, landed_ns);
    made.late = from->late;
    if (problem->values != NULL && landed_ns > problem->deadline_ns) {
        made.late += step->value;
    }
    made.parent = parent;
    made.first = step->first;
    made.link = (uint8_t)step->link;
    if (!is_promising(search, &made, step->last + 1)) {
        return;
    }
    if (step->last + 1 == problem->n) {
        finish(search, &made);
    } else {
        keep(search, step->last + 1, &made);
    }
}

/* By when all must have landed for an improvement. */
static int64_t most_ns(const struct search *search) {
    return search->problem->values == NULL ? search->best - 1 : search->problem->limit_ns;
}

/* Whether a bucket of these pieces, or of more, still lands in time to improve anything. */
static int is_in_time(const struct search *search, uint32_t first, uint32_t last) {
    const struct labels_problem *problem = search->problem;
    for (uint32_t l = 0; l < problem->n_links; l++) {
        const int64_t *sums = &search->least_ns[(size_t)l * (problem->n + 1)];
        if (problem->ready_ns[last] + sums[last + 1] - sums[first] <= most_ns(search)) {
            return 1;
        }
    }
    return 0;
}

static void send_bucket(struct search *search, uint32_t first, uint32_t last) {
    const struct labels_problem *problem = search->problem;
    struct step step = {
        .first = first,
        .last = last,
        .ready_ns = problem->ready_ns[last],
        .next_ns = last + 1 < problem->n ? problem->ready_ns[last + 1] : 0,
        .value = search->value_left[first] - search->value_left[last + 1],
        .work_ns = (int64_t)(search->work[last + 1] >> PRICE_BITS),
    };
    for (uint32_t l = 0; l < problem->n_links; l++) {
        step.link = l;
        step.cost_ns = problem->cost(problem->context, first, last, l);
        for (uint32_t i = 0; i < search->counts[first]; i++) {
            step.most_ns = most_ns(search);
            extend(search, &step, (uint32_t)((size_t)first * problem->width + i));
        }
    }
}

static void search_all(struct search *search) {
    const struct labels_problem *problem = search->problem;
    struct label *root = &search->labels[0];
    search->counts[0] = 1;
    for (uint32_t l = 0; l < problem->n_links; l++) {
        root->free_ns[l] = problem->ready_ns[0];
    }
    (void)landing_bound(search, root, 0);
    root->first = UINT32_MAX;
    for (uint32_t last = 0; last < problem->n; last++) {
        for (uint32_t first = last + 1; first-- > problem->fuse_from[last];) {
            if (!is_in_time(search, first, last)) {
                break;
            }
            if (search->counts[first] > 0) {
                send_bucket(search, first, last);
            }
        }
    }
}

static void write_packing(const struct search *search, struct labels_packing *packing) {
    const struct label *label = &search->best_label;
    uint32_t last = search->problem->n - 1;
    uint32_t n = 0;
    packing->result = search->best;
    packing->bound = search->open_bound < search->best ? search->open_bound : search->best;
    packing->is_better = search->best < search->problem->known;
    packing->n_buckets = 0;
    if (!packing->is_better) {
        return;
    }
    for (; label->first != UINT32_MAX; label = &search->labels[label->parent]) {
        packing->last[n] = last;
        packing->links[n++] = label->link;
        last = label->first - 1;
    }
    packing->n_buckets = n;
    for (uint32_t i = 0; i < n / 2; i++) {
        uint32_t end = packing->last[i];
        uint8_t link = packing->links[i];
        packing->last[i] = packing->last[n - 1 - i];
        packing->links[i] = packing->links[n - 1 - i];
        packing->last[n - 1 - i] = end;
        packing->links[n - 1 - i] = link;
    }
}

enum dsched_status labels_search(const struct labels_problem *problem,
                                 struct labels_packing *packing) {
    size_t n = (size_t)problem->n + 1;
    struct search search = {.problem = problem, .best = problem->known, .open_bound = INT64_MAX};
    enum dsched_status status = DSCHED_OK;
    search.work = calloc(n, sizeof(*search.work));
    search.latest_ns = calloc(n, sizeof(*search.latest_ns));
    search.value_left = calloc(n, sizeof(*search.value_left));
    search.cheapest = calloc(n, sizeof(*search.cheapest));
    search.least_ns = calloc(n * problem->n_links, sizeof(*search.least_ns));
    search.counts = calloc(n, sizeof(*search.counts));
    search.worst = calloc(n, sizeof(*search.worst));
    search.labels = calloc(n * problem->width, sizeof(*search.labels));
    if (search.work == NULL || search.latest_ns == NULL || search.value_left == NULL ||
        search.cheapest == NULL || search.least_ns == NULL || search.counts == NULL ||
        search.worst == NULL || search.labels == NULL) {
        status = DSCHED_NO_MEMORY;
        goto done;
    }
    sum_least(&search);
    set_prices(&search);
    sum_left(&search);
    if (problem->values != NULL) {
        sum_values(&search);
    }
    search_all(&search);
    write_packing(&search, packing);
done:
    free(search.work);
    free(search.latest_ns);
    free(search.value_left);
    free(search.cheapest);
    free(search.least_ns);
    free(search.counts);
    free(search.worst);
    free(search.labels);
    return status;
}
