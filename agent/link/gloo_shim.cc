#include "gloo_shim.h"

#include <gloo/allreduce.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/store.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/types.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace {

/* Gloo's rendezvous wants a key-value store; every rank sets its addresses under its number and
 * then reads all others', which is an all-gather of variable-length blobs. Before that it exchanges
 * host names under "rank_N", to number the ranks of a host: nothing here uses that number, so those
 * keys are answered on the spot. */
class GatherStore : public gloo::rendezvous::Store {
  public:
    GatherStore(int n_ranks, gloo_shim_allgather_fn allgather, void *context)
        : n_ranks_(n_ranks), allgather_(allgather), context_(context) {}

    void set(const std::string &key, const std::vector<char> &data) override {
        if (is_address(key)) {
            own_ = data;
        }
    }

    std::vector<char> get(const std::string &key) override {
        if (!is_address(key)) {
            return {'?'};
        }
        gather();
        return blobs_.at(static_cast<size_t>(std::stoul(key)));
    }

    void wait(const std::vector<std::string> &keys) override {
        if (!keys.empty() && is_address(keys[0])) {
            gather();
        }
    }

  private:
    static bool is_address(const std::string &key) {
        return !key.empty() && key[0] >= '0' && key[0] <= '9';
    }

    void gather() {
        if (!blobs_.empty()) {
            return;
        }
        uint64_t own_size = own_.size();
        std::vector<uint64_t> sizes(static_cast<size_t>(n_ranks_));
        exchange(&own_size, sizeof(own_size), sizes.data());
        size_t widest = 1;
        for (uint64_t size : sizes) {
            widest = std::max<size_t>(widest, size);
        }
        std::vector<char> padded(widest);
        std::copy(own_.begin(), own_.end(), padded.begin());
        std::vector<char> all(widest * static_cast<size_t>(n_ranks_));
        exchange(padded.data(), widest, all.data());
        for (size_t r = 0; r < sizes.size(); r++) {
            auto begin = all.begin() + static_cast<std::ptrdiff_t>(r * widest);
            blobs_.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(sizes[r]));
        }
    }

    void exchange(const void *in, size_t n_bytes, void *out) {
        if (allgather_(context_, in, n_bytes, out) != 0) {
            throw gloo::IoException("the ranks could not exchange their addresses");
        }
    }

    int n_ranks_;
    gloo_shim_allgather_fn allgather_;
    void *context_;
    std::vector<char> own_;
    std::vector<std::vector<char>> blobs_;
};

/* Gloo prefixes its texts with "[file:line] " of its own build. */
void copy_text(const char *what, char *out_text) {
    const char *text = what;
    if (text[0] == '[') {
        const char *end = std::strstr(text, "] ");
        if (end != nullptr) {
            text = end + 2;
        }
    }
    (void)std::snprintf(out_text, GLOO_SHIM_TEXT_BYTES, "%s", text);
}

/* One round of a small operation: what is sent to one partner and received from another one. */
struct Round {
    int to;   /* -1: nothing is sent */
    int from; /* -1: nothing is received */
    uint64_t slot;
    std::vector<int64_t> sent;
    std::vector<int64_t> received;
    std::unique_ptr<gloo::transport::UnboundBuffer> send;
    std::unique_ptr<gloo::transport::UnboundBuffer> receive;
};

/* The rounds of one kind of small operation, in order. */
struct Rounds {
    std::vector<Round> all;
    bool posted = false;
};

} // namespace

struct gloo_shim {
    std::shared_ptr<gloo::rendezvous::Context> context;
    Rounds max;
    Rounds sum;
};

