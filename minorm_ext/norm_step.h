/* One step of a sum: 16 elements into 16 accumulators, element j into accumulator j, nothing reordered.
 *
 * Left to itself gcc vectorises such a loop when it is in the mood: with 16 turns it unrolls it first and then adds the
 * elements one by one. Vector types of a fixed size say what is meant, on every instruction set, and the accumulators,
 * local arrays of the caller, end up in registers.
 */
#ifndef MINORM_NORM_STEP_H
#define MINORM_NORM_STEP_H

#define MINORM_STEPS(T, S)                                                                                         \
    typedef T minorm_16##S __attribute__((vector_size(16 * sizeof(T)), aligned(sizeof(T)), may_alias));            \
    typedef T minorm_8##S __attribute__((vector_size(8 * sizeof(T)), aligned(sizeof(T)), may_alias));              \
    typedef T minorm_4##S __attribute__((vector_size(4 * sizeof(T)), aligned(sizeof(T)), may_alias));              \
                                                                                                                   \
    /* a += x - k, q += (x - k)^2 */                                                                               \
    static inline void minorm_step_##S(T *a, T *q, const T *x, T k) {                                              \
        minorm_16##S t = *(const minorm_16##S *)x - k;                                                             \
        *(minorm_16##S *)a += t;                                                                                   \
        *(minorm_16##S *)q += t * t;                                                                               \
    }                                                                                                              \
                                                                                                                   \
    /* a += dy, q += dy * (x - mean) */                                                                            \
    static inline void minorm_grad_step_##S(T *a, T *q, const T *dy, const T *x, T k, T d) {                       \
        minorm_16##S g = *(const minorm_16##S *)dy;                                                                \
        *(minorm_16##S *)a += g;                                                                                   \
        *(minorm_16##S *)q += g * ((*(const minorm_16##S *)x - k) - d);                                            \
    }                                                                                                              \
                                                                                                                   \
    /* the same with g = dy * s for dy */                                                                          \
    static inline void minorm_scaled_step_##S(T *a, T *q, const T *dy, const T *s, const T *x, T k, T d) {         \
        minorm_16##S g = *(const minorm_16##S *)dy * *(const minorm_16##S *)s;                                     \
        *(minorm_16##S *)a += g;                                                                                   \
        *(minorm_16##S *)q += g * ((*(const minorm_16##S *)x - k) - d);                                            \
    }                                                                                                              \
                                                                                                                   \
    /* the sum of 32 accumulators, as a tree */                                                                    \
    static inline T minorm_total_##S(const T *a) {                                                                 \
        minorm_16##S v = *(const minorm_16##S *)a + *(const minorm_16##S *)(a + 16);                               \
        minorm_8##S half = *(minorm_8##S *)&v + *((minorm_8##S *)&v + 1);                                          \
        minorm_4##S quarter = *(minorm_4##S *)&half + *((minorm_4##S *)&half + 1);                                 \
        return (quarter[0] + quarter[2]) + (quarter[1] + quarter[3]);                                              \
    }

MINORM_STEPS(float, f)
MINORM_STEPS(double, d)

#endif
