/* How the ranks of a job meet: who is there, that they run the same model, and over which links. */
#ifndef MEETING_H
#define MEETING_H

#include "runtime/runtime.h"

/* Bootstrap: the star unless the caller brought an all-gather; the job's identity. Collective. */
DEFT_NODISCARD enum deft_status meeting_begin(struct deft_runtime *rt, struct deft_error *error);
/* All ranks have the same tensors and links. Collective. */
DEFT_NODISCARD enum deft_status meeting_compare(struct deft_runtime *rt, struct deft_error *error);
/* Opens every link of options.links and the control channel. Collective. */
DEFT_NODISCARD enum deft_status meeting_open_links(struct deft_runtime *rt,
                                                   struct deft_error *error);

#endif
