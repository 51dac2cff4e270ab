// The code that all kernels share: four storage types and the type computed in, accesses of 16 bytes, and sums in a
// fixed order.
//
// T is the type an array is stored in, C the type computed in: by default float for the 16-bit types. Elements are
// widened as they are read and rounded once as they are written.
#include <cuda_fp16.h>
#include <cuda_bf16.h>

template <class C> __device__ inline C widen(float v) { return v; }
template <class C> __device__ inline C widen(double v) { return (C)v; }
template <class C> __device__ inline C widen(__half v) { return __half2float(v); }
template <class C> __device__ inline C widen(__nv_bfloat16 v) { return __bfloat162float(v); }

__device__ inline void place(float& to, double v) { to = (float)v; }
__device__ inline void place(float& to, float v) { to = v; }
__device__ inline void place(double& to, double v) { to = v; }
__device__ inline void place(__half& to, float v) { to = __float2half_rn(v); }
__device__ inline void place(__half& to, double v) { to = __double2half(v); }
__device__ inline void place(__nv_bfloat16& to, float v) { to = __float2bfloat16_rn(v); }
__device__ inline void place(__nv_bfloat16& to, double v) { to = __double2bfloat16(v); }

// V neighbours, read and written in one instruction, or in several of 16 bytes: V is 1, 2, 4 or 8.
template <int BYTES> struct Access { static const int bytes = BYTES < 16 ? BYTES : 16; };
template <class T, int V> struct alignas(Access<sizeof(T) * V>::bytes) Pack { T v[V]; };

template <class T, int V, class I> __device__ inline Pack<T, V> fetch(const T* x, I at) {
    return *reinterpret_cast<const Pack<T, V>*>(x + at);
}
template <class T, int V, class I> __device__ inline void put(T* y, I at, const Pack<T, V>& pack) {
    *reinterpret_cast<Pack<T, V>*>(y + at) = pack;
}

// Rounds v to type T.
template <class T, class C> __device__ inline C rounded(C v) {
    T stored;
    place(stored, v);
    return widen<C>(stored);
}

// Two 16-bit numbers in a register: half_of reads one of them, and halves makes the register from two numbers.
__device__ inline float half_of(unsigned word, bool high, const __nv_bfloat16*) {
    return __uint_as_float(high ? word & 0xffff0000u : word << 16);
}
__device__ inline float half_of(unsigned word, bool high, const __half*) {
    return __half2float(__ushort_as_half((unsigned short)(high ? word >> 16 : word)));
}
__device__ inline unsigned halves(float low, float high, const __nv_bfloat16*) {
    const __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<const unsigned*>(&both);
}
__device__ inline unsigned halves(float low, float high, const __half*) {
    const __half2 both = __floats2half2_rn(low, high);
    return *reinterpret_cast<const unsigned*>(&both);
}
template <class T> __device__ inline unsigned halves(double low, double high, const T*) {
    T both[2];
    place(both[0], low);
    place(both[1], high);
    return *reinterpret_cast<const unsigned short*>(both) | *reinterpret_cast<const unsigned short*>(both + 1) << 16;
}

// V neighbours in their stored form, which are loaded and not used yet. A register holds two 16-bit numbers; in a Pack
// it would hold one.
template <class T, int V, bool HALVES = sizeof(T) == 2 && V % 2 == 0> struct Held {
    Pack<T, V> kept;
    template <class C> __device__ Pack<C, V> widened() const {
        Pack<C, V> found;
#pragma unroll
        for (int v = 0; v < V; v++) found.v[v] = widen<C>(kept.v[v]);
        return found;
    }
    template <class C> __device__ void round(const Pack<C, V>& from) {
#pragma unroll
        for (int v = 0; v < V; v++) place(kept.v[v], from.v[v]);
    }
};
template <class T, int V> struct alignas(2 * V) Held<T, V, true> {
    unsigned words[V / 2];
    template <class C> __device__ Pack<C, V> widened() const {
        Pack<C, V> found;
#pragma unroll
        for (int v = 0; v < V; v++) found.v[v] = (C)half_of(words[v / 2], v % 2, (const T*)nullptr);
        return found;
    }
    template <class C> __device__ void round(const Pack<C, V>& from) {
#pragma unroll
        for (int v = 0; v < V; v += 2) words[v / 2] = halves(from.v[v], from.v[v + 1], (const T*)nullptr);
    }
};
template <class T, int V, class I> __device__ inline Held<T, V> hold(const T* x, I at) {
    return *reinterpret_cast<const Held<T, V>*>(x + at);
}
template <class T, int V, class C, class I> __device__ inline void put_rounded(T* y, I at, const Pack<C, V>& pack) {
    Held<T, V> held;
    held.round(pack);
    *reinterpret_cast<Held<T, V>*>(y + at) = held;
}

