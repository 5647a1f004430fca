#include <argp.h>
#include <stdlib.h>
#include <string.h>

#include "base/settings.h"
#include "base/settings_impl.h"

enum flags_key { KEY_CONFIG = 0x100, KEY_CHECK, KEY_PRINT, KEY_FIRST_ROW };
#define FLAGS_N_OWN 3u

static const struct argp_option flags_own[FLAGS_N_OWN] = {
    {"config", KEY_CONFIG, "FILE", 0, "Settings from FILE, lines of KEY = VALUE, as well", 0},
    {"check-config", KEY_CHECK, NULL, 0, "Only say whether the settings are right", 0},
    {"print-config", KEY_PRINT, NULL, 0, "Only print the settings, as such a file", 0}};

static int flags_key(const struct setting *row, size_t i) {
    return row->letter != 0 ? row->letter : (int)(KEY_FIRST_ROW + i);
}

/* An option that is repeated: the last one holds, or all of a list. */
static enum deft_status flags_store(struct settings *settings, size_t i, const char *text) {
    const char *before = settings->texts[SETTINGS_FLAG][i];
    char *joined = NULL;
    if (before == NULL || (settings_row(settings->program, i)->flags & SETTING_LIST) == 0) {
        return settings_store(settings, SETTINGS_FLAG, i, text, strlen(text), NULL);
    }
    if (asprintf(&joined, "%s,%s", before, text) < 0) {
        return DEFT_NO_MEMORY;
    }
    free(settings->texts[SETTINGS_FLAG][i]);
    settings->texts[SETTINGS_FLAG][i] = joined;
    return DEFT_OK;
}

static error_t flags_parse(int key, char *argument, struct argp_state *state) {
    struct settings *settings = state->input;
    switch (key) {
    case KEY_CONFIG:
        if (argument[0] == '\0') {
            argp_error(state, "--config is empty, expected the name of a file");
        }
        free(settings->file);
        settings->file = strdup(argument);
        settings->no_memory |= settings->file == NULL;
        return 0;
    case KEY_CHECK:
        settings->task = SETTINGS_CHECK;
        return 0;
    case KEY_PRINT:
        settings->task = SETTINGS_PRINT;
        return 0;
    case ARGP_KEY_ARG:
        argp_error(state, "'%s' was not expected", argument);
        return EINVAL;
    default:
        break;
    }
    for (size_t i = 0; i < settings->n_rows; i++) {
        if (flags_key(settings_row(settings->program, i), i) == key) {
            settings->no_memory |=
                flags_store(settings, i, argument != NULL ? argument : "yes") != DEFT_OK;
            return 0;
        }
    }
    return ARGP_ERR_UNKNOWN;
}

/* The sentence of a row with its default in parentheses; malloc'ed, or NULL. */
static char *flags_doc(const struct setting *row) {
    char *doc = NULL;
    const char *value = row->otherwise != NULL  ? row->otherwise
                        : row->argument != NULL ? row->value
                                                : NULL; /* switches are off */
    int n =
        value != NULL ? asprintf(&doc, "%s (%s)", row->doc, value) : asprintf(&doc, "%s", row->doc);
    return n >= 0 ? doc : NULL;
}

void settings_read_flags(struct settings *settings, int argc, char **argv) {
    struct argp_option options[SETTINGS_MAX_ROWS + FLAGS_N_OWN + 1] = {{0}};
    char *docs[SETTINGS_MAX_ROWS] = {NULL};
    const struct argp parser = {
        .options = options, .parser = flags_parse, .doc = settings->program->doc};
    for (size_t i = 0; i < settings->n_rows; i++) {
        const struct setting *row = settings_row(settings->program, i);
        docs[i] = flags_doc(row);
        options[i] = (struct argp_option){.name = row->name,
                                          .key = flags_key(row, i),
                                          .arg = row->argument,
                                          .doc = docs[i] != NULL ? docs[i] : row->doc};
    }
    memcpy(&options[settings->n_rows], flags_own, sizeof(flags_own));
    (void)argp_parse(&parser, argc, argv, 0, NULL, settings);
    for (size_t i = 0; i < settings->n_rows; i++) {
        free(docs[i]);
    }
}
