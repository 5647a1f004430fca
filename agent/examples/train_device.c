#include "train_device.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

/* From CUDA's headers, which need not be there to build this. */
#define CUDA_SUCCESS             0u
#define CUDA_OUT_OF_MEMORY       2u
#define CUDA_TO_DEVICE           1u
#define CUDA_TO_HOST             2u
#define CUDA_STREAM_NON_BLOCKING 1u /* the default stream does not wait for it, nor it for that */
struct CUstream_st;

#define N_TWINS 3u /* parameters, and up to two of the optimizer's */

/* Members are functions, and nothing else. */
struct train_cuda {
    const char *(*error_string)(unsigned code);
    unsigned (*set_device)(int device);
    unsigned (*malloc)(void **out, size_t n_bytes);
    unsigned (*free)(void *memory);
    unsigned (*host_alloc)(void **out, size_t n_bytes, unsigned flags);
    unsigned (*free_host)(void *memory);
    unsigned (*memcpy_async)(void *into, const void *from, size_t n_bytes, unsigned kind,
                             struct CUstream_st *stream);
    unsigned (*stream_create)(struct CUstream_st **out, unsigned flags, int priority);
    unsigned (*stream_destroy)(struct CUstream_st *stream);
    unsigned (*stream_synchronize)(struct CUstream_st *stream);
};

/* Arenas are all laid out alike, as the network's parameters. */
struct twin {
    float *host;
    float *device;
};

struct train_device {
    struct train_cuda cuda;
    const struct mlp *mlp;
    struct CUstream_st *stream;
    struct twin twins[N_TWINS];
    uint32_t n_twins; /* 0 with gradients_only */
    float *gradients; /* device */
    float *landed;    /* pinned: what was handed out */
    void **handed;    /* [n_tensors] into `landed`, or NULL */
    bool is_moved;    /* the host's twins are ahead of the device's */
};

bool train_device_is_cuda(const char *device) {
    return device != NULL && strncmp(device, "cuda", 4) == 0;
}

/* --- CUDA's runtime --------------------------------------------------------------------------- */

/* The copy that libdeft works with: it is loaded, so nothing is looked for. */
static void *find_cuda(void) {
    static const char *const names[] = {"libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0"};
    const char *wished = getenv("DEFT_CUDART");
    void *library = NULL;
    if (wished != NULL && wished[0] != '\0') {
        return dlopen(wished, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    }
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]) && library == NULL; i++) {
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    }
    return library;
}

static enum deft_status load_cuda(struct train_cuda *out, struct deft_error *error) {
    static const char *const names[] = {
        /* as the members of the table */
        "cudaGetErrorString", "cudaSetDevice",
        "cudaMalloc",         "cudaFree",
        "cudaHostAlloc",      "cudaFreeHost",
        "cudaMemcpyAsync",    "cudaStreamCreateWithPriority",
        "cudaStreamDestroy",  "cudaStreamSynchronize",
    };
    void *addresses[sizeof(names) / sizeof(names[0])];
    void *library = find_cuda();
    _Static_assert(sizeof(addresses) == sizeof(*out), "one address per member");

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        addresses[i] = library != NULL ? dlsym(library, names[i]) : NULL;
        if (addresses[i] == NULL) {
            (void)deft_fail(error, DEFT_UNSUPPORTED, 0,
                            "CUDA's runtime, as libdeft has loaded it, offers no %s", names[i]);
            return DEFT_UNSUPPORTED;
        }
    }
    memcpy(out, addresses, sizeof(*out));
    return DEFT_OK;
}

static enum deft_status check(const struct train_device *device, const char *call, unsigned code,
                              struct deft_error *error) {
    if (code == CUDA_SUCCESS) {
        return DEFT_OK;
    }
    return deft_fail(error, code == CUDA_OUT_OF_MEMORY ? DEFT_NO_MEMORY : DEFT_IO, (int32_t)code,
                     "CUDA: %s failed: %s", call, device->cuda.error_string(code));
}

/* --- open and close --------------------------------------------------------------------------- */

/* An arena on the device. `*out` stays as it is on failure. */
static enum deft_status make_arena(const struct train_device *device, float **out,
                                   struct deft_error *error) {
    void *memory = NULL;
    size_t n_bytes = (size_t)device->mlp->n_parameters * sizeof(float);
    enum deft_status status =
        check(device, "cudaMalloc", device->cuda.malloc(&memory, n_bytes), error);
    if (status == DEFT_OK) {
        *out = memory;
    }
    return status;
}

static enum deft_status make_twins(struct train_device *device, const struct sync_model *model,
                                   struct deft_error *error) {
    float *const hosts[N_TWINS] = {model->mlp->parameters, model->optimizer->first,
                                   model->optimizer->second};
    enum deft_status status = DEFT_OK;

    for (uint32_t i = 0; i < N_TWINS && status == DEFT_OK && !model->gradients_only; i++) {
        if (hosts[i] != NULL) {
            struct twin *twin = &device->twins[device->n_twins];
            twin->host = hosts[i];
            status = make_arena(device, &twin->device, error);
            device->n_twins += status == DEFT_OK;
        }
    }
    return status;
}

