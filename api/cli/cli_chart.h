/* Two cycles of a plan as lanes of text: compute, and each link. */
#ifndef CLI_CHART_H
#define CLI_CHART_H

#include <stdio.h>

#include <deft/status.h>
#include <dsched/plan.h>
#include <dsched/profile.h>

#define CLI_CHART_COLUMNS 96u

/* f forward, b backward, o optimizer, . waiting; on links the last digit of the generation. */
DEFT_NODISCARD enum deft_status cli_chart_print(const struct dsched_profile *profile,
                                                const struct dsched_plan *plan, FILE *stream,
                                                struct deft_error *error);

#endif
