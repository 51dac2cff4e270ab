/* A processor's tiles of 16 rows of 64 bytes: load, store, and c += a b in the order of `tdpbf16ps` and `tdpbusd`.
 *
 * With MINORM_EMULATED plain C does the same, so that all other code runs on processors without tiles.
 */
#ifndef MINORM_PRODUCTS_TILE_H
#define MINORM_PRODUCTS_TILE_H

#include "simd/convert.h"

#define TILE 16 /* rows, and columns of float or pairs of bfloat16 */

#ifdef MINORM_EMULATED

static __thread uint32_t minorm_tiles[8][TILE][TILE];

static inline void minorm_tile_move(uint32_t (*tile)[TILE], char *memory, intptr_t row, bool store) {
    for (int i = 0; i < TILE; i++) {
        if (store) memcpy(memory + i * row, tile[i], sizeof tile[i]);
        else memcpy(tile[i], memory + i * row, sizeof tile[i]);
    }
}

/* a * b + c, rounded once: in double the product is exact, and so is every sum that a float could round otherwise. */
static inline float minorm_once(float a, float b, float c) { return (float)((double)a * b + c); }

static inline void minorm_tile_multiply(uint32_t (*c)[TILE], uint32_t (*a)[TILE], uint32_t (*b)[TILE]) {
    for (int i = 0; i < TILE; i++) {
        for (int j = 0; j < TILE; j++) {
            float even = 0, odd = 0;
            for (int k = 0; k < TILE; k++) {
                even = minorm_once(minorm_float(a[i][k] << 16), minorm_float(b[k][j] << 16), even);
                odd = minorm_once(minorm_float(a[i][k] & 0xffff0000), minorm_float(b[k][j] & 0xffff0000), odd);
            }
            c[i][j] = minorm_bits(minorm_float(c[i][j]) + (even + odd));
        }
    }
}

/* c += a b for unsigned bytes a and signed bytes b, four at a time, as `tdpbusd` adds them up. */
static inline void minorm_tile_multiply_bytes(uint32_t (*c)[TILE], uint32_t (*a)[TILE], uint32_t (*b)[TILE]) {
    for (int i = 0; i < TILE; i++) {
        for (int j = 0; j < TILE; j++) {
            for (int k = 0; k < 4 * TILE; k++) {
                const int shift = 8 * (k % 4);
                c[i][j] += (uint32_t)((int)(a[i][k / 4] >> shift & 255) * (int8_t)(b[k / 4][j] >> shift));
            }
        }
    }
}

#define TILE_LOAD(tile, memory, row) minorm_tile_move(minorm_tiles[tile], (char *)(memory), row, false)
#define TILE_STORE(tile, memory, row) minorm_tile_move(minorm_tiles[tile], (char *)(memory), row, true)
#define TILE_MULTIPLY(c, a, b) minorm_tile_multiply(minorm_tiles[c], minorm_tiles[a], minorm_tiles[b])
#define TILE_MULTIPLY_BYTES(c, a, b) minorm_tile_multiply_bytes(minorm_tiles[c], minorm_tiles[a], minorm_tiles[b])
static inline void minorm_tiles_begin(void) {}
static inline void minorm_tiles_end(void) {}

#else

#include <immintrin.h>

#define TILE_LOAD(tile, memory, row) _tile_loadd(tile, memory, row)
#define TILE_STORE(tile, memory, row) _tile_stored(tile, memory, row)
#define TILE_MULTIPLY(c, a, b) _tile_dpbf16ps(c, a, b)
#define TILE_MULTIPLY_BYTES(c, a, b) _tile_dpbusd(c, a, b)

/* All eight tiles are whole: zeros fill up operands with fewer rows or columns. */
static NOINLINE void minorm_tiles_begin(void) {
    struct {
        uint8_t palette, start, reserved[14];
        uint16_t bytes[16];
        uint8_t rows[16];
    } __attribute__((aligned(64))) config = {.palette = 1};
    for (int i = 0; i < 8; i++) config.bytes[i] = 64, config.rows[i] = TILE;
    _tile_loadconfig(&config);
}

static NOINLINE void minorm_tiles_end(void) { _tile_release(); }

#endif
#endif
