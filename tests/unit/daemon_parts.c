/* The agent's parts without any process or socket: batches, the spool, texts, pace. */
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon_batch.h"
#include "daemon_disk.h"
#include "daemon_pace.h"
#include "daemon_spool.h"
#include "daemon_text.h"
#include "testing.h"
#include "wire/utf8.h"

static void ops_are_summed_up_exactly(void **unused) {
    (void)unused;
    uint64_t state = testing_seed();
    enum { N = 3000 };
    struct ipc_op ops[N];
    struct daemon_batch batch = {0};
    struct wire_report report;
    for (size_t i = 0; i < N; i++) {
        ops[i] = (struct ipc_op){.bytes = 1 + testing_random_below(&state, 5),
                                 .link = (uint32_t)testing_random_below(&state, 3),
                                 .start_ns = 1000,
                                 .end_ns = 1000 + (int64_t)testing_random_below(&state, 100000)};
    }
    for (size_t i = 0; i < N; i += 100) {
        daemon_batch_ops(&batch, (uint32_t)(i / 100 % 2), &ops[i], 100, 5);
    }
    daemon_batch_cut(&batch, &report);
    uint64_t n_total = 0;
    for (uint32_t i = 0; i < report.n_ops; i++) {
        const struct wire_op_summary *summary = &report.ops[i];
        uint32_t n = 0;
        uint32_t n_below = 0;
        uint32_t n_above = 0;
        int64_t min_ns = INT64_MAX;
        int64_t max_ns = 0;
        for (size_t j = 0; j < N; j++) {
            int64_t ns = ops[j].end_ns - ops[j].start_ns;
            if (j / 100 % 2 == summary->rank && ops[j].link == summary->link &&
                ops[j].bytes == summary->bytes) {
                n++;
                n_below += ns < summary->median_ns;
                n_above += ns > summary->median_ns;
                min_ns = ns < min_ns ? ns : min_ns;
                max_ns = ns > max_ns ? ns : max_ns;
            }
        }
        assert_int_equal(n, summary->count);
        assert_int_equal(min_ns, summary->min_ns);
        assert_int_equal(max_ns, summary->max_ns);
        assert_true(n_below <= (n + 1) / 2 && n_above <= (n + 1) / 2);
        n_total += n;
    }
    assert_int_equal(n_total, N);
    wire_report_done(&report);
    daemon_batch_done(&batch);
}

static void a_batch_is_due_in_time_and_when_full(void **unused) {
    (void)unused;
    struct daemon_batch batch = {0};
    struct wire_report report;
    struct ipc_iteration iteration = {.loss = 1.0,
                                      .flags = IPC_ITERATION_BAD_LOSS,
                                      .change_sq_local = 0.25,
                                      .learning_rate = 0.05};
    assert_true(daemon_batch_deadline_ns(&batch) == INT64_MAX);
    daemon_batch_iterations(&batch, 0, &iteration, 1, 1000);
    daemon_batch_iterations(&batch, 0, &iteration, 1, 2000);
    assert_true(daemon_batch_deadline_ns(&batch) == 1000 + DAEMON_BATCH_NS);
    while (batch.report.n_iterations < DAEMON_BATCH_ITERATIONS) {
        daemon_batch_iterations(&batch, 1, &iteration, 1, 3000);
    }
    assert_int_equal(daemon_batch_deadline_ns(&batch), 0);
    daemon_batch_cut(&batch, &report);
    assert_int_equal(report.n_iterations, DAEMON_BATCH_ITERATIONS);
    assert_int_equal(report.iterations[0].flags, WIRE_ITERATION_BAD_LOSS);
    assert_true(report.iterations[0].change_sq_local == 0.25);
    assert_true(report.iterations[0].learning_rate == 0.05);
    assert_true(daemon_batch_deadline_ns(&batch) == INT64_MAX);
    wire_report_done(&report);
    daemon_batch_done(&batch);
}

