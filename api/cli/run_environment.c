#include "run_environment.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static const char *const run_environment_names[] = {
    "DEFT_RANK",        "DEFT_WORLD_SIZE",  "DEFT_LOCAL_RANK",   "DEFT_JOB_ID", "DEFT_JOB_NAME",
    "DEFT_MASTER_ADDR", "DEFT_MASTER_PORT", "DEFT_AGENT_SOCKET", "DEFT_LINKS",
};
#define RUN_ENVIRONMENT_OURS (sizeof(run_environment_names) / sizeof(run_environment_names[0]))

static int run_environment_is_ours(const char *entry) {
    for (size_t i = 0; i < RUN_ENVIRONMENT_OURS; i++) {
        size_t n = strlen(run_environment_names[i]);
        if (strncmp(entry, run_environment_names[i], n) == 0 && entry[n] == '=') {
            return 1;
        }
    }
    return 0;
}

static char *run_environment_entry(const char *name, const char *format, ...) DEFT_PRINTF(2, 3);
static char *run_environment_entry(const char *name, const char *format, ...) {
    char value[4096 + 64];
    char *entry = NULL;
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(value, sizeof(value), format, arguments);
    va_end(arguments);
    size_t n_bytes = strlen(name) + strlen(value) + 2;
    entry = malloc(n_bytes);
    if (entry != NULL) {
        (void)snprintf(entry, n_bytes, "%s=%s", name, value);
    }
    return entry;
}

/* Fills at most RUN_ENVIRONMENT_OURS entries; returns their number, or 0 without memory. */
static size_t run_environment_fill(const struct run_environment *environment, uint32_t rank,
                                   char **out) {
    const struct run_options *options = environment->options;
    const char *master = getenv("DEFT_MASTER_ADDR");
    const char *links = options->links != NULL ? options->links : getenv("DEFT_LINKS");
    const char *const *names = run_environment_names;
    size_t n = 0;
    out[n++] = run_environment_entry(names[0], "%u", rank);
    out[n++] = run_environment_entry(names[1], "%u", options->n_ranks);
    out[n++] = run_environment_entry(names[2], "%u", rank);
    out[n++] = run_environment_entry(names[3], "%s", options->job);
    out[n++] = run_environment_entry(names[4], "%s", options->name);
    out[n++] = run_environment_entry(names[5], "%s",
                                     master != NULL && master[0] != '\0' ? master : "127.0.0.1");
    out[n++] = run_environment_entry(names[6], "%u", environment->master_port);
    if (environment->agent_socket != NULL) {
        out[n++] = run_environment_entry(names[7], "%s", environment->agent_socket);
    }
    if (links != NULL && links[0] != '\0') {
        out[n++] = run_environment_entry(names[8], "%s", links);
    }
    for (size_t i = 0; i < n; i++) {
        if (out[i] == NULL) {
            return 0;
        }
    }
    return n;
}

enum deft_status run_environment_make(const struct run_environment *environment, uint32_t rank,
                                      char ***out, struct deft_error *error) {
    size_t n_inherited = 0;
    while (environ[n_inherited] != NULL) {
        n_inherited++;
    }
    char **entries = calloc(n_inherited + RUN_ENVIRONMENT_OURS + 1, sizeof(*entries));
    size_t n = entries != NULL ? run_environment_fill(environment, rank, entries) : 0;
    int complete = n > 0;
    for (size_t i = 0; i < n_inherited && complete; i++) {
        if (!run_environment_is_ours(environ[i])) {
            entries[n] = strdup(environ[i]);
            complete = entries[n++] != NULL;
        }
    }
    if (!complete) {
        run_environment_free(entries);
        return deft_fail(error, DEFT_NO_MEMORY, 0, "no memory for the environment of rank %u",
                         rank);
    }
    *out = entries;
    return DEFT_OK;
}

void run_environment_free(char **environment) {
    if (environment != NULL) {
        for (size_t i = 0; environment[i] != NULL; i++) {
            free(environment[i]);
        }
        free(environment);
    }
}

enum deft_status run_environment_port(uint16_t *out_port, struct deft_error *error) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_ANY)};
    socklen_t n_bytes = sizeof(address);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (const struct sockaddr *)&address, n_bytes) != 0 ||
        getsockname(fd, (struct sockaddr *)&address, &n_bytes) != 0) {
        enum deft_status status = deft_fail(
            error, DEFT_IO, errno, "no free port for the ranks to meet: %s", strerror(errno));
        if (fd >= 0) {
            (void)close(fd);
        }
        return status;
    }
    (void)close(fd);
    *out_port = ntohs(address.sin_port);
    return DEFT_OK;
}
