#include "controller_options.h"

#include <stddef.h>
#include <string.h>

#include "keep_options.h"
#include "tuning/quantify.h"

/* Far beyond any job; what is counted from here must not overflow. */
#define OPTIONS_MAX_ITERATIONS 1000000000u

static enum deft_status options_take_mode(const struct setting *row, const char *name,
                                          const char *text, void *target,
                                          struct deft_error *error) {
    struct controller_options *options = target;
    (void)row;
    if (tuner_mode_parse(text, &options->mode) != DEFT_OK) {
        return deft_fail(error, DEFT_INVALID, 0, "%s is '%.60s', expected off, observe or auto",
                         name, text);
    }
    return DEFT_OK;
}

static enum deft_status options_take_guard(const struct setting *row, const char *name,
                                           const char *text, void *target,
                                           struct deft_error *error) {
    struct tuner_config defaults;
    struct tuner_config *tuner = &((struct controller_options *)target)->tuner;
    enum deft_status status = settings_take_u32(row, name, text, target, error);
    tuner_defaults(&defaults);
    tuner->n_guard_most =
        defaults.n_guard_most < tuner->n_guard ? tuner->n_guard : defaults.n_guard_most;
    return status;
}

static const struct setting options_rows[] = {
    {.name = "db",
     .letter = 'd',
     .argument = "FILE",
     .doc = "Database",
     .otherwise = "deft.db in the state directory",
     .take = settings_take_text,
     .offset = offsetof(struct controller_options, db)},
    {.name = "network-db",
     .doc = "Take a database on a network file system (NFS, SMB), which may damage it",
     .value = "no",
     .take = settings_take_switch,
     .offset = offsetof(struct controller_options, store.takes_network)},
    {.name = "port-file",
     .argument = "FILE",
     .doc = "Write the port there once requests are taken",
     .take = settings_take_text,
     .offset = offsetof(struct controller_options, port_file)},
    {.name = "mode",
     .argument = "MODE",
     .doc = "Of new jobs: off, observe or auto",
     .value = "observe",
     .flags = SETTING_RELOADS,
     .take = options_take_mode},
    {.name = "max-merge",
     .argument = "K",
     .doc = "Of new jobs: iterations merged at most",
     .value = "3",
     .flags = SETTING_RELOADS,
     .take = settings_take_u32,
     .offset = offsetof(struct controller_options, limits.max_merge),
     .least = 1,
     .most = DSCHED_MAX_MERGE},
    {.name = "max-delay",
     .argument = "N",
     .doc = "Of new jobs: boundaries of delay at most",
     .value = "8",
     .flags = SETTING_RELOADS,
     .take = settings_take_u32,
     .offset = offsetof(struct controller_options, limits.max_delay),
     .most = DSCHED_MAX_DELAY},
    {.name = "epsilon",
     .argument = "E",
     .doc = "Of new jobs: excess loss over exact's at most, a fraction",
     .value = "0.01",
     .flags = SETTING_RELOADS,
     .take = settings_take_fraction,
     .offset = offsetof(struct controller_options, limits.epsilon)},
    {.name = "min-progress",
     .argument = "P",
     .doc = "Of new jobs: progress per sample at least, as a fraction of exact's",
     .value = "0.5",
     .flags = SETTING_RELOADS,
     .take = settings_take_fraction,
     .offset = offsetof(struct controller_options, limits.min_progress)},
    {.name = "warmup",
     .argument = "N",
     .doc = "First iterations of a job, which stay exact",
     .value = "100",
     .take = settings_take_u32,
     .offset = offsetof(struct controller_options, tuner.n_warmup),
     .most = OPTIONS_MAX_ITERATIONS},
    {.name = "guard",
     .argument = "N",
     .doc = "Iterations until a committed plan is first compared with exact again",
     .value = "2000",
     .take = options_take_guard,
     .offset = offsetof(struct controller_options, tuner.n_guard),
     .least = 1,
     .most = OPTIONS_MAX_ITERATIONS},
    {.name = "verbose",
     .letter = 'v',
     .doc = "Log more",
     .value = "no",
     .flags = SETTING_RELOADS,
     .take = settings_take_switch,
     .offset = offsetof(struct controller_options, verbose)},
    {.name = NULL},
};

static const struct settings_group options_groups[] = {
    {listen_options_rows, offsetof(struct controller_options, listen)},
    {webhook_options_rows, offsetof(struct controller_options, webhook)},
    {keep_options_rows, offsetof(struct controller_options, store)},
    {options_rows, 0},
};

const struct settings_program controller_options_program = {
    .name = "deft-controller",
    .prefix = "DEFT_CONTROLLER_",
    .doc = "The controller of DeFT Tuner: takes the reports of training jobs, plans their "
           "communication, and answers the REST API. 'deft-controller replay --help' tells how its "
           "decisions are checked, 'deft-controller token --help' how access is given, "
           "'deft-controller db --help' what can be done with its database.\v"
           "Every setting may stand in the file of --config as well (max-rate = 100) and in the "
           "environment (DEFT_CONTROLLER_MAX_RATE=100); the command line wins over the "
           "environment, and that over the file. SIGHUP reads the file and the certificates again. "
           "Exit status: 0 after SIGTERM or SIGINT, 1 when it cannot run, 2 for wrong settings.",
    .groups = options_groups,
    .n_groups = sizeof(options_groups) / sizeof(options_groups[0]),
};

enum deft_status controller_options_fill(const struct settings *settings,
                                         struct controller_options *out, struct deft_error *error) {
    memset(out, 0, sizeof(*out));
    listen_options_defaults(&out->listen);
    store_defaults(&out->store);
    tuner_defaults(&out->tuner);
    quantify_default_limits(&out->limits);
    enum deft_status status = settings_apply(settings, out, error);
    if (status == DEFT_OK) {
        status = listen_check(&out->listen, error);
    }
    return status == DEFT_OK ? webhook_options_check(&out->webhook, error) : status;
}
