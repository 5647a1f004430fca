/* Every backend against plain arithmetic: sums of all types, maxima, order, failure. */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "link/link_sum.h"
#include "link/mem_fabric.h"
#include "testing.h"

#define MAX_RANKS    8
#define N_OPS        24
#define MAX_ELEMENTS 5000

/* --- ranks as threads that share an all-gather ------------------------------------------------ */

struct meeting {
    int32_t n_ranks;
    const struct link_ops *ops;
    const char *name;
    pthread_barrier_t barrier;
    uint8_t bytes[MAX_RANKS * 4096];
    uint64_t seed;
    void *inputs[N_OPS][MAX_RANKS];
    void *results[N_OPS][MAX_RANKS];
    enum link_dtype types[N_OPS];
    uint64_t elements[N_OPS];
    enum deft_status failed[MAX_RANKS];
};

struct rank {
    struct meeting *meeting;
    int32_t number;
};

static int gather(void *context, const void *in, size_t n_bytes, void *out) {
    struct rank *self = context;
    struct meeting *meeting = self->meeting;
    if (n_bytes > 4096) {
        return 1;
    }
    (void)pthread_barrier_wait(&meeting->barrier);
    memcpy(meeting->bytes + (size_t)self->number * n_bytes, in, n_bytes);
    (void)pthread_barrier_wait(&meeting->barrier);
    memcpy(out, meeting->bytes, n_bytes * (size_t)meeting->n_ranks);
    (void)pthread_barrier_wait(&meeting->barrier);
    return 0;
}

static struct link *open_link(struct rank *self) {
    struct link_world world = {.rank = self->number,
                               .n_ranks = self->meeting->n_ranks,
                               .allgather = gather,
                               .allgather_context = self,
                               .connect_timeout_ns = testing_deadline_ns(20),
                               .op_timeout_ns = testing_deadline_ns(60)};
    struct link *link = NULL;
    struct deft_error error = {.text = ""};
    if (self->meeting->ops->open(self->meeting->name, &world, &link, &error) != DEFT_OK) {
        (void)fprintf(stderr, "rank %d: %s\n", self->number, error.text);
        abort();
    }
    return link;
}

static void run(struct meeting *meeting, const char *backend, const char *name, int32_t n_ranks,
                void *(*body)(void *)) {
    pthread_t threads[MAX_RANKS];
    struct rank ranks[MAX_RANKS];
    meeting->ops = link_backend(backend);
    if (meeting->ops == NULL) {
        testing_skip("this build has no such backend");
    }
    meeting->name = name;
    meeting->n_ranks = n_ranks;
    assert_int_equal(pthread_barrier_init(&meeting->barrier, NULL, (unsigned)n_ranks), 0);
    for (int32_t r = 0; r < n_ranks; r++) {
        ranks[r] = (struct rank){.meeting = meeting, .number = r};
        assert_int_equal(pthread_create(&threads[r], NULL, body, &ranks[r]), 0);
    }
    for (int32_t r = 0; r < n_ranks; r++) {
        assert_int_equal(pthread_join(threads[r], NULL), 0);
    }
    (void)pthread_barrier_destroy(&meeting->barrier);
}

/* --- sums ------------------------------------------------------------------------------------- */

static void fill(uint64_t *random, void *data, enum link_dtype type, uint64_t n) {
    for (uint64_t i = 0; i < n; i++) {
        double value = (double)(testing_random(random) >> 11) / 9007199254740992.0 - 0.5;
        switch (type) {
        case LINK_F32:
            ((float *)data)[i] = (float)value;
            break;
        case LINK_F64:
            ((double *)data)[i] = value;
            break;
        case LINK_F16:
            ((uint16_t *)data)[i] = link_f32_to_f16((float)value);
            break;
        case LINK_BF16:
            ((uint16_t *)data)[i] = link_f32_to_bf16((float)value);
            break;
        case LINK_I64:
            ((int64_t *)data)[i] = (int64_t)testing_random(random);
            break;
        }
    }
}

