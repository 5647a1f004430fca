/* The thread that talks to the node agent. The training thread never waits for it: records go
 * through rings, plans and events through the mailbox. Without an agent it tries again, ever more
 * rarely. */
#include <errno.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/thread.h"
#include "runtime/runtime.h"

#define TELEMETRY_TICK_MS      100
#define TELEMETRY_SEND_MS      1000
#define TELEMETRY_RETRY_MIN_MS 200
#define TELEMETRY_RETRY_MAX_MS 5000
#define TELEMETRY_BATCH        256u

struct telemetry {
    struct deft_runtime *rt;
    pthread_t thread;
    int wake_fd;
    int fd; /* -1: no agent */
    struct ipc_reader reader;
    int64_t retry_at_ns;
    int64_t retry_ms;
    uint64_t reported_missed;
    /* shared with the training thread, atomic */
    int stopping;
    int connected;
    uint64_t n_missed;
    const struct deft_error *failure; /* written before `stopping` */
};

static void telemetry_disconnect(struct telemetry *t) {
    if (t->fd >= 0) {
        (void)close(t->fd);
        t->fd = -1;
    }
    ipc_reader_done(&t->reader);
    memset(&t->reader, 0, sizeof(t->reader));
    __atomic_store_n(&t->connected, 0, __ATOMIC_RELAXED);
    t->retry_at_ns = clock_monotonic_ns() + t->retry_ms * INT64_C(1000000);
    t->retry_ms =
        t->retry_ms * 2 > TELEMETRY_RETRY_MAX_MS ? TELEMETRY_RETRY_MAX_MS : t->retry_ms * 2;
}

/* Any failure to send ends the connection; what was in the frame is lost and counted by nobody but
 * the agent's gap. */
static int telemetry_send(struct telemetry *t, enum ipc_type type, const void *head,
                          size_t head_bytes, const void *tail, size_t tail_bytes) {
    if (t->fd < 0) {
        return 0;
    }
    if (ipc_send(t->fd, (uint16_t)type, head, head_bytes, tail, tail_bytes, TELEMETRY_SEND_MS,
                 NULL) != DEFT_OK) {
        telemetry_disconnect(t);
        return 0;
    }
    return 1;
}

/* --- introduction ----------------------------------------------------------------------------- */

static void telemetry_fill_hello(const struct deft_runtime *rt, struct ipc_hello *hello) {
    const struct deft_options *options = &rt->options;
    struct dsched_table table = gradspace_table(&rt->space);
    memset(hello, 0, sizeof(*hello));
    hello->rank = options->rank;
    hello->n_ranks = options->n_ranks;
    hello->pid = (int32_t)getpid();
    hello->capabilities = options->capabilities & ~DEFT_CAN_AVERAGE;
    if (!gradspace_has_parameters(&rt->space)) { /* lookahead needs the parameters, too */
        hello->capabilities &= ~DEFT_CAN_PREVIEW;
    } else if ((options->capabilities & DEFT_CAN_AVERAGE) != 0) {
        hello->capabilities |= IPC_CAN_AVERAGE;
    }
    hello->table_hash = dsched_table_hash(&table);
    hello->started_ns = rt->started_ns;
    hello->n_tensors = rt->space.n_tensors;
    hello->n_links = rt->n_links;
    hello->restart_count = options->restart_count;
    hello->optimizer = (uint32_t)options->optimizer;
    hello->momentum = options->momentum;
    hello->learning_rate = isfinite(options->learning_rate) ? options->learning_rate : 0;
    hello->batch_per_rank = options->batch_per_rank;
    hello->max_pending_bytes = options->max_pending_bytes;
    (void)snprintf(hello->job_id, sizeof(hello->job_id), "%s", options->job_id);
    (void)snprintf(hello->job_name, sizeof(hello->job_name), "%.127s", options->job_name);
    (void)snprintf(hello->incarnation_key, sizeof(hello->incarnation_key), "%s",
                   rt->incarnation_key);
    (void)snprintf(hello->version, sizeof(hello->version), "%s", deft_version());
}

static int telemetry_send_tensors(struct telemetry *t) {
    const struct deft_runtime *rt = t->rt;
    struct ipc_tensor *batch = calloc(TELEMETRY_BATCH, sizeof(*batch));
    int ok = batch != NULL;
    for (uint32_t i = 0; ok && i < rt->space.n_tensors;) {
        uint32_t n = 0;
        for (; n < TELEMETRY_BATCH && i < rt->space.n_tensors; n++, i++) {
            memcpy(batch[n].name, rt->space.tensors[i].name, sizeof(batch[n].name));
            batch[n].elements = rt->space.tensors[i].elements;
            batch[n].dtype = (uint32_t)rt->space.tensors[i].dtype;
        }
        ok = telemetry_send(t, IPC_TENSORS, batch, n * sizeof(*batch), NULL, 0);
    }
    free(batch);
    return ok;
}

