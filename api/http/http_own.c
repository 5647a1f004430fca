#include "http_own.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "http_head.h"
#include "http_impl.h"
#include "wire/wire.h"

http_own_queue_fn http_own_find(void) {
    http_own_queue_fn queue = NULL;
    void *symbol = dlsym(RTLD_NEXT, "MHD_queue_response");
    memcpy(&queue, &symbol, sizeof(queue)); /* POSIX says that this may be done */
    return queue;
}

struct own_answer {
    unsigned status;
    const char *code;
    const char *detail;
};
static const struct own_answer own_answers[] = {
    {400, "malformed", "the request is not well-formed HTTP"},
    {413, "too_large", "the body's size is beyond all limits"},
    {414, "target_too_long", "the request line does not fit into the limit on a request's head"},
    {431, "head_too_large", "the headers do not fit into the limit on a request's head"},
    {505, "version", "HTTP/1.1 and HTTP/1.0 are spoken here"},
};

/* --- past the queue -----------------------------------------------------------------------------
 */

#define OWN_MAX_BYTES 2048u

struct own_text {
    size_t n_bytes;
    char bytes[OWN_MAX_BYTES];
};

static void own_print(struct own_text *text, const char *format, ...) DEFT_PRINTF(2, 3);
static void own_print(struct own_text *text, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int n = vsnprintf(text->bytes + text->n_bytes, sizeof(text->bytes) - text->n_bytes, format,
                      arguments);
    va_end(arguments);
    if (n > 0 && text->n_bytes + (size_t)n < sizeof(text->bytes)) {
        text->n_bytes += (size_t)n;
    }
}

static enum MHD_Result own_header(void *context, enum MHD_ValueKind kind, const char *name,
                                  const char *value) {
    (void)kind;
    own_print(context, "%s: %s\r\n", name, value);
    return MHD_YES;
}

/* libmicrohttpd 0.9.75 forgets that it has answered a Content-Length that is no number, and sends
 * the head of its answer twice. That one is written here, and the connection closed. */
static int own_is_doubled(struct MHD_Connection *connection) {
    uint64_t ignored;
    const char *length = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Content-Length");
    const char *coding =
        MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Transfer-Encoding");
    return length != NULL && coding == NULL && !http_head_length(length, &ignored);
}

static void own_write(struct MHD_Connection *connection, const struct http_conn *conn,
                      const struct own_answer *answer, struct MHD_Response *problem) {
    struct own_text text = {0};
    char *body = NULL;
    if (wire_problem_encode((int)answer->status, answer->code, answer->detail, NULL, &body) !=
        DEFT_OK) {
        return;
    }
    own_print(&text, "HTTP/1.1 %u %s\r\nConnection: close\r\nContent-Length: %zu\r\n",
              answer->status, MHD_get_reason_phrase_for(answer->status), strlen(body));
    (void)MHD_get_response_headers(problem, own_header, &text);
    own_print(&text, "\r\n%s", body);
    free(body);
    /* A client that does not even take this has lost its answer. */
    if (conn->material != NULL) {
        const union MHD_ConnectionInfo *info =
            MHD_get_connection_info(connection, MHD_CONNECTION_INFO_GNUTLS_SESSION);
        if (info != NULL) {
            (void)gnutls_record_send(info->tls_session, text.bytes, text.n_bytes);
        }
    } else {
        (void)send(conn->fd, text.bytes, text.n_bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
    }
}

/* --- the definition that the loader finds first, for libmicrohttpd's calls as well ---------------
 */

__attribute__((visibility("default"))) enum MHD_Result
MHD_queue_response(struct MHD_Connection *connection, unsigned int status,
                   struct MHD_Response *response) {
    struct own_answer answer = {status, "internal", "the request cannot be served"};
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    const struct http_conn *conn = info != NULL ? info->socket_context : NULL;
    http_own_queue_fn queue = http_own_find();
    if (queue == NULL) {
        return MHD_NO;
    }
    for (size_t i = 0; i < sizeof(own_answers) / sizeof(own_answers[0]); i++) {
        if (own_answers[i].status == status) {
            answer = own_answers[i];
        }
    }
    struct MHD_Response *problem =
        http_answer_problem((int)status, answer.code, NULL, answer.detail);
    if (problem == NULL) {
        return queue(connection, status, response);
    }
    http_answer_common(problem, (int)status, 0);
    if (conn != NULL) {
        (void)atomic_fetch_add(&conn->server->meter->n_malformed, 1);
    }
    enum MHD_Result result = MHD_NO;
    if (conn != NULL && own_is_doubled(connection)) {
        own_write(connection, conn, &answer, problem);
    } else {
        result = queue(connection, status, problem);
    }
    MHD_destroy_response(problem);
    return result;
}
