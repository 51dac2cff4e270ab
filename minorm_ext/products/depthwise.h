/* Depthwise convolutions of bytes: each output channel reads one channel of x.
 *
 * A padded plane of a channel is packed as 16-bit numbers from which the zero point is subtracted: row by row, and
 * within a row phase by phase of the stride. So a tap reads consecutive places. The loop interleaves two taps at a time
 * and multiplies them by a pair of weights: vpmaddwd. Without that instruction float32 computes these sums, exactly.
 */
#ifndef MINORM_PRODUCTS_DEPTHWISE_H
#define MINORM_PRODUCTS_DEPTHWISE_H

#include "products/integer_cells.h"

typedef struct {
    intptr_t height, width, out_height, out_width;
    intptr_t stride_h, stride_w, low_h, low_w;
    intptr_t rows, pitch; /* of a packed plane: the number of rows of stride_w phases, and the numbers of each phase */
    intptr_t pairs;
    const int32_t *taps; /* two for each pair: where it begins in the plane */
} minorm_depthwise;

#if defined(__AVX2__)
#define DEPTHWISE 1

typedef int16_t minorm_shorts_of __attribute__((vector_size(VECTOR_BYTES)));
typedef uint8_t minorm_half_bytes __attribute__((vector_size(VECTOR_BYTES / 2)));

#if defined(__AVX512BW__)
#define SHORTS_LOW(a, b) ((VECTOR)_mm512_unpacklo_epi16((__m512i)(a), (__m512i)(b)))
#define SHORTS_HIGH(a, b) ((VECTOR)_mm512_unpackhi_epi16((__m512i)(a), (__m512i)(b)))
#define SHORTS_PACK(a, b) ((minorm_shorts_of)_mm512_packs_epi32((__m512i)(a), (__m512i)(b)))
#define SHORTS_PRODUCT(a, b) ((VECTOR)_mm512_madd_epi16((__m512i)(a), (__m512i)(b)))
#else
#define SHORTS_LOW(a, b) ((VECTOR)_mm256_unpacklo_epi16((__m256i)(a), (__m256i)(b)))
#define SHORTS_HIGH(a, b) ((VECTOR)_mm256_unpackhi_epi16((__m256i)(a), (__m256i)(b)))
#define SHORTS_PACK(a, b) ((minorm_shorts_of)_mm256_packs_epi32((__m256i)(a), (__m256i)(b)))
#define SHORTS_PRODUCT(a, b) ((VECTOR)_mm256_madd_epi16((__m256i)(a), (__m256i)(b)))
#endif

typedef uint8_t minorm_eight_bytes __attribute__((vector_size(8)));
typedef int16_t minorm_eight_shorts __attribute__((vector_size(16)));

/* Widen eight neighbouring bytes, and subtract their zero point. */
static INLINE void minorm_eight_in(const bool is_signed, int16_t *to, const uint8_t *x, int16_t zero) {
    minorm_eight_bytes bytes;
    memcpy(&bytes, x, sizeof bytes);
    const minorm_eight_bytes flip = (minorm_eight_bytes){0} + (uint8_t)(is_signed ? 128 : 0); /* to unsigned */
    const minorm_eight_shorts wide = __builtin_convertvector(bytes ^ flip, minorm_eight_shorts);
    const minorm_eight_shorts result = wide - (int16_t)(zero + (is_signed ? 128 : 0));
    memcpy(to, &result, sizeof result);
}

/* Pack one phase of a row: places first, first + step, ... of x. Places outside of x stay 0. */
static INLINE void minorm_phase_in(const int step, const bool is_signed, int16_t *to, intptr_t count, const uint8_t *x,
                                   intptr_t width, intptr_t first, int16_t zero) {
    intptr_t i = first < 0 ? (step - 1 - first) / step : 0;
    const intptr_t after = width > first ? (width - first + step - 1) / step : 0; /* places that begin within x */
    const intptr_t end = after < count ? after : count;
    for (; step == 1 && end - i >= 8; i += 8) {
        minorm_eight_in(is_signed, to + i, x + first + i, zero);
        if (end - i < 16 && end - i > 8) i = end - 16; /* the last one overlaps */
    }
    for (; i < end; i++) {
        const uint8_t byte = x[first + i * step];
        to[i] = (int16_t)((is_signed ? (int8_t)byte : byte) - zero);
    }
}

