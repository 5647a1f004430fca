/* What fails is told with the library's own words, a lost peer ends a job, and what cannot work is
 * refused with a sentence. */
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "gpu_job.h"
#include "link/cuda_device.h"
#include "link/link.h"
#include "link/nccl_api.h"
#include "testing.h"

static struct mem_fabric *fabric;
static char both_links[128];

static void begin(void) {
    standin_reset();
    assert_int_equal(mem_fabric_create(GPU_JOB_RANKS, NULL, &fabric, NULL), DEFT_OK);
    (void)snprintf(both_links, sizeof(both_links), "nccl,%s", mem_fabric_link(fabric));
}

static const char *failing;

static void fail_next(struct gpu_job *job, uint64_t iteration) {
    (void)job;
    if (iteration == 2) {
        standin_fail(failing, 1);
    }
}

/* The job ends on both ranks, and the one whose call failed tells which it was and why. */
static void check_told_under(const struct dsched_plan *plan, const char *call,
                             const char *expected) {
    begin();
    failing = call;
    struct gpu_job job = {.device = "cuda",
                          .links = both_links,
                          .plan = plan,
                          .n_iterations = 6,
                          .write_back = 1,
                          .op_timeout_ns = testing_deadline_ns(1),
                          .meddle = fail_next};
    gpu_job_run(&job);
    int found = 0;
    for (int32_t r = 0; r < GPU_JOB_RANKS; r++) {
        found |= strstr(job.error[r].text, expected) != NULL;
    }
    if (!found) {
        fail_msg("%s: found '%s' and '%s', expected '%s'", call, job.error[0].text,
                 job.error[1].text, expected);
    }
    gpu_job_done(&job);
    mem_fabric_destroy(fabric);
}

static void check_told(const char *call, const char *expected) {
    check_told_under(NULL, call, expected);
}

/* Two buckets: the f64 tensor is in one of its own. */
static void make_averaged(struct dsched_plan *out) {
    assert_int_equal(dsched_plan_init(out, 2, 1), DSCHED_OK);
    out->rule = DSCHED_AVERAGED;
    out->n_links = 1;
    out->merge[0] = 1;
    out->ops[0].delay = out->ops[1].delay = 1;
    out->buckets[0].end = out->buckets[1].begin = 129;
    out->buckets[1].end = gpu_job_elements();
}

static void calls_of_cuda_are_told(void **state) {
    (void)state;
    check_told("cudaEventRecord", "CUDA: cudaEventRecord failed: the stand-in was told to fail");
    check_told("cudaStreamWaitEvent", "CUDA: cudaStreamWaitEvent failed: the stand-in was told");
    check_told("cudaMemcpyAsync", "CUDA: cudaMemcpyAsync failed: the stand-in was told to fail");
    check_told("cudaMemsetAsync", "CUDA: cudaMemsetAsync failed: the stand-in was told to fail");
}

static void queries_that_fail_are_told(void **state) {
    (void)state;
    check_told("cudaEventQuery", "failed: the stand-in was told to fail");
    check_told("cudaStreamIsCapturing", "cudaStreamIsCapturing failed: the stand-in was told");
}

static void passes_are_told(void **state) {
    (void)state;
    check_told("combine", "CUDA: a pass over gradients (copy) failed: the stand-in was told");
}

static void passes_of_averaged_are_told(void **state) {
    static const char *const passes[] = {"guard", "judge", "average", "seal"};
    (void)state;
    struct dsched_plan plan;
    make_averaged(&plan);
    for (size_t i = 0; i < sizeof(passes) / sizeof(passes[0]); i++) {
        char expected[128];
        (void)snprintf(expected, sizeof(expected),
                       "CUDA: a pass over gradients (%s) failed: the stand-in was told", passes[i]);
        check_told_under(&plan, passes[i], expected);
    }
    dsched_plan_done(&plan);
}

static void calls_of_nccl_are_told(void **state) {
    (void)state;
    check_told("ncclAllReduce",
               "NCCL: ncclAllReduce failed: the stand-in was told to fail: the stand-in's last "
               "words");
    check_told("ncclCommGetAsyncError", "NCCL: ncclCommGetAsyncError failed: the stand-in was");
}

