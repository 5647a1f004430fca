/* Parts of convergence_facts: each prints lines of JSON and returns the exit status. */
#ifndef FACTS_H
#define FACTS_H

#include <stdint.h>

/* Estimates of a known noise scale: fixed weights, and weights that move. */
int facts_noise(int n_runs);
/* Samples to a loss for merged gradients, measured and predicted. */
int facts_merge(int n_runs);
/* Samples to a loss for delayed gradients, measured and predicted. */
int facts_delay(int n_runs);
/* Edges of stability, predicted and by simulation. */
int facts_edge(void);
/* What the guard does to stationary jobs and to jobs that diverge. */
int facts_guard(int n_runs);

/* Filters for measurements that were made elsewhere; they end with the input.
 * progress: lines "q Q parts samples", one of exact's iterations each -> one line: the noise scale,
 * and for each merge of `merges` e(k), and e(k) over the whole run, by its noise scale on the way.
 * watch: lines "loss q Q" of one iteration each -> lines "NEXT N BY PROGRESS REASON": what the next
 * iteration runs under (exact or plan), the step-backs so far, who made the newest (tuner or fuse),
 * the plan's progress per sample as quantification has it (0: not admitted), and the reason. */
int facts_progress(double memory, double batch_samples, char **merges, int n_merges);
int facts_watch(const char *rule, uint32_t merge, uint32_t delay, uint32_t n_ranks,
                double momentum);
/* A line of `n` numbers from standard input; 0 at its end, or when the line is another one. */
int facts_read(double *out, int n);

#endif
