#include "http_base64.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include <gnutls/gnutls.h>

/* GnuTLS has an allocator of its own, so what it gives is copied. */
enum deft_status http_base64(const void *bytes, size_t n_bytes, char **out,
                             struct deft_error *error) {
    gnutls_datum_t in = {.size = (unsigned)n_bytes};
    gnutls_datum_t encoded = {.data = NULL};
    unsigned char *copy = n_bytes <= UINT_MAX / 2 ? malloc(n_bytes + 1) : NULL;
    char *text = NULL;
    if (copy != NULL) {
        memcpy(copy, bytes, n_bytes);
        in.data = copy;
        if (gnutls_base64_encode2(&in, &encoded) == GNUTLS_E_SUCCESS) {
            text = strndup((const char *)encoded.data, encoded.size);
            gnutls_free(encoded.data);
        }
        free(copy);
    }
    if (text == NULL) {
        return deft_fail(error, DEFT_NO_MEMORY, 0, "no memory for base64");
    }
    *out = text;
    return DEFT_OK;
}
