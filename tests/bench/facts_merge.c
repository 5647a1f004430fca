#include <math.h>
#include <stdio.h>

#include <dsched/convergence.h>

#include "facts.h"
#include "quadratic.h"

#define N_LEVELS  16u /* curvatures from 1 to 0.01 */
#define BLOCK     16u
#define N_DIMS    (N_LEVELS * BLOCK)
#define N_RANKS   4u
#define BATCH     256.0 /* samples of one iteration; any number gives the same e(k) */
#define MAX_STEPS 60000.0
#define TARGET    0.05  /* of the first loss */
#define MEMORY    100.0 /* iterations, as the controller has it (controller/tuning/quantify.c) */
#define N_SECTION 10    /* steps of the search for the best rate */
#define N_MERGES  4

static const uint32_t merge_tried[N_MERGES] = {1, 2, 4, 8};

enum merge_noise { NOISE_SCALED = 0, NOISE_CONSTANT = 1 };
static const char *const merge_noise_names[] = {"scaled", "constant"};

struct merge_case {
    enum merge_noise noise;
    double noise_over_batch; /* B_noise over the global batch; of the start, when it is constant */
    double momentum;
    enum dsched_rule rule;
    uint32_t merge;
    uint32_t delay;
    double trace_over_batch; /* tr(Sigma) / B of the start */
    double curvature[N_DIMS];
    double start[N_DIMS];
    int n_runs;
};

static void merge_fill(struct merge_case *c) {
    double norm2 = 0;
    for (uint32_t d = 0; d < N_DIMS; d++) {
        uint32_t level = d / BLOCK;
        c->curvature[d] = pow(0.01, (double)level / (N_LEVELS - 1));
        c->start[d] = 1 / sqrt(c->curvature[d]); /* equal losses */
        norm2 += pow(c->curvature[d] * c->start[d], 2);
    }
    c->trace_over_batch = c->noise_over_batch * norm2;
}

static struct quadratic *merge_job(const struct merge_case *c, double rate, uint64_t seed) {
    struct quadratic_setup setup = {.curvature = c->curvature,
                                    .n_dims = N_DIMS,
                                    .n_ranks = N_RANKS,
                                    .rate = rate,
                                    .momentum = c->momentum,
                                    .block = BLOCK,
                                    .seed = seed};
    if (c->noise == NOISE_SCALED) {
        setup.scaled_noise = sqrt(c->noise_over_batch * N_RANKS);
    } else {
        setup.noise = sqrt(c->trace_over_batch * N_RANKS / N_DIMS);
    }
    struct quadratic *job = quadratic_create(&setup, c->start);
    if (job != NULL && !quadratic_switch(job, c->rule, c->merge, c->delay)) {
        quadratic_destroy(job);
        return NULL;
    }
    return job;
}

/* Iterations of one job until the loss is down to TARGET, between updates by the loss's logarithm.
 * Gives up at `most`, and then returns more. */
static double merge_run(struct quadratic *job, uint32_t merge, double most) {
    double before = quadratic_loss(job);
    double target = TARGET * before;
    uint64_t n = 0;
    while ((double)n < most) {
        for (uint32_t i = 0; i < merge; i++) {
            quadratic_step(job);
        }
        n += merge;
        double loss = quadratic_loss(job);
        if (loss <= target) {
            return (double)n - merge * log(target / loss) / log(before / loss);
        }
        if (!(loss < 1e12)) {
            break;
        }
        before = loss;
    }
    return most + 1;
}

/* Mean over the runs. Gives up when it is clear that it is above `most`. */
static double merge_iterations(const struct merge_case *c, double rate, uint64_t first_seed,
                               double most) {
    double sum = 0;
    for (int run = 0; run < c->n_runs && sum <= most * c->n_runs; run++) {
        struct quadratic *job = merge_job(c, rate, first_seed + (uint64_t)run);
        if (job == NULL) {
            return (double)INFINITY;
        }
        sum += merge_run(job, c->merge, most * c->n_runs - sum);
        quadratic_destroy(job);
    }
    return sum / c->n_runs;
}

/* Golden section over the logarithm of the rate, with the same noise for every rate. */
static double merge_best_rate(const struct merge_case *c) {
    const double golden = 0.61803398874989484820;
    double scale = (1 - c->momentum) / (1 + c->noise_over_batch / c->merge);
    double low = log(0.1 * scale);
    double high = log(4 * scale);
    double a = high - golden * (high - low);
    double b = low + golden * (high - low);
    double at_a = merge_iterations(c, exp(a), 1, MAX_STEPS);
    double at_b = merge_iterations(c, exp(b), 1, MAX_STEPS);
    for (int i = 0; i < N_SECTION; i++) {
        if (at_a <= at_b) {
            high = b;
            b = a;
            at_b = at_a;
            a = high - golden * (high - low);
            at_a = merge_iterations(c, exp(a), 1, fmin(1.5 * at_b, MAX_STEPS));
        } else {
            low = a;
            a = b;
            at_a = at_b;
            b = low + golden * (high - low);
            at_b = merge_iterations(c, exp(b), 1, fmin(1.5 * at_a, MAX_STEPS));
        }
    }
    return exp((low + high) / 2);
}

struct merge_prediction {
    double estimated[N_MERGES]; /* e(k) over the run, from nothing but its q and Q */
    double known[N_MERGES];     /* the same with the true B_noise */
    double known_frac;          /* iterations at which the estimate counted as known */
};

