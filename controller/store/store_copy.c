#include "store/store_copy.h"

#include <errno.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "store/store_file.h"
#include "store/store_place.h"

/* Pages copied between two words of progress: 4 MiB. */
#define COPY_STEP_PAGES 1024

/* --- the one that is read -----------------------------------------------------------------------
 */

static int64_t copy_file_bytes(const char *path, const char *suffix) {
    struct stat stat_of;
    char *name = NULL;
    int64_t n_bytes = 0;
    if (asprintf(&name, "%s%s", path, suffix) >= 0) {
        n_bytes = stat(name, &stat_of) == 0 ? (int64_t)stat_of.st_size : 0;
        free(name);
    }
    return n_bytes;
}

enum deft_status store_file_expect(const char *path, struct deft_error *error) {
    struct stat stat_of;
    if (stat(path, &stat_of) != 0) {
        return deft_fail(error, DEFT_NOT_FOUND, errno, "the database '%s' cannot be opened: %s",
                         path, strerrordesc_np(errno));
    }
    if (!S_ISREG(stat_of.st_mode) || stat_of.st_size == 0) {
        return deft_fail(error, DEFT_INVALID, 0, "'%s' is %s, but a database was expected", path,
                         S_ISREG(stat_of.st_mode)   ? "empty"
                         : S_ISDIR(stat_of.st_mode) ? "a folder"
                                                    : "no regular file");
    }
    if (faccessat(AT_FDCWD, path, R_OK, AT_EACCESS) != 0) {
        return deft_fail(error, DEFT_IO, errno, "the database '%s' cannot be opened: %s", path,
                         strerrordesc_np(errno));
    }
    return DEFT_OK;
}

/* Opened for writing where that is allowed, only so that SQLite removes its side files again. A log
 * that was left is not applied: that is for a controller to do. */
enum deft_status store_copy_open_source(const char *path, struct store_db **out,
                                        struct deft_error *error) {
    struct store_db *db = NULL;
    enum deft_status status = store_file_expect(path, error);
    if (status != DEFT_OK) {
        return status;
    }
    int may_write = faccessat(AT_FDCWD, path, W_OK, AT_EACCESS) == 0;
    status = store_db_open(path, !may_write, &db, error);
    if (status == DEFT_OK && copy_file_bytes(path, "-wal") > 0) {
        (void)sqlite3_db_config(db->handle, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, (int *)NULL);
    }
    if (status == DEFT_OK) {
        status = store_place_identify(db, path, error);
    }
    if (status == DEFT_OK) {
        status = store_check_known(db, error);
    }
    if (status != DEFT_OK) {
        store_db_close(db);
        return status;
    }
    *out = db;
    return DEFT_OK;
}

/* --- the one that is made -----------------------------------------------------------------------
 */

static enum deft_status copy_is_there(const char *to, struct deft_error *error) {
    return deft_fail(error, DEFT_MISMATCH, EEXIST, "'%s' is there already: it is not overwritten",
                     to);
}

enum deft_status store_copy_begin(const char *to, struct store_copy_target *out,
                                  struct deft_error *error) {
    struct stat stat_of;
    char *name = NULL;
    if (lstat(to, &stat_of) == 0) {
        return copy_is_there(to, error);
    }
    if (asprintf(&name, "%s.partial", to) < 0) {
        return deft_fail(error, DEFT_NO_MEMORY, 0, "no memory to make a file");
    }
    (void)unlink(name); /* of an attempt that was interrupted */
    int fd = open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) {
        enum deft_status status = deft_fail(error, DEFT_IO, errno, "'%s' cannot be made: %s", name,
                                            strerrordesc_np(errno));
        free(name);
        return status;
    }
    (void)close(fd);
    *out = (struct store_copy_target){.to = to, .name = name};
    return DEFT_OK;
}

static enum deft_status copy_name(const struct store_copy_target *target,
                                  struct deft_error *error) {
    int fd = open(target->name, O_RDONLY | O_CLOEXEC);
    int failed = fd < 0 || fsync(fd) != 0;
    int code = errno;
    if (fd >= 0) {
        (void)close(fd);
    }
    if (failed) {
        return deft_fail(error, DEFT_IO, code, "'%s' cannot be synced: %s", target->name,
                         strerrordesc_np(code));
    }
    if (renameat2(AT_FDCWD, target->name, AT_FDCWD, target->to, RENAME_NOREPLACE) != 0) {
        return errno == EEXIST ? copy_is_there(target->to, error)
                               : deft_fail(error, DEFT_IO, errno, "'%s' cannot be made: %s",
                                           target->to, strerrordesc_np(errno));
    }
    return store_place_sync(target->to, error);
}

