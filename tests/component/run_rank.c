/* A rank of a small job through libdeft, for tests of `deft run`: run_rank ITERATIONS
 *
 * Prints "ready" after the commit and "done" at the end. The parameters follow plain SGD. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include <deft/deft.h>

#define RUN_RANK_TENSORS  4u
#define RUN_RANK_ELEMENTS 65536u

static float parameters[RUN_RANK_TENSORS][RUN_RANK_ELEMENTS];
static float gradients[RUN_RANK_TENSORS][RUN_RANK_ELEMENTS];

static void run_rank_move(const struct deft_update *update) {
    for (uint32_t id = 0; id < RUN_RANK_TENSORS; id++) {
        const float *gradient = update->gradients[id];
        for (uint32_t i = 0; gradient != NULL && i < RUN_RANK_ELEMENTS; i++) {
            parameters[id][i] -= 0.01f * gradient[i];
        }
    }
}

/* The gradient of |w - 1|^2 / 2, whose loss falls. */
static double run_rank_gradient(uint32_t id) {
    double loss = 0;
    for (uint32_t i = 0; i < RUN_RANK_ELEMENTS; i++) {
        float difference = parameters[id][i] - 1.0f;
        gradients[id][i] = difference;
        loss += (double)(difference * difference);
    }
    return loss / RUN_RANK_ELEMENTS;
}

static enum deft_status run_rank_finish(struct deft_runtime *rt, int drain,
                                        struct deft_update *update, struct deft_error *error) {
    enum deft_status status;
    do {
        status = drain ? deft_drain(rt, update, error) : deft_step(rt, update, error);
        if (status == DEFT_OK && update->action != DEFT_DONE) {
            run_rank_move(update);
        }
    } while (status == DEFT_OK && update->action != DEFT_DONE);
    return status;
}

static enum deft_status run_rank_train(struct deft_runtime *rt, uint64_t n_iterations,
                                       struct deft_error *error) {
    struct deft_update update = {0};
    enum deft_status status = DEFT_OK;
    for (uint64_t t = 0; t < n_iterations && status == DEFT_OK && !update.stop_agreed; t++) {
        double loss = 0;
        deft_forward_begin(rt);
        for (uint32_t id = 0; id < RUN_RANK_TENSORS; id++) {
            loss += run_rank_gradient(id);
        }
        deft_loss(rt, loss);
        deft_backward_begin(rt);
        for (uint32_t id = RUN_RANK_TENSORS; id-- > 0 && status == DEFT_OK;) {
            status = deft_grad_ready(rt, id, gradients[id]);
        }
        if (status == DEFT_OK) {
            status = run_rank_finish(rt, 0, &update, error);
        }
    }
    return status == DEFT_OK ? run_rank_finish(rt, 1, &update, error) : status;
}

static enum deft_status run_rank_commit(struct deft_runtime *rt, struct deft_error *error) {
    static const char *const names[RUN_RANK_TENSORS] = {"a", "b", "c", "d"};
    for (uint32_t i = 0; i < RUN_RANK_TENSORS; i++) {
        uint32_t id;
        const struct deft_tensor tensor = {
            .name = names[i], .elements = RUN_RANK_ELEMENTS, .parameters = parameters[i]};
        enum deft_status status = deft_tensor_add(rt, &tensor, &id, error);
        if (status != DEFT_OK) {
            return status;
        }
    }
    return deft_commit(rt, error);
}

int main(int argc, char **argv) {
    struct deft_options options;
    struct deft_runtime *rt = NULL;
    struct deft_error error = {0};
    uint64_t n_iterations = argc == 2 ? strtoull(argv[1], NULL, 10) : 0;
    enum deft_status status = deft_options_init(&options, &error);
    if (status == DEFT_OK) {
        options.capabilities = DEFT_CAN_PREVIEW | DEFT_CAN_SKIP;
        options.optimizer = DEFT_OPT_SGD;
        options.learning_rate = 0.01;
        status = deft_open(&options, &rt, &error);
    }
    if (status == DEFT_OK) {
        status = run_rank_commit(rt, &error);
    }
    if (status == DEFT_OK) {
        (void)puts("ready");
        (void)fflush(stdout);
        status = run_rank_train(rt, n_iterations, &error);
    }
    deft_close(rt);
    (void)printf("%s\n", status == DEFT_OK ? "done" : error.text);
    return status == DEFT_OK ? 0 : 1;
}
