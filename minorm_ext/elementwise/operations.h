/* A loop for every operation of operations.inc.h and each of the two types, and a table of them. */
#ifndef MINORM_OPERATIONS_H
#define MINORM_OPERATIONS_H

#include "simd/log.h"
#include "simd/normal.h"

/* Always read a and b: a load that depends on a condition does not vectorise on older processors. */
#define OPERATION(name, weight, formula)                                                                              \
    static void NAME(name##_loop)(const REAL *as, const REAL *bs, REAL *ys, ptrdiff_t n, REAL option) {               \
        (void)option;                                                                                                 \
        for (ptrdiff_t i = 0; i < n; i++) {                                                                           \
            const REAL a = as[i], b = bs[i], y = ys[i];                                                               \
            (void)b, (void)y;                                                                                         \
            ys[i] = formula;                                                                                          \
        }                                                                                                             \
    }

#define REAL float
#define NAME(stem) stem##_float
#include "elementwise/operations.inc.h"
#undef REAL
#undef NAME

#define REAL double
#define NAME(stem) stem##_double
#include "elementwise/operations.inc.h"
#undef REAL
#undef NAME
#undef OPERATION

enum { LIGHT, HEAVY };

typedef struct {
    const char *name;
    void (*in_float)(const float *a, const float *b, float *y, ptrdiff_t n, float option);
    void (*in_double)(const double *a, const double *b, double *y, ptrdiff_t n, double option);
    int weight;
} operation;

static const operation operations[] = {
#define OPERATION(name, weight, formula) {#name, name##_loop_float, name##_loop_double, weight},
#include "elementwise/operations.inc.h"
#undef OPERATION
};

enum { OPERATION_COUNT = sizeof(operations) / sizeof(operation), EPILOGUE_COLUMNS = 7 };

/* Apply the formula of minorm/kernels/epilogue.py to n sums of one channel; `row` is the channel's row of the table. */
static void minorm_epilogue(const float *row, float *y, ptrdiff_t n) {
    const float k = row[0], d = row[1], factor = row[2], offset = row[3], below = row[4], low = row[5], high = row[6];
    for (ptrdiff_t i = 0; i < n; i++) {
        float v = ((y[i] - k) - d) * factor + offset;
        v = v < below ? low : v;
        y[i] = v > high ? high : v;
    }
}

#endif
