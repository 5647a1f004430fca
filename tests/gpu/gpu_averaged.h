/* Checks of averaged on a device, for gpu_check. Each prints one JSON line and returns 0 when it
 * has passed, 1 otherwise. */
#ifndef GPU_AVERAGED_H
#define GPU_AVERAGED_H

#include "gpu_tools.h"

/* Against the host's own passes, bit for bit; poisoned outputs, any alignment of the parameters. */
int gpu_averaged_kernels(struct gpu_tools *check);
/* Landing and capturing in one pass against a copy from device to device. */
int gpu_averaged_bandwidth(struct gpu_tools *check);
/* A job of one or more ranks (DEFT_RANK, DEFT_WORLD_SIZE) that merges two iterations, one of which
 * has a gradient that is not finite. */
int gpu_averaged_train(struct gpu_tools *check, const char *links);

#endif
