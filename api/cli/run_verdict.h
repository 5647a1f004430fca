/* The last line of `deft run`: what tuning brought, or why it brought nothing. */
#ifndef RUN_VERDICT_H
#define RUN_VERDICT_H

#include <stddef.h>

#include "wire/wire.h"

#define RUN_VERDICT_BYTES 1024u

/* "mnist-3f2a: step 212.4 -> 97.1 ms (2.19x), averaged k=2 since plan 1, ..." from what the
 * controller knows of the job. */
void run_verdict_text(const struct wire_job *job, char out[RUN_VERDICT_BYTES]);
/* Asks the controller and prints the line on standard error; a failure is one line too. */
void run_verdict_print(const char *url, const char *job, const char *state_dir);

#endif
