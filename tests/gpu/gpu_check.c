/* Checks for a machine with GPUs, one JSON line each, by the name of the first argument; those of
 * averaged are in gpu_averaged.c. `run` beside this file runs them all. Exit status 77: there is no
 * GPU; 1: the check has failed, or what is there cannot be used, and the line says why. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <deft/deft.h>

#include "base/clock.h"
#include "gpu_averaged.h"
#include "gpu_tools.h"

#define N_SKIPPED 77

/* --- kernels ---------------------------------------------------------------------------------- */

/* Relative to one rounding of the type; returns the largest distance found. */
static double one_case(struct gpu_tools *check, enum deft_dtype dtype, uint64_t n, int add) {
    static const double steps[] = {0x1p-23, 0x1p-52, 0x1p-10, 0x1p-7};
    const struct device_ops *ops = check->device->ops;
    size_t n_bytes = n * gpu_tools_width(dtype);
    size_t room = n_bytes + 64;
    size_t from_at = (size_t)(fabs(gpu_tools_next(&check->random)) * 30) / gpu_tools_width(dtype) *
                     gpu_tools_width(dtype);
    size_t into_at = (size_t)(fabs(gpu_tools_next(&check->random)) * 30) / gpu_tools_width(dtype) *
                     gpu_tools_width(dtype);
    uint8_t *from = gpu_tools_must(malloc(room));
    uint8_t *into = gpu_tools_must(malloc(room));
    uint8_t *after = gpu_tools_must(malloc(room));
    uint8_t *on_from = gpu_tools_must(ops->alloc(check->device, room));
    uint8_t *on_into = gpu_tools_must(ops->alloc(check->device, room));
    double worst = 0;
    memset(into, 0x7f, room); /* NaN or huge in every type: must not be read by a copy */
    for (uint64_t i = 0; i < n; i++) {
        gpu_tools_put(dtype, from + from_at, i, gpu_tools_next(&check->random));
        if (add) {
            gpu_tools_put(dtype, into + into_at, i, gpu_tools_next(&check->random));
        }
    }
    gpu_tools_upload(check, on_from, from, room);
    gpu_tools_upload(check, on_into, into, room);
    if (add) {
        (void)ops->add(check->device, dtype, on_into + into_at, on_from + from_at, n, 0.25,
                       DEVICE_NORM_LOCAL);
    } else {
        (void)ops->copy(check->device, dtype, on_into + into_at, on_from + from_at, n, 0.25,
                        DEVICE_NORM_LOCAL);
    }
    ops->read(check->device, after, on_into, room);
    gpu_tools_check_device(check);
    for (uint64_t i = 0; i < n; i++) {
        double before = add ? gpu_tools_get(dtype, into + into_at, i) : 0;
        double expected = before + 0.25 * gpu_tools_get(dtype, from + from_at, i);
        double off = fabs(gpu_tools_get(dtype, after + into_at, i) - expected) /
                     (steps[dtype] * (fabs(before) + fabs(expected)) + 1e-7);
        worst = off > worst || isnan(off) ? off : worst;
    }
    if (memcmp(after, into, into_at) != 0 ||
        memcmp(after + into_at + n_bytes, into + into_at + n_bytes, room - into_at - n_bytes) !=
            0) {
        worst = INFINITY; /* wrote beside the buffer */
    }
    ops->release(check->device, on_from);
    ops->release(check->device, on_into);
    free(from);
    free(into);
    free(after);
    return worst;
}

/* The squared norms of all passes since the last call, from the device. */
static double collect(const struct gpu_tools *check) {
    struct device_figures figures = {.norms = {NAN, NAN}};
    struct device_figures rest;
    int64_t until_ns = clock_monotonic_ns() + INT64_C(5000000000);
    int found = check->device->ops->collect(check->device, &figures);
    while (!found && clock_monotonic_ns() < until_ns) {
        check->device->ops->settle(check->device);
        found = check->device->ops->collect(check->device, &figures);
        if (check->device->ops->collect(check->device, &rest)) {
            continue;
        }
    }
    return figures.norms[DEVICE_NORM_LOCAL];
}

