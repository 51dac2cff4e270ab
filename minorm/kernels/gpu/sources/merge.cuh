// Adds up partial sums, in a separate launch or in the last block that has written some.
//
// A separate launch adds up partial sums (parts, results) in an order that depends on their number. SPLITS threads for
// each result take its parts in turn, and their sums are added pairwise in shared memory. Neighbouring threads have
// neighbouring results.
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

// The work of one block in a launch that reads each tile of lanes twice: first for its sums, then for the results. A tile
// is read again `lag` tiles after its first time, when its data is still in the second-level cache. Blocks take work in
// the order of their tickets. A block with sums never waits, and a block with results waits only for blocks with sums
// whose tickets came before its own, so some block can always go on. `counters` begin as 0: the tickets that were given
// out, and for each tile the blocks that have written sums, plus one when the sums are merged.
struct Relay {
    unsigned *counters, *arrived;
    int chunks, tile, chunk;
    bool results;

    __device__ Relay(unsigned* counters, int chunks, int lag) : counters(counters), chunks(chunks) {
        __shared__ unsigned ticket;
        if (threadIdx.x == 0) ticket = atomicAdd(counters, 1u);
        __syncthreads();
        const int tiles = gridDim.x / (2 * chunks), turn = ticket / chunks, after = turn - lag;
        chunk = ticket % chunks;
        if (after < 0) {
            results = false, tile = turn;
        } else if (after < 2 * (tiles - lag)) {
            results = after % 2 == 0, tile = after / 2 + (results ? 0 : lag);
        } else {
            results = true, tile = turn - tiles;
        }
        arrived = counters + 1 + tile;
    }
    // After a block's sums are written: was it the last block of its tile?
    __device__ bool last() const {
        __shared__ bool found;
        __threadfence();
        __syncthreads();
        if (threadIdx.x == 0) found = atomicAdd(arrived, 1u) == (unsigned)chunks - 1;
        __syncthreads();
        __threadfence();
        return found;
    }
    __device__ void publish() const {
        __threadfence();
        __syncthreads();
        if (threadIdx.x == 0) atomicAdd(arrived, 1u);
    }
    __device__ void wait() const {
        if (threadIdx.x == 0)
            while (*(volatile unsigned*)arrived <= (unsigned)chunks) continue;
        __syncthreads();
        __threadfence();
    }
};

// Returns the sum of v over `size` neighbouring threads of a warp, a power of two, to each of them.
__device__ inline double sum_beside(double v, int size) {
    for (int step = 16; step > 0; step /= 2) {
        const double other = __shfl_xor_sync(0xffffffffu, v, step);
        if (step < size) v += other;
    }
    return v;
}
