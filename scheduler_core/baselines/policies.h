/* The policies, one per file. */
#ifndef POLICIES_H
#define POLICIES_H

#include <dsched/simulate.h>

extern const struct dsched_policy policy_serial;
extern const struct dsched_policy policy_wfbp;
extern const struct dsched_policy policy_deft;

/* PyTorch DDP's bucket limits, with which serial and wfbp run. */
#define POLICIES_DDP_FIRST_BYTES (UINT64_C(1) << 20)
#define POLICIES_DDP_LATER_BYTES (UINT64_C(25) << 20)

#endif
