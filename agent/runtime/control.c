#include "runtime/control.h"

#include <string.h>

#include "base/clock.h"

/* One MAX serves for maxima and, of the complement, for minima: max(~x) = ~min(x). */
enum {
    SEQ,
    SEQ_MIN,
    HASH,
    HASH_MIN,
    BOUNDARY,
    BOUNDARY_MIN,
    KIND,
    KIND_MIN,
    DRAIN,
    STOP,
    UNFINISHED,
};
/* Of a call, in the place of a vote's plan. */
enum { DETAIL = SEQ, DETAIL_MIN = SEQ_MIN };

enum deft_status control_post(struct control *control, const struct control_vote *vote) {
    struct control_round *round = &control->rounds[control->n_posted % (CONTROL_LAG + 1)];
    int64_t *values = round->values;
    values[SEQ] = (int64_t)vote->seq;
    values[SEQ_MIN] = ~values[SEQ];
    values[HASH] = (int64_t)vote->hash;
    values[HASH_MIN] = ~values[HASH];
    values[BOUNDARY] = (int64_t)vote->boundary;
    values[BOUNDARY_MIN] = ~values[BOUNDARY];
    values[KIND] = CONTROL_VOTE;
    values[KIND_MIN] = ~values[KIND];
    values[DRAIN] = vote->drain;
    values[STOP] = vote->stop;
    values[UNFINISHED] = !vote->finish;
    control->n_posted++;
    if (control->link == NULL) {
        return DEFT_OK;
    }
    round->op = (struct link_op){
        .data = values, .elements = CONTROL_VALUES, .dtype = LINK_I64, .reduce = LINK_MAX};
    return control->ops->post(control->link, &round->op);
}

static enum deft_status control_await(struct control *control, struct link_op *op,
                                      int64_t *out_wait_ns) {
    *out_wait_ns = 0;
    if (control->link == NULL) {
        return DEFT_OK;
    }
    if (link_test(op)) {
        return op->status;
    }
    int64_t begin_ns = clock_monotonic_ns();
    enum deft_status status = control->ops->wait(control->link, op, INT64_MAX);
    *out_wait_ns = clock_monotonic_ns() - begin_ns;
    return status;
}

enum deft_status control_result(struct control *control, struct control_result *out,
                                int64_t *out_wait_ns) {
    memset(out, 0, sizeof(*out));
    *out_wait_ns = 0;
    if (control->n_posted <= CONTROL_LAG) {
        return DEFT_OK;
    }
    struct control_round *round =
        &control->rounds[(control->n_posted - 1 - CONTROL_LAG) % (CONTROL_LAG + 1)];
    enum deft_status status = control_await(control, &round->op, out_wait_ns);
    if (status != DEFT_OK) {
        return status;
    }
    const int64_t *values = round->values;
    int same_seq = values[SEQ] == ~values[SEQ_MIN];
    int same_hash = values[HASH] == ~values[HASH_MIN];
    out->known = 1;
    out->agreed = same_seq && same_hash;
    out->conflict = same_seq && !same_hash;
    out->seq = (uint64_t)values[SEQ];
    out->out_of_step =
        values[BOUNDARY] != ~values[BOUNDARY_MIN] || values[KIND] != ~values[KIND_MIN];
    out->drain = values[DRAIN] != 0;
    out->stop = values[STOP] != 0;
    out->finish = values[UNFINISHED] == 0;
    return DEFT_OK;
}

enum deft_status control_call(struct control *control, const struct control_call *call,
                              struct control_called *out) {
    struct control_round *round = &control->call;
    int64_t *values = round->values;
    int64_t wait_ns = 0;
    *out = (struct control_called){.same_call = 1, .same_detail = 1};
    if (control->link == NULL) {
        return DEFT_OK;
    }
    memset(values, 0, sizeof(round->values));
    values[DETAIL] = call->detail;
    values[DETAIL_MIN] = ~values[DETAIL];
    values[BOUNDARY] = (int64_t)call->boundary;
    values[BOUNDARY_MIN] = ~values[BOUNDARY];
    values[KIND] = call->kind;
    values[KIND_MIN] = ~values[KIND];
    round->op = (struct link_op){
        .data = values, .elements = CONTROL_VALUES, .dtype = LINK_I64, .reduce = LINK_MAX};
    enum deft_status status = control->ops->post(control->link, &round->op);
    if (status == DEFT_OK) {
        status = control_await(control, &round->op, &wait_ns);
    }
    out->same_call = values[KIND] == ~values[KIND_MIN] && values[BOUNDARY] == ~values[BOUNDARY_MIN];
    out->same_detail = values[DETAIL] == ~values[DETAIL_MIN];
    return status;
}

enum deft_status control_post_figures(struct control *control, const struct control_figures *own) {
    control->figures = *own;
    if (control->link == NULL) {
        return DEFT_OK;
    }
    control->figures_op = (struct link_op){.data = &control->figures,
                                           .elements = sizeof(*own) / sizeof(double),
                                           .dtype = LINK_F64,
                                           .reduce = LINK_SUM};
    return control->ops->post(control->link, &control->figures_op);
}

enum deft_status control_result_figures(struct control *control, struct control_figures *out,
                                        int64_t *out_wait_ns) {
    enum deft_status status = control_await(control, &control->figures_op, out_wait_ns);
    if (status == DEFT_OK) {
        *out = control->figures;
    }
    return status;
}
