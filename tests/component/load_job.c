#include "load_job.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define JOB_ELEMENTS    (UINT64_C(1) << 20) /* of a tensor of f32 */
#define JOB_TOTAL_BYTES (LOAD_JOB_TENSORS * JOB_ELEMENTS * 4)
/* A job that is worth tuning: its gradients take 0.8 of a step, of which 0.28 are exposed. */
#define JOB_COMM_FRAC  0.8
#define JOB_LATENCY_NS 100000.0

/* What all-reducing so many bytes takes. */
static int64_t job_op_ns(const struct load_job *job, uint64_t bytes) {
    double per_byte = JOB_COMM_FRAC * (double)job->step_ns / (double)JOB_TOTAL_BYTES;
    return (int64_t)(JOB_LATENCY_NS + per_byte * (double)bytes);
}

void load_job_agent(const struct load_job *job, uint32_t rank, uint32_t n_starts,
                    char out[WIRE_ID_BYTES]) {
    (void)snprintf(out, WIRE_ID_BYTES, "node-%u-%u-%u", job->number, rank, 1000 + n_starts);
}

char *load_job_registration(const struct load_job *job, uint32_t rank, uint32_t n_starts) {
    struct dsched_tensor tensors[LOAD_JOB_TENSORS];
    struct dsched_sample probes[3] = {{.bytes = 4096}, {.bytes = 1u << 20}, {.bytes = 1u << 25}};
    struct wire_link link = {.name = "nccl:0", .n_probes = 3, .probes = probes};
    struct wire_registration registration = {.key = "start-1",
                                             .user = "load",
                                             .version = DEFT_VERSION_TEXT,
                                             .n_ranks = job->n_agents,
                                             .table_hash = 7,
                                             .capabilities = WIRE_CAN_PREVIEW | WIRE_CAN_AVERAGE,
                                             .optimizer = "adamw",
                                             .momentum = 0.9,
                                             .learning_rate = 0.001,
                                             .batch_per_rank = 64,
                                             .n_local_ranks = 1,
                                             .local_ranks = &rank,
                                             .n_tensors = LOAD_JOB_TENSORS,
                                             .tensors = tensors,
                                             .n_links = 1,
                                             .links = &link};
    char *text = NULL;
    memset(tensors, 0, sizeof(tensors));
    for (uint32_t i = 0; i < LOAD_JOB_TENSORS; i++) {
        (void)snprintf(tensors[i].name, sizeof(tensors[i].name), "layers.%u.weight", i);
        tensors[i].elements = JOB_ELEMENTS;
    }
    for (uint32_t i = 0; i < 3; i++) {
        probes[i].ns = job_op_ns(job, probes[i].bytes);
    }
    memcpy(registration.name, job->id, sizeof(registration.name));
    memcpy(registration.mode, job->mode, sizeof(registration.mode));
    load_job_agent(job, rank, n_starts, registration.agent);
    return wire_registration_encode(&registration, &text, NULL) == DEFT_OK ? text : NULL;
}

/* A number in [0, 1) that hangs on nothing but its key: the finalizer of splitmix64. */
static double job_noise(uint64_t key) {
    uint64_t x = (key + 1) * UINT64_C(0x9E3779B97F4A7C15);
    x = (x ^ (x >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94D049BB133111EB);
    return (double)((x ^ (x >> 31)) >> 11) * 0x1p-53;
}

static struct wire_iteration job_iteration(const struct load_job *job, uint32_t rank,
                                           uint64_t iteration) {
    uint64_t key = ((uint64_t)job->number << 44) ^ ((uint64_t)rank << 32) ^ iteration;
    double noise = job_noise(key) - 0.5;
    int is_new = job->plan_seq > 0 && iteration >= job->plan_from;
    int64_t planned_ns = is_new ? job->plan_step_ns : job->old_step_ns;
    int64_t step_ns = planned_ns > 0 ? planned_ns : job->step_ns;
    int64_t compute_ns = job->step_ns * 72 / 100;
    int64_t exposed_ns = step_ns > compute_ns ? step_ns - compute_ns : 0;
    return (struct wire_iteration){
        .rank = rank,
        .iteration = iteration,
        .plan_seq = is_new ? job->plan_seq : job->old_seq,
        .forward_ns = compute_ns * 3 / 10,
        .backward_ns = compute_ns * 6 / 10,
        .exposed_ns = exposed_ns,
        .optimizer_ns = compute_ns / 10,
        .runtime_ns = 40000,
        .step_ns = compute_ns + exposed_ns + (int64_t)(noise * 0.004 * (double)step_ns),
        .bytes = JOB_TOTAL_BYTES,
        .loss = 2.0 / sqrt(1.0 + (double)iteration / 200.0) * (1 + 0.05 * noise),
        .grad_sq_local = 4 + noise,
        .grad_sq_mean = 3,
        .updates = 1,
        .merge = 1,
        .flags = is_new && iteration == job->plan_from ? WIRE_ITERATION_SWITCHED : 0,
        .change_sq_local = (double)NAN,
        .learning_rate = 0.001};
}

char *load_job_report(const struct load_job *job, uint32_t rank, uint32_t n_starts, uint64_t seq,
                      uint64_t number) {
    static const uint64_t sizes[LOAD_JOB_OPS] = {1u << 22, 25u << 20, 26u << 20, 1u << 24};
    enum { MOST = 64 };
    struct wire_iteration rows[MOST];
    struct wire_op_summary ops[LOAD_JOB_OPS];
    int64_t offsets[LOAD_JOB_TENSORS];
    struct wire_readiness readiness = {
        .rank = rank, .n_offsets = LOAD_JOB_TENSORS, .offsets_ns = offsets};
    struct wire_event event = {.rank = rank, .kind = "switched"};
    uint32_t n = job->n_iterations < MOST ? job->n_iterations : MOST;
    uint64_t first = number * n;
    struct wire_report report = {
        .seq = seq, .n_iterations = n, .iterations = rows, .n_ops = LOAD_JOB_OPS, .ops = ops};
    char *text = NULL;
    for (uint32_t i = 0; i < n; i++) {
        rows[i] = job_iteration(job, rank, first + i);
    }
    for (uint32_t i = 0; i < LOAD_JOB_OPS; i++) {
        int64_t ns = job_op_ns(job, sizes[i]);
        ops[i] = (struct wire_op_summary){.rank = rank,
                                          .bytes = sizes[i],
                                          .count = n,
                                          .min_ns = ns,
                                          .median_ns = ns + ns / 50,
                                          .max_ns = ns + ns / 10};
    }
    if ((first + n) / LOAD_JOB_READINESS != first / LOAD_JOB_READINESS) {
        for (uint32_t i = 0; i < LOAD_JOB_TENSORS; i++) {
            offsets[i] = rows[0].backward_ns * (i + 1) / LOAD_JOB_TENSORS;
        }
        readiness.iteration = first + n - 1;
        report.readiness = &readiness;
        report.n_readiness = 1;
    }
    if (job->plan_seq > 0 && job->plan_from >= first && job->plan_from < first + n) {
        event.plan_seq = job->plan_seq;
        event.iteration = job->plan_from;
        report.events = &event;
        report.n_events = 1;
    }
    load_job_agent(job, rank, n_starts, report.agent);
    return wire_report_encode(&report, &text, NULL) == DEFT_OK ? text : NULL;
}
