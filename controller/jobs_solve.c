/* One search for a plan, or a plan of the past that takes its place, and what the tuner makes of
 * it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <dsched/planner.h>

#include "base/clock.h"
#include "jobs_change.h"
#include "tuning/profile_build.h"

/* How much of a link a plan leaves free. A network that others share, and hosts that compute while
 * they communicate, are 5 to 10 % slower at times; a link without slack never catches up again. */
#define SOLVE_JITTER_PPM 150000u

/* What a search may choose from, and what that costs in progress. */
static enum deft_status solve_options(const struct jobs_live *live,
                                      struct dsched_planner_options *out,
                                      struct quantify_price *price, struct deft_error *error) {
    dsched_planner_defaults(out);
    out->jitter_ppm = SOLVE_JITTER_PPM;
    out->rules = jobs_offer_rules(&live->registration);
    out->max_pending_bytes = live->registration.max_pending_bytes;
    enum deft_status status = quantify_price(&live->tuner.quantify, out->rules, price, error);
    out->max_merge = price->max_merge;
    uint32_t most_merge = live->tuner.state.most_merge;
    if (most_merge > 0 && most_merge < out->max_merge) {
        size_t n = strlen(price->text);
        out->max_merge = most_merge;
        (void)snprintf(price->text + n, sizeof(price->text) - n,
                       "; at most merge %u since one of %u was left for its loss", most_merge,
                       most_merge + 1);
    }
    out->max_delay = price->max_delay;
    out->progress = &price->progress;
    return status;
}

static void solve_proposal(const struct dsched_plan *plan, uint32_t progress_ppm,
                           struct tuner_plan *out) {
    memset(out, 0, sizeof(*out));
    out->progress_ppm = progress_ppm;
    out->hash = dsched_plan_hash(plan);
    out->rule = plan->rule;
    out->cycle = dsched_plan_cycle(plan);
    out->delay = dsched_plan_max_delay(plan);
    out->merge = dsched_plan_max_merge(plan);
    out->updates_ppm = plan->forecast.updates_per_step_ppm;
    out->predicted_step_ns = plan->forecast.step_ns;
}

/* Solves what was copied under the lock; DEFT_OK leaves texts in `change`. */
static enum deft_status solve_profile(const struct dsched_profile *profile,
                                      const struct dsched_planner_options *options,
                                      const struct dsched_table *table,
                                      struct dsched_solution *solution, struct jobs_change *change,
                                      struct deft_error *error) {
    struct dsched_error why = {0};
    if (dsched_solve(profile, options, solution, &why) != DSCHED_OK ||
        dsched_plan_validate(&solution->plan, table, profile->n_links, &why) != DSCHED_OK) {
        return deft_fail(error, DEFT_INVALID, 0, "%s", why.text);
    }
    change->write.plan_hash = dsched_plan_hash(&solution->plan);
    enum deft_status status = wire_plan_encode(&solution->plan, &change->plan, error);
    if (status == DEFT_OK) {
        status = wire_solution_encode(solution, &change->solution, error);
    }
    if (status == DEFT_OK) {
        status = wire_profile_encode(profile, &change->profile, error);
    }
    if (status == DEFT_OK) {
        status = wire_solve_encode(profile, options, &change->solve, error);
    }
    return status;
}

/* A copy of what one solve needs, made under the lock. */
struct solve_task {
    struct dsched_profile profile;
    struct dsched_planner_options options;
    struct quantify_price price;
    struct dsched_table *table;
    struct dsched_solution solution;
    struct jobs_offer offer; /* text NULL: none */
    int is_pinned;
    int looks_back; /* by `key`, for a plan of an earlier start */
    struct store_warm_key key;
    struct dsched_plan offered; /* the offer, once it was found to fit */
    int64_t before_step_ns;     /* what it must be better than */
    uint64_t running_seq;       /* the plan that runs; 0: exact */
    int64_t running_ns;         /* what its step is foretold to be; 0: not known */
    uint32_t progress_ppm;      /* of the plan that is proposed */
};

