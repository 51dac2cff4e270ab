// Sums over the middle axis of x (batches, rows, columns), in double and in a fixed order; y (batches, chunks, columns).
//
//     y[b, chunk, c] = sum over the rows r of the chunk of x[b, r, c], / divisor
//
// If there are few sums and they are long, they are cut into chunks (blockIdx.y), and a second launch adds up the
// chunks; the shape decides their number. Rows: columns = 1, and a team, a warp or a block, walks along one sum.
// Columns: LANES threads lie side by side on V columns each, the others of the block below them, `256 / LANES` rows at
// a time; at the end the block adds up each column.
#include "parts.cuh"

const int BYTES = 128;  // bytes that a thread loads before it adds the first
template <class T, int V> constexpr int SIZE = Batch<T, V, BYTES>::SIZE;

template <class T, class R, int V, bool WARP, class I>
__global__ void sum_rows(I batches, I rows, I chunk, const T* __restrict__ x, R* __restrict__ y, double divisor) {
    const int size = WARP ? 32 : blockDim.x, lane = threadIdx.x % size;
    const I batch = (I)blockIdx.x * (blockDim.x / size) + threadIdx.x / size;
    if (batch >= batches) return;
    const I first = chunk * blockIdx.y, end = min(first + chunk, rows);
    double sum = 0, second = 0;
    x += batch * rows;
    Part<T, V, SIZE<T, V>, 1, false, I> part(x, x, first + lane * V, size * V, end);
    part.read();
    part.walk([&] {
        part.template each<double>([&](I, const Pack<double, V>& in, const Pack<double, V>&) {
#pragma unroll
            for (int v = 0; v < V; v++) (v % 2 ? second : sum) += in.v[v];
        });
    });
    sum = row_sum<WARP>(sum + second);
    if (lane == 0) place(y[batch * gridDim.y + blockIdx.y], sum / divisor);
}

template <class T, class R, int V, int LANES, class I>
__global__ void sum_columns(I rows, I columns, I tiles, I chunk, const T* __restrict__ x, R* __restrict__ y, double divisor) {
    const int lane = threadIdx.x % LANES, walker = threadIdx.x / LANES, walkers = 256 / LANES;
    const I batch = blockIdx.x / tiles, column = ((I)(blockIdx.x - batch * tiles) * LANES + lane) * V;
    const I first = chunk * blockIdx.y, end = min(first + chunk, rows);
    __shared__ double of_walker[256][V];
    double sums[V];
    for (int v = 0; v < V; v++) sums[v] = 0;
    if (column < columns) {
        x += batch * rows * columns + column;
        Part<T, V, SIZE<T, V>, 1, false, I> part(x, x, first + walker, walkers, end, columns);
        part.read();
        part.walk([&] {
            part.template each<double>([&](I, const Pack<double, V>& in, const Pack<double, V>&) {
#pragma unroll
                for (int v = 0; v < V; v++) sums[v] += in.v[v];
            });
        });
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
