#include "sched_support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "testing.h"

void support_profile(struct dsched_profile *out, uint32_t n_tensors, uint32_t n_links) {
    memset(out, 0, sizeof(*out));
    (void)snprintf(out->name, sizeof(out->name), "synthetic");
    out->world_size = 2;
    out->n_tensors = n_tensors;
    out->n_links = n_links;
    out->tensors = calloc(n_tensors, sizeof(*out->tensors));
    out->links = calloc(n_links, sizeof(*out->links));
    assert_non_null(out->tensors);
    assert_non_null(out->links);
    for (uint32_t i = 0; i < n_tensors; i++) {
        (void)snprintf(out->tensors[i].name, sizeof(out->tensors[i].name), "t%u", i);
    }
    for (uint32_t l = 0; l < n_links; l++) {
        (void)snprintf(out->links[l].name, sizeof(out->links[l].name), "link%u", l);
        out->links[l].alpha_ns = 50000;
        out->links[l].bytes_per_s = 1000000000;
        out->links[l].contention_ppm = 1000000;
    }
}

void support_sum(struct dsched_profile *profile) {
    profile->forward_ns = 0;
    profile->backward_ns = 0;
    for (uint32_t i = 0; i < profile->n_tensors; i++) {
        profile->forward_ns += profile->tensors[i].forward_ns;
        profile->backward_ns += profile->tensors[i].backward_ns;
    }
}

int64_t support_compute_ns(const struct dsched_profile *profile) {
    return profile->forward_ns + profile->backward_ns + profile->optimizer_ns;
}

static uint64_t bytes_of(const struct dsched_profile *profile) {
    uint64_t n_bytes = 0;
    for (uint32_t i = 0; i < profile->n_tensors; i++) {
        n_bytes += profile->tensors[i].elements * dsched_dtype_bytes(profile->tensors[i].dtype);
    }
    return n_bytes;
}

void support_random(uint64_t *state, uint32_t coverage_percent, struct dsched_profile *out) {
    uint32_t n_tensors = 1 + (uint32_t)testing_random_below(state, 60);
    uint32_t n_links = 1 + (uint32_t)testing_random_below(state, 3);
    int is_mixed = testing_random_below(state, 4) == 0;
    support_profile(out, n_tensors, n_links);
    for (uint32_t i = 0; i < n_tensors; i++) {
        struct dsched_tensor *tensor = &out->tensors[i];
        uint64_t most = testing_random_below(state, 8) == 0 ? 8000000 : 400000;
        tensor->elements = testing_random_below(state, 10) == 0 && i > 0
                               ? 0
                               : 1 + testing_random_below(state, most);
        if (is_mixed && testing_random_below(state, 6) == 0) {
            tensor->dtype = (enum dsched_dtype)testing_random_below(state, DSCHED_N_DTYPES);
        }
        tensor->forward_ns = (int64_t)testing_random_below(state, 1000000);
        tensor->backward_ns = 1 + (int64_t)testing_random_below(state, 2000000);
    }
    support_sum(out);
    out->backward_ns += (int64_t)testing_random_below(state, 100000);
    out->optimizer_ns = (int64_t)testing_random_below(state, 500000);
    for (uint32_t l = 0; l < n_links; l++) {
        uint64_t window_ns =
            (uint64_t)(out->forward_ns + out->backward_ns) * coverage_percent / 100 + 1;
        uint64_t speed = bytes_of(out) * 1000000000 / window_ns + 1;
        out->links[l].alpha_ns = (int64_t)testing_random_below(state, 100000);
        out->links[l].bytes_per_s =
            (int64_t)(l == 0 ? speed : 1 + testing_random_below(state, speed));
        if (testing_random_below(state, 5) == 0) {
            out->links[l].contention_ppm = 1000000 + (uint32_t)testing_random_below(state, 300000);
        }
    }
}

