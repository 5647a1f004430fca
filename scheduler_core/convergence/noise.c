#include <dsched/convergence.h>

#include <math.h>

static int noise_is_measured(double value) {
    return isfinite(value) && value >= 0 && value <= DSCHED_MAX_MEASURED;
}

/* Norms come from sums in single precision: the mean's may end a little above the parts'. */
#define NOISE_ROUNDING 1e-5
/* Observations that q is smoothed over: enough against noise, and a small part of any memory. */
#define NOISE_SCALE_MEMORY 8.0
#define NOISE_MOST_WEIGHT  4.0
/* Squared norms from single precision are 0 or above; with it every quotient is finite. */
#define NOISE_LEAST_SCALE 1e-100

static int noise_is_sound(const struct dsched_noise_part *part) {
    return noise_is_measured(part->part_norm2) && noise_is_measured(part->mean_norm2) &&
           noise_is_measured(part->part_samples) && part->part_samples > 0 && part->n_parts > 0 &&
           part->part_norm2 <= DSCHED_MAX_MEASURED / part->part_samples &&
           part->mean_norm2 <= DSCHED_MAX_MEASURED / part->n_parts &&
           part->mean_norm2 <= part->part_norm2 * (1 + NOISE_ROUNDING);
}

/* What q was before this observation, so that the two are independent; then remembers it. After
 * zeros, or a jump, no observation counts for many. */
static double noise_scale(struct dsched_noise *noise, double part_norm2) {
    double seen = fmax(part_norm2, NOISE_LEAST_SCALE);
    double scale = noise->scale > 0 ? noise->scale : seen;
    noise->scale = scale + (seen - scale) / NOISE_SCALE_MEMORY;
    return fmax(scale, seen / NOISE_MOST_WEIGHT);
}

void dsched_noise_add(struct dsched_noise *noise, const struct dsched_noise_part *part,
                      double memory) {
    if (!noise_is_sound(part)) {
        noise->n_broken++;
        return;
    }
    if (part->n_parts == 1) {
        noise->n_single++;
        return;
    }
    double c = part->n_parts;
    double gradient_norm2 = (c * part->mean_norm2 - part->part_norm2) / (c - 1);
    double apart = fmax(part->part_norm2 - part->mean_norm2, 0);
    double trace = apart * c / (c - 1) * part->part_samples;
    double fade = exp(-1 / (memory >= 1 ? memory : 1));
    noise->weight = fade * noise->weight + 1;
    noise->weight2 = fade * fade * noise->weight2 + 1;
    noise->gradient_norm2 += (gradient_norm2 - noise->gradient_norm2) / noise->weight;
    noise->trace += (trace - noise->trace) / noise->weight;
    double scale = noise_scale(noise, part->part_norm2);
    double scaled_norm2 = gradient_norm2 / scale;
    double scaled_trace = trace / scale;
    double off_g = scaled_norm2 - noise->scaled_norm2;
    double off_t = scaled_trace - noise->scaled_trace;
    noise->scaled_norm2 += off_g / noise->weight;
    noise->scaled_trace += off_t / noise->weight;
    /* One factor from before and one from after the mean moved: West's update, which cannot cancel
     * as a difference of squares does. */
    noise->moment_gg = fade * noise->moment_gg + off_g * (scaled_norm2 - noise->scaled_norm2);
    noise->moment_tt = fade * noise->moment_tt + off_t * (scaled_trace - noise->scaled_trace);
    noise->moment_gt = fade * noise->moment_gt + off_g * (scaled_trace - noise->scaled_trace);
    noise->n_used++;
}

void dsched_noise_get(const struct dsched_noise *noise, struct dsched_noise_estimate *out) {
    struct dsched_noise_estimate estimate = {.gradient_norm2 = noise->gradient_norm2,
                                             .trace = noise->trace,
                                             .noise_samples = DSCHED_UNKNOWN,
                                             .error_samples = DSCHED_UNKNOWN};
    if (noise->weight2 > 0) {
        estimate.n_effective = noise->weight * noise->weight / noise->weight2;
    }
    if (estimate.n_effective >= DSCHED_MIN_NOISE_OBSERVATIONS && noise->scaled_norm2 > 0) {
        double g = noise->scaled_norm2;
        double ratio = noise->scaled_trace / g;
        /* Variance of a mean: weighted variance, made unbiased, over the effective number. */
        double scale = 1 / (noise->weight * (estimate.n_effective - 1));
        double error_g = sqrt(fmax(noise->moment_gg, 0) * scale);
        double spread = noise->moment_tt / g / g - 2 * ratio * (noise->moment_gt / g / g) +
                        ratio * ratio * (noise->moment_gg / g / g);
        double error = sqrt(fmax(spread, 0) * scale);
        estimate.is_known = g > 2 * error_g && noise_is_measured(ratio) && noise_is_measured(error);
        if (estimate.is_known) {
            estimate.noise_samples = ratio;
            estimate.error_samples = error;
        }
    }
    *out = estimate;
}
