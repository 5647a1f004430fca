/* The canonical encoding of plans, and their hash. */
#include "fnv.h"
#include "refuse.h"

#include <dsched/plan.h>

#include <inttypes.h>

/* Header: magic, version, rule, n_links, n_buckets, n_generations (u32 each). Then buckets (begin,
 * end: u64), merges (u16), ops (link, delay: u8), and the forecast last, so that the hash covers a
 * prefix. All little-endian. */
#define MAGIC          0x4c505344u /* "DSPL" */
#define VERSION        1u
#define HEADER_BYTES   24u
#define FORECAST_BYTES 44u
#define BUCKET_BYTES   16u
#define MERGE_BYTES    2u
#define OP_BYTES       2u

static size_t body_bytes(uint32_t n_buckets, uint32_t n_generations) {
    return HEADER_BYTES + (size_t)n_buckets * BUCKET_BYTES + (size_t)n_generations * MERGE_BYTES +
           (size_t)n_buckets * n_generations * OP_BYTES;
}

/* Writes, hashes, or both. */
struct sink {
    uint8_t *next; /* NULL: hash only */
    uint64_t hash;
};

static void put(struct sink *sink, uint64_t value, unsigned n_bytes) {
    for (unsigned i = 0; i < n_bytes; i++) {
        uint8_t byte = (uint8_t)(value >> (8 * i));
        sink->hash = fnv_byte(sink->hash, byte);
        if (sink->next != NULL) {
            *sink->next++ = byte;
        }
    }
}

static uint64_t take(const uint8_t **next, unsigned n_bytes) {
    uint64_t value = 0;
    for (unsigned i = 0; i < n_bytes; i++) {
        value |= (uint64_t)(*next)[i] << (8 * i);
    }
    *next += n_bytes;
    return value;
}

static void put_body(struct sink *sink, const struct dsched_plan *plan) {
    size_t n_ops = (size_t)plan->n_generations * plan->n_buckets;
    put(sink, MAGIC, 4);
    put(sink, VERSION, 4);
    put(sink, (uint32_t)plan->rule, 4);
    put(sink, plan->n_links, 4);
    put(sink, plan->n_buckets, 4);
    put(sink, plan->n_generations, 4);
    for (uint32_t b = 0; b < plan->n_buckets; b++) {
        put(sink, plan->buckets[b].begin, 8);
        put(sink, plan->buckets[b].end, 8);
    }
    for (uint32_t g = 0; g < plan->n_generations; g++) {
        put(sink, plan->merge[g], MERGE_BYTES);
    }
    for (size_t i = 0; i < n_ops; i++) {
        put(sink, plan->ops[i].link, 1);
        put(sink, plan->ops[i].delay, 1);
    }
}

static void put_forecast(struct sink *sink, const struct dsched_forecast *forecast) {
    put(sink, (uint64_t)forecast->step_ns, 8);
    put(sink, (uint64_t)forecast->exposed_ns, 8);
    put(sink, (uint64_t)forecast->compute_ns, 8);
    put(sink, forecast->updates_per_step_ppm, 4);
    put(sink, forecast->mean_delay_milli, 4);
    put(sink, forecast->max_delay, 4);
    put(sink, forecast->pending_bytes, 8);
}

static void take_forecast(const uint8_t **next, struct dsched_forecast *out) {
    out->step_ns = (int64_t)take(next, 8);
    out->exposed_ns = (int64_t)take(next, 8);
    out->compute_ns = (int64_t)take(next, 8);
    out->updates_per_step_ppm = (uint32_t)take(next, 4);
    out->mean_delay_milli = (uint32_t)take(next, 4);
    out->max_delay = (uint32_t)take(next, 4);
    out->pending_bytes = take(next, 8);
}

size_t dsched_plan_encode(const struct dsched_plan *plan, uint8_t *out, size_t capacity_bytes) {
    size_t n_bytes = body_bytes(plan->n_buckets, plan->n_generations) + FORECAST_BYTES;
    if (out != NULL && capacity_bytes >= n_bytes) {
        struct sink sink = {.next = out};
        put_body(&sink, plan);
        put_forecast(&sink, &plan->forecast);
    }
    return n_bytes;
}

uint64_t dsched_plan_hash(const struct dsched_plan *plan) {
    struct sink sink = {.next = NULL, .hash = FNV_START};
    put_body(&sink, plan);
    return sink.hash;
}

struct header {
    uint32_t rule;
    uint32_t n_links;
    uint32_t n_buckets;
    uint32_t n_generations;
};

