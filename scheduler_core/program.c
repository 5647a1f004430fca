#include "program.h"

#include "refuse.h"

#include <stdlib.h>
#include <string.h>

/* Marks of segments: what happens when they pass. */
enum mark {
    MARK_NONE,
    MARK_END_BACKWARD,  /* everything of a generation that ends here may be sent */
    MARK_END_OPTIMIZER, /* the same, under averaged */
    MARK_BOUNDARY,      /* its gate is the boundary's wait */
    MARK_CUT,           /* + index of the cut */
};

enum program_ready program_ready_of(enum dsched_rule rule) {
    return rule == DSCHED_AVERAGED ? PROGRAM_READY_AFTER_OPTIMIZER : PROGRAM_READY_DURING_BACKWARD;
}

/* --- the fixed part --------------------------------------------------------------------------- */

static enum dsched_status allocate(struct program *program, struct dsched_error *error) {
    const struct dsched_plan *plan = program->plan;
    size_t n_ops = (size_t)plan->n_buckets * plan->n_generations;
    int is_complete;
    program->op_ns = calloc(n_ops, sizeof(*program->op_ns));
    program->bytes = calloc(plan->n_buckets, sizeof(*program->bytes));
    program->last = calloc(plan->n_generations, sizeof(*program->last));
    program->ends = calloc(program->cycle, sizeof(*program->ends));
    program->cut_ns = calloc(plan->n_buckets, sizeof(*program->cut_ns));
    program->cut_ready = calloc(plan->n_buckets, sizeof(*program->cut_ready));
    is_complete = program->op_ns != NULL && program->bytes != NULL && program->last != NULL &&
                  program->ends != NULL && program->cut_ns != NULL && program->cut_ready != NULL;
    return is_complete ? DSCHED_OK : refuse_memory(error, "a simulation");
}

static void fill_generations(struct program *program) {
    const struct dsched_plan *plan = program->plan;
    uint32_t at = 0;
    for (uint32_t i = 0; i < program->cycle; i++) {
        program->ends[i] = -1;
    }
    for (uint32_t g = 0; g < plan->n_generations; g++) {
        at += plan->merge[g];
        program->last[g] = at - 1;
        program->ends[at - 1] = (int32_t)g;
    }
}

/* The ops of link `l` in order, and what each boundary waits for: the last op in that order which
 * is due there. Links are FIFO, so the earlier ones have landed too. */
static enum dsched_status init_lane(struct program *program, uint32_t l,
                                    struct dsched_error *error) {
    const struct dsched_plan *plan = program->plan;
    struct program_lane *lane = &program->lanes[l];
    uint32_t n_ops = plan->n_generations * plan->n_buckets;
    uint32_t cycle = program->cycle;
    uint32_t position = 0;
    for (uint32_t i = 0; i < n_ops; i++) {
        lane->n_ops += plan->ops[i].link == l;
    }
    lane->ops = calloc((size_t)lane->n_ops + 1, sizeof(*lane->ops));
    lane->due = calloc(cycle, sizeof(*lane->due));
    if (lane->ops == NULL || lane->due == NULL || cycle == 0) {
        return refuse_memory(error, "a simulation");
    }
    for (uint32_t i = 0; i < cycle; i++) {
        lane->due[i] = INT64_MIN / 2;
    }
    for (uint32_t i = 0; i < n_ops; i++) {
        uint32_t boundary = program->last[i / plan->n_buckets] + plan->ops[i].delay;
        int64_t *slot = &lane->due[boundary % cycle];
        if (plan->ops[i].link == l) {
            int64_t due = (int64_t)position + 1 - (int64_t)(boundary / cycle) * lane->n_ops;
            *slot = due > *slot ? due : *slot;
            lane->ops[position++] = i;
        }
    }
    return DSCHED_OK;
}

