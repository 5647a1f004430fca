#include "store/store_file.h"

#include <errno.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "store/store_bind.h"
#include "store/store_copy.h"
#include "store/store_mend.h"
#include "store/store_place.h"
#include "store/store_salvage.h"
#include "store/store_schema.h"

#define REPAIR_MAX_TABLES  STORE_FILE_MAX_TABLES
#define REPAIR_MAX_COLUMNS 48u
#define REPAIR_MAX_ROOTS   256u

struct repair_column {
    char name[STORE_FILE_NAME_BYTES];
    char type; /* first letter of INTEGER, REAL, TEXT, BLOB */
    int may_be_null;
    int is_rowid;
};
struct repair_table {
    char name[STORE_FILE_NAME_BYTES];
    int has_rowid;
    int has_root;
    int is_there;        /* in the version that was listed last */
    unsigned n_at_first; /* columns that it was made with: older rows end there */
    unsigned n_columns;
    struct repair_column columns[REPAIR_MAX_COLUMNS];
    sqlite3_stmt *inserts[REPAIR_MAX_COLUMNS + 1]; /* by the number of values */
    struct store_file_saved *saved;
};
/* Where a tree begins, as the schema of the damaged database says. */
struct repair_root {
    int table; /* -1: an index, or a table that is not ours */
    uint32_t page;
};
struct repair {
    struct store_salvage *salvage;
    struct store_db *to;
    struct store_file_repair *report;
    unsigned n_tables;
    struct repair_table tables[REPAIR_MAX_TABLES];
    unsigned n_roots;
    struct repair_root roots[REPAIR_MAX_ROOTS];
    int table;          /* that the rows being read belong to */
    uint64_t may_be;    /* tables that all rows of a stray page fit, as bits */
    uint64_t n_on_page; /* its rows */
};

/* --- the new database ---------------------------------------------------------------------------
 */

static enum deft_status repair_list_columns(struct repair *repair, struct repair_table *table,
                                            struct deft_error *error) {
    sqlite3_stmt *s = store_db_statement(
        repair->to, "SELECT c.name, c.type, c.\"notnull\", c.pk, l.wr,"
                    " (SELECT count(*) FROM pragma_table_info(?1) WHERE pk > 0)"
                    " FROM pragma_table_info(?1) c, pragma_table_list(?1) l WHERE l.schema = 'main'"
                    " ORDER BY c.cid");
    if (s == NULL) {
        return store_db_fail(repair->to, "be read", error);
    }
    store_bind_text(s, 1, table->name);
    while (sqlite3_step(s) == SQLITE_ROW && table->n_columns < REPAIR_MAX_COLUMNS) {
        struct repair_column *column = &table->columns[table->n_columns++];
        (void)snprintf(column->name, sizeof(column->name), "%s", store_db_text(s, 0));
        column->type = store_db_text(s, 1)[0];
        table->has_rowid = sqlite3_column_int(s, 4) == 0;
        column->is_rowid = table->has_rowid && sqlite3_column_int(s, 3) == 1 &&
                           sqlite3_column_int(s, 5) == 1 && column->type == 'I';
        column->may_be_null = sqlite3_column_int(s, 2) == 0 || column->is_rowid;
    }
    (void)sqlite3_reset(s);
    return DEFT_OK;
}

static struct repair_table *repair_named(struct repair *repair, const char *name) {
    for (unsigned i = 0; i < repair->n_tables; i++) {
        if (strcmp(repair->tables[i].name, name) == 0) {
            return &repair->tables[i];
        }
    }
    return NULL;
}

/* Tables that a step has taken away. */
static void repair_forget_tables(struct repair *repair) {
    unsigned n = 0;
    for (unsigned i = 0; i < repair->n_tables; i++) {
        if (repair->tables[i].is_there) {
            repair->tables[n] = repair->tables[i];
            repair->report->tables[n] = repair->report->tables[i];
            repair->tables[n].saved = &repair->report->tables[n];
            repair->tables[n++].is_there = 0;
        }
    }
    repair->n_tables = n;
    repair->report->n_tables = n;
}

/* The tables that a step of the schema has made, and what it has added to others. */
static enum deft_status repair_list_tables(struct repair *repair, struct deft_error *error) {
    enum deft_status status = DEFT_OK;
    sqlite3_stmt *s = store_db_statement(
        repair->to, "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name");
    if (s == NULL) {
        return store_db_fail(repair->to, "be read", error);
    }
    while (status == DEFT_OK && sqlite3_step(s) == SQLITE_ROW) {
        struct repair_table *table = repair_named(repair, store_db_text(s, 0));
        int is_new = table == NULL && repair->n_tables < REPAIR_MAX_TABLES;
        if (is_new) {
            table = &repair->tables[repair->n_tables];
            table->saved = &repair->report->tables[repair->n_tables++];
            (void)snprintf(table->name, sizeof(table->name), "%s", store_db_text(s, 0));
            memcpy(table->saved->name, table->name, sizeof(table->name));
        }
        if (table != NULL) {
            table->n_columns = 0;
            status = repair_list_columns(repair, table, error);
            table->n_at_first = is_new ? table->n_columns : table->n_at_first;
            table->is_there = 1;
        }
    }
    (void)sqlite3_reset(s);
    repair_forget_tables(repair);
    return status;
}

