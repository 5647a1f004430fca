#include "store/store_place.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <linux/magic.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

/* "DeFT", since schema 3. */
#define PLACE_APPLICATION_ID 1147487828
/* The log shrinks to this when it has been applied. */
#define PLACE_LOG_BYTES "67108864"

/* malloc'ed; NULL when memory is short. */
static char *place_name(const char *path, const char *suffix) {
    char *name = NULL;
    return asprintf(&name, "%s%s", path, suffix) < 0 ? NULL : name;
}

static enum deft_status place_no_memory(struct deft_error *error) {
    return deft_fail(error, DEFT_NO_MEMORY, 0, "no memory to open a database");
}

/* Their locks and their order of writes are not what SQLite needs: sqlite.org, "How To Corrupt". */
static const struct {
    uint32_t magic;
    const char *name;
} place_networks[] = {
    {NFS_SUPER_MAGIC, "NFS"},
    {SMB_SUPER_MAGIC, "SMB"},
    {SMB2_SUPER_MAGIC, "SMB"},
    {CIFS_SUPER_MAGIC, "SMB"},
};

enum deft_status store_place_local(const char *path, struct deft_error *error) {
    struct statfs where;
    int is_known = statfs(path, &where) == 0;
    if (!is_known && errno == ENOENT) {
        char *copy = strdup(path);
        if (copy == NULL) {
            return place_no_memory(error);
        }
        is_known = statfs(dirname(copy), &where) == 0;
        free(copy);
    }
    for (size_t i = 0; is_known && i < sizeof(place_networks) / sizeof(place_networks[0]); i++) {
        if ((uint32_t)where.f_type == place_networks[i].magic) {
            return deft_fail(error, DEFT_INVALID, 0,
                             "the database '%s' is on %s, where it may be damaged: put it on a "
                             "local disk, or say network-db",
                             path, place_networks[i].name);
        }
    }
    return DEFT_OK; /* what is wrong otherwise is told by whoever opens it */
}

/* SQLite's own locks come and go with transactions; this one stands as long as the process. */
enum deft_status store_place_lock(const char *path, int *out_fd, struct deft_error *error) {
    enum deft_status status = DEFT_OK;
    char *name = place_name(path, ".lock");
    if (name == NULL) {
        return place_no_memory(error);
    }
    int fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) {
        status = deft_fail(error, DEFT_IO, errno, "the lock file '%s' cannot be opened: %s", name,
                           strerrordesc_np(errno));
    } else if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        status = deft_fail(error, DEFT_STATE, errno,
                           "another controller has the database '%s' open", path);
        (void)close(fd);
    } else {
        *out_fd = fd;
    }
    free(name);
    return status;
}

/* --- what is there ------------------------------------------------------------------------------
 */

/* A log without its database holds changes of a file that is no longer there. */
static enum deft_status place_look_for_log(const char *path, struct deft_error *error) {
    struct stat stat_of;
    char *name = place_name(path, "-wal");
    if (name == NULL) {
        return place_no_memory(error);
    }
    int is_there = stat(name, &stat_of) == 0 && stat_of.st_size > 0;
    free(name);
    return is_there ? deft_fail(error, DEFT_INVALID, 0,
                                "there is no database '%s', but its log '%s-wal': put the database "
                                "back, or remove the log to begin anew",
                                path, path)
                    : DEFT_OK;
}

static enum deft_status place_look_inside(const char *path, int fd, struct deft_error *error) {
    static const char magic[16] = "SQLite format 3";
    char head[sizeof(magic)] = {0};
    struct stat stat_of;
    if (fstat(fd, &stat_of) != 0) {
        return deft_fail(error, DEFT_IO, errno, "the database '%s' cannot be opened: %s", path,
                         strerrordesc_np(errno));
    }
    if (!S_ISREG(stat_of.st_mode)) {
        return deft_fail(error, DEFT_INVALID, 0, "'%s' is %s, but a database file was expected",
                         path, S_ISDIR(stat_of.st_mode) ? "a folder" : "no regular file");
    }
    if (stat_of.st_size == 0) {
        return deft_fail(error, DEFT_INVALID, 0,
                         "the database '%s' is empty: what was in it is lost, or something else "
                         "made it; remove it to begin anew",
                         path);
    }
    ssize_t n = pread(fd, head, sizeof(head), 0);
    if (n < 0) {
        return deft_fail(error, DEFT_IO, errno, "the database '%s' cannot be read: %s", path,
                         strerrordesc_np(errno));
    }
    if (n != (ssize_t)sizeof(head) || memcmp(head, magic, sizeof(magic)) != 0) {
        return deft_fail(error, DEFT_INVALID, 0,
                         "'%s' is no database, or its header is damaged: 'deft db repair' saves "
                         "what can be read of a damaged one",
                         path);
    }
    return DEFT_OK;
}

