/* Streams, events and accesses of the stand-in, shared by its parts. */
#ifndef STANDIN_STREAMS_HPP
#define STANDIN_STREAMS_HPP

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "standin.h"

namespace standin {

/* How far each stream had got: what comes before a point of the work. */
using Clock = std::vector<uint64_t>;

struct Stream {
    size_t number;
    bool is_high; /* made for all-reduces: its priority is above the least */
    Clock clock;
    uint64_t n_queued = 0;
    uint64_t n_done = 0;
    std::deque<std::function<bool()>> tasks; /* returns false: not yet */
};

struct Event {
    bool was_recorded = false;
    bool is_of_high = false;
    Stream *stream = nullptr;
    uint64_t at = 0; /* done when its stream has done as many */
    Clock clock;
    uint64_t time = 0;
};

struct Access {
    uintptr_t begin;
    uintptr_t end;
    size_t stream;
    uint64_t at;
    bool is_write;
};

struct Machine {
    std::mutex lock;
    std::condition_variable moved;
    std::vector<Stream *> streams;
    std::vector<Access> accesses;
    std::vector<void *> kept; /* freed while it was in use */
    Clock host;               /* what threads have waited for or seen */
    std::map<std::string, uint64_t> calls;
    std::string failing;
    int failing_in = 0;
    std::string violation;
    uint64_t time = 0; /* counts what was queued */
    bool is_held = false;
    bool peers_are_lost = false;
    bool is_capturing = false;
    bool is_full = false;
    standin_mistake mistake = STANDIN_NO_MISTAKE;
};

Machine &machine();
/* Counts the call; true: it must fail. With the lock held. */
bool fails(const char *name);
void violate(const std::string &what);
/* With the lock held: the program looks at the last error of its thread, as it does after every
 * launch of its own. */
void check_last_error();
/* NULL is the default stream. */
Stream *stream_of(void *stream);
/* With the lock held: queues, with what it reads and writes. */
void queue(Stream *stream, const std::vector<Access> &accesses, std::function<bool()> task);
Access reads(const void *memory, size_t n_bytes);
Access writes(const void *memory, size_t n_bytes);
/* With the lock held: does whatever can be done. */
void advance();

} // namespace standin

#endif
