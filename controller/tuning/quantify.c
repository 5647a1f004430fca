#include "tuning/quantify.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Observations after which one has faded to 1/e. Noise scales move over thousands of iterations. */
#define QUANTIFY_MEMORY 100.0
#define QUANTIFY_SMOOTH 32.0
/* A warm-up that lasts for hours still grows by this much within the rates that are compared. */
#define QUANTIFY_RISE 1.01
/* Guards against the rounding of one that is constant, and cosine tails that fall. */
#define QUANTIFY_LEVEL_RISE 1.02
/* Iterations that a figure of the fuse is the mean of (CONTROL_FIGURES_EVERY of the runtime). */
#define QUANTIFY_FUSE_VALUES 4u
/* How far a running plan's loss may rise before the ranks leave it by themselves. */
#define QUANTIFY_FUSE_RISE 0.03
/* Iterations the random walk looks ahead. */
#define QUANTIFY_AHEAD 1000u

/* Merging more than 3 was not harmless under averaged in every measurement
 * (docs/update-rules.md). */
void quantify_default_limits(struct wire_limits *limits) {
    *limits = (struct wire_limits){.max_merge = 3,
                                   .max_delay = 8,
                                   .epsilon = DSCHED_DEFAULT_EPSILON_FRAC,
                                   .min_progress = DSCHED_DEFAULT_FLOOR_FRAC,
                                   .loss_floor = (double)NAN};
}

static enum dsched_optimizer_class quantify_class(const char *name) {
    if (strcmp(name, "sgd") == 0) {
        return DSCHED_OPTIMIZER_SGD;
    }
    return strncmp(name, "adam", 4) == 0 ? DSCHED_OPTIMIZER_ADAM : DSCHED_OPTIMIZER_UNKNOWN;
}

void quantify_job_of(const struct wire_registration *registration, struct quantify_job *out) {
    double momentum = registration->momentum;
    *out = (struct quantify_job){
        .n_ranks = registration->n_ranks,
        .optimizer = quantify_class(registration->optimizer),
        .momentum = momentum >= 0 && momentum < 1 ? momentum : 0,
        .learning_rate = isfinite(registration->learning_rate) ? registration->learning_rate : 0,
        .batch_samples = registration->batch_per_rank * registration->n_ranks,
    };
}

static void quantify_estimate(struct quantify *quantify) {
    double floor = quantify->limits.loss_floor;
    dsched_loss_get(&quantify->loss, isfinite(floor) ? floor : DSCHED_UNKNOWN, &quantify->estimate);
    quantify->estimate_age = 0;
    if (quantify->estimate.state == DSCHED_LOSS_ABSENT &&
        quantify->loss.n_iterations < DSCHED_LOSS_MIN) { /* after a restart they may still come */
        quantify->estimate.state = DSCHED_LOSS_FEW;
        (void)snprintf(quantify->estimate.text, sizeof(quantify->estimate.text),
                       "no loss yet since the start or a restart");
    }
}

void quantify_init(struct quantify *quantify, const struct quantify_job *job,
                   const struct wire_limits *limits) {
    memset(quantify, 0, sizeof(*quantify));
    quantify->job = *job;
    quantify->limits = *limits;
    quantify_mark(quantify);
    quantify->smoothed = (double)NAN;
    quantify_estimate(quantify);
}

void quantify_mark(struct quantify *quantify) {
    quantify->lowest_level = (double)INFINITY;
}

/* --- what comes in ---------------------------------------------------------------------------- */

/* Without the batch size, noise is told in batches of one rank. */
static double quantify_part_samples(const struct quantify *quantify) {
    uint64_t n_ranks = quantify->job.n_ranks > 0 ? quantify->job.n_ranks : 1;
    uint64_t batch = quantify->job.batch_samples / n_ranks;
    return batch > 0 ? (double)batch : 1.0;
}

