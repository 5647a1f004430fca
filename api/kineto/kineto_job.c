/* Steps of all ranks as one job: which buckets it has, and the medians of all figures. */
#include "kineto.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kineto_agree.h"
#include "kineto_measure.h"
#include "kineto_spans.h"
#include "kineto_trace.h"
#include "kineto_waits.h"

/* Other collectives are worth a word from this share of the gradients' time on. */
#define KINETO_JOB_FOREIGN_PERCENT 10

static void kineto_job_note(struct kineto_job *job, const char *format, ...) DEFT_PRINTF(2, 3);
static void kineto_job_note(struct kineto_job *job, const char *format, ...) {
    va_list arguments;
    if (job->n_notes == KINETO_MAX_NOTES) {
        return;
    }
    va_start(arguments, format);
    (void)vsnprintf(job->notes[job->n_notes], KINETO_NOTE_BYTES, format, arguments);
    va_end(arguments);
    job->n_notes++;
}

/* Ranks as the traces tell them; a trace that does not takes the first number that is free. */
static enum deft_status kineto_job_ranks(struct kineto_trace *const *traces, uint32_t n,
                                         uint32_t *ranks, struct deft_error *error) {
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t j = 0; j < i; j++) {
            if (traces[i]->rank >= 0 && traces[i]->rank == traces[j]->rank) {
                return deft_fail(error, DEFT_INVALID, 0,
                                 "'%s' and '%s' are both of rank %u, expected one trace per rank",
                                 traces[j]->path, traces[i]->path, (unsigned)traces[i]->rank);
            }
        }
    }
    uint32_t next = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (traces[i]->rank >= 0) {
            ranks[i] = (uint32_t)traces[i]->rank;
            continue;
        }
        for (uint32_t j = 0; j < n; j++) {
            if (traces[j]->rank == (int64_t)next) {
                next++;
                j = UINT32_MAX; /* begins again: another one may have the next number */
            }
        }
        ranks[i] = next++;
    }
    return DEFT_OK;
}

static void kineto_job_add_foreign(struct kineto_job *job, const struct kineto_measured *measured) {
    for (uint32_t i = 0; i < measured->n_foreign; i++) {
        const struct kineto_foreign *from = &measured->foreign[i];
        uint32_t at = 0;
        while (at < job->n_foreign && (strcmp(job->foreign[at].name, from->name) != 0 ||
                                       strcmp(job->foreign[at].group, from->group) != 0)) {
            at++;
        }
        if (at == KINETO_MAX_NAMES) {
            at--;
        } else if (at == job->n_foreign) {
            job->foreign[job->n_foreign++] = *from;
            continue;
        }
        job->foreign[at].count += from->count;
        job->foreign[at].total_ns = kineto_measure_add(job->foreign[at].total_ns, from->total_ns);
    }
}

/* Takes the steps out of `measured`. */
static enum deft_status kineto_job_add_steps(struct kineto_job *job,
                                             struct kineto_measured *measured,
                                             struct deft_error *error) {
    struct kineto_step *grown =
        reallocarray(job->steps, (size_t)job->n_steps + measured->n_steps, sizeof(*grown));
    if (grown == NULL) {
        return deft_fail(error, DEFT_NO_MEMORY, 0, "no memory for the steps of a job");
    }
    job->steps = grown;
    memcpy(grown + job->n_steps, measured->steps, measured->n_steps * sizeof(*grown));
    job->n_steps += measured->n_steps;
    job->n_left_out += measured->n_left_out;
    measured->n_steps = 0;
    return DEFT_OK;
}

static int kineto_job_by_rank(const void *a, const void *b) {
    const struct kineto_step *x = a;
    const struct kineto_step *y = b;
    if (x->rank != y->rank) {
        return x->rank < y->rank ? -1 : 1;
    }
    return (x->number > y->number) - (x->number < y->number);
}

