#include "spank_config.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Below the ports that kernels hand out by themselves, and away from Slurm's own. */
#define SPANK_CONFIG_FIRST_PORT 28000
#define SPANK_CONFIG_LAST_PORT  29999

const struct spank_config_name spank_config_names[SPANK_CONFIG_N_KEYS] = {
    [SPANK_CONFIG_MODE] = {"deft", "DEFT_MODE", "mode", "off|observe|auto",
                           "tune the communication of training jobs; observe reports the gain and "
                           "changes nothing"},
    [SPANK_CONFIG_CONTROLLER] = {"deft-controller", "DEFT_CONTROLLER", "controller", "URL",
                                 "where deft-controller listens"},
    [SPANK_CONFIG_EPSILON] = {"deft-epsilon", "DEFT_EPSILON", "epsilon", "E",
                              "excess loss that a plan may cost, 0 to 1"},
    [SPANK_CONFIG_MERGE] = {"deft-max-merge", "DEFT_MAX_MERGE", "max_merge", "K",
                            "iterations that may share an all-reduce, 1 to 64"},
    [SPANK_CONFIG_DELAY] = {"deft-max-delay", "DEFT_MAX_DELAY", "max_delay", "D",
                            "boundaries that an update may be late, 1 to 64"},
    [SPANK_CONFIG_LINKS] = {"deft-links", "DEFT_LINKS", "links", "IFACE[,IFACE]",
                            "network interfaces to all-reduce over, side by side"},
    [SPANK_CONFIG_MASTER] = {"deft-master", "DEFT_MASTER_ADDR", NULL, "HOST",
                             "where rank 0 is found, instead of the step's first node"},
    [SPANK_CONFIG_PORT] = {NULL, "DEFT_MASTER_PORT", NULL, NULL, NULL},
    [SPANK_CONFIG_PORTS] = {NULL, NULL, "ports", NULL, NULL},
    [SPANK_CONFIG_PREFIX] = {NULL, NULL, "prefix", NULL, NULL},
    [SPANK_CONFIG_AGENT] = {NULL, NULL, "agent", NULL, NULL},
    [SPANK_CONFIG_TOKEN_FILE] = {NULL, "DEFT_TOKEN_FILE", "token_file", NULL, NULL},
    [SPANK_CONFIG_CA_FILE] = {NULL, "DEFT_CA_FILE", "ca_file", NULL, NULL},
    [SPANK_CONFIG_LOG_DIR] = {NULL, "DEFT_LOG_DIR", "log_dir", NULL, NULL},
};

static const char *const spank_config_modes[] = {"off", "observe", "auto"};

