/* Frames survive any chunking, and nothing malformed gets through. */
#include <errno.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "ipc/ipc.h"
#include "testing.h"

#define FRAME_BYTES_MAX (sizeof(struct ipc_header) + IPC_MAX_PAYLOAD_BYTES)

static struct ipc_hello valid_hello(void) {
    return (struct ipc_hello){.rank = 1,
                              .n_ranks = 2,
                              .n_tensors = 3,
                              .n_links = 1,
                              .optimizer = 1,
                              .momentum = 0.9,
                              .job_id = "36199_0",
                              .job_name = "mnist",
                              .incarnation_key = "36199_0/1/0",
                              .version = "0.1.0"};
}

/* One frame of a random type with a valid payload; returns its size. */
static size_t random_frame(uint64_t *state, uint8_t *out) {
    uint8_t *payload = out + sizeof(struct ipc_header);
    uint16_t type = IPC_READY;
    size_t n_bytes = 0;
    memset(payload, 0, 4096);
    switch (testing_random_below(state, 7)) {
    case 0: {
        struct ipc_hello hello = valid_hello();
        type = IPC_HELLO;
        n_bytes = sizeof(hello);
        memcpy(payload, &hello, n_bytes);
        break;
    }
    case 1: {
        struct ipc_tensor tensor = {.name = "w", .elements = 1 + testing_random_below(state, 99)};
        size_t n = 1 + testing_random_below(state, 300);
        type = IPC_TENSORS;
        for (size_t i = 0; i < n; i++) {
            memcpy(payload + n_bytes, &tensor, sizeof(tensor));
            n_bytes += sizeof(tensor);
        }
        break;
    }
    case 2:
        type = IPC_ITERATIONS;
        n_bytes = sizeof(struct ipc_iteration) * (1 + testing_random_below(state, 20));
        break;
    case 3: {
        struct ipc_op op = {.bytes = 5, .posted_ns = 1, .start_ns = 2, .end_ns = 3};
        type = IPC_OPS;
        n_bytes = sizeof(op);
        memcpy(payload, &op, n_bytes);
        break;
    }
    case 4: {
        /* The only payload of odd size, so that alignment of what follows is tested. */
        struct ipc_plan plan = {
            .seq = 1, .hash = testing_random(state), .max_loss = 2.5, .max_grad_sq = (double)NAN};
        type = IPC_PLAN;
        n_bytes = sizeof(plan) + 1 + testing_random_below(state, 2000);
        memcpy(payload, &plan, sizeof(plan));
        for (size_t i = sizeof(plan); i < n_bytes; i++) {
            payload[i] = (uint8_t)testing_random(state);
        }
        break;
    }
    case 5: {
        struct ipc_readiness readiness = {.n_iterations = 3,
                                          .n_tensors = (uint32_t)testing_random_below(state, 100)};
        type = IPC_READINESS;
        n_bytes = sizeof(readiness) + readiness.n_tensors * sizeof(int64_t);
        memcpy(payload, &readiness, sizeof(readiness));
        break;
    }
    default:
        break;
    }
    struct ipc_header header = {.magic = IPC_MAGIC,
                                .version = IPC_VERSION,
                                .type = type,
                                .payload_bytes = (uint32_t)n_bytes};
    memcpy(out, &header, sizeof(header));
    return sizeof(header) + n_bytes;
}

/* Takes every whole frame out of the reader and compares it with what was sent. */
static size_t drain_frames(struct ipc_reader *reader, const uint8_t *expected) {
    size_t consumed = 0;
    uint16_t type;
    const void *payload;
    size_t n_bytes;
    int found;
    while ((found = ipc_reader_next(reader, &type, &payload, &n_bytes, NULL)) == 1) {
        struct ipc_header header;
        memcpy(&header, expected + consumed, sizeof(header));
        assert_int_equal(type, header.type);
        assert_int_equal(n_bytes, header.payload_bytes);
        if (n_bytes > 0) {
            assert_int_equal((uintptr_t)payload % 8, 0);
            assert_memory_equal(payload, expected + consumed + sizeof(header), n_bytes);
        } else {
            assert_null(payload);
        }
        consumed += sizeof(header) + n_bytes;
    }
    assert_int_equal(found, 0);
    return consumed;
}

