/* The one discrete-event engine: a compute stream, and links that run beside it.
 *
 * A program says what happens: which compute segment comes next, whether its gate is open, and
 * which op a free link starts. The engine says when. Plans and the peers' rules are programs, so
 * all of them pay the same costs on the same clock. */
#ifndef TIMELINE_H
#define TIMELINE_H

#include <stdint.h>

#include <dsched/simulate.h>

/* A piece of the compute stream. It starts when the one before has ended and its gate is open;
 * the wait between is exposed time. */
struct timeline_segment {
    enum dsched_lane lane; /* FORWARD, BACKWARD or OPTIMIZER */
    int64_t work_ns;       /* on an otherwise idle machine; may be 0 */
    uint64_t iteration;
    uint32_t mark; /* the program's own */
};

/* One transfer that occupies a link. */
struct timeline_op {
    int64_t ns; /* before jitter */
    uint64_t iteration;
    uint64_t generation;
    uint32_t bucket;
    uint64_t bytes; /* for pictures; 0: not known */
    uint64_t mark;  /* the program's own */
};

/* Numbers a program may need to describe where in its cycle it stands. */
#define TIMELINE_SNAPSHOT (2 * DSCHED_MAX_LINKS)

struct timeline_program {
    /* The next segment, or 0 once at the end of each cycle. */
    int (*segment)(void *state, struct timeline_segment *out);
    int (*is_open)(void *state, const struct timeline_segment *segment);
    void (*passed)(void *state, const struct timeline_segment *segment);
    /* What the free `link` starts now; 0 for nothing. */
    int (*op)(void *state, uint32_t link, int64_t now_ns, struct timeline_op *out);
    void (*landed)(void *state, uint32_t link, const struct timeline_op *op, int64_t now_ns);
    /* At the end of a cycle: up to TIMELINE_SNAPSHOT numbers, relative to the cycle, which together
     * with what the links are doing determine everything that follows. Returns how many. */
    uint32_t (*snapshot)(const void *state, int64_t *out);
};

struct timeline_link {
    int is_busy;
    int64_t end_ns;
    int64_t busy_ns; /* total */
    struct timeline_op op;
    uint32_t contention_ppm;
};

struct timeline {
    const struct timeline_program *program;
    void *state;
    uint32_t jitter_ppm;
    dsched_span_fn on_span; /* in order of end for compute, of begin for links; may be NULL */
    void *context;

    int64_t now_ns;
    int64_t compute_ns; /* totals since the start */
    int64_t exposed_forward_ns;
    int64_t exposed_boundary_ns;
    uint64_t n_ops;
    uint32_t n_links;
    struct timeline_link links[DSCHED_MAX_LINKS];

    int has_segment;
    int is_running;
    int64_t since_ns;     /* begin of the segment, or of the wait for its gate */
    int64_t remaining_ns; /* work left */
    struct timeline_segment segment;
};

void timeline_init(struct timeline *timeline, const struct dsched_profile *profile,
                   const struct timeline_program *program, void *state, uint32_t jitter_ppm);

/* Runs to the end of the program's current cycle; ops in flight stay in flight. DSCHED_INVALID when
 * the program stalls: a gate waits for an op that no link will start. DSCHED_LIMIT when simulated
 * time leaves the range of int64. */
enum dsched_status timeline_run(struct timeline *timeline, struct dsched_error *error);

#endif
