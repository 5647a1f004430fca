#include "gpu_job.h"

#include <cuda_runtime_api.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/runtime.h"
#include "testing.h"

static const struct {
    const char *name;
    uint64_t elements;
    enum deft_dtype dtype;
} tensors[GPU_JOB_TENSORS] = {{"embedding", 1537, DEFT_F32},
                              {"bias", 37, DEFT_F32},
                              {"weight", 2048, DEFT_F32},
                              {"head", 129, DEFT_F64}};

static size_t width(uint32_t t) {
    return tensors[t].dtype == DEFT_F64 ? 8 : 4;
}

uint64_t gpu_job_elements(void) {
    uint64_t n = 0;
    for (uint32_t t = 0; t < GPU_JOB_TENSORS; t++) {
        n += tensors[t].elements;
    }
    return n;
}

size_t gpu_job_bytes(void) {
    size_t n = 0;
    for (uint32_t t = 0; t < GPU_JOB_TENSORS; t++) {
        n += (size_t)tensors[t].elements * width(t);
    }
    return n;
}

#define BAD_TENSOR 2 /* weight */

/* A rank's own. */
struct gpu_rank {
    struct world_rank *self;
    struct gpu_job *job;
    int is_cuda;
    void *streams[2];
    uint8_t *w[GPU_JOB_TENSORS];
    uint8_t *gradient[GPU_JOB_TENSORS];
    uint8_t *momentum[GPU_JOB_TENSORS];
    void *host; /* room for the largest tensor */
};

static void fill(void *into, uint32_t t, uint64_t seed) {
    uint64_t random = seed * UINT64_C(0x9e3779b97f4a7c15) + t + 1;
    for (uint64_t i = 0; i < tensors[t].elements; i++) {
        double value = (double)(testing_random(&random) >> 11) / 9007199254740992.0 - 0.5;
        if (tensors[t].dtype == DEFT_F64) {
            ((double *)into)[i] = value;
        } else {
            ((float *)into)[i] = (float)value;
        }
    }
}

static void *make_memory(const struct gpu_rank *rank, size_t n_bytes) {
    void *memory = NULL;
    if (!rank->is_cuda) {
        memory = calloc(1, n_bytes);
    } else if (cudaMalloc(&memory, n_bytes) != cudaSuccess) {
        memory = NULL;
    }
    WORLD_CHECK(rank->self, memory != NULL, "no memory");
    return memory;
}

/* From `host`. */
static void put(const struct gpu_rank *rank, void *stream, void *into, size_t n_bytes) {
    if (rank->is_cuda) {
        standin_produce(stream, into, rank->host, n_bytes);
    } else {
        memcpy(into, rank->host, n_bytes);
    }
}

static enum deft_status set_up(struct gpu_rank *rank, struct deft_error *error) {
    struct deft_runtime *rt = rank->self->rt;
    enum deft_status status = DEFT_OK;
    rank->host = malloc(gpu_job_bytes());
    /* Threads share the default stream, ranks that are processes do not. */
    for (int i = 0; i < 2 && rank->is_cuda; i++) {
        if (cudaStreamCreateWithPriority((cudaStream_t *)&rank->streams[i], cudaStreamNonBlocking,
                                         0) != cudaSuccess) {
            world_abort();
        }
    }
    deft_stream(rt, rank->streams[0]);
    for (uint32_t t = 0; t < GPU_JOB_TENSORS && status == DEFT_OK; t++) {
        size_t n_bytes = (size_t)tensors[t].elements * width(t);
        rank->w[t] = make_memory(rank, n_bytes);
        rank->gradient[t] = make_memory(rank, n_bytes);
        rank->momentum[t] = make_memory(rank, n_bytes);
        rank->job->memory[rank->self->rank][t] = rank->w[t];
        rank->job->memory[rank->self->rank][GPU_JOB_TENSORS + t] = rank->gradient[t];
        rank->job->memory[rank->self->rank][2 * GPU_JOB_TENSORS + t] = rank->momentum[t];
        fill(rank->host, t, 1000 + (uint64_t)rank->self->rank); /* rank 0's must go to all */
        put(rank, rank->streams[0], rank->w[t], n_bytes);
        struct deft_tensor tensor = {.name = tensors[t].name,
                                     .elements = tensors[t].elements,
                                     .dtype = tensors[t].dtype,
                                     .parameters = rank->w[t]};
        uint32_t id = 0;
        status = deft_tensor_add(rt, &tensor, &id, error);
        if (status == DEFT_OK && rank->job->has_momentum) {
            memset(rank->host, 0, n_bytes);
            put(rank, rank->streams[0], rank->momentum[t], n_bytes);
            status =
                deft_state_add(rt, rank->momentum[t], tensors[t].elements, tensors[t].dtype, error);
        }
    }
    return status == DEFT_OK ? deft_commit(rt, error) : status;
}

