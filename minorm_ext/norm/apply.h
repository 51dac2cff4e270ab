/* The second phase on a run:
 *
 *     y  = ((x - k) - d) * r * s + b
 *     dx = (dy * s * r - p) - xhat * q,  ds += dy * xhat,  db += dy
 *     dx = dy * s * r                     where the statistics were given
 *
 * s and b have a parameter for `each` element, or one for a run, or are NULL; ds and db are NULL where nobody asks.
 * Those of a run begin `at` elements into s and b, and `to` elements into ds and db.
 *
 * A far result goes around the cache, each line as soon as it is computed, and each turn asks for a line of what comes
 * next, `next` elements further on: so memory is read and written all the time, and nothing waits in a buffer.
 */
#ifndef MINORM_NORM_APPLY_H
#define MINORM_NORM_APPLY_H

#include <stdbool.h>

#include "simd/vec.h"

/* What one turn computes, in elements of type V: one, or many. All is read first, so that the arithmetic is one
 * piece to the compiler, which then joins a product and a sum wherever it does so elsewhere. */
#define MINORM_APPLY(V, LOAD, KEEP)                                                                                \
    V v;                                                                                                           \
    LOAD(x + i, &v);                                                                                               \
    const V scale = s ? *(const V *)(s + at + i) : v, bias = b ? *(const V *)(b + at + i) : v;                     \
    v = (v - k) - d;                                                                                               \
    v = s ? v * r * scale : v * c;                                                                                 \
    v = b ? v + bias : v + c_b;

#define MINORM_GRAD(V, LOAD, KEEP)                                                                                 \
    V g, in;                                                                                                       \
    LOAD(dy + i, &g);                                                                                              \
    LOAD(x + i, &in);                                                                                              \
    const V scale = s ? *(const V *)(s + at + i) : g;                                                              \
    const V t = ((in - k) - d) * r, v = ((s ? g * scale * r : g * c) - p) - t * q;                                 \
    if (ds) {                                                                                                      \
        V *const all_s = (V *)(ds + to + i), *const all_b = (V *)(db + to + i);                                    \
        *all_s = KEEP(*all_s + g * t, *all_s);                                                                     \
        *all_b = KEEP(*all_b + g, *all_b);                                                                         \
    }

#define MINORM_GRAD_GIVEN(V, LOAD, KEEP)                                                                           \
    V g;                                                                                                           \
    LOAD(dy + i, &g);                                                                                              \
    const V v = s ? g * *(const V *)(s + at + i) * r : g * c;

#define MINORM_COLLECT(V, LOAD)                                                                                    \
    {                                                                                                              \
        V g, in;                                                                                                   \
        LOAD(dy + i, &g);                                                                                          \
        LOAD(x + i, &in);                                                                                          \
        *(V *)(ds + i) += g * (((in - k) - d) * r);                                                                \
        *(V *)(db + i) += g;                                                                                       \
    }

/* Turns up to `stop`: many elements together; or, of many, those from `first` on; or one by one, where a run has not as
 * many. The empty instruction keeps gcc from making vectors of a few elements, which takes it long. */
#define MINORM_ALL(sum, before) (sum)
#define MINORM_KEPT_f(sum, before) (minorm_turn_f)(((minorm_turn_if)(sum) & kept) | ((minorm_turn_if)(before) & ~kept))
#define MINORM_KEPT_d(sum, before) (minorm_turn_d)(((minorm_turn_id)(sum) & kept) | ((minorm_turn_id)(before) & ~kept))

