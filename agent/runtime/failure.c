/* From a broken link to one sentence that names the peer. */
#include <errno.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/thread.h"
#include "runtime/runtime.h"

/* A link breaks at the same moment as the watch notices; whoever is first, the watch knows the
 * name. */
#define FAILURE_WATCH_NS INT64_C(1500000000)

static void failure_abort_all(struct deft_runtime *rt, const struct deft_error *reason) {
    for (uint32_t l = 0; l < rt->n_links; l++) {
        if (rt->links[l].link != NULL) {
            rt->links[l].ops->abort(rt->links[l].link, reason);
        }
    }
    if (rt->control_link.link != NULL) {
        rt->control_link.ops->abort(rt->control_link.link, reason);
    }
}

void failure_lost(void *context, const struct deft_error *reason) {
    struct deft_runtime *rt = context;
    (void)pthread_mutex_lock(&rt->failure_lock);
    rt->lost = *reason;
    (void)pthread_cond_broadcast(&rt->failure_known);
    (void)pthread_mutex_unlock(&rt->failure_lock);
    failure_abort_all(rt, reason);
}

/* Gives the watch a moment. Returns 1 with its sentence in `*out`. */
static int failure_ask_watch(struct deft_runtime *rt, struct deft_error *out) {
    if (rt->star == NULL) {
        return 0;
    }
    int64_t until_ns = clock_monotonic_ns() + FAILURE_WATCH_NS;
    (void)pthread_mutex_lock(&rt->failure_lock);
    while (rt->lost.status == DEFT_OK && star_departed(rt->star) < 0 &&
           thread_condition_wait(&rt->failure_known, &rt->failure_lock, until_ns) != ETIMEDOUT) {
    }
    int found = rt->lost.status != DEFT_OK;
    if (found) {
        *out = rt->lost;
    }
    (void)pthread_mutex_unlock(&rt->failure_lock);
    return found;
}

enum deft_status failure_from_link(struct deft_runtime *rt, const struct runtime_link *link,
                                   enum deft_status status, struct deft_error *error) {
    if (rt->failure.status == DEFT_OK) {
        struct deft_error reason = {.status = DEFT_OK};
        link->ops->failure(link->link, &reason);
        if (reason.status == DEFT_OK) {
            (void)deft_fail(&reason, status, 0, "link %s: %s", link->spec,
                            deft_status_text(status));
        }
        if (!failure_ask_watch(rt, &reason)) {
            int32_t departed = rt->star != NULL ? star_departed(rt->star) : -1;
            if (departed >= 0) {
                (void)deft_fail(&reason, DEFT_PEER_LOST, 0,
                                "rank %d has left the job in order while this rank still needs it: "
                                "do all ranks run the same number of iterations?",
                                departed);
            }
        }
        rt->failure = reason;
        failure_abort_all(rt, &reason);
    }
    return failure_check(rt, error);
}

enum deft_status failure_from_device(struct deft_runtime *rt, struct deft_error *error) {
    if (rt->failure.status == DEFT_OK &&
        rt->device->ops->failure(rt->device, &rt->failure) != DEFT_OK) {
        failure_abort_all(rt, &rt->failure);
    }
    return failure_check(rt, error);
}

enum deft_status failure_check(const struct deft_runtime *rt, struct deft_error *error) {
    if (rt->failure.status != DEFT_OK && error != NULL) {
        *error = rt->failure;
    }
    return rt->failure.status;
}
