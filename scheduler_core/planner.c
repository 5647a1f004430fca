#include "candidates.h"
#include "choice.h"
#include "layouts.h"
#include "muldiv.h"
#include "price.h"
#include "refuse.h"
#include "split.h"

#include <stdlib.h>
#include <string.h>

/* Layouts whose estimate is this close to the best count as equal, so that the choice among them
 * may go by delay and ops. */
#define CLOSE_PPM 5000u
/* Layouts simulated per class, and integer merges shown for comparison. */
#define MAX_TRIED  4u
#define MAX_MERGES 8u
/* Buckets of plans with delays, where layouts allow it. A finer grain only costs latency; a coarser
 * one keeps links waiting until the whole gradient space has been copied. */
#define FINE_BUCKETS   64u
#define COARSE_BUCKETS 4u
/* Fractional cycles: ops in one cycle, which bounds plans and the time to simulate them. */
#define MAX_CYCLE_OPS 8192u

void dsched_planner_defaults(struct dsched_planner_options *options) {
    *options = (struct dsched_planner_options){
        .rules = DSCHED_RULE_BIT(DSCHED_EXACT) | DSCHED_RULE_BIT(DSCHED_LOOKAHEAD) |
                 DSCHED_RULE_BIT(DSCHED_AVERAGED),
        .max_merge = 8,
        .max_delay = 8,
        .max_pending_bytes = 0,
        .jitter_ppm = 50000,
        .tolerance_ppm = 10000,
    };
}

void dsched_solution_done(struct dsched_solution *solution) {
    if (solution != NULL) {
        dsched_plan_done(&solution->plan);
        memset(solution, 0, sizeof(*solution));
    }
}

static enum dsched_status check_options(const struct dsched_planner_options *options,
                                        struct dsched_error *error) {
    if (options->max_merge == 0 || options->max_merge > DSCHED_MAX_MERGE ||
        options->max_delay > DSCHED_MAX_DELAY) {
        return refuse(error, DSCHED_INVALID,
                      "max_merge %u and max_delay %u were given, but 1..%u and 0..%u are allowed",
                      options->max_merge, options->max_delay, DSCHED_MAX_MERGE, DSCHED_MAX_DELAY);
    }
    if (options->jitter_ppm > MULDIV_PPM || options->tolerance_ppm > MULDIV_PPM) {
        return refuse(error, DSCHED_INVALID,
                      "jitter_ppm %u and tolerance_ppm %u were given, but 0..1000000 is allowed",
                      options->jitter_ppm, options->tolerance_ppm);
    }
    if (options->rules >= DSCHED_RULE_BIT(DSCHED_N_RULES)) {
        return refuse(error, DSCHED_INVALID, "the set of rules is %#x, but only bits 0..%u exist",
                      options->rules, DSCHED_N_RULES - 1);
    }
    return DSCHED_OK;
}

/* --- which layouts a class looks at ----------------------------------------------------------- */

struct pick {
    uint32_t n;
    const struct layout *layouts[MAX_TRIED + 1];
};

/* What a class expects of a layout; less is better. */
typedef int64_t (*estimate_fn)(const struct candidates *candidates, const struct layout *layout);

static int64_t estimate_exact(const struct candidates *candidates, const struct layout *layout) {
    (void)candidates;
    return layout->finish_ns;
}

/* Links that slow compute down do so in every iteration. */
static int64_t estimate_delayed(const struct candidates *candidates, const struct layout *layout) {
    int64_t slowed_ns = candidates->compute_ns + layout->spread_slow_ns;
    return layout->work_ns > slowed_ns ? layout->work_ns : slowed_ns;
}

/* With merging the step can be had, and what counts is how often. Not so where links slow compute
 * down: then all merges but the largest pay for it, and what does not land within the delays that
 * are allowed is waited for. `landed_ns` counts from the first boundary that may apply it. */
