/* The register blocks of the convolution, written once for float and double with the compiler's vector types.

   A vector holds LANES numbers: neighbouring pixels of a plane, or one pixel of several images; this code works for
   both. Plain loops are not enough: gcc would vectorise them but keep the sums in memory, and a convolution is fast
   only if a block of sums stays in registers while all taps pass by. So every function is written for any block size,
   and becomes a tight loop when it is inlined with constants. blocks.h sets REAL and NAME. */

#include "simd/vec.inc.h"

typedef REAL NAME(quarter) __attribute__((vector_size(16)));

/* ---- the forward sum ---------------------------------------------------------------------------------------- */

/* Apply the ends to `count` vectors of sums of a channel; its number counts from the first channel of the ends. */
static INLINE void NAME(end)(const int count, VECTOR *sums, const minorm_ends *ends, int channel) {
    if (!ends->epilogue) return;
    const REAL *p = (const REAL *)ends->epilogue + AFTER * channel;
    const VECTOR low = p[LOW] - (VECTOR){0}, high = p[HIGH] - (VECTOR){0};
    UNROLL for (int j = 0; j < count; j++) {
        VECTOR v = ((sums[j] - p[K]) - p[D]) * p[FACTOR] + p[OFFSET];
        const INDEX less = v < p[BELOW] - (VECTOR){0};
        v = (VECTOR)((less & (INDEX)low) | (~less & (INDEX)v));
        const INDEX more = v > high; /* NaN is neither */
        sums[j] = (VECTOR)((more & (INDEX)high) | (~more & (INDEX)v));
    }
}

/* y[i][place[j]] = bias[i] + the sum over channels c and taps t of w[i][c][t] * x[c][position[j] + shift[t]],
   with its ends, for `rows` output channels i and `width` vectors j. A tap is a pair: its shift, and the number of its
   weight. */
static INLINE void NAME(part)(const int rows, const int width, const REAL *x, const intptr_t *position, intptr_t plane,
                              intptr_t channels, const intptr_t *taps, intptr_t tap_count, const REAL *w,
                              intptr_t w_row, intptr_t w_channel, const minorm_ends *ends, REAL *y,
                              const intptr_t *place, intptr_t y_step) {
    VECTOR sum[BLOCK_ROWS][QUAD], pixel[QUAD], weight;
    const REAL *start[QUAD], *row[BLOCK_ROWS / 3]; /* the addresses of three rows are one pointer and one step */
    UNROLL for (int i = 0; i < rows; i++) {
        weight = (VECTOR){0};
        if (ends && ends->bias) weight += ((const REAL *)ends->bias)[i];
        UNROLL for (int j = 0; j < width; j++) sum[i][j] = weight;
    }
    UNROLL for (int j = 0; j < width; j++) start[j] = x + position[j];
    UNROLL for (int i = 0; i < BLOCK_ROWS / 3; i++) row[i] = w + 3 * i * w_row;
#define ADD_TAP(shift, number)                                                                                         \
    UNROLL for (int j = 0; j < width; j++) pixel[j] = NAME(load)(start[j] + (shift));                                  \
    UNROLL for (int i = 0; i < rows; i++) {                                                                            \
        weight = row[i / 3][(number) + i % 3 * w_row] - (VECTOR){0}; /* in every lane */                               \
        UNROLL for (int j = 0; j < width; j++) sum[i][j] = NAME(fma)(weight, pixel[j], sum[i][j]);                     \
    }
    if (tap_count == 1) { /* only steps from channel to channel */
        UNROLL for (int j = 0; j < width; j++) start[j] += taps[0];
        UNROLL for (int i = 0; i < BLOCK_ROWS / 3; i++) row[i] += taps[1];
        for (intptr_t c = 0; c < channels; c++) {
            ADD_TAP(0, 0)
            UNROLL for (int j = 0; j < width; j++) start[j] += plane;
            UNROLL for (int i = 0; i < BLOCK_ROWS / 3; i++) row[i] += w_channel;
        }
    } else {
        for (intptr_t c = 0, channel = 0; c < channels; c++, channel += plane) {
            for (intptr_t t = 0; t < tap_count; t++) {
                ADD_TAP(channel + taps[2 * t], taps[2 * t + 1])
            }
            UNROLL for (int i = 0; i < BLOCK_ROWS / 3; i++) row[i] += w_channel;
        }
    }
#undef ADD_TAP
    UNROLL for (int i = 0; i < rows; i++) {
        if (ends) NAME(end)(width, sum[i], ends, i);
        UNROLL for (int j = 0; j < width; j++) {
            const intptr_t at = i * y_step + place[j];
            if (ends && ends->more) sum[i][j] += NAME(load)((const REAL *)ends->more + at);
            NAME(store)(y + at, sum[i][j]);
        }
    }
}

