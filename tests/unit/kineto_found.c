/* What an import finds in made-up jobs is what they were made of. */
#include <stdlib.h>
#include <string.h>

#include "kineto/kineto.h"
#include "kineto/kineto_dtype.h"
#include "kineto/kineto_reader.h"
#include "kineto/kineto_trace.h"
#include "kineto_synthetic.h"
#include "testing.h"

#define N_JOBS 200

/* Reads a trace in blocks of random sizes. */
static struct kineto_trace *read_trace(struct synthetic *made, const char *text, size_t n_bytes) {
    struct kineto_trace *trace = NULL;
    struct kineto_reader *reader = NULL;
    struct deft_error error = {0};
    assert_int_equal(kineto_trace_create("synthetic", KINETO_MAX_RECORDS, &trace, &error), DEFT_OK);
    assert_int_equal(kineto_reader_create(trace, &reader, &error), DEFT_OK);
    for (size_t at = 0; at < n_bytes;) {
        size_t n = 1 + testing_random_below(&made->state, 5000);
        n = n < n_bytes - at ? n : n_bytes - at;
        if (kineto_reader_feed(reader, text + at, n, &error) != DEFT_OK) {
            fail_msg("%s", error.text);
        }
        at += n;
    }
    if (kineto_reader_finish(reader, &error) != DEFT_OK) {
        fail_msg("%s", error.text);
    }
    kineto_reader_destroy(reader);
    return trace;
}

static void import(struct synthetic *made, struct kineto_job *job) {
    struct kineto_trace *traces[SYNTHETIC_MAX_RANKS] = {NULL};
    struct deft_error error = {0};
    for (uint32_t r = 0; r < made->n_ranks; r++) {
        size_t n_bytes = 0;
        char *text = synthetic_write(made, r, &n_bytes);
        /* The order of traces must not matter. */
        traces[made->n_ranks - 1 - r] = read_trace(made, text, n_bytes);
        free(text);
    }
    if (kineto_job_init(job, traces, made->n_ranks, &error) != DEFT_OK) {
        fail_msg("%s", error.text);
    }
    for (uint32_t r = 0; r < made->n_ranks; r++) {
        kineto_trace_destroy(traces[r]);
    }
}

static void compare_step(const struct synthetic *made, const struct kineto_step *step,
                         const struct synthetic_step *truth) {
    assert_int_equal(step->step_ns, truth->step_ns);
    assert_int_equal(step->backward_begin_ns, truth->backward_begin_ns);
    assert_int_equal(step->backward_end_ns, truth->backward_end_ns);
    assert_int_equal(step->forward_busy_ns, truth->forward_busy_ns);
    assert_int_equal(step->backward_busy_ns, truth->backward_busy_ns);
    assert_int_equal(step->optimizer_busy_ns, truth->optimizer_busy_ns);
    assert_int_equal(step->compute_busy_ns,
                     truth->forward_busy_ns + truth->backward_busy_ns + truth->optimizer_busy_ns);
    assert_int_equal(step->exposed_ns, truth->exposed_ns);
    /* Three of 3000 ns, of which two overlap by less than 1000 ns. */
    assert_in_range(step->foreign_ns, made->with_foreign ? 8000 : 0, made->with_foreign ? 9000 : 0);
    assert_int_equal(step->n_reduces, made->n_buckets);
    for (uint32_t b = 0; b < made->n_buckets; b++) {
        assert_int_equal(step->reduces[b].elements, made->bucket_elements[b]);
        assert_int_equal(step->reduces[b].dtype, made->dtype);
        assert_int_equal(step->reduces[b].ready_ns, truth->reduces[b].ready_ns);
        assert_int_equal(step->reduces[b].begin_ns, truth->reduces[b].begin_ns);
        assert_int_equal(step->reduces[b].end_ns, truth->reduces[b].end_ns);
        assert_int_equal(step->reduces[b].wait_ns,
                         made->n_ranks > 1 ? truth->reduces[b].wait_ns : -1);
    }
}

static void compare_foreign(const struct synthetic *made, const struct kineto_job *job) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < job->n_foreign; i++) {
        n += job->foreign[i].count;
    }
    assert_int_equal(n, made->with_foreign ? 3 * made->n_steps * made->n_ranks : 0);
}

static void all_of_a_job_is_found(void **unused) {
    (void)unused;
    uint64_t state = testing_seed();
    for (int i = 0; i < N_JOBS; i++) {
        struct synthetic made;
        struct kineto_job job = {0};
        synthetic_init(&made, testing_random(&state) | 1);
        import(&made, &job);
        assert_int_equal(job.n_ranks, made.n_ranks);
        assert_int_equal(job.world_size, made.n_ranks);
        assert_int_equal(job.n_steps, made.n_steps * made.n_ranks);
        assert_int_equal(job.n_left_out, 0);
        for (uint32_t s = 0; s < job.n_steps; s++) {
            assert_int_equal(job.steps[s].rank, s / made.n_steps);
            assert_int_equal(job.steps[s].number, 10 + s % made.n_steps);
            compare_step(&made, &job.steps[s], &made.truth[s / made.n_steps][s % made.n_steps]);
        }
        assert_int_equal(job.n_buckets, made.n_buckets);
        for (uint32_t b = 0; b < made.n_buckets; b++) {
            assert_int_equal(job.buckets[b].transfer_ns, made.transfer_ns[b]);
        }
        assert_int_equal(job.n_parameters,
                         made.with_shapes && !made.with_odd_shapes ? made.n_layers : 0);
        for (uint32_t p = 0; p < job.n_parameters; p++) {
            assert_int_equal(job.parameters[p].elements, made.layer_elements[p]);
        }
        compare_foreign(&made, &job);
        kineto_job_done(&job);
    }
}

