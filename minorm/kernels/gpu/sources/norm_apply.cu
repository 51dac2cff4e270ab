// The elementwise pass of a normalization, after the statistics or the sums of the gradient are known.
//
//     apply         y  = ((x - k) - d) * rstd * s + b, or max(y + residual, 0)
//     grad_input    dx = rstd * (g - sum_g / m - xhat * sum_gx / m),  g = dy * s; sums that are null count as 0
//
// Blocks walk the chunks from the end, because the last data of the previous pass is still in the second-level cache. A
// thread loads a batch of packs before it uses the first.
#include "ending.cuh"
#include "loops.cuh"
#include "running.cuh"

const int BYTES = 64;  // bytes of a batch of each array

// The two formulas, for one element of row r.
template <class C> struct Apply {
    Statistics<C> stat;
    Apply() = default;
    template <class I>
    __device__ Apply(const double* stats, const double*, I rows, I row, double) : stat(stats, rows, row) {}
    __device__ C operator()(C x, C, C s, C b, bool scaled, bool biased) const {
        return affine(stat.xhat(x), s, b, scaled, biased);
    }
};

template <class C> struct GradInput {
    Statistics<C> stat;
    C mean_g, mean_gx;
    GradInput() = default;
    template <class I>
    __device__ GradInput(const double* stats, const double* sums, I rows, I row, double part)
        : stat(stats, rows, row), mean_g(sums ? (C)(sums[row] * part) : 0),
          mean_gx(sums ? (C)(sums[rows + row] * part) : 0) {}
    __device__ C operator()(C x, C dy, C s, C, bool scaled, bool) const {
        if (scaled) dy = product(dy, s);
        return stat.rstd * (dy - mean_g - stat.xhat(x) * mean_gx);
    }
};

// Computes packs of V from `start` to `end` by `step`, for a thread that begins at `from`. K: the number of statistics
// of a pack, 1, or V if neighbours have separate statistics. N: the number of loops. SAME: true if all elements have
// the given scale and bias; otherwise these lie `param_step` apart. `other` is dy in backward, and the residual in
// forward.
template <class F, bool BACKWARD, int ENDING, int K, int N, bool SAME, int SIZE, class T, class C, class P, class I,
          int V>
__device__ inline void map(const Loops<I>& loops, const F (&formula)[K], Place<I> from, Pack<C, V> scale, Pack<C, V> bias,
                           I param_step, I start, I end, I step, const T* __restrict__ x, const T* __restrict__ other,
                           const T* __restrict__ y, const P* __restrict__ s, const P* __restrict__ b,
                           T* __restrict__ out) {
    const bool scaled = s, biased = b;
    Cursor<N, I> cursor(loops, start, step);
    for (I at = start; at < end; at += step * SIZE) {
        Held<T, V> in[SIZE], second[SIZE], kept[SIZE];
        I place[SIZE], param[SIZE];
#pragma unroll
        for (int u = 0; u < SIZE; u++, cursor.advance()) {
            place[u] = from.data + cursor.place.data;
            param[u] = from.param + cursor.place.param;
        }
        const bool all = at + (SIZE - 1) * step < end;
        const auto fetch_one = [&](int u) {
            in[u] = hold<T, V>(x, place[u]);
            if (BACKWARD || ENDING == RESIDUAL_RELU) second[u] = hold<T, V>(other, place[u]);
            if (BACKWARD && ENDING != PLAIN) kept[u] = hold<T, V>(y, place[u]);
        };
        if (all) {  // without branches between the loads
#pragma unroll
            for (int u = 0; u < SIZE; u++) fetch_one(u);
        } else {
#pragma unroll
            for (int u = 0; u < SIZE; u++)
                if (at + u * step < end) fetch_one(u);
        }
#pragma unroll
        for (int u = 0; u < SIZE; u++) {
            if (!all && at + u * step >= end) break;
            if (!SAME) {
                scale = parameters<C, V>(s, param[u], param_step, C(1));
                bias = parameters<C, V>(b, param[u], param_step, C(0));
            }
            const Pack<C, V> of_x = in[u].template widened<C>();
            Pack<C, V> given, result;
            if (BACKWARD || ENDING == RESIDUAL_RELU) given = second[u].template widened<C>();
            if (BACKWARD && ENDING != PLAIN) mask(given, kept[u].template widened<C>());
#pragma unroll
            for (int v = 0; v < V; v++) {
                const C value = formula[K == 1 ? 0 : v](of_x.v[v], given.v[v], scale.v[v], bias.v[v], scaled, biased);
                result.v[v] = finished<BACKWARD ? PLAIN : ENDING, T>(value, given.v[v]);
            }
            put_rounded(out, place[u], result);
        }
    }
}

