#include "wire_common.h"

#include <stdlib.h>
#include <string.h>

struct problem_title {
    int status;
    const char *title;
};
static const struct problem_title problem_titles[] = {
    {400, "Bad Request"},
    {401, "Unauthorized"},
    {403, "Forbidden"},
    {404, "Not Found"},
    {405, "Method Not Allowed"},
    {409, "Conflict"},
    {413, "Content Too Large"},
    {414, "URI Too Long"},
    {415, "Unsupported Media Type"},
    {417, "Expectation Failed"},
    {421, "Misdirected Request"},
    {429, "Too Many Requests"},
    {431, "Request Header Fields Too Large"},
    {500, "Internal Server Error"},
    {501, "Not Implemented"},
    {503, "Service Unavailable"},
    {505, "HTTP Version Not Supported"},
};

struct problem_message {
    char detail[WIRE_TEXT_BYTES];
};
static const struct wire_field problem_fields[] = {
    WIRE_ROW_TEXT(struct problem_message, detail, "detail", 0),
};
static const struct wire_shape problem_shape =
    WIRE_SHAPE(struct problem_message, problem_fields, WIRE_KEYED);

enum deft_status wire_problem_encode(int http_status, const char *code, const char *detail,
                                     const char *field, char **out) {
    struct json_out text = {0};
    const char *title = "Error";
    for (size_t i = 0; i < WIRE_N(problem_titles); i++) {
        if (problem_titles[i].status == http_status) {
            title = problem_titles[i].title;
        }
    }
    json_out_begin_object(&text, NULL);
    json_out_text(&text, "type", "about:blank");
    json_out_text(&text, "title", title);
    json_out_int(&text, "status", http_status);
    json_out_text(&text, "code", code);
    json_out_text(&text, "detail", detail);
    if (field != NULL && field[0] != '\0') {
        json_out_text(&text, "field", field);
    }
    json_out_end_object(&text);
    return json_out_finish(&text, out, NULL);
}

void wire_problem_decode(const char *text, size_t n_bytes, char *out_detail) {
    struct problem_message message = {0};
    if (wire_shape_decode(&problem_shape, "the problem", text, n_bytes, &message, NULL) !=
        DEFT_OK) {
        message.detail[0] = '\0';
    }
    memcpy(out_detail, message.detail, sizeof(message.detail));
}
