/* DDP's buckets on link 0, with or without overlap: what serial and wfbp have in common. */
#ifndef DDP_RUN_H
#define DDP_RUN_H

#include "../program.h"

DSCHED_NODISCARD enum dsched_status ddp_run(const struct dsched_profile *profile,
                                            enum program_ready ready, dsched_span_fn on_span,
                                            void *context, struct dsched_outcome *out,
                                            struct dsched_error *error);

#endif
