/* Event streams of one server: their queues, heartbeats, and the thread that notices that a peer
 * has gone, which libmicrohttpd does not do for a suspended connection. */
#ifndef HTTP_STREAM_H
#define HTTP_STREAM_H

#include <microhttpd.h>

#include "http_server.h"

struct http_streams;

DEFT_NODISCARD enum deft_status http_streams_start(uint32_t heartbeat_ms, struct http_streams **out,
                                                   struct deft_error *error);
/* Ends all streams and those that come later; their connections finish by themselves. */
void http_streams_end(struct http_streams *streams);
/* After the last connection is gone. Takes NULL. */
void http_streams_stop(struct http_streams *streams);

/* A stream with two references, one for the caller and one for the connection, and the response
 * that feeds it. */
DEFT_NODISCARD enum deft_status http_stream_open(struct http_streams *streams,
                                                 struct MHD_Connection *connection, uint64_t user,
                                                 struct http_stream **out_stream,
                                                 struct MHD_Response **out_response);
/* Ends those whose user is not kept. */
void http_streams_check(struct http_streams *streams, int (*keeps)(uint64_t user, void *context),
                        void *context);
size_t http_streams_count(struct http_streams *streams);
/* The connection is finished: drops its reference. */
void http_stream_detach(struct http_stream *stream);

#endif
