/* CUDA as a device. Work goes onto the caller's stream, so that gradients are read, and averages
 * written, in the caller's own order; nothing here waits for the device but what device.h says. */
#include "link/cuda_device.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "link/cuda_copier.h"
#include "link/cuda_ready.h"
#include "link/device_kernels.h"

/* Iterations whose figures are under way: a host is seldom further ahead of its device. */
#define CUDA_N_FIGURES 8u

#define CUDA_NS_PER_MS 1e6

/* Figures of one iteration. */
struct cuda_figures {
    double *norms; /* pinned, [DEVICE_N_NORMS] */
    cudaEvent_t stages[DEVICE_N_STAGES];
    cudaEvent_t passed;
    uint32_t stamped; /* bit per stage */
    int is_pending;   /* `passed` has been recorded and not been seen */
};

struct cuda_device {
    struct device base;
    struct cuda_api api;
    const struct device_kernels *kernels;
    int number;
    cudaStream_t stream; /* the caller's */
    cudaStream_t upkeep; /* for new memory */
    cudaEvent_t changed; /* the end of the work on the stream before */
    double *norms;       /* device, [DEVICE_N_NORMS] */
    void *scratch;       /* device */
    struct cuda_figures figures[CUDA_N_FIGURES];
    uint32_t present; /* whose iteration it is */
    struct cuda_ready ready;
    struct deft_error failure;
};

static struct cuda_device *cuda_of(struct device *device) {
    return (struct cuda_device *)device;
}

/* --- failure ---------------------------------------------------------------------------------- */

static int cuda_is_fine(const struct cuda_device *self) {
    return self->failure.status == DEFT_OK;
}

/* Keeps the first failure. */
static void cuda_check(struct cuda_device *self, const char *call, cudaError_t code) {
    if (code != cudaSuccess && cuda_is_fine(self)) {
        deft_ignore(cuda_api_fail(&self->api, call, code, &self->failure));
    }
}

static void cuda_check_pass(struct cuda_device *self, const char *pass, int code) {
    if (code != 0 && cuda_is_fine(self)) {
        (void)deft_fail(&self->failure, DEFT_IO, code,
                        "CUDA: a pass over gradients (%s) failed: %s", pass,
                        self->kernels->text(code));
    }
}

static enum deft_status cuda_failure(const struct device *device, struct deft_error *error) {
    const struct cuda_device *self = (const struct cuda_device *)device;
    if (!cuda_is_fine(self) && error != NULL) {
        *error = self->failure;
    }
    return self->failure.status;
}

/* --- memory ----------------------------------------------------------------------------------- */

static void *cuda_alloc(struct device *device, size_t n_bytes) {
    struct cuda_device *self = cuda_of(device);
    void *memory = NULL;
    int before = cuda_api_enter(&self->api, self->number);
    if (self->api.malloc(&memory, n_bytes) != cudaSuccess) {
        memory = NULL;
    } else if (self->api.memset_async(memory, 0, n_bytes, self->upkeep) != cudaSuccess ||
               self->api.stream_synchronize(self->upkeep) != cudaSuccess) {
        (void)self->api.free(memory);
        memory = NULL;
    }
    cuda_api_leave(&self->api, self->number, before);
    return memory;
}

static void cuda_release(struct device *device, void *memory) {
    struct cuda_device *self = cuda_of(device);
    if (memory != NULL) {
        int before = cuda_api_enter(&self->api, self->number);
        (void)self->api.free(memory);
        cuda_api_leave(&self->api, self->number, before);
    }
}

static void *cuda_pin(struct device *device, size_t n_bytes) {
    struct cuda_device *self = cuda_of(device);
    void *memory = NULL;
    int before = cuda_api_enter(&self->api, self->number);
    if (self->api.host_alloc(&memory, n_bytes, cudaHostAllocPortable) != cudaSuccess) {
        memory = NULL;
    }
    cuda_api_leave(&self->api, self->number, before);
    return memory;
}

static void cuda_unpin(struct device *device, void *memory) {
    if (memory != NULL) {
        (void)cuda_of(device)->api.free_host(memory);
    }
}

/* --- passes ----------------------------------------------------------------------------------- */

static struct device_kernels_queue cuda_queue(const struct cuda_device *self) {
    return (struct device_kernels_queue){
        .device = self->number, .stream = self->stream, .scratch = self->scratch};
}

