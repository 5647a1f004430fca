#include "config.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct config {
    struct settings *started;
    struct controller_options options; /* of `started` */
    pthread_mutex_t lock;
    struct settings *newest; /* NULL: nothing was read again */
    struct controller_options *newest_options;
};

enum deft_status config_open(struct settings *settings, struct config **out,
                             struct deft_error *error) {
    struct config *config = calloc(1, sizeof(*config));
    if (config == NULL) {
        settings_close(settings);
        return deft_fail(error, DEFT_NO_MEMORY, 0, "no memory for the settings");
    }
    config->started = settings;
    (void)pthread_mutex_init(&config->lock, NULL);
    enum deft_status status = controller_options_fill(settings, &config->options, error);
    if (status != DEFT_OK) {
        config_close(config);
        return status;
    }
    *out = config;
    return DEFT_OK;
}

void config_close(struct config *config) {
    if (config == NULL) {
        return;
    }
    free(config->newest_options);
    settings_close(config->newest);
    settings_close(config->started);
    (void)pthread_mutex_destroy(&config->lock);
    free(config);
}

const struct controller_options *config_options(const struct config *config) {
    return &config->options;
}

const struct settings *config_settings(const struct config *config) {
    return config->started;
}

static int config_differs(const struct settings *a, const struct settings *b, size_t i) {
    struct settings_value left;
    struct settings_value right;
    settings_value(a, i, &left);
    settings_value(b, i, &right);
    if (left.text == NULL || right.text == NULL) {
        return left.text != right.text;
    }
    return strcmp(left.text, right.text) != 0;
}

static void config_name(char *names, const char *name) {
    size_t n = strlen(names);
    (void)snprintf(names + n, CONFIG_NAMES_BYTES - n, "%s%s", n > 0 ? ", " : "", name);
}

/* With the lock held, or on the thread that alone replaces it. */
static const struct settings *config_newest(const struct config *config) {
    return config->newest != NULL ? config->newest : config->started;
}

enum deft_status config_reload(struct config *config, struct config_news *out,
                               struct deft_error *error) {
    struct settings *fresh = NULL;
    const struct settings_program *program = settings_program(config->started);
    enum deft_status status = settings_read_again(config->started, &fresh, error);
    if (status != DEFT_OK) {
        return status;
    }
    struct controller_options *options = calloc(1, sizeof(*options));
    status = options != NULL ? controller_options_fill(fresh, options, error)
                             : deft_fail(error, DEFT_NO_MEMORY, 0, "no memory for the settings");
    if (status != DEFT_OK) {
        free(options);
        settings_close(fresh);
        return status;
    }
    out->changed[0] = '\0';
    out->waiting[0] = '\0';
    for (size_t i = 0; i < settings_n_rows(program); i++) {
        const struct setting *row = settings_row(program, i);
        if ((row->flags & SETTING_RELOADS) != 0) {
            if (config_differs(config_newest(config), fresh, i)) {
                config_name(out->changed, row->name);
            }
        } else if (config_differs(config->started, fresh, i)) {
            config_name(out->waiting, row->name);
        }
    }
    out->options = options;
    (void)pthread_mutex_lock(&config->lock);
    struct settings *before = config->newest;
    config->newest = fresh;
    (void)pthread_mutex_unlock(&config->lock);
    settings_close(before);
    free(config->newest_options);
    config->newest_options = options;
    return DEFT_OK;
}

static void config_print_row(const struct config *config, size_t i, struct json_out *out) {
    const struct settings *newest = config_newest(config);
    const struct setting *row = settings_row(settings_program(newest), i);
    int reloads = (row->flags & SETTING_RELOADS) != 0;
    int is_secret = (row->flags & SETTING_SECRET) != 0;
    struct settings_value value;
    settings_value(reloads ? newest : config->started, i, &value);
    json_out_begin_object(out, NULL);
    json_out_text(out, "name", row->name);
    if (value.text == NULL || is_secret) {
        json_out_null(out, "value");
    } else {
        json_out_text(out, "value", value.text);
    }
    json_out_text(out, "source", settings_source_name(value.source));
    if (value.source == SETTINGS_DEFAULT) {
        json_out_null(out, "where");
    } else {
        json_out_text(out, "where", value.where);
    }
    json_out_bool(out, "is_secret", is_secret);
    json_out_bool(out, "reloads", reloads);
    json_out_bool(out, "needs_restart", !reloads && config_differs(config->started, newest, i));
    json_out_end_object(out);
}

void config_print(struct config *config, struct json_out *out) {
    const char *file = settings_file(config->started);
    (void)pthread_mutex_lock(&config->lock);
    if (file != NULL) {
        json_out_text(out, "file", file);
    } else {
        json_out_null(out, "file");
    }
    json_out_begin_array(out, "settings");
    for (size_t i = 0; i < settings_n_rows(settings_program(config->started)); i++) {
        config_print_row(config, i, out);
    }
    json_out_end_array(out);
    (void)pthread_mutex_unlock(&config->lock);
}
