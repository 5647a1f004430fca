/* Every limit of the scheduling library, with its reason. A test hits each of them. */
#ifndef DSCHED_LIMITS_H
#define DSCHED_LIMITS_H

/* Largest real models register a few thousand tensors; 65,536 leaves room and bounds a message. */
#define DSCHED_MAX_TENSORS 65536u
/* 2^40 elements (4 TiB of f32) keeps elements * 8 bytes and all sums far from overflow. */
#define DSCHED_MAX_ELEMENTS (UINT64_C(1) << 40)
/* Links all-reduce independently: NICs and transports of one host. */
#define DSCHED_MAX_LINKS 8u
/* Samples of one measured link curve. */
#define DSCHED_MAX_LINK_SAMPLES 256u
/* More buckets than this cost more in latency than they hide; hostile profiles stop here. */
#define DSCHED_MAX_BUCKETS 16384u
/* Generations in one cycle; fractional merges such as 13/8 need up to 8, splits more. */
#define DSCHED_MAX_GENERATIONS 64u
/* Iterations merged into one generation. */
#define DSCHED_MAX_MERGE 64u
/* Boundaries between the end of a generation and its application. */
#define DSCHED_MAX_DELAY 64u
/* Any single duration: 10^15 ns is 11.6 days; sums over a simulation stay inside int64. */
#define DSCHED_MAX_TIME_NS INT64_C(1000000000000000)
/* Names of tensors and links, with the terminating zero. Longer names are cut by importers. */
#define DSCHED_NAME_BYTES 128u

#endif
