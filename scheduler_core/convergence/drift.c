#include <dsched/convergence.h>

#include "refuse.h"
#include "tail.h"

#include <math.h>
#include <string.h>

/* Allowance of the CUSUMs, in deviations: half of the shift that they are quickest to see. */
#define DRIFT_ALLOWANCE 0.75
/* What one triple counts at most. A step of the schedule in an exact window looks like a slope, so
 * no slope alone is a drift, but two that agree are one at the default rate. */
#define DRIFT_CLIP_TREND 4.0
#define DRIFT_CLIP_RISE  10.0
/* Slopes of the neighbours so many errors below 0 are those of a falling loss. */
#define DRIFT_FALLING 3.0
/* What one loss counts at most, as a share of the largest allowed mean of two: not enough alone. */
#define DRIFT_CLIP_LOSS 1.25
/* What is left of the noise of older windows with each new one. */
#define DRIFT_NOISE_FADE 0.9
/* A correlation above this could not be told from a trend within a window. */
#define DRIFT_MAX_RHO 0.95
/* Norms before their average means something, and how slowly it follows. */
#define DRIFT_MIN_NORMS   8u
#define DRIFT_NORM_MEMORY 64.0
/* Triples before a plan may be called fine: one may be luck. */
#define DRIFT_MIN_TRIPLES 2u

void dsched_drift_defaults(struct dsched_drift_options *options) {
    *options = (struct dsched_drift_options){.window_losses = 32,
                                             .settle_losses = 4,
                                             .epsilon_frac = DSCHED_DEFAULT_EPSILON_FRAC,
                                             .false_alarm_frac = 3e-4};
}

/* The threshold whose average run length is `run`, by Siegmund's approximation
 * (exp(2 a h') - 2 a h' - 1) / (2 a^2), h' = h + 1.166, without its small terms. */
static double drift_threshold(double run, double allowance) {
    return fmax(log(2 * allowance * allowance * run + 1) / (2 * allowance) - 1.166, 1);
}

enum dsched_status dsched_drift_init(struct dsched_drift *drift,
                                     const struct dsched_drift_options *options,
                                     struct dsched_error *error) {
    if (options->window_losses < 8 || options->window_losses > DSCHED_MAX_WINDOW_LOSSES ||
        options->settle_losses > DSCHED_MAX_WINDOW_LOSSES) {
        return refuse(error, DSCHED_LIMIT,
                      "a drift test takes 8..%u losses per window after at most as many to settle, "
                      "not %u after %u",
                      DSCHED_MAX_WINDOW_LOSSES, options->window_losses, options->settle_losses);
    }
    if (!(options->epsilon_frac > 0 && options->epsilon_frac <= 1) ||
        !(options->false_alarm_frac >= 1e-9 && options->false_alarm_frac <= 0.1)) {
        return refuse(error, DSCHED_INVALID,
                      "a drift test needs an epsilon above 0 and at most 1 and a false-alarm rate "
                      "of 1e-9..0.1, not %g and %g",
                      options->epsilon_frac, options->false_alarm_frac);
    }
    memset(drift, 0, sizeof(*drift));
    drift->options = *options;
    /* Three windows make one triple; trend and rise have a quarter of the rate each, the level has
     * the other half. */
    drift->cusum_limit = drift_threshold(4 / (3 * options->false_alarm_frac), DRIFT_ALLOWANCE);
    return DSCHED_OK;
}

enum dsched_drift_label dsched_drift_wants(const struct dsched_drift *drift) {
    return drift->window == 1 ? DSCHED_DRIFT_PLAN : DSCHED_DRIFT_EXACT;
}

/* --- one window ------------------------------------------------------------------------------- */

static void drift_fit_add(struct dsched_drift_fit *fit, double iteration, double loss) {
    if (fit->n == 0) {
        fit->x0 = iteration;
        fit->y0 = loss;
    }
    double x = iteration - fit->x0;
    double y = loss - fit->y0;
    double dx = x - fit->mean_x;
    double dy = y - fit->mean_y;
    fit->n++;
    fit->mean_x += dx / fit->n;
    fit->mean_y += dy / fit->n;
    fit->xx += dx * (x - fit->mean_x);
    fit->xy += dx * (y - fit->mean_y);
    fit->yy += dy * (y - fit->mean_y);
    fit->step_xx += (x - fit->last_x) * (x - fit->last_x);
    fit->step_xy += (x - fit->last_x) * (y - fit->last_y);
    fit->step_yy += (y - fit->last_y) * (y - fit->last_y);
    fit->last_x = x;
    fit->last_y = y;
}