static void *sum_all(void *argument) {
    struct rank *self = argument;
    struct meeting *meeting = self->meeting;
    struct link *link = open_link(self);
    struct link_op ops[N_OPS];
    memset(ops, 0, sizeof(ops));
    for (int i = 0; i < N_OPS; i++) {
        ops[i].data = meeting->results[i][self->number];
        ops[i].elements = meeting->elements[i];
        ops[i].dtype = meeting->types[i];
        ops[i].reduce = LINK_SUM;
        if (meeting->ops->post(link, &ops[i]) != DEFT_OK) {
            abort();
        }
    }
    for (int i = N_OPS - 1; i >= 0; i--) { /* waiting in any order is fine */
        if (meeting->ops->wait(link, &ops[i], INT64_MAX) != DEFT_OK || !link_test(&ops[i])) {
            abort();
        }
    }
    (void)pthread_barrier_wait(&meeting->barrier);
    if (meeting->ops->close(link) != 0) {
        abort();
    }
    return NULL;
}

static void check_sums(const char *backend, const char *name, int32_t n_ranks, int in_rank_order) {
    struct meeting *meeting = calloc(1, sizeof(*meeting));
    uint64_t random = testing_seed() + (uint64_t)n_ranks;
    assert_non_null(meeting);
    for (int i = 0; i < N_OPS; i++) {
        meeting->types[i] = (enum link_dtype)testing_random_below(&random, 4);
        meeting->elements[i] = 1 + testing_random_below(&random, MAX_ELEMENTS);
        for (int32_t r = 0; r < n_ranks; r++) {
            size_t n_bytes = meeting->elements[i] * link_dtype_bytes(meeting->types[i]);
            meeting->inputs[i][r] = malloc(n_bytes);
            meeting->results[i][r] = malloc(n_bytes);
            fill(&random, meeting->inputs[i][r], meeting->types[i], meeting->elements[i]);
            memcpy(meeting->results[i][r], meeting->inputs[i][r], n_bytes);
        }
    }
    run(meeting, backend, name, n_ranks, sum_all);
    for (int i = 0; i < N_OPS; i++) {
        size_t n_bytes = meeting->elements[i] * link_dtype_bytes(meeting->types[i]);
        for (int32_t r = 1; r < n_ranks; r++) {
            assert_memory_equal(meeting->results[i][r], meeting->results[i][0], n_bytes);
            link_sum(meeting->inputs[i][0], meeting->inputs[i][r], meeting->elements[i],
                     meeting->types[i]);
        }
        if (in_rank_order) {
            assert_memory_equal(meeting->results[i][0], meeting->inputs[i][0], n_bytes);
        } else if (meeting->types[i] == LINK_F32) {
            for (uint64_t e = 0; e < meeting->elements[i]; e++) {
                assert_true(fabsf(((float *)meeting->results[i][0])[e] -
                                  ((float *)meeting->inputs[i][0])[e]) < 1e-5f);
            }
        }
        for (int32_t r = 0; r < n_ranks; r++) {
            free(meeting->inputs[i][r]);
            free(meeting->results[i][r]);
        }
    }
    free(meeting);
}

static void mem_sums_in_rank_order(void **state) {
    (void)state;
    for (int32_t n = 1; n <= MAX_RANKS; n++) {
        struct mem_fabric *fabric = NULL;
        assert_int_equal(mem_fabric_create(n, NULL, &fabric, NULL), DEFT_OK);
        check_sums("mem", strchr(mem_fabric_link(fabric), ':') + 1, n, 1);
        mem_fabric_destroy(fabric);
    }
}

static void gloo_sums_alike_on_all_ranks(void **state) {
    (void)state;
    check_sums("gloo", "lo", 1, 1);
    check_sums("gloo", "lo", 2, 1); /* a sum of two has one order */
    check_sums("gloo", "127.0.0.1", 3, 0);
    check_sums("gloo", "lo", 5, 0);
}

/* --- maxima ----------------------------------------------------------------------------------- */

static void *max_all(void *argument) {
    struct rank *self = argument;
    struct meeting *meeting = self->meeting;
    struct link *link = open_link(self);
    for (int64_t i = 0; i < 200; i++) {
        int64_t values[8];
        for (int64_t v = 0; v < 8; v++) { /* each value's maximum is at another rank */
            values[v] = (v + i) % meeting->n_ranks == self->number ? 1000 + i : -i - self->number;
        }
        struct link_op op = {.data = values, .elements = 8, .dtype = LINK_I64, .reduce = LINK_MAX};
        if (meeting->ops->post(link, &op) != DEFT_OK ||
            meeting->ops->wait(link, &op, INT64_MAX) != DEFT_OK) {
            abort();
        }
        for (int v = 0; v < 8; v++) {
            if (values[v] != 1000 + i) {
                (void)fprintf(stderr, "rank %d op %lld: %lld\n", self->number, (long long)i,
                              (long long)values[v]);
                abort();
            }
        }
    }
    (void)pthread_barrier_wait(&meeting->barrier);
    (void)meeting->ops->close(link);
    return NULL;
}

