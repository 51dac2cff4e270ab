// Softmax and the cross entropy. A row of n numbers lies along the last axis (rows) or another one (columns).
//
//     softmax           y  = e / sum(e),  e = exp(x - max(x))
//     log_softmax       y  = (x - max(x)) - log sum(e)
//     softmax_grad      dx = y * (dy - sum(dy * y))
//     log_softmax_grad  dx = dy - exp(y) * sum(dy)
//
// Each has two steps: a row's Sums, and a function of them for each element (`y`). Rows: a team, a warp or a block,
// takes one row. If the row fits, a thread keeps its PACKS accesses of V elements in registers, so that the row is read
// once; with PACKS = 0 it is read again from cache. T is the type of the input, O that of the output. Columns: a thread
// walks down one row, beside its neighbours. Sums have a fixed order.
#include "types.cuh"
#include "maths.cuh"

template <bool WARP, class C> __device__ C row_max(C a) {
    for (int step = 16; step > 0; step /= 2) {
        const C other = __shfl_xor_sync(0xffffffffu, a, step);
        if (other > a) a = other;
    }
    if (WARP) return a;
    __shared__ C of_warp[32];
    __syncthreads();
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = a;
    __syncthreads();
    for (int warp = 0; warp < blockDim.x / 32; warp++)
        if (of_warp[warp] > a) a = of_warp[warp];
    return a;
}

namespace op {
struct softmax {
    static const int INPUTS = 1;
    static const bool SHIFTED = true;
    template <class C> static __device__ C term(C x, C, C top) { return exp_of(x - top); }
    template <class C> static __device__ C prepared(C sum) { return sum; }
    template <class C> static __device__ C y(C x, C, C top, C sum) { return exp_of(x - top) / sum; }
};

struct log_softmax {
    static const int INPUTS = 1;
    static const bool SHIFTED = true;
    template <class C> static __device__ C term(C x, C, C top) { return exp_of(x - top); }
    template <class C> static __device__ C prepared(C sum) { return log_of(sum); }
    template <class C> static __device__ C y(C x, C, C top, C log_sum) { return (x - top) - log_sum; }
};

struct softmax_grad {
    static const int INPUTS = 2;
    static const bool SHIFTED = false;
    template <class C> static __device__ C term(C dy, C y, C) { return dy * y; }
    template <class C> static __device__ C prepared(C sum) { return sum; }
    template <class C> static __device__ C y(C dy, C y, C, C sum) { return y * (dy - sum); }
};

struct log_softmax_grad {
    static const int INPUTS = 2;
    static const bool SHIFTED = false;
    template <class C> static __device__ C term(C dy, C, C) { return dy; }
    template <class C> static __device__ C prepared(C sum) { return sum; }
    template <class C> static __device__ C y(C dy, C y, C, C sum) { return dy - exp_of(y) * sum; }
};
}  // namespace op

// One access of a thread to a row of n; elements beyond the end are never used.
template <class T, class C, int V, class I> struct Piece {
    C a[V], b[V];
    template <bool TWO> __device__ void read(const T* left, const T* right, I at) {
        const Pack<T, V> first = fetch<T, V>(left, at);
#pragma unroll
        for (int v = 0; v < V; v++) a[v] = widen<C>(first.v[v]);
        if (!TWO) return;
        const Pack<T, V> second = fetch<T, V>(right, at);
#pragma unroll
        for (int v = 0; v < V; v++) b[v] = widen<C>(second.v[v]);
    }
};

