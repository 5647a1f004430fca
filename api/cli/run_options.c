#include "run_options.h"

#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

static const char *run_options_base(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash != NULL && slash[1] != '\0' ? slash + 1 : path;
}

static int run_options_is_interpreter(const char *program) {
    static const char *const names[] = {"python", "bash", "sh", "dash", "perl", "env", "julia"};
    const char *base = run_options_base(program);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        size_t n = strlen(names[i]);
        /* "python3.11" is one too. */
        if (strncmp(base, names[i], n) == 0 &&
            strspn(base + n, "0123456789.") == strlen(base + n)) {
            return 1;
        }
    }
    return 0;
}

static const char *run_options_script(const char *const *command) {
    if (run_options_is_interpreter(command[0])) {
        for (size_t i = 1; command[i] != NULL; i++) {
            if (command[i][0] != '-') {
                return run_options_base(command[i]);
            }
        }
    }
    return run_options_base(command[0]);
}

/* Letters that need no escaping in URLs, files and shells. */
static void run_options_plain(const char *text, char *out, size_t capacity_bytes) {
    size_t n = 0;
    const char *end = strrchr(text, '.');
    size_t length = end != NULL && end != text ? (size_t)(end - text) : strlen(text);
    for (size_t i = 0; i < length && n + 1 < capacity_bytes; i++) {
        char c = text[i];
        int plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                    c == '_' || c == '-' || c == '.';
        out[n++] = (char)(plain ? c : '_');
    }
    out[n] = '\0';
}

enum deft_status run_options_name(struct run_options *options, const char *wished,
                                  struct deft_error *error) {
    if (wished != NULL) {
        size_t length = strlen(wished);
        if (length == 0 || length >= sizeof(options->job)) {
            return deft_fail(error, DEFT_INVALID, 0, "--job has %zu characters, expected 1 to %zu",
                             length, sizeof(options->job) - 1);
        }
        for (size_t i = 0; i < length; i++) {
            if ((unsigned char)wished[i] <= 0x20 || (unsigned char)wished[i] >= 0x7f) {
                return deft_fail(error, DEFT_INVALID, 0,
                                 "--job contains a space or a character that is not ASCII");
            }
        }
        memcpy(options->job, wished, length + 1);
        memcpy(options->name, wished, length + 1);
        return DEFT_OK;
    }
    uint16_t suffix = 0;
    if (getrandom(&suffix, sizeof(suffix), 0) != (ssize_t)sizeof(suffix)) {
        suffix = (uint16_t)getpid();
    }
    run_options_plain(run_options_script(options->command), options->name,
                      sizeof(options->name) - 6);
    if (options->name[0] == '\0') {
        (void)snprintf(options->name, sizeof(options->name), "job");
    }
    (void)snprintf(options->job, sizeof(options->job), "%.*s-%04x", (int)sizeof(options->job) - 6,
                   options->name, suffix);
    return DEFT_OK;
}
