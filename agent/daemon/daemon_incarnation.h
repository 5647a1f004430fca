/* One start of the job, as its local ranks describe it.
 *
 * Key, table and links never change after creation and are read by several threads; the
 * registration grows with every local rank and belongs to the main thread. */
#ifndef DAEMON_INCARNATION_H
#define DAEMON_INCARNATION_H

#include <stdatomic.h>
#include <stdint.h>

#include <deft/status.h>
#include <dsched/profile.h>

#include "daemon_options.h"
#include "ipc/ipc.h"
#include "wire/wire.h"

struct daemon_incarnation {
    atomic_int n_references;
    char job[WIRE_ID_BYTES];
    char named_job[WIRE_ID_BYTES]; /* what the ranks call it */
    char key[WIRE_ID_BYTES];
    uint64_t table_hash; /* what the ranks announced */
    uint32_t n_links;
    struct dsched_table table;
    struct wire_registration registration;
};

/* From the first rank that is ready; one reference is the caller's. */
DEFT_NODISCARD enum deft_status
daemon_incarnation_new(const struct daemon_options *options, const char *agent,
                       const struct ipc_hello *hello, const struct ipc_tensor *tensors,
                       const struct ipc_link *links, struct daemon_incarnation **out,
                       struct deft_error *error);
/* Whether `hello` is of the same job and start and describes the same model and world. */
DEFT_NODISCARD enum deft_status daemon_incarnation_suits(const struct daemon_incarnation *inc,
                                                         const struct ipc_hello *hello,
                                                         struct deft_error *error);
/* Adds a local rank; what not every rank is capable of, the job is not. */
DEFT_NODISCARD enum deft_status daemon_incarnation_join(struct daemon_incarnation *inc,
                                                        const struct ipc_hello *hello,
                                                        struct deft_error *error);

struct daemon_incarnation *daemon_incarnation_ref(struct daemon_incarnation *inc);
void daemon_incarnation_unref(struct daemon_incarnation *inc); /* takes NULL */

#endif
