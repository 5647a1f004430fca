/* Layer-by-layer execution as a program of the timeline: the forward of a layer waits only for its
 * own messages and its own update, so communication hides under forward too. What the peers with
 * this capability have in common; which message comes next is the rule's part.
 *
 * A layer is a run of neighbouring tensors of one dtype that is sent as one. The optimizer's time
 * is divided by elements; each share comes right before the layer's forward. Stage time that
 * belongs to no tensor with elements on its input side comes between the last gradient and the
 * first update, where all messages can hide under it. */
#ifndef LAYERED_H
#define LAYERED_H

#include "timeline.h"

struct layered_layer {
    enum dsched_dtype dtype;
    uint64_t elements;
    uint64_t bytes;
    int64_t backward_ns; /* its gradient is ready after this */
    int64_t update_ns;
    int64_t forward_ns;
};

/* A transfer on link 0. */
struct layered_message {
    uint32_t layer;
    uint64_t bytes;        /* for pictures */
    uint64_t landed_bytes; /* of the layer's bytes, how many are averaged when this has landed */
    int64_t ns;
};

/* Which message next. A cycle begins with backward, and with nothing in flight. */
struct layered_rule {
    void (*begin)(void *state); /* a cycle: no layer is ready */
    /* Layers `first` and above are ready. */
    void (*ready)(void *state, uint32_t first);
    /* What the free link starts now; 0 for nothing yet. */
    int (*next)(void *state, struct layered_message *out);
    void (*landed)(void *state, const struct layered_message *message);
};

struct layered {
    const struct dsched_profile *profile; /* checked */
    const struct layered_rule *rule;
    void *rule_state;
    uint32_t n_layers; /* layer 0 is the input side */
    struct layered_layer *layers;
    uint64_t *left_bytes; /* [n_layers] not averaged yet */
    uint64_t n_bytes;
    int64_t tail_ns; /* backward after the last gradient */
    int64_t lead_ns; /* forward before the first layer */

    struct timeline timeline;
    uint64_t iteration;
    uint32_t stage;   /* of the segment that comes next */
    uint32_t n_ready; /* layers, from the output side on */
    int is_first;     /* the forward before the first backward: nothing to update */
};

/* Room for one layer per tensor, which layered_fuse then uses: no try of a search allocates. */
DSCHED_NODISCARD enum dsched_status layered_init(struct layered *layered,
                                                 const struct dsched_profile *profile,
                                                 const struct layered_rule *rule, void *rule_state,
                                                 struct dsched_error *error);
void layered_done(struct layered *layered);

/* Makes layers from the output side on, each closed when its bytes reach `limit_bytes`. */
void layered_fuse(struct layered *layered, uint64_t limit_bytes);

/* Limits that the peers' searches try, 0: every tensor is a layer. The peers schedule what their
 * frameworks call a layer, but a tensor may be a bias of 64 elements. */
#define LAYERED_N_FUSIONS 10u
extern const uint64_t layered_fusions[LAYERED_N_FUSIONS];

/* Until the next gradient is ready, if the link is busy until then; INT64_MAX: all are ready. For
 * rules, inside `next`. */
int64_t layered_gap_ns(const struct layered *layered);

/* One cycle. All has landed when its last forward begins, so every other cycle is the same. */
DSCHED_NODISCARD enum dsched_status
layered_measure(struct layered *layered, struct dsched_report *out, struct dsched_error *error);
/* The first forward and two cycles. */
DSCHED_NODISCARD enum dsched_status layered_show(struct layered *layered, dsched_span_fn on_span,
                                                 void *context, struct dsched_error *error);

#endif