static void lose(struct gpu_job *job, uint64_t iteration) {
    (void)job;
    if (iteration == 2) {
        standin_hold(1); /* their part never comes */
        standin_lose_peers();
    }
}

static void a_lost_peer_aborts(void **state) {
    (void)state;
    begin();
    struct gpu_job job = {
        .device = "cuda", .links = both_links, .n_iterations = 50, .meddle = lose};
    gpu_job_run(&job);
    for (int32_t r = 0; r < GPU_JOB_RANKS; r++) {
        assert_int_not_equal(job.status[r], DEFT_OK);
        assert_non_null(strstr(job.error[r].text, "remote process exited"));
    }
    assert_true(standin_calls("ncclCommAbort") > 0);
    gpu_job_done(&job);
    mem_fabric_destroy(fabric);
}

static void stall(struct gpu_job *job, uint64_t iteration) {
    (void)job;
    if (iteration == 1) {
        standin_hold(1);
    }
}

static void what_does_not_end_is_given_up(void **state) {
    (void)state;
    begin();
    struct gpu_job job = {.device = "cuda",
                          .links = both_links,
                          .n_iterations = 3,
                          .op_timeout_ns = testing_deadline_ns(1),
                          .meddle = stall};
    gpu_job_run(&job); /* its drain waits */
    assert_non_null(strstr(job.error[0].text, "has not ended within"));
    assert_int_not_equal(job.status[1], DEFT_OK);
    gpu_job_done(&job);
    mem_fabric_destroy(fabric);
}

static void capture(struct gpu_job *job, uint64_t iteration) {
    (void)job;
    standin_capture(iteration >= 1);
}

static void graphs_are_refused(void **state) {
    (void)state;
    begin();
    struct gpu_job job = {.device = "cuda",
                          .links = both_links,
                          .n_iterations = 3,
                          .op_timeout_ns = testing_deadline_ns(1),
                          .meddle = capture};
    gpu_job_run(&job);
    assert_true(strstr(job.error[0].text, "captured into a CUDA graph") != NULL ||
                strstr(job.error[1].text, "captured into a CUDA graph") != NULL);
    gpu_job_done(&job);
    mem_fabric_destroy(fabric);
}

/* One rank's link, on a device that does nothing any more. */
struct stuck {
    struct link_world world;
    struct link *link;
    float *data;
};

static void begin_stuck(struct stuck *stuck, int64_t op_timeout_ns) {
    struct deft_error error = {.text = ""};
    standin_reset();
    *stuck = (struct stuck){.world = {.n_ranks = 1,
                                      .connect_timeout_ns = testing_deadline_ns(60),
                                      .op_timeout_ns = op_timeout_ns}};
    assert_int_equal(cuda_device_open(0, &stuck->world.device, &error), DEFT_OK);
    assert_int_equal(link_nccl.open("", &stuck->world, &stuck->link, &error), DEFT_OK);
    stuck->data = stuck->world.device->ops->alloc(stuck->world.device, sizeof(*stuck->data));
    assert_non_null(stuck->data);
    standin_hold(1);
}

static enum deft_status post_stuck(const struct stuck *stuck, struct link_op *op) {
    *op = (struct link_op){.data = stuck->data, .elements = 1, .dtype = LINK_F32};
    return link_nccl.post(stuck->link, op);
}

static void end_stuck(struct stuck *stuck) {
    struct deft_error error = {.text = ""};
    struct device *device = stuck->world.device;
    link_nccl.failure(stuck->link, &error);
    assert_non_null(strstr(error.text, "has not ended within"));
    assert_int_equal(link_nccl.close(stuck->link), 0);
    assert_true(standin_calls("ncclCommAbort") == 1);
    standin_hold(0);
    device->ops->release(device, stuck->data);
    device->ops->close(device);
}