/* A quad of output vectors for `rows` output channels. */
static void NAME(block)(int rows, const REAL *x, const intptr_t *position, intptr_t plane, intptr_t channels,
                        const intptr_t *taps, intptr_t tap_count, const REAL *w, intptr_t w_row, intptr_t w_channel,
                        const minorm_ends *ends, REAL *y, const intptr_t *place, intptr_t y_step) {
#define CASE(rows)                                                                                                     \
    case rows:                                                                                                         \
        for (int j = 0; j < QUAD; j += WIDTH(rows))                                                                    \
            NAME(part)(rows, WIDTH(rows), x, position + j, plane, channels, taps, tap_count, w, w_row, w_channel,      \
                       ends, y, place + j, y_step);                                                                    \
        break;
    switch (rows) { CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) CASE(6) }
#undef CASE
}

/* Depthwise, one channel: QUAD vectors of results, one below the other, whose sources are `pitch` apart. The taps are
   `height` rows of `width` taps, also one pitch apart. For each column of taps, a row of the input is read once for all
   results that use it. */
static INLINE void NAME(column)(const int height, const REAL *x, intptr_t pitch, const intptr_t *taps, intptr_t width,
                                const REAL *w, const minorm_ends *ends, REAL *y, const intptr_t *place) {
    VECTOR sum[QUAD], weight[MOST_TALL];
    UNROLL for (int j = 0; j < QUAD; j++) sum[j] = (ends->bias ? *(const REAL *)ends->bias : 0) - (VECTOR){0};
    for (intptr_t k = 0; k < width; k++) {
        UNROLL for (int t = 0; t < height; t++) weight[t] = w[taps[2 * (t * width + k) + 1]] - (VECTOR){0};
        UNROLL for (int i = 0; i < QUAD + height - 1; i++) {
            VECTOR pixel = NAME(load)(x + i * pitch + taps[2 * k]);
            IN_REGISTER(pixel);
            UNROLL for (int j = 0; j < QUAD; j++) {
                if (i - j >= 0 && i - j < height) sum[j] = NAME(fma)(weight[i - j], pixel, sum[j]);
            }
        }
    }
    NAME(end)(QUAD, sum, ends, 0);
    UNROLL for (int j = 0; j < QUAD; j++) {
        if (ends->more) sum[j] += NAME(load)((const REAL *)ends->more + place[j]);
        NAME(store)(y + place[j], sum[j]);
    }
}

static void NAME(tall)(int height, const REAL *x, intptr_t pitch, const intptr_t *taps, intptr_t width, const REAL *w,
                       const minorm_ends *ends, REAL *y, const intptr_t *place) {
    if (height == 3) NAME(column)(3, x, pitch, taps, width, w, ends, y, place);
    else NAME(column)(MOST_TALL, x, pitch, taps, width, w, ends, y, place);
}

/* ---- the weight gradient ------------------------------------------------------------------------------------ */

