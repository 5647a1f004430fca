#include "spank_flags.h"

#include <stdio.h>
#include <string.h>

/* Callbacks of Slurm carry no context, so what they learn is here. One thread calls them. */
static struct spank_config_values spank_flags_values;
static char spank_flags_why[SPANK_CONFIG_WHY_BYTES];
/* Slurm keeps pointers into it. */
static struct spank_option spank_flags_options[SPANK_CONFIG_N_KEYS];
static char spank_flags_text[SPANK_CONFIG_N_KEYS][3][160];

static int spank_flags_on_option(int key, const char *argument, int is_remote) {
    char why[SPANK_CONFIG_WHY_BYTES] = "";
    char from[64];
    if (key < 0 || key >= SPANK_CONFIG_N_KEYS || spank_config_names[key].flag == NULL) {
        return 0;
    }
    (void)snprintf(from, sizeof(from), "--%s", spank_config_names[key].flag);
    if (spank_config_take(&spank_flags_values, (enum spank_config_key)key, from, argument, why) ==
        0) {
        return 0;
    }
    if (is_remote) {
        memcpy(spank_flags_why, why, sizeof(spank_flags_why));
        return 0;
    }
    slurm_error("%s", why);
    return -1;
}

int spank_flags_register(spank_t spank) {
    int result = 0;
    for (int key = 0; key < SPANK_CONFIG_N_KEYS; key++) {
        const struct spank_config_name *name = &spank_config_names[key];
        if (name->flag == NULL) {
            continue;
        }
        const char *const texts[3] = {name->flag, name->argument, name->usage};
        for (size_t i = 0; i < 3; i++) {
            (void)snprintf(spank_flags_text[key][i], sizeof(spank_flags_text[key][i]), "%s",
                           texts[i]);
        }
        /* The argument is never optional: "--deft auto" would then run a program called "auto". */
        spank_flags_options[key] = (struct spank_option){.name = spank_flags_text[key][0],
                                                         .arginfo = spank_flags_text[key][1],
                                                         .usage = spank_flags_text[key][2],
                                                         .has_arg = 1,
                                                         .val = key,
                                                         .cb = spank_flags_on_option};
        if (spank_option_register(spank, &spank_flags_options[key]) != ESPANK_SUCCESS) {
            result = -1;
        }
    }
    return result;
}

const struct spank_config_values *spank_flags_given(void) {
    return &spank_flags_values;
}

const char *spank_flags_wrong(void) {
    return spank_flags_why;
}