static void profiles_add_up(void **unused) {
    (void)unused;
    uint64_t state = testing_seed();
    for (int i = 0; i < N_JOBS; i++) {
        struct synthetic made;
        struct kineto_job job = {0};
        struct dsched_profile profile = {0};
        struct deft_error error = {0};
        uint64_t elements = 0;
        uint64_t wanted = 0;
        synthetic_init(&made, testing_random(&state) | 1);
        import(&made, &job);
        if (kineto_profile(&job, "made", 0, &profile, &error) != DEFT_OK) {
            fail_msg("%s", error.text);
        }
        for (uint32_t t = 0; t < profile.n_tensors; t++) {
            elements += profile.tensors[t].elements;
            assert_int_equal(profile.tensors[t].dtype, made.dtype);
        }
        for (uint32_t b = 0; b < made.n_buckets; b++) {
            uint64_t bytes = made.bucket_elements[b] * dsched_dtype_bytes(made.dtype);
            wanted += made.bucket_elements[b];
            /* No size is dearer than it was measured, and no larger one cheaper. */
            assert_true(dsched_link_ns(&profile.links[0], bytes) <= made.transfer_ns[b]);
        }
        assert_int_equal(elements, wanted);
        assert_int_equal(profile.world_size, made.n_ranks);
        assert_int_equal(profile.forward_ns, job.median.backward_begin_ns);
        for (uint32_t k = 1; k < profile.links[0].n_samples; k++) {
            assert_true(profile.links[0].samples[k].ns >= profile.links[0].samples[k - 1].ns);
        }
        dsched_profile_done(&profile);
        kineto_job_done(&job);
    }
}

/* The whole text must not matter to the reader, only its tokens: block borders anywhere. */
static void block_borders_do_not_matter(void **unused) {
    (void)unused;
    struct synthetic made;
    struct kineto_trace *bytewise = NULL;
    struct kineto_reader *reader = NULL;
    size_t n_bytes = 0;
    synthetic_init(&made, testing_seed());
    char *text = synthetic_write(&made, 0, &n_bytes);
    struct kineto_trace *blocks = read_trace(&made, text, n_bytes);
    assert_int_equal(kineto_trace_create("x", KINETO_MAX_RECORDS, &bytewise, NULL), DEFT_OK);
    assert_int_equal(kineto_reader_create(bytewise, &reader, NULL), DEFT_OK);
    for (size_t i = 0; i < n_bytes; i++) {
        assert_int_equal(kineto_reader_feed(reader, text + i, 1, NULL), DEFT_OK);
    }
    assert_int_equal(kineto_reader_finish(reader, NULL), DEFT_OK);
    assert_int_equal(blocks->n_events, bytewise->n_events);
    assert_int_equal(blocks->n_records, bytewise->n_records);
    assert_int_equal(blocks->kernels.n, bytewise->kernels.n);
    assert_memory_equal(blocks->kernels.items, bytewise->kernels.items,
                        blocks->kernels.n * sizeof(struct kineto_kernel));
    kineto_reader_destroy(reader);
    kineto_trace_destroy(bytewise);
    kineto_trace_destroy(blocks);
    free(text);
}

static void names_tell_dtypes(void **unused) {
    (void)unused;
    static const struct {
        const char *type;
        uint8_t dtype;
    } types[] = {{"Float", DSCHED_F32},          {"float", DSCHED_F32},
                 {"Double", DSCHED_F64},         {"Half", DSCHED_F16},
                 {"c10::Half", DSCHED_F16},      {"BFloat16", DSCHED_BF16},
                 {"c10::BFloat16", DSCHED_BF16}, {"long int", KINETO_DTYPE_FOREIGN},
                 {"Byte", KINETO_DTYPE_FOREIGN}, {"", KINETO_DTYPE_FOREIGN}};
    static const struct {
        const char *kernel;
        uint8_t dtype;
    } kernels[] = {
        {"ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)", DSCHED_F32},
        {"ncclKernel_AllReduce_RING_LL_Sum_half(ncclWorkElem)", DSCHED_F16},
        {"ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", DSCHED_F32},
        {"ncclDevKernel_AllReduce_Sum_bf16_RING_LL(x)", DSCHED_BF16},
        {"ncclKernel_AllReduce_RING_LL_Sum___nv_bfloat16(x)", DSCHED_BF16},
        {"ncclKernel_AllReduce_RING_LL_Sum_int64_t(x)", KINETO_DTYPE_FOREIGN},
        {"ncclKernel_AllReduce_RING_LL_Sum_uint8_t(x)", KINETO_DTYPE_FOREIGN},
        {"ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)", KINETO_DTYPE_UNKNOWN}};
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        assert_int_equal(kineto_dtype_of_type(types[i].type), types[i].dtype);
    }
    for (size_t i = 0; i < sizeof(kernels) / sizeof(kernels[0]); i++) {
        assert_true(kineto_dtype_is_collective(kernels[i].kernel));
        assert_int_equal(kineto_dtype_of_kernel(kernels[i].kernel), kernels[i].dtype);
    }
    assert_false(kineto_dtype_is_collective("void gemm<float>(float*)"));
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(all_of_a_job_is_found),
    cmocka_unit_test(profiles_add_up),
    cmocka_unit_test(block_borders_do_not_matter),
    cmocka_unit_test(names_tell_dtypes),
};
TESTING_MAIN(cases)
