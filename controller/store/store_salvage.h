/* Reads rows out of the pages of a SQLite database that SQLite itself refuses, because some of the
 * pages are damaged. Only for the store's own files.
 *
 * Format: sqlite.org/fileformat2.html. Pages of the write-ahead log that were committed count
 * before those of the file. Nothing here trusts a number it has read. */
#ifndef STORE_SALVAGE_H
#define STORE_SALVAGE_H

#include <stddef.h>
#include <stdint.h>

#include <deft/status.h>

/* No table of ours has half as many columns. */
#define STORE_SALVAGE_MAX_VALUES 64u
/* Depth of a tree: 4 pages deep there is room for 10^8 rows. */
#define STORE_SALVAGE_MAX_DEPTH 20u
/* Longer rows are not ours. */
#define STORE_SALVAGE_MAX_ROW_BYTES ((uint64_t)64 << 20)

enum store_salvage_type {
    STORE_SALVAGE_NULL,
    STORE_SALVAGE_INT,
    STORE_SALVAGE_REAL,
    STORE_SALVAGE_TEXT,
    STORE_SALVAGE_BLOB
};
struct store_salvage_value {
    enum store_salvage_type type;
    int64_t integer;
    double real;
    const uint8_t *bytes; /* until the next row */
    size_t n_bytes;
};
struct store_salvage_row {
    int has_rowid; /* of a table; rows of tables without one, and of indices, have none */
    int64_t rowid;
    unsigned n_values;
    struct store_salvage_value values[STORE_SALVAGE_MAX_VALUES];
};

enum store_salvage_kind {
    STORE_SALVAGE_OTHER, /* an overflow page, a free one, or damage */
    STORE_SALVAGE_TABLE_LEAF,
    STORE_SALVAGE_TABLE_INNER, /* has no rows */
    STORE_SALVAGE_INDEX_LEAF,
    STORE_SALVAGE_INDEX_INNER /* has rows too */
};

struct store_salvage;
/* DEFT_INVALID when the file cannot be read at all or is empty. */
DEFT_NODISCARD enum deft_status store_salvage_open(const char *path, struct store_salvage **out,
                                                   struct deft_error *error);
void store_salvage_close(struct store_salvage *salvage); /* takes NULL */

uint32_t store_salvage_n_pages(const struct store_salvage *salvage);
/* The version of the schema that the header has; 0 when it cannot be read. */
uint32_t store_salvage_version(struct store_salvage *salvage);

/* Marks pages that are free, or hold the pointers of incremental vacuum, as seen. */
void store_salvage_skip_free(struct store_salvage *salvage);
int store_salvage_was_seen(const struct store_salvage *salvage, uint32_t page);
enum store_salvage_kind store_salvage_kind(struct store_salvage *salvage, uint32_t page);

/* Called for each row that can be read; not DEFT_OK ends the reading with it. */
typedef enum deft_status (*store_salvage_fn)(void *context, const struct store_salvage_row *row,
                                             struct deft_error *error);
struct store_salvage_count {
    uint64_t n_rows;
    uint64_t n_bad_rows; /* on pages that can be read otherwise */
    uint32_t n_pages;
    uint32_t n_bad_pages;
};
/* All of a tree, as far as pages lead from one to the other. Pages are marked as seen. */
DEFT_NODISCARD enum deft_status store_salvage_tree(struct store_salvage *salvage, uint32_t root,
                                                   store_salvage_fn found, void *context,
                                                   struct store_salvage_count *count,
                                                   struct deft_error *error);
/* The rows of one page alone. */
DEFT_NODISCARD enum deft_status store_salvage_page(struct store_salvage *salvage, uint32_t page,
                                                   store_salvage_fn found, void *context,
                                                   struct store_salvage_count *count,
                                                   struct deft_error *error);

#endif
