// Reads arrays that lie alike in batches: all loads of a batch are in flight before the first number is used.
#include "loops.cuh"

// A thread's terms `at`, at + step ... before `end`, SIZE packs of V at a time from each of the first A arrays. `from` is
// the place of the result that they belong to.
template <int A, int SIZE, class T, class I, int V, int N> struct Batches {
    const T *first, *second, *third;
    Cursor<N, I> cursor;
    const I from, step, end;
    I at;
    Held<T, V> packs[A][SIZE];
    Place<I> terms[SIZE];  // `data` counts from the beginning of the arrays

    __device__ Batches(const Loops<I>& loops, const T* first, const T* second, const T* third, I from, I at, I step, I end)
        : first(first), second(second), third(third), cursor(loops, at, step), from(from), step(step), end(end), at(at) {}
    __device__ bool some() const { return at < end; }
    __device__ bool whole() const { return at + (SIZE - 1) * step < end; }
    __device__ void next() { at += step * SIZE; }

    __device__ void fetch_one(int u) {
        packs[0][u] = hold<T, V>(first, terms[u].data);
        if (A > 1) packs[A > 1][u] = hold<T, V>(second, terms[u].data);
        if (A > 2) packs[A > 2 ? 2 : 0][u] = hold<T, V>(third, terms[u].data);
    }
    __device__ void fetch() {
#pragma unroll
        for (int u = 0; u < SIZE; u++, cursor.advance()) {
            terms[u] = cursor.place;
            terms[u].data += from;
        }
        if (whole()) {  // without branches between the loads
#pragma unroll
            for (int u = 0; u < SIZE; u++) fetch_one(u);
            return;
        }
#pragma unroll
        for (int u = 0; u < SIZE; u++)
            if (at + u * step < end) fetch_one(u);
    }
    // Calls use(u) for each pack of the batch that has a term.
    template <class F> __device__ __forceinline__ void each(F use) const {
        const bool all = whole();
#pragma unroll
        for (int u = 0; u < SIZE; u++) {
            if (!all && at + u * step >= end) break;
            use(u);
        }
    }
    template <class C> __device__ Pack<C, V> of(int a, int u) const { return packs[a][u].template widened<C>(); }
};
