/* Every limit of the trace reader, with its reason. A test hits each of them. */
#ifndef KINETO_LIMITS_H
#define KINETO_LIMITS_H

#include <stdint.h>

/* Traces nest six deep; the bound keeps hostile input from growing the parser's stack. */
#define KINETO_MAX_DEPTH 64u
/* Longest run of input without a token: a Python call with all its arguments has a few kB. */
#define KINETO_MAX_TOKEN_BYTES (1u << 20)
/* Records kept of all traces of one import, of at most 40 bytes each: 640 MB. A record is kept of
 * each launch, kernel, copy, collective and autograd call, about every third event. */
#define KINETO_MAX_RECORDS (UINT32_C(16) << 20)
/* Step marks of one trace; profilers are told to record a few dozen. */
#define KINETO_MAX_STEPS 4096u
/* Gradient all-reduces of one step; DDP makes one per 25 MiB. */
#define KINETO_MAX_BUCKETS 4096u
/* Traces of one import: one per rank of a job that is worth to be looked at rank by rank. */
#define KINETO_MAX_TRACES 64u
/* Distinct names of collectives, and of process groups; further ones are counted together. */
#define KINETO_MAX_NAMES 64u
/* Such a name, with the terminating zero; longer ones are cut. */
#define KINETO_NAME_BYTES 48u
/* Instants since any epoch that a profiler uses, and durations: 2^61 ns are 73 years, and the sum
 * of two stays inside int64. */
#define KINETO_MAX_INSTANT_NS (INT64_C(1) << 61)
/* Notes that a job's figures come with. */
#define KINETO_MAX_NOTES  8u
#define KINETO_NOTE_BYTES 256u

#endif
