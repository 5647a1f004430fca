/* What links of CUDA need of the device besides device.h. */
#ifndef CUDA_DEVICE_H
#define CUDA_DEVICE_H

#include "link/cuda_api.h"
#include "link/device.h"

/* NULL when `device` is of another kind or NULL. Lives as long as the device. */
const struct cuda_api *cuda_device_api(const struct device *device);
int cuda_device_number(const struct device *device);

#endif
