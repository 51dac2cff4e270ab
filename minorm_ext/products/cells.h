/* Numbers of 16 bits on their way into products and out of them.
 *
 * A panel holds cells. A cell is a float, to which bfloat16 is widened once for all of its uses, or the 16 bits
 * themselves if the processor multiplies tiles. Results are sums in float, PANEL columns beside each other.
 */
#ifndef MINORM_PRODUCTS_CELLS_H
#define MINORM_PRODUCTS_CELLS_H

#include "simd/convert.h"

#define REAL float
#define INTEGER int32_t
#define COUNT COUNT_FLOAT
#define NAME(stem) stem##_cells
#include "simd/vec.inc.h"

#ifdef MINORM_TILES
#define PANEL 32
typedef uint16_t minorm_cell;
static INLINE minorm_cell minorm_cell_of(uint16_t bits) { return bits; }
static INLINE void minorm_cells_out(minorm_cell *to, VECTOR v) {
    float f[LANES];
    memcpy(f, &v, sizeof f);
    UNROLL for (int i = 0; i < LANES; i++) to[i] = (uint16_t)(minorm_bits(f[i]) >> 16); /* widened before: exact */
}
#else
#define PANEL (VECTOR_BYTES / 2) /* two vectors */
typedef float minorm_cell;
static INLINE minorm_cell minorm_cell_of(uint16_t bits) { return minorm_wide_bfloat(bits); }
static INLINE void minorm_cells_out(minorm_cell *to, VECTOR v) { NAME(store)(to, v); }
#endif

static INLINE VECTOR minorm_wide_vector(const uint16_t *from) {
    float f[LANES];
    minorm_widen_vector_bfloat(from, f);
    return NAME(load)(f);
}

#define LINE 32 /* numbers in a line of the cache */

/* ---- into panels ---------------------------------------------------------------------------------------------- */

/* Make a row of cells from numbers that lie side by side. */
static INLINE void minorm_row_in(minorm_cell *to, const uint16_t *from, intptr_t count) {
#ifdef MINORM_TILES
    memcpy(to, from, (size_t)count * sizeof *to);
#else
    intptr_t i = 0;
    for (; i + LANES <= count; i += LANES) minorm_widen_vector_bfloat(from + i, to + i);
    for (; i < count; i++) to[i] = minorm_wide_bfloat(from[i]);
#endif
}

/* to[i][j] = from[j][i] for LANES columns, each of which has `rows` neighbours in memory, LANES at most. */
static INLINE void minorm_square_in(minorm_cell *to, intptr_t to_row, const uint16_t *from, intptr_t column_step,
                                    intptr_t rows) {
    VECTOR square[LANES];
    UNROLL for (int j = 0; j < LANES; j++) {
        if (rows < LANES) {
            uint16_t some[LANES];
            minorm_copy_some(some, from + j * column_step, (size_t)rows * 2);
            square[j] = minorm_wide_vector(some);
        } else square[j] = minorm_wide_vector(from + j * column_step);
    }
    NAME(transpose)(square);
    UNROLL for (int i = 0; i < LANES; i++) {
        if (i < rows) minorm_cells_out(to + i * to_row, square[i]);
    }
}

/* to[i][j] = from[i][j] for these rows and columns. Squares at the ends overlap the ones before. */
static NOINLINE void minorm_cells_in(minorm_cell *to, intptr_t to_row, const uint16_t *from, intptr_t row_step,
                                     intptr_t column_step, intptr_t rows, intptr_t columns) {
    if (column_step == 1) {
        for (intptr_t i = 0; i < rows; i++) minorm_row_in(to + i * to_row, from + i * row_step, columns);
    } else if (row_step == 1 && columns >= LANES) {
        for (intptr_t line = 0; line < rows; line += LINE) { /* of memory, which is read whole while it is in cache */
            const intptr_t end = rows - line < LINE ? rows : line + LINE;
            for (intptr_t j = 0; j < columns; j += LANES) {
                if (j > columns - LANES) j = columns - LANES;
                for (intptr_t i = line; i < end; i += LANES) {
                    if (i > rows - LANES && rows >= LANES) i = rows - LANES;
                    const intptr_t count = rows - i < LANES ? rows - i : LANES;
                    minorm_square_in(to + i * to_row + j, to_row, from + j * column_step + i, column_step, count);
                }
            }
        }
    } else {
        for (intptr_t j = 0; j < columns; j++) {
            for (intptr_t i = 0; i < rows; i++) to[i * to_row + j] = minorm_cell_of(from[i * row_step + j * column_step]);
        }
    }
}

/* ---- and out of sums -------------------------------------------------------------------------------------------- */

/* y[i][j] = sums[i][j] + bias[j], rounded once. */
static NOINLINE void minorm_rows_out(const float *sums, intptr_t rows, intptr_t columns, const uint16_t *bias,
                                     uint16_t *y, intptr_t y_row) {
    float wide[PANEL] = {0}, line[PANEL];
    if (bias) minorm_widen_f(MINORM_BFLOAT, bias, wide, columns);
    for (intptr_t i = 0; i < rows; i++) {
        const float *from = sums + i * PANEL;
        if (bias) {
            UNROLL for (int j = 0; j < PANEL; j += LANES) NAME(store)(line + j, NAME(load)(from + j) + NAME(load)(wide + j));
            from = line;
        }
        minorm_narrow_f(MINORM_BFLOAT, from, y + i * y_row, columns);
    }
}

