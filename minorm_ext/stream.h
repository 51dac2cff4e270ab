/* Copies around the cache: memory that nobody reads soon is written without first being read into a cache line.
 *
 * An ordinary store to a line that is not in cache fetches the line first, so writing costs reading too. Where the
 * output is larger than the cache that fetch is a third of the traffic of y = f(x).
 */
#ifndef MINORM_STREAM_H
#define MINORM_STREAM_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Ask for memory that will be read soon, so that it travels while something else is done. */
static inline void minorm_ahead(const char *from, ptrdiff_t bytes) {
    for (ptrdiff_t i = 0; i < bytes; i += 64) __builtin_prefetch(from + i, 0, 2);
}

#if defined(__SSE2__)
#include <immintrin.h>

#if defined(__AVX512F__)
typedef __m512 minorm_line;
#define minorm_line_at _mm512_loadu_ps
#define minorm_stream _mm512_stream_ps
#elif defined(__AVX__)
typedef __m256 minorm_line;
#define minorm_line_at _mm256_loadu_ps
#define minorm_stream _mm256_stream_ps
#else
typedef __m128 minorm_line;
#define minorm_line_at _mm_loadu_ps
#define minorm_stream _mm_stream_ps
#endif

/* Copy bytes to any address: whole lines of 64 go around the cache. Call minorm_stream_end once after the last copy. */
static inline void minorm_stream_copy(void *to, const void *from, size_t bytes) {
    size_t i = -(uintptr_t)to % 64, whole;
    if (i > bytes) i = bytes;
    memcpy(to, from, i);
    whole = bytes - (bytes - i) % 64;
    for (; i < whole; i += sizeof(minorm_line))
        minorm_stream((float *)((char *)to + i), minorm_line_at((const float *)((const char *)from + i)));
    memcpy((char *)to + i, (const char *)from + i, bytes - i);
}

/* The same for a register or half of one, to an address that is a multiple of as much; 8 bytes do not go around. */
static inline void minorm_stream_turn(void *to, const void *from, size_t bytes) {
#if defined(__AVX512F__)
    if (bytes == 64) _mm512_stream_ps((float *)to, _mm512_loadu_ps((const float *)from));
#endif
#if defined(__AVX__)
    if (bytes == 32) _mm256_stream_ps((float *)to, _mm256_loadu_ps((const float *)from));
#endif
    if (bytes == 16) _mm_stream_ps((float *)to, _mm_loadu_ps((const float *)from));
    if (bytes == 8) memcpy(to, from, 8);
}

static inline void minorm_stream_end(void) { _mm_sfence(); }

#else /* no such stores, or none known here */

static inline void minorm_stream_copy(void *to, const void *from, size_t bytes) { memcpy(to, from, bytes); }
static inline void minorm_stream_turn(void *to, const void *from, size_t bytes) { memcpy(to, from, bytes); }
static inline void minorm_stream_end(void) {}

#endif
#endif
