/* The second phase on rows that share a parameter for each element. Nothing overlaps.
 *
 *     y = xhat * s + b
 *     ds += dy * xhat, db += dy, dx = (dy * s * rstd - p) - xhat * q
 *
 * Some narrow rows go together: parameters and the sums of their gradients are read once and stay in registers, four
 * turns or one at a time, while the rows go by. Of wide rows two go through a loop together and share what it reads and
 * adds to. (More than two whose length is a power of two would fight for the same sets of the innermost cache.)
 */
#ifndef MINORM_NORM_EACH_H
#define MINORM_NORM_EACH_H

#include "norm/apply.h"

#define MINORM_BLOCK 4 /* turns */

/* What is known of a row is read before its results are written: to the compiler they might be the same memory. */
#define MINORM_ROW(T) const T its_k = k[row], its_d = d[row], its_r = r[row];
#define MINORM_GRAD_ROW(T) MINORM_ROW(T) const T its_p = p[row], its_q = q[row];

#define MINORM_XHAT(in, k, d, r) (((in) - k) - d) * r
#define MINORM_DX(g, t, r, p, q) (g * scale * r - p) - t * q

#define MINORM_APPLY_TWO(V, LOAD, STORE)                                                                           \
    {                                                                                                              \
        V v0, v1;                                                                                                  \
        LOAD(x + start[0] + i, &v0);                                                                               \
        LOAD(x + start[1] + i, &v1);                                                                               \
        const V scale = *(const V *)(s + i), bias = biased ? *(const V *)(b + i) : scale;                          \
        v0 = MINORM_XHAT(v0, k[0], d[0], r[0]) * scale;                                                            \
        if (biased) v0 = v0 + bias;                                                                                \
        v1 = MINORM_XHAT(v1, k[1], d[1], r[1]) * scale;                                                            \
        if (biased) v1 = v1 + bias;                                                                                \
        STORE(y + start[0] + i, &v0);                                                                              \
        STORE(y + start[1] + i, &v1);                                                                              \
    }

#define MINORM_GRAD_TWO(V, LOAD, STORE, KEEP)                                                                      \
    {                                                                                                              \
        V g0, g1, v0, v1;                                                                                          \
        LOAD(dy + start[0] + i, &g0);                                                                              \
        LOAD(dy + start[1] + i, &g1);                                                                              \
        LOAD(x + start[0] + i, &v0);                                                                               \
        LOAD(x + start[1] + i, &v1);                                                                               \
        const V scale = *(const V *)(s + i);                                                                       \
        const V t0 = MINORM_XHAT(v0, k[0], d[0], r[0]), t1 = MINORM_XHAT(v1, k[1], d[1], r[1]);                    \
        V *const all_s = (V *)(ds + i), *const all_b = (V *)(db + i);                                              \
        *all_s = KEEP(*all_s + (g0 * t0 + g1 * t1), *all_s);                                                       \
        *all_b = KEEP(*all_b + (g0 + g1), *all_b);                                                                 \
        v0 = MINORM_DX(g0, t0, r[0], p[0], q[0]);                                                                  \
        v1 = MINORM_DX(g1, t1, r[1], p[1], q[1]);                                                                  \
        STORE(dx + start[0] + i, &v0);                                                                             \
        STORE(dx + start[1] + i, &v1);                                                                             \
    }

#define MINORM_APPLY_EACH(S, far, next)                                                                            \
    if (b) minorm_apply_each_of_##S(true, x, s, b, y, far, next, start, rows, n, k, d, r);                         \
    else minorm_apply_each_of_##S(false, x, s, s, y, far, next, start, rows, n, k, d, r);
#define MINORM_GRAD_EACH(S, far, next)                                                                             \
    minorm_grad_each_of_##S(dy, x, s, dx, far, next, ds, db, start, rows, n, k, d, r, p, q);

/* `biased` is a constant wherever it is given, and parameters are read before the arithmetic begins: a branch between a
 * product and a sum, were it a sanitizer's, would keep the compiler from joining them as it does in apply.h.
 *
 * What is left of narrow rows after whole turns goes in a turn together with some before it, if there are: y and dx of
 * those are written again. Of wide rows it does so if it is more than 4 elements; one by one is as fast for fewer. */
