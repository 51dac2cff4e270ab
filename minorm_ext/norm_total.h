/* The sum of 32 accumulators as a tree. gcc takes a loop that halves an array apart into scalar additions, some sixty
 * instructions where a dozen do; vector types of a fixed size say what is meant, on every instruction set.
 */
#ifndef MINORM_NORM_TOTAL_H
#define MINORM_NORM_TOTAL_H

#include <string.h>

#define MINORM_TOTAL(T, NAME)                                                   \
    typedef T NAME##_8 __attribute__((vector_size(8 * sizeof(T))));             \
    typedef T NAME##_4 __attribute__((vector_size(4 * sizeof(T))));             \
    static inline NAME##_8 NAME##_load(const T *a) {                            \
        NAME##_8 v;                                                             \
        memcpy(&v, a, sizeof v);                                                \
        return v;                                                               \
    }                                                                           \
    static inline T NAME(const T *a) {                                          \
        NAME##_8 v = (NAME##_load(a) + NAME##_load(a + 16)) +                   \
                     (NAME##_load(a + 8) + NAME##_load(a + 24));                \
        NAME##_4 low, high;                                                     \
        memcpy(&low, &v, sizeof low);                                           \
        memcpy(&high, (const char *)&v + sizeof low, sizeof high);              \
        low += high;                                                            \
        return (low[0] + low[2]) + (low[1] + low[3]);                           \
    }

MINORM_TOTAL(float, minorm_total_f)
MINORM_TOTAL(double, minorm_total_d)

#endif
