/* When a fuse blows, against a reference that looks at the whole history anew each time. */
#include <math.h>
#include <string.h>

#include "runtime/fuse.h"
#include "testing.h"

#define N 40 /* sets of figures in a history */

static struct control_figures figures_of(double mean_loss, double n_bad, double mean_grad_sq) {
    struct control_figures out = {
        .n_bad_losses = n_bad, .grad_sq = mean_grad_sq * 16, .n_grads = 16};
    if (!isnan(mean_loss)) {
        out.n_losses = 16 - n_bad;
        out.loss = mean_loss * out.n_losses;
    }
    return out;
}

struct history {
    uint64_t since; /* first iteration of the plan */
    struct fuse_limits limits;
    struct control_figures sets[N]; /* set i begins at iteration 4 i */
};

/* Set i or an earlier one of the plan is above `limit`, as are all others between that tell
 * anything: at least two of them, or one by far. */
static int passes(const struct history *history, uint32_t i, double limit, int losses) {
    uint32_t n_above = 0;
    for (uint32_t k = i + 1; k-- > 0 && 4 * (uint64_t)k >= history->since;) {
        const struct control_figures *set = &history->sets[k];
        double n = losses ? set->n_losses : set->n_grads;
        double mean = (losses ? set->loss : set->grad_sq) / n;
        if (k == i && (!(n > 0) || !(mean > limit))) {
            return 0;
        }
        if (n > 0 && !(mean > limit)) {
            return n_above >= 2;
        }
        if (k == i && mean > 2 * limit) {
            return 1;
        }
        n_above += n > 0;
    }
    return n_above >= 2;
}

static int turns_bad(const struct history *history, uint32_t i) {
    if (!(history->sets[i].n_bad_losses > 0)) {
        return 0;
    }
    /* `since` is where a plan began; what was before it still tells whether losses were finite, but
     * for the set that it cut. */
    for (uint32_t k = i; k-- > 0;) {
        const struct control_figures *set = &history->sets[k];
        int is_cut = 4 * (uint64_t)k < history->since && history->since < 4 * (uint64_t)k + 4 + 3;
        if (!is_cut && set->n_losses + set->n_bad_losses > 0) {
            return !(set->n_bad_losses > 0);
        }
    }
    return 0;
}

static struct history random_history(uint64_t *random) {
    struct history out = {.since = testing_random_below(random, 40)};
    uint64_t calm = 1 + testing_random_below(random, 30);
    out.limits.max_loss = testing_random_below(random, 4) == 0 ? (double)NAN : 2;
    out.limits.max_grad_sq = testing_random_below(random, 2) == 0 ? (double)NAN : 10;
    for (uint32_t i = 0; i < N; i++) {
        int is_odd = testing_random_below(random, calm) == 0;
        double loss = is_odd ? (double)testing_random_below(random, 50) / 10 : 1.5;
        int is_silent = testing_random_below(random, 8) == 0;
        double n_bad = is_odd && testing_random_below(random, 4) == 0 ? 3 : 0;
        double grad_sq = is_odd ? (double)testing_random_below(random, 24) : 9;
        out.sets[i] = figures_of(is_silent ? (double)NAN : loss, is_silent ? 0 : n_bad, grad_sq);
    }
    return out;
}

static void any_history_gives_what_the_rules_say(void **state) {
    (void)state;
    uint64_t random = testing_seed();
    uint32_t n_blown[4] = {0};
    for (int round = 0; round < 20000; round++) {
        struct history history = random_history(&random);
        const struct fuse_limits none = {.max_loss = (double)NAN, .max_grad_sq = (double)NAN};
        struct fuse fuse = {.since = 0};
        for (uint32_t i = 0; i < N; i++) {
            /* Known 2 boundaries behind its end: by then another plan may run. */
            int is_plan = 4 * (uint64_t)i + 6 >= history.since;
            if (is_plan && fuse.since != history.since) {
                fuse_start(&fuse, history.since);
            }
            char text[256] = "";
            int expected = 0;
            if (4 * (uint64_t)i >= history.since && fuse_is_set(&history.limits)) {
                expected = turns_bad(&history, i) ? 3 : 0;
                expected = passes(&history, i, history.limits.max_grad_sq, 0) ? 2 : expected;
                expected = passes(&history, i, history.limits.max_loss, 1) ? 1 : expected;
            }
            int got = fuse_look(&fuse, is_plan ? &history.limits : &none, &history.sets[i],
                                4 * (uint64_t)i, text, sizeof(text));
            assert_int_equal(got, expected != 0);
            assert_int_equal(got, text[0] != '\0');
            n_blown[expected]++;
            if (got) {
                break;
            }
        }
    }
    for (int kind = 0; kind < 4; kind++) {
        assert_true(n_blown[kind] > 100);
    }
}

static void one_sentence_has_the_figures(void **state) {
    (void)state;
    const struct fuse_limits limits = {.max_loss = 2.871, .max_grad_sq = 10};
    struct {
        struct control_figures figures[2];
        const char *text;
    } cases[] = {
        {{figures_of(3.4, 0, 1), figures_of(3.412, 0, 1)},
         "the mean loss of 4 iterations is 3.412, above the 2.871 that this plan may reach"},
        {{figures_of(1, 0, 1), figures_of(5.75, 0, 1)},
         "the mean loss of 4 iterations is 5.75, more than twice the 2.871 that this plan may "
         "reach"},
        {{figures_of(1, 0, 1), figures_of(1, 0, 1e9)},
         "the mean squared norm of the gradients of 4 iterations is 1e+09, more than twice the 10 "
         "that this plan may reach"},
        {{figures_of(1, 0, 1), figures_of(1, 3, 1)},
         "3 of the 16 losses of 4 iterations are not finite, all were before"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct fuse fuse = {.since = 0};
        char text[256] = "";
        assert_int_equal(fuse_look(&fuse, &limits, &cases[i].figures[0], 0, text, sizeof(text)), 0);
        assert_string_equal(text, "");
        assert_int_equal(fuse_look(&fuse, &limits, &cases[i].figures[1], 4, text, sizeof(text)), 1);
        assert_string_equal(text, cases[i].text);
    }
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(any_history_gives_what_the_rules_say),
    cmocka_unit_test(one_sentence_has_the_figures),
};
TESTING_MAIN(cases)
