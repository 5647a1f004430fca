/* Any profile that passes the check can be planned and simulated under every policy: plans are
 * legal, no policy beats its bound, and a refusal says why. The bytes are drawn from as if they
 * were dice, with sizes and times on logarithmic scales up to their limits. */
#include <string.h>

#include <dsched/planner.h>
#include <dsched/simulate.h>

#include "fuzzing.h"

#define MAX_TENSORS 16u
#define MAX_LINKS   4u
#define MAX_SAMPLES 3u
/* The peers cut the space into parts of 250,000 elements and search over them: beyond this the
 * search for crashes would do nothing else. */
#define MAX_SIMULATED_ELEMENTS (UINT64_C(1) << 22)

struct dice {
    const uint8_t *next;
    const uint8_t *end;
};

static uint32_t roll(struct dice *dice, uint32_t n) {
    uint32_t value = dice->next < dice->end ? *dice->next++ : 0;
    return n == 0 ? 0 : value % n;
}

/* 0..most, every order of magnitude as likely as the others. */
static uint64_t roll_size(struct dice *dice, uint64_t most) {
    uint32_t bits = roll(dice, 64);
    uint64_t value = ((uint64_t)roll(dice, 256) << 8 | roll(dice, 256)) << 48 >> (63 - bits);
    return value > most ? most : value;
}

static void roll_tensors(struct dice *dice, struct dsched_profile *profile) {
    for (uint32_t i = 0; i < profile->n_tensors; i++) {
        struct dsched_tensor *tensor = &profile->tensors[i];
        (void)snprintf(tensor->name, sizeof(tensor->name), "t%u", i);
        tensor->elements = roll_size(dice, DSCHED_MAX_ELEMENTS / MAX_TENSORS);
        tensor->dtype = (enum dsched_dtype)roll(dice, DSCHED_N_DTYPES);
        tensor->forward_ns = (int64_t)roll_size(dice, DSCHED_MAX_TIME_NS / MAX_TENSORS);
        tensor->backward_ns = (int64_t)roll_size(dice, DSCHED_MAX_TIME_NS / MAX_TENSORS);
        profile->forward_ns += tensor->forward_ns;
        profile->backward_ns += tensor->backward_ns;
    }
}

static void roll_link(struct dice *dice, uint32_t number, struct dsched_link *link,
                      struct dsched_sample *samples) {
    (void)snprintf(link->name, sizeof(link->name), "l%u", number);
    link->alpha_ns = (int64_t)roll_size(dice, DSCHED_MAX_TIME_NS);
    link->bytes_per_s = (int64_t)roll_size(dice, INT64_MAX);
    link->contention_ppm = 1000000 + 10000 * roll(dice, 256);
    link->n_samples = roll(dice, MAX_SAMPLES + 1);
    link->samples = samples;
    for (uint32_t s = 0; s < link->n_samples; s++) {
        samples[s].bytes = (s > 0 ? samples[s - 1].bytes : 0) + 1 + roll_size(dice, 1u << 30);
        samples[s].ns = (int64_t)roll_size(dice, DSCHED_MAX_TIME_NS);
    }
}

_Static_assert(DSCHED_MAX_MERGE == DSCHED_MAX_DELAY, "one loop fills both factors");

/* Prices from 0 to beyond any sense; what is not rolled is 0. */
static void roll_progress(struct dice *dice, struct dsched_progress *table) {
    for (uint32_t rule = 0; rule < DSCHED_N_RULES; rule++) {
        for (uint32_t i = 0; i <= DSCHED_MAX_MERGE && dice->next < dice->end; i++) {
            table->merge_ppm[rule][i] = (uint32_t)roll_size(dice, UINT32_MAX);
            table->delay_ppm[rule][i] = (uint32_t)roll_size(dice, UINT32_MAX);
        }
    }
}

