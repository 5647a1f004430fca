#include "data.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "random.h"

/* Mean and standard deviation of the training pixels scaled to 0..1, as everybody uses them. */
#define PIXEL_MEAN      0.2860f
#define PIXEL_DEVIATION 0.3530f

#define IDX_MAGIC_IMAGES 0x00000803u /* unsigned bytes in three dimensions */
#define IDX_MAGIC_LABELS 0x00000801u /* unsigned bytes in one dimension */
#define IDX_SIDE         28u
#define PATH_BYTES       4096u /* PATH_MAX of Linux */

struct idx_file {
    gzFile gz;
    char path[PATH_BYTES];
};

static enum deft_status idx_open(const char *dir, const char *name, struct idx_file *out,
                                 struct deft_error *error) {
    struct idx_file file = {0};
    int n = snprintf(file.path, sizeof(file.path), "%s/%s.gz", dir, name);

    if (n < 0 || (size_t)n >= sizeof(file.path)) {
        return deft_fail(error, DEFT_LIMIT, 0,
                         "the name of the data folder is longer than %u bytes", PATH_BYTES);
    }
    errno = 0;
    file.gz = gzopen(file.path, "rb");
    if (file.gz == NULL) {
        int code = errno;
        return deft_fail(error, code == ENOENT ? DEFT_NOT_FOUND : DEFT_IO, code,
                         "%s cannot be opened (%s); install the package dataset-fashion-mnist or "
                         "name the folder that holds the four files with --data",
                         file.path, code != 0 ? strerror(code) : "out of memory");
    }
    *out = file;
    return DEFT_OK;
}

static enum deft_status idx_read(struct idx_file *file, void *out, uint32_t n_bytes,
                                 struct deft_error *error) {
    int n = gzread(file->gz, out, n_bytes);
    if (n < 0) {
        int code = 0;
        const char *text = gzerror(file->gz, &code);
        return deft_fail(error, DEFT_INVALID, code, "%s is damaged: %s", file->path, text);
    }
    if ((uint32_t)n != n_bytes) {
        return deft_fail(error, DEFT_INVALID, 0,
                         "%s is truncated: %u more bytes of data were expected, %d are there",
                         file->path, n_bytes, n);
    }
    return DEFT_OK;
}

static enum deft_status idx_read_u32(struct idx_file *file, uint32_t *out,
                                     struct deft_error *error) {
    uint8_t b[4];
    enum deft_status status = idx_read(file, b, sizeof(b), error);
    if (status == DEFT_OK) {
        *out = (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3];
    }
    return status;
}

static enum deft_status idx_expect(struct idx_file *file, const char *field, uint32_t expected,
                                   struct deft_error *error) {
    uint32_t value = 0;
    enum deft_status status = idx_read_u32(file, &value, error);
    if (status == DEFT_OK && value != expected) {
        status = deft_fail(error, DEFT_INVALID, 0, "%s: %s is %u, but %u is expected", file->path,
                           field, value, expected);
    }
    return status;
}

static enum deft_status idx_count(struct idx_file *file, uint32_t *out, struct deft_error *error) {
    uint32_t n = 0;
    enum deft_status status = idx_read_u32(file, &n, error);
    if (status == DEFT_OK && (n == 0 || n > DATA_MAX_IMAGES)) {
        status = deft_fail(error, DEFT_INVALID, 0, "%s holds %u entries, but 1..%u is allowed",
                           file->path, n, DATA_MAX_IMAGES);
    }
    if (status == DEFT_OK) {
        *out = n;
    }
    return status;
}

/* What follows the header: exactly `n_bytes`, then the end with a good checksum. */
static enum deft_status idx_body(struct idx_file *file, size_t n_bytes, uint8_t **out,
                                 struct deft_error *error) {
    enum deft_status status = DEFT_OK;
    /* One byte more than is expected: only then zlib has to look at the end. */
    uint8_t *body = malloc(n_bytes + 1);
    int code = Z_OK;
    int n;

    if (body == NULL) {
        return deft_fail(error, DEFT_NO_MEMORY, 0, "no memory for the %zu bytes of %s", n_bytes,
                         file->path);
    }
    n = gzread(file->gz, body, (uint32_t)n_bytes + 1);
    if (n < 0) {
        const char *text = gzerror(file->gz, &code);
        status = deft_fail(error, DEFT_INVALID, code, "%s is damaged: %s", file->path, text);
    } else if ((size_t)n != n_bytes) {
        status = deft_fail(error, DEFT_INVALID, 0,
                           "%s is %s: its header promises %zu bytes of data, %s are there",
                           file->path, (size_t)n < n_bytes ? "truncated" : "too long", n_bytes,
                           (size_t)n < n_bytes ? "fewer" : "more");
    } else {
        (void)gzerror(file->gz, &code);
        if (code != Z_OK) {
            status = deft_fail(error, DEFT_INVALID, code,
                               "%s is truncated: its checksum is missing", file->path);
        }
    }
    if (status != DEFT_OK) {
        free(body);
        return status;
    }
    *out = body;
    return DEFT_OK;
}

