/* The sums of a run of elements, forward and backward:
 *
 *     a = sum(x - k),  q = sum((x - k)^2)
 *     a = sum(g),      q = sum(g * ((x - k) - d)),  with g = dy * s, or dy where s is NULL
 *
 * They run in 32 accumulators, element i in accumulator i mod 32, and nothing is reordered. Left to itself gcc
 * vectorises such sums when it is in the mood, and keeps accumulators in memory when it is not: vector types of a
 * fixed size say what is meant on every instruction set, and what is local to a small function stays in registers.
 */
#ifndef MINORM_NORM_SUMS_H
#define MINORM_NORM_SUMS_H

#include <stddef.h>
#include <stdint.h>

#define SUMS_INLINE static inline __attribute__((always_inline))
#define BRIEF 512 /* elements that 32 accumulators add up before they are added to others */
#define SUMS_APART static __attribute__((noinline, unused))

/* What an element, or 16 of them, adds: g and g * t. Forward has no dy. */
#define MINORM_TERM(V, at)                                                                                         \
    V t = (*(const V *)(x + (at)) - k) - d, g = t;                                                                 \
    if (dy) g = *(const V *)(dy + (at));                                                                           \
    if (s) g *= *(const V *)(s + (at));

#define MINORM_ADD(V, at, half)                                                                                    \
    {                                                                                                              \
        MINORM_TERM(V, at)                                                                                         \
        z->a[half] += g;                                                                                           \
        z->q[half] += g * t;                                                                                       \
    }

