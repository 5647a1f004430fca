#include "base/settings.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/settings_impl.h"

static const char *const settings_sources[] = {"default", "file", "environment", "flag"};

const char *settings_source_name(enum settings_source source) {
    return settings_sources[source];
}

size_t settings_n_rows(const struct settings_program *program) {
    size_t n = 0;
    for (size_t g = 0; g < program->n_groups; g++) {
        for (const struct setting *row = program->groups[g].rows; row->name != NULL; row++) {
            n++;
        }
    }
    return n;
}

/* Row `i`, and where in the program's target its own begins. */
static const struct setting *settings_locate(const struct settings_program *program, size_t i,
                                             size_t *out_offset) {
    const struct settings_group *group = program->groups;
    const struct setting *row = group->rows;
    for (;; row++) {
        while (row->name == NULL) {
            group++;
            row = group->rows;
        }
        if (i-- == 0) {
            *out_offset = group->offset;
            return row;
        }
    }
}

const struct setting *settings_row(const struct settings_program *program, size_t i) {
    size_t offset = 0;
    return settings_locate(program, i, &offset);
}

const struct settings_program *settings_program(const struct settings *settings) {
    return settings->program;
}

enum settings_task settings_task(const struct settings *settings) {
    return settings->task;
}

const char *settings_file(const struct settings *settings) {
    return settings->file;
}

/* NULL after a failure that `error` and `out_status` tell of. */
static struct settings *settings_make(const struct settings_program *program,
                                      enum deft_status *out_status, struct deft_error *error) {
    size_t n_rows = settings_n_rows(program);
    if (n_rows > SETTINGS_MAX_ROWS) {
        *out_status = deft_fail(error, DEFT_LIMIT, 0, "%s has %zu settings, expected at most %u",
                                program->name, n_rows, SETTINGS_MAX_ROWS);
        return NULL;
    }
    struct settings *settings = calloc(1, sizeof(*settings));
    if (settings == NULL) {
        *out_status = deft_fail(error, DEFT_NO_MEMORY, 0, "no memory for the settings");
        return NULL;
    }
    settings->program = program;
    settings->n_rows = n_rows;
    *out_status = DEFT_OK;
    return settings;
}

enum deft_status settings_open(const struct settings_program *program, struct settings **out,
                               struct deft_error *error) {
    enum deft_status status = DEFT_OK;
    struct settings *settings = settings_make(program, &status, error);
    if (settings != NULL) {
        *out = settings;
    }
    return status;
}

void settings_close(struct settings *settings) {
    if (settings == NULL) {
        return;
    }
    for (size_t s = 0; s < SETTINGS_N_SOURCES; s++) {
        for (size_t i = 0; i < settings->n_rows; i++) {
            free(settings->texts[s][i]);
        }
    }
    free(settings->file);
    free(settings);
}

size_t settings_find(const struct settings *settings, const char *name, size_t n_bytes) {
    for (size_t i = 0; i < settings->n_rows; i++) {
        const char *known = settings_row(settings->program, i)->name;
        if (strlen(known) == n_bytes && memcmp(known, name, n_bytes) == 0) {
            return i;
        }
    }
    return SETTINGS_MAX_ROWS;
}

enum deft_status settings_store(struct settings *settings, enum settings_source source, size_t i,
                                const char *text, size_t n_bytes, struct deft_error *error) {
    char *copy = strndup(text, n_bytes);
    if (copy == NULL) {
        return deft_fail(error, DEFT_NO_MEMORY, 0, "no memory for the settings");
    }
    free(settings->texts[source][i]);
    settings->texts[source][i] = copy;
    return DEFT_OK;
}

void settings_variable(const struct settings *settings, size_t i, char *out,
                       size_t capacity_bytes) {
    const char *name = settings_row(settings->program, i)->name;
    size_t n = (size_t)snprintf(out, capacity_bytes, "%s%s", settings->program->prefix, name);
    for (size_t c = strlen(settings->program->prefix); c < n && c + 1 < capacity_bytes; c++) {
        out[c] = (char)toupper((unsigned char)out[c]);
        if (out[c] == '-') {
            out[c] = '_';
        }
    }
}

enum deft_status settings_read(const struct settings_program *program, int argc, char **argv,
                               char *const *environment, struct settings **out,
                               struct deft_error *error) {
    enum deft_status status = DEFT_OK;
    struct settings *settings = settings_make(program, &status, error);
    if (settings == NULL) {
        return status;
    }
    settings_read_flags(settings, argc, argv);
    if (settings->no_memory) {
        status = deft_fail(error, DEFT_NO_MEMORY, 0, "no memory for the settings");
    }
    if (status == DEFT_OK) {
        status = settings_read_environment(settings, environment, error);
    }
    if (status == DEFT_OK) {
        status = settings_read_file(settings, error);
    }
    if (status != DEFT_OK) {
        settings_close(settings);
        return status;
    }
    *out = settings;
    return DEFT_OK;
}

