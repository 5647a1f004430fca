/* What names in a trace tell about the elements of a collective. */
#ifndef KINETO_DTYPE_H
#define KINETO_DTYPE_H

#include <stdint.h>

/* enum dsched_dtype, or KINETO_DTYPE_FOREIGN for types that gradients do not have. `type` is as
 * PyTorch writes it: "Float", "float", "c10::BFloat16", ... */
uint8_t kineto_dtype_of_type(const char *type);
/* Of a kernel of NCCL or RCCL; KINETO_DTYPE_UNKNOWN if its name does not tell. */
uint8_t kineto_dtype_of_kernel(const char *name);
/* Whether a kernel is of a library for collectives. */
int kineto_dtype_is_collective(const char *name);

#endif
