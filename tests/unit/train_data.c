/* Reading the trainer's files, whole and hostile, and who sees which sample. */
#include "testing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "data.h"

#define N_SMALL    20u
#define FILE_BYTES 65536u /* more than any file made here has */

struct folder {
    char path[64];
    char images[128];
    char labels[128];
};

/* An idx file before compression, with whatever header the test wants. */
struct idx {
    uint32_t header[4];
    uint32_t n_header;
    uint32_t n_bytes;
    uint8_t bytes[FILE_BYTES];
};

static void folder_create(struct folder *folder) {
    (void)snprintf(folder->path, sizeof(folder->path), "/tmp/train_data-XXXXXX");
    assert_non_null(mkdtemp(folder->path));
    (void)snprintf(folder->images, sizeof(folder->images), "%s/train-images-idx3-ubyte.gz",
                   folder->path);
    (void)snprintf(folder->labels, sizeof(folder->labels), "%s/train-labels-idx1-ubyte.gz",
                   folder->path);
}

static void folder_remove(const struct folder *folder) {
    (void)unlink(folder->images);
    (void)unlink(folder->labels);
    (void)rmdir(folder->path);
}

static void write_idx(const char *path, const struct idx *idx) {
    gzFile gz = gzopen(path, "wb");
    assert_non_null(gz);
    for (uint32_t i = 0; i < idx->n_header; i++) {
        uint32_t v = idx->header[i];
        uint8_t b[4] = {(uint8_t)(v >> 24), (uint8_t)(v >> 16), (uint8_t)(v >> 8), (uint8_t)v};
        assert_int_equal(gzwrite(gz, b, 4), 4);
    }
    if (idx->n_bytes > 0) {
        assert_int_equal(gzwrite(gz, idx->bytes, idx->n_bytes), (int)idx->n_bytes);
    }
    assert_int_equal(gzclose(gz), Z_OK);
}

static void good_images(struct idx *idx, uint64_t *random) {
    *idx = (struct idx){.header = {0x803, N_SMALL, 28, 28}, .n_header = 4};
    idx->n_bytes = N_SMALL * DATA_N_PIXELS;
    for (uint32_t i = 0; i < idx->n_bytes; i++) {
        idx->bytes[i] = (uint8_t)testing_random(random);
    }
}

static void good_labels(struct idx *idx) {
    *idx = (struct idx){.header = {0x801, N_SMALL}, .n_header = 2, .n_bytes = N_SMALL};
    for (uint32_t i = 0; i < N_SMALL; i++) {
        idx->bytes[i] = (uint8_t)(i % DATA_N_CLASSES);
    }
}

static void expect_refused(const struct folder *folder, const char *because) {
    struct data_set set = {.n_images = 4711};
    struct deft_error error = {0};
    assert_int_not_equal(data_open(folder->path, "train", &set, &error), DEFT_OK);
    assert_int_equal(set.n_images, 4711);
    if (strstr(error.text, because) == NULL) {
        fail_msg("'%s' does not say '%s'", error.text, because);
    }
}

static void small_files_come_back(void **state) {
    uint64_t random = testing_seed();
    static struct idx idx;
    struct folder folder;
    struct data_set set;
    float *pixels;
    uint8_t labels[N_SMALL];
    (void)state;

    folder_create(&folder);
    good_labels(&idx);
    write_idx(folder.labels, &idx);
    good_images(&idx, &random);
    write_idx(folder.images, &idx);
    assert_int_equal(data_open(folder.path, "train", &set, NULL), DEFT_OK);
    assert_int_equal(set.n_images, N_SMALL);
    assert_memory_equal(set.pixels, idx.bytes, idx.n_bytes);

    pixels = calloc((size_t)N_SMALL * DATA_N_PIXELS, sizeof(float));
    assert_non_null(pixels);
    data_batch(&set, NULL, 0, N_SMALL, pixels, labels);
    for (uint32_t i = 0; i < N_SMALL; i++) {
        assert_int_equal(labels[i], i % DATA_N_CLASSES);
    }
    for (uint32_t i = 0; i < idx.n_bytes; i++) {
        /* back from normalised to a byte */
        assert_int_equal((int)(255.0f * (pixels[i] * 0.3530f + 0.2860f) + 0.5f), idx.bytes[i]);
    }
    free(pixels);
    data_done(&set);
    data_done(NULL);
    folder_remove(&folder);
}

