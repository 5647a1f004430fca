/* The part of tuner_core that compares losses under a plan with those under exact. */
#ifndef TUNER_COMPARE_H
#define TUNER_COMPARE_H

#include "tuning/tuner_core.h"

/* After an iteration that led to no other decision, or with one. */
void tuner_compare_look(struct tuner_call *core);
/* The next triple comes later, ever later. */
void tuner_compare_later(struct tuner_call *core);
void tuner_compare_start_triple(struct tuner_call *core);

/* The canary has proved itself; `guard` says how its losses did. */
void tuner_compare_commit(struct tuner_call *core, const char *guard);
void tuner_compare_commit_uncompared(struct tuner_call *core);

/* A loss that has jumped since a restart, or is not finite, is waited for; without a usable one the
 * step decides. One that breaks now and then by habit is not waited for while it is finite. */
int tuner_compare_waits_for_loss(const struct tuner_evidence *evidence);

#endif
