#include "cut.h"

#include "labels.h"
#include "muldiv.h"
#include "refuse.h"
#include "split.h"

#include <stdlib.h>
#include <string.h>

/* --- by bytes --------------------------------------------------------------------------------- */

struct writer {
    uint32_t n;
    struct dsched_bucket *buckets; /* NULL: count only */
};

/* One run of equal dtype as `n_parts` buckets of nearly equal size. */
static void write_parts(struct writer *writer, uint64_t begin, uint64_t end, uint64_t n_parts) {
    if (writer->buckets == NULL) {
        uint64_t n = writer->n + n_parts;
        writer->n = n > UINT32_MAX ? UINT32_MAX : (uint32_t)n;
        return;
    }
    for (uint64_t k = 0; k < n_parts; k++) {
        writer->buckets[writer->n++] =
            (struct dsched_bucket){.begin = begin + (end - begin) * k / n_parts,
                                   .end = begin + (end - begin) * (k + 1) / n_parts};
    }
}

static void walk(const struct space *space, uint64_t target_bytes, struct writer *writer) {
    uint64_t begin = 0;
    for (uint32_t p = 0; p < space->n_pieces; p++) {
        const struct space_piece *piece = &space->pieces[p];
        uint64_t target = target_bytes / piece->element_bytes;
        uint64_t n = piece->end - begin;
        int is_run_end = p + 1 == space->n_pieces || piece[1].dtype != piece->dtype;
        target = target == 0 ? 1 : target;
        if (n >= target || is_run_end) {
            uint64_t n_parts = n / target + (n % target > target / 2);
            write_parts(writer, begin, piece->end, n_parts == 0 ? 1 : n_parts);
            begin = piece->end;
        }
    }
}

enum dsched_status cut_by_bytes(const struct space *space, uint64_t target_bytes,
                                uint32_t max_buckets, struct layout *out,
                                struct dsched_error *error) {
    struct writer writer = {0};
    struct layout layout = {0};
    enum dsched_status status;
    walk(space, target_bytes, &writer);
    if (writer.n > max_buckets) {
        return refuse(error, DSCHED_LIMIT,
                      "the gradient space takes %u buckets, but at most %u are allowed", writer.n,
                      max_buckets);
    }
    status = layout_init(&layout, writer.n, error);
    if (status != DSCHED_OK) {
        return status;
    }
    writer = (struct writer){.buckets = layout.buckets};
    walk(space, target_bytes, &writer);
    *out = layout;
    return DSCHED_OK;
}

/* --- by search -------------------------------------------------------------------------------- */

/* Tensors are fused so far that a cut inside hardly matters: the time grows with the square of the
 * number of pieces, and with the labels that several links take. */
#define PIECES_ONE_LINK   192u
#define PIECES_MANY_LINKS 96u
/* Changes of dtype cut too. */
#define MAX_PIECES 512u
/* Labels per piece. */
#define LEAST_LABELS 3u
#define MOST_LABELS  1024u

struct pieces {
    const struct dsched_profile *profile;
    uint32_t jitter_ppm;
    uint32_t first_link; /* of n_links in the search */
    uint32_t n_links;
    uint32_t n;
    uint64_t ends[MAX_PIECES];      /* elements */
    uint64_t bytes[MAX_PIECES + 1]; /* before each piece */
    int64_t ready_ns[MAX_PIECES];
    uint32_t fuse_from[MAX_PIECES];
    int64_t values[MAX_PIECES];
    int64_t least_ns[DSCHED_MAX_LINKS * MAX_PIECES];
    uint32_t last[MAX_PIECES];
    uint8_t links[MAX_PIECES];
};

/* Elements begin..end of one dtype, ready together, as `n_parts` pieces. 0: too many. */
static int add_pieces(struct pieces *pieces, const struct space_piece *piece, uint64_t begin,
                      uint32_t run, uint64_t n_parts) {
    uint64_t from = begin;
    if (n_parts > MAX_PIECES - pieces->n) {
        return 0;
    }
    for (uint64_t k = 1; k <= n_parts; k++) {
        uint32_t i = pieces->n++;
        uint64_t end = begin + (piece->end - begin) * k / n_parts;
        pieces->ends[i] = end;
        pieces->values[i] = (int64_t)(end - from);
        pieces->ready_ns[i] = piece->ready_ns;
        pieces->fuse_from[i] = run;
        pieces->bytes[i + 1] = pieces->bytes[i] + (end - from) * piece->element_bytes;
        from = end;
    }
    return 1;
}

/* Pieces that leave LEAST_LABELS for each, if several links need them. */
static uint32_t most_pieces(const struct pieces *pieces, uint32_t n_labels) {
    uint32_t n = PIECES_MANY_LINKS;
    if (pieces->n_links == 1) {
        return PIECES_ONE_LINK;
    }
    while (n > 1 && n * n * LEAST_LABELS > n_labels) {
        n--;
    }
    return n;
}

