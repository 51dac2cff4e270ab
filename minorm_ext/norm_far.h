/* The second phase on a row that comes from memory and whose result goes around the cache.
 *
 * Each line of the result leaves as soon as it is computed, and each turn asks for a line of a row to come, `next`
 * elements further on: so memory is read and written all the time, and nothing waits in a buffer. A wide row has left
 * the innermost cache when its second phase begins; there, the first phase of the next row goes along in the same loop.
 *
 *     y  = ((x - k) - d) * r * s + b
 *     dx = (dy * s * r - p) - xhat * q,  ds += dy * xhat,  db += dy
 *
 * Where s is NULL, c stands for r * s all along, and c_b for b where b is NULL; ds and db are NULL where nobody asks.
 */
#ifndef MINORM_NORM_FAR_H
#define MINORM_NORM_FAR_H

#include "norm_sums.h"

/* What one turn computes, in elements of type V: one, or sixteen. All is read first, so that the arithmetic is one
 * piece to the compiler, which then joins a product and a sum wherever it does so for rows in cache. */
#define MINORM_APPLY(V, LOAD)                                                                                      \
    V v;                                                                                                           \
    LOAD(x + i, &v);                                                                                               \
    const V scale = s ? *(const V *)(s + i) : v, bias = b ? *(const V *)(b + i) : v;                               \
    v = (v - k) - d;                                                                                               \
    v = s ? v * r * scale : v * c;                                                                                 \
    v = b ? v + bias : v + c_b;

#define MINORM_GRAD(V, LOAD)                                                                                       \
    V g, in;                                                                                                       \
    LOAD(dy + i, &g);                                                                                              \
    LOAD(x + i, &in);                                                                                              \
    const V scale = s ? *(const V *)(s + i) : g;                                                                   \
    const V t = ((in - k) - d) * r, v = ((s ? g * scale * r : g * c) - p) - t * q;                                 \
    if (ds) {                                                                                                      \
        *(V *)(ds + i) += g * t;                                                                                   \
        *(V *)(db + i) += g;                                                                                       \
    }