/* Of the damaged one's own schema, so that its rows fit; brought up to date afterwards. */
static enum deft_status repair_make(struct repair *repair, const char *name,
                                    struct deft_error *error) {
    size_t version = store_salvage_version(repair->salvage);
    version = version >= 1 && version <= store_schema_steps ? version : store_schema_steps;
    enum deft_status status = store_db_open(name, 0, &repair->to, error);
    if (status == DEFT_OK) {
        status = store_db_exec(repair->to,
                               "PRAGMA auto_vacuum = INCREMENTAL; PRAGMA synchronous = OFF;"
                               "PRAGMA foreign_keys = OFF",
                               error);
    }
    for (size_t step = 1; step <= version && status == DEFT_OK; step++) {
        status = store_migrate_to(repair->to, step, error);
        if (status == DEFT_OK) {
            status = repair_list_tables(repair, error);
        }
    }
    if (status == DEFT_OK && version >= 3) { /* made full by its step */
        status = store_db_exec(repair->to, "DELETE FROM sequences", error);
    }
    return status;
}

static sqlite3_stmt *repair_insert(struct repair *repair, struct repair_table *table, unsigned n) {
    sqlite3_str *sql = NULL;
    if (n == 0 || n > table->n_columns || table->inserts[n] != NULL) {
        return n <= table->n_columns ? table->inserts[n] : NULL;
    }
    sql = sqlite3_str_new(repair->to->handle);
    sqlite3_str_appendf(sql, "INSERT OR IGNORE INTO \"%w\" (", table->name);
    for (unsigned i = 0; i < n; i++) {
        sqlite3_str_appendf(sql, "%s\"%w\"", i > 0 ? ", " : "", table->columns[i].name);
    }
    sqlite3_str_appendall(sql, ") VALUES (");
    for (unsigned i = 0; i < n; i++) {
        sqlite3_str_appendf(sql, "%s?%u", i > 0 ? ", " : "", i + 1);
    }
    sqlite3_str_appendall(sql, ")");
    char *text = sqlite3_str_finish(sql);
    if (text != NULL) {
        (void)sqlite3_prepare_v2(repair->to->handle, text, -1, &table->inserts[n], NULL);
    }
    sqlite3_free(text);
    return table->inserts[n];
}

/* --- rows ---------------------------------------------------------------------------------------
 */

static void repair_bind(sqlite3_stmt *s, int parameter, const struct store_salvage_value *value) {
    switch (value->type) {
    case STORE_SALVAGE_INT:
        store_bind_int(s, parameter, value->integer);
        break;
    case STORE_SALVAGE_REAL:
        (void)sqlite3_bind_double(s, parameter, value->real);
        break;
    case STORE_SALVAGE_TEXT:
        (void)sqlite3_bind_text(s, parameter, (const char *)value->bytes, (int)value->n_bytes,
                                SQLITE_STATIC);
        break;
    case STORE_SALVAGE_BLOB:
        (void)sqlite3_bind_blob(s, parameter, value->n_bytes > 0 ? value->bytes : (const void *)"",
                                (int)value->n_bytes, SQLITE_STATIC);
        break;
    default:
        (void)sqlite3_bind_null(s, parameter);
        break;
    }
}

/* A real number without a fraction is stored as an integer. */
static int repair_column_fits(const struct repair_column *column,
                              const struct store_salvage_value *value) {
    switch (value->type) {
    case STORE_SALVAGE_INT:
        return !column->is_rowid && (column->type == 'I' || column->type == 'R');
    case STORE_SALVAGE_REAL:
        return column->type == 'R';
    case STORE_SALVAGE_TEXT:
        return column->type == 'T';
    case STORE_SALVAGE_BLOB:
        return column->type == 'B';
    default:
        return column->may_be_null;
    }
}

static int repair_fits(const struct repair_table *table, const struct store_salvage_row *row) {
    if (row->has_rowid != table->has_rowid || row->n_values > table->n_columns ||
        row->n_values < table->n_at_first) {
        return 0;
    }
    for (unsigned i = 0; i < row->n_values; i++) {
        if (!repair_column_fits(&table->columns[i], &row->values[i])) {
            return 0;
        }
    }
    return 1;
}

