/* The stand-in under the name of a libcudart, of version STANDIN_CUDART; what is not here the
 * program finds behind it. Its driver is too old for 13. */
#include <cuda_runtime_api.h>

#define STANDIN_EXPORT __attribute__((visibility("default")))

STANDIN_EXPORT cudaError_t cudaRuntimeGetVersion(int *runtimeVersion) {
    *runtimeVersion = STANDIN_CUDART * 1000;
    return cudaSuccess;
}

#if STANDIN_CUDART >= 13
STANDIN_EXPORT cudaError_t cudaGetDeviceCount(int *count) {
    *count = 0;
    return cudaErrorInsufficientDriver;
}
#endif
