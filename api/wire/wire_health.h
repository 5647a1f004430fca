/* GET /healthz: how the controller is. */
#ifndef WIRE_HEALTH_H
#define WIRE_HEALTH_H

#include "wire/wire.h"

struct wire_health {
    char status[16];  /* "ok", or "degraded" while the database refuses writes or upkeep fails */
    char version[32]; /* of the program; "" from one that does not say */
    uint64_t refused_writes;
    char database[WIRE_TEXT_BYTES]; /* "ok", or why the newest write failed */
    char upkeep[WIRE_TEXT_BYTES];   /* "ok", or what failed when history was rolled up or removed */
};
DEFT_NODISCARD enum deft_status wire_health_encode(const struct wire_health *in, char **out,
                                                   struct deft_error *error);
DEFT_NODISCARD enum deft_status wire_health_decode(const char *text, size_t n_bytes,
                                                   struct wire_health *out,
                                                   struct deft_error *error);

#endif
