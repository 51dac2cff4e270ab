// The elementwise pass of a normalization, after the statistics or the sums of the gradient are known.
//
//     apply         y  = ((x - k) - d) * rstd * s + b, or max(y + residual, 0)
//     grad_input    dx = rstd * (g - sum_g / m - xhat * sum_gx / m),  g = dy * s; sums that are null count as 0
//
// Blocks walk the chunks from the end, because the last data of the previous pass is still in the second-level cache.
#include "batches.cuh"
#include "ending.cuh"
#include "running.cuh"

const int BYTES = 64;  // bytes of a batch of each array

// The two formulas, for one element of row r. `numbers` are what they know of a row; a formula made with `numbers` is the
// same formula.
template <class C> struct Apply {
    static const int NUMBERS = 3;
    Statistics<C> stat;
    Apply() = default;
    template <class I>
    __device__ Apply(const double* stats, const double*, I rows, I row, double) : stat(stats, rows, row) {}
    __device__ C& number(int n) { return n == 0 ? stat.k : n == 1 ? stat.d : stat.rstd; }
    __device__ C operator()(C x, C, C s, C b, bool scaled, bool biased) const {
        return affine(stat.xhat(x), s, b, scaled, biased);
    }
};

template <class C> struct GradInput {
    static const int NUMBERS = 5;
    Statistics<C> stat;
    C mean_g, mean_gx;
    GradInput() = default;
    template <class I>
    __device__ GradInput(const double* stats, const double* sums, I rows, I row, double part)
        : stat(stats, rows, row), mean_g(sums ? (C)(sums[row] * part) : 0),
          mean_gx(sums ? (C)(sums[rows + row] * part) : 0) {}
    __device__ C& number(int n) {
        return n == 0 ? stat.k : n == 1 ? stat.d : n == 2 ? stat.rstd : n == 3 ? mean_g : mean_gx;
    }
    __device__ C operator()(C x, C dy, C s, C, bool scaled, bool) const {
        if (scaled) dy = product(dy, s);
        return stat.rstd * (dy - mean_g - stat.xhat(x) * mean_gx);
    }
};

// Computes the terms of `batches`, whose first batch is on its way. K: the number of statistics of a pack, 1, or V if
// neighbours have separate statistics. SAME: true if all terms have the given scale and bias; otherwise these lie
// `param_step` apart, from `param` on. The arrays are x; dy in backward, or the residual in forward; and y.
template <class F, bool BACKWARD, int ENDING, bool SAME, class T, class C, class P, class I, int V, int K, class B>
__device__ __forceinline__ void map(B& batches, const F (&formula)[K], I param, Pack<C, V> scale, Pack<C, V> bias,
                                    I param_step, const P* __restrict__ s, const P* __restrict__ b,
                                    T* __restrict__ out) {
    const bool scaled = s, biased = b;
    while (batches.some()) {
        batches.each([&](int u) {
            if (!SAME) {
                scale = parameters<C, V>(s, param + batches.terms[u].param, param_step, C(1));
                bias = parameters<C, V>(b, param + batches.terms[u].param, param_step, C(0));
            }
            const Pack<C, V> of_x = batches.template of<C>(0, u);
            Pack<C, V> given, result;
            if (BACKWARD || ENDING == RESIDUAL_RELU) given = batches.template of<C>(1, u);
            if (BACKWARD && ENDING != PLAIN) mask(given, batches.template of<C>(2, u));
#pragma unroll
            for (int v = 0; v < V; v++) {
                const C value = formula[K == 1 ? 0 : v](of_x.v[v], given.v[v], scale.v[v], bias.v[v], scaled, biased);
                result.v[v] = finished<BACKWARD ? PLAIN : ENDING, T>(value, given.v[v]);
            }
            put_rounded(out, batches.terms[u].data, result);
        });
        batches.next();
        batches.fetch();
    }
}

// The number of arrays that a pass reads.
template <bool BACKWARD, int ENDING>
constexpr int ARRAYS = BACKWARD ? 2 + (ENDING != PLAIN) : 1 + (ENDING == RESIDUAL_RELU);