static double drift_fit_slope(const struct dsched_drift_fit *fit) {
    return fit->xy / fit->xx;
}

static double drift_fit_mean(const struct dsched_drift_fit *fit) {
    return fit->y0 + fit->mean_y;
}

static void drift_noise_add(struct dsched_drift_noise *noise, const struct dsched_drift_fit *fit) {
    double slope = drift_fit_slope(fit);
    double steps = fit->step_yy - 2 * slope * fit->step_xy + slope * slope * fit->step_xx;
    noise->n_residuals += fit->n - 2.0;
    noise->residuals += fmax(fit->yy - fit->xy * slope, 0);
    noise->n_steps += fit->n - 1.0;
    noise->steps += fmax(steps, 0);
}

static void drift_noise_fade(struct dsched_drift_noise *noise) {
    noise->n_residuals *= DRIFT_NOISE_FADE;
    noise->residuals *= DRIFT_NOISE_FADE;
    noise->n_steps *= DRIFT_NOISE_FADE;
    noise->steps *= DRIFT_NOISE_FADE;
}

/* Deviation of a single loss, and the correlation of neighbours, from windows of `n` losses. Steps
 * have the variance 2 (1 - rho) of that of losses (von Neumann); of a correlated series a window's
 * own line takes a part away, 4 rho / n of rho at least. What one standard error explains is no
 * correlation. */
static void drift_noise_get(const struct dsched_drift_noise *noise, double n, double level,
                            double *out_deviation, double *out_rho) {
    double residual = noise->residuals / noise->n_residuals;
    double step = noise->steps / noise->n_steps / 2;
    double rho = residual > 0 ? (1 - step / residual) * (1 + 4 / n) : 0;
    rho = fmin(fmax(rho - 1 / sqrt(noise->n_residuals), 0), DRIFT_MAX_RHO);
    double deviation = sqrt(fmax(residual, step / (1 - rho)));
    /* A constant stream has no noise to compare with: rounding of the loss itself is the least. */
    *out_deviation = fmax(deviation, fmax(fabs(level) * 1e-6, 1e-30));
    *out_rho = rho;
}

/* By how much more the mean of n losses varies than that of independent ones: of an autoregression
 * of first order. */
static double drift_excess(double rho, double n) {
    double q = 1 - rho;
    return (1 + rho) / q - 2 * rho * (1 - pow(rho, n)) / (n * q * q);
}

static void drift_restart(struct dsched_drift *drift) {
    memset(drift->fits, 0, sizeof(drift->fits));
    memset(drift->off, 0, sizeof(drift->off));
    memset(drift->recent, 0, sizeof(drift->recent));
    drift->window = 0;
    drift->n_settled = 0;
    drift->n_plan = 0;
}

/* --- triples ---------------------------------------------------------------------------------- */

/* What the plan's slope would be if the loss moved as it does in the exact windows, and the factor
 * of its variance over that of a slope of one window. */
static double drift_expected_slope(const struct dsched_drift_fit *before,
                                   const struct dsched_drift_fit *after, double deviation,
                                   double *out_variance) {
    double a = drift_fit_slope(before);
    double b = drift_fit_slope(after);
    double weight_a = 0.5;
    double weight_b = 0.5;
    double expected = (a + b) / 2;
    if (a < -DRIFT_FALLING * deviation / sqrt(before->xx) &&
        b < -DRIFT_FALLING * deviation / sqrt(after->xx)) {
        double share = a / (a + b);
        weight_a = 2 * (1 - share) * (1 - share);
        weight_b = 2 * share * share;
        expected = 2 * share * b;
    }
    *out_variance = weight_a * weight_a / before->xx + weight_b * weight_b / after->xx;
    return expected;
}

static double drift_cusum(double sum, double z, double clip) {
    return fmax(sum + fmin(fmax(z, -clip), clip) - DRIFT_ALLOWANCE, 0);
}