static void solve_task_done(struct solve_task *task) {
    if (task != NULL) {
        dsched_solution_done(&task->solution);
        dsched_plan_done(&task->offered);
        jobs_offer_done(&task->offer);
        dsched_profile_done(&task->profile);
        free(task->table);
        free(task);
    }
}

/* What takes the place of a search. Under observe nothing does: it says what could be had. */
static enum deft_status solve_copy_offer(struct jobs_live *live, struct solve_task *task,
                                         struct deft_error *error) {
    const struct tuner_state *tuner = &live->tuner.state;
    task->before_step_ns = tuner->before_step_ns;
    task->running_seq = tuner->running.is_exact ? 0 : tuner->running.seq;
    if (tuner->mode != TUNER_AUTO) {
        return DEFT_OK;
    }
    if (tuner->pin_hash != 0) {
        task->is_pinned = 1;
        return jobs_offer_copy(&live->pin, &task->offer, error);
    }
    if (live->plan_seq == 0 && !live->has_looked) {
        live->has_looked = 1;
        task->looks_back = 1;
        jobs_offer_key(&live->registration, &task->key);
    }
    return DEFT_OK;
}

static enum deft_status solve_copy(struct jobs_live *live, struct solve_task *task,
                                   struct deft_error *error) {
    enum deft_status status =
        profile_build(&live->registration, live->observe, &task->profile, error);
    if (status == DEFT_OK) {
        status = solve_options(live, &task->options, &task->price, error);
    }
    if (status == DEFT_OK) {
        task->table = jobs_offer_table(&live->registration);
        if (task->table == NULL) {
            status = deft_fail(error, DEFT_NO_MEMORY, 0, "no memory to solve");
        }
    }
    return status == DEFT_OK ? solve_copy_offer(live, task, error) : status;
}

/* Whether a plan of the past is worth being tried before anything is searched for. */
static int solve_gains(const struct jobs *jobs, const struct solve_task *task) {
    double cost_ns = (double)task->offered.forecast.step_ns * 1e6 / task->progress_ppm;
    return cost_ns * (1 + jobs->options.tuner.min_predicted_ppm / 1e6) <=
           (double)task->before_step_ns;
}

/* DEFT_OK leaves texts in `change`. What an operator pins must fit; a plan of the past may not. */
static enum deft_status solve_offer(const struct jobs *jobs, struct solve_task *task,
                                    struct jobs_change *change, struct deft_error *error) {
    const struct jobs_offer_terms terms = {.profile = &task->profile,
                                           .table = task->table,
                                           .options = &task->options,
                                           .price = &task->price,
                                           .is_pinned = task->is_pinned};
    char text[sizeof(task->price.text)];
    enum deft_status status =
        jobs_offer_fit(&task->offer, &terms, &task->offered, &task->progress_ppm, error);
    if (status == DEFT_OK && !task->is_pinned && !solve_gains(jobs, task)) {
        status = deft_fail(error, DEFT_MISMATCH, 0, "plan: %s would not gain enough now",
                           task->offer.id);
    }
    if (status == DEFT_OK) {
        (void)snprintf(text, sizeof(text),
                       task->is_pinned ? "pinned as %s; %.240s"
                                       : "it did well as %s, with the same "
                                         "tensors, ranks and links; %.240s",
                       task->offer.id, task->price.text);
        memcpy(task->price.text, text, sizeof(text));
        change->write.plan_hash = dsched_plan_hash(&task->offered);
        status = wire_plan_encode(&task->offered, &change->plan, error);
    }
    return status == DEFT_OK ? wire_profile_encode(&task->profile, &change->profile, error)
                             : status;
}

static int64_t solve_coverage_ppm(const struct solve_task *task) {
    const struct dsched_profile *profile = &task->profile;
    double compute_ns = (double)(profile->forward_ns + profile->backward_ns);
    int64_t link_ns = dsched_link_ns(&profile->links[0], dsched_table_bytes(task->table));
    return compute_ns > 0 ? (int64_t)((double)link_ns * 1e6 / compute_ns) : 0;
}

