/* The policies, one per file. */
#ifndef POLICIES_H
#define POLICIES_H

#include <dsched/simulate.h>

extern const struct dsched_policy policy_serial;
extern const struct dsched_policy policy_wfbp;
extern const struct dsched_policy policy_mg_wfbp;
extern const struct dsched_policy policy_bytescheduler;
extern const struct dsched_policy policy_us_byte;
extern const struct dsched_policy policy_dear;
extern const struct dsched_policy policy_pipesgd;
extern const struct dsched_policy policy_sapipe;
extern const struct dsched_policy policy_deft_paper;
extern const struct dsched_policy policy_deft;

#define POLICIES_NOTE_BYTES sizeof(((struct dsched_outcome *)0)->note)

/* PyTorch DDP's bucket limits, with which serial and wfbp run. */
#define POLICIES_DDP_FIRST_BYTES (UINT64_C(1) << 20)
#define POLICIES_DDP_LATER_BYTES (UINT64_C(25) << 20)

#endif
