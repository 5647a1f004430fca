#include "store/store.h"

#include <pthread.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/thread.h"
#include "store/store_db.h"
#include "store/store_place.h"
#include "store/store_upkeep.h"

#define STORE_NS_PER_S INT64_C(1000000000)
#define STORE_DAY_NS   (86400 * STORE_NS_PER_S)
/* One per HTTP thread is enough; further ones are closed after use. */
#define STORE_MAX_IDLE_READERS 8u
/* Pages in the log after which it is applied to the file, between commits: 64 MiB. Pages that many
 * agents write to come by every second, and are applied once. */
#define STORE_LOG_PAGES 16384
/* Rows per slice of upkeep: some milliseconds. A batch that was larger must be caught up with. */
#define STORE_SLICE_ROWS     2000u
#define STORE_MAX_SLICE_ROWS 20000u
#define STORE_BYTES_PER_ROW  100u
/* While commits fail, one that changes nothing tells when there is room again. */
#define STORE_PROBE_NS STORE_NS_PER_S
/* A clock that has just been set, or has jumped, may be wrong: nothing goes for its age then. */
#define STORE_CLOCK_REST_NS (600 * STORE_NS_PER_S)
#define STORE_CLOCK_JUMP_NS (600 * STORE_NS_PER_S)

struct store {
    char *path;
    int lock_fd;
    struct store_options options;
    struct store_db *writer;
    pthread_t thread;
    int has_thread;

    /* Of the writer's thread alone. */
    struct store_upkeep upkeep;
    struct deft_error round_error; /* of the round that is under way */
    int log_pages;                 /* in the write-ahead log */
    unsigned n_batch_rows;         /* roughly, of the newest batch */
    int64_t next_round_ns;         /* monotonic */
    int64_t next_probe_ns;         /* monotonic; 0: the newest commit went well */
    int64_t clock_offset_ns;       /* of the wall clock to the monotonic one */
    int64_t rest_until_ns;         /* monotonic */

    pthread_mutex_t lock;
    pthread_cond_t work;
    pthread_cond_t finished; /* of store_run */
    struct store_write *first;
    struct store_write **last;
    size_t n_queued;
    size_t n_queued_bytes;
    int stopping;
    int64_t batch_ns;  /* when the writer began with its batch; 0: it has none */
    int64_t tidy_ns;   /* wall clock of a round that store_tidy waits for; 0: none */
    uint64_t n_rounds; /* of store_tidy */
    struct deft_error tidy_error;
    struct store_health health;
    unsigned n_idle;
    struct store_db *idle[STORE_MAX_IDLE_READERS];
};

void store_defaults(struct store_options *out) {
    *out = (struct store_options){.keep = {.raw_ns = 7 * STORE_DAY_NS,
                                           .raw_iterations = 200000,
                                           .minutes_ns = 90 * STORE_DAY_NS,
                                           .hours_ns = 730 * STORE_DAY_NS,
                                           .logs_ns = 30 * STORE_DAY_NS,
                                           .jobs_ns = 365 * STORE_DAY_NS},
                                  .max_bytes = INT64_C(16) << 30,
                                  .settle_ns = 120 * STORE_NS_PER_S,
                                  .pause_ns = 10 * STORE_NS_PER_S};
}

/* --- opening ---------------------------------------------------------------------------------- */

static enum deft_status store_prepare(struct store *store, struct deft_error *error) {
    int exists = 0;
    enum deft_status status = store_place_lock(store->path, &store->lock_fd, error);
    if (status == DEFT_OK) {
        status = store_place_look(store->path, &exists, error);
    }
    if (status == DEFT_OK && !exists) {
        status = store_place_create(store->path, error);
    }
    return status == DEFT_OK ? store_place_open(store->path, &store->writer, error) : status;
}

/* --- the writer ------------------------------------------------------------------------------- */

/* Failures of one write (a constraint, an input) are its own; the others go on. A savepoint makes
 * SQLite keep a copy of every page that a write touches, and nearly no write ever needs it: so
 * there is none, unless `careful`. 0: a write has failed half way, and the batch must be applied
 * again with care. */
