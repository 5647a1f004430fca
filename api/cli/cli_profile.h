/* Profiles and plans from files, and the planner's options, for the commands that need no
 * controller. */
#ifndef CLI_PROFILE_H
#define CLI_PROFILE_H

#include <argp.h>
#include <stddef.h>

#include <deft/status.h>
#include <dsched/planner.h>
#include <dsched/profile.h>

#include "cli_price.h"

/* The largest profile that limits.h allows, 65,536 tensors, is about 14 MB of JSON. */
#define CLI_PROFILE_MAX_BYTES (64u << 20)

/* What sentences call it: the path, or "standard input". */
const char *cli_profile_label(const char *path);

/* The whole file, zero-terminated; "-" is standard input. */
DEFT_NODISCARD enum deft_status cli_profile_text(const char *path, char **out, size_t *out_bytes,
                                                 struct deft_error *error);
/* Read, decoded and checked. */
DEFT_NODISCARD enum deft_status cli_profile_read(const char *path, struct dsched_profile *out,
                                                 struct deft_error *error);

/* --max-merge --max-delay --rules --max-pending-bytes --jitter and those of cli_price.h, as an argp
 * child whose input is a struct cli_planner with its options filled in. Not to be moved after that:
 * options.progress points into it when statistics were given. */
struct cli_planner {
    struct dsched_planner_options options;
    int is_given; /* one of them was on the command line */
    struct cli_price price;
    struct dsched_progress progress;
};
extern const struct argp cli_profile_planner_argp;

/* dsched_solve with the scheduling library's sentence. */
DEFT_NODISCARD enum deft_status cli_profile_solve(const struct dsched_profile *profile,
                                                  const struct dsched_planner_options *options,
                                                  struct dsched_solution *out,
                                                  struct deft_error *error);
/* A failure of the scheduling library as one of ours. */
enum deft_status cli_profile_failed(enum dsched_status status, const struct dsched_error *reason,
                                    struct deft_error *error);

#endif
