#include "gzip/gzip.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#define ZLIB_CONST /* input is not written to */
#include <zlib.h>

/* zlib: 15 bits of window, 16 more for the gzip wrapping. */
#define GZIP_WINDOW_BITS (15 + 16)
/* JSON of ours shrinks six times at level 1 and seven at level 6, which costs three times as much;
 * an agent has 1 % of a core. */
#define GZIP_LEVEL       1
#define GZIP_FIRST_BYTES ((size_t)16 << 10)

/* One call of inflate per doubling of the output. */
static enum deft_status gzip_inflate(z_stream *stream, size_t max_bytes, char **out,
                                     size_t *out_bytes) {
    size_t capacity = 0;
    size_t n = 0;
    int code = Z_OK;
    while (code == Z_OK) {
        if (n == capacity) {
            size_t larger = capacity == 0 ? GZIP_FIRST_BYTES : capacity * 2;
            /* One byte more than allowed shows that there would be more. */
            larger = larger > max_bytes + 1 ? max_bytes + 1 : larger;
            char *grown = n > max_bytes ? NULL : realloc(*out, larger + 1);
            if (grown == NULL) {
                return n > max_bytes ? DEFT_LIMIT : DEFT_NO_MEMORY;
            }
            *out = grown;
            capacity = larger;
        }
        stream->next_out = (Bytef *)*out + n;
        stream->avail_out = (uInt)(capacity - n);
        code = inflate(stream, Z_NO_FLUSH);
        n = capacity - stream->avail_out;
        if (code == Z_BUF_ERROR && n == capacity) {
            code = Z_OK;
        }
    }
    if (code == Z_MEM_ERROR) {
        return DEFT_NO_MEMORY;
    }
    if (n > max_bytes) {
        return DEFT_LIMIT;
    }
    (*out)[n] = '\0';
    *out_bytes = n;
    return code == Z_STREAM_END && stream->avail_in == 0 ? DEFT_OK : DEFT_INVALID;
}

enum deft_status gzip_unpack(const char *bytes, size_t n_bytes, size_t max_bytes, char **out,
                             size_t *out_bytes) {
    z_stream stream = {0};
    char *text = NULL;
    if (n_bytes > UINT_MAX || max_bytes >= UINT_MAX) {
        return DEFT_LIMIT;
    }
    if (inflateInit2(&stream, GZIP_WINDOW_BITS) != Z_OK) {
        return DEFT_NO_MEMORY;
    }
    stream.next_in = (z_const Bytef *)bytes;
    stream.avail_in = (uInt)n_bytes;
    enum deft_status status = gzip_inflate(&stream, max_bytes, &text, out_bytes);
    (void)inflateEnd(&stream);
    if (status != DEFT_OK) {
        free(text);
        return status;
    }
    *out = text;
    return DEFT_OK;
}

enum deft_status gzip_pack(const void *bytes, size_t n_bytes, char **out, size_t *out_bytes) {
    z_stream stream = {0};
    if (n_bytes > UINT_MAX) {
        return DEFT_LIMIT;
    }
    char *packed = malloc(n_bytes + 1);
    if (packed == NULL) {
        return DEFT_NO_MEMORY;
    }
    if (deflateInit2(&stream, GZIP_LEVEL, Z_DEFLATED, GZIP_WINDOW_BITS, 8, Z_DEFAULT_STRATEGY) !=
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
