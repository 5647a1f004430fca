/* What operators set: defaults of new jobs, and of one job its mode, its limits, a plan that is
 * pinned, that nothing else is looked for, and that it goes. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/parse.h"
#include "jobs_live.h"

#define CONTROL_HASH_DIGITS 16u

void jobs_set_defaults(struct jobs *jobs, enum tuner_mode mode, const struct wire_limits *limits) {
    (void)pthread_mutex_lock(&jobs->lock);
    jobs->options.mode = mode;
    jobs->options.limits = *limits;
    (void)pthread_mutex_unlock(&jobs->lock);
}

/* DEFT_NOT_FOUND: there is no such job. */
static enum deft_status control_known(struct jobs *jobs, const char *job,
                                      struct deft_error *error) {
    struct store_job known;
    char *summary = NULL;
    enum deft_status status = store_read_job(jobs->options.store, job, &known, &summary, error);
    free(summary);
    return status;
}

static enum deft_status control_write(struct jobs *jobs, struct store_change *write,
                                      const char *job, const struct store_audit *audit,
                                      struct deft_error *error) {
    write->job = job;
    write->audit = audit;
    write->now_ns = clock_wall_ns();
    return store_run(jobs->options.store, &write->write, error);
}

/* --- mode and limits ---------------------------------------------------------------------------
 */

enum deft_status jobs_set_mode(struct jobs *jobs, const char *job, enum tuner_mode mode,
                               const struct store_audit *audit, struct deft_error *error) {
    struct store_change write;
    struct tuner_decision decision = {0};
    enum deft_status status = control_known(jobs, job, error);
    if (status != DEFT_OK) {
        return status;
    }
    store_change_init(&write);
    write.mode = tuner_mode_name(mode);
    status = control_write(jobs, &write, job, audit, error);
    if (status != DEFT_OK) {
        return status;
    }
    (void)pthread_mutex_lock(&jobs->lock);
    struct jobs_live *live = jobs_live_find_job(jobs, job);
    if (live != NULL) {
        tuner_set_mode(&live->tuner, mode, &decision);
        jobs_live_decided(jobs, live, &decision);
        jobs_live_send_mode(live);
        jobs_live_changed(jobs, live);
    }
    (void)pthread_mutex_unlock(&jobs->lock);
    log_line(jobs->options.log, LOG_LEVEL_INFO, "job %s: mode is %s now", job,
             tuner_mode_name(mode));
    return DEFT_OK;
}

enum deft_status jobs_set_limits(struct jobs *jobs, const char *job,
                                 const struct wire_limits *limits, const struct store_audit *audit,
                                 struct deft_error *error) {
    struct store_change write;
    enum deft_status status = control_known(jobs, job, error);
    if (status != DEFT_OK) {
        return status;
    }
    store_change_init(&write);
    write.limits = limits;
    status = control_write(jobs, &write, job, audit, error);
    if (status != DEFT_OK) {
        return status;
    }
    (void)pthread_mutex_lock(&jobs->lock);
    struct jobs_live *live = jobs_live_find_job(jobs, job);
    if (live != NULL) {
        live->tuner.quantify.limits = *limits;
        jobs_live_changed(jobs, live);
    }
    (void)pthread_mutex_unlock(&jobs->lock);
    log_line(jobs->options.log, LOG_LEVEL_INFO, "job %s: merge is at most %u and delay %u now", job,
             limits->max_merge, limits->max_delay);
    return DEFT_OK;
}

/* --- pins --------------------------------------------------------------------------------------
 */

static int control_is_hash(const char *text) {
    return strlen(text) == CONTROL_HASH_DIGITS &&
           strspn(text, "0123456789abcdef") == CONTROL_HASH_DIGITS;
}

enum deft_status jobs_find_pin(struct jobs *jobs, const char *job, const char *plan,
                               struct wire_pin *out, struct deft_error *error) {
    char id[STORE_ID_BYTES] = "";
    int64_t incarnation = 0;
    uint64_t seq = 0;
    if (control_is_hash(plan)) {
        enum deft_status status =
            store_read_plan_id(jobs->options.store, job, strtoull(plan, NULL, 16), id, error);
        if (status != DEFT_OK) {
            return status;
        }
    } else if (plan[0] != '\0') {
        if (store_plan_id_parse(plan, &incarnation, &seq) != DEFT_OK) {
            return deft_fail(error, DEFT_INVALID, 0,
                             "plan: the id of a plan such as i7.3, its hash of 16 hexadecimal "
                             "digits, or nothing was expected, not '%.64s'",
                             plan);
        }
        store_plan_id_text(incarnation, seq, id);
    }
    memset(out, 0, sizeof(*out));
    memcpy(out->plan, id, sizeof(id));
    return DEFT_OK;
}

