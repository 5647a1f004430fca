#include "kineto_synthetic.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <deft/status.h>

#include "testing.h"

#define SYNTHETIC_MAX_EVENTS  4096u
#define SYNTHETIC_EVENT_BYTES 320u
#define SYNTHETIC_BEFORE      UINT64_C(999999)
#define SYNTHETIC_EPOCH_NS    INT64_C(1700000000000000000)

/* One rank while it is written. */
struct synthetic_rank {
    struct synthetic *job;
    uint32_t rank;
    uint32_t n_events;
    char (*events)[SYNTHETIC_EVENT_BYTES];
    uint64_t correlation;
    int64_t host_ns;    /* the next call */
    int64_t compute_ns; /* the compute stream is busy until then */
    int64_t link_ns;    /* the communication stream */
    int64_t begin_ns;   /* of the step */
    uint32_t n_spans;   /* compute of the step */
    int64_t spans_ns[2 * SYNTHETIC_MAX_LAYERS + 2][2];
};

static int64_t between(struct synthetic *job, int64_t least, int64_t most) {
    return least + (int64_t)testing_random_below(&job->state, (uint64_t)(most - least + 1));
}

void synthetic_init(struct synthetic *job, uint64_t seed) {
    static const enum dsched_dtype dtypes[] = {DSCHED_F32, DSCHED_F64, DSCHED_F16, DSCHED_BF16};
    *job = (struct synthetic){.state = seed};
    job->n_steps = (uint32_t)between(job, 1, SYNTHETIC_MAX_STEPS);
    job->n_ranks = (uint32_t)between(job, 1, SYNTHETIC_MAX_RANKS);
    job->n_buckets = (uint32_t)between(job, 1, SYNTHETIC_MAX_BUCKETS);
    job->n_layers = (uint32_t)between(job, job->n_buckets, SYNTHETIC_MAX_LAYERS);
    job->dtype = dtypes[between(job, 0, 3)];
    job->with_shapes = (int)between(job, 0, 1);
    job->with_odd_shapes = between(job, 0, 3) == 0;
    job->with_tail = (int)between(job, 0, 1);
    job->with_old_titles = (int)between(job, 0, 1);
    job->with_foreign = (int)between(job, 0, 1);
    job->host_lead_ns = between(job, 0, 1) ? 0 : between(job, 0, 5000000);
    for (uint32_t i = 0; i < job->n_layers; i++) {
        uint32_t left = job->n_layers - i;
        uint32_t bucket = i == 0 ? 0 : job->bucket_of[i - 1];
        uint32_t to_open = job->n_buckets - 1 - bucket;
        if (i > 0 && to_open > 0 && (left <= to_open || between(job, 0, 2) == 0)) {
            bucket++;
        }
        job->bucket_of[i] = bucket;
        job->layer_elements[i] = (uint64_t)between(job, 1, 3000000);
        job->bucket_elements[bucket] += job->layer_elements[i];
    }
    for (uint32_t b = 0; b < job->n_buckets; b++) {
        job->transfer_ns[b] = between(job, 20000, 3000000);
    }
}

static void event(struct synthetic_rank *to, const char *format, ...) DEFT_PRINTF(2, 3);
static void event(struct synthetic_rank *to, const char *format, ...) {
    char text[SYNTHETIC_EVENT_BYTES];
    va_list arguments;
    va_start(arguments, format);
    int n = vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    assert_in_range(n, 1, SYNTHETIC_EVENT_BYTES - 1);
    assert_in_range(to->n_events, 0, SYNTHETIC_MAX_EVENTS - 1);
    memcpy(to->events[to->n_events++], text, sizeof(text));
}

