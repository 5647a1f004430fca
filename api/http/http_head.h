/* Pieces of a request's head, parsed strictly. Pure. */
#ifndef HTTP_HEAD_H
#define HTTP_HEAD_H

#include <stddef.h>
#include <stdint.h>

/* "Bearer TOKEN", the scheme in any case, one token of RFC 6750's characters behind it. 0 for
 * anything else; the token is not terminated. */
int http_head_bearer(const char *value, const char **out_token, size_t *out_bytes);
/* 1 when an Accept-Encoding takes `coding` for better than nothing; `value` NULL: 0. */
int http_head_accepts(const char *value, const char *coding);
/* 1 when an If-None-Match names `tag` (with its quotes), weakly compared, or is "*". */
int http_head_matches(const char *value, const char *tag);
/* A field name as RFC 9110 allows it. */
int http_head_is_token(const char *name);
/* Digits only, below 2^63. */
int http_head_length(const char *value, uint64_t *out);

/* The authority of an absolute-form target ("http://host:1/path") is cut out: `*out_path` is what
 * follows ("/" if nothing does) and `out_host` its host. A target that begins with "/" is its own
 * path and leaves `out_host` empty. 0 for other forms and hosts that do not fit. */
int http_head_target(const char *target, const char **out_path, char *out_host,
                     size_t capacity_bytes);

/* 1 when `host`, with or without a port, is an address literal or localhost; 1 when it is `name`.
 * 0 for what cannot be a host. */
int http_head_host_is_literal(const char *host);
int http_head_host_is(const char *host, const char *name);

#endif
