// Sums over the middle axis of x (batches, rows, columns), in double and in a fixed order; y (batches, chunks, columns).
//
//     y[b, chunk, c] = sum over the rows r of the chunk of x[b, r, c], / divisor
//
// If there are few sums and they are long, they are cut into chunks (blockIdx.y), and a second launch adds up the
// chunks; the shape decides their number. Rows: columns = 1, and a team, a warp or a block, walks along one sum.
// Columns: LANES threads lie side by side on V columns each, the others of the block below them, `256 / LANES` rows at
// a time; at the end the block adds up each column. A thread has AHEAD accesses in flight before it adds the first.
#include "types.cuh"

__device__ inline double wide(double v) { return v; }
template <class T> __device__ inline double wide(T v) { return widen<float>(v); }

static const int AHEAD = 4;

template <class T, class R, int V, bool WARP, class I>
__global__ void sum_rows(I batches, I rows, I chunk, const T* x, R* y, double divisor) {
    const int size = WARP ? 32 : blockDim.x, lane = threadIdx.x % size;
    const I batch = (I)blockIdx.x * (blockDim.x / size) + threadIdx.x / size;
    if (batch >= batches) return;
    const I first = chunk * blockIdx.y, end = min(first + chunk, rows);
    double sum = 0, second = 0;
    x += batch * rows;
    const I step = size * V;
    for (I at = first + lane * V; at < end; at += AHEAD * step) {
        Pack<T, V> in[AHEAD];
#pragma unroll
        for (int i = 0; i < AHEAD; i++)
            if (at + i * step < end) in[i] = fetch<T, V>(x, at + i * step);
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            if (at + i * step >= end) break;
#pragma unroll
            for (int v = 0; v < V; v++) (v % 2 ? second : sum) += wide(in[i].v[v]);
        }
    }
    sum = row_sum<WARP>(sum + second);
    if (lane == 0) place(y[batch * gridDim.y + blockIdx.y], sum / divisor);
}

template <class T, class R, int V, int LANES, class I>
__global__ void sum_columns(I rows, I columns, I tiles, I chunk, const T* x, R* y, double divisor) {
    const int lane = threadIdx.x % LANES, walker = threadIdx.x / LANES, walkers = 256 / LANES;
    const I batch = blockIdx.x / tiles, column = ((I)(blockIdx.x - batch * tiles) * LANES + lane) * V;
    const I first = chunk * blockIdx.y, end = min(first + chunk, rows);
    __shared__ double of_walker[256][V];
    double sums[V];
    for (int v = 0; v < V; v++) sums[v] = 0;
    if (column < columns) {
        x += batch * rows * columns + column;
        for (I row = first + walker; row < end; row += AHEAD * walkers) {
            Pack<T, V> in[AHEAD];
#pragma unroll
            for (int i = 0; i < AHEAD; i++)
                if (row + i * walkers < end) in[i] = fetch<T, V>(x, (row + i * walkers) * columns);
#pragma unroll
            for (int i = 0; i < AHEAD; i++) {
                if (row + i * walkers >= end) break;
#pragma unroll
                for (int v = 0; v < V; v++) sums[v] += wide(in[i].v[v]);
            }
        }
    }
    for (int v = 0; v < V; v++) of_walker[threadIdx.x][v] = sums[v];
    for (int half = walkers / 2; half > 0; half /= 2) {  // a tree over the walkers
        __syncthreads();
        if (walker < half)
            for (int v = 0; v < V; v++) of_walker[threadIdx.x][v] += of_walker[threadIdx.x + half * LANES][v];
    }
    if (walker || column >= columns) return;
    const I at = (batch * gridDim.y + blockIdx.y) * columns + column;
    for (int v = 0; v < V; v++) place(y[at + v], of_walker[lane][v] / divisor);
}
