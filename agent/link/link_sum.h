/* Element-wise reductions that backends share. */
#ifndef LINK_SUM_H
#define LINK_SUM_H

#include "link/link.h"

/* into[i] = into[i] + from[i]. Half types are added in f32 and rounded to nearest even. */
void link_sum(void *into, const void *from, uint64_t elements, enum link_dtype dtype);
/* into[i] = max(into[i], from[i]). */
void link_max_i64(int64_t *into, const int64_t *from, uint64_t elements);

/* One value between its 16-bit pattern and f32. Rounds to nearest even; NaN stays NaN. */
float link_f16_to_f32(uint16_t bits);
uint16_t link_f32_to_f16(float value);
float link_bf16_to_f32(uint16_t bits);
uint16_t link_f32_to_bf16(float value);

#endif