enum deft_status store_place_look(const char *path, int *out_exists, struct deft_error *error) {
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    *out_exists = fd >= 0;
    if (fd < 0) {
        return errno == ENOENT
                   ? place_look_for_log(path, error)
                   : deft_fail(error, DEFT_IO, errno, "the database '%s' cannot be opened: %s",
                               path, strerrordesc_np(errno));
    }
    if (faccessat(AT_FDCWD, path, W_OK, AT_EACCESS) != 0) {
        int code = errno;
        (void)close(fd);
        return deft_fail(error, DEFT_IO, code, "the database '%s' is read-only: %s", path,
                         strerrordesc_np(code));
    }
    /* Closing a file drops the locks that SQLite would hold on it in this process: it must not have
     * it open yet. */
    enum deft_status status = place_look_inside(path, fd, error);
    (void)close(fd);
    return status;
}

/* A sentence for what SQLite said of the file as a whole. */
static enum deft_status place_fail(const struct store_db *db, const char *path,
                                   struct deft_error *error) {
    int code = sqlite3_extended_errcode(db->handle);
    const char *text = sqlite3_errmsg(db->handle);
    switch (code & 0xff) {
    case SQLITE_NOMEM:
        return place_no_memory(error);
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        return deft_fail(error, DEFT_STATE, code, "another program keeps the database '%s' locked",
                         path);
    case SQLITE_NOTADB:
    case SQLITE_CORRUPT:
        return deft_fail(error, DEFT_STORE, code,
                         "the database '%s' is damaged (%s): 'deft db repair' saves what can be "
                         "read of it",
                         path, text);
    case SQLITE_READONLY:
        return deft_fail(error, DEFT_STORE, code, "the database '%s' cannot be written: %s", path,
                         text);
    default:
        return deft_fail(error, DEFT_STORE, code, "the database '%s' cannot be opened: %s", path,
                         text);
    }
}

enum deft_status store_place_identify(struct store_db *db, const char *path,
                                      struct deft_error *error) {
    int64_t application = 0;
    int64_t version = 0;
    int64_t n_tables = 0;
    int64_t n_ours = 0;
    if (store_db_int(db, "PRAGMA application_id", &application, NULL) != DEFT_OK ||
        store_db_int(db, "PRAGMA user_version", &version, NULL) != DEFT_OK ||
        store_db_int(db, "SELECT count(*) FROM sqlite_master", &n_tables, NULL) != DEFT_OK ||
        store_db_int(db,
                     "SELECT count(*) FROM sqlite_master WHERE type = 'table'"
                     " AND name IN ('jobs', 'incarnations', 'iterations')",
                     &n_ours, NULL) != DEFT_OK) {
        return place_fail(db, path, error);
    }
    int is_new = version == 0 && application == 0 && n_tables == 0;
    int is_ours =
        version > 0 && n_ours == 3 && (application == PLACE_APPLICATION_ID || application == 0);
    return is_new || is_ours
               ? DEFT_OK
               : deft_fail(error, DEFT_INVALID, 0, "'%s' is a database of another program", path);
}

/* --- making it ----------------------------------------------------------------------------------
 */

enum deft_status store_place_sync(const char *path, struct deft_error *error) {
    const char *slash = strrchr(path, '/');
    size_t length = slash != NULL ? (size_t)(slash - path) + 1 : 0;
    char *folder = slash != NULL ? strndup(path, length) : strdup(".");
    if (folder == NULL) {
        return place_no_memory(error);
    }
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int failed = fd < 0 || fsync(fd) != 0;
    int code = errno;
    if (fd >= 0) {
        (void)close(fd);
    }
    free(folder);
    return failed ? deft_fail(error, DEFT_IO, code, "the folder of '%s' cannot be synced: %s", path,
                              strerrordesc_np(code))
                  : DEFT_OK;
}

