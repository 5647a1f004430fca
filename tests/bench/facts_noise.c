#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <dsched/convergence.h>

#include "facts.h"
#include "quadratic.h"

#define N_DIMS         512u
#define N_OBSERVATIONS 1000
#define BATCH          32.0 /* samples of one rank's gradient */

struct noise_case {
    uint32_t n_ranks;
    double noise_over_batch; /* B_noise over the global batch */
    double rate;             /* times the curvature, which is 1; 0: the weights stay */
    double memory;
};

/* One job; estimate and truth of B_noise, both by the same faded means. */
static int noise_run(const struct noise_case *c, uint64_t seed, double *out_ratio,
                     double *out_stated) {
    double curvature[N_DIMS];
    double start[N_DIMS];
    for (uint32_t d = 0; d < N_DIMS; d++) {
        curvature[d] = 1;
        start[d] = 1;
    }
    double batch = BATCH * c->n_ranks;
    double trace = c->noise_over_batch * batch * N_DIMS; /* |G|^2 is N_DIMS at the start */
    struct quadratic_setup setup = {.curvature = curvature,
                                    .n_dims = N_DIMS,
                                    .n_ranks = c->n_ranks,
                                    .rate = c->rate,
                                    .noise = sqrt(trace / N_DIMS / BATCH),
                                    .seed = seed};
    struct quadratic *job = quadratic_create(&setup, start);
    if (job == NULL) {
        return 0;
    }
    struct dsched_noise noise = {0};
    double fade = exp(-1 / c->memory);
    double weight = 0;
    double norm2 = 0;
    for (int i = 0; i < N_OBSERVATIONS; i++) {
        weight = fade * weight + 1;
        norm2 += (quadratic_gradient_norm2(job) - norm2) / weight;
        quadratic_step(job);
        struct dsched_noise_part part = {.part_norm2 = quadratic_part_norm2(job),
                                         .mean_norm2 = quadratic_mean_norm2(job),
                                         .n_parts = c->n_ranks,
                                         .part_samples = BATCH};
        dsched_noise_add(&noise, &part, c->memory);
    }
    quadratic_destroy(job);
    struct dsched_noise_estimate estimate;
    dsched_noise_get(&noise, &estimate);
    double truth = trace / norm2;
    *out_ratio = estimate.noise_samples / truth;
    *out_stated = estimate.error_samples / truth;
    return estimate.is_known;
}

int facts_noise(int n_runs) {
    static const struct noise_case cases[] = {
        {2, 0.5, 0, 1000},  {2, 2, 0, 1000},  {2, 8, 0, 1000},    {4, 0.5, 0, 1000},
        {4, 2, 0, 1000},    {4, 8, 0, 1000},  {8, 0.5, 0, 1000},  {8, 2, 0, 1000},
        {8, 8, 0, 1000},    {8, 32, 0, 1000}, {2, 2, 0.001, 100}, {4, 2, 0.001, 100},
        {8, 2, 0.001, 100},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        double square = 0;
        double stated = 0;
        double largest = 0;
        int n_known = 0;
        for (int run = 0; run < n_runs; run++) {
            double ratio;
            double error;
            if (noise_run(&cases[i], 1000 * (uint64_t)i + (uint64_t)run, &ratio, &error)) {
                n_known++;
                square += (ratio - 1) * (ratio - 1);
                stated += error;
                largest = fmax(largest, fabs(ratio - 1));
            }
        }
        printf("{\"ranks\":%u,\"noise_over_batch\":%g,\"moves\":%d,\"known\":%d,\"runs\":%d,"
               "\"rms_error\":%.4f,\"largest_error\":%.4f,\"stated_error\":%.4f}\n",
               cases[i].n_ranks, cases[i].noise_over_batch, cases[i].rate > 0, n_known, n_runs,
               n_known > 0 ? sqrt(square / n_known) : -1, largest,
               n_known > 0 ? stated / n_known : -1);
    }
    return 0;
}

int facts_progress(double memory, double batch_samples, char **merges, int n_merges) {
    struct dsched_noise noise = {0};
    double said[4];
    double updates[DSCHED_MAX_MERGE] = {0}; /* by merge: what exact's iterations come to */
    int n_known = 0;
    if (n_merges > (int)DSCHED_MAX_MERGE) {
        return 2;
    }
    while (facts_read(said, 4)) {
        const struct dsched_noise_part part = {.part_norm2 = said[0],
                                               .mean_norm2 = said[1],
                                               .n_parts = (uint32_t)said[2],
                                               .part_samples = said[3]};
        struct dsched_noise_estimate estimate;
        dsched_noise_add(&noise, &part, memory);
        dsched_noise_get(&noise, &estimate);
        n_known += estimate.is_known;
        for (int i = 0; i < n_merges && estimate.is_known; i++) {
            uint32_t k = (uint32_t)strtoul(merges[i], NULL, 10);
            updates[i] += 1 / dsched_efficiency_merge(estimate.noise_samples, batch_samples, k);
        }
    }
    struct dsched_noise_estimate estimate;
    dsched_noise_get(&noise, &estimate);
    printf("{\"noise_samples\":%.6g,\"error_samples\":%.6g,\"known\":%d,\"used\":%llu",
           estimate.noise_samples, estimate.error_samples, n_known,
           (unsigned long long)noise.n_used);
    for (int i = 0; i < n_merges; i++) {
        uint32_t k = (uint32_t)strtoul(merges[i], NULL, 10);
        printf(",\"at_end_%u\":%.6f,\"whole_%u\":%.6f", k,
               dsched_efficiency_merge(estimate.noise_samples, batch_samples, k), k,
               updates[i] > 0 ? n_known / updates[i] : -1);
    }
    printf("}\n");
    return 0;
}
