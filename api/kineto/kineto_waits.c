#include "kineto_waits.h"

#include <stddef.h>

#include "kineto_measure.h"

struct kineto_waits_rank {
    uint32_t rank;
    uint32_t begin; /* of its steps */
    uint32_t end;
    int64_t total_ns;
    struct kineto_step *step; /* the one that is being compared */
};

static uint32_t kineto_waits_split(const struct kineto_job *job, struct kineto_waits_rank *ranks) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < job->n_steps; i++) {
        if (i == 0 || job->steps[i].rank != job->steps[i - 1].rank) {
            ranks[n++] = (struct kineto_waits_rank){.rank = job->steps[i].rank, .begin = i};
        }
        ranks[n - 1].end = i + 1;
    }
    return n;
}

static struct kineto_step *kineto_waits_step(const struct kineto_job *job,
                                             const struct kineto_waits_rank *rank,
                                             uint64_t number) {
    uint32_t low = rank->begin;
    uint32_t high = rank->end;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (job->steps[middle].number < number) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < rank->end && job->steps[low].number == number ? &job->steps[low] : NULL;
}

static void kineto_waits_compare(struct kineto_waits_rank *ranks, uint32_t n, uint32_t bucket) {
    int64_t least_ns = INT64_MAX;
    for (uint32_t r = 0; r < n; r++) {
        const struct kineto_reduce *reduce = &ranks[r].step->reduces[bucket];
        int64_t duration_ns = reduce->end_ns - reduce->begin_ns;
        least_ns = duration_ns < least_ns ? duration_ns : least_ns;
    }
    for (uint32_t r = 0; r < n; r++) {
        struct kineto_reduce *reduce = &ranks[r].step->reduces[bucket];
        reduce->wait_ns = reduce->end_ns - reduce->begin_ns - least_ns;
        ranks[r].step->wait_ns = kineto_measure_add(ranks[r].step->wait_ns, reduce->wait_ns);
        ranks[r].total_ns = kineto_measure_add(ranks[r].total_ns, reduce->wait_ns);
    }
}

uint32_t kineto_waits_find(struct kineto_job *job) {
    struct kineto_waits_rank ranks[KINETO_MAX_TRACES] = {0};
    uint32_t n_common = 0;
    uint32_t n = kineto_waits_split(job, ranks);
    if (n < 2) {
        return 0;
    }
    for (uint32_t i = ranks[0].begin; i < ranks[0].end; i++) {
        uint32_t r = 0;
        while (r < n &&
               (ranks[r].step = kineto_waits_step(job, &ranks[r], job->steps[i].number)) != NULL) {
            r++;
        }
        if (r < n) {
            continue;
        }
        for (uint32_t b = 0; b < job->steps[i].n_reduces; b++) {
            kineto_waits_compare(ranks, n, b);
        }
        n_common++;
    }
    uint32_t late = 0;
    for (uint32_t r = 1; r < n; r++) {
        late = ranks[r].total_ns < ranks[late].total_ns ? r : late;
    }
    job->late_rank = ranks[late].rank;
    return n_common;
}
