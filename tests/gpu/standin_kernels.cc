/* libdeft-cuda, from the same arithmetic, compiled for the host: the threads of the grid one after
 * the other, and sums in the order in which the device adds them. */
#include "standin_streams.hpp"

#include <deft/deft.h>

#include <array>

#include "link/device_kernels.h"
#include "link/device_math.hpp"

using namespace device_math;

namespace {

template <typename T> using Wide = typename Element<T>::Wide;

/* As block_sum of device_cuda.cu. */
double block_sum(std::vector<double> mine) {
    double sum = 0;
    for (unsigned warp = 0; warp < warps_per_block; warp++) {
        double *lanes = &mine[std::size_t{warp} * threads_per_warp];
        for (unsigned offset = threads_per_warp / 2; offset > 0; offset /= 2) {
            for (unsigned lane = 0; lane < offset; lane++) {
                lanes[lane] += lanes[lane + offset];
            }
        }
        sum = warp == 0 ? lanes[0] : sum + lanes[0];
    }
    return sum;
}

/* As add_up of device_cuda.cu; `body` returns the sums of one thread. */
template <unsigned N, typename Body> std::array<double, N> grid_sums(unsigned n_blocks, Body body) {
    std::vector<double> rest[N];
    std::vector<double> mine[N];
    std::array<double, N> all;
    uint64_t n_threads = static_cast<uint64_t>(n_blocks) * threads_per_block;
    for (unsigned k = 0; k < N; k++) {
        rest[k].resize(threads_per_block);
        mine[k].resize(threads_per_block);
    }
    for (unsigned block = 0; block < n_blocks; block++) {
        for (unsigned t = 0; t < threads_per_block; t++) {
            std::array<double, N> one =
                body(Place{static_cast<uint64_t>(block) * threads_per_block + t, n_threads});
            for (unsigned k = 0; k < N; k++) {
                mine[k][t] = one[k];
            }
        }
        for (unsigned k = 0; k < N; k++) {
            rest[k][block % threads_per_block] += block_sum(mine[k]);
        }
    }
    for (unsigned k = 0; k < N; k++) {
        all[k] = block_sum(rest[k]);
    }
    return all;
}

template <typename Body> double grid_sum(unsigned n_blocks, Body body) {
    return grid_sums<1>(n_blocks,
                        [=](Place place) { return std::array<double, 1>{body(place)}; })[0];
}

template <typename Body> int for_type(int dtype, Body body) {
    switch (dtype) {
    case DEFT_F32:
        return body(static_cast<float *>(nullptr));
    case DEFT_F64:
        return body(static_cast<double *>(nullptr));
    case DEFT_F16:
        return body(static_cast<__half *>(nullptr));
    case DEFT_BF16:
        return body(static_cast<__nv_bfloat16 *>(nullptr));
    default:
        return 1;
    }
}

/* Queued like everything else. Code 999: told to fail. */
template <typename Body>
int launch(const char *name, const device_kernels_queue *on,
           const std::vector<standin::Access> &accesses, Body body) {
    std::unique_lock<std::mutex> held(standin::machine().lock);
    if (standin::fails(name)) {
        return 999;
    }
    standin::queue(standin::stream_of(on->stream), accesses, [=] {
        body();
        return true;
    });
    return 0;
}

template <typename T, typename Op>
void run_pass(T *into, const T *from, uint64_t n, Op op, double *sum) {
    *sum += grid_sum(blocks_for(n, sizeof(T)),
                     [=](Place place) { return pass(into, from, n, op, place); });
}

int combine(const device_kernels_queue *on, int dtype, void *into, const void *from, uint64_t n,
            double factor, int add, double *sum) {
    return for_type(dtype, [=](auto *type) {
        using T = std::remove_pointer_t<decltype(type)>;
        auto *to = static_cast<T *>(into);
        auto *x = static_cast<const T *>(from);
        auto f = static_cast<Wide<T>>(factor);
        return launch("combine", on,
                      {standin::reads(from, n * sizeof(T)), standin::writes(into, n * sizeof(T)),
                       standin::writes(sum, sizeof(*sum)), standin::writes(on->scratch, 8)},
                      [=] {
                          if (add) {
                              run_pass(to, x, n, Add<T>{f}, sum);
                          } else {
                              run_pass(to, x, n, Copy<T>{f}, sum);
                          }
                      });
    });
}

int norm(const device_kernels_queue *on, int dtype, const void *from, uint64_t n, double *sum) {
    return for_type(dtype, [=](auto *type) {
        using T = std::remove_pointer_t<decltype(type)>;
        auto *x = static_cast<const T *>(from);
        return launch("norm", on,
                      {standin::reads(from, n * sizeof(T)), standin::writes(sum, sizeof(*sum)),
                       standin::writes(on->scratch, 8)},
                      [=] { run_pass(static_cast<T *>(nullptr), x, n, Norm<T>{}, sum); });
    });
}

int scale_all(const device_kernels_queue *on, int dtype, void *into, uint64_t n, double factor) {
    return for_type(dtype, [=](auto *type) {
        using T = std::remove_pointer_t<decltype(type)>;
        auto *x = static_cast<T *>(into);
        return launch("scale", on, {standin::writes(into, n * sizeof(T))}, [=] {
            (void)grid_sum(blocks_for(n, sizeof(T)), [=](Place place) {
                scale(x, n, static_cast<Wide<T>>(factor), place);
                return 0.0;
            });
        });
    });
}

int cast_all(const device_kernels_queue *on, int into_dtype, void *into, int from_dtype,
             const void *from, uint64_t n, double factor) {
    return for_type(into_dtype, [=](auto *into_type) {
        using Into = std::remove_pointer_t<decltype(into_type)>;
        return for_type(from_dtype, [=](auto *from_type) {
            using From = std::remove_pointer_t<decltype(from_type)>;
            return launch(
                "cast", on,
                {standin::reads(from, n * sizeof(From)), standin::writes(into, n * sizeof(Into))},
                [=] {
                    (void)grid_sum(blocks_for(n, access_bytes), [=](Place place) {
                        cast(static_cast<Into *>(into), static_cast<const From *>(from), n, factor,
                             place);
                        return 0.0;
                    });
                });
        });
    });
}

/* As for_type, of the types that averaged has. */
template <typename Body> int for_full_type(int dtype, Body body) {
    return dtype == DEFT_F32   ? body(static_cast<float *>(nullptr))
           : dtype == DEFT_F64 ? body(static_cast<double *>(nullptr))
                               : 1;
}

std::vector<standin::Access> accesses_of(const device_averaged &at, size_t n_bytes) {
    std::vector<standin::Access> all;
    auto reads = [&](const void *p) {
        all.push_back(standin::reads(p, p != nullptr ? n_bytes : 0));
    };
    auto writes = [&](void *p) { all.push_back(standin::writes(p, p != nullptr ? n_bytes : 0)); };
    at.landed != nullptr ? writes(at.w) : reads(at.w);
    at.landed != nullptr ? writes(at.a) : reads(at.a);
    reads(at.landed);
    reads(at.landed_own);
    for (uint32_t i = 0; i < at.n_older; i++) { /* written when the mean is dropped */
        at.landed != nullptr ? writes(at.older[i]) : reads(at.older[i]);
    }
    writes(at.own);
    writes(at.sum);
    return all;
}

int average_all(const device_kernels_queue *on, int dtype, const device_averaged *given, uint64_t n,
                double *sums, device_kernels_notes *notes) {
    device_averaged at = *given;
    return for_full_type(dtype, [=](auto *type) {
        using T = std::remove_pointer_t<decltype(type)>;
        std::vector<standin::Access> accesses = accesses_of(at, n * sizeof(T));
        accesses.push_back(standin::writes(sums, 2 * sizeof(*sums)));
        accesses.push_back(standin::writes(notes, sizeof(*notes)));
        accesses.push_back(standin::writes(on->scratch, 8));
        return launch("average", on, accesses, [=] {
            bool is_dropped = notes->is_dropped != 0;
            ChangeSums all;
            auto found = grid_sums<ChangeSums::n>(blocks_for(n, sizeof(T)), [&](Place place) {
                ChangeSums mine = average<T>(at, n, is_dropped, place);
                return std::array<double, ChangeSums::n>{mine.of[0], mine.of[1], mine.of[2]};
            });
            std::copy(found.begin(), found.end(), all.of);
            note_change(all, sums, notes);
        });
    });
}

int judge_mean(const device_kernels_queue *on, int dtype, const void *landed, int counts,
               device_kernels_notes *notes) {
    return for_full_type(dtype, [=](auto *type) {
        using T = std::remove_pointer_t<decltype(type)>;
        return launch("judge", on,
                      {standin::reads(landed, sizeof(T)), standin::writes(notes, sizeof(*notes))},
                      [=] { judge(static_cast<const T *>(landed), counts != 0, notes); });
    });
}

int seal_sum(const device_kernels_queue *on, int dtype, void *sum, device_kernels_notes *notes) {
    return for_full_type(dtype, [=](auto *type) {
        using T = std::remove_pointer_t<decltype(type)>;
        return launch("seal", on,
                      {standin::writes(sum, sizeof(T)), standin::writes(notes, sizeof(*notes))},
                      [=] { seal(static_cast<T *>(sum), notes); });
    });
}

int guard_all(const device_kernels_queue *on, const device_averaged_gradient *gradients,
              uint32_t n_gradients, int begins, const double *norm, uint32_t *bad) {
    std::vector<device_averaged_gradient> all(gradients, gradients + n_gradients);
    std::vector<standin::Access> accesses = {standin::reads(norm, sizeof(*norm))};
    if (bad != nullptr) {
        accesses.push_back(standin::writes(bad, sizeof(*bad)));
    }
    for (const device_averaged_gradient &gradient : all) {
        accesses.push_back(standin::writes(gradient.memory, gradient.n_bytes));
    }
    return launch("guard", on, accesses, [=] {
        bool is = is_bad(*norm);
        if (bad != nullptr) {
            *bad = is || (!begins && *bad);
        }
        for (const device_averaged_gradient &gradient : all) {
            for (uint64_t t = 0; is && t < guard_blocks; t++) {
                zero(gradient, {t, guard_blocks});
            }
        }
    });
}

template <typename T> void descend(T *w, const T *g, uint64_t n, double rate) {
    auto r = static_cast<Wide<T>>(rate);
    for (uint64_t i = 0; i < n; i++) {
        w[i] = Element<T>::round(Element<T>::widen(w[i]) - r * Element<T>::widen(g[i]));
    }
}

const char *text(int) {
    return "the stand-in was told to fail";
}

const device_kernels kernels = {DEVICE_KERNELS_VERSION,
                                64,
                                combine,
                                norm,
                                scale_all,
                                cast_all,
                                average_all,
                                judge_mean,
                                seal_sum,
                                guard_all,
                                text};

} // namespace

const device_kernels *deft_cuda_kernels() {
    return &kernels;
}

/* In host memory this is the step itself. */
extern "C" __attribute__((visibility("default"))) void
standin_descend(void *stream, int dtype, void *w, const void *g, uint64_t n, double rate) {
    device_kernels_queue on = {0, stream, nullptr};
    {
        std::unique_lock<std::mutex> held(standin::machine().lock);
        standin::check_last_error();
    }
    (void)for_type(dtype, [=](auto *type) {
        using T = std::remove_pointer_t<decltype(type)>;
        return launch("descend", &on,
                      {standin::reads(g, n * sizeof(T)), standin::writes(w, n * sizeof(T))},
                      [=] { descend(static_cast<T *>(w), static_cast<const T *>(g), n, rate); });
    });
}
