/* Timers by the thousand: a wheel of 1 ms slots. */
#ifndef LOAD_WHEEL_H
#define LOAD_WHEEL_H

#include <stdint.h>

#define LOAD_WHEEL_SLOTS   8192u
#define LOAD_WHEEL_TICK_NS INT64_C(1000000)

struct load_timer { /* zero-initialised is none that runs */
    int64_t due_ns;
    uint64_t tag;
    struct load_timer *next;
    struct load_timer **back; /* what points here; NULL: it does not run */
};
struct load_wheel {
    int64_t tick; /* the slot that was looked at last */
    struct load_timer *slots[LOAD_WHEEL_SLOTS];
};

void load_wheel_begin(struct load_wheel *wheel, int64_t now_ns);
/* Moves a timer that runs already. */
void load_wheel_set(struct load_wheel *wheel, struct load_timer *timer, int64_t due_ns);
void load_wheel_cancel(struct load_timer *timer);
/* One that is due, which runs no more; NULL: none is. */
struct load_timer *load_wheel_take(struct load_wheel *wheel, int64_t now_ns);

#endif
