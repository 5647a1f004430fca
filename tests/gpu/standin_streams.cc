/* libcudart, as far as libdeft calls it. */
#include "standin_streams.hpp"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#define STANDIN_EXPORT extern "C" __attribute__((visibility("default")))

namespace standin {

static thread_local bool is_in_step = false;
static thread_local int present_device = 0;
static thread_local cudaError_t last_error = cudaSuccess;

Machine &machine() {
    static Machine *the = new Machine; /* outlives whatever still runs at exit */
    return *the;
}

void violate(const std::string &what) {
    /* One mistake may break several rules, in an order that threads decide. */
    std::string &all = machine().violation;
    if (all.size() < 4096 && all.find(what) == std::string::npos) {
        all += (all.empty() ? "" : "; ") + what;
    }
}

void check_last_error() {
    if (last_error != cudaSuccess) {
        violate("the program finds an error that is not its own");
    }
}

/* Of calls that may fail: the last failure stays until somebody asks. */
static cudaError_t tell(cudaError_t error) {
    last_error = error;
    return error;
}

bool fails(const char *name) {
    Machine &m = machine();
    m.calls[name]++;
    return m.failing == name && m.failing_in > 0 && --m.failing_in == 0;
}

static Stream *add_stream(bool is_high) {
    auto *stream = new Stream;
    stream->number = machine().streams.size();
    stream->is_high = is_high;
    machine().streams.push_back(stream);
    return stream;
}

Stream *stream_of(void *stream) {
    if (machine().streams.empty()) {
        add_stream(false);
    }
    return stream != nullptr ? static_cast<Stream *>(stream) : machine().streams[0];
}

static uint64_t &at(Clock &clock, size_t number) {
    if (clock.size() <= number) {
        clock.resize(number + 1, 0);
    }
    return clock[number];
}

static void join(Clock &into, const Clock &from) {
    for (size_t i = 0; i < from.size(); i++) {
        at(into, i) = std::max(at(into, i), from[i]);
    }
}

Access reads(const void *memory, size_t n_bytes) {
    auto begin = reinterpret_cast<uintptr_t>(memory);
    return {begin, begin + n_bytes, 0, 0, false};
}

Access writes(const void *memory, size_t n_bytes) {
    Access access = reads(memory, n_bytes);
    access.is_write = true;
    return access;
}

static bool is_conflict(const Access &a, const Access &b) {
    return a.begin < b.end && b.begin < a.end && (a.is_write || b.is_write);
}

/* Notes the access; complains when one before it is not known to come before it. */
static void note(Stream *stream, Access access) {
    auto &all = machine().accesses;
    access.stream = stream->number;
    access.at = stream->n_queued;
    for (const Access &before : all) {
        if (before.stream != access.stream && is_conflict(before, access) &&
            at(stream->clock, before.stream) < before.at) {
            violate("unordered: stream " + std::to_string(access.stream) +
                    (access.is_write ? " writes" : " reads") + " what stream " +
                    std::to_string(before.stream) + (before.is_write ? " writes" : " reads"));
        }
    }
    auto same = [&](const Access &old) {
        return old.stream == access.stream && old.begin == access.begin && old.end == access.end &&
               old.is_write == access.is_write;
    };
    all.erase(std::remove_if(all.begin(), all.end(), same), all.end());
    all.push_back(access);
}

void queue(Stream *stream, const std::vector<Access> &accesses, std::function<bool()> task) {
    stream->n_queued++;
    machine().time++;
    join(stream->clock, machine().host);
    at(stream->clock, stream->number) = stream->n_queued;
    for (const Access &access : accesses) {
        note(stream, access);
    }
    stream->tasks.push_back(std::move(task));
    machine().moved.notify_all();
}

void advance() {
    Machine &m = machine();
    for (bool goes_on = !m.is_held; goes_on;) {
        goes_on = false;
        for (Stream *stream : m.streams) {
            while (!stream->tasks.empty() && stream->tasks.front()()) {
                stream->tasks.pop_front();
                stream->n_done++;
                goes_on = true;
            }
        }
    }
    m.moved.notify_all();
}

static void wait_of_host(const char *call) {
    if (is_in_step) {
        violate(std::string("the host waits in a step: ") + call);
    }
}

/* Others must queue what this waits for. */
static void wait_for(std::unique_lock<std::mutex> &held, Stream *stream, uint64_t until,
                     const Clock &clock) {
    for (advance(); stream->n_done < until; advance()) {
        machine().moved.wait(held);
    }
    join(machine().host, clock);
}

static cudaError_t carry(void *into, const void *from, size_t n_bytes, void *on) {
    queue(stream_of(on), {reads(from, n_bytes), writes(into, n_bytes)}, [=] {
        memmove(into, from, n_bytes);
        return true;
    });
    return cudaSuccess;
}

/* Nothing may still use it. */
static void forget_memory(void *memory, const char *call) {
    Machine &m = machine();
    bool is_in_use = false;
    auto begin = reinterpret_cast<uintptr_t>(memory);
    auto is_there = [&](const Access &a) { return a.begin <= begin && begin < a.end; };
    for (const Access &access : m.accesses) {
        if (is_there(access) && m.streams[access.stream]->n_done < access.at) {
            violate(std::string(call) + " of memory that stream " + std::to_string(access.stream) +
                    " still uses");
            is_in_use = true;
        }
    }
    m.accesses.erase(std::remove_if(m.accesses.begin(), m.accesses.end(), is_there),
                     m.accesses.end());
    if (is_in_use) { /* a device would have waited */
        m.kept.push_back(memory);
    } else {
        free(memory);
    }
}

} // namespace standin

