/* Figures for people: aligned columns and durations. */
#ifndef CLI_TABLE_H
#define CLI_TABLE_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <deft/status.h>

#define CLI_TABLE_COLUMNS    12u
#define CLI_TABLE_CELL_BYTES 64u

/* Rows of text cells; a column is as wide as its widest cell. The first row is the heading. */
struct cli_table {
    size_t n_columns;
    size_t n_rows;
    size_t capacity;
    char (*cells)[CLI_TABLE_CELL_BYTES]; /* row-major */
    int failed;                          /* no memory: rows are missing */
};

void cli_table_init(struct cli_table *table, size_t n_columns);
/* The next cell, row by row. Longer texts are cut. */
void cli_table_add(struct cli_table *table, const char *format, ...) DEFT_PRINTF(2, 3);
/* Numbers stand to the right: columns whose cells below the heading begin with a digit or '-'. */
void cli_table_print(const struct cli_table *table, FILE *stream);
void cli_table_done(struct cli_table *table);

/* "97.1 ms", "12 us", "1.50 s"; "-" for 0. */
void cli_table_duration(int64_t ns, char out[16]);
/* "42.0 MB"; powers of ten. */
void cli_table_bytes(uint64_t bytes, char out[16]);

#endif
