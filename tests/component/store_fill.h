/* Jobs with a row in every table, some of them long. */
#ifndef STORE_FILL_H
#define STORE_FILL_H

#include "store_world.h"

/* Two starts of `job`, `n_reports` reports each, from `now_ns` on, one a minute; the first start
 * has ended. Texts and blobs differ by job and seed, and some need several pages. Returns the
 * newest start. */
int64_t store_fill_job(struct store_world *world, const char *job, uint64_t n_reports,
                       uint64_t seed, int64_t now_ns);

/* The sum of what SQL prints of each row of each table of the database at `path`, as 64 bits, with
 * the number of rows; tables in a fixed order. Equal databases have equal ones. */
uint64_t store_fill_sum(const char *path);

#endif