static void quantify_add_norms(struct quantify *quantify, const struct quantify_sample *sample) {
    double q = sample->grad_sq_local;
    /* The first gradients of a training run, and single jumps, are hundreds of times larger than
     * the rest: means would be theirs alone. */
    int is_usual = quantify->n_grad_sq >= (uint64_t)QUANTIFY_SMOOTH &&
                   q <= quantify->grad_sq * DSCHED_NORM_JUMP * DSCHED_NORM_JUMP;
    if (isfinite(q) && q >= 0 && q <= DSCHED_MAX_MEASURED) {
        quantify->n_grad_sq++;
        double weight = quantify->n_grad_sq < (uint64_t)QUANTIFY_SMOOTH
                            ? 1.0 / (double)quantify->n_grad_sq
                            : 1.0 / QUANTIFY_SMOOTH;
        quantify->grad_sq += weight * (q - quantify->grad_sq);
    }
    if (sample->is_exact && is_usual && !isnan(q) && !isnan(sample->grad_sq_mean)) {
        const struct dsched_noise_part part = {.part_norm2 = q,
                                               .mean_norm2 = sample->grad_sq_mean,
                                               .n_parts = quantify->job.n_ranks,
                                               .part_samples = quantify_part_samples(quantify)};
        dsched_noise_add(&quantify->noise, &part, QUANTIFY_MEMORY);
    }
    if (!isnan(sample->change_sq_local) && !isnan(sample->grad_sq_mean) && sample->merge > 0) {
        dsched_disagreement_add(&quantify->disagreement, sample->change_sq_local,
                                sample->grad_sq_mean, quantify->job.n_ranks, sample->merge,
                                QUANTIFY_MEMORY);
    }
}

static void quantify_add_loss(struct quantify *quantify, const struct quantify_sample *sample) {
    dsched_loss_add(&quantify->loss, sample->iteration, sample->loss_given, sample->loss);
    quantify->n_broken_exact +=
        sample->is_exact && sample->loss_given == DSCHED_LOSS_GIVEN && !isfinite(sample->loss);
    if (sample->loss_given != DSCHED_LOSS_GIVEN || !isfinite(sample->loss) ||
        fabs(sample->loss) > DSCHED_MAX_MEASURED) {
        return;
    }
    if (isnan(quantify->smoothed)) {
        quantify->smoothed = sample->loss;
    }
    quantify->smoothed += (sample->loss - quantify->smoothed) / QUANTIFY_SMOOTH;
    if (quantify->smoothed < quantify->lowest_level) {
        quantify->lowest_level = quantify->smoothed;
    }
}

void quantify_add(struct quantify *quantify, const struct quantify_sample *sample) {
    if (!sample->is_switch) {
        quantify_add_norms(quantify, sample);
    }
    quantify_add_loss(quantify, sample);
    int is_broken = sample->loss_given == DSCHED_LOSS_GIVEN && !isfinite(sample->loss);
    if (is_broken || ++quantify->estimate_age >= QUANTIFY_FRESH) {
        quantify_estimate(quantify);
    }
    if (isfinite(sample->learning_rate) && sample->learning_rate > 0) {
        quantify->rates[quantify->n_rates % QUANTIFY_RATES] = sample->learning_rate;
        quantify->n_rates++;
        quantify->job.learning_rate = sample->learning_rate;
    }
}

/* --- what is seen ----------------------------------------------------------------------------- */

int quantify_rate_rises(const struct quantify *quantify) {
    if (quantify->n_rates < 2) {
        return 0;
    }
    uint32_t oldest = quantify->n_rates < QUANTIFY_RATES ? 0 : quantify->n_rates % QUANTIFY_RATES;
    uint32_t newest = (quantify->n_rates - 1) % QUANTIFY_RATES;
    return quantify->rates[newest] > quantify->rates[oldest] * QUANTIFY_RISE;
}

int quantify_breaks_by_itself(const struct quantify *quantify) {
    return quantify->n_broken_exact > 0;
}