static enum deft_status place_fill(const char *name, struct deft_error *error) {
    struct store_db *db = NULL;
    enum deft_status status = store_db_open(name, 0, &db, error);
    if (status == DEFT_OK) { /* must come before the first table */
        status = store_db_exec(db, "PRAGMA auto_vacuum = INCREMENTAL", error);
    }
    if (status == DEFT_OK) {
        status = store_migrate(db, error);
    }
    store_db_close(db);
    return status;
}

enum deft_status store_place_create(const char *path, struct deft_error *error) {
    char *name = place_name(path, ".new");
    char *journal = place_name(path, ".new-journal");
    enum deft_status status = DEFT_OK;
    if (name == NULL || journal == NULL) {
        status = place_no_memory(error);
        goto done;
    }
    (void)unlink(name); /* of a start that was interrupted */
    (void)unlink(journal);
    status = place_fill(name, error);
    if (status == DEFT_OK && rename(name, path) != 0) {
        status = deft_fail(error, DEFT_IO, errno, "the database '%s' cannot be made: %s", path,
                           strerrordesc_np(errno));
    }
    if (status == DEFT_OK) {
        status = store_place_sync(path, error);
    } else {
        (void)unlink(name);
        (void)unlink(journal);
    }
done:
    free(journal);
    free(name);
    return status;
}

/* --- opening it ---------------------------------------------------------------------------------
 */

static int place_first_finding(void *context, int n_columns, char **values, char **names) {
    char *finding = context;
    (void)names;
    if (n_columns > 0 && values[0] != NULL && strcmp(values[0], "ok") != 0 && finding[0] == '\0') {
        /* The first line of several. */
        (void)snprintf(finding, 128, "%.*s", (int)strcspn(values[0], "\n"), values[0]);
    }
    return 0;
}

static enum deft_status place_size(struct store_db *db, const char *path, int64_t *out_bytes,
                                   struct deft_error *error) {
    int64_t pages = 0;
    int64_t page_bytes = 0;
    if (store_db_int(db, "PRAGMA page_count", &pages, NULL) != DEFT_OK ||
        store_db_int(db, "PRAGMA page_size", &page_bytes, NULL) != DEFT_OK) {
        return place_fail(db, path, error);
    }
    *out_bytes = pages * page_bytes;
    return DEFT_OK;
}

/* Once the log has been applied, all pages must be in the file. */
static enum deft_status place_check_length(struct store_db *db, const char *path,
                                           struct deft_error *error) {
    int64_t n_bytes = 0;
    struct stat stat_of;
    enum deft_status status = place_size(db, path, &n_bytes, error);
    if (status == DEFT_OK && stat(path, &stat_of) == 0 && stat_of.st_size < n_bytes) {
        return deft_fail(error, DEFT_STORE, SQLITE_CORRUPT,
                         "the database '%s' was cut off: it has %lld of its %lld bytes; 'deft db "
                         "repair' saves what can be read of it",
                         path, (long long)stat_of.st_size, (long long)n_bytes);
    }
    return status;
}

/* Small files as a whole; of large ones the tables that are few pages and that all jobs need. */
static enum deft_status place_check(struct store_db *db, const char *path,
                                    struct deft_error *error) {
    static const char *const checks[] = {
        "PRAGMA quick_check(1)",         "PRAGMA quick_check(jobs)",
        "PRAGMA quick_check(agents)",    "PRAGMA quick_check(incarnations)",
        "PRAGMA quick_check(sequences)", "PRAGMA quick_check(upkeep)"};
    char finding[128] = "";
    int64_t n_bytes = 0;
    enum deft_status status = place_size(db, path, &n_bytes, error);
    if (status != DEFT_OK) {
        return status;
    }
    int small = n_bytes <= STORE_PLACE_CHECKED_BYTES;
    for (size_t i = small ? 0 : 1; i < (small ? 1 : sizeof(checks) / sizeof(checks[0])); i++) {
        if (sqlite3_exec(db->handle, checks[i], place_first_finding, finding, NULL) != SQLITE_OK) {
            return place_fail(db, path, error);
        }
    }
    (void)sqlite3_db_release_memory(db->handle); /* what the writer needs is elsewhere */
    return finding[0] == '\0'
               ? DEFT_OK
               : deft_fail(error, DEFT_STORE, SQLITE_CORRUPT,
                           "the database '%s' is damaged (%s): 'deft db repair' saves what can be "
                           "read of it",
                           path, finding);
}

