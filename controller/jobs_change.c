#include "jobs_change.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <dsched/plan.h>

#include "base/clock.h"
#include "tuning/tuner_state.h"

/* PyTorch DDP's bucket sizes: the exact plan a job returns to is the one everybody knows. */
#define CHANGE_FIRST_BYTES (UINT64_C(1) << 20)
#define CHANGE_LATER_BYTES (UINT64_C(25) << 20)

void jobs_change_init(struct jobs_change *change) {
    memset(change, 0, sizeof(*change));
    store_change_init(&change->write);
}

void jobs_change_done(struct jobs_change *change) {
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

static enum deft_status change_exact_plan(const struct wire_registration *registration,
                                          char **out_text, uint64_t *out_hash,
                                          struct deft_error *error) {
    struct dsched_plan plan = {0};
    struct dsched_table *table = jobs_offer_table(registration);
    enum deft_status status = DEFT_OK;
    if (table == NULL ||
        dsched_plan_ddp(table, CHANGE_FIRST_BYTES, CHANGE_LATER_BYTES, &plan) != DSCHED_OK) {
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

static void change_fill_decision(const struct tuner_decision *from, struct wire_decision *to) {
    (void)snprintf(to->kind, sizeof(to->kind), "%s", tuner_kind_name(from->kind));
    (void)snprintf(to->reason, sizeof(to->reason), "%s", from->reason);
    to->iteration = from->iteration;
    to->plan_seq = from->plan_seq;
    to->exact_step_ns = from->exact_step_ns;
    to->before_step_ns = from->before_step_ns;
    to->predicted_step_ns = from->predicted_step_ns;
    to->measured_step_ns = from->measured_step_ns;
}

static enum deft_status change_event(struct jobs_change *change, struct deft_error *error) {
    const struct jobs_live_plan plan = {.seq = change->write.plan_seq,
                                        .hash = change->write.plan_hash,
                                        .text = change->plan,
                                        .max_loss = change->write.max_loss,
                                        .max_grad_sq = change->write.max_grad_sq};
    return jobs_live_plan_event(&plan, &change->event, error);
}

/* With the lock held: the state to be written with whatever else changes. */
enum deft_status jobs_change_snapshot(const struct jobs_live *live, struct jobs_change *change,
                                      struct deft_error *error) {
    memcpy(change->id_text, live->id_text, sizeof(change->id_text));
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
static void change_publish(struct jobs_live *live, struct jobs_change *change) {
    char id[24];
    (void)snprintf(id, sizeof(id), "%llu", (unsigned long long)change->write.plan_seq);
    free(live->plan_event);
    live->plan_event = change->event;
    live->plan_seq = change->write.plan_seq;
    change->event = NULL;
    jobs_live_send(live, id, "plan", live->plan_event);
}

/* The text of the plan a decision pushes that is not a new solution. */
static enum deft_status change_old_plan(struct jobs *jobs, int64_t id, uint64_t target_seq,
                                        struct jobs_change *change, struct deft_error *error) {
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
                              : change_exact_plan(&live->registration, &change->plan,
                                                  &change->write.plan_hash, error);
        (void)pthread_mutex_unlock(&jobs->lock);
    }
    change->write.plan = change->plan;
    return status;
}

/* A plan reaches ranks only after the database has it: after a restart its number must not name
 * another one. A way back is the exception: it is safe under any number that is larger. */
void jobs_change_enact(struct jobs *jobs, int64_t id, const struct tuner_decision *decision,
                       struct jobs_change *change) {
    struct deft_error error = {0};
    enum deft_status status = DEFT_OK;
    int pushes = tuner_pushes(decision);
    change_fill_decision(decision, &change->decision);
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
            status = change_old_plan(jobs, id, decision->target_seq, change, &error);
        }
        if (status == DEFT_OK) {
            status = change_event(change, &error);
        }
    }
    (void)pthread_mutex_lock(&jobs->lock);
    struct jobs_live *live = jobs_live_find(jobs, id);
    if (live != NULL) {
        jobs->n_decisions[decision->kind]++;
        memcpy(live->decision, change->decision.reason, sizeof(live->decision));
        live->updated_ns = clock_wall_ns();
        if (status == DEFT_OK) {
            status = jobs_change_snapshot(live, change, &error);
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
            change_publish(live, change);
        } else {
            struct tuner_decision refused = {0};
            tuner_refused(&live->tuner, decision->plan_seq,
                          "the controller could not record the plan", &refused);
            jobs_live_decided(jobs, live, &refused);
        }
    }
    (void)pthread_mutex_unlock(&jobs->lock);
}
