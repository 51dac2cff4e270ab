/* Both phases at once, of wide rows that come from memory and whose results go around the cache: the second on a row,
 * the first on the row `next` elements further on, whose shift is k1, or whose mean is k1 + d1. A wide row has left the
 * innermost cache when its second phase begins; so memory is read all the time and not by turns.
 *
 * A call does the tile of `some` elements that begins at `from`; what is read soon lies `soon` elements further on.
 * The accumulators of the sums are kept in `held` from tile to tile, and the sums themselves after the last: so a few
 * rows can go through a tile together, while its scale and bias and their gradients stay in the innermost cache. Tiles
 * but the last are multiples of BRIEF.
 *
 * The sums are those of norm_sums.h and the results those of norm_apply.h, bit by bit. c stands for r * s where s is
 * NULL, c_b for b where b is NULL.
 */
#ifndef MINORM_NORM_FAR_H
#define MINORM_NORM_FAR_H

#include "norm_apply.h"
#include "norm_sums.h"

#define MINORM_APPLY_AND_SUM(S, s, b)                                                                              \
    minorm_apply_and_sum_of_##S(x, s, b, y, n, from, some, next, soon, k, d, r, c, c_b, k1, held)
#define MINORM_GRAD_AND_SUM(S, s, ds)                                                                              \
    minorm_grad_and_sum_of_##S(dy, x, s, dx, ds, ds ? db : NULL, n, from, some, next, soon, k, d, r, c, p, q, k1, d1,\
                               held)

/* Second phases end where lines do: `lead` elements behind the tile. */
#define MINORM_TILE(T, V, y)                                                                                       \
    const bool far = true;                                                                                         \
    const ptrdiff_t at = 0, many = sizeof(V) / sizeof(T), lead = MINORM_LEAD(y);                                   \
    const ptrdiff_t end = from + some < n ? from + some : n, stop = end + lead < n && end < n ? end + lead : n;    \
    ptrdiff_t i = from ? from + lead : 0;

#define MINORM_HOLD(T, C)                                                                                          \
    if (end < n) {                                                                                                 \
        *(minorm_held_##C *)held = all;                                                                            \
    } else {                                                                                                       \
        held[0] = minorm_total_##C((const T *)all.a);                                                              \
        held[1] = minorm_total_##C((const T *)all.q);                                                              \
    }

#define MINORM_FAR(X, S, T, C)                                                                                     \
    SIXTEEN_INLINE void minorm_apply_and_sum_of_##S(const X *x, const T *s, const T *b, X *y, ptrdiff_t n,         \
                                                    ptrdiff_t from, ptrdiff_t some, ptrdiff_t next,                \
                                                    ptrdiff_t soon, T k, T d, T r, T c, T c_b, T k1, T *held) {    \
        MINORM_TILE(T, minorm_turn_##C, y)                                                                         \
        minorm_held_##C all = {0};                                                                                 \
        if (from) all = *(const minorm_held_##C *)held;                                                            \
        MINORM_ONES(T, S, MINORM_APPLY, y, lead)                                                                   \
        for (ptrdiff_t start = from; start < end; start += BRIEF) {                                                \
            const ptrdiff_t length = end - start < BRIEF ? end - start : BRIEF;                                    \
            minorm_held_##C piece = {0};                                                                           \
            ptrdiff_t j = 0;                                                                                       \
            for (; j + 32 <= length && i + 32 <= stop; j += 32) {                                                  \
                const ptrdiff_t pause = i + 32;                                                                    \
                minorm_add_##S(&piece, NULL, NULL, x + next + start, j, j + 32, k1, 0);                            \
                MINORM_MANY(minorm_turn_##C, S, MINORM_APPLY, y, pause, MINORM_ASK(x + soon))                      \
            }                                                                                                      \
            minorm_add_##S(&piece, NULL, NULL, x + next + start, j, length, k1, 0);                                \
            minorm_gather_##C(&all, &piece);                                                                       \
        }                                                                                                          \
        MINORM_MANY(minorm_turn_##C, S, MINORM_APPLY, y, stop, )                                                   \
        MINORM_ONES(T, S, MINORM_APPLY, y, stop)                                                                   \
        MINORM_HOLD(T, C)                                                                                          \
    }                                                                                                              \
                                                                                                                   \
    SIXTEEN_APART void minorm_apply_and_sum_##S(const X *x, const T *s, const T *b, X *y, ptrdiff_t n,             \
                                                ptrdiff_t from, ptrdiff_t some, ptrdiff_t next, ptrdiff_t soon,    \
                                                T k, T d, T r, T c, T c_b, T k1, T *held) {                        \
        MINORM_COMBINE(MINORM_APPLY_AND_SUM, S, s, b, s, b)                                                        \
    }                                                                                                              \
                                                                                                                   \
    SIXTEEN_INLINE void minorm_grad_and_sum_of_##S(const X *dy, const X *x, const T *s, X *dx, T *ds, T *db,       \
                                                   ptrdiff_t n, ptrdiff_t from, ptrdiff_t some, ptrdiff_t next,    \
                                                   ptrdiff_t soon, T k, T d, T r, T c, T p, T q, T k1, T d1,       \
                                                   T *held) {                                                      \
        MINORM_TILE(T, minorm_turn_##C, dx)                                                                        \
        const ptrdiff_t to = 0;                                                                                    \
        minorm_held_##C all = {0};                                                                                 \
        ptrdiff_t j = from;                                                                                        \
        if (from) all = *(const minorm_held_##C *)held;                                                            \
        MINORM_ONES(T, S, MINORM_GRAD, dx, lead)                                                                   \
        for (; j + 32 <= end && i + 32 <= stop; j += 32) {                                                         \
            const ptrdiff_t pause = i + 32;                                                                        \
            minorm_add_##S(&all, dy + next, s, x + next, j, j + 32, k1, d1);                                       \
            MINORM_MANY(minorm_turn_##C, S, MINORM_GRAD, dx, pause, MINORM_ASK(x + soon) MINORM_ASK(dy + soon))    \
        }                                                                                                          \
        minorm_add_##S(&all, dy + next, s, x + next, j, end, k1, d1);                                              \
        MINORM_MANY(minorm_turn_##C, S, MINORM_GRAD, dx, stop, )                                                   \
        MINORM_ONES(T, S, MINORM_GRAD, dx, stop)                                                                   \
        MINORM_HOLD(T, C)                                                                                          \
    }                                                                                                              \
                                                                                                                   \
    SIXTEEN_APART void minorm_grad_and_sum_##S(const X *dy, const X *x, const T *s, X *dx, T *ds, T *db,           \
                                               ptrdiff_t n, ptrdiff_t from, ptrdiff_t some, ptrdiff_t next,        \
                                               ptrdiff_t soon, T k, T d, T r, T c, T p, T q, T k1, T d1,           \
                                               T *held) {                                                          \
        MINORM_COMBINE(MINORM_GRAD_AND_SUM, S, s, ds, s, ds)                                                       \
    }

MINORM_FAR(float, float, float, f)
MINORM_FAR(double, double, double, d)
MINORM_FAR(uint16_t, half, float, f)
MINORM_FAR(uint16_t, bfloat, float, f)

#endif
