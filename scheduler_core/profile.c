#include "refuse.h"

#include <dsched/profile.h>

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* A link that slows compute 100 times is a broken measurement. */
#define MAX_CONTENTION_PPM 100000000u
#define MIN_CONTENTION_PPM 1000000u

static const struct {
    const char *name;
    uint32_t bytes;
} dtypes[DSCHED_N_DTYPES] = {
    [DSCHED_F32] = {"f32", 4},
    [DSCHED_F64] = {"f64", 8},
    [DSCHED_F16] = {"f16", 2},
    [DSCHED_BF16] = {"bf16", 2},
};

uint32_t dsched_dtype_bytes(enum dsched_dtype dtype) {
    return (uint32_t)dtype < DSCHED_N_DTYPES ? dtypes[dtype].bytes : 0;
}

const char *dsched_dtype_name(enum dsched_dtype dtype) {
    return (uint32_t)dtype < DSCHED_N_DTYPES ? dtypes[dtype].name : NULL;
}

void dsched_profile_done(struct dsched_profile *profile) {
    if (profile == NULL) {
        return;
    }
    for (uint32_t l = 0; profile->links != NULL && l < profile->n_links; l++) {
        free(profile->links[l].samples);
    }
    free(profile->links);
    free(profile->tensors);
    memset(profile, 0, sizeof(*profile));
}

static int is_time(int64_t ns) {
    return ns >= 0 && ns <= DSCHED_MAX_TIME_NS;
}

static int is_terminated(const char name[DSCHED_NAME_BYTES]) {
    return memchr(name, '\0', DSCHED_NAME_BYTES) != NULL;
}

static enum dsched_status check_stages(const struct dsched_profile *profile,
                                       struct dsched_error *error) {
    const struct {
        const char *name;
        int64_t ns;
    } stages[] = {{"forward_ns", profile->forward_ns},
                  {"backward_ns", profile->backward_ns},
                  {"optimizer_ns", profile->optimizer_ns}};
    for (size_t i = 0; i < sizeof(stages) / sizeof(stages[0]); i++) {
        if (!is_time(stages[i].ns)) {
            return refuse(error, DSCHED_INVALID,
                          "%s of the profile is %" PRId64 ", but 0..%" PRId64 " is allowed",
                          stages[i].name, stages[i].ns, DSCHED_MAX_TIME_NS);
        }
    }
    if (profile->forward_ns + profile->backward_ns == 0) {
        return refuse(error, DSCHED_INVALID,
                      "forward_ns and backward_ns of the profile are both 0, but an iteration must "
                      "take time");
    }
    return DSCHED_OK;
}

static enum dsched_status check_tensor(const struct dsched_tensor *tensor, uint32_t i,
                                       struct dsched_error *error) {
    if (!is_terminated(tensor->name)) {
        return refuse(error, DSCHED_INVALID, "the name of tensor %u does not end within %u bytes",
                      i, DSCHED_NAME_BYTES);
    }
    if (dsched_dtype_bytes(tensor->dtype) == 0) {
        return refuse(error, DSCHED_INVALID,
                      "tensor %u (%s) has dtype %u, but 0..%u (f32, f64, f16, bf16) is allowed", i,
                      tensor->name, (unsigned)tensor->dtype, DSCHED_N_DTYPES - 1);
    }
    if (!is_time(tensor->forward_ns) || !is_time(tensor->backward_ns)) {
        return refuse(error, DSCHED_INVALID,
                      "tensor %u (%s) takes %" PRId64 " and %" PRId64
                      " ns forward and backward, but 0..%" PRId64 " is allowed",
                      i, tensor->name, tensor->forward_ns, tensor->backward_ns, DSCHED_MAX_TIME_NS);
    }
    return DSCHED_OK;
}

