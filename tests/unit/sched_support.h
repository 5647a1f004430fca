/* Profiles and plans for the tests of the scheduling library. */
#ifndef SCHED_SUPPORT_H
#define SCHED_SUPPORT_H

#include <dsched/plan.h>
#include <dsched/profile.h>
#include <dsched/simulate.h>

/* A profile that owns its arrays, with `n_tensors` zeroed f32 tensors and `n_links` affine links of
 * alpha 50 us and 1 GB/s without contention. Stage times follow from support_sum. */
void support_profile(struct dsched_profile *out, uint32_t n_tensors, uint32_t n_links);
/* Sets the stages to the sums of the tensors' own times. */
void support_sum(struct dsched_profile *profile);

/* Random tensors and links. The first link is scaled such that the all-reduce of everything takes
 * about `coverage_percent` of forward and backward. */
void support_random(uint64_t *state, uint32_t coverage_percent, struct dsched_profile *out);

/* A profile of `n_tensors` equal tensors and one link with no latency worth mentioning: forward
 * takes 1/3 and backward 2/3 of `compute_ns`, one all-reduce `communication_ns`. */
void support_even(uint32_t n_tensors, int64_t compute_ns, int64_t communication_ns,
                  struct dsched_profile *out);

/* The table of a profile; the arrays are the caller's to free. */
struct support_table {
    struct dsched_table table;
    uint64_t *elements;
    uint8_t *dtypes;
};
void support_table(const struct dsched_profile *profile, struct support_table *out);
void support_table_done(struct support_table *table);

/* T of a profile. */
int64_t support_compute_ns(const struct dsched_profile *profile);

/* A random plan that obeys every rule for the table. */
void support_random_plan(uint64_t *state, const struct dsched_table *table, enum dsched_rule rule,
                         uint32_t n_links, struct dsched_plan *out);

/* Fails unless every figure is the same; the bytes between the figures may differ. */
void support_same_report(const struct dsched_report *ours, const struct dsched_report *theirs);

#endif