int quantify_loss_rises(const struct quantify *quantify) {
    double lowest = quantify->lowest_level;
    if (!isfinite(lowest) || !isfinite(quantify->smoothed) ||
        quantify->estimate.state != DSCHED_LOSS_FINE) {
        return 0;
    }
    /* A smoothed value of N has the deviation of a mean of 2 N - 1; its minimum over a long time is
     * some three of them low. */
    double noise = 6 * quantify->estimate.spread / sqrt(2 * QUANTIFY_SMOOTH - 1);
    return quantify->smoothed > lowest + fmax(fabs(lowest) * (QUANTIFY_LEVEL_RISE - 1), noise);
}

void quantify_noise(const struct quantify *quantify, struct dsched_noise_estimate *out) {
    dsched_noise_get(&quantify->noise, out);
}

const struct dsched_loss_estimate *quantify_loss(const struct quantify *quantify) {
    return &quantify->estimate;
}

/* --- what plans cost -------------------------------------------------------------------------- */

/* Largest merge <= max_merge under averaged whose lag behind the mean of the ranks is worth no more
 * than epsilon of the loss: the lag is some iterations' progress, paid once. */
static uint32_t quantify_agreeing(const struct quantify *quantify,
                                  const struct dsched_loss_estimate *loss, uint32_t max_merge) {
    for (uint32_t merge = 1; merge <= max_merge; merge++) {
        struct dsched_disagreement_estimate apart;
        dsched_disagreement_get(&quantify->disagreement, merge, DSCHED_UNKNOWN, &apart);
        if (apart.is_known && loss->state == DSCHED_LOSS_FINE &&
            apart.lag_generations * merge * loss->drift >
                quantify->limits.epsilon * fabs(loss->level)) {
            return merge - 1;
        }
    }
    return max_merge;
}

static enum deft_status quantify_admit(const struct quantify *quantify, enum dsched_rule rule,
                                       const struct dsched_efficiency_inputs *inputs,
                                       const struct dsched_loss_estimate *loss,
                                       struct dsched_admission *out, struct deft_error *error) {
    struct dsched_error why = {0};
    struct dsched_admission_inputs admission = {
        .efficiency = *inputs,
        .max_merge = rule == DSCHED_LOOKAHEAD ? 1 : quantify->limits.max_merge,
        .epsilon_frac = quantify->limits.epsilon,
        .floor_frac = quantify->limits.min_progress,
    };
    admission.efficiency.rule = rule;
    admission.efficiency.delay = quantify->limits.max_delay > 0 ? 1 : 0;
    (void)dsched_loss_walk(loss, rule, QUANTIFY_AHEAD, &admission.walk);
    if (dsched_admit_merge(&admission, out, &why) != DSCHED_OK) {
        return deft_fail(error, DEFT_INVALID, 0, "%s", why.text);
    }
    return DEFT_OK;
}

static void quantify_explain(const struct quantify *quantify, uint32_t rules,
                             const struct dsched_noise_estimate *noise,
                             const struct dsched_loss_estimate *loss, const char *admission,
                             struct quantify_price *out) {
    char scale[96] = "noise scale unknown";
    if (noise->is_known) {
        (void)snprintf(scale, sizeof(scale), "noise scale %.3g samples at a batch of %llu",
                       noise->noise_samples, (unsigned long long)quantify->job.batch_samples);
    }
    int n = snprintf(out->text, sizeof(out->text), "%s; %s", loss->text, scale);
    if (rules > DSCHED_RULE_BIT(DSCHED_EXACT) && n > 0) { /* what fits of it */
        (void)snprintf(out->text + n, sizeof(out->text) - (size_t)n, "; %s", admission);
    }
}

