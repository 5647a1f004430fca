/* --link, --world and --scale-compute: a profile as it would be elsewhere. */
#ifndef CLI_WHATIF_H
#define CLI_WHATIF_H

#include <argp.h>
#include <stdint.h>
#include <stdio.h>

#include <deft/status.h>
#include <dsched/limits.h>
#include <dsched/profile.h>

/* A profile cannot have more links, so more of them could not all take effect. */
#define CLI_WHATIF_MAX_LINKS DSCHED_MAX_LINKS

struct cli_whatif {
    uint32_t world;       /* 0: as in the profile */
    uint64_t compute_ppm; /* 0: as in the profile */
    uint32_t n_links;
    struct dsched_link links[CLI_WHATIF_MAX_LINKS]; /* contention_ppm 0: as before */
};

/* The three options, as an argp child whose input is a zeroed struct cli_whatif. */
extern const struct argp cli_whatif_argp;

/* First the world, then the links, which are as they were given, then compute. The profile's name
 * tells of it, so that every figure that leaves the program does. */
DEFT_NODISCARD enum deft_status cli_whatif_apply(const struct cli_whatif *whatif,
                                                 struct dsched_profile *profile,
                                                 struct deft_error *error);
/* What was changed and how, in a few lines; nothing without changes. `world` is the profile's own.
 */
void cli_whatif_print(const struct cli_whatif *whatif, uint32_t world, FILE *stream);

#endif
