/* JSON from anybody: the first byte chooses the message, the rest is its text.
 *
 * What a decoder takes, the encoder must be able to write, the decoder must take again, and writing
 * that must give the same text. What it refuses, it refuses with a sentence and without touching
 * its output. */
#include <string.h>

#include "fuzzing.h"
#include "wire/wire.h"
#include "wire/wire_access.h"

#define FUZZ_WIRE_UNTOUCHED 0xa5

/* Decodes into a fresh value and encodes that. DEFT_OK or the decoder's refusal. */
typedef enum deft_status (*fuzz_wire_turn_fn)(const char *text, size_t n_bytes, char **out,
                                              struct deft_error *error);

/* After a decoder: on failure checks that `value` is as fuzz_wire_prepare left it. */
static int fuzz_wire_decoded(enum deft_status status, const void *value, size_t n_bytes) {
    if (status == DEFT_OK) {
        return 1;
    }
    const uint8_t *bytes = value;
    for (size_t i = 0; i < n_bytes; i++) {
        fuzzing_require(bytes[i] == FUZZ_WIRE_UNTOUCHED, "a failure leaves the output untouched");
    }
    return 0;
}

static void fuzz_wire_encoded(enum deft_status status) {
    fuzzing_require(status == DEFT_OK, "what was decoded can be encoded");
}

static enum deft_status turn_profile(const char *text, size_t n_bytes, char **out,
                                     struct deft_error *error) {
    struct dsched_profile value;
    memset(&value, FUZZ_WIRE_UNTOUCHED, sizeof value);
    enum deft_status status = wire_profile_decode(text, n_bytes, &value, error);
    if (fuzz_wire_decoded(status, &value, sizeof value)) {
        fuzz_wire_encoded(wire_profile_encode(&value, out, error));
        dsched_profile_done(&value);
    }
    return status;
}

static enum deft_status turn_plan(const char *text, size_t n_bytes, char **out,
                                  struct deft_error *error) {
    struct dsched_plan value;
    memset(&value, FUZZ_WIRE_UNTOUCHED, sizeof value);
    enum deft_status status = wire_plan_decode(text, n_bytes, &value, error);
    if (fuzz_wire_decoded(status, &value, sizeof value)) {
        fuzz_wire_encoded(wire_plan_encode(&value, out, error));
        dsched_plan_done(&value);
    }
    return status;
}

static enum deft_status turn_plan_event(const char *text, size_t n_bytes, char **out,
                                        struct deft_error *error) {
    struct wire_plan_event value;
    memset(&value, FUZZ_WIRE_UNTOUCHED, sizeof value);
    enum deft_status status = wire_plan_event_decode(text, n_bytes, &value, error);
    if (fuzz_wire_decoded(status, &value, sizeof value)) {
        fuzz_wire_encoded(wire_plan_event_encode(&value, out, error));
        wire_plan_event_done(&value);
    }
    return status;
}

static enum deft_status turn_registration(const char *text, size_t n_bytes, char **out,
                                          struct deft_error *error) {
    struct wire_registration value;
    memset(&value, FUZZ_WIRE_UNTOUCHED, sizeof value);
    enum deft_status status = wire_registration_decode(text, n_bytes, &value, error);
    if (fuzz_wire_decoded(status, &value, sizeof value)) {
        fuzz_wire_encoded(wire_registration_encode(&value, out, error));
        wire_registration_done(&value);
    }
    return status;
}

static enum deft_status turn_registered(const char *text, size_t n_bytes, char **out,
                                        struct deft_error *error) {
    struct wire_registered value;
    memset(&value, FUZZ_WIRE_UNTOUCHED, sizeof value);
    enum deft_status status = wire_registered_decode(text, n_bytes, &value, error);
    if (fuzz_wire_decoded(status, &value, sizeof value)) {
        fuzz_wire_encoded(wire_registered_encode(&value, out, error));
    }
    return status;
}

