// The part of a row that one thread reads: packs of V elements, SIZE of them at a time. All loads of these SIZE packs
// are issued before the first pack is used.
//
// The thread has the packs at begin, begin + step ... before `end`, and pack `at` lies at a[at * stride]. If `sharers`
// blocks share the row, each takes its turn after SIZE packs. INPUTS is 2 if two rows are read together. KEPT: the
// team's registers hold the whole row. Every thread then has SIZE packs, but the last one may be missing.
#include "types.cuh"

template <class T, int V, int SIZE, int INPUTS, bool KEPT, class I> struct Part {
    static const int WIDTH = V;
    const T *a, *b;
    const I begin, step, end, stride, jump;
    I at;  // the first of the packs in registers
    Held<T, V> of_a[SIZE], of_b[INPUTS == 2 ? SIZE : 1];

    __device__ Part(const T* a, const T* b, I begin, I step, I end, I stride = 1, I sharers = 1)
        : a(a), b(b), begin(begin), step(step), end(end), stride(stride), jump(SIZE * step * sharers), at(begin) {}

    __device__ bool whole() const { return at + (SIZE - 1) * step < end; }
    __device__ bool has(int p) const { return (KEPT && p < SIZE - 1) || at + p * step < end; }
    __device__ void read_one(int p) {
        of_a[p] = hold<T, V>(a, (at + p * step) * stride);
        if (INPUTS == 2) of_b[INPUTS == 2 ? p : 0] = hold<T, V>(b, (at + p * step) * stride);
    }
    __device__ void read() {
        if (!KEPT && whole()) {  // without conditions between the loads
#pragma unroll
            for (int p = 0; p < SIZE; p++) read_one(p);
            return;
        }
#pragma unroll
        for (int p = 0; p < SIZE; p++)
            if (has(p)) read_one(p);
    }

    // Calls use(place, pack, pack of b) for each pack in registers. With one input the two packs are the same.
    template <class C, class F> __device__ __forceinline__ void each(F use) const {
        const bool all = !KEPT && whole();
#pragma unroll
        for (int p = 0; p < SIZE; p++) {
            if (!all && !has(p)) break;
            const Pack<C, V> first = of_a[p].template widened<C>();
            use(at + p * step, first, INPUTS == 2 ? of_b[INPUTS == 2 ? p : 0].template widened<C>() : first);
        }
    }

    // Calls use() each time that packs are in registers, until the row ends. The first ones have been read.
    template <class F> __device__ __forceinline__ void walk(F use) {
        while (at < end) {
            use();
            if (KEPT) return;
            at = end - at > jump ? at + jump : end;  // never more than an int can hold
            read();
        }
    }

    // Begins once more.
    __device__ void rewind() {
        if (KEPT) return;
        at = begin;
        read();
    }
};
