/* A row that comes from memory and whose result goes around the cache.
 *
 * Each line of the result leaves as soon as it is computed, and each turn asks for a line of a row to come, `next` elements
 * further on: so memory is read and written all the time, and nothing waits in a buffer.
 *
 *     y  = ((x - k) - d) * r * s + b
 *     dx = (dy * s * r - p) - xhat * q,  ds += dy * xhat,  db += dy
 *
 * Where s is NULL, c stands for r * s all along, and c_b for b where b is NULL; ds and db are NULL where nobody asks.
 */
#ifndef MINORM_NORM_FAR_H
#define MINORM_NORM_FAR_H

#include "stream.h"

#define FAR_INLINE static inline __attribute__((always_inline))

/* What one turn computes, in elements of type V: one, or a line full. All is read first, so that the arithmetic is one
 * piece to the compiler, which then joins a product and a sum wherever it does so for rows in cache. */
#define MINORM_APPLY(V)                                                                                            \
    V v = *(const V *)(x + i);                                                                                     \
    const V scale = s ? *(const V *)(s + i) : v, bias = b ? *(const V *)(b + i) : v;                               \
    v = (v - k) - d;                                                                                               \
    v = s ? v * r * scale : v * c;                                                                                 \
    v = b ? v + bias : v + c_b;

#define MINORM_GRAD(V)                                                                                             \
    const V g = *(const V *)(dy + i), in = *(const V *)(x + i), scale = s ? *(const V *)(s + i) : g;               \
    const V t = ((in - k) - d) * r, v = ((s ? g * scale * r : g * c) - p) - t * q;                                 \
    if (ds) {                                                                                                      \
        *(V *)(ds + i) += g * t;                                                                                   \
        *(V *)(db + i) += g;                                                                                       \
    }

/* All turns: one by one up to the first line of the result, then line by line. */
#define MINORM_TURNS(T, LINE, TURN, to, ASK)                                                                       \
    const ptrdiff_t some = 64 / sizeof(T);                                                                         \
    ptrdiff_t i = 0;                                                                                               \
    for (; i < n && (uintptr_t)(to + i) % 64; i++) {                                                               \
        TURN(T)                                                                                                    \
        to[i] = v;                                                                                                 \
    }                                                                                                              \
    for (; i + some <= n; i += some) {                                                                             \
        ASK                                                                                                        \
        TURN(LINE)                                                                                                 \
        minorm_stream_line(to + i, &v);                                                                            \
    }                                                                                                              \
    for (; i < n; i++) {                                                                                           \
        TURN(T)                                                                                                    \
        to[i] = v;                                                                                                 \
    }

/* The compiler makes one loop of each combination of what is there. */
#define MINORM_FAR(T, S)                                                                                           \
    typedef T minorm_line_##S __attribute__((vector_size(64), aligned(sizeof(T)), may_alias));                     \
                                                                                                                   \
    FAR_INLINE void minorm_apply_of_##S(const T *x, const T *s, const T *b, T *y, ptrdiff_t n, ptrdiff_t next,     \
                                        T k, T d, T r, T c, T c_b) {                                               \
        MINORM_TURNS(T, minorm_line_##S, MINORM_APPLY, y, __builtin_prefetch(x + next + i, 0, 2);)                 \
    }                                                                                                              \
                                                                                                                   \
    static inline void minorm_apply_far_##S(const T *x, const T *s, const T *b, T *y, ptrdiff_t n,                 \
                                            ptrdiff_t next, T k, T d, T r, T c, T c_b) {                           \
        if (s && b) minorm_apply_of_##S(x, s, b, y, n, next, k, d, r, c, c_b);                                     \
        else if (s) minorm_apply_of_##S(x, s, NULL, y, n, next, k, d, r, c, c_b);                                  \
        else if (b) minorm_apply_of_##S(x, NULL, b, y, n, next, k, d, r, c, c_b);                                  \
        else minorm_apply_of_##S(x, NULL, NULL, y, n, next, k, d, r, c, c_b);                                      \
    }                                                                                                              \
                                                                                                                   \
    FAR_INLINE void minorm_grad_of_##S(const T *dy, const T *x, const T *s, T *dx, T *ds, T *db, ptrdiff_t n,      \
                                       ptrdiff_t next, T k, T d, T r, T c, T p, T q) {                             \
        MINORM_TURNS(T, minorm_line_##S, MINORM_GRAD, dx, __builtin_prefetch(x + next + i, 0, 2);                  \
                     __builtin_prefetch(dy + next + i, 0, 2);)                                                     \
    }                                                                                                              \
                                                                                                                   \
    static inline void minorm_grad_far_##S(const T *dy, const T *x, const T *s, T *dx, T *ds, T *db, ptrdiff_t n,  \
                                           ptrdiff_t next, T k, T d, T r, T c, T p, T q) {                         \
        if (s && ds) minorm_grad_of_##S(dy, x, s, dx, ds, db, n, next, k, d, r, c, p, q);                          \
        else if (s) minorm_grad_of_##S(dy, x, s, dx, NULL, NULL, n, next, k, d, r, c, p, q);                       \
        else if (ds) minorm_grad_of_##S(dy, x, NULL, dx, ds, db, n, next, k, d, r, c, p, q);                       \
        else minorm_grad_of_##S(dy, x, NULL, dx, NULL, NULL, n, next, k, d, r, c, p, q);                           \
    }

MINORM_FAR(float, f)
MINORM_FAR(double, d)

#endif
