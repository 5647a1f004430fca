#include "access.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "http/http_secret.h"

struct access_entry {
    uint8_t hash[STORE_TOKEN_HASH_BYTES]; /* first: entries are sorted by it */
    int64_t expires_ns;                   /* 0: never */
    struct access_user user;
};

struct access {
    struct store *store;
    int is_private;
    pthread_rwlock_t lock;
    uint64_t revision;
    size_t n;
    struct access_entry *entries;          /* [n], those that are not revoked, by hash */
    const struct access_entry **by_number; /* [n] */
};

/* --- the table ---------------------------------------------------------------------------------
 */

struct access_table {
    size_t n;
    size_t capacity;
    struct access_entry *entries;
    const struct access_entry **by_number;
};

static void access_table_done(struct access_table *table) {
    free(table->entries);
    free(table->by_number);
}

static enum access_role access_role_of(const char *name) {
    return strcmp(name, "operator") == 0 ? ACCESS_OPERATOR
           : strcmp(name, "viewer") == 0 ? ACCESS_VIEWER
                                         : ACCESS_AGENT;
}

static enum deft_status access_add(void *context, const struct store_token *token) {
    struct access_table *table = context;
    if (token->revoked_ns != 0) {
        return DEFT_OK;
    }
    if (table->n == table->capacity) {
        size_t capacity = table->capacity == 0 ? 16 : table->capacity * 2;
        struct access_entry *grown = realloc(table->entries, capacity * sizeof(*grown));
        if (grown == NULL) {
            return DEFT_NO_MEMORY;
        }
        table->entries = grown;
        table->capacity = capacity;
    }
    struct access_entry *entry = &table->entries[table->n++];
    *entry = (struct access_entry){.expires_ns = token->expires_ns};
    memcpy(entry->hash, token->hash, sizeof(entry->hash));
    memcpy(entry->user.name, token->name, sizeof(entry->user.name));
    memcpy(entry->user.job, token->job, sizeof(entry->user.job));
    entry->user.number = (uint64_t)token->id;
    entry->user.role = access_role_of(token->role);
    entry->user.is_prefix = token->is_prefix;
    return DEFT_OK;
}

static int access_compare(const void *a, const void *b) {
    return memcmp(a, b, STORE_TOKEN_HASH_BYTES);
}

static int access_compare_numbers(const void *a, const void *b) {
    uint64_t left = (*(const struct access_entry *const *)a)->user.number;
    uint64_t right = (*(const struct access_entry *const *)b)->user.number;
    return left < right ? -1 : left > right;
}

static enum deft_status access_read(struct store *store, struct access_table *out,
                                    struct deft_error *error) {
    struct access_table table = {0};
    enum deft_status status = store_read_tokens(store, access_add, &table, error);
    if (status == DEFT_OK && table.n > 0) {
        qsort(table.entries, table.n, sizeof(*table.entries), access_compare);
        table.by_number = calloc(table.n, sizeof(const struct access_entry *));
        for (size_t i = 0; i < table.n && table.by_number != NULL; i++) {
            table.by_number[i] = &table.entries[i];
        }
        if (table.by_number == NULL) {
            status = DEFT_NO_MEMORY;
        } else {
            qsort(table.by_number, table.n, sizeof(const struct access_entry *),
                  access_compare_numbers);
        }
    }
    if (status != DEFT_OK) {
        access_table_done(&table);
        return status == DEFT_NO_MEMORY ? deft_fail(error, status, 0, "no memory for tokens")
                                        : status;
    }
    *out = table;
    return DEFT_OK;
}

enum deft_status access_refresh(struct access *access, struct deft_error *error) {
    struct access_table table = {0};
    uint64_t revision = 0;
    enum deft_status status = store_read_revision(access->store, &revision, error);
    if (status != DEFT_OK) {
        return status;
    }
    (void)pthread_rwlock_rdlock(&access->lock);
    int is_known = revision == access->revision;
    (void)pthread_rwlock_unlock(&access->lock);
    if (is_known) {
        return DEFT_OK;
    }
    /* What changes between the two reads is in the table and is read once more. */
    status = access_read(access->store, &table, error);
    if (status != DEFT_OK) {
        return status;
    }
    (void)pthread_rwlock_wrlock(&access->lock);
    if (revision > access->revision) { /* another thread may have been faster */
        struct access_table old = {.entries = access->entries, .by_number = access->by_number};
        access->entries = table.entries;
        access->by_number = table.by_number;
        access->n = table.n;
        access->revision = revision;
        table = old;
    }
    (void)pthread_rwlock_unlock(&access->lock);
    access_table_done(&table);
    return DEFT_OK;
}

