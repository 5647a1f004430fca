/* What iterations add up to: the rows of `rollups`, and the points of a series. Only for the
 * store's own files. */
#ifndef STORE_SUMS_H
#define STORE_SUMS_H

#include <stdint.h>

struct sqlite3_stmt;

/* Forward, backward, exposed, optimizer, runtime. */
#define STORE_SUMS_STAGES  5
#define STORE_SUMS_EXPOSED 2
/* Squared norms of gradients, of the rank and of the mean, of changes, and learning rates. */
#define STORE_SUMS_FIGURES 4

/* Iterations [first, last]; within one the slowest rank counts, over several they are added. Losses
 * and figures are added over ranks too. Zeroed is none. Sums are real numbers: integers of hostile
 * ranks would overflow. */
struct store_sums {
    int64_t first;
    int64_t last;
    int64_t plan_seq; /* the largest */
    int64_t n_iterations;
    int64_t n_steps; /* iterations whose step is known */
    double step_ns;
    int64_t step_min_ns; /* 0 without steps */
    int64_t step_max_ns;
    double stage_ns[STORE_SUMS_STAGES];
    int64_t updates;
    int64_t n_losses;
    double loss;
    double loss_min; /* 0 without losses */
    double loss_max;
    int64_t n_figures[STORE_SUMS_FIGURES];
    double figures[STORE_SUMS_FIGURES];
};
void store_sums_add(struct store_sums *to, const struct store_sums *more);

/* A row per rank; in the order of (iteration, rank). */
#define STORE_SUMS_RAW_COLUMNS                                                                     \
    "iteration, received_ns, plan_seq, updates, step_ns, forward_ns, backward_ns, exposed_ns,"     \
    " optimizer_ns, runtime_ns, loss, grad_sq_local, grad_sq_mean, change_sq_local, learning_rate"
/* One iteration while its rows are read. Zero-initialised is valid. */
struct store_fold {
    struct store_sums sums;
    int64_t received_ns; /* of the newest row */
    int64_t n_rows;
};
/* Takes the row if it is of the iteration that is being folded, or of the first one; 0 when it is
 * of another. */
int store_fold_row(struct store_fold *fold, struct sqlite3_stmt *row);

/* The columns of a roll-up, all of a row, in the order of the table. */
#define STORE_SUMS_COLUMNS                                                                         \
    "first, last, received_ns, plan_seq, n_iterations, n_steps, step_ns, step_min_ns,"             \
    " step_max_ns, forward_ns, backward_ns, exposed_ns, optimizer_ns, runtime_ns, updates,"        \
    " n_losses, loss, loss_min, loss_max, n_grad_sq_local, grad_sq_local, n_grad_sq_mean,"         \
    " grad_sq_mean, n_change_sq_local, change_sq_local, n_learning_rate, learning_rate"
#define STORE_SUMS_N_COLUMNS 27
/* `out_received_ns` may be NULL. */
void store_sums_read(struct sqlite3_stmt *row, struct store_sums *out, int64_t *out_received_ns);
/* Binds STORE_SUMS_N_COLUMNS parameters from `first_parameter` on. */
void store_sums_bind(struct sqlite3_stmt *statement, int first_parameter,
                     const struct store_sums *sums, int64_t received_ns);

#endif