// The number of packs of V that a thread loads before it uses the first: enough bytes in flight for the memory's rate.
template <class T, int V, int BYTES> struct Batch {
    static const int FIT = BYTES / (int)(sizeof(T) * V), SIZE = FIT > 8 ? 8 : FIT < 2 ? 2 : FIT;
};

// Calls f(0), f(1) ... f(E - 1), unrolled even if f is long, so that arrays indexed by the number stay in registers.
template <int E> struct Unrolled {
    template <class F> static __device__ __forceinline__ void run(F&& f) {
        Unrolled<E - 1>::run(f);
        f(E - 1);
    }
};
template <> struct Unrolled<0> {
    template <class F> static __device__ __forceinline__ void run(F&&) {}
};

// Returns the sum of v over LANES neighbouring threads of a warp to each of them. The tree is fixed, and so are the
// bits.
template <int LANES = 32, class A> __device__ inline A warp_sum(A v) {
#pragma unroll
    for (int step = LANES / 2; step > 0; step /= 2) v += __shfl_xor_sync(0xffffffffu, v, step);
    return v;
}

// Computes the sums of N values over a team: LANES threads of a warp, or, if LANES is 0, a block of 32, 64, 128 ...
// 1024. A warp adds up in the input type C. In a block each warp then writes its sums to shared memory, in type A, and
// each warp adds up the sums of all warps.
template <int LANES, int N, class C, class A> __device__ inline void add_up_team(const C (&values)[N], A (&sums)[N]) {
#pragma unroll
    for (int n = 0; n < N; n++) sums[n] = warp_sum<LANES ? LANES : 32>(values[n]);
    if (LANES) return;
    __shared__ A of_warp[N][32];
    __syncthreads();  // all reads of the previous sums are done
    if (threadIdx.x % 32 == 0)
        for (int n = 0; n < N; n++) of_warp[n][threadIdx.x / 32] = sums[n];
    __syncthreads();
    const int warps = blockDim.x / 32, warp = threadIdx.x % warps;
#pragma unroll
    for (int n = 0; n < N; n++) sums[n] = of_warp[n][warp];
    for (int step = warps / 2; step > 0; step /= 2)
#pragma unroll
        for (int n = 0; n < N; n++) sums[n] += __shfl_xor_sync(0xffffffffu, sums[n], step);
}

template <int LANES, class A> __device__ inline A team_sum(A value) {
    const A values[1] = {value};
    A sums[1];
    add_up_team<LANES>(values, sums);
    return sums[0];
}

// Returns whether `so` is true for at least one team of the warp. The teams of a warp always add up together.
template <int LANES> __device__ inline bool any_team(bool so) {
    int teams = so;
#pragma unroll
    for (int step = LANES; step > 0 && step < 32; step *= 2) teams += __shfl_xor_sync(0xffffffffu, teams, step);
    return teams > 0;
}

// The sums over a warp or a block.
template <bool WARP, int N, class C, class A> __device__ inline void add_up(const C (&values)[N], A (&sums)[N]) {
    add_up_team<WARP ? 32 : 0>(values, sums);
}
template <bool WARP, class A> __device__ inline A row_sum(A value) { return team_sum<WARP ? 32 : 0>(value); }
