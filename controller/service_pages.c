/* What is not data: the dashboard, what this is, and how the rest is asked. */
#include <stdlib.h>
#include <string.h>

#include "service_answer.h"
#include "service_openapi.h"
#include "web/dashboard/dashboard_files.h"

static void pages_answer(struct http_request *request, const struct dashboard_file *file,
                         int is_immutable) {
    const struct http_page page = {.content_type = file->content_type,
                                   .tag = file->tag,
                                   .packed = file->packed,
                                   .n_packed = file->n_packed,
                                   .n_bytes = file->n_bytes,
                                   .is_immutable = is_immutable};
    http_respond_page(request, &page);
}

/* Browsers get the dashboard, programs what this is. */
void service_index(struct http_request *request, void *context) {
    const char *accept = http_request_header(request, "Accept");
    struct json_out out = {0};
    struct deft_error error = {0};
    (void)context;
    if (dashboard_n_files > 0 && accept != NULL && strstr(accept, "text/html") != NULL) {
        pages_answer(request, &dashboard_files[0], 0);
        return;
    }
    json_out_begin_object(&out, NULL);
    json_out_text(&out, "name", "deft-controller");
    json_out_text(&out, "version", DEFT_VERSION_TEXT);
    json_out_text(&out, "api", "/api/v1");
    json_out_text(&out, "specification", "/openapi.yaml");
    json_out_text(&out, "dashboard", dashboard_n_files > 0 ? "/" : dashboard_absence);
    json_out_end_object(&out);
    service_answer_tagged(request, DEFT_OK, &out, &error);
}

void service_asset(struct http_request *request, void *context) {
    const char *name = http_request_param(request, "name");
    (void)context;
    for (size_t i = 1; i < dashboard_n_files; i++) {
        if (strcmp(dashboard_files[i].name, name) == 0) {
            pages_answer(request, &dashboard_files[i], 1);
            return;
        }
    }
    http_respond_problem(request, 404, "not_found", NULL, "the dashboard has no file '%.64s'",
                         name);
}

void service_spec(struct http_request *request, void *context) {
    (void)context;
    http_respond_tagged(request, "application/yaml", service_openapi, strlen(service_openapi));
}
