/* The profiles on a command line: one file after the other, and what is changed about them. */
#ifndef CLI_FILES_H
#define CLI_FILES_H

#include <argp.h>
#include <stddef.h>

#include <deft/status.h>
#include <dsched/profile.h>

#include "cli_whatif.h"

struct cli_files {
    char **paths; /* of argv; "-" is standard input */
    size_t n;
    int json;
    int may_be_none; /* set by a command that has something to say without any */
    struct cli_whatif whatif;
};

/* PROFILE..., --json and the what-if options, as an argp child whose input is a zeroed struct
 * cli_files. */
extern const struct argp cli_files_argp;
#define CLI_FILES_ARGUMENTS "PROFILE..."
#define CLI_FILES_DOC                                                                              \
    "A PROFILE is a file of schema deft.profile/1; '-' is standard input. Of several profiles "    \
    "each is taken in turn: one that cannot be used is named on standard error, the others are "   \
    "worked on, and the exit status is the worst."

typedef enum deft_status (*cli_files_fn)(void *context, const char *path,
                                         const struct dsched_profile *profile,
                                         struct deft_error *error);
/* Calls `each` with every profile. Text output gets a heading per file, if there are several, and
 * says what was changed. Returns the worst exit code; the sentences have been printed. */
int cli_files_run(const struct cli_files *files, cli_files_fn each, void *context);

#endif
