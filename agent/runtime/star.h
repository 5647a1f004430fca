/* TCP connections from every rank to rank 0: the default all-gather, and afterwards the watch.
 *
 * The watch answers one question fast: which rank has gone? The kernel notices a dead process at
 * once and a silent host within STAR_SILENCE_S; rank 0 then tells everybody. A process that is
 * stopped or slow is not lost: its kernel still answers. */
#ifndef STAR_H
#define STAR_H

#include <stddef.h>
#include <stdint.h>

#include <deft/status.h>

/* A lost peer must end the job within 10 s: keep-alive probes give up after this. */
#define STAR_SILENCE_S 6
/* Bytes per rank of one all-gather: Gloo's addresses are the largest, about 128 bytes per peer. */
#define STAR_MAX_GATHER_BYTES (16u << 20)

struct star;

/* Collective. Rank 0 listens on master_port of all addresses, or on the listening socket `listener`
 * unless that is -1 (taken over, also on failure); the others connect to master_host:master_port;
 * patient until `timeout_ns` has passed, since ranks start at different
 * times. DEFT_TIMEOUT names who is missing. A world of one rank opens no socket. */
DEFT_NODISCARD enum deft_status star_open(const char *master_host, uint16_t master_port,
                                          int listener, int32_t rank, int32_t n_ranks,
                                          int64_t timeout_ns, struct star **out,
                                          struct deft_error *error);

/* Collective: n_bytes from every rank, in rank order, into out. Only before star_watch. The
 * signature is deft_allgather_fn with the star as context. Returns 0 or 1. */
int star_allgather(void *context, const void *in, size_t n_bytes, void *out);
/* The sentence of the last failed all-gather. */
const struct deft_error *star_failure(const struct star *star);

/* The address under which this host is part of the star, as text: on rank 0 the one that rank 1
 * reached. Looking rank 0's name up would not do: many hosts map their own name to loopback. */
DEFT_NODISCARD enum deft_status star_own_address(const struct star *star, char *out, size_t n_bytes,
                                                 struct deft_error *error);

/* Starts the watch. `on_lost` is called at most once, on the watch's thread, with the sentence. */
typedef void (*star_lost_fn)(void *context, const struct deft_error *reason);
DEFT_NODISCARD enum deft_status star_watch(struct star *star, star_lost_fn on_lost, void *context,
                                           struct deft_error *error);
/* A rank that left in order, or -1: why an all-reduce may break although nobody was lost. */
int32_t star_departed(struct star *star);

/* Says goodbye and waits, at most `patience_ns`, until all ranks have said it: then nobody needs
 * this rank's links any more. Takes NULL. */
void star_leave(struct star *star, int64_t patience_ns);
/* Says why this rank ends (`failure` NULL: goodbye, unless star_leave did) and closes. Takes NULL.
 */
void star_close(struct star *star, const struct deft_error *failure);
/* In a child of fork(): closes what it has inherited, and nothing else. Takes NULL. */
void star_forked(struct star *star);

#endif
