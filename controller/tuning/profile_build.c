#include "tuning/profile_build.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A measured curve shifts the probed one by at most this factor: more is a measuring error. */
#define BUILD_MAX_SCALE 4.0
#define BUILD_MIN_SCALE 0.25
/* Until it is measured on the job itself. A transport that runs on the host's processors takes them
 * from the computation: copies, packets and caches. With one processor per rank and a busy link of
 * 500 Mbit/s, steps were 8 to 14 % longer. */
#define BUILD_HOST_CONTENTION_PPM 1100000u

/* Gradient space order is the reverse of registration. A gradient cannot be handed to a bucket
 * before those that precede it there, so readiness counts as a running maximum; what each tensor
 * adds to it is its backward time. */
static void build_backward(struct dsched_profile *profile, const int64_t *offsets) {
    int64_t reached = 0;
    for (uint32_t i = profile->n_tensors; i-- > 0;) {
        int64_t ready = offsets[i] > reached ? offsets[i] : reached;
        profile->tensors[i].backward_ns = ready - reached;
        reached = ready;
    }
    if (reached > profile->backward_ns) {
        /* Offsets are means over several iterations, the stage is a median: keep the shape. */
        double scale = (double)profile->backward_ns / (double)reached;
        for (uint32_t i = 0; i < profile->n_tensors; i++) {
            struct dsched_tensor *tensor = &profile->tensors[i];
            tensor->backward_ns = (int64_t)((double)tensor->backward_ns * scale);
        }
    }
}

/* Shares `total_ns` by weight; rounding never exceeds the total. */
static void build_apportion(struct dsched_profile *profile, int64_t total_ns, int forward) {
    double sum = 0;
    for (uint32_t i = 0; i < profile->n_tensors; i++) {
        sum += forward ? (double)profile->tensors[i].backward_ns
                       : (double)profile->tensors[i].elements;
    }
    for (uint32_t i = 0; i < profile->n_tensors && sum > 0; i++) {
        struct dsched_tensor *tensor = &profile->tensors[i];
        double weight = forward ? (double)tensor->backward_ns : (double)tensor->elements;
        int64_t share = (int64_t)((double)total_ns * (weight / sum));
        if (forward) {
            tensor->forward_ns = share;
        } else {
            tensor->backward_ns = share;
        }
    }
}

static double build_clamp(double scale) {
    if (scale > BUILD_MAX_SCALE) {
        return BUILD_MAX_SCALE;
    }
    return scale < BUILD_MIN_SCALE ? BUILD_MIN_SCALE : scale;
}

/* How much slower than probed the link really is, at the measured size nearest to `bytes`. */
static double build_scale(const struct dsched_link *probed, const struct dsched_sample *measured,
                          uint32_t n_measured, uint64_t bytes) {
    uint32_t nearest = 0;
    uint64_t distance = UINT64_MAX;
    if (n_measured == 0) {
        return 1.0;
    }
    for (uint32_t i = 0; i < n_measured; i++) {
        uint64_t d =
            measured[i].bytes > bytes ? measured[i].bytes - bytes : bytes - measured[i].bytes;
        if (d < distance) {
            distance = d;
            nearest = i;
        }
    }
    int64_t expected = dsched_link_ns(probed, measured[nearest].bytes);
    return expected > 0 ? build_clamp((double)measured[nearest].ns / (double)expected) : 1.0;
}

