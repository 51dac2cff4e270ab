/* The second phase on rows that follow each other without a gap, around the cache, a line of memory at a time.
 *
 * Only whole lines go around the cache, and where rows are short a good part of all lines belongs to two of them. So
 * rows are taken as one stretch: a turn goes with what is known of its row, and one where two rows meet with what is
 * known of each, mixed element by element. A line that the next rows end is left to them. The arithmetic is that of
 * apply.h, bit by bit.
 *
 * `of` has what is known of each row, `across` apart: k, d, c = rstd * s and b forward; k, d, c, rstd, p and q backward.
 * It begins with the row before, where a stretch does not `open` with these rows; it may `close` with them. Each turn
 * asks for what lies `next` elements further on, if that is not 0. A row is a line or longer.
 *
 * Where rows share a parameter for each element, s and b go on with a turn of their first elements after the last, and
 * c is rstd: so a turn in which two rows meet finds its parameters side by side. What such turns add to ds and db behind
 * their n elements belongs to the first ones. Without such parameters all four are NULL.
 */
#ifndef MINORM_NORM_LINES_H
#define MINORM_NORM_LINES_H

#include "norm/apply.h"

#define FACTORS 6 /* known of a row, at most */
#define FACTORS_APPLY 4
#define FACTORS_GRAD 6

#define MINORM_OF_APPLY(V, of) const V k = of[0], d = of[1], c = of[2], r = c, c_b = of[3];
#define MINORM_OF_GRAD(V, of) const V k = of[0], d = of[1], c = of[2], r = of[3], p = of[4], q = of[5];

#define MINORM_ASK_APPLY __builtin_prefetch(x + i + next, 0, 2);
#define MINORM_ASK_GRAD __builtin_prefetch(x + i + next, 0, 2), __builtin_prefetch(dy + i + next, 0, 2);

#define MINORM_LINE_TURN(C, S, PHASE, y, factors)                                                                  \
    {                                                                                                              \
        MINORM_OF_##PHASE(minorm_turn_##C, factors)                                                                \
        if (next) MINORM_ASK_##PHASE                                                                               \
        MINORM_##PHASE(minorm_turn_##C, minorm_load_turn_##S, MINORM_ALL)                                          \
        minorm_send_##S(y + i, &v);                                                                                \
        i += many;                                                                                                 \
    }

/* Elements of one row up to `stop`, which do not make a line. */
#define MINORM_LINE_ONES(T, S, PHASE, y, row, stop)                                                                \
    for (const ptrdiff_t end = stop, at = (1 - (row)) * n, to = at; i < end; i++) {                                \
        T factors[FACTORS];                                                                                        \
        (void)to;                                                                                                  \
        for (int f = 0; f < FACTORS_##PHASE; f++) factors[f] = of[f * across + (row)];                             \
        MINORM_OF_##PHASE(T, factors)                                                                              \
        MINORM_##PHASE(T, minorm_load_one_##S, MINORM_ALL)                                                         \
        minorm_store_one_##S(y + i, &v);                                                                           \
    }

#define MINORM_LINES_OF(T, C, S, PHASE, y)                                                                         \
    const ptrdiff_t many = MINORM_TURN_##C, line = 64 / sizeof(*(y));                                              \
    const ptrdiff_t lead = MINORM_LEAD(y), whole = MINORM_WHOLE(y, rows * n);                                      \
    const int known = FACTORS_##PHASE;                                                                             \
    ptrdiff_t i = opens || lead == 0 ? 0 : lead - line;                                                            \
    if (opens) MINORM_LINE_ONES(T, S, PHASE, y, 1, lead)                                                           \
    for (ptrdiff_t row = 0, stop = 0;; row++, stop += n) { /* the row before stops at `stop` */                    \
        const ptrdiff_t last = stop < whole ? stop : whole, at = n - stop, to = at;                                \
        minorm_turn_##C mine[FACTORS], its[FACTORS];                                                               \
        (void)to;                                                                                                  \
        for (int f = 0; f < known; f++) mine[f] = of[f * across + row] - (minorm_turn_##C){0};                     \
        while (i + many <= last) MINORM_LINE_TURN(C, S, PHASE, y, mine)                                            \
        if (row == rows) break;                                                                                    \
        if (i >= last) continue;                                                                                   \
        const minorm_turn_i##C kept = MINORM_SOME_##C(stop - i, many);                                             \
        for (int f = 0; f < known; f++) {                                                                          \
            its[f] = of[f * across + row + 1] - (minorm_turn_##C){0};                                              \
            its[f] = MINORM_KEPT_##C(its[f], mine[f]);                                                             \
        }                                                                                                          \
        MINORM_LINE_TURN(C, S, PHASE, y, its)                                                                      \
    }                                                                                                              \
    if (closes) MINORM_LINE_ONES(T, S, PHASE, y, rows, rows * n)

#define MINORM_LINES(X, S, T, C)                                                                                   \
    MINORM_INLINE void minorm_apply_lines_of_##S(const X *x, const T *s, const T *b, X *y, ptrdiff_t n,            \
                                                 ptrdiff_t rows, bool opens, bool closes, ptrdiff_t next,          \
                                                 const T *of, ptrdiff_t across) {                                  \
        MINORM_LINES_OF(T, C, S, APPLY, y)                                                                         \
    }                                                                                                              \
                                                                                                                   \
    MINORM_APART void minorm_apply_lines_##S(const X *x, const T *s, const T *b, X *y, ptrdiff_t n, ptrdiff_t rows,\
                                             bool opens, bool closes, ptrdiff_t next, const T *of,                 \
                                             ptrdiff_t across) {                                                   \
        if (s && b) minorm_apply_lines_of_##S(x, s, b, y, n, rows, opens, closes, next, of, across);               \
        else if (s) minorm_apply_lines_of_##S(x, s, NULL, y, n, rows, opens, closes, next, of, across);            \
        else minorm_apply_lines_of_##S(x, NULL, NULL, y, n, rows, opens, closes, next, of, across);                \
    }                                                                                                              \
                                                                                                                   \
    MINORM_INLINE void minorm_grad_lines_of_##S(const X *dy, const X *x, const T *s, X *dx, T *ds, T *db,          \
                                                ptrdiff_t n, ptrdiff_t rows, bool opens, bool closes,              \
                                                ptrdiff_t next, const T *of, ptrdiff_t across) {                   \
        MINORM_LINES_OF(T, C, S, GRAD, dx)                                                                         \
    }                                                                                                              \
                                                                                                                   \
    MINORM_APART void minorm_grad_lines_##S(const X *dy, const X *x, const T *s, X *dx, T *ds, T *db, ptrdiff_t n, \
                                            ptrdiff_t rows, bool opens, bool closes, ptrdiff_t next, const T *of,  \
                                            ptrdiff_t across) {                                                    \
        if (s) minorm_grad_lines_of_##S(dy, x, s, dx, ds, db, n, rows, opens, closes, next, of, across);           \
        else minorm_grad_lines_of_##S(dy, x, NULL, dx, NULL, NULL, n, rows, opens, closes, next, of, across);      \
    }

MINORM_LINES(float, float, float, f)
MINORM_LINES(double, double, double, d)
MINORM_LINES(uint16_t, half, float, f)
MINORM_LINES(uint16_t, bfloat, float, f)

#endif
