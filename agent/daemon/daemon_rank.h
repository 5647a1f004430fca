/* The connection of one local rank: what it said so far, and what it has yet to be told. */
#ifndef DAEMON_RANK_H
#define DAEMON_RANK_H

#include <stddef.h>
#include <stdint.h>

#include <deft/status.h>

#include "ipc/ipc.h"

/* Frames that wait for a rank to read them: one largest plan and a few commands. */
#define DAEMON_RANK_OUT_BYTES (IPC_MAX_PAYLOAD_BYTES + 65536u)

enum daemon_rank_phase {
    DAEMON_RANK_NEW,   /* has said nothing */
    DAEMON_RANK_TABLE, /* hello is there; tensors and links arrive */
    DAEMON_RANK_READY, /* all is there: telemetry */
};

struct daemon_rank {
    int fd;
    enum daemon_rank_phase phase;
    struct ipc_reader reader;
    struct ipc_hello hello;
    struct ipc_tensor *tensors; /* until the rank is ready */
    uint32_t n_tensors;
    struct ipc_link *links; /* [hello.n_links], until the rank is ready */
    uint32_t links_seen;    /* bit per index */
    int finished;           /* said goodbye: FINISHED or FAILED */
    uint64_t plan_seq;      /* newest plan in or through `out` */
    uint8_t *out;
    size_t out_begin;
    size_t out_end;
    short revents; /* what poll said of it in this round */
};

/* What a rank's frames do outside of its connection. */
struct daemon_rank_sink {
    void *context;
    /* Everything before READY has arrived; a failure closes the connection. */
    enum deft_status (*ready)(void *context, struct daemon_rank *rank, struct deft_error *error);
    /* A frame of telemetry of a ready rank, or an event of any rank. */
    void (*record)(void *context, struct daemon_rank *rank, uint16_t type, const void *payload,
                   size_t n_bytes);
};

struct daemon_rank *daemon_rank_new(int fd); /* takes the descriptor; NULL without memory */
void daemon_rank_free(struct daemon_rank *rank);

/* Reads what is there and hands it on. DEFT_CLOSED when the rank has gone; any other failure means
 * that the connection must be closed, with the sentence. */
DEFT_NODISCARD enum deft_status daemon_rank_read(struct daemon_rank *rank,
                                                 const struct daemon_rank_sink *sink,
                                                 struct deft_error *error);

/* Queues a frame; DEFT_LIMIT when the rank has not read what is queued already. */
DEFT_NODISCARD enum deft_status daemon_rank_queue(struct daemon_rank *rank, uint16_t type,
                                                  const void *payload, size_t n_bytes);
/* Writes what the socket takes. DEFT_CLOSED when the rank has gone. */
DEFT_NODISCARD enum deft_status daemon_rank_write(struct daemon_rank *rank);
int daemon_rank_wants_write(const struct daemon_rank *rank);

#endif
