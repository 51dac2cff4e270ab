// Pooling: a thread has V neighbours of the result, up to 16 bytes. In forward it walks over the taps of its windows.
// In backward it gathers from the windows that cover its places, in order, without atomics, so every run gives the same
// bits.
//
// Images lie as (image, place, inner). With channels last `inner` is their number, and a thread's neighbours are
// channels (forward, backward_groups, backward). In C order `inner` is 1; neighbours are columns (forward_columns,
// backward_columns), or V is 1. K taps along both axes, the stride S and the padding P before are constants for the
// compiler. If K is 0, and in `backward`, they come from the struct, for up to 3 axes.
#include "types.cuh"
#include "maths.cuh"
#include "windows.cuh"

// n / by for 0 <= n < 2^31 as a product (Granlund and Montgomery 1994); plans/pool_plan.py computes the factor.
struct Divider {
    unsigned by, factor, shift;
    __device__ int quotient(int n) const {
        return (int)(((unsigned)((unsigned long long)(unsigned)n * factor >> 32) + (unsigned)n) >> shift);
    }
    __device__ long long quotient(long long n) const { return n / by; }
};

template <class I> struct Spot {
    I image;
    int digit[4];  // along three axes of windows or places, and the access among channels or columns
};

struct Pool {
    Windows all;
    int inner;
    Divider image, access, last, middle;  // threads of an image; and how often the digits from the last on turn

    template <int K, int S, int P> __device__ Windows windows() const {
        Windows w = all;
        if (K) {
            w.axis[0] = {1, 1, 1, 1, 0, 0, 1};
#pragma unroll
            for (int a = 1; a < 3; a++) {
                w.axis[a].k = K;
                w.axis[a].s = S;
                w.axis[a].low = P;
                w.axis[a].d = 1;
            }
        }
        return w;
    }

    template <class I> __device__ Spot<I> spot(I index) const {
        Spot<I> spot;
        spot.image = image.quotient(index);
        int rest = (int)(index - spot.image * image.by);
        const Divider dividers[3] = {middle, last, access};
#pragma unroll
        for (int a = 3; a > 0; a--) {
            const int next = dividers[a - 1].quotient(rest);
            spot.digit[a] = rest - next * (int)dividers[a - 1].by;
            rest = next;
        }
        spot.digit[0] = rest;
        return spot;
    }
};

// Returns the number of taps of window (i, j, k) that count: those inside the input, and with `padding` also those in
// it.
__device__ inline int taps_of(const Windows& w, int i, int j, int k, bool padding) {
    const int a = w.axis[0].count(w.axis[0].start(i), padding), b = w.axis[1].count(w.axis[1].start(j), padding);
    return max(1, a * b * w.axis[2].count(w.axis[2].start(k), padding));
}

// sum / divisor. If 8 or 11 bits of the result are kept, sum * inverse is enough: `inverse` is off by half a unit of 24
// bits.
template <class T, class C> __device__ C divided(C sum, C divisor, C inverse) {
    return sizeof(T) == 2 ? sum * inverse : sum / divisor;
}

namespace op {
struct largest {  // and its place; -inf and -1 if no tap is inside. The first of equals wins; NaN is the largest
    static const bool PLACES = true, COUNTS = false;
    template <class C> struct Result {
        C value;
        int at;
        __device__ void start(int first) { value = -infinity(), at = first; }
        __device__ void take(bool inside, C x, int here) {
            const bool better = inside & ((x > value) | (x != x));
            value = better ? x : value;
            at = better ? here : at;
        }
    };
};

struct mean {  // with one divisor for all windows
    static const bool PLACES = false, COUNTS = false;
    template <class C> struct Result {
        C value;
        int at;
        __device__ void start(int) { value = 0; }
        __device__ void take(bool inside, C x, int) { value += inside ? x : C(0); }
    };
};

struct uneven_mean : mean {  // each window is divided by the number of its taps
    static const bool COUNTS = true;
};
}  // namespace op

template <class F, class T, class C, int V, class I>
__device__ void write(const typename F::template Result<C> (&result)[V], const int (&taps)[V], int divisor, T* y, int* places,
                      I at) {
    const C inverse = C(1) / divisor;
    Pack<T, V> values;
    Pack<int, V> found;
#pragma unroll
    for (int v = 0; v < V; v++) {
        const C value = result[v].value;
        place(values.v[v], F::PLACES ? value : F::COUNTS ? value / taps[v] : divided<T>(value, C(divisor), inverse));
        if (F::PLACES) found.v[v] = result[v].at;
    }
    put(y, at, values);
    if (F::PLACES) put(places, at, found);
}

