/* The arithmetic of device_kernels.h: what one thread of many does. The same source is compiled for
 * the device (device_cuda.cu) and, for tests of its results, for the host. */
#ifndef DEVICE_MATH_HPP
#define DEVICE_MATH_HPP

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cmath>
#include <cstdint>

#include "link/device_kernels.h"

#ifdef __CUDACC__
#define DEVICE_MATH __host__ __device__ inline
#else
#define DEVICE_MATH inline
#endif

namespace device_math {

constexpr unsigned threads_per_block = 256;
constexpr unsigned threads_per_warp = 32;
constexpr unsigned warps_per_block = threads_per_block / threads_per_warp;
/* About what the largest devices hold at a time; fixed, so that sums are alike on all devices. */
constexpr unsigned max_blocks = 1024;
constexpr unsigned access_bytes = 16;

/* Numbers in registers are `Wide`. */
template <typename T> struct Element {
    using Wide = T;
    static DEVICE_MATH T widen(T x) {
        return x;
    }
    static DEVICE_MATH T round(T x) {
        return x;
    }
};
template <> struct Element<__half> {
    using Wide = float;
    static DEVICE_MATH float widen(__half x) {
        return __half2float(x);
    }
    static DEVICE_MATH __half round(float x) {
        return __float2half_rn(x);
    }
};
template <> struct Element<__nv_bfloat16> {
    using Wide = float;
    static DEVICE_MATH float widen(__nv_bfloat16 x) {
        return __bfloat162float(x);
    }
    static DEVICE_MATH __nv_bfloat16 round(float x) {
        return __float2bfloat16_rn(x);
    }
};

template <typename T> struct alignas(access_bytes) Pack {
    static constexpr unsigned n = access_bytes / sizeof(T);
    T at[n];
};

/* Which elements a thread of the grid takes. */
struct Place {
    uint64_t thread;
    uint64_t n_threads;
};

/* How a range splits into single elements, whole packs and single elements again. */
struct Split {
    uint64_t head;
    uint64_t n_packs; /* 0 where two buffers are not aligned alike: then all are of the head */
    uint64_t tail;
};

DEVICE_MATH unsigned offset_in_access(const void *p) {
    return static_cast<unsigned>(reinterpret_cast<uintptr_t>(p) % access_bytes);
}

template <typename T> DEVICE_MATH Split split(const T *a, const T *b, uint64_t n) {
    unsigned offset = offset_in_access(a);
    uint64_t head = offset == 0 ? 0 : (access_bytes - offset) / sizeof(T);
    if (offset != offset_in_access(b) || head >= n) {
        return {n, 0, 0};
    }
    return {head, (n - head) / Pack<T>::n, (n - head) % Pack<T>::n};
}

inline unsigned blocks_for(uint64_t n, unsigned element_bytes) {
    uint64_t per_block = static_cast<uint64_t>(threads_per_block) * (access_bytes / element_bytes);
    uint64_t blocks = (n + per_block - 1) / per_block;
    return static_cast<unsigned>(blocks < 1 ? 1 : blocks > max_blocks ? max_blocks : blocks);
}

/* What a pass does with one element; returns its square. */
template <typename T> struct Copy {
    using Wide = typename Element<T>::Wide;
    static constexpr bool reads_into = false;
    static constexpr bool writes_into = true;
    Wide factor;
    DEVICE_MATH Wide operator()(T &into, const T &from) const {
        Wide value = Element<T>::widen(from);
        into = Element<T>::round(value * factor);
        return value * value;
    }
};
template <typename T> struct Add {
    using Wide = typename Element<T>::Wide;
    static constexpr bool reads_into = true;
    static constexpr bool writes_into = true;
    Wide factor;
    DEVICE_MATH Wide operator()(T &into, const T &from) const {
        Wide value = Element<T>::widen(from);
        into = Element<T>::round(Element<T>::widen(into) + value * factor);
        return value * value;
    }
};
template <typename T> struct Norm {
    using Wide = typename Element<T>::Wide;
    static constexpr bool reads_into = false;
    static constexpr bool writes_into = false;
    DEVICE_MATH Wide operator()(T &, const T &from) const {
        Wide value = Element<T>::widen(from);
        return value * value;
    }
};

/* One thread's part. `Into` is T, or const T for a pass that only reads. Returns its sum of
 * squares. */
template <typename T, typename Op>
DEVICE_MATH double pass(T *into, const T *from, uint64_t n, Op op, Place place) {
    using Wide = typename Element<T>::Wide;
    constexpr unsigned batch = 4; /* accesses that are under way at once, where they are small */
    Split s = split(Op::writes_into ? into : from, from, n);
    double sum = 0;
    for (uint64_t i = place.thread; i < s.head; i += batch * place.n_threads) {
        T mine[batch], given[batch];
        for (unsigned j = 0; j < batch; j++) {
            uint64_t at = i + j * place.n_threads;
            if (at < s.head) {
                given[j] = from[at];
                mine[j] = Op::reads_into ? into[at] : given[j];
            }
        }
        Wide squares = 0;
        for (unsigned j = 0; j < batch; j++) {
            uint64_t at = i + j * place.n_threads;
            if (at < s.head) {
                squares += op(mine[j], given[j]);
                if (Op::writes_into) {
                    into[at] = mine[j];
                }
            }
        }
        sum += static_cast<double>(squares);
    }
    const Pack<T> *packs_from = reinterpret_cast<const Pack<T> *>(from + s.head);
    Pack<T> *packs_into = reinterpret_cast<Pack<T> *>(into + s.head);
    for (uint64_t i = place.thread; i < s.n_packs; i += place.n_threads) {
        Pack<T> given = packs_from[i];
        Pack<T> mine = Op::reads_into ? packs_into[i] : given;
        Wide squares = 0;
        for (unsigned j = 0; j < Pack<T>::n; j++) {
            squares += op(mine.at[j], given.at[j]);
        }
        if (Op::writes_into) {
            packs_into[i] = mine;
        }
        sum += static_cast<double>(squares);
    }
    uint64_t last = n - s.tail + place.thread; /* there are more threads than elements in a tail */
    if (s.tail > 0 && last < n) {
        T given = from[last];
        T mine = Op::reads_into ? into[last] : given;
        sum += static_cast<double>(op(mine, given));
        if (Op::writes_into) {
            into[last] = mine;
        }
    }
    return sum;
}

template <typename T>
DEVICE_MATH void scale(T *x, uint64_t n, typename Element<T>::Wide factor, Place place) {
    Split s = split(x, x, n);
    for (uint64_t i = place.thread; i < s.head; i += place.n_threads) {
        x[i] = Element<T>::round(Element<T>::widen(x[i]) * factor);
    }
    Pack<T> *packs = reinterpret_cast<Pack<T> *>(x + s.head);
    for (uint64_t i = place.thread; i < s.n_packs; i += place.n_threads) {
        Pack<T> pack = packs[i];
        for (unsigned j = 0; j < Pack<T>::n; j++) {
            pack.at[j] = Element<T>::round(Element<T>::widen(pack.at[j]) * factor);
        }
        packs[i] = pack;
    }
    uint64_t last = n - s.tail + place.thread;
    if (s.tail > 0 && last < n) {
        x[last] = Element<T>::round(Element<T>::widen(x[last]) * factor);
    }
}

/* Through f64 where either side is f64, else through f32. */
template <typename Into, typename From>
DEVICE_MATH void cast(Into *into, const From *from, uint64_t n, double factor, Place place) {
    using Wide = decltype(typename Element<Into>::Wide{} + typename Element<From>::Wide{});
    for (uint64_t i = place.thread; i < n; i += place.n_threads) {
        Wide value = static_cast<Wide>(Element<From>::widen(from[i])) * static_cast<Wide>(factor);
        into[i] = Element<Into>::round(static_cast<typename Element<Into>::Wide>(value));
    }
}

/* --- averaged --------------------------------------------------------------------------------- */

/* Of one thread, block or grid. */
struct ChangeSums {
    static constexpr unsigned n = 3;
    double of[n]; /* what has landed, this rank's share of it, the new change */
};

/* Not a number or infinite; as the bits say, whatever the compiler assumes. */
DEVICE_MATH bool is_bad(double x) {
    return !(x - x == 0);
}

/* Elements in registers: a whole access, or one. */
template <typename T, unsigned N> struct Group { T at[N]; };

template <typename T, unsigned N> DEVICE_MATH Group<T, N> load(const T *from, bool is_aligned) {
    Group<T, N> group;
    if (N > 1 && is_aligned) {
        Pack<T> pack = *reinterpret_cast<const Pack<T> *>(from);
        for (unsigned j = 0; j < N; j++) {
            group.at[j] = pack.at[j];
        }
    } else {
        for (unsigned j = 0; j < N; j++) {
            group.at[j] = from[j];
        }
    }
    return group;
}

template <typename T, unsigned N>
DEVICE_MATH void store(T *into, const Group<T, N> &group, bool is_aligned) {
    if (N > 1 && is_aligned) {
        Pack<T> pack;
        for (unsigned j = 0; j < N; j++) {
            pack.at[j] = group.at[j];
        }
        *reinterpret_cast<Pack<T> *>(into) = pack;
    } else {
        for (unsigned j = 0; j < N; j++) {
            into[j] = group.at[j];
        }
    }
}

template <typename T, unsigned N> DEVICE_MATH double squares(const Group<T, N> &group) {
    T sum = 0;
    for (unsigned j = 0; j < N; j++) {
        sum += group.at[j] * group.at[j];
    }
    return static_cast<double>(sum);
}

template <typename T> DEVICE_MATH T *typed(void *memory) {
    return static_cast<T *>(memory);
}
template <typename T> DEVICE_MATH const T *typed(const void *memory) {
    return static_cast<const T *>(memory);
}

/* What one thread does in one place; `i` is its first element. */
template <typename T, unsigned N> struct Average {
    const device_averaged &at;
    bool w_is_aligned; /* as the others */
    bool is_dropped;

    DEVICE_MATH void land(uint64_t i, Group<T, N> &w, Group<T, N> &a, ChangeSums &sums) const {
        auto landed = load<T, N>(typed<T>(at.landed) + i, true);
        auto own = load<T, N>(typed<T>(at.landed_own) + i, true);
        for (unsigned j = 0; j < N; j++) {
            a.at[j] += landed.at[j];
            w.at[j] += landed.at[j] - own.at[j];
        }
        store(typed<T>(at.a) + i, a, true);
        sums.of[0] += squares(landed);
        sums.of[1] += squares(own);
    }

    DEVICE_MATH void drop(uint64_t i) const {
        for (unsigned o = 0; o < at.n_older; o++) {
            store(typed<T>(at.older[o]) + i, Group<T, N>{}, true);
        }
    }

    DEVICE_MATH void capture(uint64_t i, const Group<T, N> &w, const Group<T, N> &a,
                             ChangeSums &sums) const {
        Group<T, N> own, sum;
        for (unsigned j = 0; j < N; j++) {
            own.at[j] = w.at[j] - a.at[j];
        }
        for (unsigned o = 0; o < at.n_older; o++) { /* zeros where they were dropped */
            auto older = load<T, N>(typed<T>(at.older[o]) + i, true);
            for (unsigned j = 0; j < N; j++) {
                own.at[j] -= older.at[j];
            }
        }
        for (unsigned j = 0; j < N; j++) {
            sum.at[j] = own.at[j] * static_cast<T>(at.factor);
        }
        store(typed<T>(at.own) + i, own, true);
        store(typed<T>(at.sum) + i, sum, true);
        sums.of[2] += squares(own);
    }

    DEVICE_MATH void operator()(uint64_t i, ChangeSums &sums) const {
        auto w = load<T, N>(typed<T>(at.w) + i, w_is_aligned);
        auto a = load<T, N>(typed<T>(at.a) + i, true);
        if (at.landed != nullptr && is_dropped) {
            w = a;
            drop(i);
        } else if (at.landed != nullptr) {
            land(i, w, a, sums);
        }
        if (at.landed != nullptr) {
            store(typed<T>(at.w) + i, w, w_is_aligned);
        }
        if (at.own != nullptr) {
            capture(i, w, a, sums);
        }
    }
};

/* One thread's part. */
template <typename T>
DEVICE_MATH ChangeSums average(const device_averaged &at, uint64_t n, bool is_dropped,
                               Place place) {
    Split s = split(typed<T>(at.a), typed<T>(at.a), n);
    bool w_is_aligned = offset_in_access(at.w) == offset_in_access(at.a);
    Average<T, 1> one{at, w_is_aligned, is_dropped};
    Average<T, Pack<T>::n> many{at, w_is_aligned, is_dropped};
    ChangeSums sums = {{0, 0, 0}};
    for (uint64_t i = place.thread; i < s.head; i += place.n_threads) {
        one(i, sums);
    }
    for (uint64_t i = place.thread; i < s.n_packs; i += place.n_threads) {
        many(s.head + i * Pack<T>::n, sums);
    }
    uint64_t last = n - s.tail + place.thread;
    if (s.tail > 0 && last < n) {
        one(last, sums);
    }
    return sums;
}

/* By one thread of the grid, as these three. */
DEVICE_MATH void note_change(const ChangeSums &all, double *sums, device_kernels_notes *notes) {
    sums[0] += all.of[0];
    sums[1] += all.of[1];
    notes->is_bad |= is_bad(all.of[2]);
}

template <typename T>
DEVICE_MATH void judge(const T *landed, bool counts, device_kernels_notes *notes) {
    bool is_marked = *landed != *landed;
    notes->is_dropped = is_marked;
    notes->n_landed += counts;
    notes->n_dropped += counts && is_marked;
}

template <typename T> DEVICE_MATH void seal(T *sum, device_kernels_notes *notes) {
    if (notes->is_bad || notes->generation_is_bad) {
        *sum = static_cast<T>(NAN);
    }
    notes->is_bad = 0;
}

/* Seldom more than a look at one number: few blocks per gradient. */
constexpr unsigned guard_blocks = 8;

/* All gradients of one call, by value. */
struct Guarded {
    device_averaged_gradient at[DEVICE_AVERAGED_MAX_GRADIENTS];
};

DEVICE_MATH void zero(const device_averaged_gradient &gradient, Place place) {
    auto *bytes = static_cast<unsigned char *>(gradient.memory);
    for (uint64_t i = place.thread; i < gradient.n_bytes; i += place.n_threads) {
        bytes[i] = 0;
    }
}

} // namespace device_math

#endif
