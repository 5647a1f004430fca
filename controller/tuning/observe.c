#include "tuning/observe.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tuning/median.h"

/* Agents back-fill on their own schedules: an iteration waits this long for its last rank. Jobs
 * whose ranks report in step need few slots, and there are thousands of jobs. */
#define OBSERVE_SLOTS       2048u
#define OBSERVE_FIRST_SLOTS 32u
/* Iterations behind a median. */
#define OBSERVE_ROWS 64u
/* Fewer say nothing yet. */
#define OBSERVE_MIN_ROWS   8u
#define OBSERVE_MIN_CYCLES 3u
/* Sizes of all-reduces told apart per link; a plan rarely has more different buckets. */
#define OBSERVE_SIZES 128u
/* Fastest times kept per size, one per report. */
#define OBSERVE_TIMES 8u
/* A size not seen for this many reports of other sizes belongs to a plan that is over. */
#define OBSERVE_STALE 64u
/* Iterations after which ranks are looked for that are silent. */
#define OBSERVE_LOOK 64u

struct observe_mean {
    double sum;
    uint32_t n;
};

struct observe_slot {
    uint64_t iteration;
    uint32_t n_ranks;
    int in_use;
    int64_t compute_ns; /* of the rank that is in `whole` */
    uint32_t disturbed;
    struct observe_mean loss;
    struct observe_mean grad_sq_local;
    struct observe_mean change_sq_local;
    struct observed whole;
};

struct observe_row {
    uint64_t iteration;
    uint64_t plan_seq;
    int64_t forward_ns;
    int64_t backward_ns;
    int64_t optimizer_ns;
    int64_t exposed_ns;
    uint64_t bytes;
};

struct observe_size {
    uint64_t bytes;
    uint64_t seen; /* the link's n_summaries when it was last seen */
    uint32_t n_times;
    int64_t times_ns[OBSERVE_TIMES]; /* a ring */
};

struct observe_link {
    uint64_t n_summaries;
    uint32_t n_sizes;
    struct observe_size sizes[OBSERVE_SIZES];
};

struct observe {
    uint32_t n_ranks;
    uint32_t n_tensors;
    uint32_t n_links;
    uint64_t *next;  /* [n_ranks] the iteration a rank has not reported yet */
    uint8_t *silent; /* [n_ranks] */
    uint32_t n_silent;
    uint64_t looked; /* the newest, when ranks were last looked for that are silent */
    uint64_t first;  /* the first iteration that was reported at all */
    uint64_t newest;
    uint32_t n_slots;           /* a power of 2 */
    struct observe_slot *slots; /* by iteration; free once all ranks have reported */
    uint32_t n_rows;
    struct observe_row rows[OBSERVE_ROWS]; /* a ring */
    struct contention_plan plan;           /* that runs */
    struct contention contention;
    uint32_t readiness_rank;
    int has_readiness;
    int64_t *offsets_ns;
    struct observe_link *links;
};

enum deft_status observe_create(uint32_t n_ranks, uint32_t n_tensors, uint32_t n_links,
                                struct observe **out) {
    struct observe *observe = calloc(1, sizeof(*observe));
    if (observe == NULL) {
        return DEFT_NO_MEMORY;
    }
    observe->n_ranks = n_ranks;
    observe->n_tensors = n_tensors;
    observe->n_links = n_links;
    observe->plan = (struct contention_plan){.is_exact = 1, .cycle = 1, .n_merged = 1};
    observe->next = calloc(n_ranks, sizeof(*observe->next));
    observe->silent = calloc(n_ranks, 1);
    observe->n_slots = OBSERVE_FIRST_SLOTS;
    observe->slots = calloc(observe->n_slots, sizeof(*observe->slots));
    observe->offsets_ns = calloc(n_tensors > 0 ? n_tensors : 1, sizeof(*observe->offsets_ns));
    observe->links = calloc(n_links > 0 ? n_links : 1, sizeof(*observe->links));
    if (observe->next == NULL || observe->silent == NULL || observe->slots == NULL ||
        observe->offsets_ns == NULL || observe->links == NULL) {
        observe_destroy(observe);
        return DEFT_NO_MEMORY;
    }
    *out = observe;
    return DEFT_OK;
}