/* All turns: one by one up to the first line of the result, by sixteen up to `stop`, one by one to the end. */
#define MINORM_FIRST(T, S, TURN, to)                                                                               \
    ptrdiff_t i = 0;                                                                                               \
    for (; i < n && (uintptr_t)(to + i) % 64; i++) {                                                               \
        TURN(T, minorm_load_one_##S)                                                                               \
        minorm_store_one_##S(to + i, &v);                                                                          \
    }

#define MINORM_LINES(V, S, TURN, to, stop, ASK)                                                                    \
    for (; i + 16 <= stop; i += 16) {                                                                              \
        ASK                                                                                                        \
        TURN(V, minorm_load_##S)                                                                                   \
        minorm_send_##S(to + i, &v);                                                                               \
    }

#define MINORM_LAST(T, S, TURN, to)                                                                                \
    for (; i < n; i++) {                                                                                           \
        TURN(T, minorm_load_one_##S)                                                                               \
        minorm_store_one_##S(to + i, &v);                                                                          \
    }

/* What will be read soon; by the first phase of the next row, SOON elements later. */
#define MINORM_ASK(p)                                                                                              \
    for (size_t line = 0; line < 16 * sizeof(*x); line += 64) __builtin_prefetch((const char *)(p + i) + line, 0, 2);
#define SOON 1024

/* For data X stored in S; the compiler makes one loop of each combination of what is there. */
#define MINORM_FAR(X, S, T, C)                                                                                     \
    SIXTEEN_INLINE void minorm_apply_of_##S(const X *x, const T *s, const T *b, X *y, ptrdiff_t n, ptrdiff_t next, \
                                            T k, T d, T r, T c, T c_b) {                                           \
        MINORM_FIRST(T, S, MINORM_APPLY, y)                                                                        \
        MINORM_LINES(minorm_16##C, S, MINORM_APPLY, y, n, MINORM_ASK(x + next))                                    \
        MINORM_LAST(T, S, MINORM_APPLY, y)                                                                         \
    }                                                                                                              \
                                                                                                                   \
    static inline void minorm_apply_far_##S(const X *x, const T *s, const T *b, X *y, ptrdiff_t n, ptrdiff_t next, \
                                            T k, T d, T r, T c, T c_b) {                                           \
        if (s && b) minorm_apply_of_##S(x, s, b, y, n, next, k, d, r, c, c_b);                                     \
        else if (s) minorm_apply_of_##S(x, s, NULL, y, n, next, k, d, r, c, c_b);                                  \
        else if (b) minorm_apply_of_##S(x, NULL, b, y, n, next, k, d, r, c, c_b);                                  \
        else minorm_apply_of_##S(x, NULL, NULL, y, n, next, k, d, r, c, c_b);                                      \
    }                                                                                                              \
                                                                                                                   \
    SIXTEEN_INLINE void minorm_grad_of_##S(const X *dy, const X *x, const T *s, X *dx, T *ds, T *db, ptrdiff_t n,  \
                                           ptrdiff_t next, T k, T d, T r, T c, T p, T q) {                         \
        MINORM_FIRST(T, S, MINORM_GRAD, dx)                                                                        \
        MINORM_LINES(minorm_16##C, S, MINORM_GRAD, dx, n, MINORM_ASK(x + next) MINORM_ASK(dy + next))              \
        MINORM_LAST(T, S, MINORM_GRAD, dx)                                                                         \
    }                                                                                                              \
                                                                                                                   \
    static inline void minorm_grad_far_##S(const X *dy, const X *x, const T *s, X *dx, T *ds, T *db, ptrdiff_t n,  \
                                           ptrdiff_t next, T k, T d, T r, T c, T p, T q) {                         \
        if (s && ds) minorm_grad_of_##S(dy, x, s, dx, ds, db, n, next, k, d, r, c, p, q);                          \
        else if (s) minorm_grad_of_##S(dy, x, s, dx, NULL, NULL, n, next, k, d, r, c, p, q);                       \
        else if (ds) minorm_grad_of_##S(dy, x, NULL, dx, ds, db, n, next, k, d, r, c, p, q);                       \
        else minorm_grad_of_##S(dy, x, NULL, dx, NULL, NULL, n, next, k, d, r, c, p, q);                           \
    }                                                                                                              \
                                                                                                                   \
    /* Both phases at once: the second on a row, the first on the row `next` elements further on, whose shift is   \
     * k1, or whose mean is k1 + d1. The sums are those of norm_sums.h, bit by bit. */                             \
    SIXTEEN_INLINE void minorm_apply_and_sum_of_##S(const X *x, const T *s, const T *b, X *y, ptrdiff_t n,         \
                                                    ptrdiff_t next, T k, T d, T r, T c, T c_b, T k1, T *sum,       \
                                                    T *squares) {                                                  \
        minorm_held_##C all = {0};                                                                                 \
        MINORM_FIRST(T, S, MINORM_APPLY, y)                                                                        \
        for (ptrdiff_t start = 0; start < n; start += BRIEF) {                                                     \
            const ptrdiff_t length = n - start < BRIEF ? n - start : BRIEF;                                        \
            minorm_held_##C piece = {0};                                                                           \
            ptrdiff_t j = 0;                                                                                       \
            for (; j + 32 <= length && i + 32 <= n; j += 32) {                                                     \
                const ptrdiff_t stop = i + 32;                                                                     \
                minorm_add_##S(&piece, NULL, NULL, x + next + start, j, j + 32, k1, 0);                            \
                MINORM_LINES(minorm_16##C, S, MINORM_APPLY, y, stop, MINORM_ASK(x + next + SOON))                  \
            }                                                                                                      \
            minorm_add_##S(&piece, NULL, NULL, x + next + start, j, length, k1, 0);                                \
            minorm_gather_##C(&all, &piece);                                                                       \
        }                                                                                                          \
        MINORM_LINES(minorm_16##C, S, MINORM_APPLY, y, n, )                                                        \
        MINORM_LAST(T, S, MINORM_APPLY, y)                                                                         \
        *sum = minorm_total_##C((const T *)all.a);                                                                 \
        *squares = minorm_total_##C((const T *)all.q);                                                             \
    }                                                                                                              \
                                                                                                                   \
    static inline void minorm_apply_and_sum_##S(const X *x, const T *s, const T *b, X *y, ptrdiff_t n,             \
                                                ptrdiff_t next, T k, T d, T r, T c, T c_b, T k1, T *sum,           \
                                                T *squares) {                                                      \
        if (s && b) minorm_apply_and_sum_of_##S(x, s, b, y, n, next, k, d, r, c, c_b, k1, sum, squares);           \
        else if (s) minorm_apply_and_sum_of_##S(x, s, NULL, y, n, next, k, d, r, c, c_b, k1, sum, squares);        \
        else if (b) minorm_apply_and_sum_of_##S(x, NULL, b, y, n, next, k, d, r, c, c_b, k1, sum, squares);        \
        else minorm_apply_and_sum_of_##S(x, NULL, NULL, y, n, next, k, d, r, c, c_b, k1, sum, squares);            \
    }                                                                                                              \
                                                                                                                   \
    SIXTEEN_INLINE void minorm_grad_and_sum_of_##S(const X *dy, const X *x, const T *s, X *dx, T *ds, T *db,       \
                                                   ptrdiff_t n, ptrdiff_t next, T k, T d, T r, T c, T p, T q,      \
                                                   T k1, T d1, T *sum, T *sum_x) {                                 \
        minorm_held_##C all = {0};                                                                                 \
        ptrdiff_t j = 0;                                                                                           \
        MINORM_FIRST(T, S, MINORM_GRAD, dx)                                                                        \
        for (; j + 32 <= n && i + 32 <= n; j += 32) {                                                              \
            const ptrdiff_t stop = i + 32;                                                                         \
            minorm_add_##S(&all, dy + next, s, x + next, j, j + 32, k1, d1);                                       \
            MINORM_LINES(minorm_16##C, S, MINORM_GRAD, dx, stop,                                                   \
                         MINORM_ASK(x + next + SOON) MINORM_ASK(dy + next + SOON))                                 \
        }                                                                                                          \
        minorm_add_##S(&all, dy + next, s, x + next, j, n, k1, d1);                                                \
        MINORM_LINES(minorm_16##C, S, MINORM_GRAD, dx, n, )                                                        \
        MINORM_LAST(T, S, MINORM_GRAD, dx)                                                                         \
        *sum = minorm_total_##C((const T *)all.a);                                                                 \
        *sum_x = minorm_total_##C((const T *)all.q);                                                               \
    }                                                                                                              \
                                                                                                                   \
    static inline void minorm_grad_and_sum_##S(const X *dy, const X *x, const T *s, X *dx, T *ds, T *db,           \
                                               ptrdiff_t n, ptrdiff_t next, T k, T d, T r, T c, T p, T q,          \
                                               T k1, T d1, T *sum, T *sum_x) {                                     \
        if (s && ds)                                                                                               \
            minorm_grad_and_sum_of_##S(dy, x, s, dx, ds, db, n, next, k, d, r, c, p, q, k1, d1, sum, sum_x);       \
        else if (s)                                                                                                \
            minorm_grad_and_sum_of_##S(dy, x, s, dx, NULL, NULL, n, next, k, d, r, c, p, q, k1, d1, sum, sum_x);   \
        else if (ds)                                                                                               \
            minorm_grad_and_sum_of_##S(dy, x, NULL, dx, ds, db, n, next, k, d, r, c, p, q, k1, d1, sum, sum_x);    \
        else                                                                                                       \
            minorm_grad_and_sum_of_##S(dy, x, NULL, dx, NULL, NULL, n, next, k, d, r, c, p, q, k1, d1, sum, sum_x);\
    }

MINORM_FAR(float, float, float, f)
MINORM_FAR(double, double, double, d)
MINORM_FAR(uint16_t, half, float, f)
MINORM_FAR(uint16_t, bfloat, float, f)

#endif
