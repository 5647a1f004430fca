/* What the ranks agree on at a boundary: the plan that runs next, wishes, and whether the fuse of
 * the running plan has blown; and that they make the same call between two iterations. */
#include <math.h>

#include "runtime/runtime.h"

/* Which plan this rank votes for. A newer offer waits until no result that is still under way can
 * switch to the older candidate; so does the end of one that the loop turned out to be unable to
 * run.
 */
static void vote_choose_candidate(struct deft_runtime *rt) {
    if (rt->candidate != NULL && rt->candidate_until == 0 &&
        (__atomic_load_n(&rt->mailbox.offered, __ATOMIC_RELAXED) != NULL ||
         !admission_allows(rt, rt->candidate->plan.rule))) {
        rt->candidate_until = rt->iteration + CONTROL_LAG;
    }
    if (rt->candidate != NULL && rt->candidate_until != 0 && rt->iteration >= rt->candidate_until) {
        mailbox_retire(&rt->mailbox, rt->candidate);
        rt->candidate = NULL;
    }
    if (rt->candidate == NULL) {
        rt->candidate = mailbox_take(&rt->mailbox);
        rt->candidate_until = 0;
        if (rt->candidate != NULL && !admission_allows(rt, rt->candidate->plan.rule)) {
            mailbox_retire(&rt->mailbox, rt->candidate);
            rt->candidate = NULL;
        }
    }
}

/* An agreement ends the wish. The votes that are still under way repeat it, on all ranks alike, and
 * neither count nor end a newer wish. */
static uint32_t vote_agree(const struct deft_runtime *rt, int result, int *wished,
                           uint64_t *quiet_until) {
    if (!result || rt->iteration < *quiet_until) {
        return 0;
    }
    __atomic_store_n(wished, 0, __ATOMIC_RELAXED);
    *quiet_until = rt->iteration + CONTROL_LAG + 1;
    return 1;
}

static void vote_count_wait(struct deft_runtime *rt, int64_t wait_ns) {
    rt->record.exposed_ns += wait_ns;
    rt->stats.control_ns += wait_ns;
}

static enum deft_status vote_plan(struct deft_runtime *rt, struct control_result *out) {
    const struct engine *named =
        rt->candidate != NULL && rt->candidate_until == 0 ? rt->candidate : rt->engine;
    struct control_vote vote = {.seq = named->seq,
                                .hash = named->hash,
                                .boundary = rt->iteration,
                                .drain = __atomic_load_n(&rt->drain_wished, __ATOMIC_RELAXED),
                                .stop = __atomic_load_n(&rt->stop_wished, __ATOMIC_RELAXED),
                                .finish = __atomic_load_n(&rt->finish_wished, __ATOMIC_RELAXED)};
    int64_t wait_ns = 0;
    enum deft_status status = control_post(&rt->control, &vote);
    if (status == DEFT_OK) {
        status = control_result(&rt->control, out, &wait_ns);
    }
    vote_count_wait(rt, wait_ns);
    return status;
}

/* The iteration before this boundary's is complete: its loss may have come after its end. */
static void vote_add_figures(struct deft_runtime *rt) {
    const struct ipc_iteration *last = &rt->finished;
    struct control_figures *own = &rt->own_figures;
    if (rt->iteration == 0) {
        return;
    }
    if (isfinite(last->loss)) {
        own->loss += last->loss;
        own->n_losses++;
    }
    own->n_bad_losses += (last->flags & IPC_ITERATION_BAD_LOSS) != 0;
    if (isfinite(last->grad_sq_local)) {
        own->grad_sq += last->grad_sq_local;
        own->n_grads++;
    }
}

/* What all ranks say of iterations [first, first + CONTROL_FIGURES_EVERY). */
static void vote_take_figures(struct deft_runtime *rt, const struct control_figures *all,
                              uint64_t first) {
    if (all->n_losses > 0) {
        rt->stats.mean_loss = all->loss / all->n_losses;
    }
    if (all->n_grads > 0) {
        rt->stats.mean_grad_sq_local = all->grad_sq / all->n_grads;
    }
    /* A switch leaves the plan as well. */
    rt->leaving = fuse_look(&rt->fuse, &rt->engine->limits, all, first, rt->fuse_text,
                            sizeof(rt->fuse_text)) &&
                  !rt->switching;
}

