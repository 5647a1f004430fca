#include "testing.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int testing_main(int argc, char **argv, const struct CMUnitTest *cases, size_t n_cases) {
    if (argc > 1) {
        size_t i;
        for (i = 0; i < n_cases && strcmp(cases[i].name, argv[1]) != 0; i++) {
        }
        if (i == n_cases) {
            (void)fprintf(stderr, "%s: there is no case '%s'\n", argv[0], argv[1]);
            return 2;
        }
        cmocka_set_test_filter(argv[1]);
    }
    return _cmocka_run_group_tests(argv[0], cases, n_cases, NULL, NULL) == 0 ? 0 : 1;
}

_Noreturn void testing_skip(const char *why) {
    (void)printf("SKIPPED: %s\n", why);
    (void)fflush(NULL);
    _exit(77);
}

uint64_t testing_seed(void) {
    const char *text = getenv("DEFT_TEST_SEED");
    uint64_t seed = text != NULL ? strtoull(text, NULL, 0) : 20261130u;
    if (seed == 0) {
        seed = 1;
    }
    (void)printf("DEFT_TEST_SEED=%" PRIu64 "\n", seed);
    return seed;
}

uint64_t testing_random(uint64_t *state) {
    uint64_t x = *state;
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    *state = x;
    return x * UINT64_C(2685821657736338717);
}

uint64_t testing_random_below(uint64_t *state, uint64_t bound) {
    return bound == 0 ? 0 : testing_random(state) % bound;
}

int64_t testing_deadline_ns(int64_t seconds) {
    const char *text = getenv("DEFT_TEST_SLOWNESS");
    int64_t factor = text != NULL ? strtoll(text, NULL, 10) : 1;
    return seconds * (factor < 1 ? 1 : factor) * INT64_C(1000000000);
}

const char *testing_shared_dir(void) {
    const char *dir = getenv("DEFT_SHARED_DIR");
    return dir != NULL && access(dir, R_OK) == 0 ? dir : NULL;
}