namespace {

constexpr size_t small_bytes = GLOO_SHIM_MAX_VALUES * sizeof(int64_t);

void add_round(gloo_shim *shim, Rounds &rounds, int to, int from, uint64_t slot) {
    Round round;
    round.to = to;
    round.from = from;
    round.slot = slot;
    round.sent.resize(GLOO_SHIM_MAX_VALUES);
    round.received.resize(GLOO_SHIM_MAX_VALUES);
    round.send = shim->context->createUnboundBuffer(round.sent.data(), small_bytes);
    round.receive = shim->context->createUnboundBuffer(round.received.data(), small_bytes);
    rounds.all.push_back(std::move(round));
}

/* Dissemination: right for an idempotent operation, whatever the number of ranks. */
void prepare_max(gloo_shim *shim) {
    int n = shim->context->size;
    int rank = shim->context->rank;
    for (int distance = 1; distance < n; distance *= 2) {
        add_round(shim, shim->max, (rank + distance) % n, (rank - distance + n) % n,
                  shim->max.all.size());
    }
}

/* Recursive doubling: both partners add the same two numbers, so all ranks get the same bits. Ranks
 * beyond a power of two give their numbers to one below it first and get the sum from it last. */
void prepare_sum(gloo_shim *shim) {
    constexpr uint64_t slots = 64; /* behind those of the maximum */
    int n = shim->context->size;
    int rank = shim->context->rank;
    int power = 1;
    while (power * 2 <= n) {
        power *= 2;
    }
    if (rank >= power) {
        add_round(shim, shim->sum, rank - power, -1, slots);
        add_round(shim, shim->sum, -1, rank - power, slots + 1);
        return;
    }
    if (rank + power < n) {
        add_round(shim, shim->sum, -1, rank + power, slots);
    }
    for (int distance = 1; distance < power; distance *= 2) {
        add_round(shim, shim->sum, rank ^ distance, rank ^ distance,
                  slots + 2 + static_cast<uint64_t>(distance));
    }
    if (rank + power < n) {
        add_round(shim, shim->sum, rank + power, -1, slots + 1);
    }
}

void post_receives(Rounds &rounds) {
    for (Round &round : rounds.all) {
        if (round.from >= 0) {
            round.receive->recv(round.from, round.slot, 0, small_bytes);
        }
    }
}

/* `take(values, received)` combines what has come in with what is there. */
template <typename T, typename Take>
void run_small(Rounds &rounds, T *values, size_t n_values, std::chrono::milliseconds timeout,
               Take take) {
    static_assert(sizeof(T) == sizeof(int64_t), "values are carried as 64 bits");
    if (!rounds.posted) {
        post_receives(rounds);
        rounds.posted = true;
    }
    for (Round &round : rounds.all) {
        if (round.to >= 0) {
            std::memcpy(round.sent.data(), values, n_values * sizeof(T));
            round.send->send(round.to, round.slot, 0, small_bytes);
        }
        if (round.from >= 0) {
            round.receive->waitRecv(timeout);
            T received[GLOO_SHIM_MAX_VALUES];
            std::memcpy(received, round.received.data(), n_values * sizeof(T));
            take(values, received, round);
        }
        if (round.to >= 0) {
            round.send->waitSend(timeout);
        }
    }
    /* The result is complete; a peer that has closed since then is the next call's failure. */
    try {
        post_receives(rounds);
    } catch (const gloo::Exception &) {
        rounds.posted = false;
    }
}

void run_max(gloo_shim *shim, int64_t *values, size_t n_values, std::chrono::milliseconds timeout) {
    run_small(shim->max, values, n_values, timeout,
              [n_values](int64_t *into, const int64_t *from, const Round &) {
                  for (size_t v = 0; v < n_values; v++) {
                      into[v] = std::max(into[v], from[v]);
                  }
              });
}

void run_small_sum(gloo_shim *shim, double *values, size_t n_values,
                   std::chrono::milliseconds timeout) {
    const gloo::rendezvous::Context &context = *shim->context;
    run_small(shim->sum, values, n_values, timeout,
              [n_values, &context](double *into, const double *from, const Round &round) {
                  /* From a rank that has not sent to us: the sum of all. */
                  bool is_whole = round.to < 0 && round.from < context.rank;
                  for (size_t v = 0; v < n_values; v++) {
                      into[v] = is_whole ? from[v] : into[v] + from[v];
                  }
              });
}

void run_sum(gloo_shim *shim, void *data, size_t elements, gloo_shim_type type,
             gloo_shim_sum_fn sum, std::chrono::milliseconds timeout) {
    if (type == GLOO_SHIM_F64 && elements <= GLOO_SHIM_MAX_VALUES) {
        run_small_sum(shim, static_cast<double *>(data), elements, timeout);
        return;
    }
    gloo::AllreduceOptions options(shim->context);
    options.setTimeout(timeout);
    options.setAlgorithm(gloo::AllreduceOptions::Algorithm::RING);
    if (type == GLOO_SHIM_F32) {
        options.setOutput(static_cast<float *>(data), elements);
        options.setReduceFunction(
            static_cast<void (*)(void *, const void *, const void *, size_t)>(&gloo::sum<float>));
    } else if (type == GLOO_SHIM_F64) {
        options.setOutput(static_cast<double *>(data), elements);
        options.setReduceFunction(
            static_cast<void (*)(void *, const void *, const void *, size_t)>(&gloo::sum<double>));
    } else {
        options.setOutput(static_cast<uint16_t *>(data), elements);
        options.setReduceFunction([sum, type](void *out, const void *a, const void *b, size_t n) {
            const void *other = out == a ? b : a;
            if (out != a && out != b) {
                std::memcpy(out, b, n * sizeof(uint16_t));
            }
            sum(out, other, n, static_cast<int>(type));
        });
    }
    gloo::allreduce(options);
}

template <typename Body> gloo_shim_result guarded(char *out_text, Body body) {
    try {
        body();
        return GLOO_SHIM_OK;
    } catch (const std::exception &e) {
        copy_text(e.what(), out_text);
        /* Gloo has one exception type for both; its text tells them apart. */
        return std::strstr(e.what(), "imed out") != nullptr ? GLOO_SHIM_TIMEOUT : GLOO_SHIM_BROKEN;
    } catch (...) {
        copy_text("Gloo failed without saying why", out_text);
        return GLOO_SHIM_BROKEN;
    }
}

} // namespace