static void drift_close_triple(struct dsched_drift *drift) {
    const struct dsched_drift_fit *fits = drift->fits;
    struct dsched_drift_noise noise = drift->noise;
    double n = drift->options.window_losses;
    double before = drift_fit_mean(&fits[0]);
    double after = drift_fit_mean(&fits[2]);
    double level = before / 2 + after / 2;
    double deviation;
    double rho;
    double variance;
    drift_noise_add(&noise, &fits[1]);
    drift_noise_get(&noise, n, level, &deviation, &rho);
    deviation *= sqrt(drift_excess(rho, n));
    double difference =
        drift_fit_slope(&fits[1]) - drift_expected_slope(&fits[0], &fits[2], deviation, &variance);
    double error = deviation * sqrt(1 / fits[1].xx + variance);
    double between = fits[2].x0 + fits[2].mean_x - drift->base_x;
    double rise = after - before - drift->base_slope * between -
                  drift->options.epsilon_frac * fabs(before) / 2;
    drift->last_z = difference / error;
    drift->n_triples++;
    drift->drift_sum += difference;
    drift->variance_sum += error * error;
    drift->level = level;
    drift->span_iterations = 2 * fits[1].mean_x;
    drift->triple_cusum = drift_cusum(drift->triple_cusum, drift->last_z, DRIFT_CLIP_TREND);
    drift->rise_cusum =
        drift_cusum(drift->rise_cusum, rise / (deviation * sqrt(2 / n)), DRIFT_CLIP_RISE);
    double count = (double)drift->n_triples;
    double upper = (drift->drift_sum + 1.96 * sqrt(drift->variance_sum)) / count;
    if (fmax(drift->triple_cusum, drift->rise_cusum) > drift->cusum_limit) {
        drift->result = DSCHED_DRIFT_DRIFTING;
    } else if (drift->n_triples >= DRIFT_MIN_TRIPLES &&
               upper * drift->span_iterations <= drift->options.epsilon_frac * fabs(level)) {
        drift->result = DSCHED_DRIFT_FINE;
    } else {
        drift->result = DSCHED_DRIFT_UNDECIDED;
    }
}

/* --- within the plan's window ----------------------------------------------------------------- */

/* The exact window that has just ended is what the plan's losses are compared with. Its own noise
 * counts where it is more than that of older ones. */
static void drift_set_base(struct dsched_drift *drift) {
    const struct dsched_drift_fit *fit = &drift->fits[0];
    struct dsched_drift_noise own = {0};
    double n = fit->n;
    double deviation;
    double rho;
    drift->base = drift_fit_mean(fit);
    drift->base_x = fit->x0 + fit->mean_x;
    drift->base_slope = fmax(drift_fit_slope(fit), 0);
    drift_noise_add(&own, fit);
    drift_noise_get(&own, n, drift->base, &deviation, &rho);
    drift_noise_get(&drift->noise, n, drift->base, &drift->base_deviation, &drift->base_rho);
    drift->base_deviation = fmax(drift->base_deviation, deviation);
}

/* How far the mean of `size` losses may be above the base, in deviations of a loss. */
static double drift_reach(const struct dsched_drift *drift, double size) {
    const struct dsched_drift_options *options = &drift->options;
    double n = options->window_losses;
    /* Overlapping means of 2 .. 16 and the larger ones exceed a high limit as often as independent
     * ones of the number of losses would. They share half of the rate. */
    double n_means = 2 * (n + options->settle_losses);
    double variance =
        drift_excess(drift->base_rho, size) / size + drift_excess(drift->base_rho, n) / n;
    /* The room for Laplace's tails holds the error of the deviation, too. */
    return tail_reach(options->false_alarm_frac / n_means, size) * sqrt(variance);
}