static enum deft_status kineto_job_measure(struct kineto_job *job,
                                           struct kineto_trace *const *traces,
                                           const uint32_t *ranks, uint32_t n_traces,
                                           struct deft_error *error) {
    uint32_t n_untyped = 0;
    for (uint32_t i = 0; i < n_traces; i++) {
        struct kineto_measured measured = {0};
        enum deft_status status = kineto_measure(traces[i], ranks[i], &measured, error);
        if (status == DEFT_OK) {
            kineto_job_add_foreign(job, &measured);
            n_untyped += measured.n_untyped;
            status = kineto_job_add_steps(job, &measured, error);
        }
        kineto_measured_done(&measured);
        if (status != DEFT_OK) {
            return status;
        }
        if (i > 0 && traces[i]->has_device != job->has_device) {
            return deft_fail(error, DEFT_INVALID, 0,
                             "'%s' has %s device, '%s' has %s: expected traces of one job",
                             traces[i]->path, traces[i]->has_device ? "a" : "no", traces[0]->path,
                             traces[0]->has_device ? "one" : "none");
        }
        job->has_device = traces[i]->has_device;
        if (traces[i]->world_size > job->world_size) {
            job->world_size = traces[i]->world_size;
        }
        kineto_trace_empty(traces[i]);
    }
    job->n_ranks = n_traces;
    if (job->n_steps > 0) {
        qsort(job->steps, job->n_steps, sizeof(*job->steps), kineto_job_by_rank);
    }
    if (n_untyped > 0) {
        kineto_job_note(job,
                        "the profiler did not record the dtype of %u all-reduces: taken for "
                        "f32 (record_shapes=True records it)",
                        n_untyped);
    }
    return DEFT_OK;
}

static const size_t kineto_job_figures[] = {
    offsetof(struct kineto_step, step_ns),          offsetof(struct kineto_step, backward_begin_ns),
    offsetof(struct kineto_step, backward_end_ns),  offsetof(struct kineto_step, forward_busy_ns),
    offsetof(struct kineto_step, backward_busy_ns), offsetof(struct kineto_step, optimizer_busy_ns),
    offsetof(struct kineto_step, compute_busy_ns),  offsetof(struct kineto_step, copy_ns),
    offsetof(struct kineto_step, communication_ns), offsetof(struct kineto_step, exposed_ns),
    offsetof(struct kineto_step, foreign_ns),
};

/* From the later of backward and communication to the end of the step. */
static int64_t kineto_job_optimizer(const struct kineto_step *step) {
    int64_t done_ns = step->backward_end_ns;
    for (uint32_t i = 0; i < step->n_reduces; i++) {
        done_ns = step->reduces[i].end_ns > done_ns ? step->reduces[i].end_ns : done_ns;
    }
    return step->step_ns > done_ns ? step->step_ns - done_ns : 0;
}

static void kineto_job_medians(struct kineto_job *job, int64_t *values) {
    for (size_t f = 0; f < sizeof(kineto_job_figures) / sizeof(kineto_job_figures[0]); f++) {
        for (uint32_t i = 0; i < job->n_steps; i++) {
            memcpy(&values[i], (const char *)&job->steps[i] + kineto_job_figures[f],
                   sizeof(values[i]));
        }
        int64_t median = kineto_spans_median(values, job->n_steps);
        memcpy((char *)&job->median + kineto_job_figures[f], &median, sizeof(median));
    }
    /* Half of the waits or more are zero, one rank of each all-reduce being the last: the mean. */
    for (uint32_t i = 0; i < job->n_steps; i++) {
        values[i] = job->steps[i].wait_ns;
    }
    job->median.wait_ns = kineto_spans_mean(values, job->n_steps);
    for (uint32_t i = 0; i < job->n_steps; i++) {
        values[i] = kineto_job_optimizer(&job->steps[i]);
    }
    job->optimizer_ns = kineto_spans_median(values, job->n_steps);
}

/* Where the link is busy with the bucket before, a later bucket has not begun its transfer. */
static int64_t kineto_job_transfer(const struct kineto_step *step, uint32_t b) {
    const struct kineto_reduce *reduce = &step->reduces[b];
    int64_t begin_ns = reduce->begin_ns;
    if (b > 0 && step->reduces[b - 1].end_ns > begin_ns) {
        begin_ns = step->reduces[b - 1].end_ns;
    }
    int64_t transfer_ns = reduce->end_ns - begin_ns;
    if (reduce->wait_ns > 0) {
        transfer_ns = reduce->end_ns - reduce->begin_ns - reduce->wait_ns;
    }
    return transfer_ns > 0 ? transfer_ns : 0;
}

