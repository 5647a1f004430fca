/* Copies between the device and pinned memory, for links of host memory: the part of device.h's
 * table for copiers. */
#ifndef CUDA_COPIER_H
#define CUDA_COPIER_H

#include "link/device.h"

DEFT_NODISCARD enum deft_status cuda_copier_open(struct device *device, void **out,
                                                 struct deft_error *error);
void cuda_copier_close(struct device *device, void *copier);
DEFT_NODISCARD enum deft_status cuda_copier_pull(struct device *device, void *copier, void *into,
                                                 const void *from, size_t n_bytes, void *mark,
                                                 struct deft_error *error);
DEFT_NODISCARD enum deft_status cuda_copier_push(struct device *device, void *copier, void *into,
                                                 const void *from, size_t n_bytes,
                                                 struct deft_error *error);

#endif
