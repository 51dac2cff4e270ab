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

#include "sixteen.h"

/* What one turn computes, in elements of type V: one, or many. All is read first, so that the arithmetic is one
 * piece to the compiler, which then joins a product and a sum wherever it does so elsewhere. */
#define MINORM_APPLY(V, LOAD)                                                                                      \
    V v;                                                                                                           \
    LOAD(x + i, &v);                                                                                               \
    const V scale = s ? *(const V *)(s + at + i) : v, bias = b ? *(const V *)(b + at + i) : v;                     \
    v = (v - k) - d;                                                                                               \
    v = s ? v * r * scale : v * c;                                                                                 \
    v = b ? v + bias : v + c_b;

#define MINORM_GRAD(V, LOAD)                                                                                       \
    V g, in;                                                                                                       \
    LOAD(dy + i, &g);                                                                                              \
    LOAD(x + i, &in);                                                                                              \
    const V scale = s ? *(const V *)(s + at + i) : g;                                                              \
    const V t = ((in - k) - d) * r, v = ((s ? g * scale * r : g * c) - p) - t * q;                                 \
    if (ds) {                                                                                                      \
        *(V *)(ds + to + i) += g * t;                                                                              \
        *(V *)(db + to + i) += g;                                                                                  \
    }

#define MINORM_GRAD_GIVEN(V, LOAD)                                                                                 \
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

/* Turns up to `stop`: one by one, as before the first line of a far result and at the end; many together; or the last
 * many once more, where some of them may be done again. The empty instruction keeps gcc from making vectors of a few
 * elements, for which it took a third of the time that compiling all this takes. */
