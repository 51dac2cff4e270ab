/* Rows of lanes, neighbours in memory that belong to different statistics: k, d and all other factors have a number
 * for each of them.
 *
 *     a += x - k,  q += (x - k)^2                           sums of the first phase
 *     a += g,      q += g * (x - mean),  g = dy * w         and backward
 *     y  = ((x - k) - d) * (c * w) + (e + u)                the second phase; c = rstd * s
 *     dx = (dy * (c * w) - p) - ((x - k) - d) * r * q
 *
 * w and u are parameters that vary from row to row and not from lane to lane, else 1 and 0. Where data is far, each
 * turn asks for a line of the row that comes `next` elements further on, and of the one after that (`then`): pieces of
 * rows that are not followed by the next are otherwise read slowly. (Asking for some lines at once gains nothing.)
 */
#ifndef MINORM_NORM_LANE_ROWS_H
#define MINORM_NORM_LANE_ROWS_H

#include "norm/apply.h"

#define MINORM_OF(V, p) (*(const V *)((p) + i))

#define MINORM_LANE_APPLY(V, LOAD, KEEP)                                                                           \
    V v;                                                                                                           \
    LOAD(x + i, &v);                                                                                               \
    v = ((v - MINORM_OF(V, k)) - MINORM_OF(V, d)) * (MINORM_OF(V, c) * w) + (MINORM_OF(V, e) + u);

#define MINORM_LANE_GRAD(V, LOAD, KEEP)                                                                            \
    V g, v;                                                                                                        \
    LOAD(dy + i, &g);                                                                                              \
    LOAD(x + i, &v);                                                                                               \
    v = ((v - MINORM_OF(V, k)) - MINORM_OF(V, d)) * MINORM_OF(V, r) * MINORM_OF(V, q);                             \
    v = (g * (MINORM_OF(V, c) * w) - MINORM_OF(V, p)) - v;

/* The terms of the sums of ROWS rows; KEEP leaves out what was counted before. */
#define MINORM_LANE_SUM(V, LOAD, KEEP)                                                                             \
    {                                                                                                              \
        V t, all = *(V *)(a + i), squares = *(V *)(q + i);                                                         \
        for (int row = 0; row < ROWS; row++) {                                                                     \
            LOAD(x + row * step + i, &t);                                                                          \
            t = KEEP(t - MINORM_OF(V, k));                                                                         \
            all += t;                                                                                              \
            squares += t * t;                                                                                      \
        }                                                                                                          \
        *(V *)(a + i) = all;                                                                                       \
        *(V *)(q + i) = squares;                                                                                   \
    }

#define MINORM_LANE_GRAD_SUM(V, LOAD, KEEP)                                                                        \
    {                                                                                                              \
        V g, t, all = *(V *)(a + i), products = *(V *)(q + i);                                                     \
        for (int row = 0; row < ROWS; row++) {                                                                     \
            LOAD(dy + row * step + i, &g);                                                                         \
            LOAD(x + row * step + i, &t);                                                                          \
            g = KEEP(g * w);                                                                                       \
            t = KEEP((t - MINORM_OF(V, k)) - MINORM_OF(V, d));                                                     \
            all += g;                                                                                              \
            products += g * t;                                                                                     \
        }                                                                                                          \
        *(V *)(a + i) = all;                                                                                       \
        *(V *)(q + i) = products;                                                                                  \
    }

