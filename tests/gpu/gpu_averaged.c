#include "gpu_averaged.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <dsched/plan.h>

#include "runtime/device_host.h"

/* --- kernels ---------------------------------------------------------------------------------- */

#define GPU_AVERAGED_ROOM 64 /* behind and before what is written */

enum part { W, A, LANDED, LANDED_OWN, OLDER, N_PARTS = OLDER + 2 };

struct one_case {
    struct gpu_tools *check;
    enum deft_dtype dtype;
    uint64_t n;
    int captures, is_dropped;
    uint32_t n_older;
    size_t offset[N_PARTS];
    size_t room;
    uint8_t *host[N_PARTS];
    uint8_t *on_device[N_PARTS];
};

static void make_case(struct one_case *one) {
    size_t width = gpu_tools_width(one->dtype);
    size_t any[2];
    for (int i = 0; i < 2; i++) {
        any[i] = (size_t)(fabs(gpu_tools_next(&one->check->random)) * 30) / width * width;
    }
    one->room = one->n * width + 2 * (size_t)GPU_AVERAGED_ROOM;
    for (int p = 0; p < N_PARTS; p++) {
        one->offset[p] = any[p == W];
        one->host[p] = gpu_tools_must(malloc(one->room));
        one->on_device[p] =
            gpu_tools_must(one->check->device->ops->alloc(one->check->device, one->room));
        memset(one->host[p], 0x7f, one->room); /* around what is to be written: NaN or huge */
        for (uint64_t i = 0; i < one->n; i++) {
            gpu_tools_put(one->dtype, one->host[p] + one->offset[p], i,
                          gpu_tools_next(&one->check->random));
        }
    }
    if (one->is_dropped) {
        gpu_tools_put(one->dtype, one->host[LANDED] + one->offset[LANDED], 0, (double)NAN);
    }
    for (int p = 0; p < N_PARTS; p++) {
        gpu_tools_upload(one->check, one->on_device[p], one->host[p], one->room);
    }
}

static void average(const struct one_case *one, struct device *device, uint8_t *const *parts) {
    struct device_averaged_sums sums = {0, 0};
    struct device_averaged at = {.w = parts[W] + one->offset[W],
                                 .a = parts[A] + one->offset[A],
                                 .landed = parts[LANDED] + one->offset[LANDED],
                                 .landed_own = parts[LANDED_OWN] + one->offset[LANDED_OWN],
                                 .n_older = one->n_older,
                                 .factor = 0.5};
    for (uint32_t o = 0; o < one->n_older; o++) {
        at.older[o] = parts[OLDER + (int)o] + one->offset[OLDER];
    }
    if (one->captures) {
        at.own = parts[LANDED_OWN] + one->offset[LANDED_OWN];
        at.sum = parts[LANDED] + one->offset[LANDED];
    }
    at.is_dropped = device->ops->judge(device, one->dtype, at.landed, 0);
    device->ops->average(device, one->dtype, &at, one->n, &sums);
    if (one->captures) {
        device->ops->seal(device, one->dtype, at.sum, 0);
    }
}

/* Returns 1 when device and host come to the same, also around what they write. */
static int run_case(struct one_case *one) {
    struct device host = {.ops = &device_host};
    struct device *device = one->check->device;
    int is_same = 1;
    make_case(one);
    uint8_t *after = gpu_tools_must(malloc(one->room));
    average(one, &host, one->host);
    average(one, device, one->on_device);
    for (int p = 0; p < N_PARTS; p++) {
        device->ops->read(device, after, one->on_device[p], one->room);
        is_same &= memcmp(after, one->host[p], one->room) == 0;
        device->ops->release(device, one->on_device[p]);
        free(one->host[p]);
    }
    gpu_tools_check_device(one->check);
    free(after);
    return is_same;
}

int gpu_averaged_kernels(struct gpu_tools *check) {
    static const uint64_t sizes[] = {1, 7, 255, 4096, 65537, 1000003};
    int n_cases = 0;
    int n_wrong = 0;
    for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
        for (uint32_t kind = 0; kind < 24; kind++) {
            struct one_case one = {.check = check,
                                   .dtype = kind % 2 == 0 ? DEFT_F32 : DEFT_F64,
                                   .n = sizes[s],
                                   .captures = kind / 2 % 2 == 0,
                                   .is_dropped = (int)(kind / 4 % 2),
                                   .n_older = kind / 8};
            n_wrong += !run_case(&one);
            n_cases++;
        }
    }
    (void)printf("{\"check\": \"averaged_kernels\", \"passed\": %s, \"cases\": %d, "
                 "\"wrong\": %d}\n",
                 n_wrong == 0 ? "true" : "false", n_cases, n_wrong);
    return n_wrong == 0 ? 0 : 1;
}