static double norm_off(struct gpu_tools *check, enum deft_dtype dtype, uint64_t n) {
    const struct device_ops *ops = check->device->ops;
    size_t n_bytes = n * gpu_tools_width(dtype);
    uint8_t *x = gpu_tools_must(malloc(n_bytes));
    uint8_t *on = gpu_tools_must(ops->alloc(check->device, n_bytes));
    double expected = 0;
    for (uint64_t i = 0; i < n; i++) {
        gpu_tools_put(dtype, x, i, gpu_tools_next(&check->random));
        expected += gpu_tools_get(dtype, x, i) * gpu_tools_get(dtype, x, i);
    }
    gpu_tools_upload(check, on, x, n_bytes);
    (void)collect(check);
    (void)ops->norm(check->device, dtype, on, n, DEVICE_NORM_LOCAL);
    ops->settle(check->device);
    double found = collect(check);
    ops->release(check->device, on);
    free(x);
    return fabs(found - expected) / expected;
}

static int check_kernels(struct gpu_tools *check) {
    static const uint64_t sizes[] = {1, 7, 255, 4096, 65537, 3000001};
    double worst = 0;
    double worst_norm = 0;
    int n_cases = 0;
    for (int dtype = DEFT_F32; dtype <= DEFT_BF16; dtype++) {
        for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
            for (int repeat = 0; repeat < 4; repeat++) {
                double off = one_case(check, (enum deft_dtype)dtype, sizes[s], repeat % 2);
                worst = off > worst || isnan(off) ? off : worst;
                n_cases++;
            }
            double off = norm_off(check, (enum deft_dtype)dtype, sizes[s]);
            worst_norm = off > worst_norm || isnan(off) ? off : worst_norm;
        }
    }
    int passed = worst <= 1.0 && worst_norm < 1e-6;
    (void)printf(
        "{\"check\": \"kernels\", \"passed\": %s, \"cases\": %d, \"worst_roundings\": %.3g, "
        "\"worst_norm_frac\": %.3g}\n",
        passed ? "true" : "false", n_cases, worst, worst_norm);
    return passed ? 0 : 1;
}

/* --- bandwidth -------------------------------------------------------------------------------- */

struct passes {
    struct gpu_tools *check;
    uint8_t *into;
    uint8_t *from;
    uint64_t n;
};

static void run_move(const void *context) {
    const struct passes *on = context;
    on->check->device->ops->move(on->check->device, on->into, on->from, on->n * sizeof(float));
}

static void run_add(const void *context) {
    const struct passes *on = context;
    (void)on->check->device->ops->add(on->check->device, DEFT_F32, on->into, on->from, on->n, 0.5,
                                      DEVICE_NORM_LOCAL);
}

static int check_bandwidth(struct gpu_tools *check) {
    struct passes on = {.check = check, .n = UINT64_C(64) << 20};
    double bytes = (double)on.n * sizeof(float);
    on.into = gpu_tools_must(check->device->ops->alloc(check->device, on.n * sizeof(float)));
    on.from = gpu_tools_must(check->device->ops->alloc(check->device, on.n * sizeof(float)));
    double copy = 2 * bytes / gpu_tools_time_s(check, run_move, &on);
    double add = 3 * bytes / gpu_tools_time_s(check, run_add, &on);
    int passed = add >= 0.9 * copy;
    (void)printf("{\"check\": \"bandwidth\", \"passed\": %s, \"copy_bytes_per_s\": %.4g, "
                 "\"accumulate_bytes_per_s\": %.4g, \"ratio\": %.3f}\n",
                 passed ? "true" : "false", copy, add, add / copy);
    check->device->ops->release(check->device, on.into);
    check->device->ops->release(check->device, on.from);
    return passed ? 0 : 1;
}

/* --- training --------------------------------------------------------------------------------- */

#define TRAIN_TENSORS 24u

