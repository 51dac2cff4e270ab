/* Winograd's F(2x2, 3x3), written once for float and double: 2x2 results from 16 products instead of 36.

   Along one axis, with B^T d = (d0 - d2, d1 + d2, d2 - d1, d1 - d3) of a tile of four neighbours and
   G g = (g0, (g0 + g1 + g2) / 2, (g0 - g1 + g2) / 2, g2) of a kernel:

       m = G g * B^T d,    y0 = m0 + m1 + m2,    y1 = m1 - m2 - m3

   and the same along the other axis. y0 never sees d3 and y1 never sees d0: a result depends only on its window.

   A vector holds LANES tiles that follow each other, row after row of tiles and image after image; without
   gaps. So the transform along the first axis goes row by row, from pixels to rows of tiles, and along the second axis
   it takes vectors that run across the ends of rows. blocks.h sets REAL and NAME, and includes block.inc.h before. */

#define SIDE 4 /* of a tile; SIDE * SIDE products */
#define SOME_CHANNELS 32 /* channels whose kernels are transformed at a time */

/* B^T d, or for the gradient for the weights A dy = (dy0, dy0 + dy1, dy0 - dy1, -dy1). */
static INLINE void NAME(tile_of)(const int gradient, VECTOR *d) {
    const VECTOR d0 = d[0], d1 = d[1];
    if (gradient) {
        d[1] = d0 + d1, d[2] = d0 - d1, d[3] = -d1;
    } else {
        const VECTOR d2 = d[2], d3 = d[3];
        d[0] = d0 - d2, d[1] = d1 + d2, d[2] = d2 - d1, d[3] = d1 - d3;
    }
}

/* Along a row of pixels: to[s * step + j] for `tiles` tiles j; up to a vector more is written. */
static INLINE void NAME(tile_columns)(const int gradient, REAL *to, intptr_t step, const REAL *line, intptr_t tiles) {
    const INDEX even = (INDEX){COUNT} * 2;
    for (intptr_t j = 0; j < tiles; j += LANES) {
        VECTOR d[SIDE];
        UNROLL for (int i = 0; i < (gradient ? 2 : 4); i += 2) {
            const VECTOR u = NAME(load)(line + 2 * j + i), v = NAME(load)(line + 2 * j + i + LANES);
            d[i] = NAME(shuffle)(u, v, even);
            d[i + 1] = NAME(shuffle)(u, v, even + 1);
        }
        NAME(tile_of)(gradient, d);
        UNROLL for (int s = 0; s < SIDE; s++) NAME(store)(to + s * step + j, d[s]);
    }
}

/* Cut one channel of some images into tiles, v[(r * SIDE + s) * v_step + tile]; up to a vector more is written. */
static INLINE void NAME(channel_in)(const int gradient, const minorm_tiles *p, const REAL *x, REAL *v, intptr_t v_step,
                                    REAL *scratch) {
    const intptr_t more = gradient ? 0 : 1, lines = 2 * (p->rows + more), pitch = 2 * (p->columns + more);
    const intptr_t begin = p->left > 0 ? p->left : 0, skip = p->left < 0 ? -p->left : 0;
    const intptr_t count = p->width - skip < pitch - begin ? p->width - skip : pitch - begin;
    const intptr_t image_tiles = p->rows * p->columns, tiles_step = image_tiles + more * p->columns;
    const intptr_t step = p->images * tiles_step + LANES; /* from the tiles of even lines to those of odd ones */
    REAL *lined = scratch + 2 * SIDE * step;
    for (intptr_t image = 0; image < p->images; image++) {
        for (intptr_t i = 0; i < lines; i++) {
            const intptr_t h = 2 * p->first + i - p->top;
            if (h < 0 || h >= p->height || count <= 0) continue; /* the caller has put zeros there */
            NAME(copy)(lined + (image * lines + i) * pitch + begin, x + image * p->step + h * p->width + skip, count);
        }
    }
    for (intptr_t image = 0; image < p->images; image++) {
        for (intptr_t i = 0; i < lines; i++) {
            REAL *to = scratch + i % 2 * step + image * tiles_step + i / 2 * p->columns;
            NAME(tile_columns)(gradient, to, 2 * step, lined + (image * lines + i) * pitch, p->columns);
        }
    }
    for (intptr_t image = 0; image < p->images; image++) {
        const REAL *from = scratch + image * tiles_step;
        for (intptr_t q = 0; q < image_tiles; q += LANES) {
            UNROLL for (int s = 0; s < SIDE; s++) {
                VECTOR d[SIDE];
                UNROLL for (int i = 0; i < (gradient ? 2 : 4); i++) {
                    d[i] = NAME(load)(from + (2 * s + i % 2) * step + i / 2 * p->columns + q);
                }
                NAME(tile_of)(gradient, d);
                UNROLL for (int r = 0; r < SIDE; r++) NAME(store)(v + (SIDE * r + s) * v_step + q, d[r]);
            }
        }
        v += image_tiles;
    }
}

