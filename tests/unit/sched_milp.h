/* The planner's problem as mixed-integer programs, for the oracle. Needs GLPK. */
#ifndef SCHED_MILP_H
#define SCHED_MILP_H

#include <dsched/profile.h>

/* Over all ways to cut a profile's gradient space at tensor ends and to give each bucket a link:
 * the earliest landing of the last bucket, from the begin of backward. */
int64_t milp_landing_ns(const struct dsched_profile *profile);
/* The least work of the busiest link. */
int64_t milp_work_ns(const struct dsched_profile *profile);

#endif