static enum dsched_status check_tensors(const struct dsched_profile *profile,
                                        struct dsched_error *error) {
    uint64_t elements = 0;
    int64_t forward_ns = 0;
    int64_t backward_ns = 0;
    if (profile->n_tensors > DSCHED_MAX_TENSORS) {
        return refuse(error, DSCHED_LIMIT, "the profile has %u tensors, but at most %u are allowed",
                      profile->n_tensors, DSCHED_MAX_TENSORS);
    }
    for (uint32_t i = 0; i < profile->n_tensors; i++) {
        const struct dsched_tensor *tensor = &profile->tensors[i];
        enum dsched_status status = check_tensor(tensor, i, error);
        if (status != DSCHED_OK) {
            return status;
        }
        if (tensor->elements > DSCHED_MAX_ELEMENTS - elements) {
            return refuse(error, DSCHED_LIMIT,
                          "the profile exceeds %" PRIu64 " elements with tensor %u (%s)",
                          DSCHED_MAX_ELEMENTS, i, tensor->name);
        }
        elements += tensor->elements;
        forward_ns += tensor->forward_ns;
        backward_ns += tensor->backward_ns;
    }
    if (elements == 0) {
        return refuse(error, DSCHED_INVALID,
                      "the profile has no tensor with elements, but at least one is needed");
    }
    if (forward_ns > profile->forward_ns || backward_ns > profile->backward_ns) {
        return refuse(error, DSCHED_INVALID,
                      "the tensors' own times sum to %" PRId64 " ns forward and %" PRId64
                      " ns backward, but the stages take %" PRId64 " and %" PRId64 " ns",
                      forward_ns, backward_ns, profile->forward_ns, profile->backward_ns);
    }
    return DSCHED_OK;
}

static enum dsched_status check_samples(const struct dsched_link *link, uint32_t l,
                                        struct dsched_error *error) {
    if (link->n_samples > DSCHED_MAX_LINK_SAMPLES) {
        return refuse(error, DSCHED_LIMIT,
                      "link %u (%s) has %u samples, but at most %u are allowed", l, link->name,
                      link->n_samples, DSCHED_MAX_LINK_SAMPLES);
    }
    for (uint32_t i = 0; i < link->n_samples; i++) {
        const struct dsched_sample *sample = &link->samples[i];
        if (!is_time(sample->ns) || sample->bytes == 0) {
            return refuse(error, DSCHED_INVALID,
                          "sample %u of link %u (%s) is %" PRIu64 " bytes in %" PRId64
                          " ns, but at least 1 byte in 0..%" PRId64 " ns is allowed",
                          i, l, link->name, sample->bytes, sample->ns, DSCHED_MAX_TIME_NS);
        }
        if (i > 0 && sample->bytes <= sample[-1].bytes) {
            return refuse(error, DSCHED_INVALID,
                          "sample %u of link %u (%s) is not larger than the one before, but "
                          "samples are sorted by bytes",
                          i, l, link->name);
        }
    }
    return DSCHED_OK;
}

static enum dsched_status check_link(const struct dsched_link *link, uint32_t l,
                                     struct dsched_error *error) {
    if (!is_terminated(link->name)) {
        return refuse(error, DSCHED_INVALID, "the name of link %u does not end within %u bytes", l,
                      DSCHED_NAME_BYTES);
    }
    if (link->contention_ppm < MIN_CONTENTION_PPM || link->contention_ppm > MAX_CONTENTION_PPM) {
        return refuse(error, DSCHED_INVALID,
                      "contention_ppm of link %u (%s) is %u, but %u..%u is allowed", l, link->name,
                      link->contention_ppm, MIN_CONTENTION_PPM, MAX_CONTENTION_PPM);
    }
    if (link->n_samples > 0) {
        return check_samples(link, l, error);
    }
    if (!is_time(link->alpha_ns) || link->bytes_per_s <= 0) {
        return refuse(error, DSCHED_INVALID,
                      "link %u (%s) has alpha_ns %" PRId64 " and bytes_per_s %" PRId64
                      ", but 0..%" PRId64 " and more than 0 are allowed",
                      l, link->name, link->alpha_ns, link->bytes_per_s, DSCHED_MAX_TIME_NS);
    }
    return DSCHED_OK;
}

enum dsched_status dsched_profile_check(const struct dsched_profile *profile,
                                        struct dsched_error *error) {
    enum dsched_status status;
    if (!is_terminated(profile->name)) {
        return refuse(error, DSCHED_INVALID, "the profile's name does not end within %u bytes",
                      DSCHED_NAME_BYTES);
    }
    if (profile->world_size == 0) {
        return refuse(error, DSCHED_INVALID, "world_size of the profile is 0, expected 1 or more");
    }
    if (profile->n_links == 0) {
        return refuse(error, DSCHED_INVALID, "the profile has no link, but at least one is needed");
    }
    if (profile->n_links > DSCHED_MAX_LINKS) {
        return refuse(error, DSCHED_LIMIT, "the profile has %u links, but at most %u are allowed",
                      profile->n_links, DSCHED_MAX_LINKS);
    }
    status = check_stages(profile, error);
    if (status == DSCHED_OK) {
        status = check_tensors(profile, error);
    }
    for (uint32_t l = 0; status == DSCHED_OK && l < profile->n_links; l++) {
        status = check_link(&profile->links[l], l, error);
    }
    return status;
}