void quantify_fuse(const struct quantify *quantify, double *out_max_loss, double *out_max_grad_sq) {
    const struct dsched_loss_estimate *loss = &quantify->estimate;
    double ceiling = dsched_loss_ceiling(loss, QUANTIFY_FUSE_RISE, QUANTIFY_FUSE_VALUES);
    int is_watched = loss->state == DSCHED_LOSS_FINE && !quantify_breaks_by_itself(quantify);
    /* Ranks watch limits above 0 only: a loss that may be negative has no scale to be held to. */
    *out_max_loss = is_watched && isfinite(ceiling) && ceiling > 0 ? ceiling : (double)NAN;
    *out_max_grad_sq = quantify->n_grad_sq >= (uint64_t)QUANTIFY_SMOOTH && quantify->grad_sq > 0
                           ? quantify->grad_sq * DSCHED_NORM_JUMP * DSCHED_NORM_JUMP
                           : (double)NAN;
}

enum deft_status quantify_price(const struct quantify *quantify, uint32_t rules,
                                struct quantify_price *out, struct deft_error *error) {
    struct dsched_noise_estimate noise;
    const struct dsched_loss_estimate *loss = &quantify->estimate;
    struct dsched_error why = {0};
    char text[320] = "";
    quantify_noise(quantify, &noise);
    const struct dsched_efficiency_inputs inputs = {
        .optimizer = quantify->job.optimizer,
        .momentum = quantify->job.momentum,
        .batch_samples =
            quantify->job.batch_samples > 0 ? (double)quantify->job.batch_samples : DSCHED_UNKNOWN,
        .noise_samples = noise.is_known ? noise.noise_samples : DSCHED_UNKNOWN,
        .rate_curvature = DSCHED_UNKNOWN,
        .measured_frac = DSCHED_UNKNOWN,
    };
    memset(out, 0, sizeof(*out));
    if (dsched_progress_predict(&inputs, quantify->limits.max_merge, quantify->limits.max_delay,
                                &out->progress, &why) != DSCHED_OK) {
        return deft_fail(error, DEFT_INVALID, 0, "%s", why.text);
    }
    out->max_merge = 1;
    out->max_delay = quantify->limits.max_delay;
    for (int rule = DSCHED_EXACT + 1; rule < (int)DSCHED_N_RULES; rule++) {
        struct dsched_admission admission = {0};
        uint32_t merge = 0;
        if ((rules & DSCHED_RULE_BIT(rule)) != 0) {
            enum deft_status status =
                quantify_admit(quantify, (enum dsched_rule)rule, &inputs, loss, &admission, error);
            if (status != DEFT_OK) {
                return status;
            }
            merge = admission.merge;
            if (rule == DSCHED_AVERAGED) {
                merge = quantify_agreeing(quantify, loss, merge);
            }
            if (text[0] == '\0' || rule == DSCHED_AVERAGED) {
                memcpy(text, admission.text, sizeof(text));
            }
            if (merge < admission.merge) {
                (void)snprintf(text, sizeof(text),
                               "merge %u under averaged is refused: the ranks would disagree by "
                               "more than %.3g of the loss",
                               merge + 1, quantify->limits.epsilon);
            }
        }
        for (uint32_t k = merge + 1; k <= DSCHED_MAX_MERGE; k++) {
            out->progress.merge_ppm[rule][k] = 0;
        }
        out->max_merge = merge > out->max_merge ? merge : out->max_merge;
    }
    quantify_explain(quantify, rules, &noise, loss, text, out);
    quantify_fuse(quantify, &out->max_loss, &out->max_grad_sq);
    return DEFT_OK;
}

uint32_t quantify_progress_ppm(const struct quantify_price *price, uint32_t rule, uint32_t merge,
                               uint32_t delay) {
    if (rule >= DSCHED_N_RULES || merge > DSCHED_MAX_MERGE || delay > DSCHED_MAX_DELAY) {
        return 0;
    }
    double merged = price->progress.merge_ppm[rule][merge];
    double delayed = price->progress.delay_ppm[rule][delay];
    return (uint32_t)(merged * delayed / 1e6 + 0.5);
}
