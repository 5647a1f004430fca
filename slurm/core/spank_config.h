/* What flags, the job's environment and plugstack.conf ask of one step, in this order of
 * precedence.
 *
 * Pure: knows no Slurm, file, process or clock, so it is tested without any of them. */
#ifndef SPANK_CONFIG_H
#define SPANK_CONFIG_H

#include <stdint.h>

#define SPANK_CONFIG_VALUE_BYTES 512u /* URLs, paths, lists of links; longer ones are refused */
#define SPANK_CONFIG_WHY_BYTES   384u
#define SPANK_CONFIG_MAX_LINKS   8   /* what libdeft takes */
#define SPANK_CONFIG_MAX_PREFIX  32u /* leaves room for job and step in an id */
/* Of merge and delay, as in dsched/limits.h, which this room does not include. */
#define SPANK_CONFIG_MAX_BOUND 64

enum spank_config_key {
    SPANK_CONFIG_MODE,
    SPANK_CONFIG_CONTROLLER,
    SPANK_CONFIG_EPSILON,
    SPANK_CONFIG_MERGE,
    SPANK_CONFIG_DELAY,
    SPANK_CONFIG_LINKS,
    SPANK_CONFIG_MASTER,
    SPANK_CONFIG_PORT,
    SPANK_CONFIG_PORTS,
    SPANK_CONFIG_PREFIX,
    SPANK_CONFIG_AGENT,
    SPANK_CONFIG_TOKEN_FILE,
    SPANK_CONFIG_CA_FILE,
    SPANK_CONFIG_LOG_DIR,
    SPANK_CONFIG_N_KEYS,
};

/* Where a key may come from; NULL where it may not. */
struct spank_config_name {
    const char *flag;      /* without "--" */
    const char *variable;  /* of the environment */
    const char *plugstack; /* before '=' */
    const char *argument;  /* for --help; NULL without a flag */
    const char *usage;
};
extern const struct spank_config_name spank_config_names[SPANK_CONFIG_N_KEYS];

/* What one source says; "" where it says nothing. Zero-initialised is valid. */
struct spank_config_values {
    char text[SPANK_CONFIG_N_KEYS][SPANK_CONFIG_VALUE_BYTES];
};

enum spank_config_mode { SPANK_CONFIG_OFF, SPANK_CONFIG_OBSERVE, SPANK_CONFIG_AUTO };

struct spank_config {
    enum spank_config_mode mode;
    uint16_t first_port; /* where ranks meet: one of these by job and step */
    uint16_t last_port;
    uint16_t port;                      /* that the user has chosen; 0: none */
    struct spank_config_values settled; /* of each key what counts; links as libdeft wants them */
};

/* What returns an int and takes `why` returns 0, or -1 and one sentence there: what, where from,
 * what was expected. */

/* Takes one value; it must be acceptable. `from` is how the sentence calls it: "--deft". */
int spank_config_take(struct spank_config_values *values, enum spank_config_key key,
                      const char *from, const char *text, char why[SPANK_CONFIG_WHY_BYTES]);
/* Takes the words behind the plugin's name in plugstack.conf. */
int spank_config_plugstack(struct spank_config_values *values, int argc, char *const *argv,
                           char why[SPANK_CONFIG_WHY_BYTES]);
/* Whether the first source that names a mode names another than off; it need not be a mode. */
int spank_config_is_asked(const struct spank_config_values *flags,
                          const struct spank_config_values *environment,
                          const struct spank_config_values *plugstack);
/* `environment` is not yet checked, since only what counts must be right: a wrong variable does not
 * matter to a step that has the flag. `default_agent` is the path without a key. Fails with mode
 * off in `out`. A controller is needed unless the mode is off. */
int spank_config_settle(const struct spank_config_values *flags,
                        const struct spank_config_values *environment,
                        const struct spank_config_values *plugstack, const char *default_agent,
                        struct spank_config *out, char why[SPANK_CONFIG_WHY_BYTES]);

const char *spank_config_mode_name(enum spank_config_mode mode);

#endif
