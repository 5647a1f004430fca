#include "runtime/mailbox.h"

#include <stdlib.h>
#include <string.h>

int mailbox_init(struct mailbox *mailbox, uint32_t n_tensors) {
    memset(mailbox, 0, sizeof(*mailbox));
    mailbox->readiness = calloc(n_tensors, sizeof(*mailbox->readiness));
    if (mailbox->readiness == NULL) {
        return 0;
    }
    (void)pthread_mutex_init(&mailbox->lock, NULL);
    return 1;
}

void mailbox_done(struct mailbox *mailbox) {
    if (mailbox->readiness == NULL) {
        return;
    }
    engine_destroy(mailbox->offered);
    engine_destroy(mailbox->retired);
    free(mailbox->readiness);
    (void)pthread_mutex_destroy(&mailbox->lock);
    memset(mailbox, 0, sizeof(*mailbox));
}

void mailbox_offer(struct mailbox *mailbox, struct engine *engine) {
    (void)pthread_mutex_lock(&mailbox->lock);
    struct engine *older = mailbox->offered;
    __atomic_store_n(&mailbox->offered, engine, __ATOMIC_RELAXED); /* mailbox_take peeks */
    (void)pthread_mutex_unlock(&mailbox->lock);
    engine_destroy(older);
}

struct engine *mailbox_take(struct mailbox *mailbox) {
    if (__atomic_load_n(&mailbox->offered, __ATOMIC_RELAXED) == NULL ||
        pthread_mutex_trylock(&mailbox->lock) != 0) {
        return NULL;
    }
    struct engine *engine = mailbox->offered;
    __atomic_store_n(&mailbox->offered, NULL, __ATOMIC_RELAXED);
    (void)pthread_mutex_unlock(&mailbox->lock);
    return engine;
}

void mailbox_retire(struct mailbox *mailbox, struct engine *engine) {
    struct engine *unswept = engine;
    if (pthread_mutex_trylock(&mailbox->lock) == 0) {
        unswept = mailbox->retired;
        mailbox->retired = engine;
        (void)pthread_mutex_unlock(&mailbox->lock);
    }
    engine_destroy(unswept);
}

void mailbox_sweep(struct mailbox *mailbox) {
    (void)pthread_mutex_lock(&mailbox->lock);
    struct engine *retired = mailbox->retired;
    mailbox->retired = NULL;
    (void)pthread_mutex_unlock(&mailbox->lock);
    engine_destroy(retired);
}

void mailbox_event(struct mailbox *mailbox, enum ipc_event_kind kind, uint64_t plan_seq,
                   uint64_t iteration, uint64_t count, const char *text) {
    (void)pthread_mutex_lock(&mailbox->lock);
    if (mailbox->n_events < MAILBOX_EVENTS) {
        struct ipc_event *event = &mailbox->events[mailbox->n_events++];
        memset(event, 0, sizeof(*event));
        event->kind = kind;
        event->plan_seq = plan_seq;
        event->iteration = iteration;
        event->count = count;
        strncpy(event->text, text, sizeof(event->text) - 1);
    } else {
        mailbox->n_events_lost++;
    }
    (void)pthread_mutex_unlock(&mailbox->lock);
}

int mailbox_next_event(struct mailbox *mailbox, struct ipc_event *out) {
    (void)pthread_mutex_lock(&mailbox->lock);
    int found = mailbox->n_events > 0;
    if (found) {
        *out = mailbox->events[0];
        mailbox->n_events--;
        memmove(&mailbox->events[0], &mailbox->events[1],
                mailbox->n_events * sizeof(mailbox->events[0]));
    }
    (void)pthread_mutex_unlock(&mailbox->lock);
    return found;
}