#define MINORM_EACH(X, S, T, C)                                                                                    \
    MINORM_INLINE void minorm_apply_block_##S(const int turns, const bool biased, const X *x, const T *s,          \
                                              const T *b, X *y, bool far, ptrdiff_t next,                          \
                                              const ptrdiff_t *start, ptrdiff_t rows, const T *k, const T *d,      \
                                              const T *r) {                                                        \
        minorm_turn_##C all_scale[MINORM_BLOCK], all_bias[MINORM_BLOCK];                                           \
        for (int i = 0; i < turns; i++) {                                                                          \
            all_scale[i] = *(const minorm_turn_##C *)(s + i * MINORM_TURN_##C);                                    \
            if (biased) all_bias[i] = *(const minorm_turn_##C *)(b + i * MINORM_TURN_##C);                         \
        }                                                                                                          \
        for (ptrdiff_t row = 0; row < rows; row++) {                                                               \
            const ptrdiff_t at = start[row];                                                                       \
            MINORM_ROW(T)                                                                                          \
            for (int i = 0; i < turns; i++) {                                                                      \
                const ptrdiff_t from = at + i * MINORM_TURN_##C;                                                   \
                minorm_turn_##C v;                                                                                 \
                if (next) __builtin_prefetch(x + from + next, 0, 2);                                               \
                minorm_load_turn_##S(x + from, &v);                                                                \
                const minorm_turn_##C scale = all_scale[i], bias = biased ? all_bias[i] : scale;                   \
                v = MINORM_XHAT(v, its_k, its_d, its_r) * scale;                                                   \
                if (biased) v = v + bias;                                                                          \
                if (far) minorm_send_##S(y + from, &v);                                                            \
                else minorm_store_##S(y + from, &v);                                                               \
            }                                                                                                      \
        }                                                                                                          \
    }                                                                                                              \
                                                                                                                   \
    MINORM_INLINE void minorm_apply_each_of_##S(const bool biased, const X *x, const T *s, const T *b, X *y,       \
                                                bool far, ptrdiff_t next, const ptrdiff_t *start,                  \
                                                ptrdiff_t rows, ptrdiff_t n, const T *k, const T *d, const T *r) { \
        const ptrdiff_t many = MINORM_TURN_##C;                                                                    \
        ptrdiff_t i = 0;                                                                                           \
        for (; i + MINORM_BLOCK * many <= n; i += MINORM_BLOCK * many)                                             \
            minorm_apply_block_##S(MINORM_BLOCK, biased, x + i, s + i, b + i, y + i, far, next, start, rows,       \
                                   k, d, r);                                                                       \
        for (; i < n && n >= many; i += many) {                                                                    \
            if (n - i < many) i = n - many;                                                                        \
            minorm_apply_block_##S(1, biased, x + i, s + i, b + i, y + i, far, next, start, rows, k, d, r);        \
        }                                                                                                          \
        for (; i < n; i++)                                                                                         \
            for (ptrdiff_t row = 0; row < rows; row++) {                                                           \
                MINORM_ROW(T)                                                                                      \
                T v;                                                                                               \
                minorm_load_one_##S(x + start[row] + i, &v);                                                       \
                const T scale = s[i], bias = biased ? b[i] : scale;                                                \
                v = MINORM_XHAT(v, its_k, its_d, its_r) * scale;                                                   \
                if (biased) v = v + bias;                                                                          \
                minorm_store_one_##S(y + start[row] + i, &v);                                                      \
            }                                                                                                      \
    }                                                                                                              \
                                                                                                                   \
    MINORM_APART void minorm_apply_each_##S(const X *x, const T *s, const T *b, X *y, bool far, ptrdiff_t next,    \
                                            const ptrdiff_t *start, ptrdiff_t rows, ptrdiff_t n, const T *k,       \
                                            const T *d, const T *r) {                                              \
        if (far || next) { MINORM_APPLY_EACH(S, far, next) }                                                           \
        else { MINORM_APPLY_EACH(S, false, 0) }                                                                        \
    }                                                                                                              \
                                                                                                                   \
    /* The elements before `first` are not added to ds and db. */                                                  \
    MINORM_INLINE void minorm_grad_block_##S(const int turns, ptrdiff_t first, const X *dy, const X *x, const T *s,\
                                             X *dx, bool far, ptrdiff_t next, T *ds, T *db,                        \
                                             const ptrdiff_t *start, ptrdiff_t rows, const T *k, const T *d,       \
                                             const T *r, const T *p, const T *q) {                                 \
        const minorm_turn_i##C kept = MINORM_SOME_##C(first, MINORM_TURN_##C);                                     \
        minorm_turn_##C all_scale[MINORM_BLOCK], all_s[MINORM_BLOCK], all_b[MINORM_BLOCK];                         \
        for (int i = 0; i < turns; i++) {                                                                          \
            all_scale[i] = *(const minorm_turn_##C *)(s + i * MINORM_TURN_##C);                                    \
            all_s[i] = *(const minorm_turn_##C *)(ds + i * MINORM_TURN_##C);                                       \
            all_b[i] = *(const minorm_turn_##C *)(db + i * MINORM_TURN_##C);                                       \
        }                                                                                                          \
        for (ptrdiff_t row = 0; row < rows; row++) {                                                               \
            const ptrdiff_t at = start[row];                                                                       \
            MINORM_GRAD_ROW(T)                                                                                     \
            for (int i = 0; i < turns; i++) {                                                                      \
                const ptrdiff_t from = at + i * MINORM_TURN_##C;                                                   \
                minorm_turn_##C g, t, v;                                                                           \
                if (next) __builtin_prefetch(dy + from + next, 0, 2), __builtin_prefetch(x + from + next, 0, 2);   \
                minorm_load_turn_##S(dy + from, &g);                                                               \
                minorm_load_turn_##S(x + from, &t);                                                                \
                const minorm_turn_##C scale = all_scale[i], before = all_s[i];                                     \
                t = MINORM_XHAT(t, its_k, its_d, its_r);                                                           \
                v = MINORM_DX(g, t, its_r, its_p, its_q);                                                          \
                all_s[i] = before + g * t;                                                                         \
                all_b[i] = all_b[i] + g;                                                                           \
                if (far) minorm_send_##S(dx + from, &v);                                                           \
                else minorm_store_##S(dx + from, &v);                                                              \
            }                                                                                                      \
        }                                                                                                          \
        for (int i = 0; i < turns; i++) {                                                                          \
            minorm_turn_##C *const to_s = (minorm_turn_##C *)(ds + i * MINORM_TURN_##C);                           \
            minorm_turn_##C *const to_b = (minorm_turn_##C *)(db + i * MINORM_TURN_##C);                           \
            *to_s = turns == 1 ? MINORM_KEPT_##C(all_s[i], *to_s) : all_s[i];                                      \
            *to_b = turns == 1 ? MINORM_KEPT_##C(all_b[i], *to_b) : all_b[i];                                      \
        }                                                                                                          \
    }                                                                                                              \
                                                                                                                   \
    MINORM_INLINE void minorm_grad_each_of_##S(const X *dy, const X *x, const T *s, X *dx, bool far, ptrdiff_t next,   \
                                           T *ds, T *db, const ptrdiff_t *start, ptrdiff_t rows, ptrdiff_t n,      \
                                           const T *k, const T *d, const T *r, const T *p, const T *q) {           \
        const ptrdiff_t many = MINORM_TURN_##C;                                                                    \
        ptrdiff_t i = 0;                                                                                           \
        for (; i + MINORM_BLOCK * many <= n; i += MINORM_BLOCK * many)                                             \
            minorm_grad_block_##S(MINORM_BLOCK, 0, dy + i, x + i, s + i, dx + i, far, next, ds + i, db + i,        \
                                  start, rows, k, d, r, p, q);                                                     \
        for (; i < n && n >= many; i += many) {                                                                    \
            const ptrdiff_t again = n - i < many ? many - (n - i) : 0;                                             \
            i -= again;                                                                                            \
            minorm_grad_block_##S(1, again, dy + i, x + i, s + i, dx + i, far, next, ds + i, db + i,               \
                                  start, rows, k, d, r, p, q);                                                     \
        }                                                                                                          \
        for (; i < n; i++)                                                                                         \
            for (ptrdiff_t row = 0; row < rows; row++) {                                                           \
                MINORM_GRAD_ROW(T)                                                                                 \
                T g, t, v;                                                                                         \
                minorm_load_one_##S(dy + start[row] + i, &g);                                                      \
                minorm_load_one_##S(x + start[row] + i, &t);                                                       \
                const T scale = s[i], before = ds[i];                                                              \
                t = MINORM_XHAT(t, its_k, its_d, its_r);                                                           \
                v = MINORM_DX(g, t, its_r, its_p, its_q);                                                          \
                ds[i] = before + g * t;                                                                            \
                db[i] = db[i] + g;                                                                                 \
                minorm_store_one_##S(dx + start[row] + i, &v);                                                     \
            }                                                                                                      \
    }                                                                                                              \
                                                                                                                   \
    MINORM_APART void minorm_grad_each_##S(const X *dy, const X *x, const T *s, X *dx, bool far, ptrdiff_t next,   \
                                           T *ds, T *db, const ptrdiff_t *start, ptrdiff_t rows, ptrdiff_t n,      \
                                           const T *k, const T *d, const T *r, const T *p, const T *q) {           \
        if (far || next) MINORM_GRAD_EACH(S, far, next)                                                            \
        else MINORM_GRAD_EACH(S, false, 0)                                                                         \
    }                                                                                                              \
                                                                                                                   \
    MINORM_INLINE void minorm_apply_two_of_##S(const bool biased, const X *x, const T *s, const T *b, X *y,        \
                                               const ptrdiff_t *start, ptrdiff_t n, const T *k, const T *d,        \
                                               const T *r) {                                                       \
        const ptrdiff_t many = MINORM_TURN_##C;                                                                    \
        ptrdiff_t i = 0;                                                                                           \
        for (; i + many <= n; i += many)                                                                           \
            MINORM_APPLY_TWO(minorm_turn_##C, minorm_load_turn_##S, minorm_store_##S)                              \
        if (n - i > 4 && n >= many) {                                                                              \
            i = n - many;                                                                                          \
            MINORM_APPLY_TWO(minorm_turn_##C, minorm_load_turn_##S, minorm_store_##S)                              \
            i = n;                                                                                                 \
        }                                                                                                          \
        for (; i < n; i++) MINORM_APPLY_TWO(T, minorm_load_one_##S, minorm_store_one_##S)                          \
    }                                                                                                              \
                                                                                                                   \
    static inline void minorm_apply_two_##S(const X *x, const T *s, const T *b, X *y, const ptrdiff_t *start,      \
                                            ptrdiff_t n, const T *k, const T *d, const T *r) {                     \
        if (b) minorm_apply_two_of_##S(true, x, s, b, y, start, n, k, d, r);                                       \
        else minorm_apply_two_of_##S(false, x, s, s, y, start, n, k, d, r);                                        \
    }                                                                                                              \
                                                                                                                   \
    static inline void minorm_grad_two_##S(const X *dy, const X *x, const T *s, X *dx, T *ds, T *db,               \
                                           const ptrdiff_t *start, ptrdiff_t n, const T *k, const T *d, const T *r,\
                                           const T *p, const T *q) {                                               \
        const ptrdiff_t many = MINORM_TURN_##C;                                                                    \
        ptrdiff_t i = 0;                                                                                           \
        for (; i + many <= n; i += many)                                                                           \
            MINORM_GRAD_TWO(minorm_turn_##C, minorm_load_turn_##S, minorm_store_##S, MINORM_ALL)                   \
        if (n - i > 4 && n >= many) {                                                                              \
            const minorm_turn_i##C kept = MINORM_SOME_##C(i - (n - many), many);                                   \
            i = n - many;                                                                                          \
            MINORM_GRAD_TWO(minorm_turn_##C, minorm_load_turn_##S, minorm_store_##S, MINORM_KEPT_##C)              \
            i = n;                                                                                                 \
        }                                                                                                          \
        for (; i < n; i++) MINORM_GRAD_TWO(T, minorm_load_one_##S, minorm_store_one_##S, MINORM_ALL)               \
    }

MINORM_EACH(float, float, float, f)
MINORM_EACH(double, double, double, d)
MINORM_EACH(uint16_t, half, float, f)
MINORM_EACH(uint16_t, bfloat, float, f)

#endif