static void plan(const struct dsched_profile *profile, struct dice *dice) {
    static struct dsched_solution solution; /* large; the target runs on one thread */
    struct dsched_planner_options options;
    struct dsched_progress progress = {0};
    struct dsched_error error = {.text = ""};
    uint64_t elements[MAX_TENSORS];
    uint8_t dtypes[MAX_TENSORS];
    const struct dsched_table table = {
        .n_tensors = profile->n_tensors, .elements = elements, .dtypes = dtypes};
    dsched_planner_defaults(&options);
    options.rules = roll(dice, DSCHED_RULE_BIT(DSCHED_N_RULES));
    options.max_merge = 1 + roll(dice, DSCHED_MAX_MERGE);
    options.max_delay = roll(dice, DSCHED_MAX_DELAY + 1);
    options.max_pending_bytes = roll(dice, 2) == 0 ? 0 : roll_size(dice, UINT64_MAX);
    if (roll(dice, 2) == 1) {
        roll_progress(dice, &progress);
        options.progress = &progress;
    }
    for (uint32_t i = 0; i < profile->n_tensors; i++) {
        elements[i] = profile->tensors[i].elements;
        dtypes[i] = (uint8_t)profile->tensors[i].dtype;
    }
    if (dsched_solve(profile, &options, &solution, &error) != DSCHED_OK) {
        fuzzing_require(strlen(error.text) > 0, "a refusal says why");
        return;
    }
    fuzzing_require(dsched_plan_validate(&solution.plan, &table, profile->n_links, &error) ==
                        DSCHED_OK,
                    "what the planner makes is legal");
    fuzzing_require(options.max_pending_bytes == 0 ||
                        dsched_plan_pending_bytes(&solution.plan, &table) <=
                            options.max_pending_bytes,
                    "memory stays within its limit");
    for (uint32_t g = 0; g < solution.plan.n_generations; g++) {
        fuzzing_require(solution.plan.merge[g] <= options.max_merge, "merges keep their limit");
    }
    fuzzing_require(solution.candidates[solution.chosen].progress_ppm > 0,
                    "what is chosen makes progress");
    fuzzing_require(dsched_plan_max_delay(&solution.plan) <= options.max_delay ||
                        solution.plan.rule == DSCHED_EXACT,
                    "delays keep their limit");
    dsched_solution_done(&solution);
}

static void simulate(const struct dsched_profile *profile) {
    struct dsched_error error = {.text = ""};
    struct dsched_bounds bounds;
    if (dsched_bounds(profile, &bounds, &error) != DSCHED_OK) {
        fuzzing_require(strlen(error.text) > 0, "a refusal says why");
        return;
    }
    for (uint32_t p = 0; dsched_policies[p] != NULL; p++) {
        struct dsched_outcome outcome;
        if (dsched_policies[p]->simulate(profile, NULL, NULL, &outcome, &error) != DSCHED_OK) {
            fuzzing_require(strlen(error.text) > 0, "a refusal says why");
            continue;
        }
        fuzzing_require(outcome.report.step_ns >= bounds.deft_step_ns, "no step is below compute");
        fuzzing_require(outcome.report.exposed_ns >= 0, "nobody waits for less than nothing");
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct dice dice = {.next = data, .end = data + size};
    struct dsched_tensor tensors[MAX_TENSORS];
    struct dsched_link links[MAX_LINKS];
    struct dsched_sample samples[MAX_LINKS][MAX_SAMPLES];
    struct dsched_profile profile = {.name = "dice", .world_size = 2};
    struct dsched_error error = {.text = ""};
    uint64_t n_elements = 0;
    memset(tensors, 0, sizeof(tensors));
    memset(links, 0, sizeof(links));
    profile.tensors = tensors;
    profile.links = links;
    profile.n_tensors = 1 + roll(&dice, MAX_TENSORS);
    profile.n_links = 1 + roll(&dice, MAX_LINKS);
    roll_tensors(&dice, &profile);
    profile.optimizer_ns = (int64_t)roll_size(&dice, DSCHED_MAX_TIME_NS);
    for (uint32_t l = 0; l < profile.n_links; l++) {
        roll_link(&dice, l, &links[l], samples[l]);
    }
    if (dsched_profile_check(&profile, &error) != DSCHED_OK) {
        fuzzing_require(strlen(error.text) > 0, "a refusal says why");
        return 0;
    }
    plan(&profile, &dice);
    for (uint32_t i = 0; i < profile.n_tensors; i++) {
        n_elements += profile.tensors[i].elements;
    }
    if (n_elements < MAX_SIMULATED_ELEMENTS) {
        simulate(&profile);
    }
    return 0;
}