/* Microseconds with three decimals, as Kineto writes them. */
#define TIME_FORMAT      "%" PRId64 ".%03" PRId64
#define TIME_OF(ns)      ((ns) / 1000), ((ns) % 1000)
#define HEAD_FORMAT      "{\"ph\":\"X\",\"cat\":\"%s\",\"name\":\"%s\",\"pid\":7,\"tid\":%d,\"ts\":"
#define SPAN_FORMAT      TIME_FORMAT ",\"dur\":" TIME_FORMAT
#define SPAN_OF(ns, dur) TIME_OF(SYNTHETIC_EPOCH_NS + (ns)), TIME_OF(dur)
#define MAIN_THREAD      100
#define AUTOGRAD_THREAD  200

static void call(struct synthetic_rank *to, const char *category, const char *name, int thread,
                 int64_t begin_ns, int64_t duration_ns) {
    event(to, HEAD_FORMAT SPAN_FORMAT "}", category, name, thread, SPAN_OF(begin_ns, duration_ns));
}

static void launch(struct synthetic_rank *to, int thread) {
    to->correlation++;
    event(to, HEAD_FORMAT SPAN_FORMAT ",\"args\":{\"correlation\":%" PRIu64 "}}", "cuda_runtime",
          "cudaLaunchKernel", thread, SPAN_OF(to->host_ns, INT64_C(500)), to->correlation);
    to->host_ns += 1000;
}

static void kernel(struct synthetic_rank *to, const char *name, int64_t begin_ns,
                   int64_t duration_ns) {
    event(to, HEAD_FORMAT SPAN_FORMAT ",\"args\":{\"correlation\":%" PRIu64 ",\"stream\":7}}",
          "kernel", name, 7, SPAN_OF(begin_ns, duration_ns), to->correlation);
}

/* A kernel on the compute stream; returns how long it runs. */
static int64_t compute(struct synthetic_rank *to, int thread) {
    int64_t duration_ns = between(to->job, 2000, 200000);
    int64_t launched_ns = to->host_ns;
    launch(to, thread);
    if (to->compute_ns < launched_ns) {
        to->compute_ns = launched_ns;
    }
    kernel(to, "void gemm<float>(float*)", to->compute_ns, duration_ns);
    to->spans_ns[to->n_spans][0] = to->compute_ns;
    to->compute_ns += duration_ns;
    to->spans_ns[to->n_spans++][1] = to->compute_ns;
    return duration_ns;
}

/* A collective of `elements`, with what tells about it on the host. Returns its begin. */
static int64_t collective(struct synthetic_rank *to, const char *name, const char *dtype,
                          uint64_t elements, int thread, int64_t duration_ns) {
    int64_t from_ns = to->host_ns;
    int64_t begin_ns = from_ns + 100;
    int is_old = to->job->with_old_titles;
    to->host_ns += 100;
    launch(to, thread);
    begin_ns = begin_ns > to->compute_ns ? begin_ns : to->compute_ns;
    begin_ns = begin_ns > to->link_ns ? begin_ns : to->link_ns;
    kernel(to, "ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)", begin_ns, duration_ns);
    to->link_ns = begin_ns + duration_ns;
    if (!is_old) {
        event(to,
              HEAD_FORMAT SPAN_FORMAT ",\"args\":{\"Collective name\":\"%s\",\"dtype\":\"%s\","
                                      "\"In msg nelems\":%" PRIu64
                                      ",\"Process Group Name\":\"0\",\"Group size\":%u}}",
              "cpu_op", "record_param_comms", thread, SPAN_OF(from_ns, INT64_C(1100)), name, dtype,
              elements, to->job->n_ranks);
    }
    event(to,
          HEAD_FORMAT SPAN_FORMAT ",\"args\":{\"Input Dims\":[[%" PRIu64
                                  "]],\"Input type\":[\"%s\"]}}",
          "user_annotation", strcmp(name, "allreduce") == 0 ? "nccl:all_reduce" : "nccl:broadcast",
          thread, SPAN_OF(from_ns + 10, INT64_C(1000)), is_old ? elements : 0, dtype);
    return begin_ns;
}

