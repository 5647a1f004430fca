#include "cli_whatif.h"

#include <string.h>

#include <dsched/whatif.h>

#include "cli.h"
#include "cli_profile.h"
#include "cli_table.h"
#include "cli_units.h"

enum { CLI_WHATIF_LINK = 768, CLI_WHATIF_WORLD, CLI_WHATIF_COMPUTE };

static const struct argp_option cli_whatif_table[] = {
    {NULL, 0, NULL, 0, "What if:", 20},
    {"link", CLI_WHATIF_LINK, "NAME:alpha=TIME,bw=RATE[,contention=X]", 0,
     "Change or add a link, for example nccl:alpha=60us,bw=10Gbit/s (units ns, us, ms, s and kB/s "
     "to TB/s, kbit/s to Tbit/s); compute takes X times as long while it is busy; may be repeated",
     20},
    {"world", CLI_WHATIF_WORLD, "N", 0,
     "Scale every link of the profile from its own number of ranks to N as a ring does: time per "
     "byte by ((N-1)/N) / ((W-1)/W), latency by (N-1)/(W-1); links of --link are as given",
     20},
    {"scale-compute", CLI_WHATIF_COMPUTE, "F", 0, "Multiply all compute times by F", 20},
    {0},
};

/* The value of `key` in a list "key=value,..." that is cut in place; NULL when it is absent. */
struct cli_whatif_words {
    char *alpha;
    char *rate;
    char *contention;
};

static void cli_whatif_split(const struct argp_state *state, const char *argument, char *list,
                             struct cli_whatif_words *out) {
    char *rest = list;
    for (char *word = strsep(&rest, ","); word != NULL; word = strsep(&rest, ",")) {
        char *value = strchr(word, '=');
        if (value == NULL) {
            argp_error(state, "--link is '%.80s': '%.40s' has no value, expected KEY=VALUE",
                       argument, word);
            return;
        }
        *value++ = '\0';
        char **slot = strcmp(word, "alpha") == 0        ? &out->alpha
                      : strcmp(word, "bw") == 0         ? &out->rate
                      : strcmp(word, "contention") == 0 ? &out->contention
                                                        : NULL;
        if (slot == NULL || *slot != NULL) {
            argp_error(state, "--link is '%.80s': '%.40s' %s, expected alpha, bw and contention",
                       argument, word, slot == NULL ? "is not known" : "is given twice");
            return;
        }
        *slot = value;
    }
    if (out->alpha == NULL || out->rate == NULL) {
        argp_error(state, "--link is '%.80s', expected NAME:alpha=TIME,bw=RATE[,contention=X]",
                   argument);
    }
}

static void cli_whatif_link(const struct argp_state *state, const char *argument,
                            struct cli_whatif *whatif) {
    char text[512];
    struct cli_whatif_words words = {NULL, NULL, NULL};
    struct deft_error error;
    const char *colon = strrchr(argument, ':'); /* names such as gloo:eth0 have one of their own */
    size_t n_name = colon != NULL ? (size_t)(colon - argument) : 0;
    if (n_name == 0 || n_name >= DSCHED_NAME_BYTES || strlen(argument) >= sizeof(text)) {
        argp_error(state, "--link is '%.80s', expected NAME:alpha=TIME,bw=RATE[,contention=X]",
                   argument);
        return;
    }
    if (whatif->n_links == CLI_WHATIF_MAX_LINKS) {
        argp_error(state, "--link is given more than %u times, but a profile has no more links",
                   CLI_WHATIF_MAX_LINKS);
        return;
    }
    (void)snprintf(text, sizeof(text), "%s", argument);
    cli_whatif_split(state, argument, text + n_name + 1, &words);
    struct dsched_link link = {0};
    memcpy(link.name, argument, n_name);
    int64_t contention_ppm = 0;
    enum deft_status status =
        cli_units_duration("--link: alpha", words.alpha, &link.alpha_ns, &error);
    if (status == DEFT_OK) {
        status = cli_units_rate("--link: bw", words.rate, &link.bytes_per_s, &error);
    }
    if (status == DEFT_OK && words.contention != NULL) {
        status = cli_units_decimal("--link: contention", words.contention, 1e6, 1000000, 100000000,
                                   &contention_ppm, &error);
    }
    if (status != DEFT_OK) {
        argp_error(state, "%s", error.text);
        return;
    }
    link.contention_ppm = (uint32_t)contention_ppm;
    whatif->links[whatif->n_links++] = link;
}

