#include "load_wheel.h"

#include <string.h>

void load_wheel_begin(struct load_wheel *wheel, int64_t now_ns) {
    memset(wheel, 0, sizeof(*wheel));
    wheel->tick = now_ns / LOAD_WHEEL_TICK_NS;
}

void load_wheel_cancel(struct load_timer *timer) {
    if (timer->back != NULL) {
        *timer->back = timer->next;
        if (timer->next != NULL) {
            timer->next->back = timer->back;
        }
        timer->back = NULL;
    }
}

void load_wheel_set(struct load_wheel *wheel, struct load_timer *timer, int64_t due_ns) {
    int64_t tick = due_ns / LOAD_WHEEL_TICK_NS + 1; /* the first at which it is over */
    load_wheel_cancel(timer);
    timer->due_ns = due_ns;
    if (tick <= wheel->tick) {
        tick = wheel->tick + 1;
    }
    /* One that is further away than the wheel is large comes round more than once. */
    struct load_timer **slot = &wheel->slots[(uint64_t)tick % LOAD_WHEEL_SLOTS];
    timer->next = *slot;
    timer->back = slot;
    if (timer->next != NULL) {
        timer->next->back = &timer->next;
    }
    *slot = timer;
}

struct load_timer *load_wheel_take(struct load_wheel *wheel, int64_t now_ns) {
    int64_t now = now_ns / LOAD_WHEEL_TICK_NS;
    for (;;) {
        struct load_timer *timer = wheel->slots[(uint64_t)wheel->tick % LOAD_WHEEL_SLOTS];
        while (timer != NULL && timer->due_ns > now_ns) {
            timer = timer->next;
        }
        if (timer != NULL) {
            load_wheel_cancel(timer);
            return timer;
        }
        if (wheel->tick >= now) {
            return NULL;
        }
        wheel->tick++;
    }
}
