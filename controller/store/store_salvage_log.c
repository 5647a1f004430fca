#include "store/store_salvage_log.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOG_HEADER_BYTES 32u
#define LOG_FRAME_BYTES  24u
#define LOG_MAGIC        0x377f0682u /* the last bit: checksums of big-endian words */

struct store_salvage_log {
    int fd;
    uint32_t page_bytes;
    uint32_t n_pages;
    uint32_t capacity;
    uint32_t *frames; /* [capacity + 1] by page: the frame, from 1; 0: not in the log */
};

struct log_sum {
    int is_big;
    uint32_t a;
    uint32_t b;
};

static uint32_t log_u32(const uint8_t *at, int is_big) {
    return is_big ? (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3]
                  : (uint32_t)at[3] << 24 | (uint32_t)at[2] << 16 | (uint32_t)at[1] << 8 | at[0];
}

static void log_add(struct log_sum *sum, const uint8_t *bytes, size_t n_bytes) {
    for (size_t i = 0; i + 8 <= n_bytes; i += 8) {
        sum->a += log_u32(bytes + i, sum->is_big) + sum->b;
        sum->b += log_u32(bytes + i + 4, sum->is_big) + sum->a;
    }
}

/* Pages since the last commit: forgotten when none follows. */
struct log_pending {
    size_t n;
    size_t capacity;
    uint32_t *pages;
    uint32_t *frames;
};

static int log_note(struct log_pending *pending, uint32_t page, uint32_t frame) {
    if (pending->n == pending->capacity) {
        size_t capacity = pending->capacity * 2 + 1024;
        uint32_t *pages = realloc(pending->pages, capacity * sizeof(*pages));
        pending->pages = pages != NULL ? pages : pending->pages;
        uint32_t *frames = realloc(pending->frames, capacity * sizeof(*frames));
        pending->frames = frames != NULL ? frames : pending->frames;
        if (pages == NULL || frames == NULL) {
            return 0;
        }
        pending->capacity = capacity;
    }
    pending->pages[pending->n] = page;
    pending->frames[pending->n++] = frame;
    return 1;
}

static int log_commit(struct store_salvage_log *log, struct log_pending *pending,
                      uint32_t n_pages) {
    uint32_t most = n_pages;
    for (size_t i = 0; i < pending->n; i++) {
        most = pending->pages[i] > most ? pending->pages[i] : most;
    }
    if (most > log->capacity) {
        uint32_t *grown = realloc(log->frames, ((size_t)most + 1) * sizeof(*grown));
        if (grown == NULL) {
            return 0;
        }
        size_t old = log->frames != NULL ? (size_t)log->capacity + 1 : 0;
        memset(grown + old, 0, ((size_t)most + 1 - old) * sizeof(*grown));
        log->frames = grown;
        log->capacity = most;
    }
    for (size_t i = 0; i < pending->n; i++) {
        log->frames[pending->pages[i]] = pending->frames[i];
    }
    pending->n = 0;
    log->n_pages = n_pages;
    return 1;
}

static off_t log_frame_at(const struct store_salvage_log *log, uint32_t frame) {
    return (off_t)LOG_HEADER_BYTES +
           (off_t)(frame - 1) * (off_t)(LOG_FRAME_BYTES + log->page_bytes);
}

/* 0: memory is short. A frame's salts are those of the header: older ones are of an earlier turn.
 */
static int log_scan(struct store_salvage_log *log, const uint8_t *head, struct log_sum sum,
                    uint8_t *frame) {
    struct log_pending pending = {0};
    size_t n_bytes = LOG_FRAME_BYTES + log->page_bytes;
    int ok = 1;
    for (uint32_t i = 1;
         ok && pread(log->fd, frame, n_bytes, log_frame_at(log, i)) == (ssize_t)n_bytes; i++) {
        uint32_t page = log_u32(frame, 1);
        log_add(&sum, frame, 8);
        log_add(&sum, frame + LOG_FRAME_BYTES, log->page_bytes);
        if (page == 0 || page >= UINT32_MAX / 8 || memcmp(frame + 8, head + 16, 8) != 0 ||
            log_u32(frame + 16, 1) != sum.a || log_u32(frame + 20, 1) != sum.b) {
            break;
        }
        ok = log_note(&pending, page, i);
        uint32_t n_pages = log_u32(frame + 4, 1);
        if (ok && n_pages != 0) {
            ok = log_commit(log, &pending, n_pages);
        }
    }
    free(pending.pages);
    free(pending.frames);
    return ok;
}

enum deft_status store_salvage_log_open(const char *path, uint32_t page_bytes,
                                        struct store_salvage_log **out, struct deft_error *error) {
    uint8_t head[LOG_HEADER_BYTES];
    char *name = NULL;
    if (asprintf(&name, "%s-wal", path) < 0) {
        return deft_fail(error, DEFT_NO_MEMORY, 0, "no memory to read a log");
    }
    int fd = open(name, O_RDONLY | O_CLOEXEC);
    free(name);
    ssize_t n = fd >= 0 ? pread(fd, head, sizeof(head), 0) : 0;
    struct log_sum sum = {.is_big = n == (ssize_t)sizeof(head) && (log_u32(head, 1) & 1) != 0};
    if (n == (ssize_t)sizeof(head)) {
        log_add(&sum, head, 24);
    }
    if (n != (ssize_t)sizeof(head) || (log_u32(head, 1) & ~1u) != LOG_MAGIC ||
        log_u32(head + 8, 1) != page_bytes || log_u32(head + 24, 1) != sum.a ||
        log_u32(head + 28, 1) != sum.b) {
        if (fd >= 0) {
            (void)close(fd);
        }
        return DEFT_OK;
    }
    struct store_salvage_log *log = calloc(1, sizeof(*log));
    uint8_t *frame = malloc(LOG_FRAME_BYTES + (size_t)page_bytes);
    if (log == NULL || frame == NULL) {
        free(log);
        free(frame);
        (void)close(fd);
        return deft_fail(error, DEFT_NO_MEMORY, 0, "no memory to read a log");
    }
    log->fd = fd;
    log->page_bytes = page_bytes;
    int ok = log_scan(log, head, sum, frame);
    free(frame);
    if (!ok) {
        store_salvage_log_close(log);
        return deft_fail(error, DEFT_NO_MEMORY, 0, "no memory to read a log");
    }
    *out = log;
    return DEFT_OK;
}

void store_salvage_log_close(struct store_salvage_log *log) {
    if (log != NULL) {
        (void)close(log->fd);
        free(log->frames);
        free(log);
    }
}

uint32_t store_salvage_log_n_pages(const struct store_salvage_log *log) {
    return log != NULL ? log->n_pages : 0;
}

int store_salvage_log_read(const struct store_salvage_log *log, uint32_t page, uint8_t *out) {
    if (log == NULL || page > log->capacity || log->frames == NULL || log->frames[page] == 0) {
        return 0;
    }
    return pread(log->fd, out, log->page_bytes,
                 log_frame_at(log, log->frames[page]) + (off_t)LOG_FRAME_BYTES) ==
           (ssize_t)log->page_bytes;
}