static enum dsched_status fill_costs(struct program *program, const struct space *space,
                                     struct dsched_error *error) {
    const struct dsched_plan *plan = program->plan;
    int64_t *ready_ns = calloc(plan->n_buckets, sizeof(*ready_ns));
    int64_t done_ns = 0;
    enum dsched_status status = DSCHED_OK;
    if (ready_ns == NULL) {
        status = refuse_memory(error, "a simulation");
        goto done;
    }
    space_measure(space, plan->buckets, plan->n_buckets, ready_ns, program->bytes);
    for (uint32_t g = 0; g < plan->n_generations; g++) {
        for (uint32_t b = 0; b < plan->n_buckets; b++) {
            size_t i = (size_t)g * plan->n_buckets + b;
            program->op_ns[i] = g > 0 && plan->ops[i].link == plan->ops[b].link
                                    ? program->op_ns[b]
                                    : dsched_link_ns(&program->profile->links[plan->ops[i].link],
                                                     program->bytes[b]);
        }
    }
    for (uint32_t b = 0; b < plan->n_buckets; b++) {
        if (program->n_cuts == 0 || ready_ns[b] > done_ns) {
            program->cut_ns[program->n_cuts++] = ready_ns[b] - done_ns;
            done_ns = ready_ns[b];
        }
        program->cut_ready[program->n_cuts - 1] = b + 1;
    }
done:
    free(ready_ns);
    return status;
}

enum dsched_status program_init(struct program *program, const struct dsched_profile *profile,
                                const struct space *space, const struct dsched_plan *plan,
                                enum program_ready ready, struct dsched_error *error) {
    struct program made = {.profile = profile, .plan = plan, .ready = ready};
    enum dsched_status status;
    made.cycle = dsched_plan_cycle(plan);
    if (made.cycle == 0) {
        return refuse(error, DSCHED_INVALID, "the plan's cycle has no iteration");
    }
    status = allocate(&made, error);
    if (status == DSCHED_OK) {
        status = fill_costs(&made, space, error);
    }
    if (status == DSCHED_OK) {
        fill_generations(&made);
    }
    for (uint32_t l = 0; status == DSCHED_OK && l < plan->n_links; l++) {
        status = init_lane(&made, l, error);
    }
    if (status != DSCHED_OK) {
        program_done(&made);
        return status;
    }
    *program = made;
    return DSCHED_OK;
}

void program_done(struct program *program) {
    if (program == NULL) {
        return;
    }
    free(program->op_ns);
    free(program->bytes);
    free(program->last);
    free(program->ends);
    free(program->cut_ns);
    free(program->cut_ready);
    for (uint32_t l = 0; l < DSCHED_MAX_LINKS; l++) {
        free(program->lanes[l].ops);
        free(program->lanes[l].due);
    }
    memset(program, 0, sizeof(*program));
}

void program_rewind(struct program *program) {
    program->iteration = 0;
    program->stage = 0;
    program->is_cycle_end = 0;
    program->boundary = 0;
    program->n_ready = 0;
    program->n_ready_extra = 0;
    for (uint32_t l = 0; l < DSCHED_MAX_LINKS; l++) {
        program->lanes[l].started = 0;
        program->lanes[l].landed = 0;
    }
}

/* --- the compute stream ----------------------------------------------------------------------- */

/* Stages of an iteration: forward; backward, cut where buckets become ready if a generation ends
 * with it; optimizer; under averaged the boundary of its own, since what it waits for is applied
 * after the optimizer has moved the parameters. */
static int next_segment(void *state, struct timeline_segment *out) {
    struct program *program = state;
    const struct dsched_profile *profile = program->profile;
    int is_last = program->ends[program->iteration % program->cycle] >= 0;
    int is_cut = is_last && program->ready == PROGRAM_READY_DURING_BACKWARD;
    uint32_t n_cuts = is_cut ? program->n_cuts : 0;
    uint32_t stage = program->stage++;
    if (program->is_cycle_end) {
        program->is_cycle_end = 0;
        program->stage = 0;
        return 0;
    }
    *out = (struct timeline_segment){.iteration = program->iteration};
    if (stage == 0) {
        out->lane = DSCHED_LANE_FORWARD;
        out->work_ns = profile->forward_ns;
    } else if (stage <= n_cuts) {
        out->lane = DSCHED_LANE_BACKWARD;
        out->work_ns = program->cut_ns[stage - 1];
        out->mark = MARK_CUT + stage - 1;
    } else if (stage == n_cuts + 1) {
        out->lane = DSCHED_LANE_BACKWARD;
        out->work_ns = profile->backward_ns;
        for (uint32_t i = 0; i < n_cuts; i++) {
            out->work_ns -= program->cut_ns[i];
        }
        out->mark = MARK_END_BACKWARD;
    } else if (program->ready == PROGRAM_READY_AFTER_OPTIMIZER && stage == n_cuts + 2) {
        out->lane = DSCHED_LANE_OPTIMIZER;
        out->work_ns = profile->optimizer_ns;
        out->mark = MARK_END_OPTIMIZER;
    } else {
        out->lane = DSCHED_LANE_OPTIMIZER;
        out->work_ns = program->ready == PROGRAM_READY_AFTER_OPTIMIZER ? 0 : profile->optimizer_ns;
        out->mark = MARK_BOUNDARY;
        program->stage = 0;
        program->iteration++;
        program->is_cycle_end = program->iteration % program->cycle == 0;
    }
    return 1;
}

