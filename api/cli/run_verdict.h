/* The last line of `deft run`: what tuning brought, or why it brought nothing. */
#ifndef RUN_VERDICT_H
#define RUN_VERDICT_H

#include <stddef.h>

#include "cli_controller.h"
#include "wire/wire.h"

#define RUN_VERDICT_BYTES 1024u

/* "mnist-3f2a: step 212.4 -> 97.1 ms (2.19x), averaged k=2 since iteration 41, ..." from what the
 * controller knows of the job. `since_iteration`: when the running plan was chosen; 0: unknown. */
void run_verdict_text(const struct wire_job *job, uint64_t since_iteration,
                      char out[RUN_VERDICT_BYTES]);
/* Asks the controller and prints the line on standard error; a failure is one line too. */
void run_verdict_print(const struct cli_controller *controller, const char *job,
                       const char *state_dir);

#endif