static void parameter(struct synthetic_rank *to, uint32_t layer) {
    if (to->job->with_shapes) {
        event(to, HEAD_FORMAT SPAN_FORMAT ",\"args\":{\"Input Dims\":[[%" PRIu64 ",1]]}}", "cpu_op",
              "torch::autograd::AccumulateGrad", AUTOGRAD_THREAD, SPAN_OF(to->host_ns, INT64_C(10)),
              to->job->layer_elements[layer] + (uint64_t)to->job->with_odd_shapes);
        to->host_ns += 20;
    }
}

static const char *dtype_name(const struct synthetic *job) {
    static const char *const names[] = {"Float", "Double", "c10::Half", "BFloat16"};
    return names[job->dtype];
}

/* A collective that is not of gradients, on a stream of its own. */
static void foreign(struct synthetic_rank *to, const char *name, const char *dtype, int thread) {
    int64_t link_ns = to->link_ns;
    if (to->job->with_foreign) {
        (void)collective(to, name, dtype, 77, thread, 3000);
        to->link_ns = link_ns;
    }
}

static void backward(struct synthetic_rank *to, struct synthetic_step *truth) {
    struct synthetic *job = to->job;
    int64_t host_begin_ns = to->host_ns;
    to->host_ns += 100;
    for (uint32_t i = 0; i < job->n_layers; i++) {
        int64_t before_ns = to->compute_ns;
        uint32_t b = job->bucket_of[i];
        truth->backward_busy_ns += compute(to, AUTOGRAD_THREAD);
        if (i == 0) {
            int64_t launched_ns = host_begin_ns + 100;
            truth->backward_begin_ns =
                (before_ns > launched_ns ? before_ns : launched_ns) - to->begin_ns;
        }
        parameter(to, i);
        if (i == 0) {
            foreign(to, "allreduce", "Long", AUTOGRAD_THREAD);
        }
        if (i + 1 < job->n_layers && job->bucket_of[i + 1] == b) {
            continue;
        }
        struct synthetic_reduce *reduce = &truth->reduces[b];
        int64_t asked_ns = to->host_ns + 100;
        int64_t begin_ns = collective(to, "allreduce", dtype_name(job), job->bucket_elements[b],
                                      AUTOGRAD_THREAD, job->transfer_ns[b] + reduce->wait_ns);
        reduce->ready_ns = (asked_ns > to->compute_ns ? asked_ns : to->compute_ns) - to->begin_ns;
        reduce->begin_ns = begin_ns - to->begin_ns;
        reduce->end_ns = to->link_ns - to->begin_ns;
    }
    truth->backward_end_ns = to->compute_ns - to->begin_ns;
    call(to, "cpu_op", "autograd::engine::evaluate_function: AddmmBackward0", AUTOGRAD_THREAD,
         host_begin_ns, to->host_ns - host_begin_ns);
}

/* Communication with nothing else running: neither kernels nor all-reduces overlap each other. */
static int64_t exposed(const struct synthetic_rank *to, const struct synthetic_step *truth) {
    int64_t total_ns = 0;
    for (uint32_t b = 0; b < to->job->n_buckets; b++) {
        int64_t begin_ns = truth->reduces[b].begin_ns + to->begin_ns;
        int64_t end_ns = truth->reduces[b].end_ns + to->begin_ns;
        total_ns += end_ns - begin_ns;
        for (uint32_t i = 0; i < to->n_spans; i++) {
            int64_t from_ns = to->spans_ns[i][0] > begin_ns ? to->spans_ns[i][0] : begin_ns;
            int64_t to_ns = to->spans_ns[i][1] < end_ns ? to->spans_ns[i][1] : end_ns;
            total_ns -= to_ns > from_ns ? to_ns - from_ns : 0;
        }
    }
    return total_ns;
}

