/* The control channel: one tiny all-reduce per boundary on a connection of its own. What the ranks
 * say at boundary t is known and used by all of them at boundary t + CONTROL_LAG, so nobody waits
 * for it in practice, no clocks are needed, and a rank that lacks a plan keeps everybody on the old
 * one. Every CONTROL_FIGURES_EVERY boundaries a second one carries sums of what the training says
 * of itself, with the same lag.
 *
 * What ranks do together otherwise (a drain, averages on demand) begins with a call on the same
 * channel, of the shape of a vote: a rank that is elsewhere in its loop pairs its vote with it, and
 * whoever waits sees that, before data of different sizes meet on a link. */
#ifndef CONTROL_H
#define CONTROL_H

#include <stdint.h>

#include "link/link.h"

#define CONTROL_LAG           2u
#define CONTROL_FIGURES_EVERY 4u
_Static_assert(CONTROL_LAG < CONTROL_FIGURES_EVERY, "figures are used before the next are posted");

/* What one rank says, and what all ranks said. */
struct control_vote {
    uint64_t seq;  /* newest plan this rank could run */
    uint64_t hash; /* of that plan */
    uint64_t boundary;
    int drain;
    int stop;
    int finish;
};
struct control_result {
    int known;    /* 0 for the first CONTROL_LAG boundaries */
    int agreed;   /* all ranks named the same plan */
    uint64_t seq; /* that plan */
    int conflict; /* same seq, different hash: the controller's fault; nobody switches */
    int drain;    /* some rank wishes it, as for stop */
    int stop;
    int finish;      /* all ranks wish it */
    int out_of_step; /* ranks are at different boundaries: the caller's loop differs between ranks
                      */
};

enum control_kind {
    CONTROL_VOTE = 0,
    CONTROL_DRAIN = 1,
    CONTROL_STATES = 2,
    CONTROL_AVERAGE = 3,
    CONTROL_BROADCAST = 4,
};
struct control_call {
    enum control_kind kind; /* not CONTROL_VOTE */
    uint64_t boundary;
    int64_t detail; /* what must be alike, such as a size */
};
struct control_called {
    int same_call;   /* all ranks make the same call behind the same iteration */
    int same_detail; /* known where the call is the same */
};

/* Sums over CONTROL_FIGURES_EVERY iterations, of one rank or of all. Counts are exact below 2^53.
 */
struct control_figures {
    double loss; /* of the losses that are finite */
    double n_losses;
    double n_bad_losses; /* given, not finite */
    double grad_sq;      /* |g|^2 of a rank's own gradient, where it is finite */
    double n_grads;
};

#define CONTROL_VALUES 11u
struct control {
    const struct link_ops *ops;
    struct link *link; /* NULL in a world of one rank: a vote is its own result */
    struct control_round {
        int64_t values[CONTROL_VALUES];
        struct link_op op;
    } rounds[CONTROL_LAG + 1];
    struct control_round call;
    uint64_t n_posted;
    struct control_figures figures; /* posted by this rank, then of all ranks */
    struct link_op figures_op;
};

DEFT_NODISCARD enum deft_status control_post(struct control *control,
                                             const struct control_vote *vote);
/* The result that is due at the boundary voted last. `*out_wait_ns` is the time spent waiting. */
DEFT_NODISCARD enum deft_status control_result(struct control *control, struct control_result *out,
                                               int64_t *out_wait_ns);

/* Waits for all ranks. */
DEFT_NODISCARD enum deft_status
control_call(struct control *control, const struct control_call *call, struct control_called *out);

/* With the vote of every CONTROL_FIGURES_EVERY-th boundary. */
DEFT_NODISCARD enum deft_status control_post_figures(struct control *control,
                                                     const struct control_figures *own);
/* CONTROL_LAG boundaries later: the sums over all ranks, bit-equal on all of them. */
DEFT_NODISCARD enum deft_status
control_result_figures(struct control *control, struct control_figures *out, int64_t *out_wait_ns);

#endif