static int store_apply(struct store *store, struct store_write *write, int careful) {
    struct store_db *db = store->writer;
    int64_t n_before = sqlite3_total_changes64(db->handle);
    write->status = careful ? store_db_exec(db, "SAVEPOINT one", &write->error) : DEFT_OK;
    if (write->status != DEFT_OK) {
        return 1;
    }
    write->status = write->apply(db, write, &write->error);
    if (careful) {
        if (write->status != DEFT_OK) {
            (void)sqlite3_exec(db->handle, "ROLLBACK TO one", NULL, NULL, NULL);
        }
        (void)sqlite3_exec(db->handle, "RELEASE one", NULL, NULL, NULL);
    }
    return careful || write->status == DEFT_OK || sqlite3_total_changes64(db->handle) == n_before;
}

/* Begins a transaction and applies the batch. DEFT_STATE: again, with care. */
static enum deft_status store_apply_all(struct store *store, struct store_write *batch, int careful,
                                        struct deft_error *error) {
    struct store_db *db = store->writer;
    enum deft_status status = store_db_exec(db, "BEGIN IMMEDIATE", error);
    for (struct store_write *w = batch; w != NULL && status == DEFT_OK; w = w->next) {
        int is_clean = store_apply(store, w, careful);
        /* A full disk ends the whole transaction. */
        if (w->status == DEFT_STORE && sqlite3_get_autocommit(db->handle)) {
            status = w->status;
            *error = w->error;
        } else if (!is_clean) {
            (void)sqlite3_exec(db->handle, "ROLLBACK", NULL, NULL, NULL);
            status = DEFT_STATE;
        }
    }
    return status;
}

/* What the newest commit says of the disk. */
static void store_judge(struct store *store, uint64_t n_written, uint64_t n_failed,
                        const char *text) {
    int failing = text[0] != '\0';
    store->next_probe_ns = failing ? clock_monotonic_ns() + STORE_PROBE_NS : 0;
    (void)pthread_mutex_lock(&store->lock);
    store->batch_ns = 0;
    store->health.n_written += n_written;
    store->health.n_failed += n_failed;
    store->health.failing = failing;
    (void)snprintf(store->health.text, sizeof(store->health.text), "%s", text);
    (void)pthread_mutex_unlock(&store->lock);
}

static void store_commit(struct store *store, struct store_write *batch) {
    struct deft_error error = {0};
    struct store_db *db = store->writer;
    uint64_t n_failed = 0;
    uint64_t n_written = 0;
    enum deft_status status = store_apply_all(store, batch, 0, &error);
    if (status == DEFT_STATE) {
        status = store_apply_all(store, batch, 1, &error);
    }
    store_db_reset(db); /* one that still reads would keep the log from being applied */
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
    store_judge(store, n_written, n_failed, n_failed > 0 ? error.text : "");
}

/* A commit of nothing much: the version that is there already. */
static void store_probe(struct store *store) {
    struct deft_error error = {0};
    struct store_db *db = store->writer;
    char version[64];
    int64_t known = 0;
    enum deft_status status = store_db_int(db, "PRAGMA user_version", &known, &error);
    (void)snprintf(version, sizeof(version), "PRAGMA user_version = %d", (int)known);
    if (status == DEFT_OK) {
        status = store_db_exec(db, "BEGIN IMMEDIATE", &error);
    }
    if (status == DEFT_OK) {
        status = store_db_exec(db, version, &error);
    }
    if (status == DEFT_OK) {
        status = store_db_exec(db, "COMMIT", &error);
    }
    if (status != DEFT_OK) {
        (void)sqlite3_exec(db->handle, "ROLLBACK", NULL, NULL, NULL);
    }
    store_judge(store, 0, 0, status == DEFT_OK ? "" : error.text);
}

/* --- upkeep -------------------------------------------------------------------------------------
 */

/* Whether ages are not to be trusted. */
static int store_clock_rests(struct store *store, int64_t wall_ns, int64_t now_ns) {
    int64_t offset_ns = wall_ns - now_ns;
    int64_t jump_ns = offset_ns - store->clock_offset_ns;
    if (jump_ns > STORE_CLOCK_JUMP_NS || jump_ns < -STORE_CLOCK_JUMP_NS) {
        store->rest_until_ns = now_ns + STORE_CLOCK_REST_NS;
    }
    store->clock_offset_ns = offset_ns;
    return now_ns < store->rest_until_ns;
}

