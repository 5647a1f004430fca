/* gzip of what is sent. */
#ifndef HTTP_PACK_H
#define HTTP_PACK_H

#include <stddef.h>

#include <deft/status.h>

/* malloc'ed. DEFT_LIMIT when that would not make it smaller. */
DEFT_NODISCARD enum deft_status http_pack(const char *bytes, size_t n_bytes, char **out,
                                          size_t *out_bytes);

#endif
