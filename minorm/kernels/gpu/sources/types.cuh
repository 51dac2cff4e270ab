// What all kernels share: four storage types and the type computed in, 16 bytes at a time, and sums in a fixed order.
//
// T is the type an array is stored in, C the type computed in: float for the 16-bit types, unless something else is asked
// for. Elements are widened as they are read and rounded once as they are written.
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

// V neighbours, read and written in one instruction, or as many of 16 bytes as they take: V is 1, 2, 4 or 8.
template <int BYTES> struct Access { static const int bytes = BYTES < 16 ? BYTES : 16; };
template <class T, int V> struct alignas(Access<sizeof(T) * V>::bytes) Pack { T v[V]; };

template <class T, int V, class I> __device__ inline Pack<T, V> fetch(const T* x, I at) {
    return *reinterpret_cast<const Pack<T, V>*>(x + at);
}
template <class T, int V, class I> __device__ inline void put(T* y, I at, const Pack<T, V>& pack) {
    *reinterpret_cast<Pack<T, V>*>(y + at) = pack;
}

// The sum of v over all threads of a warp; every lane gets it. The tree is fixed, so the bits are too.
template <class A> __device__ inline A warp_sum(A v) {
    for (int step = 16; step > 0; step /= 2) v += __shfl_xor_sync(0xffffffffu, v, step);
    return v;
}

// The sums of a and of b over the threads that share a row: a warp, or a block of up to 1024 threads, a multiple of 32.
// In a block each warp leaves its sums in shared memory, and then adds up those of all warps for itself.
template <bool WARP, class A> __device__ inline void add_up(A& a, A& b) {
    a = warp_sum(a);
    b = warp_sum(b);
    if (WARP) return;
    __shared__ A of_warp[2][32];
    __syncthreads();  // what was read of the last sums has been read
    if (threadIdx.x % 32 == 0) {
        of_warp[0][threadIdx.x / 32] = a;
        of_warp[1][threadIdx.x / 32] = b;
    }
    __syncthreads();
    const int warp = threadIdx.x % 32;
    a = warp_sum(warp < blockDim.x / 32 ? of_warp[0][warp] : A(0));
    b = warp_sum(warp < blockDim.x / 32 ? of_warp[1][warp] : A(0));
}

template <bool WARP, class A> __device__ inline A row_sum(A a) {
    A nothing = 0;
    add_up<WARP>(a, nothing);
    return a;
}