static enum dsched_status take_header(const uint8_t **next, size_t n_bytes, struct header *out,
                                      struct dsched_error *error) {
    uint32_t magic;
    uint32_t version;
    if (n_bytes < HEADER_BYTES) {
        return refuse(error, DSCHED_INVALID,
                      "the encoded plan has %zu bytes, but its header alone takes %u", n_bytes,
                      HEADER_BYTES);
    }
    magic = (uint32_t)take(next, 4);
    version = (uint32_t)take(next, 4);
    if (magic != MAGIC || version != VERSION) {
        return refuse(error, DSCHED_INVALID,
                      "the encoded plan begins with magic %08x and version %u, expected %08x and "
                      "%u",
                      magic, version, MAGIC, VERSION);
    }
    out->rule = (uint32_t)take(next, 4);
    out->n_links = (uint32_t)take(next, 4);
    out->n_buckets = (uint32_t)take(next, 4);
    out->n_generations = (uint32_t)take(next, 4);
    if (out->rule >= DSCHED_N_RULES) {
        return refuse(error, DSCHED_INVALID, "the encoded plan has rule %u, but 0..%u is allowed",
                      out->rule, DSCHED_N_RULES - 1);
    }
    if (out->n_links == 0 || out->n_buckets == 0 || out->n_generations == 0) {
        return refuse(error, DSCHED_INVALID,
                      "the encoded plan has %u links, %u buckets and %u generations, but at least "
                      "one of each is needed",
                      out->n_links, out->n_buckets, out->n_generations);
    }
    if (out->n_links > DSCHED_MAX_LINKS || out->n_buckets > DSCHED_MAX_BUCKETS ||
        out->n_generations > DSCHED_MAX_GENERATIONS) {
        return refuse(error, DSCHED_LIMIT,
                      "the encoded plan has %u links, %u buckets and %u generations, but at most "
                      "%u, %u and %u are allowed",
                      out->n_links, out->n_buckets, out->n_generations, DSCHED_MAX_LINKS,
                      DSCHED_MAX_BUCKETS, DSCHED_MAX_GENERATIONS);
    }
    return DSCHED_OK;
}

static enum dsched_status take_merges(const uint8_t **next, struct dsched_plan *plan,
                                      struct dsched_error *error) {
    for (uint32_t g = 0; g < plan->n_generations; g++) {
        plan->merge[g] = (uint16_t)take(next, MERGE_BYTES);
        if (plan->merge[g] == 0 || plan->merge[g] > DSCHED_MAX_MERGE) {
            return refuse(error, DSCHED_INVALID,
                          "generation %u of the encoded plan merges %u iterations, but 1..%u is "
                          "allowed",
                          g, plan->merge[g], DSCHED_MAX_MERGE);
        }
    }
    return DSCHED_OK;
}

static enum dsched_status take_ops(const uint8_t **next, struct dsched_plan *plan,
                                   struct dsched_error *error) {
    size_t n_ops = (size_t)plan->n_generations * plan->n_buckets;
    for (size_t i = 0; i < n_ops; i++) {
        struct dsched_op *op = &plan->ops[i];
        op->link = (uint8_t)take(next, 1);
        op->delay = (uint8_t)take(next, 1);
        if (op->link >= plan->n_links || op->delay > DSCHED_MAX_DELAY) {
            return refuse(error, DSCHED_INVALID,
                          "op %zu of the encoded plan has link %u and delay %u, but below %u and "
                          "at most %u are allowed",
                          i, op->link, op->delay, plan->n_links, DSCHED_MAX_DELAY);
        }
    }
    return DSCHED_OK;
}

enum dsched_status dsched_plan_decode(const uint8_t *bytes, size_t n_bytes, struct dsched_plan *out,
                                      struct dsched_error *error) {
    const uint8_t *next = bytes;
    struct dsched_plan plan = {0};
    struct header header = {0};
    size_t expected_bytes;
    enum dsched_status status = take_header(&next, n_bytes, &header, error);
    if (status != DSCHED_OK) {
        return status;
    }
    /* The size is checked before anything is allocated: memory never exceeds the input's. */
    expected_bytes = body_bytes(header.n_buckets, header.n_generations) + FORECAST_BYTES;
    if (n_bytes != expected_bytes) {
        return refuse(error, DSCHED_INVALID,
                      "the encoded plan has %zu bytes, but %u buckets and %u generations take %zu",
                      n_bytes, header.n_buckets, header.n_generations, expected_bytes);
    }
    status = dsched_plan_init(&plan, header.n_buckets, header.n_generations);
    if (status != DSCHED_OK) {
        return refuse_memory(error, "a decoded plan");
    }
    plan.rule = (enum dsched_rule)header.rule;
    plan.n_links = header.n_links;
    for (uint32_t b = 0; b < plan.n_buckets; b++) {
        plan.buckets[b].begin = take(&next, 8);
        plan.buckets[b].end = take(&next, 8);
    }
    status = take_merges(&next, &plan, error);
    if (status == DSCHED_OK) {
        status = take_ops(&next, &plan, error);
    }
    if (status != DSCHED_OK) {
        dsched_plan_done(&plan);
        return status;
    }
    take_forecast(&next, &plan.forecast);
    *out = plan;
    return DSCHED_OK;
}
