/* The innermost block of integers: c[i][j] += sum over k of a[rows[i] + steps[k]] . b[k][j]. The product of two cells
 * is the sum of the products of their numbers.
 *
 * Sums of integers are exact modulo 2^32, so no order matters. The level and the processor decide which of these
 * multiplies:
 *
 *     tiles      AMX: tdpbusd, 16 x 16 sums of four bytes at a time
 *     quads      VNNI: vpdpbusd of AVX-512, or of AVX2 where the processor has it
 *     light      vpmaddubsw, which limits sums of pairs to 16 bits: for weights whose sums never reach that limit
 *     pairs      vpmaddwd, two numbers of 16 bits
 *
 * With MINORM_EMULATED quads and tiles are plain C, so that all other code runs on processors without them.
 */
#ifndef MINORM_PRODUCTS_INTEGER_BLOCK_H
#define MINORM_PRODUCTS_INTEGER_BLOCK_H

#include "products/depthwise.h"
#include "products/integer_cells.h"

#if defined(__AVX512F__) || defined(__aarch64__)
#define HEIGHT 8
#else
#define HEIGHT 6
#endif
#define NEAR_STEPS 320 /* of a panel that stay in the first cache, while all rows pass by */

/* sum + the products of two numbers of 16 bits each. */
static INLINE VECTOR minorm_add_pairs(VECTOR sum, VECTOR a, VECTOR b) {
#if defined(__AVX512BW__)
    return sum + (VECTOR)_mm512_madd_epi16((__m512i)a, (__m512i)b);
#elif defined(__AVX2__)
    return sum + (VECTOR)_mm256_madd_epi16((__m256i)a, (__m256i)b);
#else
    return sum + (a << 16 >> 16) * (b << 16 >> 16) + (a >> 16) * (b >> 16);
#endif
}

/* sum + the products of four bytes each; the bytes of a are unsigned. Some processors do this in one instruction. */
static INLINE VECTOR minorm_add_quads_plainly(VECTOR sum, VECTOR a, VECTOR b) {
    UNROLL for (int k = 0; k < 32; k += 8) sum += (a >> k & 255) * (b << (24 - k) >> 24);
    return sum;
}

/* Multiply some rows by one panel, with ADD. Each way has a separate function: a function that needs instructions
   beyond the level must be marked so, and can inline only functions with the same mark. */
#define BLOCK_OF(stem, attribute, ADD)                                                                                 \
    attribute static INLINE void minorm_rows_by_##stem(const int rows, const int width, const int32_t *a,              \
                                                       const int32_t *from, const int32_t *b, const int32_t *steps,    \
                                                       intptr_t count, int32_t *c) {                                   \
        VECTOR sum[HEIGHT][2], column[2], cell;                                                                        \
        const int32_t *row[HEIGHT];                                                                                    \
        UNROLL for (int i = 0; i < rows; i++) {                                                                        \
            row[i] = a + from[i];                                                                                      \
            UNROLL for (int j = 0; j < width; j++) sum[i][j] = NAME(load)(c + i * PANEL + j * LANES);                  \
        }                                                                                                              \
        for (intptr_t k = 0; k < count; k++, b += PANEL) {                                                             \
            const intptr_t at = steps[k];                                                                              \
            UNROLL for (int j = 0; j < width; j++) column[j] = NAME(load)(b + j * LANES);                              \
            UNROLL for (int i = 0; i < rows; i++) {                                                                    \
                cell = (VECTOR){0} + row[i][at];                                                                       \
                UNROLL for (int j = 0; j < width; j++) sum[i][j] = ADD(sum[i][j], cell, column[j]);                    \
            }                                                                                                          \
        }                                                                                                              \
        UNROLL for (int i = 0; i < rows; i++) {                                                                        \
            UNROLL for (int j = 0; j < width; j++) NAME(store)(c + i * PANEL + j * LANES, sum[i][j]);                  \
        }                                                                                                              \
    }                                                                                                                  \
    attribute static NOINLINE void minorm_product_of_##stem(const int32_t *a, const int32_t *rows, intptr_t row_count, \
                                                            const int32_t *b, const int32_t *steps, intptr_t depth,    \
                                                            int32_t *c, intptr_t columns) {                            \
        for (intptr_t k = 0; k < depth; k += NEAR_STEPS, b += NEAR_STEPS * PANEL) {                                    \
            const intptr_t count = depth - k < NEAR_STEPS ? depth - k : NEAR_STEPS;                                    \
            const intptr_t blocks = (row_count + HEIGHT - 1) / HEIGHT; /* as even as they can be */                    \
            for (intptr_t block = 0; block < blocks; block++) {                                                        \
                const intptr_t i = row_count * block / blocks;                                                         \
                switch (row_count * (block + 1) / blocks - i) { EACH_HEIGHT(stem) }                                    \
            }                                                                                                          \
        }                                                                                                              \
    }
