#include "http_stream.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/thread.h"

#define STREAM_HEARTBEAT_MS 10000u
/* Of a connection that speaks HTTP/1.0; chunks are built in the connection's own memory. */
#define STREAM_BLOCK_BYTES 1024u
/* Streams are found by their number in one of so many lists. */
#define STREAM_BUCKETS 1024u
/* Heartbeats go out in so many parts per period: those of ten thousand streams at once would keep
 * everything else waiting. */
#define STREAM_BEATS 64u

struct http_stream {
    struct http_streams *owner;
    uint64_t number;
    uint64_t user;            /* whose it is, as `authorize` said */
    int fd;                   /* of the connection, watched for the peer's end */
    struct http_stream *next; /* owner->lock, and what points here */
    struct http_stream **back;

    pthread_mutex_t lock;
    unsigned references;
    struct MHD_Connection *connection; /* NULL once it is finished */
    int suspended;
    int ended; /* we want no more: what is queued still goes out */
    int gone;  /* the peer is gone, or its queue overflowed */
    char *queue;
    size_t begin_bytes;
    size_t end_bytes;
    size_t capacity_bytes;
};

struct http_streams {
    pthread_t thread;
    int epoll_fd;
    int wake_fd;
    uint32_t heartbeat_ms;
    pthread_mutex_t lock;
    int ending;
    int stopping;
    uint64_t n_opened;
    size_t n_streams;
    struct http_stream *buckets[STREAM_BUCKETS]; /* by number */
};

static void stream_unref(struct http_stream *stream) {
    (void)pthread_mutex_lock(&stream->lock);
    unsigned left = --stream->references;
    (void)pthread_mutex_unlock(&stream->lock);
    if (left == 0) {
        (void)pthread_mutex_destroy(&stream->lock);
        free(stream->queue);
        free(stream);
    }
}

/* With the lock held: lets the server call the reader again. */
static void stream_resume(struct http_stream *stream) {
    if (stream->suspended && stream->connection != NULL) {
        stream->suspended = 0;
        MHD_resume_connection(stream->connection);
    }
}

static ssize_t stream_read(void *context, uint64_t position, char *buffer, size_t capacity_bytes) {
    struct http_stream *stream = context;
    ssize_t result = 0;
    (void)position;
    (void)pthread_mutex_lock(&stream->lock);
    size_t waiting = stream->end_bytes - stream->begin_bytes;
    if (stream->gone) {
        result = MHD_CONTENT_READER_END_WITH_ERROR;
    } else if (waiting > 0) {
        size_t n = waiting < capacity_bytes ? waiting : capacity_bytes;
        memcpy(buffer, stream->queue + stream->begin_bytes, n);
        stream->begin_bytes += n;
        if (stream->begin_bytes == stream->end_bytes) {
            free(stream->queue); /* a plan may have been large; a silent stream is small */
            stream->queue = NULL;
            stream->begin_bytes = stream->end_bytes = stream->capacity_bytes = 0;
        }
        result = (ssize_t)n;
    } else if (stream->ended) {
        result = MHD_CONTENT_READER_END_OF_STREAM;
    } else {
        stream->suspended = 1;
        MHD_suspend_connection(stream->connection);
    }
    (void)pthread_mutex_unlock(&stream->lock);
    return result;
}

static void stream_response_freed(void *context) {
    stream_unref(context);
}

/* With the lock held. */
static int stream_append(struct http_stream *stream, const char *bytes, size_t n_bytes) {
    size_t waiting = stream->end_bytes - stream->begin_bytes;
    if (waiting + n_bytes > HTTP_MAX_STREAM_QUEUE_BYTES) {
        return 0;
    }
    if (stream->end_bytes + n_bytes > stream->capacity_bytes) {
        size_t capacity = (waiting + n_bytes) * 2;
        char *grown = malloc(capacity);
        if (grown == NULL) {
            return 0;
        }
        if (waiting > 0) {
            memcpy(grown, stream->queue + stream->begin_bytes, waiting);
        }
        free(stream->queue);
        stream->queue = grown;
        stream->begin_bytes = 0;
        stream->end_bytes = waiting;
        stream->capacity_bytes = capacity;
    }
    memcpy(stream->queue + stream->end_bytes, bytes, n_bytes);
    stream->end_bytes += n_bytes;
    return 1;
}

static int stream_field(struct http_stream *stream, const char *name, const char *value,
                        size_t n_bytes) {
    return stream_append(stream, name, strlen(name)) && stream_append(stream, value, n_bytes) &&
           stream_append(stream, "\n", 1);
}

static int stream_event(struct http_stream *stream, const char *id, const char *event,
                        const char *data) {
    int fits = (event == NULL || stream_field(stream, "event: ", event, strlen(event))) &&
               (id == NULL || stream_field(stream, "id: ", id, strlen(id)));
    const char *line = data;
    while (fits && line != NULL) {
        size_t length = strcspn(line, "\n");
        fits = stream_field(stream, "data: ", line, length);
        line = line[length] == '\n' ? line + length + 1 : NULL;
    }
    return fits && stream_append(stream, "\n", 1);
}

