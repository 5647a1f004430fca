/* The host as a device: kernels.h, at once. */
#ifndef DEVICE_HOST_H
#define DEVICE_HOST_H

#include "link/device.h"

/* For a `struct device` of the caller's; there is nothing to close. */
extern const struct device_ops device_host;

#endif