/* The watching thread must see the end of its patience also while a thread waits for room. */
static void what_does_not_fit_is_given_up(void **state) {
    enum { MOST = 1024 };
    static struct link_op ops[MOST + 1];
    struct stuck stuck;
    (void)state;
    begin_stuck(&stuck, testing_deadline_ns(3));
    for (uint32_t i = 0; i < MOST; i++) {
        assert_int_equal(post_stuck(&stuck, &ops[i]), DEFT_OK);
    }
    assert_int_equal(post_stuck(&stuck, &ops[MOST]), DEFT_TIMEOUT);
    for (uint32_t i = 0; i <= MOST; i++) {
        assert_true(link_test(&ops[i]));
        assert_int_equal(ops[i].status, DEFT_TIMEOUT);
    }
    end_stuck(&stuck);
}

/* And while CUDA itself holds that thread. */
static void what_the_device_does_not_take_is_given_up(void **state) {
    struct link_op ops[2];
    struct stuck stuck;
    (void)state;
    begin_stuck(&stuck, testing_deadline_ns(1));
    assert_int_equal(post_stuck(&stuck, &ops[0]), DEFT_OK);
    standin_fill();
    assert_int_equal(post_stuck(&stuck, &ops[1]), DEFT_TIMEOUT);
    assert_int_equal(ops[0].status, DEFT_TIMEOUT);
    end_stuck(&stuck);
}

/* --- what the program finds ------------------------------------------------------------------- */

/* Returns what the program finds on its thread after a failure that the device lives with. */
static cudaError_t found_after(struct device *device, const char *call) {
    const struct device_ops *ops = device->ops;
    void *made = NULL;
    standin_fail(call, 1);
    if (strcmp(call, "cudaHostAlloc") == 0) {
        made = ops->pin(device, 64);
    } else if (strcmp(call, "cudaEventCreateWithFlags") == 0) {
        made = ops->mark_create(device);
    } else {
        made = ops->alloc(device, 64);
    }
    assert_null(made);
    standin_fail(NULL, 0);
    return cudaGetLastError();
}

static void tolerated_failures_leave_no_error(void **state) {
    static const char *const calls[] = {"cudaMalloc", "cudaMemsetAsync", "cudaStreamSynchronize",
                                        "cudaHostAlloc", "cudaEventCreateWithFlags"};
    struct deft_error error = {.text = ""};
    struct device *device = NULL;
    (void)state;
    standin_reset();
    assert_int_equal(cuda_device_open(0, &device, &error), DEFT_OK);
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        assert_int_equal(found_after(device, calls[i]), cudaSuccess);
        standin_plant(STANDIN_KEPT_ERROR);
        assert_int_equal(found_after(device, calls[i]), cudaErrorUnknown);
        standin_reset();
    }
    device->ops->zero(device, NULL, 0);
    assert_int_equal(device->ops->failure(device, &error), DEFT_OK);
    device->ops->close(device);
}

static void failures_that_are_told_leave_no_error(void **state) {
    static const char *const calls[] = {"cudaRuntimeGetVersion", "cudaGetDeviceCount", "cudaMalloc",
                                        "cudaStreamCreateWithPriority"};
    struct deft_error error = {.text = ""};
    struct device *device = NULL;
    (void)state;
    standin_reset();
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        standin_fail(calls[i], 1);
        assert_int_not_equal(cuda_device_open(0, &device, &error), DEFT_OK);
        assert_int_equal(cudaGetLastError(), cudaSuccess);
    }
}

/* --- opening ---------------------------------------------------------------------------------- */

/* A generation in flight, this rank's own change of it, and the anchor. */
static void averaged_fits_or_is_refused(void **state) {
    (void)state;
    struct dsched_plan plan;
    make_averaged(&plan);
    for (uint32_t copies = 2; copies <= 3; copies++) {
        begin();
        struct gpu_job job = {.device = "cuda",
                              .links = both_links,
                              .plan = &plan,
                              .n_iterations = 3,
                              .max_pending_copies = copies};
        gpu_job_run(&job);
        for (int32_t r = 0; r < GPU_JOB_RANKS; r++) {
            if (copies < 3) {
                assert_int_equal(job.status[r], DEFT_LIMIT);
                assert_non_null(strstr(job.error[r].text, "are allowed"));
            } else {
                assert_string_equal(job.error[r].text, "");
                assert_int_equal(job.stats[r].pending_bytes, 3 * gpu_job_bytes());
            }
        }
        gpu_job_done(&job);
        mem_fabric_destroy(fabric);
    }
    dsched_plan_done(&plan);
}

