/* What the ranks reported since the last report, in the shape of the next one. Main thread. */
#ifndef DAEMON_BATCH_H
#define DAEMON_BATCH_H

#include <stddef.h>
#include <stdint.h>

#include "ipc/ipc.h"
#include "wire/wire.h"

/* A report leaves at the latest after this time or this many iterations. */
#define DAEMON_BATCH_NS         INT64_C(500000000)
#define DAEMON_BATCH_ITERATIONS 256u
/* A job that has nothing to say, because it evaluates or compiles, says that much after this time:
 * the controller takes a job it has not heard of for a minute for lost. */
#define DAEMON_BATCH_SILENCE_NS INT64_C(20000000000)
/* What fits a report of WIRE_MAX_BODY_BYTES with room for one more frame of any kind. */
#define DAEMON_BATCH_OPS     16384u
#define DAEMON_BATCH_OFFSETS 65536u
#define DAEMON_BATCH_EVENTS  256u

/* One all-reduce, before those of equal size are summed up. */
struct daemon_batch_op {
    uint32_t rank;
    uint32_t link;
    uint64_t bytes;
    int64_t ns;
};

/* Zero-initialised is valid. */
struct daemon_batch {
    struct wire_report report; /* its ops are made when it is cut */
    size_t iterations_capacity;
    size_t events_capacity;
    size_t readiness_capacity;
    struct daemon_batch_op *ops;
    size_t n_ops;
    size_t ops_capacity;
    size_t n_offsets;
    int64_t first_ns; /* monotonic, of the oldest record; 0: empty */
    int64_t alive_ns; /* monotonic, when the ranks were last known to be there; 0: they are not */
    uint64_t n_lost;  /* records that found no memory, since the start */
};

void daemon_batch_iterations(struct daemon_batch *batch, uint32_t rank,
                             const struct ipc_iteration *records, size_t n, int64_t now_ns);
void daemon_batch_ops(struct daemon_batch *batch, uint32_t rank, const struct ipc_op *records,
                      size_t n, int64_t now_ns);
/* A later one of the same rank replaces an earlier one. */
void daemon_batch_readiness(struct daemon_batch *batch, uint32_t rank,
                            const struct ipc_readiness *record, const int64_t *offsets_ns,
                            int64_t now_ns);
void daemon_batch_event(struct daemon_batch *batch, uint32_t rank, const struct ipc_event *record,
                        int64_t now_ns);

/* An empty batch is due, too, DAEMON_BATCH_SILENCE_NS after this; until it is cut. */
void daemon_batch_alive(struct daemon_batch *batch, int64_t now_ns);

/* When the batch must be cut: monotonic time, INT64_MAX when nothing is to be said, 0 when it is
 * full. */
int64_t daemon_batch_deadline_ns(const struct daemon_batch *batch);
/* Moves the content into `out` (without agent and seq) and empties the batch. */
void daemon_batch_cut(struct daemon_batch *batch, struct wire_report *out);
void daemon_batch_done(struct daemon_batch *batch);

#endif