/* The tuner hears the answer; what it decides is left in `out`. */
static int solve_answer(struct jobs *jobs, int64_t id, const struct solve_task *task,
                        enum deft_status status, const struct deft_error *error,
                        struct tuner_decision *out) {
    struct tuner_plan proposal;
    (void)pthread_mutex_lock(&jobs->lock);
    struct jobs_live *live = jobs_live_find(jobs, id);
    if (live != NULL) {
        live->solving = 0;
        if (status == DEFT_OK && task->offered.n_buckets > 0) {
            solve_proposal(&task->offered, task->progress_ppm, &proposal);
            live->coverage_ppm = solve_coverage_ppm(task);
        } else if (status == DEFT_OK) {
            const struct dsched_solution *solution = &task->solution;
            solve_proposal(&solution->plan, solution->candidates[solution->chosen].progress_ppm,
                           &proposal);
            live->coverage_ppm = solution->coverage_ppm;
        }
        tuner_solved(&live->tuner, status == DEFT_OK ? &proposal : NULL, task->running_ns,
                     status == DEFT_OK ? task->price.text : error->text, out);
    }
    (void)pthread_mutex_unlock(&jobs->lock);
    return live != NULL;
}

/* What the profile that was solved says of the plan that runs. Without it the prediction is taken
 * as it is. */
static void solve_foretell(const struct jobs *jobs, int64_t id, struct solve_task *task) {
    struct dsched_plan plan = {0};
    struct dsched_report report = {0};
    struct deft_error error = {0};
    char *text = NULL;
    uint64_t hash = 0;
    if (task->running_seq != 0 &&
        store_read_plan_text(jobs->options.store, id, task->running_seq, &text, &hash, &error) ==
            DEFT_OK &&
        wire_plan_decode(text, strlen(text), &plan, &error) == DEFT_OK &&
        dsched_simulate_plan(&task->profile, &plan, 0, NULL, NULL, &report, NULL) == DSCHED_OK) {
        task->running_ns = report.step_ns;
    }
    dsched_plan_done(&plan);
    free(text);
}

static enum deft_status solve_find(const struct jobs *jobs, struct solve_task *task,
                                   struct jobs_change *change, struct deft_error *error) {
    if (task->offer.text != NULL) {
        enum deft_status status = solve_offer(jobs, task, change, error);
        if (status == DEFT_OK || task->is_pinned) {
            return status;
        }
        log_line(jobs->options.log, LOG_LEVEL_INFO, "a plan of the past is left out: %s",
                 error->text);
        dsched_plan_done(&task->offered);
    }
    if (task->profile.world_size == 1) {
        return deft_fail(error, DEFT_UNSUPPORTED, 0, "one rank has nobody to all-reduce with");
    }
    return solve_profile(&task->profile, &task->options, task->table, &task->solution, change,
                         error);
}

void jobs_solve(struct jobs *jobs, int64_t id) {
    struct jobs_change change;
    struct tuner_decision decision = {0};
    struct deft_error error = {.text = "no memory to solve"};
    struct solve_task *task = calloc(1, sizeof(*task));
    enum deft_status status = DEFT_NO_MEMORY;
    jobs_change_init(&change);
    if (task != NULL) {
        (void)pthread_mutex_lock(&jobs->lock);
        struct jobs_live *live = jobs_live_find(jobs, id);
        if (live != NULL) {
            status = solve_copy(live, task, &error);
        }
        (void)pthread_mutex_unlock(&jobs->lock);
    }
    if (status == DEFT_OK && task->looks_back) {
        jobs_offer_warm(jobs, id, &task->key, &task->offer);
    }
    if (status == DEFT_OK) {
        solve_foretell(jobs, id, task);
        status = solve_find(jobs, task, &change, &error);
    }
    if (task != NULL && solve_answer(jobs, id, task, status, &error, &decision) &&
        decision.kind != TUNER_NOTHING) {
        change.write.profile = change.profile;
        change.write.solve = change.solve;
        if (decision.kind == TUNER_PUSH) {
            change.write.plan = change.plan;
            change.write.solution = change.solution;
            change.write.max_loss = task->price.max_loss;
            change.write.max_grad_sq = task->price.max_grad_sq;
        }
        jobs_change_enact(jobs, id, &decision, &change);
    }
    jobs_change_done(&change);
    solve_task_done(task);
}
