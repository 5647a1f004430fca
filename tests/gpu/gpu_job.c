#include "gpu_job.h"

#include <cuda_runtime_api.h>
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

/* A rank's own. */
struct gpu_rank {
    struct world_rank *self;
    struct gpu_job *job;
    int is_cuda;
    void *streams[2];
    uint8_t *w[GPU_JOB_TENSORS];
    uint8_t *gradient[GPU_JOB_TENSORS];
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
        rank->job->memory[rank->self->rank][t] = rank->w[t];
        rank->job->memory[rank->self->rank][GPU_JOB_TENSORS + t] = rank->gradient[t];
        fill(rank->host, t, 1000 + (uint64_t)rank->self->rank); /* rank 0's must go to all */
        if (rank->is_cuda) {
            standin_produce(rank->streams[0], rank->w[t], rank->host, n_bytes);
        } else {
            memcpy(rank->w[t], rank->host, n_bytes);
        }
        struct deft_tensor tensor = {.name = tensors[t].name,
                                     .elements = tensors[t].elements,
                                     .dtype = tensors[t].dtype,
                                     .parameters = rank->w[t]};
        uint32_t id = 0;
        status = deft_tensor_add(rt, &tensor, &id, error);
    }
    return status == DEFT_OK ? deft_commit(rt, error) : status;
}

static void descend(const struct gpu_rank *rank, void *stream, const struct deft_update *update) {
    for (uint32_t t = 0; t < GPU_JOB_TENSORS; t++) {
        const void *g = update->gradients[t];
        if (g != NULL && rank->is_cuda) {
            standin_descend(stream, (int)tensors[t].dtype, rank->w[t], g, tensors[t].elements,
                            0.125);
        }
        for (uint64_t i = 0; g != NULL && !rank->is_cuda && i < tensors[t].elements; i++) {
            if (tensors[t].dtype == DEFT_F64) {
                ((double *)rank->w[t])[i] -= 0.125 * ((const double *)g)[i];
            } else {
                ((float *)rank->w[t])[i] -= 0.125f * ((const float *)g)[i];
            }
        }
    }
}

static enum deft_status drain(struct gpu_rank *rank, struct deft_error *error) {
    struct deft_update update = {.action = DEFT_DONE};
    enum deft_status status;
    do {
        status = deft_drain(rank->self->rt, &update, error);
        if (status == DEFT_OK && update.action == DEFT_APPLY) {
            descend(rank, rank->streams[0], &update);
        }
    } while (status == DEFT_OK && update.action != DEFT_DONE);
    return status;
}

static void give(struct gpu_rank *rank, uint32_t t, uint64_t iteration) {
    size_t n_bytes = (size_t)tensors[t].elements * width(t);
    void *stream = rank->streams[rank->job->two_streams ? t % 2 : 0];
    fill(rank->host, t, iteration * 64 + (uint64_t)rank->self->rank);
    deft_stream(rank->self->rt, stream);
    if (rank->is_cuda) {
        standin_produce(stream, rank->gradient[t], rank->host, n_bytes);
    } else {
        memcpy(rank->gradient[t], rank->host, n_bytes);
    }
    WORLD_CHECK(rank->self, deft_grad_ready(rank->self->rt, t, rank->gradient[t]) == DEFT_OK,
                "gradient refused");
}

static enum deft_status iterate(struct gpu_rank *rank, uint64_t iteration,
                                struct deft_error *error) {
    struct deft_runtime *rt = rank->self->rt;
    struct deft_update update = {.action = DEFT_DONE};
    enum deft_status status = DEFT_OK;
    standin_in_step(1);
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
            descend(rank, rank->streams[0], &update);
        }
    } while (status == DEFT_OK && update.action != DEFT_DONE);
    standin_in_step(0);
    return status;
}

static void keep_parameters(struct gpu_rank *rank) {
    uint8_t *into = rank->job->parameters[rank->self->rank];
    for (uint32_t t = 0; t < GPU_JOB_TENSORS; t++) {
        size_t n_bytes = (size_t)tensors[t].elements * width(t);
        if (rank->is_cuda) {
            standin_consume(rank->streams[0], into, rank->w[t], n_bytes);
        } else {
            memcpy(into, rank->w[t], n_bytes);
        }
        into += n_bytes;
    }
    if (rank->is_cuda) {
        standin_finish();
    }
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
        keep_parameters(rank);
        deft_stats(rank->self->rt, &job->stats[rank->self->rank]);
        const struct mailbox *mailbox = &rank->self->rt->mailbox;
        job->n_readiness[rank->self->rank] = mailbox->readiness_head.n_iterations;
        memcpy(job->readiness_ns[rank->self->rank], mailbox->readiness,
               sizeof(job->readiness_ns[0]));
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
    if (job->plan != NULL) {
        options->first_plan = bytes;
        options->first_plan_bytes = dsched_plan_encode(job->plan, bytes, sizeof(bytes));
    }
}

void gpu_job_run(struct gpu_job *job) {
    for (int32_t r = 0; r < GPU_JOB_RANKS; r++) {
        job->parameters[r] = calloc(1, gpu_job_bytes());
        assert_non_null(job->parameters[r]);
    }
    assert_int_equal(pthread_barrier_init(&job->barrier, NULL, GPU_JOB_RANKS), 0);
    world_run_tuned(GPU_JOB_RANKS, job->links, 0, NULL, tune, job, run_rank);
    (void)pthread_barrier_destroy(&job->barrier);
    standin_hold(0);
    for (int32_t r = 0; r < GPU_JOB_RANKS; r++) {
        for (uint32_t i = 0; i < 2 * GPU_JOB_TENSORS; i++) {
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
        job->parameters[r] = NULL;
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
                                .drain_twice = job->drain_twice};
    gpu_job_run(&reference);
    for (int32_t r = 0; r < GPU_JOB_RANKS; r++) {
        assert_int_equal(reference.status[r], DEFT_OK);
        assert_memory_equal(job->parameters[r], reference.parameters[0], gpu_job_bytes());
    }
    gpu_job_done(&reference);
    for (int i = 0; i < 2; i++) {
        mem_fabric_destroy(fabrics[i]);
    }
}
