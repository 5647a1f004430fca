/* CUDA as a device. Work goes onto the caller's stream, so that gradients are read, and averages
 * written, in the caller's own order; nothing here waits for the device but what device.h says. */
#include "link/cuda_device.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "link/cuda_copier.h"
#include "link/cuda_figures.h"
#include "link/cuda_ready.h"
#include "link/device_kernels.h"

struct cuda_device {
    struct device base;
    struct cuda_api api;
    const struct device_kernels *kernels;
    int number;
    cudaStream_t stream; /* the caller's */
    cudaStream_t upkeep; /* for new memory */
    cudaEvent_t changed; /* the end of the work on the stream before */
    void *scratch;       /* device */
    struct cuda_figures figures;
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
    const struct cuda_api *api = &self->api;
    void *memory = NULL;
    int before = cuda_api_enter(api, self->number);
    cudaError_t code = cuda_api_forget(api, api->malloc(&memory, n_bytes));
    if (code != cudaSuccess) {
        memory = NULL;
    } else {
        code = cuda_api_forget(api, api->memset_async(memory, 0, n_bytes, self->upkeep));
    }
    if (code == cudaSuccess) {
        code = cuda_api_forget(api, api->stream_synchronize(self->upkeep));
    }
    if (code != cudaSuccess && memory != NULL) {
        (void)cuda_api_forget(api, api->free(memory));
        memory = NULL;
    }
    cuda_api_leave(&self->api, self->number, before);
    return memory;
}

static void cuda_release(struct device *device, void *memory) {
    struct cuda_device *self = cuda_of(device);
    if (memory != NULL) {
        int before = cuda_api_enter(&self->api, self->number);
        (void)cuda_api_forget(&self->api, self->api.free(memory));
        cuda_api_leave(&self->api, self->number, before);
    }
}

static void *cuda_pin(struct device *device, size_t n_bytes) {
    struct cuda_device *self = cuda_of(device);
    void *memory = NULL;
    int before = cuda_api_enter(&self->api, self->number);
    if (cuda_api_forget(&self->api, self->api.host_alloc(&memory, n_bytes,
                                                         cudaHostAllocPortable)) != cudaSuccess) {
        memory = NULL;
    }
    cuda_api_leave(&self->api, self->number, before);
    return memory;
}

