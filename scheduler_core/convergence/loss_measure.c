#include "loss_measure.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Bins of the slope. 16 bins of 8 are as good as all pairs, and 120 pairs instead of 8,128. */
#define MEASURE_BINS 16u
/* Newest losses that make up the level: their mean is as exact as the end of a line through 128,
 * and does not care whether there is a line. */
#define MEASURE_LEVEL 32u
/* Further out than this many deviations a loss counts as this far: the variance of Laplace noise
 * loses 4 %, that of normal noise nothing, and one wild loss in 128 adds at most a fifth. */
#define MEASURE_CLIP 5.0
/* 1 / the median of |x| of a standard normal, and the same for its mean. */
#define MEASURE_MEDIAN_TO_DEVIATION 1.4826
#define MEASURE_MEAN_TO_DEVIATION   1.2533
/* A standard normal's Theil-Sen slope has 1.05 times the error of least squares'. */
#define MEASURE_SLOPE_FACTOR 1.05
/* In units of the window's own scale; only an outlier comes near it. */
#define MEASURE_FARTHEST 1e12

/* The window in order of time, in units in which neither squares nor sums overflow: y is (loss -
 * center) / scale, x the iterations since the first. */
struct measure {
    uint32_t n;
    double x[DSCHED_LOSS_WINDOW];
    double y[DSCHED_LOSS_WINDOW];
    double center;
    double scale;
};