static int64_t estimate_merged(const struct candidates *candidates, const struct layout *layout,
                               int64_t landed_ns, int64_t slow_ns) {
    int64_t n_merged = candidates->options->max_merge;
    int64_t delay_ns = candidates->compute_ns * candidates->options->max_delay + slow_ns;
    int64_t late_ns = landed_ns > delay_ns ? landed_ns - delay_ns : 0;
    int64_t waited_ns = candidates->compute_ns + (slow_ns + late_ns) / n_merged;
    if (layout->slow_ns == 0) {
        return layout->load_ns;
    }
    return layout->work_ns / n_merged > waited_ns ? layout->work_ns / n_merged : waited_ns;
}

/* All is ready at the boundary. */
static int64_t estimate_averaged(const struct candidates *candidates, const struct layout *layout) {
    return estimate_merged(candidates, layout, layout->work_ns, layout->slow_ns);
}

static int64_t estimate_merged_delayed(const struct candidates *candidates,
                                       const struct layout *layout) {
    return estimate_merged(candidates, layout, layout->finish_ns - candidates->profile->backward_ns,
                           layout->spread_slow_ns);
}

struct grain {
    uint32_t min_buckets; /* a wish */
    uint32_t max_buckets;
};

/* Of the layouts within CLOSE_PPM of the best estimate, the best, then some from the coarsest to
 * the finest. */
static void pick_layouts(const struct candidates *candidates, const struct layouts *layouts,
                         estimate_fn estimate, struct grain grain, struct pick *out) {
    const struct layout *close[LAYOUTS_MAX];
    int64_t best_ns = INT64_MAX;
    uint32_t first = 0;
    uint32_t n = 0;
    *out = (struct pick){0};
    for (uint32_t i = 0; i < layouts->n; i++) {
        int64_t value_ns = estimate(candidates, &layouts->items[i]);
        if (layouts->items[i].n_buckets <= grain.max_buckets && value_ns < best_ns) {
            best_ns = value_ns;
            out->n = 1;
            out->layouts[0] = &layouts->items[i];
        }
    }
    for (uint32_t i = 0; i < layouts->n; i++) {
        const struct layout *layout = &layouts->items[i];
        uint32_t at = n;
        if (layout->n_buckets > grain.max_buckets ||
            estimate(candidates, layout) > muldiv_stretch(best_ns, CLOSE_PPM)) {
            continue;
        }
        for (; at > 0 && close[at - 1]->n_buckets > layout->n_buckets; at--) {
            close[at] = close[at - 1];
        }
        close[at] = layout;
        n++;
    }
    while (first + 1 < n && close[first]->n_buckets < grain.min_buckets) {
        first++;
    }
    n -= first;
    for (uint32_t i = 0; i < MAX_TRIED - 1 && i < n; i++) {
        uint32_t at = n < MAX_TRIED ? i : i * (n - 1) / (MAX_TRIED - 2);
        if (close[first + at] != out->layouts[0]) {
            out->layouts[out->n++] = close[first + at];
        }
    }
}

/* When dtypes alternate so often that no layout is as coarse as wished, every layout will do. */
static struct grain grain_of_delayed(const struct layouts *layouts) {
    struct grain grain = {.min_buckets = COARSE_BUCKETS, .max_buckets = DSCHED_MAX_BUCKETS};
    for (uint32_t i = 0; i < layouts->n; i++) {
        if (layouts->items[i].n_buckets <= FINE_BUCKETS) {
            grain.max_buckets = FINE_BUCKETS;
        }
    }
    return grain;
}

/* --- classes ---------------------------------------------------------------------------------- */

static const struct candidates_cycle every_iteration = {
    .n_generations = 1, .n_iterations = 1, .max_delay = DSCHED_MAX_DELAY};