static void cuda_unpin(struct device *device, void *memory) {
    const struct cuda_api *api = &cuda_of(device)->api;
    if (memory != NULL) {
        (void)cuda_api_forget(api, api->free_host(memory));
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
                                               &self->figures.sums->norms[norm]));
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
                                               &self->figures.sums->norms[norm]));
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
        cuda_check_pass(
            self, "norm",
            self->kernels->norm(&queue, (int)dtype, x, n, &self->figures.sums->norms[norm]));
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
    if (cuda_api_forget(&self->api, self->api.event_create_with_flags(&event, flags)) !=
        cudaSuccess) {
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

/* --- averaged --------------------------------------------------------------------------------- */

static void cuda_guard(struct device *device, const struct device_averaged_gradient *gradients,
                       uint32_t n_gradients, int begins) {
    struct cuda_device *self = cuda_of(device);
    struct cuda_figures_sums *sums = self->figures.sums;
    if (cuda_is_fine(self)) {
        struct device_kernels_queue queue = cuda_queue(self);
        int before = cuda_api_enter(&self->api, self->number);
        cuda_check_pass(self, "guard",
                        self->kernels->guard(&queue, gradients, n_gradients, begins,
                                             &sums->norms[DEVICE_NORM_LOCAL],
                                             &sums->notes.generation_is_bad));
        cuda_api_leave(&self->api, self->number, before);
    }
}

static int cuda_judge(struct device *device, enum deft_dtype dtype, const void *landed,
                      int counts) {
    struct cuda_device *self = cuda_of(device);
    if (cuda_is_fine(self)) {
        struct device_kernels_queue queue = cuda_queue(self);
        int before = cuda_api_enter(&self->api, self->number);
        cuda_check_pass(
            self, "judge",
            self->kernels->judge(&queue, (int)dtype, landed, counts, &self->figures.sums->notes));
        cuda_api_leave(&self->api, self->number, before);
    }
    return 0;
}

static void cuda_average(struct device *device, enum deft_dtype dtype,
                         const struct device_averaged *at, uint64_t n,
                         struct device_averaged_sums *sums) {
    struct cuda_device *self = cuda_of(device);
    (void)sums;
    if (cuda_is_fine(self)) {
        struct device_kernels_queue queue = cuda_queue(self);
        int before = cuda_api_enter(&self->api, self->number);
        cuda_check_pass(self, "average",
                        self->kernels->average(&queue, (int)dtype, at, n, /* and _CHANGE */
                                               &self->figures.sums->norms[DEVICE_NORM_MEAN],
                                               &self->figures.sums->notes));
        cuda_api_leave(&self->api, self->number, before);
    }
}

static void cuda_seal(struct device *device, enum deft_dtype dtype, void *sum, int is_bad) {
    struct cuda_device *self = cuda_of(device);
    (void)is_bad;
    if (cuda_is_fine(self)) {
        struct device_kernels_queue queue = cuda_queue(self);
        int before = cuda_api_enter(&self->api, self->number);
        cuda_check_pass(self, "seal",
                        self->kernels->seal(&queue, (int)dtype, sum, &self->figures.sums->notes));
        cuda_api_leave(&self->api, self->number, before);
    }
}

static void cuda_purge(struct device *device, enum deft_dtype dtype, void *x, uint64_t n) {
    struct cuda_device *self = cuda_of(device);
    double *norm = &self->figures.sums->purged;
    const struct device_averaged_gradient all = {.memory = x, .n_bytes = n * cuda_width(dtype)};
    cuda_zero(device, norm, sizeof(*norm));
    if (cuda_is_fine(self)) {
        struct device_kernels_queue queue = cuda_queue(self);
        int before = cuda_api_enter(&self->api, self->number);
        cuda_check_pass(self, "norm", self->kernels->norm(&queue, (int)dtype, x, n, norm));
        cuda_check_pass(self, "purge", self->kernels->guard(&queue, &all, 1, 1, norm, NULL));
        cuda_api_leave(&self->api, self->number, before);
    }
}

/* --- figures ---------------------------------------------------------------------------------- */

static void cuda_stamp(struct device *device, enum device_stage stage) {
    struct cuda_device *self = cuda_of(device);
    cuda_refuse_capture(self, self->stream);
    if (!cuda_is_fine(self)) {
        return;
    }
    int before = cuda_api_enter(&self->api, self->number);
    cudaError_t code = cuda_figures_stamp(&self->figures, &self->api, self->stream, stage);
    if (code == cudaSuccess && stage == DEVICE_BACKWARD) {
        code = cuda_ready_begin(&self->ready, &self->api, self->stream);
    } else if (code == cudaSuccess && stage == DEVICE_BOUNDARY) {
        code = cuda_ready_end(&self->ready, &self->api, self->stream);
    }
    cuda_check(self, "cudaEventRecord", code);
    cuda_api_leave(&self->api, self->number, before);
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

static int cuda_collect(struct device *device, struct device_figures *out) {
    struct cuda_device *self = cuda_of(device);
    const char *call = NULL;
    int found = 0;
    if (!cuda_is_fine(self)) {
        return 0;
    }
    int before = cuda_api_enter(&self->api, self->number);
    cudaError_t code = cuda_figures_end(&self->figures, &self->api, self->stream, &call);
    cuda_check(self, call, code);
    if (cuda_is_fine(self)) {
        cuda_check(self, "cudaEventQuery",
                   cuda_figures_take(&self->figures, &self->api, out, &found));
    }
    cuda_api_leave(&self->api, self->number, before);
    return found;
}

/* --- open and close --------------------------------------------------------------------------- */

static void cuda_close(struct device *device) {
    struct cuda_device *self = cuda_of(device);
    if (self == NULL) {
        return;
    }
    cuda_figures_done(&self->figures, &self->api, device);
    if (self->changed != NULL) {
        (void)self->api.event_destroy(self->changed);
    }
    cuda_ready_done(&self->ready, &self->api);
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

/* A pass over nothing: a device that the kernels are not compiled for, or a driver that is too old
 * for their copy of the runtime, is told before anything is trained. */
static enum deft_status cuda_try_kernels(const struct cuda_device *self, struct deft_error *error) {
    struct device_kernels_queue queue = cuda_queue(self);
    queue.stream = self->upkeep;
    int before = cuda_api_enter(&self->api, self->number);
    int code = self->kernels->scale(&queue, DEFT_F32, self->scratch, 0, 1);
    cuda_api_leave(&self->api, self->number, before);
    return code == 0
               ? DEFT_OK
               : deft_fail(error, DEFT_UNSUPPORTED, code, "libdeft-cuda cannot run on cuda:%d: %s",
                           self->number, self->kernels->text(code));
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
    int has_figures =
        code == cudaSuccess && cuda_figures_make(&self->figures, &self->api, &self->base);
    cuda_api_leave(&self->api, self->number, before);
    if (code != cudaSuccess) {
        return cuda_api_fail(&self->api, "cudaStreamCreateWithPriority", code, error);
    }
    self->changed = cuda_new_event(self, cudaEventDisableTiming);
    self->scratch = cuda_alloc(&self->base, self->kernels->scratch_bytes);
    if (self->changed == NULL || self->scratch == NULL || !has_figures) {
        return deft_fail(error, DEFT_NO_MEMORY, 0, "no memory or events on device cuda:%d",
                         self->number);
    }
    return cuda_try_kernels(self, error);
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
    .guard = cuda_guard,
    .judge = cuda_judge,
    .average = cuda_average,
    .seal = cuda_seal,
    .purge = cuda_purge,
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
