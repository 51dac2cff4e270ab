// Moves elements from one array to another, in the same or another memory order: casts, repeats, adds; and fills
// arrays.
//
//     move    y[to] = x[from], one thread for each access of V elements along y's innermost axis
//     turn    the same if y and x have different innermost axes: by tiles through shared memory
//     fill    y[i] = value
//
// If the type stays the same, the bits are copied, in a type T = S of that size. A cast widens and rounds once. With
// ADD, x is added to y.
#include "digits.cuh"
#include "types.cuh"

__device__ inline double wide(double v) { return v; }
template <class T> __device__ inline float wide(T v) { return widen<float>(v); }

template <class T, class S> struct Moved {
    __device__ static void to(S& y, T x) { place(y, wide(x)); }
};
template <class T> struct Moved<T, T> {
    __device__ static void to(T& y, T x) { y = x; }
};

// ADD is not compiled for types that only carry bits.
template <bool ADD> struct Written {
    template <class T, class S> __device__ static void to(S& y, T x) { Moved<T, S>::to(y, x); }
};
template <> struct Written<true> {
    template <class T, class S> __device__ static void to(S& y, T x) { place(y, wide(y) + wide(x)); }
};

// Loops from the outermost to the innermost: counts, and steps in y and in x.
template <class I, int N> struct Axes {
    I count[N], to[N], from[N];

    __device__ void find(I index, I& to_at, I& from_at) const {
#pragma unroll
        for (int n = N - 1; n >= 0; n--) {
            const I digit = take_digit(index, count[n], n == 0);
            to_at += digit * to[n];
            from_at += digit * from[n];
        }
    }
};

// A turn of the innermost loop is an access to y. step: the distance between its elements in x; whole: true if they are
// one access in x too.
template <class T, class S, int V, bool ADD, class I>
__global__ void move(Axes<I, 6> axes, I accesses, I step, bool whole, const T* x, S* y) {
    const I index = (I)blockIdx.x * blockDim.x + threadIdx.x;
    if (index >= accesses) return;
    I to = 0, from = 0;
    axes.find(index, to, from);
    Pack<T, V> in;
    if (whole) {
        in = fetch<T, V>(x, from);
    } else {
#pragma unroll
        for (int v = 0; v < V; v++) in.v[v] = x[from + v * step];
    }
    Pack<S, V> out;
    if (ADD) out = fetch<S, V>(y, to);
#pragma unroll
    for (int v = 0; v < V; v++) Written<ADD>::to(out.v[v], in.v[v]);
    put(y, to, out);
}

// Rows lie along y's innermost axis, columns along x's. A block has a tile of SIZE elements with ROWS rows. A line of
// the tile has one element more than its data, so that neither rows nor columns share a bank.
template <class T, class S, int VX, int VY, int ROWS, bool ADD, class I>
__global__ void turn(Axes<I, 4> outer, I rows, I columns, I from_row, I to_column, I row_tiles, I column_tiles,
                     const T* __restrict__ x, S* __restrict__ y) {
    const int SIZE = sizeof(T) > 4 ? 2048 : 4096, COLUMNS = SIZE / ROWS, THREADS = 256;
    __shared__ T tile[ROWS][COLUMNS + 1];
    const I column_tile = blockIdx.x % column_tiles, others = blockIdx.x / column_tiles;
    const I row_tile = others % row_tiles;
    const I first_row = row_tile * ROWS, first_column = column_tile * COLUMNS;
    I to = 0, from = 0;
    outer.find(others / row_tiles, to, from);
#pragma unroll
    for (int k = 0; k < SIZE / VX / THREADS; k++) {
        const int at = k * THREADS + threadIdx.x, row = at / (COLUMNS / VX), column = at % (COLUMNS / VX) * VX;
        if (first_row + row < rows && first_column + column < columns) {
            const Pack<T, VX> in = fetch<T, VX>(x, from + (first_row + row) * from_row + first_column + column);
#pragma unroll
            for (int v = 0; v < VX; v++) tile[row][column + v] = in.v[v];
        }
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < SIZE / VY / THREADS; k++) {
        const int at = k * THREADS + threadIdx.x, column = at / (ROWS / VY), row = at % (ROWS / VY) * VY;
        if (first_row + row < rows && first_column + column < columns) {
            const I place = to + (first_column + column) * to_column + first_row + row;
            Pack<S, VY> out;
            if (ADD) out = fetch<S, VY>(y, place);
#pragma unroll
            for (int v = 0; v < VY; v++) Written<ADD>::to(out.v[v], tile[row + v][column]);
            put(y, place, out);
        }
    }
}

template <class T, class C, int V, class I> __global__ void fill(T* y, I n, C value) {
    const I at = ((I)blockIdx.x * blockDim.x + threadIdx.x) * V;
    Pack<T, V> out;
#pragma unroll
    for (int v = 0; v < V; v++) place(out.v[v], value);
    if (at + V <= n)
        put(y, at, out);
    else
        for (I i = at; i < n; i++) y[i] = out.v[0];
}
