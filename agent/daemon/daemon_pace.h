/* How long to wait before the controller is asked again: 0.2 s doubling up to 5 s, less a random
 * part of up to half, so that the agents of a large job do not return in step. */
#ifndef DAEMON_PACE_H
#define DAEMON_PACE_H

#include <stdint.h>

#define DAEMON_PACE_LEAST_NS INT64_C(200000000)
#define DAEMON_PACE_MOST_NS  INT64_C(5000000000)

struct daemon_pace {
    uint64_t random; /* not 0 */
    int64_t full_ns;
};

/* `seed` from the system's entropy, or fixed in tests. */
void daemon_pace_init(struct daemon_pace *pace, uint64_t seed);
uint64_t daemon_pace_entropy(void);
/* After a failure. */
int64_t daemon_pace_next_ns(struct daemon_pace *pace);
/* After a success. */
void daemon_pace_reset(struct daemon_pace *pace);

#endif