static void hostile_headers_are_refused(void **state) {
    uint64_t random = testing_seed();
    static struct idx idx;
    struct folder folder;
    static const struct {
        uint32_t field, value;
        const char *because;
    } images[] = {
        {0, 0x801, "magic"},
        {1, 0, "entries"},
        {1, DATA_MAX_IMAGES + 1, "entries"},
        {1, UINT32_MAX, "entries"},
        {1, N_SMALL + 1, "truncated"},
        {1, N_SMALL - 1, "too long"},
        {2, 27, "rows"},
        {3, 0x10001c, "columns"},
    };
    static const struct {
        uint32_t field, value;
        const char *because;
    } labels[] = {
        {0, 0x803, "magic"}, {1, N_SMALL - 1, "number of labels"}, {1, UINT32_MAX, "of labels"}};
    (void)state;

    folder_create(&folder);
    expect_refused(&folder, "dataset-fashion-mnist");
    good_labels(&idx);
    write_idx(folder.labels, &idx);
    for (size_t i = 0; i < sizeof(images) / sizeof(images[0]); i++) {
        good_images(&idx, &random);
        idx.header[images[i].field] = images[i].value;
        write_idx(folder.images, &idx);
        expect_refused(&folder, images[i].because);
    }
    good_images(&idx, &random);
    write_idx(folder.images, &idx);
    for (size_t i = 0; i < sizeof(labels) / sizeof(labels[0]); i++) {
        good_labels(&idx);
        idx.header[labels[i].field] = labels[i].value;
        write_idx(folder.labels, &idx);
        expect_refused(&folder, labels[i].because);
    }
    good_labels(&idx);
    idx.bytes[N_SMALL - 1] = DATA_N_CLASSES;
    write_idx(folder.labels, &idx);
    expect_refused(&folder, "label 19 is 10");
    folder_remove(&folder);
}

static uint32_t read_raw(const char *path, uint8_t *out) {
    FILE *file = fopen(path, "re");
    size_t n;
    assert_non_null(file);
    n = fread(out, 1, FILE_BYTES, file);
    assert_int_equal(fclose(file), 0);
    return (uint32_t)n;
}

static void write_raw(const char *path, const uint8_t *bytes, uint32_t n_bytes) {
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, n_bytes, file), n_bytes);
    assert_int_equal(fclose(file), 0);
}

/* Cut anywhere, a file is refused, whatever part is missing: data, checksum or length. */
static void truncated_files_are_refused(void **state) {
    uint64_t random = testing_seed();
    static struct idx idx;
    static uint8_t raw[FILE_BYTES];
    struct folder folder;
    uint32_t n_bytes;
    (void)state;

    folder_create(&folder);
    good_images(&idx, &random);
    write_idx(folder.images, &idx);
    good_labels(&idx);
    write_idx(folder.labels, &idx);
    n_bytes = read_raw(folder.labels, raw);
    for (uint32_t n = 1; n < n_bytes; n++) {
        write_raw(folder.labels, raw, n);
        expect_refused(&folder, "train-labels-idx1-ubyte.gz");
    }
    write_raw(folder.labels, raw, n_bytes);
    n_bytes = read_raw(folder.images, raw);
    for (uint32_t n = 1; n < n_bytes; n += 1 + (uint32_t)testing_random_below(&random, 400)) {
        write_raw(folder.images, raw, n);
        expect_refused(&folder, "train-images-idx3-ubyte.gz");
    }
    folder_remove(&folder);
}

/* Any flipped bit of the compressed data is caught by its structure or its checksum. The ten bytes
 * of the gzip header are about names and times, not about data. */
static void damaged_files_are_refused(void **state) {
    uint64_t random = testing_seed();
    static struct idx idx;
    static uint8_t raw[FILE_BYTES];
    struct folder folder;
    uint32_t n_bytes;
    (void)state;

    folder_create(&folder);
    good_labels(&idx);
    write_idx(folder.labels, &idx);
    good_images(&idx, &random);
    write_idx(folder.images, &idx);
    n_bytes = read_raw(folder.images, raw);
    for (int trial = 0; trial < 100; trial++) {
        uint32_t at = 10 + (uint32_t)testing_random_below(&random, n_bytes - 10);
        uint8_t bit = (uint8_t)(1u << testing_random_below(&random, 8));
        raw[at] ^= bit;
        write_raw(folder.images, raw, n_bytes);
        expect_refused(&folder, "train-images-idx3-ubyte.gz");
        raw[at] ^= bit;
    }
    folder_remove(&folder);
}

