/* A multi-layer perceptron: inputs -> [width, ReLU] x depth -> classes, softmax cross-entropy.
 *
 * All parameters lie in one arena and all gradients in another, 64-byte aligned, tensors in forward
 * order W0, b0, W1, b1, ...; weights are [in][out], row-major. The matrix products are OpenBLAS's;
 * everything else is one pass over memory per layer and direction. */
#ifndef MLP_H
#define MLP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <deft/status.h>

#define MLP_MAX_WIDTH 16384u
#define MLP_MAX_DEPTH 128u
#define MLP_MAX_BATCH 65536u
/* Keeps the arenas, and every size computed on the way, far inside size_t and int. */
#define MLP_MAX_PARAMETERS (UINT64_C(1) << 32)
#define MLP_NAME_BYTES     24u

struct mlp_shape {
    uint32_t n_inputs;
    uint32_t width;     /* of each hidden layer */
    uint32_t depth;     /* hidden layers, 0 is a linear classifier */
    uint32_t n_classes; /* <= 256: labels are bytes */
    uint32_t max_batch;
};

struct mlp_tensor {
    char name[MLP_NAME_BYTES]; /* "W0", "b0", ... */
    uint64_t elements;
    float *parameters; /* into the arenas */
    float *gradients;
};

struct mlp_layer {
    uint32_t n_in;
    uint32_t n_out;
    float *outputs; /* [max_batch * n_out], after the activation */
};

struct mlp {
    struct mlp_shape shape;
    uint32_t n_layers; /* depth + 1 */
    uint32_t n_tensors;
    struct mlp_layer *layers;
    struct mlp_tensor *tensors; /* of layer l: weights 2 * l, bias 2 * l + 1 */
    uint64_t n_parameters;      /* elements of an arena, with the padding between tensors */
    float *parameters;
    float *gradients;
    float *activations; /* backs layers[].outputs */
    float *errors[2];   /* [max_batch * widest layer], d loss / d outputs of two adjacent layers */
    int64_t gemm_ns;    /* time in matrix products so far */
    double gemm_flops;  /* floating point operations in them */
};

DEFT_NODISCARD enum deft_status mlp_init(struct mlp *mlp, const struct mlp_shape *shape,
                                         struct deft_error *error);
/* Takes NULL and zeroed networks. */
void mlp_done(struct mlp *mlp);

/* He's initialisation: weights normal with variance 2 / n_in, biases zero. */
void mlp_randomise(struct mlp *mlp, uint64_t seed);

/* Fills the layers' outputs; the last layer's are the logits. `inputs` is [batch * n_inputs],
 * batch <= max_batch. */
void mlp_forward(struct mlp *mlp, const float *inputs, uint32_t batch);

/* Mean cross-entropy of the last forward, and d loss / d logits for mlp_backward. */
double mlp_loss(struct mlp *mlp, const uint8_t *labels, uint32_t batch);

/* Called in backward as each gradient is finished, from the last tensor to the first. A status
 * other than DEFT_OK ends the backward pass, which returns it. */
typedef enum deft_status (*mlp_ready_fn)(void *context, uint32_t tensor, const float *gradient);

/* After mlp_forward and mlp_loss on the same inputs. Overwrites all gradients. */
DEFT_NODISCARD enum deft_status mlp_backward(struct mlp *mlp, const float *inputs, uint32_t batch,
                                             mlp_ready_fn on_ready, void *context);

/* Samples of the last forward whose largest logit is the label's. */
uint32_t mlp_correct(const struct mlp *mlp, const uint8_t *labels, uint32_t batch);

#endif
