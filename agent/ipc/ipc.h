/* Messages between a rank (libdeft) and its node agent, over one SOCK_STREAM Unix socket.
 *
 * A frame is a header and a payload. Both ends run on one host from one release line, so integers
 * are native; the version must match exactly, otherwise the agent closes and the rank trains
 * untuned. Payloads are fixed-size records, or arrays of them, so a decoder only checks sizes and
 * ranges. */
#ifndef IPC_H
#define IPC_H

#include <stddef.h>
#include <stdint.h>

#include <deft/status.h>

#define IPC_MAGIC   0x54464544u /* "DEFT" */
#define IPC_VERSION 2u
/* Plans of 16,384 buckets x 8 generations are the largest payload; 1 MiB holds them. */
#define IPC_MAX_PAYLOAD_BYTES (1u << 20)
#define IPC_ID_BYTES          128u /* job id, incarnation key, names: zero-terminated */
#define IPC_TEXT_BYTES        256u
/* The same bounds as deft.h and dsched/limits.h, which this room does not include. */
#define IPC_MAX_RANKS    65536
#define IPC_MAX_TENSORS  65536u
#define IPC_MAX_ELEMENTS (UINT64_C(1) << 40)
#define IPC_MAX_LINKS    8u
/* 10^15 ns is 11.6 days: longer durations are nonsense and sums must not overflow. */
#define IPC_MAX_TIME_NS INT64_C(1000000000000000)
/* Iterations, plan numbers, byte counts: they end up in JSON, where 2^53 - 1 is the last integer
 * that every reader keeps exactly. */
#define IPC_MAX_COUNT UINT64_C(9007199254740991)

struct ipc_header {
    uint32_t magic;
    uint16_t version;
    uint16_t type;
    uint32_t payload_bytes;
    uint32_t reserved; /* 0 */
};

enum ipc_type {
    /* rank -> agent */
    IPC_HELLO = 1,      /* struct ipc_hello, first frame of a connection */
    IPC_TENSORS = 2,    /* struct ipc_tensor[]; frames follow until hello.n_tensors are there */
    IPC_LINK = 3,       /* struct ipc_link; one per link, after the tensors */
    IPC_READY = 4,      /* no payload: the rank has committed, everything above was sent */
    IPC_ITERATIONS = 5, /* struct ipc_iteration[] */
    IPC_OPS = 6,        /* struct ipc_op[] */
    IPC_READINESS = 7,  /* struct ipc_readiness, then int64_t[n_tensors] */
    IPC_EVENT = 8,      /* struct ipc_event */
    /* agent -> rank */
    IPC_PLAN = 64,    /* struct ipc_plan, then dsched_plan_encode bytes */
    IPC_COMMAND = 65, /* struct ipc_command */
};

struct ipc_hello {
    int32_t rank;
    int32_t n_ranks;
    int32_t pid;
    uint32_t capabilities; /* DEFT_CAN_PREVIEW, DEFT_CAN_SKIP, IPC_CAN_AVERAGE; what can run */
    uint64_t table_hash;
    uint64_t started_ns; /* wall clock of rank 0's open, the same on all ranks */
    uint32_t n_tensors;
    uint32_t n_links;
    uint32_t restart_count;
    uint32_t optimizer; /* enum deft_optimizer */
    double momentum;
    double learning_rate;
    uint64_t batch_per_rank;
    uint64_t max_pending_bytes;
    char job_id[IPC_ID_BYTES];
    char job_name[IPC_ID_BYTES];
    char incarnation_key[IPC_ID_BYTES]; /* job id + start + restart count: unique per start */
    char version[32];
};
#define IPC_CAN_AVERAGE (1u << 16)

struct ipc_tensor {
    char name[IPC_ID_BYTES];
    uint64_t elements;
    uint32_t dtype;
    uint32_t reserved;
};

#define IPC_MAX_PROBES 16u
struct ipc_link {
    uint32_t index;
    uint32_t n_probes;       /* <= IPC_MAX_PROBES */
    char name[IPC_ID_BYTES]; /* "gloo:eth0" */
    struct {
        uint64_t bytes;
        int64_t ns;
    } probes[IPC_MAX_PROBES]; /* minimum over repetitions, sorted by bytes */
};

/* One iteration of one rank. (incarnation, rank, iteration) is the key everywhere. */
struct ipc_iteration {
    uint64_t iteration;
    uint64_t plan_seq;
    int64_t forward_ns;   /* forward_begin .. backward_begin */
    int64_t backward_ns;  /* backward_begin .. first deft_step */
    int64_t exposed_ns;   /* waiting inside deft_step */
    int64_t optimizer_ns; /* between DEFT_APPLY or DEFT_PREVIEW and the next call */
    int64_t runtime_ns;   /* the runtime's own passes inside deft_step */
    int64_t step_ns;      /* forward_begin .. next forward_begin; 0 when unknown */
    uint64_t bytes;       /* all-reduced payload that landed */
    double loss;          /* NaN: none was given */
    double grad_sq_local; /* |g|^2 of this rank's gradient */
    double grad_sq_mean;  /* of the generation applied here; |mean g|^2, under averaged |M|^2 of its
                             mean change; NaN: none */
    double change_sq_local; /* averaged: |D_r|^2 of this rank's own change in that generation; NaN:
                               none */
    double learning_rate;   /* of the optimizer in this iteration; NaN: unknown */
    uint32_t updates;       /* landed generations applied */
    uint32_t skipped;
    uint32_t merge; /* of the running plan's current generation */
    uint32_t flags; /* IPC_ITERATION_* */
};
#define IPC_ITERATION_DRAINED  (1u << 0) /* nothing was in flight at its end */
#define IPC_ITERATION_SWITCHED (1u << 1) /* first iteration of plan_seq */
#define IPC_ITERATION_BAD_LOSS (1u << 2) /* a loss was given and is not finite; `loss` is NaN */

