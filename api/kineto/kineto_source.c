/* Files and pipes, compressed or not, in blocks. */
#include "kineto.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <zlib.h>

#include "base/parse.h"
#include "kineto_reader.h"
#include "kineto_trace.h"

#define KINETO_SOURCE_BLOCK_BYTES  65536u
#define KINETO_SOURCE_BUFFER_BYTES (256u << 10)

static enum deft_status kineto_source_open(const char *path, gzFile *out_file,
                                           uint64_t *out_total_bytes, struct deft_error *error) {
    struct stat stat;
    int fd = strcmp(path, "-") == 0 ? fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0)
                                    : open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &stat) != 0) {
        int code = errno;
        if (fd >= 0) {
            (void)close(fd);
        }
        return deft_fail(error, parse_wrong_file(code) ? DEFT_INVALID : DEFT_IO, code,
                         "'%.250s' cannot be read: %s", path, strerror(code));
    }
    if (S_ISDIR(stat.st_mode)) {
        (void)close(fd);
        return deft_fail(error, DEFT_INVALID, EISDIR,
                         "'%.250s' is a folder, expected a profiler's trace", path);
    }
    gzFile file = gzdopen(fd, "rb");
    if (file == NULL) {
        (void)close(fd);
        return deft_fail(error, DEFT_NO_MEMORY, 0, "no memory to read '%.250s'", path);
    }
    (void)gzbuffer(file, KINETO_SOURCE_BUFFER_BYTES);
    *out_file = file;
    *out_total_bytes = S_ISREG(stat.st_mode) ? (uint64_t)stat.st_size : 0;
    return DEFT_OK;
}

static enum deft_status kineto_source_failed(gzFile file, const char *path,
                                             struct deft_error *error) {
    int saved = errno;
    int code = Z_OK;
    const char *text = gzerror(file, &code);
    if (code == Z_ERRNO) {
        return deft_fail(error, DEFT_IO, saved, "'%.250s' cannot be read: %s", path,
                         strerror(saved));
    }
    if (code == Z_BUF_ERROR) {
        return deft_fail(error, DEFT_INVALID, code, "'%.250s' ends in the middle: it was cut off",
                         path);
    }
    return deft_fail(error, code == Z_MEM_ERROR ? DEFT_NO_MEMORY : DEFT_INVALID, code,
                     "'%.100s' cannot be decompressed: %.150s", path, text);
}

static enum deft_status kineto_source_feed(gzFile file, const char *path, uint64_t total_bytes,
                                           struct kineto_reader *reader,
                                           kineto_progress_fn on_progress, void *context,
                                           struct deft_error *error) {
    unsigned char block[KINETO_SOURCE_BLOCK_BYTES];
    int n_bytes = 0;
    while ((n_bytes = gzread(file, block, sizeof(block))) > 0) {
        enum deft_status status = kineto_reader_feed(reader, block, (size_t)n_bytes, error);
        if (status != DEFT_OK) {
            return status;
        }
        if (on_progress != NULL) {
            z_off_t done = gzoffset(file);
            on_progress(context, done > 0 ? (uint64_t)done : 0, total_bytes);
        }
    }
    /* A stream that is cut off reads like one that ends; only the error tells. */
    int code = Z_OK;
    (void)gzerror(file, &code);
    if (n_bytes < 0 || code == Z_BUF_ERROR) {
        return kineto_source_failed(file, path, error);
    }
    return kineto_reader_finish(reader, error);
}

enum deft_status kineto_read(const char *path, uint32_t max_records, kineto_progress_fn on_progress,
                             void *context, struct kineto_trace **out, struct deft_error *error) {
    struct kineto_trace *trace = NULL;
    struct kineto_reader *reader = NULL;
    gzFile file = NULL;
    uint64_t total_bytes = 0;
    enum deft_status status = kineto_source_open(path, &file, &total_bytes, error);
    if (status == DEFT_OK) {
        status = kineto_trace_create(path, max_records, &trace, error);
    }
    if (status == DEFT_OK) {
        status = kineto_reader_create(trace, &reader, error);
    }
    if (status == DEFT_OK) {
        status = kineto_source_feed(file, path, total_bytes, reader, on_progress, context, error);
    }
    kineto_reader_destroy(reader);
    if (file != NULL) {
        (void)gzclose_r(file);
    }
    if (status != DEFT_OK) {
        kineto_trace_destroy(trace);
        return status;
    }
    *out = trace;
    return DEFT_OK;
}