/* e(k) over an exact run: what each of its iterations costs, by the noise scale it is at. */
static int merge_predict(const struct merge_case *c, double rate, struct merge_prediction *out) {
    double estimated[N_MERGES] = {0};
    double known[N_MERGES] = {0};
    double n_known = 0;
    double n_all = 0;
    for (int run = 0; run < c->n_runs; run++) {
        struct dsched_noise noise = {0};
        struct quadratic *job = merge_job(c, rate, 1000 + (uint64_t)run);
        if (job == NULL) {
            return 0;
        }
        double target = TARGET * quadratic_loss(job);
        for (uint32_t n = 0; n < MAX_STEPS && quadratic_loss(job) > target; n++) {
            double truth = BATCH * (c->noise == NOISE_SCALED
                                        ? c->noise_over_batch
                                        : c->trace_over_batch / quadratic_gradient_norm2(job));
            quadratic_step(job);
            struct dsched_noise_part part = {.part_norm2 = quadratic_part_norm2(job),
                                             .mean_norm2 = quadratic_mean_norm2(job),
                                             .n_parts = N_RANKS,
                                             .part_samples = BATCH / N_RANKS};
            struct dsched_noise_estimate estimate;
            dsched_noise_add(&noise, &part, MEMORY);
            dsched_noise_get(&noise, &estimate);
            n_known += estimate.is_known;
            n_all++;
            for (int i = 0; i < N_MERGES; i++) {
                double by_estimate =
                    dsched_efficiency_merge(estimate.noise_samples, BATCH, merge_tried[i]);
                estimated[i] += estimate.is_known ? 1 / by_estimate : 0;
                known[i] += 1 / dsched_efficiency_merge(truth, BATCH, merge_tried[i]);
            }
        }
        quadratic_destroy(job);
    }
    for (int i = 0; i < N_MERGES; i++) {
        out->estimated[i] = n_known > 0 ? n_known / estimated[i] : DSCHED_UNKNOWN;
        out->known[i] = n_all / known[i];
    }
    out->known_frac = n_known / n_all;
    return n_all > 0;
}

static int merge_compare(struct merge_case *c) {
    struct merge_prediction prediction;
    double exact = 0;
    merge_fill(c);
    for (int i = 0; i < N_MERGES; i++) {
        c->merge = merge_tried[i];
        double rate = merge_best_rate(c);
        double n = merge_iterations(c, rate, 1, MAX_STEPS);
        if (i == 0) {
            exact = n;
            if (!merge_predict(c, rate, &prediction)) {
                return 0;
            }
        }
        printf("{\"noise\":\"%s\",\"noise_over_batch\":%g,\"merge\":%u,\"rate\":%.5f,"
               "\"iterations\":%.1f,\"measured\":%.5f,\"predicted\":%.5f,"
               "\"predicted_known\":%.5f,\"known_frac\":%.3f}\n",
               merge_noise_names[c->noise], c->noise_over_batch, c->merge, rate, n, exact / n,
               prediction.estimated[i], prediction.known[i], prediction.known_frac);
    }
    return 1;
}

int facts_merge(int n_runs) {
    static const struct {
        enum merge_noise noise;
        double noise_over_batch;
    } cases[] = {{NOISE_SCALED, 2},     {NOISE_SCALED, 8},   {NOISE_SCALED, 32},
                 {NOISE_CONSTANT, 0.5}, {NOISE_CONSTANT, 2}, {NOISE_CONSTANT, 8}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct merge_case c = {.noise = cases[i].noise,
                               .noise_over_batch = cases[i].noise_over_batch,
                               .rule = DSCHED_DELAYED,
                               .n_runs = n_runs};
        if (!merge_compare(&c)) {
            (void)fprintf(stderr, "convergence_facts: no memory\n");
            return 1;
        }
    }
    return 0;
}

/* One boundary of delay at shares of its own edge: samples to the loss beside exact's at the same
 * rate, and the share of exact's margin that convergence.h makes of it. */
int facts_delay(int n_runs) {
    static const double momenta[] = {0, 0.5, 0.9};
    static const double shares[] = {0.125, 0.25, 0.5, 0.75, 0.9};
    for (size_t m = 0; m < 3; m++) {
        for (size_t i = 0; i < 5; i++) {
            struct merge_case c = {
                .noise = NOISE_SCALED, .momentum = momenta[m], .merge = 1, .n_runs = n_runs};
            double edge = dsched_stability_edge(DSCHED_DELAYED, momenta[m], 1, 1);
            struct dsched_efficiency_inputs in = {.rule = DSCHED_DELAYED,
                                                  .optimizer = DSCHED_OPTIMIZER_SGD,
                                                  .merge = 1,
                                                  .delay = 1,
                                                  .momentum = momenta[m],
                                                  .batch_samples = BATCH,
                                                  .noise_samples = BATCH,
                                                  .rate_curvature = shares[i] * edge,
                                                  .measured_frac = DSCHED_UNKNOWN};
            struct dsched_efficiency predicted;
            struct dsched_error error;
            if (dsched_efficiency_predict(&in, &predicted, &error) != DSCHED_OK) {
                (void)fprintf(stderr, "convergence_facts: %s\n", error.text);
                return 1;
            }
            merge_fill(&c);
            double exact = merge_iterations(&c, shares[i] * edge, 1, MAX_STEPS);
            c.rule = DSCHED_DELAYED;
            c.delay = 1;
            double delayed = merge_iterations(&c, shares[i] * edge, 1, MAX_STEPS);
            printf("{\"momentum\":%g,\"share\":%g,\"measured\":%.4f,\"predicted\":%.4f}\n",
                   momenta[m], shares[i], exact / delayed, predicted.delay_frac);
        }
    }
    return 0;
}
