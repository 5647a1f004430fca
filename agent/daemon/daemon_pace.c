#include "daemon_pace.h"

#include <sys/random.h>
#include <unistd.h>

#include "base/clock.h"

uint64_t daemon_pace_entropy(void) {
    uint64_t seed = 0;
    if (getrandom(&seed, sizeof(seed), GRND_NONBLOCK) != (ssize_t)sizeof(seed)) {
        seed = (uint64_t)clock_wall_ns() ^ ((uint64_t)getpid() << 32);
    }
    return seed;
}

void daemon_pace_init(struct daemon_pace *pace, uint64_t seed) {
    *pace = (struct daemon_pace){.random = seed | 1};
}

int64_t daemon_pace_next_ns(struct daemon_pace *pace) {
    pace->full_ns = pace->full_ns == 0 ? DAEMON_PACE_LEAST_NS : pace->full_ns * 2;
    if (pace->full_ns > DAEMON_PACE_MOST_NS) {
        pace->full_ns = DAEMON_PACE_MOST_NS;
    }
    /* xorshift64: quality does not matter here, independence of processes does. */
    pace->random ^= pace->random << 13;
    pace->random ^= pace->random >> 7;
    pace->random ^= pace->random << 17;
    return pace->full_ns - (int64_t)(pace->random % (uint64_t)(pace->full_ns / 2));
}

void daemon_pace_reset(struct daemon_pace *pace) {
    pace->full_ns = 0;
}
