/* gzip of whole bodies, for both sides of HTTP. */
#ifndef GZIP_H
#define GZIP_H

#include <stddef.h>

#include <deft/status.h>

/* Unpacks one gzip member, malloc'ed and zero-terminated. DEFT_LIMIT when more than `max_bytes`
 * would come out: a few kilobytes can become gigabytes. DEFT_INVALID for what is not gzip, is cut
 * short, has a wrong check sum, or goes on behind its end. */
DEFT_NODISCARD enum deft_status gzip_unpack(const char *bytes, size_t n_bytes, size_t max_bytes,
                                            char **out, size_t *out_bytes);
/* Packs as one member, malloc'ed. DEFT_LIMIT when that would not make it smaller. */
DEFT_NODISCARD enum deft_status gzip_pack(const void *bytes, size_t n_bytes, char **out,
                                          size_t *out_bytes);

#endif
