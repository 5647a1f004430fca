#include "steady.h"

#include <string.h>

/* Delays reach 64 boundaries, so a cycle of one iteration needs that many before it settles. */
#define MAX_CYCLES 256u
#define MIN_CYCLES 4u
/* Bounds the time of one simulation to about a second, whatever the plan. */
#define MAX_OPS 4000000u

/* Everything that determines the future, relative to the cycle. */
struct moment {
    uint32_t n_numbers;
    int64_t numbers[TIMELINE_SNAPSHOT];
    int64_t remaining_ns[DSCHED_MAX_LINKS];
    uint64_t cycle;
    struct timeline at; /* for its totals */
};

static void take_moment(const struct timeline *timeline, uint64_t cycle, struct moment *out) {
    memset(out->remaining_ns, 0, sizeof(out->remaining_ns));
    out->n_numbers = timeline->program->snapshot(timeline->state, out->numbers);
    for (uint32_t l = 0; l < timeline->n_links; l++) {
        const struct timeline_link *link = &timeline->links[l];
        out->remaining_ns[l] = link->is_busy ? link->end_ns - timeline->now_ns : -1;
    }
    out->cycle = cycle;
    out->at = *timeline;
}

static int is_same(const struct moment *a, const struct moment *b) {
    return memcmp(a->numbers, b->numbers, a->n_numbers * sizeof(a->numbers[0])) == 0 &&
           memcmp(a->remaining_ns, b->remaining_ns, sizeof(a->remaining_ns)) == 0;
}

static void subtract(const struct moment *from, const struct moment *to, struct steady *out) {
    out->first_cycle = from->cycle;
    out->n_cycles = to->cycle - from->cycle;
    out->total_ns = to->at.now_ns - from->at.now_ns;
    out->compute_ns = to->at.compute_ns - from->at.compute_ns;
    out->exposed_forward_ns = to->at.exposed_forward_ns - from->at.exposed_forward_ns;
    out->exposed_boundary_ns = to->at.exposed_boundary_ns - from->at.exposed_boundary_ns;
    for (uint32_t l = 0; l < to->at.n_links; l++) {
        out->busy_ns[l] = to->at.links[l].busy_ns - from->at.links[l].busy_ns;
    }
    out->n_ops = to->at.n_ops - from->at.n_ops;
}

/* Brent's method: the moment compared with is renewed at each power of two. When nothing repeats,
 * the last renewal is where the second half begins. */
enum dsched_status steady_run(struct timeline *timeline, uint64_t ops_per_cycle, struct steady *out,
                              struct dsched_error *error) {
    struct moment anchor;
    struct moment now;
    struct steady made = {0};
    uint64_t max_cycles = ops_per_cycle == 0 ? MAX_CYCLES : MAX_OPS / ops_per_cycle;
    max_cycles = max_cycles > MAX_CYCLES ? MAX_CYCLES : max_cycles;
    max_cycles = max_cycles < MIN_CYCLES ? MIN_CYCLES : max_cycles;
    take_moment(timeline, 0, &anchor);
    for (uint64_t cycle = 1; cycle <= max_cycles; cycle++) {
        enum dsched_status status = timeline_run(timeline, error);
        if (status != DSCHED_OK) {
            return status;
        }
        take_moment(timeline, cycle, &now);
        if (is_same(&anchor, &now)) {
            made.is_periodic = 1;
            break;
        }
        if ((cycle & (cycle - 1)) == 0 && cycle * 2 <= max_cycles) {
            anchor = now;
        }
    }
    subtract(&anchor, &now, &made);
    *out = made;
    return DSCHED_OK;
}
