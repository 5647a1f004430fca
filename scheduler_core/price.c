#include "price.h"

#include "muldiv.h"

/* Generations in a mixture of merges: what finer ones gain is within any tolerance. */
#define MAX_GENERATIONS 4u
/* Offers of whole merges; one mixture may follow. */
#define MAX_WHOLE (PRICE_MAX_OFFERS - 1)

/* The table at n / unit, linear between whole numbers. */
static uint64_t between(const uint32_t *ppm, uint64_t n, uint64_t unit) {
    uint64_t low = n / unit;
    uint64_t rest = n % unit;
    return rest == 0 ? ppm[low] : (ppm[low] * (unit - rest) + ppm[low + 1] * rest) / unit;
}

static uint32_t both(uint64_t merge_ppm, uint64_t delay_ppm) {
    return (uint32_t)muldiv_down(merge_ppm, delay_ppm, MULDIV_PPM, UINT32_MAX);
}

uint32_t price_progress_ppm(const struct dsched_progress *table, const struct dsched_plan *plan,
                            const struct dsched_report *report) {
    size_t n_ops = (size_t)plan->n_generations * plan->n_buckets;
    if (table == NULL || plan->rule == DSCHED_EXACT || plan->n_generations == 0) {
        return MULDIV_PPM;
    }
    const uint32_t *merge_ppm = table->merge_ppm[plan->rule];
    const uint32_t *delay_ppm = table->delay_ppm[plan->rule];
    for (uint32_t g = 0; g < plan->n_generations; g++) {
        if (merge_ppm[plan->merge[g]] == 0) {
            return 0;
        }
    }
    for (size_t i = 0; i < n_ops; i++) {
        if (delay_ppm[plan->ops[i].delay] == 0) {
            return 0;
        }
    }
    return both(between(merge_ppm, dsched_plan_cycle(plan), plan->n_generations),
                between(delay_ppm, report->mean_delay_milli, 1000));
}

int64_t price_cost_ns(int64_t step_ns, uint32_t progress_ppm) {
    if (progress_ppm == 0) {
        return INT64_MAX;
    }
    return (int64_t)muldiv_up((uint64_t)step_ns, MULDIV_PPM, progress_ppm, INT64_MAX);
}

uint32_t price_max_delay(const struct dsched_progress *table, enum dsched_rule rule) {
    uint32_t delay = 0;
    while (delay < DSCHED_MAX_DELAY && (table == NULL || table->delay_ppm[rule][delay + 1] > 0)) {
        delay++;
    }
    return delay;
}

/* --- offers ----------------------------------------------------------------------------------- */

/* When the last bucket of a generation lands, counted from the first boundary that may apply it. */
static int64_t landed_ns(const struct candidates *candidates, enum dsched_rule rule,
                         const struct layout *layout) {
    int64_t ns = rule == DSCHED_AVERAGED ? layout->work_ns
                                         : layout->finish_ns - candidates->profile->backward_ns;
    return ns > 0 ? muldiv_stretch(ns, candidates->options->jitter_ppm) : 0;
}

/* Boundaries until then; the last one that could be asked for at most. */
static uint32_t natural_delay(const struct candidates *candidates, enum dsched_rule rule,
                              const struct layout *layout) {
    return (uint32_t)muldiv_up((uint64_t)landed_ns(candidates, rule, layout), 1,
                               (uint64_t)candidates->compute_ns, candidates->options->max_delay);
}

/* A generation that has not landed in time is waited for once in its iterations. */
static int64_t offer_step_ns(const struct candidates *candidates, enum dsched_rule rule,
                             const struct price_offer *offer) {
    const struct layout *layout = offer->layout;
    const struct candidates_cycle *cycle = &offer->cycle;
    int64_t late_ns =
        landed_ns(candidates, rule, layout) - candidates->compute_ns * cycle->max_delay;
    int64_t slow_ns = rule == DSCHED_AVERAGED ? layout->slow_ns : layout->spread_slow_ns;
    uint64_t lost_ns = (uint64_t)((late_ns > 0 ? late_ns : 0) + slow_ns);
    uint64_t work_ns = (uint64_t)muldiv_stretch(layout->work_ns, candidates->options->jitter_ppm);
    int64_t waited_ns =
        candidates->compute_ns +
        (int64_t)muldiv_down(lost_ns, cycle->n_generations, cycle->n_iterations, INT64_MAX / 2);
    int64_t busy_ns =
        (int64_t)muldiv_down(work_ns, cycle->n_generations, cycle->n_iterations, INT64_MAX);
    return busy_ns > waited_ns ? busy_ns : waited_ns;
}