static void step(struct synthetic_rank *to, uint32_t number) {
    struct synthetic *job = to->job;
    struct synthetic_step *truth = &job->truth[to->rank][number];
    int64_t host_begin_ns = to->host_ns;
    char name[40];
    to->begin_ns = host_begin_ns > to->compute_ns ? host_begin_ns : to->compute_ns;
    to->n_spans = 0;
    for (uint32_t i = 0; i < job->n_layers; i++) {
        truth->forward_busy_ns += compute(to, MAIN_THREAD);
    }
    foreign(to, "broadcast", "Float", MAIN_THREAD);
    backward(to, truth);
    truth->exposed_ns = exposed(to, truth);
    int64_t done_ns = to->compute_ns > to->link_ns ? to->compute_ns : to->link_ns;
    to->compute_ns = done_ns;
    if (job->with_tail) {
        truth->optimizer_busy_ns += compute(to, AUTOGRAD_THREAD);
    }
    int64_t optimizer_ns = to->host_ns;
    truth->optimizer_busy_ns += compute(to, MAIN_THREAD);
    call(to, "user_annotation", "Optimizer.step#SGD.step", MAIN_THREAD, optimizer_ns,
         to->host_ns - optimizer_ns);
    foreign(to, "allreduce", "Float", MAIN_THREAD);
    if (job->host_lead_ns == 0) {
        to->host_ns = to->compute_ns + 5000; /* the program waits for the device, as loss.item() */
    }
    (void)snprintf(name, sizeof(name), "ProfilerStep#%u", number + 10);
    call(to, "user_annotation", name, MAIN_THREAD, host_begin_ns, to->host_ns - host_begin_ns);
    int64_t end_ns = to->compute_ns > to->host_ns ? to->compute_ns : to->host_ns;
    truth->step_ns = end_ns - to->begin_ns;
}

/* Per all-reduce one rank comes last, and the others wait for it. */
static void draw_waits(struct synthetic *job, uint32_t rank) {
    for (uint32_t s = 0; s < job->n_steps; s++) {
        for (uint32_t b = 0; b < job->n_buckets; b++) {
            int is_last = (s + b) % job->n_ranks == rank;
            job->truth[rank][s].reduces[b].wait_ns = is_last ? 0 : between(job, 1, 500000);
        }
    }
}

char *synthetic_write(struct synthetic *job, uint32_t rank, size_t *out_bytes) {
    struct synthetic_rank to = {.job = job, .rank = rank};
    char *text = NULL;
    to.events = calloc(SYNTHETIC_MAX_EVENTS, sizeof(*to.events));
    assert_non_null(to.events);
    memset(job->truth[rank], 0, sizeof(job->truth[rank]));
    draw_waits(job, rank);
    if (job->host_lead_ns > 0) {
        /* The device still works on what was launched before the trace began. */
        to.correlation = SYNTHETIC_BEFORE;
        kernel(&to, "void before(float*)", 0, job->host_lead_ns);
        to.compute_ns = job->host_lead_ns;
        to.correlation = 0;
    }
    for (uint32_t s = 0; s < job->n_steps; s++) {
        step(&to, s);
    }
    for (uint32_t i = to.n_events - 1; i > 0; i--) {
        char copy[SYNTHETIC_EVENT_BYTES];
        uint32_t other = (uint32_t)testing_random_below(&job->state, i + 1);
        memcpy(copy, to.events[i], sizeof(copy));
        memcpy(to.events[i], to.events[other], sizeof(copy));
        memcpy(to.events[other], copy, sizeof(copy));
    }
    FILE *file = open_memstream(&text, out_bytes);
    assert_non_null(file);
    (void)fprintf(file,
                  "{\"schemaVersion\": 1, \"distributedInfo\": {\"backend\": \"nccl\", \"rank\": "
                  "%u, \"world_size\": %u}, \"traceEvents\": [\n",
                  rank, job->n_ranks);
    for (uint32_t i = 0; i < to.n_events; i++) {
        (void)fprintf(file, "%s%s\n", i == 0 ? "" : ",", to.events[i]);
    }
    (void)fprintf(file, "], \"traceName\": \"synthetic.json\"}\n");
    assert_int_equal(fclose(file), 0);
    free(to.events);
    return text;
}