/* Pack a plane. Places outside of x are 0 before the first plane, and no plane changes them. */
static NOINLINE void minorm_depthwise_in(const minorm_depthwise *d, int16_t *to, const uint8_t *x, bool is_signed,
                                         int16_t zero) {
    for (intptr_t r = 0; r < d->rows; r++) {
        const intptr_t from = r - d->low_h;
        if (from < 0 || from >= d->height) {
            to += d->stride_w * d->pitch;
            continue;
        }
        const uint8_t *row = x + from * d->width;
        for (intptr_t phase = 0; phase < d->stride_w; phase++, to += d->pitch) {
            const intptr_t first = phase - d->low_w, width = d->width;
            if (d->stride_w == 1 && is_signed) minorm_phase_in(1, true, to, d->pitch, row, width, first, zero);
            else if (d->stride_w == 1) minorm_phase_in(1, false, to, d->pitch, row, width, first, zero);
            else if (d->stride_w == 2 && !is_signed) minorm_phase_in(2, false, to, d->pitch, row, width, first, zero);
            else minorm_phase_in((int)d->stride_w, is_signed, to, d->pitch, row, width, first, zero);
        }
    }
}

/* Bring two vectors of sums, which unpacking has interleaved, into the order of places. */
static INLINE void minorm_mixed_out(const bool bytes, const minorm_ends *ends, VECTOR low, VECTOR high,
                                    VECTOR offset, VECTOR scale, void *y, intptr_t place, intptr_t count) {
    const VECTOR none = {0};
    low = minorm_finished(bytes, false, ends, low, offset, none, scale, 0);
    high = minorm_finished(bytes, false, ends, high, offset, none, scale, 0);
    if (bytes) {
        const minorm_half_bytes narrow = __builtin_convertvector(SHORTS_PACK(low, high), minorm_half_bytes);
        if (count >= 2 * LANES) memcpy((uint8_t *)y + place, &narrow, sizeof narrow);
        else memcpy((uint8_t *)y + place, &narrow, (size_t)count);
    } else {
        int32_t line[2 * LANES];
        for (int k = 0; k < LANES; k += 4) {
            memcpy(line + 2 * k, (const char *)&low + 4 * k, 16);
            memcpy(line + 2 * k + 4, (const char *)&high + 4 * k, 16);
        }
        if (count >= 2 * LANES) memcpy((int32_t *)y + place, line, sizeof line);
        else memcpy((int32_t *)y + place, line, (size_t)count * 4);
    }
}

/* Compute the plane of one output; `weights` are pairs of 16 bits. */
static NOINLINE void minorm_depthwise_out(const minorm_depthwise *d, const int16_t *plane, const int32_t *weights,
                                          const minorm_ends *ends, intptr_t output, void *y) {
    const VECTOR offset = (VECTOR){0} + ends->offset[output];
    VECTOR scale = {0};
    if (ends->scale) {
        const minorm_floats factor = (minorm_floats){0} + ends->scale[output];
        memcpy(&scale, &factor, sizeof scale);
    }
    for (intptr_t h = 0; h < d->out_height; h++) {
        const int16_t *row = plane + h * d->stride_h * d->stride_w * d->pitch;
        for (intptr_t w = 0; w < d->out_width; w += 2 * LANES) {
            VECTOR low = {0}, high = {0};
            for (intptr_t p = 0; p < d->pairs; p++) {
                const VECTOR a = NAME(load)((const int32_t *)(const void *)(row + d->taps[2 * p] + w));
                const VECTOR b = NAME(load)((const int32_t *)(const void *)(row + d->taps[2 * p + 1] + w));
                const VECTOR weight = (VECTOR){0} + weights[p];
                low += SHORTS_PRODUCT(SHORTS_LOW(a, b), weight);
                high += SHORTS_PRODUCT(SHORTS_HIGH(a, b), weight);
            }
            const intptr_t place = h * d->out_width + w, size = d->out_height * d->out_width;
            /* a whole vector, even into the next row, which is written later; but not beyond the plane */
            const intptr_t count = size - place < 2 * LANES ? d->out_width - w : 2 * LANES;
            if (ends->scale) minorm_mixed_out(true, ends, low, high, offset, scale, y, place, count);
            else minorm_mixed_out(false, ends, low, high, offset, scale, y, place, count);
        }
    }
}

#else
#define DEPTHWISE 0
static inline void minorm_depthwise_in(const minorm_depthwise *d, int16_t *to, const uint8_t *x, bool is_signed,
                                       int16_t zero) {
    (void)d, (void)to, (void)x, (void)is_signed, (void)zero;
}
static inline void minorm_depthwise_out(const minorm_depthwise *d, const int16_t *plane, const int32_t *weights,
                                        const minorm_ends *ends, intptr_t output, void *y) {
    (void)d, (void)plane, (void)weights, (void)ends, (void)output, (void)y;
}
#endif

#endif
