#include <dsched/convergence.h>

#include "refuse.h"

#include <math.h>
#include <string.h>

/* Allowances of the two CUSUMs, in deviations: half of the shift that each is quickest to see. */
#define DRIFT_TRIPLE_ALLOWANCE 0.5
#define DRIFT_LEVEL_ALLOWANCE  1.0
/* One wild figure is not a drift, two that agree may be one: the level's clip is just below its
 * threshold at the default options. */
#define DRIFT_TRIPLE_CLIP 4.0
#define DRIFT_LEVEL_CLIP  8.0
/* Norms before their average means something, and how slowly it follows. */
#define DRIFT_MIN_NORMS   8u
#define DRIFT_NORM_MEMORY 64.0
/* Triples before a plan may be called fine: one may be luck. */
#define DRIFT_MIN_TRIPLES 2u

void dsched_drift_defaults(struct dsched_drift_options *options) {
    *options = (struct dsched_drift_options){.window_losses = 32,
                                             .settle_losses = 4,
                                             .epsilon_frac = DSCHED_DEFAULT_EPSILON_FRAC,
                                             .false_alarm_frac = 0.001};
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
    double n = options->window_losses;
    /* Three windows make one z; in a window all losses count. Half of the rate for each. The level
     * is measured from n losses itself, an error of 1/sqrt(n) that all losses of a window share. */
    double triple_run = 2 / (3 * options->false_alarm_frac);
    double level_run = 2 * n / options->false_alarm_frac;
    memset(drift, 0, sizeof(*drift));
    drift->options = *options;
    drift->triple_limit = drift_threshold(triple_run, DRIFT_TRIPLE_ALLOWANCE);
    drift->level_limit = drift_threshold(level_run, DRIFT_LEVEL_ALLOWANCE - 2 / sqrt(n));
    return DSCHED_OK;
}

enum dsched_drift_label dsched_drift_wants(const struct dsched_drift *drift) {
    return drift->window == 1 ? DSCHED_DRIFT_PLAN : DSCHED_DRIFT_EXACT;
}

static void drift_fit_add(struct dsched_drift_fit *fit, double iteration, double loss) {
    if (fit->n == 0) {
        fit->x0 = iteration;
        fit->y0 = loss;
    }
    double dx = iteration - fit->x0 - fit->mean_x;
    double dy = loss - fit->y0 - fit->mean_y;
    fit->n++;
    fit->mean_x += dx / fit->n;
    fit->mean_y += dy / fit->n;
    fit->xx += dx * (iteration - fit->x0 - fit->mean_x);
    fit->xy += dx * (loss - fit->y0 - fit->mean_y);
    fit->yy += dy * (loss - fit->y0 - fit->mean_y);
}

static double drift_fit_slope(const struct dsched_drift_fit *fit) {
    return fit->xy / fit->xx;
}

static double drift_fit_residual(const struct dsched_drift_fit *fit) {
    return fmax(fit->yy - fit->xy * (fit->xy / fit->xx), 0);
}

/* A constant stream has no noise to compare with: rounding of the loss itself is the least. */
static double drift_least_deviation(double level) {
    return fmax(fabs(level) * 1e-6, 1e-30);
}

static void drift_restart(struct dsched_drift *drift) {
    memset(drift->fits, 0, sizeof(drift->fits));
    drift->window = 0;
    drift->n_settled = 0;
    drift->level_cusum = 0;
}

static void drift_close_triple(struct dsched_drift *drift) {
    const struct dsched_drift_fit *fits = drift->fits;
    double residual = 0;
    double dof = 0;
    for (int i = 0; i < 3; i++) {
        residual += drift_fit_residual(&fits[i]);
        dof += fits[i].n - 2.0;
    }
    double level = (fits[0].y0 + fits[0].mean_y + fits[2].y0 + fits[2].mean_y) / 2;
    double deviation = fmax(sqrt(residual / dof), drift_least_deviation(level));
    double difference =
        drift_fit_slope(&fits[1]) - (drift_fit_slope(&fits[0]) + drift_fit_slope(&fits[2])) / 2;
    double error = deviation * sqrt(1 / fits[1].xx + (1 / fits[0].xx + 1 / fits[2].xx) / 4);
    double z = difference / error;
    drift->last_z = z;
    drift->n_triples++;
    drift->drift_sum += difference;
    drift->variance_sum += error * error;
    drift->level = level;
    drift->span_iterations = 2 * fits[1].mean_x;
    drift->triple_cusum =
        fmax(drift->triple_cusum + fmin(fmax(z, -DRIFT_TRIPLE_CLIP), DRIFT_TRIPLE_CLIP) -
                 DRIFT_TRIPLE_ALLOWANCE,
             0);
    double n = (double)drift->n_triples;
    double upper = (drift->drift_sum + 1.96 * sqrt(drift->variance_sum)) / n;
    if (drift->triple_cusum > drift->triple_limit) {
        drift->result = DSCHED_DRIFT_DRIFTING;
    } else if (drift->n_triples >= DRIFT_MIN_TRIPLES &&
               upper * drift->span_iterations <= drift->options.epsilon_frac * fabs(level)) {
        drift->result = DSCHED_DRIFT_FINE;
    } else {
        drift->result = DSCHED_DRIFT_UNDECIDED;
    }
    drift_restart(drift);
}

static void drift_check_level(struct dsched_drift *drift, double loss) {
    const struct dsched_drift_fit *fit = &drift->fits[0];
    double level = fit->y0 + fit->mean_y;
    double deviation =
        fmax(sqrt(drift_fit_residual(fit) / (fit->n - 2.0)), drift_least_deviation(level));
    double z = fmin(fmax((loss - level) / deviation, -DRIFT_LEVEL_CLIP), DRIFT_LEVEL_CLIP);
    drift->level_cusum = fmax(drift->level_cusum + z - DRIFT_LEVEL_ALLOWANCE, 0);
    if (drift->level_cusum > drift->level_limit) {
        drift->result = DSCHED_DRIFT_DRIFTING;
    }
}

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

/* Takes a loss in; a window that is full ends. */
static void drift_take(struct dsched_drift *drift, uint64_t iteration, double loss) {
    if (drift->window == 1) {
        drift_check_level(drift, loss);
        if (drift->result == DSCHED_DRIFT_DRIFTING) {
            return;
        }
    }
    if (drift->n_settled < drift->options.settle_losses) {
        drift->n_settled++;
        return;
    }
    struct dsched_drift_fit *fit = &drift->fits[drift->window];
    drift_fit_add(fit, (double)iteration, loss);
    if (fit->n < drift->options.window_losses) {
        return;
    }
    drift->window++;
    drift->n_settled = 0;
    if (drift->window == 3) {
        drift_close_triple(drift);
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
        drift_take(drift, iteration, loss);
    }
    return drift->result;
}

const char *dsched_drift_name(enum dsched_drift_result result) {
    switch (result) {
    case DSCHED_DRIFT_UNDECIDED:
        return "undecided";
    case DSCHED_DRIFT_FINE:
        return "fine";
    case DSCHED_DRIFT_DRIFTING:
        return "drifting";
    case DSCHED_DRIFT_BROKEN:
        return "broken";
    }
    return NULL;
}
