#include "daemon_batch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon_text.h"

static void *daemon_batch_reserve(void *items, size_t n_wanted, size_t item_bytes,
                                  size_t *capacity) {
    if (n_wanted <= *capacity) {
        return items;
    }
    size_t grown = *capacity < 8 ? 8 : *capacity * 2;
    if (grown < n_wanted) {
        grown = n_wanted;
    }
    void *moved = realloc(items, grown * item_bytes);
    if (moved != NULL) {
        *capacity = grown;
    }
    return moved;
}

static void daemon_batch_touch(struct daemon_batch *batch, int64_t now_ns) {
    if (batch->first_ns == 0) {
        batch->first_ns = now_ns;
    }
}

static struct wire_iteration daemon_batch_iteration(uint32_t rank, const struct ipc_iteration *in) {
    return (struct wire_iteration){.rank = rank,
                                   .iteration = in->iteration,
                                   .plan_seq = in->plan_seq,
                                   .forward_ns = in->forward_ns,
                                   .backward_ns = in->backward_ns,
                                   .exposed_ns = in->exposed_ns,
                                   .optimizer_ns = in->optimizer_ns,
                                   .runtime_ns = in->runtime_ns,
                                   .step_ns = in->step_ns,
                                   .bytes = in->bytes,
                                   .loss = in->loss,
                                   .grad_sq_local = in->grad_sq_local,
                                   .grad_sq_mean = in->grad_sq_mean,
                                   .updates = in->updates,
                                   .skipped = in->skipped,
                                   .merge = in->merge,
                                   .flags = in->flags,
                                   .change_sq_local = in->change_sq_local,
                                   .learning_rate = in->learning_rate};
}

void daemon_batch_iterations(struct daemon_batch *batch, uint32_t rank,
                             const struct ipc_iteration *records, size_t n, int64_t now_ns) {
    struct wire_report *report = &batch->report;
    struct wire_iteration *items = daemon_batch_reserve(
        report->iterations, report->n_iterations + n, sizeof(*items), &batch->iterations_capacity);
    if (items == NULL) {
        batch->n_lost += n;
        return;
    }
    report->iterations = items;
    for (size_t i = 0; i < n; i++) {
        items[report->n_iterations++] = daemon_batch_iteration(rank, &records[i]);
    }
    daemon_batch_touch(batch, now_ns);
}

void daemon_batch_ops(struct daemon_batch *batch, uint32_t rank, const struct ipc_op *records,
                      size_t n, int64_t now_ns) {
    struct daemon_batch_op *ops =
        daemon_batch_reserve(batch->ops, batch->n_ops + n, sizeof(*ops), &batch->ops_capacity);
    if (ops == NULL) {
        batch->n_lost += n;
        return;
    }
    batch->ops = ops;
    for (size_t i = 0; i < n; i++) {
        ops[batch->n_ops++] =
            (struct daemon_batch_op){.rank = rank,
                                     .link = records[i].link,
                                     .bytes = records[i].bytes,
                                     .ns = records[i].end_ns - records[i].start_ns};
    }
    daemon_batch_touch(batch, now_ns);
}

static struct wire_readiness *daemon_batch_readiness_of(struct daemon_batch *batch, uint32_t rank) {
    struct wire_report *report = &batch->report;
    for (uint32_t i = 0; i < report->n_readiness; i++) {
        if (report->readiness[i].rank == rank) {
            return &report->readiness[i];
        }
    }
    struct wire_readiness *items =
        daemon_batch_reserve(report->readiness, (size_t)report->n_readiness + 1, sizeof(*items),
                             &batch->readiness_capacity);
    if (items == NULL) {
        return NULL;
    }
    report->readiness = items;
    items[report->n_readiness] = (struct wire_readiness){.rank = rank};
    return &items[report->n_readiness++];
}

void daemon_batch_readiness(struct daemon_batch *batch, uint32_t rank,
                            const struct ipc_readiness *record, const int64_t *offsets_ns,
                            int64_t now_ns) {
    if (record->n_tensors == 0) {
        return;
    }
    size_t n_bytes = record->n_tensors * sizeof(*offsets_ns);
    int64_t *copy = malloc(n_bytes);
    struct wire_readiness *readiness = copy != NULL ? daemon_batch_readiness_of(batch, rank) : NULL;
    if (readiness == NULL) {
        free(copy);
        batch->n_lost++;
        return;
    }
    memcpy(copy, offsets_ns, n_bytes);
    batch->n_offsets += record->n_tensors;
    batch->n_offsets -= readiness->n_offsets;
    free(readiness->offsets_ns);
    *readiness = (struct wire_readiness){.rank = rank,
                                         .iteration = record->iteration,
                                         .n_offsets = record->n_tensors,
                                         .offsets_ns = copy};
    daemon_batch_touch(batch, now_ns);
}