static void long_folder_names_are_refused(void **state) {
    char *name = malloc(5000);
    struct data_set set;
    struct deft_error error = {0};
    (void)state;

    assert_non_null(name);
    memset(name, 'x', 4999);
    name[4999] = '\0';
    assert_int_equal(data_open(name, "train", &set, &error), DEFT_LIMIT);
    free(name);
}

static void debian_files_are_whole(void **state) {
    struct data_set set;
    uint32_t counts[DATA_N_CLASSES] = {0};
    (void)state;

    if (access(DATA_DEFAULT_DIR, R_OK) != 0) {
        testing_skip("the package dataset-fashion-mnist is not installed");
    }
    assert_int_equal(data_open(DATA_DEFAULT_DIR, "train", &set, NULL), DEFT_OK);
    assert_int_equal(set.n_images, 60000);
    for (uint32_t i = 0; i < set.n_images; i++) {
        counts[set.labels[i]]++;
    }
    for (uint32_t c = 0; c < DATA_N_CLASSES; c++) {
        assert_int_equal(counts[c], 6000);
    }
    data_done(&set);
    assert_int_equal(data_open(DATA_DEFAULT_DIR, "t10k", &set, NULL), DEFT_OK);
    assert_int_equal(set.n_images, 10000);
    data_done(&set);
}

/* Over one epoch no sample is seen twice, at most one round of batches is left out, and ranks
 * together see in each iteration what one rank with all their batches would see. */
static void shards_are_disjoint_and_complete(void **state) {
    uint64_t random = testing_seed();
    (void)state;
    for (int trial = 0; trial < 200; trial++) {
        uint32_t n_ranks = 1 + (uint32_t)testing_random_below(&random, 9);
        uint32_t batch = 1 + (uint32_t)testing_random_below(&random, 50);
        uint32_t n_images = 1 + (uint32_t)testing_random_below(&random, 3000);
        uint32_t n = data_iterations(n_images, batch, n_ranks);
        uint32_t *order = calloc(n_images, sizeof(*order));
        uint8_t *seen = calloc(n_images, 1);
        uint32_t n_seen = 0;

        assert_non_null(order);
        assert_non_null(seen);
        data_shuffle(trial, (uint32_t)trial % 5, n_images, order);
        for (uint32_t i = 0; i < n; i++) {
            for (uint32_t r = 0; r < n_ranks; r++) {
                uint32_t first = data_shard(i, r, batch, n_ranks);
                assert_int_equal(first, data_shard(i, 0, batch * n_ranks, 1) + r * batch);
                for (uint32_t s = first; s < first + batch; s++) {
                    assert_true(s < n_images);
                    assert_true(order[s] < n_images);
                    assert_int_equal(seen[order[s]], 0);
                    seen[order[s]] = 1;
                    n_seen++;
                }
            }
        }
        assert_true(n_images - n_seen < batch * n_ranks);
        free(order);
        free(seen);
    }
    assert_int_equal(data_iterations(100, 0, 4), 0);
}

static void shuffles_differ_by_seed_and_epoch(void **state) {
    enum { N = 500 };
    uint32_t order[3][N];
    uint32_t again[N];
    (void)state;

    data_shuffle(1, 0, N, order[0]);
    data_shuffle(1, 1, N, order[1]);
    data_shuffle(2, 0, N, order[2]);
    data_shuffle(1, 0, N, again);
    assert_memory_equal(order[0], again, sizeof(again));
    for (int a = 0; a < 3; a++) {
        for (int b = a + 1; b < 3; b++) {
            int n_same = 0;
            for (int i = 0; i < N; i++) {
                n_same += order[a][i] == order[b][i];
            }
            assert_true(n_same < 20); /* 1 is expected of independent permutations */
        }
    }
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(small_files_come_back),
    cmocka_unit_test(hostile_headers_are_refused),
    cmocka_unit_test(truncated_files_are_refused),
    cmocka_unit_test(damaged_files_are_refused),
    cmocka_unit_test(long_folder_names_are_refused),
    cmocka_unit_test(debian_files_are_whole),
    cmocka_unit_test(shards_are_disjoint_and_complete),
    cmocka_unit_test(shuffles_differ_by_seed_and_epoch),
};
TESTING_MAIN(cases)
