/* Plans that were not searched for: where they come from, and whether they fit a job. */
#include <stdlib.h>
#include <string.h>

#include "jobs_live.h"

void jobs_offer_done(struct jobs_offer *offer) {
    free(offer->text);
    memset(offer, 0, sizeof(*offer));
}

enum deft_status jobs_offer_copy(const struct jobs_offer *from, struct jobs_offer *out,
                                 struct deft_error *error) {
    char *text = strdup(from->text);
    if (text == NULL) {
        return deft_fail(error, DEFT_NO_MEMORY, 0, "no memory for a plan");
    }
    *out = *from;
    out->text = text;
    return DEFT_OK;
}

struct dsched_table *jobs_offer_table(const struct wire_registration *registration) {
    uint32_t n = registration->n_tensors;
    struct dsched_table *table = malloc(sizeof(*table) + n * (sizeof(uint64_t) + sizeof(uint8_t)));
    if (table != NULL) {
        uint64_t *elements = (uint64_t *)(void *)(table + 1);
        uint8_t *dtypes = (uint8_t *)(elements + n);
        for (uint32_t i = 0; i < n; i++) {
            elements[i] = registration->tensors[i].elements;
            dtypes[i] = (uint8_t)registration->tensors[i].dtype;
        }
        *table = (struct dsched_table){.n_tensors = n, .elements = elements, .dtypes = dtypes};
    }
    return table;
}

uint32_t jobs_offer_rules(const struct wire_registration *registration) {
    uint32_t rules = DSCHED_RULE_BIT(DSCHED_EXACT);
    if (registration->capabilities & WIRE_CAN_PREVIEW) {
        rules |= DSCHED_RULE_BIT(DSCHED_LOOKAHEAD);
    }
    if (registration->capabilities & WIRE_CAN_AVERAGE) {
        rules |= DSCHED_RULE_BIT(DSCHED_AVERAGED);
    }
    return rules;
}

enum deft_status jobs_offer_read(struct store *store, const char *job, const char *id,
                                 struct jobs_offer *out, struct deft_error *error) {
    struct store_incarnation from = {0};
    struct jobs_offer found = {0};
    int64_t incarnation = 0;
    uint64_t seq = 0;
    enum deft_status status = store_plan_id_parse(id, &incarnation, &seq);
    if (status == DEFT_OK) {
        status = store_read_incarnation(store, incarnation, &from, error);
    }
    if (status == DEFT_OK && strcmp(from.job.id, job) != 0) {
        status = DEFT_NOT_FOUND;
    }
    store_incarnation_done(&from);
    if (status == DEFT_OK) {
        status = store_read_plan_text(store, incarnation, seq, &found.text, &found.hash, error);
    }
    if (status == DEFT_NOT_FOUND) {
        return deft_fail(error, status, 0, "plan: the job has no plan '%.64s'", id);
    }
    if (status == DEFT_OK) {
        store_plan_id_text(incarnation, seq, found.id);
        *out = found;
    }
    return status;
}

void jobs_offer_key(const struct wire_registration *registration, struct store_warm_key *out) {
    memset(out, 0, sizeof(*out));
    out->table_hash = registration->table_hash;
    out->n_ranks = registration->n_ranks;
    memcpy(out->user, registration->user, sizeof(out->user));
    for (uint32_t i = 0; i < registration->n_links && i < DSCHED_MAX_LINKS; i++) {
        memcpy(out->links[i], registration->links[i].name, sizeof(out->links[i]));
        out->n_links++;
    }
}

void jobs_offer_warm(struct jobs *jobs, int64_t incarnation, const struct store_warm_key *key,
                     struct jobs_offer *out) {
    struct store_warm warm = {0};
    struct deft_error why = {0};
    enum deft_status status = store_read_warm(jobs->options.store, incarnation, key, &warm, &why);
    if (status == DEFT_OK) {
        memcpy(out->id, warm.id, sizeof(out->id));
        out->hash = warm.hash;
        out->text = warm.plan;
    } else if (status != DEFT_NOT_FOUND) {
        log_line(jobs->options.log, LOG_LEVEL_WARNING, "the past of i%lld was not read: %s",
                 (long long)incarnation, why.text);
    }
}

/* --- whether it fits ---------------------------------------------------------------------------
 */

