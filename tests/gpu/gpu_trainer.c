/* deft-train's loop on the stand-in, two ranks that are threads: under every update rule and with
 * either optimizer the parameters and the optimizer's state must come to what they come to in host
 * memory, bit for bit. */
#include <arpa/inet.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <dsched/plan.h>

#include "link/mem_fabric.h"
#include "standin.h"
#include "testing.h"
#include "train_loop.h"

#define N_RANKS      2
#define N_TRAINING   192u
#define N_TEST       16u
#define N_BYTES_PLAN 4096u

/* What the ranks of one run share. */
struct run {
    const char *device;
    const char *links;
    const struct dsched_plan *plan;
    enum optimizer_kind kind;
    bool gradients_only;
    uint32_t n_iterations;
    struct data_set training;
    struct data_set test;
    int listener; /* rank 0's */
    uint16_t port;
};

struct rank {
    struct run *run;
    int32_t number;
    struct mlp mlp;
    struct optimizer optimizer;
    struct train_outcome outcome;
    enum deft_status status;
    struct deft_error error;
};

/* --- a job ------------------------------------------------------------------------------------ */

static void make_samples(struct data_set *set, uint32_t n, uint64_t *random) {
    set->n_images = n;
    set->pixels = malloc((size_t)n * DATA_N_PIXELS);
    set->labels = malloc(n);
    assert_non_null(set->pixels);
    assert_non_null(set->labels);
    for (size_t i = 0; i < (size_t)n * DATA_N_PIXELS; i++) {
        set->pixels[i] = (uint8_t)testing_random(random);
    }
    for (uint32_t i = 0; i < n; i++) {
        set->labels[i] = (uint8_t)testing_random_below(random, DATA_N_CLASSES);
    }
}

static void make_listener(struct run *run) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n_bytes = sizeof(address);
    run->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(run->listener >= 0);
    assert_int_equal(bind(run->listener, (struct sockaddr *)&address, n_bytes), 0);
    assert_int_equal(listen(run->listener, N_RANKS), 0);
    assert_int_equal(getsockname(run->listener, (struct sockaddr *)&address, &n_bytes), 0);
    run->port = ntohs(address.sin_port);
}

static enum deft_status describe(const struct rank *rank, uint8_t *plan, struct deft_options *out,
                                 struct deft_error *error) {
    const struct run *run = rank->run;
    enum deft_status status = deft_options_init(out, error);
    out->rank = rank->number;
    out->n_ranks = N_RANKS;
    out->job_id = "gpu_trainer";
    out->master_host = "127.0.0.1";
    out->master_port = run->port;
    out->master_fd = rank->number == 0 ? run->listener : -1;
    out->links = run->links;
    out->device = run->device;
    out->agent_socket = "";
    out->capabilities = DEFT_CAN_PREVIEW | DEFT_CAN_SKIP | DEFT_CAN_AVERAGE;
    out->op_timeout_ns = testing_deadline_ns(60);
    out->first_plan = plan;
    out->first_plan_bytes = dsched_plan_encode(run->plan, plan, N_BYTES_PLAN);
    return status;
}

static enum deft_status train(struct rank *rank) {
    const struct run *run = rank->run;
    struct train_options options = {.n_epochs = 100,
                                    .batch = 8,
                                    .learning_rate = 0.01,
                                    .seed = 1,
                                    .sync = &sync_deft,
                                    .gradients_only = run->gradients_only};
    struct train_report report = {0};
    struct train_loop loop = {.options = &options,
                              .mlp = &rank->mlp,
                              .optimizer = &rank->optimizer,
                              .training = &run->training,
                              .test = &run->test,
                              .report = &report,
                              .rank = (uint32_t)rank->number,
                              .n_ranks = N_RANKS,
                              .n_iterations = run->n_iterations};
    struct sync_model model = {
        .mlp = &rank->mlp, .optimizer = &rank->optimizer, .gradients_only = run->gradients_only};
    uint8_t plan[N_BYTES_PLAN];
    struct deft_options deft;
    enum deft_status status = describe(rank, plan, &deft, &rank->error);
    if (status == DEFT_OK) {
        status = train_report_init(&report, options.n_epochs, run->n_iterations, rank->number,
                                   N_RANKS, &rank->error);
        report.quiet = true;
    }
    if (status == DEFT_OK) {
        status = sync_deft.open(&deft, &model, &loop.sync, &rank->error);
    }
    if (status == DEFT_OK) {
        status = train_loop_run(&loop, &rank->outcome, &rank->error);
        sync_deft.close(loop.sync);
    }
    train_report_done(&report);
    return status;
}

static void *run_rank(void *argument) {
    struct rank *rank = argument;
    rank->status = train(rank);
    return NULL;
}

static void make_rank(struct rank *rank, struct run *run, int32_t number) {
    struct mlp_shape shape = {.n_inputs = DATA_N_PIXELS,
                              .width = 13,
                              .depth = 1,
                              .n_classes = DATA_N_CLASSES,
                              .max_batch = 8};
    struct optimizer_options options;
    optimizer_defaults(&options);
    options.kind = run->kind;
    memset(rank, 0, sizeof(*rank));
    rank->run = run;
    rank->number = number;
    assert_int_equal(mlp_init(&rank->mlp, &shape, NULL), DEFT_OK);
    mlp_randomise(&rank->mlp, 1 + (uint64_t)(run->gradients_only ? 0 : number));
    assert_int_equal(optimizer_init(&rank->optimizer, &options, &rank->mlp, NULL), DEFT_OK);
}