static int telemetry_send_links(struct telemetry *t) {
    const struct deft_runtime *rt = t->rt;
    for (uint32_t l = 0; l < rt->n_links; l++) {
        struct ipc_link link = {.index = l, .n_probes = rt->links[l].n_probes};
        (void)snprintf(link.name, sizeof(link.name), "%s", rt->links[l].spec);
        for (uint32_t p = 0; p < link.n_probes; p++) {
            link.probes[p].bytes = rt->links[l].probes[p].bytes;
            link.probes[p].ns = rt->links[l].probes[p].ns;
        }
        if (!telemetry_send(t, IPC_LINK, &link, sizeof(link), NULL, 0)) {
            return 0;
        }
    }
    return 1;
}

static enum deft_status telemetry_connect(struct telemetry *t, struct deft_error *error) {
    enum deft_status status = ipc_connect(t->rt->options.agent_socket, &t->fd, error);
    if (status != DEFT_OK) {
        t->fd = -1;
        telemetry_disconnect(t);
    }
    return status;
}

static void telemetry_introduce(struct telemetry *t) {
    struct ipc_hello hello;
    telemetry_fill_hello(t->rt, &hello);
    if (telemetry_send(t, IPC_HELLO, &hello, sizeof(hello), NULL, 0) && telemetry_send_tensors(t) &&
        telemetry_send_links(t) && telemetry_send(t, IPC_READY, NULL, 0, NULL, 0)) {
        t->retry_ms = TELEMETRY_RETRY_MIN_MS;
        __atomic_store_n(&t->connected, 1, __ATOMIC_RELAXED);
    }
}

/* --- out: records and events ------------------------------------------------------------------ */

static void telemetry_drain_ring(struct telemetry *t, struct ring *ring, enum ipc_type type,
                                 size_t record_bytes) {
    uint8_t batch[TELEMETRY_BATCH * sizeof(struct ipc_iteration)];
    uint32_t n = 0;
    do {
        for (n = 0; n < TELEMETRY_BATCH && ring_get(ring, batch + n * record_bytes); n++) {
        }
        if (n > 0 && !telemetry_send(t, type, batch, n * record_bytes, NULL, 0)) {
            ring->n_missed += n;
        }
    } while (n == TELEMETRY_BATCH && t->fd >= 0);
}

static void telemetry_send_readiness(struct telemetry *t) {
    struct mailbox *mailbox = &t->rt->mailbox;
    struct ipc_readiness head = {.n_iterations = 0};
    size_t n_bytes = t->rt->space.n_tensors * sizeof(int64_t);
    int64_t *offsets = malloc(n_bytes);
    if (offsets == NULL) {
        return;
    }
    (void)pthread_mutex_lock(&mailbox->lock);
    if (mailbox->readiness_head.n_iterations > 0) {
        head = mailbox->readiness_head;
        memcpy(offsets, mailbox->readiness, n_bytes);
        mailbox->readiness_head.n_iterations = 0;
    }
    (void)pthread_mutex_unlock(&mailbox->lock);
    if (head.n_iterations > 0) {
        (void)telemetry_send(t, IPC_READINESS, &head, sizeof(head), offsets, n_bytes);
    }
    free(offsets);
}

static void telemetry_send_events(struct telemetry *t) {
    struct ipc_event event;
    while (t->fd >= 0 && mailbox_next_event(&t->rt->mailbox, &event)) {
        (void)telemetry_send(t, IPC_EVENT, &event, sizeof(event), NULL, 0);
    }
    uint64_t missed = t->rt->iterations.n_missed + t->rt->ops.n_missed;
    __atomic_store_n(&t->n_missed, missed, __ATOMIC_RELAXED);
    if (missed != t->reported_missed) {
        struct ipc_event dropped = {.kind = IPC_EVENT_DROPPED, .count = missed};
        if (telemetry_send(t, IPC_EVENT, &dropped, sizeof(dropped), NULL, 0)) {
            t->reported_missed = missed;
        }
    }
}

static void telemetry_flush(struct telemetry *t) {
    if (t->fd < 0) {
        return; /* records wait in the rings, the oldest give way */
    }
    telemetry_drain_ring(t, &t->rt->iterations, IPC_ITERATIONS, sizeof(struct ipc_iteration));
    telemetry_drain_ring(t, &t->rt->ops, IPC_OPS, sizeof(struct ipc_op));
    telemetry_send_readiness(t);
    telemetry_send_events(t);
}

/* --- in: plans and commands ------------------------------------------------------------------- */

static void telemetry_take_plan(struct telemetry *t, const uint8_t *payload, size_t n_bytes) {
    struct ipc_plan head;
    struct deft_error why = {.status = DEFT_OK};
    memcpy(&head, payload, sizeof(head));
    if (admission_offer(t->rt, &head, payload + sizeof(head), n_bytes - sizeof(head), &why) !=
        DEFT_OK) {
        __atomic_add_fetch(&t->rt->n_refused, 1, __ATOMIC_RELAXED);
        mailbox_event(&t->rt->mailbox, IPC_EVENT_REFUSED, head.seq, 0, 0, why.text);
    }
}

static void telemetry_take_command(struct telemetry *t, const void *payload) {
    struct ipc_command command;
    memcpy(&command, payload, sizeof(command));
    if (command.kind == IPC_COMMAND_DRAIN) {
        deft_drain_request(t->rt);
    } else if (command.kind == IPC_COMMAND_STOP) {
        deft_stop_request(t->rt);
    }
}

