#include "runtime/meeting.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "runtime/star_io.h"

#define MEETING_NCCL       "nccl"
#define MEETING_SUBSTITUTE "gloo" /* also for what only hosts can do */

/* What every rank says of itself; the same for all but the first two fields. */
struct meeting_card {
    uint64_t started_ns;
    int32_t rank;
    int32_t n_ranks;
    uint64_t table_hash;
    uint64_t first_plan; /* a hash of its bytes; 0: none */
    uint32_t n_links;
    uint32_t has_parameters;
    uint32_t is_on_device;
    uint32_t lacks_nccl; /* it was asked for, and this rank has no use of it */
    char job_id[IPC_ID_BYTES];
};

static enum deft_status meeting_gather(struct deft_runtime *rt, const void *in, size_t n_bytes,
                                       void *out, struct deft_error *error) {
    if (rt->options.n_ranks == 1) {
        memcpy(out, in, n_bytes);
        return DEFT_OK;
    }
    if (rt->allgather(rt->allgather_context, in, n_bytes, out) == 0) {
        return DEFT_OK;
    }
    if (rt->star != NULL && rt->allgather_context == rt->star) {
        if (error != NULL) {
            *error = *star_failure(rt->star);
        }
        return star_failure(rt->star)->status;
    }
    return deft_fail(error, DEFT_PEER_LOST, 0,
                     "rank %d: the all-gather that the caller supplied failed", rt->options.rank);
}

/* Whether `spec`, up to its end or a comma, is of NCCL. */
static int meeting_is_nccl(const char *spec) {
    size_t n = strlen(MEETING_NCCL);
    return strncmp(spec, MEETING_NCCL, n) == 0 && strchr(":,", spec[n]) != NULL;
}

static int meeting_lacks_nccl(struct deft_runtime *rt) {
    const struct link_ops *ops = link_backend(MEETING_NCCL);
    struct deft_error why = {.text = ""};
    int is_wished = 0;
    for (const char *spec = rt->options.links; spec != NULL; spec = strchr(spec, ',')) {
        spec += *spec == ',';
        is_wished |= meeting_is_nccl(spec);
    }
    if (!is_wished) {
        return 0;
    }
    if (ops == NULL) {
        (void)deft_fail(&why, DEFT_UNSUPPORTED, 0, "this build of libdeft has none");
    } else if (ops->check(rt->device, &why) == DEFT_OK) {
        return 0;
    }
    (void)snprintf(rt->notice, sizeof(rt->notice), "NCCL is not used, but Gloo: %.300s", why.text);
    return 1;
}

static void meeting_fill(struct deft_runtime *rt, struct meeting_card *card) {
    memset(card, 0, sizeof(*card));
    card->started_ns = (uint64_t)clock_wall_ns();
    card->rank = rt->options.rank;
    card->n_ranks = rt->options.n_ranks;
    (void)snprintf(card->job_id, sizeof(card->job_id), "%s", rt->options.job_id);
    if (rt->life == RUNTIME_OPEN && rt->space.n_bytes > 0) {
        struct dsched_table table = gradspace_table(&rt->space);
        card->table_hash = dsched_table_hash(&table);
        if (rt->first_plan != NULL) {
            card->first_plan =
                runtime_hash(RUNTIME_HASH_START, rt->first_plan, rt->options.first_plan_bytes);
        }
        card->has_parameters = (uint32_t)gradspace_has_parameters(&rt->space);
        card->is_on_device = (uint32_t)rt->device->ops->is_async;
        card->lacks_nccl = (uint32_t)meeting_lacks_nccl(rt);
        for (const char *c = rt->options.links; *c != '\0'; c++) {
            card->n_links += *c == ',';
        }
    }
}

/* Everybody's card, [n_ranks]; NULL with `*out_status` and `error` set when the ranks cannot meet.
 */
static struct meeting_card *meeting_exchange(struct deft_runtime *rt, enum deft_status *out_status,
                                             struct deft_error *error) {
    struct meeting_card own;
    struct meeting_card *cards = calloc((size_t)rt->options.n_ranks, sizeof(*cards));
    if (cards == NULL) {
        *out_status =
            deft_fail(error, DEFT_NO_MEMORY, 0, "no memory for %d ranks", rt->options.n_ranks);
        return NULL;
    }
    meeting_fill(rt, &own);
    *out_status = meeting_gather(rt, &own, sizeof(own), cards, error);
    if (*out_status != DEFT_OK) {
        free(cards);
        return NULL;
    }
    return cards;
}

