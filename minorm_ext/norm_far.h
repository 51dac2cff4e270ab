/* Both phases at once, of wide rows that come from memory and whose results go around the cache: the second on a row,
 * the first on the row `next` elements further on, whose shift is k1, or whose mean is k1 + d1. A wide row has left the
 * innermost cache when its second phase begins; so memory is read all the time and not by turns.
 *
 * The sums are those of norm_sums.h and the results those of norm_apply.h, bit by bit. c stands for r * s where s is
 * NULL, c_b for b where b is NULL.
 */
#ifndef MINORM_NORM_FAR_H
#define MINORM_NORM_FAR_H

#include "norm_apply.h"
#include "norm_sums.h"

#define SOON 1024 /* elements by which a line is asked for before the first phase comes to it */

#define MINORM_APPLY_AND_SUM(S, s, b)                                                                              \
    minorm_apply_and_sum_of_##S(x, s, b, y, n, next, k, d, r, c, c_b, k1, sum, squares)
#define MINORM_GRAD_AND_SUM(S, s, ds)                                                                              \
    minorm_grad_and_sum_of_##S(dy, x, s, dx, ds, ds ? db : NULL, n, next, k, d, r, c, p, q, k1, d1, sum, sum_x)

#define MINORM_FAR(X, S, T, C)                                                                                     \
    SIXTEEN_INLINE void minorm_apply_and_sum_of_##S(const X *x, const T *s, const T *b, X *y, ptrdiff_t n,         \
                                                    ptrdiff_t next, T k, T d, T r, T c, T c_b, T k1, T *sum,       \
                                                    T *squares) {                                                  \
        const bool far = true;                                                                                     \
        const ptrdiff_t at = 0;                                                                                    \
        minorm_held_##C all = {0};                                                                                 \
        MINORM_FIRST(T, minorm_turn_##C, S, MINORM_APPLY, y)                                                       \
        for (ptrdiff_t start = 0; start < n; start += BRIEF) {                                                     \
            const ptrdiff_t length = n - start < BRIEF ? n - start : BRIEF;                                        \
            minorm_held_##C piece = {0};                                                                           \
            ptrdiff_t j = 0;                                                                                       \
            for (; j + 32 <= length && i + 32 <= n; j += 32) {                                                     \
                const ptrdiff_t stop = i + 32;                                                                     \
                minorm_add_##S(&piece, NULL, NULL, x + next + start, j, j + 32, k1, 0);                            \
                MINORM_MANY(minorm_turn_##C, S, MINORM_APPLY, y, stop, MINORM_ASK(x + next + SOON))                \
            }                                                                                                      \
            minorm_add_##S(&piece, NULL, NULL, x + next + start, j, length, k1, 0);                                \
            minorm_gather_##C(&all, &piece);                                                                       \
        }                                                                                                          \
        MINORM_MANY(minorm_turn_##C, S, MINORM_APPLY, y, n, )                                                      \
        MINORM_LAST(T, minorm_turn_##C, S, MINORM_APPLY, y, false)                                                 \
        *sum = minorm_total_##C((const T *)all.a);                                                                 \
        *squares = minorm_total_##C((const T *)all.q);                                                             \
    }                                                                                                              \
                                                                                                                   \
    SIXTEEN_APART void minorm_apply_and_sum_##S(const X *x, const T *s, const T *b, X *y, ptrdiff_t n,             \
                                                ptrdiff_t next, T k, T d, T r, T c, T c_b, T k1, T *sum,           \
                                                T *squares) {                                                      \
        MINORM_COMBINE(MINORM_APPLY_AND_SUM, S, s, b, s, b)                                                        \
    }                                                                                                              \
                                                                                                                   \
    SIXTEEN_INLINE void minorm_grad_and_sum_of_##S(const X *dy, const X *x, const T *s, X *dx, T *ds, T *db,       \
                                                   ptrdiff_t n, ptrdiff_t next, T k, T d, T r, T c, T p, T q,      \
                                                   T k1, T d1, T *sum, T *sum_x) {                                 \
        const bool far = true;                                                                                     \
        const ptrdiff_t at = 0, to = 0;                                                                            \
        minorm_held_##C all = {0};                                                                                 \
        ptrdiff_t j = 0;                                                                                           \
        MINORM_FIRST(T, minorm_turn_##C, S, MINORM_GRAD, dx)                                                       \
        for (; j + 32 <= n && i + 32 <= n; j += 32) {                                                              \
            const ptrdiff_t stop = i + 32;                                                                         \
            minorm_add_##S(&all, dy + next, s, x + next, j, j + 32, k1, d1);                                       \
            MINORM_MANY(minorm_turn_##C, S, MINORM_GRAD, dx, stop,                                                 \
                            MINORM_ASK(x + next + SOON) MINORM_ASK(dy + next + SOON))                              \
        }                                                                                                          \
        minorm_add_##S(&all, dy + next, s, x + next, j, n, k1, d1);                                                \
        MINORM_MANY(minorm_turn_##C, S, MINORM_GRAD, dx, n, )                                                      \
        MINORM_LAST(T, minorm_turn_##C, S, MINORM_GRAD, dx, false)                                                 \
        *sum = minorm_total_##C((const T *)all.a);                                                                 \
        *sum_x = minorm_total_##C((const T *)all.q);                                                               \
    }                                                                                                              \
                                                                                                                   \
    SIXTEEN_APART void minorm_grad_and_sum_##S(const X *dy, const X *x, const T *s, X *dx, T *ds, T *db,           \
                                               ptrdiff_t n, ptrdiff_t next, T k, T d, T r, T c, T p, T q,          \
                                               T k1, T d1, T *sum, T *sum_x) {                                     \
        MINORM_COMBINE(MINORM_GRAD_AND_SUM, S, s, ds, s, ds)                                                       \
    }

MINORM_FAR(float, float, float, f)
MINORM_FAR(double, double, double, d)
MINORM_FAR(uint16_t, half, float, f)
MINORM_FAR(uint16_t, bfloat, float, f)

#endif
