/* The register blocks of the convolution, written once for float and double with the compiler's vector types.

   A vector holds LANES numbers: neighbouring pixels of a plane, or one pixel of several images; nothing here needs to
   know which. Plain loops are not enough: gcc would vectorise them but keep the sums in memory, and a convolution lives
   from a block of sums that stays in registers while all taps pass by. So every function is written for any block size
   and becomes a tight one where it is inlined with constants. conv_blocks.h sets REAL and NAME. */

#define LANES (VECTOR_BYTES / (int)sizeof(REAL))
#define VECTOR NAME(vector)

typedef REAL VECTOR __attribute__((vector_size(VECTOR_BYTES)));
typedef REAL NAME(unaligned) __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(REAL)), may_alias));
typedef INTEGER NAME(index) __attribute__((vector_size(VECTOR_BYTES)));

static INLINE VECTOR NAME(load)(const REAL *p) { return *(const NAME(unaligned) *)p; }
static INLINE void NAME(store)(REAL *p, VECTOR v) { *(NAME(unaligned) *)p = v; }

/* ---- the forward sum ---------------------------------------------------------------------------------------- */

/* y[i][place[j]] = bias[i] + the sum over channels c and taps t of w[c][t][i] * x[c][position[j] + shift[t]],
   for `rows` output channels i and `width` vectors j. A tap is a pair: its shift, and the number of its weights. */
static INLINE void NAME(part)(const int rows, const int width, const REAL *x, const intptr_t *position, intptr_t plane,
                              intptr_t channels, const intptr_t *taps, intptr_t tap_count, const REAL *w,
                              intptr_t kernel, const REAL *bias, REAL *y, const intptr_t *place, intptr_t y_step) {
    VECTOR sum[BLOCK_ROWS][QUAD], pixel[QUAD], weight;
    const REAL *start[QUAD];
    UNROLL for (int i = 0; i < rows; i++) {
        weight = (VECTOR){0};
        if (bias) weight += bias[i];
        UNROLL for (int j = 0; j < width; j++) sum[i][j] = weight;
    }
    UNROLL for (int j = 0; j < width; j++) start[j] = x + position[j];
    for (intptr_t c = 0; c < channels; c++) {
        for (intptr_t t = 0; t < tap_count; t++) {
            const intptr_t shift = taps[2 * t];
            const REAL *column = w + taps[2 * t + 1] * rows;
            UNROLL for (int j = 0; j < width; j++) pixel[j] = NAME(load)(start[j] + shift);
            UNROLL for (int i = 0; i < rows; i++) {
                weight = column[i] - (VECTOR){0}; /* in every lane */
                UNROLL for (int j = 0; j < width; j++) sum[i][j] += weight * pixel[j];
            }
        }
        w += kernel * rows;
        UNROLL for (int j = 0; j < width; j++) start[j] += plane;
    }
    UNROLL for (int i = 0; i < rows; i++) {
        UNROLL for (int j = 0; j < width; j++) NAME(store)(y + i * y_step + place[j], sum[i][j]);
    }
}

/* A quad of output vectors for `rows` output channels. */
static void NAME(block)(int rows, const REAL *x, const intptr_t *position, intptr_t plane, intptr_t channels,
                        const intptr_t *taps, intptr_t tap_count, const REAL *w, intptr_t kernel, const REAL *bias,
                        REAL *y, const intptr_t *place, intptr_t y_step) {
#define CASE(rows)                                                                                                     \
    case rows:                                                                                                         \
        for (int j = 0; j < QUAD; j += WIDTH(rows))                                                                    \
            NAME(part)(rows, WIDTH(rows), x, position + j, plane, channels, taps, tap_count, w, kernel, bias, y,       \
                       place + j, y_step);                                                                             \
        break;
    switch (rows) { CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) CASE(6) }
#undef CASE
}

/* ---- the weight gradient ------------------------------------------------------------------------------------ */

static INLINE VECTOR NAME(shuffle)(VECTOR u, VECTOR v, NAME(index) from) {
#if defined(__clang__)
    VECTOR result;
    UNROLL for (int i = 0; i < LANES; i++) result[i] = from[i] < LANES ? u[from[i]] : v[from[i] - LANES];
    return result;
#else
    return __builtin_shuffle(u, v, from);
#endif
}