static void NAME(tiles_in)(int gradient, const minorm_tiles *p, const REAL *x, REAL *v, intptr_t step, REAL *scratch) {
    if (gradient) NAME(channel_in)(1, p, x, v, step, scratch);
    else NAME(channel_in)(0, p, x, v, step, scratch);
}

/* Store A^T m A of one channel, with its ends, in the places of the results. */
static void NAME(tiles_out)(const minorm_tiles *p, const REAL *m, intptr_t m_step, const minorm_ends *ends, REAL *y,
                            REAL *scratch) {
    const REAL bias = ends->bias ? *(const REAL *)ends->bias : (REAL)-0.0, *more = (const REAL *)ends->more;
    const INDEX number = {COUNT}, low = (number >> 1) + (number & 1) * LANES;
    const intptr_t image_tiles = p->rows * p->columns, tiles = p->images * image_tiles;
    const intptr_t step = 2 * (tiles + LANES); /* from the even lines to the odd ones */
    for (intptr_t q = 0; q < tiles; q += LANES) {
        VECTOR sum[2][SIDE];
        UNROLL for (int s = 0; s < SIDE; s++) {
            VECTOR row[SIDE];
            UNROLL for (int r = 0; r < SIDE; r++) row[r] = NAME(load)(m + (SIDE * r + s) * m_step + q);
            sum[0][s] = row[0] + row[1] + row[2];
            sum[1][s] = row[1] - row[2] - row[3];
        }
        UNROLL for (int a = 0; a < 2; a++) {
            VECTOR both[2] = {sum[a][0] + sum[a][1] + sum[a][2] + bias, sum[a][1] - sum[a][2] - sum[a][3] + bias};
            NAME(end)(2, both, ends, 0);
            NAME(store)(scratch + a * step + 2 * q, NAME(shuffle)(both[0], both[1], low));
            NAME(store)(scratch + a * step + 2 * q + LANES, NAME(shuffle)(both[0], both[1], low + LANES / 2));
        }
    }
    for (intptr_t image = 0; image < p->images; image++) {
        for (intptr_t i = 0; i < 2 * p->rows; i++) {
            const intptr_t h = 2 * p->first + i;
            if (h >= p->height) break;
            const intptr_t at = image * p->step + h * p->width;
            NAME(copy)(y + at, scratch + i % 2 * step + 2 * (image * image_tiles + i / 2 * p->columns), p->width);
            if (more) NAME(add_to)(y + at, more + at, p->width);
        }
    }
}

/* G g along one axis. */
static INLINE void NAME(kernel_of)(VECTOR *to, VECTOR g0, VECTOR g1, VECTOR g2) {
    const VECTOR ends = (g0 + g2) * (REAL)0.5, middle = g1 * (REAL)0.5;
    to[0] = g0, to[1] = ends + middle, to[2] = ends - middle, to[3] = g2;
}

/* G g G^T of a block of kernels, `turned` by half a turn for the gradient for the input:
   u[k * u_step + c * rows + i] for the products k, channels c and outputs i. */
