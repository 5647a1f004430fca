/* Fashion-MNIST in memory, and which samples a rank sees when. */
#ifndef DATA_H
#define DATA_H

#include <stdint.h>

#include <deft/status.h>

/* Where Debian's package dataset-fashion-mnist puts its four files. */
#define DATA_DEFAULT_DIR "/usr/share/datasets/fashion-mnist"

#define DATA_N_PIXELS  784u /* 28 x 28, one byte each */
#define DATA_N_CLASSES 10u
/* The training file has 60,000 images. Four times that bounds what a hostile file can make us
 * allocate (188 MB) and leaves room for extended sets such as EMNIST. */
#define DATA_MAX_IMAGES 240000u

struct data_set {
    uint32_t n_images;
    uint8_t *pixels; /* [n_images * DATA_N_PIXELS] */
    uint8_t *labels; /* [n_images], each < DATA_N_CLASSES */
};

/* Reads `dir`/`prefix`-images-idx3-ubyte.gz and -labels-idx1-ubyte.gz. Prefix is "train" or "t10k".
 * Every header field, the sizes and every label are checked. Release with data_done. */
DEFT_NODISCARD enum deft_status data_open(const char *dir, const char *prefix, struct data_set *out,
                                          struct deft_error *error);
/* Takes NULL and zeroed sets. */
void data_done(struct data_set *set);

/* The order of one epoch: a permutation of 0..n_images - 1 that depends on seed and epoch alone, so
 * that all ranks draw the same one without talking. */
void data_shuffle(uint64_t seed, uint32_t epoch, uint32_t n_images, uint32_t *out_order);

/* Iterations of one epoch: the last samples that do not fill a batch on every rank are left out. */
uint32_t data_iterations(uint32_t n_images, uint32_t batch, uint32_t n_ranks);

/* Where rank `rank` begins in the order for `iteration` of the epoch; it takes `batch` samples from
 * there. Ranks of one iteration sit side by side, so n ranks with batch b see together what one
 * rank with batch n * b sees. */
uint32_t data_shard(uint32_t iteration, uint32_t rank, uint32_t batch, uint32_t n_ranks);

/* Gathers `n` samples named by `order` (NULL: samples `first`, `first` + 1, ...) as normalised
 * pixels [n * DATA_N_PIXELS] and labels [n]. `first` is an index into the order. */
void data_batch(const struct data_set *set, const uint32_t *order, uint32_t first, uint32_t n,
                float *out_pixels, uint8_t *out_labels);

#endif
