/* What the agent was asked to do. */
#ifndef DAEMON_OPTIONS_H
#define DAEMON_OPTIONS_H

#include <limits.h>
#include <stdint.h>

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
    char spool_dir[PATH_MAX];
    uint64_t spool_bytes; /* 0: nothing is written to disk */
    int ready_fd;         /* -1: none */
    int owner_fd;         /* -1: none */
    int exit_when_done;
    int verbose;
};

/* Ends the process with status 2 and one sentence when the command line is wrong. */
void daemon_options_read(int argc, char **argv, struct daemon_options *out);

#endif