static void a_job_with_nothing_to_say_is_heard_of(void **unused) {
    (void)unused;
    struct daemon_batch batch = {0};
    struct wire_report report;
    struct ipc_event event = {.kind = IPC_EVENT_SWITCHED};
    daemon_batch_alive(&batch, 1000);
    assert_true(daemon_batch_deadline_ns(&batch) == 1000 + DAEMON_BATCH_SILENCE_NS);
    daemon_batch_event(&batch, 0, &event, 2000);
    assert_true(daemon_batch_deadline_ns(&batch) == 2000 + DAEMON_BATCH_NS);
    daemon_batch_cut(&batch, &report);
    wire_report_done(&report);
    assert_true(daemon_batch_deadline_ns(&batch) == INT64_MAX);
    daemon_batch_alive(&batch, 3000);
    daemon_batch_cut(&batch, &report);
    assert_int_equal(report.n_iterations + report.n_events + report.n_ops + report.n_readiness, 0);
    wire_report_done(&report);
    daemon_batch_alive(&batch, 4000);
    daemon_batch_alive(&batch, 0); /* the ranks have gone */
    assert_true(daemon_batch_deadline_ns(&batch) == INT64_MAX);
    daemon_batch_done(&batch);
}

static void the_newest_readiness_of_a_rank_counts(void **unused) {
    (void)unused;
    struct daemon_batch batch = {0};
    struct wire_report report;
    const int64_t first[] = {1, 2, 3};
    const int64_t second[] = {4, 5, 6};
    struct ipc_readiness record = {.iteration = 1, .n_iterations = 1, .n_tensors = 3};
    daemon_batch_readiness(&batch, 0, &record, first, 1);
    daemon_batch_readiness(&batch, 1, &record, first, 1);
    record.iteration = 2;
    daemon_batch_readiness(&batch, 0, &record, second, 1);
    assert_int_equal(batch.n_offsets, 6);
    daemon_batch_cut(&batch, &report);
    assert_int_equal(report.n_readiness, 2);
    assert_int_equal(report.readiness[0].iteration, 2);
    assert_memory_equal(report.readiness[0].offsets_ns, second, sizeof(second));
    assert_memory_equal(report.readiness[1].offsets_ns, first, sizeof(first));
    wire_report_done(&report);
    daemon_batch_done(&batch);
}

enum report_kind { PLAIN, WITH_LOSS, WITH_EVENT, WITH_DETAILS };

static struct wire_report make_report(enum report_kind kind, uint64_t iteration) {
    struct wire_report report = {.n_iterations = 10};
    report.iterations = calloc(10, sizeof(*report.iterations));
    assert_non_null(report.iterations);
    for (uint32_t i = 0; i < 10; i++) {
        report.iterations[i].iteration = iteration;
        report.iterations[i].loss = kind == WITH_LOSS ? 1.0 : (double)NAN;
    }
    if (kind == WITH_EVENT) {
        report.n_events = 1;
        report.events = calloc(1, sizeof(*report.events));
        assert_non_null(report.events);
    }
    if (kind == WITH_DETAILS) {
        report.n_ops = 100;
        report.ops = calloc(100, sizeof(*report.ops));
        report.n_readiness = 1;
        report.readiness = calloc(1, sizeof(*report.readiness));
        assert_true(report.ops != NULL && report.readiness != NULL);
        report.readiness[0].n_offsets = 50;
        report.readiness[0].offsets_ns = calloc(50, sizeof(int64_t));
        assert_non_null(report.readiness[0].offsets_ns);
    }
    return report;
}

static void note_dropped(void *owner) {
    (*(unsigned *)owner)++;
}

static void push(struct daemon_spool *spool, enum report_kind kind, uint64_t iteration,
                 unsigned *n_gone) {
    struct wire_report report = make_report(kind, iteration);
    assert_int_equal(daemon_spool_push(spool, &report, n_gone, note_dropped), DEFT_OK);
}

static size_t count(const struct daemon_spool *spool, uint64_t iteration) {
    size_t n = 0;
    for (const struct daemon_spool_entry *entry = spool->first; entry != NULL;
         entry = entry->next) {
        n += entry->report.iterations[0].iteration == iteration;
    }
    return n;
}