/* u0 + u1, u2 + u3, ..., v0 + v1, v2 + v3, ... */
static INLINE VECTOR NAME(pairs)(VECTOR u, VECTOR v) {
    const NAME(index) count = {COUNT};
    return NAME(shuffle)(u, v, count * 2) + NAME(shuffle)(u, v, count * 2 + 1);
}

/* dw[i][k] += the sum over segments, vectors and lanes of dy[i] * x[shift[k]], for `rows` output channels i and `taps`
   columns k, of which the first `real_taps` are kept. A tap meets the input in vectors first .. last - 1. */
static INLINE void NAME(products)(const int rows, const int taps, const REAL *x, const intptr_t *shift,
                                  const intptr_t *position, intptr_t x_segment, const REAL *dy, const intptr_t *place,
                                  intptr_t dy_step, intptr_t dy_segment, intptr_t first, intptr_t last,
                                  intptr_t segments, REAL *dw, intptr_t dw_step, int real_taps) {
    VECTOR sum[BLOCK_ROWS * MOST_TAPS], pixel[MOST_TAPS];
    UNROLL for (int i = 0; i < rows * taps; i++) sum[i] = (VECTOR){0};
    const REAL *start[MOST_TAPS];
    UNROLL for (int k = 0; k < taps; k++) start[k] = x + shift[k < real_taps ? k : 0];
    for (intptr_t s = 0; s < segments; s++) {
        for (intptr_t q = first; q < last; q++) {
            const intptr_t at = s * x_segment + position[q];
            const REAL *from = dy + s * dy_segment + place[q];
            UNROLL for (int k = 0; k < taps; k++) pixel[k] = NAME(load)(start[k] + at);
            UNROLL for (int i = 0; i < rows; i++) {
                const VECTOR gradient = NAME(load)(from + i * dy_step);
                UNROLL for (int k = 0; k < taps; k++) sum[i * taps + k] += gradient * pixel[k];
            }
        }
    }
    /* Add up the lanes of all sums together: each step halves their number and doubles what a lane stands for. */
    VECTOR list[BLOCK_ROWS * MOST_TAPS + 1];
    int count = rows * taps;
    UNROLL for (int i = 0; i < rows * taps; i++) list[i] = sum[i];
    for (int lanes = LANES; lanes > 1; lanes /= 2) {
        if (count % 2) list[count] = (VECTOR){0};
        count = (count + 1) / 2;
        for (int i = 0; i < count; i++) list[i] = NAME(pairs)(list[2 * i], list[2 * i + 1]);
    }
    for (int i = 0; i < rows; i++) {
        for (int k = 0; k < real_taps; k++) {
            const int place = i * taps + k;
            dw[i * dw_step + k] += list[place / LANES][place % LANES];
        }
    }
}

/* One block of the weight gradient: as many taps as TAPS(rows), which the caller steps by. */
static void NAME(weights)(int rows, const REAL *x, const intptr_t *shift, const intptr_t *position, intptr_t x_segment,
                          const REAL *dy, const intptr_t *place, intptr_t dy_step, intptr_t dy_segment, intptr_t first,
                          intptr_t last, intptr_t segments, REAL *dw, intptr_t dw_step, int real_taps) {
#define CASE(rows)                                                                                                     \
    case rows:                                                                                                         \
        NAME(products)(rows, TAPS(rows), x, shift, position, x_segment, dy, place, dy_step, dy_segment, first, last,   \
                       segments, dw, dw_step, real_taps);                                                              \
        break;
    switch (rows) { CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) CASE(6) }
#undef CASE
}

/* ---- into the layout of the lanes, and back ----------------------------------------------------------------- */

/* count numbers; the last vector overlaps the one before, so that nothing beyond is touched. */
static INLINE void NAME(copy)(REAL *to, const REAL *from, intptr_t count) {
    intptr_t i = 0;
    if (count >= LANES) {
        for (; i + LANES <= count; i += LANES) NAME(store)(to + i, NAME(load)(from + i));
        if (i < count) NAME(store)(to + count - LANES, NAME(load)(from + count - LANES));
    } else if (count >= LANES / 2) {
        const intptr_t rest = count - LANES / 2;
        char half[VECTOR_BYTES / 2];
        memcpy(half, from + rest, sizeof half);
        memcpy(to, from, sizeof half);
        memcpy(to + rest, half, sizeof half);
    } else {
        for (; i < count; i++) to[i] = from[i];
    }
}

static INLINE void NAME(zero)(REAL *to, intptr_t count) {
    for (intptr_t i = 0; i < count; i++) to[i] = 0;
}

