#include "cli_files.h"

#include <stdio.h>
#include <string.h>

#include "cli.h"
#include "cli_profile.h"

enum { CLI_FILES_JSON = 1024 };

static const struct argp_option cli_files_table[] = {
    {"json", CLI_FILES_JSON, NULL, 0,
     "Print JSON: one object for one profile, one object per line for several", 0},
    {0},
};

static void cli_files_take(struct argp_state *state, struct cli_files *files) {
    int n_standard_input = 0;
    files->paths = state->argv + state->next;
    files->n = (size_t)(state->argc - state->next);
    for (size_t i = 0; i < files->n; i++) {
        n_standard_input += strcmp(files->paths[i], "-") == 0;
    }
    if (n_standard_input > 1) {
        argp_error(state, "'-' is given %d times, but standard input can be read once",
                   n_standard_input);
    }
}

static error_t cli_files_parse(int key, char *argument, struct argp_state *state) {
    struct cli_files *files = state->input;
    (void)argument;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &files->whatif;
        break;
    case CLI_FILES_JSON:
        files->json = 1;
        break;
    case ARGP_KEY_ARGS:
        cli_files_take(state, files);
        break;
    case ARGP_KEY_NO_ARGS:
        if (!files->may_be_none) {
            argp_error(state, "a profile is expected ('-' is standard input)");
        }
        break;
    default:
        return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

static const struct argp_child cli_files_children[] = {{&cli_whatif_argp, 0, NULL, 0}, {0}};
const struct argp cli_files_argp = {
    .options = cli_files_table, .parser = cli_files_parse, .children = cli_files_children};

static int cli_files_one(const struct cli_files *files, size_t i, cli_files_fn each,
                         void *context) {
    const char *path = files->paths[i];
    struct dsched_profile profile = {0};
    struct deft_error error = {0};
    enum deft_status status = cli_profile_read(path, &profile, &error);
    if (status != DEFT_OK) {
        return cli_status(status, &error);
    }
    uint32_t world = profile.world_size;
    status = cli_whatif_apply(&files->whatif, &profile, &error);
    if (status == DEFT_OK && !files->json) {
        if (files->n > 1) {
            (void)printf("%s== %s ==\n", i > 0 ? "\n" : "", cli_profile_label(path));
        }
        cli_whatif_print(&files->whatif, world, stdout);
    }
    if (status == DEFT_OK) {
        status = each(context, path, &profile, &error);
    }
    if (status != DEFT_OK && files->n > 1) {
        struct deft_error reason = error;
        (void)deft_fail(&error, status, reason.backend_code, "'%.100s': %.250s",
                        cli_profile_label(path), reason.text);
    }
    dsched_profile_done(&profile);
    return cli_status(status, &error);
}

int cli_files_run(const struct cli_files *files, cli_files_fn each, void *context) {
    int worst = CLI_OK;
    for (size_t i = 0; i < files->n; i++) {
        int code = cli_files_one(files, i, each, context);
        worst = code > worst ? code : worst;
    }
    return worst;
}
