#include "quadratic.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "random.h"

struct quadratic {
    struct quadratic_setup setup;
    enum dsched_rule rule;
    uint32_t merge;
    uint32_t delay;
    uint64_t n_steps;  /* since the beginning */
    uint64_t t;        /* since the switch */
    double *weights;   /* [n_ranks][n_dims], as the next gradients see them */
    double *anchor;    /* [n_dims] */
    double *velocity;  /* [n_ranks][n_dims]; of rank 0 alone but under averaged */
    double *gradient;  /* [n_ranks][n_dims] */
    double *gathering; /* [n_ranks][n_dims]: gradients / merge, or changes, of this generation */
    double *mean;      /* [n_dims] */
    double *flight;    /* [delay + 1][n_ranks][n_dims], by the boundary of landing */
    double part_norm2;
    double mean_norm2;
    uint64_t random;
};

static double *quadratic_row(const struct quadratic *job, double *rows, uint64_t row) {
    return rows + row * job->setup.n_dims;
}

/* Rows of one generation that lands at boundary t. */
static double *quadratic_landing(const struct quadratic *job, uint64_t t) {
    return quadratic_row(job, job->flight, t % (job->delay + 1) * job->setup.n_ranks);
}

static size_t quadratic_n_all(const struct quadratic *job) {
    return (size_t)job->setup.n_ranks * job->setup.n_dims;
}

struct quadratic *quadratic_create(const struct quadratic_setup *setup, const double *start) {
    struct quadratic *job = calloc(1, sizeof(*job));
    if (job == NULL) {
        return NULL;
    }
    job->setup = *setup;
    job->rule = DSCHED_EXACT;
    job->merge = 1;
    job->random = random_seed(setup->seed, 1);
    size_t n_all = quadratic_n_all(job);
    job->weights = calloc(n_all, sizeof(double));
    job->velocity = calloc(n_all, sizeof(double));
    job->gradient = calloc(n_all, sizeof(double));
    job->gathering = calloc(n_all, sizeof(double));
    job->flight = calloc(n_all, sizeof(double));
    job->anchor = calloc(setup->n_dims, sizeof(double));
    job->mean = calloc(setup->n_dims, sizeof(double));
    if (job->weights == NULL || job->velocity == NULL || job->gradient == NULL ||
        job->gathering == NULL || job->flight == NULL || job->anchor == NULL || job->mean == NULL) {
        quadratic_destroy(job);
        return NULL;
    }
    memcpy(job->anchor, start, setup->n_dims * sizeof(double));
    for (uint32_t r = 0; r < setup->n_ranks; r++) {
        memcpy(quadratic_row(job, job->weights, r), start, setup->n_dims * sizeof(double));
    }
    return job;
}

void quadratic_destroy(struct quadratic *job) {
    if (job != NULL) {
        free(job->weights);
        free(job->velocity);
        free(job->gradient);
        free(job->gathering);
        free(job->flight);
        free(job->anchor);
        free(job->mean);
        free(job);
    }
}

void quadratic_set_rate(struct quadratic *job, double rate) {
    job->setup.rate = rate;
}

static void quadratic_average(struct quadratic *job, const double *rows) {
    uint32_t n = job->setup.n_ranks;
    for (uint32_t d = 0; d < job->setup.n_dims; d++) {
        double sum = 0;
        for (uint32_t r = 0; r < n; r++) {
            sum += rows[(size_t)r * job->setup.n_dims + d];
        }
        job->mean[d] = sum / n;
    }
}

/* What happens when the average of `rows` is there. */
static void quadratic_land(struct quadratic *job, const double *rows) {
    quadratic_average(job, rows);
    uint32_t n_dims = job->setup.n_dims;
    if (job->rule == DSCHED_AVERAGED) {
        for (size_t i = 0; i < quadratic_n_all(job); i++) {
            job->weights[i] += job->mean[i % n_dims] - rows[i];
        }
        for (uint32_t d = 0; d < n_dims; d++) {
            job->anchor[d] += job->mean[d];
        }
        return;
    }
    for (uint32_t d = 0; d < n_dims; d++) {
        job->velocity[d] = job->setup.momentum * job->velocity[d] + job->mean[d];
        job->anchor[d] -= job->setup.rate * job->velocity[d];
    }
}

static void quadratic_to_anchor(struct quadratic *job) {
    for (uint32_t r = 0; r < job->setup.n_ranks; r++) {
        memcpy(quadratic_row(job, job->weights, r), job->anchor,
               job->setup.n_dims * sizeof(double));
    }
}

/* Everything in flight lands in order, the begun generation last; states become their mean. */
static void quadratic_drain(struct quadratic *job) {
    uint32_t n_begun = (uint32_t)(job->t % job->merge);
    for (uint64_t t = job->t; t < job->t + job->delay; t++) {
        if (t >= job->delay && (t - job->delay + 1) % job->merge == 0) {
            quadratic_land(job, quadratic_landing(job, t));
        }
    }
    if (n_begun > 0) {
        double scale = job->rule == DSCHED_AVERAGED ? 1 : (double)job->merge / n_begun;
        for (size_t i = 0; i < quadratic_n_all(job); i++) {
            job->gathering[i] *= scale;
        }
        quadratic_land(job, job->gathering);
    }
    if (job->rule == DSCHED_AVERAGED) {
        quadratic_average(job, job->velocity);
        memcpy(job->velocity, job->mean, job->setup.n_dims * sizeof(double));
    }
    for (uint32_t r = 1; r < job->setup.n_ranks; r++) {
        memcpy(quadratic_row(job, job->velocity, r), job->velocity,
               job->setup.n_dims * sizeof(double));
    }
    memset(job->gathering, 0, quadratic_n_all(job) * sizeof(double));
    quadratic_to_anchor(job);
}