static void cuda_zero(struct device *device, void *into, size_t n_bytes) {
    struct cuda_device *self = cuda_of(device);
    if (cuda_is_fine(self)) {
        int before = cuda_api_enter(&self->api, self->number);
        cuda_check(self, "cudaMemsetAsync", self->api.memset_async(into, 0, n_bytes, self->stream));
        cuda_api_leave(&self->api, self->number, before);
    }
}

static size_t cuda_width(enum deft_dtype dtype) {
    return dtype == DEFT_F64 ? 8 : dtype == DEFT_F32 ? 4 : 2;
}

static double cuda_copy(struct device *device, enum deft_dtype dtype, void *into, const void *from,
                        uint64_t n, double factor, enum device_norm norm) {
    struct cuda_device *self = cuda_of(device);
    if (from == NULL) {
        cuda_zero(device, into, (size_t)n * cuda_width(dtype));
    } else if (cuda_is_fine(self)) {
        struct device_kernels_queue queue = cuda_queue(self);
        int before = cuda_api_enter(&self->api, self->number);
        cuda_check_pass(self, "copy",
                        self->kernels->combine(&queue, (int)dtype, into, from, n, factor, 0,
                                               &self->norms[norm]));
        cuda_api_leave(&self->api, self->number, before);
    }
    return 0;
}

static double cuda_add(struct device *device, enum deft_dtype dtype, void *into, const void *from,
                       uint64_t n, double factor, enum device_norm norm) {
    struct cuda_device *self = cuda_of(device);
    if (from != NULL && cuda_is_fine(self)) {
        struct device_kernels_queue queue = cuda_queue(self);
        int before = cuda_api_enter(&self->api, self->number);
        cuda_check_pass(self, "add",
                        self->kernels->combine(&queue, (int)dtype, into, from, n, factor, 1,
                                               &self->norms[norm]));
        cuda_api_leave(&self->api, self->number, before);
    }
    return 0;
}

static double cuda_norm(struct device *device, enum deft_dtype dtype, const void *x, uint64_t n,
                        enum device_norm norm) {
    struct cuda_device *self = cuda_of(device);
    if (cuda_is_fine(self)) {
        struct device_kernels_queue queue = cuda_queue(self);
        int before = cuda_api_enter(&self->api, self->number);
        cuda_check_pass(self, "norm",
                        self->kernels->norm(&queue, (int)dtype, x, n, &self->norms[norm]));
        cuda_api_leave(&self->api, self->number, before);
    }
    return 0;
}

static void cuda_scale(struct device *device, enum deft_dtype dtype, void *x, uint64_t n,
                       double factor) {
    struct cuda_device *self = cuda_of(device);
    if (cuda_is_fine(self)) {
        struct device_kernels_queue queue = cuda_queue(self);
        int before = cuda_api_enter(&self->api, self->number);
        cuda_check_pass(self, "scale", self->kernels->scale(&queue, (int)dtype, x, n, factor));
        cuda_api_leave(&self->api, self->number, before);
    }
}

static void cuda_move(struct device *device, void *into, const void *from, size_t n_bytes) {
    struct cuda_device *self = cuda_of(device);
    if (cuda_is_fine(self)) {
        int before = cuda_api_enter(&self->api, self->number);
        cuda_check(
            self, "cudaMemcpyAsync",
            self->api.memcpy_async(into, from, n_bytes, cudaMemcpyDeviceToDevice, self->stream));
        cuda_api_leave(&self->api, self->number, before);
    }
}

static void cuda_settle(struct device *device) {
    struct cuda_device *self = cuda_of(device);
    if (cuda_is_fine(self)) {
        int before = cuda_api_enter(&self->api, self->number);
        cuda_check(self, "cudaStreamSynchronize", self->api.stream_synchronize(self->stream));
        cuda_api_leave(&self->api, self->number, before);
    }
}

static void cuda_read(struct device *device, void *into, const void *from, size_t n_bytes) {
    struct cuda_device *self = cuda_of(device);
    memset(into, 0, n_bytes);
    if (cuda_is_fine(self)) {
        int before = cuda_api_enter(&self->api, self->number);
        cuda_check(
            self, "cudaMemcpyAsync",
            self->api.memcpy_async(into, from, n_bytes, cudaMemcpyDeviceToHost, self->stream));
        cuda_api_leave(&self->api, self->number, before);
        cuda_settle(device);
    }
}

/* --- order ------------------------------------------------------------------------------------ */

static cudaEvent_t cuda_new_event(struct cuda_device *self, unsigned flags) {
    cudaEvent_t event = NULL;
    int before = cuda_api_enter(&self->api, self->number);
    if (self->api.event_create_with_flags(&event, flags) != cudaSuccess) {
        event = NULL;
    }
    cuda_api_leave(&self->api, self->number, before);
    return event;
}

