/* Files of settings and variables from anybody. The first byte chooses the program; behind it come
 * a file and, behind zero bytes, variables.
 *
 * What is refused is refused with a sentence. What is taken can be printed as a file, unless a
 * variable has what no line can say, and that file means the same. */
#include <string.h>

#include "controller_options.h"
#include "daemon_options.h"
#include "fuzzing.h"

#define FUZZ_VARIABLES 16u

static union {
    struct controller_options controller;
    struct daemon_options agent;
} filled[2];

static const struct settings_program *fuzz_program(uint8_t byte) {
    return byte % 2 == 0 ? &controller_options_program : &daemon_options_program;
}

static struct settings *fuzz_open(const struct settings_program *program) {
    struct settings *settings = NULL;
    fuzzing_require(settings_open(program, &settings, NULL) == DEFT_OK, "there is memory");
    return settings;
}

static enum deft_status fuzz_fill(const struct settings *settings, int which,
                                  struct deft_error *error) {
    return settings_program(settings) == &controller_options_program
               ? controller_options_fill(settings, &filled[which].controller, error)
               : daemon_options_fill(settings, &filled[which].agent, error);
}

static void fuzz_refused(enum deft_status status, const struct deft_error *error) {
    fuzzing_require(error->status == status && error->text[0] != '\0' &&
                        memchr(error->text, '\0', sizeof(error->text)) != NULL,
                    "a refusal has a sentence");
}

/* The first piece of `text`, up to a zero byte, is the file; the others are variables. */
static enum deft_status fuzz_read(struct settings *settings, char *text, size_t n_bytes,
                                  struct deft_error *error) {
    char *environment[FUZZ_VARIABLES + 1] = {NULL};
    size_t n_file = strnlen(text, n_bytes);
    size_t n_variables = 0;
    for (size_t at = n_file + 1; at < n_bytes && n_variables < FUZZ_VARIABLES;) {
        environment[n_variables++] = text + at;
        at += strlen(text + at) + 1;
    }
    enum deft_status status = settings_read_environment(settings, environment, error);
    return status == DEFT_OK ? settings_read_text(settings, "f", text, n_file, error) : status;
}

static void fuzz_same(const struct settings *a, const struct settings *b) {
    for (size_t i = 0; i < settings_n_rows(settings_program(a)); i++) {
        const struct setting *row = settings_row(settings_program(a), i);
        struct settings_value left;
        struct settings_value right;
        settings_value(a, i, &left);
        settings_value(b, i, &right);
        if ((row->flags & SETTING_SECRET) == 0) {
            fuzzing_require((left.text == NULL) == (right.text == NULL) &&
                                (left.text == NULL || strcmp(left.text, right.text) == 0),
                            "what was printed means the same");
        }
    }
}

static void fuzz_print(const struct settings *settings) {
    char *text = NULL;
    size_t n_bytes = 0;
    struct deft_error error = {.status = DEFT_OK};
    struct settings *again = fuzz_open(settings_program(settings));
    FILE *file = open_memstream(&text, &n_bytes);
    fuzzing_require(file != NULL, "there is memory");
    enum deft_status status = settings_print(settings, file, &error);
    (void)fclose(file);
    if (status != DEFT_OK) {
        fuzz_refused(status, &error);
    } else {
        fuzzing_require(settings_read_text(again, "p", text, n_bytes, &error) == DEFT_OK,
                        "what was printed can be read");
        fuzz_same(settings, again);
        fuzzing_require(fuzz_fill(again, 1, &error) == DEFT_OK || error.status == DEFT_INVALID,
                        "what was printed can be filled in");
    }
    free(text);
    settings_close(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct deft_error error = {.status = DEFT_OK};
    if (size == 0) {
        return 0;
    }
    char *text = malloc(size);
    fuzzing_require(text != NULL, "there is memory");
    memcpy(text, data + 1, size - 1);
    text[size - 1] = '\0';
    struct settings *settings = fuzz_open(fuzz_program(data[0]));
    enum deft_status status = fuzz_read(settings, text, size - 1, &error);
    if (status == DEFT_OK) {
        status = fuzz_fill(settings, 0, &error);
    }
    if (status == DEFT_OK) {
        fuzz_print(settings);
    } else {
        fuzz_refused(status, &error);
    }
    settings_close(settings);
    free(text);
    return 0;
}
