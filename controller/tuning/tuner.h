/* The loop that decides: observe, solve, switch, judge, commit or roll back, watch.
 *
 * A pure state machine: iterations and solutions go in, decisions come out. It knows no clock, no
 * thread, no storage; equal inputs give equal decisions. Time is counted in iterations, so that
 * telemetry that arrives late is judged like telemetry that arrives at once. */
#ifndef TUNER_H
#define TUNER_H

#include <stdint.h>

#include <deft/status.h>
#include <dsched/plan.h>

enum tuner_mode {
    TUNER_OFF = 0,     /* history only */
    TUNER_OBSERVE = 1, /* says what could be gained, changes nothing */
    TUNER_AUTO = 2,
};

enum tuner_phase {
    TUNER_OBSERVING = 0, /* measures the exact plan */
    TUNER_SOLVING = 1,   /* a solution is awaited */
    TUNER_SWITCHING = 2, /* a plan is pushed, ranks have not switched */
    TUNER_CANARY = 3,    /* a plan runs and is being measured */
    TUNER_COMMITTED = 4, /* a plan has proved itself and is watched */
    TUNER_RETURNING = 5, /* the way back is pushed, ranks have not switched */
    TUNER_HALTED = 6,    /* this start of the job is left alone */
};

struct tuner_config {
    uint32_t n_skip;            /* first iterations of a job: allocators, caches, warm-up */
    uint32_t n_observe;         /* exact iterations before a solve */
    uint32_t n_settle;          /* least number of iterations ignored after a switch */
    uint32_t n_window;          /* least number of iterations of a measurement */
    uint32_t n_dwell;           /* iterations between a failed try and the next; doubles */
    uint32_t n_switch_timeout;  /* iterations ranks have to take up a plan */
    uint32_t min_predicted_ppm; /* a smaller predicted gain is not worth a switch */
    uint32_t min_measured_ppm;  /* a smaller measured gain is rolled back */
    uint32_t refine_ppm;        /* worse than predicted by more than this: solve once more */
    uint32_t drift_ppm;         /* worse than it was by more than this: solve again */
};
void tuner_defaults(struct tuner_config *config);

/* A plan as far as it matters here. seq 0 is the exact plan that is built into the runtime. */
struct tuner_plan {
    uint64_t seq;
    uint64_t hash;
    uint32_t rule; /* enum dsched_rule */
    uint32_t cycle;
    uint32_t merge; /* largest */
    uint32_t delay; /* largest */
    uint32_t updates_ppm;
    int is_exact; /* the baseline: every gain is measured against such plans */
    int64_t predicted_step_ns;
};

#define TUNER_WINDOW_ROWS 512u

struct tuner {
    struct tuner_config config;
    /* What a restart of the controller must keep. */
    enum tuner_mode mode;
    enum tuner_phase phase;
    uint64_t next_seq;
    struct tuner_plan running;
    struct tuner_plan previous; /* where a roll-back goes */
    struct tuner_plan pushed;   /* SWITCHING, RETURNING: what the ranks should take up */
    uint64_t iteration;         /* newest that was seen */
    uint64_t pushed_iteration;
    uint64_t wait_until;  /* no new try before this iteration */
    uint64_t failed_hash; /* plan that was rolled back last */
    uint32_t backoff;
    uint32_t n_switches;
    uint32_t n_rollbacks;
    int refined;
    int finite_loss;           /* the newest loss under an exact plan was finite */
    int64_t exact_step_ns;     /* 0: not measured yet */
    int64_t before_step_ns;    /* measured right before the newest switch */
    int64_t step_ns;           /* newest measurement of the running plan */
    int64_t reference_step_ns; /* what the running plan is held to */
    int64_t best_step_ns;      /* predicted by the newest solution */
    /* What a restart measures anew. */
    uint32_t n_skipping;
    uint32_t n_window; /* rows, at most TUNER_WINDOW_ROWS */
    uint32_t n_since;  /* rows since the last look at the window */
    uint32_t n_drift;  /* looks in a row that found drift */
    uint32_t at;       /* next row */
    struct {
        uint64_t iteration;
        int64_t step_ns;
    } window[TUNER_WINDOW_ROWS];
};

enum tuner_kind {
    TUNER_NOTHING = 0,
    TUNER_SOLVE,    /* build a profile, solve, call tuner_solved; not recorded */
    TUNER_OBSERVED, /* mode observe: what could be gained */
    TUNER_PUSH,     /* push the proposal as plan_seq */
    TUNER_COMMIT,
    TUNER_ROLL_BACK, /* push the plan that was target_seq (0: exact) as plan_seq */
    TUNER_KEEP,
    TUNER_REFUSED,
    TUNER_HALT, /* as ROLL_BACK, and nothing is tried again */
};

struct tuner_decision {
    enum tuner_kind kind;
    uint64_t iteration;
    uint64_t plan_seq;
    uint64_t target_seq;
    int64_t exact_step_ns;
    int64_t before_step_ns;
    int64_t predicted_step_ns;
    int64_t measured_step_ns;
    char reason[320];
};
/* "push", ...; as in the API. */
const char *tuner_kind_name(enum tuner_kind kind);
const char *tuner_phase_name(enum tuner_phase phase);
const char *tuner_mode_name(enum tuner_mode mode);
/* DEFT_INVALID for an unknown name. */
DEFT_NODISCARD enum deft_status tuner_mode_parse(const char *name, enum tuner_mode *out);

/* One iteration that all ranks have reported. */
struct tuner_sample {
    uint64_t iteration;
    uint64_t plan_seq;
    int64_t step_ns; /* of the slowest rank; 0: unknown */
    int loss;        /* 1: finite, 0: none given, -1: not finite on some rank */
};

void tuner_init(struct tuner *tuner, const struct tuner_config *config, enum tuner_mode mode);
/* After a restart: state was restored, measurements begin anew. */
void tuner_resume(struct tuner *tuner);

/* Each call makes at most one decision; kind is TUNER_NOTHING when there is none. */
void tuner_sample(struct tuner *tuner, const struct tuner_sample *sample,
                  struct tuner_decision *out);
/* The answer to TUNER_SOLVE. `proposal->seq` is ignored. NULL: none was found, for `why`. */
void tuner_solved(struct tuner *tuner, const struct tuner_plan *proposal, const char *why,
                  struct tuner_decision *out);
/* A rank will not run plan `seq`. */
void tuner_refused(struct tuner *tuner, uint64_t seq, const char *why, struct tuner_decision *out);
void tuner_set_mode(struct tuner *tuner, enum tuner_mode mode, struct tuner_decision *out);

/* Robust mean step of the newest whole cycles, 0 when the window is too short. */
int64_t tuner_measure(const struct tuner *tuner, uint32_t cycle);
/* The newest measurement of the running plan or, before there is one, the mean of what has been
 * seen of it: for people, not for decisions. 0: nothing has been seen. */
int64_t tuner_estimate(const struct tuner *tuner);

#endif
