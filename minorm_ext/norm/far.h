/* Both phases at once, of rows that come from memory and whose results go around the cache: the second phase of a piece
 * of one row, and the first phase of a piece of a row that follows, whose shift is k1, or whose mean is k1 + d1. A wide
 * row has left the innermost cache when its second phase begins; so memory is read all the time and not by turns.
 *
 * The second phase is on n elements at x, dy and s; the first on n1 at x1, dy1 and s1. Pieces of a row go through the
 * first in their order, and `held` keeps the accumulators from the piece that `opens` a sum to the one that `closes`
 * it, where it has the sums themselves. Pieces but the last of a sum are multiples of BRIEF. In the second phase a
 * piece ends where a line does, unless a run `begins` or `ends` with it.
 *
 * The sums are those of sums.h and the results those of apply.h, bit by bit. c stands for r * s where s is
 * NULL, c_b for b where b is NULL.
 */
#ifndef MINORM_NORM_FAR_H
#define MINORM_NORM_FAR_H

#include "norm/apply.h"
#include "norm/sums.h"

#define MINORM_APPLY_AND_SUM(S, s, b)                                                                              \
    minorm_apply_and_sum_of_##S(x, s, b, y, n, begins, ends, x1, n1, opens, closes, k, d, r, c, c_b, k1, held)
#define MINORM_GRAD_AND_SUM(S, s, ds)                                                                              \
    minorm_grad_and_sum_of_##S(dy, x, s, dx, ds, ds ? db : NULL, n, begins, ends, dy1, x1, s ? s1 : NULL, n1, opens,\
                               closes, k, d, r, c, p, q, k1, d1, held)

/* Ask for what will take the place of `some` elements from `from` on; and once more when half the way is left. */
#define MINORM_ASK_SOON(from, some)                                                                                \
    for (size_t line = 0; line < (some) * sizeof(*x); line += 64) {                                                \
        __builtin_prefetch((const char *)(from) + SOON + line, 0, 2);                                              \
        __builtin_prefetch((const char *)(from) + SOON / 2 + line, 0, 2);                                          \
    }