using namespace standin;
using Held = std::unique_lock<std::mutex>;

/* --- what tests say --------------------------------------------------------------------------- */

STANDIN_EXPORT void standin_reset() {
    Held held(machine().lock);
    Machine &m = machine();
    m.is_held = false;
    advance();
    m.accesses.clear();
    m.calls.clear();
    m.failing.clear();
    m.failing_in = 0;
    m.violation.clear();
    m.peers_are_lost = m.is_capturing = m.is_full = false;
    m.mistake = STANDIN_NO_MISTAKE;
    last_error = cudaSuccess;
}

STANDIN_EXPORT const char *standin_violation() {
    Held held(machine().lock);
    return machine().violation.c_str();
}

STANDIN_EXPORT void standin_hold(int is_held) {
    Held held(machine().lock);
    machine().is_held = is_held != 0;
    advance();
}

STANDIN_EXPORT void standin_in_step(int is) {
    is_in_step = is != 0;
}

STANDIN_EXPORT void standin_fail(const char *name, int nth) {
    Held held(machine().lock);
    machine().failing = name != nullptr ? name : "";
    machine().failing_in = nth;
}

STANDIN_EXPORT uint64_t standin_calls(const char *name) {
    Held held(machine().lock);
    return machine().calls[name];
}

STANDIN_EXPORT void standin_produce(void *stream, void *into, const void *from, size_t n_bytes) {
    Held held(machine().lock);
    auto *bytes = static_cast<const uint8_t *>(from);
    std::vector<uint8_t> copy(bytes, bytes + n_bytes);
    check_last_error();
    queue(stream_of(stream), {writes(into, n_bytes)}, [into, copy] {
        memcpy(into, copy.data(), copy.size());
        return true;
    });
}

STANDIN_EXPORT void standin_consume(void *stream, void *into, const void *from, size_t n_bytes) {
    Held held(machine().lock);
    check_last_error();
    (void)carry(into, from, n_bytes, stream);
}

STANDIN_EXPORT void standin_finish() {
    Held held(machine().lock);
    auto has_work = [](const Stream *s) { return !s->tasks.empty(); };
    auto &all = machine().streams;
    for (advance(); std::any_of(all.begin(), all.end(), has_work); advance()) {
        machine().moved.wait(held);
    }
    for (Stream *stream : all) {
        join(machine().host, stream->clock);
    }
}

STANDIN_EXPORT void standin_lose_peers() {
    Held held(machine().lock);
    machine().peers_are_lost = true;
}

