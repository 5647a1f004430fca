/* How long ranks wait for each other inside their all-reduces. */
#ifndef KINETO_WAITS_H
#define KINETO_WAITS_H

#include "kineto.h"

/* Clocks of ranks are not aligned, but an all-reduce ends on all of them together: the rank that
 * came last has the shortest one, and what the others take longer they wait. Fills wait_ns of the
 * steps that every rank has, and late_rank. Steps are sorted by rank and number and have the same
 * buckets. Returns how many steps all ranks have; 0 with one rank. */
uint32_t kineto_waits_find(struct kineto_job *job);

#endif
