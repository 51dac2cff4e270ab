/* Converts the four types that data is stored in: widens them to the type computed in, and rounds back, to nearest
   even.
 *
 * half  (float16)   1 sign, 5 exponent, 10 mantissa bits
 * bfloat (bfloat16) 1, 8, 7: the upper half of a float
 *
 * The code rounds by arithmetic on the bits, so that it is the same on every instruction set. A processor that converts
 * halves itself gives the same bits (except those of NaN). gcc makes vectors of the other loops.
 */
#ifndef MINORM_CONVERT_H
#define MINORM_CONVERT_H

#include <math.h>

#include "simd/vec.h"
#if defined(__SSE2__)
#include <immintrin.h>
#endif

static inline uint32_t minorm_bits(float f) { uint32_t u; memcpy(&u, &f, 4); return u; }
static inline float minorm_float(uint32_t u) { float f; memcpy(&f, &u, 4); return f; }

/* Exponents differ by 112: multiplying by 2^112 brings normal and subnormal halves alike to their value. */
static inline float minorm_wide_half(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, rest = (uint32_t)(h & 0x7fff) << 13;
    uint32_t finite = minorm_bits(minorm_float(rest) * 0x1p112f), special = rest | 0x7f800000;
    return minorm_float(sign | (rest >= 0x0f800000 ? special : finite));
}

/* Below the smallest normal half, adding 0.5 leaves the bits of the half at the end of the sum, and rounds them. */
static inline uint16_t minorm_narrow_half(float f) {
    uint32_t u = minorm_bits(f), sign = u >> 16 & 0x8000, rest = u & 0x7fffffff;
    uint32_t small = minorm_bits(minorm_float(rest < 0x38800000 ? rest : 0) + 0.5f) - 0x3f000000;
    uint32_t normal = (rest - 0x38000000 + 0xfff + (rest >> 13 & 1)) >> 13;
    uint32_t large = rest > 0x7f800000 ? 0x7e00 : 0x7c00;
    return (uint16_t)(sign | (rest < 0x38800000 ? small : rest >= 0x47800000 ? large : normal));
}

static inline float minorm_wide_bfloat(uint16_t h) { return minorm_float((uint32_t)h << 16); }

static inline uint16_t minorm_narrow_bfloat(float f) {
    uint32_t u = minorm_bits(f), nan = -(uint32_t)((u & 0x7fffffff) > 0x7f800000);
    uint32_t up = 0x7fff + (u >> 16 & 1);
    return (uint16_t)(((u + (up & ~nan)) | (nan & 0x400000)) >> 16);
}

/* A double as a float that rounds to the same 16 bits: truncated, with the last bit set if bits were lost. */
static inline float minorm_odd(double d) {
    float f = (float)d;
    uint32_t u = minorm_bits(f);
    uint32_t step = fabs(d) > fabs((double)f) ? 1 : (uint32_t)-1;
    return minorm_float((double)f != d && f == f && !(u & 1) ? u + step : u);
}

typedef enum { MINORM_HALF, MINORM_BFLOAT, MINORM_SINGLE, MINORM_DOUBLE } minorm_type;

/* An array: its address, its type, and how loops read or write it. */
typedef struct {
    char *items;      /* NULL: no such data */
    minorm_type type; /* that it is stored in */
    bool direct;      /* loops use it in its own place: it has the type computed in, or 16 bits that they widen */
    bool nontemporal; /* results go around the cache */
    bool uncached;    /* the data is read from memory, not from cache */
    const uint8_t *mask; /* a byte for each element, 1 where it counts; NULL: all count */
    double fill;      /* the loops see this in place of elements that do not count */
    double floor;     /* results at or below this number become it: 0 is max(y, 0), -INFINITY changes nothing */
    ptrdiff_t other;  /* distance from each element to one that goes with it, or ALONE: see norm/stores.inc.h */
    ptrdiff_t copy;   /* distance to where a copy of each element goes, as it was read with that other, or ALONE */
} minorm_data;

#define ALONE PTRDIFF_MIN

/* A vector of floats. If the processor has vectors that convert, loops WIDEN 16 bits as they go. These functions must
 * be inlined; on its own, gcc inlines them in some loops and not in others. Other processors convert a chunk at a time.
 */
#if defined(__AVX2__)
#define WIDEN 1
#else
#define WIDEN 0
#endif

enum { MINORM_FLOATS = VECTOR_BYTES / sizeof(float) };

static INLINE void minorm_widen_vector_half(const uint16_t *from, float *to) {
#if defined(__AVX512F__)
    _mm512_storeu_ps(to, _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)from)));
#elif defined(__AVX2__)
    _mm256_storeu_ps(to, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)from)));
#else
    for (int i = 0; i < MINORM_FLOATS; i++) to[i] = minorm_wide_half(from[i]);
#endif
}

static INLINE void minorm_narrow_vector_half(const float *from, uint16_t *to) {
#if defined(__AVX512F__)
    _mm256_storeu_si256((__m256i *)to, _mm512_cvtps_ph(_mm512_loadu_ps(from), _MM_FROUND_TO_NEAREST_INT));
#elif defined(__AVX2__)
    _mm_storeu_si128((__m128i *)to, _mm256_cvtps_ph(_mm256_loadu_ps(from), _MM_FROUND_TO_NEAREST_INT));
#else
    for (int i = 0; i < MINORM_FLOATS; i++) to[i] = minorm_narrow_half(from[i]);
#endif
}