static void the_least_valuable_is_dropped_first(void **unused) {
    (void)unused;
    struct daemon_spool spool;
    unsigned n_gone = 0;
    daemon_spool_init(&spool, 40000);
    push(&spool, PLAIN, 1, &n_gone);
    spool.first->tried = 1; /* the controller may have it already */
    for (int i = 0; i < 3; i++) {
        push(&spool, WITH_DETAILS, 2, &n_gone);
        push(&spool, WITH_EVENT, 3, &n_gone);
        push(&spool, WITH_LOSS, 4, &n_gone);
    }
    assert_int_equal(n_gone, 0);
    /* Details go before anything whole does. */
    while (spool.first->next->report.n_ops > 0) {
        push(&spool, WITH_LOSS, 4, &n_gone);
        assert_int_equal(n_gone, 0);
    }
    assert_int_equal(spool.first->next->report.n_readiness, 0);
    assert_int_equal(spool.first->next->report.n_iterations, 10);
    /* Then reports without losses and events, then those without events. */
    while (count(&spool, 2) > 0) {
        assert_int_equal(count(&spool, 3), 3);
        push(&spool, WITH_LOSS, 4, &n_gone);
        assert_true(spool.n_bytes <= spool.limit_bytes);
    }
    assert_int_equal(n_gone, 3);
    for (int i = 0; i < 100; i++) {
        push(&spool, WITH_LOSS, 4, &n_gone);
        assert_true(spool.n_bytes <= spool.limit_bytes);
    }
    assert_int_equal(count(&spool, 3), 3);
    assert_int_equal(count(&spool, 1), 1);
    assert_int_equal(spool.n_dropped_iterations, 10 * (uint64_t)n_gone);
    assert_int_equal(spool.n_dropped_events, 0);
    for (int i = 0; i < 100; i++) {
        push(&spool, WITH_EVENT, 5, &n_gone);
        assert_true(spool.n_bytes <= spool.limit_bytes);
    }
    assert_int_equal(count(&spool, 3), 0); /* the oldest */
    assert_int_equal(count(&spool, 1), 1);
    assert_true(spool.n_dropped_events > 0);
    daemon_spool_done(&spool);
    assert_int_equal(spool.n_bytes, 0);
}

static void the_spool_keeps_order(void **unused) {
    (void)unused;
    uint64_t state = testing_seed();
    struct daemon_spool spool;
    unsigned n_gone = 0;
    uint64_t next = 0;
    daemon_spool_init(&spool, 30000);
    for (uint64_t i = 1; i <= 2000; i++) {
        push(&spool, (enum report_kind)testing_random_below(&state, 4), i, &n_gone);
        if (testing_random_below(&state, 3) == 0 && spool.first != NULL) {
            assert_true(spool.first->report.iterations[0].iteration > next);
            next = spool.first->report.iterations[0].iteration;
            daemon_spool_pop(&spool);
        }
        uint64_t previous = next;
        size_t n_bytes = 0;
        for (const struct daemon_spool_entry *entry = spool.first; entry != NULL;
             entry = entry->next) {
            assert_true(entry->report.iterations[0].iteration > previous);
            previous = entry->report.iterations[0].iteration;
            n_bytes += entry->n_bytes;
            assert_true(entry->next != NULL || spool.last == entry);
        }
        assert_int_equal(n_bytes, spool.n_bytes);
        assert_true(n_bytes <= spool.limit_bytes);
    }
    daemon_spool_done(&spool);
}

static void remove_folder(const char *dir, struct daemon_disk *disk) {
    daemon_disk_close(disk, 1);
    assert_int_equal(rmdir(dir), 0); /* which says that nothing was left */
}