/* --- bandwidth -------------------------------------------------------------------------------- */

struct passes {
    struct gpu_tools *check;
    uint64_t n;
    uint8_t *at[4]; /* parameters, anchor, mean, share */
};

static void run_move(const void *context) {
    const struct passes *on = context;
    on->check->device->ops->move(on->check->device, on->at[0], on->at[1], on->n * sizeof(float));
}

static void run_average(const void *context) {
    const struct passes *on = context;
    struct device_averaged_sums sums = {0, 0};
    const struct device_averaged at = {.w = on->at[0],
                                       .a = on->at[1],
                                       .landed = on->at[2],
                                       .landed_own = on->at[3],
                                       .own = on->at[3],
                                       .sum = on->at[2],
                                       .factor = 0.5};
    on->check->device->ops->average(on->check->device, DEFT_F32, &at, on->n, &sums);
}

int gpu_averaged_bandwidth(struct gpu_tools *check) {
    struct passes on = {.check = check, .n = UINT64_C(64) << 20};
    double bytes = (double)on.n * sizeof(float);
    for (int i = 0; i < 4; i++) {
        on.at[i] = gpu_tools_must(check->device->ops->alloc(check->device, on.n * sizeof(float)));
    }
    double copy = 2 * bytes / gpu_tools_time_s(check, run_move, &on);
    double averaged =
        8 * bytes / gpu_tools_time_s(check, run_average, &on); /* reads and writes 4 */
    int passed = averaged >= 0.85 * copy;
    (void)printf("{\"check\": \"averaged_bandwidth\", \"passed\": %s, \"copy_bytes_per_s\": "
                 "%.4g, \"average_bytes_per_s\": %.4g, \"ratio\": %.3f}\n",
                 passed ? "true" : "false", copy, averaged, averaged / copy);
    for (int i = 0; i < 4; i++) {
        check->device->ops->release(check->device, on.at[i]);
    }
    return passed ? 0 : 1;
}

/* --- training --------------------------------------------------------------------------------- */

#define TRAIN_TENSORS    6u
#define TRAIN_ITERATIONS UINT64_C(12)
#define TRAIN_MERGE      2
#define TRAIN_BAD        UINT64_C(5) /* then rank 0 has a gradient that is not finite */
#define TRAIN_RATE       0.125

struct train {
    struct gpu_tools *check;
    struct deft_runtime *rt;
    uint64_t n; /* elements per tensor */
    float *host;
    uint8_t *w[TRAIN_TENSORS];
    uint8_t *gradient[TRAIN_TENSORS];
};

static void must_be_ok(enum deft_status status, const struct deft_error *error) {
    if (status != DEFT_OK) {
        gpu_tools_give_up(error->text);
    }
}

/* Of every element of a tensor: sums of a few of them are exact in f32. */
static float value_of(int32_t rank, uint32_t tensor, uint64_t iteration) {
    return (float)(1 + rank) * (float)(1 + tensor % 8) + (float)(iteration % 16) * 0.5f;
}

static void make_plan(uint64_t n_elements, struct dsched_plan *out) {
    if (dsched_plan_init(out, 2, 1) != DSCHED_OK) {
        gpu_tools_give_up("no memory");
    }
    out->rule = DSCHED_AVERAGED;
    out->n_links = 1;
    out->merge[0] = TRAIN_MERGE;
    out->ops[0].delay = out->ops[1].delay = 1;
    out->buckets[0].end = out->buckets[1].begin = n_elements / 3;
    out->buckets[1].end = n_elements;
}

static void open_job(struct train *train, const char *links, struct deft_options *options) {
    struct deft_error error = {.text = ""};
    struct dsched_plan plan;
    uint8_t bytes[1024];
    must_be_ok(deft_options_init(options, &error), &error);
    make_plan(train->n * TRAIN_TENSORS, &plan);
    options->device = getenv("DEFT_DEVICE") != NULL ? getenv("DEFT_DEVICE") : "cuda";
    options->links = links;
    options->capabilities = DEFT_CAN_AVERAGE;
    options->first_plan = bytes;
    options->first_plan_bytes = dsched_plan_encode(&plan, bytes, sizeof(bytes));
    must_be_ok(deft_open(options, &train->rt, &error), &error);
    dsched_plan_done(&plan);
    for (uint32_t t = 0; t < TRAIN_TENSORS; t++) {
        const struct device_ops *ops = train->check->device->ops;
        char name[32];
        uint32_t id = 0;
        train->w[t] =
            gpu_tools_must(ops->alloc(train->check->device, train->n * sizeof(float))); /* zeros */
        train->gradient[t] =
            gpu_tools_must(ops->alloc(train->check->device, train->n * sizeof(float)));
        (void)snprintf(name, sizeof(name), "tensor %u", t);
        struct deft_tensor tensor = {
            .name = name, .elements = train->n, .dtype = DEFT_F32, .parameters = train->w[t]};
        must_be_ok(deft_tensor_add(train->rt, &tensor, &id, &error), &error);
    }
    must_be_ok(deft_commit(train->rt, &error), &error);
    if (deft_notice(train->rt)[0] != '\0') {
        gpu_tools_give_up(deft_notice(train->rt));
    }
}