void support_even(uint32_t n_tensors, int64_t compute_ns, int64_t communication_ns,
                  struct dsched_profile *out) {
    const uint64_t elements = 250000;
    support_profile(out, n_tensors, 1);
    for (uint32_t i = 0; i < n_tensors; i++) {
        out->tensors[i].elements = elements;
        out->tensors[i].forward_ns = compute_ns / 3 / n_tensors;
        out->tensors[i].backward_ns = 2 * (compute_ns / 3) / n_tensors;
    }
    support_sum(out);
    out->links[0].alpha_ns = 1000;
    out->links[0].bytes_per_s = (int64_t)(bytes_of(out) * 1000000000 / (uint64_t)communication_ns);
}

void support_table(const struct dsched_profile *profile, struct support_table *out) {
    out->elements = calloc(profile->n_tensors, sizeof(*out->elements));
    out->dtypes = calloc(profile->n_tensors, sizeof(*out->dtypes));
    assert_non_null(out->elements);
    assert_non_null(out->dtypes);
    for (uint32_t i = 0; i < profile->n_tensors; i++) {
        out->elements[i] = profile->tensors[i].elements;
        out->dtypes[i] = (uint8_t)profile->tensors[i].dtype;
    }
    out->table = (struct dsched_table){
        .n_tensors = profile->n_tensors, .elements = out->elements, .dtypes = out->dtypes};
}

void support_table_done(struct support_table *table) {
    free(table->elements);
    free(table->dtypes);
}

/* Random link and delay for every op. Buckets are whole tensors, so they share none; delays never
 * fall from one generation to the next by as much as the merge. */
static void fill_ops(uint64_t *state, uint32_t n_links, struct dsched_plan *plan) {
    uint32_t delay_bound = plan->rule == DSCHED_EXACT ? 1 : plan->rule == DSCHED_LOOKAHEAD ? 2 : 4;
    for (uint32_t b = 0; b < plan->n_buckets; b++) {
        uint32_t delay = (uint32_t)testing_random_below(state, delay_bound);
        for (uint32_t g = 0; g < plan->n_generations; g++) {
            plan->ops[(size_t)g * plan->n_buckets + b] = (struct dsched_op){
                .link = (uint8_t)testing_random_below(state, n_links), .delay = (uint8_t)delay};
        }
    }
}

void support_random_plan(uint64_t *state, const struct dsched_table *table, enum dsched_rule rule,
                         uint32_t n_links, struct dsched_plan *out) {
    uint32_t n_generations = 1 + (uint32_t)testing_random_below(state, 4);
    struct dsched_plan ddp = {0};
    int is_merged = rule == DSCHED_AVERAGED || rule == DSCHED_DELAYED;
    assert_int_equal(dsched_plan_ddp(table, 1, 1 + testing_random_below(state, 4000000), &ddp),
                     DSCHED_OK);
    assert_int_equal(dsched_plan_init(out, ddp.n_buckets, n_generations), DSCHED_OK);
    memcpy(out->buckets, ddp.buckets, ddp.n_buckets * sizeof(*ddp.buckets));
    dsched_plan_done(&ddp);
    out->rule = rule;
    out->n_links = n_links;
    for (uint32_t g = 0; g < n_generations; g++) {
        out->merge[g] = (uint16_t)(is_merged ? 1 + testing_random_below(state, 4) : 1);
    }
    fill_ops(state, n_links, out);
}

void support_same_report(const struct dsched_report *ours, const struct dsched_report *theirs) {
    assert_int_equal(ours->step_ns, theirs->step_ns);
    assert_int_equal(ours->exposed_ns, theirs->exposed_ns);
    assert_int_equal(ours->exposed_forward_ns, theirs->exposed_forward_ns);
    assert_int_equal(ours->exposed_boundary_ns, theirs->exposed_boundary_ns);
    assert_memory_equal(ours->link_busy_ppm, theirs->link_busy_ppm, sizeof(ours->link_busy_ppm));
    assert_int_equal(ours->updates_per_step_ppm, theirs->updates_per_step_ppm);
    assert_int_equal(ours->mean_delay_milli, theirs->mean_delay_milli);
    assert_int_equal(ours->max_delay, theirs->max_delay);
    assert_int_equal(ours->ops_per_step_milli, theirs->ops_per_step_milli);
    assert_int_equal(ours->pending_bytes, theirs->pending_bytes);
    assert_int_equal(ours->cycle, theirs->cycle);
}