static enum deft_status make(struct train_device *device, const char *name,
                             const struct sync_model *model, struct deft_error *error) {
    const struct train_cuda *cuda = &device->cuda;
    const char *colon = strchr(name, ':');
    enum deft_status status = DEFT_OK;

    if (colon != NULL) {
        int number = (int)strtol(colon + 1, NULL, 10); /* deft_open has looked at it */
        status = check(device, "cudaSetDevice", cuda->set_device(number), error);
    }
    if (status == DEFT_OK) {
        status = check(device, "cudaStreamCreateWithPriority",
                       cuda->stream_create(&device->stream, CUDA_STREAM_NON_BLOCKING, 0), error);
    }
    if (status == DEFT_OK) {
        status = make_arena(device, &device->gradients, error);
    }
    if (status == DEFT_OK) {
        status = make_twins(device, model, error);
    }
    if (status == DEFT_OK) {
        void *memory = NULL;
        size_t n_bytes = (size_t)device->mlp->n_parameters * sizeof(float);
        status = check(device, "cudaHostAlloc", cuda->host_alloc(&memory, n_bytes, 0), error);
        device->landed = status == DEFT_OK ? memory : NULL;
    }
    return status;
}

enum deft_status train_device_open(const char *device, const struct sync_model *model,
                                   struct train_device **out, struct deft_error *error) {
    struct train_device *self = calloc(1, sizeof(*self));
    enum deft_status status;

    if (self != NULL) {
        self->mlp = model->mlp;
        self->is_moved = true;
        self->handed = calloc(model->mlp->n_tensors, sizeof(*self->handed));
    }
    if (self == NULL || self->handed == NULL) {
        free(self);
        return deft_fail(error, DEFT_NO_MEMORY, 0, "no memory for a table of %u tensors",
                         model->mlp->n_tensors);
    }
    status = load_cuda(&self->cuda, error);
    if (status == DEFT_OK) {
        status = make(self, device, model, error);
    }
    if (status != DEFT_OK) {
        train_device_close(self);
        return status;
    }
    *out = self;
    return DEFT_OK;
}

void train_device_close(struct train_device *device) {
    if (device == NULL) {
        return;
    }
    /* Whatever was made was made by functions that are there. */
    if (device->landed != NULL) {
        (void)device->cuda.free_host(device->landed);
    }
    for (uint32_t i = 0; i < device->n_twins; i++) {
        (void)device->cuda.free(device->twins[i].device);
    }
    if (device->gradients != NULL) {
        (void)device->cuda.free(device->gradients);
    }
    if (device->stream != NULL) {
        (void)device->cuda.stream_destroy(device->stream);
    }
    free(device->handed);
    free(device);
}

/* --- copies ----------------------------------------------------------------------------------- */

void *train_device_stream(const struct train_device *device) {
    return device->stream;
}

static size_t place_of(const struct train_device *device, uint32_t tensor) {
    return (size_t)(device->mlp->tensors[tensor].parameters - device->mlp->parameters);
}

void *train_device_twin(const struct train_device *device, const float *host) {
    for (uint32_t i = 0; i < device->n_twins; i++) {
        const struct twin *twin = &device->twins[i];
        if (host >= twin->host && host < twin->host + device->mlp->n_parameters) {
            return twin->device + (host - twin->host);
        }
    }
    return NULL;
}

static enum deft_status copy(const struct train_device *device, void *into, const void *from,
                             uint64_t n_floats, unsigned kind, struct deft_error *error) {
    return check(device, "cudaMemcpyAsync",
                 device->cuda.memcpy_async(into, from, (size_t)n_floats * sizeof(float), kind,
                                           device->stream),
                 error);
}

enum deft_status train_device_push(struct train_device *device, struct deft_error *error) {
    enum deft_status status = DEFT_OK;

    for (uint32_t i = 0; i < device->n_twins && device->is_moved && status == DEFT_OK; i++) {
        const struct twin *twin = &device->twins[i];
        status = copy(device, twin->device, twin->host, device->mlp->n_parameters, CUDA_TO_DEVICE,
                      error);
    }
    device->is_moved = false;
    return status;
}

enum deft_status train_device_gradient(struct train_device *device, uint32_t tensor,
                                       const float *gradient, void **out,
                                       struct deft_error *error) {
    float *into = device->gradients + place_of(device, tensor);
    enum deft_status status =
        copy(device, into, gradient, device->mlp->tensors[tensor].elements, CUDA_TO_DEVICE, error);
    if (status == DEFT_OK) {
        *out = into;
    }
    return status;
}

enum deft_status train_device_fetch(struct train_device *device, struct deft_update *update,
                                    struct deft_error *error) {
    const struct mlp *mlp = device->mlp;
    enum deft_status status = DEFT_OK;

    for (uint32_t i = 0; i < device->n_twins && status == DEFT_OK; i++) {
        const struct twin *twin = &device->twins[i];
        status = copy(device, twin->host, twin->device, mlp->n_parameters, CUDA_TO_HOST, error);
    }
    if (update->action != DEFT_DONE) {
        for (uint32_t t = 0; t < mlp->n_tensors && status == DEFT_OK; t++) {
            float *into = device->landed + place_of(device, t);
            device->handed[t] = update->gradients[t] != NULL ? into : NULL;
            if (update->gradients[t] != NULL) {
                status = copy(device, into, update->gradients[t], mlp->tensors[t].elements,
                              CUDA_TO_HOST, error);
            }
        }
        device->is_moved = true;
    }
    if (status == DEFT_OK) {
        status = check(device, "cudaStreamSynchronize",
                       device->cuda.stream_synchronize(device->stream), error);
    }
    if (status == DEFT_OK && update->action != DEFT_DONE) {
        update->gradients = device->handed;
    }
    return status;
}
