/* Bytes on their way into products of integers and out of them.
 *
 * A cell is 32 bits that hold neighbours along the depth: two numbers of 16 bits, or four bytes if the processor adds
 * up four products of bytes at once. For all types, x is stored as unsigned bytes and w as signed ones: 128 is added to
 * a signed x and subtracted from an unsigned w, and the same for their zero points. Results are sums in int32, which
 * wrap around, PANEL columns beside each other.
 */
#ifndef MINORM_PRODUCTS_INTEGER_CELLS_H
#define MINORM_PRODUCTS_INTEGER_CELLS_H

#include "simd/vec.h"

#define REAL int32_t
#define INTEGER int32_t
#define COUNT COUNT_FLOAT
#define NAME(stem) stem##_integers
#include "simd/vec.inc.h"

#ifdef MINORM_TILES
#define PANEL 32
#else
#define PANEL (VECTOR_BYTES / 2) /* two vectors */
#endif

typedef uint8_t minorm_bytes __attribute__((vector_size(VECTOR_BYTES / 4)));
typedef float minorm_floats __attribute__((vector_size(VECTOR_BYTES)));

/* ---- into cells ------------------------------------------------------------------------------------------------- */

/* LANES bytes, as unsigned numbers. */
static INLINE VECTOR minorm_wide_bytes(const uint8_t *from) {
#if defined(__AVX512F__)
    return (VECTOR)_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)from));
#elif defined(__AVX2__)
    return (VECTOR)_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)from));
#else
    minorm_bytes bytes;
    memcpy(&bytes, from, sizeof bytes);
    return __builtin_convertvector(bytes, VECTOR);
#endif
}

/* LANES cells of different channels at LANES places, which lie side by side: to[place][cell]. */
static INLINE void minorm_square_of_bytes(const int group, int32_t *to, intptr_t to_row, const uint8_t *from,
                                          intptr_t channel_step, VECTOR flip) {
    VECTOR square[LANES];
    UNROLL for (int j = 0; j < LANES; j++) {
        VECTOR cell = {0};
        UNROLL for (int k = 0; k < group; k++) {
            cell |= (minorm_wide_bytes(from + (j * group + k) * channel_step) ^ flip) << (32 / group * k);
        }
        square[j] = cell;
    }
    NAME(transpose)(square);
    UNROLL for (int i = 0; i < LANES; i++) NAME(store)(to + i * to_row, square[i]);
}

/* Return one cell, made of `channels` channels. */
static INLINE int32_t minorm_cell(const int group, const uint8_t *from, intptr_t channel_step, intptr_t channels,
                                  uint8_t flip) {
    uint32_t cell = 0;
    for (int k = 0; k < group && k < channels; k++) {
        cell |= (uint32_t)(uint8_t)(from[k * channel_step] ^ flip) << (32 / group * k);
    }
    return (int32_t)cell;
}

static INLINE void minorm_pack_places(const int group, int32_t *to, intptr_t to_row, const uint8_t *x,
                                      intptr_t place_step, intptr_t channel_step, intptr_t places, intptr_t channels,
                                      uint8_t flip) {
    const intptr_t cells = (channels + group - 1) / group;
    const intptr_t squares = place_step == 1 && places >= LANES ? channels / (group * LANES) * LANES : 0;
    for (intptr_t c = 0; c < squares; c += LANES) {
        for (intptr_t i = 0; i < places; i += LANES) {
            if (i > places - LANES) i = places - LANES; /* the last one overlaps the one before */
            minorm_square_of_bytes(group, to + i * to_row + c, to_row, x + c * group * channel_step + i, channel_step,
                                   (VECTOR){0} + flip);
        }
    }
    for (intptr_t i = 0; i < places; i++) {
        const uint8_t *from = x + i * place_step;
        int32_t *row = to + i * to_row;
        intptr_t c = squares;
        if (channel_step == 1) {
            for (; (c + 1) * group <= channels; c++) row[c] = minorm_cell(group, from + c * group, 1, group, flip);
        } else {
            for (; (c + 1) * group <= channels; c++) {
                row[c] = minorm_cell(group, from + c * group * channel_step, channel_step, group, flip);
            }
        }
        from += c * group * channel_step;
        if (c < cells) row[c] = minorm_cell(group, from, channel_step, channels - c * group, flip);
    }
}

/* Make the cells of places of x: to[place][channel / group]. Lanes without a channel are 0. `flip`: 128 for signed x.
 * */
