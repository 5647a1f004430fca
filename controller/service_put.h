/* What operators set of one job: every such change goes the same way. Only for the service*.c
 * files. */
#ifndef SERVICE_PUT_H
#define SERVICE_PUT_H

#include "service_answer.h"

/* What a body asks for. */
union service_put_value {
    enum tuner_mode mode;
    struct wire_limits limits;
    struct wire_pin pin;
    struct wire_freeze freeze;
    struct store_keep_job keep;
};
struct service_put_call {
    struct service *service;
    const char *job;               /* of the path */
    const struct wire_job *before; /* as it was */
    union service_put_value value;
    char *old_text; /* JSON for the audit, malloc'ed; NULL: there was nothing */
    char *new_text; /* likewise, and the answer */
};
struct service_put {
    const char *action; /* for the audit */
    /* Reads the body, and writes both texts. */
    enum deft_status (*read)(struct service_put_call *call, const char *json, size_t n_bytes,
                             struct deft_error *error);
    /* Does it. May write another new_text; the audit keeps the first until this returns. */
    enum deft_status (*apply)(struct service_put_call *call, const struct store_audit *audit,
                              struct deft_error *error);
};

/* Answers 200 with what is set now, or a problem. */
void service_put(struct http_request *request, struct service *service,
                 const struct service_put *put);

#endif
