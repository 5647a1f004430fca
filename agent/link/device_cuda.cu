/* libdeft-cuda: device_kernels.h on a device. Compiled with -fmad=false, so that a product is
 * rounded before it is added, as on the host. */
#include "link/device_kernels.h"
#include "link/device_math.hpp"

#include <cuda_runtime.h>

#include <deft/deft.h>

namespace {

using namespace device_math;

/* Sums of blocks, and how many have theirs. */
struct Scratch {
    double parts[ChangeSums::n][max_blocks];
    unsigned n_done;
};

__device__ Place place() {
    return {static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x,
            static_cast<uint64_t>(gridDim.x) * blockDim.x};
}

/* The block's sum, in its thread 0. */
__device__ double block_sum(double mine) {
    __shared__ double of_warp[warps_per_block];
    for (unsigned offset = threads_per_warp / 2; offset > 0; offset /= 2) {
        mine += __shfl_down_sync(0xffffffffu, mine, offset);
    }
    if (threadIdx.x % threads_per_warp == 0) {
        of_warp[threadIdx.x / threads_per_warp] = mine;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        for (unsigned w = 1; w < warps_per_block; w++) {
            mine += of_warp[w];
        }
    }
    __syncthreads(); /* of_warp is free again */
    return mine;
}

/* Whichever block is last adds all parts up, in one order: returns true in one thread of the grid,
 * with the sums in `mine`. */
template <unsigned N> __device__ bool add_up(double (&mine)[N], Scratch *scratch) {
    __shared__ bool is_last;
    for (unsigned k = 0; k < N; k++) {
        double part = block_sum(mine[k]);
        if (threadIdx.x == 0) {
            scratch->parts[k][blockIdx.x] = part;
        }
    }
    if (threadIdx.x == 0) {
        __threadfence();
        is_last = atomicAdd(&scratch->n_done, 1u) == gridDim.x - 1;
    }
    __syncthreads();
    if (!is_last) {
        return false;
    }
    __threadfence();
    for (unsigned k = 0; k < N; k++) {
        double rest = 0;
        for (unsigned b = threadIdx.x; b < gridDim.x; b += blockDim.x) {
            rest += __ldcg(&scratch->parts[k][b]);
        }
        mine[k] = block_sum(rest);
    }
    if (threadIdx.x == 0) {
        scratch->n_done = 0;
    }
    return threadIdx.x == 0;
}

template <typename T, typename Op>
__global__ void __launch_bounds__(threads_per_block)
    pass_kernel(T *into, const T *from, uint64_t n, Op op, double *sum, Scratch *scratch) {
    double mine[1] = {pass(into, from, n, op, place())};
    if (add_up(mine, scratch)) {
        *sum += mine[0];
    }
}

template <typename T>
__global__ void __launch_bounds__(threads_per_block)
    average_kernel(const device_averaged at, uint64_t n, double *sums, device_kernels_notes *notes,
                   Scratch *scratch) {
    ChangeSums mine = average<T>(at, n, notes->is_dropped != 0, place());
    if (add_up(mine.of, scratch)) {
        note_change(mine, sums, notes);
    }
}

template <typename T>
__global__ void judge_kernel(const T *landed, bool counts, device_kernels_notes *notes) {
    judge(landed, counts, notes);
}

template <typename T> __global__ void seal_kernel(T *sum, device_kernels_notes *notes) {
    seal(sum, notes);
}

/* A row of blocks per gradient. */
__global__ void __launch_bounds__(threads_per_block)
    guard_kernel(const Guarded gradients, bool begins, const double *norm, uint32_t *bad) {
    bool is = is_bad(*norm);
    if (bad != nullptr && threadIdx.x == 0 && blockIdx.x == 0 && blockIdx.y == 0) {
        *bad = is || (!begins && *bad);
    }
    if (is) {
        zero(gradients.at[blockIdx.y], place());
    }
}

template <typename T>
__global__ void __launch_bounds__(threads_per_block)
    scale_kernel(T *x, uint64_t n, typename Element<T>::Wide factor) {
    scale(x, n, factor, place());
}

template <typename Into, typename From>
__global__ void __launch_bounds__(threads_per_block)
    cast_kernel(Into *into, const From *from, uint64_t n, double factor) {
    cast(into, from, n, factor, place());
}

/* Calls `body` with a null pointer of the type. */
template <typename Body> int for_type(int dtype, Body body) {
    switch (dtype) {
    case DEFT_F32:
        return body(static_cast<float *>(nullptr));
    case DEFT_F64:
        return body(static_cast<double *>(nullptr));
    case DEFT_F16:
        return body(static_cast<__half *>(nullptr));
    case DEFT_BF16:
        return body(static_cast<__nv_bfloat16 *>(nullptr));
    default:
        return cudaErrorInvalidValue;
    }
}

template <typename Body> int launch(const device_kernels_queue *queue, Body body) {
    int code = cudaSetDevice(queue->device); /* of this copy of the runtime */
    if (code != cudaSuccess) {
        (void)cudaGetLastError(); /* the next launch would find it */
        return code;
    }
    body(static_cast<cudaStream_t>(queue->stream));
    return cudaGetLastError();
}

int combine(const device_kernels_queue *queue, int dtype, void *into, const void *from, uint64_t n,
            double factor, int add, double *sum) {
    return for_type(dtype, [&](auto *type) {
        using T = std::remove_pointer_t<decltype(type)>;
        using Wide = typename Element<T>::Wide;
        auto *scratch = static_cast<Scratch *>(queue->scratch);
        return launch(queue, [&](cudaStream_t stream) {
            unsigned blocks = blocks_for(n, sizeof(T));
            auto *to = static_cast<T *>(into);
            auto *x = static_cast<const T *>(from);
            if (add) {
                pass_kernel<<<blocks, threads_per_block, 0, stream>>>(
                    to, x, n, Add<T>{static_cast<Wide>(factor)}, sum, scratch);
            } else {
                pass_kernel<<<blocks, threads_per_block, 0, stream>>>(
                    to, x, n, Copy<T>{static_cast<Wide>(factor)}, sum, scratch);
            }
        });
    });
}

int norm(const device_kernels_queue *queue, int dtype, const void *x, uint64_t n, double *sum) {
    return for_type(dtype, [&](auto *type) {
        using T = std::remove_pointer_t<decltype(type)>;
        return launch(queue, [&](cudaStream_t stream) {
            pass_kernel<<<blocks_for(n, sizeof(T)), threads_per_block, 0, stream>>>(
                static_cast<T *>(nullptr), static_cast<const T *>(x), n, Norm<T>{}, sum,
                static_cast<Scratch *>(queue->scratch));
        });
    });
}

int scale_all(const device_kernels_queue *queue, int dtype, void *x, uint64_t n, double factor) {
    return for_type(dtype, [&](auto *type) {
        using T = std::remove_pointer_t<decltype(type)>;
        return launch(queue, [&](cudaStream_t stream) {
            scale_kernel<<<blocks_for(n, sizeof(T)), threads_per_block, 0, stream>>>(
                static_cast<T *>(x), n, static_cast<typename Element<T>::Wide>(factor));
        });
    });
}

int cast_all(const device_kernels_queue *queue, int into_dtype, void *into, int from_dtype,
             const void *from, uint64_t n, double factor) {
    return for_type(into_dtype, [&](auto *into_type) {
        using Into = std::remove_pointer_t<decltype(into_type)>;
        return for_type(from_dtype, [&](auto *from_type) {
            using From = std::remove_pointer_t<decltype(from_type)>;
            return launch(queue, [&](cudaStream_t stream) {
                cast_kernel<<<blocks_for(n, access_bytes), threads_per_block, 0, stream>>>(
                    static_cast<Into *>(into), static_cast<const From *>(from), n, factor);
            });
        });
    });
}

/* As for_type, of the types that averaged has. */
template <typename Body> int for_full_type(int dtype, Body body) {
    return dtype == DEFT_F32   ? body(static_cast<float *>(nullptr))
           : dtype == DEFT_F64 ? body(static_cast<double *>(nullptr))
                               : static_cast<int>(cudaErrorInvalidValue);
}

int average_all(const device_kernels_queue *queue, int dtype, const device_averaged *at, uint64_t n,
                double *sums, device_kernels_notes *notes) {
    return for_full_type(dtype, [&](auto *type) {
        using T = std::remove_pointer_t<decltype(type)>;
        return launch(queue, [&](cudaStream_t stream) {
            average_kernel<T><<<blocks_for(n, sizeof(T)), threads_per_block, 0, stream>>>(
                *at, n, sums, notes, static_cast<Scratch *>(queue->scratch));
        });
    });
}

int judge_mean(const device_kernels_queue *queue, int dtype, const void *landed, int counts,
               device_kernels_notes *notes) {
    return for_full_type(dtype, [&](auto *type) {
        using T = std::remove_pointer_t<decltype(type)>;
        return launch(queue, [&](cudaStream_t stream) {
            judge_kernel<<<1, 1, 0, stream>>>(static_cast<const T *>(landed), counts != 0, notes);
        });
    });
}

int seal_sum(const device_kernels_queue *queue, int dtype, void *sum, device_kernels_notes *notes) {
    return for_full_type(dtype, [&](auto *type) {
        using T = std::remove_pointer_t<decltype(type)>;
        return launch(queue, [&](cudaStream_t stream) {
            seal_kernel<<<1, 1, 0, stream>>>(static_cast<T *>(sum), notes);
        });
    });
}

int guard_all(const device_kernels_queue *queue, const device_averaged_gradient *gradients,
              uint32_t n_gradients, int begins, const double *norm, uint32_t *bad) {
    if (n_gradients > DEVICE_AVERAGED_MAX_GRADIENTS) {
        return cudaErrorInvalidValue;
    }
    Guarded guarded = {};
    for (uint32_t i = 0; i < n_gradients; i++) {
        guarded.at[i] = gradients[i];
    }
    return launch(queue,
                  [&](cudaStream_t stream) { /* one with nothing keeps `bad` */
                                             dim3 grid(guard_blocks,
                                                       n_gradients > 0 ? n_gradients : 1);
                                             guard_kernel<<<grid, threads_per_block, 0, stream>>>(
                                                 guarded, begins != 0, norm, bad);
                  });
}

const char *text(int code) {
    return cudaGetErrorString(static_cast<cudaError_t>(code));
}

const device_kernels kernels = {DEVICE_KERNELS_VERSION,
                                sizeof(Scratch),
                                combine,
                                norm,
                                scale_all,
                                cast_all,
                                average_all,
                                judge_mean,
                                seal_sum,
                                guard_all,
                                text};

} // namespace

const device_kernels *deft_cuda_kernels() {
    return &kernels;
}
