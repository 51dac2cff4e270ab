/* Stores around the cache: they write memory that no code reads soon, and do not read it into a cache line first.
 *
 * An ordinary store to a line that is not in cache fetches the line first, so writing costs reading too. If the output
 * is larger than the cache, that fetch is a third of the traffic of y = f(x). Only whole lines of 64 bytes go around
 * the cache well: writing half a line takes many times as long.
 */
#ifndef MINORM_STREAM_H
#define MINORM_STREAM_H

#include "simd/vec.h"

/* Prefetch memory that will be read soon, so that it arrives while other code runs. */
static INLINE void minorm_prefetch(const void *from, ptrdiff_t bytes) {
    for (ptrdiff_t i = 0; i < bytes; i += 64) __builtin_prefetch((const char *)from + i, 0, 2);
}

#if defined(__SSE2__)
#include <immintrin.h>

/* Store a vector or half of one around the cache; `to` must be a multiple of `bytes`. 8 bytes are stored as usual. */
static INLINE void minorm_nt_store(void *to, const void *from, size_t bytes) {
#if defined(__AVX512F__)
    if (bytes == 64) _mm512_stream_ps((float *)to, _mm512_loadu_ps((const float *)from));
#endif
#if defined(__AVX__)
    if (bytes == 32) _mm256_stream_ps((float *)to, _mm256_loadu_ps((const float *)from));
#endif
    if (bytes == 16) _mm_stream_ps((float *)to, _mm_loadu_ps((const float *)from));
    if (bytes == 8) memcpy(to, from, 8);
}

/* Make the stores around the cache reach memory before any later store, which may tell other threads of them. */
static inline void minorm_nt_fence(void) { _mm_sfence(); }

#else /* no such stores, or none known here */

static INLINE void minorm_nt_store(void *to, const void *from, size_t bytes) { memcpy(to, from, bytes); }
static inline void minorm_nt_fence(void) {}

#endif

/* Copy bytes to any address, whole lines around the cache. */
static inline void minorm_nt_copy(void *to, const void *from, size_t bytes) {
    size_t i = -(uintptr_t)to % 64, whole;
    if (i > bytes) i = bytes;
    memcpy(to, from, i);
    whole = bytes - (bytes - i) % 64;
    for (; i < whole; i += VECTOR_BYTES) minorm_nt_store((char *)to + i, (const char *)from + i, VECTOR_BYTES);
    memcpy((char *)to + i, (const char *)from + i, bytes - i);
}

/* Write zeros to any address, whole lines around the cache. */
static inline void minorm_nt_clear(void *to, size_t bytes) {
    static const char zeros[4096] __attribute__((aligned(64)));
    for (size_t i = 0; i < bytes; i += sizeof(zeros))
        minorm_nt_copy((char *)to + i, zeros, bytes - i < sizeof(zeros) ? bytes - i : sizeof(zeros));
}

/* Writes memory from its beginning to its end through scratch memory in cache. All but the ends goes around the cache
 * in whole lines; an unfinished line stays in the scratch memory until more data comes. */
typedef struct {
    char *to;      /* the current line of memory */
    char *scratch; /* collects the bytes of that line */
    size_t filled; /* bytes of the line that are collected, plus `skip` */
    size_t skip;   /* first bytes of the line, which are not ours and stay as they are */
} minorm_nt_writer;

/* Begin to write at `to`. The scratch memory has 64 bytes to spare. */
static inline void minorm_nt_writer_open(minorm_nt_writer *writer, void *to, void *scratch) {
    writer->filled = writer->skip = (uintptr_t)to % 64;
    writer->to = (char *)to - writer->filled;
    writer->scratch = (char *)scratch + -(uintptr_t)scratch % 64;
}

/* The place in scratch memory for the next bytes. */
static inline char *minorm_nt_writer_place(minorm_nt_writer *writer) { return writer->scratch + writer->filled; }

/* Send on `bytes` bytes, which the caller has written to that place. */
static inline void minorm_nt_writer_send(minorm_nt_writer *writer, size_t bytes) {
    size_t all = writer->filled + bytes, whole = all - all % 64;
    if (whole) {
        minorm_nt_copy(writer->to + writer->skip, writer->scratch + writer->skip, whole - writer->skip);
        memcpy(writer->scratch, writer->scratch + whole, 64);
        writer->to += whole, writer->skip = 0;
    }
    writer->filled = all - whole;
}

static inline void minorm_nt_writer_close(minorm_nt_writer *writer) {
    memcpy(writer->to + writer->skip, writer->scratch + writer->skip, writer->filled - writer->skip);
}

#endif