static enum deft_status vote_figures(struct deft_runtime *rt) {
    struct control_figures all;
    int64_t wait_ns = 0;
    enum deft_status status = DEFT_OK;
    rt->leaving = 0;
    vote_add_figures(rt);
    if (rt->iteration == 0) {
        return DEFT_OK;
    }
    if (rt->iteration % CONTROL_FIGURES_EVERY == 0) {
        status = control_post_figures(&rt->control, &rt->own_figures);
        rt->own_figures = (struct control_figures){.loss = 0};
    } else if (rt->iteration % CONTROL_FIGURES_EVERY == CONTROL_LAG &&
               rt->iteration > CONTROL_FIGURES_EVERY) {
        status = control_result_figures(&rt->control, &all, &wait_ns);
        vote_count_wait(rt, wait_ns);
        if (status == DEFT_OK) {
            vote_take_figures(rt, &all, rt->iteration - CONTROL_LAG - CONTROL_FIGURES_EVERY);
        }
    }
    return status;
}

enum deft_status vote_boundary(struct deft_runtime *rt, struct deft_error *error) {
    struct control_result result = {.known = 0};
    vote_choose_candidate(rt);
    enum deft_status status = vote_plan(rt, &result);
    if (status != DEFT_OK) {
        return failure_from_link(rt, &rt->control_link, status, error);
    }
    if (result.out_of_step) {
        (void)deft_fail(&rt->failure, DEFT_MISMATCH, 0,
                        "the ranks are at different iterations (this one is at %llu): do all ranks "
                        "run the same loop?",
                        (unsigned long long)rt->iteration);
        return failure_check(rt, error);
    }
    rt->switching = result.agreed && result.seq > rt->engine->seq && rt->candidate != NULL &&
                    rt->candidate->seq == result.seq;
    rt->update.stop_agreed = (uint32_t)result.stop;
    rt->update.drain_agreed =
        vote_agree(rt, result.drain, &rt->drain_wished, &rt->drain_quiet_until);
    rt->update.finish_agreed =
        vote_agree(rt, result.finish, &rt->finish_wished, &rt->finish_quiet_until);
    status = vote_figures(rt);
    if (status != DEFT_OK) {
        return failure_from_link(rt, &rt->control_link, status, error);
    }
    return DEFT_OK;
}

/* --- calls beside the boundaries -------------------------------------------------------------- */

static const char *const vote_calls[] = {[CONTROL_VOTE] = "deft_step",
                                         [CONTROL_DRAIN] = "deft_drain",
                                         [CONTROL_STATES] = "deft_drain",
                                         [CONTROL_AVERAGE] = "deft_average",
                                         [CONTROL_BROADCAST] = "deft_broadcast"};

enum deft_status vote_call(struct deft_runtime *rt, enum control_kind kind, int64_t detail,
                           int *out_same, struct deft_error *error) {
    const struct control_call call = {.kind = kind, .boundary = rt->iteration, .detail = detail};
    struct control_called called;
    enum deft_status status = control_call(&rt->control, &call, &called);
    if (status != DEFT_OK) {
        return failure_from_link(rt, &rt->control_link, status, error);
    }
    if (!called.same_call) {
        (void)deft_fail(&rt->failure, DEFT_MISMATCH, 0,
                        "this rank calls %s after %llu iterations, and another is elsewhere in its "
                        "loop: do all ranks run the same number of iterations before it?",
                        vote_calls[kind], (unsigned long long)rt->iteration);
    } else if (out_same == NULL && !called.same_detail) {
        (void)deft_fail(&rt->failure, DEFT_MISMATCH, 0,
                        "%s was given another size or type than on other ranks", vote_calls[kind]);
    } else if (out_same != NULL) {
        *out_same = called.same_detail;
    }
    return failure_check(rt, error);
}
