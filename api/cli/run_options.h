/* What `deft run` was asked to do. */
#ifndef RUN_OPTIONS_H
#define RUN_OPTIONS_H

#include <limits.h>
#include <stdint.h>

#include <deft/status.h>

#include "client/client_options.h"

#define RUN_MAX_RANKS 1024u /* what one agent serves */
#define RUN_JOB_BYTES 96u   /* fits every id field of the wire with room for suffixes */

struct run_options {
    uint32_t n_ranks;
    const char *mode;
    const char *controller; /* NULL: one on loopback is used or started */
    struct client_options credentials;
    const char *links;  /* NULL: as the environment says */
    uint32_t max_merge; /* 0: the controller's default */
    uint32_t max_delay;
    int keep;
    int no_prefix;
    const char *const *command; /* NULL-terminated */
    char job[RUN_JOB_BYTES];
    char name[RUN_JOB_BYTES];
    char state_dir[PATH_MAX / 2];
};

/* Job id and name from `wished` or, when that is NULL, from the command: the script's name if the
 * program is an interpreter, and a random suffix. */
DEFT_NODISCARD enum deft_status run_options_name(struct run_options *options, const char *wished,
                                                 struct deft_error *error);

#endif
