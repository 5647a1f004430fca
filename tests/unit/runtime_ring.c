/* The telemetry ring: order, overwriting, counting, and a reader beside a writer. */
#include <pthread.h>
#include <string.h>

#include "runtime/ring.h"
#include "testing.h"

struct record {
    uint64_t number;
    uint64_t copies[7]; /* all equal to number: a torn read would show */
};

static struct record make(uint64_t number) {
    struct record record = {.number = number};
    for (int i = 0; i < 7; i++) {
        record.copies[i] = number;
    }
    return record;
}

static void check(const struct record *record) {
    for (int i = 0; i < 7; i++) {
        assert_true(record->copies[i] == record->number);
    }
}

static void records_come_out_in_order(void **state) {
    (void)state;
    struct ring ring;
    struct record record;
    assert_true(ring_init(&ring, sizeof(record), 8));
    assert_false(ring_get(&ring, &record));
    for (uint64_t n = 0; n < 100; n++) {
        record = make(n);
        ring_put(&ring, &record);
        record = make(0);
        assert_true(ring_get(&ring, &record));
        assert_true(record.number == n);
    }
    assert_false(ring_get(&ring, &record));
    assert_true(ring.n_missed == 0);
    ring_done(&ring);
}

static void a_full_ring_drops_the_oldest_and_counts(void **state) {
    (void)state;
    struct ring ring;
    struct record record;
    assert_true(ring_init(&ring, sizeof(record), 8));
    for (uint64_t n = 0; n < 21; n++) {
        record = make(n);
        ring_put(&ring, &record);
    }
    for (uint64_t n = 13; n < 21; n++) {
        assert_true(ring_get(&ring, &record));
        assert_true(record.number == n);
    }
    assert_false(ring_get(&ring, &record));
    assert_true(ring.n_missed == 13);
    ring_done(&ring);
}

#define N_RECORDS 200000u

static void *write_all(void *argument) {
    for (uint64_t n = 0; n < N_RECORDS; n++) {
        struct record record = make(n);
        ring_put(argument, &record);
    }
    return NULL;
}

static void a_reader_beside_a_writer_never_sees_half_a_record(void **state) {
    (void)state;
    struct ring ring;
    struct record record;
    pthread_t writer;
    uint64_t n_read = 0;
    uint64_t next = 0;
    assert_true(ring_init(&ring, sizeof(record), 64));
    assert_int_equal(pthread_create(&writer, NULL, write_all, &ring), 0);
    while (n_read + ring.n_missed < N_RECORDS) {
        if (ring_get(&ring, &record)) {
            check(&record);
            assert_true(record.number >= next);
            next = record.number + 1;
            n_read++;
        }
    }
    assert_int_equal(pthread_join(writer, NULL), 0);
    assert_false(ring_get(&ring, &record));
    assert_true(n_read + ring.n_missed == N_RECORDS);
    ring_done(&ring);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(records_come_out_in_order),
    cmocka_unit_test(a_full_ring_drops_the_oldest_and_counts),
    cmocka_unit_test(a_reader_beside_a_writer_never_sees_half_a_record),
};
TESTING_MAIN(cases)