enum deft_status store_copy_end(struct store_copy_target *target, enum deft_status status,
                                struct deft_error *error) {
    if (target->name == NULL) {
        return status;
    }
    if (status == DEFT_OK) {
        status = copy_name(target, error);
    }
    if (status != DEFT_OK) {
        (void)unlink(target->name);
    }
    free(target->name);
    target->name = NULL;
    return status;
}

static int copy_first_finding(void *context, int n_columns, char **values, char **names) {
    char *finding = context;
    (void)names;
    if (n_columns > 0 && values[0] != NULL && strcmp(values[0], "ok") != 0 && finding[0] == '\0') {
        (void)snprintf(finding, 128, "%.*s", (int)strcspn(values[0], "\n"), values[0]);
    }
    return 0;
}

enum deft_status store_copy_verify(struct store_db *db, const char *what,
                                   struct deft_error *error) {
    char finding[128] = "";
    int code =
        sqlite3_exec(db->handle, "PRAGMA integrity_check(1)", copy_first_finding, finding, NULL);
    if (code != SQLITE_OK) {
        return deft_fail(error, DEFT_STORE, code, "%s is damaged: %s", what,
                         sqlite3_errmsg(db->handle));
    }
    return finding[0] == '\0'
               ? DEFT_OK
               : deft_fail(error, DEFT_STORE, SQLITE_CORRUPT, "%s is damaged: %s", what, finding);
}

/* --- backup -------------------------------------------------------------------------------------
 */

/* All steps see one moment, since the source's read transaction spans them. */
static enum deft_status copy_pages(struct store_db *from, struct store_db *to,
                                   store_file_progress_fn progress, void *context,
                                   struct deft_error *error) {
    sqlite3_backup *backup = sqlite3_backup_init(to->handle, "main", from->handle, "main");
    if (backup == NULL) {
        return store_db_fail(to, "be copied", error);
    }
    int code = SQLITE_OK;
    while (code == SQLITE_OK) {
        code = sqlite3_backup_step(backup, COPY_STEP_PAGES);
        uint64_t total = (uint64_t)sqlite3_backup_pagecount(backup);
        if (progress != NULL) {
            progress(context, total - (uint64_t)sqlite3_backup_remaining(backup), total);
        }
    }
    (void)sqlite3_backup_finish(backup);
    return code == SQLITE_DONE
               ? DEFT_OK
               : deft_fail(error, DEFT_STORE, code, "the database cannot be copied: %s",
                           sqlite3_errstr(code));
}

static enum deft_status copy_backup(struct store_db *from, const char *name,
                                    store_file_progress_fn progress, void *context,
                                    struct deft_error *error) {
    struct store_db *to = NULL;
    int64_t n = 0;
    enum deft_status status = store_db_open(name, 0, &to, error);
    if (status == DEFT_OK) { /* it is synced once, in the end */
        status = store_db_exec(to, "PRAGMA synchronous = OFF", error);
    }
    if (status == DEFT_OK) {
        status = store_db_exec(from, "BEGIN", error);
    }
    if (status == DEFT_OK) {
        status = store_db_int(from, "SELECT count(*) FROM sqlite_master", &n, error);
    }
    if (status == DEFT_OK) {
        status = copy_pages(from, to, progress, context, error);
    }
    (void)sqlite3_exec(from->handle, "ROLLBACK", NULL, NULL, NULL);
    if (status == DEFT_OK) {
        status = store_copy_verify(to, "the copy, and so the database,", error);
    }
    store_db_close(to);
    return status;
}

enum deft_status store_file_backup(const char *path, const char *to,
                                   store_file_progress_fn progress, void *context,
                                   struct deft_error *error) {
    struct store_db *from = NULL;
    struct store_copy_target target = {0};
    enum deft_status status = store_copy_open_source(path, &from, error);
    if (from == NULL) {
        return status;
    }
    status = store_copy_begin(to, &target, error);
    if (status == DEFT_OK) {
        status = copy_backup(from, target.name, progress, context, error);
    }
    status = store_copy_end(&target, status, error);
    store_db_close(from);
    return status;
}

/* --- compaction ---------------------------------------------------------------------------------
 */