static void drift_check_level(struct dsched_drift *drift, double iteration, double loss) {
    double deviation = drift->base_deviation;
    double allowed = drift->options.epsilon_frac * fabs(drift->base) / deviation;
    double most = DRIFT_CLIP_LOSS * fmax(allowed, drift_reach(drift, 2));
    double off = loss - drift->base - drift->base_slope * (iteration - drift->base_x);
    off = fmin(fmax(off / deviation, -most), most);
    drift->recent[drift->n_plan % DSCHED_DRIFT_RECENT] = off;
    drift->n_plan++;
    double sum = 0;
    for (uint32_t i = 1; i <= DSCHED_DRIFT_RECENT && i <= drift->n_plan; i++) {
        sum += drift->recent[(drift->n_plan - i) % DSCHED_DRIFT_RECENT];
        if (i > 1 && (i & (i - 1)) == 0 && sum / i > fmax(allowed, drift_reach(drift, i))) {
            drift->result = DSCHED_DRIFT_DRIFTING;
        }
    }
    for (uint32_t i = 0, size = 2 * DSCHED_DRIFT_RECENT; i < DSCHED_DRIFT_SCALES; i++, size *= 2) {
        drift->off[i] += off;
        if (drift->n_plan % size == 0) {
            if (drift->off[i] / size > fmax(allowed, drift_reach(drift, size))) {
                drift->result = DSCHED_DRIFT_DRIFTING;
            }
            drift->off[i] = 0;
        }
    }
}

/* --- what comes in ---------------------------------------------------------------------------- */

/* 1 when the norm says that training is broken. Unknown norms say nothing. */
static int drift_check_norm(struct dsched_drift *drift, enum dsched_drift_label label,
                            double norm) {
    if (norm < 0 && isfinite(norm)) {
        return 0;
    }
    if (!isfinite(norm) || norm > DSCHED_MAX_MEASURED ||
        (drift->n_norms >= DRIFT_MIN_NORMS && drift->norm_mean > 0 &&
         norm > DSCHED_NORM_JUMP * drift->norm_mean)) {
        return label == DSCHED_DRIFT_PLAN;
    }
    drift->n_norms++;
    drift->norm_mean += (norm - drift->norm_mean) / fmin((double)drift->n_norms, DRIFT_NORM_MEMORY);
    return 0;
}

static void drift_close_window(struct dsched_drift *drift) {
    if (drift->window != 1) {
        drift_noise_fade(&drift->noise);
        drift_noise_add(&drift->noise, &drift->fits[drift->window]);
    }
    if (drift->window == 0) {
        drift_set_base(drift);
    }
    drift->window++;
    drift->n_settled = 0;
    if (drift->window == 3) {
        drift_close_triple(drift);
        drift_restart(drift);
    }
}

/* Takes a loss in; a window that is full ends. */
static void drift_take(struct dsched_drift *drift, double iteration, double loss) {
    if (drift->window == 1) {
        drift_check_level(drift, iteration, loss);
        if (drift->result == DSCHED_DRIFT_DRIFTING) {
            return;
        }
    }
    if (drift->n_settled < drift->options.settle_losses) {
        drift->n_settled++;
        return;
    }
    struct dsched_drift_fit *fit = &drift->fits[drift->window];
    drift_fit_add(fit, iteration, loss);
    if (fit->n == drift->options.window_losses) {
        drift_close_window(drift);
    }
}

enum dsched_drift_result dsched_drift_add(struct dsched_drift *drift, enum dsched_drift_label label,
                                          uint64_t iteration, double loss, double gradient_norm) {
    int is_sound = isfinite(loss) && fabs(loss) <= DSCHED_MAX_MEASURED;
    if (drift->result == DSCHED_DRIFT_DRIFTING || drift->result == DSCHED_DRIFT_BROKEN) {
        return drift->result;
    }
    if (drift_check_norm(drift, label, gradient_norm) ||
        (!is_sound && label == DSCHED_DRIFT_PLAN)) {
        drift->result = DSCHED_DRIFT_BROKEN;
        return drift->result;
    }
    int is_back = drift->has_iteration && iteration <= drift->last_iteration;
    /* Beyond 2^53 neighbours are no longer told apart as doubles. */
    int is_usable = is_sound && !is_back && iteration < UINT64_C(1) << 53;
    if (!is_usable || label != dsched_drift_wants(drift)) {
        drift->n_restarts++;
        drift_restart(drift);
    }
    drift->has_iteration = 1;
    drift->last_iteration = iteration;
    if (is_usable && label == dsched_drift_wants(drift)) {
        drift_take(drift, (double)iteration, loss);
    }
    return drift->result;
}
