/* The sums of a run of elements, forward and backward:
 *
 *     a = sum(x - k),  q = sum((x - k)^2)
 *     a = sum(g),      q = sum(g * ((x - k) - d)),  with g = dy * s, or dy where s is NULL
 *
 * They run in 32 accumulators, element i in accumulator i mod 32, and nothing is reordered. Left to itself gcc
 * vectorises such sums when it is in the mood, and keeps accumulators in memory when it is not.
 */
#ifndef MINORM_NORM_SUMS_H
#define MINORM_NORM_SUMS_H

#include <stdbool.h>

#include "simd/vec.h"

#define BRIEF 512 /* elements that 32 accumulators add up before they are added to others */
#define BATCH 32  /* rows whose sums are taken together, at most */
#define SOON 4096 /* bytes by which memory is asked for before the first phase comes to it */

/* What an element, or a turn of them, adds: g and g * t. Forward has no dy. */
#define MINORM_TERM(V, LOAD, at)                                                                                   \
    V t, g;                                                                                                        \
    LOAD(x + (at), &t);                                                                                            \
    g = t = (t - k) - d;                                                                                           \
    if (dy) LOAD(dy + (at), &g);                                                                                   \
    if (s) g *= *(const V *)(s + (at));

/* Add `count` elements from `at` on to the accumulators from `first` on, a turn at a time. */
#define MINORM_ADD(S, C, at, count, first)                                                                         \
    for (int turn = 0; turn < (count) / MINORM_TURN_##C; turn++) {                                                 \
        MINORM_TERM(minorm_turn_##C, minorm_load_turn_##S, (at) + turn * MINORM_TURN_##C)                          \
        z->a[(first) / MINORM_TURN_##C + turn] += g;                                                               \
        z->q[(first) / MINORM_TURN_##C + turn] += g * t;                                                           \
    }

#define MINORM_MIN(a, b) ((b) < (a) ? (b) : (a))
#define MINORM_MAX(a, b) ((b) > (a) ? (b) : (a))

/* The accumulators, in the type C computed in. */
#define MINORM_HELD(T, I, C)                                                                                       \
    typedef struct { minorm_turn_##C a[32 / MINORM_TURN_##C], q[32 / MINORM_TURN_##C]; } minorm_held_##C;          \
                                                                                                                   \
    static const I minorm_kept_##C[32] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,                          \
                                          -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1};         \
                                                                                                                   \
    /* The sum of 32 accumulators, as a tree: 16, 8 and 4 sums, */                                                 \
    MINORM_INLINE void minorm_quarters_##C(const T *a, T *four) {                                                  \
        const minorm_turn_##C *all = (const minorm_turn_##C *)a;                                                   \
        minorm_turn_##C v[16 / MINORM_TURN_##C];                                                                   \
        minorm_8##C half;                                                                                          \
        const T *p = (const T *)v;                                                                                 \
        for (int i = 0; i < 16 / MINORM_TURN_##C; i++) v[i] = all[i] + all[i + 16 / MINORM_TURN_##C];              \
        for (int i = 0; i < 8 / MINORM_TURN_##C; i++) v[i] += v[i + 8 / MINORM_TURN_##C];                          \
        for (int i = 0; i < 4 / MINORM_TURN_##C; i++) v[i] += v[i + 4 / MINORM_TURN_##C];                          \
        if (MINORM_TURN_##C == 16) half = *(const minorm_8##C *)p + *(const minorm_8##C *)(p + 8), p = (T *)&half; \
        if (MINORM_TURN_##C >= 8) *(minorm_4##C *)four = *(const minorm_4##C *)p + *(const minorm_4##C *)(p + 4);  \
        else memcpy(four, p, 4 * sizeof(T));                                                                       \
    }                                                                                                              \
                                                                                                                   \
    /* of these 2, and the whole. */                                                                               \
    MINORM_INLINE T minorm_whole_##C(const T *four) { return (four[0] + four[2]) + (four[1] + four[3]); }          \
                                                                                                                   \
    /* The same for the sums of some rows, which go through the end of the tree together, in vectors. */           \
    MINORM_INLINE void minorm_wholes_##C(ptrdiff_t rows, T (*four_a)[4], T (*four_q)[4], T *a, T *q) {             \
        for (ptrdiff_t row = 0; row < rows; row++) {                                                               \
            a[row] = minorm_whole_##C(four_a[row]);                                                                \
            q[row] = minorm_whole_##C(four_q[row]);                                                                \
        }                                                                                                          \
    }                                                                                                              \
                                                                                                                   \
    MINORM_INLINE T minorm_total_##C(const T *a) {                                                                 \
        T four[4];                                                                                                 \
        minorm_quarters_##C(a, four);                                                                              \
        return minorm_whole_##C(four);                                                                             \
    }                                                                                                              \
                                                                                                                   \
    /* The mean of the two in the middle, so that one outlier does not count: exactly c where all are c. */        \
    MINORM_INLINE T minorm_middle_##C(T a, T b, T c, T d) {                                                        \
        const T low = MINORM_MAX(MINORM_MIN(a, b), MINORM_MIN(c, d));                                              \
        const T high = MINORM_MIN(MINORM_MAX(a, b), MINORM_MAX(c, d));                                             \
        return (T)0.5 * low + (T)0.5 * high;                                                                       \
    }                                                                                                              \
                                                                                                                   \
    MINORM_INLINE void minorm_gather_##C(minorm_held_##C *all, const minorm_held_##C *piece) {                     \
        for (int i = 0; i < 32 / MINORM_TURN_##C; i++) {                                                           \
            all->a[i] += piece->a[i];                                                                              \
            all->q[i] += piece->q[i];                                                                              \
        }                                                                                                          \
    }

MINORM_HELD(float, int32_t, f)
MINORM_HELD(double, int64_t, d)

/* The sums of data X stored in S. */
#define MINORM_SUMS(X, S, T, C)                                                                                    \
    /* Add the elements of a run from i on, a multiple of 32. What is left after whole 16s is taken out of the last\
     * 16 of the run: those counted before become 0. */                                                            \
    MINORM_INLINE void minorm_add_##S(minorm_held_##C *z, const X *dy, const T *s, const X *x, ptrdiff_t i,        \
                                      ptrdiff_t n, T k, T d) {                                                     \
        for (; i + 32 <= n; i += 32) MINORM_ADD(S, C, i, 32, 0)                                                    \
        if (i + 16 <= n) {                                                                                         \
            MINORM_ADD(S, C, i, 16, 0)                                                                             \
            i += 16;                                                                                               \
        }                                                                                                          \
        if (i < n && n >= 16) {                                                                                    \
            for (int turn = 0; turn < 16 / MINORM_TURN_##C; turn++) {                                              \
                const ptrdiff_t at = turn * MINORM_TURN_##C;                                                       \
                const minorm_turn_i##C kept = *(const minorm_turn_i##C *)(minorm_kept_##C + (n - i) + at);         \
                MINORM_TERM(minorm_turn_##C, minorm_load_turn_##S, n - 16 + at)                                    \
                g = (minorm_turn_##C)((minorm_turn_i##C)g & kept);                                                 \
                t = (minorm_turn_##C)((minorm_turn_i##C)t & kept);                                                 \
                z->a[16 / MINORM_TURN_##C + turn] += g;                                                            \
                z->q[16 / MINORM_TURN_##C + turn] += g * t;                                                        \
            }                                                                                                      \
            i = n;                                                                                                 \
        }                                                                                                          \
        for (; i < n; i++) {                                                                                       \
            MINORM_TERM(T, minorm_load_one_##S, i)                                                                 \
            z->a[16 / MINORM_TURN_##C][0] += g;                                                                    \
            z->q[16 / MINORM_TURN_##C][0] += g * t;                                                                \
        }                                                                                                          \
    }                                                                                                              \
                                                                                                                   \
    /* A guess of the mean, from four elements. */                                                                 \
    MINORM_INLINE T minorm_sample_##S(const X *x, ptrdiff_t across) {                                              \
        T a, b, c, d;                                                                                              \
        minorm_load_one_##S(x, &a);                                                                                \
        minorm_load_one_##S(x + across, &b);                                                                       \
        minorm_load_one_##S(x + 2 * across, &c);                                                                   \
        minorm_load_one_##S(x + 3 * across, &d);                                                                   \
        return minorm_middle_##C(a, b, c, d);                                                                      \
    }                                                                                                              \
                                                                                                                   \
    /* `runs` runs, `step` apart. An accumulator takes some 16 elements before it is added to another: beside an   \
     * outlier of a million standard deviations, hundreds of small squares added singly would be rounded away. */  \
    MINORM_APART void minorm_sums_##S(const X *x, ptrdiff_t step, ptrdiff_t runs, ptrdiff_t n, T k, T *a, T *q) {  \
        minorm_held_##C all = {0};                                                                                 \
        const ptrdiff_t together = n < BRIEF ? BRIEF / n : 1;                                                      \
        for (ptrdiff_t first = 0; first < runs; first += together)                                                 \
            for (ptrdiff_t start = 0; start < n; start += BRIEF) {                                                 \
                const ptrdiff_t some = n - start < BRIEF ? n - start : BRIEF;                                      \
                minorm_held_##C piece = {0};                                                                       \
                for (ptrdiff_t r = first; r < runs && r < first + together; r++)                                   \
                    minorm_add_##S(&piece, NULL, NULL, x + r * step + start, 0, some, k, 0);                       \
                minorm_gather_##C(&all, &piece);                                                                   \
            }                                                                                                      \
        *a = minorm_total_##C((const T *)all.a);                                                                   \
        *q = minorm_total_##C((const T *)all.q);                                                                   \
    }                                                                                                              \
                                                                                                                   \
    /* The same of some rows of n elements, at most BRIEF, which begin at `start`. The shift of each is a guess of its\
     * mean, or 0. Each asks for what lies `next` further on, if that is not 0. */                                 \
    MINORM_APART void minorm_short_sums_##S(const X *x, const ptrdiff_t *start, ptrdiff_t rows, ptrdiff_t n,       \
                                            ptrdiff_t next, bool centered, T *k, T *a, T *q) {                     \
        T four_a[BATCH][4], four_q[BATCH][4];                                                                      \
        for (ptrdiff_t row = 0; row < rows; row++) {                                                               \
            const X *from = x + start[row];                                                                        \
            minorm_held_##C all = {0};                                                                             \
            k[row] = centered ? minorm_sample_##S(from, n / 4) : 0;                                                \
            if (next) minorm_ahead((const char *)(from + next), n * sizeof(X));                                    \
            minorm_add_##S(&all, NULL, NULL, from, 0, n, k[row], 0);                                               \
            minorm_quarters_##C((const T *)all.a, four_a[row]);                                                    \
            minorm_quarters_##C((const T *)all.q, four_q[row]);                                                    \
        }                                                                                                          \
        minorm_wholes_##C(rows, four_a, four_q, a, q);                                                             \
    }                                                                                                              \
                                                                                                                   \
    /* The sums of a backward pass; s may be NULL. */                                                              \
    MINORM_APART void minorm_grad_sums_##S(const X *dy, const X *x, ptrdiff_t step, const T *s, ptrdiff_t s_step,  \
                                           ptrdiff_t runs, ptrdiff_t n, T k, T d, T *a, T *q) {                    \
        minorm_held_##C all = {0};                                                                                 \
        for (ptrdiff_t r = 0; r < runs; r++)                                                                       \
            if (s) minorm_add_##S(&all, dy + r * step, s + r * s_step, x + r * step, 0, n, k, d);                  \
            else minorm_add_##S(&all, dy + r * step, NULL, x + r * step, 0, n, k, d);                              \
        *a = minorm_total_##C((const T *)all.a);                                                                   \
        *q = minorm_total_##C((const T *)all.q);                                                                   \
    }                                                                                                              \
                                                                                                                   \
    /* The same of some rows of n elements, which share s. */                                                      \
    MINORM_APART void minorm_short_grad_sums_##S(const X *dy, const X *x, const ptrdiff_t *start, ptrdiff_t rows,  \
                                                 const T *s, ptrdiff_t n, ptrdiff_t next, const T *k, const T *d,  \
                                                 T *a, T *q) {                                                     \
        T four_a[BATCH][4], four_q[BATCH][4];                                                                      \
        for (ptrdiff_t row = 0; row < rows; row++) {                                                               \
            const X *g = dy + start[row], *from = x + start[row];                                                  \
            minorm_held_##C all = {0};                                                                             \
            if (next) minorm_ahead((const char *)(g + next), n * sizeof(X));                                       \
            if (next) minorm_ahead((const char *)(from + next), n * sizeof(X));                                    \
            if (s) minorm_add_##S(&all, g, s, from, 0, n, k[row], d[row]);                                         \
            else minorm_add_##S(&all, g, NULL, from, 0, n, k[row], d[row]);                                        \
            minorm_quarters_##C((const T *)all.a, four_a[row]);                                                    \
            minorm_quarters_##C((const T *)all.q, four_q[row]);                                                    \
        }                                                                                                          \
        minorm_wholes_##C(rows, four_a, four_q, a, q);                                                             \
    }                                                                                                              \
                                                                                                                   \
    /* Of rows whose runs of n elements lie beside each other: each adds `runs` of its runs, at most as many as    \
     * minorm_sums takes together, to what it has `held` so far. Each asks for what comes soon. */                 \
    MINORM_APART void minorm_beside_sums_##S(const X *x, ptrdiff_t step, ptrdiff_t runs, ptrdiff_t n,              \
                                             ptrdiff_t rows, const T *k, T *held) {                                \
        for (ptrdiff_t row = 0; row < rows; row++, x += n) {                                                       \
            minorm_held_##C piece = {0};                                                                           \
            for (ptrdiff_t r = 0; r < runs; r++) {                                                                 \
                minorm_ahead((const char *)(x + r * step + BRIEF), n * sizeof(X));                                 \
                minorm_add_##S(&piece, NULL, NULL, x + r * step, 0, n, k[row], 0);                                 \
            }                                                                                                      \
            minorm_gather_##C((minorm_held_##C *)held + row, &piece);                                              \
        }                                                                                                          \
    }                                                                                                              \
                                                                                                                   \
    MINORM_APART void minorm_beside_grad_sums_##S(const X *dy, const X *x, ptrdiff_t step, ptrdiff_t runs,         \
                                                  ptrdiff_t n, ptrdiff_t rows, const T *k, const T *d, T *held) {  \
        for (ptrdiff_t row = 0; row < rows; row++, dy += n, x += n) {                                              \
            minorm_held_##C all = ((minorm_held_##C *)held)[row];                                                  \
            for (ptrdiff_t r = 0; r < runs; r++) {                                                                 \
                minorm_ahead((const char *)(dy + r * step + BRIEF), n * sizeof(X));                                \
                minorm_ahead((const char *)(x + r * step + BRIEF), n * sizeof(X));                                 \
                minorm_add_##S(&all, dy + r * step, NULL, x + r * step, 0, n, k[row], d[row]);                     \
            }                                                                                                      \
            ((minorm_held_##C *)held)[row] = all;                                                                  \
        }                                                                                                          \
    }

MINORM_SUMS(float, float, float, f)
MINORM_SUMS(double, double, double, d)
MINORM_SUMS(uint16_t, half, float, f)
MINORM_SUMS(uint16_t, bfloat, float, f)

#endif
