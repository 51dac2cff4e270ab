/* The register blocks of block.inc.h for float and double, with one name for both: `item` is the size of a number. */
#ifndef MINORM_CONV_BLOCKS_H
#define MINORM_CONV_BLOCKS_H

#include "simd/vec.h"

/* On its own, gcc may read a vector from memory again for each of its uses, which costs more than the arithmetic. */
#if defined(__AVX512F__)
#define IN_REGISTER(v) __asm__("" : "+v"(v))
#elif defined(__SSE2__)
#define IN_REGISTER(v) __asm__("" : "+x"(v))
#else
#define IN_REGISTER(v)
#endif

#define QUAD 4       /* vectors of output that a block computes for each of its channels */
#define BLOCK_ROWS 6 /* most output channels of a block: 6 * 4 sums, 4 inputs and a weight fit 32 vector registers */
#if defined(__AVX512F__) || defined(__aarch64__)
#define WIDTH(rows) QUAD
#define TAPS(rows, columns) ((rows) > 4 ? (columns) : (rows) > 2 ? 6 : 9)
#else /* 16 registers: a large block goes in two halves */
#define WIDTH(rows) ((rows) > 2 ? QUAD / 2 : QUAD)
#define TAPS(rows, columns) ((rows) > 4 ? 2 : (rows) > 2 ? 3 : 4)
#endif
#define MOST_TAPS 9
#define MOST_TALL 5      /* rows of a depthwise kernel that has its own loop: 3 or this many */
#define MOST_PRODUCTS 24 /* the largest BLOCK_ROWS * TAPS */

/* The tiles of a piece of some planes. There are `images` planes, `step` numbers apart, of `height` x `width` numbers
   with zeros around them: `top` rows and `left` columns of zeros come first. The piece has `rows` rows of `columns`
   tiles each, from row number `first` on. */
typedef struct {
    intptr_t images, step, height, width, top, left, first, rows, columns;
} minorm_tiles;

/* The last steps of a sum, which starts at the bias of its channel. An epilogue has AFTER numbers for each channel;
   with it the sum becomes clamp(((sum - k) - d) * factor + offset). With `more`, the number at the same place in `more`
   is added. NULL leaves a step out. */
typedef struct {
    const char *bias, *epilogue, *more;
} minorm_ends;

enum { K, D, FACTOR, OFFSET, BELOW, LOW, HIGH, AFTER }; /* a number less than BELOW becomes LOW */

#define REAL float
#define INTEGER int32_t
#define COUNT COUNT_FLOAT
#define NAME(stem) stem##_float
#include "conv/block.inc.h"
#include "conv/winograd.inc.h"
#undef REAL
#undef INTEGER
#undef COUNT
#undef NAME

#define REAL double
#define INTEGER int64_t
#define COUNT COUNT_DOUBLE
#define NAME(stem) stem##_double
#include "conv/block.inc.h"
#include "conv/winograd.inc.h"
#undef REAL
#undef INTEGER
#undef COUNT
#undef NAME

#define EITHER(stem, parameters, arguments)                                                                            \
    static INLINE void stem parameters {                                                                               \
        if (item == sizeof(float)) stem##_float arguments;                                                             \
        else stem##_double arguments;                                                                                  \
    }

EITHER(block, (size_t item, int rows, const void *x, const intptr_t *position, intptr_t plane, intptr_t channels,
               const intptr_t *taps, intptr_t tap_count, const void *w, intptr_t w_row, intptr_t w_channel,
               const minorm_ends *ends, void *y, const intptr_t *place, intptr_t y_step),
       (rows, x, position, plane, channels, taps, tap_count, w, w_row, w_channel, ends, y, place, y_step))
EITHER(tall, (size_t item, int height, const void *x, intptr_t pitch, const intptr_t *taps, intptr_t width,
              const void *w, const minorm_ends *ends, void *y, const intptr_t *place),
       (height, x, pitch, taps, width, w, ends, y, place))
EITHER(weights, (size_t item, int rows, int columns, const void *x, const intptr_t *shift, const intptr_t *position,
                 intptr_t x_segment, const void *dy, const intptr_t *place, intptr_t dy_step, intptr_t dy_segment,
                 intptr_t first, intptr_t last, intptr_t segments, void *dw, intptr_t dw_step, int real_taps),
       (rows, columns, x, shift, position, x_segment, dy, place, dy_step, dy_segment, first, last, segments, dw,
        dw_step, real_taps))
EITHER(row_in, (size_t item, void *to, const void *from, intptr_t step, intptr_t count), (to, from, step, count))
EITHER(row_out, (size_t item, void *to, const void *from, intptr_t step, intptr_t count), (to, from, step, count))
EITHER(rows_out, (size_t item, void *to, const void *first, const void *second, intptr_t firsts, intptr_t count),
       (to, first, second, firsts, count))
EITHER(images_in, (size_t item, intptr_t lanes, void *to, const intptr_t *place, const void *from, intptr_t image,
                   intptr_t images, intptr_t pixels),
       (lanes, to, place, from, image, images, pixels))
EITHER(images_out, (size_t item, void *to, const void *from, intptr_t image, intptr_t images, intptr_t pixels),
       (to, from, image, images, pixels))
EITHER(tiles_in, (size_t item, int gradient, const minorm_tiles *p, const void *x, void *v, intptr_t v_step,
                  void *scratch),
       (gradient, p, x, v, v_step, scratch))
EITHER(tiles_out, (size_t item, const minorm_tiles *p, const void *m, intptr_t m_step, const minorm_ends *ends,
                   void *y, void *scratch),
       (p, m, m_step, ends, y, scratch))
EITHER(kernels_in, (size_t item, int turned, int rows, intptr_t channels, const void *w, intptr_t row_step,
                    intptr_t channel_step, void *u, intptr_t u_step),
       (turned, rows, channels, w, row_step, channel_step, u, u_step))
EITHER(kernels_out, (size_t item, intptr_t chunks, intptr_t chunk_step, const void *sums, intptr_t sums_step,
                     intptr_t begin, intptr_t end, void *dw),
       (chunks, chunk_step, sums, sums_step, begin, end, dw))
EITHER(tile_products, (size_t item, int rows, intptr_t vectors, const void *v, intptr_t v_step, intptr_t channels,
                       const void *u, void *m, intptr_t m_step),
       (rows, vectors, v, v_step, channels, u, m, m_step))
EITHER(add_to, (size_t item, void *to, const void *more, intptr_t count), (to, more, count))
EITHER(add_up, (size_t item, void *to, const void *chunks, intptr_t step, intptr_t count, intptr_t begin, intptr_t end),
       (to, chunks, step, count, begin, end))
EITHER(add_total, (size_t item, void *to, const void *x, intptr_t count), (to, x, count))

static INLINE int weight_taps(int rows, int columns) { return TAPS(rows, columns); }

#endif