struct train {
    struct gpu_tools *check;
    struct deft_runtime *rt;
    uint64_t n; /* elements per tensor */
    float *host;
    float *gradient[TRAIN_TENSORS];
    float *busy; /* what the compute between gradients works on */
    int n_passes;
    cudaEvent_t marks[TRAIN_TENSORS][2]; /* around the compute before each gradient */
    double compute_ms;                   /* between the marks, so far */
};

static void must_be_ok(enum deft_status status, const struct deft_error *error) {
    if (status != DEFT_OK) {
        gpu_tools_give_up(error->text);
    }
}

/* The gradient of every element of a tensor: the same number, so that means are exact in f32. */
static float value_of(int32_t rank, uint32_t tensor, uint64_t iteration) {
    return (float)(1 + rank) * (float)(1 + tensor % 8) + (float)(iteration % 16) * 0.5f;
}

static void set_up(struct train *train, const struct deft_options *options) {
    struct deft_error error = {.text = ""};
    must_be_ok(deft_open(options, &train->rt, &error), &error);
    train->host = (float *)(void *)gpu_tools_must(malloc(train->n * sizeof(float)));
    for (uint32_t t = 0; t < TRAIN_TENSORS; t++) {
        char name[32];
        uint32_t id = 0;
        (void)snprintf(name, sizeof(name), "tensor %u", t);
        struct deft_tensor tensor = {.name = name, .elements = train->n, .dtype = DEFT_F32};
        must_be_ok(deft_tensor_add(train->rt, &tensor, &id, &error), &error);
        train->gradient[t] = (float *)(void *)gpu_tools_must(
            train->check->device->ops->alloc(train->check->device, train->n * sizeof(float)));
    }
    must_be_ok(deft_commit(train->rt, &error), &error);
    if (deft_notice(train->rt)[0] != '\0') {
        gpu_tools_give_up(deft_notice(train->rt));
    }
}

/* Stands for backward: passes over memory, on the default stream. */
static void compute(const struct train *train, uint32_t tensor) {
    const cudaEvent_t *marks = train->marks[tensor];
    const struct cuda_api *cuda = train->check->cuda;
    if (marks[0] != NULL) {
        gpu_tools_check_code(train->check, "cudaEventRecord", cuda->event_record(marks[0], NULL));
    }
    for (int i = 0; i < train->n_passes; i++) {
        train->check->device->ops->scale(train->check->device, DEFT_F32, train->busy, train->n,
                                         1.0);
    }
    if (marks[1] != NULL) {
        gpu_tools_check_code(train->check, "cudaEventRecord", cuda->event_record(marks[1], NULL));
    }
}

static void make_marks(struct train *train) {
    for (uint32_t t = 0; t < TRAIN_TENSORS; t++) {
        for (int end = 0; end < 2; end++) {
            gpu_tools_check_code(
                train->check, "cudaEventCreate",
                train->check->cuda->event_create_with_flags(&train->marks[t][end], 0));
        }
    }
}

static void destroy_marks(struct train *train) {
    for (uint32_t t = 0; t < TRAIN_TENSORS; t++) {
        for (int end = 0; end < 2; end++) {
            (void)train->check->cuda->event_destroy(train->marks[t][end]);
            train->marks[t][end] = NULL;
        }
    }
}

/* Adds up what the device has spent between the marks since the last time; waits for it. */
static void read_marks(struct train *train) {
    train->check->device->ops->settle(train->check->device);
    for (uint32_t t = 0; t < TRAIN_TENSORS; t++) {
        float ms = 0;
        gpu_tools_check_code(
            train->check, "cudaEventElapsedTime",
            train->check->cuda->event_elapsed_time(&ms, train->marks[t][0], train->marks[t][1]));
        train->compute_ms += (double)ms;
    }
}

