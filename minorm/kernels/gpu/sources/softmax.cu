// Softmax and the cross entropy. A row of n numbers lies along the last axis (rows) or another one (columns).
//
//     softmax           y  = e / sum(e),  e = exp(x - max(x))
//     log_softmax       y  = (x - max(x)) - log sum(e)
//     softmax_grad      dx = y * (dy - sum(dy * y))
//     log_softmax_grad  dx = dy - exp(y) * sum(dy)
//
// Each has two steps: the row's sum, and a function of it for each element. Rows: a team takes one row. A team is LANES
// threads of a warp, or a block if LANES is 0. If the row fits, a thread keeps its PACKS packs of V elements in
// registers, so that the row is read once. With PACKS = 0 the row is read in batches, and again for the second step.
// Columns: a thread walks down one row, beside its neighbours. T is the type of the input, O that of the output. Sums
// have a fixed order: a batch is added up in C, and batches and threads in double.
#include "maths.cuh"
#include "parts.cuh"

const int BYTES = 64;  // bytes of a batch
const int AHEAD = 8;   // losses that a thread loads at once

// exp(v) in formulas with a result of type O. Two operations are enough for 16 bits: the relative error is at most 2^-17
// where v > -88.
template <class O> __device__ inline float power(float v) {
    return sizeof(O) == 2 ? exp2f(v * 1.44269504089f) : expf(v);
}
template <class O> __device__ inline double power(double v) { return exp(v); }

// Returns the largest number of a team to each of its threads. A NaN counts for nothing.
template <int LANES, class C> __device__ inline C team_max(C a) {
#pragma unroll
    for (int step = (LANES ? LANES : 32) / 2; step > 0; step /= 2) a = larger(a, __shfl_xor_sync(0xffffffffu, a, step));
    if (LANES) return a;
    __shared__ C of_warp[32];
    __syncthreads();
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = a;
    __syncthreads();
    for (int warp = 0; warp < blockDim.x / 32; warp++) a = larger(a, of_warp[warp]);
    return a;
}

// The row of a thread's team, and the thread's place in the team. The teams of a warp add up together, so a team
// without a row (not `inside`) reads the last one and writes nothing.
template <int LANES, class I> struct RowTeam {
    int size, lane;
    I row;
    bool inside;
    __device__ RowTeam(I count) {
        size = LANES ? LANES : blockDim.x;
        lane = threadIdx.x % size;
        row = (I)blockIdx.x * (blockDim.x / size) + threadIdx.x / size;
        inside = row < count;
        if (!inside) row = count - 1;
    }
};

// The packs that a thread keeps, or those of a batch if PACKS is 0.
template <class T, int V, int PACKS, int INPUTS>
constexpr int SIZE = PACKS ? PACKS : Batch<T, V, BYTES / INPUTS>::SIZE;
template <class T, int V, int PACKS, int INPUTS, class I>
using RowPart = Part<T, V, SIZE<T, V, PACKS, INPUTS>, INPUTS, PACKS != 0, I>;

// The threads of the largest block, and the number of blocks that a multiprocessor should run at once. This limits a
// thread's registers to 64. If a thread has more than 32 numbers, MANY threads should run, and if numbers take two
// registers, 512.
template <int LANES> constexpr int LARGEST = LANES ? 128 : 512;
template <class C, int LANES, int NUMBERS, int MANY>
constexpr int BUSY = (sizeof(C) == 8 ? 512 : NUMBERS > 32 ? MANY : 1024) / LARGEST<LANES>;

// Returns sum exp(x - top), and sets `top` to the row's maximum. The thread's maximum grows from batch to batch, and its
// sum is scaled down with it. With ADDS, `values` becomes the sum of x.
template <class O, int LANES, bool ADDS, class C, class P>
__device__ __forceinline__ double exponentials(P& part, C& top, double& values) {
    double total = 0;
    top = -infinity();
    values = 0;
    part.walk([&] {
        C high = top, sum = 0, plain = 0;
        part.template each<C>([&](auto, const auto& x, const auto&) {
#pragma unroll
            for (int v = 0; v < P::WIDTH; v++) {
                high = larger(high, x.v[v]);
                if (ADDS) plain += x.v[v];
            }
        });
        if (high > top && total > 0) total *= power<O>(top - high);
        top = high;
        const C base = high == -infinity() ? C(0) : high;  // -inf less -inf would be NaN
        part.template each<C>([&](auto, const auto& x, const auto&) {
#pragma unroll
            for (int v = 0; v < P::WIDTH; v++) sum += power<O>(x.v[v] - base);
        });
        total += sum;
        if (ADDS) values += plain;
    });
    const C highest = team_max<LANES>(top);
    if (top < highest) total *= power<O>(top - highest);
    top = highest;
    if (ADDS) values = team_sum<LANES>(values);
    return team_sum<LANES>(total);
}

// The second step needs these numbers of a row: its maximum, its sum or the sum's logarithm, and 1 / that.
template <class C> struct Found { C top, sum, inverse; };