static enum deft_status turn_report(const char *text, size_t n_bytes, char **out,
                                    struct deft_error *error) {
    struct wire_report value;
    memset(&value, FUZZ_WIRE_UNTOUCHED, sizeof value);
    enum deft_status status = wire_report_decode(text, n_bytes, &value, error);
    if (fuzz_wire_decoded(status, &value, sizeof value)) {
        fuzz_wire_encoded(wire_report_encode(&value, out, error));
        wire_report_done(&value);
    }
    return status;
}

static enum deft_status turn_committed(const char *text, size_t n_bytes, char **out,
                                       struct deft_error *error) {
    uint64_t value;
    memset(&value, FUZZ_WIRE_UNTOUCHED, sizeof value);
    enum deft_status status = wire_committed_decode(text, n_bytes, &value, error);
    if (fuzz_wire_decoded(status, &value, sizeof value)) {
        fuzz_wire_encoded(wire_committed_encode(value, out, error));
    }
    return status;
}

static enum deft_status turn_jobs(const char *text, size_t n_bytes, char **out,
                                  struct deft_error *error) {
    struct wire_jobs value;
    memset(&value, FUZZ_WIRE_UNTOUCHED, sizeof value);
    enum deft_status status = wire_jobs_decode(text, n_bytes, &value, error);
    if (fuzz_wire_decoded(status, &value, sizeof value)) {
        fuzz_wire_encoded(wire_jobs_encode(&value, out, error));
        wire_jobs_done(&value);
    }
    return status;
}

static enum deft_status turn_decisions(const char *text, size_t n_bytes, char **out,
                                       struct deft_error *error) {
    struct wire_decisions value;
    memset(&value, FUZZ_WIRE_UNTOUCHED, sizeof value);
    enum deft_status status = wire_decisions_decode(text, n_bytes, &value, error);
    if (fuzz_wire_decoded(status, &value, sizeof value)) {
        fuzz_wire_encoded(wire_decisions_encode(&value, out, error));
        wire_decisions_done(&value);
    }
    return status;
}

static enum deft_status turn_limits(const char *text, size_t n_bytes, char **out,
                                    struct deft_error *error) {
    struct wire_limits value;
    memset(&value, FUZZ_WIRE_UNTOUCHED, sizeof value);
    enum deft_status status = wire_limits_decode(text, n_bytes, &value, error);
    if (fuzz_wire_decoded(status, &value, sizeof value)) {
        fuzz_wire_encoded(wire_limits_encode(&value, out, error));
    }
    return status;
}

static enum deft_status turn_solve(const char *text, size_t n_bytes, char **out,
                                   struct deft_error *error) {
    struct wire_solve value;
    memset(&value, FUZZ_WIRE_UNTOUCHED, sizeof value);
    enum deft_status status = wire_solve_decode(text, n_bytes, &value, error);
    if (fuzz_wire_decoded(status, &value, sizeof value)) {
        fuzz_wire_encoded(wire_solve_encode(&value.profile, &value.options, out, error));
        wire_solve_done(&value);
    }
    return status;
}

static enum deft_status turn_token(const char *text, size_t n_bytes, char **out,
                                   struct deft_error *error) {
    struct wire_token_request value;
    char reason[WIRE_TEXT_BYTES];
    memset(&value, FUZZ_WIRE_UNTOUCHED, sizeof value);
    if (wire_reason_decode(text, n_bytes, reason, NULL) == DEFT_OK) {
        fuzzing_require(memchr(reason, '\0', sizeof reason) != NULL, "a reason is terminated");
    }
    enum deft_status status = wire_token_request_decode(text, n_bytes, &value, error);
    if (fuzz_wire_decoded(status, &value, sizeof value)) {
        fuzz_wire_encoded(wire_token_request_encode(&value, out, error));
    }
    return status;
}