// n is a multiple of V. In a block of several warps with a row each, warps without a row return at once.
template <class F, class T, class O, class C, int V, int PACKS, bool WARP, class I>
__global__ void rows(I count, I n, const T* a, const T* b, O* out) {
    const int size = WARP ? 32 : blockDim.x, lane = threadIdx.x % size, held = PACKS ? PACKS : 1;
    const I row = (I)blockIdx.x * (blockDim.x / size) + threadIdx.x / size;
    if (row >= count) return;
    const I begin = row * n, step = (I)size * V;
    Piece<T, C, V, I> piece[held];
    C top = 0;
    if (PACKS) {
#pragma unroll
        for (int p = 0; p < PACKS; p++) {
            const I at = lane * V + p * step;
            if (at < n) piece[p].template read<F::INPUTS == 2>(a, b, begin + at);
        }
    }
    if (F::SHIFTED) {
        top = -infinity();
        if (PACKS) {
#pragma unroll
            for (int p = 0; p < PACKS; p++)
                for (int v = 0; v < V; v++)
                    if (lane * V + p * step < n && piece[p].a[v] > top) top = piece[p].a[v];
        } else {
            for (I at = lane * V; at < n; at += step) {
                piece[0].template read<false>(a, b, begin + at);
                for (int v = 0; v < V; v++)
                    if (piece[0].a[v] > top) top = piece[0].a[v];
            }
        }
        top = row_max<WARP>(top);
    }
    C sum = 0;
    if (PACKS) {
#pragma unroll
        for (int p = 0; p < PACKS; p++)
            for (int v = 0; v < V; v++)
                if (lane * V + p * step < n) sum += F::term(piece[p].a[v], piece[p].b[v], top);
        sum = row_sum<WARP>(sum);
    } else {
        double total = 0;  // in double, because it has many terms
        for (I at = lane * V; at < n; at += step) {
            piece[0].template read<F::INPUTS == 2>(a, b, begin + at);
            C part = 0;
            for (int v = 0; v < V; v++) part += F::term(piece[0].a[v], piece[0].b[v], top);
            total += part;
        }
        sum = (C)row_sum<WARP>(total);
    }
    sum = F::prepared(sum);
    const auto write = [&](const Piece<T, C, V, I>& in, I at) {
        Pack<O, V> result;
#pragma unroll
        for (int v = 0; v < V; v++) place(result.v[v], F::y(in.a[v], in.b[v], top, sum));
        put(out, begin + at, result);
    };
    if (PACKS) {
#pragma unroll
        for (int p = 0; p < PACKS; p++)
            if (lane * V + p * step < n) write(piece[p], lane * V + p * step);
    } else {
        for (I at = lane * V; at < n; at += step) {
            piece[0].template read<F::INPUTS == 2>(a, b, begin + at);
            write(piece[0], at);
        }
    }
}

// x (outer, n, inner): rows = outer * inner, one thread for each; neighbouring threads read neighbouring elements.
template <class F, class T, class O, class C, class I>
__global__ void columns(I count, I n, I inner, const T* a, const T* b, O* out) {
    const I row = (I)blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= count) return;
    const I begin = row / inner * n * inner + row % inner, end = begin + n * inner;
    C top = 0;
    if (F::SHIFTED) {
        top = -infinity();
        for (I at = begin; at < end; at += inner) {
            const C x = widen<C>(a[at]);
            if (x > top) top = x;
        }
    }
    double total = 0;
    for (I at = begin; at < end; at += inner)
        total += F::term(widen<C>(a[at]), F::INPUTS == 2 ? widen<C>(b[at]) : C(0), top);
    const C sum = F::prepared((C)total);
    for (I at = begin; at < end; at += inner)
        place(out[at], F::y(widen<C>(a[at]), F::INPUTS == 2 ? widen<C>(b[at]) : C(0), top, sum));
}

