#include <dsched/whatif.h>

#include "muldiv.h"
#include "refuse.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* One above what is allowed, so that the profile's own check finds it. */
#define BEYOND_NS ((uint64_t)DSCHED_MAX_TIME_NS + 1)

/* --- links ------------------------------------------------------------------------------------ */

static uint32_t find(const struct dsched_profile *profile, const char *name) {
    uint32_t l = 0;
    while (l < profile->n_links && strcmp(profile->links[l].name, name) != 0) {
        l++;
    }
    return l;
}

enum dsched_status dsched_whatif_link(struct dsched_profile *profile,
                                      const struct dsched_link *link, struct dsched_error *error) {
    uint32_t at = find(profile, link->name);
    uint32_t n_links = at == profile->n_links ? at + 1 : profile->n_links;
    uint32_t contention_ppm = link->contention_ppm;
    struct dsched_profile changed = *profile;
    enum dsched_status status;
    if (n_links > DSCHED_MAX_LINKS) {
        return refuse(error, DSCHED_LIMIT,
                      "link '%s' would be one more than the %u links that a profile may have",
                      link->name, DSCHED_MAX_LINKS);
    }
    changed.links = calloc(n_links, sizeof(*changed.links));
    if (changed.links == NULL) {
        return refuse_memory(error, "links");
    }
    memcpy(changed.links, profile->links, profile->n_links * sizeof(*changed.links));
    changed.n_links = n_links;
    if (contention_ppm == 0) {
        contention_ppm = at < profile->n_links ? profile->links[at].contention_ppm : MULDIV_PPM;
    }
    changed.links[at] = *link;
    changed.links[at].contention_ppm = contention_ppm;
    changed.links[at].n_samples = 0;
    changed.links[at].samples = NULL;
    status = dsched_profile_check(&changed, error);
    if (status != DSCHED_OK) {
        free(changed.links);
        return status;
    }
    if (at < profile->n_links) {
        free(profile->links[at].samples);
    }
    free(profile->links);
    *profile = changed;
    return DSCHED_OK;
}

/* --- world ------------------------------------------------------------------------------------ */

struct ring {
    uint64_t from; /* W */
    uint64_t to;   /* N */
};

static int64_t latency_ns(const struct ring *ring, int64_t ns) {
    return (int64_t)muldiv_up((uint64_t)ns, ring->to - 1, ring->from - 1, BEYOND_NS);
}

/* Below the smallest sample's time nothing is known to be bandwidth: noise of a measurement. */
static int64_t sample_ns(const struct ring *ring, int64_t ns, int64_t least_ns) {
    uint64_t bandwidth_ns;
    if (ns <= least_ns) {
        return latency_ns(ring, ns);
    }
    bandwidth_ns = muldiv_up((uint64_t)(ns - least_ns), (ring->to - 1) * ring->from,
                             ring->to * (ring->from - 1), BEYOND_NS);
    return latency_ns(ring, least_ns) + (int64_t)bandwidth_ns;
}

static void scale_link(const struct ring *ring, struct dsched_link *link) {
    uint64_t bytes_per_s;
    int64_t least_ns;
    if (link->samples != NULL) {
        least_ns = link->samples[0].ns;
        for (uint32_t i = 0; i < link->n_samples; i++) {
            link->samples[i].ns = sample_ns(ring, link->samples[i].ns, least_ns);
        }
        return;
    }
    link->alpha_ns = latency_ns(ring, link->alpha_ns);
    bytes_per_s = muldiv_down((uint64_t)link->bytes_per_s, (ring->from - 1) * ring->to,
                              ring->from * (ring->to - 1), INT64_MAX);
    link->bytes_per_s = bytes_per_s == 0 ? 1 : (int64_t)bytes_per_s;
}

static void free_links(struct dsched_link *links, uint32_t n_links) {
    for (uint32_t l = 0; links != NULL && l < n_links; l++) {
        free(links[l].samples);
    }
    free(links);
}