enum deft_status access_open(struct store *store, int is_private, struct access **out,
                             struct deft_error *error) {
    struct access *access = calloc(1, sizeof(*access));
    if (access == NULL) {
        return deft_fail(error, DEFT_NO_MEMORY, 0, "no memory for tokens");
    }
    access->store = store;
    access->is_private = is_private;
    (void)pthread_rwlock_init(&access->lock, NULL);
    enum deft_status status = access_refresh(access, error);
    if (status == DEFT_OK && !is_private && access_count(access, clock_wall_ns()) == 0) {
        status = deft_fail(error, DEFT_STATE, 0,
                           "other hosts can reach the address, but there is no access token that "
                           "holds; 'deft-controller token create --role operator' makes the first");
    }
    if (status != DEFT_OK) {
        access_close(access);
        return status;
    }
    *out = access;
    return DEFT_OK;
}

void access_close(struct access *access) {
    if (access != NULL) {
        (void)pthread_rwlock_destroy(&access->lock);
        free(access->entries);
        free(access->by_number);
        free(access);
    }
}

/* --- questions ---------------------------------------------------------------------------------
 */

static int access_is_live(const struct access_entry *entry, int64_t now_ns) {
    return entry->expires_ns == 0 || now_ns < entry->expires_ns;
}

int access_is_open(struct access *access) {
    (void)pthread_rwlock_rdlock(&access->lock);
    int is_open = access->is_private && access->revision == 0;
    (void)pthread_rwlock_unlock(&access->lock);
    return is_open;
}

/* The search tells by its time only how the hash of a guess compares with hashes, from which
 * nothing about a token follows; the last comparison tells nothing at all. */
int access_find(struct access *access, const char *token, size_t n_bytes, int64_t now_ns,
                struct access_user *out) {
    uint8_t hash[STORE_TOKEN_HASH_BYTES];
    int found = 0;
    if (http_secret_hash(token, n_bytes, hash, NULL) != DEFT_OK) {
        return 0;
    }
    (void)pthread_rwlock_rdlock(&access->lock);
    const struct access_entry *entry =
        access->n > 0
            ? bsearch(hash, access->entries, access->n, sizeof(*access->entries), access_compare)
            : NULL;
    if (entry != NULL && http_secret_equal(entry->hash, hash) && access_is_live(entry, now_ns)) {
        *out = entry->user;
        found = 1;
    }
    (void)pthread_rwlock_unlock(&access->lock);
    return found;
}

int access_holds(struct access *access, uint64_t number, int64_t now_ns) {
    int holds = 0;
    if (number == 0) {
        return access_is_open(access);
    }
    const struct access_entry wanted = {.user.number = number};
    const struct access_entry *key = &wanted;
    (void)pthread_rwlock_rdlock(&access->lock);
    const struct access_entry *const *found =
        access->n > 0 ? bsearch(&key, access->by_number, access->n,
                                sizeof(const struct access_entry *), access_compare_numbers)
                      : NULL;
    holds = found != NULL && access_is_live(*found, now_ns);
    (void)pthread_rwlock_unlock(&access->lock);
    return holds;
}

int access_has_changed(struct access *access, struct access_mark *mark, int64_t now_ns) {
    (void)pthread_rwlock_rdlock(&access->lock);
    int changed = mark->at_ns == 0 || mark->revision != access->revision;
    for (size_t i = 0; i < access->n && !changed; i++) {
        int64_t expires_ns = access->entries[i].expires_ns;
        changed = expires_ns > mark->at_ns && expires_ns <= now_ns;
    }
    int again = mark->again;
    *mark = (struct access_mark){.revision = access->revision, .at_ns = now_ns, .again = changed};
    (void)pthread_rwlock_unlock(&access->lock);
    return changed || again;
}

int access_is_for(const struct access_user *user, const char *job) {
    size_t n = strlen(user->job);
    return user->is_prefix ? strncmp(user->job, job, n) == 0 : strcmp(user->job, job) == 0;
}

size_t access_count(struct access *access, int64_t now_ns) {
    size_t n = 0;
    (void)pthread_rwlock_rdlock(&access->lock);
    for (size_t i = 0; i < access->n; i++) {
        n += (size_t)access_is_live(&access->entries[i], now_ns);
    }
    (void)pthread_rwlock_unlock(&access->lock);
    return n;
}
