/* The loops of max pooling for float, in vectors of 8 and of 4: the larger numbers of two rows, and their places.
 *
 * Rows of pooled planes are short, 14 or 5 or 4 windows, so the end of the row matters most: the last vector overlaps
 * the one before it. It may do so, because taking the same maximum twice changes nothing. Without these loops gcc
 * computes the end of the row one by one, with branches that are mispredicted half of the time.
 */
#ifndef MINORM_POOL_ROWS_H
#define MINORM_POOL_ROWS_H

#include <stdint.h>
#include <string.h>

#define ROW_INLINE static inline __attribute__((always_inline))

#define LOAD(vector, from) ({ vector loaded_; memcpy(&loaded_, (from), sizeof loaded_); loaded_; })
#define STORE(to, value) memcpy((to), &(value), sizeof(value))
#if defined(__clang__)
#define PICK(N, u, v, ...) __builtin_shufflevector(u, v, __VA_ARGS__)
#else
#define PICK(N, u, v, ...) __builtin_shuffle(u, v, (places##N){__VA_ARGS__})
#endif
#define EVEN4(u, v) PICK(4, u, v, 0, 2, 4, 6)
#define ODD4(u, v) PICK(4, u, v, 1, 3, 5, 7)
#define EVEN_THEN_ODD4(u, v) PICK(4, u, v, 0, 2, 5, 7)
#define COUNT4 {0, 1, 2, 3}
#define EVEN8(u, v) PICK(8, u, v, 0, 2, 4, 6, 8, 10, 12, 14)
#define ODD8(u, v) PICK(8, u, v, 1, 3, 5, 7, 9, 11, 13, 15)
#define EVEN_THEN_ODD8(u, v) PICK(8, u, v, 0, 2, 4, 6, 9, 11, 13, 15)
#define COUNT8 {0, 1, 2, 3, 4, 5, 6, 7}

/* best and where become v and `here` in the lanes where v is larger, or NaN; a mask chooses by its bits. */
#define TAKE(N, best, where, v, here)                                                                                  \
    do {                                                                                                               \
        const places##N better = (v > best) | (v != v);                                                                \
        best = (floats##N)(((places##N)v & better) | ((places##N)best & ~better));                                     \
        where = ((here) & better) | (where & ~better);                                                                 \
    } while (0)
#define TAKE_ONE(best, where, v, here)                                                                                 \
    do {                                                                                                               \
        const int better = (v > best) | (v != v);                                                                      \
        best = better ? v : best;                                                                                      \
        where = better ? (here) : where;                                                                               \
    } while (0)

#define DEFINE_ROWS(N)                                                                                                 \
    typedef float floats##N __attribute__((vector_size(4 * N)));                                                       \
    typedef int32_t places##N __attribute__((vector_size(4 * N)));                                                     \
                                                                                                                       \
    /* y takes x[i * step], which stands at `at` + i * step */                                                         \
    ROW_INLINE void larger_##N(float *y, int32_t *index, const float *x, const int step, int32_t at) {                 \
        const places##N count = COUNT##N;                                                                              \
        floats##N best = LOAD(floats##N, y);                                                                           \
        places##N where = LOAD(places##N, index);                                                                      \
        floats##N v = LOAD(floats##N, x);                                                                              \
        if (step == 2) v = EVEN_THEN_ODD##N(v, LOAD(floats##N, x + N - 1)); /* nothing behind the last is read */      \
        TAKE(N, best, where, v, at + count * step);                                                                    \
        STORE(y, best);                                                                                                \
        STORE(index, where);                                                                                           \
    }                                                                                                                  \
                                                                                                                       \
    /* windows of 2 x 2 side by side */                                                                                \
    ROW_INLINE void largest_of_four_##N(float *y, int32_t *index, const float *x, intptr_t below, int32_t at) {        \
        const places##N count = COUNT##N;                                                                              \
        const floats##N u1 = LOAD(floats##N, x), u2 = LOAD(floats##N, x + N);                                          \
        const floats##N u3 = LOAD(floats##N, x + below), u4 = LOAD(floats##N, x + below + N);                          \
        const floats##N b = ODD##N(u1, u2), c = EVEN##N(u3, u4), d = ODD##N(u3, u4);                                   \
        floats##N best = EVEN##N(u1, u2);                                                                              \
        places##N where = at + count * 2;                                                                              \
        const places##N here = where;                                                                                  \
        TAKE(N, best, where, b, here + 1);                                                                             \
        TAKE(N, best, where, c, here + (int32_t)below);                                                                \
        TAKE(N, best, where, d, here + (int32_t)below + 1);                                                            \
        STORE(y, best);                                                                                                \
        STORE(index, where);                                                                                           \
    }

DEFINE_ROWS(4)
DEFINE_ROWS(8)

/* CALL(N, i) for vectors that cover 0 .. count - 1, ONE(i) where not even the short ones fit */
#define COVER(count, CALL, ONE)                                                                                        \
    do {                                                                                                               \
        intptr_t i = 0;                                                                                                \
        if (count >= 8) {                                                                                              \
            for (; i + 8 <= count; i += 8) CALL(8, i);                                                                 \
            if (i < count) CALL(8, count - 8);                                                                         \
        } else if (count >= 4) {                                                                                       \
            CALL(4, 0);                                                                                                \
            if (count > 4) CALL(4, count - 4);                                                                         \
        } else {                                                                                                       \
            for (; i < count; i++) ONE(i);                                                                             \
        }                                                                                                              \
    } while (0)

static void row_larger(float *y, int32_t *index, const float *x, intptr_t count, intptr_t step, int32_t at) {
#define ONE(i)                                                                                                         \
    do {                                                                                                               \
        const float v = x[(i) * step];                                                                                 \
        TAKE_ONE(y[i], index[i], v, (int32_t)(at + (i) * step));                                                       \
    } while (0)
#define STEP1(N, i) larger_##N(y + (i), index + (i), x + (i), 1, (int32_t)(at + (i)))
#define STEP2(N, i) larger_##N(y + (i), index + (i), x + 2 * (i), 2, (int32_t)(at + 2 * (i)))
    if (step == 1) COVER(count, STEP1, ONE);
    else if (step == 2) COVER(count, STEP2, ONE);
    else for (intptr_t i = 0; i < count; i++) ONE(i);
#undef ONE
}

static void row_largest_of_four(float *y, int32_t *index, const float *x, intptr_t count, intptr_t below, int32_t at) {
#define FOUR(N, i) largest_of_four_##N(y + (i), index + (i), x + 2 * (i), below, (int32_t)(at + 2 * (i)))
#define ONE(i)                                                                                                         \
    do {                                                                                                               \
        const float *p = x + 2 * (i);                                                                                  \
        const int32_t here = (int32_t)(at + 2 * (i));                                                                  \
        y[i] = p[0];                                                                                                   \
        index[i] = here;                                                                                               \
        TAKE_ONE(y[i], index[i], p[1], here + 1);                                                                      \
        TAKE_ONE(y[i], index[i], p[below], here + (int32_t)below);                                                     \
        TAKE_ONE(y[i], index[i], p[below + 1], here + (int32_t)below + 1);                                             \
    } while (0)
    COVER(count, FOUR, ONE);
#undef ONE
}

#endif
