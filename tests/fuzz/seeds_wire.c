/* Seeds of fuzz_wire: each message once, small but with every member in use. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "seeds.h"
#include "wire/wire.h"
#include "wire/wire_access.h"

#define SEEDS_WIRE_MAX_BYTES 8192u

/* Takes the encoder's result: `text` is freed. */
static void seeds_wire_put(const char *folder, char letter, const char *name,
                           enum deft_status status, char *text, const struct deft_error *error) {
    char seed[SEEDS_WIRE_MAX_BYTES];
    int length = status == DEFT_OK ? snprintf(seed, sizeof seed, "%c%s", letter, text) : -1;
    if (length < 0 || (size_t)length >= sizeof seed) {
        (void)fprintf(stderr, "%s: %s\n", name,
                      status == DEFT_OK ? "longer than a seed may be" : error->text);
        exit(1);
    }
    seeds_write(folder, name, seed, (size_t)length);
    free(text);
}

static void seeds_wire_profile(const char *folder) {
    struct deft_error error;
    char *text = NULL;
    struct dsched_progress progress = {0};
    struct dsched_planner_options options;
    struct dsched_sample samples[] = {{4096, 110000}, {1048576, 9200000}};
    struct dsched_tensor tensors[] = {
        {.name = "embed", .elements = 5000, .forward_ns = 1000, .backward_ns = 2000},
        {.name = "relu", .elements = 0, .forward_ns = 10, .backward_ns = 20},
        {.name = "head", .elements = 700, .dtype = DSCHED_BF16, .forward_ns = 300}};
    struct dsched_link links[] = {
        {.name = "eth0", .n_samples = 2, .contention_ppm = 1050000, .samples = samples},
        {.name = "eth1", .alpha_ns = 5000, .bytes_per_s = 125000000, .contention_ppm = 1000000}};
    struct dsched_profile profile = {.name = "tiny",
                                     .world_size = 4,
                                     .forward_ns = 1310,
                                     .backward_ns = 2020,
                                     .optimizer_ns = 50,
                                     .n_tensors = 3,
                                     .tensors = tensors,
                                     .n_links = 2,
                                     .links = links};
    enum deft_status status = wire_profile_encode(&profile, &text, &error);
    seeds_wire_put(folder, 'f', "profile", status, text, &error);

    dsched_planner_defaults(&options);
    options.max_pending_bytes = 22800;
    options.progress = &progress;
    for (uint32_t k = 1; k <= 3; k++) {
        progress.merge_ppm[DSCHED_AVERAGED][k] = 1000000 - k * 9900;
        progress.delay_ppm[DSCHED_LOOKAHEAD][k] = 1000000 - k * 5000;
    }
    text = NULL;
    status = wire_solve_encode(&profile, &options, &text, &error);
    seeds_wire_put(folder, 's', "solve", status, text, &error);
}

static void seeds_wire_plan(const char *folder) {
    struct deft_error error;
    char *text = NULL;
    struct dsched_bucket buckets[] = {{0, 700}, {700, 5700}};
    uint16_t merge[] = {1, 2};
    struct dsched_op ops[] = {{0, 0}, {1, 1}, {1, 1}, {0, 2}};
    struct wire_plan_event event = {.seq = 3,
                                    .max_loss = 2.875,
                                    .max_grad_sq = (double)NAN,
                                    .plan = {.rule = DSCHED_AVERAGED,
                                             .n_links = 2,
                                             .n_buckets = 2,
                                             .n_generations = 2,
                                             .buckets = buckets,
                                             .merge = merge,
                                             .ops = ops,
                                             .forecast = {.step_ns = 4000,
                                                          .exposed_ns = 12,
                                                          .compute_ns = 3380,
                                                          .updates_per_step_ppm = 666667,
                                                          .mean_delay_milli = 1123,
                                                          .max_delay = 2,
                                                          .pending_bytes = 68400}}};
    enum deft_status status = wire_plan_encode(&event.plan, &text, &error);
    seeds_wire_put(folder, 'p', "plan", status, text, &error);
    text = NULL;
    status = wire_plan_event_encode(&event, &text, &error);
    seeds_wire_put(folder, 'e', "plan_event", status, text, &error);
}