static void two_links_of_nccl_are_refused(void **state) {
    (void)state;
    begin();
    struct gpu_job job = {.device = "cuda", .links = "nccl,nccl:Socket"};
    gpu_job_run(&job);
    assert_non_null(strstr(job.error[0].text, "expected one of NCCL at most"));
    gpu_job_done(&job);
    mem_fabric_destroy(fabric);
}

static void nccl_for_host_memory_gives_way(void **state) {
    (void)state;
    begin();
    struct gpu_job job = {.device = "cpu", .links = both_links, .n_iterations = 2};
    gpu_job_run(&job);
    for (int32_t r = 0; r < GPU_JOB_RANKS; r++) {
        assert_int_equal(job.status[r], DEFT_OK);
        assert_non_null(strstr(job.notice[r], "NCCL is not used, but Gloo: the tensors"));
    }
    gpu_job_check_against_host(&job);
    gpu_job_done(&job);
    mem_fabric_destroy(fabric);
}

static void without_its_library_nccl_gives_way(void **state) {
    (void)state;
    begin();
    (void)setenv("DEFT_NCCL", "/nowhere/libnccl.so.2", 1);
    struct gpu_job job = {.device = "cuda", .links = both_links, .n_iterations = 3};
    gpu_job_run(&job);
    for (int32_t r = 0; r < GPU_JOB_RANKS; r++) {
        assert_string_equal(job.error[r].text, "");
        assert_non_null(strstr(job.notice[r], "NCCL cannot be loaded: /nowhere/libnccl.so.2"));
    }
    gpu_job_check_against_host(&job);
    assert_int_equal(standin_calls("ncclAllReduce"), 0);
    gpu_job_done(&job);
    mem_fabric_destroy(fabric);
}

static void check_open(const char *device, const char *expected) {
    struct deft_options options;
    struct deft_error error = {.text = ""};
    struct deft_runtime *rt = NULL;
    assert_int_equal(deft_options_init(&options, &error), DEFT_OK);
    options.device = device;
    assert_int_not_equal(deft_open(&options, &rt, &error), DEFT_OK);
    assert_null(rt);
    if (strstr(error.text, expected) == NULL) {
        fail_msg("found '%s', expected '%s'", error.text, expected);
    }
}

static void devices_that_are_not_there_are_refused(void **state) {
    (void)state;
    standin_reset();
    check_open("cuda:7", "the device is cuda:7, but CUDA has devices 0..1 here");
    check_open("cuda:", "expected cpu, cuda or cuda:NUMBER");
    check_open("tpu", "the device is 'tpu', expected cpu, cuda or cuda:NUMBER");
    standin_fail("cudaGetDeviceCount", 1);
    check_open("cuda", "CUDA has no device here: the stand-in was told to fail");
    standin_fail("cudaMalloc", 1);
    check_open("cuda", "no memory or events on device cuda:0");
    standin_fail("scale", 1);
    check_open("cuda", "libdeft-cuda cannot run on cuda:0: the stand-in was told to fail");
    (void)setenv("DEFT_CUDA_KERNELS", "/nowhere/libdeft-cuda.so", 1);
    check_open("cuda", "libdeft-cuda cannot be loaded: /nowhere/libdeft-cuda.so");
    (void)setenv("DEFT_CUDART", "/nowhere/libcudart.so", 1);
    check_open("cuda", "CUDA's runtime cannot be loaded: /nowhere/libcudart.so");
}