// Writes V sums of windows' gradients, divided if all windows have one divisor.
template <class F, class T, class C, int V, class I>
__device__ void write_sums(const C (&sum)[V], int divisor, T* dx, I at) {
    const C inverse = C(1) / divisor;
    Pack<T, V> out;
#pragma unroll
    for (int v = 0; v < V; v++)
        place(out.v[v], F::PLACES || F::COUNTS ? sum[v] : divided<T>(sum[v], C(divisor), inverse));
    put(dx, at, out);
}

// If the number of taps or windows is a constant, no branch comes before the last access: for a place outside, the
// nearest place inside is read and then ignored. So all accesses are in flight before the first comparison.
template <class F, class T, class C, int V, int K, int S, int P, class I>
__global__ void forward(Pool pool, I count, const T* x, T* y, int* places, bool padding, int divisor) {
    const I index = (I)blockIdx.x * blockDim.x + threadIdx.x;
    if (index >= count) return;
    const Windows w = pool.windows<K, S, P>();
    const Spot<I> spot = pool.spot(index);
    int start[3], first[3], last[3];
#pragma unroll
    for (int a = 0; a < 3; a++) {
        start[a] = w.axis[a].start(spot.digit[a]);
        first[a] = w.axis[a].first(start[a]);
        last[a] = w.axis[a].last(start[a], w.axis[a].n);
    }
    const auto along = [&](int a, int tap) {
        const int at = start[a] + tap * w.axis[a].d;
        return K ? min(max(at, 0), w.axis[a].n - 1) : at;
    };
    const auto number = [&](int i, int j, int k) {
        return (along(0, i) * w.axis[1].n + along(1, j)) * w.axis[2].n + along(2, k);
    };
    const bool any = (first[0] < last[0]) & (first[1] < last[1]) & (first[2] < last[2]);
    typename F::template Result<C> result[V];
    int taps[V];
#pragma unroll
    for (int v = 0; v < V; v++) {
        result[v].start(any ? number(first[0], first[1], first[2]) : -1);
        taps[v] = F::COUNTS ? taps_of(w, spot.digit[0], spot.digit[1], spot.digit[2], padding) : 1;
    }
    x += spot.image * w.plane * pool.inner + spot.digit[3] * V;
    for (int i = K ? 0 : first[0]; i < (K ? 1 : last[0]); i++)
#pragma unroll
        for (int j = K ? 0 : first[1]; j < (K ? K : last[1]); j++)
#pragma unroll
            for (int k = K ? 0 : first[2]; k < (K ? K : last[2]); k++) {
                const int here = number(i, j, k);
                const bool inside = (K == 0) | ((first[1] <= j) & (j < last[1]) & (first[2] <= k) & (k < last[2]));
                const Pack<T, V> in = fetch<T, V>(x, (I)here * pool.inner);
#pragma unroll
                for (int v = 0; v < V; v++) result[v].take(inside, widen<C>(in.v[v]), here);
            }
    write<F>(result, taps, divisor, y, places, index * V);
}

// dx[p] = the sum of the shares in dy of the windows that cover p
template <class F, class T, class C, int V, class I>
__global__ void backward(Pool pool, I count, const T* dy, const int* places, T* dx, bool padding, int divisor) {
    const I index = (I)blockIdx.x * blockDim.x + threadIdx.x;
    if (index >= count) return;
    const Windows& w = pool.all;
    const Spot<I> spot = pool.spot(index);
    const int* p = spot.digit;
    const int here = (p[0] * w.axis[1].n + p[1]) * w.axis[2].n + p[2];
    const I image = spot.image * w.results * pool.inner + p[3] * V;
    dy += image;
    if (F::PLACES) places += image;
    C sum[V] = {};
    for (int i = w.axis[0].begin(p[0]); i < w.axis[0].end(p[0]); i++)
        for (int j = w.axis[1].begin(p[1]); j < w.axis[1].end(p[1]); j++)
            for (int k = w.axis[2].begin(p[2]); k < w.axis[2].end(p[2]); k++) {
                if (!F::PLACES)  // with dilation some windows step over p
                    if (w.axis[0].tap(p[0], i) < 0 || w.axis[1].tap(p[1], j) < 0 || w.axis[2].tap(p[2], k) < 0) continue;
                const I at = (I)((i * w.axis[1].o + j) * w.axis[2].o + k) * pool.inner;
                const C taps = F::COUNTS ? taps_of(w, i, j, k, padding) : 1;
                const Pack<T, V> in = fetch<T, V>(dy, at);
                Pack<int, V> from;
                if (F::PLACES) from = fetch<int, V>(places, at);
#pragma unroll
                for (int v = 0; v < V; v++) {
                    const C value = F::COUNTS ? widen<C>(in.v[v]) / taps : widen<C>(in.v[v]);
                    sum[v] += !F::PLACES || from.v[v] == here ? value : C(0);
                }
            }
    write_sums<F>(sum, divisor, dx, index * V);
}