static void seeds_wire_registration(const char *folder) {
    struct deft_error error;
    char *text = NULL;
    uint32_t ranks[] = {0, 1};
    struct dsched_sample probes[] = {{4096, 110000}, {1048576, 9200000}};
    struct dsched_tensor tensors[] = {{.name = "embed", .elements = 5000},
                                      {.name = "head", .elements = 700, .dtype = DSCHED_F16}};
    struct wire_link links[] = {{.name = "gloo:eth0", .n_probes = 2, .probes = probes}};
    struct wire_registration registration = {.key = "36199_0-1-0",
                                             .name = "mlp",
                                             .user = "alice",
                                             .agent = "node1-4711-1",
                                             .version = "0.1.0",
                                             .mode = "auto",
                                             .started_ns = UINT64_C(1700000000000000000),
                                             .n_ranks = 4,
                                             .restart_count = 1,
                                             .table_hash = UINT64_C(0x0123456789abcdef),
                                             .capabilities = WIRE_CAN_PREVIEW | WIRE_CAN_SKIP |
                                                             WIRE_CAN_AVERAGE,
                                             .max_pending_bytes = 1000000,
                                             .optimizer = "sgd",
                                             .momentum = 0.9,
                                             .learning_rate = 0.05,
                                             .batch_per_rank = 256,
                                             .max_merge = 4,
                                             .max_delay = 2,
                                             .n_local_ranks = 2,
                                             .local_ranks = ranks,
                                             .n_tensors = 2,
                                             .tensors = tensors,
                                             .n_links = 1,
                                             .links = links};
    enum deft_status status = wire_registration_encode(&registration, &text, &error);
    seeds_wire_put(folder, 'r', "registration", status, text, &error);

    struct wire_registered registered = {
        .incarnation = "7", .job = "36199_0", .mode = "observe", .committed_seq = 12};
    text = NULL;
    status = wire_registered_encode(&registered, &text, &error);
    seeds_wire_put(folder, 'd', "registered", status, text, &error);
}

static void seeds_wire_report(const char *folder) {
    struct deft_error error;
    char *text = NULL;
    int64_t offsets_ns[] = {5900000, 2100000};
    struct wire_iteration iterations[] = {{.rank = 0,
                                           .iteration = 9,
                                           .plan_seq = 3,
                                           .forward_ns = 3000000,
                                           .backward_ns = 6000000,
                                           .exposed_ns = 1500000,
                                           .optimizer_ns = 200000,
                                           .runtime_ns = 30000,
                                           .step_ns = 11000000,
                                           .bytes = 1605632,
                                           .loss = 2.3025851,
                                           .grad_sq_local = 1.5,
                                           .grad_sq_mean = (double)NAN,
                                           .updates = 1,
                                           .merge = 2,
                                           .flags = 1,
                                           .change_sq_local = 0.25,
                                           .learning_rate = 0.05}};
    struct wire_op_summary ops[] = {{.rank = 1,
                                     .link = 0,
                                     .bytes = 802816,
                                     .count = 40,
                                     .min_ns = 6000000,
                                     .median_ns = 7000000,
                                     .max_ns = 9000000}};
    struct wire_readiness readiness[] = {
        {.rank = 0, .iteration = 9, .n_offsets = 2, .offsets_ns = offsets_ns}};
    struct wire_event events[] = {{.rank = 1,
                                   .kind = "refused",
                                   .plan_seq = 3,
                                   .iteration = 9,
                                   .count = 0,
                                   .text = "the plan needs \"previews\""}};
    struct wire_report report = {.agent = "node1-4711-1",
                                 .seq = 12,
                                 .n_iterations = 1,
                                 .iterations = iterations,
                                 .n_ops = 1,
                                 .ops = ops,
                                 .n_readiness = 1,
                                 .readiness = readiness,
                                 .n_events = 1,
                                 .events = events};
    enum deft_status status = wire_report_encode(&report, &text, &error);
    seeds_wire_put(folder, 't', "report", status, text, &error);
    text = NULL;
    status = wire_committed_encode(17, &text, &error);
    seeds_wire_put(folder, 'c', "committed", status, text, &error);
}