/* x -= rate * y */
static void step(const struct gpu_rank *rank, uint32_t t, void *x, const void *y, double rate) {
    if (rank->is_cuda) {
        standin_descend(rank->streams[0], (int)tensors[t].dtype, x, y, tensors[t].elements, rate);
        return;
    }
    for (uint64_t i = 0; i < tensors[t].elements; i++) {
        if (tensors[t].dtype == DEFT_F64) {
            ((double *)x)[i] -= rate * ((const double *)y)[i];
        } else {
            ((float *)x)[i] -= (float)rate * ((const float *)y)[i];
        }
    }
}

static void descend(const struct gpu_rank *rank, const struct deft_update *update) {
    for (uint32_t t = 0; t < GPU_JOB_TENSORS; t++) {
        const void *g = update->gradients[t];
        if (g != NULL && rank->job->has_momentum) {
            step(rank, t, rank->momentum[t], rank->momentum[t], 0.5);
            step(rank, t, rank->momentum[t], g, -1.0);
            g = rank->momentum[t];
        }
        if (g != NULL) {
            step(rank, t, rank->w[t], g, 0.125);
        }
    }
}

static enum deft_status drain(struct gpu_rank *rank, struct deft_error *error) {
    struct deft_update update = {.action = DEFT_DONE};
    enum deft_status status;
    do {
        status = deft_drain(rank->self->rt, &update, error);
        if (status == DEFT_OK && update.action == DEFT_APPLY) {
            descend(rank, &update);
        }
    } while (status == DEFT_OK && update.action != DEFT_DONE);
    rank->job->n_told_skipped[rank->self->rank] += status == DEFT_OK ? update.skipped : 0;
    return status;
}

static void give(struct gpu_rank *rank, uint32_t t, uint64_t iteration) {
    const struct gpu_job *job = rank->job;
    size_t n_bytes = (size_t)tensors[t].elements * width(t);
    void *stream = rank->streams[job->two_streams ? t % 2 : 0];
    fill(rank->host, t, iteration * 64 + (uint64_t)rank->self->rank);
    if (iteration + 1 == job->bad_at && rank->self->rank == job->bad_rank && t == BAD_TENSOR) {
        ((float *)rank->host)[tensors[t].elements - 1] = INFINITY;
    }
    deft_stream(rank->self->rt, stream);
    put(rank, stream, rank->gradient[t], n_bytes);
    WORLD_CHECK(rank->self, deft_grad_ready(rank->self->rt, t, rank->gradient[t]) == DEFT_OK,
                "gradient refused");
}

/* As an agent would bring them. */
static void offer(const struct gpu_rank *rank, uint64_t iteration) {
    const struct gpu_job *job = rank->job;
    uint8_t bytes[4096];
    for (uint32_t i = 0; i < GPU_JOB_PLANS; i++) {
        if (job->next_plans[i] == NULL || job->next_at[i] != iteration) {
            continue;
        }
        const struct ipc_plan head = {.seq = i + 1,
                                      .hash = dsched_plan_hash(job->next_plans[i]),
                                      .max_loss = NAN,
                                      .max_grad_sq = NAN};
        size_t n_bytes = dsched_plan_encode(job->next_plans[i], bytes, sizeof(bytes));
        struct deft_error error = {.text = ""};
        WORLD_CHECK(rank->self,
                    admission_offer(rank->self->rt, &head, bytes, n_bytes, &error) == DEFT_OK, "%s",
                    error.text);
    }
}

