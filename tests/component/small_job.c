#include "small_job.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "testing.h"

#define N_TENSORS SMALL_JOB_TENSORS

static const uint64_t tensor_sizes[N_TENSORS] = {7, 64, 1, 130, 3, 31};
static const enum deft_dtype tensor_types[N_TENSORS] = {DEFT_F32, DEFT_F32, DEFT_F32,
                                                        DEFT_F64, DEFT_F64, DEFT_F32};

/* --- logs ------------------------------------------------------------------------------------- */

void small_job_init(struct small_job *out, int32_t n_ranks, uint32_t max_steps) {
    memset(out, 0, sizeof(*out));
    out->n_ranks = n_ranks;
    out->max_steps = max_steps;
    for (int32_t r = 0; r < n_ranks; r++) {
        struct small_job_log *log = &out->logs[r];
        log->anchors = calloc(max_steps, sizeof(*log->anchors));
        log->parameters = calloc(max_steps, sizeof(*log->parameters));
        log->plans = calloc(max_steps, sizeof(*log->plans));
        log->hashes = calloc(max_steps, sizeof(*log->hashes));
        log->ends = calloc(max_steps, sizeof(*log->ends));
        log->all = calloc(max_steps, sizeof(*log->all));
        assert_true(log->anchors != NULL && log->parameters != NULL && log->plans != NULL &&
                    log->hashes != NULL && log->ends != NULL && log->all != NULL);
    }
}

void small_job_done(struct small_job *job) {
    for (int32_t r = 0; r < job->n_ranks; r++) {
        struct small_job_log *log = &job->logs[r];
        free(log->anchors);
        free(log->parameters);
        free(log->plans);
        free(log->hashes);
        free(log->ends);
        free(log->all);
    }
}

void small_job_check_alike(const struct small_job *job) {
    const struct small_job_log *first = &job->logs[0];
    size_t n_bytes = first->n_iterations * sizeof(uint64_t);
    for (int32_t r = 0; r < job->n_ranks; r++) {
        const struct small_job_log *log = &job->logs[r];
        assert_int_equal(log->n_iterations, first->n_iterations);
        assert_true(log->n_checked > 0 || !job->sums_in_rank_order);
        assert_memory_equal(log->anchors, first->anchors, n_bytes);
        assert_memory_equal(log->plans, first->plans, n_bytes);
        assert_memory_equal(log->hashes, first->hashes, n_bytes);
        for (uint64_t i = 0; i < log->n_iterations; i++) {
            int drained = (log->all[i].flags & IPC_ITERATION_DRAINED) != 0;
            assert_true(!drained || log->parameters[i] == first->parameters[i]);
            assert_int_equal(log->ends[i].stop_agreed, first->ends[i].stop_agreed);
            assert_int_equal(log->ends[i].drain_agreed, first->ends[i].drain_agreed);
        }
    }
}

/* --- plans ------------------------------------------------------------------------------------ */

static struct dsched_table small_table(void) {
    static const uint8_t types[N_TENSORS] = {0, 0, 0, 1, 1, 0};
    return (struct dsched_table){.n_tensors = N_TENSORS, .elements = tensor_sizes, .dtypes = types};
}

/* Cuts the gradient space at random; `whole` cuts only between tensors. */
static uint32_t small_cuts(uint64_t *random, int whole, uint64_t *cuts) {
    uint64_t place = 0;
    uint32_t n = 0;
    for (uint32_t i = N_TENSORS; i-- > 0;) {
        uint64_t end = place + tensor_sizes[i];
        int must = i > 0 && tensor_types[i] != tensor_types[i - 1];
        for (uint64_t e = place + 1; e < end && !whole; e++) {
            if (testing_random_below(random, 40) == 0) {
                cuts[n++] = e;
            }
        }
        if (i == 0 || must || testing_random_below(random, 2) == 0) {
            cuts[n++] = end;
        }
        place = end;
    }
    return n;
}

static void small_ops(uint64_t *random, struct dsched_plan *plan, uint32_t n_links, int per_bucket,
                      uint32_t max_delay) {
    for (uint32_t g = 0; g < plan->n_generations; g++) {
        uint8_t shared = (uint8_t)testing_random_below(random, max_delay + 1);
        for (uint32_t b = 0; b < plan->n_buckets; b++) {
            struct dsched_op *op = &plan->ops[(size_t)g * plan->n_buckets + b];
            op->link = (uint8_t)testing_random_below(random, n_links);
            op->delay = per_bucket ? (uint8_t)testing_random_below(random, max_delay + 1) : shared;
        }
    }
}

