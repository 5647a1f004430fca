#include "store/store.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/clock.h"
#include "store/store_db.h"

/* One per HTTP thread is enough; further ones are closed after use. */
#define STORE_MAX_IDLE_READERS 8u

struct store {
    char *path;
    int lock_fd;
    struct store_db *writer;
    pthread_t thread;
    int has_thread;

    pthread_mutex_t lock;
    pthread_cond_t work;
    pthread_cond_t finished; /* of store_run */
    struct store_write *first;
    struct store_write **last;
    size_t n_queued;
    size_t n_queued_bytes;
    int stopping;
    int64_t batch_ns; /* when the writer began with its batch; 0: it has none */
    struct store_health health;
    unsigned n_idle;
    struct store_db *idle[STORE_MAX_IDLE_READERS];
};

/* --- opening ---------------------------------------------------------------------------------- */

/* SQLite's own locks come and go with transactions; this one stands as long as the process. */
static enum deft_status store_lock(const char *path, int *out_fd, struct deft_error *error) {
    char *name = NULL;
    enum deft_status status = DEFT_OK;
    if (asprintf(&name, "%s.lock", path) < 0) {
        return deft_fail(error, DEFT_NO_MEMORY, 0, "no memory to open a database");
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

static enum deft_status store_prepare(struct store *store, struct deft_error *error) {
    static const char pragmas[] = "PRAGMA journal_mode = WAL;"
                                  "PRAGMA synchronous = FULL;"
                                  "PRAGMA foreign_keys = ON;"
                                  "PRAGMA wal_autocheckpoint = 1000;";
    enum deft_status status = store_db_open(store->path, 0, &store->writer, error);
    if (status == DEFT_OK) {
        status = store_db_exec(store->writer, pragmas, error);
    }
    if (status == DEFT_OK) {
        status = store_migrate(store->writer, error);
    }
    return status;
}

/* --- the writer ------------------------------------------------------------------------------- */

/* Failures of one write (a constraint, an input) are its own; the others go on. */
static void store_apply(struct store *store, struct store_write *write) {
    struct store_db *db = store->writer;
    write->status = store_db_exec(db, "SAVEPOINT one", &write->error);
    if (write->status == DEFT_OK) {
        write->status = write->apply(db, write, &write->error);
        if (write->status != DEFT_OK) {
            (void)sqlite3_exec(db->handle, "ROLLBACK TO one", NULL, NULL, NULL);
        }
        (void)sqlite3_exec(db->handle, "RELEASE one", NULL, NULL, NULL);
    }
}

static void store_commit(struct store *store, struct store_write *batch) {
    struct deft_error error = {0};
    struct store_db *db = store->writer;
    uint64_t n_failed = 0;
    uint64_t n_written = 0;
    enum deft_status status = store_db_exec(db, "BEGIN IMMEDIATE", &error);
    for (struct store_write *w = batch; w != NULL && status == DEFT_OK; w = w->next) {
        store_apply(store, w);
        /* A full disk ends the whole transaction. */
        if (w->status == DEFT_STORE && sqlite3_get_autocommit(db->handle)) {
            status = w->status;
            error = w->error;
        }
    }
    if (status == DEFT_OK) {
        status = store_db_exec(db, "COMMIT", &error);
    }
    if (status != DEFT_OK) {
        (void)sqlite3_exec(db->handle, "ROLLBACK", NULL, NULL, NULL);
    }
    for (struct store_write *w = batch; w != NULL; w = w->next) {
        if (status != DEFT_OK) {
            w->status = status;
            w->error = error;
        }
        if (w->status == DEFT_STORE) {
            n_failed++;
            error = w->error;
        }
        n_written += w->status == DEFT_OK;
    }
    (void)pthread_mutex_lock(&store->lock);
    store->batch_ns = 0;
    store->health.n_written += n_written;
    store->health.n_failed += n_failed;
    store->health.failing = n_failed > 0;
    (void)snprintf(store->health.text, sizeof(store->health.text), "%s",
                   n_failed > 0 ? error.text : "");
    (void)pthread_mutex_unlock(&store->lock);
}

static void *store_work(void *context) {
    struct store *store = context;
    for (;;) {
        (void)pthread_mutex_lock(&store->lock);
        while (store->first == NULL && !store->stopping) {
            (void)pthread_cond_wait(&store->work, &store->lock);
        }
        struct store_write *batch = store->first;
        store->first = NULL;
        store->last = &store->first;
        store->n_queued = 0;
        store->n_queued_bytes = 0;
        store->batch_ns = batch != NULL ? clock_monotonic_ns() : 0;
        (void)pthread_mutex_unlock(&store->lock);
        if (batch == NULL) {
            return NULL;
        }
        store_commit(store, batch);
        while (batch != NULL) {
            struct store_write *write = batch;
            batch = write->next; /* `done` may free it */
            write->done(write, write->status, &write->error);
        }
    }
}

static enum deft_status store_start(struct store *store, struct deft_error *error) {
    int code = pthread_create(&store->thread, NULL, store_work, store);
    if (code != 0) {
        return deft_fail(error, DEFT_IO, code, "the database's thread cannot be started: %s",
                         strerrordesc_np(code));
    }
    store->has_thread = 1;
    return DEFT_OK;
}

static struct store *store_make(const char *path, struct deft_error *error) {
    struct store *store = calloc(1, sizeof(*store));
    char *copy = strdup(path);
    if (store == NULL || copy == NULL) {
        free(store);
        free(copy);
        deft_ignore(deft_fail(error, DEFT_NO_MEMORY, 0, "no memory to open a database"));
        return NULL;
    }
    store->path = copy;
    store->lock_fd = -1;
    store->last = &store->first;
    (void)pthread_mutex_init(&store->lock, NULL);
    (void)pthread_cond_init(&store->work, NULL);
    (void)pthread_cond_init(&store->finished, NULL);
    return store;
}

enum deft_status store_open(const char *path, struct store **out, struct deft_error *error) {
    struct store *store = store_make(path, error);
    if (store == NULL) {
        return DEFT_NO_MEMORY;
    }
    enum deft_status status = store_lock(path, &store->lock_fd, error);
    if (status == DEFT_OK) {
        status = store_prepare(store, error);
    }
    if (status == DEFT_OK) {
        status = store_start(store, error);
    }
    if (status != DEFT_OK) {
        store_close(store);
        return status;
    }
    *out = store;
    return DEFT_OK;
}

enum deft_status store_open_beside(const char *path, struct store **out, struct deft_error *error) {
    struct store *store = store_make(path, error);
    if (store == NULL) {
        return DEFT_NO_MEMORY;
    }
    enum deft_status status = store_db_open(store->path, 0, &store->writer, error);
    if (status == DEFT_OK) {
        status = store_db_exec(store->writer, "PRAGMA synchronous = FULL", error);
    }
    if (status == DEFT_OK) {
        status = store_check_version(store->writer, error);
    }
    if (status == DEFT_OK) {
        status = store_start(store, error);
    }
    if (status != DEFT_OK) {
        store_close(store);
        return status;
    }
    *out = store;
    return DEFT_OK;
}

enum deft_status store_open_read(const char *path, struct store **out, struct deft_error *error) {
    struct store_db *db = NULL;
    struct store *store = store_make(path, error);
    if (store == NULL) {
        return DEFT_NO_MEMORY;
    }
    enum deft_status status = store_reader_take(store, &db, error);
    if (status == DEFT_OK) {
        status = store_check_version(db, error);
        store_reader_give(store, db);
    }
    if (status != DEFT_OK) {
        store_close(store);
        return status;
    }
    *out = store;
    return DEFT_OK;
}

void store_close(struct store *store) {
    if (store == NULL) {
        return;
    }
    if (store->has_thread) {
        (void)pthread_mutex_lock(&store->lock);
        store->stopping = 1;
        (void)pthread_cond_signal(&store->work);
        (void)pthread_mutex_unlock(&store->lock);
        (void)pthread_join(store->thread, NULL);
    }
    for (unsigned i = 0; i < store->n_idle; i++) {
        store_db_close(store->idle[i]);
    }
    store_db_close(store->writer);
    if (store->lock_fd >= 0) {
        (void)close(store->lock_fd);
    }
    (void)pthread_cond_destroy(&store->finished);
    (void)pthread_cond_destroy(&store->work);
    (void)pthread_mutex_destroy(&store->lock);
    free(store->path);
    free(store);
}

void store_health(struct store *store, struct store_health *out) {
    (void)pthread_mutex_lock(&store->lock);
    *out = store->health;
    out->n_queued = store->n_queued;
    out->n_queued_bytes = store->n_queued_bytes;
    out->waiting_ns = store->batch_ns != 0 ? clock_monotonic_ns() - store->batch_ns : 0;
    (void)pthread_mutex_unlock(&store->lock);
}

/* --- submitting --------------------------------------------------------------------------------
 */

enum deft_status store_submit(struct store *store, struct store_write *write,
                              struct deft_error *error) {
    enum deft_status status = DEFT_OK;
    write->next = NULL;
    (void)pthread_mutex_lock(&store->lock);
    if (store->stopping) {
        status = deft_fail(error, DEFT_STATE, 0, "the controller is stopping");
    } else if (store->n_queued >= STORE_MAX_QUEUED ||
               store->n_queued_bytes + write->n_bytes > STORE_MAX_QUEUED_BYTES) {
        status = deft_fail(error, DEFT_LIMIT, 0, "%zu writes are waiting for the disk already",
                           store->n_queued);
    } else {
        *store->last = write;
        store->last = &write->next;
        store->n_queued++;
        store->n_queued_bytes += write->n_bytes;
        (void)pthread_cond_signal(&store->work);
    }
    (void)pthread_mutex_unlock(&store->lock);
    return status;
}

struct store_waiter {
    struct store *store;
    int is_done;
};

static void store_run_done(struct store_write *write, enum deft_status status,
                           const struct deft_error *error) {
    struct store_waiter *waiter = write->context;
    struct store *store = waiter->store;
    (void)status;
    (void)error;
    (void)pthread_mutex_lock(&store->lock);
    waiter->is_done = 1;
    (void)pthread_cond_broadcast(&store->finished);
    (void)pthread_mutex_unlock(&store->lock);
}

enum deft_status store_run(struct store *store, struct store_write *write,
                           struct deft_error *error) {
    struct store_waiter waiter = {.store = store};
    write->done = store_run_done;
    write->context = &waiter;
    enum deft_status status = store_submit(store, write, error);
    if (status != DEFT_OK) {
        return status;
    }
    (void)pthread_mutex_lock(&store->lock);
    while (!waiter.is_done) {
        (void)pthread_cond_wait(&store->finished, &store->lock);
    }
    (void)pthread_mutex_unlock(&store->lock);
    if (write->status != DEFT_OK && error != NULL) {
        *error = write->error;
    }
    return write->status;
}

/* --- readers ---------------------------------------------------------------------------------- */

enum deft_status store_reader_take(struct store *store, struct store_db **out,
                                   struct deft_error *error) {
    struct store_db *db = NULL;
    (void)pthread_mutex_lock(&store->lock);
    if (store->n_idle > 0) {
        db = store->idle[--store->n_idle];
    }
    (void)pthread_mutex_unlock(&store->lock);
    if (db == NULL) {
        enum deft_status status = store_db_open(store->path, 1, &db, error);
        if (status != DEFT_OK) {
            return status;
        }
    }
    *out = db;
    return DEFT_OK;
}

void store_reader_give(struct store *store, struct store_db *db) {
    for (unsigned i = 0; i < db->n_statements; i++) {
        (void)sqlite3_reset(db->statements[i]); /* ends the read transaction */
    }
    (void)pthread_mutex_lock(&store->lock);
    if (store->n_idle < STORE_MAX_IDLE_READERS) {
        store->idle[store->n_idle++] = db;
        db = NULL;
    }
    (void)pthread_mutex_unlock(&store->lock);
    store_db_close(db);
}
