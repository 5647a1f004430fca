/* What deft-controller can be told: the rows of its settings, and what they mean together. */
#ifndef CONTROLLER_OPTIONS_H
#define CONTROLLER_OPTIONS_H

#include <deft/status.h>

#include "base/settings.h"
#include "listen_options.h"
#include "store/store.h"
#include "tuning/tuner.h"
#include "webhook_options.h"
#include "wire/wire.h"

/* Texts are those of the settings. Not to be copied. */
struct controller_options {
    struct listen_options listen;
    struct webhook_options webhook;
    struct store_options store;
    struct tuner_config tuner;
    struct wire_limits limits; /* of new jobs that wish nothing */
    enum tuner_mode mode;      /* of new jobs */
    const char *db;            /* NULL: in the state directory */
    const char *port_file;     /* NULL: none */
    int verbose;
};

extern const struct settings_program controller_options_program;

/* Fills all of it from the settings. DEFT_INVALID: a value is wrong, or two do not go together. */
DEFT_NODISCARD enum deft_status controller_options_fill(const struct settings *settings,
                                                        struct controller_options *out,
                                                        struct deft_error *error);

#endif
