/* The settings of the running controller. One thread reads their file again, any may look. */
#ifndef CONFIG_H
#define CONFIG_H

#include <deft/status.h>

#include "base/settings.h"
#include "controller_options.h"
#include "wire/json_out.h"

#define CONFIG_NAMES_BYTES 512u

struct config;

/* Takes the settings over, also when it fails. Fails as controller_options_fill does. */
DEFT_NODISCARD enum deft_status config_open(struct settings *settings, struct config **out,
                                            struct deft_error *error);
/* Takes NULL. */
void config_close(struct config *config);

/* As of the start; never changes. */
const struct controller_options *config_options(const struct config *config);
const struct settings *config_settings(const struct config *config);

/* What a file that was read again has changed. */
struct config_news {
    const struct controller_options *options; /* until the next reload */
    char changed[CONFIG_NAMES_BYTES];         /* "mode, keep"; "": nothing */
    char waiting[CONFIG_NAMES_BYTES];         /* differs from the start, and needs a restart */
};
/* Reads the file again; one thread. On failure everything stays as it was. DEFT_STATE: there is no
 * file. What needs a restart keeps its value. */
DEFT_NODISCARD enum deft_status config_reload(struct config *config, struct config_news *out,
                                              struct deft_error *error);

/* Members of an object: what holds now and where it comes from. Any thread. */
void config_print(struct config *config, struct json_out *out);

#endif
