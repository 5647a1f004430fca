/* Seeds of fuzz_ipc: each type of frame once, a whole conversation, and two that are refused. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ipc/ipc.h"
#include "seeds.h"

/* The conversation of a rank with two tensors, one link and a few iterations. */
#define SEEDS_IPC_STREAM_BYTES 8192u

struct seeds_ipc_stream {
    uint8_t bytes[SEEDS_IPC_STREAM_BYTES];
    size_t n_bytes;
};

static void seeds_ipc_add(struct seeds_ipc_stream *stream, uint16_t type, const void *payload,
                          size_t n_bytes) {
    struct ipc_header header = {.magic = IPC_MAGIC,
                                .version = IPC_VERSION,
                                .type = type,
                                .payload_bytes = (uint32_t)n_bytes};
    memcpy(stream->bytes + stream->n_bytes, &header, sizeof header);
    stream->n_bytes += sizeof header;
    if (n_bytes > 0) {
        memcpy(stream->bytes + stream->n_bytes, payload, n_bytes);
        stream->n_bytes += n_bytes;
    }
}

static void seeds_ipc_one(const char *folder, const char *name, struct seeds_ipc_stream *all,
                          uint16_t type, const void *payload, size_t n_bytes) {
    struct seeds_ipc_stream one = {.n_bytes = 0};
    seeds_ipc_add(&one, type, payload, n_bytes);
    seeds_write(folder, name, one.bytes, one.n_bytes);
    seeds_ipc_add(all, type, payload, n_bytes);
}

static void seeds_ipc_opening(const char *folder, struct seeds_ipc_stream *all) {
    struct ipc_hello hello;
    memset(&hello, 0, sizeof hello);
    hello.rank = 1;
    hello.n_ranks = 4;
    hello.pid = 4711;
    hello.capabilities = IPC_CAN_AVERAGE | 3u;
    hello.table_hash = UINT64_C(0x0123456789abcdef);
    hello.started_ns = UINT64_C(1700000000000000000);
    hello.n_tensors = 2;
    hello.n_links = 1;
    hello.optimizer = 1;
    hello.momentum = 0.9;
    hello.learning_rate = 0.05;
    hello.batch_per_rank = 256;
    (void)snprintf(hello.job_id, sizeof hello.job_id, "36199_0");
    (void)snprintf(hello.job_name, sizeof hello.job_name, "mlp");
    (void)snprintf(hello.incarnation_key, sizeof hello.incarnation_key, "36199_0-1-0");
    (void)snprintf(hello.version, sizeof hello.version, "0.1.0");
    seeds_ipc_one(folder, "hello", all, IPC_HELLO, &hello, sizeof hello);

    struct ipc_tensor tensors[2];
    memset(tensors, 0, sizeof tensors);
    for (int i = 0; i < 2; i++) {
        (void)snprintf(tensors[i].name, sizeof tensors[i].name, "layer%d.weight", i);
        tensors[i].elements = 200704; /* 784 x 256 */
    }
    seeds_ipc_one(folder, "tensors", all, IPC_TENSORS, tensors, sizeof tensors);

    struct ipc_link link;
    memset(&link, 0, sizeof link);
    link.n_probes = 2;
    link.probes[0].bytes = 4096;
    link.probes[0].ns = 110000;
    link.probes[1].bytes = 1048576;
    link.probes[1].ns = 9200000;
    (void)snprintf(link.name, sizeof link.name, "gloo:eth0");
    seeds_ipc_one(folder, "link", all, IPC_LINK, &link, sizeof link);
    seeds_ipc_one(folder, "ready", all, IPC_READY, NULL, 0);
}

static void seeds_ipc_telemetry(const char *folder, struct seeds_ipc_stream *all) {
    struct ipc_iteration iterations[2];
    memset(iterations, 0, sizeof iterations);
    for (int i = 0; i < 2; i++) {
        iterations[i].iteration = (uint64_t)i;
        iterations[i].forward_ns = 3000000;
        iterations[i].backward_ns = 6000000;
        iterations[i].exposed_ns = 1500000;
        iterations[i].step_ns = 11000000;
        iterations[i].bytes = 1605632;
        iterations[i].loss = i == 0 ? 2.3 : (double)NAN;
        iterations[i].grad_sq_local = 1.5;
        iterations[i].grad_sq_mean = 1.25;
        iterations[i].updates = 1;
        iterations[i].merge = 1;
        iterations[i].flags = i == 0 ? 0 : IPC_ITERATION_BAD_LOSS;
        iterations[i].change_sq_local = 0.25;
        iterations[i].learning_rate = 0.05;
    }
    seeds_ipc_one(folder, "iterations", all, IPC_ITERATIONS, iterations, sizeof iterations);

    struct ipc_op op = {
        .iteration = 1, .bytes = 802816, .posted_ns = 10, .start_ns = 20, .end_ns = 7000020};
    seeds_ipc_one(folder, "ops", all, IPC_OPS, &op, sizeof op);

    struct {
        struct ipc_readiness head;
        int64_t offsets_ns[2];
    } readiness = {.head = {.iteration = 1, .n_iterations = 2, .n_tensors = 2},
                   .offsets_ns = {5900000, 2100000}};
    seeds_ipc_one(folder, "readiness", all, IPC_READINESS, &readiness, sizeof readiness);

    struct ipc_event event;
    memset(&event, 0, sizeof event);
    event.kind = IPC_EVENT_REFUSED;
    event.plan_seq = 3;
    event.iteration = 40;
    (void)snprintf(event.text, sizeof event.text, "the plan needs previews");
    seeds_ipc_one(folder, "event", all, IPC_EVENT, &event, sizeof event);
}

static void seeds_ipc_answers(const char *folder, struct seeds_ipc_stream *all) {
    struct {
        struct ipc_plan head;
        uint8_t plan[40]; /* what is inside is fuzz_plan_decode's business */
    } plan = {.head = {.seq = 3, .hash = 77, .max_loss = 2.875, .max_grad_sq = (double)NAN},
              .plan = {1}};
    /* An odd size: the reader must align the frame that follows. */
    seeds_ipc_one(folder, "plan", all, IPC_PLAN, &plan, sizeof plan - 3);
    struct ipc_command command = {.kind = IPC_COMMAND_DRAIN};
    seeds_ipc_one(folder, "command", all, IPC_COMMAND, &command, sizeof command);
}

static void seeds_ipc_refused(const char *folder) {
    struct ipc_header header = {.magic = IPC_MAGIC,
                                .version = IPC_VERSION,
                                .type = IPC_TENSORS,
                                .payload_bytes = IPC_MAX_PAYLOAD_BYTES + 1};
    seeds_write(folder, "refused_size", &header, sizeof header);
    header.version = IPC_VERSION + 1;
    seeds_write(folder, "refused_version", &header, sizeof header);
}

int main(int argc, char **argv) {
    struct seeds_ipc_stream all = {.n_bytes = 0};
    if (argc != 2) {
        (void)fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
        return 2;
    }
    seeds_ipc_opening(argv[1], &all);
    seeds_ipc_telemetry(argv[1], &all);
    seeds_ipc_answers(argv[1], &all);
    seeds_write(argv[1], "conversation", all.bytes, all.n_bytes);
    seeds_ipc_refused(argv[1]);
    return 0;
}