static int is_open(void *state, const struct timeline_segment *segment) {
    struct program *program = state;
    uint64_t cycle;
    uint32_t at;
    if (segment->mark != MARK_BOUNDARY) {
        return 1;
    }
    cycle = segment->iteration / program->cycle;
    at = (uint32_t)(segment->iteration % program->cycle);
    for (uint32_t l = 0; l < program->plan->n_links; l++) {
        const struct program_lane *lane = &program->lanes[l];
        if ((int64_t)lane->landed < (int64_t)(cycle * lane->n_ops) + lane->due[at]) {
            return 0;
        }
    }
    program->boundary = segment->iteration + 1;
    return 1;
}

static void generation_ready(struct program *program, uint64_t iteration) {
    if (program->ends[iteration % program->cycle] >= 0) {
        program->n_ready++;
        program->n_ready_extra = 0;
    }
}

static void passed(void *state, const struct timeline_segment *segment) {
    struct program *program = state;
    if (segment->mark >= MARK_CUT) {
        program->n_ready_extra = program->cut_ready[segment->mark - MARK_CUT];
    } else if ((segment->mark == MARK_END_BACKWARD &&
                program->ready != PROGRAM_READY_AFTER_OPTIMIZER) ||
               segment->mark == MARK_END_OPTIMIZER) {
        generation_ready(program, segment->iteration);
    }
}

/* --- the links -------------------------------------------------------------------------------- */

static int next_op(void *state, uint32_t link, int64_t now_ns, struct timeline_op *out) {
    struct program *program = state;
    const struct dsched_plan *plan = program->plan;
    struct program_lane *lane = &program->lanes[link];
    uint64_t cycle;
    uint64_t generation;
    uint32_t i;
    uint32_t b;
    (void)now_ns;
    if (lane->n_ops == 0) {
        return 0;
    }
    cycle = lane->started / lane->n_ops;
    i = lane->ops[lane->started % lane->n_ops];
    b = i % plan->n_buckets;
    generation = cycle * plan->n_generations + i / plan->n_buckets;
    if (generation > program->n_ready ||
        (generation == program->n_ready && b >= program->n_ready_extra)) {
        return 0;
    }
    lane->started++;
    *out = (struct timeline_op){.ns = program->op_ns[i],
                                .iteration =
                                    cycle * program->cycle + program->last[i / plan->n_buckets],
                                .generation = generation,
                                .bucket = b,
                                .bytes = program->bytes[b],
                                .mark = i};
    return 1;
}

static void landed(void *state, uint32_t link, const struct timeline_op *op, int64_t now_ns) {
    struct program *program = state;
    (void)now_ns;
    program->lanes[link].landed++;
    if (program->landing != NULL) {
        uint64_t late = program->boundary > op->iteration ? program->boundary - op->iteration : 0;
        uint32_t *slot = &program->landing[op->mark];
        *slot = late > *slot ? (uint32_t)late : *slot;
    }
}

static uint32_t snapshot(const void *state, int64_t *out) {
    const struct program *program = state;
    uint64_t cycle = program->iteration / program->cycle;
    uint32_t n = 0;
    for (uint32_t l = 0; l < program->plan->n_links; l++) {
        const struct program_lane *lane = &program->lanes[l];
        out[n++] = (int64_t)lane->started - (int64_t)(cycle * lane->n_ops);
        out[n++] = (int64_t)lane->landed - (int64_t)(cycle * lane->n_ops);
    }
    return n;
}

const struct timeline_program program_ops = {
    .segment = next_segment,
    .is_open = is_open,
    .passed = passed,
    .op = next_op,
    .landed = landed,
    .snapshot = snapshot,
};