#define CASE(stem, height)                                                                                             \
    case height:                                                                                                       \
        if (columns > LANES) minorm_rows_by_##stem(height, 2, a, rows + i, b, steps + k, count, c + i * PANEL);        \
        else minorm_rows_by_##stem(height, 1, a, rows + i, b, steps + k, count, c + i * PANEL);                        \
        break;
#define EACH_HEIGHT_6(stem) CASE(stem, 1) CASE(stem, 2) CASE(stem, 3) CASE(stem, 4) CASE(stem, 5) CASE(stem, 6)
#if HEIGHT > 6
#define EACH_HEIGHT(stem) EACH_HEIGHT_6(stem) CASE(stem, 7) CASE(stem, 8)
#else
#define EACH_HEIGHT(stem) EACH_HEIGHT_6(stem)
#endif
#define NO_ATTRIBUTE

/* sum + the products of four bytes each; 255 times the sum of two neighbours' magnitudes in b must fit 16 bits. */
static INLINE VECTOR minorm_add_light(VECTOR sum, VECTOR a, VECTOR b) {
#if defined(__AVX512BW__)
    const __m512i pairs = _mm512_maddubs_epi16((__m512i)a, (__m512i)b);
    return sum + (VECTOR)_mm512_madd_epi16(pairs, _mm512_set1_epi16(1));
#elif defined(__AVX2__)
    const __m256i pairs = _mm256_maddubs_epi16((__m256i)a, (__m256i)b);
    return sum + (VECTOR)_mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
#else
    return minorm_add_quads_plainly(sum, a, b);
#endif
}

BLOCK_OF(pairs, NO_ATTRIBUTE, minorm_add_pairs)
BLOCK_OF(light, NO_ATTRIBUTE, minorm_add_light)
#if defined(__AVX2__)
#define LIGHT 1 /* 1 if `light` is faster than `pairs` */
#else
#define LIGHT 0
#endif

#if defined(MINORM_EMULATED)
BLOCK_OF(quads, NO_ATTRIBUTE, minorm_add_quads_plainly)
static inline int minorm_has_quads(void) { return 1; }
#elif defined(__AVX512BW__)
#include <cpuid.h>
#define ADD_VNNI(sum, a, b) ((VECTOR)_mm512_dpbusd_epi32((__m512i)(sum), (__m512i)(a), (__m512i)(b)))
BLOCK_OF(quads, __attribute__((target("avx512vnni"))), ADD_VNNI)
static inline int minorm_has_quads(void) {
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && c >> 11 & 1;
}
#elif defined(__AVX2__) && (!defined(__clang__) ? __GNUC__ >= 11 : __clang_major__ >= 12)
#include <cpuid.h>
#define ADD_VNNI(sum, a, b) ((VECTOR)_mm256_dpbusd_avx_epi32((__m256i)(sum), (__m256i)(a), (__m256i)(b)))
BLOCK_OF(quads, __attribute__((target("avxvnni"))), ADD_VNNI)
static inline int minorm_has_quads(void) {
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 1, &a, &b, &c, &d) && a >> 4 & 1;
}
#else
#define minorm_product_of_quads minorm_product_of_pairs
static inline int minorm_has_quads(void) { return 0; }
#endif

#ifdef MINORM_TILES

#include "products/tile.h"

#define ROWS 32 /* memory for sums must hold a multiple of this many rows */
#define PANEL_STEPS TILE /* and a panel a multiple of this many steps, the last ones 0 */