/* In every 16 bytes: u0 + u1 and v0 + v1, of float also u2 + u3 and v2 + v3 in between. */
static INLINE VECTOR NAME(pairs)(VECTOR u, VECTOR v) {
    const INDEX count = {COUNT}, inside = count & (SHORT - 1);
    const INDEX even = (count - inside) + (inside & (SHORT / 2 - 1)) * 2 + (inside >> (SHORT / 2 - 1)) * LANES;
    return NAME(shuffle)(u, v, even) + NAME(shuffle)(u, v, even + 1);
}

/* Adds the lanes of each of `count` vectors to the total of that vector. First it adds neighbours, until SHORT vectors
   have become one in which every 16 bytes hold SHORT sums; then it adds the 16-byte parts of that vector in order. */
static INLINE void NAME(lane_sums)(const int count, const VECTOR *sums, REAL *totals) {
    for (int i = 0; i < count; i += SHORT) {
        VECTOR joined;
        if (SHORT == 4) joined = NAME(pairs)(NAME(pairs)(sums[i], sums[i + 1]), NAME(pairs)(sums[i + 2], sums[i + 3]));
        else joined = NAME(pairs)(sums[i], sums[i + 1]);
        NAME(quarter) total;
        memcpy(&total, totals + i, 16);
        UNROLL for (int part = 0; part < LANES / SHORT; part++) {
            NAME(quarter) next;
            memcpy(&next, (const char *)&joined + 16 * part, 16);
            total += next;
        }
        memcpy(totals + i, &total, 16);
    }
}

/* dw[i][k] += the sum over segments, vectors and lanes of dy[i] * x[shift[k]], for `rows` output channels i and `taps`
   columns k, of which the first `real_taps` are kept. A tap meets the input in vectors first .. last - 1. A vector has
   SUMS lanes here, whatever a register holds: as many partial sums on every instruction set, added up in one order. */
static INLINE void NAME(products)(const int rows, const int taps, const REAL *x, const intptr_t *shift,
                                  const intptr_t *position, intptr_t x_segment, const REAL *dy, const intptr_t *place,
                                  intptr_t dy_step, intptr_t dy_segment, intptr_t first, intptr_t last,
                                  intptr_t segments, REAL *dw, intptr_t dw_step, int real_taps) {
    REAL totals[MOST_PRODUCTS + SHORT] = {0};
    for (int lane = 0; lane < SUMS; lane += LANES) {
        VECTOR sum[MOST_PRODUCTS], pixel[MOST_TAPS];
        UNROLL for (int i = 0; i < rows * taps; i++) sum[i] = (VECTOR){0};
        const REAL *start[MOST_TAPS];
        UNROLL for (int k = 0; k < taps; k++) start[k] = x + shift[k < real_taps ? k : 0] + lane;
        for (intptr_t s = 0; s < segments; s++) {
            for (intptr_t q = first; q < last; q++) {
                const intptr_t at = s * x_segment + position[q];
                const REAL *from = dy + s * dy_segment + place[q] + lane;
                UNROLL for (int k = 0; k < taps; k++) pixel[k] = NAME(load)(start[k] + at);
                UNROLL for (int i = 0; i < rows; i++) {
                    VECTOR gradient = NAME(load)(from + i * dy_step);
                    IN_REGISTER(gradient);
                    VECTOR *row = sum + i * taps;
                    UNROLL for (int k = 0; k < taps; k++) row[k] = NAME(fma)(gradient, pixel[k], row[k]);
                }
            }
        }
        VECTOR list[MOST_PRODUCTS + SHORT]; /* in memory, unlike sum, so that it may be walked */
        UNROLL for (int i = 0; i < rows * taps; i++) list[i] = sum[i];
        UNROLL for (int i = 0; i < SHORT; i++) list[rows * taps + i] = (VECTOR){0};
        NAME(lane_sums)(rows * taps, list, totals);
    }
    for (int i = 0; i < rows; i++) {
        if (real_taps == taps) {
            UNROLL for (int k = 0; k < taps; k++) dw[i * dw_step + k] += totals[i * taps + k];
        } else {
            for (int k = 0; k < real_taps; k++) dw[i * dw_step + k] += totals[i * taps + k];
        }
    }
}