/* As the loader would find them, newest first. */
static void an_older_runtime_is_for_an_older_driver(void **state) {
    struct deft_error error = {.text = ""};
    struct device *device = NULL;
    (void)state;
    standin_reset();
    (void)unsetenv("DEFT_CUDART");
    assert_non_null(dlopen(GPU_TOO_NEW, RTLD_NOW | RTLD_LOCAL));
    assert_non_null(dlopen(GPU_OLDER, RTLD_NOW | RTLD_LOCAL));
    assert_int_equal(cuda_device_open(0, &device, &error), DEFT_OK);
    device->ops->close(device);
    (void)setenv("DEFT_CUDART", GPU_TOO_NEW, 1); /* this one and no other */
    assert_int_equal(cuda_device_open(0, &device, &error), DEFT_UNSUPPORTED);
    assert_int_equal(error.backend_code, cudaErrorInsufficientDriver);
    assert_non_null(strstr(error.text, "the driver is too old: it is for CUDA "));
}

static void limits_of_nccl_are_checked(void **state) {
    (void)state;
    ncclConfig_t config;
    struct deft_error error;
    assert_int_equal(nccl_api_configure("", &config, &error), DEFT_OK);
    assert_int_equal(config.blocking, 0);
    assert_int_equal(config.minCTAs, NCCL_CONFIG_UNDEF_INT);
    (void)setenv("DEFT_NCCL_MIN_CTAS", "4", 1);
    (void)setenv("DEFT_NCCL_MAX_CTAS", "8", 1);
    assert_int_equal(nccl_api_configure("Socket", &config, &error), DEFT_OK);
    assert_int_equal(config.minCTAs, 4);
    assert_int_equal(config.maxCTAs, 8);
    assert_string_equal(config.netName, "Socket");
    (void)setenv("DEFT_NCCL_MAX_CTAS", "2", 1);
    assert_int_equal(nccl_api_configure("", &config, &error), DEFT_INVALID);
    (void)setenv("DEFT_NCCL_MAX_CTAS", "65", 1);
    assert_int_equal(nccl_api_configure("", &config, &error), DEFT_INVALID);
    assert_non_null(strstr(error.text, "DEFT_NCCL_MAX_CTAS is '65', expected a number from 1"));
}

/* The real ones, where they are: they need no device to tell what they have. */
static void real_libraries_have_every_call(void **state) {
    (void)state;
    struct nccl_api nccl;
    struct deft_error error = {.text = ""};
    (void)unsetenv("DEFT_NCCL");
    enum deft_status status = nccl_api_load(&nccl, &error);
    if (status != DEFT_OK && strstr(error.text, "cannot be loaded") != NULL) {
        testing_skip(error.text);
    }
    assert_string_equal(error.text, "");
    assert_true(nccl.version >= NCCL_VERSION(2, 17, 1));
    (void)unsetenv("DEFT_CUDART");
    (void)unsetenv("DEFT_CUDA_KERNELS");
    struct device *device = NULL;
    status = cuda_device_open(-1, &device, &error);
    if (status == DEFT_OK) {
        device->ops->close(device);
    } else if (strstr(error.text, "cannot be loaded") == NULL) {
        assert_non_null(strstr(error.text, "CUDA has no device here"));
    }
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(calls_of_cuda_are_told),
    cmocka_unit_test(queries_that_fail_are_told),
    cmocka_unit_test(passes_are_told),
    cmocka_unit_test(passes_of_averaged_are_told),
    cmocka_unit_test(calls_of_nccl_are_told),
    cmocka_unit_test(a_lost_peer_aborts),
    cmocka_unit_test(what_does_not_end_is_given_up),
    cmocka_unit_test(what_does_not_fit_is_given_up),
    cmocka_unit_test(what_the_device_does_not_take_is_given_up),
    cmocka_unit_test(tolerated_failures_leave_no_error),
    cmocka_unit_test(failures_that_are_told_leave_no_error),
    cmocka_unit_test(an_older_runtime_is_for_an_older_driver),
    cmocka_unit_test(graphs_are_refused),
    cmocka_unit_test(averaged_fits_or_is_refused),
    cmocka_unit_test(two_links_of_nccl_are_refused),
    cmocka_unit_test(nccl_for_host_memory_gives_way),
    cmocka_unit_test(without_its_library_nccl_gives_way),
    cmocka_unit_test(devices_that_are_not_there_are_refused),
    cmocka_unit_test(limits_of_nccl_are_checked),
    cmocka_unit_test(real_libraries_have_every_call),
};
TESTING_MAIN(cases)
