/* deft-train: data-parallel training of a small network, and all it takes to use libdeft from C.
 * Read train_loop.c for the loop and sync_deft.c for the calls. */
#include <cblas.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/streams.h"
#include "data.h"
#include "mlp.h"
#include "optimizer.h"
#include "stop_signal.h"
#include "sync.h"
#include "train_device.h"
#include "train_loop.h"
#include "train_options.h"
#include "train_report.h"

#define EXIT_SIGNAL_BASE 128 /* as shells report an end by a signal */

struct trainer {
    struct train_options options;
    struct deft_options deft;
    struct data_set training;
    struct data_set test;
    struct mlp mlp;
    struct optimizer optimizer;
    struct train_report report;
    struct sync *sync;
};

static void trainer_done(struct trainer *trainer) {
    stop_signal_remove();
    if (trainer->sync != NULL) {
        trainer->sync->ops->close(trainer->sync);
    }
    train_report_done(&trainer->report);
    optimizer_done(&trainer->optimizer);
    mlp_done(&trainer->mlp);
    data_done(&trainer->test);
    data_done(&trainer->training);
}

static bool is_set(const char *variable) {
    const char *value = getenv(variable);
    return value != NULL && value[0] != '\0';
}

static enum deft_status describe_to_deft(struct trainer *trainer, struct deft_error *error) {
    const struct train_options *o = &trainer->options;
    enum deft_status status = deft_options_init(&trainer->deft, error);

    if (status == DEFT_OK) {
        trainer->deft.capabilities = DEFT_CAN_PREVIEW | DEFT_CAN_SKIP | DEFT_CAN_AVERAGE;
        trainer->deft.optimizer =
            o->optimizer.kind == OPTIMIZER_ADAMW ? DEFT_OPT_ADAMW : DEFT_OPT_SGD;
        trainer->deft.momentum =
            (double)(o->optimizer.kind == OPTIMIZER_ADAMW ? o->optimizer.beta1
                                                          : o->optimizer.momentum);
        trainer->deft.learning_rate = o->learning_rate;
        trainer->deft.batch_per_rank = o->batch;
        if (o->device != NULL) {
            trainer->deft.device = o->device;
        }
        if (train_device_is_cuda(trainer->deft.device) && !is_set("DEFT_LINKS")) {
            trainer->deft.links = "nccl"; /* as in PyTorch; Gloo takes its place where it is not */
        }
    }
    return status;
}

static enum deft_status load(struct trainer *trainer, struct deft_error *error) {
    const struct train_options *o = &trainer->options;
    struct mlp_shape shape = {
        .n_inputs = DATA_N_PIXELS,
        .width = o->width,
        .depth = o->depth,
        .n_classes = DATA_N_CLASSES,
        .max_batch = o->batch,
    };
    enum deft_status status = data_open(o->data_dir, "train", &trainer->training, error);

    if (status == DEFT_OK) {
        status = data_open(o->data_dir, "t10k", &trainer->test, error);
    }
    if (status == DEFT_OK) {
        status = mlp_init(&trainer->mlp, &shape, error);
    }
    if (status == DEFT_OK) {
        mlp_randomise(&trainer->mlp, o->seed);
        status = optimizer_init(&trainer->optimizer, &o->optimizer, &trainer->mlp, error);
    }
    return status;
}

/* Each rank its own file: rank 0 `file`, the others `file`.RANK. */
static enum deft_status open_result(const struct trainer *trainer, const char *file,
                                    const char *mode, FILE **out, struct deft_error *error) {
    int32_t rank = trainer->deft.rank;
    char path[4096]; /* PATH_MAX of Linux */
    int n = rank == 0 ? snprintf(path, sizeof(path), "%s", file)
                      : snprintf(path, sizeof(path), "%s.%d", file, rank);

    if (n < 0 || (size_t)n >= sizeof(path)) {
        return deft_fail(error, DEFT_LIMIT, 0, "the name of a result is longer than %zu bytes",
                         sizeof(path));
    }
    *out = fopen(path, mode);
    if (*out == NULL) {
        int code = errno;
        return deft_fail(error, DEFT_IO, code, "%s cannot be written: %s", path, strerror(code));
    }
    return DEFT_OK;
}