void observe_destroy(struct observe *observe) {
    if (observe != NULL) {
        free(observe->next);
        free(observe->silent);
        free(observe->slots);
        free(observe->offsets_ns);
        free(observe->links);
        free(observe);
    }
}

static void observe_merge(struct observe_slot *slot, const struct wire_iteration *row) {
    struct observed *whole = &slot->whole;
    int first = slot->n_ranks == 0;
    int64_t stages = row->forward_ns + row->backward_ns + row->exposed_ns + row->optimizer_ns;
    /* Data loading and whatever else the loop does is between the stages the runtime sees. */
    int64_t rest = row->step_ns > stages ? row->step_ns - stages : row->runtime_ns;
    int64_t compute = row->forward_ns + row->backward_ns + row->optimizer_ns + rest;
    if (first) {
        whole->iteration = row->iteration;
        whole->plan_seq = row->plan_seq;
        whole->step_ns = row->step_ns;
        whole->exposed_ns = row->exposed_ns;
    }
    whole->is_mixed |= row->plan_seq != whole->plan_seq;
    if (row->step_ns == 0 || whole->step_ns == 0) {
        whole->step_ns = 0;
    } else if (row->step_ns > whole->step_ns) {
        whole->step_ns = row->step_ns;
    }
    if (row->exposed_ns < whole->exposed_ns) {
        whole->exposed_ns = row->exposed_ns;
    }
    if (row->bytes > whole->bytes) {
        whole->bytes = row->bytes;
    }
    if (first || compute > slot->compute_ns) {
        slot->compute_ns = compute;
        whole->forward_ns = row->forward_ns;
        whole->backward_ns = row->backward_ns;
        whole->optimizer_ns = row->optimizer_ns + rest;
    }
    /* It drains, which no other does. */
    slot->disturbed |= row->flags & WIRE_ITERATION_SWITCHED;
    slot->n_ranks++;
}

static void observe_add(struct observe_mean *mean, double value) {
    if (!isnan(value)) {
        mean->sum += value;
        mean->n++;
    }
}

static double observe_mean(const struct observe_mean *mean) {
    return mean->n > 0 ? mean->sum / mean->n : (double)NAN;
}

/* JSON has no infinity: a loss that is not finite arrives as none, with a flag. */
static void observe_figures(struct observe_slot *slot, const struct wire_iteration *row) {
    struct quantify_sample *figures = &slot->whole.figures;
    if (slot->n_ranks == 1) {
        figures->iteration = row->iteration;
        figures->grad_sq_mean = (double)NAN;
        figures->learning_rate = (double)NAN;
    }
    if ((row->flags & WIRE_ITERATION_BAD_LOSS) != 0) {
        slot->loss.sum = (double)INFINITY;
        slot->loss.n++;
    }
    observe_add(&slot->loss, row->loss);
    observe_add(&slot->grad_sq_local, row->grad_sq_local);
    observe_add(&slot->change_sq_local, row->change_sq_local);
    if (!isnan(row->grad_sq_mean)) { /* the same on all ranks */
        figures->grad_sq_mean = row->grad_sq_mean;
    }
    if (!isnan(row->learning_rate)) {
        figures->learning_rate = row->learning_rate;
    }
    if (row->updates > 0) {
        figures->merge = row->merge;
    }
    figures->is_switch |= (row->flags & WIRE_ITERATION_SWITCHED) != 0;
}

static void observe_finish(struct observe_slot *slot) {
    struct quantify_sample *figures = &slot->whole.figures;
    figures->loss_given = slot->loss.n > 0 ? DSCHED_LOSS_GIVEN : DSCHED_LOSS_NOT_GIVEN;
    figures->loss = observe_mean(&slot->loss);
    figures->grad_sq_local = observe_mean(&slot->grad_sq_local);
    figures->change_sq_local = observe_mean(&slot->change_sq_local);
}