static enum deft_status turn_pin(const char *text, size_t n_bytes, char **out,
                                 struct deft_error *error) {
    struct wire_pin value;
    memset(&value, FUZZ_WIRE_UNTOUCHED, sizeof value);
    enum deft_status status = wire_pin_decode(text, n_bytes, &value, error);
    if (fuzz_wire_decoded(status, &value, sizeof value)) {
        fuzz_wire_encoded(wire_pin_encode(&value, out, error));
    }
    return status;
}

static enum deft_status turn_freeze(const char *text, size_t n_bytes, char **out,
                                    struct deft_error *error) {
    struct wire_freeze value;
    memset(&value, FUZZ_WIRE_UNTOUCHED, sizeof value);
    enum deft_status status = wire_freeze_decode(text, n_bytes, &value, error);
    if (fuzz_wire_decoded(status, &value, sizeof value)) {
        fuzz_wire_encoded(wire_freeze_encode(&value, out, error));
    }
    return status;
}

static enum deft_status turn_keep(const char *text, size_t n_bytes, char **out,
                                  struct deft_error *error) {
    struct wire_keep value;
    memset(&value, FUZZ_WIRE_UNTOUCHED, sizeof value);
    enum deft_status status = wire_keep_decode(text, n_bytes, &value, error);
    if (fuzz_wire_decoded(status, &value, sizeof value)) {
        fuzz_wire_encoded(wire_keep_encode(&value, out, error));
    }
    return status;
}

static const struct {
    char letter;
    fuzz_wire_turn_fn turn;
} fuzz_wire_messages[] = {
    {'f', turn_profile},    {'p', turn_plan},   {'e', turn_plan_event}, {'r', turn_registration},
    {'d', turn_registered}, {'t', turn_report}, {'c', turn_committed},  {'j', turn_jobs},
    {'n', turn_decisions},  {'l', turn_limits}, {'s', turn_solve},      {'k', turn_token},
    {'i', turn_pin},        {'z', turn_freeze}, {'a', turn_keep},
};

static void fuzz_wire_message(fuzz_wire_turn_fn turn, const char *text, size_t n_bytes) {
    struct deft_error error = {.status = DEFT_OK};
    char *once = NULL;
    char *twice = NULL;
    enum deft_status status = turn(text, n_bytes, &once, &error);
    if (status != DEFT_OK) {
        fuzzing_require(error.status == status, "a failure has a status");
        fuzzing_require(error.text[0] != '\0' &&
                            memchr(error.text, '\0', sizeof error.text) != NULL,
                        "a failure has a sentence");
        return;
    }
    fuzzing_require(turn(once, strlen(once), &twice, &error) == DEFT_OK,
                    "what was encoded can be decoded");
    fuzzing_require(strcmp(once, twice) == 0, "encoding again gives the same text");
    free(once);
    free(twice);
}

/* Problem bodies come from foreign servers and never fail: no text is an empty detail. */
static void fuzz_wire_problem(const char *text, size_t n_bytes) {
    char detail[WIRE_TEXT_BYTES];
    memset(detail, 'x', sizeof detail);
    wire_problem_decode(text, n_bytes, detail);
    fuzzing_require(memchr(detail, '\0', sizeof detail) != NULL, "a detail is terminated");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0) {
        return 0;
    }
    /* A block of exactly this size, so that a sanitizer sees a read behind the text. */
    size_t n_bytes = size - 1;
    char *text = malloc(n_bytes + (n_bytes == 0));
    fuzzing_require(text != NULL, "there is memory");
    memcpy(text, data + 1, n_bytes);
    fuzz_wire_problem(text, n_bytes);
    for (size_t i = 0; i < sizeof fuzz_wire_messages / sizeof fuzz_wire_messages[0]; i++) {
        if (fuzz_wire_messages[i].letter == (char)data[0]) {
            fuzz_wire_message(fuzz_wire_messages[i].turn, text, n_bytes);
        }
    }
    free(text);
    return 0;
}