enum deft_status settings_read_again(const struct settings *settings, struct settings **out,
                                     struct deft_error *error) {
    enum deft_status status = DEFT_OK;
    if (settings->file == NULL) {
        return deft_fail(error, DEFT_STATE, 0, "there is no file of settings");
    }
    struct settings *fresh = settings_make(settings->program, &status, error);
    if (fresh == NULL) {
        return status;
    }
    fresh->task = settings->task;
    fresh->file = strdup(settings->file);
    if (fresh->file == NULL) {
        status = deft_fail(error, DEFT_NO_MEMORY, 0, "no memory for the settings");
    }
    for (size_t s = SETTINGS_ENVIRONMENT; s < SETTINGS_N_SOURCES; s++) {
        for (size_t i = 0; i < settings->n_rows && status == DEFT_OK; i++) {
            const char *text = settings->texts[s][i];
            if (text != NULL) {
                status =
                    settings_store(fresh, (enum settings_source)s, i, text, strlen(text), error);
            }
        }
    }
    if (status == DEFT_OK) {
        status = settings_read_file(fresh, error);
    }
    if (status != DEFT_OK) {
        settings_close(fresh);
        return status;
    }
    *out = fresh;
    return DEFT_OK;
}

/* Where the value of a row from `source` stands, as sentences and people are told. */
static void settings_where(const struct settings *settings, size_t i, enum settings_source source,
                           char *out, size_t capacity_bytes) {
    const struct setting *row = settings_row(settings->program, i);
    switch (source) {
    case SETTINGS_FILE:
        (void)snprintf(out, capacity_bytes, "%.400s:%u",
                       settings->file != NULL ? settings->file : "", settings->lines[i]);
        break;
    case SETTINGS_ENVIRONMENT:
        settings_variable(settings, i, out, capacity_bytes);
        break;
    case SETTINGS_FLAG:
        (void)snprintf(out, capacity_bytes, "--%s", row->name);
        break;
    default:
        out[0] = '\0';
        break;
    }
}

static const char *settings_text(const struct settings *settings, size_t i,
                                 enum settings_source source) {
    return source == SETTINGS_DEFAULT ? settings_row(settings->program, i)->value
                                      : settings->texts[source][i];
}

void settings_value(const struct settings *settings, size_t i, struct settings_value *out) {
    enum settings_source source = SETTINGS_FLAG;
    while (source > SETTINGS_DEFAULT && settings_text(settings, i, source) == NULL) {
        source = (enum settings_source)(source - 1);
    }
    out->text = settings_text(settings, i, source);
    out->source = source;
    settings_where(settings, i, source, out->where, sizeof(out->where));
}

/* What a sentence calls the value: "--port", "DEFT_CONTROLLER_PORT", "FILE:3: port". */
static void settings_call(const struct settings *settings, size_t i, enum settings_source source,
                          char *out, size_t capacity_bytes) {
    const char *name = settings_row(settings->program, i)->name;
    settings_where(settings, i, source, out, capacity_bytes);
    size_t n = strlen(out);
    if (source <= SETTINGS_FILE) {
        (void)snprintf(out + n, capacity_bytes - n, "%s%s", n > 0 ? ": " : "", name);
    }
}

enum deft_status settings_apply(const struct settings *settings, void *target,
                                struct deft_error *error) {
    char name[SETTINGS_WHERE_BYTES];
    for (size_t i = 0; i < settings->n_rows; i++) {
        size_t offset = 0;
        const struct setting *row = settings_locate(settings->program, i, &offset);
        for (size_t s = 0; s < SETTINGS_N_SOURCES; s++) {
            const char *text = settings_text(settings, i, (enum settings_source)s);
            if (text == NULL) {
                continue;
            }
            settings_call(settings, i, (enum settings_source)s, name, sizeof(name));
            enum deft_status status = row->take(row, name, text, (char *)target + offset, error);
            if (status != DEFT_OK) {
                return status;
            }
        }
    }
    return DEFT_OK;
}

/* Whether a line of a file can carry it. */
static int settings_fits_file(const char *text) {
    size_t n = strlen(text);
    if (n == 0 || strchr(" \t", text[0]) != NULL || strchr(" \t", text[n - 1]) != NULL) {
        return 0;
    }
    for (const char *c = text; *c != '\0'; c++) {
        if (iscntrl((unsigned char)*c) && *c != '\t') {
            return 0;
        }
    }
    return 1;
}

enum deft_status settings_print(const struct settings *settings, FILE *out,
                                struct deft_error *error) {
    for (size_t i = 0; i < settings->n_rows; i++) {
        const struct setting *row = settings_row(settings->program, i);
        struct settings_value value;
        settings_value(settings, i, &value);
        if ((row->flags & SETTING_ONLY_FLAG) != 0) {
            continue;
        }
        (void)fprintf(out, "# %s", row->doc);
        if (value.text == NULL && row->otherwise != NULL) {
            (void)fprintf(out, " (%s)", row->otherwise);
        }
        (void)fprintf(out, "%s%s\n", value.where[0] != '\0' ? "; from " : "", value.where);
        if (value.text == NULL) {
            (void)fprintf(out, "# %s =\n", row->name);
        } else if ((row->flags & SETTING_SECRET) != 0) {
            (void)fprintf(out, "# %s is set, and not shown\n", row->name);
        } else if (settings_fits_file(value.text)) {
            (void)fprintf(out, "%s = %s\n", row->name, value.text);
        } else {
            return deft_fail(error, DEFT_INVALID, 0,
                             "%s is '%.60s', which no line of a file can say", value.where,
                             value.text);
        }
    }
    return DEFT_OK;
}
