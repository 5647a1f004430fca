#include "doctor.h"

#include <stdarg.h>
#include <stdio.h>

void doctor_say(struct doctor *doctor, enum doctor_grade grade, const char *topic,
                const char *advice, const char *format, ...) {
    static const char *const words[DOCTOR_N_GRADES] = {"-", "ok", "note", "wrong"};
    va_list arguments;
    doctor->n_found[grade]++;
    (void)printf("%-6s %-15s ", words[grade], topic);
    va_start(arguments, format);
    (void)vprintf(format, arguments);
    va_end(arguments);
    (void)putchar('\n');
    if (advice != NULL) {
        (void)printf("%-22s %s\n", "", advice);
    }
}
