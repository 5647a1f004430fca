/* The loop that decides: observe, solve, switch, judge, commit or roll back, watch.
 *
 * Three layers. tuner.c takes samples in and keeps what is measured: step times (tuner_window.c),
 * losses and gradients (quantify.c), the paired windows of the guard. tuner_core.c decides: its
 * answer depends on nothing but a state, the configuration and one piece of evidence, all of which
 * are stored with each decision, so that it can be decided again later (tuner_state.c prints and
 * reads them). No clock, no thread, no storage; equal inputs give equal decisions. Time is counted
 * in iterations, so that telemetry that arrives late is judged like telemetry that arrives at once.
 *
 * A plan starts as a canary: it must be faster. It was solved from iterations of another plan,
 * which are not quite like its own: exact's optimizer, for one, waits for data that the network has
 * just written. So what the canary itself takes is solved with once more, before anything is
 * compared.
 *
 * The guard. The losses of a canary must fall as they do under exact in a triple of windows, exact
 * before, plan, exact after (dsched_drift). Then it is committed, and the triple is repeated, ever
 * more rarely, or at once when the loss rises. Beside that the ranks themselves leave a plan whose
 * loss or gradient exceeds the fuse it came with. */
#ifndef TUNER_H
#define TUNER_H

#include <stdint.h>

#include <deft/status.h>
#include <dsched/convergence.h>
#include <dsched/loss.h>
#include <dsched/plan.h>

#include "tuning/quantify.h"

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
    TUNER_COMPARING = 7, /* exact is pushed or runs, for a window of the guard */
    TUNER_RESUMING = 8,  /* the plan is pushed again after such a window */
};

struct tuner_config {
    uint32_t n_skip;            /* first iterations of a job: allocators, caches */
    uint32_t n_warmup;          /* iterations that run exact whatever is measured */
    uint32_t n_observe;         /* exact iterations before a solve */
    uint32_t n_settle;          /* least number of iterations ignored after a switch */
    uint32_t n_window;          /* least number of iterations of a measurement */
    uint32_t n_dwell;           /* iterations between a failed try and the next; doubles */
    uint32_t n_switch_timeout;  /* iterations ranks have to take up a plan */
    uint32_t n_guard;           /* iterations between the first two triples; doubles */
    uint32_t n_guard_most;      /* at most this */
    uint32_t min_predicted_ppm; /* a smaller predicted gain is not worth a switch */
    uint32_t min_measured_ppm;  /* a smaller measured gain is rolled back */
    uint32_t refine_ppm;        /* a canary off its prediction by more: solve once more */
    uint32_t drift_ppm;         /* other than it was by more than this: solve again */
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
    uint32_t progress_ppm; /* per sample, relative to exact; gains are of step and progress */
    int is_exact;          /* the baseline: every gain is measured against such plans */
    int64_t predicted_step_ns;
};

/* What a decision may depend on, and what a restart of the controller must keep. */
struct tuner_state {
    enum tuner_mode mode;
    enum tuner_phase phase;
    uint64_t next_seq;
    struct tuner_plan running;
    struct tuner_plan previous; /* where a roll-back goes */
    struct tuner_plan pushed;   /* what the ranks should take up */
    struct tuner_plan guarded;  /* COMPARING, RESUMING: the plan that the windows are about */
    uint64_t iteration;         /* newest that was seen */
    uint64_t n_iterations;      /* seen since the start of the job */
    uint64_t pushed_iteration;
    uint64_t wait_until;  /* no new try before this iteration */
    uint64_t failed_hash; /* plan that was rolled back last */
    uint64_t pin_hash;    /* plan that an operator wants; 0: none */
    uint64_t guard_at;    /* iteration of the next triple; 0: no plan is committed */
    uint64_t n_triples;   /* of the guard, when the present one began */
    uint32_t guard_every;
    uint32_t backoff;
    uint32_t n_switches;
    uint32_t n_rollbacks;
    uint32_t n_step_backs;  /* of which: for the loss. The second one halts */
    uint32_t most_merge;    /* a plan of one more was left for its loss; 0: none was */
    uint32_t n_drift;       /* looks in a row that found the step longer or shorter */
    int is_frozen;          /* no plan is looked for: what runs stays, unless the guard leaves it */
    int may_retry;          /* the plan of failed_hash was not faster, once */
    int refined;            /* the canary, or one before it, was solved for once more */
    int is_real;            /* the canary is faster; its losses are still to be judged */
    int previous_on_trial;  /* so was `previous` when a better plan took its place */
    int is_committed;       /* the guarded plan was committed before this triple */
    int is_paired;          /* a triple is under way */
    int finite_loss;        /* the newest loss under an exact plan was finite */
    int64_t exact_step_ns;  /* 0: not measured yet */
    int64_t before_step_ns; /* measured right before the newest switch or solution */
    int64_t step_ns;        /* newest measurement of the running plan */
    int64_t canary_step_ns; /* of the guarded plan, when it was found to be faster */
    int64_t reference_step_ns; /* what the running plan is held to */
    int64_t best_step_ns;      /* predicted by the newest solution */
};