void small_job_plan(uint64_t *random, enum dsched_rule rule, uint32_t n_links,
                    struct dsched_plan *out) {
    struct dsched_table table = small_table();
    for (;;) {
        uint64_t cuts[SMALL_JOB_ELEMENTS + 1];
        int merges = rule == DSCHED_DELAYED || rule == DSCHED_AVERAGED;
        int per_bucket = rule != DSCHED_EXACT && testing_random_below(random, 2) == 0;
        uint32_t n = small_cuts(random, per_bucket && rule != DSCHED_AVERAGED, cuts);
        uint32_t n_generations = merges ? 1 + (uint32_t)testing_random_below(random, 3) : 1;
        uint32_t max_delay = rule == DSCHED_EXACT ? 0 : rule == DSCHED_LOOKAHEAD ? 1 : 5;
        assert_int_equal(dsched_plan_init(out, n, n_generations), DSCHED_OK);
        out->rule = rule;
        out->n_links = n_links;
        for (uint32_t b = 0; b < n; b++) {
            out->buckets[b].begin = b == 0 ? 0 : cuts[b - 1];
            out->buckets[b].end = cuts[b];
        }
        for (uint32_t g = 0; g < n_generations; g++) {
            out->merge[g] = merges ? (uint16_t)(1 + testing_random_below(random, 4)) : 1;
        }
        small_ops(random, out, n_links, per_bucket, max_delay);
        if (dsched_plan_validate(out, &table, n_links, NULL) == DSCHED_OK) {
            return;
        }
        dsched_plan_done(out);
    }
}

void small_job_offer(struct small_job_rank *rank, uint64_t seq, const struct dsched_plan *plan,
                     double max_loss, double max_grad_sq) {
    struct deft_error error = {.text = ""};
    const struct ipc_plan head = {.seq = seq,
                                  .hash = dsched_plan_hash(plan),
                                  .max_loss = max_loss,
                                  .max_grad_sq = max_grad_sq};
    size_t n_bytes = dsched_plan_encode(plan, NULL, 0);
    uint8_t *bytes = malloc(n_bytes);
    WORLD_CHECK(rank->self, bytes != NULL, "no memory");
    (void)dsched_plan_encode(plan, bytes, n_bytes);
    WORLD_CHECK(rank->self,
                admission_offer(rank->self->rt, &head, bytes, n_bytes, &error) == DEFT_OK, "%s",
                error.text);
    free(bytes);
}

/* --- one rank's training ---------------------------------------------------------------------- */

static double load(uint32_t tensor, const void *data, uint64_t i) {
    return tensor_types[tensor] == DEFT_F32 ? (double)((const float *)data)[i]
                                            : ((const double *)data)[i];
}

static void store(uint32_t tensor, void *data, uint64_t i, double value) {
    if (tensor_types[tensor] == DEFT_F32) {
        ((float *)data)[i] = (float)value;
    } else {
        ((double *)data)[i] = value;
    }
}

/* Each rank pulls towards a point of its own, with noise: ranks disagree, averages do not. */
static double gradient_of(int32_t rank, uint64_t iteration, uint32_t tensor, uint64_t i, double w) {
    uint64_t x =
        (uint64_t)rank * 7919 + iteration * 104729 + (uint64_t)tensor * 1299709 + i * 31 + 1;
    double noise = (double)(testing_random(&x) >> 40) / 16777216.0 - 0.5;
    return 0.2 * (w - (double)rank) + noise;
}

static void compute(struct small_job_rank *rank) {
    struct deft_runtime *rt = rank->self->rt;
    const struct small_job *job = rank->job;
    deft_forward_begin(rt);
    deft_loss(rt, job->loss == NULL ? 1.0 : job->loss(job, rank->self->rank, rank->iteration));
    deft_backward_begin(rt);
    for (uint32_t n = 0; n < N_TENSORS; n++) {
        uint32_t t = N_TENSORS - 1 - n;
        if (rank->iteration % 5 == 3) { /* readiness order need not be the registration's */
            t = n;
        }
        for (uint64_t i = 0; i < tensor_sizes[t]; i++) {
            store(t, rank->gradient[t], i,
                  gradient_of(rank->self->rank, rank->iteration, t, i, load(t, rank->w[t], i)));
        }
        WORLD_CHECK(rank->self, deft_grad_ready(rt, t, rank->gradient[t]) == DEFT_OK,
                    "gradient %u was not taken", t);
    }
}

static int same_bits(double a, double b) {
    uint64_t x, y;
    memcpy(&x, &a, sizeof(x));
    memcpy(&y, &b, sizeof(y));
    return x == y;
}

/* Parameters are equal on all ranks under exact, so the reference can be computed by each. */
static void check_exact(struct small_job_rank *rank, const struct deft_update *update) {
    double share = 1.0 / (double)rank->job->n_ranks;
    for (uint32_t t = 0; t < N_TENSORS; t++) {
        WORLD_CHECK(rank->self, update->gradients[t] != NULL, "exact without tensor %u", t);
        for (uint64_t i = 0; i < tensor_sizes[t]; i++) {
            double w = load(t, rank->w[t], i);
            double expected = 0;
            for (int32_t r = 0; r < rank->job->n_ranks; r++) {
                double g = gradient_of(r, rank->iteration, t, i, w);
                if (tensor_types[t] == DEFT_F32) {
                    float part = (float)g * (float)share;
                    expected = r == 0 ? (double)part : (double)((float)expected + part);
                } else {
                    expected = r == 0 ? g * share : expected + g * share;
                }
            }
            double got = load(t, update->gradients[t], i);
            WORLD_CHECK(rank->self, same_bits(got, expected),
                        "iteration %llu tensor %u element %llu: %.17g, reference %.17g",
                        (unsigned long long)rank->iteration, t, (unsigned long long)i, got,
                        expected);
        }
    }
    rank->log->n_checked++;
}