// S x S places of V channels: the windows from group - LOW to group + HIGH of each axis cover them.
template <class F, class T, class C, int V, int K, int S, int P, class I>
__global__ void backward_groups(Pool pool, I count, const T* dy, const int* places, T* dx, bool padding, int divisor) {
    const I index = (I)blockIdx.x * blockDim.x + threadIdx.x;
    if (index >= count) return;
    const Windows w = pool.windows<K, S, P>();
    const Spot<I> spot = pool.spot(index);
    const int LOW = (K - 1 - P) / S, HIGH = (S - 1 + P) / S;
    const int rows = w.axis[1].n, columns = w.axis[2].n, row = spot.digit[1] * S, column = spot.digit[2] * S;
    dy += spot.image * w.results * pool.inner + spot.digit[3] * V;
    if (F::PLACES) places += spot.image * w.results * pool.inner + spot.digit[3] * V;
    C sum[S][S][V] = {};
#pragma unroll
    for (int a = -LOW; a <= HIGH; a++)
#pragma unroll
        for (int b = -LOW; b <= HIGH; b++) {
            const int i = spot.digit[1] + a, j = spot.digit[2] + b;
            const bool met = (0 <= i) & (i < w.axis[1].o) & (0 <= j) & (j < w.axis[2].o);
            const int line = min(max(i, 0), w.axis[1].o - 1), window = min(max(j, 0), w.axis[2].o - 1);
            const I at = (I)(line * w.axis[2].o + window) * pool.inner;
            const C taps = F::COUNTS ? taps_of(w, 0, line, window, padding) : 1;
            const Pack<T, V> in = fetch<T, V>(dy, at);
            Pack<int, V> from;
            if (F::PLACES) from = fetch<int, V>(places, at);
#pragma unroll
            for (int v = 0; v < V; v++) {
                const C value = F::COUNTS ? widen<C>(in.v[v]) / taps : widen<C>(in.v[v]);
#pragma unroll
                for (int r = 0; r < S; r++)
#pragma unroll
                    for (int c = 0; c < S; c++) {
                        const int k = r + P - a * S, l = c + P - b * S, here = (row + r) * columns + column + c;
                        if (0 <= k && k < K && 0 <= l && l < K)
                            sum[r][c][v] += met & (!F::PLACES || from.v[v] == here) ? value : C(0);
                    }
            }
        }
    dx += spot.image * w.plane * pool.inner + spot.digit[3] * V;
#pragma unroll
    for (int r = 0; r < S; r++)
#pragma unroll
        for (int c = 0; c < S; c++)
            if (row + r < rows && column + c < columns)
                write_sums<F>(sum[r][c], divisor, dx, (I)((row + r) * columns + column + c) * pool.inner);
}

// The columns `from` to from + N * M of a row in M accesses, LEFT before and RIGHT behind them; an access outside the
// row reads another one inside. Its length is a multiple of N.
template <class T, int N, int M, int LEFT, int RIGHT> struct Span {
    T v[LEFT + N * M + RIGHT];

    __device__ void read(const T* row, int from, int length) {
#pragma unroll
        for (int c = 0; c < LEFT; c++) v[c] = row[max(from - LEFT + c, 0)];
#pragma unroll
        for (int m = 0; m < M; m++) {
            const Pack<T, N> pack = fetch<T, N>(row, min(from + m * N, length - N));
#pragma unroll
            for (int n = 0; n < N; n++) v[LEFT + m * N + n] = pack.v[n];
        }
#pragma unroll
        for (int c = 0; c < RIGHT; c++) v[LEFT + N * M + c] = row[min(from + N * M + c, length - 1)];
    }
    __device__ T at(int c) const { return v[LEFT + c]; }
    static __device__ bool inside(int c, int from, int length) {  // an access is, or is not, as a whole
        const int column = from + (0 <= c && c < N * M ? c / N * N : c);
        return (0 <= column) & (column < length);
    }
};