// e / row.sum in three products, the last two of which correct the rounding of the first. 16 bits do without them.
template <class O, class C> __device__ inline C quotient(C e, const Found<C>& row) {
    const C q = e * row.inverse;
    return sizeof(O) == 2 ? q : fused(fused(-q, row.sum, e), row.inverse, q);
}

namespace op {
struct softmax {
    static const int INPUTS = 1;
    template <class C> static __device__ C prepared(C sum) { return sum; }
    template <class O, class C> static __device__ C y(C x, C, const Found<C>& row) {
        return quotient<O>(power<O>(x - row.top), row);
    }
};

struct log_softmax {
    static const int INPUTS = 1;
    template <class C> static __device__ C prepared(C sum) { return log_of(sum); }
    template <class O, class C> static __device__ C y(C x, C, const Found<C>& row) { return (x - row.top) - row.sum; }
};

struct softmax_grad {
    static const int INPUTS = 2;
    template <class C> static __device__ C prepared(C sum) { return sum; }
    template <class C> static __device__ C term(C dy, C y) { return dy * y; }
    template <class O, class C> static __device__ C y(C dy, C y, const Found<C>& row) { return y * (dy - row.sum); }
};

struct log_softmax_grad {
    static const int INPUTS = 2;
    template <class C> static __device__ C prepared(C sum) { return sum; }
    template <class C> static __device__ C term(C dy, C) { return dy; }
    template <class O, class C> static __device__ C y(C dy, C y, const Found<C>& row) {
        return dy - power<O>(y) * row.sum;
    }
};
}  // namespace op

// Applies F to the row of which `part` is this thread's part.
template <class F, class O, int LANES, class C, class P>
__device__ __forceinline__ void apply(P part, bool inside, O* out) {
    Found<C> row = {0, 0, 0};
    double total = 0, unused;
    part.read();
    if constexpr (F::INPUTS == 1) {
        total = exponentials<O, LANES, false>(part, row.top, unused);
    } else {
        part.walk([&] {
            C sum = 0;
            part.template each<C>([&](auto, const auto& dy, const auto& y) {
#pragma unroll
                for (int v = 0; v < P::WIDTH; v++) sum += F::term(dy.v[v], y.v[v]);
            });
            total += sum;
        });
        total = team_sum<LANES>(total);
    }
    if (!inside) return;
    row.sum = F::prepared((C)total);
    row.inverse = 1 / row.sum;
    part.rewind();
    part.walk([&] {
        part.template each<C>([&](auto at, const auto& first, const auto& second) {
            Pack<C, P::WIDTH> result;
#pragma unroll
            for (int v = 0; v < P::WIDTH; v++) result.v[v] = F::template y<O>(first.v[v], second.v[v], row);
            put_rounded(out, at * part.stride, result);
        });
    });
}

// n is a multiple of V.
template <class F, class T, class O, class C, int V, int PACKS, int LANES, class I>
__global__ void __launch_bounds__(LARGEST<LANES>, BUSY<C, LANES, SIZE<T, V, PACKS, F::INPUTS> * V * F::INPUTS, 512>)
    rows(I count, I n, const T* __restrict__ a, const T* __restrict__ b, O* __restrict__ out) {
    const RowTeam<LANES, I> team(count);
    const I from = team.row * n;
    const RowPart<T, V, PACKS, F::INPUTS, I> part(a + from, b + from, (I)team.lane * V, (I)team.size * V, n);
    apply<F, O, LANES, C>(part, team.inside, out + from);
}

// x (outer, n, inner): rows = outer * inner, one thread for each; neighbouring threads read neighbouring elements.
template <class F, class T, class O, class C, class I>
__global__ void columns(I count, I n, I inner, const T* __restrict__ a, const T* __restrict__ b, O* __restrict__ out) {
    const I row = (I)blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= count) return;
    const I from = row / inner * n * inner + row % inner;
    const RowPart<T, 1, 0, F::INPUTS, I> part(a + from, b + from, I(0), I(1), n, inner);
    apply<F, O, 1, C>(part, true, out + from);
}

// log(sum), where the largest exponential is 1. For 16-bit logits float32 is enough: where `power` is least exact, a term
// weighs little, and log1p is exact also if all other terms are small.
template <class T> __device__ inline double log_sum(double sum, float) {
    return sizeof(T) == 2 ? (double)log1pf((float)(sum - 1)) : log(sum);
}
template <class T> __device__ inline double log_sum(double sum, double) { return log(sum); }

