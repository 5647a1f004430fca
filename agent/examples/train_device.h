/* Tensors of deft-train on a CUDA device. The network computes on the host, so this exercises what
 * a program on a device goes through, and is not how to make one fast: gradients are copied there
 * as they come, what libdeft hands out comes back for the optimizer, and the parameters that this
 * moves go there again. All of it is queued on one stream of its own. */
#ifndef TRAIN_DEVICE_H
#define TRAIN_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#include <deft/deft.h>

#include "sync.h"

struct train_device;

/* Whether a deft_options.device that deft_open has taken is one of CUDA. */
bool train_device_is_cuda(const char *device);

/* A stream on `device`, "cuda" or "cuda:NUMBER", which becomes the thread's current one, and memory
 * for the gradients and for a twin of what the optimizer moves: parameters and its own state; with
 * gradients_only there are no twins. Behind deft_open, which has found the device and loaded CUDA's
 * runtime. `model` must outlive the result. DEFT_IO and DEFT_NO_MEMORY come with CUDA's own words.
 * The thread that opens it makes all other calls, too. */
DEFT_NODISCARD enum deft_status train_device_open(const char *device,
                                                  const struct sync_model *model,
                                                  struct train_device **out,
                                                  struct deft_error *error);
/* Takes NULL. Behind deft_close, which still looks at the twins. */
void train_device_close(struct train_device *device);

/* For deft_stream. */
void *train_device_stream(const struct train_device *device);
/* Where the device has what `host`, of a parameter or of the optimizer's state, points to. */
void *train_device_twin(const struct train_device *device, const float *host);

/* Queues the copies of all twins to the device, if the optimizer has had a chance to move them
 * since the last time. They must stay as they are until the next train_device_fetch. */
DEFT_NODISCARD enum deft_status train_device_push(struct train_device *device,
                                                  struct deft_error *error);
/* Queues the copy of a tensor's gradient, which must stay as it is until the next
 * train_device_fetch; `*out` is where it will be. */
DEFT_NODISCARD enum deft_status train_device_gradient(struct train_device *device, uint32_t tensor,
                                                      const float *gradient, void **out,
                                                      struct deft_error *error);
/* Copies to the host, and waits for, all twins and what `update` hands out, whose gradients
 * then are there, valid until the next call. */
DEFT_NODISCARD enum deft_status train_device_fetch(struct train_device *device,
                                                   struct deft_update *update,
                                                   struct deft_error *error);

#endif
