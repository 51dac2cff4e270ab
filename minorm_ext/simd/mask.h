/* Arrays in which only some elements count. A mask has a byte for each element: 1 if it counts, else 0. */
#ifndef MINORM_MASK_H
#define MINORM_MASK_H

#include "simd/vec.h"
#if defined(__SSE2__)
#include <immintrin.h>
#endif

#define ALL_EIGHT 0x0101010101010101u /* eight bytes of a mask that all count */

/* The number of elements of eight that count: the multiplication adds up the bytes. */
static INLINE ptrdiff_t minorm_counted_of_eight(uint64_t eight) { return (ptrdiff_t)(eight * ALL_EIGHT >> 56); }

/* The number of elements of n that count. */
static NOINLINE ptrdiff_t minorm_counted(const uint8_t *mask, ptrdiff_t n) {
    uint64_t eight;
    ptrdiff_t i = 0, count = 0;
    for (; i + 8 <= n; i += 8) {
        memcpy(&eight, mask + i, 8);
        count += minorm_counted_of_eight(eight);
    }
    for (; i < n; i++) count += mask[i];
    return count;
}

/* This many elements are looked at together. */
#if defined(__AVX512BW__) && defined(__AVX512VL__)
enum { MINORM_SOME_f = 16, MINORM_SOME_d = 8 };
#else
enum { MINORM_SOME_f = 8, MINORM_SOME_d = 8 };
#endif

/* Store the elements that count side by side, and return their number; the numbers stored after them mean nothing. */
static INLINE ptrdiff_t minorm_gather_some_f(const float *from, const uint8_t *mask, float *to) {
#if defined(__AVX512BW__) && defined(__AVX512VL__)
    const __m128i bytes = _mm_loadu_si128((const __m128i *)mask);
    const __mmask16 counts = _mm_test_epi8_mask(bytes, bytes);
    _mm512_storeu_ps(to, _mm512_maskz_compress_ps(counts, _mm512_loadu_ps(from)));
    return __builtin_popcount(counts);
#elif defined(__AVX2__) && defined(__BMI2__)
    uint64_t eight;
    memcpy(&eight, mask, 8);
    const uint64_t order = _pext_u64(0x0706050403020100u, eight * 255);
    const __m256i places = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128((int64_t)order));
    _mm256_storeu_ps(to, _mm256_permutevar8x32_ps(_mm256_loadu_ps(from), places));
    return minorm_counted_of_eight(eight);
#else
    ptrdiff_t count = 0;
    for (int i = 0; i < 8; i++) {
        to[count] = from[i];
        count += mask[i];
    }
    return count;
#endif
}

static INLINE ptrdiff_t minorm_gather_some_d(const double *from, const uint8_t *mask, double *to) {
#if defined(__AVX512BW__) && defined(__AVX512VL__)
    const __m128i bytes = _mm_loadl_epi64((const __m128i *)mask);
    const __mmask8 counts = (__mmask8)_mm_test_epi8_mask(bytes, bytes);
    _mm512_storeu_pd(to, _mm512_maskz_compress_pd(counts, _mm512_loadu_pd(from)));
    return __builtin_popcount(counts);
#else
    ptrdiff_t count = 0;
    for (int i = 0; i < 8; i++) {
        to[count] = from[i];
        count += mask[i];
    }
    return count;
#endif
}

/* All bits set in the numbers of a vector that count. (On its own, gcc would convert the bytes through memory.) */
static INLINE void minorm_spread_f(const uint8_t *mask, int32_t *bits) {
#if defined(__AVX512BW__) && defined(__AVX512VL__)
    const __m128i bytes = _mm_loadu_si128((const __m128i *)mask);
    _mm512_storeu_si512(bits, _mm512_maskz_set1_epi32(_mm_test_epi8_mask(bytes, bytes), -1));
#elif defined(__AVX2__)
    const __m256i numbers = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)mask));
    _mm256_storeu_si256((__m256i *)bits, _mm256_sub_epi32(_mm256_setzero_si256(), numbers));
#elif defined(__SSE2__)
    const __m128i zero = _mm_setzero_si128();
    int32_t four;
    memcpy(&four, mask, 4);
    const __m128i numbers = _mm_unpacklo_epi16(_mm_unpacklo_epi8(_mm_cvtsi32_si128(four), zero), zero);
    _mm_storeu_si128((__m128i *)bits, _mm_sub_epi32(zero, numbers));
#else
    for (int i = 0; i < VECTOR_BYTES / 4; i++) bits[i] = -mask[i];
#endif
}

static INLINE void minorm_spread_d(const uint8_t *mask, int64_t *bits) {
#if defined(__AVX512BW__) && defined(__AVX512VL__)
    const __m128i bytes = _mm_loadl_epi64((const __m128i *)mask);
    _mm512_storeu_si512(bits, _mm512_maskz_set1_epi64((__mmask8)_mm_test_epi8_mask(bytes, bytes), -1));
#elif defined(__AVX2__)
    int32_t four;
    memcpy(&four, mask, 4);
    const __m256i numbers = _mm256_cvtepu8_epi64(_mm_cvtsi32_si128(four));
    _mm256_storeu_si256((__m256i *)bits, _mm256_sub_epi64(_mm256_setzero_si256(), numbers));
#else
    UNROLL for (int i = 0; i < VECTOR_BYTES / 8; i++) bits[i] = -(int64_t)mask[i];
#endif
}

#define REAL float
#define INTEGER int32_t
#define NAME(stem) stem##_f
#include "simd/mask.inc.h"

#define REAL double
#define INTEGER int64_t
#define NAME(stem) stem##_d
#include "simd/mask.inc.h"

#endif