enum deft_status http_stream_send(struct http_stream *stream, const char *id, const char *event,
                                  const char *data) {
    enum deft_status status = DEFT_OK;
    (void)pthread_mutex_lock(&stream->lock);
    if (stream->gone || stream->ended || stream->connection == NULL) {
        status = DEFT_CLOSED;
    } else if (!stream_event(stream, id, event, data)) {
        stream->gone = 1; /* half an event may be queued: nothing sensible can follow it */
        status = DEFT_LIMIT;
        stream_resume(stream);
    } else {
        stream_resume(stream);
    }
    (void)pthread_mutex_unlock(&stream->lock);
    return status;
}

int http_stream_closed(const struct http_stream *stream) {
    struct http_stream *s = (struct http_stream *)(uintptr_t)stream; /* the lock is not const */
    (void)pthread_mutex_lock(&s->lock);
    int closed = s->gone || s->connection == NULL;
    (void)pthread_mutex_unlock(&s->lock);
    return closed;
}

static void stream_end(struct http_stream *stream, int gone) {
    (void)pthread_mutex_lock(&stream->lock);
    stream->ended = 1;
    stream->gone |= gone;
    stream_resume(stream);
    (void)pthread_mutex_unlock(&stream->lock);
}

void http_stream_release(struct http_stream *stream) {
    if (stream != NULL) {
        stream_end(stream, 0);
        stream_unref(stream);
    }
}

enum deft_status http_stream_open(struct http_streams *streams, struct MHD_Connection *connection,
                                  uint64_t user, struct http_stream **out_stream,
                                  struct MHD_Response **out_response) {
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    struct http_stream *stream = calloc(1, sizeof(*stream));
    if (stream == NULL) {
        return DEFT_NO_MEMORY;
    }
    (void)pthread_mutex_init(&stream->lock, NULL);
    struct MHD_Response *response = MHD_create_response_from_callback(
        MHD_SIZE_UNKNOWN, STREAM_BLOCK_BYTES, stream_read, stream, stream_response_freed);
    if (response == NULL) {
        (void)pthread_mutex_destroy(&stream->lock);
        free(stream);
        return DEFT_NO_MEMORY;
    }
    stream->owner = streams;
    stream->user = user;
    stream->fd = info != NULL ? info->connect_fd : -1;
    stream->connection = connection;
    stream->references = 3; /* caller, connection, response */
    /* The first bytes tell the client that the stream stands. */
    (void)stream_append(stream, ": deft\n\n", 8);

    (void)pthread_mutex_lock(&streams->lock);
    stream->number = ++streams->n_opened;
    struct http_stream **bucket = &streams->buckets[stream->number % STREAM_BUCKETS];
    stream->next = *bucket;
    stream->back = bucket;
    if (stream->next != NULL) {
        stream->next->back = &stream->next;
    }
    *bucket = stream;
    streams->n_streams++;
    stream->ended = streams->ending;
    struct epoll_event watch = {.events = EPOLLRDHUP, .data.u64 = stream->number};
    /* Unwatched, the peer's end is noticed at the next heartbeat. */
    (void)epoll_ctl(streams->epoll_fd, EPOLL_CTL_ADD, stream->fd, &watch);
    (void)pthread_mutex_unlock(&streams->lock);
    *out_stream = stream;
    *out_response = response;
    return DEFT_OK;
}

void http_stream_detach(struct http_stream *stream) {
    struct http_streams *streams = stream->owner;
    (void)pthread_mutex_lock(&streams->lock);
    *stream->back = stream->next;
    if (stream->next != NULL) {
        stream->next->back = stream->back;
    }
    streams->n_streams--;
    (void)epoll_ctl(streams->epoll_fd, EPOLL_CTL_DEL, stream->fd, NULL);
    (void)pthread_mutex_unlock(&streams->lock);

    (void)pthread_mutex_lock(&stream->lock);
    stream->connection = NULL;
    (void)pthread_mutex_unlock(&stream->lock);
    stream_unref(stream);
}

static void streams_peer_gone(struct http_streams *streams, uint64_t number) {
    (void)pthread_mutex_lock(&streams->lock);
    for (struct http_stream *s = streams->buckets[number % STREAM_BUCKETS]; s != NULL;
         s = s->next) {
        if (s->number == number) {
            (void)epoll_ctl(streams->epoll_fd, EPOLL_CTL_DEL, s->fd, NULL);
            stream_end(s, 1);
        }
    }
    (void)pthread_mutex_unlock(&streams->lock);
}

static void stream_heartbeat(struct http_stream *stream) {
    (void)pthread_mutex_lock(&stream->lock);
    if (stream->suspended && !stream->ended && stream_append(stream, ":\n\n", 3)) {
        stream_resume(stream);
    }
    (void)pthread_mutex_unlock(&stream->lock);
}