static enum deft_status iterate(struct gpu_rank *rank, uint64_t iteration,
                                struct deft_error *error) {
    struct deft_runtime *rt = rank->self->rt;
    struct deft_update update = {.action = DEFT_DONE};
    enum deft_status status = DEFT_OK;
    offer(rank, iteration);
    standin_in_step(rank->job->next_plans[0] == NULL); /* to take one up is to wait */
    deft_forward_begin(rt);
    deft_loss(rt, 1.0);
    deft_backward_begin(rt);
    for (uint32_t t = GPU_JOB_TENSORS; t-- > 0;) {
        give(rank, t, iteration);
    }
    deft_stream(rt, rank->streams[0]);
    do {
        status = deft_step(rt, &update, error);
        if (status == DEFT_OK && update.action != DEFT_DONE) {
            descend(rank, &update);
        }
        rank->job->n_told_skipped[rank->self->rank] +=
            status == DEFT_OK && update.action == DEFT_DONE ? update.skipped : 0;
    } while (status == DEFT_OK && update.action != DEFT_DONE);
    standin_in_step(0);
    return status;
}

static void keep(const struct gpu_rank *rank, uint8_t *const *from, uint8_t *into) {
    for (uint32_t t = 0; t < GPU_JOB_TENSORS; t++) {
        size_t n_bytes = (size_t)tensors[t].elements * width(t);
        if (rank->is_cuda) {
            standin_consume(rank->streams[0], into, from[t], n_bytes);
        } else {
            memcpy(into, from[t], n_bytes);
        }
        into += n_bytes;
    }
}

static void keep_results(const struct gpu_rank *rank) {
    struct gpu_job *job = rank->job;
    int32_t r = rank->self->rank;
    const struct mailbox *mailbox = &rank->self->rt->mailbox;
    keep(rank, rank->w, job->parameters[r]);
    keep(rank, rank->momentum, job->momentum[r]);
    if (rank->is_cuda) {
        standin_finish();
    }
    deft_stats(rank->self->rt, &job->stats[r]);
    job->n_readiness[r] = mailbox->readiness_head.n_iterations;
    memcpy(job->readiness_ns[r], mailbox->readiness, sizeof(job->readiness_ns[0]));
}

static enum deft_status train(struct gpu_rank *rank, struct deft_error *error) {
    struct gpu_job *job = rank->job;
    enum deft_status status = set_up(rank, error);
    (void)snprintf(job->notice[rank->self->rank], sizeof(job->notice[0]), "%s",
                   deft_notice(rank->self->rt));
    if (status != DEFT_OK) {
        return status;
    }
    (void)pthread_barrier_wait(&job->barrier);
    if (job->is_held) {
        standin_hold(1);
    }
    (void)pthread_barrier_wait(&job->barrier);
    for (uint64_t i = 0; i < job->n_iterations && status == DEFT_OK; i++) {
        if (job->meddle != NULL && rank->self->rank == 0) {
            job->meddle(job, i);
        }
        status = iterate(rank, i, error);
        if (status == DEFT_OK && job->drain_twice && i == job->n_iterations / 2) {
            status = drain(rank, error);
        }
    }
    if (job->is_held) {
        (void)pthread_barrier_wait(&job->barrier);
        standin_hold(0);
    }
    if (status == DEFT_OK) {
        status = drain(rank, error);
    }
    if (status == DEFT_OK) {
        keep_results(rank);
    }
    return status;
}

static void run_rank(struct world_rank *self) {
    struct gpu_rank rank = {.self = self, .job = self->world->shared};
    struct gpu_job *job = rank.job;
    rank.is_cuda = strcmp(job->device, "cpu") != 0;
    job->status[self->rank] = train(&rank, &job->error[self->rank]);
    free(rank.host);
}

