#include "service_changes.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "service_answer.h"

struct changes_stream {
    struct http_stream *stream;
    char *sent; /* the job as it was sent last; NULL: not yet */
    struct changes_stream *next;
    char job[WIRE_ID_BYTES];
};

struct service_changes {
    struct jobs *jobs;
    pthread_mutex_t lock;
    struct changes_stream *first;
    unsigned n_streams;
};

enum deft_status service_changes_open(struct jobs *jobs, struct service_changes **out,
                                      struct deft_error *error) {
    struct service_changes *changes = calloc(1, sizeof(*changes));
    if (changes == NULL || pthread_mutex_init(&changes->lock, NULL) != 0) {
        free(changes);
        return deft_fail(error, DEFT_NO_MEMORY, 0, "no memory for the streams of viewers");
    }
    changes->jobs = jobs;
    *out = changes;
    return DEFT_OK;
}

static void changes_free(struct changes_stream *stream) {
    http_stream_release(stream->stream);
    free(stream->sent);
    free(stream);
}

void service_changes_close(struct service_changes *changes) {
    if (changes == NULL) {
        return;
    }
    while (changes->first != NULL) {
        struct changes_stream *stream = changes->first;
        changes->first = stream->next;
        changes_free(stream);
    }
    (void)pthread_mutex_destroy(&changes->lock);
    free(changes);
}

/* 0: it is over, since the client or the job has gone. A database that cannot be read now may be
 * read later. */
static int changes_send(struct jobs *jobs, struct changes_stream *stream) {
    struct wire_job job;
    struct deft_error error = {0};
    char *text = NULL;
    if (http_stream_closed(stream->stream)) {
        return 0;
    }
    enum deft_status status = jobs_view(jobs, stream->job, &job, &error);
    if (status == DEFT_OK) {
        status = wire_job_encode(&job, &text, &error);
    }
    if (status != DEFT_OK) {
        return status != DEFT_NOT_FOUND;
    }
    if (stream->sent != NULL && strcmp(stream->sent, text) == 0) {
        free(text);
        return 1;
    }
    free(stream->sent);
    stream->sent = text;
    return http_stream_send(stream->stream, NULL, "job", text) == DEFT_OK;
}

void service_changes_tick(struct service_changes *changes) {
    (void)pthread_mutex_lock(&changes->lock);
    struct changes_stream **place = &changes->first;
    while (*place != NULL) {
        struct changes_stream *stream = *place;
        if (changes_send(changes->jobs, stream)) {
            place = &stream->next;
        } else {
            *place = stream->next;
            changes->n_streams--;
            changes_free(stream);
        }
    }
    (void)pthread_mutex_unlock(&changes->lock);
}

/* 0: there are as many as there may be. */
static int changes_reserve(struct service_changes *changes) {
    (void)pthread_mutex_lock(&changes->lock);
    int has_room = changes->n_streams < CHANGES_MAX_STREAMS;
    changes->n_streams += has_room ? 1 : 0;
    (void)pthread_mutex_unlock(&changes->lock);
    return has_room;
}

static void changes_give_back(struct service_changes *changes, struct changes_stream *stream) {
    (void)pthread_mutex_lock(&changes->lock);
    changes->n_streams--;
    (void)pthread_mutex_unlock(&changes->lock);
    free(stream);
}

static void changes_add(struct service_changes *changes, struct http_request *request,
                        const char *job) {
    struct changes_stream *stream = calloc(1, sizeof(*stream));
    if (!changes_reserve(changes)) {
        free(stream);
        http_respond_problem(request, 429, "busy", NULL,
                             "%u viewers are watching jobs, and no more are served",
                             CHANGES_MAX_STREAMS);
        return;
    }
    if (stream == NULL) {
        changes_give_back(changes, NULL);
        http_respond_problem(request, 503, "no_memory", NULL, "no memory for a stream");
        return;
    }
    (void)snprintf(stream->job, sizeof(stream->job), "%s", job);
    stream->stream = http_respond_stream(request);
    if (stream->stream == NULL) {
        changes_give_back(changes, stream);
        return;
    }
    (void)pthread_mutex_lock(&changes->lock);
    stream->next = changes->first;
    changes->first = stream;
    /* At once, so that whoever comes sees the job without waiting for a tick. */
    (void)changes_send(changes->jobs, stream);
    (void)pthread_mutex_unlock(&changes->lock);
}

void service_view_changes(struct http_request *request, void *context) {
    struct service *service = context;
    struct wire_job job;
    struct deft_error error = {0};
    const char *name = http_request_param(request, "job");
    if (jobs_view(service->jobs, name, &job, &error) == DEFT_OK) {
        changes_add(service->changes, request, name);
    } else {
        service_fail(request, &error);
    }
}
