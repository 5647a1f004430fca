#include "daemon_text.h"

#include <string.h>

#include "wire/utf8.h"

void daemon_text_copy(char *out, size_t capacity_bytes, const char *text) {
    size_t n_bytes = strlen(text);
    size_t n_out = 0;
    for (size_t i = 0; i < n_bytes;) {
        size_t n = utf8_sequence_bytes(text + i, n_bytes - i);
        int printable = n > 1 || (n == 1 && (unsigned char)text[i] >= 0x20 && text[i] != 0x7f);
        size_t wanted = printable ? n : 1;
        if (n_out + wanted >= capacity_bytes) {
            break;
        }
        if (printable) {
            memcpy(out + n_out, text + i, n);
        } else {
            out[n_out] = '?';
        }
        n_out += wanted;
        i += wanted;
    }
    out[n_out] = '\0';
}