static enum dsched_status add_exact(struct candidates *candidates, const struct layouts *layouts,
                                    struct dsched_error *error) {
    struct grain any = {.min_buckets = 1, .max_buckets = DSCHED_MAX_BUCKETS};
    struct pick pick = {0};
    enum dsched_status status = DSCHED_OK;
    pick_layouts(candidates, layouts, estimate_exact, any, &pick);
    for (uint32_t i = 0; status == DSCHED_OK && i < pick.n; i++) {
        status = candidates_add(candidates, DSCHED_EXACT, pick.layouts[i], every_iteration,
                                layouts_landing_gap_ppm(layouts, pick.layouts[i]), error);
    }
    /* What the job does without us is always in the comparison, and never beats the choice. */
    if (status == DSCHED_OK && layouts->has_ddp) {
        candidates->ddp = candidates->n;
        status = candidates_add(candidates, DSCHED_EXACT, &layouts->items[0], every_iteration,
                                layouts_landing_gap_ppm(layouts, &layouts->items[0]), error);
    }
    return status;
}

static enum dsched_status add_lookahead(struct candidates *candidates,
                                        const struct layouts *layouts, struct dsched_error *error) {
    struct pick pick = {0};
    enum dsched_status status = DSCHED_OK;
    pick_layouts(candidates, layouts, estimate_delayed, grain_of_delayed(layouts), &pick);
    if (layouts->least_late < LAYOUTS_MAX) {
        pick.layouts[pick.n++] = &layouts->items[layouts->least_late];
    }
    for (uint32_t i = 0; status == DSCHED_OK && i < pick.n; i++) {
        status = candidates_add(candidates, DSCHED_LOOKAHEAD, pick.layouts[i], every_iteration,
                                layouts_work_gap_ppm(layouts, pick.layouts[i]), error);
    }
    return status;
}

/* The cycle with the most updates per iteration that `layout` can sustain: iterations / generations
 * is at least load / T and as little above it as possible. The shortest within the slack is taken,
 * else the closest. Returns 0 when even max_merge is too small. */
static int best_cycle(const struct candidates *candidates, const struct layout *layout,
                      uint32_t max_delay, struct candidates_cycle *out) {
    uint64_t load_ns = (uint64_t)candidates_load_ns(candidates, layout);
    uint64_t compute_ns = (uint64_t)candidates->compute_ns;
    uint64_t ideal_ns = load_ns > compute_ns ? load_ns : compute_ns;
    uint64_t close_ns = ideal_ns + muldiv_down(ideal_ns, choice_updates_slack_ppm(candidates),
                                               MULDIV_PPM, INT64_MAX);
    uint32_t most = MAX_CYCLE_OPS / layout->n_buckets;
    struct candidates_cycle best = {0};
    most = most == 0 ? 1 : most;
    most = most > DSCHED_MAX_GENERATIONS ? DSCHED_MAX_GENERATIONS : most;
    for (uint32_t n = 1; n <= most; n++) {
        uint64_t iterations = muldiv_up(n, ideal_ns, compute_ns, UINT32_MAX);
        if (iterations > (uint64_t)n * candidates->options->max_merge) {
            continue;
        }
        if (best.n_generations == 0 ||
            iterations * best.n_generations < (uint64_t)best.n_iterations * n) {
            best = (struct candidates_cycle){
                .n_generations = n, .n_iterations = (uint32_t)iterations, .max_delay = max_delay};
        }
        if ((muldiv_wide)iterations * compute_ns <= (muldiv_wide)close_ns * n) {
            break;
        }
    }
    *out = best;
    return best.n_generations > 0;
}

static enum dsched_status add_cycle(struct candidates *candidates, const struct layouts *layouts,
                                    enum dsched_rule rule, const struct layout *layout,
                                    struct candidates_cycle cycle, struct dsched_error *error) {
    return candidates_add(candidates, rule, layout, cycle, layouts_work_gap_ppm(layouts, layout),
                          error);
}

/* All small merges are shown for comparison. They matter where delay or memory is short: then whole
 * merges, and large ones, are the best that can be had. */
