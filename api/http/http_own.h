/* Answers that libmicrohttpd gives of its own accord: to requests that it cannot read, that are too
 * large, or whose body is malformed. It gives them through its public MHD_queue_response, which
 * this room therefore defines: what comes through it is libmicrohttpd's own and leaves as problem
 * JSON. The room's own answers go through the function that http_own_find gives.
 *
 * Where a library is linked so that it calls itself directly, its answers stay what they were: a
 * sentence in HTML. */
#ifndef HTTP_OWN_H
#define HTTP_OWN_H

#include <microhttpd.h>

typedef enum MHD_Result (*http_own_queue_fn)(struct MHD_Connection *connection, unsigned int status,
                                             struct MHD_Response *response);

/* libmicrohttpd's MHD_queue_response. */
http_own_queue_fn http_own_find(void);

#endif