#define MINORM_ONES(T, S, TURN, y, stop)                                                                           \
    for (; i < stop; i++) {                                                                                        \
        __asm__("" : "+r"(i));                                                                                     \
        TURN(T, minorm_load_one_##S, MINORM_ALL)                                                                   \
        minorm_store_one_##S(y + i, &v);                                                                           \
    }

#define MINORM_MANY(C, S, TURN, y, stop, ASK)                                                                      \
    for (; i + many <= stop; i += many) {                                                                          \
        ASK                                                                                                        \
        TURN(minorm_turn_##C, minorm_load_turn_##S, MINORM_ALL)                                                    \
        if (far) minorm_send_##S(y + i, &v);                                                                       \
        else minorm_store_##S(y + i, &v);                                                                          \
    }

#define MINORM_SOME(C, S, TURN, y, start, first, stop, again)                                                      \
    {                                                                                                              \
        const ptrdiff_t begin = first, end = stop, origin = start, i = origin;                                     \
        const minorm_turn_i##C kept = MINORM_SOME_##C(begin - i, end - i);                                         \
        TURN(minorm_turn_##C, minorm_load_turn_##S, MINORM_KEPT_##C)                                               \
        (void)kept;                                                                                                \
        if (again) minorm_store_##S(y + i, &v);                                                                    \
        else minorm_store_some_##S(y + i, &v, begin - i, end - i);                                                 \
    }

/* Elements before the first line, and those up to the end of the last whole one: only whole lines go around the cache,
 * for half of one is written many times as slowly. */
#define MINORM_LEAD(y) ((ptrdiff_t)(-(uintptr_t)(y) % 64 / sizeof(*(y))))
#define MINORM_WHOLE(y, n) ((n) - (ptrdiff_t)((uintptr_t)((y) + (n)) % 64 / sizeof(*(y))))

/* Those before; and what is left at the end, which may be done `again` with those before it. */
#define MINORM_FIRST(C, S, TURN, y, lead)                                                                          \
    for (; i < lead; i += many) MINORM_SOME(C, S, TURN, y, i, i, i + many < lead ? i + many : lead, false)         \
    i = lead;

#define MINORM_LAST(C, S, TURN, y, again)                                                                          \
    for (; i < n; i += many)                                                                                       \
        MINORM_SOME(C, S, TURN, y, i + many < n ? i : n - many, i, i + many < n ? i + many : n, again)

#define MINORM_RUN(T, C, S, TURN, y, again, ASK)                                                                   \
    const ptrdiff_t many = MINORM_TURN_##C;                                                                        \
    const ptrdiff_t lead = far ? MINORM_LEAD(y) : 0, whole = far ? MINORM_WHOLE(y, n) : n;                         \
    ptrdiff_t i = 0;                                                                                               \
    if (n < lead + many) {                                                                                         \
        MINORM_ONES(T, S, TURN, y, n)                                                                              \
    } else {                                                                                                       \
        MINORM_FIRST(C, S, TURN, y, lead)                                                                          \
        MINORM_MANY(C, S, TURN, y, whole, ASK)                                                                     \
        if (i < n) { ASK }                                                                                         \
        MINORM_LAST(C, S, TURN, y, again)                                                                          \
    }

/* A line that belongs to two runs is fetched before it is written; what is stored after it waits. */
#define MINORM_ASK_EDGES(y)                                                                                        \
    if (far) {                                                                                                     \
        __builtin_prefetch((y) + (runs > 1 ? 4 * step : next), 1, 3);                                              \
        __builtin_prefetch((y) + n + (runs > 1 ? 4 * step : next), 1, 3);                                          \
    }

#define MINORM_ASK(p)                                                                                              \
    for (size_t line = 0; far && line < many * sizeof(*x); line += 64)                                             \
        __builtin_prefetch((const char *)(p + i) + line, 0, 2);

/* The compiler makes one loop of each combination of what is there. */
#define MINORM_COMBINE(CALL, S, if_a, if_b, a, b)                                                                  \
    if ((if_a) && (if_b)) { CALL(S, a, b); }                                                                       \
    else if (if_a) { CALL(S, a, NULL); }                                                                           \
    else if (if_b) { CALL(S, NULL, b); }                                                                           \
    else { CALL(S, NULL, NULL); }

#define MINORM_APPLY_RUNS(S, s, b)                                                                                 \
    if (far) minorm_apply_of_##S(x, s, b, run_s, run_b, param, y, step, runs, n, next, true, k, d, r);             \
    else minorm_apply_of_##S(x, s, b, run_s, run_b, param, y, step, runs, n, next, false, k, d, r)
#define MINORM_GRAD_RUNS(S, s, ds)                                                                                 \
    if (far)                                                                                                       \
        minorm_grad_of_##S(dy, x, s, run_s, param, dx, ds, ds ? db : NULL, step, runs, n, next, true, k, d, r, p, q);\
    else                                                                                                           \
        minorm_grad_of_##S(dy, x, s, run_s, param, dx, ds, ds ? db : NULL, step, runs, n, next, false, k, d, r, p, q)
#define MINORM_GRAD_GIVEN_RUNS(S, s, none)                                                                         \
    if (far) minorm_grad_given_of_##S(dy, s, run_s, param, dx, step, runs, n, true, r);                            \
    else minorm_grad_given_of_##S(dy, s, run_s, param, dx, step, runs, n, false, r)

/* For data X stored in S: `runs` runs of n elements, `step` apart; their parameters are `param` apart. */
#define MINORM_SECOND(X, S, T, C)                                                                                  \
    MINORM_INLINE void minorm_apply_of_##S(const X *x, const T *s, const T *b, const T *run_s, const T *run_b,     \
                                           ptrdiff_t param, X *y, ptrdiff_t step, ptrdiff_t runs, ptrdiff_t n,     \
                                           ptrdiff_t next, bool far, T k, T d, T r) {                              \
        for (ptrdiff_t run = 0; run < runs; run++, x += step, y += step) {                                         \
            const ptrdiff_t at = run * param;                                                                      \
            const T c = run_s ? r * run_s[at] : r, c_b = run_b ? run_b[at] : (T)-0.0;                              \
            MINORM_ASK_EDGES(y)                                                                                    \
            MINORM_RUN(T, C, S, MINORM_APPLY, y, !far, MINORM_ASK(x + next))                                       \
        }                                                                                                          \
    }                                                                                                              \
                                                                                                                   \
    MINORM_APART void minorm_apply_##S(const X *x, const T *s, const T *b, bool each, ptrdiff_t param, X *y,       \
                                       ptrdiff_t step, ptrdiff_t runs, ptrdiff_t n, ptrdiff_t next, bool far,      \
                                       T k, T d, T r) {                                                            \
        const T *run_s = each ? NULL : s, *run_b = each ? NULL : b;                                                \
        MINORM_COMBINE(MINORM_APPLY_RUNS, S, each && s, each && b, s, b)                                           \
    }                                                                                                              \
                                                                                                                   \
    /* The same on `rows` rows of one run, which begin at `start`. */                                              \
    MINORM_APART void minorm_apply_rows_##S(const X *x, const T *s, const T *b, const ptrdiff_t *param, X *y,      \
                                            const ptrdiff_t *start, ptrdiff_t rows, ptrdiff_t n, const T *k,       \
                                            const T *d, const T *r) {                                              \
        for (ptrdiff_t j = 0; j < rows; j++)                                                                       \
            minorm_apply_of_##S(x + start[j], NULL, NULL, s ? s + param[j] : NULL, b ? b + param[j] : NULL, 0,     \
                                y + start[j], 0, 1, n, 0, false, k[j], d[j], r[j]);                                \
    }                                                                                                              \
                                                                                                                   \
    MINORM_INLINE void minorm_grad_of_##S(const X *dy, const X *x, const T *s, const T *run_s, ptrdiff_t param,    \
                                          X *dx, T *ds, T *db, ptrdiff_t step, ptrdiff_t runs, ptrdiff_t n,        \
                                          ptrdiff_t next, bool far, T k, T d, T r, T p, T q) {                     \
        for (ptrdiff_t run = 0; run < runs; run++, dy += step, x += step, dx += step) {                            \
            const ptrdiff_t at = run * param, to = param ? run * n : 0;                                            \
            const T c = run_s ? r * run_s[at] : r;                                                                 \
            MINORM_ASK_EDGES(dx)                                                                                   \
            MINORM_RUN(T, C, S, MINORM_GRAD, dx, !far && !ds,                                                      \
                       MINORM_ASK(x + next) MINORM_ASK(dy + next))                                                 \
        }                                                                                                          \
    }                                                                                                              \
                                                                                                                   \
    MINORM_APART void minorm_grad_##S(const X *dy, const X *x, const T *s, bool each, ptrdiff_t param, X *dx,      \
                                      T *ds, T *db, ptrdiff_t step, ptrdiff_t runs, ptrdiff_t n, ptrdiff_t next,   \
                                      bool far, T k, T d, T r, T p, T q) {                                         \
        const T *run_s = each ? NULL : s;                                                                          \
        MINORM_COMBINE(MINORM_GRAD_RUNS, S, each && s, ds, s, ds)                                                  \
    }                                                                                                              \
                                                                                                                   \
    MINORM_APART void minorm_grad_rows_##S(const X *dy, const X *x, const T *s, const ptrdiff_t *param, X *dx,     \
                                           const ptrdiff_t *start, ptrdiff_t rows, ptrdiff_t n, const T *k,        \
                                           const T *d, const T *r, const T *p, const T *q) {                       \
        for (ptrdiff_t j = 0; j < rows; j++)                                                                       \
            minorm_grad_of_##S(dy + start[j], x + start[j], NULL, s ? s + param[j] : NULL, 0, dx + start[j], NULL, \
                               NULL, 0, 1, n, 0, false, k[j], d[j], r[j], p[j], q[j]);                             \
    }                                                                                                              \
                                                                                                                   \
    MINORM_INLINE void minorm_grad_given_of_##S(const X *dy, const T *s, const T *run_s, ptrdiff_t param, X *dx,   \
                                                ptrdiff_t step, ptrdiff_t runs, ptrdiff_t n, bool far, T r) {      \
        for (ptrdiff_t run = 0; run < runs; run++, dy += step, dx += step) {                                       \
            const ptrdiff_t at = run * param;                                                                      \
            const T c = run_s ? r * run_s[at] : r;                                                                 \
            MINORM_RUN(T, C, S, MINORM_GRAD_GIVEN, dx, !far, )                                                     \
        }                                                                                                          \
    }                                                                                                              \
                                                                                                                   \
    MINORM_APART void minorm_grad_given_##S(const X *dy, const T *s, bool each, ptrdiff_t param, X *dx,            \
                                            ptrdiff_t step, ptrdiff_t runs, ptrdiff_t n, bool far, T r) {          \
        const T *run_s = each ? NULL : s;                                                                          \
        MINORM_COMBINE(MINORM_GRAD_GIVEN_RUNS, S, each && s, false, s, NULL)                                       \
    }                                                                                                              \
                                                                                                                   \
    MINORM_APART void minorm_grad_params_##S(const X *dy, const X *x, ptrdiff_t param, T *ds, T *db, ptrdiff_t step,\
                                             ptrdiff_t runs, ptrdiff_t n, T k, T d, T r) {                         \
        for (; runs; runs--, dy += step, x += step) {                                                              \
            const ptrdiff_t many = MINORM_TURN_##C;                                                                \
            ptrdiff_t i = 0;                                                                                       \
            for (; i + many <= n; i += many) MINORM_COLLECT(minorm_turn_##C, minorm_load_turn_##S)                 \
            for (; i < n; i++) MINORM_COLLECT(T, minorm_load_one_##S)                                              \
            ds += param ? n : 0, db += param ? n : 0;                                                              \
        }                                                                                                          \
    }

MINORM_SECOND(float, float, float, f)
MINORM_SECOND(double, double, double, d)
MINORM_SECOND(uint16_t, half, float, f)
MINORM_SECOND(uint16_t, bfloat, float, f)

#endif
