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

/* A stretch of memory that is written from its beginning to its end by way of a room in cache, so that all but its ends
 * goes around the cache in whole lines: what is left of one stays in the room until more comes. */
typedef struct {
    char *to;    /* a line of memory */
    char *room;  /* where what goes there is collected */
    size_t held; /* bytes of the line that are there, or are not ours */
    size_t skip; /* of these are not ours */
} minorm_outbox;

/* The stretch begins at `to`. The room has 64 bytes to spare. */
static inline void minorm_outbox_open(minorm_outbox *out, void *to, void *room) {
    out->held = out->skip = (uintptr_t)to % 64;
    out->to = (char *)to - out->held;
    out->room = (char *)room + -(uintptr_t)room % 64;
}

/* Where to write what comes next. */
static inline char *minorm_outbox_place(minorm_outbox *out) { return out->room + out->held; }

/* So many bytes were written there. */
static inline void minorm_outbox_send(minorm_outbox *out, size_t bytes) {
    size_t all = out->held + bytes, whole = all - all % 64;
    if (whole) {
        minorm_stream_copy(out->to + out->skip, out->room + out->skip, whole - out->skip);
        memcpy(out->room, out->room + whole, 64);
        out->to += whole, out->skip = 0;
    }
    out->held = all - whole;
}

static inline void minorm_outbox_close(minorm_outbox *out) {
    memcpy(out->to + out->skip, out->room + out->skip, out->held - out->skip);
}

#endif
