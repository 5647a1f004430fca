#include "cut.h"

#include "refuse.h"

#include <stdlib.h>

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

/* --- for the boundary ------------------------------------------------------------------------- */

/* Tensors fused so far that a cut inside could not matter. */
#define ATOMS_PER_SPACE 192u
#define MAX_ATOMS       512u

struct atom {
    uint64_t end;
    uint64_t bytes;
    int64_t ready_ns;
    uint8_t dtype;
    uint32_t from;     /* first atom of the bucket that ends here */
    int64_t landed_ns; /* when that bucket has landed, at best */
};

static uint32_t make_atoms(const struct space *space, struct atom *atoms) {
    uint64_t least_bytes = space->n_bytes / ATOMS_PER_SPACE + 1;
    uint64_t bytes = 0;
    uint32_t n = 0;
    for (uint32_t p = 0; p < space->n_pieces; p++) {
        const struct space_piece *piece = &space->pieces[p];
        int is_run_end = p + 1 == space->n_pieces || piece[1].dtype != piece->dtype;
        bytes += (piece->end - piece->begin) * piece->element_bytes;
        if (bytes < least_bytes && !is_run_end) {
            continue;
        }
        if (n == MAX_ATOMS) {
            return MAX_ATOMS + 1;
        }
        atoms[n++] = (struct atom){
            .end = piece->end, .bytes = bytes, .ready_ns = piece->ready_ns, .dtype = piece->dtype};
        bytes = 0;
    }
    return n;
}

/* landed[i] = min over j <= i of max(landed[j - 1], ready[i]) + cost(j..i): a prefix that lands
 * earlier is never worse for what follows, so the minimum is exact. */
static void solve(const struct dsched_link *link, struct atom *atoms, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        uint64_t bytes = 0;
        atoms[i].landed_ns = INT64_MAX;
        for (uint32_t j = i + 1; j-- > 0 && atoms[j].dtype == atoms[i].dtype;) {
            int64_t begin_ns = j > 0 ? atoms[j - 1].landed_ns : 0;
            int64_t landed_ns;
            bytes += atoms[j].bytes;
            begin_ns = begin_ns > atoms[i].ready_ns ? begin_ns : atoms[i].ready_ns;
            landed_ns = begin_ns + dsched_link_ns(link, bytes);
            if (landed_ns <= atoms[i].landed_ns) {
                atoms[i].landed_ns = landed_ns;
                atoms[i].from = j;
            }
        }
    }
}

enum dsched_status cut_for_boundary(const struct dsched_profile *profile, const struct space *space,
                                    struct layout *out, struct dsched_error *error) {
    struct atom *atoms = calloc(MAX_ATOMS, sizeof(*atoms));
    struct layout layout = {0};
    enum dsched_status status;
    uint32_t n_atoms;
    uint32_t n = 0;
    if (atoms == NULL) {
        return refuse_memory(error, "a cut of the gradient space");
    }
    n_atoms = make_atoms(space, atoms);
    if (n_atoms > MAX_ATOMS) {
        status = refuse(error, DSCHED_LIMIT,
                        "the gradient space changes its dtype too often: more than %u pieces",
                        MAX_ATOMS);
        goto done;
    }
    solve(&profile->links[0], atoms, n_atoms);
    for (uint32_t i = n_atoms; i > 0; i = atoms[i - 1].from) {
        n++;
    }
    status = layout_init(&layout, n, error);
    if (status != DSCHED_OK) {
        goto done;
    }
    for (uint32_t i = n_atoms; i > 0; i = atoms[i - 1].from) {
        uint32_t from = atoms[i - 1].from;
        layout.buckets[--n] = (struct dsched_bucket){.begin = from > 0 ? atoms[from - 1].end : 0,
                                                     .end = atoms[i - 1].end};
    }
    *out = layout;
done:
    free(atoms);
    return status;
}