static enum deft_status write_file(const struct trainer *trainer, const char *file,
                                   train_report_writer writer, const struct train_outcome *outcome,
                                   struct deft_error *error) {
    FILE *stream = NULL;
    enum deft_status status = open_result(trainer, file, "we", &stream, error);

    if (status == DEFT_OK) {
        status = writer(&trainer->report, outcome, stream, error);
        if (fclose(stream) != 0 && status == DEFT_OK) {
            int code = errno;
            status =
                deft_fail(error, DEFT_IO, code, "%s cannot be written: %s", file, strerror(code));
        }
    }
    return status;
}

/* A name that leads nowhere is told before the training, not behind it. What was there stays. */
static enum deft_status check_results(const struct trainer *trainer, struct deft_error *error) {
    const char *const files[] = {trainer->options.steps_file, trainer->options.json_file};
    enum deft_status status = DEFT_OK;

    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]) && status == DEFT_OK; i++) {
        FILE *stream = NULL;
        if (files[i] != NULL) {
            status = open_result(trainer, files[i], "ae", &stream, error);
        }
        if (stream != NULL) {
            (void)fclose(stream);
        }
    }
    return status;
}

static enum deft_status write_results(const struct trainer *trainer,
                                      const struct train_outcome *outcome,
                                      struct deft_error *error) {
    const struct train_options *o = &trainer->options;
    enum deft_status status = DEFT_OK;

    if (o->steps_file != NULL) {
        status = write_file(trainer, o->steps_file, train_report_steps, outcome, error);
    }
    if (status == DEFT_OK && o->json_file != NULL) {
        return write_file(trainer, o->json_file, train_report_json, outcome, error);
    }
    if (status == DEFT_OK && o->json && trainer->deft.rank == 0) {
        return train_report_json(&trainer->report, outcome, stdout, error);
    }
    return status;
}

/* What was asked for and is not used, once for all ranks. */
static void tell_notice(const struct trainer *trainer) {
    const struct sync_ops *ops = trainer->sync->ops;
    if (trainer->deft.rank == 0 && ops->notice != NULL && ops->notice(trainer->sync)[0] != '\0') {
        (void)fprintf(stderr, "deft-train: %s\n", ops->notice(trainer->sync));
    }
}

static enum deft_status train(struct trainer *trainer, struct deft_error *error) {
    const struct train_options *o = &trainer->options;
    struct train_loop loop = {
        .options = o,
        .mlp = &trainer->mlp,
        .optimizer = &trainer->optimizer,
        .training = &trainer->training,
        .test = &trainer->test,
        .report = &trainer->report,
        .rank = (uint32_t)trainer->deft.rank,
        .n_ranks = (uint32_t)trainer->deft.n_ranks,
    };
    struct sync_model model = {
        .mlp = &trainer->mlp,
        .optimizer = &trainer->optimizer,
        .gradients_only = o->gradients_only,
    };
    struct train_outcome outcome;
    enum deft_status status = train_loop_iterations(o, trainer->training.n_images, loop.n_ranks,
                                                    &loop.n_iterations, error);

    if (status == DEFT_OK) {
        status = train_report_init(&trainer->report, o->n_epochs, loop.n_iterations,
                                   trainer->deft.rank, trainer->deft.n_ranks, error);
    }
    if (status == DEFT_OK) {
        status = o->sync->open(&trainer->deft, &model, &trainer->sync, error);
    }
    if (status == DEFT_OK) {
        loop.sync = trainer->sync;
        tell_notice(trainer);
        stop_signal_install(trainer->sync);
        status = train_loop_run(&loop, &outcome, error);
    }
    if (status == DEFT_OK) {
        status = train_report_table(&trainer->report, &outcome, error);
    }
    if (status == DEFT_OK) {
        status = write_results(trainer, &outcome, error);
    }
    return status;
}

int main(int argc, char **argv) {
    struct trainer trainer = {0};
    struct deft_error error = {0};
    enum deft_status status;

    streams_begin("deft-train");
    train_options_parse(argc, argv, &trainer.options);
    openblas_set_num_threads((int)trainer.options.n_threads);
    status = describe_to_deft(&trainer, &error);
    if (status == DEFT_OK) {
        status = check_results(&trainer, &error);
    }
    if (status == DEFT_OK) {
        status = load(&trainer, &error);
    }
    if (status == DEFT_OK) {
        status = train(&trainer, &error);
    }
    trainer_done(&trainer);
    if (status != DEFT_OK) {
        (void)fprintf(stderr, "deft-train: rank %d: %s\n", trainer.deft.rank, error.text);
        return EXIT_FAILURE;
    }
    return stop_signal_received() != 0 ? EXIT_SIGNAL_BASE + stop_signal_received() : EXIT_SUCCESS;
}