static void NAME(kernels_in)(int turned, int rows, intptr_t channels, const REAL *w, intptr_t row_step,
                             intptr_t channel_step, REAL *u, intptr_t u_step) {
    REAL taps[9][SOME_CHANNELS * BLOCK_ROWS + LANES]; /* the kernels side by side, as their products will be */
    for (intptr_t c = 0; c < channels; c += SOME_CHANNELS) {
        const intptr_t some = channels - c < SOME_CHANNELS ? channels - c : SOME_CHANNELS, count = some * rows;
        for (int i = 0; i < rows; i++) {
            for (intptr_t j = 0; j < some; j++) {
                const REAL *g = w + (c + j) * channel_step + i * row_step;
                UNROLL for (int t = 0; t < 9; t++) taps[t][j * rows + i] = g[turned ? 8 - t : t];
            }
        }
        for (intptr_t q = 0; q < count; q += LANES) {
            REAL *to = u + c * rows + q;
            VECTOR column[3][SIDE], row[SIDE];
            UNROLL for (int t = 0; t < 3; t++) {
                const VECTOR g0 = NAME(load)(taps[t] + q), g1 = NAME(load)(taps[3 + t] + q);
                NAME(kernel_of)(column[t], g0, g1, NAME(load)(taps[6 + t] + q));
            }
            UNROLL for (int r = 0; r < SIDE; r++) {
                NAME(kernel_of)(row, column[0][r], column[1][r], column[2][r]);
                UNROLL for (int s = 0; s < SIDE; s++) {
                    if (q + LANES <= count) NAME(store)(to + (SIDE * r + s) * u_step, row[s]);
                    else memcpy(to + (SIDE * r + s) * u_step, &row[s], (count - q) * sizeof(REAL));
                }
            }
        }
    }
}

/* dw = G^T m G of the kernels begin .. end - 1 of a group; m are the sums of all chunks, added in order. */
static void NAME(kernels_out)(intptr_t chunks, intptr_t chunk_step, const REAL *sums, intptr_t sums_step,
                              intptr_t begin, intptr_t end, REAL *dw) {
    for (intptr_t q = begin; q < end; q += LANES) {
        VECTOR part[3][SIDE];
        REAL taps[9][LANES];
        UNROLL for (int s = 0; s < SIDE; s++) {
            VECTOR m[SIDE];
            UNROLL for (int r = 0; r < SIDE; r++) {
                m[r] = NAME(load)(sums + (SIDE * r + s) * sums_step + q);
                for (intptr_t i = 1; i < chunks; i++) {
                    m[r] += NAME(load)(sums + i * chunk_step + (SIDE * r + s) * sums_step + q);
                }
            }
            const VECTOR both = (m[1] + m[2]) * (REAL)0.5;
            part[0][s] = m[0] + both;
            part[1][s] = (m[1] - m[2]) * (REAL)0.5;
            part[2][s] = both + m[3];
        }
        UNROLL for (int t = 0; t < 3; t++) {
            const VECTOR both = (part[t][1] + part[t][2]) * (REAL)0.5;
            NAME(store)(taps[3 * t], part[t][0] + both);
            NAME(store)(taps[3 * t + 1], (part[t][1] - part[t][2]) * (REAL)0.5);
            NAME(store)(taps[3 * t + 2], both + part[t][3]);
        }
        for (int j = 0; j < LANES && q + j < end; j++) {
            for (int t = 0; t < 9; t++) dw[9 * (q + j) + t] = taps[t][j];
        }
    }
}

/* m[i][tile] = the sum over channels c of u[c][i] * v[c][tile], for `rows` outputs i and `vectors` of tiles. */
static void NAME(tile_products)(int rows, intptr_t vectors, const REAL *v, intptr_t v_step, intptr_t channels,
                                const REAL *u, REAL *m, intptr_t m_step) {
    static const intptr_t only[2] = {0, 0}, at[QUAD] = {0, LANES, 2 * LANES, 3 * LANES};
    const intptr_t pieces = (vectors + WIDTH(rows) - 1) / WIDTH(rows);
    for (intptr_t i = 0; i < pieces; i++) {
        const intptr_t begin = vectors * i / pieces, width = vectors * (i + 1) / pieces - begin;
        const REAL *from = v + begin * LANES;
        REAL *to = m + begin * LANES;
#define CASE(rows, width)                                                                                              \
    case 8 * rows + width:                                                                                             \
        NAME(part)(rows, width, from, at, v_step, channels, only, 1, u, 1, rows, NULL, to, at, m_step);                \
        break;
#define CASES(rows) CASE(rows, 1) CASE(rows, 2) CASE(rows, 3) CASE(rows, 4)
        switch (8 * rows + width) { CASES(1) CASES(2) CASES(3) CASES(4) CASES(5) CASES(6) }
#undef CASES
#undef CASE
    }
}