enum tuner_event {
    TUNER_ITERATION = 0, /* one that all ranks have reported */
    TUNER_SOLUTION = 1,  /* the answer to TUNER_SOLVE */
    TUNER_REFUSAL = 2,   /* a rank will not run plan_seq */
    TUNER_FUSE = 3,      /* all ranks have left plan_seq for exact by themselves */
    TUNER_MODE = 4,      /* an operator changed the mode */
    TUNER_HOLD = 5,      /* an operator pinned a plan, froze the job, or took that back */
};
/* What a decision is made on. Members that an event does not need are 0. */
struct tuner_evidence {
    enum tuner_event event;
    uint64_t iteration;
    uint64_t plan_seq;
    int64_t step_ns; /* ITERATION: a complete measurement of the running plan; 0: none yet */
    int loss;        /* 1: finite, 0: none given, -1: not finite on some rank; 0 under a plan when
                       the job has such losses under exact, too */
    enum dsched_loss_state loss_state;
    int loss_breaks;                /* losses that are not finite are this job's habit */
    int rate_rises;                 /* the learning rate warms up */
    int loss_rises;                 /* above the lowest level of this plan */
    enum dsched_drift_result drift; /* of the guard's test */
    enum dsched_drift_label wants;  /* which window it needs next */
    uint64_t n_triples;
    double drift_z;
    int has_proposal; /* SOLUTION */
    struct tuner_plan proposal;
    int64_t running_ns;   /* SOLUTION: what the same profile foretells of the plan that runs */
    enum tuner_mode mode; /* MODE */
    int is_frozen;        /* HOLD */
    uint64_t pin_hash;    /* HOLD */
    char text[320];       /* ITERATION: what the loss says; SOLUTION: the price, or why there is no
                             proposal; REFUSAL, FUSE: the rank's sentence; MODE: why, if it is no
                             operator's doing */
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
    TUNER_HALT,    /* as ROLL_BACK, and nothing is tried again; plan_seq 0: the ranks are there */
    TUNER_COMPARE, /* push exact as plan_seq, for a window of the guard */
    TUNER_RESUME,  /* push the plan that was target_seq as plan_seq */
    TUNER_FUSED,   /* the ranks are back at exact, nothing is pushed */
    TUNER_N_KINDS,
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
    char reason[WIRE_TEXT_BYTES];
    /* What it was made of, for tuner_core. */
    struct tuner_state before;
    struct tuner_evidence evidence;
};
/* "push", ...; as in the API. */
const char *tuner_kind_name(enum tuner_kind kind);
extern const char *const tuner_phase_names[]; /* by enum tuner_phase, and NULL */
extern const char *const tuner_mode_names[];  /* by enum tuner_mode, and NULL */
const char *tuner_phase_name(enum tuner_phase phase);
const char *tuner_mode_name(enum tuner_mode mode);
/* DEFT_INVALID for an unknown name. */
DEFT_NODISCARD enum deft_status tuner_mode_parse(const char *name, enum tuner_mode *out);
/* The decision gives the ranks plan_seq. */
int tuner_pushes(const struct tuner_decision *decision);

