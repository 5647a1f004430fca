/* Shared by every C test. Each case runs as its own process: `program case`. */
#ifndef TESTING_H
#define TESTING_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* Runs the case named by argv[1], or all. Returns the process's exit status. */
int testing_main(int argc, char **argv, const struct CMUnitTest *cases, size_t n_cases);
#define TESTING_MAIN(cases)                                                                        \
    int main(int argc, char **argv) {                                                              \
        return testing_main(argc, argv, cases, sizeof(cases) / sizeof((cases)[0]));                \
    }

/* Ends the case as skipped (exit 77), saying why. */
_Noreturn void testing_skip(const char *why);

/* Seed of randomised properties: DEFT_TEST_SEED or a fixed default; printed on use. */
uint64_t testing_seed(void);
/* xorshift64*: small, the same everywhere. `state` must not be 0. */
uint64_t testing_random(uint64_t *state);
uint64_t testing_random_below(uint64_t *state, uint64_t bound);

/* Factor on every deadline: DEFT_TEST_SLOWNESS (sanitizers, valgrind), default 1. */
int64_t testing_deadline_ns(int64_t seconds);

/* The folder shared/ beside the checkout (DEFT_SHARED_DIR), or NULL: then skip visibly. */
const char *testing_shared_dir(void);

#endif
