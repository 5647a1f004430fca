/* A fixed ring of records from one writer to one reader, neither of which ever waits. A full ring
 * overwrites its oldest records and the reader learns how many it missed. */
#ifndef RING_H
#define RING_H

#include <stddef.h>
#include <stdint.h>

struct ring {
    uint64_t *words; /* n_slots * (1 + record_words): a sequence number, then the record */
    size_t record_words;
    uint64_t n_slots;
    uint64_t head; /* atomic; records written since the start */
    uint64_t tail; /* reader only */
    uint64_t n_missed;
};

/* `record_bytes` is a multiple of 8; `n_slots` a power of two. Returns 0 when memory is short. */
int ring_init(struct ring *ring, size_t record_bytes, uint64_t n_slots);
void ring_done(struct ring *ring);
void ring_put(struct ring *ring, const void *record);
/* Copies the oldest record that is still there. Returns 0 when there is none. */
int ring_get(struct ring *ring, void *out_record);

#endif
