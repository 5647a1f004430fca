/* UTF-8 as RFC 3629 has it: no overlong forms, no surrogates, nothing above U+10FFFF. */
#ifndef UTF8_H
#define UTF8_H

#include <stddef.h>

/* Bytes of the valid sequence at the start of `text`, 1..4, or 0 when there is none. */
size_t utf8_sequence_bytes(const char *text, size_t n_bytes);

#endif
