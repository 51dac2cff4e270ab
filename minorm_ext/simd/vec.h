/* A turn: as many elements as a register holds. Vectors of that size say what is meant on every instruction set, and
 * what is local to a small function stays in registers. (Wider ones gcc takes apart: with vectors of 64 bytes
 * everywhere, norms on AVX2 took 3 to 7 times as long.) They are in the type computed in, float or double; in memory
 * they are in the type stored in, S: float, double, half or bfloat.
 *
 *     minorm_load_turn_S(from, &v)     widen a turn
 *     minorm_load_one_S(from, &t)      one element
 *     minorm_store_S(to, &v)           round a turn
 *     minorm_send_S(to, &v)            the same around the cache; `to` is a multiple of as many bytes as it writes
 *     minorm_store_some_S(to, &v, first, end)  round it, and store its elements first .. end - 1 where they belong
 *     minorm_store_one_S(to, &t)       one
 */
#ifndef MINORM_TURN_H
#define MINORM_TURN_H

#include "simd/convert.h"
#include "simd/stream.h"

#define VECTOR_BYTES MINORM_BYTES
#define INLINE inline __attribute__((always_inline))

#define MINORM_TURN_OF(T, I, C)                                                                                    \
    typedef T minorm_turn_##C __attribute__((vector_size(MINORM_BYTES), aligned(sizeof(T)), may_alias));           \
    typedef I minorm_turn_i##C __attribute__((vector_size(MINORM_BYTES), aligned(sizeof(T)), may_alias));          \
    typedef T minorm_8##C __attribute__((vector_size(8 * sizeof(T)), aligned(sizeof(T)), may_alias));              \
    typedef T minorm_4##C __attribute__((vector_size(4 * sizeof(T)), aligned(sizeof(T)), may_alias));

MINORM_TURN_OF(float, int32_t, f)
MINORM_TURN_OF(double, int64_t, d)

/* All bits of the elements first .. end - 1 of a turn. */
static const int32_t minorm_places_f[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
static const int64_t minorm_places_d[8] = {0, 1, 2, 3, 4, 5, 6, 7};
#define MINORM_PLACES(C) (*(const minorm_turn_i##C *)minorm_places_##C)
#define MINORM_SOME_f(first, end) ((MINORM_PLACES(f) >= (int32_t)(first)) & (MINORM_PLACES(f) < (int32_t)(end)))
#define MINORM_SOME_d(first, end) ((MINORM_PLACES(d) >= (int64_t)(first)) & (MINORM_PLACES(d) < (int64_t)(end)))

/* At most 64 bytes, an even number, in few moves. */
MINORM_APART void minorm_copy_some(void *to, const void *from, size_t bytes) {
    char *y = to;
    const char *x = from;
    if (bytes & 64) memcpy(y, x, 64), x += 64, y += 64;
    if (bytes & 32) memcpy(y, x, 32), x += 32, y += 32;
    if (bytes & 16) memcpy(y, x, 16), x += 16, y += 16;
    if (bytes & 8) memcpy(y, x, 8), x += 8, y += 8;
    if (bytes & 4) memcpy(y, x, 4), x += 4, y += 4;
    if (bytes & 2) memcpy(y, x, 2);
}

#define MINORM_AS_IT_IS(T, C, S)                                                                                   \
    MINORM_INLINE void minorm_load_turn_##S(const T *from, minorm_turn_##C *v) {                                   \
        *v = *(const minorm_turn_##C *)from;                                                                       \
    }                                                                                                              \
    MINORM_INLINE void minorm_load_one_##S(const T *from, T *t) { *t = *from; }                                    \
    MINORM_INLINE void minorm_store_##S(T *to, const minorm_turn_##C *v) { *(minorm_turn_##C *)to = *v; }          \
    MINORM_INLINE void minorm_send_##S(T *to, const minorm_turn_##C *v) { minorm_stream_turn(to, v, MINORM_BYTES); }\
    MINORM_INLINE void minorm_store_some_##S(T *to, const minorm_turn_##C *v, ptrdiff_t first, ptrdiff_t end) {    \
        minorm_copy_some(to + first, (const T *)v + first, (end - first) * sizeof(T));                             \
    }                                                                                                              \
    MINORM_INLINE void minorm_store_one_##S(T *to, const T *t) { *to = *t; }

MINORM_AS_IT_IS(float, f, float)
MINORM_AS_IT_IS(double, d, double)

#define MINORM_16_BITS(S)                                                                                          \
    MINORM_INLINE void minorm_load_turn_##S(const uint16_t *from, minorm_turn_f *v) {                              \
        minorm_widen_turn_##S(from, (float *)v);                                                                   \
    }                                                                                                              \
    MINORM_INLINE void minorm_load_one_##S(const uint16_t *from, float *t) { *t = minorm_wide_##S(*from); }        \
    MINORM_INLINE void minorm_store_##S(uint16_t *to, const minorm_turn_f *v) {                                    \
        uint16_t rounded[MINORM_TURN_f];                                                                           \
        minorm_narrow_turn_##S((const float *)v, rounded);                                                         \
        memcpy(to, rounded, sizeof(rounded));                                                                      \
    }                                                                                                              \
    MINORM_INLINE void minorm_send_##S(uint16_t *to, const minorm_turn_f *v) {                                     \
        uint16_t rounded[MINORM_TURN_f];                                                                           \
        minorm_narrow_turn_##S((const float *)v, rounded);                                                         \
        minorm_stream_turn(to, rounded, sizeof(rounded));                                                          \
    }                                                                                                              \
    MINORM_INLINE void minorm_store_some_##S(uint16_t *to, const minorm_turn_f *v, ptrdiff_t first, ptrdiff_t end) {\
        uint16_t rounded[MINORM_TURN_f];                                                                           \
        minorm_narrow_turn_##S((const float *)v, rounded);                                                         \
        minorm_copy_some(to + first, rounded + first, (end - first) * sizeof(*to));                                \
    }                                                                                                              \
    MINORM_INLINE void minorm_store_one_##S(uint16_t *to, const float *t) { *to = minorm_narrow_##S(*t); }

MINORM_16_BITS(half)
MINORM_16_BITS(bfloat)

#endif
