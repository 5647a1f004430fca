#include "store/store_links.h"

#include "store/store_bind.h"

/* Sizes of one link that are added up before they are written; a plan has some tens of buckets. */
#define LINKS_MAX_TOTALS 128u

struct links_total {
    uint32_t link;
    uint64_t bytes;
    int64_t count;
    int64_t n_medians;
    int64_t min_ns;
    double median_ns;
    int64_t max_ns;
};

static enum deft_status links_save(struct store_db *db, int64_t incarnation,
                                   const struct links_total *total, struct deft_error *error) {
    sqlite3_stmt *s = store_db_statement(
        db, "INSERT INTO link_totals VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)"
            " ON CONFLICT DO UPDATE SET count = count + ?4, n_medians = n_medians + ?5,"
            " min_ns = min(min_ns, ?6), median_ns = median_ns + ?7, max_ns = max(max_ns, ?8)");
    if (s == NULL) {
        return store_db_fail(db, "take all-reduces", error);
    }
    store_bind_int(s, 1, incarnation);
    store_bind_int(s, 2, total->link);
    store_bind_int(s, 3, (int64_t)total->bytes);
    store_bind_int(s, 4, total->count);
    store_bind_int(s, 5, total->n_medians);
    store_bind_int(s, 6, total->min_ns);
    store_bind_real(s, 7, total->median_ns);
    store_bind_int(s, 8, total->max_ns);
    return store_db_step(db, s, "take all-reduces", error);
}

static void links_take(struct links_total *total, const struct wire_op_summary *op) {
    total->count += op->count;
    total->n_medians++;
    total->min_ns = op->min_ns < total->min_ns ? op->min_ns : total->min_ns;
    total->median_ns += (double)op->median_ns;
    total->max_ns = op->max_ns > total->max_ns ? op->max_ns : total->max_ns;
}

enum deft_status store_links_add(struct store_db *db, int64_t incarnation, uint32_t n,
                                 const struct wire_op_summary *ops, struct deft_error *error) {
    struct links_total totals[LINKS_MAX_TOTALS];
    enum deft_status status = DEFT_OK;
    unsigned n_totals = 0;
    for (uint32_t i = 0; i < n && status == DEFT_OK; i++) {
        unsigned at = 0;
        while (at < n_totals &&
               (totals[at].link != ops[i].link || totals[at].bytes != ops[i].bytes)) {
            at++;
        }
        if (at == LINKS_MAX_TOTALS) { /* unusual: the last one makes room */
            at = n_totals - 1;
            status = links_save(db, incarnation, &totals[at], error);
            n_totals = at;
        }
        if (at == n_totals) {
            totals[n_totals++] = (struct links_total){.link = ops[i].link,
                                                      .bytes = ops[i].bytes,
                                                      .min_ns = ops[i].min_ns,
                                                      .max_ns = ops[i].max_ns};
        }
        links_take(&totals[at], &ops[i]);
    }
    for (unsigned i = 0; i < n_totals && status == DEFT_OK; i++) {
        status = links_save(db, incarnation, &totals[i], error);
    }
    return status;
}