static void optimizer(struct small_job_rank *rank, const struct deft_update *update) {
    for (uint32_t t = 0; t < N_TENSORS; t++) {
        if (update->gradients[t] == NULL) {
            continue;
        }
        for (uint64_t i = 0; i < tensor_sizes[t]; i++) {
            double v = 0.5 * rank->velocity[t][i] + load(t, update->gradients[t], i);
            if (update->action == DEFT_APPLY) {
                rank->velocity[t][i] = v;
            }
            store(t, rank->w[t], i, load(t, rank->w[t], i) - 0.05 * v);
        }
    }
}

void small_job_step(struct small_job_rank *rank) {
    struct deft_runtime *rt = rank->self->rt;
    struct small_job_log *log = rank->log;
    struct deft_error error = {.text = ""};
    struct deft_update update;
    uint64_t at = rank->iteration;
    enum dsched_rule rule = rt->engine->plan.rule;
    log->plans[at] = rt->engine->seq;
    log->hashes[at] = rt->engine->hash;
    compute(rank);
    do {
        WORLD_CHECK(rank->self, deft_step(rt, &update, &error) == DEFT_OK, "%s", error.text);
        if (update.action == DEFT_APPLY && rule == DSCHED_EXACT && rank->job->sums_in_rank_order) {
            check_exact(rank, &update);
        }
        if (update.action != DEFT_DONE) {
            optimizer(rank, &update);
        }
    } while (update.action != DEFT_DONE);
    log->anchors[at] = deft_anchor_hash(rt);
    log->parameters[at] = small_job_hash(rank);
    log->ends[at] = update;
    log->all[at] = rt->finished;
    log->n_iterations = ++rank->iteration;
    WORLD_CHECK(rank->self, rank->iteration < rank->job->max_steps, "the ranks never agree");
}

void small_job_drain(struct small_job_rank *rank) {
    struct deft_error error = {.text = ""};
    struct deft_update update;
    do {
        WORLD_CHECK(rank->self, deft_drain(rank->self->rt, &update, &error) == DEFT_OK, "%s",
                    error.text);
        if (update.action == DEFT_APPLY) {
            optimizer(rank, &update);
        }
    } while (update.action != DEFT_DONE);
}

uint64_t small_job_hash(const struct small_job_rank *rank) {
    uint64_t hash = RUNTIME_HASH_START;
    for (uint32_t t = 0; t < N_TENSORS; t++) {
        hash =
            runtime_hash(hash, rank->w[t], tensor_sizes[t] * (tensor_types[t] == DEFT_F32 ? 4 : 8));
    }
    return hash;
}

static void add_tensor(struct small_job_rank *rank, uint32_t t) {
    struct deft_runtime *rt = rank->self->rt;
    struct deft_error error = {.text = ""};
    char name[16];
    uint32_t id;
    rank->w[t] = calloc(tensor_sizes[t], sizeof(double));
    rank->gradient[t] = calloc(tensor_sizes[t], sizeof(double));
    rank->velocity[t] = calloc(tensor_sizes[t], sizeof(double));
    for (uint64_t i = 0; i < tensor_sizes[t]; i++) { /* rank 0's must win */
        store(t, rank->w[t], i, (double)rank->self->rank + (double)i / 10);
    }
    (void)snprintf(name, sizeof(name), "t%u", t);
    struct deft_tensor tensor = {.name = name,
                                 .elements = tensor_sizes[t],
                                 .dtype = tensor_types[t],
                                 .parameters = rank->w[t]};
    WORLD_CHECK(rank->self, deft_tensor_add(rt, &tensor, &id, &error) == DEFT_OK, "%s", error.text);
    WORLD_CHECK(rank->self,
                deft_state_add(rt, rank->velocity[t], tensor_sizes[t], DEFT_F64, &error) == DEFT_OK,
                "%s", error.text);
}

void small_job_start(struct small_job_rank *rank, struct world_rank *self) {
    struct deft_error error = {.text = ""};
    struct small_job *job = self->world->shared;
    *rank = (struct small_job_rank){.self = self, .job = job, .log = &job->logs[self->rank]};
    for (uint32_t t = 0; t < N_TENSORS; t++) {
        add_tensor(rank, t);
    }
    WORLD_CHECK(self, deft_commit(self->rt, &error) == DEFT_OK, "%s", error.text);
}

void small_job_end(struct small_job_rank *rank) {
    for (uint32_t t = 0; t < N_TENSORS; t++) {
        free(rank->w[t]);
        free(rank->gradient[t]);
        free(rank->velocity[t]);
    }
}
