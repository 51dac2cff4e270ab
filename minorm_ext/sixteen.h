/* Sixteen elements as one value: vectors of a fixed size say what is meant on every instruction set, and what is local
 * to a small function stays in registers. They are in the type computed in, float or double; in memory they are in the
 * type stored in, S: float, double, half or bfloat.
 *
 *     minorm_load_S(from, &v)          widen 16 elements
 *     minorm_load_turn_S(from, &v)     as many as 64 bytes hold: what a loop without sums takes at a turn
 *     minorm_load_one_S(from, &t)      one
 *     minorm_store_S(to, &v)           round what is taken at a turn
 *     minorm_send_S(to, &v)            the same around the cache; `to` is a multiple of as many bytes as it writes
 *     minorm_store_some_S(to, &v, first, end)  round it, and store its elements first .. end - 1 where they belong
 *     minorm_store_one_S(to, &t)       one
 */
#ifndef MINORM_SIXTEEN_H
#define MINORM_SIXTEEN_H

#include "storage.h"
#include "stream.h"

#define MINORM_SIXTEEN(T, I, S)                                                                                    \
    typedef T minorm_16##S __attribute__((vector_size(16 * sizeof(T)), aligned(sizeof(T)), may_alias));            \
    typedef I minorm_16i##S __attribute__((vector_size(16 * sizeof(T)), aligned(sizeof(T)), may_alias));           \
    typedef T minorm_8##S __attribute__((vector_size(8 * sizeof(T)), aligned(sizeof(T)), may_alias));              \
    typedef T minorm_4##S __attribute__((vector_size(4 * sizeof(T)), aligned(sizeof(T)), may_alias));

MINORM_SIXTEEN(float, int32_t, f)
MINORM_SIXTEEN(double, int64_t, d)

typedef minorm_16f minorm_turn_f;
typedef minorm_8d minorm_turn_d;
typedef minorm_16if minorm_turn_if;
typedef int64_t minorm_turn_id __attribute__((vector_size(64), aligned(8), may_alias));

/* All bits of the elements first .. end - 1 of a turn. */
static const minorm_turn_if minorm_at_f = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
static const minorm_turn_id minorm_at_d = {0, 1, 2, 3, 4, 5, 6, 7};
#define MINORM_SOME_f(first, end) ((minorm_at_f >= (int32_t)(first)) & (minorm_at_f < (int32_t)(end)))
#define MINORM_SOME_d(first, end) ((minorm_at_d >= (int64_t)(first)) & (minorm_at_d < (int64_t)(end)))

/* At most 64 bytes, an even number, in few moves. */
SIXTEEN_APART void minorm_copy_some(void *to, const void *from, size_t bytes) {
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
    SIXTEEN_INLINE void minorm_load_##S(const T *from, minorm_16##C *v) { *v = *(const minorm_16##C *)from; }      \
    SIXTEEN_INLINE void minorm_load_turn_##S(const T *from, minorm_turn_##C *v) {                                  \
        *v = *(const minorm_turn_##C *)from;                                                                       \
    }                                                                                                              \
    SIXTEEN_INLINE void minorm_load_one_##S(const T *from, T *t) { *t = *from; }                                   \
    SIXTEEN_INLINE void minorm_store_##S(T *to, const minorm_turn_##C *v) { *(minorm_turn_##C *)to = *v; }         \
    SIXTEEN_INLINE void minorm_send_##S(T *to, const minorm_turn_##C *v) { minorm_stream_lines(to, v, 64); }       \
    SIXTEEN_INLINE void minorm_store_some_##S(T *to, const minorm_turn_##C *v, ptrdiff_t first, ptrdiff_t end) {   \
        minorm_copy_some(to + first, (const T *)v + first, (end - first) * sizeof(T));                             \
    }                                                                                                              \
    SIXTEEN_INLINE void minorm_store_one_##S(T *to, const T *t) { *to = *t; }

MINORM_AS_IT_IS(float, f, float)
MINORM_AS_IT_IS(double, d, double)

#define MINORM_16_BITS(S)                                                                                          \
    SIXTEEN_INLINE void minorm_load_##S(const uint16_t *from, minorm_16f *v) {                                     \
        minorm_widen_16_##S(from, (float *)v);                                                                     \
    }                                                                                                              \
    SIXTEEN_INLINE void minorm_load_turn_##S(const uint16_t *from, minorm_16f *v) { minorm_load_##S(from, v); }    \
    SIXTEEN_INLINE void minorm_load_one_##S(const uint16_t *from, float *t) { *t = minorm_wide_##S(*from); }       \
    SIXTEEN_INLINE void minorm_store_##S(uint16_t *to, const minorm_16f *v) {                                      \
        uint16_t rounded[16];                                                                                      \
        minorm_narrow_16_##S((const float *)v, rounded);                                                           \
        memcpy(to, rounded, sizeof(rounded));                                                                      \
    }                                                                                                              \
    SIXTEEN_INLINE void minorm_send_##S(uint16_t *to, const minorm_16f *v) {                                       \
        uint16_t rounded[16];                                                                                      \
        minorm_narrow_16_##S((const float *)v, rounded);                                                           \
        minorm_stream_lines(to, rounded, sizeof(rounded));                                                         \
    }                                                                                                              \
    SIXTEEN_INLINE void minorm_store_some_##S(uint16_t *to, const minorm_16f *v, ptrdiff_t first, ptrdiff_t end) { \
        uint16_t rounded[16];                                                                                      \
        minorm_narrow_16_##S((const float *)v, rounded);                                                           \
        minorm_copy_some(to + first, rounded + first, (end - first) * sizeof(*to));                                \
    }                                                                                                              \
    SIXTEEN_INLINE void minorm_store_one_##S(uint16_t *to, const float *t) { *to = minorm_narrow_##S(*t); }

MINORM_16_BITS(half)
MINORM_16_BITS(bfloat)

#endif
