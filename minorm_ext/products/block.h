/* The innermost block: c[i][j] += sum over k of a[rows[i] + steps[k].a] * b[steps[k].b + j], in the order of tiles.
 *
 * The order is part of the result: docs/maths-narrow-types.md. In every 32 steps, the even steps form one chain of
 * multiply-adds and the odd steps another, both from +0. The two are added to each other, and then to c. Missing steps
 * at the end count as 0 * 0. So the division of rows, columns and blocks among jobs cannot change a bit.
 *
 * Tables say where to read a and b, so a matrix product, a convolution and both of its gradients are this one loop.
 * `prepared`: b is a panel that minorm_prepare has reordered. `exact`: floats hold all products exactly. runs[block]
 * is the distance between the steps of a whole block in b, if they are neighbours in a and equally far apart in b; it
 * is BY_TABLE if they are only neighbours in a, and 0 otherwise.
 */
#ifndef MINORM_PRODUCTS_BLOCK_H
#define MINORM_PRODUCTS_BLOCK_H

#include "products/cells.h"
#include "products/step.h"

#define STEPS 32 /* of a block of the depth */
#define BY_TABLE -1

#ifdef MINORM_TILES

#include "products/tile.h"

#define ROWS 32          /* the rows of sums in memory must be a multiple of this */
#define PANEL_STEPS STEPS /* and the steps of a packed panel a multiple of this */
#define STAGED_STEPS 512 /* of b in tiles at a time */

/* Rows of a from step 0 on, for two tiles. */
static INLINE void minorm_stage_a(minorm_cell *to, const minorm_cell *a, const int32_t *rows, intptr_t row_count,
                                  const minorm_step *steps, intptr_t count, int32_t run) {
    for (int i = 0; i < ROWS; i++, to += STEPS) {
        if (i >= row_count) memset(to, 0, STEPS * sizeof *to);
        else if (run && count >= STEPS) memcpy(to, a + rows[i] + steps[0].a, STEPS * sizeof *to);
        else {
            for (intptr_t k = 0; k < count; k++) to[k] = a[rows[i] + steps[k].a];
            for (intptr_t k = count; k < STEPS; k++) to[k] = 0;
        }
    }
}

/* A block of b for two tiles, which take steps in pairs: (pair, 16 columns, 2 steps) of the first, then the second. */
static INLINE void minorm_stage_b(minorm_cell *to, const minorm_cell *b, const minorm_step *steps, intptr_t count) {
    for (int k = 0; k < STEPS; k++, to += k % 2 ? 1 : 2 * TILE - 1) {
        for (int j = 0; j < PANEL; j++) {
            to[j / TILE * STEPS * TILE + j % TILE * 2] = k < count ? b[steps[k].b + j] : 0;
        }
    }
}

/* Reorder a panel that is packed once for many products, PANEL cells a step, into the order that tiles read. */
static NOINLINE void minorm_prepare(minorm_cell *panel, intptr_t depth) {
    minorm_cell copy[STEPS * PANEL];
    minorm_step steps[STEPS];
    for (int k = 0; k < STEPS; k++) steps[k].b = k * PANEL;
    for (; depth > 0; depth -= STEPS, panel += STEPS * PANEL) {
        memcpy(copy, panel, (size_t)(depth < STEPS ? depth : STEPS) * PANEL * sizeof *copy);
        minorm_stage_b(panel, copy, steps, depth);
    }
}

