/* The part of strictness that cJSON leaves out, checked on the raw text before it parses. */
#ifndef JSON_SCAN_H
#define JSON_SCAN_H

#include <stddef.h>

#include <deft/status.h>

/* DEFT_OK when `text` is exactly one RFC 8259 value with white space around it, nested at most
 * `max_depth` deep, in UTF-8, without NUL characters, raw or escaped. */
DEFT_NODISCARD enum deft_status json_scan(const char *text, size_t n_bytes, unsigned max_depth,
                                          struct deft_error *error);

#endif