/* Every step-th number of a row, from column `first` on (which may lie before the row), `count` of them; 0 outside. */
static void NAME(row_in)(REAL *to, const REAL *row, intptr_t width, intptr_t first, intptr_t step, intptr_t count) {
    intptr_t before = first < 0 ? (-first + step - 1) / step : 0;
    intptr_t end = first < width ? (width - first + step - 1) / step : 0;
    if (end > count) end = count;
    if (before > end) before = end;
    NAME(zero)(to, before);
    if (step == 1) {
        NAME(copy)(to + before, row + first + before, end - before);
    } else {
        for (intptr_t i = before; i < end; i++) to[i] = row[first + i * step];
    }
    NAME(zero)(to + end, count - end);
}

/* Back from a row: `count` numbers to every step-th place. */
static void NAME(row_out)(REAL *to, const REAL *from, intptr_t step, intptr_t count) {
    if (step == 1) {
        NAME(copy)(to, from, count);
    } else {
        for (intptr_t i = 0; i < count; i++) to[i * step] = from[i];
    }
}

/* LANES rows of LANES numbers change places with their columns: interleave row i with row i + LANES / 2, log2 times. */
static INLINE void NAME(transpose)(VECTOR *rows) {
    const NAME(index) count = {COUNT}, low = (count >> 1) + (count & 1) * LANES;
    VECTOR next[LANES];
    UNROLL for (int step = 1; step < LANES; step *= 2) {
        UNROLL for (int i = 0; i < LANES / 2; i++) {
            next[2 * i] = NAME(shuffle)(rows[i], rows[i + LANES / 2], low);
            next[2 * i + 1] = NAME(shuffle)(rows[i], rows[i + LANES / 2], low + LANES / 2);
        }
        UNROLL for (int i = 0; i < LANES; i++) rows[i] = next[i];
    }
}

/* Pixels 0 .. pixels - 1 of up to LANES images, `image` numbers apart, to vectors at place[pixel]; absent ones are 0. */
static void NAME(images_in)(REAL *to, const intptr_t *place, const REAL *from, intptr_t image, intptr_t images,
                            intptr_t pixels) {
    VECTOR tile[LANES];
    for (intptr_t p = 0; p < pixels; p += LANES) {
        const intptr_t count = pixels - p < LANES ? pixels - p : LANES;
        if (images >= LANES && count == LANES) {
            UNROLL for (int i = 0; i < LANES; i++) tile[i] = NAME(load)(from + i * image + p);
        } else {
            for (int i = 0; i < LANES; i++) {
                tile[i] = (VECTOR){0};
                if (i < images) memcpy(&tile[i], from + i * image + p, count * sizeof(REAL));
            }
        }
        NAME(transpose)(tile);
        if (count == LANES) {
            UNROLL for (int i = 0; i < LANES; i++) NAME(store)(to + place[p + i], tile[i]);
        } else {
            for (int i = 0; i < count; i++) NAME(store)(to + place[p + i], tile[i]);
        }
    }
}

/* Back: vectors of pixels, one after the other, to images. */
static void NAME(images_out)(REAL *to, const REAL *from, intptr_t image, intptr_t images, intptr_t pixels) {
    VECTOR tile[LANES];
    for (intptr_t p = 0; p < pixels; p += LANES) {
        const intptr_t count = pixels - p < LANES ? pixels - p : LANES;
        UNROLL for (int i = 0; i < LANES; i++) tile[i] = NAME(load)(from + (p + (i < count ? i : 0)) * LANES);
        NAME(transpose)(tile);
        if (images >= LANES && count == LANES) {
            UNROLL for (int i = 0; i < LANES; i++) NAME(store)(to + i * image + p, tile[i]);
        } else {
            for (int i = 0; i < LANES && i < images; i++) memcpy(to + i * image + p, &tile[i], count * sizeof(REAL));
        }
    }
}

/* The sum of count numbers, a multiple of LANES. */
static REAL NAME(total)(const REAL *x, intptr_t count) {
    VECTOR sum[QUAD] = {0};
    REAL result = 0;
    for (intptr_t i = 0; i < count; i += LANES) sum[i / LANES % QUAD] += NAME(load)(x + i);
    sum[0] = (sum[0] + sum[1]) + (sum[2] + sum[3]);
    for (int i = 0; i < LANES; i++) result += sum[0][i];
    return result;
}

#undef LANES
#undef VECTOR