static void iterate(const struct train *train, int32_t rank, uint64_t iteration) {
    struct deft_update update;
    struct deft_error error = {.text = ""};
    struct device *device = train->check->device;
    deft_forward_begin(train->rt);
    deft_backward_begin(train->rt);
    for (uint32_t t = TRAIN_TENSORS; t-- > 0;) {
        for (uint64_t i = 0; i < train->n; i++) {
            train->host[i] = value_of(rank, t, iteration);
        }
        if (iteration == TRAIN_BAD && rank == 0 && t == 1) {
            train->host[train->n / 2] = NAN;
        }
        gpu_tools_upload(train->check, train->gradient[t], train->host, train->n * sizeof(float));
        if (deft_grad_ready(train->rt, t, train->gradient[t]) != DEFT_OK) {
            gpu_tools_give_up("a gradient was refused");
        }
    }
    do {
        must_be_ok(deft_step(train->rt, &update, &error), &error);
        for (uint32_t t = 0; update.action == DEFT_APPLY && t < TRAIN_TENSORS; t++) {
            (void)device->ops->add(device, DEFT_F32, train->w[t], update.gradients[t], train->n,
                                   -TRAIN_RATE, DEVICE_NORM_LOCAL);
        }
    } while (update.action != DEFT_DONE);
}

/* Its generation is dropped, and so are steps made until that lands, one boundary later. */
static int is_lost(uint64_t iteration) {
    return iteration / TRAIN_MERGE == TRAIN_BAD / TRAIN_MERGE ||
           iteration == (TRAIN_BAD / TRAIN_MERGE + 1) * TRAIN_MERGE;
}

/* What the parameters of a tensor must be behind the drain. */
static double expected_of(uint32_t tensor, int32_t n_ranks) {
    double w = 0;
    for (uint64_t i = 0; i < TRAIN_ITERATIONS; i++) {
        for (int32_t r = 0; r < n_ranks && !is_lost(i); r++) {
            w -= TRAIN_RATE * (double)value_of(r, tensor, i) / n_ranks;
        }
    }
    return w;
}

static double drain_and_compare(const struct train *train, int32_t n_ranks) {
    struct deft_update update;
    struct deft_error error = {.text = ""};
    double worst = 0;
    do {
        must_be_ok(deft_drain(train->rt, &update, &error), &error);
    } while (update.action != DEFT_DONE);
    for (uint32_t t = 0; t < TRAIN_TENSORS; t++) {
        double expected = expected_of(t, n_ranks);
        train->check->device->ops->read(train->check->device, train->host, train->w[t],
                                        train->n * sizeof(float));
        for (uint64_t i = 0; i < train->n; i++) {
            double off = fabs((double)train->host[i] / expected - 1);
            worst = off > worst || isnan(off) ? off : worst;
        }
    }
    gpu_tools_check_device(train->check);
    return worst;
}

int gpu_averaged_train(struct gpu_tools *check, const char *links) {
    struct train train = {.check = check, .n = 100003};
    struct deft_options options;
    struct deft_stats stats;
    train.host = (float *)(void *)gpu_tools_must(malloc(train.n * sizeof(float)));
    open_job(&train, links, &options);
    for (uint64_t i = 0; i < TRAIN_ITERATIONS; i++) {
        iterate(&train, options.rank, i);
    }
    double worst = drain_and_compare(&train, options.n_ranks);
    deft_stats(train.rt, &stats);
    deft_close(train.rt);
    free(train.host);
    int passed =
        worst <= 1e-5 && stats.skipped == 1 && stats.updates == TRAIN_ITERATIONS / TRAIN_MERGE - 1;
    if (options.rank == 0) {
        (void)printf("{\"check\": \"averaged_train\", \"passed\": %s, \"links\": \"%s\", "
                     "\"ranks\": %d, \"worst_frac\": %.3g, \"skipped\": %llu}\n",
                     passed ? "true" : "false", links, options.n_ranks, worst,
                     (unsigned long long)stats.skipped);
    }
    return passed ? 0 : 1;
}