static enum deft_status copy_check_room(struct store_db *db, const char *path,
                                        struct deft_error *error) {
    struct statvfs room;
    int64_t n_bytes = 0;
    enum deft_status status =
        store_db_int(db,
                     "SELECT (page_count - freelist_count) * page_size FROM pragma_page_count,"
                     " pragma_freelist_count, pragma_page_size",
                     &n_bytes, error);
    if (status != DEFT_OK || statvfs(path, &room) != 0) {
        return status;
    }
    uint64_t n_free = (uint64_t)room.f_bavail * (uint64_t)room.f_frsize;
    return n_free >= (uint64_t)n_bytes
               ? DEFT_OK
               : deft_fail(error, DEFT_IO, ENOSPC,
                           "compacting '%s' needs %lld bytes beside it, but only %llu are free",
                           path, (long long)n_bytes, (unsigned long long)n_free);
}

/* Nobody else may have the file open: it is about to be replaced. */
static enum deft_status copy_leave_log(struct store_db *db, const char *path,
                                       struct deft_error *error) {
    sqlite3_stmt *s = store_db_statement(db, "PRAGMA journal_mode = DELETE");
    int code = s != NULL ? sqlite3_step(s) : SQLITE_ERROR;
    if (code == SQLITE_BUSY || code == SQLITE_LOCKED) {
        return deft_fail(error, DEFT_STATE, code, "another program has the database '%s' open",
                         path);
    }
    if (code != SQLITE_ROW) {
        return store_db_fail(db, "apply its log", error);
    }
    (void)sqlite3_reset(s);
    return DEFT_OK;
}

static enum deft_status copy_compact(struct store_db *db, const char *name,
                                     struct deft_error *error) {
    enum deft_status status = store_db_exec(db, "PRAGMA auto_vacuum = INCREMENTAL", error);
    sqlite3_stmt *s = status == DEFT_OK ? store_db_statement(db, "VACUUM INTO ?1") : NULL;
    if (s == NULL) {
        return status == DEFT_OK ? store_db_fail(db, "be compacted", error) : status;
    }
    (void)sqlite3_bind_text(s, 1, name, -1, SQLITE_STATIC);
    return store_db_step(db, s, "be compacted", error);
}

static enum deft_status copy_verify_file(const char *name, struct deft_error *error) {
    struct store_db *db = NULL;
    enum deft_status status = store_db_open(name, 1, &db, error);
    if (status == DEFT_OK) {
        status = store_copy_verify(db, "the compacted database", error);
    }
    store_db_close(db);
    return status;
}

static enum deft_status copy_replace(const char *name, const char *path, struct deft_error *error) {
    int fd = open(name, O_RDONLY | O_CLOEXEC);
    int failed = fd < 0 || fsync(fd) != 0 || rename(name, path) != 0;
    int code = errno;
    if (fd >= 0) {
        (void)close(fd);
    }
    return failed ? deft_fail(error, DEFT_IO, code, "'%s' cannot be replaced: %s", path,
                              strerrordesc_np(code))
                  : store_place_sync(path, error);
}

enum deft_status store_file_compact(const char *path, int64_t *out_before_bytes,
                                    int64_t *out_after_bytes, struct deft_error *error) {
    struct store_db *db = NULL;
    char *name = NULL;
    int lock_fd = -1;
    int exists = 0;
    enum deft_status status = DEFT_OK;
    if (asprintf(&name, "%s.new", path) < 0) {
        return deft_fail(error, DEFT_NO_MEMORY, 0, "no memory to compact a database");
    }
    status = store_place_look(path, &exists, error);
    if (status == DEFT_OK && !exists) {
        status = deft_fail(error, DEFT_NOT_FOUND, 0, "there is no database '%s'", path);
    }
    if (status == DEFT_OK) {
        status = store_place_lock(path, &lock_fd, error);
    }
    if (status == DEFT_OK) {
        (void)unlink(name);
        status = store_place_open(path, &db, error);
    }
    if (status == DEFT_OK) {
        status = copy_leave_log(db, path, error);
    }
    if (status == DEFT_OK) {
        status = copy_check_room(db, path, error);
    }
    int64_t before_bytes = copy_file_bytes(path, "");
    if (status == DEFT_OK) {
        status = copy_compact(db, name, error);
    }
    store_db_close(db);
    if (status == DEFT_OK) {
        status = copy_verify_file(name, error);
    }
    if (status == DEFT_OK) {
        status = copy_replace(name, path, error);
    }
    if (status == DEFT_OK) {
        *out_before_bytes = before_bytes;
        *out_after_bytes = copy_file_bytes(path, "");
    } else if (lock_fd >= 0) {
        (void)unlink(name);
    }
    if (lock_fd >= 0) {
        (void)close(lock_fd);
    }
    free(name);
    return status;
}