gloo_shim *gloo_shim_open(const char *interface, const char *address, int rank, int n_ranks,
                          gloo_shim_allgather_fn allgather, void *context,
                          int64_t connect_timeout_ms, char *out_text) {
    std::unique_ptr<gloo_shim> shim(new (std::nothrow) gloo_shim);
    if (!shim) {
        copy_text("no memory", out_text);
        return nullptr;
    }
    gloo_shim_result result = guarded(out_text, [&] {
        gloo::transport::tcp::attr attributes;
        if (interface != nullptr) {
            attributes.iface = interface;
        } else {
            attributes.hostname = address;
        }
        auto device = gloo::transport::tcp::CreateDevice(attributes);
        shim->context = std::make_shared<gloo::rendezvous::Context>(rank, n_ranks);
        shim->context->setTimeout(std::chrono::milliseconds(connect_timeout_ms));
        GatherStore store(n_ranks, allgather, context);
        shim->context->connectFullMesh(store, device);
        prepare_max(shim.get());
        prepare_sum(shim.get());
    });
    return result == GLOO_SHIM_OK ? shim.release() : nullptr;
}

gloo_shim_result gloo_shim_sum(gloo_shim *shim, void *data, size_t elements, gloo_shim_type type,
                               gloo_shim_sum_fn sum, int64_t timeout_ms, char *out_text) {
    return guarded(out_text, [&] {
        run_sum(shim, data, elements, type, sum, std::chrono::milliseconds(timeout_ms));
    });
}

gloo_shim_result gloo_shim_max(gloo_shim *shim, int64_t *values, size_t n_values,
                               int64_t timeout_ms, char *out_text) {
    if (n_values > GLOO_SHIM_MAX_VALUES) {
        copy_text("too many values", out_text);
        return GLOO_SHIM_BROKEN;
    }
    return guarded(out_text,
                   [&] { run_max(shim, values, n_values, std::chrono::milliseconds(timeout_ms)); });
}

void gloo_shim_abort(gloo_shim *shim) {
    char text[GLOO_SHIM_TEXT_BYTES];
    (void)guarded(text, [&] { shim->context->closeConnections(); });
}

void gloo_shim_close(gloo_shim *shim) {
    char text[GLOO_SHIM_TEXT_BYTES];
    (void)guarded(text, [&] {
        if (shim != nullptr && shim->context) {
            shim->context->closeConnections();
        }
    });
    delete shim;
}