/* Of part `beat` of the streams. */
static void streams_heartbeat(struct http_streams *streams, unsigned beat) {
    const unsigned n = STREAM_BUCKETS / STREAM_BEATS;
    (void)pthread_mutex_lock(&streams->lock);
    for (unsigned i = beat * n; i < (beat + 1) * n; i++) {
        for (struct http_stream *s = streams->buckets[i]; s != NULL; s = s->next) {
            stream_heartbeat(s);
        }
    }
    (void)pthread_mutex_unlock(&streams->lock);
}

static void *streams_watch(void *context) {
    struct http_streams *streams = context;
    int64_t pause_ns = (int64_t)streams->heartbeat_ms * 1000000 / STREAM_BEATS;
    int64_t next_ns = clock_monotonic_ns() + pause_ns;
    unsigned beat = 0;
    for (;;) {
        struct epoll_event events[32];
        int64_t left_ns = next_ns - clock_monotonic_ns();
        int timeout_ms = left_ns > 0 ? (int)(left_ns / 1000000) + 1 : 0;
        int n = epoll_wait(streams->epoll_fd, events, 32, timeout_ms);
        (void)pthread_mutex_lock(&streams->lock);
        int stopping = streams->stopping;
        (void)pthread_mutex_unlock(&streams->lock);
        if (stopping) {
            return NULL;
        }
        for (int i = 0; i < n; i++) {
            streams_peer_gone(streams, events[i].data.u64);
        }
        if (clock_monotonic_ns() >= next_ns) {
            streams_heartbeat(streams, beat);
            beat = (beat + 1) % STREAM_BEATS;
            next_ns = clock_monotonic_ns() + pause_ns;
        }
    }
}

enum deft_status http_streams_start(uint32_t heartbeat_ms, struct http_streams **out,
                                    struct deft_error *error) {
    enum deft_status status = DEFT_OK;
    struct epoll_event wake = {.events = EPOLLIN, .data.u64 = 0};
    struct http_streams *streams = calloc(1, sizeof(*streams));
    if (streams == NULL) {
        return deft_fail(error, DEFT_NO_MEMORY, 0, "no memory for event streams");
    }
    streams->heartbeat_ms = heartbeat_ms > 0 ? heartbeat_ms : STREAM_HEARTBEAT_MS;
    streams->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    streams->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    (void)pthread_mutex_init(&streams->lock, NULL);
    int code = 0;
    if (streams->epoll_fd < 0 || streams->wake_fd < 0 ||
        epoll_ctl(streams->epoll_fd, EPOLL_CTL_ADD, streams->wake_fd, &wake) != 0) {
        code = errno;
    } else {
        code = thread_start(&streams->thread, streams_watch, streams);
    }
    if (code != 0) {
        status = deft_fail(error, DEFT_IO, code, "the event streams cannot be watched: %s",
                           strerrordesc_np(code));
        if (streams->epoll_fd >= 0) {
            (void)close(streams->epoll_fd);
        }
        if (streams->wake_fd >= 0) {
            (void)close(streams->wake_fd);
        }
        (void)pthread_mutex_destroy(&streams->lock);
        free(streams);
        return status;
    }
    *out = streams;
    return DEFT_OK;
}

void http_streams_check(struct http_streams *streams, int (*keeps)(uint64_t user, void *context),
                        void *context) {
    (void)pthread_mutex_lock(&streams->lock);
    for (unsigned i = 0; i < STREAM_BUCKETS; i++) {
        for (struct http_stream *s = streams->buckets[i]; s != NULL; s = s->next) {
            if (!keeps(s->user, context)) {
                stream_end(s, 0);
            }
        }
    }
    (void)pthread_mutex_unlock(&streams->lock);
}

size_t http_streams_count(struct http_streams *streams) {
    (void)pthread_mutex_lock(&streams->lock);
    size_t n = streams->n_streams;
    (void)pthread_mutex_unlock(&streams->lock);
    return n;
}

void http_streams_end(struct http_streams *streams) {
    (void)pthread_mutex_lock(&streams->lock);
    streams->ending = 1;
    for (unsigned i = 0; i < STREAM_BUCKETS; i++) {
        for (struct http_stream *s = streams->buckets[i]; s != NULL; s = s->next) {
            stream_end(s, 0);
        }
    }
    (void)pthread_mutex_unlock(&streams->lock);
}

void http_streams_stop(struct http_streams *streams) {
    const uint64_t one = 1;
    if (streams == NULL) {
        return;
    }
    (void)pthread_mutex_lock(&streams->lock);
    streams->stopping = 1;
    (void)pthread_mutex_unlock(&streams->lock);
    if (write(streams->wake_fd, &one, sizeof(one)) == (ssize_t)sizeof(one)) {
        (void)pthread_join(streams->thread, NULL);
    }
    (void)close(streams->epoll_fd);
    (void)close(streams->wake_fd);
    (void)pthread_mutex_destroy(&streams->lock);
    free(streams);
}
