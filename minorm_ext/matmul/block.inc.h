/* The register blocks of the matrix product, written once for float and double with the compiler's vector types.

   A block of the result stays in registers while the whole depth passes by. Multiply-adds, loads, or registers limit
   this loop; ROWS x 2 vectors with 2 loads of b and ROWS of a keep the multiply-adds busy. Every function is written
   for any block size, and becomes a tight loop when it is inlined with constants.
   blocks.h sets REAL and NAME. */

#include "simd/vec.inc.h"

#define PANEL (2 * LANES) /* columns of a packed strip of b */

/* ---- tiles: lanes are neighbouring columns of the result ------------------------------------------------------ */

/* c[i][j] (+)= sum over k of a[i][k] * b[k][j], for `rows` rows i and `width` vectors j. Each number of c is one chain
   of multiply-adds over k, so it does not depend on the block it was computed in. */
static INLINE void NAME(part)(const int rows, const int width, const REAL *a, intptr_t a_row, intptr_t a_step,
                              const REAL *b, intptr_t b_step, intptr_t depth, REAL *c, intptr_t c_row, int first) {
    VECTOR sum[MOST_ROWS][MOST_WIDTH], column[MOST_WIDTH], number;
    const REAL *row[MOST_ROWS / 3]; /* the addresses of three rows are one pointer and one step: all fit registers */
    UNROLL for (int i = 0; i < rows; i++) {
        UNROLL for (int j = 0; j < width; j++) sum[i][j] = (VECTOR){0};
    }
    UNROLL for (int i = 0; i < MOST_ROWS / 3; i++) row[i] = a + 3 * i * a_row;
    for (intptr_t k = 0; k < depth; k++) {
        UNROLL for (int j = 0; j < width; j++) column[j] = NAME(load)(b + j * LANES);
        UNROLL for (int i = 0; i < rows; i++) {
            number = row[i / 3][i % 3 * a_row] - (VECTOR){0}; /* in every lane */
            UNROLL for (int j = 0; j < width; j++) sum[i][j] = NAME(fma)(number, column[j], sum[i][j]);
        }
        b += b_step;
        UNROLL for (int i = 0; i < MOST_ROWS / 3; i++) row[i] += a_step;
    }
    UNROLL for (int i = 0; i < rows; i++) {
        UNROLL for (int j = 0; j < width; j++) {
            REAL *at = c + i * c_row + j * LANES;
            NAME(store)(at, first ? sum[i][j] : NAME(load)(at) + sum[i][j]);
        }
    }
}

/* A tile of c with `columns` columns: at most PANEL, or MOST_WIDTH vectors for a single row. If the columns do not fill
   whole vectors, b must be readable up to the end of the last vector. */
static void NAME(tile)(int rows, intptr_t columns, const REAL *a, intptr_t a_row, intptr_t a_step, const REAL *b,
                       intptr_t b_step, intptr_t depth, REAL *c, intptr_t c_row, int first) {
    REAL edge[MOST_ROWS * PANEL];
    REAL *to = c;
    intptr_t to_row = c_row;
    const int whole = columns % LANES == 0;
    if (!whole) {
        to = edge, to_row = PANEL;
        for (int i = 0; i < rows && !first; i++) memcpy(edge + i * PANEL, c + i * c_row, columns * sizeof(REAL));
    }
#define CASE(rows)                                                                                                     \
    case rows:                                                                                                         \
        if (columns > LANES) NAME(part)(rows, 2, a, a_row, a_step, b, b_step, depth, to, to_row, first);               \
        else NAME(part)(rows, 1, a, a_row, a_step, b, b_step, depth, to, to_row, first);                               \
        break;
    if (columns > PANEL) NAME(part)(1, MOST_WIDTH, a, a_row, a_step, b, b_step, depth, to, to_row, first);
    else switch (rows) {
        CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) CASE(6)
#if MOST_ROWS > 6
        CASE(7) CASE(8) CASE(9) CASE(10) CASE(11) CASE(12)
#endif
    }
#undef CASE
    for (int i = 0; i < rows && !whole; i++) memcpy(c + i * c_row, edge + i * PANEL, columns * sizeof(REAL));
}

/* ---- dots: lanes are neighbours along the depth --------------------------------------------------------------- */

/* u0 + u1, u2 + u3, ..., v0 + v1, v2 + v3, ... */
static INLINE VECTOR NAME(pairs)(VECTOR u, VECTOR v) {
    const INDEX count = {COUNT};
    return NAME(shuffle)(u, v, count * 2) + NAME(shuffle)(u, v, count * 2 + 1);
}

/* c[i][j] (+)= sum over k of a[i][k] * b[j][k], both contiguous along k; depth >= SUMS. Each number has
   SUMS partial sums, whatever a register holds. Neighbouring partial sums are added first, so that the order is the
   same on every instruction set. */
