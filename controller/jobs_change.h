/* What one decision changes: gathered with the lock held, written without it, and told to the
 * agents once it is on disk. Only for the jobs*.c files. */
#ifndef JOBS_CHANGE_H
#define JOBS_CHANGE_H

#include "jobs_live.h"

/* Texts are malloc'ed, NULL while there are none; `write` points to them. */
struct jobs_change {
    struct store_change write;
    struct wire_decision decision;
    char id_text[STORE_ID_BYTES];
    char job[WIRE_ID_BYTES];
    char state[16];
    char *summary;
    char *tuner;
    char *profile;
    char *plan; /* deft.plan/1 */
    char *solution;
    char *inputs;
    char *solve;
    char *event; /* the data of the plan's event */
};
void jobs_change_init(struct jobs_change *change);
void jobs_change_done(struct jobs_change *change);

/* With the lock held: the state of the incarnation, to be written with whatever else changes. */
DEFT_NODISCARD enum deft_status jobs_change_snapshot(const struct jobs_live *live,
                                                     struct jobs_change *change,
                                                     struct deft_error *error);
/* Without the lock, on the thread of the jobs: records a decision and pushes its plan, which is the
 * one in `change` or, where there is none, the one that the decision goes back to. A plan that
 * could not be recorded is refused in the name of the ranks; the rest is logged. */
void jobs_change_enact(struct jobs *jobs, int64_t id, const struct tuner_decision *decision,
                       struct jobs_change *change);

#endif
