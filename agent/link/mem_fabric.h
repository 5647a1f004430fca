/* The shared side of `mem` links: ranks are threads of one process. For tests.
 *
 * Sums run in rank order, so a result is bit-equal to ((x0 + x1) + x2) + ... whatever the layout.
 * The fabric checks that the ops that meet agree in size, type and reduction: ranks that mis-pair
 * fail with DEFT_MISMATCH instead of computing nonsense. */
#ifndef MEM_FABRIC_H
#define MEM_FABRIC_H

#include <stdint.h>

#include "link/link.h"

struct mem_fabric;

/* Links that a rank opens on one fabric: its data link and the control channel, and room for more.
 */
#define MEM_FABRIC_CHANNELS 4u

/* Faults to inject; both may be NULL. Called on link threads, concurrently. `channel` counts the
 * links a rank opened on the fabric, `op` the ops on that channel.
 * delay_ns: how long rank `rank` is held up before the op starts.
 * fail: non-zero makes that op fail on that rank, as a dead peer would. */
struct mem_faults {
    int64_t (*delay_ns)(void *context, int32_t rank, uint32_t channel, uint64_t op);
    int (*fail)(void *context, int32_t rank, uint32_t channel, uint64_t op);
    void *context;
};

/* One fabric is one link's worth of network. `faults` is copied; NULL: none. */
DEFT_NODISCARD enum deft_status mem_fabric_create(int32_t n_ranks, const struct mem_faults *faults,
                                                  struct mem_fabric **out,
                                                  struct deft_error *error);
/* All links on it must be closed. Takes NULL. */
void mem_fabric_destroy(struct mem_fabric *fabric);
/* What a rank passes in deft_options.links, "mem:<name>"; lives as long as the fabric. */
const char *mem_fabric_link(const struct mem_fabric *fabric);

/* --- for link_mem.c --- */
/* The rank's next channel, in the order of its opening links. */
DEFT_NODISCARD enum deft_status mem_fabric_join(struct mem_fabric *fabric, int32_t rank,
                                                uint32_t *out_channel, struct deft_error *error);
/* Blocks until all ranks brought op `number` of `channel`, then leaves the reduction in op->data.
 */
DEFT_NODISCARD enum deft_status mem_fabric_reduce(struct mem_fabric *fabric, int32_t rank,
                                                  uint32_t channel, uint64_t number,
                                                  struct link_op *op, struct deft_error *error);
/* Wakes everybody blocked with `reason`; later ops fail too. */
void mem_fabric_abort(struct mem_fabric *fabric, const struct deft_error *reason);
struct mem_fabric *mem_fabric_find(const char *name);

#endif