/* Returns 1 when what was handed out is the mean of all ranks; looks only if `looks`. */
static int iterate(struct train *train, const struct deft_options *options, uint64_t iteration,
                   int looks) {
    struct deft_update update;
    struct deft_error error = {.text = ""};
    int is_right = 1;
    deft_forward_begin(train->rt);
    deft_backward_begin(train->rt);
    for (uint32_t t = TRAIN_TENSORS; t-- > 0;) {
        compute(train, t);
        if (looks) {
            for (uint64_t i = 0; i < train->n; i++) {
                train->host[i] = value_of(options->rank, t, iteration);
            }
            gpu_tools_upload(train->check, train->gradient[t], train->host,
                             train->n * sizeof(float));
        }
        if (deft_grad_ready(train->rt, t, train->gradient[t]) != DEFT_OK) {
            gpu_tools_give_up("a gradient was refused");
        }
    }
    do {
        must_be_ok(deft_step(train->rt, &update, &error), &error);
        for (uint32_t t = 0; looks && update.action == DEFT_APPLY && t < TRAIN_TENSORS; t++) {
            double mean = 0;
            for (int32_t r = 0; r < options->n_ranks; r++) {
                mean += (double)value_of(r, t, iteration) / options->n_ranks;
            }
            train->check->device->ops->read(train->check->device, train->host, update.gradients[t],
                                            train->n * sizeof(float));
            for (uint64_t i = 0; i < train->n; i++) {
                is_right &= fabs((double)train->host[i] - mean) <= 1e-6 * fabs(mean);
            }
        }
    } while (update.action != DEFT_DONE);
    return is_right;
}

static void finish(struct train *train) {
    struct deft_update update;
    struct deft_error error = {.text = ""};
    do {
        must_be_ok(deft_drain(train->rt, &update, &error), &error);
    } while (update.action != DEFT_DONE);
    deft_close(train->rt);
}

static void read_options(struct deft_options *out, const char *links) {
    struct deft_error error = {.text = ""};
    must_be_ok(deft_options_init(out, &error), &error);
    out->device = getenv("DEFT_DEVICE") != NULL ? getenv("DEFT_DEVICE") : "cuda";
    out->links = links;
    out->write_back = 1;
}

static int check_train(struct gpu_tools *check, const char *links) {
    struct train train = {.check = check, .n = 100003};
    struct deft_options options;
    int is_right = 1;
    read_options(&options, links);
    set_up(&train, &options);
    for (uint64_t i = 0; i < 12; i++) {
        is_right &= iterate(&train, &options, i, 1);
    }
    finish(&train);
    if (options.rank == 0) {
        (void)printf("{\"check\": \"train\", \"passed\": %s, \"links\": \"%s\", \"ranks\": %d}\n",
                     is_right ? "true" : "false", links, options.n_ranks);
    }
    return is_right ? 0 : 1;
}

/* Seconds per iteration, by the host's clock, with the device settled at both ends. */
static double time_iterations(struct train *train, const struct deft_options *options) {
    enum { REPEATS = 20 };
    int64_t begin_ns = 0;
    for (int i = -5; i < REPEATS; i++) {
        if (i == 0) {
            train->check->device->ops->settle(train->check->device);
            begin_ns = clock_monotonic_ns();
        }
        (void)iterate(train, options, 0, 0);
    }
    train->check->device->ops->settle(train->check->device);
    return (double)(clock_monotonic_ns() - begin_ns) / 1e9 / REPEATS;
}

static double time_compute(struct train *train) {
    enum { REPEATS = 20 };
    train->check->device->ops->settle(train->check->device);
    int64_t begin_ns = clock_monotonic_ns();
    for (uint32_t i = 0; i < REPEATS * TRAIN_TENSORS; i++) {
        compute(train, i % TRAIN_TENSORS);
    }
    train->check->device->ops->settle(train->check->device);
    return (double)(clock_monotonic_ns() - begin_ns) / 1e9 / REPEATS;
}