static INLINE void NAME(dot)(const int rows, const int columns, const REAL *a, intptr_t a_row, const REAL *b,
                             intptr_t b_row, intptr_t depth, REAL *c, intptr_t c_row, int first) {
    REAL total[SUMS / LANES][DOT_ROWS * DOT_COLUMNS + LANES];
    for (int lane = 0; lane < SUMS; lane += LANES) {
        VECTOR sum[DOT_ROWS * DOT_COLUMNS + 1], left[DOT_ROWS], right;
        UNROLL for (int i = 0; i < rows * columns; i++) sum[i] = (VECTOR){0};
        for (intptr_t k = lane; k - lane + SUMS <= depth; k += SUMS) {
            UNROLL for (int i = 0; i < rows; i++) left[i] = NAME(load)(a + i * a_row + k);
            UNROLL for (int j = 0; j < columns; j++) {
                right = NAME(load)(b + j * b_row + k);
                UNROLL for (int i = 0; i < rows; i++) {
                    sum[i * columns + j] = NAME(fma)(left[i], right, sum[i * columns + j]);
                }
            }
        }
        if (depth % SUMS) { /* the last vectors overlap the ones before; what was already added is masked out */
            const INDEX mask = ((INDEX){COUNT} + (INTEGER)lane >= (INTEGER)(SUMS - depth % SUMS));
            const intptr_t k = depth - SUMS + lane;
            UNROLL for (int i = 0; i < rows; i++) left[i] = (VECTOR)((INDEX)NAME(load)(a + i * a_row + k) & mask);
            UNROLL for (int j = 0; j < columns; j++) {
                right = (VECTOR)((INDEX)NAME(load)(b + j * b_row + k) & mask);
                UNROLL for (int i = 0; i < rows; i++) {
                    sum[i * columns + j] = NAME(fma)(left[i], right, sum[i * columns + j]);
                }
            }
        }
        /* Add up the lanes of all sums together: each step halves their number and doubles what a lane stands for. */
        int count = rows * columns;
        UNROLL for (int lanes = LANES; lanes > 1; lanes /= 2) {
            if (count % 2) sum[count] = (VECTOR){0};
            count = (count + 1) / 2;
            UNROLL for (int i = 0; i < count; i++) sum[i] = NAME(pairs)(sum[2 * i], sum[2 * i + 1]);
        }
        UNROLL for (int i = 0; i < rows * columns; i += LANES) NAME(store)(total[lane / LANES] + i, sum[i / LANES]);
    }
    UNROLL for (int step = 1; step < SUMS / LANES; step *= 2) {
        UNROLL for (int part = 0; part < SUMS / LANES; part += 2 * step) {
            UNROLL for (int i = 0; i < rows * columns; i++) total[part][i] += total[part + step][i];
        }
    }
    UNROLL for (int i = 0; i < rows; i++) {
        UNROLL for (int j = 0; j < columns; j++) {
            REAL *at = c + i * c_row + j;
            *at = first ? total[0][i * columns + j] : *at + total[0][i * columns + j];
        }
    }
}

static void NAME(dots)(int rows, int columns, const REAL *a, intptr_t a_row, const REAL *b, intptr_t b_row,
                       intptr_t depth, REAL *c, intptr_t c_row, int first) {
#define CASE(rows, columns)                                                                                            \
    case 8 * rows + columns:                                                                                           \
        NAME(dot)(rows, columns, a, a_row, b, b_row, depth, c, c_row, first);                                          \
        break;
    switch (8 * rows + columns) {
        CASE(1, 1) CASE(2, 1) CASE(3, 1) CASE(4, 1) CASE(1, 2) CASE(2, 2) CASE(3, 2) CASE(4, 2)
#if DOT_COLUMNS > 2
        CASE(1, 3) CASE(2, 3) CASE(3, 3) CASE(4, 3) CASE(1, 4) CASE(2, 4) CASE(3, 4) CASE(4, 4)
        CASE(1, 5) CASE(2, 5) CASE(3, 5) CASE(4, 5) CASE(1, 6) CASE(2, 6) CASE(3, 6) CASE(4, 6)
#endif
    }
#undef CASE
}

/* ---- packing -------------------------------------------------------------------------------------------------- */

/* Pack a strip of b, depth x columns, row by row with PANEL numbers a row, zeros beyond the last column. */
static void NAME(pack_strip)(REAL *to, const REAL *b, intptr_t b_step, intptr_t b_column, intptr_t depth,
                             intptr_t columns) {
    intptr_t k = 0;
    if (b_step == 1) {
        for (; k + LANES <= depth; k += LANES) {
            for (int half = 0; half < PANEL; half += LANES) {
                VECTOR square[LANES];
                UNROLL for (int j = 0; j < LANES; j++) {
                    square[j] = (VECTOR){0};
                    if (half + j < columns) square[j] = NAME(load)(b + (half + j) * b_column + k);
                }
                NAME(transpose)(square);
                UNROLL for (int j = 0; j < LANES; j++) NAME(store)(to + (k + j) * PANEL + half, square[j]);
            }
        }
    }
    for (; k < depth; k++) {
        for (intptr_t j = 0; j < columns; j++) to[k * PANEL + j] = b[k * b_step + j * b_column];
        for (intptr_t j = columns; j < PANEL; j++) to[k * PANEL + j] = 0;
    }
}

/* Pack `strips` whole strips together, row by row across all of them; the rows are contiguous. */
static INLINE void NAME(pack_rows)(const int strips, REAL *to, const REAL *b, intptr_t b_step, intptr_t depth) {
    for (intptr_t k = 0; k < depth; k++) {
        UNROLL for (int i = 0; i < 2 * strips; i++) {
            NAME(store)(to + i / 2 * PANEL * depth + k * PANEL + i % 2 * LANES, NAME(load)(b + k * b_step + i * LANES));
        }
    }
}

/* Pack a block of b, depth x columns, four strips at a time, since memory is read faster in longer runs. */
static void NAME(pack)(REAL *to, const REAL *b, intptr_t b_step, intptr_t b_column, intptr_t depth, intptr_t columns) {
    intptr_t at = 0;
    if (b_column == 1) {
        for (; at + 4 * PANEL <= columns; at += 4 * PANEL) NAME(pack_rows)(4, to + at * depth, b + at, b_step, depth);
        for (; at + PANEL <= columns; at += PANEL) NAME(pack_rows)(1, to + at * depth, b + at, b_step, depth);
    }
    for (; at < columns; at += PANEL) {
        const intptr_t width = columns - at < PANEL ? columns - at : PANEL;
        NAME(pack_strip)(to + at * depth, b + at * b_column, b_step, b_column, depth, width);
    }
}
