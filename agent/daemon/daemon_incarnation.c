#include "daemon_incarnation.h"

#include <inttypes.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon_text.h"

static void daemon_incarnation_user(char *out, size_t capacity_bytes) {
    struct passwd entry;
    struct passwd *found = NULL;
    char text[4096];
    if (getpwuid_r(geteuid(), &entry, text, sizeof(text), &found) == 0 && found != NULL) {
        daemon_text_copy(out, capacity_bytes, found->pw_name);
    } else {
        (void)snprintf(out, capacity_bytes, "%lu", (unsigned long)geteuid());
    }
}

static const char *daemon_incarnation_optimizer(uint32_t optimizer) {
    static const char *const names[] = {"unknown", "sgd", "adam", "adamw"};
    return optimizer < 4 ? names[optimizer] : names[0];
}

static uint32_t daemon_incarnation_capabilities(const struct ipc_hello *hello) {
    return hello->capabilities & (WIRE_CAN_PREVIEW | WIRE_CAN_SKIP | WIRE_CAN_AVERAGE);
}

static void daemon_incarnation_describe(struct daemon_incarnation *inc,
                                        const struct daemon_options *options, const char *agent,
                                        const struct ipc_hello *hello) {
    struct wire_registration *registration = &inc->registration;
    daemon_text_copy(inc->job, sizeof(inc->job),
                     options->job != NULL ? options->job : hello->job_id);
    daemon_text_copy(inc->named_job, sizeof(inc->named_job), hello->job_id);
    daemon_text_copy(inc->key, sizeof(inc->key), hello->incarnation_key);
    inc->table_hash = hello->table_hash;
    (void)snprintf(registration->key, sizeof(registration->key), "%s", inc->key);
    daemon_text_copy(registration->name, sizeof(registration->name), hello->job_name);
    daemon_incarnation_user(registration->user, sizeof(registration->user));
    (void)snprintf(registration->agent, sizeof(registration->agent), "%s", agent);
    daemon_text_copy(registration->version, sizeof(registration->version), hello->version);
    (void)snprintf(registration->mode, sizeof(registration->mode), "%s", options->mode);
    registration->started_ns = hello->started_ns;
    registration->n_ranks = (uint32_t)hello->n_ranks;
    registration->restart_count = hello->restart_count;
    registration->table_hash = hello->table_hash;
    registration->capabilities = daemon_incarnation_capabilities(hello);
    registration->max_pending_bytes = hello->max_pending_bytes;
    (void)snprintf(registration->optimizer, sizeof(registration->optimizer), "%s",
                   daemon_incarnation_optimizer(hello->optimizer));
    registration->momentum = hello->momentum;
    registration->learning_rate = hello->learning_rate;
    registration->batch_per_rank = hello->batch_per_rank;
    registration->max_merge = options->max_merge;
    registration->max_delay = options->max_delay;
    registration->epsilon = options->epsilon;
}

static enum deft_status daemon_incarnation_tensors(struct daemon_incarnation *inc,
                                                   const struct ipc_hello *hello,
                                                   const struct ipc_tensor *tensors) {
    uint32_t n = hello->n_tensors;
    struct dsched_tensor *described = calloc(n, sizeof(*described));
    uint64_t *elements = calloc(n, sizeof(*elements));
    uint8_t *dtypes = calloc(n, sizeof(*dtypes));
    inc->registration.tensors = described;
    inc->table = (struct dsched_table){.n_tensors = n, .elements = elements, .dtypes = dtypes};
    if (described == NULL || elements == NULL || dtypes == NULL) {
        return DEFT_NO_MEMORY;
    }
    inc->registration.n_tensors = n;
    for (uint32_t i = 0; i < n; i++) {
        daemon_text_copy(described[i].name, sizeof(described[i].name), tensors[i].name);
        described[i].elements = tensors[i].elements;
        described[i].dtype = (enum dsched_dtype)tensors[i].dtype;
        elements[i] = tensors[i].elements;
        dtypes[i] = (uint8_t)tensors[i].dtype;
    }
    return DEFT_OK;
}

static enum deft_status daemon_incarnation_links(struct daemon_incarnation *inc,
                                                 const struct ipc_hello *hello,
                                                 const struct ipc_link *links) {
    inc->n_links = hello->n_links;
    inc->registration.links =
        calloc(hello->n_links > 0 ? hello->n_links : 1, sizeof(struct wire_link));
    if (inc->registration.links == NULL) {
        return DEFT_NO_MEMORY;
    }
    for (uint32_t i = 0; i < hello->n_links; i++) {
        struct wire_link *link = &inc->registration.links[i];
        daemon_text_copy(link->name, sizeof(link->name), links[i].name);
        inc->registration.n_links++;
        if (links[i].n_probes == 0) {
            continue;
        }
        link->probes = calloc(links[i].n_probes, sizeof(*link->probes));
        if (link->probes == NULL) {
            return DEFT_NO_MEMORY;
        }
        link->n_probes = links[i].n_probes;
        for (uint32_t j = 0; j < link->n_probes; j++) {
            link->probes[j] = (struct dsched_sample){.bytes = links[i].probes[j].bytes,
                                                     .ns = links[i].probes[j].ns};
        }
    }
    return DEFT_OK;
}

