#include "cli_table.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

void cli_table_init(struct cli_table *table, size_t n_columns) {
    *table = (struct cli_table){.n_columns = n_columns};
}

void cli_table_add(struct cli_table *table, const char *format, ...) {
    if (table->failed) {
        return;
    }
    if (table->n_rows == table->capacity) {
        size_t capacity = table->capacity < 64 ? 128 : table->capacity * 2;
        void *cells = realloc(table->cells, capacity * CLI_TABLE_CELL_BYTES);
        if (cells == NULL) {
            table->failed = 1;
            return;
        }
        table->cells = cells;
        table->capacity = capacity;
    }
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(table->cells[table->n_rows++], CLI_TABLE_CELL_BYTES, format, arguments);
    va_end(arguments);
}

/* Characters on the screen: UTF-8 continuation bytes take no room. */
static size_t cli_table_width(const char *text) {
    size_t n = 0;
    for (; *text != '\0'; text++) {
        n += ((unsigned char)*text & 0xC0u) != 0x80u;
    }
    return n;
}

static int cli_table_is_number(const char *text) {
    return (text[0] >= '0' && text[0] <= '9') || text[0] == '-';
}

static void cli_table_pad(FILE *stream, size_t n) {
    while (n-- > 0) {
        (void)fputc(' ', stream);
    }
}

void cli_table_print(const struct cli_table *table, FILE *stream) {
    size_t widths[CLI_TABLE_COLUMNS] = {0};
    int right[CLI_TABLE_COLUMNS];
    for (size_t i = 0; i < CLI_TABLE_COLUMNS; i++) {
        right[i] = 1;
    }
    for (size_t i = 0; i < table->n_rows; i++) {
        size_t column = i % table->n_columns;
        size_t width = cli_table_width(table->cells[i]);
        widths[column] = width > widths[column] ? width : widths[column];
        right[column] &= i < table->n_columns || cli_table_is_number(table->cells[i]);
    }
    for (size_t i = 0; i < table->n_rows; i++) {
        size_t column = i % table->n_columns;
        size_t pad = widths[column] - cli_table_width(table->cells[i]);
        int is_last = column + 1 == table->n_columns;
        cli_table_pad(stream, right[column] ? pad : 0);
        (void)fputs(table->cells[i], stream);
        if (is_last) {
            (void)fputc('\n', stream);
        } else {
            cli_table_pad(stream, (right[column] ? 0 : pad) + 2);
        }
    }
}

void cli_table_done(struct cli_table *table) {
    free(table->cells);
    *table = (struct cli_table){0};
}

void cli_table_duration(int64_t ns, char out[16]) {
    if (ns == 0) {
        (void)snprintf(out, 16, "-");
    } else if (ns < 1000000) {
        (void)snprintf(out, 16, "%.1f us", (double)ns / 1e3);
    } else if (ns < INT64_C(10000000000)) {
        (void)snprintf(out, 16, "%.1f ms", (double)ns / 1e6);
    } else {
        (void)snprintf(out, 16, "%.2f s", (double)ns / 1e9);
    }
}

void cli_table_bytes(uint64_t bytes, char out[16]) {
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
    double value = (double)bytes;
    size_t i = 0;
    while (value >= 1000.0 && i + 1 < sizeof(units) / sizeof(units[0])) {
        value /= 1000.0;
        i++;
    }
    (void)snprintf(out, 16, i == 0 ? "%.0f %s" : "%.1f %s", value, units[i]);
}
