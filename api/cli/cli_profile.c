#include "cli_profile.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/parse.h"
#include "cli.h"
#include "wire/wire.h"

const char *cli_profile_label(const char *path) {
    return strcmp(path, "-") == 0 ? "standard input" : path;
}

/* Opening a folder succeeds, so it has to be asked for. */
static enum deft_status cli_profile_open(const char *path, FILE **out, struct deft_error *error) {
    struct stat facts;
    FILE *file = strcmp(path, "-") == 0 ? stdin : fopen(path, "re");
    if (file == NULL) {
        return deft_fail(error, parse_wrong_file(errno) ? DEFT_INVALID : DEFT_IO, errno,
                         "'%.250s' cannot be read: %s", path, strerror(errno));
    }
    if (fstat(fileno(file), &facts) == 0 && S_ISDIR(facts.st_mode)) {
        if (file != stdin) {
            (void)fclose(file);
        }
        return deft_fail(error, DEFT_INVALID, EISDIR, "'%.250s' is a folder, expected a file",
                         cli_profile_label(path));
    }
    *out = file;
    return DEFT_OK;
}

enum deft_status cli_profile_text(const char *path, char **out, size_t *out_bytes,
                                  struct deft_error *error) {
    FILE *file = NULL;
    const char *label = cli_profile_label(path);
    size_t n_bytes = 0;
    size_t capacity_bytes = 65536 + 1;
    enum deft_status status = cli_profile_open(path, &file, error);
    if (status != DEFT_OK) {
        return status;
    }
    char *text = malloc(capacity_bytes);
    if (text == NULL) {
        status = deft_fail(error, DEFT_NO_MEMORY, 0, "no memory for '%.250s'", label);
        goto done;
    }
    while (!feof(file)) {
        if (n_bytes + 65536 + 1 > capacity_bytes) {
            capacity_bytes = capacity_bytes * 2 + 65536;
            char *grown = realloc(text, capacity_bytes);
            if (grown == NULL) {
                status = deft_fail(error, DEFT_NO_MEMORY, 0, "no memory for '%.250s'", label);
                goto done;
            }
            text = grown;
        }
        n_bytes += fread(text + n_bytes, 1, 65536, file);
        if (ferror(file)) {
            status = deft_fail(error, DEFT_IO, errno, "'%.250s' cannot be read: %s", label,
                               strerror(errno));
            goto done;
        }
        if (n_bytes > CLI_PROFILE_MAX_BYTES) {
            status = deft_fail(error, DEFT_LIMIT, 0,
                               "'%.250s' has more than the %u bytes that a profile may have", label,
                               CLI_PROFILE_MAX_BYTES);
            goto done;
        }
    }
    text[n_bytes] = '\0';
    *out = text;
    *out_bytes = n_bytes;
    text = NULL;
done:
    free(text);
    if (file != stdin) {
        (void)fclose(file);
    }
    return status;
}

enum deft_status cli_profile_read(const char *path, struct dsched_profile *out,
                                  struct deft_error *error) {
    char *text = NULL;
    size_t n_bytes = 0;
    struct deft_error reason = {0};
    enum deft_status status = cli_profile_text(path, &text, &n_bytes, error);
    if (status != DEFT_OK) {
        return status;
    }
    if (n_bytes == 0) {
        free(text);
        return deft_fail(error, DEFT_INVALID, 0, "'%.250s' is empty, expected a deft.profile/1",
                         cli_profile_label(path));
    }
    status = wire_profile_decode(text, n_bytes, out, &reason);
    free(text);
    if (status != DEFT_OK) {
        return deft_fail(error, status, 0, "'%.100s' is no usable deft.profile/1: %.250s",
                         cli_profile_label(path), reason.text);
    }
    return DEFT_OK;
}

enum {
    CLI_PROFILE_MAX_MERGE = 512,
    CLI_PROFILE_MAX_DELAY,
    CLI_PROFILE_RULES,
    CLI_PROFILE_PENDING,
    CLI_PROFILE_JITTER,
};