#define MINORM_ONES(T, S, TURN, y, stop)                                                                           \
    for (; i < stop; i++) {                                                                                        \
        __asm__("" : "+r"(i));                                                                                     \
        TURN(T, minorm_load_one_##S)                                                                               \
        minorm_store_one_##S(y + i, &v);                                                                           \
    }

#define MINORM_MANY(V, S, TURN, y, stop, ASK)                                                                      \
    for (; i + many <= stop; i += many) {                                                                          \
        ASK                                                                                                        \
        TURN(V, minorm_load_turn_##S)                                                                              \
        if (far) minorm_send_##S(y + i, &v);                                                                       \
        else minorm_store_##S(y + i, &v);                                                                          \
    }

#define MINORM_AGAIN(V, S, TURN, y)                                                                                \
    if (i < n && n >= many) {                                                                                      \
        i = n - many;                                                                                              \
        TURN(V, minorm_load_turn_##S)                                                                              \
        minorm_store_##S(y + i, &v);                                                                               \
        i = n;                                                                                                     \
    }

/* Elements before the first line. */
#define MINORM_LEAD(y) ((ptrdiff_t)(-(uintptr_t)(y) % 64 / sizeof(*(y))))

/* A run: `lead` elements one by one, and so on. */
#define MINORM_RUN(T, V, S, TURN, y, again, ASK)                                                                   \
    const ptrdiff_t many = sizeof(V) / sizeof(T), lead = MINORM_LEAD(y);                                           \
    ptrdiff_t i = 0;                                                                                               \
    if (far) { MINORM_ONES(T, S, TURN, y, (lead < n ? lead : n)) }                                                 \
    MINORM_MANY(V, S, TURN, y, n, ASK)                                                                             \
    if (again) { MINORM_AGAIN(V, S, TURN, y) }                                                                     \
    MINORM_ONES(T, S, TURN, y, n)

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
    SIXTEEN_INLINE void minorm_apply_of_##S(const X *x, const T *s, const T *b, const T *run_s, const T *run_b,    \
                                            ptrdiff_t param, X *y, ptrdiff_t step, ptrdiff_t runs, ptrdiff_t n,    \
                                            ptrdiff_t next, bool far, T k, T d, T r) {                             \
        for (ptrdiff_t run = 0; run < runs; run++, x += step, y += step) {                                         \
            const ptrdiff_t at = run * param;                                                                      \
            const T c = run_s ? r * run_s[at] : r, c_b = run_b ? run_b[at] : (T)-0.0;                              \
            MINORM_RUN(T, minorm_turn_##C, S, MINORM_APPLY, y, !far, MINORM_ASK(x + next))                         \
        }                                                                                                          \
    }                                                                                                              \
                                                                                                                   \
    SIXTEEN_APART void minorm_apply_##S(const X *x, const T *s, const T *b, bool each, ptrdiff_t param, X *y,      \
                                        ptrdiff_t step, ptrdiff_t runs, ptrdiff_t n, ptrdiff_t next, bool far,     \
                                        T k, T d, T r) {                                                           \
        const T *run_s = each ? NULL : s, *run_b = each ? NULL : b;                                                \
        MINORM_COMBINE(MINORM_APPLY_RUNS, S, each && s, each && b, s, b)                                           \
    }                                                                                                              \
                                                                                                                   \
    SIXTEEN_INLINE void minorm_grad_of_##S(const X *dy, const X *x, const T *s, const T *run_s, ptrdiff_t param,   \
                                           X *dx, T *ds, T *db, ptrdiff_t step, ptrdiff_t runs, ptrdiff_t n,       \
                                           ptrdiff_t next, bool far, T k, T d, T r, T p, T q) {                    \
        for (ptrdiff_t run = 0; run < runs; run++, dy += step, x += step, dx += step) {                            \
            const ptrdiff_t at = run * param, to = param ? run * n : 0;                                            \
            const T c = run_s ? r * run_s[at] : r;                                                                 \
            MINORM_RUN(T, minorm_turn_##C, S, MINORM_GRAD, dx, !far && !ds,                                        \
                       MINORM_ASK(x + next) MINORM_ASK(dy + next))                                                 \
        }                                                                                                          \
    }                                                                                                              \
                                                                                                                   \
    SIXTEEN_APART void minorm_grad_##S(const X *dy, const X *x, const T *s, bool each, ptrdiff_t param, X *dx,     \
                                       T *ds, T *db, ptrdiff_t step, ptrdiff_t runs, ptrdiff_t n, ptrdiff_t next,  \
                                       bool far, T k, T d, T r, T p, T q) {                                        \
        const T *run_s = each ? NULL : s;                                                                          \
        MINORM_COMBINE(MINORM_GRAD_RUNS, S, each && s, ds, s, ds)                                                  \
    }                                                                                                              \
                                                                                                                   \
    SIXTEEN_INLINE void minorm_grad_given_of_##S(const X *dy, const T *s, const T *run_s, ptrdiff_t param, X *dx,  \
                                                 ptrdiff_t step, ptrdiff_t runs, ptrdiff_t n, bool far, T r) {     \
        for (ptrdiff_t run = 0; run < runs; run++, dy += step, dx += step) {                                       \
            const ptrdiff_t at = run * param;                                                                      \
            const T c = run_s ? r * run_s[at] : r;                                                                 \
            MINORM_RUN(T, minorm_turn_##C, S, MINORM_GRAD_GIVEN, dx, !far, )                                       \
        }                                                                                                          \
    }                                                                                                              \
                                                                                                                   \
    SIXTEEN_APART void minorm_grad_given_##S(const X *dy, const T *s, bool each, ptrdiff_t param, X *dx,           \
                                             ptrdiff_t step, ptrdiff_t runs, ptrdiff_t n, bool far, T r) {         \
        const T *run_s = each ? NULL : s;                                                                          \
        MINORM_COMBINE(MINORM_GRAD_GIVEN_RUNS, S, each && s, false, s, NULL)                                       \
    }                                                                                                              \
                                                                                                                   \
    SIXTEEN_APART void minorm_grad_params_##S(const X *dy, const X *x, ptrdiff_t param, T *ds, T *db, ptrdiff_t step,\
                                              ptrdiff_t runs, ptrdiff_t n, T k, T d, T r) {                        \
        for (; runs; runs--, dy += step, x += step) {                                                              \
            const ptrdiff_t many = sizeof(minorm_turn_##C) / sizeof(T);                                            \
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