static enum deft_status read_images(const char *dir, const char *name, uint32_t *out_n,
                                    uint8_t **out_pixels, struct deft_error *error) {
    struct idx_file file = {0};
    uint32_t n = 0;
    enum deft_status status = idx_open(dir, name, &file, error);

    if (status != DEFT_OK) {
        return status;
    }
    status = idx_expect(&file, "the magic number", IDX_MAGIC_IMAGES, error);
    if (status == DEFT_OK) {
        status = idx_count(&file, &n, error);
    }
    if (status == DEFT_OK) {
        status = idx_expect(&file, "the number of rows", IDX_SIDE, error);
    }
    if (status == DEFT_OK) {
        status = idx_expect(&file, "the number of columns", IDX_SIDE, error);
    }
    if (status == DEFT_OK) {
        status = idx_body(&file, (size_t)n * DATA_N_PIXELS, out_pixels, error);
    }
    if (status == DEFT_OK) {
        *out_n = n;
    }
    (void)gzclose(file.gz);
    return status;
}

static enum deft_status check_labels(const struct idx_file *file, const uint8_t *labels,
                                     uint32_t n_images, struct deft_error *error) {
    for (uint32_t i = 0; i < n_images; i++) {
        if (labels[i] >= DATA_N_CLASSES) {
            return deft_fail(error, DEFT_INVALID, 0, "%s: label %u is %u, but 0..%u is allowed",
                             file->path, i, labels[i], DATA_N_CLASSES - 1);
        }
    }
    return DEFT_OK;
}

static enum deft_status read_labels(const char *dir, const char *name, uint32_t n_images,
                                    uint8_t **out_labels, struct deft_error *error) {
    struct idx_file file = {0};
    uint8_t *labels = NULL;
    enum deft_status status = idx_open(dir, name, &file, error);

    if (status != DEFT_OK) {
        return status;
    }
    status = idx_expect(&file, "the magic number", IDX_MAGIC_LABELS, error);
    if (status == DEFT_OK) {
        status = idx_expect(&file, "the number of labels", n_images, error);
    }
    if (status == DEFT_OK) {
        status = idx_body(&file, n_images, &labels, error);
    }
    if (labels != NULL) {
        status = check_labels(&file, labels, n_images, error);
    }
    (void)gzclose(file.gz);
    if (status != DEFT_OK) {
        free(labels);
        return status;
    }
    *out_labels = labels;
    return DEFT_OK;
}

enum deft_status data_open(const char *dir, const char *prefix, struct data_set *out,
                           struct deft_error *error) {
    struct data_set set = {0};
    char name[64];
    enum deft_status status;

    (void)snprintf(name, sizeof(name), "%s-images-idx3-ubyte", prefix);
    status = read_images(dir, name, &set.n_images, &set.pixels, error);
    if (status == DEFT_OK) {
        (void)snprintf(name, sizeof(name), "%s-labels-idx1-ubyte", prefix);
        status = read_labels(dir, name, set.n_images, &set.labels, error);
    }
    if (status != DEFT_OK) {
        data_done(&set);
        return status;
    }
    *out = set;
    return DEFT_OK;
}

void data_done(struct data_set *set) {
    if (set != NULL) {
        free(set->pixels);
        free(set->labels);
        *set = (struct data_set){0};
    }
}

void data_shuffle(uint64_t seed, uint32_t epoch, uint32_t n_images, uint32_t *out_order) {
    uint64_t state = random_seed(seed, UINT64_C(1) + epoch);
    for (uint32_t i = 0; i < n_images; i++) {
        out_order[i] = i;
    }
    for (uint32_t i = n_images; i > 1; i--) {
        uint32_t j = (uint32_t)random_below(&state, i);
        uint32_t swapped = out_order[i - 1];
        out_order[i - 1] = out_order[j];
        out_order[j] = swapped;
    }
}

uint32_t data_iterations(uint32_t n_images, uint32_t batch, uint32_t n_ranks) {
    uint64_t together = (uint64_t)batch * n_ranks;
    return together == 0 ? 0 : (uint32_t)(n_images / together);
}

uint32_t data_shard(uint32_t iteration, uint32_t rank, uint32_t batch, uint32_t n_ranks) {
    return (iteration * n_ranks + rank) * batch;
}

void data_batch(const struct data_set *set, const uint32_t *order, uint32_t first, uint32_t n,
                float *out_pixels, uint8_t *out_labels) {
    float normalised[256];
    for (unsigned p = 0; p < 256; p++) {
        normalised[p] = ((float)p / 255.0f - PIXEL_MEAN) / PIXEL_DEVIATION;
    }
    for (uint32_t i = 0; i < n; i++) {
        uint32_t image = order != NULL ? order[first + i] : first + i;
        const uint8_t *from = set->pixels + (size_t)image * DATA_N_PIXELS;
        float *to = out_pixels + (size_t)i * DATA_N_PIXELS;
        for (uint32_t p = 0; p < DATA_N_PIXELS; p++) {
            to[p] = normalised[from[p]];
        }
        out_labels[i] = set->labels[image];
    }
}
