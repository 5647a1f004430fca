#include "utf8.h"

#include <stdint.h>

static int utf8_is_tail(unsigned char byte) {
    return (byte & 0xC0u) == 0x80u;
}

size_t utf8_sequence_bytes(const char *text, size_t n_bytes) {
    const unsigned char *s = (const unsigned char *)text;
    if (n_bytes == 0) {
        return 0;
    }
    if (s[0] < 0x80u) {
        return 1;
    }
    if (s[0] >= 0xC2u && s[0] <= 0xDFu) {
        return n_bytes >= 2 && utf8_is_tail(s[1]) ? 2 : 0;
    }
    if (s[0] >= 0xE0u && s[0] <= 0xEFu) {
        unsigned char low = s[0] == 0xE0u ? 0xA0u : 0x80u;
        unsigned char high = s[0] == 0xEDu ? 0x9Fu : 0xBFu;
        return n_bytes >= 3 && s[1] >= low && s[1] <= high && utf8_is_tail(s[2]) ? 3 : 0;
    }
    if (s[0] >= 0xF0u && s[0] <= 0xF4u) {
        unsigned char low = s[0] == 0xF0u ? 0x90u : 0x80u;
        unsigned char high = s[0] == 0xF4u ? 0x8Fu : 0xBFu;
        int valid =
            n_bytes >= 4 && s[1] >= low && s[1] <= high && utf8_is_tail(s[2]) && utf8_is_tail(s[3]);
        return valid ? 4 : 0;
    }
    return 0;
}