// Windows V * t to V * t + V of a row; V divides the lengths of the rows of x and of y.
template <class F, class T, class C, int V, int K, int S, int P, class I>
__global__ void forward_columns(Pool pool, I count, const T* x, T* y, int* places, bool padding, int divisor) {
    const I index = (I)blockIdx.x * blockDim.x + threadIdx.x;
    if (index >= count) return;
    const Windows w = pool.windows<K, S, P>();
    const Spot<I> spot = pool.spot(index);
    const int rows = w.axis[1].n, columns = w.axis[2].n, from = spot.digit[3] * V * S;
    const int top = w.axis[1].start(spot.digit[2]);
    typename F::template Result<C> result[V];
    int taps[V];
#pragma unroll
    for (int v = 0; v < V; v++) {
        const int left = max(from + v * S - P, 0);
        result[v].start((top < rows) & (left < columns) ? max(top, 0) * columns + left : -1);
        taps[v] = F::COUNTS ? taps_of(w, 0, spot.digit[2], spot.digit[3] * V + v, padding) : 1;
    }
    x += spot.image * w.plane;
#pragma unroll
    for (int j = 0; j < K; j++) {
        const int row = top + j;
        Span<T, V, S, P, K - S - P> span;
        span.read(x + min(max(row, 0), rows - 1) * columns, from, columns);
#pragma unroll
        for (int v = 0; v < V; v++)
#pragma unroll
            for (int k = 0; k < K; k++) {
                const int c = v * S - P + k;
                const bool inside = (0 <= row) & (row < rows) & span.inside(c, from, columns);
                result[v].take(inside, widen<C>(span.at(c)), row * columns + from + c);
            }
    }
    write<F>(result, taps, divisor, y, places, index * V);
}

// V places of each of S rows. The next V / S windows of some rows cover them, with some beside them. V divides the
// length of a row of dx, V / S that of a row of dy.
template <class F, class T, class C, int V, int K, int S, int P, class I>
__global__ void backward_columns(Pool pool, I count, const T* dy, const int* places, T* dx, bool padding, int divisor) {
    const I index = (I)blockIdx.x * blockDim.x + threadIdx.x;
    if (index >= count) return;
    const Windows w = pool.windows<K, S, P>();
    const Spot<I> spot = pool.spot(index);
    const int LOW = (K - 1 - P) / S, HIGH = (S - 1 + P) / S, RIGHT = (V - 1 + P) / S - (V / S - 1);
    const int columns = w.axis[2].n, results = w.axis[2].o, from = spot.digit[3] * (V / S);
    const int row = spot.digit[2] * S, first = row * columns + spot.digit[3] * V;
    dy += spot.image * w.results;
    if (F::PLACES) places += spot.image * w.results;
    C sum[S][V] = {};
#pragma unroll
    for (int a = -LOW; a <= HIGH; a++) {
        const int i = spot.digit[2] + a, line = min(max(i, 0), w.axis[1].o - 1);
        Span<T, V / S, 1, LOW, RIGHT> incoming;
        Span<int, V / S, 1, LOW, RIGHT> chosen;
        incoming.read(dy + line * results, from, results);
        if (F::PLACES) chosen.read(places + line * results, from, results);
#pragma unroll
        for (int b = -LOW; b < V / S + RIGHT; b++) {
            const bool met = (0 <= i) & (i < w.axis[1].o) & incoming.inside(b, from, results);
            C value = widen<C>(incoming.at(b));
            if (F::COUNTS) value /= taps_of(w, 0, line, from + b, padding);
#pragma unroll
            for (int r = 0; r < S; r++)
#pragma unroll
                for (int l = 0; l < K; l++) {
                    const int k = r + P - a * S, v = b * S - P + l;
                    if (0 <= k && k < K && 0 <= v && v < V)
                        sum[r][v] += met & (!F::PLACES || chosen.at(b) == first + r * columns + v) ? value : C(0);
                }
        }
    }
    dx += spot.image * w.plane;
#pragma unroll
    for (int r = 0; r < S; r++)
        if (row + r < w.axis[1].n) write_sums<F>(sum[r], divisor, dx, (I)(first + r * columns));
}

// The gradient of an average over a whole image: each dy, divided, at all places of its image.
template <class T, class C, int V, class I>
__global__ void spread(Pool pool, I size, const T* dy, T* dx, int divisor) {
    const I begin = ((I)blockIdx.x * blockDim.x + threadIdx.x) * V;
    const C inverse = C(1) / divisor;
    const auto share = [&](I at) {
        const I image = pool.image.quotient(at), channel = at - pool.access.quotient(at) * pool.inner;
        return divided<T>(widen<C>(dy[image * pool.inner + channel]), C(divisor), inverse);
    };
    if (begin + V <= size) {
        Pack<T, V> out;
#pragma unroll
        for (int v = 0; v < V; v++) place(out.v[v], share(begin + v));
        put(dx, begin, out);
    } else {
        for (I at = begin; at < size; at++) place(dx[at], share(at));
    }
}
