/* From what was observed to what the scheduling library plans with. Pure. */
#ifndef PROFILE_BUILD_H
#define PROFILE_BUILD_H

#include <deft/status.h>
#include <dsched/profile.h>

#include "tuning/observe.h"
#include "wire/wire.h"

/* `registration` gives tensors, links and their probes. DEFT_STATE while too little has been
 * observed or the job has no links; the sentence says what is missing. */
DEFT_NODISCARD enum deft_status profile_build(const struct wire_registration *registration,
                                              const struct observe *observe,
                                              struct dsched_profile *out, struct deft_error *error);

#endif