/* 0 when there are too many. */
static int make_pieces(const struct space *space, const struct cut_goal *goal,
                       struct pieces *pieces) {
    uint64_t part_bytes = goal->part_bytes;
    uint32_t most = most_pieces(pieces, goal->n_labels);
    uint64_t least_bytes = space->n_pieces <= most ? 0 : space->n_bytes / most + 1;
    uint64_t begin = 0;
    uint32_t run = 0;
    for (uint32_t p = 0; p < space->n_pieces; p++) {
        const struct space_piece *piece = &space->pieces[p];
        int is_run_end = p + 1 == space->n_pieces || piece[1].dtype != piece->dtype;
        uint64_t bytes = (piece->end - begin) * piece->element_bytes;
        uint64_t n_parts = part_bytes > 0 ? bytes / part_bytes : 1;
        if (bytes < least_bytes && !is_run_end) {
            continue;
        }
        if (!add_pieces(pieces, piece, begin, run, n_parts == 0 ? 1 : n_parts)) {
            return 0;
        }
        begin = piece->end;
        run = is_run_end ? pieces->n : run;
    }
    return 1;
}

static void fill_least(struct pieces *pieces) {
    for (uint32_t l = 0; l < pieces->n_links; l++) {
        struct split_rate rate = split_best_rate(&pieces->profile->links[pieces->first_link + l]);
        for (uint32_t i = 0; i < pieces->n; i++) {
            pieces->least_ns[l * pieces->n + i] =
                split_least_ns(rate, pieces->bytes[i + 1] - pieces->bytes[i]);
        }
    }
}

static int64_t cost(const void *context, uint32_t first, uint32_t last, uint32_t link) {
    const struct pieces *pieces = context;
    int64_t ns = dsched_link_ns(&pieces->profile->links[pieces->first_link + link],
                                pieces->bytes[last + 1] - pieces->bytes[first]);
    return pieces->jitter_ppm == 0 ? ns : muldiv_stretch(ns, pieces->jitter_ppm);
}

static uint32_t labels_for(const struct pieces *pieces, uint32_t n_labels) {
    uint32_t n = pieces->n == 0 ? 1 : pieces->n;
    uint32_t width = n_labels / (n * n);
    if (pieces->n_links == 1) {
        return 1; /* a prefix that lands earlier is never worse for what follows */
    }
    return width < LEAST_LABELS ? LEAST_LABELS : width > MOST_LABELS ? MOST_LABELS : width;
}

static enum dsched_status write_layout(const struct pieces *pieces,
                                       const struct labels_packing *packing, struct layout *out,
                                       struct dsched_error *error) {
    struct layout layout = {0};
    uint64_t begin = 0;
    enum dsched_status status = layout_init(&layout, packing->n_buckets, error);
    if (status != DSCHED_OK) {
        return status;
    }
    for (uint32_t b = 0; b < packing->n_buckets; b++) {
        uint64_t end = pieces->ends[packing->last[b]];
        layout.buckets[b] = (struct dsched_bucket){.begin = begin, .end = end};
        layout.links[b] = (uint8_t)(pieces->first_link + packing->links[b]);
        begin = end;
    }
    *out = layout;
    return DSCHED_OK;
}

enum dsched_status cut_by_search(const struct dsched_profile *profile, const struct space *space,
                                 const struct cut_goal *goal, struct layout *out,
                                 int64_t *out_bound, struct dsched_error *error) {
    struct pieces *pieces = calloc(1, sizeof(*pieces));
    struct labels_problem problem;
    struct labels_packing packing;
    enum dsched_status status;
    if (pieces == NULL) {
        return refuse_memory(error, "a cut of the gradient space");
    }
    pieces->profile = profile;
    pieces->jitter_ppm = goal->jitter_ppm;
    pieces->first_link = goal->only_link > 0 ? goal->only_link - 1 : 0;
    pieces->n_links = goal->only_link > 0 ? 1 : profile->n_links;
    if (!make_pieces(space, goal, pieces)) {
        status = refuse(error, DSCHED_LIMIT,
                        "the gradient space changes its dtype too often: more than %u pieces",
                        MAX_PIECES);
        goto done;
    }
    fill_least(pieces);
    for (uint32_t i = 0; i < pieces->n; i++) {
        pieces->ready_ns[i] =
            goal->kind == CUT_WORK ? 0 : muldiv_stretch(pieces->ready_ns[i], goal->slow_ppm);
    }
    problem = (struct labels_problem){.n = pieces->n,
                                      .n_links = pieces->n_links,
                                      .width = labels_for(pieces, goal->n_labels),
                                      .ready_ns = pieces->ready_ns,
                                      .fuse_from = pieces->fuse_from,
                                      .least_ns = pieces->least_ns,
                                      .cost = cost,
                                      .context = pieces,
                                      .values = goal->kind == CUT_LATE ? pieces->values : NULL,
                                      .deadline_ns = goal->deadline_ns,
                                      .limit_ns = goal->limit_ns,
                                      .known = goal->known};
    packing = (struct labels_packing){.last = pieces->last, .links = pieces->links};
    status = labels_search(&problem, &packing);
    if (status != DSCHED_OK) {
        (void)refuse_memory(error, "a cut of the gradient space");
        goto done;
    }
    status = packing.is_better ? write_layout(pieces, &packing, out, error) : DSCHED_INFEASIBLE;
    if (status == DSCHED_OK || status == DSCHED_INFEASIBLE) {
        *out_bound = packing.bound;
    }
done:
    free(pieces);
    return status;
}
