/* What the all-reduces of a job tell about its link. */
#ifndef KINETO_CURVE_H
#define KINETO_CURVE_H

#include <deft/status.h>
#include <dsched/profile.h>

#include "kineto.h"

/* Fills the samples of `link`: per size the low quantile of its transfers, at most that of any
 * larger size, since what is above is waiting. One more sample is all buckets at once in the time
 * of one after the other: no gain from fusing is promised that was not measured. */
DEFT_NODISCARD enum deft_status
kineto_curve_fit(const struct kineto_job *job, struct dsched_link *link, struct deft_error *error);

#endif
