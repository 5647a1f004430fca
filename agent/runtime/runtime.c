/* Life of a runtime: open, tensors, commit, close; and what it tells about itself. */
#include "runtime/runtime.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/thread.h"
#include "runtime/device_host.h"
#include "runtime/meeting.h"
#include "runtime/star_io.h"

/* The built-in plan is what PyTorch's DDP does; its defaults, until the links have been measured.
 */
#define RUNTIME_FIRST_BUCKET_BYTES (UINT64_C(1) << 20)
#define RUNTIME_LATER_BUCKET_BYTES (UINT64_C(25) << 20)
/* Below this an all-reduce costs the host more than a shorter tail saves, whatever the link. */
#define RUNTIME_LEAST_BUCKET_BYTES (UINT64_C(4) << 20)
/* 80 s of iterations at 100 per second, should the agent be away. */
#define RUNTIME_ITERATION_SLOTS UINT64_C(8192)
#define RUNTIME_OP_SLOTS        UINT64_C(16384)
/* Ranks end at slightly different times; links close when all have said goodbye, or after this. */
#define RUNTIME_LEAVE_NS INT64_C(1000000000)

#define RUNTIME_STRINGIFY(x) #x
#define RUNTIME_STRING(x)    RUNTIME_STRINGIFY(x)

const char *deft_version(void) {
    return RUNTIME_STRING(DEFT_VERSION_MAJOR) "." RUNTIME_STRING(
        DEFT_VERSION_MINOR) "." RUNTIME_STRING(DEFT_VERSION_PATCH);
}

static enum deft_status runtime_check(const struct deft_options *options,
                                      struct deft_error *error) {
    if (options->size_bytes != sizeof(*options)) {
        return deft_fail(error, DEFT_MISMATCH, 0,
                         "the options have %zu bytes, this library expects %zu: the program was "
                         "compiled against another version, or deft_options_init was not called",
                         options->size_bytes, sizeof(*options));
    }
    if (options->n_ranks < 1 || options->n_ranks > DEFT_MAX_RANKS || options->rank < 0 ||
        options->rank >= options->n_ranks) {
        return deft_fail(error, DEFT_INVALID, 0,
                         "this is rank %d of %d; expected a rank of 0..n-1 and at most %d ranks",
                         options->rank, options->n_ranks, DEFT_MAX_RANKS);
    }
    if (options->job_id == NULL || options->links == NULL || options->links[0] == '\0' ||
        strlen(options->job_id) >= IPC_ID_BYTES) {
        return deft_fail(error, DEFT_INVALID, 0,
                         "job_id and links must be set, and job_id shorter than %u bytes",
                         IPC_ID_BYTES);
    }
    if (options->allgather == NULL && options->n_ranks > 1 &&
        (options->master_host == NULL || options->master_port == 0)) {
        return deft_fail(error, DEFT_INVALID, 0,
                         "without an all-gather of the caller, master_host and master_port must be "
                         "set (DEFT_MASTER_ADDR, DEFT_MASTER_PORT)");
    }
    return DEFT_OK;
}

/* The caller's strings may go away. */
static enum deft_status runtime_copy_options(struct deft_runtime *rt,
                                             const struct deft_options *options,
                                             struct deft_error *error) {
    rt->options = *options;
    rt->options.first_plan = NULL;
    if (options->first_plan != NULL) {
        void *copy = malloc(options->first_plan_bytes + 1);
        if (copy == NULL) {
            return deft_fail(error, DEFT_NO_MEMORY, 0, "no memory for a first plan");
        }
        memcpy(copy, options->first_plan, options->first_plan_bytes);
        rt->first_plan = copy;
        rt->options.first_plan = copy;
    }
    const char **texts[] = {&rt->options.job_id,       &rt->options.job_name,
                            &rt->options.master_host,  &rt->options.links,
                            &rt->options.agent_socket, &rt->options.device};
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        rt->strings[i] = strdup(*texts[i] != NULL ? *texts[i] : "");
        if (rt->strings[i] == NULL) {
            return deft_fail(error, DEFT_NO_MEMORY, 0, "no memory for a runtime");
        }
        *texts[i] = rt->strings[i];
    }
    return DEFT_OK;
}

