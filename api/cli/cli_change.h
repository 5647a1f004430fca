/* What the commands that change one job share: its id, a value, and a reason for the record. */
#ifndef CLI_CHANGE_H
#define CLI_CHANGE_H

#include <argp.h>

#include "cli_controller.h"

struct cli_change {
    struct cli_controller controller;
    const char *job;
    const char *value; /* NULL: none was given */
    const char *reason;
};
/* For argp's children: JOB, at most one value, --reason and what cli_controller_argp has. The input
 * is a struct cli_change. */
extern const struct argp cli_change_argp;

/* PUTs `body` to /api/v1/jobs/{job}REST; a body of NULL: GETs it. */
DEFT_NODISCARD enum deft_status cli_change_put(struct cli_change *change, const char *rest,
                                               const char *body, struct http_reply *out,
                                               struct deft_error *error);

#endif