static int measure_compare(const void *a, const void *b) {
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sorts `values`; n > 0. */
static double measure_median(double *values, uint32_t n) {
    qsort(values, n, sizeof(*values), measure_compare);
    return n % 2 ? values[n / 2] : values[n / 2 - 1] / 2 + values[n / 2] / 2;
}

/* Around `center`, as of normal noise; the mean's where half of the values are the same. */
static double measure_deviation(const double *values, uint32_t n, double center) {
    double off[DSCHED_LOSS_WINDOW];
    double mean = 0;
    for (uint32_t i = 0; i < n; i++) {
        off[i] = fabs(values[i] - center);
        mean += off[i] / n;
    }
    double median = measure_median(off, n);
    return median > 0 ? median * MEASURE_MEDIAN_TO_DEVIATION : mean * MEASURE_MEAN_TO_DEVIATION;
}

static void measure_load(struct measure *m, const struct dsched_loss *stream) {
    double sorted[DSCHED_LOSS_WINDOW];
    uint32_t oldest = (stream->at + DSCHED_LOSS_WINDOW - stream->n_window) % DSCHED_LOSS_WINDOW;
    m->n = stream->n_window;
    for (uint32_t i = 0; i < m->n; i++) {
        uint32_t at = (oldest + i) % DSCHED_LOSS_WINDOW;
        m->x[i] = (double)(stream->window[at].iteration - stream->window[oldest].iteration);
        m->y[i] = stream->window[at].loss;
    }
    memcpy(sorted, m->y, m->n * sizeof(*sorted));
    m->center = measure_median(sorted, m->n);
    m->scale = measure_deviation(m->y, m->n, m->center);
    /* The reciprocal of a smaller number is not finite. */
    if (!(m->scale > 1e-300)) {
        m->scale = 0;
    }
    for (uint32_t i = 0; i < m->n; i++) {
        double y = m->scale > 0 ? (m->y[i] - m->center) / m->scale : 0;
        m->y[i] = fmin(fmax(y, -MEASURE_FARTHEST), MEASURE_FARTHEST);
    }
}

struct measure_bins {
    uint32_t n;
    double x[MEASURE_BINS];
    double y[MEASURE_BINS];
    double per_bin;
};

static void measure_bin(const struct measure *m, int use_medians, struct measure_bins *bins) {
    bins->n = m->n / 2 < MEASURE_BINS ? m->n / 2 : MEASURE_BINS;
    bins->per_bin = (double)m->n / bins->n;
    for (uint32_t b = 0; b < bins->n; b++) {
        double sorted[DSCHED_LOSS_WINDOW];
        uint32_t begin = b * m->n / bins->n;
        uint32_t n = (b + 1) * m->n / bins->n - begin;
        double x = 0;
        double y = 0;
        for (uint32_t i = 0; i < n; i++) {
            x += m->x[begin + i] / n;
            y += m->y[begin + i] / n;
            sorted[i] = m->y[begin + i];
        }
        bins->x[b] = x;
        bins->y[b] = use_medians ? measure_median(sorted, n) : y;
    }
}

static double measure_slope(const struct measure_bins *bins) {
    double slopes[MEASURE_BINS * (MEASURE_BINS - 1) / 2];
    uint32_t n = 0;
    for (uint32_t b = 1; b < bins->n; b++) {
        for (uint32_t a = 0; a < b; a++) {
            slopes[n++] = (bins->y[b] - bins->y[a]) / (bins->x[b] - bins->x[a]);
        }
    }
    return n > 0 ? measure_median(slopes, n) : 0;
}

/* Of the slope, by the scatter of the bins around the line, or what `spread` lets expect if that is
 * more: 16 bins alone may lie on a line by chance. */
static double measure_slope_error(const struct measure_bins *bins, double slope, double spread) {
    double mean_x = 0;
    double mean_y = 0;
    double xx = 0;
    double off2 = 0;
    for (uint32_t b = 0; b < bins->n; b++) {
        mean_x += bins->x[b] / bins->n;
        mean_y += bins->y[b] / bins->n;
    }
    for (uint32_t b = 0; b < bins->n; b++) {
        double x = bins->x[b] - mean_x;
        double off = bins->y[b] - mean_y - slope * x;
        xx += x * x;
        off2 += off * off;
    }
    double variance = fmax(off2 / (bins->n - 2.0), spread * spread / bins->per_bin);
    return MEASURE_SLOPE_FACTOR * sqrt(variance / xx);
}

/* --- sigma of the walk ------------------------------------------------------------------------ */

/* Lags of the variogram: beyond a quarter of the window too few pairs are independent. */
#define MEASURE_LAGS (DSCHED_LOSS_WINDOW / 4)
/* The lags that tell sigma best reach a few times as far as sqrt(batch^2 / sigma^2): fewer do not
 * see the walk for the noise, more add variance. 2.5 comes within 20 % of the error of maximum
 * likelihood for every ratio. */
#define MEASURE_REACH 2.5
/* Rounds that make lags and ratio agree; nearly always two are enough. */
#define MEASURE_ROUNDS 4

struct measure_variogram {
    uint32_t n;
    double lag[MEASURE_LAGS + 1]; /* what multiplies sigma^2 */
    double mean[MEASURE_LAGS + 1];
};

static double measure_least_squares(const struct measure *m) {
    double mean_x = 0;
    double xx = 0;
    double xy = 0;
    for (uint32_t i = 0; i < m->n; i++) {
        mean_x += m->x[i] / m->n;
    }
    for (uint32_t i = 0; i < m->n; i++) {
        xx += (m->x[i] - mean_x) * (m->x[i] - mean_x);
        xy += (m->x[i] - mean_x) * m->y[i];
    }
    return xx > 0 ? xy / xx : 0;
}

static void measure_vary(const struct measure *m, struct measure_variogram *v) {
    double slope = measure_least_squares(m);
    v->n = m->n / 4 < MEASURE_LAGS ? m->n / 4 : MEASURE_LAGS;
    for (uint32_t h = 1; h <= v->n; h++) {
        double n = m->n - h;
        double f = (double)h / m->n;
        double lag = 0;
        double sum = 0;
        for (uint32_t i = 0; i + h < m->n; i++) {
            double x = m->x[i + h] - m->x[i];
            double off = m->y[i + h] - m->y[i] - slope * x;
            lag += x / n;
            sum += off * off / n;
        }
        /* The slope follows the walk and so takes a part of it away. With f = h / n and the weights
         * 6 u (1 - u) / n of an increment at u in the slope, h turns into
         * h (1 - 2 f (1 + f - f^2) + 6/5 f). */
        v->lag[h] = lag * (1 - 0.8 * f - 2 * f * f + 2 * f * f * f);
        v->mean[h] = sum;
    }
}

/* sigma^2 and batch^2 by least squares over lags 1..n, n >= 2. */
static void measure_fit(const struct measure_variogram *v, uint32_t n, double *out_sigma2,
                        double *out_batch2) {
    double mean_x = 0;
    double mean_y = 0;
    double xx = 0;
    double xy = 0;
    for (uint32_t h = 1; h <= n; h++) {
        mean_x += v->lag[h] / n;
        mean_y += v->mean[h] / n;
    }
    for (uint32_t h = 1; h <= n; h++) {
        xx += (v->lag[h] - mean_x) * (v->lag[h] - mean_x);
        xy += (v->lag[h] - mean_x) * (v->mean[h] - mean_y);
    }
    double slope = xx > 0 ? fmax(xy / xx, 0) : 0;
    *out_sigma2 = slope;
    *out_batch2 = fmax((mean_y - slope * mean_x) / 2, 0);
}

static void measure_walk(const struct measure *m, double *out_sigma2, double *out_batch2) {
    struct measure_variogram v;
    measure_vary(m, &v);
    *out_sigma2 = 0;
    *out_batch2 = 0;
    for (uint32_t round = 0, n = v.n; round < MEASURE_ROUNDS && n >= 2; round++) {
        measure_fit(&v, n, out_sigma2, out_batch2);
        /* In iterations, then in losses. */
        double gap = m->x[m->n - 1] / (m->n - 1);
        double reach = 1 + MEASURE_REACH * sqrt(*out_batch2 / fmax(*out_sigma2 * gap, 1e-30));
        uint32_t next = reach >= v.n ? v.n : reach <= 2 ? 2 : (uint32_t)reach;
        if (next == n) {
            break;
        }
        n = next;
    }
}

/* --- all of it -------------------------------------------------------------------------------- */

static double measure_limit(double value) {
    return fmin(fmax(value, -DSCHED_MAX_MEASURED), DSCHED_MAX_MEASURED);
}

/* Draws losses that are far off the line of `slope` in. */
static void measure_clip(struct measure *m, double slope) {
    double off[DSCHED_LOSS_WINDOW];
    double sorted[DSCHED_LOSS_WINDOW];
    for (uint32_t i = 0; i < m->n; i++) {
        off[i] = m->y[i] - slope * m->x[i];
    }
    memcpy(sorted, off, m->n * sizeof(*sorted));
    double median = measure_median(sorted, m->n);
    double most = MEASURE_CLIP * measure_deviation(off, m->n, median);
    for (uint32_t i = 0; i < m->n; i++) {
        m->y[i] = slope * m->x[i] + fmin(fmax(off[i], median - most), median + most);
    }
}

static double measure_spread(const struct measure *m, double slope) {
    double mean = 0;
    double off2 = 0;
    for (uint32_t i = 0; i < m->n; i++) {
        mean += (m->y[i] - slope * m->x[i]) / m->n;
    }
    for (uint32_t i = 0; i < m->n; i++) {
        double off = m->y[i] - slope * m->x[i] - mean;
        off2 += off * off;
    }
    return sqrt(off2 / (m->n - 2.0));
}

/* At the newest iteration. */
static double measure_level(const struct measure *m, double slope) {
    uint32_t n = m->n < MEASURE_LEVEL ? m->n : MEASURE_LEVEL;
    double mean = 0;
    for (uint32_t i = m->n - n; i < m->n; i++) {
        mean += (m->y[i] + slope * (m->x[m->n - 1] - m->x[i])) / n;
    }
    return mean;
}

/* Four losses or more. */
static void measure_all(struct measure *m, struct loss_figures *out) {
    struct measure_bins bins;
    double sigma2;
    double batch2;
    measure_bin(m, 1, &bins);
    measure_clip(m, measure_slope(&bins));
    measure_bin(m, 0, &bins);
    double slope = measure_slope(&bins);
    double spread = measure_spread(m, slope);
    double slope_error =
        bins.n > 2 ? measure_slope_error(&bins, slope, spread) : spread / m->x[m->n - 1];
    measure_walk(m, &sigma2, &batch2);
    /* The two variances differ by chance, too: by 2/sqrt(n) for two deviations of white noise. */
    double slow2 = spread * spread * (1 - 2 / sqrt(m->n)) - batch2;
    out->level = measure_limit(m->center + m->scale * measure_level(m, slope));
    out->spread = measure_limit(m->scale * spread);
    out->batch = slow2 > 0 ? measure_limit(m->scale * sqrt(spread * spread - slow2)) : out->spread;
    out->slope = measure_limit(m->scale * slope);
    out->slope_error = measure_limit(m->scale * slope_error);
    out->deviation = measure_limit(m->scale * sqrt(sigma2));
}

void loss_measure(const struct dsched_loss *stream, struct loss_figures *out) {
    struct measure m;
    memset(out, 0, sizeof(*out));
    if (stream->n_window == 0) {
        return;
    }
    measure_load(&m, stream);
    out->level = m.center;
    out->lowest = stream->window[0].loss;
    for (uint32_t i = 1; i < stream->n_window; i++) {
        out->lowest = fmin(out->lowest, stream->window[i].loss);
    }
    if (m.n >= 4 && m.scale > 0) {
        measure_all(&m, out);
    }
}
