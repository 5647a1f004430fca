/* Standard input, output and error of a program. */
#ifndef BASE_STREAMS_H
#define BASE_STREAMS_H

#include <deft/status.h>

/* The first call of main. `program` begins the sentence and must outlive the process.
 *
 * A standard descriptor that is closed is taken by one that fails in the same way (EBADF): else a
 * socket or a database would get its number, and what is printed. At the end of the process what
 * standard output still holds is written; when it cannot be, and nobody has called streams_flush,
 * a sentence says so and the exit status is 1 instead of 0, also after the parser's own exit
 * (--help, --version). */
void streams_begin(const char *program);

/* Writes what standard output holds. DEFT_IO with the reason when that, or something printed
 * before, could not be written; told once. */
enum deft_status streams_flush(struct deft_error *error);

#endif