static void any_chunking_gives_the_same_frames(void **unused) {
    (void)unused;
    uint64_t state = testing_seed();
    size_t capacity = 4u << 20;
    uint8_t *stream = malloc(capacity);
    assert_non_null(stream);
    for (int round = 0; round < 20; round++) {
        int fds[2];
        struct ipc_reader reader = {0};
        size_t n_stream = 0;
        size_t n_received = 0;
        size_t chunk_max = round % 3 == 0 ? 7 : 40000;
        for (int i = 0; i < 30; i++) {
            n_stream += random_frame(&state, stream + n_stream);
        }
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
        for (size_t sent = 0; sent < n_stream;) {
            size_t n = 1 + testing_random_below(&state, chunk_max);
            n = n < n_stream - sent ? n : n_stream - sent;
            assert_int_equal(send(fds[0], stream + sent, n, 0), n);
            sent += n;
            assert_int_equal(ipc_reader_fill(&reader, fds[1], NULL), DEFT_OK);
            n_received += drain_frames(&reader, stream + n_received);
        }
        assert_int_equal(n_received, n_stream);
        assert_int_equal(ipc_reader_fill(&reader, fds[1], NULL), DEFT_OK);
        (void)close(fds[0]);
        assert_int_equal(ipc_reader_fill(&reader, fds[1], NULL), DEFT_CLOSED);
        ipc_reader_done(&reader);
        (void)close(fds[1]);
    }
    free(stream);
}

struct sender {
    int fd;
    size_t tail_bytes;
    const uint8_t *tail;
    enum deft_status status;
};

static void *send_in_thread(void *argument) {
    struct sender *sender = argument;
    struct ipc_plan plan = {
        .seq = 7, .hash = 9, .max_loss = (double)NAN, .max_grad_sq = (double)NAN};
    sender->status = ipc_send(sender->fd, IPC_PLAN, &plan, sizeof(plan), sender->tail,
                              sender->tail_bytes, 60000, NULL);
    return NULL;
}

static void largest_frame_goes_through_a_small_socket(void **unused) {
    (void)unused;
    int fds[2];
    uint64_t state = testing_seed();
    size_t tail_bytes = IPC_MAX_PAYLOAD_BYTES - sizeof(struct ipc_plan);
    uint8_t *tail = malloc(tail_bytes);
    assert_non_null(tail);
    for (size_t i = 0; i < tail_bytes; i++) {
        tail[i] = (uint8_t)testing_random(&state);
    }
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    struct sender sender = {.fd = fds[0], .tail = tail, .tail_bytes = tail_bytes};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, send_in_thread, &sender), 0);
    struct ipc_reader reader = {0};
    uint16_t type = 0;
    const void *payload = NULL;
    size_t n_bytes = 0;
    int found = 0;
    while (found == 0) {
        struct pollfd poll_fd = {.fd = fds[1], .events = POLLIN};
        assert_int_equal(poll(&poll_fd, 1, 60000), 1);
        assert_int_equal(ipc_reader_fill(&reader, fds[1], NULL), DEFT_OK);
        assert_true(reader.capacity_bytes <= FRAME_BYTES_MAX + 65536);
        found = ipc_reader_next(&reader, &type, &payload, &n_bytes, NULL);
    }
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(sender.status, DEFT_OK);
    assert_int_equal(found, 1);
    assert_int_equal(type, IPC_PLAN);
    assert_int_equal(n_bytes, IPC_MAX_PAYLOAD_BYTES);
    assert_memory_equal((const uint8_t *)payload + sizeof(struct ipc_plan), tail, tail_bytes);
    /* The memory of a large frame is given back once it is consumed. */
    assert_int_equal(ipc_reader_fill(&reader, fds[1], NULL), DEFT_OK);
    assert_true(reader.capacity_bytes <= 65536);
    ipc_reader_done(&reader);
    (void)close(fds[0]);
    (void)close(fds[1]);
    free(tail);
}