static enum dsched_status add_whole_merges(struct candidates *candidates,
                                           const struct layouts *layouts, enum dsched_rule rule,
                                           const struct pick *pick, uint32_t max_delay,
                                           struct dsched_error *error) {
    uint64_t load_ns = (uint64_t)candidates_load_ns(candidates, pick->layouts[0]);
    uint32_t max_merge = candidates->options->max_merge;
    uint32_t least = (uint32_t)muldiv_up(load_ns, 1, (uint64_t)candidates->compute_ns, UINT32_MAX);
    enum dsched_status status = DSCHED_OK;
    for (uint32_t k = 1; status == DSCHED_OK && k <= max_merge; k++) {
        int is_late = k < least; /* then the least work decides, else the finest grain */
        const struct layout *layout = pick->layouts[is_late ? 0 : pick->n - 1];
        struct candidates_cycle cycle = {
            .n_generations = 1, .n_iterations = k, .max_delay = max_delay};
        if (k <= MAX_MERGES || k == least || k == max_merge) {
            status = add_cycle(candidates, layouts, rule, layout, cycle, error);
        }
        if (status == DSCHED_OK && k == max_merge && layout != pick->layouts[0]) {
            status = add_cycle(candidates, layouts, rule, pick->layouts[0], cycle, error);
        }
    }
    return status;
}

/* What a table of progress makes worth trying besides; some of it may be among the others. */
static enum dsched_status add_priced(struct candidates *candidates, const struct layouts *layouts,
                                     enum dsched_rule rule, struct dsched_error *error) {
    const struct layout *fine[LAYOUTS_MAX];
    struct price_offer offers[PRICE_MAX_OFFERS];
    uint32_t max_buckets = grain_of_delayed(layouts).max_buckets;
    uint32_t n_fine = 0;
    enum dsched_status status = DSCHED_OK;
    for (uint32_t i = 0; i < layouts->n; i++) {
        if (layouts->items[i].n_buckets <= max_buckets) {
            fine[n_fine++] = &layouts->items[i];
        }
    }
    uint32_t n = price_find(candidates, rule, fine, n_fine, offers);
    for (uint32_t i = 0; status == DSCHED_OK && i < n; i++) {
        uint32_t n_before = candidates->n;
        status = add_cycle(candidates, layouts, rule, offers[i].layout, offers[i].cycle, error);
        if (candidates->n > n_before) {
            candidates_drop_repeated(candidates);
        }
    }
    return status;
}

static enum dsched_status add_merged(struct candidates *candidates, const struct layouts *layouts,
                                     enum dsched_rule rule, struct dsched_error *error) {
    struct pick pick = {0};
    struct candidates_cycle cycle;
    uint32_t max_delay = price_max_delay(candidates->options->progress, rule);
    enum dsched_status status = DSCHED_OK;
    pick_layouts(candidates, layouts,
                 rule == DSCHED_AVERAGED ? estimate_averaged : estimate_merged_delayed,
                 grain_of_delayed(layouts), &pick);
    for (uint32_t i = 0; status == DSCHED_OK && i < pick.n; i++) {
        if (best_cycle(candidates, pick.layouts[i], max_delay, &cycle)) {
            status = add_cycle(candidates, layouts, rule, pick.layouts[i], cycle, error);
        }
    }
    if (status == DSCHED_OK && pick.n > 0) {
        status = add_whole_merges(candidates, layouts, rule, &pick, max_delay, error);
    }
    /* Where delay or memory is short, boundaries wait for the last bucket: then an early landing
     * counts, and a wait that is shared by many iterations. */
    if (status == DSCHED_OK && rule == DSCHED_DELAYED) {
        struct grain any = {.min_buckets = 1, .max_buckets = DSCHED_MAX_BUCKETS};
        cycle = (struct candidates_cycle){.n_generations = 1,
                                          .n_iterations = candidates->options->max_merge,
                                          .max_delay = max_delay};
        pick_layouts(candidates, layouts, estimate_exact, any, &pick);
        status = add_cycle(candidates, layouts, rule, pick.layouts[0], cycle, error);
    }
    if (status == DSCHED_OK && candidates->options->progress != NULL) {
        status = add_priced(candidates, layouts, rule, error);
    }
    return status;
}