enum deft_status daemon_incarnation_new(const struct daemon_options *options, const char *agent,
                                        const struct ipc_hello *hello,
                                        const struct ipc_tensor *tensors,
                                        const struct ipc_link *links,
                                        struct daemon_incarnation **out, struct deft_error *error) {
    struct daemon_incarnation *inc = calloc(1, sizeof(*inc));
    if (inc == NULL) {
        return deft_fail(error, DEFT_NO_MEMORY, 0, "no memory for an incarnation");
    }
    atomic_init(&inc->n_references, 1);
    daemon_incarnation_describe(inc, options, agent, hello);
    if (daemon_incarnation_tensors(inc, hello, tensors) != DEFT_OK ||
        daemon_incarnation_links(inc, hello, links) != DEFT_OK) {
        daemon_incarnation_unref(inc);
        return deft_fail(error, DEFT_NO_MEMORY, 0, "no memory for a table of %u tensors",
                         hello->n_tensors);
    }
    enum deft_status status = daemon_incarnation_join(inc, hello, error);
    if (status != DEFT_OK) {
        daemon_incarnation_unref(inc);
        return status;
    }
    *out = inc;
    return DEFT_OK;
}

enum deft_status daemon_incarnation_suits(const struct daemon_incarnation *inc,
                                          const struct ipc_hello *hello, struct deft_error *error) {
    char job[WIRE_ID_BYTES];
    char key[WIRE_ID_BYTES];
    daemon_text_copy(job, sizeof(job), hello->job_id);
    daemon_text_copy(key, sizeof(key), hello->incarnation_key);
    if (strcmp(job, inc->named_job) != 0) {
        return deft_fail(error, DEFT_STATE, 0,
                         "rank %d belongs to job '%s', but ranks of job '%s' are connected: each "
                         "job has an agent of its own",
                         hello->rank, job, inc->named_job);
    }
    if (strcmp(key, inc->key) != 0) {
        return deft_fail(error, DEFT_STATE, 0,
                         "rank %d belongs to incarnation '%s', but ranks of '%s' are connected",
                         hello->rank, key, inc->key);
    }
    if ((uint32_t)hello->n_ranks != inc->registration.n_ranks ||
        hello->table_hash != inc->table_hash || hello->n_links != inc->n_links ||
        hello->n_tensors != inc->table.n_tensors) {
        return deft_fail(error, DEFT_MISMATCH, 0,
                         "rank %d has another world, model or set of links than the first rank: "
                         "%d ranks, %u tensors (hash %016" PRIx64 "), %u links",
                         hello->rank, hello->n_ranks, hello->n_tensors, hello->table_hash,
                         hello->n_links);
    }
    return DEFT_OK;
}

enum deft_status daemon_incarnation_join(struct daemon_incarnation *inc,
                                         const struct ipc_hello *hello, struct deft_error *error) {
    struct wire_registration *registration = &inc->registration;
    registration->capabilities &= daemon_incarnation_capabilities(hello);
    for (uint32_t i = 0; i < registration->n_local_ranks; i++) {
        if (registration->local_ranks[i] == (uint32_t)hello->rank) {
            return DEFT_OK; /* it has connected again */
        }
    }
    uint32_t *ranks =
        realloc(registration->local_ranks, (registration->n_local_ranks + 1) * sizeof(*ranks));
    if (ranks == NULL) {
        return deft_fail(error, DEFT_NO_MEMORY, 0, "no memory for rank %d", hello->rank);
    }
    registration->local_ranks = ranks;
    ranks[registration->n_local_ranks++] = (uint32_t)hello->rank;
    return DEFT_OK;
}

struct daemon_incarnation *daemon_incarnation_ref(struct daemon_incarnation *inc) {
    (void)atomic_fetch_add(&inc->n_references, 1);
    return inc;
}

void daemon_incarnation_unref(struct daemon_incarnation *inc) {
    if (inc == NULL || atomic_fetch_sub(&inc->n_references, 1) > 1) {
        return;
    }
    /* The table's arrays are const for its readers. */
    union {
        const void *in;
        void *out;
    } elements = {.in = inc->table.elements}, dtypes = {.in = inc->table.dtypes};
    free(elements.out);
    free(dtypes.out);
    wire_registration_done(&inc->registration);
    free(inc);
}
