#include "choice.h"

#include "muldiv.h"
#include "refuse.h"

/* Exact steps, and mean delays, that differ by less than this are worth no additional op. */
#define SAME_STEP_PPM    1000u
#define SAME_DELAY_MILLI 50
/* Updates per iteration that no margin tells apart. */
#define SAME_UPDATES_PPM 5000u

uint32_t choice_updates_slack_ppm(const struct candidates *candidates) {
    return SAME_UPDATES_PPM + candidates->options->jitter_ppm / 5;
}

const char *dsched_verdict_name(enum dsched_verdict verdict) {
    static const char *const names[] = {
        [DSCHED_CHOSEN] = "chosen",
        [DSCHED_TOO_LARGE] = "too large",
        [DSCHED_SLOWER] = "slower",
        [DSCHED_COSTLIER] = "costlier statistics",
        [DSCHED_FEWER_UPDATES] = "fewer updates",
        [DSCHED_LATER] = "later",
        [DSCHED_MORE_OPS] = "more all-reduces",
        [DSCHED_EQUAL] = "equal",
        [DSCHED_NO_PROGRESS] = "no progress",
        [DSCHED_LESS_PROGRESS] = "less progress",
    };
    return (size_t)verdict < sizeof(names) / sizeof(names[0]) ? names[verdict] : NULL;
}

typedef int64_t (*figure_fn)(const struct candidates *candidates, uint32_t i);

static int64_t figure_step(const struct candidates *candidates, uint32_t i) {
    return candidates->items[i].margin_step_ns;
}
/* The same without a table of progress. */
static int64_t figure_cost(const struct candidates *candidates, uint32_t i) {
    return candidates->items[i].cost_ns;
}
/* Iterations per update: less is better, like all figures. */
static int64_t figure_updates(const struct candidates *candidates, uint32_t i) {
    return (int64_t)(MULDIV_PPM * MULDIV_PPM / candidates->items[i].report.updates_per_step_ppm);
}
static int64_t figure_delay(const struct candidates *candidates, uint32_t i) {
    return (candidates->items[i].report.mean_delay_milli + SAME_DELAY_MILLI / 2) / SAME_DELAY_MILLI;
}
static int64_t figure_ops(const struct candidates *candidates, uint32_t i) {
    return candidates->items[i].report.ops_per_step_milli;
}

/* Those still in the race have the verdict of the chosen. */
static int is_marked(const struct candidates *candidates, uint32_t i) {
    return candidates->items[i].verdict == DSCHED_CHOSEN;
}

/* Keeps of the marked candidates those whose figure is the least of them, or within the slack. */
static void keep_least(struct candidates *candidates, figure_fn figure, uint32_t slack_ppm,
                       enum dsched_verdict verdict) {
    int64_t best = INT64_MAX;
    for (uint32_t i = 0; i < candidates->n; i++) {
        if (is_marked(candidates, i) && figure(candidates, i) < best) {
            best = figure(candidates, i);
        }
    }
    for (uint32_t i = 0; i < candidates->n; i++) {
        if (is_marked(candidates, i) && figure(candidates, i) > muldiv_stretch(best, slack_ppm)) {
            candidates->items[i].verdict = verdict;
        }
    }
}

/* Of those that cost too much, some are fast enough: it is the statistics that they lost by. */
static void keep_least_cost(struct candidates *candidates, uint32_t slack_ppm) {
    int64_t fast_ns = 0;
    keep_least(candidates, figure_cost, slack_ppm, DSCHED_SLOWER);
    for (uint32_t i = 0; i < candidates->n; i++) {
        if (is_marked(candidates, i) && candidates->items[i].margin_step_ns > fast_ns) {
            fast_ns = candidates->items[i].margin_step_ns;
        }
    }
    for (uint32_t i = 0; i < candidates->n; i++) {
        struct dsched_candidate *item = &candidates->items[i];
        if (item->verdict == DSCHED_SLOWER && item->margin_step_ns <= fast_ns) {
            item->verdict = DSCHED_LESS_PROGRESS;
        }
    }
}

/* Fewer ops are worth a hair of step time, but never a step slower than the job has without us. */
static void keep_fast_exact(struct candidates *candidates) {
    keep_least(candidates, figure_step, SAME_STEP_PPM, DSCHED_SLOWER);
    if (candidates->ddp < candidates->n && is_marked(candidates, candidates->ddp)) {
        int64_t most_ns = candidates->items[candidates->ddp].margin_step_ns;
        for (uint32_t i = 0; i < candidates->n; i++) {
            if (is_marked(candidates, i) && candidates->items[i].margin_step_ns > most_ns) {
                candidates->items[i].verdict = DSCHED_SLOWER;
            }
        }
    }
}

/* From harmless to costly (design, convergence.md). */
static const enum dsched_rule by_cost[] = {DSCHED_EXACT, DSCHED_LOOKAHEAD, DSCHED_AVERAGED,
                                           DSCHED_DELAYED};

/* Keeps the least costly class that is still in the race. */
static void keep_cheapest_class(struct candidates *candidates) {
    int is_found = 0;
    for (size_t r = 0; r < sizeof(by_cost) / sizeof(by_cost[0]); r++) {
        int is_here = 0;
        for (uint32_t i = 0; i < candidates->n; i++) {
            if (!is_marked(candidates, i) || candidates->items[i].rule != by_cost[r]) {
                continue;
            }
            is_here = 1;
            if (is_found) {
                candidates->items[i].verdict = DSCHED_COSTLIER;
            }
        }
        is_found = is_found || is_here;
    }
}

/* Of equals the first is taken. */
static int keep_first(struct candidates *candidates, uint32_t *out) {
    int is_found = 0;
    for (uint32_t i = 0; i < candidates->n; i++) {
        if (is_marked(candidates, i)) {
            if (is_found) {
                candidates->items[i].verdict = DSCHED_EQUAL;
            } else {
                *out = i;
                is_found = 1;
            }
        }
    }
    return is_found;
}

static int is_exact(const struct candidates *candidates) {
    for (uint32_t i = 0; i < candidates->n; i++) {
        if (is_marked(candidates, i)) {
            return candidates->items[i].rule == DSCHED_EXACT;
        }
    }
    return 0;
}

enum dsched_status choice_make(struct candidates *candidates, uint32_t *out,
                               struct dsched_error *error) {
    for (uint32_t i = 0; i < candidates->n; i++) {
        struct dsched_candidate *item = &candidates->items[i];
        item->verdict = !item->feasible           ? DSCHED_TOO_LARGE
                        : item->progress_ppm == 0 ? DSCHED_NO_PROGRESS
                                                  : DSCHED_CHOSEN;
    }
    keep_least_cost(candidates, candidates->options->tolerance_ppm);
    keep_cheapest_class(candidates);
    if (is_exact(candidates)) {
        keep_fast_exact(candidates);
    }
    keep_least(candidates, figure_updates, choice_updates_slack_ppm(candidates),
               DSCHED_FEWER_UPDATES);
    keep_least(candidates, figure_delay, 0, DSCHED_LATER);
    keep_least(candidates, figure_ops, 0, DSCHED_MORE_OPS);
    keep_least_cost(candidates, 0);
    if (keep_first(candidates, out)) {
        return DSCHED_OK;
    }
    return refuse(error, DSCHED_INFEASIBLE,
                  "no plan stays within max_pending_bytes %llu; exact needs one copy of all "
                  "gradients",
                  (unsigned long long)candidates->options->max_pending_bytes);
}
