/* What a rank finds in its environment. */
#ifndef RUN_ENVIRONMENT_H
#define RUN_ENVIRONMENT_H

#include <stdint.h>

#include <deft/status.h>

#include "run_options.h"

/* What is the same for all ranks. */
struct run_environment {
    const struct run_options *options;
    const char *agent_socket; /* NULL: none, the ranks train untuned */
    uint16_t master_port;
};

/* A NULL-terminated copy of ours with DEFT_RANK, DEFT_WORLD_SIZE, DEFT_LOCAL_RANK, DEFT_JOB_ID,
 * DEFT_JOB_NAME, DEFT_MASTER_ADDR (kept if set), DEFT_MASTER_PORT, DEFT_AGENT_SOCKET and DEFT_LINKS
 * (kept unless given). Release with run_environment_free. */
DEFT_NODISCARD enum deft_status run_environment_make(const struct run_environment *environment,
                                                     uint32_t rank, char ***out,
                                                     struct deft_error *error);
void run_environment_free(char **environment); /* takes NULL */

/* A TCP port that is free now. */
DEFT_NODISCARD enum deft_status run_environment_port(uint16_t *out_port, struct deft_error *error);

#endif