static NOINLINE void minorm_places_in(int group, int32_t *to, intptr_t to_row, const uint8_t *x, intptr_t place_step,
                                      intptr_t channel_step, intptr_t places, intptr_t channels, uint8_t flip) {
    if (group == 4) minorm_pack_places(4, to, to_row, x, place_step, channel_step, places, channels, flip);
    else minorm_pack_places(2, to, to_row, x, place_step, channel_step, places, channels, flip);
}

/* Fill places of padding: each channel is `zero`. */
static NOINLINE void minorm_padding_in(int group, int32_t *to, intptr_t places, intptr_t channels, uint8_t zero) {
    const intptr_t cells = (channels + group - 1) / group;
    for (intptr_t c = 0; c < cells; c++) {
        const int32_t cell = minorm_cell(group, &zero, 0, channels - c * group, 0);
        for (intptr_t i = 0; i < places; i++) to[i * cells + c] = cell;
    }
}

/* Pack one tap of a panel of weights, to[cell][column], and add up each column. `flip` is 128 for unsigned w. */
static NOINLINE void minorm_weights_in(int group, int32_t *to, const uint8_t *w, intptr_t channel_step,
                                       intptr_t column_step, intptr_t channels, intptr_t columns, uint8_t flip,
                                       int32_t *totals) {
    for (intptr_t c = 0; c < channels; c += group, to += PANEL) {
        for (intptr_t j = 0; j < PANEL; j++) {
            uint32_t cell = 0;
            for (int k = 0; k < group && c + k < channels && j < columns; k++) {
                const int8_t weight = (int8_t)(w[(c + k) * channel_step + j * column_step] ^ flip);
                totals[j] += weight;
                cell |= ((uint32_t)weight & (group == 4 ? 0xff : 0xffff)) << (32 / group * k);
            }
            to[j] = (int32_t)cell;
        }
    }
}

/* ---- and out of sums -------------------------------------------------------------------------------------------- */

/* The steps from the sums of a panel to results. Without `scale` sums stay int32. With it they become bytes: multiply
   by it in float, round half way to the even number, add `zero`, and cut off at low and high. */
typedef struct {
    const int32_t *offset; /* for each column: the bias, plus the term of x's zero point */
    const int32_t *w_zero; /* for each column, or NULL if all are 0: it is multiplied by the row's sum */
    const float *scale;    /* of each column, or NULL */
    int32_t zero, low, high;
} minorm_ends;

/* v, limited to low .. high; v is not NaN. */
static INLINE minorm_floats minorm_between(minorm_floats v, float low, float high) {
#if defined(__AVX512F__)
    return (minorm_floats)_mm512_min_ps(_mm512_max_ps((__m512)v, _mm512_set1_ps(low)), _mm512_set1_ps(high));
#elif defined(__AVX2__)
    return (minorm_floats)_mm256_min_ps(_mm256_max_ps((__m256)v, _mm256_set1_ps(low)), _mm256_set1_ps(high));
#else
    UNROLL for (int i = 0; i < LANES; i++) v[i] = v[i] < low ? low : v[i] > high ? high : v[i];
    return v;
#endif
}

/* The results of a vector of sums; `bytes`: there is a scale; `zeros`: there is a w_zero. */
static INLINE VECTOR minorm_finished(const bool bytes, const bool zeros, const minorm_ends *ends, VECTOR sum,
                                     VECTOR offset, VECTOR w_zero, VECTOR scale, int32_t row_sum) {
    sum += offset;
    if (zeros) sum -= w_zero * row_sum;
    if (!bytes) return sum;
    minorm_floats v = __builtin_convertvector(sum, minorm_floats) * (minorm_floats)scale;
    v = minorm_between(v, (float)(ends->low - ends->zero), (float)(ends->high - ends->zero));
    v += (minorm_floats){0} + 12582912.0f; /* 1.5 * 2^23: to add it rounds to whole numbers */
    return (VECTOR)v - 0x4b400000 + ends->zero;
}

/* Call a function whose first two arguments, bytes and zeros, are constants. */
#define MINORM_ENDS(ends, function, ...)                                                                               \
    do {                                                                                                               \
        if ((ends)->scale && (ends)->w_zero) function(true, true, ends, __VA_ARGS__);                                  \
        else if ((ends)->scale) function(true, false, ends, __VA_ARGS__);                                              \
        else function(false, true, ends, __VA_ARGS__); /* columns without a w_zero have 0 there */                     \
    } while (0)