static int spank_config_fail(char *why, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static int spank_config_fail(char *why, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(why, SPANK_CONFIG_WHY_BYTES, format, arguments);
    va_end(arguments);
    return -1;
}

/* Printable ASCII without spaces: what becomes words of a command line and of logs. */
static int spank_config_is_word(const char *text) {
    for (; *text != '\0'; text++) {
        if ((unsigned char)*text <= 0x20 || (unsigned char)*text >= 0x7f) {
            return 0;
        }
    }
    return 1;
}

/* What needs no escaping in URLs and file names. */
static int spank_config_is_plain(const char *text) {
    return strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") ==
           strlen(text);
}

static int spank_config_number(const char *text, const char *end, long least, long most,
                               long *out) {
    long value = 0;
    if (text == end || end - text > 9) {
        return -1;
    }
    for (; text < end; text++) {
        if (*text < '0' || *text > '9') {
            return -1;
        }
        value = value * 10 + (*text - '0');
    }
    if (value < least || value > most) {
        return -1;
    }
    *out = value;
    return 0;
}

static int spank_config_range(const char *text, long *out_first, long *out_last) {
    const char *dash = strchr(text, '-');
    long first = 0;
    long last = 0;
    if (dash == NULL || spank_config_number(text, dash, 1024, 65535, &first) != 0 ||
        spank_config_number(dash + 1, dash + strlen(dash), first, 65535, &last) != 0) {
        return -1;
    }
    *out_first = first;
    *out_last = last;
    return 0;
}

static int spank_config_fraction(const char *text) {
    char *end = NULL;
    if (strspn(text, "0123456789.eE+-") != strlen(text)) {
        return -1; /* neither "nan" nor "0x1p-3" */
    }
    errno = 0;
    double value = strtod(text, &end);
    return end == text || *end != '\0' || errno != 0 || !(value >= 0.0 && value <= 1.0) ? -1 : 0;
}

static int spank_config_count_links(const char *text) {
    int n = 0;
    for (const char *at = text; at != NULL; n++) {
        size_t length = strcspn(at, ",");
        if (length == 0) {
            return -1;
        }
        at = at[length] == ',' ? at + length + 1 : NULL;
    }
    return n;
}

/* What was expected instead of `text`; NULL when it is acceptable. */
static const char *spank_config_expected(enum spank_config_key key, const char *text) {
    long number = 0;
    long last = 0;
    int n_links = 0;
    const char *end = text + strlen(text);
    switch (key) {
    case SPANK_CONFIG_MODE:
        for (size_t i = 0; i < sizeof(spank_config_modes) / sizeof(spank_config_modes[0]); i++) {
            if (strcmp(text, spank_config_modes[i]) == 0) {
                return NULL;
            }
        }
        return "off, observe or auto";
    case SPANK_CONFIG_CONTROLLER:
        return (strncmp(text, "http://", 7) == 0 && text[7] != '\0') ||
                       (strncmp(text, "https://", 8) == 0 && text[8] != '\0')
                   ? NULL
                   : "http://HOST:PORT or https://HOST:PORT";
    case SPANK_CONFIG_EPSILON:
        return spank_config_fraction(text) == 0 ? NULL : "a number from 0 to 1";
    case SPANK_CONFIG_MERGE:
    case SPANK_CONFIG_DELAY:
        return spank_config_number(text, end, 1, SPANK_CONFIG_MAX_BOUND, &number) == 0
                   ? NULL
                   : "a whole number from 1 to 64";
    case SPANK_CONFIG_LINKS:
        n_links = spank_config_count_links(text);
        return n_links >= 1 && n_links <= SPANK_CONFIG_MAX_LINKS
                   ? NULL
                   : "1 to 8 interfaces with commas between them";
    case SPANK_CONFIG_PORT:
        return spank_config_number(text, end, 1, 65535, &number) == 0
                   ? NULL
                   : "a whole number from 1 to 65535";
    case SPANK_CONFIG_PORTS:
        return spank_config_range(text, &number, &last) == 0
                   ? NULL
                   : "FIRST-LAST, both from 1024 to 65535";
    case SPANK_CONFIG_PREFIX:
        return spank_config_is_plain(text) && strlen(text) <= SPANK_CONFIG_MAX_PREFIX
                   ? NULL
                   : "at most 32 of letters, digits, '.', '_' and '-'";
    case SPANK_CONFIG_AGENT:
    case SPANK_CONFIG_TOKEN_FILE:
    case SPANK_CONFIG_CA_FILE:
    case SPANK_CONFIG_LOG_DIR:
        return text[0] == '/' ? NULL : "a path from the root";
    case SPANK_CONFIG_MASTER:
    case SPANK_CONFIG_N_KEYS:
        break;
    }
    return NULL;
}

int spank_config_take(struct spank_config_values *values, enum spank_config_key key,
                      const char *from, const char *text, char why[SPANK_CONFIG_WHY_BYTES]) {
    size_t length = text != NULL ? strlen(text) : 0;
    if (length == 0 || length >= SPANK_CONFIG_VALUE_BYTES) {
        return spank_config_fail(why, "%s has %zu characters, expected 1 to %u", from, length,
                                 SPANK_CONFIG_VALUE_BYTES - 1);
    }
    if (!spank_config_is_word(text)) {
        return spank_config_fail(why, "%s has a space or a character that is not ASCII", from);
    }
    const char *expected = spank_config_expected(key, text);
    if (expected != NULL) {
        return spank_config_fail(why, "%s is '%.100s', expected %s", from, text, expected);
    }
    memcpy(values->text[key], text, length + 1);
    return 0;
}

static enum spank_config_key spank_config_find(const char *name, size_t length) {
    int key = 0;
    for (; key < SPANK_CONFIG_N_KEYS; key++) {
        const char *known = spank_config_names[key].plugstack;
        if (known != NULL && strlen(known) == length && strncmp(known, name, length) == 0) {
            break;
        }
    }
    return (enum spank_config_key)key;
}

int spank_config_plugstack(struct spank_config_values *values, int argc, char *const *argv,
                           char why[SPANK_CONFIG_WHY_BYTES]) {
    for (int i = 0; i < argc; i++) {
        char from[64];
        size_t length = strcspn(argv[i], "=");
        enum spank_config_key key = spank_config_find(argv[i], length);
        if (argv[i][length] != '=' || key == SPANK_CONFIG_N_KEYS) {
            return spank_config_fail(why,
                                     "plugstack.conf has '%.100s', which is no KEY=VALUE that "
                                     "is known",
                                     argv[i]);
        }
        (void)snprintf(from, sizeof(from), "%s in plugstack.conf",
                       spank_config_names[key].plugstack);
        if (spank_config_take(values, key, from, argv[i] + length + 1, why) != 0) {
            return -1;
        }
    }
    return 0;
}

/* "eth0" is the Gloo link over eth0; "gloo" and "gloo:eth0" are links already. */
static int spank_config_settle_links(char text[SPANK_CONFIG_VALUE_BYTES], char *why) {
    char out[SPANK_CONFIG_VALUE_BYTES];
    size_t n = 0;
    for (const char *at = text; *at != '\0';) {
        size_t length = strcspn(at, ",");
        int is_link = memchr(at, ':', length) != NULL || (length == 4 && !strncmp(at, "gloo", 4));
        int n_more = snprintf(out + n, sizeof(out) - n, "%s%s%.*s", n > 0 ? "," : "",
                              is_link ? "" : "gloo:", (int)length, at);
        if (n_more < 0 || (size_t)n_more >= sizeof(out) - n) {
            return spank_config_fail(why, "the links are too many characters, expected at most %u",
                                     SPANK_CONFIG_VALUE_BYTES - 1);
        }
        n += (size_t)n_more;
        at += length + (at[length] == ',');
    }
    if (n > 0) {
        memcpy(text, out, n + 1);
    }
    return 0;
}

static int spank_config_settle_key(enum spank_config_key key,
                                   const struct spank_config_values *flags,
                                   const struct spank_config_values *environment,
                                   const struct spank_config_values *plugstack,
                                   struct spank_config_values *out, char *why) {
    const char *variable = environment->text[key];
    if (flags->text[key][0] != '\0') {
        memcpy(out->text[key], flags->text[key], sizeof(out->text[key]));
        return 0;
    }
    if (spank_config_names[key].variable != NULL && variable[0] != '\0') {
        return spank_config_take(out, key, spank_config_names[key].variable, variable, why);
    }
    memcpy(out->text[key], plugstack->text[key], sizeof(out->text[key]));
    return 0;
}

static void spank_config_settle_ports(struct spank_config *config) {
    long first = SPANK_CONFIG_FIRST_PORT;
    long last = SPANK_CONFIG_LAST_PORT;
    long port = 0;
    const char *chosen = config->settled.text[SPANK_CONFIG_PORT];
    /* Both were checked when they were taken. */
    (void)spank_config_range(config->settled.text[SPANK_CONFIG_PORTS], &first, &last);
    (void)spank_config_number(chosen, chosen + strlen(chosen), 1, 65535, &port);
    config->first_port = (uint16_t)first;
    config->last_port = (uint16_t)last;
    config->port = (uint16_t)port;
}

int spank_config_is_asked(const struct spank_config_values *flags,
                          const struct spank_config_values *environment,
                          const struct spank_config_values *plugstack) {
    const struct spank_config_values *const sources[] = {flags, environment, plugstack};
    for (size_t i = 0; i < sizeof(sources) / sizeof(sources[0]); i++) {
        const char *mode = sources[i]->text[SPANK_CONFIG_MODE];
        if (mode[0] != '\0') {
            return strcmp(mode, spank_config_modes[SPANK_CONFIG_OFF]) != 0;
        }
    }
    return 0;
}

int spank_config_settle(const struct spank_config_values *flags,
                        const struct spank_config_values *environment,
                        const struct spank_config_values *plugstack, const char *default_agent,
                        struct spank_config *out, char why[SPANK_CONFIG_WHY_BYTES]) {
    struct spank_config_values *settled = &out->settled;
    const char *mode = settled->text[SPANK_CONFIG_MODE];
    memset(out, 0, sizeof(*out));
    if (spank_config_settle_key(SPANK_CONFIG_MODE, flags, environment, plugstack, settled, why)) {
        return -1;
    }
    if (mode[0] == '\0' || strcmp(mode, spank_config_modes[SPANK_CONFIG_OFF]) == 0) {
        return 0; /* what else is said does not matter */
    }
    for (int key = SPANK_CONFIG_MODE + 1; key < SPANK_CONFIG_N_KEYS; key++) {
        if (spank_config_settle_key((enum spank_config_key)key, flags, environment, plugstack,
                                    settled, why) != 0) {
            return -1;
        }
    }
    if (settled->text[SPANK_CONFIG_CONTROLLER][0] == '\0') {
        return spank_config_fail(why, "no controller is known: give --deft-controller, "
                                      "DEFT_CONTROLLER or controller= in plugstack.conf");
    }
    if (settled->text[SPANK_CONFIG_AGENT][0] == '\0' &&
        spank_config_take(settled, SPANK_CONFIG_AGENT, "the agent", default_agent, why) != 0) {
        return -1;
    }
    if (spank_config_settle_links(settled->text[SPANK_CONFIG_LINKS], why) != 0) {
        return -1;
    }
    spank_config_settle_ports(out);
    out->mode = strcmp(mode, spank_config_modes[SPANK_CONFIG_AUTO]) == 0 ? SPANK_CONFIG_AUTO
                                                                         : SPANK_CONFIG_OBSERVE;
    return 0;
}

const char *spank_config_mode_name(enum spank_config_mode mode) {
    return spank_config_modes[mode];
}