/* "cpu", "cuda" or "cuda:N". */
static enum deft_status runtime_open_device(struct deft_runtime *rt, struct deft_error *error) {
    const char *name = rt->options.device;
    unsigned long number = 0;
    char *end = NULL;
    if (name[0] == '\0' || strcmp(name, "cpu") == 0) {
        return DEFT_OK;
    }
    if (strncmp(name, "cuda:", 5) == 0 && name[5] >= '0' && name[5] <= '9') {
        number = strtoul(name + 5, &end, 10);
    }
    if (strcmp(name, "cuda") != 0 && (end == NULL || *end != '\0' || number > INT16_MAX)) {
        return deft_fail(error, DEFT_INVALID, 0,
                         "the device is '%.40s', expected cpu, cuda or cuda:NUMBER", name);
    }
#ifdef DEFT_WITH_CUDA
    struct device *device = NULL;
    enum deft_status status = cuda_device_open(end != NULL ? (int)number : -1, &device, error);
    if (status == DEFT_OK) {
        rt->device = rt->space.device = device;
    }
    return status;
#else
    return deft_fail(error, DEFT_UNSUPPORTED, 0,
                     "the device is '%s', but this build of libdeft has no CUDA "
                     "(DEFT_WITH_NCCL=ON)",
                     name);
#endif
}

enum deft_status deft_open(const struct deft_options *options, struct deft_runtime **out,
                           struct deft_error *error) {
    enum deft_status status = runtime_check(options, error);
    if (status != DEFT_OK) {
        if (options->size_bytes == sizeof(*options)) { /* else nobody knows where it is */
            star_io_close(options->master_fd);
        }
        return status;
    }
    struct deft_runtime *rt = calloc(1, sizeof(*rt));
    if (rt == NULL) {
        star_io_close(options->master_fd);
        return deft_fail(error, DEFT_NO_MEMORY, 0, "no memory for a runtime");
    }
    rt->host.ops = &device_host;
    rt->device = rt->space.device = &rt->host;
    rt->stats.mean_loss = NAN;
    rt->stats.mean_grad_sq_local = NAN;
    rt->stats.grad_sq_mean = NAN;
    deft_learning_rate(rt, options->learning_rate != 0 ? options->learning_rate : NAN);
    (void)pthread_mutex_init(&rt->failure_lock, NULL);
    (void)thread_condition_init(&rt->failure_known);
    status = runtime_copy_options(rt, options, error);
    if (status == DEFT_OK) {
        status = runtime_open_device(rt, error);
    }
    if (status == DEFT_OK) {
        status = meeting_begin(rt, error);
    } else {
        star_io_close(options->master_fd);
    }
    if (status != DEFT_OK) {
        deft_close(rt);
        return status;
    }
    *out = rt;
    return DEFT_OK;
}

enum deft_status deft_tensor_add(struct deft_runtime *rt, const struct deft_tensor *tensor,
                                 uint32_t *out_id, struct deft_error *error) {
    if (rt->life != RUNTIME_OPEN) {
        return deft_fail(error, DEFT_STATE, 0, "tensor %s was added after commit", tensor->name);
    }
    return gradspace_add(&rt->space, tensor, out_id, error);
}

const char *deft_notice(const struct deft_runtime *rt) {
    return rt->notice;
}

static enum deft_status runtime_allocate(struct deft_runtime *rt, struct deft_error *error) {
    uint32_t n = rt->space.n_tensors;
    rt->gradients = calloc(n, sizeof(void *));
    rt->given = calloc(n, sizeof(void *));
    rt->was_given = calloc(n, 1);
    rt->readiness_sum_ns = calloc(n, sizeof(*rt->readiness_sum_ns));
    rt->readiness_ns = calloc(n, sizeof(*rt->readiness_ns));
    if (rt->gradients == NULL || rt->given == NULL || rt->was_given == NULL ||
        rt->readiness_sum_ns == NULL || rt->readiness_ns == NULL ||
        !mailbox_init(&rt->mailbox, n) ||
        !ring_init(&rt->iterations, sizeof(struct ipc_iteration), RUNTIME_ITERATION_SLOTS) ||
        !ring_init(&rt->ops, sizeof(struct ipc_op), RUNTIME_OP_SLOTS)) {
        return deft_fail(error, DEFT_NO_MEMORY, 0, "no memory for %u tensors", n);
    }
    return DEFT_OK;
}

/* Buckets of s bytes cost S / s latencies, and the last of them lands s / bandwidth after backward:
 * least where s = sqrt(S * latency * bandwidth). The probes are the same on all ranks. */
static uint64_t runtime_bucket_bytes(const struct deft_runtime *rt) {
    const struct runtime_link *link = &rt->links[0];
    uint64_t n_bytes = RUNTIME_LATER_BUCKET_BYTES;
    if (link->n_probes >= 2) {
        const struct dsched_sample *last = &link->probes[link->n_probes - 1];
        double rise_ns = (double)(last->ns - last[-1].ns);
        double width = (double)(last->bytes - last[-1].bytes);
        double latency_ns = (double)link->probes[0].ns;
        if (rise_ns > 0) {
            double best = sqrt((double)rt->space.n_bytes * latency_ns * width / rise_ns);
            n_bytes = best < (double)n_bytes ? (uint64_t)best : n_bytes;
        }
    }
    return n_bytes < RUNTIME_LEAST_BUCKET_BYTES ? RUNTIME_LEAST_BUCKET_BYTES : n_bytes;
}