/* Where the second phase of a piece of y begins and stops, and the accumulators. */
#define MINORM_PIECE(T, C, y)                                                                                      \
    const bool far = true;                                                                                         \
    const ptrdiff_t at = 0, many = MINORM_TURN_##C, lead = MINORM_LEAD(y);                                         \
    const ptrdiff_t stop = ends ? MINORM_WHOLE(y, n) : n + MINORM_LEAD(y + n);                                     \
    ptrdiff_t i = begins ? 0 : lead;                                                                               \
    minorm_held_##C all = {0};                                                                                     \
    if (!opens) all = *(const minorm_held_##C *)held;

#define MINORM_HOLD(T, C)                                                                                          \
    if (!closes) {                                                                                                 \
        *(minorm_held_##C *)held = all;                                                                            \
    } else {                                                                                                       \
        held[0] = minorm_total_##C((const T *)all.a);                                                              \
        held[1] = minorm_total_##C((const T *)all.q);                                                              \
    }

#define MINORM_FAR(X, S, T, C)                                                                                     \
    /* What is left of a piece, by way of a copy: the accumulators of the loop stay in registers. */               \
    MINORM_APART void minorm_add_rest_##S(minorm_held_##C *z, const X *dy, const T *s, const X *x, ptrdiff_t i,    \
                                          ptrdiff_t n, T k, T d) {                                                 \
        minorm_add_##S(z, dy, s, x, i, n, k, d);                                                                   \
    }                                                                                                              \
                                                                                                                   \
    MINORM_INLINE void minorm_rest_##S(minorm_held_##C *z, const X *dy, const T *s, const X *x, ptrdiff_t i,       \
                                       ptrdiff_t n, T k, T d) {                                                    \
        minorm_held_##C copy = *z;                                                                                 \
        if (i < n) minorm_add_rest_##S(&copy, dy, s, x, i, n, k, d);                                               \
        *z = copy;                                                                                                 \
    }                                                                                                              \
                                                                                                                   \
    MINORM_INLINE void minorm_apply_and_sum_of_##S(const X *x, const T *s, const T *b, X *y, ptrdiff_t n,          \
                                                   bool begins, bool ends, const X *x1, ptrdiff_t n1, bool opens,  \
                                                   bool closes, T k, T d, T r, T c, T c_b, T k1, T *held) {        \
        MINORM_PIECE(T, C, y)                                                                                      \
        if (begins) { MINORM_FIRST(C, S, MINORM_APPLY, y, lead) }                                                  \
        for (ptrdiff_t start = 0; start < n1; start += BRIEF) {                                                    \
            const X *from = x1 + start;                                                                            \
            const ptrdiff_t length = n1 - start < BRIEF ? n1 - start : BRIEF;                                      \
            minorm_held_##C piece = {0};                                                                           \
            ptrdiff_t j = 0;                                                                                       \
            for (; j + 32 <= length && i + 32 <= stop; j += 32) {                                                  \
                const ptrdiff_t pause = i + 32;                                                                    \
                MINORM_ASK_SOON(from + j, 32)                                                                      \
                minorm_add_##S(&piece, NULL, NULL, from, j, j + 32, k1, 0);                                        \
                MINORM_MANY(C, S, MINORM_APPLY, y, pause, )                                                        \
            }                                                                                                      \
            MINORM_ASK_SOON(from + j, length - j)                                                                  \
            minorm_rest_##S(&piece, NULL, NULL, from, j, length, k1, 0);                                           \
            minorm_gather_##C(&all, &piece);                                                                       \
        }                                                                                                          \
        MINORM_MANY(C, S, MINORM_APPLY, y, stop, )                                                                 \
        if (ends) { MINORM_LAST(C, S, MINORM_APPLY, y, false) }                                                    \
        MINORM_HOLD(T, C)                                                                                          \
    }                                                                                                              \
                                                                                                                   \
    MINORM_APART void minorm_apply_and_sum_##S(const X *x, const T *s, const T *b, X *y, ptrdiff_t n,              \
                                               bool begins, bool ends, const X *x1, ptrdiff_t n1, bool opens,      \
                                               bool closes, T k, T d, T r, T c, T c_b, T k1, T *held) {            \
        MINORM_COMBINE(MINORM_APPLY_AND_SUM, S, s, b, s, b)                                                        \
    }                                                                                                              \
                                                                                                                   \
    MINORM_INLINE void minorm_grad_and_sum_of_##S(const X *dy, const X *x, const T *s, X *dx, T *ds, T *db,        \
                                                  ptrdiff_t n, bool begins, bool ends, const X *dy1, const X *x1,  \
                                                  const T *s1, ptrdiff_t n1, bool opens, bool closes, T k, T d,    \
                                                  T r, T c, T p, T q, T k1, T d1, T *held) {                       \
        MINORM_PIECE(T, C, dx)                                                                                     \
        const ptrdiff_t to = 0;                                                                                    \
        ptrdiff_t j = 0;                                                                                           \
        if (begins) { MINORM_FIRST(C, S, MINORM_GRAD, dx, lead) }                                                  \
        for (; j + 32 <= n1 && i + 32 <= stop; j += 32) {                                                          \
            const ptrdiff_t pause = i + 32;                                                                        \
            MINORM_ASK_SOON(x1 + j, 32)                                                                            \
            MINORM_ASK_SOON(dy1 + j, 32)                                                                           \
            minorm_add_##S(&all, dy1, s1, x1, j, j + 32, k1, d1);                                                  \
            MINORM_MANY(C, S, MINORM_GRAD, dx, pause, )                                                            \
        }                                                                                                          \
        MINORM_ASK_SOON(x1 + j, n1 - j)                                                                            \
        MINORM_ASK_SOON(dy1 + j, n1 - j)                                                                           \
        minorm_rest_##S(&all, dy1, s1, x1, j, n1, k1, d1);                                                         \
        MINORM_MANY(C, S, MINORM_GRAD, dx, stop, )                                                                 \
        if (ends) { MINORM_LAST(C, S, MINORM_GRAD, dx, false) }                                                    \
        MINORM_HOLD(T, C)                                                                                          \
    }                                                                                                              \
                                                                                                                   \
    MINORM_APART void minorm_grad_and_sum_##S(const X *dy, const X *x, const T *s, X *dx, T *ds, T *db,            \
                                              ptrdiff_t n, bool begins, bool ends, const X *dy1, const X *x1,      \
                                              const T *s1, ptrdiff_t n1, bool opens, bool closes, T k, T d, T r,   \
                                              T c, T p, T q, T k1, T d1, T *held) {                                \
        MINORM_COMBINE(MINORM_GRAD_AND_SUM, S, s, ds, s, ds)                                                       \
    }

MINORM_FAR(float, float, float, f)
MINORM_FAR(double, double, double, d)

#endif
