#include "contended.h"

#include "delays.h"
#include "muldiv.h"
#include "refuse.h"
#include "simulation.h"

#include <stdlib.h>

int contended_any(const struct dsched_profile *profile) {
    for (uint32_t l = 0; l < profile->n_links; l++) {
        if (profile->links[l].contention_ppm > MULDIV_PPM) {
            return 1;
        }
    }
    return 0;
}

int64_t contended_slow_ns(const struct dsched_profile *profile, const int64_t *works_ns) {
    int64_t slow_ns = 0;
    int64_t now_ns = 0;
    for (;;) {
        uint64_t contention_ppm = MULDIV_PPM;
        int64_t next_ns = INT64_MAX;
        for (uint32_t l = 0; l < profile->n_links; l++) {
            if (works_ns[l] > now_ns) {
                next_ns = works_ns[l] < next_ns ? works_ns[l] : next_ns;
                contention_ppm = profile->links[l].contention_ppm > contention_ppm
                                     ? profile->links[l].contention_ppm
                                     : contention_ppm;
            }
        }
        if (next_ns == INT64_MAX) {
            return slow_ns;
        }
        slow_ns += (int64_t)muldiv_down((uint64_t)(next_ns - now_ns), contention_ppm - MULDIV_PPM,
                                        contention_ppm, INT64_MAX);
        now_ns = next_ns;
    }
}

/* As many iterations per generation as keep every link idle for some of the time. */
static uint16_t merge_without_waits(const struct layout *layout, int64_t compute_ns) {
    uint64_t n = muldiv_up((uint64_t)layout->work_ns, 1, (uint64_t)compute_ns, DSCHED_MAX_MERGE);
    return (uint16_t)(n < 1 ? 1 : n);
}

enum dsched_status contended_measure(const struct dsched_profile *profile,
                                     const struct space *space, struct layout *layout,
                                     struct dsched_error *error) {
    int64_t compute_ns = profile->forward_ns + profile->backward_ns + profile->optimizer_ns;
    uint16_t merge = 1;
    struct dsched_plan plan = {.rule = DSCHED_EXACT,
                               .n_links = layout->n_links,
                               .n_buckets = layout->n_buckets,
                               .n_generations = 1,
                               .buckets = layout->buckets,
                               .merge = &merge};
    struct simulation simulation = {
        .profile = profile, .space = space, .plan = &plan, .ready = PROGRAM_READY_DURING_BACKWARD};
    struct dsched_report report = {0};
    enum dsched_status status;
    plan.ops = calloc(layout->n_buckets, sizeof(*plan.ops));
    if (plan.ops == NULL) {
        return refuse_memory(error, "the simulation of a layout");
    }
    for (uint32_t b = 0; b < layout->n_buckets; b++) {
        plan.ops[b].link = layout->links[b];
    }
    status = simulation_run(&simulation, NULL, NULL, &report, error);
    if (status != DSCHED_OK) {
        goto done;
    }
    layout->finish_ns = report.step_ns - profile->forward_ns - profile->optimizer_ns;
    plan.rule = DSCHED_DELAYED;
    merge = merge_without_waits(layout, compute_ns);
    delays_fill(&plan, merge);
    status = simulation_run(&simulation, NULL, NULL, &report, error);
    if (status == DSCHED_OK) {
        layout->spread_slow_ns = (report.step_ns - report.exposed_ns - compute_ns) * merge;
    }
done:
    free(plan.ops);
    return status;
}

static int64_t cycle_ns(const struct dsched_profile *profile, const int64_t *works_ns,
                        uint32_t n_merged) {
    int64_t compute_ns = profile->forward_ns + profile->backward_ns + profile->optimizer_ns;
    int64_t most_ns = compute_ns * n_merged + contended_slow_ns(profile, works_ns);
    for (uint32_t l = 0; l < profile->n_links; l++) {
        most_ns = works_ns[l] > most_ns ? works_ns[l] : most_ns;
    }
    return most_ns;
}

/* The best move of one bucket; 0 when none helps. */
static int move_one(const struct dsched_profile *profile, uint32_t n_merged,
                    const int64_t *costs_ns, struct layout *layout, int64_t *works_ns) {
    uint32_t n = layout->n_buckets;
    int64_t best_ns = cycle_ns(profile, works_ns, n_merged);
    uint32_t best_bucket = n;
    uint32_t best_link = 0;
    for (uint32_t b = 0; b < n; b++) {
        uint32_t from = layout->links[b];
        works_ns[from] -= costs_ns[(size_t)from * n + b];
        for (uint32_t l = 0; l < profile->n_links; l++) {
            int64_t ns;
            works_ns[l] += costs_ns[(size_t)l * n + b];
            ns = cycle_ns(profile, works_ns, n_merged);
            works_ns[l] -= costs_ns[(size_t)l * n + b];
            if (ns < best_ns) {
                best_ns = ns;
                best_bucket = b;
                best_link = l;
            }
        }
        works_ns[from] += costs_ns[(size_t)from * n + b];
    }
    if (best_bucket == n) {
        return 0;
    }
    works_ns[layout->links[best_bucket]] -=
        costs_ns[(size_t)layout->links[best_bucket] * n + best_bucket];
    works_ns[best_link] += costs_ns[(size_t)best_link * n + best_bucket];
    layout->links[best_bucket] = (uint8_t)best_link;
    return 1;
}

enum dsched_status contended_balance(const struct dsched_profile *profile,
                                     const struct space *space, uint32_t n_merged,
                                     struct layout *layout, struct dsched_error *error) {
    uint32_t n = layout->n_buckets;
    int64_t works_ns[DSCHED_MAX_LINKS] = {0};
    uint64_t *bytes = calloc(n, sizeof(*bytes));
    int64_t *costs_ns = calloc((size_t)n * profile->n_links, sizeof(*costs_ns));
    uint32_t n_moves = 0;
    enum dsched_status status = DSCHED_OK;
    if (bytes == NULL || costs_ns == NULL) {
        status = refuse_memory(error, "the balance of links");
        goto done;
    }
    space_measure(space, layout->buckets, n, NULL, bytes);
    for (uint32_t b = 0; b < n; b++) {
        for (uint32_t l = 0; l < profile->n_links; l++) {
            costs_ns[(size_t)l * n + b] = dsched_link_ns(&profile->links[l], bytes[b]);
        }
        works_ns[layout->links[b]] += costs_ns[(size_t)layout->links[b] * n + b];
    }
    while (n_moves < 2 * n && move_one(profile, n_merged, costs_ns, layout, works_ns)) {
        n_moves++;
    }
done:
    free(bytes);
    free(costs_ns);
    return status;
}
