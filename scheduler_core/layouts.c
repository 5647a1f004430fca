#include "layouts.h"

#include "baselines/policies.h"
#include "contended.h"
#include "cut.h"
#include "muldiv.h"
#include "refuse.h"
#include "split.h"
#include "spread.h"

#include <string.h>

/* Absolute sizes follow what links amortise, relative ones what a stage can hold. */
#define LEAST_BYTES (UINT64_C(256) << 10)
#define MOST_BYTES  (UINT64_C(64) << 20)
#define MOST_PARTS  32u
/* Packing is for layouts that are coarse enough to need it; finer ones balance by themselves. */
#define MAX_PACKED_BUCKETS 64u
/* Labels of a search, over all pairs of pieces (cut.h). Landing pays for more: nothing else is as
 * fine as it is, while work may be split over links as finely as one likes. */
#define LANDING_LABELS 32768u
#define WORK_LABELS    16384u
#define QUICK_LABELS   4096u
/* Work that is this close to what no cut can beat is not searched for. */
#define SAME_WORK_PPM 1000u
/* A tensor of two of these parts of the whole, or more, may be split over links. */
#define N_PARTS     24u
#define MANY_PIECES 32u

void layouts_done(struct layouts *layouts) {
    for (uint32_t i = 0; i < layouts->n; i++) {
        layout_done(&layouts->items[i]);
    }
    memset(layouts, 0, sizeof(*layouts));
}

/* Takes over `layout`, also on failure. */
static enum dsched_status add(struct layouts *layouts, const struct dsched_profile *profile,
                              const struct space *space, struct layout *layout,
                              struct dsched_error *error) {
    enum dsched_status status = DSCHED_OK;
    if (layouts->n < LAYOUTS_MAX) {
        status = layout_measure(layout, profile, space, error);
    }
    if (status == DSCHED_OK && layouts->n < LAYOUTS_MAX && layouts->is_contended) {
        status = contended_measure(profile, space, layout, error);
    }
    if (layouts->n == LAYOUTS_MAX || status != DSCHED_OK) {
        layout_done(layout);
        return status;
    }
    layouts->items[layouts->n++] = *layout;
    memset(layout, 0, sizeof(*layout));
    return DSCHED_OK;
}

enum spread { SPREAD_NONE, SPREAD_FIRST_LANDED, SPREAD_PACKED, SPREAD_SPLIT, N_SPREADS };

static enum dsched_status add_spread(struct layouts *layouts, const struct dsched_profile *profile,
                                     const struct space *space, const struct layout *cut,
                                     enum spread spread, struct dsched_error *error) {
    struct layout layout = {0};
    enum dsched_status status = spread == SPREAD_SPLIT
                                    ? spread_split(profile, space, cut, &layout, error)
                                    : layout_copy(cut, &layout, error);
    if (status == DSCHED_OK && spread == SPREAD_FIRST_LANDED) {
        status = spread_first_landed(profile, space, &layout, error);
    }
    if (status == DSCHED_OK && spread == SPREAD_PACKED) {
        status = spread_packed(profile, space, &layout, error);
    }
    if (status != DSCHED_OK) {
        layout_done(&layout);
        return status;
    }
    return add(layouts, profile, space, &layout, error);
}

/* A link that slows compute down may be better left alone: the whole on each of the others; and
 * loads that weigh its work against that, for the least and the most merging. */
static enum dsched_status add_spared(struct layouts *layouts, const struct dsched_profile *profile,
                                     const struct space *space, const struct layout *cut,
                                     struct dsched_error *error) {
    enum dsched_status status = DSCHED_OK;
    for (uint32_t l = 1; status == DSCHED_OK && l < profile->n_links; l++) {
        struct layout layout = {0};
        status = layout_copy(cut, &layout, error);
        if (status == DSCHED_OK) {
            memset(layout.links, (int)l, layout.n_buckets);
            status = add(layouts, profile, space, &layout, error);
        }
    }
    for (uint32_t k = 1; status == DSCHED_OK && k <= layouts->options->max_merge;
         k = k < layouts->options->max_merge ? layouts->options->max_merge : k + 1) {
        struct layout layout = {0};
        status = layout_copy(cut, &layout, error);
        if (status == DSCHED_OK) {
            status = contended_balance(profile, space, k, &layout, error);
        }
        if (status != DSCHED_OK) {
            layout_done(&layout);
            return status;
        }
        status = add(layouts, profile, space, &layout, error);
    }
    return status;
}

