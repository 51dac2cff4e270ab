/* Sixteen elements as one value: vectors of a fixed size say what is meant on every instruction set, and what is local
 * to a small function stays in registers. They are in the type computed in, float or double; in memory they are in the
 * type stored in, S: float, double, half or bfloat.
 *
 *     minorm_load_S(from, &v)          widen 16 elements
 *     minorm_load_turn_S(from, &v)     as many as 64 bytes hold: what a loop without sums takes at a turn
 *     minorm_load_one_S(from, &t)      one
 *     minorm_store_S(to, &v)           round what is taken at a turn
 *     minorm_send_S(to, &v)            the same around the cache; `to` is a multiple of as many bytes as it writes
 *     minorm_store_one_S(to, &t)       one
 */
#ifndef MINORM_SIXTEEN_H
#define MINORM_SIXTEEN_H

#include "storage.h"
#include "stream.h"

#define SIXTEEN_INLINE static inline __attribute__((always_inline))
#define SIXTEEN_APART static __attribute__((noinline, unused)) /* its vectors have all registers */

#define MINORM_SIXTEEN(T, I, S)                                                                                    \
    typedef T minorm_16##S __attribute__((vector_size(16 * sizeof(T)), aligned(sizeof(T)), may_alias));            \
    typedef I minorm_16i##S __attribute__((vector_size(16 * sizeof(T)), aligned(sizeof(T)), may_alias));           \
    typedef T minorm_8##S __attribute__((vector_size(8 * sizeof(T)), aligned(sizeof(T)), may_alias));              \
    typedef T minorm_4##S __attribute__((vector_size(4 * sizeof(T)), aligned(sizeof(T)), may_alias));

MINORM_SIXTEEN(float, int32_t, f)
MINORM_SIXTEEN(double, int64_t, d)

typedef minorm_16f minorm_turn_f;
typedef minorm_8d minorm_turn_d;

#define MINORM_AS_IT_IS(T, C, S)                                                                                   \
    SIXTEEN_INLINE void minorm_load_##S(const T *from, minorm_16##C *v) { *v = *(const minorm_16##C *)from; }      \
    SIXTEEN_INLINE void minorm_load_turn_##S(const T *from, minorm_turn_##C *v) {                                  \
        *v = *(const minorm_turn_##C *)from;                                                                       \
    }                                                                                                              \
    SIXTEEN_INLINE void minorm_load_one_##S(const T *from, T *t) { *t = *from; }                                   \
    SIXTEEN_INLINE void minorm_store_##S(T *to, const minorm_turn_##C *v) { *(minorm_turn_##C *)to = *v; }         \
    SIXTEEN_INLINE void minorm_send_##S(T *to, const minorm_turn_##C *v) { minorm_stream_lines(to, v, 64); }       \
    SIXTEEN_INLINE void minorm_store_one_##S(T *to, const T *t) { *to = *t; }

MINORM_AS_IT_IS(float, f, float)
MINORM_AS_IT_IS(double, d, double)

#define MINORM_16_BITS(S)                                                                                          \
    SIXTEEN_INLINE void minorm_load_##S(const uint16_t *from, minorm_16f *v) {                                     \
        minorm_widen_##S##_f(from, (float *)v, 16);                                                                \
    }                                                                                                              \
    SIXTEEN_INLINE void minorm_load_turn_##S(const uint16_t *from, minorm_16f *v) { minorm_load_##S(from, v); }    \
    SIXTEEN_INLINE void minorm_load_one_##S(const uint16_t *from, float *t) { *t = minorm_wide_##S(*from); }       \
    SIXTEEN_INLINE void minorm_store_##S(uint16_t *to, const minorm_16f *v) {                                      \
        uint16_t rounded[16];                                                                                      \
        minorm_narrow_##S##_f((const float *)v, rounded, 16);                                                      \
        memcpy(to, rounded, sizeof(rounded));                                                                      \
    }                                                                                                              \
    SIXTEEN_INLINE void minorm_send_##S(uint16_t *to, const minorm_16f *v) {                                       \
        uint16_t rounded[16];                                                                                      \
        minorm_narrow_##S##_f((const float *)v, rounded, 16);                                                      \
        minorm_stream_lines(to, rounded, sizeof(rounded));                                                         \
    }                                                                                                              \
    SIXTEEN_INLINE void minorm_store_one_##S(uint16_t *to, const float *t) { *to = minorm_narrow_##S(*t); }

MINORM_16_BITS(half)
MINORM_16_BITS(bfloat)

#endif
