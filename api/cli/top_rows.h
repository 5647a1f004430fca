/* The lines of `deft top`: one per running job, in an order of choice. */
#ifndef TOP_ROWS_H
#define TOP_ROWS_H

#include "top_text.h"
#include "wire/wire.h"

enum top_order { TOP_GAIN = 0, TOP_STEP, TOP_RANKS, TOP_PHASE, TOP_JOB, TOP_N_ORDERS };
/* For cli_word: NULL behind the last. */
extern const char *const top_order_names[TOP_N_ORDERS + 1];

/* Largest gains, steps and worlds come first, what has no figure last; equal ones by id. */
void top_rows_sort(struct wire_jobs *jobs, enum top_order order);

/* Exactly `columns` wide, as top_text_fit has it. */
void top_rows_heading(unsigned columns, char out[TOP_TEXT_BYTES]);
void top_rows_line(const struct wire_job *job, unsigned columns, char out[TOP_TEXT_BYTES]);
/* "3 jobs, 2 tuned, median gain 1.62x" */
void top_rows_summary(const struct wire_jobs *jobs, unsigned columns, char out[TOP_TEXT_BYTES]);

#endif