/* The links with samples of their own; NULL without memory. */
static struct dsched_link *copy_links(const struct dsched_profile *profile) {
    struct dsched_link *links = calloc(profile->n_links, sizeof(*links));
    if (links == NULL) {
        return NULL;
    }
    for (uint32_t l = 0; l < profile->n_links; l++) {
        const struct dsched_link *from = &profile->links[l];
        links[l] = *from;
        links[l].samples = NULL;
        if (from->n_samples == 0) {
            continue;
        }
        links[l].samples = calloc(from->n_samples, sizeof(*from->samples));
        if (links[l].samples == NULL) {
            free_links(links, l);
            return NULL;
        }
        memcpy(links[l].samples, from->samples, from->n_samples * sizeof(*from->samples));
    }
    return links;
}

enum dsched_status dsched_whatif_world(struct dsched_profile *profile, uint32_t world,
                                       struct dsched_error *error) {
    const struct ring ring = {.from = profile->world_size, .to = world};
    struct dsched_profile changed = *profile;
    enum dsched_status status;
    if (world < 2 || world > DSCHED_MAX_WORLD) {
        return refuse(error, DSCHED_INVALID,
                      "a world of %" PRIu32 " ranks was asked for, but a ring has 2..%u", world,
                      DSCHED_MAX_WORLD);
    }
    if (profile->world_size < 2) {
        return refuse(error, DSCHED_INVALID,
                      "the profile is of %" PRIu32 " rank, whose links tell nothing about a ring "
                      "of %" PRIu32 "; a profile of at least 2 ranks was expected",
                      profile->world_size, world);
    }
    changed.links = copy_links(profile);
    if (changed.links == NULL) {
        return refuse_memory(error, "links");
    }
    changed.world_size = world;
    for (uint32_t l = 0; l < changed.n_links; l++) {
        scale_link(&ring, &changed.links[l]);
    }
    status = dsched_profile_check(&changed, error);
    if (status != DSCHED_OK) {
        free_links(changed.links, changed.n_links);
        return status;
    }
    free_links(profile->links, profile->n_links);
    *profile = changed;
    return DSCHED_OK;
}

/* --- compute ---------------------------------------------------------------------------------- */

static int64_t up(int64_t ns, uint64_t factor_ppm) {
    return (int64_t)muldiv_up((uint64_t)ns, factor_ppm, MULDIV_PPM, BEYOND_NS);
}

static int64_t down(int64_t ns, uint64_t factor_ppm) {
    return (int64_t)muldiv_down((uint64_t)ns, factor_ppm, MULDIV_PPM, BEYOND_NS);
}

enum dsched_status dsched_whatif_compute(struct dsched_profile *profile, uint64_t factor_ppm,
                                         struct dsched_error *error) {
    struct dsched_profile changed = *profile;
    enum dsched_status status;
    if (factor_ppm < DSCHED_MIN_COMPUTE_PPM || factor_ppm > DSCHED_MAX_COMPUTE_PPM) {
        return refuse(error, DSCHED_INVALID,
                      "compute was to be scaled by %" PRIu64 " ppm, but %" PRIu64 "..%" PRIu64
                      " is allowed",
                      factor_ppm, DSCHED_MIN_COMPUTE_PPM, DSCHED_MAX_COMPUTE_PPM);
    }
    changed.forward_ns = up(profile->forward_ns, factor_ppm);
    changed.backward_ns = up(profile->backward_ns, factor_ppm);
    changed.optimizer_ns = up(profile->optimizer_ns, factor_ppm);
    changed.tensors = calloc(profile->n_tensors, sizeof(*changed.tensors));
    if (changed.tensors == NULL) {
        return refuse_memory(error, "tensors");
    }
    for (uint32_t i = 0; i < profile->n_tensors; i++) {
        changed.tensors[i] = profile->tensors[i];
        changed.tensors[i].forward_ns = down(profile->tensors[i].forward_ns, factor_ppm);
        changed.tensors[i].backward_ns = down(profile->tensors[i].backward_ns, factor_ppm);
    }
    status = dsched_profile_check(&changed, error);
    if (status != DSCHED_OK) {
        free(changed.tensors);
        return status;
    }
    free(profile->tensors);
    *profile = changed;
    return DSCHED_OK;
}