static const char *daemon_batch_event_name(uint32_t kind) {
    switch (kind) {
    case IPC_EVENT_SWITCHED:
        return "switched";
    case IPC_EVENT_REFUSED:
        return "refused";
    case IPC_EVENT_FINISHED:
        return "finished";
    case IPC_EVENT_FAILED:
        return "failed";
    case IPC_EVENT_FUSED:
        return "fused";
    default:
        return "dropped";
    }
}

void daemon_batch_event(struct daemon_batch *batch, uint32_t rank, const struct ipc_event *record,
                        int64_t now_ns) {
    struct wire_report *report = &batch->report;
    struct wire_event *items = daemon_batch_reserve(report->events, (size_t)report->n_events + 1,
                                                    sizeof(*items), &batch->events_capacity);
    if (items == NULL) {
        batch->n_lost++;
        return;
    }
    report->events = items;
    struct wire_event *event = &items[report->n_events++];
    *event = (struct wire_event){.rank = rank,
                                 .plan_seq = record->plan_seq,
                                 .iteration = record->iteration,
                                 .count = record->count};
    (void)snprintf(event->kind, sizeof(event->kind), "%s", daemon_batch_event_name(record->kind));
    daemon_text_copy(event->text, sizeof(event->text), record->text);
    daemon_batch_touch(batch, now_ns);
}

void daemon_batch_alive(struct daemon_batch *batch, int64_t now_ns) {
    batch->alive_ns = now_ns;
}

int64_t daemon_batch_deadline_ns(const struct daemon_batch *batch) {
    if (batch->first_ns == 0) {
        return batch->alive_ns == 0 ? INT64_MAX : batch->alive_ns + DAEMON_BATCH_SILENCE_NS;
    }
    if (batch->report.n_iterations >= DAEMON_BATCH_ITERATIONS || batch->n_ops >= DAEMON_BATCH_OPS ||
        batch->n_offsets >= DAEMON_BATCH_OFFSETS || batch->report.n_events >= DAEMON_BATCH_EVENTS) {
        return 0;
    }
    return batch->first_ns + DAEMON_BATCH_NS;
}

static int daemon_batch_compare_key(const struct daemon_batch_op *a,
                                    const struct daemon_batch_op *b) {
    if (a->rank != b->rank) {
        return a->rank < b->rank ? -1 : 1;
    }
    if (a->link != b->link) {
        return a->link < b->link ? -1 : 1;
    }
    return (a->bytes > b->bytes) - (a->bytes < b->bytes);
}

static int daemon_batch_compare(const void *left, const void *right) {
    const struct daemon_batch_op *a = left;
    const struct daemon_batch_op *b = right;
    int key = daemon_batch_compare_key(a, b);
    return key != 0 ? key : (a->ns > b->ns) - (a->ns < b->ns);
}

/* After sorting, ops of one rank, link and size lie together, by duration. */
static void daemon_batch_sum_up(struct daemon_batch *batch) {
    struct wire_report *report = &batch->report;
    if (batch->n_ops == 0) {
        return;
    }
    qsort(batch->ops, batch->n_ops, sizeof(*batch->ops), daemon_batch_compare);
    report->ops = calloc(batch->n_ops, sizeof(*report->ops));
    if (report->ops == NULL) {
        batch->n_lost += batch->n_ops;
        return;
    }
    for (size_t begin = 0, end; begin < batch->n_ops; begin = end) {
        const struct daemon_batch_op *first = &batch->ops[begin];
        for (end = begin + 1;
             end < batch->n_ops && daemon_batch_compare_key(first, &batch->ops[end]) == 0; end++) {
        }
        report->ops[report->n_ops++] =
            (struct wire_op_summary){.rank = first->rank,
                                     .link = first->link,
                                     .bytes = first->bytes,
                                     .count = (uint32_t)(end - begin),
                                     .min_ns = first->ns,
                                     .median_ns = batch->ops[begin + (end - begin) / 2].ns,
                                     .max_ns = batch->ops[end - 1].ns};
    }
    struct wire_op_summary *shrunk = realloc(report->ops, report->n_ops * sizeof(*report->ops));
    if (shrunk != NULL) {
        report->ops = shrunk;
    }
}

void daemon_batch_cut(struct daemon_batch *batch, struct wire_report *out) {
    daemon_batch_sum_up(batch);
    *out = batch->report;
    free(batch->ops);
    *batch = (struct daemon_batch){.n_lost = batch->n_lost};
}

void daemon_batch_done(struct daemon_batch *batch) {
    wire_report_done(&batch->report);
    free(batch->ops);
    *batch = (struct daemon_batch){0};
}
