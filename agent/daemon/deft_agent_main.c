/* deft-agent: carries what the local ranks of a job measure to the controller, and plans back. */
#include <argp.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/notify.h"
#include "base/streams.h"
#include "client/http_client.h"
#include "daemon_disk.h"
#include "daemon_events.h"
#include "daemon_loop.h"
#include "daemon_options.h"
#include "daemon_pace.h"
#include "daemon_ranks.h"
#include "daemon_uplink.h"

/* What is queued at the end gets this long, together with the end of the last request. */
#define DEFT_AGENT_FLUSH_NS INT64_C(2700000000)

/* glibc's argp looks it up by name, past the hidden default of this build. */
__attribute__((visibility("default"))) const char *argp_program_version =
    "deft-agent " DEFT_VERSION_TEXT;

/* Unique per agent process, also across reboots, hosts of one name and containers, where every
 * agent may have the same process id. */
static void deft_agent_name(char out[WIRE_ID_BYTES]) {
    char host[DAEMON_DISK_HOST_BYTES];
    daemon_disk_host(host);
    (void)snprintf(out, WIRE_ID_BYTES, "%s-%ld-%" PRId64 "-%04x", host, (long)getpid(),
                   clock_wall_ns() / 1000, (unsigned)(daemon_pace_entropy() >> 48));
}

static enum deft_status deft_agent_signals(int *out_fd, struct deft_error *error) {
    sigset_t set;
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGTERM);
    (void)sigaddset(&set, SIGINT);
    if (sigprocmask(SIG_SETMASK, &set, NULL) != 0) {
        return deft_fail(error, DEFT_IO, errno, "signals cannot be blocked: %s", strerror(errno));
    }
    (void)signal(SIGPIPE, SIG_IGN);
    (void)signal(SIGHUP, SIG_IGN);
    (void)signal(SIGXFSZ, SIG_IGN); /* a spool that may not grow is a write that fails */
    int fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (fd < 0) {
        return deft_fail(error, DEFT_IO, errno, "signals cannot be received: %s", strerror(errno));
    }
    *out_fd = fd;
    return DEFT_OK;
}

static enum deft_status deft_agent_check_fd(const char *name, int fd, struct deft_error *error) {
    if (fd >= 0 && fcntl(fd, F_SETFD, FD_CLOEXEC) != 0) {
        return deft_fail(error, DEFT_INVALID, errno, "%s %d is not an open descriptor", name, fd);
    }
    return DEFT_OK;
}

static void deft_agent_tell_ready(const struct daemon_options *options) {
    notify_send(NOTIFY_READY);
    if (options->ready_fd < 0) {
        return;
    }
    ssize_t n = write(options->ready_fd, "1", 1);
    (void)n; /* who asked may have gone; ranks are served all the same */
    if (options->ready_fd != options->owner_fd) {
        (void)close(options->ready_fd);
    }
}

static enum deft_status deft_agent_serve(const struct daemon_options *options,
                                         const struct log *log, struct deft_error *error) {
    char agent[WIRE_ID_BYTES];
    struct daemon_uplink *uplink = NULL;
    struct http_client_options controller;
    struct daemon_ranks *ranks = calloc(1, sizeof(*ranks));
    struct daemon_loop loop = {
        .options = options, .log = log, .ranks = ranks, .listen_fd = -1, .signal_fd = -1};
    deft_agent_name(agent);
    client_options_fill(&options->credentials, options->controller, &controller);
    enum deft_status status = DEFT_OK;
    if (ranks == NULL) {
        return deft_fail(error, DEFT_NO_MEMORY, 0, "no memory for the ranks");
    }
    status = deft_agent_signals(&loop.signal_fd, error);
    if (status == DEFT_OK) {
        status = ipc_listen(options->socket, &loop.listen_fd, error);
    }
    if (status == DEFT_OK) {
        const struct daemon_uplink_options uplink_options = {
            .controller = &controller,
            .agent = agent,
            .job = options->job,
            .spool_dir = options->spool_bytes > 0 ? options->spool_dir : NULL,
            .spool_bytes = options->spool_bytes};
        status = daemon_uplink_start(&uplink_options, log, &uplink, error);
    }
    if (status == DEFT_OK) {
        daemon_ranks_init(ranks, options, agent, log, uplink);
        status = daemon_events_start(&controller, uplink, log, &loop.events, error);
    }
    if (status == DEFT_OK) {
        ranks->events = loop.events;
        log_line(log, LOG_LEVEL_INFO, "agent %s listens on %s for %s", agent, options->socket,
                 options->controller);
        deft_agent_tell_ready(options);
        status = daemon_loop_run(&loop, error);
    }
    if (loop.listen_fd >= 0) {
        (void)close(loop.listen_fd);
        if (options->socket[0] != '@') {
            (void)unlink(options->socket);
        }
    }
    int64_t deadline_ns = clock_monotonic_ns() + DEFT_AGENT_FLUSH_NS;
    daemon_events_stop(loop.events);
    daemon_uplink_stop(uplink, deadline_ns);
    daemon_ranks_done(ranks);
    free(ranks);
    if (loop.signal_fd >= 0) {
        (void)close(loop.signal_fd);
    }
    return status;
}

int main(int argc, char **argv) {
    struct daemon_options options;
    struct settings *settings = NULL;
    struct log log = {.fd = -1};
    struct deft_error error = {0};
    streams_begin("deft-agent");
    daemon_options_read(argc, argv, &options, &settings);
    enum deft_status status = deft_agent_check_fd("--ready-fd", options.ready_fd, &error);
    if (status == DEFT_OK) {
        status = deft_agent_check_fd("--exit-with-fd", options.owner_fd, &error);
    }
    if (status == DEFT_OK) {
        status = log_open(&log, "deft-agent", options.log_path,
                          options.verbose ? LOG_LEVEL_DEBUG : LOG_LEVEL_INFO, &error);
    }
    if (status == DEFT_OK) {
        status = deft_agent_serve(&options, &log, &error);
    }
    if (status != DEFT_OK) {
        (void)fprintf(stderr, "deft-agent: %s\n", error.text);
        if (log.fd > STDERR_FILENO) {
            log_line(&log, LOG_LEVEL_ERROR, "%s", error.text);
        }
    }
    log_close(&log);
    settings_close(settings);
    return status == DEFT_OK ? 0 : status == DEFT_INVALID ? 2 : 1;
}