static NOINLINE void minorm_product(const minorm_cell *a, const int32_t *rows, intptr_t row_count, const minorm_cell *b,
                                    const minorm_step *steps, const int32_t *runs, intptr_t depth, float *c,
                                    intptr_t columns, int prepared, int exact) {
    minorm_cell right[STAGED_STEPS * PANEL] __attribute__((aligned(64)));
    minorm_cell left[ROWS * STEPS] __attribute__((aligned(64)));
    (void)columns, (void)exact;
    for (intptr_t begin = 0; begin < depth; begin += STAGED_STEPS) {
        const intptr_t end = depth - begin < STAGED_STEPS ? depth : begin + STAGED_STEPS;
        for (intptr_t k = begin; k < end && !prepared; k += STEPS) {
            minorm_stage_b(right + (k - begin) * PANEL, b, steps + k, end - k);
        }
        for (intptr_t i = 0; i < row_count; i += ROWS) {
            float *low = c + i * PANEL, *high = low + TILE * PANEL;
            TILE_LOAD(0, low, PANEL * 4);
            TILE_LOAD(1, low + TILE, PANEL * 4);
            TILE_LOAD(2, high, PANEL * 4);
            TILE_LOAD(3, high + TILE, PANEL * 4);
            for (intptr_t k = begin; k < end; k += STEPS) {
                const minorm_cell *from = prepared ? b + k * PANEL : right + (k - begin) * PANEL;
                const intptr_t count = end - k < STEPS ? end - k : STEPS;
                minorm_stage_a(left, a, rows + i, row_count - i, steps + k, count, runs[k / STEPS]);
                TILE_LOAD(4, left, 64);
                TILE_LOAD(5, left + TILE * STEPS, 64);
                TILE_LOAD(6, from, 64);
                TILE_LOAD(7, from + TILE * STEPS, 64);
                TILE_MULTIPLY(0, 4, 6);
                TILE_MULTIPLY(1, 4, 7);
                TILE_MULTIPLY(2, 5, 6);
                TILE_MULTIPLY(3, 5, 7);
            }
            TILE_STORE(0, low, PANEL * 4);
            TILE_STORE(1, low + TILE, PANEL * 4);
            TILE_STORE(2, high, PANEL * 4);
            TILE_STORE(3, high + TILE, PANEL * 4);
        }
    }
}

#else

/* 32 vector registers: 8 x 2 sums; their rows' addresses still fit. 16 registers: 6 x 2. */
#if defined(__AVX512F__) || defined(__aarch64__)
#define HEIGHT 8
#else
#define HEIGHT 6
#endif
#define ROWS 1
#define PANEL_STEPS 1
#define NEAR_STEPS 320 /* of a strip of b that stays in the first cache, while all rows pass by */

static INLINE void minorm_prepare(minorm_cell *panel, intptr_t depth) { (void)panel, (void)depth; }

/* One chain: every second step, from +0. */
static INLINE void minorm_chain(const int rows, const int width, const float *const *row, const float *b,
                                const minorm_step *steps, intptr_t count, VECTOR (*sum)[2]) {
    VECTOR column[2], number;
    UNROLL for (int i = 0; i < rows; i++) {
        UNROLL for (int j = 0; j < width; j++) sum[i][j] = (VECTOR){0};
    }
    for (intptr_t k = 0; k < count; k += 2) {
        UNROLL for (int j = 0; j < width; j++) column[j] = NAME(load)(b + steps[k].b + j * LANES);
        UNROLL for (int i = 0; i < rows; i++) {
            number = row[i][steps[k].a] - (VECTOR){0}; /* in every lane */
            UNROLL for (int j = 0; j < width; j++) sum[i][j] = NAME(fma)(number, column[j], sum[i][j]);
        }
    }
    if (count < STEPS - 1) { /* the missing steps: -0 + 0 * 0 is +0 */
        UNROLL for (int i = 0; i < rows; i++) {
            UNROLL for (int j = 0; j < width; j++) sum[i][j] += (VECTOR){0};
        }
    }
}

/* The same for a block whose steps are all equally far apart: it needs no table. */
static INLINE void minorm_run(const int rows, const int width, const float *const *row, intptr_t a, const float *b,
                              intptr_t b_step, VECTOR (*sum)[2]) {
    VECTOR column[2], number;
    const float *start[HEIGHT];
    UNROLL for (int i = 0; i < rows; i++) {
        start[i] = row[i] + a;
        UNROLL for (int j = 0; j < width; j++) sum[i][j] = (VECTOR){0};
    }
#define STEP(k)                                                                                                        \
    UNROLL for (int j = 0; j < width; j++) column[j] = NAME(load)(b + (k) * b_step + j * LANES);                       \
    UNROLL for (int i = 0; i < rows; i++) {                                                                            \
        number = start[i][k] - (VECTOR){0};                                                                            \
        UNROLL for (int j = 0; j < width; j++) sum[i][j] = NAME(fma)(number, column[j], sum[i][j]);                    \
    }
    if (FUSED && rows == HEIGHT) { /* otherwise gcc would keep products for later, in memory */
        UNROLL for (int k = 0; k < STEPS; k += 2) { STEP(k) }
    } else {
        for (int k = 0; k < STEPS; k += 2) { STEP(k) }
    }
#undef STEP
}

