/* What is kept of one rank's trace: compact records, no texts but the names of collectives. */
#ifndef KINETO_TRACE_H
#define KINETO_TRACE_H

#include <stddef.h>
#include <stdint.h>

#include <deft/status.h>
#include <dsched/profile.h>

#include "kineto.h"

/* Instants are nanoseconds since the profiler's epoch; ends are not part of a span. */
struct kineto_span {
    int64_t begin_ns;
    int64_t end_ns;
};

#define KINETO_DTYPE_UNKNOWN 254u
#define KINETO_DTYPE_FOREIGN 255u /* integers and what else gradients are not made of */

/* A call on the host that starts work on a device. */
struct kineto_launch {
    uint64_t correlation;
    int64_t at_ns;
    uint32_t thread;
};

enum kineto_work {
    KINETO_COMPUTE,
    KINETO_COPY,  /* copies and fills of memory */
    KINETO_REDUCE /* any collective */
};

#define KINETO_NO_LAUNCH     INT64_MIN
#define KINETO_NO_COLLECTIVE UINT32_MAX

/* Work on a device; in a trace without devices, a collective on the host. */
struct kineto_kernel {
    int64_t begin_ns;
    int64_t end_ns;
    uint64_t correlation;
    int64_t launched_ns; /* by kineto_join; KINETO_NO_LAUNCH: not in the trace */
    uint32_t collective; /* index of what it carries out, or KINETO_NO_COLLECTIVE */
    uint8_t work;        /* enum kineto_work */
    uint8_t dtype;       /* enum dsched_dtype as its name tells, or KINETO_DTYPE_UNKNOWN */
};

enum kineto_source {
    KINETO_PARAMS, /* record_param_comms: on the host, around the launch */
    KINETO_TITLE,  /* "nccl:all_reduce": on the host, around the launch */
    KINETO_HOST,   /* "gloo:all_reduce": the work itself, on a thread of the host */
    KINETO_DEVICE  /* arguments of the kernel */
};

struct kineto_collective {
    int64_t begin_ns;
    int64_t end_ns;
    uint64_t elements; /* 0: unknown */
    uint32_t thread;
    uint8_t name;  /* index into names */
    uint8_t group; /* index into groups; 0: unknown */
    uint8_t dtype; /* enum dsched_dtype or KINETO_DTYPE_* */
    uint8_t source;
};

struct kineto_mark {
    uint64_t number; /* of a step */
    struct kineto_span span;
};

/* The gradient of one parameter is complete on the host. */
struct kineto_gradient {
    uint64_t elements; /* 0: the profiler recorded no shapes */
    int64_t at_ns;
};

/* A growing array of records, of which all together count towards KINETO_MAX_RECORDS. */
struct kineto_array {
    void *items;
    uint32_t n;
    uint32_t capacity;
};

struct kineto_names {
    uint32_t n;
    char text[KINETO_MAX_NAMES][KINETO_NAME_BYTES]; /* [0] is what found no room: "other" */
};

struct kineto_trace {
    char path[128];
    int64_t rank;        /* -1: the trace does not tell */
    uint32_t world_size; /* 0: the trace does not tell */
    uint64_t n_events;
    uint32_t n_records;
    uint32_t max_records;
    uint32_t n_legacy; /* events without category, of profilers before Kineto */
    int has_titles;    /* collectives of devices were called */
    int has_device;    /* by kineto_join: kernels are of a device, not of the host */
    struct kineto_names names;
    struct kineto_names groups;
    struct kineto_array launches;    /* struct kineto_launch */
    struct kineto_array kernels;     /* struct kineto_kernel */
    struct kineto_array collectives; /* struct kineto_collective */
    struct kineto_array steps;       /* struct kineto_mark */
    struct kineto_array optimizers;  /* struct kineto_span */
    struct kineto_array forwards;    /* struct kineto_span: DistributedDataParallel.forward */
    struct kineto_array backwards;   /* struct kineto_span: nodes of the autograd engine */
    struct kineto_array gradients;   /* struct kineto_gradient */
    struct kineto_array operators;   /* struct kineto_span; none once a kernel was seen */
};

/* `max_records` bounds what this trace may keep. */
DEFT_NODISCARD enum deft_status kineto_trace_create(const char *path, uint32_t max_records,
                                                    struct kineto_trace **out,
                                                    struct deft_error *error);

/* Releases all records; the counts of events and records stay. */
void kineto_trace_empty(struct kineto_trace *trace);

/* Appends one record of `item_bytes`. */
DEFT_NODISCARD enum deft_status kineto_trace_keep(struct kineto_trace *trace,
                                                  struct kineto_array *array, const void *item,
                                                  size_t item_bytes, struct deft_error *error);
/* Operators of the host tell nothing more once devices are known to compute. */
void kineto_trace_drop_operators(struct kineto_trace *trace);

/* Index of `text`, entered if new. Bytes that are not printable ASCII become '?'. */
uint8_t kineto_names_index(struct kineto_names *names, const char *text);

#endif
