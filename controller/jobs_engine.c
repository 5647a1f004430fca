#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <dsched/planner.h>

#include "base/clock.h"
#include "jobs_live.h"
#include "tuning/profile_build.h"
#include "tuning/tuner_state.h"

/* PyTorch DDP's bucket sizes: the exact plan a job returns to is the one everybody knows. */
#define ENGINE_FIRST_BYTES (UINT64_C(1) << 20)
#define ENGINE_LATER_BYTES (UINT64_C(25) << 20)
#define ENGINE_TICK_NS     INT64_C(1000000000)
/* How much of a link a plan leaves free. A network that others share, and hosts that compute while
 * they communicate, are 5 to 10 % slower at times; a link without slack never catches up again. */
#define ENGINE_JITTER_PPM 150000u

/* Everything one decision changes, as text, gathered under the lock and written without it. */
struct engine_change {
    struct store_change write;
    struct wire_decision decision;
    char job[WIRE_ID_BYTES];
    char state[16];
    char *summary;
    char *tuner;
    char *profile;
    char *plan;
    char *solution;
    char *inputs;
    char *solve;
    char *event;
};

static void engine_change_done(struct engine_change *change) {
    free(change->summary);
    free(change->tuner);
    free(change->profile);
    free(change->plan);
    free(change->solution);
    free(change->inputs);
    free(change->solve);
    free(change->event);
}

/* --- the exact plan
 * ------------------------------------------------------------------------------- */

static enum deft_status engine_exact_plan(const struct wire_registration *registration,
                                          char **out_text, uint64_t *out_hash,
                                          struct deft_error *error) {
    struct dsched_plan plan = {0};
    struct dsched_table *table = jobs_offer_table(registration);
    enum deft_status status = DEFT_OK;
    if (table == NULL ||
        dsched_plan_ddp(table, ENGINE_FIRST_BYTES, ENGINE_LATER_BYTES, &plan) != DSCHED_OK) {
        status = deft_fail(error, DEFT_NO_MEMORY, 0, "no memory for the exact plan");
    } else {
        *out_hash = dsched_plan_hash(&plan);
        status = wire_plan_encode(&plan, out_text, error);
    }
    dsched_plan_done(&plan);
    free(table);
    return status;
}

/* --- carrying decisions out
 * ------------------------------------------------------------------------ */

static void engine_fill_decision(const struct tuner_decision *from, struct wire_decision *to) {
    (void)snprintf(to->kind, sizeof(to->kind), "%s", tuner_kind_name(from->kind));
    (void)snprintf(to->reason, sizeof(to->reason), "%s", from->reason);
    to->iteration = from->iteration;
    to->plan_seq = from->plan_seq;
    to->exact_step_ns = from->exact_step_ns;
    to->before_step_ns = from->before_step_ns;
    to->predicted_step_ns = from->predicted_step_ns;
    to->measured_step_ns = from->measured_step_ns;
}

static enum deft_status engine_event(struct engine_change *change, struct deft_error *error) {
    const struct jobs_live_plan plan = {.seq = change->write.plan_seq,
                                        .hash = change->write.plan_hash,
                                        .text = change->plan,
                                        .max_loss = change->write.max_loss,
                                        .max_grad_sq = change->write.max_grad_sq};
    return jobs_live_plan_event(&plan, &change->event, error);
}

/* With the lock held: the state to be written with whatever else changes. */
static enum deft_status engine_snapshot(struct jobs_live *live, struct engine_change *change,
                                        struct deft_error *error) {
    memcpy(change->job, live->job, sizeof(change->job));
    memcpy(change->state, live->state, sizeof(change->state));
    change->summary = jobs_live_summary(live);
    enum deft_status status = tuner_state_encode(&live->tuner, &change->tuner, error);
    if (status == DEFT_OK && change->summary == NULL) {
        status = deft_fail(error, DEFT_NO_MEMORY, 0, "no memory for a summary");
    }
    change->write.incarnation = live->id;
    change->write.job = live->is_superseded ? NULL : change->job; /* the job is the newest start */
    change->write.state = change->state;
    change->write.summary = change->summary;
    change->write.tuner = change->tuner;
    change->write.now_ns = clock_wall_ns();
    return status;
}

