/* Rows with a parameter for each element: dy and x are read once for all that backward needs, and two rows together
 * share the loads of s, b, ds and db and the stores of ds and db. Nothing here overlaps. More than two rows whose
 * length is a power of two would fight for the same sets of the first-level cache.
 *
 *     y = xhat * s + b
 *     ds += dy * xhat, db += dy, dx = (dy * s * rstd - p) - xhat * q
 */
#ifndef MINORM_NORM_EACH_H
#define MINORM_NORM_EACH_H

#include <stddef.h>

#define MINORM_XHAT(j) (((x##j[i] - k[j]) - d[j]) * r[j])
#define MINORM_DX(j) (g##j * s[i] * r[j] - p[j]) - t##j * q[j]

#define MINORM_EACH(T, S)                                                                                          \
    static inline void minorm_apply_two_##S(const T *restrict x0, const T *restrict x1, const T *restrict s,       \
                                            const T *restrict b, T *restrict y0, T *restrict y1, ptrdiff_t n,      \
                                            const T *k, const T *d, const T *r) {                                  \
        for (ptrdiff_t i = 0; i < n; i++) {                                                                        \
            y0[i] = MINORM_XHAT(0) * s[i] + b[i];                                                                  \
            y1[i] = MINORM_XHAT(1) * s[i] + b[i];                                                                  \
        }                                                                                                          \
    }                                                                                                              \
                                                                                                                   \
    static inline void minorm_grad_one_##S(const T *restrict dy0, const T *restrict x0, const T *restrict s,       \
                                           T *restrict dx0, T *restrict ds, T *restrict db, ptrdiff_t n,           \
                                           const T *k, const T *d, const T *r, const T *p, const T *q) {           \
        for (ptrdiff_t i = 0; i < n; i++) {                                                                        \
            T g0 = dy0[i], t0 = MINORM_XHAT(0);                                                                    \
            ds[i] += g0 * t0;                                                                                      \
            db[i] += g0;                                                                                           \
            dx0[i] = MINORM_DX(0);                                                                                 \
        }                                                                                                          \
    }                                                                                                              \
                                                                                                                   \
    static inline void minorm_grad_two_##S(const T *restrict dy0, const T *restrict dy1, const T *restrict x0,     \
                                           const T *restrict x1, const T *restrict s, T *restrict dx0,             \
                                           T *restrict dx1, T *restrict ds, T *restrict db, ptrdiff_t n,           \
                                           const T *k, const T *d, const T *r, const T *p, const T *q) {           \
        for (ptrdiff_t i = 0; i < n; i++) {                                                                        \
            T g0 = dy0[i], g1 = dy1[i], t0 = MINORM_XHAT(0), t1 = MINORM_XHAT(1);                                  \
            ds[i] += g0 * t0 + g1 * t1;                                                                            \
            db[i] += g0 + g1;                                                                                      \
            dx0[i] = MINORM_DX(0);                                                                                 \
            dx1[i] = MINORM_DX(1);                                                                                 \
        }                                                                                                          \
    }

MINORM_EACH(float, f)
MINORM_EACH(double, d)

#endif