// The loss of a row of logits against its class:
//     lse = max(x) + log sum exp(x - max(x)),   loss = lse - (1 - s) * x[target] - s * mean(x),   s = smoothing
// A row of class `ignored` costs 0; an invalid class gives NaN. `part_of_n` is 1 / n. x is read once.
template <class T, class C, int V, int PACKS, int LANES, class I, bool SMOOTH>
__global__ void __launch_bounds__(LARGEST<LANES>, BUSY<C, LANES, SIZE<T, V, PACKS, 1> * V, 768>)
    cross_entropy(I count, I n, const T* __restrict__ x, const long long* __restrict__ target, C* __restrict__ loss,
                  double* __restrict__ lse, long long ignored, double smoothing, double part_of_n) {
    const RowTeam<LANES, I> team(count);
    x += team.row * n;
    RowPart<T, V, PACKS, 1, I> part(x, x, (I)team.lane * V, (I)team.size * V, n);
    const long long chosen = target[team.row];
    part.read();
    C top;
    double values, total = exponentials<T, LANES, SMOOTH>(part, top, values);
    if (team.lane || !team.inside) return;
    if (top - top != 0) total = infinity() - infinity();  // infinite
    const double log_size = log_sum<T>(total, C(0));
    lse[team.row] = top + log_size;
    double result = 0;
    if (chosen != ignored) {
        const C value = chosen >= 0 && chosen < n ? widen<C>(x[chosen]) : C(infinity() - infinity());
        result = (1 - smoothing) * (log_size - ((double)value - top));
        if (SMOOTH) result += smoothing * (log_size - (values * part_of_n - top));
    }
    place(loss[team.row], result);
}

//     dx = dy * (exp(x - lse) - (1 - s) * [class] - s / n), and 0 in ignored rows; lse in two numbers of type C
// dy of row r is dy[r * step], divided by `counted` if given, or 0 if that is 0; own is 1 - s, others s / n. A long row
// has several blocks (blockIdx.y).
template <class T, class D, class C, int V, int PACKS, int LANES, class I>
__global__ void __launch_bounds__(LARGEST<LANES>, BUSY<C, LANES, PACKS * V, 768>)
    cross_entropy_grad(I count, I n, const D* __restrict__ dy, I dy_step, const double* __restrict__ counted,
                       const T* __restrict__ x, const long long* __restrict__ target, const double* __restrict__ lse,
                       T* __restrict__ dx, long long ignored, C own, C others) {
    const RowTeam<LANES, I> team(count);
    if (!team.inside) return;
    const I step = (I)team.size * V, from = team.row * n, begin = (I)blockIdx.y * PACKS * step + (I)team.lane * V;
    Part<T, V, PACKS, 1, false, I> part(x + from, x + from, begin, step, n, 1, (I)gridDim.y);
    part.read();
    const long long chosen = target[team.row];
    const double whole = lse[team.row];
    C share = widen<C>(dy[team.row * dy_step]);
    if (counted) share = *counted == 0 ? C(0) : share / (C)*counted;
    const C high = (C)whole, low = (C)(whole - high);
    part.walk([&] {
        part.template each<C>([&](I at, const Pack<C, V>& in, const Pack<C, V>&) {
            Pack<C, V> out;
#pragma unroll
            for (int v = 0; v < V; v++) out.v[v] = power<T>((in.v[v] - high) - low) - others;
            const long long hit = chosen - at;
            if (hit >= 0 && hit < V)
#pragma unroll
                for (int v = 0; v < V; v++)
                    if (v == hit) out.v[v] -= own;
#pragma unroll
            for (int v = 0; v < V; v++) out.v[v] = chosen == ignored ? C(0) : out.v[v] * share;
            put_rounded(dx, from + at, out);
        });
    });
}

// Adds up the losses of `rows` rows, and counts their targets. A block has `chunk` rows; if there are several blocks,
// each writes its two sums to `parts`, and sum_parts adds those up.
template <class T> __device__ void end_of_sum(const double (&sums)[2], T* result, double* counted, bool mean) {
    place(*result, mean ? sums[0] / sums[1] : sums[0]);  // 0 / 0 is NaN
    *counted = sums[1];
}

template <class T, class C>
__global__ void sum_losses(long long rows, int chunk, const C* losses, const long long* target, long long ignored,
                           double* parts, T* result, double* counted, bool mean) {
    const long long begin = (long long)blockIdx.x * chunk, end = begin + chunk < rows ? begin + chunk : rows;
    double own[2] = {0, 0}, sums[2];
    for (long long first = begin + threadIdx.x; first < end; first += AHEAD * blockDim.x) {
        C loss[AHEAD];
        long long classes[AHEAD];
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            const long long row = first + i * blockDim.x;
            if (row < end) loss[i] = losses[row], classes[i] = target[row];
        }
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            if (first + i * blockDim.x >= end) break;
            own[0] += loss[i];
            own[1] += classes[i] != ignored;
        }
    }
    add_up<false>(own, sums);
    if (threadIdx.x) return;
    if (gridDim.x == 1) return end_of_sum(sums, result, counted, mean);
    parts[2 * blockIdx.x] = sums[0];
    parts[2 * blockIdx.x + 1] = sums[1];
}

template <class T> __global__ void sum_parts(int blocks, const double* parts, T* result, double* counted, bool mean) {
    double own[2] = {0, 0}, sums[2];
    for (int block = threadIdx.x; block < blocks; block += blockDim.x) {
        own[0] += parts[2 * block];
        own[1] += parts[2 * block + 1];
    }
    add_up<false>(own, sums);
    if (threadIdx.x == 0) end_of_sum(sums, result, counted, mean);
}
