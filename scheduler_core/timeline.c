#include "timeline.h"

#include "muldiv.h"
#include "refuse.h"

#include <inttypes.h>
#include <string.h>

/* No single event adds more than a stretched DSCHED_MAX_TIME_NS, so sums cannot overflow below
 * this. */
#define MAX_NOW_NS (INT64_MAX / 4)

void timeline_init(struct timeline *timeline, const struct dsched_profile *profile,
                   const struct timeline_program *program, void *state, uint32_t jitter_ppm) {
    memset(timeline, 0, sizeof(*timeline));
    timeline->program = program;
    timeline->state = state;
    timeline->jitter_ppm = jitter_ppm;
    timeline->n_links = profile->n_links;
    for (uint32_t l = 0; l < profile->n_links; l++) {
        timeline->links[l].contention_ppm = profile->links[l].contention_ppm;
    }
}

static void report_span(const struct timeline *timeline, struct dsched_span span) {
    if (timeline->on_span != NULL && span.end_ns > span.begin_ns) {
        timeline->on_span(timeline->context, &span);
    }
}

static void report_compute(const struct timeline *timeline, enum dsched_lane lane) {
    report_span(timeline, (struct dsched_span){.lane = lane,
                                               .iteration = timeline->segment.iteration,
                                               .begin_ns = timeline->since_ns,
                                               .end_ns = timeline->now_ns});
}

static void start_ops(struct timeline *timeline) {
    for (uint32_t l = 0; l < timeline->n_links; l++) {
        struct timeline_link *link = &timeline->links[l];
        int64_t ns;
        if (link->is_busy ||
            !timeline->program->op(timeline->state, l, timeline->now_ns, &link->op)) {
            continue;
        }
        ns = timeline->jitter_ppm == 0 ? link->op.ns
                                       : muldiv_stretch(link->op.ns, timeline->jitter_ppm);
        link->is_busy = 1;
        link->end_ns = timeline->now_ns + ns;
        link->busy_ns += ns;
        timeline->n_ops++;
        report_span(timeline, (struct dsched_span){.lane = DSCHED_LANE_LINK,
                                                   .link = l,
                                                   .iteration = link->op.iteration,
                                                   .generation = link->op.generation,
                                                   .bucket = link->op.bucket,
                                                   .bytes = link->op.bytes,
                                                   .begin_ns = timeline->now_ns,
                                                   .end_ns = link->end_ns});
    }
}

/* Takes the next segment when there is none and starts it when its gate is open. Returns 0 at the
 * end of the cycle. */
static int start_segment(struct timeline *timeline) {
    if (!timeline->has_segment) {
        if (!timeline->program->segment(timeline->state, &timeline->segment)) {
            return 0;
        }
        timeline->has_segment = 1;
        timeline->is_running = 0;
        timeline->since_ns = timeline->now_ns;
        timeline->remaining_ns = timeline->segment.work_ns;
    }
    if (!timeline->is_running && timeline->program->is_open(timeline->state, &timeline->segment)) {
        int64_t waited_ns = timeline->now_ns - timeline->since_ns;
        if (timeline->segment.lane == DSCHED_LANE_FORWARD) {
            timeline->exposed_forward_ns += waited_ns;
        } else {
            timeline->exposed_boundary_ns += waited_ns;
        }
        report_compute(timeline, DSCHED_LANE_EXPOSED);
        timeline->is_running = 1;
        timeline->since_ns = timeline->now_ns;
    }
    return 1;
}

static void finish_segment(struct timeline *timeline) {
    report_compute(timeline, timeline->segment.lane);
    timeline->compute_ns += timeline->now_ns - timeline->since_ns;
    timeline->has_segment = 0;
    timeline->program->passed(timeline->state, &timeline->segment);
}

/* Busy links share one memory system: the strongest slow-down rules, they do not multiply. */
static uint32_t contention(const struct timeline *timeline) {
    uint32_t ppm = (uint32_t)MULDIV_PPM;
    for (uint32_t l = 0; l < timeline->n_links; l++) {
        const struct timeline_link *link = &timeline->links[l];
        if (link->is_busy && link->contention_ppm > ppm) {
            ppm = link->contention_ppm;
        }
    }
    return ppm;
}

static void advance(struct timeline *timeline, int64_t compute_end_ns, uint32_t contention_ppm,
                    int64_t next_ns) {
    int64_t passed_ns = next_ns - timeline->now_ns;
    timeline->now_ns = next_ns;
    if (timeline->is_running && timeline->has_segment) {
        if (compute_end_ns == next_ns) {
            timeline->remaining_ns = 0;
        } else if (contention_ppm == MULDIV_PPM) {
            timeline->remaining_ns -= passed_ns;
        } else {
            timeline->remaining_ns -=
                (int64_t)muldiv_down((uint64_t)passed_ns, MULDIV_PPM, contention_ppm, INT64_MAX);
        }
    }
    for (uint32_t l = 0; l < timeline->n_links; l++) {
        struct timeline_link *link = &timeline->links[l];
        if (link->is_busy && link->end_ns == next_ns) {
            link->is_busy = 0;
            timeline->program->landed(timeline->state, l, &link->op, next_ns);
        }
    }
}

enum dsched_status timeline_run(struct timeline *timeline, struct dsched_error *error) {
    for (;;) {
        int64_t next_ns = INT64_MAX;
        int64_t compute_end_ns = INT64_MAX;
        uint32_t contention_ppm;
        start_ops(timeline);
        if (!start_segment(timeline)) {
            return DSCHED_OK;
        }
        if (timeline->is_running && timeline->remaining_ns == 0) {
            finish_segment(timeline);
            continue;
        }
        contention_ppm = contention(timeline);
        if (timeline->is_running) {
            int64_t ns = contention_ppm == MULDIV_PPM
                             ? timeline->remaining_ns
                             : (int64_t)muldiv_up((uint64_t)timeline->remaining_ns, contention_ppm,
                                                  MULDIV_PPM, MAX_NOW_NS);
            compute_end_ns = timeline->now_ns + ns;
            next_ns = compute_end_ns;
        }
        for (uint32_t l = 0; l < timeline->n_links; l++) {
            if (timeline->links[l].is_busy && timeline->links[l].end_ns < next_ns) {
                next_ns = timeline->links[l].end_ns;
            }
        }
        if (next_ns == INT64_MAX) {
            return refuse(error, DSCHED_INVALID,
                          "iteration %" PRIu64
                          " waits for communication that no link will ever start",
                          timeline->segment.iteration);
        }
        if (next_ns > MAX_NOW_NS) {
            return refuse(error, DSCHED_LIMIT,
                          "simulated time passes %" PRId64
                          " ns, but the sum of all durations must stay below",
                          MAX_NOW_NS);
        }
        advance(timeline, compute_end_ns, contention_ppm, next_ns);
    }
}