static void a_file_that_is_not_whole_is_told_from_one_that_is(void **unused) {
    (void)unused;
    static const char json[] = "{\"agent\":\"a\",\"seq\":7}";
    char dir[] = "/tmp/daemon-parts-XXXXXX";
    char path[128];
    char whole[256];
    char *text = NULL;
    size_t n_text = 0;
    struct daemon_disk *disk = NULL;
    struct daemon_disk *twin = NULL;
    struct daemon_disk_name name = {
        .start = 1, .seq = 7, .n_iterations = 2, .n_events = 3, .has_loss = 1};
    assert_non_null(mkdtemp(dir));
    assert_int_equal(daemon_disk_make(dir, "host-1", &disk, NULL), DEFT_OK);
    assert_int_equal(daemon_disk_make(dir, "host-1", &twin, NULL), DEFT_STATE); /* a clash */
    assert_int_equal(daemon_disk_write_report(disk, &name, json, NULL), DEFT_OK);
    (void)snprintf(path, sizeof(path), "%s/host-1.spool/000001-0000000000000007-2-3-1.report", dir);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    ssize_t n = read(fd, whole, sizeof(whole));
    assert_true(n > (ssize_t)sizeof(json));
    for (ssize_t cut = 0; cut < n; cut++) {
        assert_int_equal(ftruncate(fd, cut), 0);
        assert_int_equal(daemon_disk_read_report(disk, &name, &text, &n_text, NULL), DEFT_INVALID);
        assert_int_equal(pwrite(fd, whole, (size_t)n, 0), n);
        char flipped = (char)(whole[cut] ^ 1);
        assert_int_equal(pwrite(fd, &flipped, 1, cut), 1);
        assert_int_equal(daemon_disk_read_report(disk, &name, &text, &n_text, NULL), DEFT_INVALID);
        assert_int_equal(pwrite(fd, whole, (size_t)n, 0), n);
    }
    (void)close(fd);
    assert_int_equal(daemon_disk_read_report(disk, &name, &text, &n_text, NULL), DEFT_OK);
    assert_int_equal(n_text, strlen(json));
    assert_string_equal(text, json);
    free(text);
    remove_folder(dir, disk);
}

static void files_are_listed_by_number(void **unused) {
    (void)unused;
    uint64_t state = testing_seed();
    char dir[] = "/tmp/daemon-parts-XXXXXX";
    struct daemon_disk *disk = NULL;
    struct daemon_disk_found *found = NULL;
    size_t n_found = 0;
    assert_non_null(mkdtemp(dir));
    assert_int_equal(daemon_disk_make(dir, "host-1", &disk, NULL), DEFT_OK);
    assert_int_equal(daemon_disk_write_start(disk, 1, "job", "{}", NULL), DEFT_OK);
    for (uint64_t i = 0; i < 200; i++) {
        struct daemon_disk_name name = {.start = (uint32_t)testing_random_below(&state, 3),
                                        .seq = 1 + (i * 77) % 200 * testing_random_below(&state, 2),
                                        .n_iterations = (uint32_t)testing_random(&state)};
        assert_int_equal(daemon_disk_write_report(disk, &name, "{}", NULL), DEFT_OK);
    }
    assert_int_equal(daemon_disk_list(disk, &found, &n_found, NULL), DEFT_OK);
    assert_true(n_found > 20 && n_found <= 200);
    for (size_t i = 0; i < n_found; i++) {
        assert_int_equal(found[i].n_bytes, DAEMON_DISK_BLOCK_BYTES);
        assert_true(i == 0 || found[i - 1].name.start < found[i].name.start ||
                    (found[i - 1].name.start == found[i].name.start &&
                     found[i - 1].name.seq <= found[i].name.seq));
    }
    free(found);
    remove_folder(dir, disk);
}

