/* The plug-in's options, as registered with srun, sbatch, salloc and slurmstepd. */
#ifndef SPANK_FLAGS_H
#define SPANK_FLAGS_H

#include <slurm/slurm_errno.h>
#include <stdint.h>

#include <slurm/spank.h>

#include "core/spank_config.h"

/* Registers every option. A value that is wrong is refused with a sentence where the user is, and
 * kept as it is in slurmstepd, where spank_config_settle then says so. */
int spank_flags_register(spank_t spank);
/* What was given so far, the last value of each. */
const struct spank_config_values *spank_flags_given(void);
/* In slurmstepd: what is wrong with the last value that was; "" if nothing is. */
const char *spank_flags_wrong(void);

#endif
