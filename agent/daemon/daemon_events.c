#include "daemon_events.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/parse.h"
#include "base/thread.h"
#include "client/http_client.h"
#include "daemon_pace.h"
#include "daemon_plan.h"
#include "ipc/ipc.h"

/* The controller sends a comment every 10 s. */
#define DAEMON_EVENTS_IDLE_MS 35000
/* Between looks at whether there is an incarnation at all, or the end is wished. */
#define DAEMON_EVENTS_TICK_MS 200

struct daemon_events {
    struct daemon_uplink *uplink;
    const struct log *log;
    struct http_client *client;
    pthread_t thread;
    pthread_mutex_t lock; /* guards news */
    struct daemon_news news;
    int fd;
    volatile int stop;      /* atomic */
    volatile int interrupt; /* atomic; ends the stream that is being read */
    /* The thread's own: */
    struct daemon_incarnation *inc;
    char id[WIRE_ID_BYTES];
    uint64_t last_seq; /* of the newest plan seen in this incarnation */
    struct daemon_pace pace;
    struct log_wait wait;
};

static int daemon_events_stopping(const struct daemon_events *events) {
    return __atomic_load_n(&events->stop, __ATOMIC_SEQ_CST);
}

/* Under the lock: news of an incarnation that is over are worthless. */
static void daemon_events_address(struct daemon_events *events) {
    if (strcmp(events->news.key, events->inc->key) != 0) {
        free(events->news.plan);
        events->news = (struct daemon_news){0};
        memcpy(events->news.key, events->inc->key, sizeof(events->news.key));
    }
}

static void daemon_events_wake(const struct daemon_events *events) {
    uint64_t one = 1;
    ssize_t n = write(events->fd, &one, sizeof(one));
    (void)n; /* a full counter is readable too */
}

static void daemon_events_refuse(struct daemon_events *events, uint64_t seq,
                                 const struct deft_error *error) {
    log_line(events->log, LOG_LEVEL_ERROR, "plan %" PRIu64 " is not forwarded: %s", seq,
             error->text);
    (void)pthread_mutex_lock(&events->lock);
    daemon_events_address(events);
    events->news.refused_seq = seq;
    (void)snprintf(events->news.refusal, sizeof(events->news.refusal), "%s", error->text);
    (void)pthread_mutex_unlock(&events->lock);
    daemon_events_wake(events);
}

static void daemon_events_plan(struct daemon_events *events, const char *id, const char *data) {
    struct deft_error error = {0};
    uint8_t *payload = NULL;
    size_t n_bytes = 0;
    uint64_t seq = 0;
    if (parse_u64("the id of a plan event", id, 1, IPC_MAX_COUNT, &seq, NULL) != DEFT_OK) {
        seq = 0;
    }
    if (daemon_plan_payload(data, events->inc, &seq, &payload, &n_bytes, &error) != DEFT_OK) {
        daemon_events_refuse(events, seq, &error);
        return;
    }
    if (seq <= events->last_seq) {
        free(payload);
        return;
    }
    events->last_seq = seq;
    log_line(events->log, LOG_LEVEL_INFO, "plan %" PRIu64 " has arrived", seq);
    (void)pthread_mutex_lock(&events->lock);
    daemon_events_address(events);
    free(events->news.plan);
    events->news.plan = payload;
    events->news.plan_bytes = n_bytes;
    events->news.plan_seq = seq;
    (void)pthread_mutex_unlock(&events->lock);
    daemon_events_wake(events);
}

static void daemon_events_command(struct daemon_events *events, const char *data) {
    uint32_t command = 0;
    if (daemon_plan_command(data, &command) != DEFT_OK) {
        log_line(events->log, LOG_LEVEL_WARNING, "the command '%.100s' is unknown", data);
        return;
    }
    (void)pthread_mutex_lock(&events->lock);
    daemon_events_address(events);
    /* A stop wish outlives a drain wish. */
    if (events->news.command != IPC_COMMAND_STOP) {
        events->news.command = command;
    }
    (void)pthread_mutex_unlock(&events->lock);
    daemon_events_wake(events);
}

static int daemon_events_on_event(void *context, const char *event, const char *id,
                                  const char *data) {
    struct daemon_events *events = context;
    daemon_pace_reset(&events->pace);
    log_wait_over(&events->wait, events->log, clock_monotonic_ns(), "the event stream");
    if (strcmp(event, "plan") == 0) {
        daemon_events_plan(events, id, data);
    } else if (strcmp(event, "command") == 0) {
        daemon_events_command(events, data);
    } else if (strcmp(event, "mode") == 0) {
        log_line(events->log, LOG_LEVEL_INFO, "the job's mode is now %.100s", data);
    } else {
        log_line(events->log, LOG_LEVEL_DEBUG, "an event '%.30s' is ignored", event);
    }
    return 0;
}

static void daemon_events_pause(const struct daemon_events *events, int64_t ns) {
    int64_t until_ns = clock_monotonic_ns() + ns;
    while (!daemon_events_stopping(events) && clock_monotonic_ns() < until_ns) {
        struct timespec tick = {.tv_nsec = DAEMON_EVENTS_TICK_MS * 1000000L};
        (void)nanosleep(&tick, NULL);
    }
}

