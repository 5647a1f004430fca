/* Random messages for the tests of api/wire. */
#ifndef WIRE_SUPPORT_H
#define WIRE_SUPPORT_H

#include <stdint.h>

#include "wire/wire.h"

/* Filled to the brim of what a message may hold; release with the matching _done. */
void wire_support_registration(uint64_t *state, struct wire_registration *out);
void wire_support_report(uint64_t *state, struct wire_report *out);
void wire_support_plan(uint64_t *state, struct dsched_plan *out);
void wire_support_profile(uint64_t *state, struct dsched_profile *out);
/* `out` must not be moved. */
void wire_support_solve(uint64_t *state, struct wire_solve *out);
void wire_support_limits(uint64_t *state, struct wire_limits *out);
void wire_support_job(uint64_t *state, struct wire_job *out);

/* Printable text with quotes, backslashes and letters of two to four bytes. */
void wire_support_text(uint64_t *state, char *out, size_t capacity_bytes);

#endif