static void gloo_maxima(void **state) {
    (void)state;
    for (int32_t n = 1; n <= MAX_RANKS; n++) {
        struct meeting *meeting = calloc(1, sizeof(*meeting));
        run(meeting, "gloo", "lo", n, max_all);
        free(meeting);
    }
}

/* --- small sums ------------------------------------------------------------------------------- */

/* Counts on both sides of where large sums begin, which go another way. The first value's sum
 * depends on the order of additions, so that ranks that add in different orders differ. */
static void *small_sums(void *argument) {
    struct rank *self = argument;
    struct meeting *meeting = self->meeting;
    struct link *link = open_link(self);
    for (uint64_t i = 0; i < 120; i++) {
        uint64_t n = 1 + i % 20;
        double values[20];
        double expected[20] = {0};
        double all[MAX_RANKS][20];
        for (int32_t r = 0; r < meeting->n_ranks; r++) {
            uint64_t random = meeting->seed + i * 31 + (uint64_t)r + 1;
            fill(&random, all[r], LINK_F64, n);
            all[r][0] *= r % 2 == 0 ? 1e15 : 1e-15;
            for (uint64_t v = 0; v < n; v++) {
                expected[v] += all[r][v];
            }
        }
        memcpy(values, all[self->number], sizeof(values));
        struct link_op op = {.data = values, .elements = n, .dtype = LINK_F64, .reduce = LINK_SUM};
        if (meeting->ops->post(link, &op) != DEFT_OK ||
            meeting->ops->wait(link, &op, INT64_MAX) != DEFT_OK) {
            abort();
        }
        memcpy(meeting->bytes + (size_t)self->number * sizeof(values), values, n * sizeof(double));
        (void)pthread_barrier_wait(&meeting->barrier);
        for (uint64_t v = 0; v < n; v++) {
            if (fabs(values[v] - expected[v]) > (v == 0 ? 1.0 : 1e-14)) {
                (void)fprintf(stderr, "rank %d of %d, sum %llu: %.17g, reference %.17g\n",
                              self->number, meeting->n_ranks, (unsigned long long)i, values[v],
                              expected[v]);
                abort();
            }
        }
        if (memcmp(meeting->bytes, values, n * sizeof(double)) != 0) {
            abort();
        }
        (void)pthread_barrier_wait(&meeting->barrier);
    }
    (void)meeting->ops->close(link);
    return NULL;
}

static void gloo_small_sums_alike_on_all_ranks(void **state) {
    (void)state;
    for (int32_t n = 1; n <= MAX_RANKS; n++) {
        struct meeting *meeting = calloc(1, sizeof(*meeting));
        meeting->seed = testing_seed();
        run(meeting, "gloo", "lo", n, small_sums);
        free(meeting);
    }
}

/* --- failure ---------------------------------------------------------------------------------- */

/* Rank 0 never brings its op: the others are woken by an abort from another thread. */
static void *abort_later(void *argument) {
    struct link *link = argument;
    struct deft_error reason;
    (void)deft_fail(&reason, DEFT_PEER_LOST, 0, "rank 0 is gone");
    link->ops->abort(link, &reason);
    return NULL;
}

static void *wait_in_vain(void *argument) {
    struct rank *self = argument;
    struct meeting *meeting = self->meeting;
    struct link *link = open_link(self);
    float data[8] = {0};
    struct link_op op = {.data = data, .elements = 8, .dtype = LINK_F32, .reduce = LINK_SUM};
    struct deft_error reason = {.text = ""};
    pthread_t thread;
    if (self->number != 0 &&
        (meeting->ops->post(link, &op) != DEFT_OK ||
         meeting->ops->wait(link, &op, clock_monotonic_ns() + 1000000) != DEFT_TIMEOUT)) {
        abort();
    }
    (void)pthread_barrier_wait(&meeting->barrier); /* nobody aborts before all have waited */
    if (self->number != 0) {
        (void)pthread_create(&thread, NULL, abort_later, link);
        meeting->failed[self->number] = meeting->ops->wait(link, &op, INT64_MAX);
        (void)pthread_join(thread, NULL);
        meeting->ops->failure(link, &reason);
        if (strcmp(reason.text, "rank 0 is gone") != 0) {
            abort();
        }
        struct link_op late = {.data = data, .elements = 8, .dtype = LINK_F32};
        if (meeting->ops->post(link, &late) != DEFT_PEER_LOST) {
            abort();
        }
    }
    (void)pthread_barrier_wait(&meeting->barrier);
    (void)meeting->ops->close(link);
    return NULL;
}

