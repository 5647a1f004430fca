/* A database as a file: looked through, copied, made smaller, saved from damage, and single jobs
 * taken out of it and put in. For the controller's subcommand `db`; no store is open for these.
 *
 * A result appears under its name whole or not at all, and never in the place of a file that is
 * there already (DEFT_MISMATCH). */
#ifndef STORE_FILE_H
#define STORE_FILE_H

#include <stdint.h>

#include <deft/status.h>

#define STORE_FILE_NAME_BYTES    64u
#define STORE_FILE_FINDING_BYTES 256u
#define STORE_FILE_MAX_TABLES    48u
#define STORE_FILE_MAX_FINDINGS  50u

/* DEFT_NOT_FOUND or DEFT_INVALID with a sentence when there is no file that could be a database.
 * Opening a store would make one. */
DEFT_NODISCARD enum deft_status store_file_expect(const char *path, struct deft_error *error);

/* Called now and then; pages or rows. `total` 0: unknown. NULL is fine. */
typedef void (*store_file_progress_fn)(void *context, uint64_t done, uint64_t total);

/* --- check: reads beside a controller, needs no lock -------------------------------------------
 */

struct store_file_table {
    char name[STORE_FILE_NAME_BYTES];
    int64_t n_rows;  /* -1: cannot be counted */
    int64_t n_bytes; /* with its indices; -1: unknown */
};
struct store_file_check {
    int64_t version;
    int64_t n_bytes;
    int64_t free_bytes; /* of them, in pages without use */
    int64_t log_bytes;  /* of the write-ahead log beside it */
    unsigned n_tables;
    struct store_file_table tables[STORE_FILE_MAX_TABLES];
    unsigned n_findings; /* 0: the database is whole; beyond the maximum they are only counted */
    char findings[STORE_FILE_MAX_FINDINGS][STORE_FILE_FINDING_BYTES];
};
/* DEFT_OK also for a database with findings; something else when there is none to look at. */
DEFT_NODISCARD enum deft_status store_file_check(const char *path, struct store_file_check *out,
                                                 struct deft_error *error);

/* --- copies -------------------------------------------------------------------------------------
 */

/* As of one moment, beside a controller, which is not held up; its log grows meanwhile. The copy is
 * looked through before it gets its name. */
DEFT_NODISCARD enum deft_status store_file_backup(const char *path, const char *to,
                                                  store_file_progress_fn progress, void *context,
                                                  struct deft_error *error);
/* Without free pages, and from then on able to give pages back. Takes the lock: DEFT_STATE when a
 * controller is at work. Needs room for a copy. */
DEFT_NODISCARD enum deft_status store_file_compact(const char *path, int64_t *out_before_bytes,
                                                   int64_t *out_after_bytes,
                                                   struct deft_error *error);

/* --- repair -------------------------------------------------------------------------------------
 */

struct store_file_saved {
    char name[STORE_FILE_NAME_BYTES];
    uint64_t n_rows;      /* saved */
    uint64_t n_stray;     /* of them, on pages that nothing leads to any more */
    uint64_t n_bad_rows;  /* on pages that can be read otherwise */
    uint32_t n_pages;     /* of the table, as far as known */
    uint32_t n_bad_pages; /* of them */
};
struct store_file_repair {
    unsigned n_tables;
    struct store_file_saved tables[STORE_FILE_MAX_TABLES];
    uint32_t n_unknown_pages; /* with rows of which nothing tells whose they are */
    uint64_t n_made_up;       /* rows that others refer to and that were lost: stand-ins */
};
/* Makes a new database of every row that can be read. Takes the lock, where one can be made. */
DEFT_NODISCARD enum deft_status store_file_repair(const char *path, const char *to,
                                                  struct store_file_repair *out,
                                                  struct deft_error *error);

/* --- one job as a file: deft.job-archive/1 ------------------------------------------------------
 */

/* Lines of JSON, compressed when `to` ends in .gz; "-" is standard output, uncompressed. Beside a
 * controller. DEFT_NOT_FOUND: there is no such job. */
DEFT_NODISCARD enum deft_status store_file_export(const char *path, const char *job, const char *to,
                                                  struct deft_error *error);
/* Takes the lock. `as` NULL: under the name it had. DEFT_MISMATCH: there is such a job already.
 * DEFT_INVALID: no archive, or not all of one. `out_job` has room for WIRE_ID_BYTES. */
DEFT_NODISCARD enum deft_status store_file_import(const char *path, const char *from,
                                                  const char *as, char *out_job,
                                                  struct deft_error *error);

#endif
