/* From medians to a profile. */
#include "kineto.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kineto_curve.h"

/* A transfer on the host takes its processors; the times were measured with it, so no more. */
#define KINETO_PROFILE_CONTENTION_PPM 1000000u

static uint32_t kineto_profile_tensors(const struct kineto_job *job) {
    return job->n_parameters > 0 ? job->n_parameters : job->n_buckets;
}

/* Tensors in the order of readiness, with the instant of it. The last parameter of a bucket is
 * ready when the bucket is: the copy into it counts. */
static void kineto_profile_ready(const struct kineto_job *job, struct kineto_parameter *out,
                                 enum dsched_dtype *out_dtypes) {
    uint32_t b = 0;
    uint64_t filled = 0;
    for (uint32_t i = 0; i < kineto_profile_tensors(job); i++) {
        const struct kineto_bucket *bucket = &job->buckets[b];
        out[i].elements = bucket->elements;
        out[i].ready_ns = bucket->ready_ns;
        out_dtypes[i] = bucket->dtype;
        if (job->n_parameters > 0) {
            out[i].elements = job->parameters[i].elements;
            if (filled + out[i].elements < bucket->elements &&
                job->parameters[i].ready_ns < bucket->ready_ns) {
                out[i].ready_ns = job->parameters[i].ready_ns;
            }
        }
        filled += out[i].elements;
        if (filled == bucket->elements) {
            filled = 0;
            b++;
        }
    }
}

/* Backward times from readiness, in forward order, and the stages around them. */
static void kineto_profile_stages(const struct kineto_job *job,
                                  const struct kineto_parameter *ready,
                                  const enum dsched_dtype *dtypes, struct dsched_profile *profile) {
    int64_t begin_ns = job->median.backward_begin_ns;
    int64_t reached_ns = begin_ns;
    uint32_t n = profile->n_tensors;
    for (uint32_t i = 0; i < n; i++) {
        struct dsched_tensor *tensor = &profile->tensors[n - 1 - i];
        int64_t ready_ns = ready[i].ready_ns > reached_ns ? ready[i].ready_ns : reached_ns;
        (void)snprintf(tensor->name, sizeof(tensor->name), "%s%u",
                       job->n_parameters > 0 ? "parameter" : "bucket",
                       job->n_parameters > 0 ? n - 1 - i : i);
        tensor->elements = ready[i].elements;
        tensor->dtype = dtypes[i];
        tensor->backward_ns = ready_ns - reached_ns;
        reached_ns = ready_ns;
    }
    if (job->median.backward_end_ns > reached_ns) {
        reached_ns = job->median.backward_end_ns;
    }
    profile->forward_ns = begin_ns;
    profile->backward_ns = reached_ns - begin_ns;
    profile->optimizer_ns = job->optimizer_ns;
}

/* Nothing tells which forward kernels are whose: shares are those of the backward. */
static void kineto_profile_forward(struct dsched_profile *profile) {
    double total = 0;
    for (uint32_t i = 0; i < profile->n_tensors; i++) {
        total += (double)profile->tensors[i].backward_ns;
    }
    int64_t left_ns = profile->forward_ns;
    for (uint32_t i = 0; i < profile->n_tensors && total > 0; i++) {
        struct dsched_tensor *tensor = &profile->tensors[i];
        double share = (double)tensor->backward_ns / total;
        int64_t forward_ns = (int64_t)((double)profile->forward_ns * share);
        tensor->forward_ns = forward_ns < left_ns ? forward_ns : left_ns;
        left_ns -= tensor->forward_ns;
    }
}

static enum deft_status kineto_profile_fill(const struct kineto_job *job,
                                            struct dsched_profile *profile,
                                            struct deft_error *error) {
    uint32_t n = kineto_profile_tensors(job);
    enum deft_status status = DEFT_OK;
    struct kineto_parameter *ready = calloc(n, sizeof(*ready));
    enum dsched_dtype *dtypes = calloc(n, sizeof(*dtypes));
    profile->tensors = calloc(n, sizeof(*profile->tensors));
    profile->links = calloc(1, sizeof(*profile->links));
    if (ready == NULL || dtypes == NULL || profile->tensors == NULL || profile->links == NULL) {
        status = deft_fail(error, DEFT_NO_MEMORY, 0, "no memory for a profile");
        goto done;
    }
    profile->n_tensors = n;
    profile->n_links = 1;
    (void)snprintf(profile->links[0].name, sizeof(profile->links[0].name), "%s",
                   job->has_device ? "nccl" : "gloo");
    profile->links[0].contention_ppm = KINETO_PROFILE_CONTENTION_PPM;
    kineto_profile_ready(job, ready, dtypes);
    kineto_profile_stages(job, ready, dtypes, profile);
    kineto_profile_forward(profile);
    status = kineto_curve_fit(job, &profile->links[0], error);
done:
    free(ready);
    free(dtypes);
    return status;
}

enum deft_status kineto_profile(const struct kineto_job *job, const char *name, uint32_t world_size,
                                struct dsched_profile *out, struct deft_error *error) {
    struct dsched_profile profile = {0};
    struct dsched_error why = {{0}};
    (void)snprintf(profile.name, sizeof(profile.name), "%s", name);
    profile.world_size = world_size != 0 ? world_size : job->world_size;
    if (profile.world_size < job->n_ranks) {
        profile.world_size = job->n_ranks;
    }
    enum deft_status status = kineto_profile_fill(job, &profile, error);
    if (status == DEFT_OK) {
        enum dsched_status checked = dsched_profile_check(&profile, &why);
        if (checked != DSCHED_OK) {
            status = deft_fail(error, checked == DSCHED_LIMIT ? DEFT_LIMIT : DEFT_INVALID, 0,
                               "the trace makes no profile: %s", why.text);
        }
    }
    if (status != DEFT_OK) {
        dsched_profile_done(&profile);
        return status;
    }
    *out = profile;
    return DEFT_OK;
}