static enum deft_status offer_decode(const struct jobs_offer *offer,
                                     const struct dsched_table *table, uint32_t n_links,
                                     uint32_t rules, struct dsched_plan *out,
                                     struct deft_error *error) {
    struct dsched_plan plan = {0};
    struct dsched_error why = {0};
    enum deft_status status = wire_plan_decode(offer->text, strlen(offer->text), &plan, error);
    if (status != DEFT_OK) {
        return status;
    }
    if (dsched_plan_validate(&plan, table, n_links, &why) != DSCHED_OK) {
        status = deft_fail(error, DEFT_MISMATCH, 0, "plan: %s is not for this job's tensors: %s",
                           offer->id, why.text);
    } else if ((rules & DSCHED_RULE_BIT(plan.rule)) == 0) {
        status = deft_fail(error, DEFT_MISMATCH, 0, "plan: the ranks cannot run the rule of %s, %s",
                           offer->id, dsched_rule_name(plan.rule));
    }
    if (status != DEFT_OK) {
        dsched_plan_done(&plan);
        return status;
    }
    *out = plan;
    return DEFT_OK;
}

enum deft_status jobs_offer_check(const struct jobs_offer *offer,
                                  const struct wire_registration *registration,
                                  struct deft_error *error) {
    struct dsched_plan plan = {0};
    uint32_t rules = jobs_offer_rules(registration) | DSCHED_RULE_BIT(DSCHED_DELAYED);
    struct dsched_table *table = jobs_offer_table(registration);
    if (table == NULL) {
        return deft_fail(error, DEFT_NO_MEMORY, 0, "no memory for a plan");
    }
    enum deft_status status =
        offer_decode(offer, table, registration->n_links, rules, &plan, error);
    dsched_plan_done(&plan);
    free(table);
    return status;
}

/* What an operator pins may cost what it costs, but not more memory than the ranks have. */
static enum deft_status offer_check_limits(const struct jobs_offer *offer,
                                           const struct jobs_offer_terms *terms,
                                           const struct dsched_plan *plan, uint32_t progress_ppm,
                                           struct deft_error *error) {
    const struct dsched_planner_options *options = terms->options;
    uint64_t pending = dsched_plan_pending_bytes(plan, terms->table);
    if (options->max_pending_bytes > 0 && pending > options->max_pending_bytes) {
        return deft_fail(error, DEFT_MISMATCH, 0,
                         "plan: %s needs %llu bytes of the ranks' memory, which allow %llu",
                         offer->id, (unsigned long long)pending,
                         (unsigned long long)options->max_pending_bytes);
    }
    if (!terms->is_pinned &&
        (progress_ppm == 0 || dsched_plan_max_merge(plan) > options->max_merge ||
         dsched_plan_max_delay(plan) > options->max_delay)) {
        return deft_fail(error, DEFT_MISMATCH, 0, "plan: %s is beyond what the job admits now",
                         offer->id);
    }
    return DEFT_OK;
}

enum deft_status jobs_offer_fit(const struct jobs_offer *offer,
                                const struct jobs_offer_terms *terms, struct dsched_plan *out,
                                uint32_t *out_progress_ppm, struct deft_error *error) {
    struct dsched_plan plan = {0};
    struct dsched_report report = {0};
    struct dsched_error why = {0};
    uint32_t rules = terms->options->rules;
    rules |= terms->is_pinned ? DSCHED_RULE_BIT(DSCHED_DELAYED) : 0;
    enum deft_status status =
        offer_decode(offer, terms->table, terms->profile->n_links, rules, &plan, error);
    if (status != DEFT_OK) {
        return status;
    }
    uint32_t progress_ppm =
        plan.rule == DSCHED_EXACT
            ? 1000000
            : quantify_progress_ppm(terms->price, plan.rule, dsched_plan_max_merge(&plan),
                                    dsched_plan_max_delay(&plan));
    status = offer_check_limits(offer, terms, &plan, progress_ppm, error);
    if (status == DEFT_OK &&
        dsched_simulate_plan(terms->profile, &plan, 0, NULL, NULL, &report, &why) != DSCHED_OK) {
        status = deft_fail(error, DEFT_MISMATCH, 0, "plan: %s cannot be foretold: %s", offer->id,
                           why.text);
    }
    if (status != DEFT_OK) {
        dsched_plan_done(&plan);
        return status;
    }
    plan.forecast.step_ns = report.step_ns;
    plan.forecast.exposed_ns = report.exposed_ns;
    plan.forecast.compute_ns = report.step_ns - report.exposed_ns;
    *out = plan;
    *out_progress_ppm = progress_ppm;
    return DEFT_OK;
}