static const struct argp_option cli_profile_table[] = {
    {NULL, 0, NULL, 0, "Limits of the planner:", 10},
    {"max-merge", CLI_PROFILE_MAX_MERGE, "K", 0, "Iterations that may share an all-reduce", 0},
    {"max-delay", CLI_PROFILE_MAX_DELAY, "D", 0, "Boundaries an update may be late", 0},
    {"rules", CLI_PROFILE_RULES, "LIST", 0,
     "Update rules that may be used, comma-separated: exact, delayed, lookahead, averaged", 0},
    {"max-pending-bytes", CLI_PROFILE_PENDING, "BYTES", 0,
     "Memory that pending copies may take; 0: no limit", 0},
    {"jitter", CLI_PROFILE_JITTER, "PPM", 0, "Margin on communication times when packing", 0},
    {0},
};

static uint32_t cli_profile_rules(const struct argp_state *state, const char *list) {
    char text[128];
    uint32_t rules = DSCHED_RULE_BIT(DSCHED_EXACT);
    if (strlen(list) >= sizeof(text)) {
        argp_error(state, "--rules is too long");
    }
    (void)snprintf(text, sizeof(text), "%s", list);
    char *rest = text;
    for (char *name = strsep(&rest, ","); name != NULL; name = strsep(&rest, ",")) {
        enum dsched_rule rule = DSCHED_EXACT;
        if (dsched_rule_parse(name, &rule) != DSCHED_OK) {
            argp_error(state,
                       "--rules names '%.40s', expected exact, delayed, lookahead or averaged",
                       name);
        }
        rules |= DSCHED_RULE_BIT(rule);
    }
    return rules;
}

static void cli_profile_progress(const struct argp_state *state, struct cli_planner *planner) {
    struct dsched_error reason = {{0}};
    struct dsched_planner_options *options = &planner->options;
    if (!planner->price.is_given) {
        return;
    }
    if (dsched_progress_predict(&planner->price.inputs, options->max_merge, options->max_delay,
                                &planner->progress, &reason) != DSCHED_OK) {
        argp_error(state, "%s", reason.text);
    }
    options->progress = &planner->progress;
    planner->is_given = 1;
}

static error_t cli_profile_parse(int key, char *argument, struct argp_state *state) {
    struct cli_planner *planner = state->input;
    struct dsched_planner_options *options = &planner->options;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &planner->price;
        return 0;
    case ARGP_KEY_END:
        cli_profile_progress(state, planner);
        return 0;
    case CLI_PROFILE_MAX_MERGE:
        options->max_merge =
            (uint32_t)cli_number(state, "--max-merge", argument, 1, DSCHED_MAX_MERGE);
        break;
    case CLI_PROFILE_MAX_DELAY:
        options->max_delay =
            (uint32_t)cli_number(state, "--max-delay", argument, 0, DSCHED_MAX_DELAY);
        break;
    case CLI_PROFILE_RULES:
        options->rules = cli_profile_rules(state, argument);
        break;
    case CLI_PROFILE_PENDING:
        options->max_pending_bytes =
            cli_number(state, "--max-pending-bytes", argument, 0, UINT64_MAX);
        break;
    case CLI_PROFILE_JITTER:
        options->jitter_ppm = (uint32_t)cli_number(state, "--jitter", argument, 0, 1000000);
        break;
    default:
        return ARGP_ERR_UNKNOWN;
    }
    planner->is_given = 1;
    return 0;
}

static const struct argp_child cli_profile_children[] = {{&cli_price_argp, 0, NULL, 0}, {0}};
const struct argp cli_profile_planner_argp = {
    .options = cli_profile_table, .parser = cli_profile_parse, .children = cli_profile_children};

enum deft_status cli_profile_failed(enum dsched_status status, const struct dsched_error *reason,
                                    struct deft_error *error) {
    switch (status) {
    case DSCHED_OK:
        return DEFT_OK;
    case DSCHED_NO_MEMORY:
        return deft_fail(error, DEFT_NO_MEMORY, 0, "memory could not be allocated");
    case DSCHED_LIMIT:
        return deft_fail(error, DEFT_LIMIT, 0, "%s", reason->text);
    default:
        return deft_fail(error, DEFT_INVALID, 0, "%s", reason->text);
    }
}

enum deft_status cli_profile_solve(const struct dsched_profile *profile,
                                   const struct dsched_planner_options *options,
                                   struct dsched_solution *out, struct deft_error *error) {
    struct dsched_error reason = {{0}};
    return cli_profile_failed(dsched_solve(profile, options, out, &reason), &reason, error);
}
