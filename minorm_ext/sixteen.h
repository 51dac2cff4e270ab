/* Sixteen elements as one value: vectors of a fixed size say what is meant on every instruction set, and what is local
 * to a small function stays in registers. They are in the type computed in, float or double; in memory they are in the
 * type stored in, S: float, double, half or bfloat.
 *
 *     minorm_load_S(from, &v), minorm_load_one_S(from, &t)    widen 16 elements, or one
 *     minorm_send_S(to, &v)                                   round 16, and write them around the cache
 *     minorm_store_one_S(to, &t)                              round one
 *
 * `to` of minorm_send_S is a multiple of 64, or of as many bytes as it writes.
 */
#ifndef MINORM_SIXTEEN_H
#define MINORM_SIXTEEN_H

#include "storage.h"
#include "stream.h"

#define SIXTEEN_INLINE static inline __attribute__((always_inline))

#define MINORM_SIXTEEN(T, I, S)                                                                                    \
    typedef T minorm_16##S __attribute__((vector_size(16 * sizeof(T)), aligned(sizeof(T)), may_alias));            \
    typedef I minorm_16i##S __attribute__((vector_size(16 * sizeof(T)), aligned(sizeof(T)), may_alias));           \
    typedef T minorm_8##S __attribute__((vector_size(8 * sizeof(T)), aligned(sizeof(T)), may_alias));              \
    typedef T minorm_4##S __attribute__((vector_size(4 * sizeof(T)), aligned(sizeof(T)), may_alias));

MINORM_SIXTEEN(float, int32_t, f)
MINORM_SIXTEEN(double, int64_t, d)

#define MINORM_AS_IT_IS(T, V, S)                                                                                   \
    SIXTEEN_INLINE void minorm_load_##S(const T *from, V *v) { *v = *(const V *)from; }                            \
    SIXTEEN_INLINE void minorm_load_one_##S(const T *from, T *t) { *t = *from; }                                   \
    SIXTEEN_INLINE void minorm_send_##S(T *to, const V *v) { minorm_stream_lines(to, v, sizeof(V)); }              \
    SIXTEEN_INLINE void minorm_store_one_##S(T *to, const T *t) { *to = *t; }

MINORM_AS_IT_IS(float, minorm_16f, float)
MINORM_AS_IT_IS(double, minorm_16d, double)

#define MINORM_16_BITS(S)                                                                                          \
    SIXTEEN_INLINE void minorm_load_##S(const uint16_t *from, minorm_16f *v) {                                     \
        minorm_widen_##S##_f(from, (float *)v, 16);                                                                \
    }                                                                                                              \
    SIXTEEN_INLINE void minorm_load_one_##S(const uint16_t *from, float *t) { *t = minorm_wide_##S(*from); }       \
    SIXTEEN_INLINE void minorm_send_##S(uint16_t *to, const minorm_16f *v) {                                       \
        uint16_t rounded[16];                                                                                      \
        minorm_narrow_##S##_f((const float *)v, rounded, 16);                                                      \
        minorm_stream_lines(to, rounded, sizeof(rounded));                                                         \
    }                                                                                                              \
    SIXTEEN_INLINE void minorm_store_one_##S(uint16_t *to, const float *t) { *to = minorm_narrow_##S(*t); }

MINORM_16_BITS(half)
MINORM_16_BITS(bfloat)

#endif