/* One all-reduce. Offsets from the rank's monotonic clock at commit. */
struct ipc_op {
    uint64_t iteration; /* that ended its generation */
    uint64_t bytes;
    uint32_t bucket;
    uint32_t link;
    int64_t posted_ns;
    int64_t start_ns;
    int64_t end_ns;
};

/* When gradients become ready: mean offset from backward_begin, per tensor id, over `n_iterations`.
 */
struct ipc_readiness {
    uint64_t iteration;
    uint32_t n_iterations;
    uint32_t n_tensors;
};

enum ipc_event_kind {
    IPC_EVENT_SWITCHED = 1, /* plan_seq runs from `iteration` on */
    IPC_EVENT_REFUSED = 2,  /* plan_seq will not run; text says why */
    IPC_EVENT_FINISHED = 3, /* the rank closed in order */
    IPC_EVENT_FAILED = 4,   /* the rank closed after an error; text is the sentence */
    IPC_EVENT_DROPPED = 5,  /* `count` telemetry records were lost so far */
    IPC_EVENT_FUSED = 6,    /* all ranks left plan_seq for exact at `iteration`; text says why */
};
struct ipc_event {
    uint32_t kind;
    uint32_t reserved;
    uint64_t plan_seq;
    uint64_t iteration;
    uint64_t count;
    char text[IPC_TEXT_BYTES];
};

struct ipc_plan {
    uint64_t seq;  /* grows; a rank switches to larger ones only */
    uint64_t hash; /* dsched_plan_hash of the plan that follows */
    /* The fuse (docs/update-rules.md), the same on all ranks. Positive; NaN: not watched. */
    double max_loss;    /* mean loss over all ranks and 4 iterations */
    double max_grad_sq; /* mean over the same of each rank's |g|^2 */
};

enum ipc_command_kind { IPC_COMMAND_DRAIN = 1, IPC_COMMAND_STOP = 2 };
struct ipc_command {
    uint32_t kind;
    uint32_t reserved;
};

/* Checks a header as received. The payload size must also suit the type: ipc_check_payload. */
DEFT_NODISCARD enum deft_status ipc_check_header(const struct ipc_header *header,
                                                 struct deft_error *error);
/* Checks a whole frame: known type, exact or whole-record size, terminated strings, ranges. */
DEFT_NODISCARD enum deft_status ipc_check_payload(uint16_t type, const void *payload,
                                                  size_t n_bytes, struct deft_error *error);

/* --- frames over a socket ----------------------------------------------------------------------*/

/* Reassembles frames from a stream socket. Zero-initialised is valid. */
struct ipc_reader {
    uint8_t *bytes;
    size_t begin; /* bytes before it were handed out */
    size_t n_bytes;
    size_t capacity_bytes;
};
/* Reads what is there (at most one buffer) without blocking. DEFT_CLOSED at end of stream. Never
 * holds more than one largest frame and 64 KiB. */
DEFT_NODISCARD enum deft_status ipc_reader_fill(struct ipc_reader *reader, int fd,
                                                struct deft_error *error);
/* The next whole, checked frame: 1 and pointers valid until the next call with this reader; 0 when
 * incomplete; -1 and `error` when malformed (close the connection). Payload pointers are 8-byte
 * aligned; they are NULL for an empty payload. */
int ipc_reader_next(struct ipc_reader *reader, uint16_t *out_type, const void **out_payload,
                    size_t *out_n_bytes, struct deft_error *error);
void ipc_reader_done(struct ipc_reader *reader);

/* Writes one frame, waiting at most `timeout_ms` for room in total (0: tries once). DEFT_TIMEOUT
 * leaves the stream unusable: close it; so does DEFT_CLOSED, the peer has gone. Never raises
 * SIGPIPE. `tail` (may be NULL) follows `head` (may be NULL) in the payload. */
DEFT_NODISCARD enum deft_status ipc_send(int fd, uint16_t type, const void *head, size_t head_bytes,
                                         const void *tail, size_t tail_bytes, int timeout_ms,
                                         struct deft_error *error);

/* --- sockets -----------------------------------------------------------------------------------
 * All are close-on-exec and non-blocking. A path that begins with '@' is in the abstract namespace.
 * Both ends check that the other belongs to the same user or to root, since anybody may bind or
 * reach an abstract name. */

/* Never blocks: a listener whose queue is full counts as absent. DEFT_NOT_FOUND when nobody
 * listens, DEFT_INVALID when the listener is another user's or the path does not fit. */
DEFT_NODISCARD enum deft_status ipc_connect(const char *path, int *out_fd,
                                            struct deft_error *error);
/* Binds with mode 0600, replacing a socket nobody answers on. DEFT_STATE when somebody listens
 * there, DEFT_INVALID when the path is not a socket or does not fit. */
DEFT_NODISCARD enum deft_status ipc_listen(const char *path, int *out_fd, struct deft_error *error);
/* Accepts a peer of the same user (or root), otherwise DEFT_INVALID and the peer is closed.
 * DEFT_TIMEOUT when nobody waits. */
DEFT_NODISCARD enum deft_status ipc_accept(int listen_fd, int *out_fd, struct deft_error *error);

#endif
