#include <dsched/convergence.h>

#include <math.h>
#include <string.h>

void dsched_disagreement_add(struct dsched_disagreement *disagreement, double change_norm2,
                             double mean_norm2, uint32_t n_ranks, uint32_t merge, double memory) {
    if (merge < 1 || merge > DSCHED_MAX_MERGE) {
        disagreement->noise.n_broken++;
        return;
    }
    if (n_ranks != disagreement->n_ranks) {
        memset(disagreement, 0, sizeof(*disagreement));
        disagreement->n_ranks = n_ranks;
    }
    /* A change over k is a mean of k steps, as a merged gradient is one of k gradients: generations
     * of different merges then estimate the same two figures. */
    double k = merge;
    struct dsched_noise_part part = {.part_norm2 = change_norm2 / (k * k),
                                     .mean_norm2 = mean_norm2 / (k * k),
                                     .n_parts = n_ranks,
                                     .part_samples = k};
    dsched_noise_add(&disagreement->noise, &part, memory);
}

void dsched_disagreement_get(const struct dsched_disagreement *disagreement, uint32_t merge,
                             double rate_curvature, struct dsched_disagreement_estimate *out) {
    struct dsched_disagreement_estimate estimate = {
        .rho = DSCHED_UNKNOWN, .unrelated_rho = DSCHED_UNKNOWN, .lag_generations = DSCHED_UNKNOWN};
    struct dsched_noise_estimate noise;
    double n = disagreement->n_ranks;
    double k = merge;
    double s =
        isfinite(rate_curvature) && rate_curvature >= 0 && rate_curvature <= DSCHED_MAX_MEASURED
            ? rate_curvature
            : 1;
    dsched_noise_get(&disagreement->noise, &noise);
    if (disagreement->n_ranks > 1 && merge >= 1 && merge <= DSCHED_MAX_MERGE &&
        noise.n_effective >= DSCHED_MIN_NOISE_OBSERVATIONS) {
        /* Both per k^2: what is left of the direction is never below 0, even if its estimate is. */
        double apart = noise.trace / k * (1 - 1 / n);
        double together = fmax(noise.gradient_norm2, 0) + noise.trace / k / n;
        double rho2 = together > 0 ? apart / together : 0;
        estimate.unrelated_rho = sqrt(n - 1);
        estimate.rho = fmin(sqrt(rho2), estimate.unrelated_rho);
        estimate.lag_generations = s * k * estimate.rho * estimate.rho / 2;
        estimate.is_known = 1;
    }
    *out = estimate;
}
