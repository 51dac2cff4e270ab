/* Rows with a parameter for each element: dy and x are read once for all that backward needs, and two rows together
 * share the loads of s, b, ds and db and the stores of ds and db. Nothing here overlaps. More than two rows whose
 * length is a power of two would fight for the same sets of the first-level cache.
 *
 *     y = xhat * s + b
 *     ds += dy * xhat, db += dy, dx = (dy * s * rstd - p) - xhat * q
 */
#ifndef MINORM_NORM_EACH_H
#define MINORM_NORM_EACH_H

#include "norm_apply.h"

#define MINORM_XHAT(in, j) (((in) - k[j]) - d[j]) * r[j]
#define MINORM_DX(g, t, j) (g * scale * r[j] - p[j]) - t * q[j]

#define MINORM_APPLY_TWO(V, LOAD, STORE)                                                                           \
    {                                                                                                              \
        V v0, v1;                                                                                                  \
        LOAD(x + start[0] + i, &v0);                                                                               \
        LOAD(x + start[1] + i, &v1);                                                                               \
        const V scale = *(const V *)(s + i), bias = *(const V *)(b + i);                                           \
        v0 = MINORM_XHAT(v0, 0) * scale + bias;                                                                    \
        v1 = MINORM_XHAT(v1, 1) * scale + bias;                                                                    \
        STORE(y + start[0] + i, &v0);                                                                              \
        STORE(y + start[1] + i, &v1);                                                                              \
    }

#define MINORM_GRAD_TWO(V, LOAD, STORE, KEEP)                                                                      \
    {                                                                                                              \
        V g0, g1, v0, v1;                                                                                          \
        LOAD(dy + start[0] + i, &g0);                                                                              \
        LOAD(dy + start[1] + i, &g1);                                                                              \
        LOAD(x + start[0] + i, &v0);                                                                               \
        LOAD(x + start[1] + i, &v1);                                                                               \
        const V scale = *(const V *)(s + i), t0 = MINORM_XHAT(v0, 0), t1 = MINORM_XHAT(v1, 1);                     \
        V *const all_s = (V *)(ds + i), *const all_b = (V *)(db + i);                                              \
        *all_s = KEEP(*all_s + (g0 * t0 + g1 * t1), *all_s);                                                       \
        *all_b = KEEP(*all_b + (g0 + g1), *all_b);                                                                 \
        v0 = MINORM_DX(g0, t0, 0);                                                                                 \
        v1 = MINORM_DX(g1, t1, 1);                                                                                 \
        STORE(dx + start[0] + i, &v0);                                                                             \
        STORE(dx + start[1] + i, &v1);                                                                             \
    }

/* Of what is left after whole turns more than 4 elements go with some before them, if there are: y and dx of those are
 * written again. One by one is as fast for fewer. */
#define MINORM_EACH(X, S, T, C)                                                                                    \
    static inline void minorm_apply_two_##S(const X *x, const T *s, const T *b, X *y, const ptrdiff_t *start,      \
                                            ptrdiff_t n, const T *k, const T *d, const T *r) {                     \
        const ptrdiff_t many = MINORM_TURN_##C;                                                                    \
        ptrdiff_t i = 0;                                                                                           \
        for (; i + many <= n; i += many)                                                                           \
            MINORM_APPLY_TWO(minorm_turn_##C, minorm_load_turn_##S, minorm_store_##S)                              \
        if (n - i > 4 && n >= many) {                                                                              \
            i = n - many;                                                                                          \
            MINORM_APPLY_TWO(minorm_turn_##C, minorm_load_turn_##S, minorm_store_##S)                              \
            i = n;                                                                                                 \
        }                                                                                                          \
        for (; i < n; i++) MINORM_APPLY_TWO(T, minorm_load_one_##S, minorm_store_one_##S)                          \
    }                                                                                                              \
                                                                                                                   \
    static inline void minorm_grad_two_##S(const X *dy, const X *x, const T *s, X *dx, T *ds, T *db,               \
                                           const ptrdiff_t *start, ptrdiff_t n, const T *k, const T *d, const T *r,\
                                           const T *p, const T *q) {                                               \
        const ptrdiff_t many = MINORM_TURN_##C;                                                                    \
        ptrdiff_t i = 0;                                                                                           \
        for (; i + many <= n; i += many)                                                                           \
            MINORM_GRAD_TWO(minorm_turn_##C, minorm_load_turn_##S, minorm_store_##S, MINORM_ALL)                   \
        if (n - i > 4 && n >= many) {                                                                              \
            const minorm_turn_i##C kept = MINORM_SOME_##C(i - (n - many), many);                                   \
            i = n - many;                                                                                          \
            MINORM_GRAD_TWO(minorm_turn_##C, minorm_load_turn_##S, minorm_store_##S, MINORM_KEPT_##C)              \
            i = n;                                                                                                 \
        }                                                                                                          \
        for (; i < n; i++) MINORM_GRAD_TWO(T, minorm_load_one_##S, minorm_store_one_##S, MINORM_ALL)               \
    }

MINORM_EACH(float, float, float, f)
MINORM_EACH(double, double, double, d)
MINORM_EACH(uint16_t, half, float, f)
MINORM_EACH(uint16_t, bfloat, float, f)

#endif