/* How much longer the same compute takes beside all-reduces, by the device's clock. */
static double contention(struct train *train, const struct deft_options *options) {
    enum { REPEATS = 10 };
    double alone_ms = 0;
    make_marks(train);
    for (int i = 0; i < REPEATS; i++) {
        for (uint32_t t = 0; t < TRAIN_TENSORS; t++) {
            compute(train, t);
        }
        read_marks(train);
    }
    alone_ms = train->compute_ms;
    train->compute_ms = 0;
    for (int i = 0; i < REPEATS; i++) {
        (void)iterate(train, options, 0, 0);
        read_marks(train);
    }
    destroy_marks(train);
    return train->compute_ms / alone_ms;
}

static int check_overlap(struct gpu_tools *check) {
    struct train train = {.check = check, .n = UINT64_C(4) << 20};
    struct deft_options options;
    struct deft_stats stats;
    read_options(&options, "nccl");
    set_up(&train, &options);
    train.busy = (float *)(void *)gpu_tools_must(
        check->device->ops->alloc(check->device, train.n * sizeof(float)));
    double alone_s = time_iterations(&train, &options);
    train.n_passes = 40;
    double compute_s = time_compute(&train);
    double both_s = time_iterations(&train, &options);
    double factor = contention(&train, &options);
    deft_stats(train.rt, &stats);
    finish(&train);
    int passed = both_s <= 1.02 * (alone_s + compute_s);
    if (options.rank == 0) {
        (void)printf("{\"check\": \"overlap\", \"passed\": %s, \"ranks\": %d, \"reduce_s\": %.6f, "
                     "\"compute_s\": %.6f, \"both_s\": %.6f, \"hidden_frac\": %.3f, "
                     "\"contention\": %.3f}\n",
                     passed ? "true" : "false", options.n_ranks, alone_s, compute_s, both_s,
                     (alone_s + compute_s - both_s) / alone_s, factor);
    }
    return passed ? 0 : 1;
}

int main(int argc, char **argv) {
    struct gpu_tools check = {.random = 20261130u};
    struct deft_error error = {.text = ""};
    const char *device = getenv("DEFT_DEVICE");
    const char *colon = device != NULL ? strchr(device, ':') : NULL;
    int number = colon != NULL ? (int)strtol(colon + 1, NULL, 10) : 0;
    const char *name = argc > 1 ? argv[1] : "";
    if (cuda_device_open(number, &check.device, &error) != DEFT_OK) {
        int is_none = error.backend_code == (int32_t)cudaErrorNoDevice;
        (void)printf("{\"check\": \"%s\", %s: \"%s\"}\n", name,
                     is_none ? "\"skipped\"" : "\"passed\": false, \"why\"", error.text);
        return is_none ? N_SKIPPED : 1;
    }
    check.cuda = cuda_device_api(check.device);
    int status = 2;
    if (strcmp(name, "kernels") == 0) {
        status = check_kernels(&check);
    } else if (strcmp(name, "bandwidth") == 0) {
        status = check_bandwidth(&check);
    } else if (strcmp(name, "train") == 0) {
        status = check_train(&check, argc > 2 ? argv[2] : "nccl");
    } else if (strcmp(name, "averaged_kernels") == 0) {
        status = gpu_averaged_kernels(&check);
    } else if (strcmp(name, "averaged_bandwidth") == 0) {
        status = gpu_averaged_bandwidth(&check);
    } else if (strcmp(name, "averaged_train") == 0) {
        status = gpu_averaged_train(&check, argc > 2 ? argv[2] : "nccl");
    } else if (strcmp(name, "overlap") == 0) {
        status = check_overlap(&check);
    } else if (strcmp(name, "count") == 0) {
        int count = 0;
        gpu_tools_check_code(&check, "cudaGetDeviceCount", check.cuda->get_device_count(&count));
        (void)printf("%d\n", count);
        status = 0;
    } else {
        (void)fprintf(stderr, "gpu_check: expected kernels, bandwidth, train [LINKS], overlap, "
                              "averaged_kernels, averaged_bandwidth, averaged_train [LINKS] or "
                              "count\n");
    }
    return status;
}