/* One block of the weight gradient, of TAPS(rows, columns) columns. */
static void NAME(weights)(int rows, int columns, const REAL *x, const intptr_t *shift, const intptr_t *position,
                          intptr_t x_segment, const REAL *dy, const intptr_t *place, intptr_t dy_step,
                          intptr_t dy_segment, intptr_t first, intptr_t last, intptr_t segments, REAL *dw,
                          intptr_t dw_step, int real_taps) {
#define CASE(rows, columns)                                                                                            \
    case rows * 8 + columns:                                                                                           \
        NAME(products)(rows, TAPS(rows, columns), x, shift, position, x_segment, dy, place, dy_step, dy_segment,       \
                       first, last, segments, dw, dw_step, real_taps);                                                 \
        break;
#define CASES(rows) CASE(rows, 3) CASE(rows, 4)
    switch (rows * 8 + columns) { CASES(1) CASES(2) CASES(3) CASES(4) CASES(5) CASES(6) }
#undef CASES
#undef CASE
}

/* ---- into the layout of the lanes, and back ----------------------------------------------------------------- */

/* Copy count numbers; the last vector overlaps the one before, so that nothing beyond the numbers is touched. */
static INLINE void NAME(copy)(REAL *to, const REAL *from, intptr_t count) {
    const intptr_t rest = count - LANES / 2;
    if (count >= LANES) {
        for (intptr_t i = 0; i < count; i += LANES) {
            if (i > count - LANES) i = count - LANES;
            NAME(store)(to + i, NAME(load)(from + i));
        }
    } else if (rest >= 0) {
        char half[VECTOR_BYTES / 2];
        memcpy(half, from + rest, sizeof half);
        memcpy(to, from, sizeof half);
        memcpy(to + rest, half, sizeof half);
    } else if (count > 0) {
        minorm_copy_some(to, from, count * sizeof(REAL));
    }
}

/* Copy count numbers: every step-th number of a row. */
static INLINE void NAME(row_in)(REAL *to, const REAL *from, intptr_t step, intptr_t count) {
    if (step == 1) {
        NAME(copy)(to, from, count);
    } else if (step == 2 && count >= LANES) {
        /* The even places of one vector, and the odd ones of another that starts one before the next LANES: nothing
           behind the last number is read. */
        const INDEX number = {COUNT}, both = number * 2 - (number >= LANES / 2);
        for (intptr_t i = 0; i < count; i += LANES) {
            if (i > count - LANES) i = count - LANES;
            NAME(store)(to + i, NAME(shuffle)(NAME(load)(from + 2 * i), NAME(load)(from + 2 * i + LANES - 1), both));
        }
    } else {
        for (intptr_t i = 0; i < count; i++) to[i] = from[i * step];
    }
}

/* The reverse: copy a row to every step-th place. */
static INLINE void NAME(row_out)(REAL *to, const REAL *from, intptr_t step, intptr_t count) {
    if (step == 1) NAME(copy)(to, from, count);
    else for (intptr_t i = 0; i < count; i++) to[i * step] = from[i];
}

/* Interleave two rows number by number, for step 2; the first row may have one number more than the second. */
static INLINE void NAME(rows_out)(REAL *to, const REAL *first, const REAL *second, intptr_t firsts, intptr_t count) {
    const INDEX number = {COUNT}, low = (number >> 1) + (number & 1) * LANES;
    intptr_t i = 0;
    for (; count >= LANES && i < count; i += LANES) {
        if (i > count - LANES) i = count - LANES;
        const VECTOR u = NAME(load)(first + i), v = NAME(load)(second + i);
        NAME(store)(to + 2 * i, NAME(shuffle)(u, v, low));
        NAME(store)(to + 2 * i + LANES, NAME(shuffle)(u, v, low + LANES / 2));
    }
    for (; i < count; i++) {
        to[2 * i] = first[i];
        to[2 * i + 1] = second[i];
    }
    if (firsts > count) to[2 * count] = first[count];
}

