#include "http_own.h"

#include <dlfcn.h>
#include <string.h>

#include "http_impl.h"

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

/* The definition that the loader finds first, for libmicrohttpd's calls as well. */
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
    enum MHD_Result result = queue(connection, status, problem);
    MHD_destroy_response(problem);
    return result;
}
