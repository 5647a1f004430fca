#include "kineto_agree.h"

#include <stdlib.h>
#include <string.h>

#include "kineto_measure.h"
#include "kineto_spans.h"

static int kineto_agree_same(const struct kineto_step *a, const struct kineto_step *b) {
    if (a->n_reduces != b->n_reduces) {
        return 0;
    }
    for (uint32_t i = 0; i < a->n_reduces; i++) {
        if (a->reduces[i].elements != b->reduces[i].elements ||
            a->reduces[i].dtype != b->reduces[i].dtype) {
            return 0;
        }
    }
    return 1;
}

/* FNV-1a over the sizes: equal steps have equal hashes, which is all that counting needs. */
static uint64_t kineto_agree_hash(const struct kineto_step *step) {
    uint64_t hash = UINT64_C(14695981039346656037);
    for (uint32_t i = 0; i < step->n_reduces; i++) {
        hash = (hash ^ step->reduces[i].elements) * UINT64_C(1099511628211);
        hash = (hash ^ (uint64_t)step->reduces[i].dtype) * UINT64_C(1099511628211);
    }
    return hash;
}

struct kineto_agree_vote {
    uint64_t hash;
    uint32_t step;
};

static int kineto_agree_by_hash(const void *a, const void *b) {
    const struct kineto_agree_vote *x = a;
    const struct kineto_agree_vote *y = b;
    if (x->hash != y->hash) {
        return x->hash < y->hash ? -1 : 1;
    }
    return (x->step > y->step) - (x->step < y->step);
}

/* The first step of the most frequent kind; of equally frequent ones the last: buckets are rebuilt
 * once, early. */
static uint32_t kineto_agree_elect(struct kineto_agree_vote *votes, uint32_t n) {
    uint32_t best = 0;
    uint32_t n_best = 0;
    qsort(votes, n, sizeof(*votes), kineto_agree_by_hash);
    for (uint32_t i = 0; i < n;) {
        uint32_t end = i;
        while (end < n && votes[end].hash == votes[i].hash) {
            end++;
        }
        if (end - i > n_best || (end - i == n_best && votes[i].step > best)) {
            n_best = end - i;
            best = votes[i].step;
        }
        i = end;
    }
    return best;
}

static enum deft_status kineto_agree_check(const struct kineto_job *job, struct deft_error *error) {
    uint32_t n_ranks = 0;
    for (uint32_t i = 0; i < job->n_steps; i++) {
        n_ranks += i == 0 || job->steps[i].rank != job->steps[i - 1].rank;
    }
    if (n_ranks != job->n_ranks) {
        return deft_fail(error, DEFT_INVALID, 0,
                         "the traces are not of one job: only %u of %u ranks all-reduce the same "
                         "sizes",
                         n_ranks, job->n_ranks);
    }
    return DEFT_OK;
}

enum deft_status kineto_agree_buckets(struct kineto_job *job, struct deft_error *error) {
    uint32_t kept = 0;
    struct kineto_agree_vote *votes = calloc(job->n_steps, sizeof(*votes));
    if (votes == NULL) {
        return deft_fail(error, DEFT_NO_MEMORY, 0, "no memory to compare steps");
    }
    for (uint32_t i = 0; i < job->n_steps; i++) {
        votes[i].hash = kineto_agree_hash(&job->steps[i]);
        votes[i].step = i;
    }
    uint32_t chosen = kineto_agree_elect(votes, job->n_steps);
    free(votes);
    /* Steps move to the front in place: the chosen one must outlive the comparison. */
    struct kineto_step model = job->steps[chosen];
    for (uint32_t i = 0; i < job->n_steps; i++) {
        if (i == chosen || kineto_agree_same(&job->steps[i], &model)) {
            struct kineto_step step = job->steps[i];
            job->steps[i] = (struct kineto_step){0};
            job->steps[kept++] = step;
        } else {
            kineto_step_done(&job->steps[i]);
            job->n_left_out++;
        }
    }
    job->n_steps = kept;
    return kineto_agree_check(job, error);
}

static int kineto_agree_same_parameters(const struct kineto_job *job) {
    const struct kineto_step *first = &job->steps[0];
    for (uint32_t i = 1; i < job->n_steps; i++) {
        if (job->steps[i].n_parameters != first->n_parameters) {
            return 0;
        }
        for (uint32_t p = 0; p < first->n_parameters; p++) {
            if (job->steps[i].parameters[p].elements != first->parameters[p].elements) {
                return 0;
            }
        }
    }
    return 1;
}

/* In order of readiness they fill the buckets one after the other, without rest. */
static int kineto_agree_fills(const struct kineto_step *step) {
    uint32_t b = 0;
    uint64_t filled = 0;
    for (uint32_t p = 0; p < step->n_parameters; p++) {
        uint64_t elements = step->parameters[p].elements;
        if (elements == 0 || b == step->n_reduces ||
            elements > step->reduces[b].elements - filled) {
            return 0;
        }
        filled += elements;
        if (filled == step->reduces[b].elements) {
            b++;
            filled = 0;
        }
    }
    return b == step->n_reduces && b > 0;
}

enum deft_status kineto_agree_parameters(struct kineto_job *job, int64_t *values,
                                         struct deft_error *error) {
    const struct kineto_step *first = &job->steps[0];
    if (first->n_parameters > DSCHED_MAX_TENSORS || !kineto_agree_fills(first) ||
        !kineto_agree_same_parameters(job)) {
        return DEFT_OK;
    }
    job->parameters = calloc(first->n_parameters, sizeof(*job->parameters));
    if (job->parameters == NULL) {
        return deft_fail(error, DEFT_NO_MEMORY, 0, "no memory for the parameters of a job");
    }
    job->n_parameters = first->n_parameters;
    for (uint32_t p = 0; p < job->n_parameters; p++) {
        for (uint32_t i = 0; i < job->n_steps; i++) {
            values[i] = job->steps[i].parameters[p].ready_ns;
        }
        job->parameters[p].elements = first->parameters[p].elements;
        job->parameters[p].ready_ns = kineto_spans_median(values, job->n_steps);
    }
    return DEFT_OK;
}
