/* A stand-in for a machine with GPUs: libcudart, libnccl and libdeft-cuda in one shared object,
 * which works in host memory and records what it is asked for. It tells nothing about speed and
 * nothing about what a device would do; it tells whether the order of the calls is right:
 *
 *   - any two accesses to the same memory on different streams, one of which writes, must be
 * ordered by events (or by a host that waited);
 *   - the i-th all-reduce of a communicator must be the same on all ranks;
 *   - no thread waits for the device while it says that it is in a step;
 *   - memory that is freed is not in use any more;
 *   - the program finds no error on its thread that is not its own.
 *
 * What is wrong is kept as a sentence. Streams run late: what is queued is done when somebody asks
 * for it, and not at all while they are held. */
#ifndef STANDIN_H
#define STANDIN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Forgets everything; no stream may have work. */
void standin_reset(void);
/* The first violations, each once, or "". Valid until the next reset, once all threads that make
 * calls have ended. */
const char *standin_violation(void);
/* While held no stream does anything. */
void standin_hold(int is_held);
/* This thread is in a step of training: it must not wait for the device. */
void standin_in_step(int is_in_step);
/* The `nth` (from 1) call of `name` from now on fails; NULL: none does. */
void standin_fail(const char *name, int nth);
/* How often `name` was called since the reset. */
uint64_t standin_calls(const char *name);
/* Queues the caller's own work: `n_bytes` from host memory, copied at once, to the device. */
void standin_produce(void *stream, void *into, const void *from, size_t n_bytes);
/* Queues a read of the caller's; `into` in host memory has it once the stream has got there. */
void standin_consume(void *stream, void *into, const void *from, size_t n_bytes);
/* Queues a step of the caller's optimizer: w[i] -= rate * g[i], all of `dtype` (enum deft_dtype).
 */
void standin_descend(void *stream, int dtype, void *w, const void *g, uint64_t n, double rate);
/* Waits until no stream has work. */
void standin_finish(void);
/* From now on NCCL's peers are gone. */
void standin_lose_peers(void);
/* The queues of streams of all-reduces are full: who records an event there stays until some
 * communicator is aborted. */
void standin_fill(void);
/* A stream that is being captured into a graph. */
void standin_capture(int is_capturing);

/* Mistakes of a program, made here in its place: what it asks for is not done, or not as asked. */
enum standin_mistake {
    STANDIN_NO_MISTAKE,
    STANDIN_NO_WAIT_FOR_PRODUCER, /* streams of all-reduces do not wait for events of the caller */
    STANDIN_NO_WAIT_FOR_RESULT,   /* the caller's stream does not wait for all-reduces */
    STANDIN_SWAPPED,              /* one rank issues its next two all-reduces in reverse order */
    STANDIN_HOST_WAIT,            /* a wait for a stream is a wait of the host */
    STANDIN_KEPT_ERROR,           /* the last error of a thread is not cleared */
};
void standin_plant(enum standin_mistake mistake);

#ifdef __cplusplus
}
#endif
#endif