static void malformed_headers_are_refused(void **unused) {
    (void)unused;
    const struct ipc_header good = {.magic = IPC_MAGIC, .version = IPC_VERSION, .type = IPC_READY};
    const struct {
        struct ipc_header header;
        enum deft_status status;
    } bad[] = {
        {{.magic = 1, .version = IPC_VERSION, .type = IPC_READY}, DEFT_INVALID},
        {{.magic = IPC_MAGIC, .version = IPC_VERSION + 1, .type = IPC_READY}, DEFT_MISMATCH},
        {{.magic = IPC_MAGIC, .version = IPC_VERSION, .type = 0}, DEFT_INVALID},
        {{.magic = IPC_MAGIC, .version = IPC_VERSION, .type = 63}, DEFT_INVALID},
        {{.magic = IPC_MAGIC,
          .version = IPC_VERSION,
          .type = IPC_PLAN,
          .payload_bytes = IPC_MAX_PAYLOAD_BYTES + 1},
         DEFT_LIMIT},
        {{.magic = IPC_MAGIC, .version = IPC_VERSION, .type = IPC_READY, .reserved = 1},
         DEFT_INVALID},
    };
    assert_int_equal(ipc_check_header(&good, NULL), DEFT_OK);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct deft_error error = {0};
        assert_int_equal(ipc_check_header(&bad[i].header, &error), bad[i].status);
        assert_int_not_equal(error.text[0], '\0');
        int fds[2];
        struct ipc_reader reader = {0};
        uint16_t type;
        const void *payload;
        size_t n_bytes;
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
        assert_int_equal(send(fds[0], &bad[i].header, sizeof(good), 0), sizeof(good));
        assert_int_equal(ipc_reader_fill(&reader, fds[1], NULL), DEFT_OK);
        assert_int_equal(ipc_reader_next(&reader, &type, &payload, &n_bytes, NULL), -1);
        ipc_reader_done(&reader);
        (void)close(fds[0]);
        (void)close(fds[1]);
    }
}

static void check_hello(void (*spoil)(struct ipc_hello *hello), enum deft_status expected) {
    struct ipc_hello hello = valid_hello();
    if (spoil != NULL) {
        spoil(&hello);
    }
    assert_int_equal(ipc_check_payload(IPC_HELLO, &hello, sizeof(hello), NULL), expected);
}
static void spoil_rank(struct ipc_hello *hello) {
    hello->rank = hello->n_ranks;
}
static void spoil_world(struct ipc_hello *hello) {
    hello->n_ranks = IPC_MAX_RANKS + 1;
}
static void spoil_job(struct ipc_hello *hello) {
    memset(hello->job_id, 'x', sizeof(hello->job_id));
}
static void spoil_key(struct ipc_hello *hello) {
    hello->incarnation_key[0] = '\0';
}
static void spoil_tensors(struct ipc_hello *hello) {
    hello->n_tensors = IPC_MAX_TENSORS + 1;
}
static void spoil_links(struct ipc_hello *hello) {
    hello->n_links = IPC_MAX_LINKS + 1;
}
static void spoil_momentum(struct ipc_hello *hello) {
    hello->momentum = (double)NAN;
}

static void malformed_hellos_are_refused(void **unused) {
    (void)unused;
    check_hello(NULL, DEFT_OK);
    check_hello(spoil_rank, DEFT_INVALID);
    check_hello(spoil_world, DEFT_INVALID);
    check_hello(spoil_job, DEFT_INVALID);
    check_hello(spoil_key, DEFT_INVALID);
    check_hello(spoil_tensors, DEFT_INVALID);
    check_hello(spoil_links, DEFT_INVALID);
    check_hello(spoil_momentum, DEFT_INVALID);
}

static enum deft_status check(uint16_t type, const void *payload, size_t n_bytes) {
    return ipc_check_payload(type, payload, n_bytes, NULL);
}