// The loss of a row of logits against its class:
//     lse = max(x) + log sum exp(x - max(x)),   loss = lse - (1 - s) * x[target] - s * mean(x),   s = smoothing
// A row of class `ignored` costs 0; an invalid class gives NaN. x is read once, AHEAD accesses of a thread at a time:
// the thread's maximum grows on the way, and its sum is scaled down with it.
template <class T, class C, int V, bool WARP, class I>
__global__ void cross_entropy(I count, I n, const T* x, const long long* target, C* loss, double* lse, long long ignored,
                              double smoothing) {
    const int AHEAD = V > 4 ? 4 : 8;
    const int size = WARP ? 32 : blockDim.x, lane = threadIdx.x % size;
    const I row = (I)blockIdx.x * (blockDim.x / size) + threadIdx.x / size, step = (I)size * V;
    if (row >= count) return;
    x += row * n;
    C top = -infinity();
    double terms = 0, values = 0;
    for (I begin = lane * V; begin < n; begin += AHEAD * step) {
        Pack<T, V> in[AHEAD];
#pragma unroll
        for (int p = 0; p < AHEAD; p++)
            if (begin + p * step < n) in[p] = fetch<T, V>(x, begin + p * step);
        C high = top;
#pragma unroll
        for (int p = 0; p < AHEAD; p++)
#pragma unroll
            for (int v = 0; v < V; v++)
                if (begin + p * step < n && widen<C>(in[p].v[v]) > high) high = widen<C>(in[p].v[v]);
        if (high > top) terms *= exp_of(top - high);
        top = high;
        const C base = high == -infinity() ? C(0) : high;  // -inf less -inf would be NaN
#pragma unroll
        for (int p = 0; p < AHEAD; p++) {
            if (begin + p * step >= n) break;
            C part = 0, sum = 0;
#pragma unroll
            for (int v = 0; v < V; v++) {
                const C value = widen<C>(in[p].v[v]);
                part += exp_of(value - base);
                sum += value;
            }
            terms += part;
            if (smoothing) values += sum;
        }
    }
    const C highest = row_max<WARP>(top);
    terms *= top == highest ? C(1) : exp_of(top - highest);
    const double parts[2] = {terms, values};
    double sums[2];
    add_up<WARP>(parts, sums);
    terms = sums[0], values = sums[1];
    if (lane) return;
    if (highest - highest != 0) terms = infinity() - infinity();  // infinite
    const double log_size = log_of(terms);
    const long long chosen = target[row];
    lse[row] = highest + log_size;
    double result = 0;
    if (chosen != ignored) {
        const C value = chosen >= 0 && chosen < n ? widen<C>(x[chosen]) : C(infinity() - infinity());
        result = (1 - smoothing) * (log_size - ((double)value - highest));
        if (smoothing) result += smoothing * (log_size - (values / n - highest));
    }
    place(loss[row], result);
}

//     dx = dy * (exp(x - lse) - (1 - s) * [class] - s / n), and 0 in ignored rows; lse in two numbers of type C
// dy of row r is dy[r * step], divided by `counted` if given, or 0 if that is 0; own is 1 - s, others s / n.
template <class T, class D, class C, int V, class I>
__global__ void cross_entropy_grad(I size, I n, const D* dy, I step, const double* counted, const T* x,
                                   const long long* target, const double* lse, T* dx, long long ignored, C own, C others) {
    const I at = ((I)blockIdx.x * blockDim.x + threadIdx.x) * V;
    if (at >= size) return;
    const Pack<T, V> in = fetch<T, V>(x, at);
    const I row = at / n, column = at - row * n;
    const long long chosen = target[row];
    const double whole = lse[row];
    C share = widen<C>(dy[row * step]);
    const C high = (C)whole, low = (C)(whole - high);
    if (counted) share = *counted == 0 ? C(0) : share / (C)*counted;
    Pack<T, V> out;
#pragma unroll
    for (int v = 0; v < V; v++) {
        C slope = exp_of((widen<C>(in.v[v]) - high) - low) - others;
        if (column + v == chosen) slope -= own;
        place(out.v[v], chosen == ignored ? C(0) : slope * share);
    }
    put(dx, at, out);
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
    for (long long row = begin + threadIdx.x; row < end; row += blockDim.x) {
        own[0] += losses[row];
        own[1] += target[row] != ignored;
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