static void tune(const struct world_rank *self, struct deft_options *options) {
    const struct gpu_job *job = self->world->shared;
    static _Thread_local uint8_t bytes[4096];
    options->capabilities = DEFT_CAN_PREVIEW | DEFT_CAN_SKIP | DEFT_CAN_AVERAGE;
    options->device = job->device;
    options->write_back = job->write_back;
    options->op_timeout_ns = job->op_timeout_ns != 0 ? job->op_timeout_ns : testing_deadline_ns(60);
    options->max_pending_bytes = job->max_pending_copies * (uint64_t)gpu_job_bytes();
    if (job->plan != NULL) {
        options->first_plan = bytes;
        options->first_plan_bytes = dsched_plan_encode(job->plan, bytes, sizeof(bytes));
    }
}

void gpu_job_run(struct gpu_job *job) {
    for (int32_t r = 0; r < GPU_JOB_RANKS; r++) {
        job->parameters[r] = calloc(1, gpu_job_bytes());
        job->momentum[r] = calloc(1, gpu_job_bytes());
        assert_non_null(job->parameters[r]);
        assert_non_null(job->momentum[r]);
    }
    assert_int_equal(pthread_barrier_init(&job->barrier, NULL, GPU_JOB_RANKS), 0);
    world_run_tuned(GPU_JOB_RANKS, job->links, 0, NULL, tune, job, run_rank);
    (void)pthread_barrier_destroy(&job->barrier);
    standin_hold(0);
    for (int32_t r = 0; r < GPU_JOB_RANKS; r++) {
        for (uint32_t i = 0; i < GPU_JOB_BUFFERS; i++) {
            if (strcmp(job->device, "cpu") == 0) {
                free(job->memory[r][i]);
            } else {
                (void)cudaFree(job->memory[r][i]);
            }
            job->memory[r][i] = NULL;
        }
    }
}

void gpu_job_done(struct gpu_job *job) {
    for (int32_t r = 0; r < GPU_JOB_RANKS; r++) {
        free(job->parameters[r]);
        free(job->momentum[r]);
        job->parameters[r] = job->momentum[r] = NULL;
    }
}

void gpu_job_check_against_host(const struct gpu_job *job) {
    struct mem_fabric *fabrics[2] = {NULL, NULL};
    char links[128];
    for (int i = 0; i < 2; i++) {
        assert_int_equal(mem_fabric_create(GPU_JOB_RANKS, NULL, &fabrics[i], NULL), DEFT_OK);
    }
    (void)snprintf(links, sizeof(links), "%s,%s", mem_fabric_link(fabrics[0]),
                   mem_fabric_link(fabrics[1]));
    struct gpu_job reference = {.device = "cpu",
                                .links = links,
                                .plan = job->plan,
                                .write_back = job->write_back,
                                .n_iterations = job->n_iterations,
                                .drain_twice = job->drain_twice,
                                .has_momentum = job->has_momentum,
                                .bad_at = job->bad_at,
                                .bad_rank = job->bad_rank};
    memcpy(reference.next_plans, job->next_plans, sizeof(job->next_plans));
    memcpy(reference.next_at, job->next_at, sizeof(job->next_at));
    gpu_job_run(&reference);
    for (int32_t r = 0; r < GPU_JOB_RANKS; r++) {
        assert_int_equal(reference.status[r], DEFT_OK);
        assert_memory_equal(job->parameters[r], reference.parameters[0], gpu_job_bytes());
        if (job->has_momentum) {
            assert_memory_equal(job->momentum[r], reference.momentum[0], gpu_job_bytes());
        }
        assert_int_equal(job->stats[r].updates, reference.stats[r].updates);
        assert_int_equal(job->stats[r].skipped, reference.stats[r].skipped);
        assert_int_equal(job->stats[r].switches, reference.stats[r].switches);
    }
    gpu_job_done(&reference);
    for (int i = 0; i < 2; i++) {
        mem_fabric_destroy(fabrics[i]);
    }
}