static enum deft_status repair_take(struct repair *repair, struct repair_table *table,
                                    const struct store_salvage_row *row, struct deft_error *error) {
    sqlite3_stmt *s = repair_fits(table, row) ? repair_insert(repair, table, row->n_values) : NULL;
    if (s == NULL) {
        table->saved->n_bad_rows++;
        return DEFT_OK;
    }
    (void)sqlite3_reset(s);
    for (unsigned i = 0; i < row->n_values; i++) {
        if (table->columns[i].is_rowid) {
            store_bind_int(s, (int)i + 1, row->rowid);
        } else {
            repair_bind(s, (int)i + 1, &row->values[i]);
        }
    }
    int code = sqlite3_step(s);
    if (code == SQLITE_DONE) {
        table->saved->n_rows += (uint64_t)sqlite3_changes(repair->to->handle);
    } else if ((code & 0xff) == SQLITE_CONSTRAINT || (code & 0xff) == SQLITE_MISMATCH) {
        table->saved->n_bad_rows++;
    } else {
        return store_db_fail(repair->to, "be filled", error);
    }
    (void)sqlite3_reset(s);
    return DEFT_OK;
}

static enum deft_status repair_row(void *context, const struct store_salvage_row *row,
                                   struct deft_error *error) {
    struct repair *repair = context;
    return repair_take(repair, &repair->tables[repair->table], row, error);
}

static enum deft_status repair_nothing(void *context, const struct store_salvage_row *row,
                                       struct deft_error *error) {
    (void)context;
    (void)row;
    (void)error;
    return DEFT_OK;
}

/* --- what the schema leads to -------------------------------------------------------------------
 */

static int repair_find(const struct repair *repair, const struct store_salvage_value *name) {
    for (unsigned i = 0; i < repair->n_tables; i++) {
        if (strlen(repair->tables[i].name) == name->n_bytes &&
            memcmp(repair->tables[i].name, name->bytes, name->n_bytes) == 0) {
            return (int)i;
        }
    }
    return -1;
}

/* A row of sqlite_master: type, name, tbl_name, rootpage, sql. */
static enum deft_status repair_root(void *context, const struct store_salvage_row *row,
                                    struct deft_error *error) {
    struct repair *repair = context;
    (void)error;
    if (row->n_values < 4 || row->values[0].type != STORE_SALVAGE_TEXT ||
        row->values[1].type != STORE_SALVAGE_TEXT || row->values[3].type != STORE_SALVAGE_INT ||
        repair->n_roots == REPAIR_MAX_ROOTS) {
        return DEFT_OK;
    }
    int is_table = row->values[0].n_bytes == 5 && memcmp(row->values[0].bytes, "table", 5) == 0;
    repair->roots[repair->n_roots++] =
        (struct repair_root){.table = is_table ? repair_find(repair, &row->values[1]) : -1,
                             .page = (uint32_t)row->values[3].integer};
    return DEFT_OK;
}

static enum deft_status repair_trees(struct repair *repair, struct deft_error *error) {
    struct store_salvage_count ignored = {0};
    enum deft_status status =
        store_salvage_tree(repair->salvage, 1, repair_root, repair, &ignored, error);
    for (unsigned i = 0; i < repair->n_roots && status == DEFT_OK; i++) {
        struct store_salvage_count count = {0};
        const struct repair_root *root = &repair->roots[i];
        repair->table = root->table;
        if (root->table >= 0) {
            repair->tables[root->table].has_root = 1;
        }
        status = store_salvage_tree(repair->salvage, root->page,
                                    root->table >= 0 ? repair_row : repair_nothing, repair, &count,
                                    error);
        if (root->table >= 0) {
            struct store_file_saved *saved = repair->tables[root->table].saved;
            saved->n_bad_rows += count.n_bad_rows;
            saved->n_pages += count.n_pages;
            saved->n_bad_pages += count.n_bad_pages;
        }
    }
    return status;
}

/* --- what nothing leads to any more -------------------------------------------------------------
 */

static enum deft_status repair_guess(void *context, const struct store_salvage_row *row,
                                     struct deft_error *error) {
    struct repair *repair = context;
    uint64_t fits = 0;
    (void)error;
    for (unsigned i = 0; i < repair->n_tables; i++) {
        fits |= (uint64_t)repair_fits(&repair->tables[i], row) << i;
    }
    repair->may_be &= fits;
    repair->n_on_page++;
    return DEFT_OK;
}

/* Of several tables, that which misses pages. */
static uint64_t repair_narrow(const struct repair *repair, uint64_t may_be) {
    uint64_t broken = 0;
    for (unsigned i = 0; i < repair->n_tables; i++) {
        const struct repair_table *table = &repair->tables[i];
        broken |= (uint64_t)(table->saved->n_bad_pages > 0 || !table->has_root) << i;
    }
    return (may_be & (may_be - 1)) != 0 ? may_be & broken : may_be;
}