// The unit-step loop is reduced.
template <class F, bool BACKWARD, int ENDING, int N, bool SAME, class T, class C, class P, class I, int V, bool WARP>
__device__ inline void map_rows(const Loops<I>& loops, I chunk, const T* x, const T* other, const T* y, const double* stats,
                                const double* sums, const P* s, const P* b, T* out) {
    Team<WARP, I> team;
    if (team.index >= loops.results) return;
    const Place<I> row = loops.result(loops.results - 1 - team.index);
    const I first = chunk * (gridDim.y - 1 - blockIdx.y), end = min(first + chunk, loops.terms);
    Batches<ARRAYS<BACKWARD, ENDING>, Batch<T, V, BYTES>::SIZE, T, I, V, N> batches(
        loops, x, other, y, row.data, first + team.lane * V, (I)team.size * V, end);
    batches.fetch();
    const F formula[1] = {F(stats, sums, loops.statistics, row.row, loops.part)};
    Pack<C, V> scale, bias;
    if (SAME) {
        scale = parameters<C, V>(s, row.param, (I)0, C(1));
        bias = parameters<C, V>(b, row.param, (I)0, C(0));
    }
    map<F, BACKWARD, ENDING, SAME, T, C, P, I, V>(batches, formula, row.param, scale, bias, loops.reduced[3].param, s, b, out);
}

// The unit-step loop is kept: a thread has V lanes, with their statistics in registers, and walks down the terms. One
// thread finds the numbers of a lane for all others, while the first batch is on its way. In shared memory lane v of a
// thread is LANES places from lane v - 1, so that neighbouring threads use neighbouring banks.
template <class F, bool BACKWARD, int ENDING, int N, bool SAME, class T, class C, class P, class I, int V, int LANES>
__device__ inline void map_lanes(const Loops<I>& loops, I chunk, const T* x, const T* other, const T* y, const double* stats,
                                 const double* sums, const P* s, const P* b, T* out) {
    __shared__ C numbers[F::NUMBERS + 2][LANES * V];
    const int lane = threadIdx.x % LANES;
    const I index = ((I)blockIdx.x * LANES + lane) * V;
    const Place<I> row = loops.result(index < loops.results ? index : 0);
    const I first = chunk * (gridDim.y - 1 - blockIdx.y);
    const I end = index < loops.results ? min(first + chunk, loops.terms) : first;
    Batches<ARRAYS<BACKWARD, ENDING>, Batch<T, V, BYTES>::SIZE, T, I, V, N> batches(
        loops, x, other, y, row.data, first + (I)(threadIdx.x / LANES), (I)(256 / LANES), end);
    batches.fetch();
    for (int at = threadIdx.x; at < LANES * V; at += 256) {
        const I which = ((I)blockIdx.x * LANES + at % LANES) * V + at / LANES;
        if (which >= loops.results) continue;
        const Place<I> place = loops.result(which);
        F found(stats, sums, loops.statistics, place.row, loops.part);
        for (int n = 0; n < F::NUMBERS; n++) numbers[n][at] = found.number(n);
        if (!SAME) continue;
        numbers[F::NUMBERS][at] = s ? widen<C>(s[place.param]) : C(1);
        numbers[F::NUMBERS + 1][at] = b ? widen<C>(b[place.param]) : C(0);
    }
    __syncthreads();
    F formula[V];
    Pack<C, V> scale, bias;
#pragma unroll
    for (int v = 0; v < V; v++) {
        const int at = v * LANES + lane;
        for (int n = 0; n < F::NUMBERS; n++) formula[v].number(n) = numbers[n][at];
        scale.v[v] = numbers[F::NUMBERS][at];
        bias.v[v] = numbers[F::NUMBERS + 1][at];
    }
    map<F, BACKWARD, ENDING, SAME, T, C, P, I, V>(batches, formula, row.param, scale, bias, loops.kept[3].param, s, b, out);
}

// The first block updates the running statistics: the previous launch has finished the batch's statistics.
template <class R, class I> __device__ inline void update_running(const Running<R>& running, const double* stats, I rows) {
    if (blockIdx.x == 0 && blockIdx.y == 0)
        running.template update_all<false>(stats, rows, (int)threadIdx.x, (int)blockDim.x);
}

template <class T, class C, class P, class I, int V, bool WARP, int N, bool SAME, class R, int ENDING>
__global__ void __launch_bounds__(256, BLOCKS<C, I, ENDING == RESIDUAL_RELU>)
    apply_rows(Loops<I> loops, I chunk, const T* x, const double* stats, const P* s, const P* b, const T* residual, T* y,
               Running<R> running) {
    if (running.mean) update_running(running, stats, loops.statistics);
    map_rows<Apply<C>, false, ENDING, N, SAME, T, C, P, I, V, WARP>(loops, chunk, x, residual, x, stats, nullptr, s, b, y);
}

