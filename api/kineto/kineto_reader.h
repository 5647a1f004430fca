/* Chrome trace JSON in blocks, as a parser that is pushed: {"traceEvents": [...], ...} as Kineto
 * writes it, or the bare array of older profilers. Memory does not grow with the input, only with
 * what is kept of it. The only file that knows yajl. */
#ifndef KINETO_READER_H
#define KINETO_READER_H

#include <stddef.h>

#include <deft/status.h>

#include "kineto_trace.h"

struct kineto_reader;

/* `trace` receives what is kept; the caller owns it and keeps it until the reader is destroyed. */
DEFT_NODISCARD enum deft_status kineto_reader_create(struct kineto_trace *trace,
                                                     struct kineto_reader **out,
                                                     struct deft_error *error);
DEFT_NODISCARD enum deft_status kineto_reader_feed(struct kineto_reader *reader, const void *bytes,
                                                   size_t n_bytes, struct deft_error *error);
/* No more bytes will come: refuses what is cut off or has no events. */
DEFT_NODISCARD enum deft_status kineto_reader_finish(struct kineto_reader *reader,
                                                     struct deft_error *error);
void kineto_reader_destroy(struct kineto_reader *reader);

#endif
