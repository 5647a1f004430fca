#include "client/http_pack.h"

#include <limits.h>
#include <stdlib.h>
#define ZLIB_CONST /* input is not written to */
#include <zlib.h>

/* zlib: 15 bits of window, 16 more for the gzip wrapping. */
#define PACK_WINDOW_BITS (15 + 16)
/* A report shrinks six times at the fastest level, and an agent has 1 % of a core. */
#define PACK_LEVEL 1

enum deft_status http_pack(const char *bytes, size_t n_bytes, char **out, size_t *out_bytes) {
    z_stream stream = {0};
    if (n_bytes > UINT_MAX) {
        return DEFT_LIMIT;
    }
    char *packed = malloc(n_bytes + 1);
    if (packed == NULL) {
        return DEFT_NO_MEMORY;
    }
    if (deflateInit2(&stream, PACK_LEVEL, Z_DEFLATED, PACK_WINDOW_BITS, 8, Z_DEFAULT_STRATEGY) !=
        Z_OK) {
        free(packed);
        return DEFT_NO_MEMORY;
    }
    stream.next_in = (z_const Bytef *)bytes;
    stream.avail_in = (uInt)n_bytes;
    stream.next_out = (Bytef *)packed;
    stream.avail_out = (uInt)n_bytes;
    int code = deflate(&stream, Z_FINISH);
    size_t n = n_bytes - stream.avail_out;
    (void)deflateEnd(&stream);
    if (code != Z_STREAM_END) {
        free(packed);
        return DEFT_LIMIT;
    }
    *out = packed;
    *out_bytes = n;
    return DEFT_OK;
}