/* Write-ahead logging; checkpoints are the writer's own business (store.c). The cache, in KiB,
 * holds the pages that ten thousand agents write to: of each job the end of its iterations, and all
 * of agents and totals. A transaction that does not fit is written twice. */
static enum deft_status place_use_log(struct store_db *db, const char *path,
                                      struct deft_error *error) {
    static const char pragmas[] = "PRAGMA synchronous = FULL;"
                                  "PRAGMA foreign_keys = ON;"
                                  "PRAGMA secure_delete = FAST;"
                                  "PRAGMA cache_size = -32768;"
                                  "PRAGMA wal_autocheckpoint = 0;"
                                  "PRAGMA journal_size_limit = " PLACE_LOG_BYTES ";";
    sqlite3_stmt *s = store_db_statement(db, "PRAGMA journal_mode = WAL");
    if (s == NULL || sqlite3_step(s) != SQLITE_ROW) {
        return place_fail(db, path, error);
    }
    if (strcmp(store_db_text(s, 0), "wal") != 0) {
        return deft_fail(error, DEFT_STORE, 0,
                         "the database '%s' cannot keep a write-ahead log: its file system has no "
                         "shared memory",
                         path);
    }
    (void)sqlite3_reset(s);
    enum deft_status status = store_db_exec(db, pragmas, error);
    if (status != DEFT_OK) {
        return status;
    }
    /* What a crash, or a reader that stayed too long, has left there is applied now. A reader that
     * is at it still is not waited for. */
    (void)sqlite3_busy_timeout(db->handle, 0);
    int code = sqlite3_wal_checkpoint_v2(db->handle, NULL, SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL);
    (void)sqlite3_busy_timeout(db->handle, STORE_DB_BUSY_MS);
    if (code == SQLITE_OK) {
        return place_check_length(db, path, error);
    }
    return code == SQLITE_BUSY ? DEFT_OK : place_fail(db, path, error);
}

/* A program that writes for long, or a folder that cannot be written, would stop every report. */
static enum deft_status place_try_writing(struct store_db *db, const char *path,
                                          struct deft_error *error) {
    if (sqlite3_exec(db->handle, "BEGIN IMMEDIATE", NULL, NULL, NULL) != SQLITE_OK) {
        return place_fail(db, path, error);
    }
    return store_db_exec(db, "ROLLBACK", error);
}

static enum deft_status place_prepare(struct store_db *db, const char *path,
                                      struct deft_error *error) {
    enum deft_status status = store_place_identify(db, path, error);
    if (status != DEFT_OK) {
        return status;
    }
    if (sqlite3_db_readonly(db->handle, "main") == 1) {
        return deft_fail(error, DEFT_STORE, SQLITE_READONLY,
                         "the database '%s' is read-only: its header says so, or its file system",
                         path);
    }
    status = store_check_known(db, error);
    if (status == DEFT_OK) {
        status = place_use_log(db, path, error);
    }
    if (status == DEFT_OK) {
        status = place_try_writing(db, path, error);
    }
    if (status == DEFT_OK) {
        status = store_migrate(db, error);
    }
    return status == DEFT_OK ? place_check(db, path, error) : status;
}

enum deft_status store_place_open(const char *path, struct store_db **out,
                                  struct deft_error *error) {
    struct store_db *db = NULL;
    enum deft_status status = store_db_open(path, 0, &db, error);
    if (status == DEFT_OK) {
        status = place_prepare(db, path, error);
    }
    if (status != DEFT_OK) {
        store_db_close(db);
        return status;
    }
    *out = db;
    return DEFT_OK;
}
