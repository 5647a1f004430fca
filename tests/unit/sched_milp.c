#include "sched_milp.h"

#include <math.h>
#include <string.h>

#include <glpk.h>

#include "testing.h"

#define MAX_TENSORS 8u
#define MAX_LINKS   3u
#define MAX_ENTRIES (MAX_LINKS * MAX_TENSORS * MAX_TENSORS + 2u)

/* Variables: the result first, then one binary per run of tensors first..last (in order of
 * readiness) and link: that run is a bucket there. */
struct milp {
    const struct dsched_profile *profile;
    glp_prob *problem;
    uint32_t n;
    uint64_t bytes[MAX_TENSORS + 1]; /* before each tensor */
    int64_t ready_ns[MAX_TENSORS];
    int columns[MAX_TENSORS][MAX_TENSORS][MAX_LINKS];
};

struct row {
    int n;
    int columns[MAX_ENTRIES];
    double factors[MAX_ENTRIES];
};

static void add_entry(struct row *row, int column, double factor) {
    row->n++; /* GLPK counts from 1 */
    row->columns[row->n] = column;
    row->factors[row->n] = factor;
}

static void add_row(struct milp *milp, const struct row *row, int type, double bound) {
    int i = glp_add_rows(milp->problem, 1);
    glp_set_row_bnds(milp->problem, i, type, bound, bound);
    glp_set_mat_row(milp->problem, i, row->n, row->columns, row->factors);
}

static double cost_ns(const struct milp *milp, uint32_t first, uint32_t last, uint32_t link) {
    return (double)dsched_link_ns(&milp->profile->links[link],
                                  milp->bytes[last + 1] - milp->bytes[first]);
}

static void add_columns(struct milp *milp) {
    int column = glp_add_cols(milp->problem, 1);
    glp_set_obj_dir(milp->problem, GLP_MIN);
    glp_set_obj_coef(milp->problem, column, 1);
    glp_set_col_bnds(milp->problem, column, GLP_LO, 0, 0);
    for (uint32_t first = 0; first < milp->n; first++) {
        for (uint32_t last = first; last < milp->n; last++) {
            for (uint32_t l = 0; l < milp->profile->n_links; l++) {
                milp->columns[first][last][l] = glp_add_cols(milp->problem, 1);
                glp_set_col_kind(milp->problem, milp->columns[first][last][l], GLP_BV);
            }
        }
    }
}

/* Each tensor is in one bucket. */
static void add_cover(struct milp *milp) {
    for (uint32_t i = 0; i < milp->n; i++) {
        struct row row = {0};
        for (uint32_t first = 0; first <= i; first++) {
            for (uint32_t last = i; last < milp->n; last++) {
                for (uint32_t l = 0; l < milp->profile->n_links; l++) {
                    add_entry(&row, milp->columns[first][last][l], 1);
                }
            }
        }
        add_row(milp, &row, GLP_FX, 1);
    }
}

/* A link ends at the latest sum of a bucket's readiness and of all costs from that bucket on: for
 * each link and place `from`, result >= readiness there, if a bucket ends there, + costs. */
static void add_links(struct milp *milp) {
    for (uint32_t l = 0; l < milp->profile->n_links; l++) {
        for (uint32_t from = 0; from < milp->n; from++) {
            struct row row = {0};
            add_entry(&row, 1, 1);
            for (uint32_t last = from; last < milp->n; last++) {
                for (uint32_t first = 0; first <= last; first++) {
                    double ready_ns = last == from ? (double)milp->ready_ns[from] : 0;
                    add_entry(&row, milp->columns[first][last][l],
                              -cost_ns(milp, first, last, l) - ready_ns);
                }
            }
            add_row(milp, &row, GLP_LO, 0);
        }
    }
}

static int64_t solve(const struct dsched_profile *profile, int is_ready_at_once) {
    struct milp milp = {.profile = profile};
    glp_iocp options;
    int64_t ready_ns = 0;
    double result;
    for (uint32_t i = profile->n_tensors; i-- > 0;) {
        const struct dsched_tensor *tensor = &profile->tensors[i];
        ready_ns += tensor->backward_ns;
        assert_true(milp.n < MAX_TENSORS);
        milp.ready_ns[milp.n] = is_ready_at_once ? 0 : ready_ns;
        milp.bytes[milp.n + 1] =
            milp.bytes[milp.n] + tensor->elements * dsched_dtype_bytes(tensor->dtype);
        milp.n++;
    }
    milp.problem = glp_create_prob();
    add_columns(&milp);
    add_cover(&milp);
    add_links(&milp);
    glp_init_iocp(&options);
    options.msg_lev = GLP_MSG_OFF;
    options.presolve = GLP_ON;
    assert_int_equal(glp_intopt(milp.problem, &options), 0);
    assert_int_equal(glp_mip_status(milp.problem), GLP_OPT);
    result = glp_mip_obj_val(milp.problem);
    glp_delete_prob(milp.problem);
    return (int64_t)llround(result);
}

int64_t milp_landing_ns(const struct dsched_profile *profile) {
    return solve(profile, 0);
}

int64_t milp_work_ns(const struct dsched_profile *profile) {
    return solve(profile, 1);
}