/* With the lock held: takes the offer over. Pinning the same plan again is insisting. */
static void control_take_pin(struct jobs *jobs, struct jobs_live *live, struct jobs_offer *pin) {
    struct tuner *tuner = &live->tuner;
    jobs_offer_done(&live->pin);
    live->pin = *pin;
    memset(pin, 0, sizeof(*pin));
    tuner_set_hold(tuner, 0, tuner->state.is_frozen);
    if (live->pin.hash != 0) {
        tuner_set_hold(tuner, live->pin.hash, tuner->state.is_frozen);
    }
    jobs_live_changed(jobs, live);
}

enum deft_status jobs_set_pin(struct jobs *jobs, const char *job, const char *plan,
                              const struct store_audit *audit, struct wire_pin *out,
                              struct deft_error *error) {
    struct store_change write;
    struct wire_pin found = {0};
    struct jobs_offer pin = {0};
    enum deft_status status = control_known(jobs, job, error);
    if (status == DEFT_OK) {
        status = jobs_find_pin(jobs, job, plan, &found, error);
    }
    if (status == DEFT_OK && found.plan[0] != '\0') {
        status = jobs_offer_read(jobs->options.store, job, found.plan, &pin, error);
    }
    if (status == DEFT_OK && pin.text != NULL) {
        (void)pthread_mutex_lock(&jobs->lock);
        const struct jobs_live *live = jobs_live_find_job(jobs, job);
        if (live != NULL) {
            status = jobs_offer_check(&pin, &live->registration, error);
        }
        (void)pthread_mutex_unlock(&jobs->lock);
    }
    if (status == DEFT_OK) {
        store_change_init(&write);
        write.pin = found.plan;
        status = control_write(jobs, &write, job, audit, error);
    }
    if (status == DEFT_OK) {
        (void)pthread_mutex_lock(&jobs->lock);
        struct jobs_live *live = jobs_live_find_job(jobs, job);
        if (live != NULL) {
            control_take_pin(jobs, live, &pin);
        }
        (void)pthread_mutex_unlock(&jobs->lock);
        log_line(jobs->options.log, LOG_LEVEL_INFO, "job %s: %s is pinned now", job,
                 found.plan[0] != '\0' ? found.plan : "no plan");
        *out = found;
    }
    jobs_offer_done(&pin);
    return status;
}

/* --- freezing ----------------------------------------------------------------------------------
 */

enum deft_status jobs_set_frozen(struct jobs *jobs, const char *job, int frozen,
                                 const struct store_audit *audit, struct deft_error *error) {
    struct store_change write;
    enum deft_status status = control_known(jobs, job, error);
    if (status != DEFT_OK) {
        return status;
    }
    store_change_init(&write);
    write.frozen = frozen != 0;
    status = control_write(jobs, &write, job, audit, error);
    if (status != DEFT_OK) {
        return status;
    }
    (void)pthread_mutex_lock(&jobs->lock);
    struct jobs_live *live = jobs_live_find_job(jobs, job);
    if (live != NULL) {
        tuner_set_hold(&live->tuner, live->tuner.state.pin_hash, frozen != 0);
        jobs_live_changed(jobs, live);
    }
    (void)pthread_mutex_unlock(&jobs->lock);
    log_line(jobs->options.log, LOG_LEVEL_INFO, "job %s: %s", job,
             frozen ? "frozen, no plan is looked for" : "no longer frozen");
    return DEFT_OK;
}

/* --- the end -----------------------------------------------------------------------------------
 */

enum deft_status jobs_remove(struct jobs *jobs, const char *job, const struct store_audit *audit,
                             struct deft_error *error) {
    struct store_remove write;
    struct jobs_live *live = NULL;
    store_remove_init(&write);
    write.job = job;
    write.audit = audit;
    enum deft_status status = store_run(jobs->options.store, &write.write, error);
    if (status != DEFT_OK) {
        return status;
    }
    (void)pthread_mutex_lock(&jobs->lock);
    while ((live = jobs_live_find_job(jobs, job)) != NULL) {
        jobs_live_remove(jobs, live);
    }
    (void)pthread_mutex_unlock(&jobs->lock);
    log_line(jobs->options.log, LOG_LEVEL_INFO, "job %s: removed", job);
    return DEFT_OK;
}
