/* How far noise reaches. */
#ifndef TAIL_H
#define TAIL_H

/* The mean of `n` independent figures is further above its expectation than this many of its own
 * standard deviations with a probability of at most about `p`, 1e-12..0.1, for every noise whose
 * tails are no heavier than Laplace's. */
double tail_reach(double p, double n);

#endif