static void telemetry_receive(struct telemetry *t) {
    enum deft_status status = ipc_reader_fill(&t->reader, t->fd, NULL);
    uint16_t type = 0;
    const void *payload = NULL;
    size_t n_bytes = 0;
    int next;
    while ((next = ipc_reader_next(&t->reader, &type, &payload, &n_bytes, NULL)) == 1) {
        if (type == IPC_PLAN) {
            telemetry_take_plan(t, payload, n_bytes);
        } else if (type == IPC_COMMAND) {
            telemetry_take_command(t, payload);
        }
    }
    if (status != DEFT_OK || next < 0) {
        telemetry_disconnect(t);
    }
}

/* --- the thread ------------------------------------------------------------------------------- */

static void telemetry_say_goodbye(struct telemetry *t) {
    const struct deft_error *failure = t->failure;
    telemetry_flush(t);
    struct ipc_event event = {.kind = failure != NULL ? IPC_EVENT_FAILED : IPC_EVENT_FINISHED,
                              .plan_seq = t->rt->stats.plan_seq,
                              .iteration = t->rt->iteration};
    if (failure != NULL) {
        (void)snprintf(event.text, sizeof(event.text), "%.255s", failure->text);
    }
    (void)telemetry_send(t, IPC_EVENT, &event, sizeof(event), NULL, 0);
}

static void *telemetry_main(void *argument) {
    struct telemetry *t = argument;
    if (t->fd >= 0) {
        telemetry_introduce(t);
    }
    while (!__atomic_load_n(&t->stopping, __ATOMIC_ACQUIRE)) {
        if (t->fd < 0 && clock_monotonic_ns() >= t->retry_at_ns &&
            telemetry_connect(t, NULL) == DEFT_OK) {
            telemetry_introduce(t);
        }
        struct pollfd polled[2] = {{.fd = t->wake_fd, .events = POLLIN},
                                   {.fd = t->fd, .events = POLLIN}};
        (void)poll(polled, 2, TELEMETRY_TICK_MS);
        if (t->fd >= 0 && polled[1].revents != 0) {
            telemetry_receive(t);
        }
        telemetry_flush(t);
        mailbox_sweep(&t->rt->mailbox);
    }
    telemetry_say_goodbye(t);
    telemetry_disconnect(t);
    return NULL;
}

/* Tried before the thread runs, so that even the shortest job knows; it never waits. */
static void telemetry_try_first(struct telemetry *t) {
    struct deft_runtime *rt = t->rt;
    struct deft_error why = {.text = ""};
    if (telemetry_connect(t, &why) != DEFT_OK) {
        size_t n = strlen(rt->notice);
        (void)snprintf(rt->notice + n, sizeof(rt->notice) - n,
                       "%s%s; no plan arrives until one does", n > 0 ? "; " : "", why.text);
    }
}

enum deft_status telemetry_start(struct deft_runtime *rt, struct deft_error *error) {
    if (rt->options.agent_socket[0] == '\0') {
        return DEFT_OK;
    }
    struct telemetry *t = calloc(1, sizeof(*t));
    if (t == NULL) {
        return deft_fail(error, DEFT_NO_MEMORY, 0, "no memory for telemetry");
    }
    t->rt = rt;
    t->fd = -1;
    t->retry_ms = TELEMETRY_RETRY_MIN_MS;
    telemetry_try_first(t);
    t->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int code = t->wake_fd < 0 ? errno : thread_start(&t->thread, telemetry_main, t);
    if (code != 0) {
        if (t->wake_fd >= 0) {
            (void)close(t->wake_fd);
        }
        telemetry_disconnect(t);
        free(t);
        return DEFT_OK; /* tuning is lost, the job is not */
    }
    rt->telemetry = t;
    return DEFT_OK;
}

void telemetry_stop(struct telemetry *t, const struct deft_error *failure) {
    if (t == NULL) {
        return;
    }
    uint64_t one = 1;
    t->failure = failure;
    __atomic_store_n(&t->stopping, 1, __ATOMIC_RELEASE);
    ssize_t n = write(t->wake_fd, &one, sizeof(one));
    (void)n; /* a full eventfd is readable, which is all that is wanted */
    /* Each send gives up after TELEMETRY_SEND_MS and then closes the connection, so the goodbye is
     * bounded by two of them. */
    (void)pthread_join(t->thread, NULL);
    (void)close(t->wake_fd);
    t->rt->telemetry = NULL;
    free(t);
}

int telemetry_connected(const struct telemetry *t) {
    return t != NULL && __atomic_load_n(&t->connected, __ATOMIC_RELAXED);
}

uint64_t telemetry_dropped(const struct telemetry *t) {
    return t != NULL ? __atomic_load_n(&t->n_missed, __ATOMIC_RELAXED) : 0;
}

void telemetry_forked(struct telemetry *t) {
    if (t != NULL && t->fd >= 0) {
        (void)close(t->fd);
        t->fd = -1;
    }
}