/* The same in planes: y[j][place[i]]. Places that follow each other are stored as whole vectors. */
static NOINLINE void minorm_planes_out(const float *sums, intptr_t rows, intptr_t columns, const uint16_t *bias,
                                       uint16_t *y, intptr_t y_plane, const intptr_t *place) {
    float wide[PANEL] = {0};
    if (bias) minorm_widen_f(MINORM_BFLOAT, bias, wide, columns);
    for (intptr_t i = 0; i < rows; i += LANES) {
        if (i > rows - LANES && rows >= LANES) i = rows - LANES;
        const intptr_t count = rows - i < LANES ? rows - i : LANES;
        const bool neighbours = count == LANES && place[i + LANES - 1] - place[i] == LANES - 1;
        for (intptr_t j = 0; j < columns; j += LANES) {
            const VECTOR start = NAME(load)(wide + j);
            VECTOR square[LANES];
            UNROLL for (int k = 0; k < LANES; k++) {
                square[k] = k < count ? NAME(load)(sums + (i + k) * PANEL + j) : (VECTOR){0};
                if (bias) square[k] += start;
            }
            NAME(transpose)(square);
            for (intptr_t k = 0; k < LANES && j + k < columns; k++) {
                float line[LANES];
                uint16_t bits[LANES];
                NAME(store)(line, square[k]);
                minorm_narrow_vector_bfloat(line, bits);
                uint16_t *plane = y + (j + k) * y_plane;
                if (neighbours) memcpy(plane + place[i], bits, sizeof bits);
                else for (intptr_t l = 0; l < count; l++) plane[place[i + l]] = bits[l];
            }
        }
    }
}

/* Add up the sums of several chunks, each `chunk` numbers after the one before, in their order. */
static NOINLINE void minorm_chunks_out(const float *sums, intptr_t chunk, intptr_t chunks, const int32_t *place,
                                       uint16_t *y) {
    for (int j = 0; j < PANEL; j += LANES) {
        VECTOR total = NAME(load)(sums + j);
        float line[LANES];
        for (intptr_t k = 1; k < chunks; k++) total += NAME(load)(sums + k * chunk + j);
        NAME(store)(line, total);
        for (int l = 0; l < LANES; l++) {
            if (place[j + l] >= 0) y[place[j + l]] = minorm_narrow_bfloat(line[l]);
        }
    }
}

/* ---- denormals count as zero ------------------------------------------------------------------------------------ */

/* Only inside a job: minorm_restore sets the former mode at its end. */
static NOINLINE uint64_t minorm_flush_denormals(void) {
#if defined(__x86_64__)
    const unsigned before = __builtin_ia32_stmxcsr();
    __builtin_ia32_ldmxcsr((before & ~0x603fu) | 0x8040u); /* to zero: results and operands; rounding to nearest */
    return before;
#elif defined(__aarch64__)
    uint64_t before;
    __asm__ volatile("mrs %0, fpcr" : "=r"(before));
    __asm__ volatile("msr fpcr, %0" : : "r"((before & ~(3ull << 22)) | 1ull << 24));
    return before;
#else
    return 0;
#endif
}

static NOINLINE void minorm_restore(uint64_t before) {
#if defined(__x86_64__)
    __builtin_ia32_ldmxcsr((unsigned)before);
#elif defined(__aarch64__)
    __asm__ volatile("msr fpcr, %0" : : "r"(before));
#else
    (void)before;
#endif
}

/* ---- where two roundings are one -------------------------------------------------------------------------------- */

/* The least and the greatest magnitude of some numbers, without zeros and denormals. */
typedef struct {
    uint16_t least, most;
} minorm_range;

typedef int16_t minorm_shorts __attribute__((vector_size(16)));

static INLINE minorm_shorts minorm_where(minorm_shorts mask, minorm_shorts yes, minorm_shorts no) {
    return (mask & yes) | (~mask & no);
}

/* Take in eight more numbers. Magnitudes have 15 bits, so comparing signed numbers is right. */
static INLINE void minorm_look(minorm_shorts *least, minorm_shorts *most, minorm_shorts numbers) {
    const minorm_shorts none = {0}, size = numbers & (none + 0x7fff);
    const minorm_shorts counted = minorm_where(size < none + 0x80, none + 0x7fff, size);
    *least = minorm_where(counted < *least, counted, *least);
    *most = minorm_where(size > *most, size, *most);
}

static NOINLINE void minorm_widen_range(minorm_range *range, const uint16_t *from, intptr_t row_step,
                                        intptr_t column_step, intptr_t rows, intptr_t columns) {
    const minorm_shorts none = {0};
    minorm_shorts least = none + (int16_t)range->least, most = none + (int16_t)range->most, numbers;
    if (row_step == 1) {
        const intptr_t count = rows;
        row_step = column_step, column_step = 1, rows = columns, columns = count;
    }
    for (intptr_t i = 0; i < rows; i++) {
        const uint16_t *row = from + i * row_step;
        intptr_t j = 0;
        for (; column_step == 1 && j + 8 <= columns; j += 8) {
            memcpy(&numbers, row + j, sizeof numbers);
            minorm_look(&least, &most, numbers);
        }
        for (; j < columns; j++) minorm_look(&least, &most, none + (int16_t)row[j * column_step]);
    }
    for (int k = 0; k < 8; k++) {
        range->least = (uint16_t)least[k] < range->least ? (uint16_t)least[k] : range->least;
        range->most = (uint16_t)most[k] > range->most ? (uint16_t)most[k] : range->most;
    }
}

/* A product of two bfloat16 is exact in float unless it is too small or too large for one. An exact product may be
   rounded before the addition: then a multiplication and an addition give the same as a multiply-add. */
static inline bool minorm_products_exact(minorm_range a, minorm_range b) {
    return (a.least >> 7) + (b.least >> 7) >= 128 && (a.most >> 7) + (b.most >> 7) <= 380;
}

#endif