/* Anew once the links have been measured. */
static enum deft_status runtime_cut_builtin(struct deft_runtime *rt, struct deft_error *error) {
    struct dsched_table table = gradspace_table(&rt->space);
    struct dsched_plan plan;
    if (dsched_plan_ddp(&table, RUNTIME_FIRST_BUCKET_BYTES, runtime_bucket_bytes(rt), &plan) !=
        DSCHED_OK) {
        return deft_fail(error, DEFT_LIMIT, 0, "%" PRIu64 " elements do not fit into buckets",
                         rt->space.n_elements);
    }
    dsched_plan_done(&rt->builtin);
    rt->builtin = plan;
    return DEFT_OK;
}

static enum deft_status runtime_run_builtin(struct deft_runtime *rt, struct deft_error *error) {
    struct engine *engine = NULL;
    enum deft_status status =
        engine_create(&rt->builtin, 0, &rt->space, rt->options.write_back != 0, &engine, error);
    if (status == DEFT_OK) {
        engine_destroy(rt->engine);
        rt->engine = engine;
        rt->stats.plan_hash = engine->hash;
        gradients_expect(rt);
    }
    return status;
}

enum deft_status deft_commit(struct deft_runtime *rt, struct deft_error *error) {
    if (rt->life != RUNTIME_OPEN) {
        return deft_fail(error, DEFT_STATE, 0, "deft_commit was called twice");
    }
    enum deft_status status = gradspace_seal(&rt->space, error);
    if (status == DEFT_OK) {
        status = runtime_allocate(rt, error);
    }
    if (status == DEFT_OK) {
        status = runtime_cut_builtin(rt, error);
    }
    if (status == DEFT_OK) {
        status = runtime_run_builtin(rt, error);
    }
    if (status == DEFT_OK) {
        status = meeting_compare(rt, error);
    }
    if (status == DEFT_OK) {
        status = meeting_open_links(rt, error);
    }
    if (status == DEFT_OK && rt->star != NULL) {
        status = star_watch(rt->star, failure_lost, rt, error);
    }
    if (status == DEFT_OK) {
        status = probe_links(rt, error);
    }
    if (status == DEFT_OK) {
        status = probe_share_parameters(rt, error);
    }
    if (status == DEFT_OK) {
        status = runtime_cut_builtin(rt, error);
    }
    if (status == DEFT_OK) {
        status =
            rt->first_plan != NULL ? admission_first(rt, error) : runtime_run_builtin(rt, error);
    }
    if (status == DEFT_OK) { /* what any plan falls back to */
        status = gradients_reserve(rt, &rt->builtin, error);
    }
    if (status == DEFT_OK) {
        rt->clock_origin_ns = clock_monotonic_ns();
        status = telemetry_start(rt, error);
    }
    if (status == DEFT_OK) {
        rt->life = RUNTIME_COMMITTED;
        rt->is_fresh = 1;
    } else if (rt->failure.status == DEFT_OK) {
        (void)deft_fail(&rt->failure, status, 0, "%s",
                        error != NULL ? error->text : deft_status_text(status));
    }
    return status;
}

void deft_stop_request(struct deft_runtime *rt) {
    __atomic_store_n(&rt->stop_wished, 1, __ATOMIC_RELAXED);
}

void deft_drain_request(struct deft_runtime *rt) {
    __atomic_store_n(&rt->drain_wished, 1, __ATOMIC_RELAXED);
}

void deft_finish_request(struct deft_runtime *rt) {
    __atomic_store_n(&rt->finish_wished, 1, __ATOMIC_RELAXED);
}

void deft_capabilities_drop(struct deft_runtime *rt, uint32_t capabilities) {
    (void)__atomic_fetch_and(&rt->options.capabilities, ~capabilities, __ATOMIC_RELAXED);
}

size_t deft_plan_export(const struct deft_runtime *rt, void *out, size_t capacity_bytes) {
    return rt->engine == NULL ? 0 : dsched_plan_encode(&rt->engine->plan, out, capacity_bytes);
}