int quadratic_switch(struct quadratic *job, enum dsched_rule rule, uint32_t merge, uint32_t delay) {
    if (rule == DSCHED_LOOKAHEAD && (merge != 1 || delay > 1)) {
        return 0;
    }
    double *flight = calloc(quadratic_n_all(job) * (delay + 1), sizeof(double));
    if (flight == NULL) {
        return 0;
    }
    quadratic_drain(job);
    free(job->flight);
    job->flight = flight;
    job->rule = rule;
    job->merge = rule == DSCHED_EXACT ? 1 : merge;
    job->delay = rule == DSCHED_EXACT ? 0 : delay;
    job->t = 0;
    return 1;
}

/* Root mean square of the gradient's coordinates from `first` to the end of its block. */
static double quadratic_block_rms(const struct quadratic *job, size_t first) {
    double sum = 0;
    for (size_t i = first; i < first + job->setup.block; i++) {
        sum += pow(job->setup.curvature[i % job->setup.n_dims] * job->weights[i], 2);
    }
    return sqrt(sum / job->setup.block);
}

static void quadratic_take_gradients(struct quadratic *job) {
    const struct quadratic_setup *setup = &job->setup;
    int is_noisy = setup->n_noisy == 0 || job->n_steps < setup->n_noisy;
    double sum = 0;
    double deviation = setup->noise;
    for (size_t i = 0; i < quadratic_n_all(job); i++) {
        double g = setup->curvature[i % setup->n_dims] * job->weights[i];
        if (setup->scaled_noise > 0 && i % setup->block == 0) {
            deviation = setup->scaled_noise * quadratic_block_rms(job, i);
        }
        if (is_noisy && deviation > 0) {
            g += deviation * random_normal(&job->random);
        }
        job->gradient[i] = g;
        sum += g * g;
    }
    job->part_norm2 = sum / setup->n_ranks;
    quadratic_average(job, job->gradient);
    job->mean_norm2 = 0;
    for (uint32_t d = 0; d < setup->n_dims; d++) {
        job->mean_norm2 += job->mean[d] * job->mean[d];
    }
}

/* Under averaged ranks step by themselves; elsewhere gradients are merged. */
static void quadratic_gather(struct quadratic *job) {
    const struct quadratic_setup *setup = &job->setup;
    for (size_t i = 0; i < quadratic_n_all(job); i++) {
        if (job->rule == DSCHED_AVERAGED) {
            job->velocity[i] = setup->momentum * job->velocity[i] + job->gradient[i];
            job->weights[i] -= setup->rate * job->velocity[i];
            job->gathering[i] -= setup->rate * job->velocity[i];
        } else {
            job->gathering[i] += job->gradient[i] / job->merge;
        }
    }
}

void quadratic_step(struct quadratic *job) {
    const struct quadratic_setup *setup = &job->setup;
    size_t n_all = quadratic_n_all(job);
    quadratic_take_gradients(job);
    quadratic_gather(job);
    if ((job->t + 1) % job->merge == 0) {
        memcpy(quadratic_landing(job, job->t + job->delay), job->gathering, n_all * sizeof(double));
        memset(job->gathering, 0, n_all * sizeof(double));
    }
    if (job->t >= job->delay && (job->t - job->delay + 1) % job->merge == 0) {
        quadratic_land(job, quadratic_landing(job, job->t));
    }
    if (job->rule != DSCHED_AVERAGED) {
        quadratic_to_anchor(job);
    }
    if (job->rule == DSCHED_LOOKAHEAD && job->delay == 1) {
        for (size_t i = 0; i < n_all; i++) {
            double velocity = job->velocity[i % setup->n_dims];
            job->weights[i] -= setup->rate * (setup->momentum * velocity + job->gradient[i]);
        }
    }
    job->t++;
    job->n_steps++;
}

double quadratic_loss(const struct quadratic *job) {
    double sum = 0;
    for (size_t i = 0; i < quadratic_n_all(job); i++) {
        sum += job->setup.curvature[i % job->setup.n_dims] * job->weights[i] * job->weights[i];
    }
    return sum / 2 / job->setup.n_ranks;
}

double quadratic_gradient_norm2(const struct quadratic *job) {
    double sum = 0;
    for (uint32_t d = 0; d < job->setup.n_dims; d++) {
        double mean = 0;
        for (uint32_t r = 0; r < job->setup.n_ranks; r++) {
            mean += job->weights[(size_t)r * job->setup.n_dims + d] / job->setup.n_ranks;
        }
        sum += pow(job->setup.curvature[d] * mean, 2);
    }
    return sum;
}

double quadratic_part_norm2(const struct quadratic *job) {
    return job->part_norm2;
}

double quadratic_mean_norm2(const struct quadratic *job) {
    return job->mean_norm2;
}

double quadratic_size(const struct quadratic *job) {
    double size = 0;
    for (size_t i = 0; i < quadratic_n_all(job); i++) {
        double velocity = job->setup.rate * job->velocity[i];
        if (!isfinite(job->weights[i]) || !isfinite(velocity)) {
            return INFINITY;
        }
        size = fmax(size, fmax(fabs(job->weights[i]), fabs(velocity)));
    }
    return size;
}
