#include "mlp.h"

#include <cblas.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "random.h"

#define ALIGNMENT_BYTES  64u /* a cache line, and the widest vector of x86-64 */
#define ALIGNMENT_FLOATS (ALIGNMENT_BYTES / sizeof(float))

static uint64_t padded(uint64_t n_floats) {
    return (n_floats + ALIGNMENT_FLOATS - 1) / ALIGNMENT_FLOATS * ALIGNMENT_FLOATS;
}

/* Zeroed, so that the padding between tensors never holds a stray NaN. */
static float *arena_create(uint64_t n_floats) {
    size_t n_bytes = (size_t)padded(n_floats) * sizeof(float);
    float *arena = aligned_alloc(ALIGNMENT_BYTES, n_bytes);
    if (arena != NULL) {
        memset(arena, 0, n_bytes);
    }
    return arena;
}

static uint64_t layer_parameters(const struct mlp_layer *layer) {
    return padded((uint64_t)layer->n_in * layer->n_out) + padded(layer->n_out);
}

static enum deft_status check_shape(const struct mlp_shape *s, struct deft_error *error) {
    if (s->n_inputs == 0 || s->n_inputs > MLP_MAX_WIDTH || s->n_classes == 0 ||
        s->n_classes > 256) {
        return deft_fail(error, DEFT_INVALID, 0,
                         "a network of %u inputs and %u classes is outside 1..%u and 1..256",
                         s->n_inputs, s->n_classes, MLP_MAX_WIDTH);
    }
    if (s->width == 0 || s->width > MLP_MAX_WIDTH || s->depth > MLP_MAX_DEPTH) {
        return deft_fail(error, DEFT_INVALID, 0,
                         "%u hidden layers of width %u are outside 0..%u and 1..%u", s->depth,
                         s->width, MLP_MAX_DEPTH, MLP_MAX_WIDTH);
    }
    if (s->max_batch == 0 || s->max_batch > MLP_MAX_BATCH) {
        return deft_fail(error, DEFT_INVALID, 0, "a batch of %u is outside 1..%u", s->max_batch,
                         MLP_MAX_BATCH);
    }
    return DEFT_OK;
}

/* Layer sizes, and what they add up to. */
static uint64_t lay_out(struct mlp *mlp, uint64_t *out_activations) {
    uint64_t n_parameters = 0;
    uint64_t n_activations = 0;
    for (uint32_t l = 0; l < mlp->n_layers; l++) {
        struct mlp_layer *layer = &mlp->layers[l];
        layer->n_in = l == 0 ? mlp->shape.n_inputs : mlp->shape.width;
        layer->n_out = l + 1 == mlp->n_layers ? mlp->shape.n_classes : mlp->shape.width;
        n_parameters += layer_parameters(layer);
        n_activations += padded((uint64_t)mlp->shape.max_batch * layer->n_out);
    }
    *out_activations = n_activations;
    return n_parameters;
}

static void add_tensor(struct mlp *mlp, char kind, uint32_t l, uint64_t elements, uint64_t *at) {
    struct mlp_tensor *tensor = &mlp->tensors[mlp->n_tensors++];
    (void)snprintf(tensor->name, sizeof(tensor->name), "%c%u", kind, l);
    tensor->elements = elements;
    tensor->parameters = mlp->parameters + *at;
    tensor->gradients = mlp->gradients + *at;
    *at += padded(elements);
}

