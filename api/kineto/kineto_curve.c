#include "kineto_curve.h"

#include <stdlib.h>

static int kineto_curve_by_bytes(const void *a, const void *b) {
    const struct dsched_sample *x = a;
    const struct dsched_sample *y = b;
    if (x->bytes != y->bytes) {
        return x->bytes < y->bytes ? -1 : 1;
    }
    return (x->ns > y->ns) - (x->ns < y->ns);
}

/* Sorted, one per size, not falling. Returns how many remain. */
static uint32_t kineto_curve_tidy(struct dsched_sample *samples, uint32_t n) {
    uint32_t kept = 0;
    qsort(samples, n, sizeof(*samples), kineto_curve_by_bytes);
    for (uint32_t i = 0; i < n; i++) {
        if (kept == 0 || samples[kept - 1].bytes != samples[i].bytes) {
            samples[kept++] = samples[i];
        }
    }
    for (uint32_t i = kept - 1; i-- > 0;) {
        if (samples[i].ns > samples[i + 1].ns) {
            samples[i].ns = samples[i + 1].ns;
        }
    }
    return kept;
}

/* More sizes than a curve may have: evenly spread ones stay, smallest and largest among them. */
static uint32_t kineto_curve_thin(struct dsched_sample *samples, uint32_t n, uint32_t most) {
    if (n <= most) {
        return n;
    }
    for (uint32_t i = 0; i < most; i++) {
        samples[i] = samples[(uint64_t)i * (n - 1) / (most - 1)];
    }
    return most;
}

static void kineto_curve_add_total(const struct kineto_job *job, struct dsched_link *link) {
    struct dsched_sample total = {0};
    for (uint32_t b = 0; b < job->n_buckets; b++) {
        uint64_t bytes = job->buckets[b].elements * dsched_dtype_bytes(job->buckets[b].dtype);
        int64_t ns = dsched_link_ns(link, bytes);
        total.bytes += bytes;
        total.ns = ns > DSCHED_MAX_TIME_NS - total.ns ? DSCHED_MAX_TIME_NS : total.ns + ns;
    }
    if (total.bytes > link->samples[link->n_samples - 1].bytes) {
        link->samples[link->n_samples++] = total;
    }
}

enum deft_status kineto_curve_fit(const struct kineto_job *job, struct dsched_link *link,
                                  struct deft_error *error) {
    struct dsched_sample *samples = calloc((size_t)job->n_buckets + 1, sizeof(*samples));
    if (samples == NULL) {
        return deft_fail(error, DEFT_NO_MEMORY, 0, "no memory for a link's curve");
    }
    for (uint32_t b = 0; b < job->n_buckets; b++) {
        const struct kineto_bucket *bucket = &job->buckets[b];
        samples[b].bytes = bucket->elements * dsched_dtype_bytes(bucket->dtype);
        /* A transfer that shows no time of its own ran in the shadow of the one before. */
        samples[b].ns = bucket->transfer_ns > 0 ? bucket->transfer_ns : bucket->duration_ns;
    }
    link->samples = samples;
    link->n_samples = kineto_curve_tidy(samples, job->n_buckets);
    link->n_samples = kineto_curve_thin(samples, link->n_samples, DSCHED_MAX_LINK_SAMPLES - 1);
    kineto_curve_add_total(job, link);
    return DEFT_OK;
}