STANDIN_EXPORT void standin_fill() {
    Held held(machine().lock);
    machine().is_full = true;
}

STANDIN_EXPORT void standin_capture(int is_capturing) {
    Held held(machine().lock);
    machine().is_capturing = is_capturing != 0;
}

STANDIN_EXPORT void standin_plant(enum standin_mistake mistake) {
    Held held(machine().lock);
    machine().mistake = mistake;
}

/* --- what libdeft calls ----------------------------------------------------------------------- */

#define STANDIN_BEGIN(name)                                                                        \
    Held held(machine().lock);                                                                     \
    if (fails(name)) {                                                                             \
        return tell(cudaErrorUnknown);                                                             \
    }

STANDIN_EXPORT cudaError_t cudaRuntimeGetVersion(int *version) {
    STANDIN_BEGIN("cudaRuntimeGetVersion")
    *version = CUDART_VERSION;
    return cudaSuccess;
}

STANDIN_EXPORT cudaError_t cudaDriverGetVersion(int *version) {
    STANDIN_BEGIN("cudaDriverGetVersion")
    *version = CUDART_VERSION - 1000;
    return cudaSuccess;
}

STANDIN_EXPORT cudaError_t cudaGetLastError() {
    Held held(machine().lock);
    cudaError_t last = last_error;
    if (machine().mistake != STANDIN_KEPT_ERROR) {
        last_error = cudaSuccess;
    }
    return last;
}

STANDIN_EXPORT const char *cudaGetErrorString(cudaError_t error) {
    return error == cudaErrorUnknown ? "the stand-in was told to fail" : "some other reason";
}

STANDIN_EXPORT cudaError_t cudaGetDevice(int *device) {
    *device = present_device;
    return cudaSuccess;
}

STANDIN_EXPORT cudaError_t cudaSetDevice(int device) {
    present_device = device;
    return cudaSuccess;
}

STANDIN_EXPORT cudaError_t cudaGetDeviceCount(int *count) {
    STANDIN_BEGIN("cudaGetDeviceCount")
    *count = 2;
    return cudaSuccess;
}

STANDIN_EXPORT cudaError_t cudaMalloc(void **devPtr, size_t size) {
    STANDIN_BEGIN("cudaMalloc")
    wait_of_host("cudaMalloc");
    *devPtr = aligned_alloc(256, (size + 255) / 256 * 256);
    memset(*devPtr, 0xa5, (size + 255) / 256 * 256);
    return cudaSuccess;
}

STANDIN_EXPORT cudaError_t cudaFree(void *devPtr) {
    STANDIN_BEGIN("cudaFree")
    wait_of_host("cudaFree");
    forget_memory(devPtr, "cudaFree");
    return cudaSuccess;
}

STANDIN_EXPORT cudaError_t cudaHostAlloc(void **pHost, size_t size, unsigned) {
    STANDIN_BEGIN("cudaHostAlloc")
    *pHost = calloc(1, size);
    return cudaSuccess;
}

STANDIN_EXPORT cudaError_t cudaFreeHost(void *ptr) {
    STANDIN_BEGIN("cudaFreeHost")
    forget_memory(ptr, "cudaFreeHost");
    return cudaSuccess;
}

STANDIN_EXPORT cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t count, cudaMemcpyKind,
                                           cudaStream_t stream) {
    STANDIN_BEGIN("cudaMemcpyAsync")
    return carry(dst, src, count, stream);
}

STANDIN_EXPORT cudaError_t cudaMemsetAsync(void *devPtr, int value, size_t count,
                                           cudaStream_t stream) {
    STANDIN_BEGIN("cudaMemsetAsync")
    queue(stream_of(stream), {writes(devPtr, count)}, [=] {
        memset(devPtr, value, count);
        return true;
    });
    return cudaSuccess;
}

STANDIN_EXPORT cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
    STANDIN_BEGIN("cudaDeviceGetStreamPriorityRange")
    *least = 0;
    *greatest = -5;
    return cudaSuccess;
}

