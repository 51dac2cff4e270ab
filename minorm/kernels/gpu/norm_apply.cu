// What is done to every element once the statistics, or the sums of the gradient, are known.
//
//     apply         y  = ((x - k) - d) * rstd * s + b
//     grad_input    dx = rstd * (g - sum_g / m - xhat * sum_gx / m),  g = dy * s; sums that are null count as 0
//
// Blocks walk the chunks from the end: what the pass before has read last is still in the second-level cache.
#include "loops.cuh"

// The two formulas, for one element of row r, column place p.
template <class C, class P> struct Apply {
    Statistics<C> stat;
    const P *s, *b;
    Apply() = default;
    template <class I>
    __device__ Apply(const double* stats, const double*, I rows, I row, I, const P* s, const P* b)
        : stat(stats, rows, row), s(s), b(b) {}
    template <class I> __device__ C operator()(C x, C, I param) const {
        C y = stat.xhat(x);
        if (s) y *= widen<C>(s[param]);
        if (b) y += widen<C>(b[param]);
        return y;
    }
};

template <class C, class P> struct GradInput {
    Statistics<C> stat;
    const P* s;
    C mean_g, mean_gx;
    GradInput() = default;
    template <class I>
    __device__ GradInput(const double* stats, const double* sums, I rows, I row, I columns, const P* s, const P*)
        : stat(stats, rows, row), s(s), mean_g(sums ? (C)(sums[row] / columns) : 0),
          mean_gx(sums ? (C)(sums[rows + row] / columns) : 0) {}
    template <class I> __device__ C operator()(C x, C dy, I param) const {
        if (s) dy *= widen<C>(s[param]);
        return stat.rstd * (dy - mean_g - stat.xhat(x) * mean_gx);
    }
};

// The unit-step loop is reduced.
template <class F, bool BACKWARD, class T, class C, class P, class I, int V, bool WARP>
__device__ void map_rows(const Loops<I>& loops, I chunk, const T* x, const T* dy, const double* stats,
                         const double* sums, const P* s, const P* b, T* out) {
    Team<WARP, I> team;
    if (team.index >= loops.results) return;
    const Place<I> row = loops.result(loops.results - 1 - team.index);
    const F formula(stats, sums, loops.results, row.row, loops.terms, s, b);
    const I first = chunk * (gridDim.y - 1 - blockIdx.y), end = min(first + chunk, loops.terms);
    for (I at = first + team.lane * V; at < end; at += (I)team.size * V) {
        const Place<I> column = loops.column(at);
        Pack<T, V> in = fetch<T, V>(x, row.data + column.data), g, result;
        if (BACKWARD) g = fetch<T, V>(dy, row.data + column.data);
        for (int v = 0; v < V; v++)
            place(result.v[v], formula(widen<C>(in.v[v]), BACKWARD ? widen<C>(g.v[v]) : C(0),
                                       row.param + column.param + v * loops.reduced[3].param));
        put(out, row.data + column.data, result);
    }
}

// The unit-step loop is kept: a thread has V lanes, with their statistics in registers, and walks down the terms.
template <class F, bool BACKWARD, class T, class C, class P, class I, int V, int LANES>
__device__ void map_lanes(const Loops<I>& loops, I chunk, const T* x, const T* dy, const double* stats,
                          const double* sums, const P* s, const P* b, T* out) {
    const I index = ((I)blockIdx.x * LANES + threadIdx.x % LANES) * V;
    if (index >= loops.results) return;
    const Place<I> row = loops.result(index);
    F formula[V];
    for (int v = 0; v < V; v++) formula[v] = F(stats, sums, loops.results, row.row + v, loops.terms, s, b);
    const I first = chunk * (gridDim.y - 1 - blockIdx.y), end = min(first + chunk, loops.terms);
    for (I at = first + threadIdx.x / LANES; at < end; at += 256 / LANES) {
        const Place<I> term = loops.column(at);
        Pack<T, V> in = fetch<T, V>(x, row.data + term.data), g, result;
        if (BACKWARD) g = fetch<T, V>(dy, row.data + term.data);
        for (int v = 0; v < V; v++)
            place(result.v[v], formula[v](widen<C>(in.v[v]), BACKWARD ? widen<C>(g.v[v]) : C(0),
                                          row.param + term.param + v * loops.kept[3].param));
        put(out, row.data + term.data, result);
    }
}

template <class T, class C, class P, class I, int V, bool WARP>
__global__ void apply_rows(Loops<I> loops, I chunk, const T* x, const double* stats, const P* s, const P* b, T* y) {
    map_rows<Apply<C, P>, false, T, C, P, I, V, WARP>(loops, chunk, x, x, stats, nullptr, s, b, y);
}

template <class T, class C, class P, class I, int V, int LANES>
__global__ void apply_lanes(Loops<I> loops, I chunk, const T* x, const double* stats, const P* s, const P* b, T* y) {
    map_lanes<Apply<C, P>, false, T, C, P, I, V, LANES>(loops, chunk, x, x, stats, nullptr, s, b, y);
}

template <class T, class C, class P, class I, int V, bool WARP>
__global__ void grad_input_rows(Loops<I> loops, I chunk, const T* dy, const T* x, const double* stats,
                                const double* sums, const P* s, T* dx) {
    map_rows<GradInput<C, P>, true, T, C, P, I, V, WARP>(loops, chunk, x, dy, stats, sums, s, s, dx);
}

template <class T, class C, class P, class I, int V, int LANES>
__global__ void grad_input_lanes(Loops<I> loops, I chunk, const T* dy, const T* x, const double* stats,
                                 const double* sums, const P* s, T* dx) {
    map_lanes<GradInput<C, P>, true, T, C, P, I, V, LANES>(loops, chunk, x, dy, stats, sums, s, s, dx);
}