template <class T, class C, class P, class I, int V, int LANES, int N, bool SAME, class R, int ENDING>
__global__ void __launch_bounds__(256, BLOCKS<C, I, ENDING == RESIDUAL_RELU>)
    apply_lanes(Loops<I> loops, I chunk, const T* x, const double* stats, const P* s, const P* b, const T* residual, T* y,
                Running<R> running) {
    if (running.mean) update_running(running, stats, loops.statistics);
    map_lanes<Apply<C>, false, ENDING, N, SAME, T, C, P, I, V, LANES>(loops, chunk, x, residual, x, stats, nullptr, s, b, y);
}

template <class T, class C, class P, class I, int V, bool WARP, int N, bool SAME, bool RELU>
__global__ void __launch_bounds__(256, BLOCKS<C, I, 1>)
    grad_input_rows(Loops<I> loops, I chunk, const T* dy, const T* x, const T* y, const double* stats, const double* sums, const P* s,
                     T* dx) {
    map_rows<GradInput<C>, true, RELU, N, SAME, T, C, P, I, V, WARP>(loops, chunk, x, dy, y, stats, sums, s, s, dx);
}

template <class T, class C, class P, class I, int V, int LANES, int N, bool SAME, bool RELU>
__global__ void __launch_bounds__(256, BLOCKS<C, I, (RELU || V == 8)>)
    grad_input_lanes(Loops<I> loops, I chunk, const T* dy, const T* x, const T* y, const double* stats, const double* sums, const P* s,
                     T* dx) {
    map_lanes<GradInput<C>, true, RELU, N, SAME, T, C, P, I, V, LANES>(loops, chunk, x, dy, y, stats, sums, s, s, dx);
}

// dx, together with the sums for scale and bias if each column has its own: a thread keeps V columns, and walks over
// the rows of its chunk. `partial` is (2, chunks, columns). The numbers of a row, shared by its columns, are in shared
// memory.
template <class T, class C, class P, class I, int V>
__global__ void grad_input_columns(Loops<I> loops, I chunk, const T* __restrict__ dy, const T* __restrict__ x,
                                   const double* __restrict__ stats, const double* __restrict__ sums,
                                   const P* __restrict__ s, T* __restrict__ dx, C* __restrict__ partial) {
    const int ROWS = 64, BATCH = Batch<T, V, BYTES>::SIZE;
    __shared__ GradInput<C> formulas[ROWS];
    const I rows = loops.results, columns = loops.terms, column = ((I)blockIdx.x * blockDim.x + threadIdx.x) * V;
    const bool inside = column < columns;
    const Place<I> from = Cursor<2, I>(loops, inside ? column : 0, 1).place;
    const I first = chunk * (gridDim.y - 1 - blockIdx.y), row_step = loops.kept[3].data;
    const Pack<C, V> scale = parameters<C, V>(s, from.param, loops.reduced[3].param, C(1));
    C of_scale[V], of_bias[V];
    for (int v = 0; v < V; v++) of_scale[v] = of_bias[v] = 0;
    for (I top = min(first + chunk, rows); top > first; top -= ROWS) {
        const I count = min((I)ROWS, top - first), bottom = top - count;
        __syncthreads();  // the previous rows have been used
        for (I r = threadIdx.x; r < count; r += blockDim.x)
            formulas[r] = GradInput<C>(stats, sums, rows, bottom + r, loops.part);
        __syncthreads();
        for (I r = inside ? count - 1 : -1; r >= 0; r -= BATCH) {
            Pack<T, V> of_dy[BATCH], of_x[BATCH];
#pragma unroll
            for (int u = 0; u < BATCH; u++)
                if (r >= u) {
                    of_dy[u] = fetch<T, V>(dy, from.data + (bottom + r - u) * row_step);
                    of_x[u] = fetch<T, V>(x, from.data + (bottom + r - u) * row_step);
                }
#pragma unroll
            for (int u = 0; u < BATCH; u++) {
                if (r < u) break;
                const GradInput<C> formula = formulas[r - u];
                Pack<T, V> result;
#pragma unroll
                for (int v = 0; v < V; v++) {
                    const C g = widen<C>(of_dy[u].v[v]), of = widen<C>(of_x[u].v[v]);
                    of_scale[v] += g * formula.stat.xhat(of);
                    of_bias[v] += g;
                    place(result.v[v], formula(of, g, scale.v[v], C(0), s, false));
                }
                put(dx, from.data + (bottom + r - u) * row_step, result);
            }
        }
    }
    if (!inside) return;
    for (int v = 0; v < V; v++) {
        partial[blockIdx.y * columns + column + v] = of_bias[v];
        partial[(gridDim.y + blockIdx.y) * columns + column + v] = of_scale[v];
    }
}
