/* A link: one transport that all-reduces independently of the others.
 *
 * Every backend is one `const struct link_ops` table in its own file. A link starts posted ops
 * strictly in the order of posting, which is the same on all ranks; that is what pairs them. The
 * next one may start before one has ended. */
#ifndef LINK_H
#define LINK_H

#include <stddef.h>
#include <stdint.h>

#include <deft/deft.h>
#include <deft/status.h>

struct device; /* device.h */
struct link;

/* Values of link ops. SUM takes the four floating dtypes, MAX takes LINK_I64 only. */
enum link_reduce { LINK_SUM = 0, LINK_MAX = 1 };
enum link_dtype { LINK_F32 = 0, LINK_F64 = 1, LINK_F16 = 2, LINK_BF16 = 3, LINK_I64 = 4 };
size_t link_dtype_bytes(enum link_dtype dtype);

/* One posted all-reduce. Owned by the caller, who keeps it and `data` alive and unmoved until the
 * op is done (or the link is closed). Fields marked (link) are written by the link alone. */
struct link_op {
    void *data;        /* reduced in place */
    uint64_t elements; /* >= 1 */
    enum link_dtype dtype;
    enum link_reduce reduce;
    /* Called once on the link's thread right after the data has landed and before the op counts as
     * done, e.g. to compute norms while the data is warm. NULL is fine. Not called on failure. */
    void (*landed)(struct link_op *op);
    void *owner; /* for `landed` */
    void *ready; /* mark of the device (device.h) behind which `data` may be read; NULL: at once */

    int32_t state;           /* (link) atomic, enum link_op_state: read it through link_test */
    enum deft_status status; /* (link) valid once done */
    int64_t posted_ns;       /* (link) monotonic clock */
    int64_t start_ns;        /* (link) */
    int64_t end_ns;          /* (link) */
    struct link_op *next;    /* (link) queue */
    void *ticket;            /* (link) */
};
enum link_op_state { LINK_OP_IDLE = 0, LINK_OP_QUEUED = 1, LINK_OP_DONE = 2 };

/* What a backend needs to meet its peers: the caller's all-gather and nothing of any launcher.
 * All ranks call with the same bytes_per_rank in the same order. */
struct link_world {
    int32_t rank;
    int32_t n_ranks;
    deft_allgather_fn allgather;
    void *allgather_context;
    int64_t connect_timeout_ns;
    int64_t op_timeout_ns; /* a single op may take this long before it fails with DEFT_TIMEOUT */
    int one_at_a_time;     /* no op may start before the one before has ended */
    struct device *device; /* where the data of ops is; NULL: in host memory */
};

struct link_ops {
    const char *backend; /* "gloo", "nccl", "mem" */
    /* Whether this process and `device` have what `open` needs, before the ranks meet; NULL: they
     * have. */
    enum deft_status (*check)(const struct device *device, struct deft_error *error);
    /* `name` is what follows the colon: an interface for gloo and nccl (which takes "" for any), a
     * fabric for mem. Collective. */
    enum deft_status (*open)(const char *name, const struct link_world *world, struct link **out,
                             struct deft_error *error);
    /* Takes what memory ops of at most `n_bytes` need, so that none is missing when they run. Any
     * thread, one at a time; may wait for the device. DEFT_NO_MEMORY: there is none, and the link
     * goes on with what it has. NULL: ops need none. */
    enum deft_status (*reserve)(struct link *link, size_t n_bytes, struct deft_error *error);
    /* Never blocks on the network. */
    enum deft_status (*post)(struct link *link, struct link_op *op);
    /* Waits until `op` is done or until `deadline_ns` (monotonic; INT64_MAX: no end). Returns the
     * op's status, DEFT_TIMEOUT when the deadline passed, or the link's failure. */
    enum deft_status (*wait)(struct link *link, struct link_op *op, int64_t deadline_ns);
    /* Makes all that is queued on the device's `stream` from now on wait for `op`, and returns at
     * once. NULL: a link of host memory, whose ops only a host can wait for. */
    enum deft_status (*order)(struct link *link, struct link_op *op, void *stream);
    /* Fails everything queued and everything posted later with `reason`; wakes all waiters. Any
     * thread. Idempotent: the first reason stays. */
    void (*abort)(struct link *link, const struct deft_error *reason);
    /* The error that made ops fail; text "" when none did. */
    void (*failure)(struct link *link, struct deft_error *out_error);
    /* Ends the link's threads; takes NULL. A rank closes when all ranks have seen the end of their
     * ops, or after abort: an early close can break a peer that still reads. Returns 1 when a stuck
     * backend thread had to be left behind (only after abort, after a bounded wait): then the
     * memory of ops that were queued must never be freed. Returns 0 otherwise. */
    int (*close)(struct link *link);
};

/* First member of every backend's link. */
struct link {
    const struct link_ops *ops;
};

extern const struct link_ops link_mem;
#ifdef DEFT_WITH_GLOO
extern const struct link_ops link_gloo;
#endif
#ifdef DEFT_WITH_CUDA
extern const struct link_ops link_nccl;
#endif
/* A link of host memory for data on world->device: copies it through pinned memory on streams of
 * its own. Opened as "BACKEND:NAME" of the other link. */
extern const struct link_ops link_stage;
/* By backend name; NULL when this build has none of that name. */
const struct link_ops *link_backend(const char *backend);

/* True once the op is done, without waiting. */
int link_test(const struct link_op *op);

#endif