/* Copy pixels 0 .. pixels - 1 of up to `lanes` images, which are `image` numbers apart, to vectors of `lanes` lanes at
   place[pixel]. Such a vector may fill several registers. Lanes without an image become 0. */
static void NAME(images_in)(intptr_t lanes, REAL *to, const intptr_t *place, const REAL *from, intptr_t image,
                            intptr_t images, intptr_t pixels) {
    VECTOR tile[LANES];
    for (; lanes > 0; lanes -= LANES, images -= LANES, to += LANES, from += LANES * image) {
        for (intptr_t p = 0; p < pixels; p += LANES) {
            const intptr_t count = pixels - p < LANES ? pixels - p : LANES;
            if (images >= LANES && count == LANES) {
                UNROLL for (int i = 0; i < LANES; i++) tile[i] = NAME(load)(from + i * image + p);
                NAME(transpose)(tile);
                UNROLL for (int i = 0; i < LANES; i++) NAME(store)(to + place[p + i], tile[i]);
            } else {
                REAL square[LANES * LANES] = {0};
                for (int i = 0; i < LANES && i < images; i++) {
                    for (int j = 0; j < count; j++) square[j * LANES + i] = from[i * image + p + j];
                }
                for (int j = 0; j < count; j++) NAME(store)(to + place[p + j], NAME(load)(square + j * LANES));
            }
        }
    }
}

/* The reverse: copy vectors of pixels, one after the other, to the images. */
static void NAME(images_out)(REAL *to, const REAL *from, intptr_t image, intptr_t images, intptr_t pixels) {
    VECTOR tile[LANES];
    for (intptr_t p = 0; p < pixels; p += LANES) {
        const intptr_t count = pixels - p < LANES ? pixels - p : LANES;
        if (images >= LANES && count == LANES) {
            UNROLL for (int i = 0; i < LANES; i++) tile[i] = NAME(load)(from + (p + i) * LANES);
            NAME(transpose)(tile);
            UNROLL for (int i = 0; i < LANES; i++) NAME(store)(to + i * image + p, tile[i]);
        } else {
            for (int i = 0; i < LANES && i < images; i++) {
                for (int j = 0; j < count; j++) to[i * image + p + j] = from[(p + j) * LANES + i];
            }
        }
    }
}

/* Adds the sum of x to *to, by QUAD vectors of SUMS partial sums; count is a multiple of SUMS. */
static void NAME(add_total)(REAL *to, const REAL *x, intptr_t count) {
    VECTOR sum[QUAD * SUMS / LANES] = {0};
    REAL result = 0;
    for (intptr_t i = 0; i < count; i += LANES) sum[i / LANES % (QUAD * SUMS / LANES)] += NAME(load)(x + i);
    for (int i = 0; i < SUMS / LANES; i++) {
        const int next = SUMS / LANES;
        const VECTOR all = (sum[i] + sum[i + next]) + (sum[i + 2 * next] + sum[i + 3 * next]);
        for (int lane = 0; lane < LANES; lane++) result += all[lane];
    }
    *to += result;
}

/* to[0 .. count - 1] += more */
static INLINE void NAME(add_to)(REAL *to, const REAL *more, intptr_t count) {
    for (intptr_t i = 0; i < count; i++) to[i] += more[i];
}

/* to[begin .. end - 1] = the sums of `number` chunks, in their order. */
static void NAME(add_up)(REAL *to, const REAL *chunks, intptr_t step, intptr_t number, intptr_t begin, intptr_t end) {
    memcpy(to + begin, chunks + begin, (end - begin) * sizeof(REAL));
    for (intptr_t c = 1; c < number; c++) NAME(add_to)(to + begin, chunks + c * step + begin, end - begin);
}