/* --- the core --------------------------------------------------------------------------------- */

void tuner_state_init(struct tuner_state *state, enum tuner_mode mode);
/* At most one decision; kind is TUNER_NOTHING when there is none. The only function that changes a
 * state. Returns 1 when another plan runs now: measurements begin anew. */
int tuner_core(const struct tuner_config *config, struct tuner_state *state,
               const struct tuner_evidence *evidence, struct tuner_decision *out);

/* --- the shell -------------------------------------------------------------------------------- */

#define TUNER_WINDOW_ROWS 512u

struct tuner {
    struct tuner_config config;
    struct tuner_state state;
    struct quantify quantify;
    /* What a restart measures anew. */
    struct dsched_drift drift;
    struct dsched_drift before; /* the same when a canary took over from exact */
    uint64_t n_triples;         /* counts on when the drift test starts over */
    uint32_t n_settling;        /* iterations whose losses the guard is still to leave out */
    uint32_t n_skipping;
    uint32_t n_window; /* rows, at most TUNER_WINDOW_ROWS */
    uint32_t n_since;  /* rows since the last look at the window */
    uint32_t at;       /* next row */
    struct {
        uint64_t iteration;
        int64_t step_ns;
    } window[TUNER_WINDOW_ROWS];
};

/* One iteration that all ranks have reported. */
struct tuner_sample {
    uint64_t plan_seq;
    int64_t step_ns;                /* of the slowest rank; 0: unknown */
    struct quantify_sample figures; /* is_exact is filled in here */
};

void tuner_init(struct tuner *tuner, const struct tuner_config *config, enum tuner_mode mode,
                const struct quantify_job *job, const struct wire_limits *limits);
/* After a restart: the state was restored, measurements begin anew. */
void tuner_resume(struct tuner *tuner);

void tuner_sample(struct tuner *tuner, const struct tuner_sample *sample,
                  struct tuner_decision *out);
/* The answer to TUNER_SOLVE, where a plan is pinned: that one. `proposal->seq` is ignored. NULL:
 * none was found; `text` says why, or what the proposal costs. `running_ns` is the step that the
 * same profile foretells for the plan that runs, 0 where that is exact: what the profile does not
 * know of this job it does not know of either plan. */
void tuner_solved(struct tuner *tuner, const struct tuner_plan *proposal, int64_t running_ns,
                  const char *text, struct tuner_decision *out);
/* A rank will not run plan `seq`. */
void tuner_refused(struct tuner *tuner, uint64_t seq, const char *why, struct tuner_decision *out);
/* The ranks have left plan `seq` at `iteration`. */
void tuner_fused(struct tuner *tuner, uint64_t seq, uint64_t iteration, const char *why,
                 struct tuner_decision *out);
void tuner_set_mode(struct tuner *tuner, enum tuner_mode mode, struct tuner_decision *out);
/* The same with off, for a reason that is no operator's. */
void tuner_leave(struct tuner *tuner, const char *why, struct tuner_decision *out);
/* `pin_hash` 0: none. While a plan is pinned no other is tried: under mode auto it is pushed when
 * the job is ready for one, whatever gain is predicted, and stays however long its steps are. Only
 * the guard of the losses, the fuse, a refusal or a loss that is not finite end it; then the job is
 * exact until it is pinned anew. Leads to no decision by itself. */
void tuner_set_hold(struct tuner *tuner, uint64_t pin_hash, int is_frozen);

/* Robust mean step of the newest whole cycles, 0 when the window is too short. */
int64_t tuner_measure(const struct tuner *tuner, uint32_t cycle);
/* The newest measurement of the running plan or, before there is one, the mean of what has been
 * seen of it: for people, not for decisions. 0: nothing has been seen. */
int64_t tuner_estimate(const struct tuner *tuner);
/* What is going on, for people: "warming up, 34 of 100 iterations". */
#define TUNER_STATUS_BYTES 256u
void tuner_status(const struct tuner *tuner, char out[TUNER_STATUS_BYTES]);

#endif