/* 0: there are as many as there may be, or memory is short. */
static int observe_grow(struct observe *observe) {
    uint32_t n = observe->n_slots * 2;
    struct observe_slot *grown = n <= OBSERVE_SLOTS ? calloc(n, sizeof(*grown)) : NULL;
    if (grown == NULL) {
        return 0;
    }
    for (uint32_t i = 0; i < observe->n_slots; i++) {
        if (observe->slots[i].in_use) {
            grown[observe->slots[i].iteration % n] = observe->slots[i];
        }
    }
    free(observe->slots);
    observe->slots = grown;
    observe->n_slots = n;
    return 1;
}

/* 1 when no rank has yet to report the iteration: whoever has left it out will not. */
static int observe_is_over(const struct observe *observe, uint64_t iteration) {
    uint32_t rank = 0;
    while (rank < observe->n_ranks && observe->next[rank] > iteration) {
        rank++;
    }
    return rank == observe->n_ranks;
}

/* NULL: its place has been taken, it is too late. */
static struct observe_slot *observe_slot_of(struct observe *observe, uint64_t iteration) {
    struct observe_slot *slot = &observe->slots[iteration % observe->n_slots];
    if (iteration > observe->newest) {
        observe->newest = iteration;
    }
    if (observe->newest - iteration >= OBSERVE_SLOTS) {
        return NULL;
    }
    while (slot->in_use && slot->iteration != iteration &&
           !observe_is_over(observe, slot->iteration) && observe_grow(observe)) {
        slot = &observe->slots[iteration % observe->n_slots];
    }
    if (slot->in_use && slot->iteration > iteration) {
        return NULL;
    }
    if (!slot->in_use || slot->iteration < iteration) {
        memset(slot, 0, sizeof(*slot));
        slot->in_use = 1;
        slot->iteration = iteration;
    }
    return slot;
}

/* Now and then, since it looks at all ranks. Who has not reported yet has been due since the first
 * iteration: after a restart of the controller that is any. */
static void observe_look(struct observe *observe) {
    if (observe->newest < observe->looked + OBSERVE_LOOK) {
        return;
    }
    observe->looked = observe->newest;
    observe->n_silent = 0;
    for (uint32_t r = 0; r < observe->n_ranks; r++) {
        uint64_t due = observe->next[r] > observe->first ? observe->next[r] : observe->first;
        observe->silent[r] = due + OBSERVE_SILENT <= observe->newest;
        observe->n_silent += observe->silent[r];
    }
}

/* 1 while the rank of this row is too far behind to count. */
static int observe_is_silent(struct observe *observe, const struct wire_iteration *row) {
    if (observe->silent[row->rank] && row->iteration + OBSERVE_SILENT > observe->newest) {
        observe->silent[row->rank] = 0;
        observe->n_silent--;
    }
    return observe->silent[row->rank];
}

uint32_t observe_heard(const struct observe *observe, uint32_t *out_first_unheard) {
    uint32_t n_heard = 0;
    *out_first_unheard = observe->n_ranks;
    for (uint32_t r = observe->n_ranks; r-- > 0;) {
        if (observe->next[r] > 0 && observe->next[r] + OBSERVE_SILENT > observe->newest) {
            n_heard++;
        } else {
            *out_first_unheard = r;
        }
    }
    return n_heard;
}

void observe_runs(struct observe *observe, const struct contention_plan *plan) {
    observe->plan = *plan;
}

static void observe_keep(struct observe *observe, const struct observed *whole) {
    observe->rows[observe->n_rows++ % OBSERVE_ROWS] =
        (struct observe_row){.iteration = whole->iteration,
                             .plan_seq = whole->plan_seq,
                             .forward_ns = whole->forward_ns,
                             .backward_ns = whole->backward_ns,
                             .optimizer_ns = whole->optimizer_ns,
                             .exposed_ns = whole->exposed_ns,
                             .bytes = whole->bytes};
    if (!whole->is_mixed && whole->plan_seq == observe->plan.seq) {
        const struct contention_row row = {.iteration = whole->iteration,
                                           .forward_ns = whole->forward_ns,
                                           .step_ns = whole->step_ns,
                                           .bytes = whole->bytes};
        contention_add(&observe->contention, &observe->plan, &row);
    }
}