void deft_stats(const struct deft_runtime *rt, struct deft_stats *out) {
    *out = rt->stats;
    out->refused = __atomic_load_n(&rt->n_refused, __ATOMIC_RELAXED);
    out->agent_connected = (uint32_t)telemetry_connected(rt->telemetry);
    out->telemetry_dropped = telemetry_dropped(rt->telemetry);
    if (rt->engine != NULL) {
        out->pending_bytes =
            rt->engine->pending_bytes + (rt->candidate != NULL ? rt->candidate->pending_bytes : 0);
        out->plan_seq = rt->engine->seq;
        out->plan_hash = rt->engine->hash;
        strncpy(out->rule, dsched_rule_name(rt->engine->plan.rule), sizeof(out->rule) - 1);
    }
}

uint64_t runtime_hash(uint64_t hash, const void *bytes, size_t n_bytes) {
    const uint8_t *next = bytes;
    for (size_t i = 0; i < n_bytes; i++) {
        hash = (hash ^ next[i]) * UINT64_C(1099511628211);
    }
    return hash;
}

static uint64_t runtime_hash_memory(const struct deft_runtime *rt, uint64_t hash,
                                    const uint8_t *bytes, size_t n_bytes) {
    uint8_t part[4096];
    if (!rt->device->ops->is_async) {
        return runtime_hash(hash, bytes, n_bytes);
    }
    for (size_t at = 0; at < n_bytes; at += sizeof(part)) {
        size_t n = n_bytes - at < sizeof(part) ? n_bytes - at : sizeof(part);
        rt->device->ops->read(rt->device, part, bytes + at, n);
        hash = runtime_hash(hash, part, n);
    }
    return hash;
}

void deft_parameters_loaded(struct deft_runtime *rt) {
    if (rt->engine != NULL) {
        memset(rt->engine->previewed, 0, rt->space.n_tensors);
    }
}

void deft_forked(struct deft_runtime *rt) {
    if (rt != NULL) {
        star_forked(rt->star);
        telemetry_forked(rt->telemetry);
    }
}

uint64_t deft_anchor_hash(const struct deft_runtime *rt) {
    uint64_t hash = RUNTIME_HASH_START;
    const struct engine *engine = rt->engine;
    if (engine == NULL || !gradspace_has_parameters(&rt->space)) {
        return 0;
    }
    for (uint32_t i = 0; i < rt->space.n_tensors; i++) {
        const struct gradspace_tensor *tensor = &rt->space.tensors[i];
        const uint8_t *bytes = tensor->parameters;
        if (engine->plan.rule == DSCHED_AVERAGED || engine->previewed[i]) {
            bytes = engine->anchor + tensor->offset_bytes;
        }
        size_t n_bytes = (size_t)tensor->elements * dsched_dtype_bytes(tensor->dtype);
        hash = runtime_hash_memory(rt, hash, bytes, n_bytes);
    }
    return hash;
}

/* Returns 1 when a stuck link thread may still write into pending generations. */
static int runtime_close_links(struct deft_runtime *rt) {
    int stuck = 0;
    for (uint32_t l = 0; l < rt->n_links; l++) {
        stuck |= rt->links[l].ops->close(rt->links[l].link);
    }
    if (rt->control_link.ops != NULL) {
        stuck |= rt->control_link.ops->close(rt->control_link.link);
    }
    return stuck;
}

void deft_close(struct deft_runtime *rt) {
    if (rt == NULL) {
        return;
    }
    const struct deft_error *failure = rt->failure.status != DEFT_OK ? &rt->failure : NULL;
    if (rt->has_finished) {
        ring_put(&rt->iterations, &rt->finished);
        rt->has_finished = 0;
    }
    telemetry_stop(rt->telemetry, failure);
    if (failure == NULL) {
        star_leave(rt->star, RUNTIME_LEAVE_NS);
    }
    star_close(rt->star, failure);
    if (runtime_close_links(rt)) {
        return; /* leaks on purpose: the process is ending after a failure */
    }
    engine_destroy(rt->engine);
    engine_destroy(rt->candidate);
    dsched_plan_done(&rt->builtin);
    mailbox_done(&rt->mailbox);
    ring_done(&rt->iterations);
    ring_done(&rt->ops);
    free((void *)rt->gradients);
    free((void *)rt->given);
    free(rt->was_given);
    free(rt->readiness_sum_ns);
    free(rt->readiness_ns);
    state_done(rt);
    free(rt->scratch_data);
    free(rt->first_plan);
    gradspace_done(&rt->space);
    rt->device->ops->close(rt->device);
    for (size_t i = 0; i < sizeof(rt->strings) / sizeof(rt->strings[0]); i++) {
        free(rt->strings[i]);
    }
    (void)pthread_cond_destroy(&rt->failure_known);
    (void)pthread_mutex_destroy(&rt->failure_lock);
    free(rt);
}
