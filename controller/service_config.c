/* GET /config: the settings in use, and where each comes from. */
#include "config.h"
#include "service_answer.h"

void service_config(struct http_request *request, void *context) {
    struct service *service = context;
    struct json_out out = {0};
    struct deft_error error = {0};
    json_out_begin_object(&out, NULL);
    config_print(service->config, &out);
    json_out_end_object(&out);
    service_answer_json(request, DEFT_OK, &out, &error);
}
