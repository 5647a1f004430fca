/* Reviews from anybody. What is refused is refused with a sentence; a verdict is clean and says why
 * when the pod asked; patch and answer are JSON. */
#include <string.h>

#include "fuzzing.h"
#include "kube/inject.h"
#include "wire/json_scan.h"

#define FUZZ_DEPTH 16u

static void fuzz_json(enum deft_status status, const char *text, const char *what) {
    fuzzing_require(status == DEFT_OK, "there is memory");
    const struct json_scan_limits limits = {FUZZ_DEPTH, SIZE_MAX};
    fuzzing_require(json_scan(text, strlen(text), &limits, NULL) == DEFT_OK, what);
}

static void fuzz_verdict(const struct inject_verdict *verdict) {
    size_t n = 0;
    fuzzing_require(verdict->n_warnings <= INJECT_MAX_WARNINGS, "warnings have a bound");
    for (size_t i = 0; i < verdict->n_warnings; i++) {
        n = strnlen(verdict->warnings[i], sizeof(verdict->warnings[i]));
        fuzzing_require(n > 0 && n < sizeof(verdict->warnings[i]), "a warning is a text");
    }
    if (verdict->injects) {
        n = strlen(verdict->job);
        fuzzing_require(strspn(verdict->job, "abcdefghijklmnopqrstuvwxyz0123456789.-") == n,
                        "names of jobs are clean");
        fuzzing_require(verdict->user >= 0, "the user is known");
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const struct inject_options options = {
        .image = "i", .controller = "http://c", .ca_pem = "-----BEGIN CERTIFICATE-----"};
    struct wire_admission *review = NULL;
    struct inject_verdict verdict;
    struct deft_error error = {.status = DEFT_OK};
    const char *warnings[INJECT_MAX_WARNINGS];
    char *patch = NULL;
    char *answer = NULL;
    if (wire_admission_decode((const char *)data, size, &review, &error) != DEFT_OK) {
        fuzzing_require(error.text[0] != '\0', "refusals say why");
        return 0;
    }
    inject_judge(review, &verdict);
    fuzz_verdict(&verdict);
    for (size_t i = 0; i < verdict.n_warnings; i++) {
        warnings[i] = verdict.warnings[i];
    }
    if (verdict.injects) {
        enum deft_status made = inject_patch(review, &verdict, &options, "t", &patch, &error);
        fuzz_json(made, patch, "a patch is JSON");
    }
    enum deft_status status =
        wire_admission_answer(wire_admission_uid(review), patch != NULL ? "W10=" : NULL, warnings,
                              verdict.n_warnings, &answer, &error);
    fuzz_json(status, answer, "an answer is JSON");
    wire_admission_close(review);
    free(answer);
    free(patch);
    return 0;
}
