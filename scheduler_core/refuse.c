#include "refuse.h"

#include <stdarg.h>
#include <stdio.h>

enum dsched_status refuse(struct dsched_error *error, enum dsched_status status, const char *format,
                          ...) {
    if (error != NULL) {
        va_list arguments;
        va_start(arguments, format);
        (void)vsnprintf(error->text, sizeof(error->text), format, arguments);
        va_end(arguments);
    }
    return status;
}
