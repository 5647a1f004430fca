/* Inside of settings. Only for the settings*.c files. */
#ifndef SETTINGS_IMPL_H
#define SETTINGS_IMPL_H

#include "base/settings.h"

struct settings {
    const struct settings_program *program;
    size_t n_rows;
    enum settings_task task;
    int no_memory;                                      /* while the command line was read */
    char *file;                                         /* NULL: none */
    char *texts[SETTINGS_N_SOURCES][SETTINGS_MAX_ROWS]; /* NULL: not given; [0] stays NULL */
    unsigned lines[SETTINGS_MAX_ROWS];                  /* in the file */
};

/* SETTINGS_MAX_ROWS when no row is called so. */
size_t settings_find(const struct settings *settings, const char *name, size_t n_bytes);
/* Replaces. */
DEFT_NODISCARD enum deft_status settings_store(struct settings *settings,
                                               enum settings_source source, size_t i,
                                               const char *text, size_t n_bytes,
                                               struct deft_error *error);
/* PREFIX_NAME of row `i`. */
void settings_variable(const struct settings *settings, size_t i, char *out, size_t capacity_bytes);
/* The file of --config, if there is one. */
DEFT_NODISCARD enum deft_status settings_read_file(struct settings *settings,
                                                   struct deft_error *error);

#endif