/* One panel's columns of offset, w_zero and scale: 0 beyond the last. */
static INLINE void minorm_column_ends(const minorm_ends *ends, intptr_t first, intptr_t columns, int32_t *offset,
                                      int32_t *w_zero, int32_t *scale) {
    memset(offset, 0, PANEL * 4), memset(w_zero, 0, PANEL * 4), memset(scale, 0, PANEL * 4);
    memcpy(offset, ends->offset + first, (size_t)columns * 4);
    if (ends->w_zero) memcpy(w_zero, ends->w_zero + first, (size_t)columns * 4);
    if (ends->scale) memcpy(scale, ends->scale + first, (size_t)columns * 4);
}

/* Store the results of these rows, beside each other: y[i][j]. */
static INLINE void minorm_write_rows(const bool bytes, const bool zeros, const minorm_ends *ends, const int32_t *sums,
                                     const int32_t *row_sums, intptr_t rows, intptr_t first, intptr_t columns, void *y,
                                     intptr_t y_row) {
    int32_t offset[PANEL], w_zero[PANEL], scale[PANEL], line[PANEL];
    minorm_column_ends(ends, first, columns, offset, w_zero, scale);
    for (intptr_t i = 0; i < rows; i++) {
        UNROLL for (int j = 0; j < PANEL; j += LANES) {
            const VECTOR sum = NAME(load)(sums + i * PANEL + j);
            NAME(store)(line + j, minorm_finished(bytes, zeros, ends, sum, NAME(load)(offset + j),
                                                  NAME(load)(w_zero + j), NAME(load)(scale + j),
                                                  ends->w_zero ? row_sums[i] : 0));
        }
        if (bytes) {
            uint8_t *to = (uint8_t *)y + i * y_row, some[PANEL];
            UNROLL for (int j = 0; j < PANEL; j++) some[j] = (uint8_t)line[j];
            memcpy(to, some, (size_t)columns);
        } else memcpy((int32_t *)y + i * y_row, line, (size_t)columns * 4);
    }
}

static NOINLINE void minorm_integer_rows_out(const minorm_ends *ends, const int32_t *sums, const int32_t *row_sums,
                                             intptr_t rows, intptr_t first, intptr_t columns, void *y, intptr_t y_row) {
    MINORM_ENDS(ends, minorm_write_rows, sums, row_sums, rows, first, columns, y, y_row);
}

/* LANES numbers of a plane, or `count` of them. */
static INLINE void minorm_plane_out(const bool bytes, void *y, intptr_t plane, const intptr_t *place, intptr_t count,
                                    bool neighbours, VECTOR v) {
    if (bytes) {
        uint8_t *to = (uint8_t *)y + plane;
        const minorm_bytes narrow = __builtin_convertvector(v, minorm_bytes);
        if (neighbours) memcpy(to + place[0], &narrow, sizeof narrow);
        else for (intptr_t l = 0; l < count; l++) to[place[l]] = narrow[l];
    } else {
        int32_t *to = (int32_t *)y + plane;
        if (neighbours) NAME(store)(to + place[0], v);
        else for (intptr_t l = 0; l < count; l++) to[place[l]] = v[l];
    }
}

/* The same in planes: y[j][place[i]]. Places that follow each other are stored as whole vectors. */
static INLINE void minorm_write_planes(const bool bytes, const bool zeros, const minorm_ends *ends,
                                       const int32_t *sums, const int32_t *row_sums, intptr_t rows, intptr_t first,
                                       intptr_t columns, void *y, intptr_t y_plane, const intptr_t *place) {
    int32_t offset[PANEL], w_zero[PANEL], scale[PANEL];
    minorm_column_ends(ends, first, columns, offset, w_zero, scale);
    for (intptr_t i = 0; i < rows; i += LANES) {
        if (i > rows - LANES && rows >= LANES) i = rows - LANES;
        const intptr_t count = rows - i < LANES ? rows - i : LANES;
        const bool neighbours = count == LANES && place[i + LANES - 1] - place[i] == LANES - 1;
        for (intptr_t j = 0; j < columns; j += LANES) {
            const VECTOR start = NAME(load)(offset + j), zero = NAME(load)(w_zero + j), factor = NAME(load)(scale + j);
            VECTOR square[LANES];
            UNROLL for (int k = 0; k < LANES; k++) {
                const intptr_t row = k < count ? i + k : i; /* those beyond the last are not written */
                square[k] = minorm_finished(bytes, zeros, ends, NAME(load)(sums + row * PANEL + j), start, zero,
                                            factor, ends->w_zero ? row_sums[row] : 0);
            }
            NAME(transpose)(square);
            for (intptr_t k = 0; k < LANES && j + k < columns; k++) {
                minorm_plane_out(bytes, y, (j + k) * y_plane, place + i, count, neighbours, square[k]);
            }
        }
    }
}

