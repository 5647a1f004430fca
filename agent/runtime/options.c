#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <deft/deft.h>

#define OPTIONS_NS_PER_S INT64_C(1000000000)

/* The first of `names` (NULL-terminated) that is set and not empty. */
static const char *options_find(const char *const *names, const char **out_name) {
    for (; *names != NULL; names++) {
        const char *text = getenv(*names);
        if (text != NULL && text[0] != '\0') {
            *out_name = *names;
            return text;
        }
    }
    return NULL;
}

/* Leaves `*out` alone when none of `names` is set. */
static enum deft_status options_number(const char *const *names, uint64_t max, uint64_t *out,
                                       struct deft_error *error) {
    const char *name = NULL;
    const char *text = options_find(names, &name);
    if (text == NULL) {
        return DEFT_OK;
    }
    char *end = NULL;
    errno = 0;
    uint64_t value = strtoull(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end != '\0' || errno != 0 || value > max) {
        return deft_fail(error, DEFT_INVALID, 0,
                         "environment variable %s is '%.40s', expected a number from 0 to %" PRIu64,
                         name, text, max);
    }
    *out = value;
    return DEFT_OK;
}

static const char *options_text(const char *const *names, const char *otherwise) {
    const char *name = NULL;
    const char *text = options_find(names, &name);
    return text != NULL ? text : otherwise;
}

enum deft_status deft_options_init(struct deft_options *options, struct deft_error *error) {
    static const char *const rank_names[] = {"DEFT_RANK", "RANK", "SLURM_PROCID", NULL};
    static const char *const world_names[] = {"DEFT_WORLD_SIZE", "WORLD_SIZE", "SLURM_NTASKS",
                                              NULL};
    static const char *const host_names[] = {"DEFT_MASTER_ADDR", "MASTER_ADDR", NULL};
    static const char *const port_names[] = {"DEFT_MASTER_PORT", "MASTER_PORT", NULL};
    static const char *const job_names[] = {"DEFT_JOB_ID", "SLURM_JOB_ID", NULL};
    static const char *const title_names[] = {"DEFT_JOB_NAME", "SLURM_JOB_NAME", NULL};
    static const char *const restart_names[] = {"DEFT_RESTART_COUNT", "TORCHELASTIC_RESTART_COUNT",
                                                "SLURM_RESTART_COUNT", NULL};
    static const char *const link_names[] = {"DEFT_LINKS", NULL};
    static const char *const socket_names[] = {"DEFT_AGENT_SOCKET", NULL};
    static const char *const device_names[] = {"DEFT_DEVICE", NULL};
    static const char *const pending_names[] = {"DEFT_MAX_PENDING_BYTES", NULL};
    struct deft_options found = {.size_bytes = sizeof(found),
                                 .connect_timeout_ns = 60 * OPTIONS_NS_PER_S,
                                 .op_timeout_ns = 1800 * OPTIONS_NS_PER_S,
                                 .master_fd = -1,
                                 .capabilities = 0};
    uint64_t rank = 0;
    uint64_t n_ranks = 1;
    uint64_t port = 29477; /* unassigned at IANA; torchrun's 29500 stays free for torch */
    uint64_t restarts = 0;
    uint64_t pending_bytes = 0;
    enum deft_status status = options_number(rank_names, DEFT_MAX_RANKS - 1, &rank, error);
    if (status == DEFT_OK) {
        status = options_number(world_names, DEFT_MAX_RANKS, &n_ranks, error);
    }
    if (status == DEFT_OK) {
        status = options_number(port_names, 65535, &port, error);
    }
    if (status == DEFT_OK) {
        status = options_number(restart_names, UINT32_MAX, &restarts, error);
    }
    if (status == DEFT_OK) {
        status = options_number(pending_names, INT64_MAX, &pending_bytes, error);
    }
    if (status != DEFT_OK) {
        return status;
    }
    found.rank = (int32_t)rank;
    found.n_ranks = (int32_t)n_ranks;
    found.master_port = (uint16_t)port;
    found.restart_count = (uint32_t)restarts;
    found.max_pending_bytes = pending_bytes;
    found.master_host = options_text(host_names, "127.0.0.1");
    found.job_id = options_text(job_names, "local");
    found.job_name = options_text(title_names, "");
    found.links = options_text(link_names, "gloo");
    found.agent_socket = options_text(socket_names, "");
    found.device = options_text(device_names, "cpu");
    *options = found;
    return DEFT_OK;
}