#define MINORM_SUMS(T, I, S)                                                                                       \
    typedef T minorm_16##S __attribute__((vector_size(16 * sizeof(T)), aligned(sizeof(T)), may_alias));            \
    typedef I minorm_16i##S __attribute__((vector_size(16 * sizeof(T)), aligned(sizeof(T)), may_alias));           \
    typedef T minorm_8##S __attribute__((vector_size(8 * sizeof(T)), aligned(sizeof(T)), may_alias));              \
    typedef T minorm_4##S __attribute__((vector_size(4 * sizeof(T)), aligned(sizeof(T)), may_alias));              \
    typedef struct { minorm_16##S a[2], q[2]; } minorm_held_##S;                                                   \
                                                                                                                   \
    static const I minorm_kept_##S[32] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,                          \
                                          -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1};         \
                                                                                                                   \
    /* Add the elements of a run from i on, a multiple of 32. What is left after whole 16s is taken out of the last 16\
     * of the run: those counted before become 0. */                                                               \
    SUMS_INLINE void minorm_add_##S(minorm_held_##S *z, const T *dy, const T *s, const T *x, ptrdiff_t i, ptrdiff_t n,\
                                    T k, T d) {                                                                    \
        for (; i + 32 <= n; i += 32) {                                                                             \
            MINORM_ADD(minorm_16##S, i, 0)                                                                         \
            MINORM_ADD(minorm_16##S, i + 16, 1)                                                                    \
        }                                                                                                          \
        if (i + 16 <= n) {                                                                                         \
            MINORM_ADD(minorm_16##S, i, 0)                                                                         \
            i += 16;                                                                                               \
        }                                                                                                          \
        if (i < n && n >= 16) {                                                                                    \
            const minorm_16i##S kept = *(const minorm_16i##S *)(minorm_kept_##S + (n - i));                        \
            MINORM_TERM(minorm_16##S, n - 16)                                                                      \
            g = (minorm_16##S)((minorm_16i##S)g & kept);                                                           \
            t = (minorm_16##S)((minorm_16i##S)t & kept);                                                           \
            z->a[1] += g;                                                                                          \
            z->q[1] += g * t;                                                                                      \
            i = n;                                                                                                 \
        }                                                                                                          \
        for (; i < n; i++) {                                                                                       \
            MINORM_TERM(T, i)                                                                                      \
            z->a[1][0] += g;                                                                                       \
            z->q[1][0] += g * t;                                                                                   \
        }                                                                                                          \
    }                                                                                                              \
                                                                                                                   \
    /* The sum of 32 accumulators, as a tree. */                                                                   \
    SUMS_INLINE T minorm_total_##S(const T *a) {                                                                   \
        minorm_16##S v = *(const minorm_16##S *)a + *(const minorm_16##S *)(a + 16);                               \
        minorm_8##S half = *(minorm_8##S *)&v + *((minorm_8##S *)&v + 1);                                          \
        minorm_4##S quarter = *(minorm_4##S *)&half + *((minorm_4##S *)&half + 1);                                 \
        return (quarter[0] + quarter[2]) + (quarter[1] + quarter[3]);                                              \
    }                                                                                                              \
                                                                                                                   \
    SUMS_INLINE void minorm_gather_##S(minorm_held_##S *all, const minorm_held_##S *piece) {                       \
        for (int half = 0; half < 2; half++) {                                                                     \
            all->a[half] += piece->a[half];                                                                        \
            all->q[half] += piece->q[half];                                                                        \
        }                                                                                                          \
    }                                                                                                              \
                                                                                                                   \
    /* `runs` runs, `step` apart. An accumulator takes some 16 elements before it is added to another: beside one  \
     * outlier of a million standard deviations, hundreds of small squares added one by one would be rounded away. */\
    SUMS_APART void minorm_sums_##S(const T *x, ptrdiff_t step, ptrdiff_t runs, ptrdiff_t n, T k, T *a, T *q) {    \
        minorm_held_##S all = {0};                                                                                 \
        const ptrdiff_t together = n < BRIEF ? BRIEF / n : 1;                                                      \
        for (ptrdiff_t first = 0; first < runs; first += together)                                                 \
            for (ptrdiff_t start = 0; start < n; start += BRIEF) {                                                 \
                const ptrdiff_t some = n - start < BRIEF ? n - start : BRIEF;                                      \
                minorm_held_##S piece = {0};                                                                       \
                for (ptrdiff_t r = first; r < runs && r < first + together; r++)                                   \
                    minorm_add_##S(&piece, NULL, NULL, x + r * step + start, 0, some, k, 0);                       \
                minorm_gather_##S(&all, &piece);                                                                   \
            }                                                                                                      \
        *a = minorm_total_##S((const T *)all.a);                                                                   \
        *q = minorm_total_##S((const T *)all.q);                                                                   \
    }                                                                                                              \
                                                                                                                   \
    /* The same of one run of at most BRIEF. */                                                                    \
    SUMS_INLINE void minorm_short_sums_##S(const T *x, ptrdiff_t n, T k, T *a, T *q) {                             \
        minorm_held_##S all = {0};                                                                                 \
        minorm_add_##S(&all, NULL, NULL, x, 0, n, k, 0);                                                           \
        *a = minorm_total_##S((const T *)all.a);                                                                   \
        *q = minorm_total_##S((const T *)all.q);                                                                   \
    }                                                                                                              \
                                                                                                                   \
    /* The sums of a backward pass; s may be NULL. */                                                              \
    SUMS_APART void minorm_grad_sums_##S(const T *dy, ptrdiff_t dy_step, const T *s, ptrdiff_t s_step, const T *x, \
                                         ptrdiff_t step, ptrdiff_t runs, ptrdiff_t n, T k, T d, T *a, T *q) {      \
        minorm_held_##S all = {0};                                                                                 \
        for (ptrdiff_t r = 0; r < runs; r++)                                                                       \
            if (s) minorm_add_##S(&all, dy + r * dy_step, s + r * s_step, x + r * step, 0, n, k, d);               \
            else minorm_add_##S(&all, dy + r * dy_step, NULL, x + r * step, 0, n, k, d);                           \
        *a = minorm_total_##S((const T *)all.a);                                                                   \
        *q = minorm_total_##S((const T *)all.q);                                                                   \
    }

MINORM_SUMS(float, int32_t, f)
MINORM_SUMS(double, int64_t, d)

#endif