static void malformed_records_are_refused(void **unused) {
    (void)unused;
    struct ipc_tensor tensor = {.name = "w", .elements = 0};
    assert_int_equal(check(IPC_TENSORS, &tensor, sizeof(tensor)), DEFT_INVALID);
    tensor.elements = 1;
    assert_int_equal(check(IPC_TENSORS, &tensor, sizeof(tensor)), DEFT_OK);
    assert_int_equal(check(IPC_TENSORS, &tensor, sizeof(tensor) - 1), DEFT_INVALID);
    assert_int_equal(check(IPC_TENSORS, &tensor, 0), DEFT_INVALID);
    tensor.dtype = 4;
    assert_int_equal(check(IPC_TENSORS, &tensor, sizeof(tensor)), DEFT_INVALID);

    struct ipc_link link = {.index = 0, .n_probes = 2, .name = "gloo:lo"};
    link.probes[0].bytes = 8;
    link.probes[1].bytes = 9;
    assert_int_equal(check(IPC_LINK, &link, sizeof(link)), DEFT_OK);
    link.probes[1].bytes = 8;
    assert_int_equal(check(IPC_LINK, &link, sizeof(link)), DEFT_INVALID);
    link.n_probes = IPC_MAX_PROBES + 1;
    assert_int_equal(check(IPC_LINK, &link, sizeof(link)), DEFT_INVALID);

    struct ipc_iteration iteration = {.step_ns = -1};
    assert_int_equal(check(IPC_ITERATIONS, &iteration, sizeof(iteration)), DEFT_INVALID);
    iteration = (struct ipc_iteration){.change_sq_local = (double)NAN, .learning_rate = 0};
    assert_int_equal(check(IPC_ITERATIONS, &iteration, sizeof(iteration)), DEFT_OK);
    iteration.change_sq_local = -1;
    assert_int_equal(check(IPC_ITERATIONS, &iteration, sizeof(iteration)), DEFT_INVALID);
    iteration = (struct ipc_iteration){.learning_rate = (double)INFINITY};
    assert_int_equal(check(IPC_ITERATIONS, &iteration, sizeof(iteration)), DEFT_INVALID);
    struct ipc_op op = {.bytes = 4, .start_ns = 5, .end_ns = 4};
    assert_int_equal(check(IPC_OPS, &op, sizeof(op)), DEFT_INVALID);
    op.end_ns = 5;
    op.link = IPC_MAX_LINKS;
    assert_int_equal(check(IPC_OPS, &op, sizeof(op)), DEFT_INVALID);

    struct {
        struct ipc_readiness head;
        int64_t offsets_ns[2];
    } readiness = {.head = {.n_tensors = 2}, .offsets_ns = {1, 2}};
    assert_int_equal(check(IPC_READINESS, &readiness, sizeof(readiness)), DEFT_OK);
    assert_int_equal(check(IPC_READINESS, &readiness, sizeof(readiness) - 8), DEFT_INVALID);
    assert_int_equal(check(IPC_READINESS, &readiness, 4), DEFT_INVALID);
    readiness.offsets_ns[1] = -1;
    assert_int_equal(check(IPC_READINESS, &readiness, sizeof(readiness)), DEFT_INVALID);
    readiness.head.n_tensors = UINT32_MAX;
    assert_int_equal(check(IPC_READINESS, &readiness, sizeof(readiness)), DEFT_INVALID);

    struct ipc_event event = {.kind = IPC_EVENT_FINISHED};
    assert_int_equal(check(IPC_EVENT, &event, sizeof(event)), DEFT_OK);
    event.kind = IPC_EVENT_FUSED + 1;
    assert_int_equal(check(IPC_EVENT, &event, sizeof(event)), DEFT_INVALID);
    event.kind = IPC_EVENT_FAILED;
    memset(event.text, 'x', sizeof(event.text));
    assert_int_equal(check(IPC_EVENT, &event, sizeof(event)), DEFT_INVALID);

    struct ipc_command command = {.kind = 3};
    assert_int_equal(check(IPC_COMMAND, &command, sizeof(command)), DEFT_INVALID);
    assert_int_equal(check(IPC_READY, &command, 8), DEFT_INVALID);
    assert_int_equal(check(99, &command, 8), DEFT_INVALID);
}