/* TILE cells of each of 32 rows, for two tiles. */
static INLINE void minorm_stage_cells(int32_t *to, const int32_t *a, const int32_t *rows, intptr_t row_count,
                                      const int32_t *steps, intptr_t count) {
    const bool run = count >= TILE && steps[TILE - 1] - steps[0] == TILE - 1; /* steps rise by 1 at least */
    for (int i = 0; i < ROWS; i++, to += TILE) {
        if (i >= row_count) memset(to, 0, TILE * sizeof *to);
        else if (run) memcpy(to, a + rows[i] + steps[0], TILE * sizeof *to);
        else for (int k = 0; k < TILE; k++) to[k] = k < count ? a[rows[i] + steps[k]] : 0;
    }
}

static NOINLINE void minorm_integer_product(int group, int quads, const int32_t *a, const int32_t *rows,
                                            intptr_t row_count, const int32_t *b, const int32_t *steps, intptr_t depth,
                                            int32_t *c, intptr_t columns) {
    int32_t left[ROWS * TILE] __attribute__((aligned(64)));
    (void)columns, (void)group, (void)quads;
    for (intptr_t i = 0; i < row_count; i += ROWS) {
        int32_t *low = c + i * PANEL, *high = low + TILE * PANEL;
        TILE_LOAD(0, low, PANEL * 4);
        TILE_LOAD(1, low + TILE, PANEL * 4);
        TILE_LOAD(2, high, PANEL * 4);
        TILE_LOAD(3, high + TILE, PANEL * 4);
        for (intptr_t k = 0; k < depth; k += TILE) {
            minorm_stage_cells(left, a, rows + i, row_count - i, steps + k, depth - k);
            TILE_LOAD(4, left, 64);
            TILE_LOAD(5, left + TILE * TILE, 64);
            TILE_LOAD(6, b + k * PANEL, PANEL * 4);
            TILE_LOAD(7, b + k * PANEL + TILE, PANEL * 4);
            TILE_MULTIPLY_BYTES(0, 4, 6);
            TILE_MULTIPLY_BYTES(1, 4, 7);
            TILE_MULTIPLY_BYTES(2, 5, 6);
            TILE_MULTIPLY_BYTES(3, 5, 7);
        }
        TILE_STORE(0, low, PANEL * 4);
        TILE_STORE(1, low + TILE, PANEL * 4);
        TILE_STORE(2, high, PANEL * 4);
        TILE_STORE(3, high + TILE, PANEL * 4);
    }
}

static inline int minorm_group(void) { return 4; }
static inline void minorm_begin_integers(void) { minorm_tiles_begin(); }
static inline void minorm_end_integers(void) { minorm_tiles_end(); }

#else

#define ROWS 1
#define PANEL_STEPS 1

static NOINLINE void minorm_integer_product(int group, int quads, const int32_t *a, const int32_t *rows,
                                            intptr_t row_count, const int32_t *b, const int32_t *steps, intptr_t depth,
                                            int32_t *c, intptr_t columns) {
    if (group == 4 && quads) minorm_product_of_quads(a, rows, row_count, b, steps, depth, c, columns);
    else if (group == 4) minorm_product_of_light(a, rows, row_count, b, steps, depth, c, columns);
    else minorm_product_of_pairs(a, rows, row_count, b, steps, depth, c, columns);
}

static inline int minorm_group(void) { return minorm_has_quads() ? 4 : 2; }
static inline void minorm_begin_integers(void) {}
static inline void minorm_end_integers(void) {}

#endif

/* The sum of each row's numbers, for zero points of weights that are not 0. */
static NOINLINE void minorm_row_sums(int group, const int32_t *a, const int32_t *rows, intptr_t row_count,
                                     const int32_t *steps, intptr_t depth, int32_t *to) {
    for (intptr_t i = 0; i < row_count; i++) {
        uint32_t sum = 0;
        for (intptr_t k = 0; k < depth; k++) {
            const uint32_t cell = (uint32_t)a[rows[i] + steps[k]];
            sum += group == 2 ? (cell & 0xffff) + (cell >> 16)
                              : (cell & 255) + (cell >> 8 & 255) + (cell >> 16 & 255) + (cell >> 24);
        }
        to[i] = (int32_t)sum;
    }
}

#undef REAL
#undef INTEGER
#undef COUNT
#undef NAME
#endif