/* Every report in memory or on disk, in any mixture: the least valuable of those on disk goes. */
static void the_least_valuable_file_is_the_victim(void **unused) {
    (void)unused;
    uint64_t state = testing_seed();
    struct daemon_spool spool;
    unsigned n_gone = 0;
    daemon_spool_init(&spool, 1u << 20);
    for (uint64_t i = 1; i <= 60; i++) {
        push(&spool, (enum report_kind)testing_random_below(&state, 3), i, &n_gone);
        if (testing_random_below(&state, 3) > 0) {
            daemon_spool_written(&spool, spool.last, DAEMON_DISK_BLOCK_BYTES);
        }
    }
    uint64_t n_files = spool.n_on_disk;
    unsigned worth = 0;
    while (n_files-- > 0) {
        struct daemon_spool_entry *victim = daemon_spool_victim(&spool, NULL);
        assert_non_null(victim);
        assert_true(victim->disk_bytes > 0);
        unsigned its_worth = victim->name.n_events > 0 ? 2 : victim->name.has_loss ? 1 : 0;
        assert_true(its_worth >= worth);
        worth = its_worth;
        daemon_spool_drop(&spool, victim, note_dropped);
        assert_int_equal(spool.disk_bytes, n_files * DAEMON_DISK_BLOCK_BYTES);
    }
    assert_null(daemon_spool_victim(&spool, NULL));
    assert_int_equal(spool.n_dropped_iterations, 10 * (uint64_t)n_gone);
    assert_int_equal(spool.n_on_disk, 0);
    daemon_spool_done(&spool);
    assert_int_equal(spool.n_bytes, 0);
}

static void texts_become_printable_and_fit(void **unused) {
    (void)unused;
    uint64_t state = testing_seed();
    char out[32];
    daemon_text_copy(out, sizeof(out), "a\nb\x1b\xff\xc3\xa9");
    assert_string_equal(out, "a?b??\xc3\xa9");
    for (int round = 0; round < 5000; round++) {
        char in[64];
        size_t n = testing_random_below(&state, sizeof(in));
        size_t capacity = 1 + testing_random_below(&state, sizeof(out));
        for (size_t i = 0; i < n; i++) {
            in[i] = (char)(1 + testing_random_below(&state, 255));
        }
        in[n] = '\0';
        daemon_text_copy(out, capacity, in);
        size_t length = strlen(out);
        assert_true(length < capacity);
        for (size_t i = 0; i < length;) {
            size_t n_bytes = utf8_sequence_bytes(out + i, length - i);
            assert_true(n_bytes > 0);
            assert_true(n_bytes > 1 || ((unsigned char)out[i] >= 0x20 && out[i] != 0x7f));
            i += n_bytes;
        }
    }
}

static void the_pace_doubles_within_its_bounds(void **unused) {
    (void)unused;
    uint64_t state = testing_seed();
    for (int round = 0; round < 100; round++) {
        struct daemon_pace pace;
        int64_t full_ns = DAEMON_PACE_LEAST_NS;
        daemon_pace_init(&pace, testing_random(&state));
        for (int i = 0; i < 12; i++) {
            int64_t ns = daemon_pace_next_ns(&pace);
            assert_true(ns > full_ns / 2 && ns <= full_ns);
            full_ns = full_ns * 2 < DAEMON_PACE_MOST_NS ? full_ns * 2 : DAEMON_PACE_MOST_NS;
        }
        daemon_pace_reset(&pace);
        assert_true(daemon_pace_next_ns(&pace) <= DAEMON_PACE_LEAST_NS);
    }
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(ops_are_summed_up_exactly),
    cmocka_unit_test(a_batch_is_due_in_time_and_when_full),
    cmocka_unit_test(a_job_with_nothing_to_say_is_heard_of),
    cmocka_unit_test(the_newest_readiness_of_a_rank_counts),
    cmocka_unit_test(the_least_valuable_is_dropped_first),
    cmocka_unit_test(the_spool_keeps_order),
    cmocka_unit_test(a_file_that_is_not_whole_is_told_from_one_that_is),
    cmocka_unit_test(files_are_listed_by_number),
    cmocka_unit_test(the_least_valuable_file_is_the_victim),
    cmocka_unit_test(texts_become_printable_and_fit),
    cmocka_unit_test(the_pace_doubles_within_its_bounds),
};
TESTING_MAIN(cases)
