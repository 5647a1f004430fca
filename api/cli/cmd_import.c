/* deft import: profiles from what other tools have recorded. */
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <dsched/whatif.h>

#include "cli.h"
#include "import_output.h"
#include "import_progress.h"
#include "import_report.h"
#include "kineto/kineto.h"
#include "wire/wire.h"

enum { CMD_IMPORT_JSON = 256, CMD_IMPORT_NAME, CMD_IMPORT_WORLD, CMD_IMPORT_PROGRESS };

static const struct argp_option cmd_import_table[] = {
    {"output", 'o', "FILE", 0, "Write the profile to FILE ('-': standard output)", 0},
    {"json", CMD_IMPORT_JSON, NULL, 0, "Print every figure as JSON", 0},
    {"name", CMD_IMPORT_NAME, "NAME", 0, "Name of the profile (default: the first trace's)", 0},
    {"world", CMD_IMPORT_WORLD, "N", 0, "Ranks of the job, if the traces do not tell", 0},
    {"progress", CMD_IMPORT_PROGRESS, NULL, 0,
     "Show how far reading is, also when standard error is no terminal", 0},
    {0},
};

struct cmd_import_input {
    int has_format;
    const char *paths[KINETO_MAX_TRACES];
    uint32_t n_paths;
    const char *output;
    const char *name;
    uint32_t world_size;
    int json;
    int progress;
};

static void cmd_import_argument(const struct argp_state *state, const char *argument,
                                struct cmd_import_input *input) {
    if (!input->has_format) {
        if (strcmp(argument, "kineto") != 0) {
            argp_error(state, "there is no format '%.40s', expected kineto", argument);
        }
        input->has_format = 1;
        return;
    }
    if (input->n_paths == KINETO_MAX_TRACES) {
        argp_error(state, "at most %u traces are taken", KINETO_MAX_TRACES);
    }
    for (uint32_t i = 0; i < input->n_paths; i++) {
        if (strcmp(argument, "-") == 0 && strcmp(input->paths[i], "-") == 0) {
            argp_error(state, "standard input can be one trace only");
        }
    }
    input->paths[input->n_paths++] = argument;
}

static error_t cmd_import_parse(int key, char *argument, struct argp_state *state) {
    struct cmd_import_input *input = state->input;
    switch (key) {
    case 'o':
        input->output = argument;
        break;
    case CMD_IMPORT_JSON:
        input->json = 1;
        break;
    case CMD_IMPORT_NAME:
        input->name = argument;
        break;
    case CMD_IMPORT_WORLD:
        input->world_size = (uint32_t)cli_number(state, "--world", argument, 1, DSCHED_MAX_WORLD);
        break;
    case CMD_IMPORT_PROGRESS:
        input->progress = 1;
        break;
    case ARGP_KEY_ARG:
        cmd_import_argument(state, argument, input);
        break;
    case ARGP_KEY_END:
        if (input->n_paths == 0) {
            argp_error(state, "a format and traces are expected: kineto TRACE...");
        } else if (input->json && input->output != NULL && strcmp(input->output, "-") == 0) {
            argp_error(state, "--json and -o - would both go to standard output");
        }
        break;
    default:
        return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

/* The file's name without folder and what tools append to it. */
static void cmd_import_name(const char *path, char *out, size_t capacity) {
    static const char *const endings[] = {".gz", ".json", ".trace", ".pt"};
    char copy[512];
    (void)snprintf(copy, sizeof(copy), "%s", strcmp(path, "-") == 0 ? "trace" : path);
    (void)snprintf(out, capacity, "%s", basename(copy));
    for (size_t i = 0; i < sizeof(endings) / sizeof(endings[0]); i++) {
        size_t n = strlen(out);
        size_t n_ending = strlen(endings[i]);
        if (n > n_ending && strcmp(out + n - n_ending, endings[i]) == 0) {
            out[n - n_ending] = '\0';
        }
    }
}

/* Traces are read one after the other, and share the limit of records. */
static enum deft_status cmd_import_read(const struct cmd_import_input *input,
                                        struct kineto_trace **traces, struct import_report *report,
                                        struct deft_error *error) {
    for (uint32_t i = 0; i < input->n_paths; i++) {
        struct import_progress progress = {.label = input->paths[i],
                                           .is_shown = input->progress || isatty(STDERR_FILENO)};
        uint32_t left = KINETO_MAX_RECORDS - (uint32_t)report->n_records;
        enum deft_status status =
            kineto_read(input->paths[i], left, import_progress_show, &progress, &traces[i], error);
        import_progress_end(&progress);
        if (status != DEFT_OK) {
            return status;
        }
        report->n_events += kineto_trace_events(traces[i]);
        report->n_records += kineto_trace_records(traces[i]);
    }
    return DEFT_OK;
}

static enum deft_status cmd_import_write(const struct cmd_import_input *input,
                                         const struct import_report *report,
                                         struct deft_error *error) {
    char *profile = NULL;
    char *text = NULL;
    enum deft_status status = wire_profile_encode(report->profile, &profile, error);
    if (status == DEFT_OK && input->output != NULL) {
        status = import_output_write(input->output, profile, error);
    }
    if (status == DEFT_OK && input->json) {
        status = import_report_json(report, profile, &text, error);
    }
    if (status == DEFT_OK && input->json) {
        (void)printf("%s\n", text);
    } else if (status == DEFT_OK) {
        int is_piped = input->output != NULL && strcmp(input->output, "-") == 0;
        import_report_text(report, is_piped ? stderr : stdout);
    }
    free(text);
    free(profile);
    return status;
}

static enum deft_status cmd_import_run(const struct cmd_import_input *input,
                                       struct deft_error *error) {
    struct kineto_trace *traces[KINETO_MAX_TRACES] = {NULL};
    struct kineto_job job = {0};
    struct dsched_profile profile = {0};
    struct kineto_verdict verdict = {0};
    struct import_report report = {.job = &job, .profile = &profile, .verdict = &verdict};
    char name[DSCHED_NAME_BYTES];
    cmd_import_name(input->paths[0], name, sizeof(name));
    enum deft_status status = cmd_import_read(input, traces, &report, error);
    if (status == DEFT_OK) {
        status = kineto_job_init(&job, traces, input->n_paths, error);
    }
    if (status == DEFT_OK) {
        status = kineto_profile(&job, input->name != NULL ? input->name : name, input->world_size,
                                &profile, error);
    }
    if (status == DEFT_OK) {
        status = kineto_verdict(&job, &profile, &verdict, error);
    }
    if (status == DEFT_OK) {
        status = cmd_import_write(input, &report, error);
    }
    for (uint32_t i = 0; i < input->n_paths; i++) {
        kineto_trace_destroy(traces[i]);
    }
    dsched_profile_done(&profile);
    kineto_job_done(&job);
    return status;
}

static int cmd_import_main(int argc, char **argv) {
    static const struct argp parser = {
        .options = cmd_import_table,
        .parser = cmd_import_parse,
        .args_doc = "kineto TRACE...",
        .doc = "Makes a profile (deft.profile/1) of traces of the PyTorch profiler, and says what "
               "bounds the job and what a plan would gain.\vTraces are .json or .json.gz, '-' is "
               "standard input; several are those of several ranks of one job."};
    struct cmd_import_input input = {0};
    struct deft_error error = {0};
    (void)argp_parse(&parser, argc, argv, 0, NULL, &input);
    return cli_status(cmd_import_run(&input, &error), &error);
}

const struct cli_command cmd_import = {
    .name = "import",
    .summary = "Make a profile of profiler traces",
    .run = cmd_import_main,
};