int observe_iteration(struct observe *observe, const struct wire_iteration *row,
                      struct observed *out) {
    if (row->iteration < observe->next[row->rank]) {
        return 0;
    }
    if (observe->newest == 0 && observe->first == 0) {
        observe->first = row->iteration;
    }
    observe->next[row->rank] = row->iteration + 1;
    if (observe_is_silent(observe, row)) {
        return 0;
    }
    struct observe_slot *slot = observe_slot_of(observe, row->iteration);
    observe_look(observe);
    if (slot == NULL) {
        return 0;
    }
    observe_merge(slot, row);
    observe_figures(slot, row);
    if (slot->n_ranks + observe->n_silent < observe->n_ranks) {
        return 0;
    }
    observe_finish(slot);
    if (slot->whole.step_ns > 0 && slot->disturbed == 0) {
        observe_keep(observe, &slot->whole);
    }
    *out = slot->whole;
    slot->in_use = 0;
    return 1;
}

static int64_t observe_last(const int64_t *offsets, uint32_t n) {
    int64_t last = 0;
    for (uint32_t i = 0; i < n; i++) {
        last = offsets[i] > last ? offsets[i] : last;
    }
    return last;
}

void observe_readiness(struct observe *observe, const struct wire_readiness *readiness) {
    uint32_t n = observe->n_tensors;
    if (observe->has_readiness && readiness->rank != observe->readiness_rank &&
        observe_last(readiness->offsets_ns, n) <= observe_last(observe->offsets_ns, n)) {
        return;
    }
    memcpy(observe->offsets_ns, readiness->offsets_ns, n * sizeof(*observe->offsets_ns));
    observe->readiness_rank = readiness->rank;
    observe->has_readiness = 1;
}

static struct observe_size *observe_find_size(struct observe_link *link, uint64_t bytes) {
    uint32_t oldest = 0;
    for (uint32_t i = 0; i < link->n_sizes; i++) {
        if (link->sizes[i].bytes == bytes) {
            return &link->sizes[i];
        }
        if (link->sizes[i].seen < link->sizes[oldest].seen) {
            oldest = i;
        }
    }
    struct observe_size *size =
        link->n_sizes < OBSERVE_SIZES ? &link->sizes[link->n_sizes++] : &link->sizes[oldest];
    memset(size, 0, sizeof(*size));
    size->bytes = bytes;
    return size;
}

void observe_ops(struct observe *observe, const struct wire_op_summary *summary) {
    if (summary->link >= observe->n_links || summary->count == 0 || summary->bytes == 0 ||
        summary->min_ns <= 0) {
        return;
    }
    struct observe_link *link = &observe->links[summary->link];
    struct observe_size *size = observe_find_size(link, summary->bytes);
    size->times_ns[size->n_times % OBSERVE_TIMES] = summary->min_ns;
    size->n_times++;
    size->seen = ++link->n_summaries;
}

/* Those of the plan that runs, or all while it has too few. Returns how many. */
static uint32_t observe_rows(const struct observe *observe,
                             const struct observe_row *out[OBSERVE_ROWS], uint32_t *out_cycle) {
    uint32_t n = observe->n_rows < OBSERVE_ROWS ? observe->n_rows : OBSERVE_ROWS;
    uint32_t n_own = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (observe->rows[i].plan_seq == observe->plan.seq) {
            out[n_own++] = &observe->rows[i];
        }
    }
    *out_cycle = n_own >= OBSERVE_MIN_CYCLES * observe->plan.cycle ? observe->plan.cycle : 1;
    if (n_own >= OBSERVE_MIN_ROWS) {
        return n_own;
    }
    for (uint32_t i = 0; i < n; i++) {
        out[i] = &observe->rows[i];
    }
    *out_cycle = 1;
    return n;
}