STANDIN_EXPORT cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags,
                                                        int priority) {
    STANDIN_BEGIN("cudaStreamCreateWithPriority")
    (void)stream_of(nullptr);
    if (flags != cudaStreamNonBlocking) {
        violate("a stream that the default stream waits for");
    }
    *stream = reinterpret_cast<cudaStream_t>(add_stream(priority == -5));
    return cudaSuccess;
}

STANDIN_EXPORT cudaError_t cudaStreamDestroy(cudaStream_t) {
    return cudaSuccess; /* what is queued is still done */
}

STANDIN_EXPORT cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    STANDIN_BEGIN("cudaStreamSynchronize")
    wait_of_host("cudaStreamSynchronize");
    Stream *waited = stream_of(stream);
    Clock clock = waited->clock;
    wait_for(held, waited, waited->n_queued, clock);
    return cudaSuccess;
}

static bool is_left_out(const Stream *waiting, const Event *event) {
    return (machine().mistake == STANDIN_NO_WAIT_FOR_PRODUCER && waiting->is_high) ||
           (machine().mistake == STANDIN_NO_WAIT_FOR_RESULT && event->is_of_high);
}

STANDIN_EXPORT cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
    STANDIN_BEGIN("cudaStreamWaitEvent")
    Stream *waiting = stream_of(stream);
    auto *waited = reinterpret_cast<Event *>(event);
    if (machine().mistake == STANDIN_HOST_WAIT) {
        wait_of_host("as planted");
    }
    if (waited->was_recorded && !is_left_out(waiting, waited)) {
        Stream *other = waited->stream;
        uint64_t until = waited->at;
        join(waiting->clock, waited->clock);
        queue(waiting, {}, [=] { return other->n_done >= until; });
    }
    return cudaSuccess;
}

STANDIN_EXPORT cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus *status) {
    STANDIN_BEGIN("cudaStreamIsCapturing")
    *status = machine().is_capturing ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
    return cudaSuccess;
}

STANDIN_EXPORT cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode *mode) {
    STANDIN_BEGIN("cudaThreadExchangeStreamCaptureMode")
    *mode = cudaStreamCaptureModeGlobal;
    return cudaSuccess;
}

STANDIN_EXPORT cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned) {
    STANDIN_BEGIN("cudaEventCreateWithFlags")
    *event = reinterpret_cast<cudaEvent_t>(new Event);
    return cudaSuccess;
}

STANDIN_EXPORT cudaError_t cudaEventDestroy(cudaEvent_t event) {
    STANDIN_BEGIN("cudaEventDestroy")
    delete reinterpret_cast<Event *>(event);
    return cudaSuccess;
}

STANDIN_EXPORT cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    STANDIN_BEGIN("cudaEventRecord")
    Stream *into = stream_of(stream);
    auto *recorded = reinterpret_cast<Event *>(event);
    while (into->is_high && machine().is_full) {
        machine().moved.wait(held);
    }
    queue(into, {}, [] { return true; });
    *recorded = {true, into->is_high, into, into->n_queued, into->clock, machine().time};
    return cudaSuccess;
}

STANDIN_EXPORT cudaError_t cudaEventQuery(cudaEvent_t event) {
    STANDIN_BEGIN("cudaEventQuery")
    auto *asked = reinterpret_cast<Event *>(event);
    advance();
    if (asked->was_recorded && asked->stream->n_done < asked->at) {
        return tell(cudaErrorNotReady);
    }
    join(machine().host, asked->clock);
    return cudaSuccess;
}

STANDIN_EXPORT cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    STANDIN_BEGIN("cudaEventSynchronize")
    wait_of_host("cudaEventSynchronize");
    auto *waited = reinterpret_cast<Event *>(event);
    if (waited->was_recorded) {
        Clock clock = waited->clock;
        wait_for(held, waited->stream, waited->at, clock);
    }
    return cudaSuccess;
}

STANDIN_EXPORT cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end) {
    STANDIN_BEGIN("cudaEventElapsedTime")
    auto steps = reinterpret_cast<Event *>(end)->time - reinterpret_cast<Event *>(start)->time;
    *ms = 0.001f * static_cast<float>(steps);
    return cudaSuccess;
}