static int build_compare(const void *a, const void *b) {
    const struct dsched_sample *x = a;
    const struct dsched_sample *y = b;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

/* Sorts, merges equal sizes, and makes times rise with sizes. Returns how many remain. */
static uint32_t build_tidy(struct dsched_sample *samples, uint32_t n) {
    uint32_t kept = 0;
    qsort(samples, n, sizeof(*samples), build_compare);
    for (uint32_t i = 0; i < n; i++) {
        if (samples[i].bytes == 0 || samples[i].ns <= 0) {
            continue;
        }
        if (kept > 0 && samples[kept - 1].bytes == samples[i].bytes) {
            if (samples[i].ns < samples[kept - 1].ns) {
                samples[kept - 1].ns = samples[i].ns;
            }
            continue;
        }
        samples[kept++] = samples[i];
    }
    for (uint32_t i = 1; i < kept; i++) {
        if (samples[i].ns < samples[i - 1].ns) {
            samples[i].ns = samples[i - 1].ns;
        }
    }
    return kept;
}

/* A shaper or a switch lets a short burst pass faster than the link can go on, so a small message
 * at rest looks cheaper than it is in a stream. No size may take less than its share of the largest
 * one that was seen, on top of what the smallest one took: that is the link's latency. */
static void build_sustain(struct dsched_sample *samples, uint32_t n) {
    if (n < 2) {
        return;
    }
    const struct dsched_sample *largest = &samples[n - 1];
    int64_t latency_ns = samples[0].ns;
    double ns_per_byte = (double)(largest->ns - latency_ns) / (double)largest->bytes;
    for (uint32_t i = 1; i + 1 < n; i++) {
        int64_t least_ns = latency_ns + (int64_t)(ns_per_byte * (double)samples[i].bytes);
        if (samples[i].ns < least_ns) {
            samples[i].ns = least_ns;
        }
    }
}

static enum deft_status build_link(const struct wire_link *from, const struct observe *observe,
                                   uint32_t index, struct dsched_link *out,
                                   struct deft_error *error) {
    struct dsched_sample measured[DSCHED_MAX_LINK_SAMPLES / 2];
    struct dsched_sample probed_samples[DSCHED_MAX_LINK_SAMPLES];
    struct dsched_link probed = {.contention_ppm = 1000000, .samples = probed_samples};
    uint32_t n_measured = observe_curve(observe, index, measured, DSCHED_MAX_LINK_SAMPLES / 2);
    uint32_t n_probes =
        from->n_probes < DSCHED_MAX_LINK_SAMPLES / 2 ? from->n_probes : DSCHED_MAX_LINK_SAMPLES / 2;
    if (n_probes > 0) {
        memcpy(probed_samples, from->probes, n_probes * sizeof(*probed_samples));
    }
    probed.n_samples = build_tidy(probed_samples, n_probes);
    if (probed.n_samples == 0 && n_measured == 0) {
        return deft_fail(error, DEFT_STATE, 0, "link %u ('%s') has been neither probed nor used",
                         index, from->name);
    }
    out->samples = calloc(probed.n_samples + n_measured, sizeof(*out->samples));
    if (out->samples == NULL) {
        return deft_fail(error, DEFT_NO_MEMORY, 0, "no memory for a profile");
    }
    (void)snprintf(out->name, sizeof(out->name), "%s", from->name);
    out->contention_ppm = strncmp(from->name, "gloo", 4) == 0 ? BUILD_HOST_CONTENTION_PPM : 1000000;
    uint32_t n = 0;
    for (uint32_t i = 0; i < probed.n_samples; i++) {
        double scale = build_scale(&probed, measured, n_measured, probed_samples[i].bytes);
        int known = 0;
        for (uint32_t m = 0; m < n_measured; m++) {
            known |= measured[m].bytes == probed_samples[i].bytes;
        }
        if (!known) { /* what was measured under load wins over what was probed at rest */
            out->samples[n].bytes = probed_samples[i].bytes;
            out->samples[n].ns = (int64_t)((double)probed_samples[i].ns * scale);
            n++;
        }
    }
    if (n_measured > 0) {
        memcpy(out->samples + n, measured, n_measured * sizeof(*measured));
    }
    out->n_samples = build_tidy(out->samples, n + n_measured);
    build_sustain(out->samples, out->n_samples);
    return DEFT_OK;
}

static enum deft_status build_links(const struct wire_registration *registration,
                                    const struct observe *observe, struct dsched_profile *profile,
                                    struct deft_error *error) {
    profile->links = calloc(registration->n_links, sizeof(*profile->links));
    if (profile->links == NULL) {
        return deft_fail(error, DEFT_NO_MEMORY, 0, "no memory for a profile");
    }
    for (uint32_t l = 0; l < registration->n_links; l++) {
        profile->n_links = l + 1;
        enum deft_status status =
            build_link(&registration->links[l], observe, l, &profile->links[l], error);
        if (status != DEFT_OK) {
            return status;
        }
    }
    return DEFT_OK;
}

/* What was measured ran beside links that were busy for some of it, and a profile says what it
 * takes beside none: otherwise contention would be counted twice, and once more in every profile
 * that is made while a plan runs. Links are taken to carry bytes by their speed. */
static double build_undisturbed(const struct dsched_profile *profile, const struct observe *observe,
                                double ns_per_byte) {
    double contention = 1;
    for (uint32_t l = 0; l < profile->n_links; l++) {
        if (profile->links[l].contention_ppm > contention * 1e6) {
            contention = profile->links[l].contention_ppm / 1e6;
        }
    }
    return 1 - observe_overlap(observe, ns_per_byte) * (contention - 1) / contention;
}

/* Of all links together; 0: unknown. */
static double build_ns_per_byte(const struct dsched_profile *profile) {
    double bytes_per_ns = 0;
    for (uint32_t l = 0; l < profile->n_links; l++) {
        const struct dsched_link *link = &profile->links[l];
        if (link->n_samples > 0) { /* else the check of the profile will say so */
            const struct dsched_sample *largest = &link->samples[link->n_samples - 1];
            bytes_per_ns += (double)largest->bytes / (double)largest->ns;
        }
    }
    return bytes_per_ns > 0 ? 1 / bytes_per_ns : 0;
}

/* What was measured of the job holds for all of its links: they were busy together. */
static void build_contention(struct dsched_profile *profile, const struct observe *observe,
                             double ns_per_byte) {
    double contention = observe_contention(observe, ns_per_byte);
    for (uint32_t l = 0; l < profile->n_links && contention > 0; l++) {
        profile->links[l].contention_ppm = (uint32_t)(contention * 1e6);
    }
}

static enum deft_status build_fill(const struct wire_registration *registration,
                                   const struct observe *observe, struct dsched_profile *profile,
                                   struct deft_error *error) {
    const int64_t *offsets = observe_offsets(observe);
    profile->world_size = registration->n_ranks;
    (void)snprintf(profile->name, sizeof(profile->name), "%s",
                   registration->name[0] != '\0' ? registration->name : registration->key);
    if (observe_compute(observe, &profile->forward_ns, &profile->backward_ns,
                        &profile->optimizer_ns) != DEFT_OK) {
        return deft_fail(error, DEFT_STATE, 0, "too few whole iterations have been reported");
    }
    enum deft_status status = build_links(registration, observe, profile, error);
    if (status != DEFT_OK) {
        return status;
    }
    double ns_per_byte = build_ns_per_byte(profile);
    build_contention(profile, observe, ns_per_byte);
    double undisturbed = build_undisturbed(profile, observe, ns_per_byte);
    profile->forward_ns = (int64_t)((double)profile->forward_ns * undisturbed);
    profile->backward_ns = (int64_t)((double)profile->backward_ns * undisturbed);
    profile->optimizer_ns = (int64_t)((double)profile->optimizer_ns * undisturbed);
    profile->tensors = calloc(registration->n_tensors, sizeof(*profile->tensors));
    if (profile->tensors == NULL) {
        return deft_fail(error, DEFT_NO_MEMORY, 0, "no memory for a profile");
    }
    profile->n_tensors = registration->n_tensors;
    memcpy(profile->tensors, registration->tensors,
           registration->n_tensors * sizeof(*profile->tensors));
    if (offsets != NULL) {
        build_backward(profile, offsets);
    } else {
        build_apportion(profile, profile->backward_ns, 0);
    }
    build_apportion(profile, profile->forward_ns, 1);
    return DEFT_OK;
}

enum deft_status profile_build(const struct wire_registration *registration,
                               const struct observe *observe, struct dsched_profile *out,
                               struct deft_error *error) {
    struct dsched_profile profile = {0};
    struct dsched_error why = {0};
    if (registration->n_links == 0 || registration->n_tensors == 0) {
        return deft_fail(error, DEFT_STATE, 0,
                         "the job has no links or no tensors: there is nothing to plan");
    }
    enum deft_status status = build_fill(registration, observe, &profile, error);
    if (status == DEFT_OK && dsched_profile_check(&profile, &why) != DSCHED_OK) {
        status = deft_fail(error, DEFT_INVALID, 0, "%s", why.text);
    }
    if (status != DEFT_OK) {
        dsched_profile_done(&profile);
        return status;
    }
    *out = profile;
    return DEFT_OK;
}
