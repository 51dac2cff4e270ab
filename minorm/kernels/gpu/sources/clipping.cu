// Clipping of gradients: a list of arrays of one type in each launch.
//
//     add_powers   parts[block] = sum of |x|^p over a chunk of one array, or the largest |x|
//     clip_norm    norm = (sum of all parts)^(1/p),  x *= most / (norm + 1e-6) if that is below 1
//     clip_value   x = min(max(x, -most), most)
//
// The host never sees the norm: each block of clip_norm adds up all parts again, in the same order, so all blocks have
// the same bits. The parts are few, as a chunk is longer the more elements there are. Sums are in double. The sizes
// alone decide their order.
#include "types.cuh"
#include "maths.cuh"

const int MOST = 192, THREADS = 256, AHEAD = 4;  // clip_plan.py has the same numbers

struct List {
    void* x[MOST];
    long long size[MOST];
    int first[MOST + 1];  // chunk of an array; the number of all chunks from the number of arrays on
};

enum Kind { squares, absolutes, largest, powers };

// A chunk of one array.
template <class T> struct Chunk {
    T* x;
    long long size;

    __device__ Chunk(const List& list, int chunk, long long length) {
        int low = 0, high = MOST;  // the array with first[low] <= chunk < first[high]
        while (high - low > 1) {
            const int middle = (low + high) / 2;
            (list.first[middle] <= chunk ? low : high) = middle;
        }
        const long long begin = (chunk - list.first[low]) * length;
        x = reinterpret_cast<T*>(list.x[low]) + begin;
        size = min(length, list.size[low] - begin);
    }
};

template <Kind KIND> __device__ inline double joined(double a, double b) {
    if (KIND != largest) return a + b;
    return b > a || b != b ? b : a;  // NaN stays
}

template <Kind KIND> __device__ inline double measure(double v, double p) {
    if (KIND == squares) return v * v;
    return KIND == powers ? pow(abs_of(v), p) : abs_of(v);
}

// The values of all threads of a block, joined in a fixed order, for each of them.
template <Kind KIND> __device__ inline double of_block(double value) {
    __shared__ double kept[THREADS];
    __syncthreads();
    kept[threadIdx.x] = value;
    for (int half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) kept[threadIdx.x] = joined<KIND>(kept[threadIdx.x], kept[threadIdx.x + half]);
    }
    __syncthreads();
    return kept[0];
}

// A thread has AHEAD accesses on their way before it adds the first.
template <class T, class C, int V, Kind KIND>
__global__ void add_powers(List list, long long length, double p, double* parts) {
    const Chunk<T> chunk(list, blockIdx.x, length);
    const long long whole = chunk.size - chunk.size % V, step = THREADS * V;
    long long at = threadIdx.x * V;
    double total = 0;
    for (; at + (AHEAD - 1) * step < whole; at += AHEAD * step) {
        Pack<T, V> in[AHEAD];
#pragma unroll
        for (int i = 0; i < AHEAD; i++) in[i] = fetch<T, V>(chunk.x, at + i * step);
#pragma unroll
        for (int i = 0; i < AHEAD; i++)
#pragma unroll
            for (int v = 0; v < V; v++) total = joined<KIND>(total, measure<KIND>(widen<C>(in[i].v[v]), p));
    }
    for (; at < whole; at += step) {
        const Pack<T, V> in = fetch<T, V>(chunk.x, at);
#pragma unroll
        for (int v = 0; v < V; v++) total = joined<KIND>(total, measure<KIND>(widen<C>(in.v[v]), p));
    }
    for (at = whole + threadIdx.x; at < chunk.size; at += THREADS)
        total = joined<KIND>(total, measure<KIND>(widen<C>(chunk.x[at]), p));
    total = of_block<KIND>(total);
    if (threadIdx.x == 0) parts[blockIdx.x] = total;
}

// Calls change(x) for all elements of a chunk.
template <class T, class C, int V, class F> __device__ void change_all(const Chunk<T>& chunk, const F& change) {
    const long long whole = chunk.size - chunk.size % V, step = THREADS * V;
    for (long long at = threadIdx.x * V; at < whole; at += step) {
        Pack<T, V> x = fetch<T, V>(chunk.x, at);
#pragma unroll
        for (int v = 0; v < V; v++) place(x.v[v], change(widen<C>(x.v[v])));
        put(chunk.x, at, x);
    }
    for (long long at = whole + threadIdx.x; at < chunk.size; at += THREADS)
        place(chunk.x[at], change(widen<C>(chunk.x[at])));
}

// result: where the norm goes, or null if another launch writes it.
template <class T, class C, int V, Kind KIND>
__global__ void clip_norm(List list, long long length, double p, double most, int count, const double* parts,
                          T* result) {
    double norm = 0;
    for (int i = threadIdx.x; i < count; i += THREADS) norm = joined<KIND>(norm, parts[i]);
    norm = of_block<KIND>(norm);
    if (KIND == squares) norm = sqrt_of(norm);
    if (KIND == powers) norm = pow(norm, 1 / p);
    if (result != nullptr && blockIdx.x == 0 && threadIdx.x == 0) place(*result, norm);
    const double factor = most / (norm + 1e-6);
    if (factor >= 1) return;  // not for NaN
    for (int chunk = blockIdx.x; chunk < list.first[MOST]; chunk += gridDim.x)
        change_all<T, C, V>(Chunk<T>(list, chunk, length), [&](C x) { return x * (C)factor; });
}

template <class T, class C, int V> __global__ void clip_value(List list, long long length, C most) {
    change_all<T, C, V>(Chunk<T>(list, blockIdx.x, length), [&](C x) { return x > most ? most : x < -most ? -most : x; });
}