static void store_round_over(struct store *store, int64_t tidy_ns, const struct deft_error *error) {
    (void)pthread_mutex_lock(&store->lock);
    (void)snprintf(store->health.upkeep_text, sizeof(store->health.upkeep_text), "%s", error->text);
    if (tidy_ns != 0) {
        store->tidy_ns = 0;
        store->tidy_error = *error;
        store->n_rounds++;
        (void)pthread_cond_broadcast(&store->finished);
    }
    (void)pthread_mutex_unlock(&store->lock);
}

/* One transaction that nobody waits for, so it need not reach the disk at once: the next report's
 * commit takes it along. */
static void store_slice(struct store *store, int64_t tidy_ns) {
    int more = 0;
    struct deft_error error = {0};
    struct store_db *db = store->writer;
    int64_t wall_ns = clock_wall_ns();
    int64_t now_ns = clock_monotonic_ns();
    int rests = store_clock_rests(store, wall_ns, now_ns);
    unsigned rows = 2 * store->n_batch_rows;
    rows = rows > STORE_SLICE_ROWS ? rows : STORE_SLICE_ROWS;
    store->upkeep.resting = rests && tidy_ns == 0;
    deft_ignore(store_db_exec(db, "PRAGMA synchronous = NORMAL", NULL)); /* it cannot fail */
    enum deft_status status = store_upkeep_slice(
        &store->upkeep, db, tidy_ns != 0 ? tidy_ns : wall_ns,
        rows < STORE_MAX_SLICE_ROWS ? rows : STORE_MAX_SLICE_ROWS, &more, &error);
    deft_ignore(store_db_exec(db, "PRAGMA synchronous = FULL", NULL));
    if (status != DEFT_OK) {
        store->round_error = error; /* the newest one counts */
    }
    if (!more) {
        store_round_over(store, tidy_ns, &store->round_error);
        memset(&store->round_error, 0, sizeof(store->round_error));
        store->next_round_ns = now_ns + store->options.pause_ns;
    }
}

/* Called by SQLite after each commit. */
static int store_count_log(void *context, sqlite3 *handle, const char *name, int n_pages) {
    struct store *store = context;
    (void)handle;
    (void)name;
    store->log_pages = n_pages;
    return SQLITE_OK;
}

/* What is done between batches. */
static void store_between(struct store *store, int64_t tidy_ns) {
    int64_t now_ns = clock_monotonic_ns();
    if (store->log_pages >= STORE_LOG_PAGES) {
        store->log_pages = 0; /* a reader may stand in the way: not again before the next commit */
        (void)sqlite3_wal_checkpoint_v2(store->writer->handle, NULL, SQLITE_CHECKPOINT_PASSIVE,
                                        NULL, NULL);
    }
    if (store->next_probe_ns != 0 && now_ns >= store->next_probe_ns) {
        store_probe(store);
    }
    if (store->upkeep.round_ns != 0 || tidy_ns != 0 ||
        (store->options.pause_ns > 0 && now_ns >= store->next_round_ns)) {
        store_slice(store, tidy_ns);
    }
}

void store_set_keep(struct store *store, const struct store_options *options) {
    (void)pthread_mutex_lock(&store->lock);
    store->options.keep = options->keep;
    store->options.max_bytes = options->max_bytes;
    (void)pthread_mutex_unlock(&store->lock);
}

enum deft_status store_tidy(struct store *store, int64_t now_ns, struct deft_error *error) {
    (void)pthread_mutex_lock(&store->lock);
    uint64_t before = store->n_rounds;
    store->tidy_ns = now_ns;
    (void)pthread_cond_signal(&store->work);
    while (store->n_rounds == before) {
        (void)pthread_cond_wait(&store->finished, &store->lock);
    }
    struct deft_error why = store->tidy_error;
    (void)pthread_mutex_unlock(&store->lock);
    if (why.status != DEFT_OK && error != NULL) {
        *error = why;
    }
    return why.status;
}

/* --- the writer's thread ------------------------------------------------------------------------
 */

