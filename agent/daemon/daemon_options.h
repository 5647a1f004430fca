/* What the agent was asked to do. */
#ifndef DAEMON_OPTIONS_H
#define DAEMON_OPTIONS_H

#include <limits.h>
#include <stdint.h>

#include <deft/status.h>

#include "base/settings.h"
#include "client/client_options.h"

struct daemon_options {
    const char *socket;     /* path, or "@name" in the abstract namespace */
    const char *controller; /* http://HOST:PORT */
    struct client_options credentials;
    const char *job;      /* NULL: the job id that the ranks name */
    const char *mode;     /* "": the job's own */
    const char *log_path; /* NULL: standard error */
    uint32_t max_merge;   /* 0: the controller's default */
    uint32_t max_delay;   /* 0: the controller's default */
    double epsilon;       /* 0: the controller's default */
    char spool_dir[PATH_MAX];
    uint64_t spool_bytes; /* 0: nothing is written to disk */
    int ready_fd;         /* -1: none */
    int owner_fd;         /* -1: none */
    int exit_when_done;
    int after_ranks; /* signals wait for the ranks */
    int verbose;
};

extern const struct settings_program daemon_options_program;

/* Fills all of it; texts are those of the settings. DEFT_INVALID: a value is wrong or missing. */
DEFT_NODISCARD enum deft_status daemon_options_fill(const struct settings *settings,
                                                    struct daemon_options *out,
                                                    struct deft_error *error);

/* From command line, environment and file. Ends the process with status 2 and one sentence when
 * something is wrong, and with 0 for --check-config and --print-config. `*out_settings` is to be
 * closed when `out` is no longer used. */
void daemon_options_read(int argc, char **argv, struct daemon_options *out,
                         struct settings **out_settings);

#endif
