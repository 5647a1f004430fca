/* Base64 with padding, by GnuTLS. */
#ifndef HTTP_BASE64_H
#define HTTP_BASE64_H

#include <stddef.h>

#include <deft/status.h>

/* `*out` is zero-terminated and the caller's to free. */
DEFT_NODISCARD enum deft_status http_base64(const void *bytes, size_t n_bytes, char **out,
                                            struct deft_error *error);

#endif