static void destroy_ranks(struct rank *ranks) {
    for (int32_t r = 0; r < N_RANKS; r++) {
        optimizer_done(&ranks[r].optimizer);
        mlp_done(&ranks[r].mlp);
    }
}

static void train_on(const char *device, const char *links, struct run *run, struct rank *ranks) {
    pthread_t threads[N_RANKS];
    run->device = device;
    run->links = links;
    make_listener(run);
    for (int32_t r = 0; r < N_RANKS; r++) {
        make_rank(&ranks[r], run, r);
    }
    for (int32_t r = 0; r < N_RANKS; r++) {
        assert_int_equal(pthread_create(&threads[r], NULL, run_rank, &ranks[r]), 0);
    }
    for (int32_t r = 0; r < N_RANKS; r++) {
        assert_int_equal(pthread_join(threads[r], NULL), 0);
        assert_string_equal(ranks[r].error.text, "");
        assert_int_equal(ranks[r].status, DEFT_OK);
    }
}

/* --- both ways -------------------------------------------------------------------------------- */

static uint32_t bits_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static void check_equal(const struct mlp *mlp, const float *a, const float *b, const char *what) {
    for (uint64_t i = 0; i < mlp->n_parameters; i++) {
        if (bits_of(a[i]) != bits_of(b[i])) {
            fail_msg("%s, element %llu: %.9g on the device, %.9g on the host", what,
                     (unsigned long long)i, (double)a[i], (double)b[i]);
        }
    }
}

static void check_rank(const struct rank *device, const struct rank *host) {
    check_equal(&host->mlp, device->mlp.parameters, host->mlp.parameters, "parameters");
    check_equal(&host->mlp, device->optimizer.first, host->optimizer.first, "first moment");
    if (host->optimizer.second != NULL) {
        check_equal(&host->mlp, device->optimizer.second, host->optimizer.second, "second moment");
    }
    assert_true(device->outcome.parameters_hash == host->outcome.parameters_hash);
    assert_true(device->outcome.stats.updates == host->outcome.stats.updates);
    assert_true(device->outcome.stats.updates > 0);
    assert_string_equal(device->outcome.stats.rule, host->outcome.stats.rule);
}

/* Over NCCL, and over pinned memory. */
static void check_both_ways(struct run *run) {
    struct mem_fabric *fabrics[2] = {NULL, NULL};
    struct rank host[N_RANKS];
    struct rank device[N_RANKS];
    standin_reset();
    for (int i = 0; i < 2; i++) {
        assert_int_equal(mem_fabric_create(N_RANKS, NULL, &fabrics[i], NULL), DEFT_OK);
    }
    const char *links[] = {"nccl", mem_fabric_link(fabrics[1])};
    train_on("cpu", mem_fabric_link(fabrics[0]), run, host);
    assert_true(standin_calls("cudaMemcpyAsync") == 0);
    for (int i = 0; i < 2; i++) {
        train_on("cuda", links[i], run, device);
        assert_string_equal(standin_violation(), "");
        for (int32_t r = 0; r < N_RANKS; r++) {
            check_rank(&device[r], &host[r]);
        }
        destroy_ranks(device);
    }
    assert_true(standin_calls("ncclAllReduce") > 0);
    assert_true(standin_calls("cudaMalloc") == standin_calls("cudaFree"));
    destroy_ranks(host);
    for (int i = 0; i < 2; i++) {
        mem_fabric_destroy(fabrics[i]);
    }
}

static void check_rule(enum dsched_rule rule, uint16_t merge, uint8_t delay, bool gradients_only) {
    struct dsched_plan plan;
    uint64_t random = testing_seed();
    struct run run = {.plan = &plan, .n_iterations = 17, .gradients_only = gradients_only};
    make_samples(&run.training, N_TRAINING, &random);
    make_samples(&run.test, N_TEST, &random);
    assert_int_equal(dsched_plan_init(&plan, 2, 1), DSCHED_OK);
    plan.rule = rule;
    plan.n_links = 1;
    plan.merge[0] = merge;
    plan.ops[0].delay = delay;
    plan.ops[1].delay = delay;
    plan.buckets[0].end = plan.buckets[1].begin = 150; /* within a tensor */
    plan.buckets[1].end = DATA_N_PIXELS * 13 + 13 + 13 * DATA_N_CLASSES + DATA_N_CLASSES;
    for (int kind = OPTIMIZER_SGD; kind <= OPTIMIZER_ADAMW; kind++) {
        run.kind = (enum optimizer_kind)kind;
        check_both_ways(&run);
    }
    dsched_plan_done(&plan);
    data_done(&run.training);
    data_done(&run.test);
}

static void exact_comes_to_the_same(void **state) {
    (void)state;
    check_rule(DSCHED_EXACT, 1, 0, false);
}

static void delayed_comes_to_the_same(void **state) {
    (void)state;
    check_rule(DSCHED_DELAYED, 2, 1, false);
}

static void delayed_without_parameters_comes_to_the_same(void **state) {
    (void)state;
    check_rule(DSCHED_DELAYED, 3, 2, true);
}

static void lookahead_comes_to_the_same(void **state) {
    (void)state;
    check_rule(DSCHED_LOOKAHEAD, 1, 1, false);
}

static void averaged_comes_to_the_same(void **state) {
    (void)state;
    check_rule(DSCHED_AVERAGED, 2, 1, false);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(exact_comes_to_the_same),
    cmocka_unit_test(delayed_comes_to_the_same),
    cmocka_unit_test(delayed_without_parameters_comes_to_the_same),
    cmocka_unit_test(lookahead_comes_to_the_same),
    cmocka_unit_test(averaged_comes_to_the_same),
};
TESTING_MAIN(cases)
