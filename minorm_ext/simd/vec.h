/* Vectors of as many numbers as a register holds, on every instruction set.
 *
 * The compiler's vector types let one code serve all processors. gcc splits vectors wider than a register by way of
 * memory: with 64 bytes everywhere, norms on AVX2 took 3 to 7 times as long.
 */
#ifndef MINORM_VEC_H
#define MINORM_VEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#if defined(__AVX2__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#if defined(__AVX512F__)
#define VECTOR_BYTES 64
#elif defined(__AVX2__)
#define VECTOR_BYTES 32
#else
#define VECTOR_BYTES 16
#endif

/* The bytes of partial sums in convolution and matmul: the largest register, or several smaller ones. So the order of a
 * sum, and with it its bits, does not depend on the instruction set. */
#define SUM_BYTES 64

/* 1 if the fma of vec.inc.h is rounded once. Processors with 1 give the same bits in convolution and matmul. */
#if defined(__AVX512F__) || (defined(__AVX2__) && defined(__FMA__)) || defined(__aarch64__)
#define FUSED 1
#else
#define FUSED 0
#endif

#define INLINE inline __attribute__((always_inline))
#define NOINLINE __attribute__((noinline, unused)) /* so that the function has all registers for its vectors */
#define UNROLL _Pragma("GCC unroll 64")

/* The numbers of the elements of a vector, for shuffles and masks. */
#if VECTOR_BYTES == 64
#define COUNT_FLOAT 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
#define COUNT_DOUBLE 0, 1, 2, 3, 4, 5, 6, 7
#elif VECTOR_BYTES == 32
#define COUNT_FLOAT 0, 1, 2, 3, 4, 5, 6, 7
#define COUNT_DOUBLE 0, 1, 2, 3
#else
#define COUNT_FLOAT 0, 1, 2, 3
#define COUNT_DOUBLE 0, 1
#endif

/* Which elements of a vector count. */
typedef struct {
    enum { WHOLE, OVERLAP, NARROW } kind; /* all; first .. end - 1, and others may be read; 0 .. end - 1 alone */
    int first, end;
} minorm_part;

static const minorm_part minorm_whole = {WHOLE, 0, 0};

/* Copy at most 64 bytes, an even number, in few moves. */
static NOINLINE void minorm_copy_some(void *to, const void *from, size_t bytes) {
    char *y = to;
    const char *x = from;
    if (bytes & 64) memcpy(y, x, 64), x += 64, y += 64;
    if (bytes & 32) memcpy(y, x, 32), x += 32, y += 32;
    if (bytes & 16) memcpy(y, x, 16), x += 16, y += 16;
    if (bytes & 8) memcpy(y, x, 8), x += 8, y += 8;
    if (bytes & 4) memcpy(y, x, 4), x += 4, y += 4;
    if (bytes & 2) memcpy(y, x, 2);
}

/* Load the first `end` bytes of a vector; the others become 0. */
static INLINE void minorm_load_some(void *to, const void *from, size_t size, size_t end) {
#if defined(__AVX512BW__) && defined(__AVX512VL__)
    const uint64_t mask = end ? ~0ull >> (64 - end) : 0;
    if (size == 64) _mm512_storeu_si512(to, _mm512_maskz_loadu_epi8(mask, from));
    else _mm256_storeu_si256((__m256i *)to, _mm256_maskz_loadu_epi8((uint32_t)mask, from));
#else
    memset(to, 0, size);
    minorm_copy_some(to, from, end);
#endif
}

#endif