static NOINLINE void minorm_integer_planes_out(const minorm_ends *ends, const int32_t *sums, const int32_t *row_sums,
                                               intptr_t rows, intptr_t first, intptr_t columns, void *y,
                                               intptr_t y_plane, const intptr_t *place) {
    MINORM_ENDS(ends, minorm_write_planes, sums, row_sums, rows, first, columns, y, y_plane, place);
}

/* ---- number by number -------------------------------------------------------------------------------------------- */

/* y = the results of one output's sums, which lie beside each other: int32, or whole numbers in float. */
static NOINLINE void minorm_sums_out(const minorm_ends *ends, const void *sums, bool floats, intptr_t count,
                                     intptr_t output, void *y) {
    const VECTOR offset = (VECTOR){0} + ends->offset[output], none = {0};
    VECTOR scale = {0};
    if (ends->scale) {
        const minorm_floats factor = (minorm_floats){0} + ends->scale[output];
        memcpy(&scale, &factor, sizeof scale);
    }
    for (intptr_t i = 0; i < count; i += LANES) {
        const size_t some = count - i < LANES ? (size_t)(count - i) : LANES;
        int32_t line[LANES] = {0};
        memcpy(line, (const int32_t *)sums + i, some * 4);
        VECTOR sum = NAME(load)(line);
        if (floats) {
            minorm_floats number;
            memcpy(&number, line, sizeof number);
            sum = __builtin_convertvector(number, VECTOR);
        }
        sum = ends->scale ? minorm_finished(true, false, ends, sum, offset, none, scale, 0) : sum + offset;
        if (ends->scale) {
            const minorm_bytes narrow = __builtin_convertvector(sum, minorm_bytes);
            memcpy((uint8_t *)y + i, &narrow, some);
        } else memcpy((int32_t *)y + i, &sum, some * 4);
    }
}

/* y = (x - zero) * scale, of bytes that are signed or not. */
static NOINLINE void minorm_floats_of_bytes(const uint8_t *x, intptr_t count, bool is_signed, int32_t zero, float scale,
                                            float *y) {
    if (is_signed) {
        for (intptr_t i = 0; i < count; i++) y[i] = (float)((int8_t)x[i] - zero) * scale;
    } else {
        for (intptr_t i = 0; i < count; i++) y[i] = (float)(x[i] - zero) * scale;
    }
}

/* q as a byte: rounded (half way to the even number), plus `zero`, limited to low .. high. NaN gives
   the byte 0, limited in the same way. */
static INLINE uint8_t minorm_byte_of(float q, int32_t zero, int32_t low, int32_t high) {
    const float least = (float)(low - zero), most = (float)(high - zero);
    const uint8_t nothing = (uint8_t)(low > 0 ? low : high < 0 ? high : 0);
    const float inside = q < least ? least : q > most ? most : q;
    const float sum = inside + 12582912.0f;
    int32_t bits;
    memcpy(&bits, &sum, 4);
    return q == q ? (uint8_t)(bits - 0x4b400000 + zero) : nothing;
}

/* y = round(x / scale) + zero. */
static NOINLINE void minorm_bytes_of_floats(const float *x, intptr_t count, float scale, int32_t zero, int32_t low,
                                            int32_t high, uint8_t *y) {
    for (intptr_t i = 0; i < count; i++) y[i] = minorm_byte_of(x[i] / scale, zero, low, high);
}

/* a * b + c, rounded once; in double it is exact for a byte, a factor between 2^-12 and 2^6, and a c of similar size.
 * */
static INLINE float minorm_rounded_once(float a, float b, float c) {
#if FUSED
    return __builtin_fmaf(a, b, c);
#else
    return (float)((double)a * b + c);
#endif
}

/* y = round(a * a_ratio + (b * b_ratio + fixed)), cut off at low and high. */
static NOINLINE void minorm_bytes_of_sums(const float *a, const float *b, intptr_t count, float a_ratio, float b_ratio,
                                          float fixed, int32_t low, int32_t high, uint8_t *y) {
    for (intptr_t i = 0; i < count; i++) {
        const float sum = minorm_rounded_once(a[i], a_ratio, minorm_rounded_once(b[i], b_ratio, fixed));
        y[i] = minorm_byte_of(sum, 0, low, high);
    }
}

#endif
