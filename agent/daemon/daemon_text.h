/* Texts of ranks on their way into JSON and logs. */
#ifndef DAEMON_TEXT_H
#define DAEMON_TEXT_H

#include <stddef.h>

/* Copies `text`, cut to `capacity_bytes` on a character's boundary; bytes that are no UTF-8 and
 * control characters become '?'. */
void daemon_text_copy(char *out, size_t capacity_bytes, const char *text);

#endif