enum observe_stage { OBSERVE_FORWARD, OBSERVE_BACKWARD, OBSERVE_OPTIMIZER };

static int64_t observe_stage_ns(const struct observe_row *row, enum observe_stage stage) {
    return stage == OBSERVE_FORWARD    ? row->forward_ns
           : stage == OBSERVE_BACKWARD ? row->backward_ns
                                       : row->optimizer_ns;
}

static int64_t observe_typical(const struct observe_row *const rows[OBSERVE_ROWS], uint32_t n,
                               uint32_t cycle, enum observe_stage stage) {
    int64_t values[OBSERVE_ROWS];
    int64_t sum = 0;
    uint32_t n_places = 0;
    for (uint32_t place = 0; place < cycle; place++) {
        uint32_t n_values = 0;
        for (uint32_t i = 0; i < n; i++) {
            if (rows[i]->iteration % cycle == place) {
                values[n_values++] = observe_stage_ns(rows[i], stage);
            }
        }
        if (n_values > 0) {
            sum += median_of(values, n_values);
            n_places++;
        }
    }
    return n_places > 0 ? sum / n_places : 0;
}

enum deft_status observe_compute(const struct observe *observe, int64_t *out_forward,
                                 int64_t *out_backward, int64_t *out_optimizer) {
    const struct observe_row *rows[OBSERVE_ROWS];
    uint32_t cycle;
    uint32_t n = observe_rows(observe, rows, &cycle);
    if (n < OBSERVE_MIN_ROWS) {
        return DEFT_STATE;
    }
    *out_forward = observe_typical(rows, n, cycle, OBSERVE_FORWARD);
    *out_backward = observe_typical(rows, n, cycle, OBSERVE_BACKWARD);
    *out_optimizer = observe_typical(rows, n, cycle, OBSERVE_OPTIMIZER);
    return DEFT_OK;
}

double observe_overlap(const struct observe *observe, double ns_per_byte) {
    const struct observe_row *rows[OBSERVE_ROWS];
    uint32_t cycle;
    uint32_t n = observe_rows(observe, rows, &cycle);
    double compute_ns = 0;
    double busy_ns = 0;
    for (uint32_t i = 0; i < n; i++) {
        const struct observe_row *row = rows[i];
        compute_ns += (double)(row->forward_ns + row->backward_ns + row->optimizer_ns);
        busy_ns += (double)row->bytes * ns_per_byte - (double)row->exposed_ns;
    }
    if (compute_ns <= 0 || busy_ns <= 0) {
        return 0;
    }
    return busy_ns < compute_ns ? busy_ns / compute_ns : 1;
}

double observe_contention(const struct observe *observe, double ns_per_byte) {
    return contention_factor(&observe->contention, ns_per_byte);
}

const int64_t *observe_offsets(const struct observe *observe) {
    return observe->has_readiness ? observe->offsets_ns : NULL;
}

static int observe_compare_samples(const void *a, const void *b) {
    const struct dsched_sample *x = a;
    const struct dsched_sample *y = b;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

uint32_t observe_curve(const struct observe *observe, uint32_t link, struct dsched_sample *out,
                       uint32_t capacity) {
    const struct observe_link *from = &observe->links[link];
    uint32_t n = 0;
    for (uint32_t i = 0; i < from->n_sizes && n < capacity; i++) {
        const struct observe_size *size = &from->sizes[i];
        int64_t times[OBSERVE_TIMES];
        uint32_t n_times = size->n_times < OBSERVE_TIMES ? size->n_times : OBSERVE_TIMES;
        if (from->n_summaries - size->seen > (uint64_t)OBSERVE_STALE * from->n_sizes) {
            continue;
        }
        memcpy(times, size->times_ns, n_times * sizeof(*times));
        median_sort(times, n_times);
        /* The fastest of all may be a token bucket's burst; a quarter of the way up is not. */
        out[n].bytes = size->bytes;
        out[n].ns = times[n_times / 4];
        n++;
    }
    qsort(out, n, sizeof(*out), observe_compare_samples);
    return n;
}
