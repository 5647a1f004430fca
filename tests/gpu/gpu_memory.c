/* A plan whose all-reduces need more pinned memory than there is: it is refused, and the job trains
 * on. One rank, which is not measured, so that its links have no memory before a plan asks. */
#include <cuda_runtime_api.h>
#include <math.h>
#include <string.h>

#include "link/device.h"
#include "runtime/runtime.h"
#include "standin.h"
#include "testing.h"
#include "world.h"

#define N_ELEMENTS   64u
#define N_ITERATIONS 8u

static void *make_memory(const struct world_rank *self) {
    void *memory = NULL;
    WORLD_CHECK(self, cudaMalloc(&memory, N_ELEMENTS * sizeof(float)) == cudaSuccess, "no memory");
    return memory;
}

/* All on the second link, which goes through pinned memory. */
static enum deft_status offer(const struct world_rank *self, uint64_t seq,
                              struct deft_error *error) {
    uint8_t bytes[512];
    struct dsched_plan plan;
    WORLD_CHECK(self, dsched_plan_init(&plan, 1, 1) == DSCHED_OK, "no plan");
    plan.n_links = 2;
    plan.merge[0] = 1;
    plan.ops[0].link = 1;
    plan.buckets[0].end = N_ELEMENTS;
    const struct ipc_plan head = {
        .seq = seq, .hash = dsched_plan_hash(&plan), .max_loss = NAN, .max_grad_sq = NAN};
    size_t n_bytes = dsched_plan_encode(&plan, bytes, sizeof(bytes));
    enum deft_status status = admission_offer(self->rt, &head, bytes, n_bytes, error);
    dsched_plan_done(&plan);
    return status;
}

static void iterate(const struct world_rank *self, const void *gradient) {
    struct deft_update update = {.action = DEFT_DONE};
    struct deft_error error = {.text = ""};
    deft_forward_begin(self->rt);
    deft_backward_begin(self->rt);
    WORLD_CHECK(self, deft_grad_ready(self->rt, 0, gradient) == DEFT_OK, "gradient refused");
    do {
        WORLD_CHECK(self, deft_step(self->rt, &update, &error) == DEFT_OK, "%s", error.text);
    } while (update.action != DEFT_DONE);
}

/* The second worker's memory is what is missing, then none is. */
static void train(struct world_rank *self) {
    struct deft_error error = {.text = ""};
    struct deft_stats stats;
    uint32_t id = 0;
    void *gradient = make_memory(self);
    struct deft_tensor tensor = {
        .name = "weight", .elements = N_ELEMENTS, .dtype = DEFT_F32, .parameters = NULL};
    WORLD_CHECK(self, deft_tensor_add(self->rt, &tensor, &id, &error) == DEFT_OK, "%s", error.text);
    WORLD_CHECK(self, deft_commit(self->rt, &error) == DEFT_OK, "%s", error.text);
    standin_fail("cudaHostAlloc", 2);
    WORLD_CHECK(self, offer(self, 1, &error) == DEFT_NO_MEMORY, "plan 1 was taken");
    WORLD_CHECK(self,
                strcmp(error.text, "no pinned memory for the 256 bytes of an all-reduce") == 0,
                "%s", error.text);
    WORLD_CHECK(self, cudaGetLastError() == cudaSuccess, "an error is left to the program");
    for (uint32_t i = 0; i < N_ITERATIONS; i++) {
        iterate(self, gradient);
    }
    deft_stats(self->rt, &stats);
    WORLD_CHECK(self, stats.plan_seq == 0 && stats.updates == N_ITERATIONS, "plan %llu",
                (unsigned long long)stats.plan_seq);
    standin_fail(NULL, 0);
    WORLD_CHECK(self, offer(self, 2, &error) == DEFT_OK, "%s", error.text);
    standin_fail("cudaHostAlloc", 1); /* all that it needs it has */
    for (uint32_t i = 0; i < N_ITERATIONS; i++) {
        iterate(self, gradient);
    }
    deft_stats(self->rt, &stats);
    WORLD_CHECK(self, stats.plan_seq == 2, "plan %llu", (unsigned long long)stats.plan_seq);
    struct deft_update update = {.action = DEFT_DONE};
    do {
        WORLD_CHECK(self, deft_drain(self->rt, &update, &error) == DEFT_OK, "%s", error.text);
    } while (update.action != DEFT_DONE);
    standin_finish();
    (void)cudaFree(gradient);
}

static void tune(const struct world_rank *self, struct deft_options *options) {
    (void)self;
    options->device = "cuda";
}

static void a_plan_without_pinned_memory_is_refused(void **state) {
    (void)state;
    struct mem_fabric *fabric = NULL;
    char links[128];
    standin_reset();
    assert_int_equal(mem_fabric_create(1, NULL, &fabric, NULL), DEFT_OK);
    (void)snprintf(links, sizeof(links), "nccl,%s", mem_fabric_link(fabric));
    world_run_tuned(1, links, 0, NULL, tune, NULL, train);
    standin_fail(NULL, 0);
    assert_string_equal(standin_violation(), "");
    mem_fabric_destroy(fabric);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(a_plan_without_pinned_memory_is_refused),
};

TESTING_MAIN(cases)
