/* PyTorch DDP's buckets. */
#include <dsched/plan.h>

/* Walks the tensors as PyTorch DDP does; writes buckets when `out` is not NULL. */
static uint32_t walk(const struct dsched_table *table, uint64_t first_bytes, uint64_t later_bytes,
                     struct dsched_bucket *out) {
    uint64_t limit_bytes = first_bytes;
    uint64_t n_bytes = 0;
    uint64_t begin = 0;
    uint64_t end = 0;
    uint8_t dtype = 0;
    uint32_t n = 0;
    for (uint32_t i = table->n_tensors; i-- > 0;) {
        if (table->elements[i] == 0) {
            continue;
        }
        if (end > begin && (n_bytes >= limit_bytes || table->dtypes[i] != dtype)) {
            if (out != NULL) {
                out[n] = (struct dsched_bucket){.begin = begin, .end = end};
            }
            n++;
            begin = end;
            n_bytes = 0;
            limit_bytes = later_bytes;
        }
        dtype = table->dtypes[i];
        end += table->elements[i];
        n_bytes += table->elements[i] * dsched_dtype_bytes((enum dsched_dtype)dtype);
    }
    if (end > begin) {
        if (out != NULL) {
            out[n] = (struct dsched_bucket){.begin = begin, .end = end};
        }
        n++;
    }
    return n;
}

enum dsched_status dsched_plan_ddp(const struct dsched_table *table, uint64_t first_bytes,
                                   uint64_t later_bytes, struct dsched_plan *out) {
    struct dsched_plan plan = {0};
    uint32_t n_buckets = walk(table, first_bytes, later_bytes, NULL);
    enum dsched_status status = dsched_plan_init(&plan, n_buckets, 1);
    if (status != DSCHED_OK) {
        return status;
    }
    (void)walk(table, first_bytes, later_bytes, plan.buckets);
    plan.rule = DSCHED_EXACT;
    plan.n_links = 1;
    plan.merge[0] = 1;
    *out = plan;
    return DSCHED_OK;
}
