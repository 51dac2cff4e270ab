/* The register blocks of block.inc.h for float and double, with one name for both: `item` is the size of a number. */
#ifndef MINORM_MATMUL_BLOCKS_H
#define MINORM_MATMUL_BLOCKS_H

#include "simd/vec.h"

/* 32 vector registers: 12 x 2 sums, 2 vectors of b, a number of a. 16 registers: 6 x 2. */
#if defined(__AVX512F__) || defined(__aarch64__)
#define MOST_ROWS 12
#define DOT_COLUMNS 6
#else
#define MOST_ROWS 6
#define DOT_COLUMNS 2
#endif
#define DOT_ROWS 4
#define MOST_WIDTH 8 /* vectors of a single row */

#define REAL float
#define INTEGER int32_t
#define COUNT COUNT_FLOAT
#define NAME(stem) stem##_float
#include "matmul/block.inc.h"
#undef REAL
#undef INTEGER
#undef COUNT
#undef NAME

#define REAL double
#define INTEGER int64_t
#define COUNT COUNT_DOUBLE
#define NAME(stem) stem##_double
#include "matmul/block.inc.h"
#undef REAL
#undef INTEGER
#undef COUNT
#undef NAME

#define EITHER(stem, ...)                                                                                              \
    do {                                                                                                               \
        if (item == sizeof(float)) stem##_float(__VA_ARGS__);                                                          \
        else stem##_double(__VA_ARGS__);                                                                               \
    } while (0)

static INLINE void tile(size_t item, int rows, intptr_t columns, const void *a, intptr_t a_row, intptr_t a_step,
                        const void *b, intptr_t b_step, intptr_t depth, void *c, intptr_t c_row, int first) {
    EITHER(tile, rows, columns, a, a_row, a_step, b, b_step, depth, c, c_row, first);
}

static INLINE void dots(size_t item, int rows, int columns, const void *a, intptr_t a_row, const void *b,
                        intptr_t b_row, intptr_t depth, void *c, intptr_t c_row, int first) {
    EITHER(dots, rows, columns, a, a_row, b, b_row, depth, c, c_row, first);
}

static INLINE void pack(size_t item, void *to, const void *b, intptr_t b_step, intptr_t b_column, intptr_t depth,
                        intptr_t columns) {
    EITHER(pack, to, b, b_step, b_column, depth, columns);
}

#endif
