// Partial sums (parts, results) added up in an order that their number decides: SPLITS threads a result take turns with
// its parts, and their sums meet in shared memory as in a knockout. Neighbouring threads have neighbouring results.
#include "types.cuh"

template <int SPLITS, class I> struct Merge {
    static const int RESULTS = SPLITS < 32 ? 256 / SPLITS : 8, THREADS = SPLITS * RESULTS;
    int split;
    I result;
    __device__ Merge() : split(threadIdx.x / RESULTS), result((I)blockIdx.x * RESULTS + threadIdx.x % RESULTS) {}

    // The totals, in the threads whose `split` is 0.
    template <int N> __device__ void add_up(double (&sums)[N]) const {
        __shared__ double shared[N][THREADS];
        for (int n = 0; n < N; n++) shared[n][threadIdx.x] = sums[n];
        for (int half = THREADS / 2; half >= RESULTS; half /= 2) {
            __syncthreads();
            if (threadIdx.x >= half) continue;
            for (int n = 0; n < N; n++) shared[n][threadIdx.x] += shared[n][threadIdx.x + half];
        }
        for (int n = 0; n < N; n++) sums[n] = shared[n][threadIdx.x];
    }
};