/* A page whose rows all fit one table, and no other, is taken for that table's. */
static enum deft_status repair_stray(struct repair *repair, uint32_t page,
                                     struct deft_error *error) {
    struct store_salvage_count count = {0};
    repair->may_be = UINT64_MAX;
    repair->n_on_page = 0;
    enum deft_status status =
        store_salvage_page(repair->salvage, page, repair_guess, repair, &count, error);
    if (status != DEFT_OK || repair->n_on_page == 0) {
        return status;
    }
    repair->may_be = repair_narrow(repair, repair->may_be);
    if (repair->may_be == 0 || (repair->may_be & (repair->may_be - 1)) != 0) {
        repair->report->n_unknown_pages++;
        return DEFT_OK;
    }
    repair->table = __builtin_ctzll(repair->may_be);
    struct store_file_saved *saved = repair->tables[repair->table].saved;
    uint64_t n_before = saved->n_rows;
    count = (struct store_salvage_count){0};
    status = store_salvage_page(repair->salvage, page, repair_row, repair, &count, error);
    saved->n_stray += saved->n_rows - n_before;
    saved->n_bad_rows += count.n_bad_rows;
    saved->n_pages++;
    return status;
}

static enum deft_status repair_strays(struct repair *repair, struct deft_error *error) {
    enum deft_status status = DEFT_OK;
    store_salvage_skip_free(repair->salvage);
    for (uint32_t page = 2; page <= store_salvage_n_pages(repair->salvage) && status == DEFT_OK;
         page++) {
        enum store_salvage_kind kind = store_salvage_was_seen(repair->salvage, page)
                                           ? STORE_SALVAGE_OTHER
                                           : store_salvage_kind(repair->salvage, page);
        if (kind != STORE_SALVAGE_OTHER && kind != STORE_SALVAGE_TABLE_INNER) {
            status = repair_stray(repair, page, error);
        }
    }
    return status;
}

/* --- all of it ----------------------------------------------------------------------------------
 */

static enum deft_status repair_fill(struct repair *repair, struct deft_error *error) {
    enum deft_status status = store_db_exec(repair->to, "BEGIN", error);
    if (status == DEFT_OK) {
        status = repair_trees(repair, error);
    }
    if (status == DEFT_OK) {
        status = repair_strays(repair, error);
    }
    for (unsigned i = 0; i < repair->n_tables; i++) {
        for (unsigned n = 0; n <= REPAIR_MAX_COLUMNS; n++) {
            (void)sqlite3_finalize(repair->tables[i].inserts[n]);
        }
    }
    if (status == DEFT_OK) {
        status = store_db_exec(repair->to, "COMMIT", error);
    }
    if (status == DEFT_OK) {
        status = store_migrate(repair->to, error);
    }
    if (status == DEFT_OK) {
        status = store_mend(repair->to, &repair->report->n_made_up, error);
    }
    return status == DEFT_OK ? store_copy_verify(repair->to, "the repaired database", error)
                             : status;
}

static enum deft_status repair_into(const char *path, const char *name,
                                    struct store_file_repair *report, struct deft_error *error) {
    struct repair *repair = calloc(1, sizeof(*repair));
    if (repair == NULL) {
        return deft_fail(error, DEFT_NO_MEMORY, 0, "no memory to repair a database");
    }
    repair->report = report;
    enum deft_status status = store_salvage_open(path, &repair->salvage, error);
    if (status == DEFT_OK) {
        status = repair_make(repair, name, error);
    }
    if (status == DEFT_OK) {
        status = repair_fill(repair, error);
    }
    store_db_close(repair->to);
    store_salvage_close(repair->salvage);
    free(repair);
    return status;
}

enum deft_status store_file_repair(const char *path, const char *to, struct store_file_repair *out,
                                   struct deft_error *error) {
    struct store_copy_target target = {0};
    int lock_fd = -1;
    memset(out, 0, sizeof(*out));
    if (access(path, R_OK) != 0) {
        return deft_fail(error, DEFT_NOT_FOUND, errno, "the database '%s' cannot be read: %s", path,
                         strerrordesc_np(errno));
    }
    /* Where no lock can be made no controller can run either. */
    enum deft_status status = store_place_lock(path, &lock_fd, error);
    status = status == DEFT_STATE ? status : DEFT_OK;
    if (status == DEFT_OK) {
        status = store_copy_begin(to, &target, error);
    }
    if (status == DEFT_OK) {
        status = repair_into(path, target.name, out, error);
    }
    status = store_copy_end(&target, status, error);
    if (lock_fd >= 0) {
        (void)close(lock_fd);
    }
    return status;
}