static void seeds_wire_pages(const char *folder) {
    struct deft_error error;
    char *text = NULL;
    struct wire_job job = {.id = "36199_0",
                           .name = "mlp",
                           .user = "alice",
                           .state = "running",
                           .mode = "auto",
                           .phase = "committed",
                           .incarnation = "7",
                           .n_ranks = 4,
                           .iterations = 900,
                           .plan = "5",
                           .plan_seq = 3,
                           .rule = "averaged",
                           .merge = 2,
                           .delay = 1,
                           .updates_per_step = 0.5,
                           .exact_step_ns = 11000000,
                           .step_ns = 9000000,
                           .predicted_step_ns = 8900000,
                           .gain = 1.2222222222222223,
                           .predicted_gain = (double)NAN,
                           .coverage = 1.3,
                           .n_switches = 2,
                           .max_merge = 4,
                           .max_delay = 2,
                           .epsilon = 0.01,
                           .min_progress = 0.5,
                           .loss_floor = (double)NAN,
                           .frozen = 1,
                           .pin = "i7.3",
                           .progress = 0.98,
                           .noise_samples = 5120.5,
                           .disagreement = 0.75,
                           .loss = 0.5,
                           .loss_state = "fine",
                           .status = "plan 3 committed",
                           .decision = "kept",
                           .registered_at = "2026-01-02T03:04:05Z",
                           .updated_at = "2026-01-02T03:14:05Z"};
    struct wire_jobs jobs = {.n_jobs = 1, .jobs = &job, .total = 41};
    enum deft_status status = wire_jobs_encode(&jobs, &text, &error);
    seeds_wire_put(folder, 'j', "jobs", status, text, &error);

    struct wire_decision decision = {.at = "2026-01-02T03:04:05Z",
                                     .kind = "commit",
                                     .iteration = 400,
                                     .plan_seq = 3,
                                     .exact_step_ns = 11000000,
                                     .before_step_ns = 11000000,
                                     .predicted_step_ns = 8900000,
                                     .measured_step_ns = 9000000,
                                     .reason = "18 % shorter than exact"};
    struct wire_decisions decisions = {.n_decisions = 1, .decisions = &decision};
    text = NULL;
    status = wire_decisions_encode(&decisions, &text, &error);
    seeds_wire_put(folder, 'n', "decisions", status, text, &error);

    struct wire_limits limits = {
        .max_merge = 4, .max_delay = 2, .epsilon = 0.02, .min_progress = 0.75, .loss_floor = -1.5};
    text = NULL;
    status = wire_limits_encode(&limits, &text, &error);
    seeds_wire_put(folder, 'l', "limits", status, text, &error);

    struct wire_token_request token = {.name = "job-1", .role = "agent", .expires_in_s = 3600};
    memcpy(token.job_prefix, "36199_", 7);
    text = NULL;
    status = wire_token_request_encode(&token, &text, &error);
    seeds_wire_put(folder, 'k', "token", status, text, &error);
}

static void seeds_wire_hold(const char *folder) {
    struct deft_error error;
    const struct wire_pin pin = {.plan = "i7.3"};
    const struct wire_freeze freeze = {.frozen = 1};
    const struct wire_keep keep = {.keep = "raw=30d,jobs=forever"};
    char *text = NULL;
    enum deft_status status = wire_pin_encode(&pin, &text, &error);
    seeds_wire_put(folder, 'i', "pin", status, text, &error);
    text = NULL;
    status = wire_freeze_encode(&freeze, &text, &error);
    seeds_wire_put(folder, 'z', "freeze", status, text, &error);
    text = NULL;
    status = wire_keep_encode(&keep, &text, &error);
    seeds_wire_put(folder, 'a', "keep", status, text, &error);
}

int main(int argc, char **argv) {
    if (argc != 2) {
        (void)fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
        return 2;
    }
    seeds_wire_profile(argv[1]);
    seeds_wire_plan(argv[1]);
    seeds_wire_registration(argv[1]);
    seeds_wire_report(argv[1]);
    seeds_wire_pages(argv[1]);
    seeds_wire_hold(argv[1]);
    return 0;
}