/* A cut in every spread that makes sense for it. Takes over `cut`. */
static enum dsched_status add_cut(struct layouts *layouts, const struct dsched_profile *profile,
                                  const struct space *space, struct layout *cut,
                                  struct dsched_error *error) {
    enum dsched_status status = DSCHED_OK;
    int n_spreads = profile->n_links == 1 ? 1 : N_SPREADS;
    for (int spread = 0; status == DSCHED_OK && spread < n_spreads; spread++) {
        if ((spread == SPREAD_PACKED && cut->n_buckets > MAX_PACKED_BUCKETS) ||
            (spread == SPREAD_SPLIT && cut->n_buckets * profile->n_links > LAYOUT_MAX_BUCKETS)) {
            continue;
        }
        status = add_spread(layouts, profile, space, cut, (enum spread)spread, error);
    }
    layout_done(cut);
    return status;
}

static enum dsched_status add_ddp(struct layouts *layouts, const struct dsched_profile *profile,
                                  const struct space *space, struct dsched_error *error) {
    struct dsched_plan plan = {0};
    struct layout layout = {0};
    enum dsched_status status =
        dsched_plan_ddp(&space->table, POLICIES_DDP_FIRST_BYTES, POLICIES_DDP_LATER_BYTES, &plan);
    if (status == DSCHED_LIMIT) {
        return DSCHED_OK;
    }
    if (status != DSCHED_OK) {
        return refuse_memory(error, "DDP's buckets");
    }
    status = layout_init(&layout, plan.n_buckets, error);
    if (status == DSCHED_OK) {
        memcpy(layout.buckets, plan.buckets, plan.n_buckets * sizeof(*plan.buckets));
        status = add(layouts, profile, space, &layout, error);
        layouts->has_ddp = status == DSCHED_OK;
    }
    dsched_plan_done(&plan);
    return status;
}

static enum dsched_status add_sizes(struct layouts *layouts, const struct dsched_profile *profile,
                                    const struct space *space, struct dsched_error *error) {
    uint64_t last = 0;
    for (uint64_t bytes = MOST_BYTES; bytes >= LEAST_BYTES; bytes /= 2) {
        struct layout cut = {0};
        enum dsched_status status = cut_by_bytes(space, bytes, LAYOUT_MAX_BUCKETS, &cut, NULL);
        if (status == DSCHED_LIMIT) {
            break; /* smaller sizes need even more buckets */
        }
        if (status != DSCHED_OK) {
            return refuse_memory(error, "a layout of buckets");
        }
        if (cut.n_buckets == last) {
            layout_done(&cut);
            continue;
        }
        last = cut.n_buckets;
        status = add_cut(layouts, profile, space, &cut, error);
        if (status != DSCHED_OK) {
            return status;
        }
    }
    return DSCHED_OK;
}

static enum dsched_status add_parts(struct layouts *layouts, const struct dsched_profile *profile,
                                    const struct space *space, struct dsched_error *error) {
    for (uint32_t n_parts = 1; n_parts <= MOST_PARTS; n_parts *= 2) {
        struct layout cut = {0};
        /* The whole must fit whatever the dtypes; a finer cut is optional. */
        uint32_t max_buckets = n_parts == 1 ? DSCHED_MAX_BUCKETS : LAYOUT_MAX_BUCKETS;
        uint64_t bytes = (space->n_bytes + n_parts - 1) / n_parts;
        enum dsched_status status = cut_by_bytes(space, bytes, max_buckets, &cut, error);
        if (status == DSCHED_LIMIT && n_parts > 1) {
            return DSCHED_OK;
        }
        if (status == DSCHED_OK && layouts->is_contended && cut.n_buckets <= MAX_PACKED_BUCKETS) {
            status = add_spared(layouts, profile, space, &cut, error);
        }
        if (status == DSCHED_OK) {
            status = add_cut(layouts, profile, space, &cut, error);
        }
        if (status != DSCHED_OK) {
            layout_done(&cut);
            return status;
        }
    }
    return DSCHED_OK;
}

/* --- by search -------------------------------------------------------------------------------- */

static int64_t later(int64_t a_ns, int64_t b_ns) {
    return a_ns > b_ns ? a_ns : b_ns;
}

static int64_t least(const struct layouts *layouts, enum cut_kind kind) {
    int64_t best_ns = INT64_MAX;
    for (uint32_t i = 0; i < layouts->n; i++) {
        const struct layout *layout = &layouts->items[i];
        int64_t ns = kind == CUT_LANDING ? layout->finish_ns : layout->work_ns;
        best_ns = ns < best_ns ? ns : best_ns;
    }
    return best_ns;
}

/* *out_bound_ns stays when there are too many changes of dtype for a search. */
static enum dsched_status add_searched(struct layouts *layouts,
                                       const struct dsched_profile *profile,
                                       const struct space *space, const struct cut_goal *goal,
                                       int64_t *out_bound, struct dsched_error *error) {
    struct layout layout = {0};
    enum dsched_status status = cut_by_search(profile, space, goal, &layout, out_bound, error);
    if (status == DSCHED_INFEASIBLE || status == DSCHED_LIMIT) {
        return DSCHED_OK;
    }
    return status == DSCHED_OK ? add(layouts, profile, space, &layout, error) : status;
}