/* With the lock held: the plan goes out, on every stream. */
static void engine_publish(struct jobs_live *live, struct engine_change *change) {
    char id[24];
    (void)snprintf(id, sizeof(id), "%llu", (unsigned long long)change->write.plan_seq);
    free(live->plan_event);
    live->plan_event = change->event;
    live->plan_seq = change->write.plan_seq;
    change->event = NULL;
    jobs_live_send(live, id, "plan", live->plan_event);
}

/* The text of the plan a decision pushes that is not a new solution. */
static enum deft_status engine_old_plan(struct jobs *jobs, int64_t id, uint64_t target_seq,
                                        struct engine_change *change, struct deft_error *error) {
    enum deft_status status = DEFT_NOT_FOUND;
    if (target_seq != 0) {
        status = store_read_plan_text(jobs->options.store, id, target_seq, &change->plan,
                                      &change->write.plan_hash, error);
        (void)pthread_mutex_lock(&jobs->lock);
        const struct jobs_live *guarded = jobs_live_find(jobs, id);
        if (status == DEFT_OK && guarded != NULL) {
            quantify_fuse(&guarded->tuner.quantify, &change->write.max_loss,
                          &change->write.max_grad_sq);
        }
        (void)pthread_mutex_unlock(&jobs->lock);
    }
    if (status != DEFT_OK) { /* exact is always right */
        (void)pthread_mutex_lock(&jobs->lock);
        struct jobs_live *live = jobs_live_find(jobs, id);
        status = live == NULL ? DEFT_NOT_FOUND
                              : engine_exact_plan(&live->registration, &change->plan,
                                                  &change->write.plan_hash, error);
        (void)pthread_mutex_unlock(&jobs->lock);
    }
    change->write.plan = change->plan;
    return status;
}

/* A plan reaches ranks only after the database has it: after a restart its number must not name
 * another one. A way back is the exception: it is safe under any number that is larger. */
static void engine_enact(struct jobs *jobs, int64_t id, const struct tuner_decision *decision,
                         struct engine_change *change) {
    struct deft_error error = {0};
    enum deft_status status = DEFT_OK;
    int pushes = tuner_pushes(decision);
    engine_fill_decision(decision, &change->decision);
    change->write.decision = &change->decision;
    status = tuner_inputs_encode(&jobs->options.tuner, decision, &change->inputs, &error);
    if (status != DEFT_OK) { /* a decision without its inputs is still a decision */
        log_line(jobs->options.log, LOG_LEVEL_WARNING, "inputs of a decision were not kept: %s",
                 error.text);
        status = DEFT_OK;
    }
    change->write.inputs = change->inputs;
    if (pushes) {
        change->write.plan_seq = decision->plan_seq;
        if (change->plan == NULL) {
            status = engine_old_plan(jobs, id, decision->target_seq, change, &error);
        }
        if (status == DEFT_OK) {
            status = engine_event(change, &error);
        }
    }
    (void)pthread_mutex_lock(&jobs->lock);
    struct jobs_live *live = jobs_live_find(jobs, id);
    if (live != NULL) {
        jobs->n_decisions[decision->kind]++;
        memcpy(live->decision, change->decision.reason, sizeof(live->decision));
        live->updated_ns = clock_wall_ns();
        if (status == DEFT_OK) {
            status = engine_snapshot(live, change, &error);
        }
    }
    (void)pthread_mutex_unlock(&jobs->lock);
    if (live == NULL) {
        return;
    }
    if (status == DEFT_OK) {
        status = store_run(jobs->options.store, &change->write.write, &error);
    }
    log_line(jobs->options.log, LOG_LEVEL_INFO, "job %s: %s at iteration %llu, plan %llu: %s",
             change->job, change->decision.kind, (unsigned long long)decision->iteration,
             (unsigned long long)decision->plan_seq, decision->reason);
    if (status != DEFT_OK) {
        log_line(jobs->options.log, LOG_LEVEL_ERROR, "job %s: the decision was not recorded: %s",
                 change->job, error.text);
    }
    (void)pthread_mutex_lock(&jobs->lock);
    live = jobs_live_find(jobs, id);
    if (live != NULL && pushes) {
        if (change->event != NULL && (status == DEFT_OK || decision->kind != TUNER_PUSH)) {
            engine_publish(live, change);
        } else {
            struct tuner_decision refused = {0};
            tuner_refused(&live->tuner, decision->plan_seq,
                          "the controller could not record the plan", &refused);
            jobs_live_decided(jobs, live, &refused);
        }
    }
    (void)pthread_mutex_unlock(&jobs->lock);
}