static void *cuda_mark_create(struct device *device) {
    return cuda_new_event(cuda_of(device), cudaEventDisableTiming);
}

static void cuda_mark_destroy(struct device *device, void *mark) {
    if (mark != NULL) {
        (void)cuda_of(device)->api.event_destroy(mark);
    }
}

static void cuda_record(struct cuda_device *self, cudaEvent_t event) {
    if (cuda_is_fine(self)) {
        int before = cuda_api_enter(&self->api, self->number);
        cuda_check(self, "cudaEventRecord", self->api.event_record(event, self->stream));
        cuda_api_leave(&self->api, self->number, before);
    }
}

static void cuda_mark(struct device *device, void *mark) {
    cuda_record(cuda_of(device), mark);
}

/* What would be recorded into a graph would run again and again without the runtime. */
static void cuda_refuse_capture(struct cuda_device *self, cudaStream_t stream) {
    enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    if (cuda_is_fine(self)) {
        cuda_check(self, "cudaStreamIsCapturing", self->api.stream_is_capturing(stream, &status));
    }
    if (cuda_is_fine(self) && status != cudaStreamCaptureStatusNone) {
        (void)deft_fail(&self->failure, DEFT_UNSUPPORTED, 0,
                        "the caller's stream is being captured into a CUDA graph; iterations that "
                        "libdeft synchronises must run without one");
    }
}

static void cuda_use_stream(struct device *device, void *stream) {
    struct cuda_device *self = cuda_of(device);
    if (stream == self->stream || !cuda_is_fine(self)) {
        return;
    }
    cuda_refuse_capture(self, stream);
    cuda_record(self, self->changed);
    if (cuda_is_fine(self)) {
        int before = cuda_api_enter(&self->api, self->number);
        cuda_check(self, "cudaStreamWaitEvent",
                   self->api.stream_wait_event(stream, self->changed, 0));
        cuda_api_leave(&self->api, self->number, before);
    }
    self->stream = stream;
}

/* --- figures ---------------------------------------------------------------------------------- */

static void cuda_stamp(struct device *device, enum device_stage stage) {
    struct cuda_device *self = cuda_of(device);
    struct cuda_figures *figures = &self->figures[self->present];
    cuda_refuse_capture(self, self->stream);
    cuda_record(self, figures->stages[stage]);
    figures->stamped |= 1u << stage;
    if (cuda_is_fine(self) && stage != DEVICE_FORWARD) {
        int before = cuda_api_enter(&self->api, self->number);
        cuda_check(self, "cudaEventRecord",
                   stage == DEVICE_BACKWARD
                       ? cuda_ready_begin(&self->ready, &self->api, self->stream)
                       : cuda_ready_end(&self->ready, &self->api, self->stream));
        cuda_api_leave(&self->api, self->number, before);
    }
}

static void cuda_came(struct device *device, uint32_t tensor, uint32_t n_tensors) {
    struct cuda_device *self = cuda_of(device);
    if (cuda_is_fine(self)) {
        int before = cuda_api_enter(&self->api, self->number);
        cuda_check(self, "cudaEventRecord",
                   cuda_ready_came(&self->ready, &self->api, self->stream, tensor, n_tensors));
        cuda_api_leave(&self->api, self->number, before);
    }
}

static int cuda_take_readiness(struct device *device, int64_t *offsets_ns) {
    struct cuda_device *self = cuda_of(device);
    int found = 0;
    if (cuda_is_fine(self)) {
        int before = cuda_api_enter(&self->api, self->number);
        cuda_check(self, "cudaEventElapsedTime",
                   cuda_ready_take(&self->ready, &self->api, offsets_ns, &found));
        cuda_api_leave(&self->api, self->number, before);
    }
    return found;
}

static int64_t cuda_between_ns(const struct cuda_device *self, cudaEvent_t begin, cudaEvent_t end) {
    float ms = 0;
    if (self->api.event_elapsed_time(&ms, begin, end) != cudaSuccess || !(ms > 0)) {
        return 0;
    }
    return (int64_t)((double)ms * CUDA_NS_PER_MS);
}

static void cuda_read_figures(const struct cuda_device *self, const struct cuda_figures *from,
                              struct device_figures *out) {
    memset(out, 0, sizeof(*out));
    memcpy(out->norms, from->norms, sizeof(out->norms));
    if (from->stamped == (1u << DEVICE_N_STAGES) - 1) {
        out->forward_ns =
            cuda_between_ns(self, from->stages[DEVICE_FORWARD], from->stages[DEVICE_BACKWARD]);
        out->backward_ns =
            cuda_between_ns(self, from->stages[DEVICE_BACKWARD], from->stages[DEVICE_BOUNDARY]);
    }
}