/* Whether splitting a tensor over links may be worth a search of its own. */
static int has_large_piece(const struct dsched_profile *profile, const struct space *space) {
    for (uint32_t p = 0; profile->n_links > 1 && p < space->n_pieces; p++) {
        const struct space_piece *piece = &space->pieces[p];
        if ((piece->end - piece->begin) * piece->element_bytes >= 2 * (space->n_bytes / N_PARTS)) {
            return 1;
        }
    }
    return 0;
}

/* Landing where links slow backward down: on all of them or on one, at least and at most by what
 * they can. */
static enum dsched_status add_contended(struct layouts *layouts,
                                        const struct dsched_profile *profile,
                                        const struct space *space, struct dsched_error *error) {
    enum dsched_status status = DSCHED_OK;
    uint32_t most_ppm = (uint32_t)MULDIV_PPM;
    for (uint32_t l = profile->n_links + 1; status == DSCHED_OK && l-- > 0;) {
        struct cut_goal goal = {
            .kind = CUT_LANDING, .n_labels = WORK_LABELS, .only_link = l, .known = INT64_MAX};
        uint32_t contention_ppm = l > 0 ? profile->links[l - 1].contention_ppm : most_ppm;
        int64_t bound_ns = 0;
        most_ppm = contention_ppm > most_ppm ? contention_ppm : most_ppm;
        if (l > 0 && profile->n_links > 1) {
            status = add_searched(layouts, profile, space, &goal, &bound_ns, error);
        }
        goal.slow_ppm = contention_ppm > MULDIV_PPM ? contention_ppm - (uint32_t)MULDIV_PPM : 0;
        if (status == DSCHED_OK && goal.slow_ppm > 0) {
            status = add_searched(layouts, profile, space, &goal, &bound_ns, error);
        }
    }
    return status;
}

/* No exact plan lands earlier: what is ready from any time on takes its time from then on. */
static int64_t landing_floor_ns(const struct dsched_profile *profile, const struct space *space) {
    int64_t all_ns = split_floor_ns(profile, space->n_bytes);
    int64_t most_ns = profile->backward_ns;
    uint64_t bytes = space->n_bytes;
    for (uint32_t p = 0; p < space->n_pieces; p++) {
        const struct space_piece *piece = &space->pieces[p];
        int64_t rest_ns = (int64_t)muldiv_down((uint64_t)all_ns, bytes, space->n_bytes, INT64_MAX);
        most_ns = later(most_ns, piece->ready_ns + rest_ns);
        bytes -= (piece->end - piece->begin) * piece->element_bytes;
    }
    return most_ns;
}

static int may_look_ahead(const struct dsched_planner_options *options) {
    return (options->rules & DSCHED_RULE_BIT(DSCHED_LOOKAHEAD)) != 0 && options->max_delay > 0;
}

/* What a step surely comes to with delay, or with merging; INT64_MAX when limits are in the way, or
 * a price. */
static int64_t other_step_ns(const struct layouts *layouts, int64_t compute_ns) {
    const struct dsched_planner_options *options = layouts->options;
    int64_t work_ns = least(layouts, CUT_WORK);
    uint32_t merge =
        options->max_merge < options->max_delay ? options->max_merge : options->max_delay;
    if (options->max_pending_bytes > 0 || options->progress != NULL || layouts->is_contended) {
        return INT64_MAX;
    }
    work_ns = muldiv_stretch(work_ns, options->jitter_ppm);
    if ((options->rules & DSCHED_RULE_BIT(DSCHED_AVERAGED)) == 0 || merge == 0) {
        merge = may_look_ahead(options);
    }
    if (merge == 0) {
        return INT64_MAX;
    }
    return work_ns / merge > compute_ns ? work_ns / merge : compute_ns;
}

static enum dsched_status add_landings(struct layouts *layouts,
                                       const struct dsched_profile *profile,
                                       const struct space *space, uint32_t n_labels,
                                       struct dsched_error *error) {
    /* Simulated landings, where links slow backward down, are not of the search's kind. */
    struct cut_goal goal = {.kind = CUT_LANDING,
                            .n_labels = n_labels,
                            .known =
                                layouts->is_contended ? INT64_MAX : least(layouts, CUT_LANDING)};
    int64_t bound_ns = 0;
    int has_parts = has_large_piece(profile, space);
    enum dsched_status status = DSCHED_OK;
    /* Parts include all whole tensors, but take more labels: small spaces are searched both ways.
     */
    if (!has_parts || space->n_pieces <= MANY_PIECES) {
        status = add_searched(layouts, profile, space, &goal, &bound_ns, error);
        layouts->landing_bound_ns = later(layouts->landing_bound_ns, bound_ns);
    }
    if (status == DSCHED_OK && has_parts) {
        goal.part_bytes = space->n_bytes / N_PARTS;
        goal.known = layouts->is_contended ? INT64_MAX : least(layouts, CUT_LANDING);
        status = add_searched(layouts, profile, space, &goal, &bound_ns, error);
        layouts->landing_bound_ns = later(layouts->landing_bound_ns, bound_ns);
    }
    if (status == DSCHED_OK && layouts->is_contended) {
        status = add_contended(layouts, profile, space, error);
    }
    return status;
}