enum deft_status mlp_init(struct mlp *mlp, const struct mlp_shape *shape,
                          struct deft_error *error) {
    struct mlp m = {.shape = *shape, .n_layers = shape->depth + 1};
    uint64_t n_activations = 0;
    uint64_t widest = shape->width > shape->n_classes ? shape->width : shape->n_classes;
    uint64_t parameter = 0;
    uint64_t activation = 0;
    enum deft_status status = check_shape(shape, error);

    if (status != DEFT_OK) {
        return status;
    }
    m.layers = calloc(m.n_layers, sizeof(*m.layers));
    m.tensors = calloc((size_t)m.n_layers * 2, sizeof(*m.tensors));
    if (m.layers == NULL || m.tensors == NULL) {
        goto no_memory;
    }
    m.n_parameters = lay_out(&m, &n_activations);
    if (m.n_parameters > MLP_MAX_PARAMETERS) {
        mlp_done(&m);
        return deft_fail(error, DEFT_LIMIT, 0,
                         "%u hidden layers of width %u have more than 2^32 parameters",
                         shape->depth, shape->width);
    }
    m.parameters = arena_create(m.n_parameters);
    m.gradients = arena_create(m.n_parameters);
    m.activations = arena_create(n_activations);
    m.errors[0] = arena_create((uint64_t)shape->max_batch * widest);
    m.errors[1] = arena_create((uint64_t)shape->max_batch * widest);
    if (m.parameters == NULL || m.gradients == NULL || m.activations == NULL ||
        m.errors[0] == NULL || m.errors[1] == NULL) {
        goto no_memory;
    }
    for (uint32_t l = 0; l < m.n_layers; l++) {
        struct mlp_layer *layer = &m.layers[l];
        add_tensor(&m, 'W', l, (uint64_t)layer->n_in * layer->n_out, &parameter);
        add_tensor(&m, 'b', l, layer->n_out, &parameter);
        layer->outputs = m.activations + activation;
        activation += padded((uint64_t)shape->max_batch * layer->n_out);
    }
    *mlp = m;
    return DEFT_OK;

no_memory:
    mlp_done(&m);
    return deft_fail(error, DEFT_NO_MEMORY, 0,
                     "no memory for %u hidden layers of width %u and a batch of %u", shape->depth,
                     shape->width, shape->max_batch);
}

void mlp_done(struct mlp *mlp) {
    if (mlp != NULL) {
        free(mlp->layers);
        free(mlp->tensors);
        free(mlp->parameters);
        free(mlp->gradients);
        free(mlp->activations);
        free(mlp->errors[0]);
        free(mlp->errors[1]);
        *mlp = (struct mlp){0};
    }
}

static struct mlp_tensor *weights_of(const struct mlp *mlp, size_t l) {
    return &mlp->tensors[2 * l];
}

static struct mlp_tensor *bias_of(const struct mlp *mlp, size_t l) {
    return &mlp->tensors[2 * l + 1];
}

void mlp_randomise(struct mlp *mlp, uint64_t seed) {
    for (uint32_t l = 0; l < mlp->n_layers; l++) {
        struct mlp_tensor *weights = weights_of(mlp, l);
        struct mlp_tensor *bias = bias_of(mlp, l);
        uint64_t state = random_seed(~seed, l);
        double deviation = sqrt(2.0 / mlp->layers[l].n_in);
        for (uint64_t i = 0; i < weights->elements; i++) {
            weights->parameters[i] = (float)(deviation * random_normal(&state));
        }
        memset(bias->parameters, 0, bias->elements * sizeof(float));
    }
}

/* --- forward ---------------------------------------------------------------------------------- */

/* One of the three products of a layer. Sizes are of the result [m][n] and the summed dimension. */
static void multiply(struct mlp *mlp, CBLAS_TRANSPOSE transpose_a, CBLAS_TRANSPOSE transpose_b,
                     uint32_t m, uint32_t n, uint32_t k, const float *a, const float *b, float *c) {
    int64_t begin_ns = clock_monotonic_ns();
    int lda = (int)(transpose_a == CblasNoTrans ? k : m);
    int ldb = (int)(transpose_b == CblasNoTrans ? n : k);
    cblas_sgemm(CblasRowMajor, transpose_a, transpose_b, (int)m, (int)n, (int)k, 1.0f, a, lda, b,
                ldb, 0.0f, c, (int)n);
    mlp->gemm_ns += clock_monotonic_ns() - begin_ns;
    mlp->gemm_flops += 2.0 * m * n * k;
}

static void add_bias(float *restrict y, const float *restrict bias, uint32_t batch, uint32_t n) {
    for (uint32_t i = 0; i < batch; i++, y += n) {
        for (uint32_t j = 0; j < n; j++) {
            y[j] += bias[j];
        }
    }
}

static void add_bias_relu(float *restrict y, const float *restrict bias, uint32_t batch,
                          uint32_t n) {
    for (uint32_t i = 0; i < batch; i++, y += n) {
        for (uint32_t j = 0; j < n; j++) {
            float v = y[j] + bias[j];
            /* Written so that a NaN stays a NaN and shows in the loss. */
            y[j] = v < 0.0f ? 0.0f : v;
        }
    }
}

void mlp_forward(struct mlp *mlp, const float *inputs, uint32_t batch) {
    const float *x = inputs;
    for (uint32_t l = 0; l < mlp->n_layers; l++) {
        struct mlp_layer *layer = &mlp->layers[l];
        const float *weights = weights_of(mlp, l)->parameters;
        const float *bias = bias_of(mlp, l)->parameters;
        multiply(mlp, CblasNoTrans, CblasNoTrans, batch, layer->n_out, layer->n_in, x, weights,
                 layer->outputs);
        if (l + 1 < mlp->n_layers) {
            add_bias_relu(layer->outputs, bias, batch, layer->n_out);
        } else {
            add_bias(layer->outputs, bias, batch, layer->n_out);
        }
        x = layer->outputs;
    }
}

