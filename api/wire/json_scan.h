/* The part of strictness that cJSON leaves out, checked on the raw text before it parses. */
#ifndef JSON_SCAN_H
#define JSON_SCAN_H

#include <stddef.h>

#include <deft/status.h>

struct json_scan_limits {
    unsigned max_depth; /* of nesting */
    size_t max_values;  /* objects, arrays and what is in them, keys left out */
};
/* DEFT_OK when `text` is exactly one RFC 8259 value with white space around it, within the limits,
 * in UTF-8, without NUL characters, raw or escaped. DEFT_INVALID otherwise. */
DEFT_NODISCARD enum deft_status json_scan(const char *text, size_t n_bytes,
                                          const struct json_scan_limits *limits,
                                          struct deft_error *error);

#endif