/* --- the search ------------------------------------------------------------------------------ */

static enum dsched_status search(struct candidates *candidates, struct dsched_error *error) {
    uint32_t rules = candidates->options->rules;
    struct layouts layouts;
    enum dsched_status status =
        layouts_init(&layouts, candidates->profile, candidates->space, candidates->options, error);
    if (status != DSCHED_OK) {
        return status;
    }
    status = add_exact(candidates, &layouts, error);
    if (status == DSCHED_OK && (rules & DSCHED_RULE_BIT(DSCHED_LOOKAHEAD)) != 0 &&
        candidates->options->max_delay > 0) {
        status = add_lookahead(candidates, &layouts, error);
    }
    if (status == DSCHED_OK && (rules & DSCHED_RULE_BIT(DSCHED_AVERAGED)) != 0) {
        status = add_merged(candidates, &layouts, DSCHED_AVERAGED, error);
    }
    if (status == DSCHED_OK && (rules & DSCHED_RULE_BIT(DSCHED_DELAYED)) != 0) {
        status = add_merged(candidates, &layouts, DSCHED_DELAYED, error);
    }
    layouts_done(&layouts);
    return status;
}

static void fill_solution(struct candidates *candidates, uint32_t chosen,
                          struct dsched_solution *out) {
    const struct dsched_profile *profile = candidates->profile;
    const struct dsched_report *report = &candidates->items[chosen].report;
    memset(out, 0, sizeof(*out));
    out->report = *report;
    out->link_ns = split_link_ns(profile, 0, candidates->space->n_bytes);
    out->split_ns = split_all_ns(profile, candidates->space->n_bytes);
    out->coverage_ppm =
        (uint32_t)muldiv_down((uint64_t)out->link_ns, MULDIV_PPM,
                              (uint64_t)(profile->forward_ns + profile->backward_ns), UINT32_MAX);
    out->n_candidates = candidates->n;
    out->chosen = chosen;
    memcpy(out->candidates, candidates->items, candidates->n * sizeof(out->candidates[0]));
    out->plan = candidates->plans[chosen];
    memset(&candidates->plans[chosen], 0, sizeof(candidates->plans[chosen]));
    out->plan.forecast = (struct dsched_forecast){
        .step_ns = report->step_ns,
        .exposed_ns = report->exposed_ns,
        .compute_ns = candidates->compute_ns,
        .updates_per_step_ppm = report->updates_per_step_ppm,
        .mean_delay_milli = report->mean_delay_milli,
        .max_delay = report->max_delay,
        .pending_bytes = report->pending_bytes,
    };
}

enum dsched_status dsched_solve(const struct dsched_profile *profile,
                                const struct dsched_planner_options *options,
                                struct dsched_solution *out, struct dsched_error *error) {
    struct space space = {0};
    struct candidates *candidates = NULL;
    uint32_t chosen = 0;
    enum dsched_status status = dsched_profile_check(profile, error);
    if (status == DSCHED_OK) {
        status = check_options(options, error);
    }
    if (status == DSCHED_OK) {
        status = space_init(&space, profile, error);
    }
    if (status != DSCHED_OK) {
        return status;
    }
    candidates = calloc(1, sizeof(*candidates));
    if (candidates == NULL) {
        status = refuse_memory(error, "the planner's candidates");
        goto done;
    }
    candidates->profile = profile;
    candidates->options = options;
    candidates->space = &space;
    candidates->ddp = DSCHED_MAX_CANDIDATES;
    candidates->compute_ns = profile->forward_ns + profile->backward_ns + profile->optimizer_ns;
    status = search(candidates, error);
    if (status == DSCHED_OK) {
        status = choice_make(candidates, &chosen, error);
    }
    if (status == DSCHED_OK) {
        fill_solution(candidates, chosen, out);
    }
done:
    if (candidates != NULL) {
        candidates_done(candidates);
    }
    free(candidates);
    space_done(&space);
    return status;
}
