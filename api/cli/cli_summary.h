/* Policies over many profiles: how much faster, at the median and at worst. */
#ifndef CLI_SUMMARY_H
#define CLI_SUMMARY_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <deft/status.h>
#include <dsched/simulate.h>

#include "cli_policy.h"

/* Step times and update frequencies, a row per profile, a column per policy of dsched_policies. */
struct cli_summary_row {
    const char *path;
    int64_t step_ns[CLI_POLICY_MAX];
    double updates_per_step[CLI_POLICY_MAX];
    uint32_t max_delay[CLI_POLICY_MAX];
};
struct cli_summary {
    size_t n;
    size_t capacity;
    struct cli_summary_row *rows;
};

DEFT_NODISCARD enum deft_status cli_summary_init(struct cli_summary *summary, size_t capacity,
                                                 struct deft_error *error);
/* The next row, zeroed; at most `capacity` times. */
struct cli_summary_row *cli_summary_add(struct cli_summary *summary, const char *path);
/* The table, and what deft gains over its peers. Fails without memory only. */
DEFT_NODISCARD enum deft_status cli_summary_print(const struct cli_summary *summary, FILE *stream,
                                                  struct deft_error *error);
void cli_summary_done(struct cli_summary *summary);

#endif
