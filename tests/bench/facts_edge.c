#include <math.h>
#include <stdio.h>

#include <dsched/convergence.h>

#include "facts.h"
#include "quadratic.h"

#define N_RANKS 3u
#define N_STEPS 4000
#define N_NOISY                                                                                    \
    8u /* iterations that tell the ranks apart; afterwards only the recursion counts               \
        */
#define N_HALVES 40

/* Whether a job of one curvature (1) stays: its size over the last quarter against the one before.
 * -1 without memory. */
static int edge_is_stable(enum dsched_rule rule, double momentum, uint32_t merge, uint32_t delay,
                          double s) {
    static const double curvature[] = {1};
    static const double start[] = {1};
    struct quadratic_setup setup = {.curvature = curvature,
                                    .n_dims = 1,
                                    .n_ranks = N_RANKS,
                                    .rate = s,
                                    .momentum = momentum,
                                    .noise = 1,
                                    .n_noisy = N_NOISY,
                                    .seed = 7};
    struct quadratic *job = quadratic_create(&setup, start);
    if (job == NULL || !quadratic_switch(job, rule, merge, delay)) {
        quadratic_destroy(job);
        return -1;
    }
    double before = 0;
    double last = 0;
    int n = N_STEPS * (int)(merge + delay);
    int i = 0;
    for (; i < n && quadratic_size(job) < 1e30; i++) {
        quadratic_step(job);
        if (i >= 3 * (n / 4)) {
            last = fmax(last, quadratic_size(job));
        } else if (i >= n / 2) {
            before = fmax(before, quadratic_size(job));
        }
    }
    quadratic_destroy(job);
    /* Averages of the ranks' changes leave what rounding they have. */
    return i == n && (last < 1e-9 || last < 1.01 * before);
}

/* The first edge: climbing, then halving. 0 without memory. */
static double edge_measure(enum dsched_rule rule, double momentum, uint32_t merge, uint32_t delay) {
    double stable = 0;
    double above = 0.01;
    int is_stable = edge_is_stable(rule, momentum, merge, delay, above);
    while (is_stable > 0 && above < 16) {
        stable = above;
        above *= 1.1;
        is_stable = edge_is_stable(rule, momentum, merge, delay, above);
    }
    for (int i = 0; i < N_HALVES && is_stable >= 0 && above - stable > 1e-5 * above; i++) {
        double middle = (stable + above) / 2;
        is_stable = edge_is_stable(rule, momentum, merge, delay, middle);
        if (is_stable > 0) {
            stable = middle;
        } else {
            above = middle;
        }
    }
    return is_stable >= 0 ? stable : 0;
}

int facts_edge(void) {
    static const enum dsched_rule rules[] = {DSCHED_DELAYED, DSCHED_LOOKAHEAD, DSCHED_AVERAGED};
    static const double momenta[] = {0, 0.5, 0.9};
    static const uint32_t merges[] = {1, 2, 3};
    for (size_t r = 0; r < 3; r++) {
        for (size_t m = 0; m < 3; m++) {
            for (size_t k = 0; k < 3; k++) {
                for (uint32_t delay = 0; delay <= 4; delay++) {
                    if (rules[r] == DSCHED_LOOKAHEAD && (merges[k] > 1 || delay > 1)) {
                        continue;
                    }
                    double found = edge_measure(rules[r], momenta[m], merges[k], delay);
                    if (found <= 0) {
                        (void)fprintf(stderr, "convergence_facts: no edge was found\n");
                        return 1;
                    }
                    printf("{\"rule\":\"%s\",\"momentum\":%g,\"merge\":%u,\"delay\":%u,"
                           "\"predicted\":%.6f,\"measured\":%.6f}\n",
                           dsched_rule_name(rules[r]), momenta[m], merges[k], delay,
                           dsched_stability_edge(rules[r], momenta[m], merges[k], delay), found);
                }
            }
        }
    }
    return 0;
}
