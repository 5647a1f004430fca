#include "runtime/ring.h"

#include <stdlib.h>
#include <string.h>

/* Each slot is a sequence lock: odd while record number n is being written (2n + 1), even and 2n +
 * 2 when it is whole. Words are copied atomically so that a torn read is seen, never undefined. */

int ring_init(struct ring *ring, size_t record_bytes, uint64_t n_slots) {
    memset(ring, 0, sizeof(*ring));
    ring->record_words = record_bytes / sizeof(uint64_t);
    ring->n_slots = n_slots;
    ring->words = calloc((size_t)n_slots * (1 + ring->record_words), sizeof(uint64_t));
    return ring->words != NULL;
}

void ring_done(struct ring *ring) {
    free(ring->words);
    memset(ring, 0, sizeof(*ring));
}

static uint64_t *ring_slot(const struct ring *ring, uint64_t number) {
    return ring->words + (size_t)(number & (ring->n_slots - 1)) * (1 + ring->record_words);
}

void ring_put(struct ring *ring, const void *record) {
    if (ring->words == NULL) {
        return;
    }
    uint64_t number = __atomic_load_n(&ring->head, __ATOMIC_RELAXED);
    uint64_t *slot = ring_slot(ring, number);
    const uint8_t *from = record;
    __atomic_store_n(slot, 2 * number + 1, __ATOMIC_SEQ_CST);
    for (size_t i = 0; i < ring->record_words; i++) {
        uint64_t word;
        memcpy(&word, from + i * sizeof(word), sizeof(word));
        __atomic_store_n(slot + 1 + i, word, __ATOMIC_RELEASE);
    }
    __atomic_store_n(slot, 2 * number + 2, __ATOMIC_SEQ_CST);
    __atomic_store_n(&ring->head, number + 1, __ATOMIC_RELEASE);
}

int ring_get(struct ring *ring, void *out_record) {
    if (ring->words == NULL) {
        return 0;
    }
    uint8_t *into = out_record;
    for (;;) {
        uint64_t head = __atomic_load_n(&ring->head, __ATOMIC_ACQUIRE);
        if (ring->tail == head) {
            return 0;
        }
        if (head - ring->tail > ring->n_slots) {
            ring->n_missed += head - ring->n_slots - ring->tail;
            ring->tail = head - ring->n_slots;
        }
        const uint64_t *slot = ring_slot(ring, ring->tail);
        uint64_t whole = 2 * ring->tail + 2;
        if (__atomic_load_n(slot, __ATOMIC_SEQ_CST) == whole) {
            for (size_t i = 0; i < ring->record_words; i++) {
                uint64_t word = __atomic_load_n(slot + 1 + i, __ATOMIC_ACQUIRE);
                memcpy(into + i * sizeof(word), &word, sizeof(word));
            }
            if (__atomic_load_n(slot, __ATOMIC_SEQ_CST) == whole) {
                ring->tail++;
                return 1;
            }
        }
        ring->n_missed++; /* overwritten while it was read */
        ring->tail++;
    }
}