static error_t cli_whatif_parse(int key, char *argument, struct argp_state *state) {
    struct cli_whatif *whatif = state->input;
    struct deft_error error;
    int64_t ppm = 0;
    switch (key) {
    case CLI_WHATIF_LINK:
        cli_whatif_link(state, argument, whatif);
        break;
    case CLI_WHATIF_WORLD:
        whatif->world = (uint32_t)cli_number(state, "--world", argument, 2, DSCHED_MAX_WORLD);
        break;
    case CLI_WHATIF_COMPUTE:
        if (cli_units_decimal("--scale-compute", argument, 1e6, (int64_t)DSCHED_MIN_COMPUTE_PPM,
                              (int64_t)DSCHED_MAX_COMPUTE_PPM, &ppm, &error) != DEFT_OK) {
            argp_error(state, "%s", error.text);
        }
        whatif->compute_ppm = (uint64_t)ppm;
        break;
    default:
        return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

const struct argp cli_whatif_argp = {.options = cli_whatif_table, .parser = cli_whatif_parse};

/* "gpt2 [64 ranks, compute x 0.5, link nccl]", cut where names end. */
static void cli_whatif_name(const struct cli_whatif *whatif, struct dsched_profile *profile) {
    char text[2 * DSCHED_NAME_BYTES];
    size_t n = 0;
    const char *comma = "";
    text[0] = '\0';
    if (whatif->world > 0) {
        n += (size_t)snprintf(text + n, sizeof(text) - n, "%u ranks", whatif->world);
        comma = ", ";
    }
    if (whatif->compute_ppm > 0) {
        n += (size_t)snprintf(text + n, sizeof(text) - n, "%scompute x %g", comma,
                              (double)whatif->compute_ppm / 1e6);
        comma = ", ";
    }
    for (uint32_t i = 0; i < whatif->n_links && n < sizeof(text); i++) {
        n +=
            (size_t)snprintf(text + n, sizeof(text) - n, "%slink %s", comma, whatif->links[i].name);
        comma = ", ";
    }
    char name[sizeof(text) + DSCHED_NAME_BYTES + 4];
    (void)snprintf(name, sizeof(name), "%s [%s]", profile->name, text);
    /* Cut between characters: what follows is no continuation byte. */
    size_t n_kept = strlen(name);
    if (n_kept >= sizeof(profile->name)) {
        n_kept = sizeof(profile->name) - 1;
        while (n_kept > 0 && ((unsigned char)name[n_kept] & 0xC0u) == 0x80u) {
            n_kept--;
        }
    }
    memcpy(profile->name, name, n_kept);
    profile->name[n_kept] = '\0';
}

enum deft_status cli_whatif_apply(const struct cli_whatif *whatif, struct dsched_profile *profile,
                                  struct deft_error *error) {
    struct dsched_error reason = {{0}};
    enum dsched_status status = DSCHED_OK;
    if (whatif->world > 0) {
        status = dsched_whatif_world(profile, whatif->world, &reason);
    }
    for (uint32_t i = 0; status == DSCHED_OK && i < whatif->n_links; i++) {
        status = dsched_whatif_link(profile, &whatif->links[i], &reason);
    }
    if (status == DSCHED_OK && whatif->compute_ppm > 0) {
        status = dsched_whatif_compute(profile, whatif->compute_ppm, &reason);
    }
    if (status != DSCHED_OK) {
        return cli_profile_failed(status, &reason, error);
    }
    if (whatif->world > 0 || whatif->compute_ppm > 0 || whatif->n_links > 0) {
        cli_whatif_name(whatif, profile);
    }
    return DEFT_OK;
}

void cli_whatif_print(const struct cli_whatif *whatif, uint32_t world, FILE *stream) {
    const char *heading = "what if";
    if (whatif->world > 0) {
        double latency = (whatif->world - 1.0) / (world - 1.0);
        double bandwidth = latency * world / whatif->world;
        (void)fprintf(stream,
                      "%-16s a ring of %u ranks, not %u: time per byte x %.3f, latency x %.3f\n",
                      heading, whatif->world, world, bandwidth, latency);
        heading = "";
    }
    for (uint32_t i = 0; i < whatif->n_links; i++) {
        const struct dsched_link *link = &whatif->links[i];
        char alpha[16] = "no latency";
        char rate[16];
        if (link->alpha_ns > 0) {
            cli_table_duration(link->alpha_ns, alpha);
        }
        cli_table_bytes((uint64_t)link->bytes_per_s, rate);
        (void)fprintf(stream, "%-16s link %s with %s and %s/s\n", heading, link->name, alpha, rate);
        heading = "";
    }
    if (whatif->compute_ppm > 0) {
        (void)fprintf(stream, "%-16s compute x %g\n", heading, (double)whatif->compute_ppm / 1e6);
    }
}
