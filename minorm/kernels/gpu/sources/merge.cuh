// Adds up partial sums (parts, results) in an order that depends on their number. SPLITS threads for each result take
// its parts in turn, and their sums are added pairwise in shared memory. Neighbouring threads have neighbouring
// results.
#include "types.cuh"

// Adds up sums in shared memory: PARTS sums for each result, a power of two. The first sum of a result becomes the
// total. Thread r may read the total of result r without waiting for others.
template <int N, int PARTS, int RESULTS> __device__ inline void knock_out(double (&shared)[N][PARTS][RESULTS]) {
    for (int half = PARTS / 2; half > 0; half /= 2) {
        __syncthreads();
        for (int i = threadIdx.x; i < half * RESULTS; i += blockDim.x)
            for (int n = 0; n < N; n++) shared[n][0][i] += shared[n][0][i + half * RESULTS];
    }
}

template <int SPLITS, class I> struct Merge {
    static const int RESULTS = SPLITS < 32 ? 256 / SPLITS : SPLITS < 128 ? 8 : 4, THREADS = SPLITS * RESULTS;
    int split;
    I result;
    __device__ Merge() : split(threadIdx.x / RESULTS), result((I)blockIdx.x * RESULTS + threadIdx.x % RESULTS) {}

    // Computes the totals, in the threads whose `split` is 0.
    template <int N> __device__ void add_up(double (&sums)[N]) const {
        __shared__ double shared[N][SPLITS][RESULTS];
        for (int n = 0; n < N; n++) shared[n][0][threadIdx.x] = sums[n];
        knock_out(shared);
        if (split == 0)
            for (int n = 0; n < N; n++) sums[n] = shared[n][0][threadIdx.x];
    }
};
