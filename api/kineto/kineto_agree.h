/* What steps and ranks have in common: the buckets, and the parameters inside of them. */
#ifndef KINETO_AGREE_H
#define KINETO_AGREE_H

#include <deft/status.h>

#include "kineto.h"

/* Keeps the steps that all-reduce what most steps do, and counts the others as left out. Steps are
 * sorted by rank; every rank must have one. */
DEFT_NODISCARD enum deft_status kineto_agree_buckets(struct kineto_job *job,
                                                     struct deft_error *error);
/* Fills parameters if the shapes are known, the same in all steps, and add up to the buckets.
 * `values` has room for one number per step. */
DEFT_NODISCARD enum deft_status kineto_agree_parameters(struct kineto_job *job, int64_t *values,
                                                        struct deft_error *error);

#endif
