/* One step of a sum: 16 elements into 16 accumulators, element j into accumulator j, nothing reordered.
 *
 * Left to itself gcc vectorises such a loop when it is in the mood: with 16 turns it unrolls it first and then adds the
 * elements one by one. Vector types of a fixed size say what is meant, on every instruction set, and the accumulators,
 * local arrays of the caller, end up in registers.
 */
#ifndef MINORM_NORM_STEP_H
#define MINORM_NORM_STEP_H

#include <stddef.h>

#define MINORM_STEPS(T, S)                                                                                         \
    typedef T minorm_16##S __attribute__((vector_size(16 * sizeof(T)), aligned(sizeof(T)), may_alias));            \
    typedef T minorm_8##S __attribute__((vector_size(8 * sizeof(T)), aligned(sizeof(T)), may_alias));              \
    typedef T minorm_4##S __attribute__((vector_size(4 * sizeof(T)), aligned(sizeof(T)), may_alias));              \
                                                                                                                   \
    /* a += x - k, q += (x - k)^2 */                                                                               \
    static inline void minorm_step_##S(T *a, T *q, const T *x, T k) {                                              \
        minorm_16##S t = *(const minorm_16##S *)x - k;                                                             \
        *(minorm_16##S *)a += t;                                                                                   \
        *(minorm_16##S *)q += t * t;                                                                               \
    }                                                                                                              \
                                                                                                                   \
    /* a += dy, q += dy * (x - mean) */                                                                            \
    static inline void minorm_grad_step_##S(T *a, T *q, const T *dy, const T *x, T k, T d) {                       \
        minorm_16##S g = *(const minorm_16##S *)dy;                                                                \
        *(minorm_16##S *)a += g;                                                                                   \
        *(minorm_16##S *)q += g * ((*(const minorm_16##S *)x - k) - d);                                            \
    }                                                                                                              \
                                                                                                                   \
    /* the same with g = dy * s for dy */                                                                          \
    static inline void minorm_scaled_step_##S(T *a, T *q, const T *dy, const T *s, const T *x, T k, T d) {         \
        minorm_16##S g = *(const minorm_16##S *)dy * *(const minorm_16##S *)s;                                     \
        *(minorm_16##S *)a += g;                                                                                   \
        *(minorm_16##S *)q += g * ((*(const minorm_16##S *)x - k) - d);                                            \
    }                                                                                                              \
                                                                                                                   \
    /* the sum of 32 accumulators, as a tree */                                                                    \
    static inline T minorm_total_##S(const T *a) {                                                                 \
        minorm_16##S v = *(const minorm_16##S *)a + *(const minorm_16##S *)(a + 16);                               \
        minorm_8##S half = *(minorm_8##S *)&v + *((minorm_8##S *)&v + 1);                                          \
        minorm_4##S quarter = *(minorm_4##S *)&half + *((minorm_4##S *)&half + 1);                                 \
        return (quarter[0] + quarter[2]) + (quarter[1] + quarter[3]);                                              \
    }

/* Rows with a parameter for each element: dy and x are read once for all that backward needs, and two rows together
 * share the loads of s, b, ds and db and the stores of ds and db. Nothing here overlaps. More than two rows whose
 * length is a power of two would fight for the same sets of the first-level cache.
 *
 *     y = xhat * s + b
 *     ds += dy * xhat, db += dy, dx = (dy * s * rstd - p) - xhat * q */
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

MINORM_STEPS(float, f)
MINORM_STEPS(double, d)
MINORM_EACH(float, f)
MINORM_EACH(double, d)

#endif
