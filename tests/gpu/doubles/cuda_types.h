// The parts of cuda_fp16.h, cuda_bf16.h and the vector types that kernels use, for g++. Conversions round to the
// nearest even.
#include <cstdint>

struct alignas(16) uint4 { unsigned x, y, z, w; };
struct alignas(8) uint2 { unsigned x, y; };
struct alignas(16) float4 { float x, y, z, w; };

struct __half { unsigned short bits; };
struct __nv_bfloat16 { unsigned short bits; };

inline unsigned long long double_bits(double v) { unsigned long long u; std::memcpy(&u, &v, 8); return u; }

// A double as a float of `mantissa` bits and exponents from `lowest` on, ties to even: so many bits of the quotient.
inline unsigned short narrowed(double v, int mantissa, int lowest, int highest) {
    unsigned sign = (double_bits(v) >> 63) << 15;
    if (std::isnan(v)) return sign | 0x7fff;
    v = std::fabs(v);
    int exponent = v > 0 ? std::max(std::ilogb(v), lowest) : lowest;
    double units = std::isinf(v) ? INFINITY : std::nearbyint(std::ldexp(v, mantissa - exponent));
    if (units >= (2 << mantissa)) { units /= 2; exponent++; }
    if (exponent > highest || std::isinf(units)) return sign | (unsigned)(highest - lowest + 2) << mantissa;
    if (units < (1 << mantissa)) return sign | (unsigned)units;  // subnormal
    return sign | (((unsigned)(exponent - lowest) << mantissa) + (unsigned)units);  // units has the leading one
}

inline double widened(unsigned short bits, int mantissa, int lowest, int highest) {
    int exponent = (bits & 0x7fff) >> mantissa, fraction = bits & ((1 << mantissa) - 1);
    double sign = bits & 0x8000 ? -1.0 : 1.0;
    if (exponent == highest - lowest + 2) return fraction ? NAN : sign * INFINITY;
    if (exponent == 0) return sign * std::ldexp((double)fraction, lowest - mantissa);
    return sign * std::ldexp((double)(fraction + (1 << mantissa)), lowest + exponent - 1 - mantissa);
}

inline __half __float2half_rn(float v) { return {narrowed(v, 10, -14, 15)}; }
inline __half __double2half(double v) { return {narrowed(v, 10, -14, 15)}; }
inline float __half2float(__half v) { return widened(v.bits, 10, -14, 15); }
inline __nv_bfloat16 __float2bfloat16_rn(float v) { return {narrowed(v, 7, -126, 127)}; }
inline __nv_bfloat16 __double2bfloat16(double v) { return {narrowed(v, 7, -126, 127)}; }
inline float __bfloat162float(__nv_bfloat16 v) { return widened(v.bits, 7, -126, 127); }
struct alignas(4) __half2 { __half x, y; };
struct alignas(4) __nv_bfloat162 { __nv_bfloat16 x, y; };
inline __half2 __floats2half2_rn(float a, float b) { return {__float2half_rn(a), __float2half_rn(b)}; }
inline __nv_bfloat162 __floats2bfloat162_rn(float a, float b) { return {__float2bfloat16_rn(a), __float2bfloat16_rn(b)}; }
inline __half __ushort_as_half(unsigned short v) { return {v}; }
inline float __uint_as_float(unsigned v) { float f; std::memcpy(&f, &v, 4); return f; }


inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) { return (unsigned __int128)a * b >> 64; }
inline void __threadfence() {}  // blocks run one after the other
inline int __float_as_int(float v) { int i; std::memcpy(&i, &v, 4); return i; }
// Rounded products that are no part of a fused multiply-add: the compiler cannot look through the empty instruction.
inline float __fmul_rn(float a, float b) { float c = a * b; asm("" : "+x"(c)); return c; }
inline double __dmul_rn(double a, double b) { double c = a * b; asm("" : "+x"(c)); return c; }
inline float __fdividef(float a, float b) { return a / b; }  // on a device off by 2 units of the last place
inline double rsqrt(double v) { return 1.0 / std::sqrt(v); }

namespace shim {
// Arguments as cuLaunchKernel takes them: one pointer to each. `sizes` tells how many bytes each should have.
template <class... A, size_t... I>
void invoke(void (*kernel)(A...), void** arguments, std::index_sequence<I...>) {
    kernel(*(typename std::remove_cv<A>::type*)arguments[I]...);
}
extern "C" __attribute__((visibility("hidden"))) char __bss_start[], _end[];  // around the __shared__ variables
template <class... A>
int launch(void (*kernel)(A...), unsigned* grid, int threads, unsigned seed, void** arguments, int blocks, int dynamic) {
    auto call = [=] { invoke(kernel, arguments, std::index_sequence_for<A...>()); };
    const dim3 size(grid[0], grid[1], grid[2]);
    if (blocks == 0) return run(size, threads, seed, call);
    const auto run_one = [](void* k) { (*static_cast<decltype(call)*>(k))(); };
    return run_clusters(size, threads, seed, run_one, &call, blocks, dynamic, __bss_start, _end);
}
template <class... A>
int sizes(void (*)(A...), int* out) {
    int values[] = {(int)sizeof(A)..., 0};
    std::copy(values, values + sizeof...(A), out);
    return sizeof...(A);
}
}
