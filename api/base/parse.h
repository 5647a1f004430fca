/* Numbers and words from command lines, environment and files. */
#ifndef PARSE_H
#define PARSE_H

#include <stddef.h>
#include <stdint.h>

#include <deft/status.h>

/* Decimal digits only, the whole text, within [least, most]. `name` is what the sentence calls it:
 * "--port is '70000x', expected a whole number from 0 to 65535". */
DEFT_NODISCARD enum deft_status parse_u64(const char *name, const char *text, uint64_t least,
                                          uint64_t most, uint64_t *out, struct deft_error *error);

/* Decimal digits with at most one point, a minus before and an exponent behind, the whole text,
 * within [least, most]: "--epsilon is 'x', expected a number from 0 to 1". */
DEFT_NODISCARD enum deft_status parse_real(const char *name, const char *text, double least,
                                           double most, double *out, struct deft_error *error);

/* A whole number and its unit, s, m, h or d, of 1 second to `most_s`: "--expires is '3', expected a
 * time such as 900s, 12h or 30d". */
DEFT_NODISCARD enum deft_status parse_seconds(const char *name, const char *text, uint64_t most_s,
                                              uint64_t *out_s, struct deft_error *error);

/* The index of `text` in the NULL-terminated `words`; the sentence lists them. */
DEFT_NODISCARD enum deft_status parse_word(const char *name, const char *text,
                                           const char *const *words, size_t *out_index,
                                           struct deft_error *error);

/* 1 when `code`, of an open that failed, says that the name of a file is wrong, or is no file of
 * this user's; 0 when the machine is at fault. */
int parse_wrong_file(int code);

#endif
