// Uniform random numbers and dropout, made from a generator's blocks; element i has word i.
//
// Philox4x64-10 (reference/random.py): a thread makes one block, four words of 64 bits, and its elements: eight of 32
// bits, or four of 64. A word of 32 bits is half of one of 64, the lower half first.
#include "types.cuh"

// A CUDA graph keeps its arguments, so its blocks lie at `renewed` on the device, which each replay writes anew.
struct Blocks {  // the first one's number is (before + 1, 0, rank, 1), least word first
    unsigned long long before, rank, key[2];
};

struct Block {
    unsigned long long word[4];

    __device__ Block(Blocks of, unsigned long long index) {
        unsigned long long a = of.before + index + 1, b = 0, c = of.rank, d = 1;
#pragma unroll
        for (int round = 0; round < 10; round++) {
            const unsigned long long first = of.key[0] + round * 0x9E3779B97F4A7C15ull;
            const unsigned long long second = of.key[1] + round * 0xBB67AE8584CAA73Bull;
            const unsigned long long high_a = __umul64hi(a, 0xD2E7470EE14C6C93ull), low_a = a * 0xD2E7470EE14C6C93ull;
            const unsigned long long high_c = __umul64hi(c, 0xCA5A826395121157ull), low_c = c * 0xCA5A826395121157ull;
            a = high_c ^ b ^ first;
            b = low_c;
            c = high_a ^ d ^ second;
            d = low_a;
        }
        word[0] = a;
        word[1] = b;
        word[2] = c;
        word[3] = d;
    }

    __device__ unsigned half(int i) const { return (unsigned)(word[i / 2] >> 32 * (i % 2)); }

    // The i-th number on [0, 1): 24 bits of a half, or 53 of a whole word.
    __device__ void fraction(int i, float& to) const { to = (half(i) >> 8) * (1.0f / (1 << 24)); }
    __device__ void fraction(int i, double& to) const { to = (double)(word[i] >> 11) * (1.0 / (1ll << 53)); }
};

// y is on [0, 1); V is 1, or an access of 16 bytes.
template <class C, int V, class I> __global__ void uniform(C* y, I n, Blocks given, const Blocks* renewed) {
    const int ELEMENTS = 32 / sizeof(C);
    const I index = (I)blockIdx.x * blockDim.x + threadIdx.x;
    if (index * ELEMENTS >= n) return;
    const Block block(renewed ? *renewed : given, index);
#pragma unroll
    for (int from = 0; from < ELEMENTS; from += V) {
        const I at = index * ELEMENTS + from;
        Pack<C, V> out;
#pragma unroll
        for (int v = 0; v < V; v++) block.fraction(from + v, out.v[v]);
        if (at + V <= n) put(y, at, out);
        else for (int v = 0; v < V && at + v < n; v++) y[at + v] = out.v[v];
    }
}

// y = x * factor if the element is kept, else x * 0. With DECIDES, elements are kept whose word is at least `limit`,
// and `kept` is written; else `kept` is read. A thread has the eight elements of one block's words.
template <class T, class C, int V, bool DECIDES, class I>
__global__ void dropout(const T* x, bool* kept, T* y, I n, C factor, unsigned limit, Blocks given,
                        const Blocks* renewed) {
    const I index = (I)blockIdx.x * blockDim.x + threadIdx.x;
    if (index * 8 >= n) return;
    unsigned word[8];
    if (DECIDES) {
        const Block block(renewed ? *renewed : given, index);
#pragma unroll
        for (int i = 0; i < 8; i++) word[i] = block.half(i);
    }
#pragma unroll
    for (int from = 0; from < 8; from += V) {
        const I at = index * 8 + from;
        if (at + V <= n) {
            const Pack<T, V> in = fetch<T, V>(x, at);
            Pack<bool, V> chosen;
            if (!DECIDES) chosen = fetch<bool, V>(kept, at);
            Pack<T, V> out;
#pragma unroll
            for (int v = 0; v < V; v++) {
                if (DECIDES) chosen.v[v] = word[from + v] >= limit;
                place(out.v[v], widen<C>(in.v[v]) * (chosen.v[v] ? factor : C(0)));
            }
            if (DECIDES) put(kept, at, chosen);
            put(y, at, out);
        } else {
#pragma unroll
            for (int v = 0; v < V; v++) {
                if (at + v >= n) continue;
                if (DECIDES) kept[at + v] = word[from + v] >= limit;
                place(y[at + v], widen<C>(x[at + v]) * (kept[at + v] ? factor : C(0)));
            }
        }
    }
}