/* On its own, gcc makes vectors of these two, but moves them through the stack instead of keeping them in registers. */
static INLINE void minorm_widen_vector_bfloat(const uint16_t *from, float *to) {
#if defined(__AVX512F__)
    __m512i u = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)from));
    _mm512_storeu_ps(to, _mm512_castsi512_ps(_mm512_slli_epi32(u, 16)));
#elif defined(__AVX2__)
    __m256i u = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)from));
    _mm256_storeu_ps(to, _mm256_castsi256_ps(_mm256_slli_epi32(u, 16)));
#elif defined(__SSE2__)
    const __m128i u = _mm_loadl_epi64((const __m128i *)from);
    _mm_storeu_si128((__m128i *)to, _mm_unpacklo_epi16(_mm_setzero_si128(), u));
#else
    for (int i = 0; i < MINORM_FLOATS; i++) to[i] = minorm_wide_bfloat(from[i]);
#endif
}

static INLINE void minorm_narrow_vector_bfloat(const float *from, uint16_t *to) {
#if defined(__AVX512F__)
    const __m512i one = _mm512_set1_epi32(1), half = _mm512_set1_epi32(0x7fff), quiet = _mm512_set1_epi32(0x400000);
    __m512 f = _mm512_loadu_ps(from);
    __m512i u = _mm512_castps_si512(f);
    __m512i up = _mm512_add_epi32(half, _mm512_and_si512(_mm512_srli_epi32(u, 16), one));
    __mmask16 number = _mm512_cmp_ps_mask(f, f, _CMP_ORD_Q);
    u = _mm512_mask_add_epi32(_mm512_or_si512(u, quiet), number, u, up);
    _mm256_storeu_si256((__m256i *)to, _mm512_cvtepi32_epi16(_mm512_srli_epi32(u, 16)));
#elif defined(__AVX2__)
    const __m256i one = _mm256_set1_epi32(1), half = _mm256_set1_epi32(0x7fff), quiet = _mm256_set1_epi32(0x400000);
    __m256 f = _mm256_loadu_ps(from);
    __m256i u = _mm256_castps_si256(f), number = _mm256_castps_si256(_mm256_cmp_ps(f, f, _CMP_ORD_Q));
    __m256i up = _mm256_add_epi32(half, _mm256_and_si256(_mm256_srli_epi32(u, 16), one));
    u = _mm256_blendv_epi8(_mm256_or_si256(u, quiet), _mm256_add_epi32(u, up), number);
    u = _mm256_srli_epi32(u, 16);
    _mm_storeu_si128((__m128i *)to, _mm_packus_epi32(_mm256_castsi256_si128(u), _mm256_extracti128_si256(u, 1)));
#else
    for (int i = 0; i < MINORM_FLOATS; i++) to[i] = minorm_narrow_bfloat(from[i]);
#endif
}

/* n elements of `type`, in float. */
static NOINLINE void minorm_widen_f(minorm_type type, const void *from, float *restrict to, ptrdiff_t n) {
    const uint16_t *restrict bits = from;
    ptrdiff_t i = 0;
    if (type == MINORM_HALF) {
        for (; WIDEN && i + MINORM_FLOATS <= n; i += MINORM_FLOATS) minorm_widen_vector_half(bits + i, to + i);
        for (; i < n; i++) to[i] = minorm_wide_half(bits[i]);
    } else {
        for (; WIDEN && i + MINORM_FLOATS <= n; i += MINORM_FLOATS) minorm_widen_vector_bfloat(bits + i, to + i);
        for (; i < n; i++) to[i] = minorm_wide_bfloat(bits[i]);
    }
}

static NOINLINE void minorm_narrow_f(minorm_type type, const float *restrict from, void *to, ptrdiff_t n) {
    uint16_t *restrict bits = to;
    ptrdiff_t i = 0;
    if (type == MINORM_HALF) {
        for (; WIDEN && i + MINORM_FLOATS <= n; i += MINORM_FLOATS) minorm_narrow_vector_half(from + i, bits + i);
        for (; i < n; i++) bits[i] = minorm_narrow_half(from[i]);
    } else {
        for (; WIDEN && i + MINORM_FLOATS <= n; i += MINORM_FLOATS) minorm_narrow_vector_bfloat(from + i, bits + i);
        for (; i < n; i++) bits[i] = minorm_narrow_bfloat(from[i]);
    }
}

/* The same in double. */
static NOINLINE void minorm_widen_d(minorm_type type, const void *from, double *restrict to, ptrdiff_t n) {
    const uint16_t *restrict bits = from;
    const float *restrict floats = from;
    if (type == MINORM_HALF) for (ptrdiff_t i = 0; i < n; i++) to[i] = minorm_wide_half(bits[i]);
    else if (type == MINORM_BFLOAT) for (ptrdiff_t i = 0; i < n; i++) to[i] = minorm_wide_bfloat(bits[i]);
    else for (ptrdiff_t i = 0; i < n; i++) to[i] = floats[i];
}

static NOINLINE void minorm_narrow_d(minorm_type type, const double *restrict from, void *to, ptrdiff_t n) {
    uint16_t *restrict bits = to;
    float *restrict floats = to;
    if (type == MINORM_HALF) for (ptrdiff_t i = 0; i < n; i++) bits[i] = minorm_narrow_half(minorm_odd(from[i]));
    if (type == MINORM_BFLOAT) for (ptrdiff_t i = 0; i < n; i++) bits[i] = minorm_narrow_bfloat(minorm_odd(from[i]));
    if (type == MINORM_SINGLE) for (ptrdiff_t i = 0; i < n; i++) floats[i] = (float)from[i];
}

#endif