/* The sums of this iteration go to the host, in order, and begin anew. */
static void cuda_end_figures(struct cuda_device *self) {
    struct cuda_figures *figures = &self->figures[self->present];
    size_t n_bytes = DEVICE_N_NORMS * sizeof(double);
    cuda_check(self, "cudaMemcpyAsync",
               self->api.memcpy_async(figures->norms, self->norms, n_bytes, cudaMemcpyDeviceToHost,
                                      self->stream));
    cuda_check(self, "cudaMemsetAsync",
               self->api.memset_async(self->norms, 0, n_bytes, self->stream));
    cuda_record(self, figures->passed);
    figures->is_pending = 1;
    self->present = (self->present + 1) % CUDA_N_FIGURES;
    /* Of a device that is further behind the oldest figures are lost. */
    self->figures[self->present].is_pending = 0;
    self->figures[self->present].stamped = 0;
}

static int cuda_collect(struct device *device, struct device_figures *out) {
    struct cuda_device *self = cuda_of(device);
    int found = 0;
    if (!cuda_is_fine(self)) {
        return 0;
    }
    int before = cuda_api_enter(&self->api, self->number);
    cuda_end_figures(self);
    for (uint32_t i = 1; i <= CUDA_N_FIGURES && cuda_is_fine(self); i++) { /* oldest first */
        struct cuda_figures *figures = &self->figures[(self->present + i) % CUDA_N_FIGURES];
        if (!figures->is_pending) {
            continue;
        }
        cudaError_t code = self->api.event_query(figures->passed);
        if (code == cudaErrorNotReady) {
            break;
        }
        cuda_check(self, "cudaEventQuery", code);
        cuda_read_figures(self, figures, out);
        figures->is_pending = 0;
        found = cuda_is_fine(self);
    }
    cuda_api_leave(&self->api, self->number, before);
    return found;
}

/* --- open and close --------------------------------------------------------------------------- */

static void cuda_destroy_event(const struct cuda_device *self, cudaEvent_t event) {
    if (event != NULL) {
        (void)self->api.event_destroy(event);
    }
}

static void cuda_close(struct device *device) {
    struct cuda_device *self = cuda_of(device);
    if (self == NULL) {
        return;
    }
    for (uint32_t i = 0; i < CUDA_N_FIGURES; i++) {
        struct cuda_figures *figures = &self->figures[i];
        cuda_unpin(device, figures->norms);
        cuda_destroy_event(self, figures->passed);
        for (uint32_t s = 0; s < DEVICE_N_STAGES; s++) {
            cuda_destroy_event(self, figures->stages[s]);
        }
    }
    cuda_destroy_event(self, self->changed);
    cuda_ready_done(&self->ready, &self->api);
    cuda_release(device, self->norms);
    cuda_release(device, self->scratch);
    if (self->upkeep != NULL) {
        (void)self->api.stream_destroy(self->upkeep);
    }
    free(self);
}

/* libdeft-cuda lies beside libdeft, wherever that is. */
static enum deft_status cuda_load_kernels(struct cuda_device *self, struct deft_error *error) {
    char beside[256] = "";
    const char *names[] = {beside, "libdeft-cuda.so.0", NULL};
    struct library library;
    const struct device_kernels *(*find)(void) = NULL;
    static const struct library_symbol symbol = {DEVICE_KERNELS_SYMBOL, 0};
    Dl_info own;
    if (dladdr(&symbol, &own) != 0 && own.dli_fname != NULL) {
        const char *slash = strrchr(own.dli_fname, '/');
        (void)snprintf(beside, sizeof(beside), "%.*slibdeft-cuda.so.0",
                       slash != NULL ? (int)(slash + 1 - own.dli_fname) : 0, own.dli_fname);
    }
    enum deft_status status =
        library_open("libdeft-cuda", "DEFT_CUDA_KERNELS", names, &library, error);
    if (status == DEFT_OK) {
        status = library_bind(&library, &symbol, 1, &find, error);
    }
    if (status != DEFT_OK) {
        return status;
    }
    self->kernels = find();
    if (self->kernels->version != DEVICE_KERNELS_VERSION) {
        return deft_fail(error, DEFT_MISMATCH, 0,
                         "%.160s has interface %u, this libdeft needs %u: install both from one "
                         "build",
                         library.path, self->kernels->version, DEVICE_KERNELS_VERSION);
    }
    return DEFT_OK;
}

