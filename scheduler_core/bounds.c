/* What no schedule can be faster than. */
#include <dsched/simulate.h>

#include "muldiv.h"
#include "refuse.h"
#include "space.h"
#include "split.h"

/* max_j(sum_{i<=j} c_i - sum_{i<j}(f_i + b_i)), layers counted from the input side: gradients of
 * layers 0..j exist only after layer j's backward and are needed by layer j's next forward. Compute
 * that belongs to no layer, and the optimizer, may hide communication too. */
static int64_t exposed_at_least_ns(const struct dsched_profile *profile) {
    struct split_rate rate = split_best_rate(&profile->links[0]);
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
        exposed_ns = split_least_ns(rate, bytes) - hidden_ns;
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
