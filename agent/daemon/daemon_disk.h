/* Files that outlive an agent: what it could not deliver, for itself or for the next one.
 *
 *   DIR/AGENT.spool/lock         held (flock) while the agent lives or another one delivers
 *   DIR/AGENT.spool/N.start      job and registration of the agent's n-th incarnation
 *   DIR/AGENT.spool/N-SEQ-ITERATIONS-EVENTS-LOSSES.report
 *
 * DIR/AGENT.spool is open to its owner only. Files are made under another name and renamed, and
 * carry their size and a checksum: what a crash of the host has torn is told from what is whole.
 * Nothing is synced, because a job does not outlive its host either. Not thread-safe. */
#ifndef DAEMON_DISK_H
#define DAEMON_DISK_H

#include <stddef.h>
#include <stdint.h>

#include <deft/status.h>

#include "wire/wire.h"

/* A leftover that no agent came for within a day is of no use to a tuner. */
#define DAEMON_DISK_KEEP_S 86400
/* Files are counted in blocks, as file systems do. */
#define DAEMON_DISK_BLOCK_BYTES 4096u
#define DAEMON_DISK_HOST_BYTES  64u

/* The folder of one agent, locked. */
struct daemon_disk;

/* A report as its file's name tells it. */
struct daemon_disk_name {
    uint32_t start; /* which incarnation of the agent */
    uint64_t seq;
    uint32_t n_iterations;
    uint32_t n_events;
    int has_loss;
};

/* Makes `dir` where it is missing and the folder of `agent` in it. */
DEFT_NODISCARD enum deft_status daemon_disk_make(const char *dir, const char *agent,
                                                 struct daemon_disk **out,
                                                 struct deft_error *error);
/* Releases the lock. An empty folder is removed, and so is one whose files are `worthless`. Takes
 * NULL. */
void daemon_disk_close(struct daemon_disk *disk, int worthless);

/* Both replace what is there. A failure leaves nothing behind. */
DEFT_NODISCARD enum deft_status daemon_disk_write_start(struct daemon_disk *disk, uint32_t start,
                                                        const char *job, const char *registration,
                                                        struct deft_error *error);
DEFT_NODISCARD enum deft_status daemon_disk_write_report(struct daemon_disk *disk,
                                                         const struct daemon_disk_name *name,
                                                         const char *json,
                                                         struct deft_error *error);
/* DEFT_INVALID when the file is torn, DEFT_IO when it cannot be read. Texts are malloc'ed. */
DEFT_NODISCARD enum deft_status daemon_disk_read_start(struct daemon_disk *disk, uint32_t start,
                                                       char out_job[WIRE_ID_BYTES],
                                                       char **out_registration,
                                                       struct deft_error *error);
DEFT_NODISCARD enum deft_status daemon_disk_read_report(struct daemon_disk *disk,
                                                        const struct daemon_disk_name *name,
                                                        char **out_json, size_t *out_bytes,
                                                        struct deft_error *error);
void daemon_disk_remove_start(struct daemon_disk *disk, uint32_t start);
void daemon_disk_remove_report(struct daemon_disk *disk, const struct daemon_disk_name *name);

struct daemon_disk_found {
    struct daemon_disk_name name;
    uint64_t n_bytes; /* in whole blocks */
};
/* All reports, in the order of their numbers; malloc'ed, NULL for none. */
DEFT_NODISCARD enum deft_status daemon_disk_list(struct daemon_disk *disk,
                                                 struct daemon_disk_found **out, size_t *out_n,
                                                 struct deft_error *error);

/* Calls `found` for every folder in `dir` of an agent of this host that lives no more and has left
 * a start of `job`, which takes the folder over. Removes the leftovers that are too old, of
 * whatever job. A missing `dir` is no error. */
void daemon_disk_scan(const char *dir, const char *job,
                      void (*found)(void *context, struct daemon_disk *disk), void *context);

/* What a file of so much text takes, in whole blocks. */
uint64_t daemon_disk_file_bytes(size_t n_text_bytes);
/* This host's name, with which the names of its agents begin. */
void daemon_disk_host(char out[DAEMON_DISK_HOST_BYTES]);

#endif