// The unit-step loop is reduced.
template <class F, bool BACKWARD, int ENDING, int N, bool SAME, class T, class C, class P, class I, int V, bool WARP>
__device__ inline void map_rows(const Loops<I>& loops, I chunk, const T* x, const T* other, const T* y, const double* stats,
                                const double* sums, const P* s, const P* b, T* out) {
    Team<WARP, I> team;
    if (team.index >= loops.results) return;
    const Place<I> row = loops.result(loops.results - 1 - team.index);
    const F formula[1] = {F(stats, sums, loops.statistics, row.row, loops.part)};
    const I first = chunk * (gridDim.y - 1 - blockIdx.y), end = min(first + chunk, loops.terms);
    const I param_step = loops.reduced[3].param;
    Pack<C, V> scale, bias;
    if (SAME) {
        scale = parameters<C, V>(s, row.param, (I)0, C(1));
        bias = parameters<C, V>(b, row.param, (I)0, C(0));
    }
    map<F, BACKWARD, ENDING, 1, N, SAME, Batch<T, V, BYTES>::SIZE, T, C, P, I, V>(
        loops, formula, row, scale, bias, param_step, first + team.lane * V, end, (I)team.size * V, x, other, y, s, b, out);
}

// The unit-step loop is kept: a thread has V lanes, with their statistics in registers, and walks down the terms.
template <class F, bool BACKWARD, int ENDING, int N, bool SAME, bool RAGGED, class T, class C, class P, class I, int V,
          int LANES>
__device__ inline void map_lanes(const Loops<I>& loops, I chunk, const T* x, const T* other, const T* y, const double* stats,
                                 const double* sums, const P* s, const P* b, T* out) {
    const I index = ((I)blockIdx.x * LANES + threadIdx.x % LANES) * V;
    if (index >= loops.results) return;
    Place<I> rows[V];
    results_of<RAGGED>(loops, index, rows);
    F formula[V];
    for (int v = 0; v < V; v++) formula[v] = F(stats, sums, loops.statistics, rows[v].row, loops.part);
    Pack<C, V> scale, bias;
    if (SAME)
        for (int v = 0; v < V; v++) {
            scale.v[v] = s ? widen<C>(s[rows[v].param]) : C(1);
            bias.v[v] = b ? widen<C>(b[rows[v].param]) : C(0);
        }
    const I first = chunk * (gridDim.y - 1 - blockIdx.y), end = min(first + chunk, loops.terms);
    map<F, BACKWARD, ENDING, V, N, SAME, Batch<C, V, BYTES>::SIZE, T, C, P, I, V>(
        loops, formula, rows[0], scale, bias, loops.kept[3].param, first + (I)(threadIdx.x / LANES), end, (I)(256 / LANES), x,
        other, y, s, b, out);
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

template <class T, class C, class P, class I, int V, int LANES, int N, bool SAME, bool RAGGED, class R, int ENDING>
__global__ void __launch_bounds__(256, BLOCKS<C, I, ENDING == RESIDUAL_RELU>)
    apply_lanes(Loops<I> loops, I chunk, const T* x, const double* stats, const P* s, const P* b, const T* residual, T* y,
                Running<R> running) {
    if (running.mean) update_running(running, stats, loops.statistics);
    map_lanes<Apply<C>, false, ENDING, N, SAME, RAGGED, T, C, P, I, V, LANES>(loops, chunk, x, residual, x, stats, nullptr, s, b, y);
}

template <class T, class C, class P, class I, int V, bool WARP, int N, bool SAME, bool RELU>
__global__ void __launch_bounds__(256, BLOCKS<C, I, 1>)
    grad_input_rows(Loops<I> loops, I chunk, const T* dy, const T* x, const T* y, const double* stats, const double* sums, const P* s,
                     T* dx) {
    map_rows<GradInput<C>, true, RELU, N, SAME, T, C, P, I, V, WARP>(loops, chunk, x, dy, y, stats, sums, s, s, dx);
}

template <class T, class C, class P, class I, int V, int LANES, int N, bool SAME, bool RAGGED, bool RELU>
__global__ void __launch_bounds__(256, BLOCKS<C, I, 1>)
    grad_input_lanes(Loops<I> loops, I chunk, const T* dy, const T* x, const T* y, const double* stats, const double* sums, const P* s,
                     T* dx) {
    map_lanes<GradInput<C>, true, RELU, N, SAME, RAGGED, T, C, P, I, V, LANES>(loops, chunk, x, dy, y, stats, sums, s, s, dx);
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