static void kineto_job_bucket(const struct kineto_job *job, uint32_t b, int64_t *values,
                              struct kineto_bucket *out) {
    uint32_t n_waits = 0;
    out->elements = job->steps[0].reduces[b].elements;
    out->dtype = job->steps[0].reduces[b].dtype;
    for (uint32_t i = 0; i < job->n_steps; i++) {
        values[i] = job->steps[i].reduces[b].ready_ns;
    }
    out->ready_ns = kineto_spans_median(values, job->n_steps);
    for (uint32_t i = 0; i < job->n_steps; i++) {
        values[i] = job->steps[i].reduces[b].begin_ns;
    }
    out->begin_ns = kineto_spans_median(values, job->n_steps);
    for (uint32_t i = 0; i < job->n_steps; i++) {
        values[i] = job->steps[i].reduces[b].end_ns - job->steps[i].reduces[b].begin_ns;
    }
    out->duration_ns = kineto_spans_median(values, job->n_steps);
    for (uint32_t i = 0; i < job->n_steps; i++) {
        values[i] = kineto_job_transfer(&job->steps[i], b);
    }
    out->transfer_ns = kineto_spans_low(values, job->n_steps);
    for (uint32_t i = 0; i < job->n_steps; i++) {
        if (job->steps[i].reduces[b].wait_ns >= 0) {
            values[n_waits++] = job->steps[i].reduces[b].wait_ns;
        }
    }
    out->wait_ns = n_waits > 0 ? kineto_spans_mean(values, n_waits) : -1;
}

static enum deft_status kineto_job_reduce(struct kineto_job *job, struct deft_error *error) {
    enum deft_status status = DEFT_OK;
    int64_t *values = calloc(job->n_steps, sizeof(*values));
    job->n_buckets = job->steps[0].n_reduces;
    job->buckets = calloc(job->n_buckets, sizeof(*job->buckets));
    if (values == NULL || job->buckets == NULL) {
        status = deft_fail(error, DEFT_NO_MEMORY, 0, "no memory for the buckets of a job");
        goto done;
    }
    kineto_job_medians(job, values);
    for (uint32_t b = 0; b < job->n_buckets; b++) {
        kineto_job_bucket(job, b, values, &job->buckets[b]);
    }
    status = kineto_agree_parameters(job, values, error);
done:
    free(values);
    return status;
}

static void kineto_job_notes(struct kineto_job *job) {
    const struct kineto_step *median = &job->median;
    if (job->n_left_out > 0) {
        kineto_job_note(job,
                        "%u steps were left out: they are cut or all-reduce other sizes than the "
                        "%u that count",
                        job->n_left_out, job->n_steps);
    }
    if (job->n_steps == 1) {
        kineto_job_note(job, "there is one usable step: record several, so that outliers show");
    }
    if (median->foreign_ns > median->communication_ns * KINETO_JOB_FOREIGN_PERCENT / 100) {
        kineto_job_note(job,
                        "other collectives take %.1f ms of a step, gradients %.1f ms: only the "
                        "latter are planned",
                        (double)median->foreign_ns / 1e6, (double)median->communication_ns / 1e6);
    }
    if (job->n_ranks == 1) {
        kineto_job_note(job, "with one rank's trace all-reduce times include waiting for peers; "
                             "the traces of all ranks tell it apart");
    }
    if (job->n_parameters == 0) {
        kineto_job_note(job, "shapes of parameters are not known (record_shapes=True), so there is "
                             "one tensor per bucket");
    }
}

enum deft_status kineto_job_init(struct kineto_job *job, struct kineto_trace *const *traces,
                                 uint32_t n_traces, struct deft_error *error) {
    struct kineto_job made = {0};
    uint32_t ranks[KINETO_MAX_TRACES] = {0};
    uint32_t n_common = 0;
    if (n_traces == 0 || n_traces > KINETO_MAX_TRACES) {
        return deft_fail(error, DEFT_LIMIT, 0, "%u traces are given, expected 1 to %u", n_traces,
                         KINETO_MAX_TRACES);
    }
    enum deft_status status = kineto_job_ranks(traces, n_traces, ranks, error);
    if (status == DEFT_OK) {
        status = kineto_job_measure(&made, traces, ranks, n_traces, error);
    }
    if (status == DEFT_OK) {
        status = kineto_agree_buckets(&made, error);
    }
    if (status == DEFT_OK) {
        n_common = kineto_waits_find(&made);
        status = kineto_job_reduce(&made, error);
    }
    if (status != DEFT_OK) {
        kineto_job_done(&made);
        return status;
    }
    if (n_traces > 1 && n_common == 0) {
        kineto_job_note(&made, "no step is in the traces of all ranks, so waiting for peers cannot "
                               "be told apart");
    }
    kineto_job_notes(&made);
    *job = made;
    return DEFT_OK;
}

void kineto_job_done(struct kineto_job *job) {
    if (job == NULL) {
        return;
    }
    for (uint32_t i = 0; i < job->n_steps; i++) {
        kineto_step_done(&job->steps[i]);
    }
    free(job->steps);
    free(job->buckets);
    free(job->parameters);
    *job = (struct kineto_job){0};
}