static INLINE void minorm_add_rows(const int rows, const int width, const float *a, const int32_t *from, const float *b,
                                   const minorm_step *steps, const int32_t *runs, intptr_t depth, float *c) {
    VECTOR sum[HEIGHT][2], even[HEIGHT][2], total[HEIGHT][2];
    const float *row[HEIGHT];
    UNROLL for (int i = 0; i < rows; i++) {
        row[i] = a + from[i];
        UNROLL for (int j = 0; j < width; j++) total[i][j] = NAME(load)(c + i * PANEL + j * LANES);
    }
    for (intptr_t k = 0; k < depth; k += STEPS) {
        const intptr_t count = depth - k < STEPS ? depth - k : STEPS;
        const int32_t run = count == STEPS ? runs[k / STEPS] : 0;
        if (run > 0) minorm_run(rows, width, row, steps[k].a, b + steps[k].b, run, sum);
        else minorm_chain(rows, width, row, b, steps + k, count, sum);
        UNROLL for (int i = 0; i < rows; i++) { /* store in memory: the other chain needs the registers */
            UNROLL for (int j = 0; j < width; j++) {
                even[i][j] = sum[i][j];
                __asm__("" : "+m"(even[i][j]));
            }
        }
        if (run > 0) minorm_run(rows, width, row, steps[k].a + 1, b + steps[k].b + run, run, sum);
        else minorm_chain(rows, width, row, b, steps + k + 1, count - 1, sum);
        UNROLL for (int i = 0; i < rows; i++) {
            UNROLL for (int j = 0; j < width; j++) total[i][j] += even[i][j] + sum[i][j];
        }
    }
    UNROLL for (int i = 0; i < rows; i++) {
        UNROLL for (int j = 0; j < width; j++) NAME(store)(c + i * PANEL + j * LANES, total[i][j]);
    }
}

/* The same, one number at a time, for products that a float cannot hold. In double they are exact, and so is every sum
   whose rounding to float could differ. */
static NOINLINE void minorm_carefully(const float *a, const int32_t *rows, intptr_t row_count, const float *b,
                                      const minorm_step *steps, intptr_t depth, float *c, intptr_t columns) {
    for (intptr_t i = 0; i < row_count; i++) {
        for (intptr_t j = 0; j < columns; j++) {
            for (intptr_t k = 0; k < depth; k += STEPS) {
                float sum[2] = {0, 0};
                for (intptr_t l = k; l < k + STEPS; l++) {
                    double product = 0;
                    if (l < depth) product = (double)a[rows[i] + steps[l].a] * b[steps[l].b + j];
                    sum[l % 2] = (float)(product + sum[l % 2]);
                }
                c[i * PANEL + j] += sum[0] + sum[1];
            }
        }
    }
}

static NOINLINE void minorm_product(const minorm_cell *a, const int32_t *rows, intptr_t row_count, const minorm_cell *b,
                                    const minorm_step *steps, const int32_t *runs, intptr_t depth, float *c,
                                    intptr_t columns, int prepared, int exact) {
    (void)prepared;
    if (!exact) {
        minorm_carefully(a, rows, row_count, b, steps, depth, c, columns);
        return;
    }
#define CASE(rows_here)                                                                                                \
    case rows_here:                                                                                                    \
        if (columns > LANES) minorm_add_rows(rows_here, 2, a, rows + i, b, steps + k, runs_here, count, c + i * PANEL);\
        else minorm_add_rows(rows_here, 1, a, rows + i, b, steps + k, runs_here, count, c + i * PANEL);                \
        break;
    for (intptr_t k = 0; k < depth; k += NEAR_STEPS) {
        const intptr_t count = depth - k < NEAR_STEPS ? depth - k : NEAR_STEPS;
        const int32_t *runs_here = runs + k / STEPS;
        const intptr_t blocks = (row_count + HEIGHT - 1) / HEIGHT; /* as even as they can be */
        for (intptr_t block = 0; block < blocks; block++) {
            const intptr_t i = row_count * block / blocks;
            switch (row_count * (block + 1) / blocks - i) {
                CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) CASE(6)
#if HEIGHT > 6
                CASE(7) CASE(8)
#endif
            }
        }
    }
#undef CASE
}

#endif

/* Begin and end a job: inside, denormals count as zero, and tiles are ready. */
static inline uint64_t minorm_begin(void) {
#ifdef MINORM_TILES
    minorm_tiles_begin();
#endif
    return minorm_flush_denormals();
}

static inline void minorm_end(uint64_t before) {
    minorm_restore(before);
#ifdef MINORM_TILES
    minorm_tiles_end();
#endif
}

#undef REAL
#undef INTEGER
#undef COUNT
#undef NAME
#endif
