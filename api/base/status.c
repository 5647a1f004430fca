#include <deft/status.h>

#include <stdarg.h>
#include <stdio.h>

const char *deft_status_name(enum deft_status status) {
    switch (status) {
#define STATUS_NAME(name, value, text)                                                             \
    case DEFT_##name:                                                                              \
        return #name;
        DEFT_STATUS_MAP(STATUS_NAME)
#undef STATUS_NAME
    default:
        return "UNKNOWN";
    }
}

const char *deft_status_text(enum deft_status status) {
    switch (status) {
#define STATUS_TEXT(name, value, text)                                                             \
    case DEFT_##name:                                                                              \
        return text;
        DEFT_STATUS_MAP(STATUS_TEXT)
#undef STATUS_TEXT
    default:
        return "unknown status";
    }
}

/* A cut in the middle of a UTF-8 sequence would make the sentence unprintable in JSON. */
static void status_trim_utf8(char *text, size_t length) {
    size_t i = length;
    while (i > 0 && ((unsigned char)text[i - 1] & 0xC0u) == 0x80u) {
        i--;
    }
    if (i > 0 && (unsigned char)text[i - 1] >= 0xC0u) {
        text[i - 1] = '\0';
    }
}

enum deft_status deft_fail(struct deft_error *error, enum deft_status status, int32_t backend_code,
                           const char *format, ...) {
    if (error != NULL) {
        va_list arguments;
        va_start(arguments, format);
        int n = vsnprintf(error->text, sizeof(error->text), format, arguments);
        va_end(arguments);
        if (n >= (int)sizeof(error->text)) {
            status_trim_utf8(error->text, sizeof(error->text) - 1);
        }
        error->status = status;
        error->backend_code = backend_code;
    }
    return status;
}