/* All turns of a row. What is left after whole ones is taken out of the last. */
#define MINORM_SAME(t) (t)
#define MINORM_REST_f(t) (minorm_turn_f)((minorm_turn_if)(t) & kept)
#define MINORM_REST_d(t) (minorm_turn_d)((minorm_turn_id)(t) & kept)
#define MINORM_LANE_TURNS(T, C, S, TURN, ASK)                                                                      \
    const ptrdiff_t many = MINORM_TURN_##C;                                                                        \
    ptrdiff_t i = 0;                                                                                               \
    for (; i + many <= n; i += many) {                                                                             \
        ASK                                                                                                        \
        TURN(minorm_turn_##C, minorm_load_turn_##S, MINORM_SAME)                                                   \
    }                                                                                                              \
    if (i < n && n >= many) {                                                                                      \
        const minorm_turn_i##C kept = MINORM_SOME_##C(i - (n - many), many);                                       \
        i = n - many;                                                                                              \
        TURN(minorm_turn_##C, minorm_load_turn_##S, MINORM_REST_##C)                                               \
        i = n;                                                                                                     \
    }                                                                                                              \
    for (; i < n; i++) TURN(T, minorm_load_one_##S, MINORM_SAME)

#define MINORM_ASK_BOTH(p) MINORM_ASK((p) + next) MINORM_ASK((p) + then)
#define MINORM_ASK_ROWS(p) for (int row = 0; row < ROWS; row++) { MINORM_ASK_BOTH((p) + row * step) }

/* `count` rows of n lanes, `step` apart. Are they in cache by now (`held`)? */
typedef struct {
    ptrdiff_t count, step, n, next, then;
    bool held;
} minorm_rows;

/* Rows in cache are summed up four at a time, which loads and stores an accumulator once for all of them; from memory
 * they would come slower. Either way adds in the same order. */
#define MINORM_LANES(X, S, T, C)                                                                                   \
    MINORM_APART void minorm_lane_sums_##S(const X *x, const minorm_rows *rows, bool far, const T *k, T *a, T *q) {\
        const ptrdiff_t n = rows->n, step = rows->step, next = rows->next, then = rows->then;                      \
        ptrdiff_t left = rows->count;                                                                              \
        for (; rows->held && left >= 4; left -= 4, x += 4 * step) {                                                \
            enum { ROWS = 4 };                                                                                     \
            MINORM_LANE_TURNS(T, C, S, MINORM_LANE_SUM, MINORM_ASK_ROWS(x))                                        \
        }                                                                                                          \
        for (; left; left--, x += step) {                                                                          \
            enum { ROWS = 1 };                                                                                     \
            MINORM_LANE_TURNS(T, C, S, MINORM_LANE_SUM, MINORM_ASK_ROWS(x))                                        \
        }                                                                                                          \
    }                                                                                                              \
                                                                                                                   \
    MINORM_APART void minorm_lane_grad_sums_##S(const X *dy, const X *x, const minorm_rows *rows, bool far,        \
                                                const T *k, const T *d, T w, T *a, T *q) {                         \
        const ptrdiff_t n = rows->n, step = rows->step, next = rows->next, then = rows->then;                      \
        ptrdiff_t left = rows->count;                                                                              \
        for (; rows->held && left >= 4; left -= 4, dy += 4 * step, x += 4 * step) {                                \
            enum { ROWS = 4 };                                                                                     \
            MINORM_LANE_TURNS(T, C, S, MINORM_LANE_GRAD_SUM, MINORM_ASK_ROWS(x) MINORM_ASK_ROWS(dy))               \
        }                                                                                                          \
        for (; left; left--, dy += step, x += step) {                                                              \
            enum { ROWS = 1 };                                                                                     \
            MINORM_LANE_TURNS(T, C, S, MINORM_LANE_GRAD_SUM, MINORM_ASK_ROWS(x) MINORM_ASK_ROWS(dy))               \
        }                                                                                                          \
    }                                                                                                              \
                                                                                                                   \
    MINORM_INLINE void minorm_lane_apply_of_##S(const X *x, X *y, const minorm_rows *rows, bool far, const T *k,   \
                                                const T *d, const T *c, const T *e, T w, T u) {                    \
        const ptrdiff_t n = rows->n, step = rows->step, next = rows->next, then = rows->then;                      \
        for (ptrdiff_t left = rows->count; left; left--, x += step, y += step) {                                   \
            MINORM_RUN(T, C, S, MINORM_LANE_APPLY, y, !far, MINORM_ASK_BOTH(x))                                    \
        }                                                                                                          \
    }                                                                                                              \
                                                                                                                   \
    MINORM_APART void minorm_lane_apply_##S(const X *x, X *y, const minorm_rows *rows, bool far, const T *k,       \
                                            const T *d, const T *c, const T *e, T w, T u) {                        \
        if (far) minorm_lane_apply_of_##S(x, y, rows, true, k, d, c, e, w, u);                                     \
        else minorm_lane_apply_of_##S(x, y, rows, false, k, d, c, e, w, u);                                        \
    }                                                                                                              \
                                                                                                                   \
    MINORM_INLINE void minorm_lane_grad_of_##S(const X *dy, const X *x, X *dx, const minorm_rows *rows, bool far,  \
                                               const T *k, const T *d, const T *r, const T *c, const T *p,         \
                                               const T *q, T w) {                                                  \
        const ptrdiff_t n = rows->n, step = rows->step, next = rows->next, then = rows->then;                      \
        for (ptrdiff_t left = rows->count; left; left--, dy += step, x += step, dx += step) {                      \
            MINORM_RUN(T, C, S, MINORM_LANE_GRAD, dx, !far, MINORM_ASK_BOTH(x) MINORM_ASK_BOTH(dy))                \
        }                                                                                                          \
    }                                                                                                              \
                                                                                                                   \
    MINORM_APART void minorm_lane_grad_##S(const X *dy, const X *x, X *dx, const minorm_rows *rows, bool far,      \
                                           const T *k, const T *d, const T *r, const T *c, const T *p,             \
                                           const T *q, T w) {                                                      \
        if (far) minorm_lane_grad_of_##S(dy, x, dx, rows, true, k, d, r, c, p, q, w);                              \
        else minorm_lane_grad_of_##S(dy, x, dx, rows, false, k, d, r, c, p, q, w);                                 \
    }

MINORM_LANES(float, float, float, f)
MINORM_LANES(double, double, double, d)
MINORM_LANES(uint16_t, half, float, f)
MINORM_LANES(uint16_t, bfloat, float, f)

#endif
