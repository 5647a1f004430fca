/* Two cycles of a policy or plan as lanes of text: compute, and each link. */
#ifndef CLI_CHART_H
#define CLI_CHART_H

#include <stdio.h>

#include <dsched/profile.h>
#include <dsched/window.h>

#define CLI_CHART_COLUMNS 96u

/* f forward, b backward, o optimizer, . waiting; on links the last digit of the generation. */
void cli_chart_print(const struct dsched_profile *profile, const struct dsched_window *window,
                     FILE *stream);

#endif