enum deft_status meeting_begin(struct deft_runtime *rt, struct deft_error *error) {
    const struct deft_options *options = &rt->options;
    enum deft_status status = DEFT_OK;
    rt->allgather = options->allgather;
    rt->allgather_context = options->allgather_context;
    if (rt->allgather == NULL) {
        status =
            star_open(options->master_host, options->master_port, options->master_fd, options->rank,
                      options->n_ranks, options->connect_timeout_ns, &rt->star, error);
        rt->allgather = star_allgather;
        rt->allgather_context = rt->star;
    } else {
        star_io_close(options->master_fd); /* taken over, but the caller has a way to meet */
    }
    if (status != DEFT_OK) {
        return status;
    }
    struct meeting_card *cards = meeting_exchange(rt, &status, error);
    if (cards == NULL) {
        return status;
    }
    for (int32_t r = 0; r < options->n_ranks && status == DEFT_OK; r++) {
        cards[r].job_id[sizeof(cards[r].job_id) - 1] = '\0';
        if (cards[r].rank != r || cards[r].n_ranks != options->n_ranks ||
            strcmp(cards[r].job_id, cards[0].job_id) != 0) {
            status = deft_fail(error, DEFT_MISMATCH, 0,
                               "rank %d says it is rank %d of %d in job '%s', rank 0 is in job "
                               "'%s' of %d ranks",
                               r, cards[r].rank, cards[r].n_ranks, cards[r].job_id, cards[0].job_id,
                               options->n_ranks);
        }
    }
    if (status == DEFT_OK) {
        rt->started_ns = cards[0].started_ns;
        (void)snprintf(rt->incarnation_key, sizeof(rt->incarnation_key), "%.80s-%" PRIx64 "-%u",
                       options->job_id, rt->started_ns, options->restart_count);
    }
    free(cards);
    return status;
}

enum deft_status meeting_compare(struct deft_runtime *rt, struct deft_error *error) {
    enum deft_status status = DEFT_OK;
    struct meeting_card *cards = meeting_exchange(rt, &status, error);
    if (cards == NULL) {
        return status;
    }
    for (int32_t r = 1; r < rt->options.n_ranks && status == DEFT_OK; r++) {
        const char *what = NULL;
        if (cards[r].table_hash != cards[0].table_hash) {
            what = "tensors (number, sizes, types or order)";
        } else if (cards[r].first_plan != cards[0].first_plan) {
            what = "first plans";
        } else if (cards[r].has_parameters != cards[0].has_parameters) {
            what = "registered parameters";
        } else if (cards[r].n_links != cards[0].n_links) {
            what = "numbers of links";
        } else if (cards[r].is_on_device != cards[0].is_on_device) {
            what = "kinds of device";
        }
        if (what != NULL) {
            status = deft_fail(error, DEFT_MISMATCH, 0,
                               "rank %d and rank 0 have different %s: do they run the same program "
                               "with the same options?",
                               r, what);
        }
    }
    /* One link for all or none: a rank that lacks it takes it from the others. */
    for (int32_t r = 0; r < rt->options.n_ranks; r++) {
        if (cards[r].lacks_nccl && rt->notice[0] == '\0') {
            (void)snprintf(rt->notice, sizeof(rt->notice),
                           "NCCL is not used, but Gloo: rank %d cannot use it", r);
        }
    }
    free(cards);
    return status;
}