/* Reads one stream to its end. */
static void daemon_events_follow(struct daemon_events *events) {
    char escaped[3 * WIRE_ID_BYTES];
    char path[sizeof(escaped) + 64];
    char last_id[24] = "";
    struct deft_error error = {0};
    if (http_client_escape(events->id, escaped, sizeof(escaped)) != DEFT_OK) {
        daemon_events_pause(events, DAEMON_PACE_MOST_NS);
        return;
    }
    (void)snprintf(path, sizeof(path), "/api/v1/incarnations/%s/events", escaped);
    if (events->last_seq > 0) {
        (void)snprintf(last_id, sizeof(last_id), "%" PRIu64, events->last_seq);
    }
    /* Cleared before the question whether this incarnation is still the current one, so that an
     * interruption at any moment counts. */
    __atomic_store_n(&events->interrupt, 0, __ATOMIC_SEQ_CST);
    if (daemon_events_stopping(events) || !daemon_uplink_is_current(events->uplink, events->id)) {
        return;
    }
    enum deft_status status =
        http_client_events(events->client, path, last_id, DAEMON_EVENTS_IDLE_MS, &events->interrupt,
                           daemon_events_on_event, events, &error);
    if (status == DEFT_NOT_FOUND) {
        daemon_uplink_forget(events->uplink, events->id);
    }
    if (!daemon_events_stopping(events) && daemon_uplink_is_current(events->uplink, events->id)) {
        log_wait_for(&events->wait, events->log, clock_monotonic_ns(), "the event stream: %s",
                     error.text);
    }
    int64_t pause_ns = daemon_pace_next_ns(&events->pace);
    if (error.backend_code == 429 || error.backend_code == 503) {
        pause_ns += DAEMON_PACE_MOST_NS; /* it has too much to do; plans are not urgent */
    }
    daemon_events_pause(events, pause_ns);
}

static void *daemon_events_run(void *argument) {
    struct daemon_events *events = argument;
    while (!daemon_events_stopping(events)) {
        struct daemon_incarnation *inc = NULL;
        if (daemon_uplink_current(events->uplink, DAEMON_EVENTS_TICK_MS, events->id, &inc) !=
            DEFT_OK) {
            continue;
        }
        if (inc != events->inc) {
            daemon_incarnation_unref(events->inc);
            events->inc = inc;
            events->last_seq = 0;
        } else {
            daemon_incarnation_unref(inc);
        }
        daemon_events_follow(events);
    }
    return NULL;
}

enum deft_status daemon_events_start(const struct http_client_options *controller,
                                     struct daemon_uplink *uplink, const struct log *log,
                                     struct daemon_events **out, struct deft_error *error) {
    struct daemon_events *events = calloc(1, sizeof(*events));
    enum deft_status status = DEFT_OK;
    if (events == NULL || pthread_mutex_init(&events->lock, NULL) != 0) {
        free(events);
        return deft_fail(error, DEFT_NO_MEMORY, 0, "no memory for the event stream");
    }
    events->uplink = uplink;
    events->log = log;
    daemon_pace_init(&events->pace, daemon_pace_entropy());
    events->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (events->fd < 0) {
        status = deft_fail(error, DEFT_IO, errno, "an event descriptor cannot be made: %s",
                           strerror(errno));
        goto failed;
    }
    status = http_client_open(controller, &events->client, error);
    if (status == DEFT_OK) {
        int code = thread_start(&events->thread, daemon_events_run, events);
        if (code == 0) {
            *out = events;
            return DEFT_OK;
        }
        status = deft_fail(error, DEFT_IO, code, "the event stream's thread cannot start: %s",
                           strerror(code));
        http_client_close(events->client);
    }
    (void)close(events->fd);
failed:
    (void)pthread_mutex_destroy(&events->lock);
    free(events);
    return status;
}

void daemon_events_restart(struct daemon_events *events) {
    __atomic_store_n(&events->interrupt, 1, __ATOMIC_SEQ_CST);
}

int daemon_events_fd(const struct daemon_events *events) {
    return events->fd;
}

void daemon_events_take(struct daemon_events *events, struct daemon_news *out) {
    uint64_t count;
    ssize_t n = read(events->fd, &count, sizeof(count));
    (void)n;
    (void)pthread_mutex_lock(&events->lock);
    *out = events->news;
    events->news = (struct daemon_news){0};
    (void)pthread_mutex_unlock(&events->lock);
}

void daemon_events_stop(struct daemon_events *events) {
    if (events == NULL) {
        return;
    }
    __atomic_store_n(&events->stop, 1, __ATOMIC_SEQ_CST);
    __atomic_store_n(&events->interrupt, 1, __ATOMIC_SEQ_CST);
    daemon_uplink_let_go(events->uplink);
    (void)pthread_join(events->thread, NULL);
    free(events->news.plan);
    daemon_incarnation_unref(events->inc);
    http_client_close(events->client);
    (void)close(events->fd);
    (void)pthread_mutex_destroy(&events->lock);
    free(events);
}