/* Waits for a write, for the time of upkeep, or for the end. With the lock held. */
static void store_wait(struct store *store) {
    while (store->first == NULL && !store->stopping && store->tidy_ns == 0 &&
           store->upkeep.round_ns == 0) {
        int64_t until_ns = store->options.pause_ns > 0 ? store->next_round_ns : INT64_MAX;
        if (store->next_probe_ns != 0 && store->next_probe_ns < until_ns) {
            until_ns = store->next_probe_ns;
        }
        if (until_ns == INT64_MAX) {
            (void)pthread_cond_wait(&store->work, &store->lock);
        } else if (clock_monotonic_ns() >= until_ns) {
            return;
        } else {
            (void)thread_condition_wait(&store->work, &store->lock, until_ns);
        }
    }
}

static void *store_work(void *context) {
    struct store *store = context;
    for (;;) {
        (void)pthread_mutex_lock(&store->lock);
        store_wait(store);
        struct store_write *batch = store->first;
        int stopping = store->stopping;
        int64_t tidy_ns = store->tidy_ns;
        if (store->upkeep.round_ns == 0) { /* a round ends as it began */
            store->upkeep.options = store->options;
        }
        store->first = NULL;
        store->last = &store->first;
        store->n_batch_rows = (unsigned)(store->n_queued_bytes / STORE_BYTES_PER_ROW);
        store->n_queued = 0;
        store->n_queued_bytes = 0;
        store->batch_ns = batch != NULL ? clock_monotonic_ns() : 0;
        (void)pthread_mutex_unlock(&store->lock);
        if (batch == NULL && stopping) {
            return NULL;
        }
        if (batch != NULL) {
            store_commit(store, batch);
        }
        while (batch != NULL) {
            struct store_write *write = batch;
            batch = write->next; /* `done` may free it */
            if (write->done != NULL) {
                write->done(write, write->status, &write->error);
            }
        }
        if (!stopping) {
            store_between(store, tidy_ns);
        }
    }
}

static enum deft_status store_start(struct store *store, struct deft_error *error) {
    int code = thread_start(&store->thread, store_work, store);
    if (code != 0) {
        return deft_fail(error, DEFT_IO, code, "the database's thread cannot be started: %s",
                         strerrordesc_np(code));
    }
    store->has_thread = 1;
    return DEFT_OK;
}

static struct store *store_make(const char *path, const struct store_options *options,
                                struct deft_error *error) {
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
    if (options != NULL) {
        store->options = *options;
    }
    store->upkeep.options = store->options;
    store->next_round_ns = clock_monotonic_ns();
    store->clock_offset_ns = clock_wall_ns() - store->next_round_ns;
    store->rest_until_ns = store->next_round_ns + STORE_CLOCK_REST_NS;
    (void)pthread_mutex_init(&store->lock, NULL);
    (void)thread_condition_init(&store->work);
    (void)pthread_cond_init(&store->finished, NULL);
    return store;
}

enum deft_status store_open_with(const char *path, const struct store_options *options,
                                 struct store **out, struct deft_error *error) {
    struct store *store = store_make(path, options, error);
    if (store == NULL) {
        return DEFT_NO_MEMORY;
    }
    int is_checked = options != NULL && !options->takes_network;
    enum deft_status status = is_checked ? store_place_local(store->path, error) : DEFT_OK;
    if (status == DEFT_OK) {
        status = store_prepare(store, error);
    }
    if (status == DEFT_OK) {
        (void)sqlite3_wal_hook(store->writer->handle, store_count_log, store);
        status = store_start(store, error);
    }
    if (status != DEFT_OK) {
        store_close(store);
        return status;
    }
    *out = store;
    return DEFT_OK;
}

enum deft_status store_open(const char *path, struct store **out, struct deft_error *error) {
    return store_open_with(path, NULL, out, error);
}

enum deft_status store_open_beside(const char *path, struct store **out, struct deft_error *error) {
    struct store *store = store_make(path, NULL, error);
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
    struct store *store = store_make(path, NULL, error);
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
    store_db_reset(db); /* ends the read transaction */
    (void)pthread_mutex_lock(&store->lock);
    if (store->n_idle < STORE_MAX_IDLE_READERS) {
        store->idle[store->n_idle++] = db;
        db = NULL;
    }
    (void)pthread_mutex_unlock(&store->lock);
    store_db_close(db);
}