/* What a rank would do with a limit that nothing can keep, or a number that JSON cannot carry. */
static void malformed_plans_are_refused(void **unused) {
    (void)unused;
    const double limits[] = {0, -1, (double)INFINITY, (double)-INFINITY};
    struct {
        struct ipc_plan head;
        uint8_t plan[8];
    } frame = {.head = {.seq = IPC_MAX_COUNT, .max_loss = (double)NAN, .max_grad_sq = 1e-300}};
    assert_int_equal(check(IPC_PLAN, &frame, sizeof(frame)), DEFT_OK);
    assert_int_equal(check(IPC_PLAN, &frame, sizeof(frame.head)), DEFT_INVALID);
    frame.head.seq = IPC_MAX_COUNT + 1;
    assert_int_equal(check(IPC_PLAN, &frame, sizeof(frame)), DEFT_INVALID);
    frame.head.seq = 1;
    for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
        frame.head.max_loss = limits[i];
        assert_int_equal(check(IPC_PLAN, &frame, sizeof(frame)), DEFT_INVALID);
        frame.head.max_loss = 1;
        frame.head.max_grad_sq = limits[i];
        assert_int_equal(check(IPC_PLAN, &frame, sizeof(frame)), DEFT_INVALID);
        frame.head.max_grad_sq = 1;
        assert_int_equal(check(IPC_PLAN, &frame, sizeof(frame)), DEFT_OK);
    }
}

static void random_bytes_never_pass_as_a_stream(void **unused) {
    (void)unused;
    uint64_t state = testing_seed();
    for (int round = 0; round < 200; round++) {
        int fds[2];
        uint8_t bytes[512];
        struct ipc_reader reader = {0};
        uint16_t type;
        const void *payload;
        size_t n_bytes;
        for (size_t i = 0; i < sizeof(bytes); i++) {
            bytes[i] = (uint8_t)testing_random(&state);
        }
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
        assert_int_equal(send(fds[0], bytes, sizeof(bytes), 0), sizeof(bytes));
        assert_int_equal(ipc_reader_fill(&reader, fds[1], NULL), DEFT_OK);
        assert_int_equal(ipc_reader_next(&reader, &type, &payload, &n_bytes, NULL), -1);
        ipc_reader_done(&reader);
        (void)close(fds[0]);
        (void)close(fds[1]);
    }
}

static void sending_to_nobody_is_an_error_not_a_signal(void **unused) {
    (void)unused;
    int fds[2];
    struct ipc_command command = {.kind = IPC_COMMAND_STOP};
    struct deft_error error;
    /* The default action would end this process. */
    assert_ptr_not_equal(signal(SIGPIPE, SIG_DFL), SIG_ERR);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    (void)close(fds[1]);
    assert_int_equal(
        ipc_send(fds[0], IPC_COMMAND, &command, sizeof(command), NULL, 0, 1000, &error),
        DEFT_CLOSED);
    (void)close(fds[0]);
}

static void a_peer_that_does_not_read_times_out(void **unused) {
    (void)unused;
    int fds[2];
    uint8_t bytes[4096] = {0};
    struct ipc_plan plan = {.seq = 1};
    struct deft_error error;
    enum deft_status status = DEFT_OK;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    int64_t begin_ns = clock_monotonic_ns();
    for (int i = 0; i < 10000 && status == DEFT_OK; i++) {
        status = ipc_send(fds[0], IPC_PLAN, &plan, sizeof(plan), bytes, sizeof(bytes), 30, &error);
    }
    assert_int_equal(status, DEFT_TIMEOUT);
    assert_true(clock_monotonic_ns() - begin_ns >= INT64_C(30000000));
    assert_int_equal(ipc_send(fds[0], IPC_READY, NULL, 0, NULL, IPC_MAX_PAYLOAD_BYTES + 1, 0, NULL),
                     DEFT_LIMIT);
    (void)close(fds[0]);
    (void)close(fds[1]);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(any_chunking_gives_the_same_frames),
    cmocka_unit_test(largest_frame_goes_through_a_small_socket),
    cmocka_unit_test(malformed_headers_are_refused),
    cmocka_unit_test(malformed_hellos_are_refused),
    cmocka_unit_test(malformed_records_are_refused),
    cmocka_unit_test(malformed_plans_are_refused),
    cmocka_unit_test(random_bytes_never_pass_as_a_stream),
    cmocka_unit_test(sending_to_nobody_is_an_error_not_a_signal),
    cmocka_unit_test(a_peer_that_does_not_read_times_out),
};
TESTING_MAIN(cases)