/* --- solving ---------------------------------------------------------------------------------- */

/* Rules that the job's loop can run. `delayed` is for what the guard can prove harmless: a plan
 * that an operator pins, not one that is searched for. */
static enum deft_status engine_options(const struct jobs_live *live,
                                       struct dsched_planner_options *out,
                                       struct quantify_price *price, struct deft_error *error) {
    dsched_planner_defaults(out);
    out->jitter_ppm = ENGINE_JITTER_PPM;
    out->rules = DSCHED_RULE_BIT(DSCHED_EXACT);
    if (live->registration.capabilities & WIRE_CAN_PREVIEW) {
        out->rules |= DSCHED_RULE_BIT(DSCHED_LOOKAHEAD);
    }
    if (live->registration.capabilities & WIRE_CAN_AVERAGE) {
        out->rules |= DSCHED_RULE_BIT(DSCHED_AVERAGED);
    }
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

static void engine_proposal(const struct dsched_plan *plan, uint32_t progress_ppm,
                            struct tuner_plan *out) {
    memset(out, 0, sizeof(*out));
    out->progress_ppm = progress_ppm;
    out->hash = dsched_plan_hash(plan);
    out->rule = plan->rule;
    out->cycle = dsched_plan_cycle(plan);
    out->delay = dsched_plan_max_delay(plan);
    for (uint32_t g = 0; g < plan->n_generations; g++) {
        out->merge = plan->merge[g] > out->merge ? plan->merge[g] : out->merge;
    }
    out->updates_ppm = plan->forecast.updates_per_step_ppm;
    out->predicted_step_ns = plan->forecast.step_ns;
}

/* Solves what was copied under the lock; DEFT_OK leaves texts in `change`. */
static enum deft_status engine_solve_profile(const struct dsched_profile *profile,
                                             const struct dsched_planner_options *options,
                                             const struct dsched_table *table,
                                             struct dsched_solution *solution,
                                             struct engine_change *change,
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
struct engine_task {
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

static void engine_task_done(struct engine_task *task) {
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
static enum deft_status engine_copy_offer(struct jobs_live *live, struct engine_task *task,
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

static enum deft_status engine_copy(struct jobs_live *live, struct engine_task *task,
                                    struct deft_error *error) {
    enum deft_status status =
        profile_build(&live->registration, live->observe, &task->profile, error);
    if (status == DEFT_OK) {
        status = engine_options(live, &task->options, &task->price, error);
    }
    if (status == DEFT_OK) {
        task->table = jobs_offer_table(&live->registration);
        if (task->table == NULL) {
            status = deft_fail(error, DEFT_NO_MEMORY, 0, "no memory to solve");
        }
    }
    return status == DEFT_OK ? engine_copy_offer(live, task, error) : status;
}

/* Whether a plan of the past is worth being tried before anything is searched for. */
static int engine_gains(const struct jobs *jobs, const struct engine_task *task) {
    double cost_ns = (double)task->offered.forecast.step_ns * 1e6 / task->progress_ppm;
    return cost_ns * (1 + jobs->options.tuner.min_predicted_ppm / 1e6) <=
           (double)task->before_step_ns;
}

/* DEFT_OK leaves texts in `change`. What an operator pins must fit; a plan of the past may not. */
static enum deft_status engine_offer(const struct jobs *jobs, struct engine_task *task,
                                     struct engine_change *change, struct deft_error *error) {
    const struct jobs_offer_terms terms = {.profile = &task->profile,
                                           .table = task->table,
                                           .options = &task->options,
                                           .price = &task->price,
                                           .is_pinned = task->is_pinned};
    char text[sizeof(task->price.text)];
    enum deft_status status =
        jobs_offer_fit(&task->offer, &terms, &task->offered, &task->progress_ppm, error);
    if (status == DEFT_OK && !task->is_pinned && !engine_gains(jobs, task)) {
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

static int64_t engine_coverage_ppm(const struct engine_task *task) {
    const struct dsched_profile *profile = &task->profile;
    double compute_ns = (double)(profile->forward_ns + profile->backward_ns);
    int64_t link_ns = dsched_link_ns(&profile->links[0], dsched_table_bytes(task->table));
    return compute_ns > 0 ? (int64_t)((double)link_ns * 1e6 / compute_ns) : 0;
}

/* The tuner hears the answer; what it decides is left in `out`. */
static int engine_answer(struct jobs *jobs, int64_t id, const struct engine_task *task,
                         enum deft_status status, const struct deft_error *error,
                         struct tuner_decision *out) {
    struct tuner_plan proposal;
    (void)pthread_mutex_lock(&jobs->lock);
    struct jobs_live *live = jobs_live_find(jobs, id);
    if (live != NULL) {
        live->solving = 0;
        if (status == DEFT_OK && task->offered.n_buckets > 0) {
            engine_proposal(&task->offered, task->progress_ppm, &proposal);
            live->coverage_ppm = engine_coverage_ppm(task);
        } else if (status == DEFT_OK) {
            const struct dsched_solution *solution = &task->solution;
            engine_proposal(&solution->plan, solution->candidates[solution->chosen].progress_ppm,
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
static void engine_foretell(const struct jobs *jobs, int64_t id, struct engine_task *task) {
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

static enum deft_status engine_find(const struct jobs *jobs, struct engine_task *task,
                                    struct engine_change *change, struct deft_error *error) {
    if (task->offer.text != NULL) {
        enum deft_status status = engine_offer(jobs, task, change, error);
        if (status == DEFT_OK || task->is_pinned) {
            return status;
        }
        log_line(jobs->options.log, LOG_LEVEL_INFO, "a plan of the past is left out: %s",
                 error->text);
        dsched_plan_done(&task->offered);
    }
    return engine_solve_profile(&task->profile, &task->options, task->table, &task->solution,
                                change, error);
}

static void engine_solve(struct jobs *jobs, int64_t id) {
    struct engine_change change = {0};
    struct tuner_decision decision = {0};
    struct deft_error error = {.text = "no memory to solve"};
    struct engine_task *task = calloc(1, sizeof(*task));
    enum deft_status status = DEFT_NO_MEMORY;
    store_change_init(&change.write);
    if (task != NULL) {
        (void)pthread_mutex_lock(&jobs->lock);
        struct jobs_live *live = jobs_live_find(jobs, id);
        if (live != NULL) {
            status = engine_copy(live, task, &error);
        }
        (void)pthread_mutex_unlock(&jobs->lock);
    }
    if (status == DEFT_OK && task->looks_back) {
        jobs_offer_warm(jobs, id, &task->key, &task->offer);
    }
    if (status == DEFT_OK) {
        engine_foretell(jobs, id, task);
        status = engine_find(jobs, task, &change, &error);
    }
    if (task != NULL && engine_answer(jobs, id, task, status, &error, &decision) &&
        decision.kind != TUNER_NOTHING) {
        change.write.profile = change.profile;
        change.write.solve = change.solve;
        if (decision.kind == TUNER_PUSH) {
            change.write.plan = change.plan;
            change.write.solution = change.solution;
            change.write.max_loss = task->price.max_loss;
            change.write.max_grad_sq = task->price.max_grad_sq;
        }
        engine_enact(jobs, id, &decision, &change);
    }
    engine_change_done(&change);
    engine_task_done(task);
}

/* --- states ------------------------------------------------------------------------------------
 */

static const char *engine_state(const struct jobs_live *live) {
    if (live->n_ended < live->registration.n_ranks) {
        return live->is_superseded || clock_monotonic_ns() - live->heard_ns > JOBS_LOST_NS
                   ? "lost"
                   : "running";
    }
    return memchr(live->ends, 2, live->registration.n_ranks) != NULL ? "failed" : "finished";
}

/* Brings the recorded state up to date and lets go of what has ended. */
static void engine_change_state(struct jobs *jobs, int64_t id) {
    struct engine_change change = {0};
    struct deft_error error = {0};
    enum deft_status status = DEFT_OK;
    int changed = 0;
    int ended = 0; /* as recorded here: the last rank may end while this is being written */
    store_change_init(&change.write);
    (void)pthread_mutex_lock(&jobs->lock);
    struct jobs_live *live = jobs_live_find(jobs, id);
    if (live != NULL) {
        ended = live->n_ended == live->registration.n_ranks;
        changed = strcmp(live->state, engine_state(live)) != 0;
        (void)snprintf(live->state, sizeof(live->state), "%s", engine_state(live));
        status = engine_snapshot(live, &change, &error);
    }
    (void)pthread_mutex_unlock(&jobs->lock);
    if (live != NULL && status == DEFT_OK) {
        status = store_run(jobs->options.store, &change.write.write, &error);
    }
    if (live != NULL && changed) {
        log_line(jobs->options.log, LOG_LEVEL_INFO, "job %s: %s is %s", change.job, live->id_text,
                 change.state);
    }
    if (status != DEFT_OK) {
        log_line(jobs->options.log, LOG_LEVEL_ERROR, "job %s: its state was not recorded: %s",
                 change.job, error.text);
    }
    (void)pthread_mutex_lock(&jobs->lock);
    live = jobs_live_find(jobs, id);
    if (live != NULL && ended) {
        jobs_live_remove(jobs, live);
    }
    (void)pthread_mutex_unlock(&jobs->lock);
    engine_change_done(&change);
}

/* Once a second: who has fallen silent, and who has been silent for so long that the database is
 * memory enough. With the lock held. */
static void engine_tick(struct jobs *jobs) {
    int64_t now = clock_monotonic_ns();
    for (size_t i = 0; i < JOBS_BUCKETS; i++) {
        struct jobs_live *live = jobs->buckets[i];
        while (live != NULL) {
            struct jobs_live *next = live->next;
            int64_t silence = now - live->heard_ns;
            int running = strcmp(live->state, "running") == 0;
            if (silence > JOBS_LOST_NS && running) {
                jobs_queue(jobs, JOBS_CHANGE, live->id, NULL);
            } else if (silence > JOBS_FORGET_NS && !running && !live->solving) {
                jobs_live_remove(jobs, live);
            }
            live = next;
        }
    }
}

void *jobs_engine(void *context) {
    struct jobs *jobs = context;
    int64_t next_tick_ns = clock_monotonic_ns() + ENGINE_TICK_NS;
    (void)pthread_mutex_lock(&jobs->lock);
    while (!jobs->stopping) {
        struct jobs_task *task = jobs->first;
        jobs->round_ns = clock_monotonic_ns();
        if (task == NULL) {
            const struct timespec until = {.tv_sec = next_tick_ns / 1000000000,
                                           .tv_nsec = next_tick_ns % 1000000000};
            (void)pthread_cond_timedwait(&jobs->work, &jobs->lock, &until);
        } else {
            jobs->first = task->next;
            if (jobs->first == NULL) {
                jobs->last = &jobs->first;
            }
            (void)pthread_mutex_unlock(&jobs->lock);
            if (task->kind == JOBS_SOLVE) {
                engine_solve(jobs, task->id);
            } else if (task->kind == JOBS_CHANGE) {
                engine_change_state(jobs, task->id);
            } else {
                struct engine_change change = {0};
                store_change_init(&change.write);
                engine_enact(jobs, task->id, &task->decision, &change);
                engine_change_done(&change);
            }
            free(task);
            (void)pthread_mutex_lock(&jobs->lock);
        }
        if (clock_monotonic_ns() >= next_tick_ns) {
            engine_tick(jobs);
            next_tick_ns = clock_monotonic_ns() + ENGINE_TICK_NS;
        }
    }
    (void)pthread_mutex_unlock(&jobs->lock);
    return NULL;
}
