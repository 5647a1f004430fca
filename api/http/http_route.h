/* Which route a path belongs to, and what its parameters are. Pure. */
#ifndef HTTP_ROUTE_H
#define HTTP_ROUTE_H

#include <stddef.h>

#include "http_server.h"

/* Decodes percent escapes in place. 0 when an escape is malformed or when the result is not UTF-8
 * or holds a control character. */
int http_route_unescape(char *text);

struct http_route_match {
    const struct http_route *route; /* NULL: no route has this path and method */
    int path_known; /* 1: some route has this path: then `allow` names its methods */
    char allow[64];
    size_t n_params;
    const char *names[HTTP_MAX_PARAMS]; /* point into the pattern, not terminated */
    size_t name_bytes[HTTP_MAX_PARAMS];
    const char *values[HTTP_MAX_PARAMS]; /* point into `path` */
};
/* Cuts and decodes `path` in place. DEFT_INVALID when a parameter cannot be decoded. */
DEFT_NODISCARD enum deft_status http_route_find(const struct http_route *routes, size_t n_routes,
                                                const char *method, char *path,
                                                struct http_route_match *out);

#endif
