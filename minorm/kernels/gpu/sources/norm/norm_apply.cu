// The elementwise pass of a normalization, after the statistics or the sums of the gradient are known.
//
//     apply         y  = ((x - k) - d) * rstd * s + b, or max(y + residual, 0)
//     grad_input    dx = rstd * (g - sum_g / m - xhat * sum_gx / m),  g = dy * s; sums that are null count as 0
//
// Blocks walk the chunks from the end, because the last data of the previous pass is still in the second-level cache.
#include "map.cuh"
#include "running.cuh"

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
    map_lanes<Apply<C>, false, ENDING, N, SAME, T, C, P, I, V, LANES>(
        loops, (I)blockIdx.x, chunk * (gridDim.y - 1 - blockIdx.y), chunk, x, residual, x, stats, (const double*)nullptr, s, b, y, [] {});
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
    map_lanes<GradInput<C>, true, RELU, N, SAME, T, C, P, I, V, LANES>(
        loops, (I)blockIdx.x, chunk * (gridDim.y - 1 - blockIdx.y), chunk, x, dy, y, stats, sums, s, s, dx, [] {});
}

// dx, together with the sums for scale and bias if each column has its own: a thread keeps V columns, and walks over
// the rows of its chunk. `partial` is (2, chunks, columns). The numbers of a row, shared by its columns, are in shared
// memory.
template <class T, class C, class P, class I, int V>
__global__ void grad_input_columns(Loops<I> loops, I chunk, const T* __restrict__ dy, const T* __restrict__ x,
                                   const double* __restrict__ stats, const double* __restrict__ sums,
                                   const P* __restrict__ s, T* __restrict__ dx, C* __restrict__ partial) {
    const int ROWS = 64, BATCH = Batch<T, V, OF_MAP>::SIZE;
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