/* The least that has to be late, if all lands before its successors become ready. */
static enum dsched_status add_least_late(struct layouts *layouts,
                                         const struct dsched_profile *profile,
                                         const struct space *space, int64_t compute_ns,
                                         struct dsched_error *error) {
    struct cut_goal goal = {.kind = CUT_LATE,
                            .n_labels = LANDING_LABELS,
                            .jitter_ppm = layouts->options->jitter_ppm,
                            .deadline_ns = profile->backward_ns,
                            .limit_ns = compute_ns,
                            .known = INT64_MAX};
    int64_t late = 0;
    uint32_t at = layouts->n;
    enum dsched_status status = add_searched(layouts, profile, space, &goal, &late, error);
    layouts->least_late = at < layouts->n ? at : LAYOUTS_MAX;
    return status;
}

/* A class that cannot win is searched less: its figures still show what it would cost. */
static enum dsched_status add_searches(struct layouts *layouts,
                                       const struct dsched_profile *profile,
                                       const struct space *space, struct dsched_error *error) {
    int64_t compute_ns = profile->forward_ns + profile->backward_ns + profile->optimizer_ns;
    int64_t before_ns = compute_ns - profile->backward_ns;
    int64_t floor_ns = landing_floor_ns(profile, space);
    int64_t bound_ns = 0;
    int64_t landing_ns;
    uint32_t tolerance_ppm = layouts->options->tolerance_ppm;
    int is_lost =
        before_ns + floor_ns > muldiv_stretch(other_step_ns(layouts, compute_ns), tolerance_ppm);
    enum dsched_status status;
    layouts->landing_bound_ns = floor_ns;
    layouts->work_bound_ns = split_floor_ns(profile, space->n_bytes);
    status = add_landings(layouts, profile, space, is_lost ? QUICK_LABELS : LANDING_LABELS, error);
    landing_ns = muldiv_stretch(least(layouts, CUT_LANDING), layouts->options->jitter_ppm);
    if (status != DSCHED_OK ||
        before_ns + landing_ns <= muldiv_stretch(compute_ns, tolerance_ppm)) {
        return status; /* exact is fast enough, and the mildest */
    }
    if (least(layouts, CUT_WORK) > muldiv_stretch(layouts->work_bound_ns, SAME_WORK_PPM)) {
        struct cut_goal goal = {
            .kind = CUT_WORK, .n_labels = WORK_LABELS, .known = least(layouts, CUT_WORK)};
        status = add_searched(layouts, profile, space, &goal, &bound_ns, error);
        layouts->work_bound_ns = later(layouts->work_bound_ns, bound_ns);
    }
    if (status == DSCHED_OK && may_look_ahead(layouts->options)) {
        status = add_least_late(layouts, profile, space, compute_ns, error);
    }
    return status;
}

static uint32_t gap_ppm(int64_t ns, int64_t bound_ns) {
    return ns <= bound_ns ? 0
                          : (uint32_t)muldiv_up((uint64_t)(ns - bound_ns), MULDIV_PPM, (uint64_t)ns,
                                                MULDIV_PPM);
}

uint32_t layouts_landing_gap_ppm(const struct layouts *layouts, const struct layout *layout) {
    return gap_ppm(layout->finish_ns, layouts->landing_bound_ns);
}

uint32_t layouts_work_gap_ppm(const struct layouts *layouts, const struct layout *layout) {
    return gap_ppm(layout->work_ns, layouts->work_bound_ns);
}

enum dsched_status layouts_init(struct layouts *layouts, const struct dsched_profile *profile,
                                const struct space *space,
                                const struct dsched_planner_options *options,
                                struct dsched_error *error) {
    enum dsched_status status;
    memset(layouts, 0, sizeof(*layouts));
    layouts->options = options;
    layouts->least_late = LAYOUTS_MAX;
    layouts->is_contended = contended_any(profile);
    status = add_ddp(layouts, profile, space, error);
    if (status == DSCHED_OK) {
        status = add_parts(layouts, profile, space, error);
    }
    if (status == DSCHED_OK) {
        status = add_sizes(layouts, profile, space, error);
    }
    if (status == DSCHED_OK) {
        status = add_searches(layouts, profile, space, error);
    }
    if (status != DSCHED_OK) {
        layouts_done(layouts);
    }
    return status;
}
