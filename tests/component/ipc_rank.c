#include "ipc_rank.h"

#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "testing.h"

static void ipc_rank_send(const struct ipc_rank *rank, uint16_t type, const void *payload,
                          size_t n_bytes) {
    struct deft_error error = {0};
    enum deft_status status = ipc_send(rank->fd, type, payload, n_bytes, NULL, 0, 10000, &error);
    assert_true(status == DEFT_OK || (status == DEFT_CLOSED && rank->may_be_refused));
}

static void ipc_rank_connect(struct ipc_rank *rank, const char *socket) {
    int64_t until_ns = clock_monotonic_ns() + testing_deadline_ns(10);
    while (ipc_connect(socket, &rank->fd, NULL) != DEFT_OK) {
        struct timespec tick = {.tv_nsec = 5000000};
        assert_true(clock_monotonic_ns() < until_ns);
        (void)nanosleep(&tick, NULL);
    }
}

static void ipc_rank_introduce(struct ipc_rank *rank, const char *socket, int32_t number,
                               int32_t n_ranks, const char *job, const char *key) {
    struct ipc_hello hello = {.rank = number,
                              .n_ranks = n_ranks,
                              .pid = (int32_t)getpid(),
                              .capabilities = IPC_CAN_AVERAGE | 3u,
                              .table_hash = 0x1234,
                              .started_ns = (uint64_t)clock_wall_ns(),
                              .n_tensors = IPC_RANK_TENSORS,
                              .n_links = 1,
                              .optimizer = 1,
                              .momentum = 0.9,
                              .learning_rate = 0.1,
                              .batch_per_rank = 64,
                              .version = "0.1.0"};
    struct ipc_tensor tensors[IPC_RANK_TENSORS] = {0};
    struct ipc_link link = {.index = 0, .n_probes = 2, .name = "mem:test"};
    (void)snprintf(hello.job_id, sizeof(hello.job_id), "%s", job);
    (void)snprintf(hello.job_name, sizeof(hello.job_name), "%s", job);
    (void)snprintf(hello.incarnation_key, sizeof(hello.incarnation_key), "%s", key);
    for (uint32_t i = 0; i < IPC_RANK_TENSORS; i++) {
        (void)snprintf(tensors[i].name, sizeof(tensors[i].name), "layer%u", i);
        tensors[i].elements = UINT64_C(1000) * (i + 1);
    }
    link.probes[0].bytes = 4096;
    link.probes[0].ns = 50000;
    link.probes[1].bytes = 1u << 20;
    link.probes[1].ns = 9000000;
    ipc_rank_connect(rank, socket);
    ipc_rank_send(rank, IPC_HELLO, &hello, sizeof(hello));
    ipc_rank_send(rank, IPC_TENSORS, tensors, sizeof(tensors[0]));
    ipc_rank_send(rank, IPC_TENSORS, tensors + 1, sizeof(tensors) - sizeof(tensors[0]));
    ipc_rank_send(rank, IPC_LINK, &link, sizeof(link));
    ipc_rank_send(rank, IPC_READY, NULL, 0);
}

void ipc_rank_join(struct ipc_rank *rank, const char *socket, int32_t number, int32_t n_ranks,
                   const char *job, const char *key) {
    *rank = (struct ipc_rank){.fd = -1, .rank = number};
    ipc_rank_introduce(rank, socket, number, n_ranks, job, key);
}

void ipc_rank_intrude(struct ipc_rank *rank, const char *socket, int32_t number, int32_t n_ranks,
                      const char *job, const char *key) {
    *rank = (struct ipc_rank){.fd = -1, .rank = number, .may_be_refused = 1};
    ipc_rank_introduce(rank, socket, number, n_ranks, job, key);
}

void ipc_rank_iterations(const struct ipc_rank *rank, uint64_t first, uint32_t n,
                         uint64_t plan_seq) {
    for (uint32_t i = 0; i < n; i++) {
        struct ipc_iteration iteration = {.iteration = first + i,
                                          .plan_seq = plan_seq,
                                          .forward_ns = 1000000,
                                          .backward_ns = 2000000,
                                          .exposed_ns = 500000,
                                          .step_ns = 4000000,
                                          .bytes = 24000,
                                          .loss = 1.0 / (double)(first + i + 1),
                                          .grad_sq_local = 1.0,
                                          .grad_sq_mean = 0.5,
                                          .updates = 1,
                                          .merge = 1,
                                          .change_sq_local = (double)NAN,
                                          .learning_rate = 0.05};
        struct ipc_op op = {.iteration = first + i,
                            .bytes = 24000,
                            .posted_ns = 10,
                            .start_ns = 20,
                            .end_ns = 20 + 1000 * ((int64_t)i + 1)};
        ipc_rank_send(rank, IPC_ITERATIONS, &iteration, sizeof(iteration));
        ipc_rank_send(rank, IPC_OPS, &op, sizeof(op));
    }
}

void ipc_rank_event(const struct ipc_rank *rank, enum ipc_event_kind kind, uint64_t plan_seq) {
    struct ipc_event event = {.kind = kind, .plan_seq = plan_seq};
    ipc_rank_send(rank, IPC_EVENT, &event, sizeof(event));
}

void ipc_rank_receive(struct ipc_rank *rank, uint16_t *out_type, const void **out_payload,
                      size_t *out_n_bytes) {
    int64_t until_ns = clock_monotonic_ns() + testing_deadline_ns(15);
    while (ipc_reader_next(&rank->reader, out_type, out_payload, out_n_bytes, NULL) != 1) {
        struct pollfd poll_fd = {.fd = rank->fd, .events = POLLIN};
        assert_true(clock_monotonic_ns() < until_ns);
        (void)poll(&poll_fd, 1, 100);
        assert_int_equal(ipc_reader_fill(&rank->reader, rank->fd, NULL), DEFT_OK);
    }
}

int ipc_rank_is_dropped(struct ipc_rank *rank) {
    int64_t until_ns = clock_monotonic_ns() + testing_deadline_ns(10);
    while (clock_monotonic_ns() < until_ns) {
        struct pollfd poll_fd = {.fd = rank->fd, .events = POLLIN};
        (void)poll(&poll_fd, 1, 100);
        if (ipc_reader_fill(&rank->reader, rank->fd, NULL) == DEFT_CLOSED) {
            return 1;
        }
    }
    return 0;
}

void ipc_rank_leave(struct ipc_rank *rank) {
    ipc_reader_done(&rank->reader);
    (void)close(rank->fd);
    rank->fd = -1;
}