/* --- loss and backward ------------------------------------------------------------------------ */

static const struct mlp_layer *last_layer(const struct mlp *mlp) {
    return &mlp->layers[mlp->n_layers - 1];
}

double mlp_loss(struct mlp *mlp, const uint8_t *labels, uint32_t batch) {
    const struct mlp_layer *layer = last_layer(mlp);
    uint32_t n = layer->n_out;
    float scale = 1.0f / (float)batch;
    double loss = 0.0;

    for (uint32_t i = 0; i < batch; i++) {
        const float *z = layer->outputs + (size_t)i * n;
        float *error = mlp->errors[0] + (size_t)i * n;
        float largest = z[0];
        float sum = 0.0f;
        for (uint32_t j = 1; j < n; j++) {
            largest = z[j] > largest ? z[j] : largest;
        }
        for (uint32_t j = 0; j < n; j++) {
            error[j] = expf(z[j] - largest);
            sum += error[j];
        }
        loss += (double)(logf(sum) + largest - z[labels[i]]);
        for (uint32_t j = 0; j < n; j++) {
            error[j] *= scale / sum;
        }
        error[labels[i]] -= scale;
    }
    return loss / batch;
}

static void sum_columns(const float *restrict error, uint32_t batch, uint32_t n,
                        float *restrict out) {
    memset(out, 0, n * sizeof(float));
    for (uint32_t i = 0; i < batch; i++, error += n) {
        for (uint32_t j = 0; j < n; j++) {
            out[j] += error[j];
        }
    }
}

/* Through the ReLU, and the bias gradient of that layer in the same pass. */
static void mask_sum_columns(float *restrict error, const float *restrict outputs, uint32_t batch,
                             uint32_t n, float *restrict out) {
    memset(out, 0, n * sizeof(float));
    for (uint32_t i = 0; i < batch; i++, error += n, outputs += n) {
        for (uint32_t j = 0; j < n; j++) {
            float e = outputs[j] > 0.0f ? error[j] : 0.0f;
            error[j] = e;
            out[j] += e;
        }
    }
}

enum deft_status mlp_backward(struct mlp *mlp, const float *inputs, uint32_t batch,
                              mlp_ready_fn on_ready, void *context) {
    float *error = mlp->errors[0]; /* d loss / d outputs of layer l, before its ReLU is undone */
    float *below = mlp->errors[1];
    enum deft_status status = DEFT_OK;

    for (uint32_t l = mlp->n_layers; l-- > 0 && status == DEFT_OK;) {
        const struct mlp_layer *layer = &mlp->layers[l];
        const float *x = l > 0 ? mlp->layers[l - 1].outputs : inputs;
        const struct mlp_tensor *weights = weights_of(mlp, l);
        const struct mlp_tensor *bias = bias_of(mlp, l);

        if (l + 1 < mlp->n_layers) {
            mask_sum_columns(error, layer->outputs, batch, layer->n_out, bias->gradients);
        } else {
            sum_columns(error, batch, layer->n_out, bias->gradients);
        }
        status = on_ready(context, 2 * l + 1, bias->gradients);
        if (status == DEFT_OK) {
            /* Before the error of the layer below: the earlier it is out, the more it can hide. */
            multiply(mlp, CblasTrans, CblasNoTrans, layer->n_in, layer->n_out, batch, x, error,
                     weights->gradients);
            status = on_ready(context, 2 * l, weights->gradients);
        }
        if (status == DEFT_OK && l > 0) {
            float *done = error;
            multiply(mlp, CblasNoTrans, CblasTrans, batch, layer->n_in, layer->n_out, error,
                     weights->parameters, below);
            error = below;
            below = done;
        }
    }
    return status;
}

uint32_t mlp_correct(const struct mlp *mlp, const uint8_t *labels, uint32_t batch) {
    const struct mlp_layer *layer = last_layer(mlp);
    uint32_t correct = 0;
    for (uint32_t i = 0; i < batch; i++) {
        const float *z = layer->outputs + (size_t)i * layer->n_out;
        uint32_t best = 0;
        for (uint32_t j = 1; j < layer->n_out; j++) {
            best = z[j] > z[best] ? j : best;
        }
        correct += best == labels[i];
    }
    return correct;
}
