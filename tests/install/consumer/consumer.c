/* A job of one rank, built against the installed headers and library alone. */
#include <stdio.h>
#include <string.h>

#include <deft/deft.h>

#define N_ELEMENTS   4
#define N_ITERATIONS 5
#define RATE         0.5f

static int gather_alone(void *context, const void *in, size_t n_bytes, void *out) {
    (void)context;
    memcpy(out, in, n_bytes);
    return 0;
}

/* Plain gradient descent on whatever the runtime says is due. */
static void apply(float *parameters, const struct deft_update *update) {
    const float *gradient = update->gradients[0];
    for (int i = 0; gradient != NULL && i < N_ELEMENTS; i++) {
        parameters[i] -= RATE * gradient[i];
    }
}

static enum deft_status train(struct deft_runtime *rt, uint32_t id, float *parameters,
                              struct deft_error *error) {
    static const float gradient[N_ELEMENTS] = {1.0f, 2.0f, -1.0f, 0.0f};
    struct deft_update update = {.action = DEFT_DONE};
    enum deft_status status = DEFT_OK;
    for (int t = 0; t < N_ITERATIONS; t++) {
        deft_forward_begin(rt);
        deft_loss(rt, 1.0 / (t + 1));
        deft_backward_begin(rt);
        status = deft_grad_ready(rt, id, gradient);
        do {
            if (status == DEFT_OK) {
                status = deft_step(rt, &update, error);
            }
            if (status != DEFT_OK) {
                return status;
            }
            if (update.action == DEFT_APPLY) {
                apply(parameters, &update);
            }
        } while (update.action != DEFT_DONE);
    }
    do {
        status = deft_drain(rt, &update, error);
        if (status == DEFT_OK && update.action == DEFT_APPLY) {
            apply(parameters, &update);
        }
    } while (status == DEFT_OK && update.action != DEFT_DONE);
    return status;
}

int main(void) {
    float parameters[N_ELEMENTS] = {8.0f, 8.0f, 8.0f, 8.0f};
    static const float expected[N_ELEMENTS] = {5.5f, 3.0f, 10.5f, 8.0f};
    struct deft_options options;
    struct deft_runtime *rt = NULL;
    struct deft_error error = {.status = DEFT_OK};
    struct deft_stats stats = {.updates = 0};
    uint32_t id = 0;
    int result = 1;
    if (deft_options_init(&options, &error) != DEFT_OK) {
        goto done;
    }
    options.rank = 0;
    options.n_ranks = 1;
    options.job_id = "consumer";
    options.allgather = gather_alone;
    options.links = "gloo:lo";
    options.agent_socket = NULL;
    if (deft_open(&options, &rt, &error) != DEFT_OK) {
        goto done;
    }
    const struct deft_tensor tensor = {
        .name = "weight", .elements = N_ELEMENTS, .dtype = DEFT_F32, .parameters = parameters};
    if (deft_tensor_add(rt, &tensor, &id, &error) != DEFT_OK ||
        deft_commit(rt, &error) != DEFT_OK || train(rt, id, parameters, &error) != DEFT_OK) {
        goto done;
    }
    deft_stats(rt, &stats);
    if (stats.iterations != N_ITERATIONS || stats.updates != N_ITERATIONS ||
        memcmp(parameters, expected, sizeof expected) != 0) {
        (void)fprintf(stderr, "%llu iterations, %llu updates, first parameter %g\n",
                      (unsigned long long)stats.iterations, (unsigned long long)stats.updates,
                      (double)parameters[0]);
        goto done;
    }
    (void)printf("deft %s\n", deft_version());
    result = 0;
done:
    if (error.status != DEFT_OK) {
        (void)fprintf(stderr, "%s: %s\n", deft_status_name(error.status), error.text);
    }
    deft_close(rt);
    return result;
}