/* The mean delay. Where links keep up, they work without a pause until the last bucket lands, so
 * that what lands after boundary j is the work that is left then, rounded up to whole buckets. */
static uint64_t offer_delay_milli(const struct candidates *candidates, enum dsched_rule rule,
                                  const struct price_offer *offer) {
    const struct layout *layout = offer->layout;
    const struct candidates_cycle *cycle = &offer->cycle;
    uint64_t n_parts = (layout->n_buckets + layout->n_links - 1) / layout->n_links;
    uint64_t work_ns = layout->work_ns > 0 ? (uint64_t)layout->work_ns : 1;
    int64_t left_ns = landed_ns(candidates, rule, layout);
    uint64_t delay_milli = 0;
    if (!candidates_sustain(candidates, layout, *cycle)) {
        uint32_t delay = (cycle->n_iterations + cycle->n_generations - 1) / cycle->n_generations;
        return UINT64_C(1000) * (delay < cycle->max_delay ? delay : cycle->max_delay);
    }
    for (uint32_t j = 0; j < cycle->max_delay && left_ns > 0; j++) {
        delay_milli += 1000 * muldiv_up((uint64_t)left_ns, n_parts, work_ns, n_parts) / n_parts;
        left_ns -= candidates->compute_ns;
    }
    return delay_milli;
}

static int64_t offer_cost_ns(const struct candidates *candidates, enum dsched_rule rule,
                             const struct price_offer *offer) {
    const struct dsched_progress *table = candidates->options->progress;
    const struct candidates_cycle *cycle = &offer->cycle;
    uint32_t least = cycle->n_iterations / cycle->n_generations;
    uint32_t most = least + (cycle->n_iterations % cycle->n_generations > 0);
    if (table->merge_ppm[rule][least] == 0 || table->merge_ppm[rule][most] == 0 ||
        table->delay_ppm[rule][cycle->max_delay] == 0) {
        return INT64_MAX;
    }
    return price_cost_ns(
        offer_step_ns(candidates, rule, offer),
        both(between(table->merge_ppm[rule], cycle->n_iterations, cycle->n_generations),
             between(table->delay_ppm[rule], offer_delay_milli(candidates, rule, offer), 1000)));
}

/* Cycles of `n_generations` that promise less than `offer` with the same limit on delay. */
static void offer_improve(const struct candidates *candidates, enum dsched_rule rule,
                          const struct layout *layout, uint32_t n_generations,
                          struct price_offer *offer) {
    struct price_offer trial = {.layout = layout, .cycle = offer->cycle};
    trial.cycle.n_generations = n_generations;
    for (uint32_t i = n_generations; i <= n_generations * candidates->options->max_merge; i++) {
        trial.cycle.n_iterations = i;
        trial.cost_ns = offer_cost_ns(candidates, rule, &trial);
        if (trial.cost_ns < offer->cost_ns) {
            *offer = trial;
        }
    }
}

/* Keeps the offers in order of cost. */
static uint32_t offer_insert(struct price_offer *offers, uint32_t n,
                             const struct price_offer *offer) {
    uint32_t at = n;
    for (; at > 0 && offers[at - 1].cost_ns > offer->cost_ns; at--) {
        if (at < MAX_WHOLE) {
            offers[at] = offers[at - 1];
        }
    }
    if (at < MAX_WHOLE) {
        offers[at] = *offer;
    }
    return n < MAX_WHOLE ? n + 1 : n;
}

uint32_t price_find(const struct candidates *candidates, enum dsched_rule rule,
                    const struct layout *const *layouts, uint32_t n_layouts,
                    struct price_offer out[PRICE_MAX_OFFERS]) {
    uint32_t n = 0;
    for (uint32_t delay = 0; delay <= candidates->options->max_delay; delay++) {
        struct price_offer offer = {.cycle.max_delay = delay, .cost_ns = INT64_MAX};
        for (uint32_t l = 0; l < n_layouts; l++) {
            if (delay <= natural_delay(candidates, rule, layouts[l])) {
                offer_improve(candidates, rule, layouts[l], 1, &offer);
            }
        }
        if (offer.cost_ns < INT64_MAX) {
            n = offer_insert(out, n, &offer);
        }
    }
    if (n > 0) {
        struct price_offer mixed = out[0];
        for (uint32_t g = 2; g <= MAX_GENERATIONS; g++) {
            offer_improve(candidates, rule, out[0].layout, g, &mixed);
        }
        if (mixed.cost_ns < out[0].cost_ns) {
            out[n++] = mixed;
        }
    }
    return n;
}