static int cuda_make_figures(struct cuda_device *self) {
    for (uint32_t i = 0; i < CUDA_N_FIGURES; i++) {
        struct cuda_figures *figures = &self->figures[i];
        figures->norms = cuda_pin(&self->base, DEVICE_N_NORMS * sizeof(double));
        figures->passed = cuda_new_event(self, cudaEventDisableTiming);
        if (figures->norms == NULL || figures->passed == NULL) {
            return 0;
        }
        for (uint32_t s = 0; s < DEVICE_N_STAGES; s++) {
            figures->stages[s] = cuda_new_event(self, cudaEventDefault);
            if (figures->stages[s] == NULL) {
                return 0;
            }
        }
    }
    return 1;
}

static enum deft_status cuda_make(struct cuda_device *self, int number, struct deft_error *error) {
    int n_devices = 0;
    cudaError_t code = self->api.get_device_count(&n_devices);
    self->number = number;
    if (code == cudaSuccess && number < 0) {
        code = self->api.get_device(&self->number);
    }
    if (code != cudaSuccess) {
        return cuda_api_fail(&self->api, "cudaGetDevice", code, error);
    }
    if (self->number >= n_devices) {
        return deft_fail(error, DEFT_NOT_FOUND, 0,
                         "the device is cuda:%d, but CUDA has devices 0..%d here", self->number,
                         n_devices - 1);
    }
    int before = cuda_api_enter(&self->api, self->number);
    code = self->api.stream_create_with_priority(&self->upkeep, cudaStreamNonBlocking, 0);
    cuda_api_leave(&self->api, self->number, before);
    if (code != cudaSuccess) {
        return cuda_api_fail(&self->api, "cudaStreamCreateWithPriority", code, error);
    }
    self->changed = cuda_new_event(self, cudaEventDisableTiming);
    self->norms = cuda_alloc(&self->base, DEVICE_N_NORMS * sizeof(double));
    self->scratch = cuda_alloc(&self->base, self->kernels->scratch_bytes);
    if (self->changed == NULL || self->norms == NULL || self->scratch == NULL ||
        !cuda_make_figures(self)) {
        return deft_fail(error, DEFT_NO_MEMORY, 0, "no memory or events on device cuda:%d",
                         self->number);
    }
    return DEFT_OK;
}

static const struct device_ops cuda_ops = {
    .name = "cuda",
    .is_async = 1,
    .alloc = cuda_alloc,
    .release = cuda_release,
    .copy = cuda_copy,
    .add = cuda_add,
    .norm = cuda_norm,
    .scale = cuda_scale,
    .move = cuda_move,
    .zero = cuda_zero,
    .read = cuda_read,
    .mark_create = cuda_mark_create,
    .mark_destroy = cuda_mark_destroy,
    .mark = cuda_mark,
    .use_stream = cuda_use_stream,
    .stamp = cuda_stamp,
    .collect = cuda_collect,
    .came = cuda_came,
    .take_readiness = cuda_take_readiness,
    .settle = cuda_settle,
    .pin = cuda_pin,
    .unpin = cuda_unpin,
    .copier_open = cuda_copier_open,
    .copier_close = cuda_copier_close,
    .pull = cuda_copier_pull,
    .push = cuda_copier_push,
    .failure = cuda_failure,
    .close = cuda_close,
};

enum deft_status cuda_device_open(int number, struct device **out, struct deft_error *error) {
    struct cuda_device *self = calloc(1, sizeof(*self));
    if (self == NULL) {
        return deft_fail(error, DEFT_NO_MEMORY, 0, "no memory for a device");
    }
    self->base.ops = &cuda_ops;
    enum deft_status status = cuda_api_load(&self->api, error);
    if (status != DEFT_OK) {
        free(self); /* nothing was made, and nobody could unmake it */
        return status;
    }
    status = cuda_load_kernels(self, error);
    if (status == DEFT_OK) {
        status = cuda_make(self, number, error);
    }
    if (status != DEFT_OK) {
        cuda_close(&self->base);
        return status;
    }
    *out = &self->base;
    return DEFT_OK;
}

const struct cuda_api *cuda_device_api(const struct device *device) {
    return device != NULL && device->ops == &cuda_ops ? &((const struct cuda_device *)device)->api
                                                      : NULL;
}

int cuda_device_number(const struct device *device) {
    return ((const struct cuda_device *)device)->number;
}