static void abort_wakes_waiters(void **state) {
    (void)state;
    struct meeting *meeting = calloc(1, sizeof(*meeting));
    struct mem_fabric *fabric = NULL;
    assert_int_equal(mem_fabric_create(3, NULL, &fabric, NULL), DEFT_OK);
    run(meeting, "mem", strchr(mem_fabric_link(fabric), ':') + 1, 3, wait_in_vain);
    assert_int_equal(meeting->failed[1], DEFT_PEER_LOST);
    assert_int_equal(meeting->failed[2], DEFT_PEER_LOST);
    mem_fabric_destroy(fabric);
    free(meeting);
}

static void *bring_different_sizes(void *argument) {
    struct rank *self = argument;
    struct link *link = open_link(self);
    float data[8] = {0};
    struct link_op op = {
        .data = data, .elements = self->number == 1 ? 7 : 8, .dtype = LINK_F32, .reduce = LINK_SUM};
    if (self->meeting->ops->post(link, &op) != DEFT_OK) {
        abort();
    }
    self->meeting->failed[self->number] = self->meeting->ops->wait(link, &op, INT64_MAX);
    (void)self->meeting->ops->close(link);
    return NULL;
}

static void mismatched_ops_are_refused(void **state) {
    (void)state;
    struct meeting *meeting = calloc(1, sizeof(*meeting));
    struct mem_fabric *fabric = NULL;
    assert_int_equal(mem_fabric_create(2, NULL, &fabric, NULL), DEFT_OK);
    run(meeting, "mem", strchr(mem_fabric_link(fabric), ':') + 1, 2, bring_different_sizes);
    assert_int_equal(meeting->failed[0], DEFT_MISMATCH);
    assert_int_equal(meeting->failed[1], DEFT_MISMATCH);
    mem_fabric_destroy(fabric);
    free(meeting);
}

/* --- half types ------------------------------------------------------------------------------- */

static void half_types_round_trip(void **state) {
    (void)state;
    for (uint32_t bits = 0; bits < 65536; bits++) {
        float wide = link_f16_to_f32((uint16_t)bits);
        if (isnan(wide)) {
            assert_true(isnan(link_f16_to_f32(link_f32_to_f16(wide))));
            assert_true(isnan(link_bf16_to_f32(link_f32_to_bf16(wide))));
        } else {
            assert_int_equal(link_f32_to_f16(wide), bits);
        }
        float brain = link_bf16_to_f32((uint16_t)bits);
        if (!isnan(brain)) {
            assert_int_equal(link_f32_to_bf16(brain), bits);
        }
    }
}

/* Between two neighbours the nearer wins, and the even one when both are as near. */
static void half_types_round_to_nearest_even(void **state) {
    (void)state;
    for (uint32_t bits = 0; bits < 0x7bff; bits++) {
        float low = link_f16_to_f32((uint16_t)bits);
        float high = link_f16_to_f32((uint16_t)(bits + 1));
        float middle = low + (high - low) / 2;
        assert_int_equal(link_f32_to_f16(middle), bits % 2 == 0 ? bits : bits + 1);
        assert_int_equal(link_f32_to_f16(nextafterf(middle, low)), bits);
        assert_int_equal(link_f32_to_f16(nextafterf(middle, high)), bits + 1);
    }
    assert_int_equal(link_f32_to_f16(65519.0f), 0x7bff);
    assert_int_equal(link_f32_to_f16(65520.0f), 0x7c00);
    assert_int_equal(link_f32_to_f16(-1e30f), 0xfc00);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(mem_sums_in_rank_order),
    cmocka_unit_test(gloo_sums_alike_on_all_ranks),
    cmocka_unit_test(gloo_maxima),
    cmocka_unit_test(gloo_small_sums_alike_on_all_ranks),
    cmocka_unit_test(abort_wakes_waiters),
    cmocka_unit_test(mismatched_ops_are_refused),
    cmocka_unit_test(half_types_round_trip),
    cmocka_unit_test(half_types_round_to_nearest_even),
};
TESTING_MAIN(cases)
