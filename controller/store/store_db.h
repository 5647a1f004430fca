/* One SQLite connection with its prepared statements. Only for the store's own files. */
#ifndef STORE_DB_H
#define STORE_DB_H

#include <stddef.h>
#include <stdint.h>

#include <deft/status.h>

struct sqlite3;
struct sqlite3_stmt;

/* Statements are written once in the source; this many exist at most. */
#define STORE_DB_MAX_STATEMENTS 192u
/* Of the hash table: rows are taken one by one, each looks its statement up. */
#define STORE_DB_SLOTS 512u

/* Readers and the writer never block each other under a write-ahead log; what waits is opening, and
 * a write while another program writes. */
#define STORE_DB_BUSY_MS 5000

struct store_db {
    struct sqlite3 *handle;
    unsigned n_statements;
    const char *sql[STORE_DB_SLOTS]; /* by address; NULL: free */
    struct sqlite3_stmt *statements[STORE_DB_SLOTS];
};

DEFT_NODISCARD enum deft_status store_db_open(const char *path, int read_only,
                                              struct store_db **out, struct deft_error *error);
void store_db_close(struct store_db *db); /* takes NULL */

enum deft_status store_db_fail(const struct store_db *db, const char *what,
                               struct deft_error *error);
/* Runs text that returns no rows. */
DEFT_NODISCARD enum deft_status store_db_exec(struct store_db *db, const char *sql,
                                              struct deft_error *error);
/* The statement of `sql`, a string literal, reset and unbound. NULL: see store_db_fail. */
struct sqlite3_stmt *store_db_statement(struct store_db *db, const char *sql);
/* Steps a statement that returns no rows. */
DEFT_NODISCARD enum deft_status store_db_step(struct store_db *db, struct sqlite3_stmt *statement,
                                              const char *what, struct deft_error *error);
/* Ends what is being read, so that no transaction stays open. */
void store_db_reset(struct store_db *db);
/* The one integer that a query without parameters gives; 0 for no row. */
DEFT_NODISCARD enum deft_status store_db_int(struct store_db *db, const char *sql, int64_t *out,
                                             struct deft_error *error);
/* Column text, "" for NULL. */
const char *store_db_text(struct sqlite3_stmt *statement, int column);

/* Brings the schema up to date; the steps are controller/store/schema/NNN.sql. */
DEFT_NODISCARD enum deft_status store_migrate(struct store_db *db, struct deft_error *error);
/* The same, only up to an older version. */
DEFT_NODISCARD enum deft_status store_migrate_to(struct store_db *db, size_t target,
                                                 struct deft_error *error);
/* DEFT_UNSUPPORTED when a newer release made the schema. */
DEFT_NODISCARD enum deft_status store_check_known(struct store_db *db, struct deft_error *error);

/* DEFT_UNSUPPORTED unless the schema is exactly this program's. */
DEFT_NODISCARD enum deft_status store_check_version(struct store_db *db, struct deft_error *error);

/* A connection for reading, from the store's pool. */
struct store;
DEFT_NODISCARD enum deft_status store_reader_take(struct store *store, struct store_db **out,
                                                  struct deft_error *error);
void store_reader_give(struct store *store, struct store_db *db);

#endif
