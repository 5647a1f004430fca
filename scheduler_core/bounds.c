#include <dsched/simulate.h>

#include "muldiv.h"
#include "refuse.h"
#include "space.h"
#include "split.h"

/* Time per byte at best, as a fraction. */
struct rate {
    uint64_t ns;
    uint64_t bytes;
};

static struct rate cheaper(struct rate a, struct rate b) {
    return (muldiv_wide)a.ns * b.bytes <= (muldiv_wide)b.ns * a.bytes ? a : b;
}

/* No message, of any size, moves its bytes faster: on a piecewise linear curve ns / bytes is least
 * at a sample or, beyond the last, tends to the last slope. */
static struct rate best_rate(const struct dsched_link *link) {
    struct rate best;
    const struct dsched_sample *samples = link->samples;
    uint32_t n = link->n_samples;
    if (n == 0) {
        return (struct rate){.ns = UINT64_C(1000000000), .bytes = (uint64_t)link->bytes_per_s};
    }
    best = (struct rate){.ns = (uint64_t)samples[0].ns, .bytes = samples[0].bytes};
    for (uint32_t i = 1; i < n; i++) {
        best = cheaper(best, (struct rate){(uint64_t)samples[i].ns, samples[i].bytes});
    }
    if (n > 1) {
        int64_t rise_ns = samples[n - 1].ns - samples[n - 2].ns;
        best = cheaper(best, (struct rate){rise_ns > 0 ? (uint64_t)rise_ns : 0,
                                           samples[n - 1].bytes - samples[n - 2].bytes});
    }
    return best;
}

/* max_j(sum_{i<=j} c_i - sum_{i<j}(f_i + b_i)), layers counted from the input side: gradients of
 * layers 0..j exist only after layer j's backward and are needed by layer j's next forward. Compute
 * that belongs to no layer, and the optimizer, may hide communication too. */
static int64_t exposed_at_least_ns(const struct dsched_profile *profile) {
    struct rate rate = best_rate(&profile->links[0]);
    int64_t most_ns = 0;
    int64_t hidden_ns = profile->forward_ns + profile->backward_ns + profile->optimizer_ns;
    uint64_t bytes = 0;
    for (uint32_t j = 0; j < profile->n_tensors; j++) {
        hidden_ns -= profile->tensors[j].forward_ns + profile->tensors[j].backward_ns;
    }
    for (uint32_t j = 0; j < profile->n_tensors; j++) {
        const struct dsched_tensor *tensor = &profile->tensors[j];
        int64_t exposed_ns;
        bytes += tensor->elements * dsched_dtype_bytes(tensor->dtype);
        exposed_ns = (int64_t)muldiv_down(bytes, rate.ns, rate.bytes, INT64_MAX / 2) - hidden_ns;
        if (tensor->elements > 0 && exposed_ns > most_ns) {
            most_ns = exposed_ns;
        }
        hidden_ns += tensor->forward_ns + tensor->backward_ns;
    }
    return most_ns;
}

enum dsched_status dsched_bounds(const struct dsched_profile *profile, struct dsched_bounds *out,
                                 struct dsched_error *error) {
    enum dsched_status status = dsched_profile_check(profile, error);
    uint64_t bytes = 0;
    int64_t compute_ns;
    int64_t split_ns;
    if (status != DSCHED_OK) {
        return status;
    }
    for (uint32_t i = 0; i < profile->n_tensors; i++) {
        bytes += profile->tensors[i].elements * dsched_dtype_bytes(profile->tensors[i].dtype);
    }
    compute_ns = profile->forward_ns + profile->backward_ns + profile->optimizer_ns;
    split_ns = split_all_ns(profile, bytes);
    out->exact_step_ns = compute_ns + exposed_at_least_ns(profile);
    out->deft_step_ns = compute_ns;
    out->updates_per_step_ppm =
        split_ns == 0
            ? (uint32_t)MULDIV_PPM
            : (uint32_t)muldiv_up((uint64_t)compute_ns, MULDIV_PPM, (uint64_t)split_ns, MULDIV_PPM);
    return DSCHED_OK;
}