/* The address of this host from which rank 0 is reached, when there is no star to ask. */
static enum deft_status meeting_look_up(const struct deft_options *options, char *out,
                                        size_t n_bytes, struct deft_error *error) {
    struct addrinfo hints = {.ai_socktype = SOCK_DGRAM};
    struct addrinfo *found = NULL;
    int code = getaddrinfo(options->master_host, "9", &hints, &found);
    if (code != 0) {
        return deft_fail(error, DEFT_NOT_FOUND, code, "rank 0's host '%s' is unknown: %s",
                         options->master_host, gai_strerror(code));
    }
    struct sockaddr_storage address;
    socklen_t length = sizeof(address);
    int fd = socket(found->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    int ok = fd >= 0 && connect(fd, found->ai_addr, found->ai_addrlen) == 0 &&
             getsockname(fd, (struct sockaddr *)&address, &length) == 0 &&
             getnameinfo((struct sockaddr *)&address, length, out, (socklen_t)n_bytes, NULL, 0,
                         NI_NUMERICHOST) == 0;
    code = errno;
    if (fd >= 0) {
        (void)close(fd);
    }
    freeaddrinfo(found);
    if (!ok) {
        return deft_fail(error, DEFT_IO, code, "there is no way to rank 0's host '%s': %s",
                         options->master_host, strerror(code));
    }
    return DEFT_OK;
}

static enum deft_status meeting_own_address(const struct deft_runtime *rt, char *out,
                                            size_t n_bytes, struct deft_error *error) {
    if (rt->star != NULL && rt->options.n_ranks > 1) {
        return star_own_address(rt->star, out, n_bytes, error);
    }
    return meeting_look_up(&rt->options, out, n_bytes, error);
}

static enum deft_status meeting_open_link(struct deft_runtime *rt, const char *spec,
                                          struct device *device, struct runtime_link *out,
                                          struct deft_error *error) {
    struct link_world world = {.rank = rt->options.rank,
                               .n_ranks = rt->options.n_ranks,
                               .allgather = rt->allgather,
                               .allgather_context = rt->allgather_context,
                               .connect_timeout_ns = rt->options.connect_timeout_ns,
                               .op_timeout_ns = rt->options.op_timeout_ns,
                               .one_at_a_time = out == &rt->control_link,
                               .device = device};
    char backend[DSCHED_NAME_BYTES];
    char address[NI_MAXHOST];
    char staged[DSCHED_NAME_BYTES + NI_MAXHOST];
    (void)snprintf(out->spec, sizeof(out->spec), "%s", spec);
    (void)snprintf(backend, sizeof(backend), "%s", spec);
    char *name = strchr(backend, ':');
    if (name != NULL) {
        *name++ = '\0';
    }
    out->ops = link_backend(backend);
    if (out->ops == NULL) {
        return deft_fail(error, DEFT_UNSUPPORTED, 0,
                         "links contain '%s', but this build has no backend '%s'", spec, backend);
    }
    if (name == NULL) {
        name = strchr(backend, '\0');
    }
    if (*name == '\0' && out->ops->order == NULL) {
        enum deft_status status = meeting_own_address(rt, address, sizeof(address), error);
        if (status != DEFT_OK) {
            return status;
        }
        name = address;
    }
    if (device != NULL && out->ops->order == NULL) {
        (void)snprintf(staged, sizeof(staged), "%s:%s", out->ops->backend, name);
        out->ops = &link_stage;
        name = staged;
    }
    return out->ops->open(name, &world, &out->link, error);
}

enum deft_status meeting_open_links(struct deft_runtime *rt, struct deft_error *error) {
    char specs[DSCHED_MAX_LINKS * DSCHED_NAME_BYTES];
    struct device *device = rt->device->ops->is_async ? rt->device : NULL;
    if (strlen(rt->options.links) >= sizeof(specs)) {
        return deft_fail(error, DEFT_LIMIT, 0, "the list of links is longer than %zu bytes",
                         sizeof(specs) - 1);
    }
    (void)snprintf(specs, sizeof(specs), "%s", rt->options.links);
    char *rest = specs;
    int n_nccl = 0;
    for (char *spec = strsep(&rest, ","); spec != NULL; spec = strsep(&rest, ",")) {
        if (rt->n_links == DSCHED_MAX_LINKS) {
            return deft_fail(error, DEFT_LIMIT, 0, "more than %u links were asked for",
                             DSCHED_MAX_LINKS);
        }
        if (strlen(spec) >= DSCHED_NAME_BYTES || spec[0] == '\0') {
            return deft_fail(error, DEFT_INVALID, 0,
                             "links are '%s', expected BACKEND:NAME[,BACKEND:NAME]...",
                             rt->options.links);
        }
        const char *taken = spec;
        n_nccl += meeting_is_nccl(spec);
        if (n_nccl >
            1) { /* two communicators that share a device may wait for each other for ever */
            return deft_fail(error, DEFT_UNSUPPORTED, 0,
                             "links are '%s', expected one of NCCL at most", rt->options.links);
        }
        if (rt->notice[0] != '\0' && meeting_is_nccl(spec)) {
            if (rt->n_links > 0 || rest != NULL) {
                continue;
            }
            taken = MEETING_SUBSTITUTE;
        }
        enum deft_status status =
            meeting_open_link(rt, taken, device, &rt->links[rt->n_links], error);
        if (status != DEFT_OK) {
            return status;
        }
        rt->n_links++;
    }
    /* A connection of its own, for numbers in host memory: on the network of the first link that
     * has one. */
    const char *spec = MEETING_SUBSTITUTE;
    for (uint32_t l = rt->n_links; l-- > 0;) {
        spec = rt->links[l].ops->order == NULL ? rt->links[l].spec : spec;
    }
    enum deft_status status = meeting_open_link(rt, spec, NULL, &rt->control_link, error);
    if (status == DEFT_OK && rt->options.n_ranks > 1) {
        rt->control.ops = rt->control_link.ops;
        rt->control.link = rt->control_link.link;
    }
    return status;
}
