/* Walks through time with some sequences of the batch, forward and backward. recurrent.h sets REAL and NAME.
 *
 * Sequences do not depend on each other, so a job takes some of them through all steps, and threads share the jobs. A
 * step first multiplies the states by R in the register blocks of the matrix product; these numbers do not depend on
 * the block that computes them. Then the step takes row after row through the gates. */

/* Some columns of b side by side in rows of `width` numbers, where they are contiguous along the depth. */
static void NAME(pack_columns)(REAL *to, ptrdiff_t width, const REAL *b, ptrdiff_t column, ptrdiff_t depth,
                               ptrdiff_t columns) {
    ptrdiff_t j = 0;
    for (; j + LANES <= columns; j += LANES) {
        ptrdiff_t k = 0;
        for (; k + LANES <= depth; k += LANES) {
            VECTOR square[LANES];
            UNROLL for (int i = 0; i < LANES; i++) square[i] = NAME(load)(b + (j + i) * column + k);
            NAME(transpose)(square);
            UNROLL for (int i = 0; i < LANES; i++) NAME(store)(to + (k + i) * width + j, square[i]);
        }
        for (; k < depth; k++) {
            for (int i = 0; i < LANES; i++) to[k * width + j + i] = b[(j + i) * column + k];
        }
    }
    for (; j < columns; j++) {
        for (ptrdiff_t k = 0; k < depth; k++) to[k * width + j] = b[j * column + k];
    }
}

/* A matrix without gaps, (depth, columns) or, `turned`, (columns, depth), as strips. */
static void NAME(pack_factor)(const minorm_factor *f, REAL *to, const REAL *b, int turned) {
    for (ptrdiff_t at = 0; at < f->columns; at += f->width) {
        const ptrdiff_t width = f->columns - at < f->width ? f->columns - at : f->width;
        REAL *strip = to + at * f->depth;
        if (turned) NAME(pack_columns)(strip, f->width, b + at * f->depth, f->depth, f->depth, width);
        for (ptrdiff_t k = 0; k < f->depth; k++) {
            if (!turned) memcpy(strip + k * f->width, b + k * f->columns + at, width * sizeof(REAL));
            for (ptrdiff_t j = width; j < f->width; j++) strip[k * f->width + j] = 0;
        }
    }
}

/* c = a @ factor for some rows. Whole strips are written: c has room for them behind the last column. */
static void NAME(multiply_rows)(const minorm_factor *f, ptrdiff_t rows, const REAL *a, ptrdiff_t a_row, REAL *c,
                          ptrdiff_t c_row) {
    const REAL *b = f->items;
    if (f->width == 0) {
        for (ptrdiff_t i = 0; i < rows; i++) {
            for (ptrdiff_t j = 0; j < f->columns; j += DOT_ROWS) { /* columns of c are rows to `dots` */
                const int some = (int)(f->columns - j < DOT_ROWS ? f->columns - j : DOT_ROWS);
                NAME(dots)(some, 1, b + j * f->depth, f->depth, a + i * a_row, a_row, f->depth, c + i * c_row + j, 1,
                           1);
            }
        }
        return;
    }
    const ptrdiff_t high = f->width > PANEL ? 1 : MOST_ROWS;
    for (ptrdiff_t j = 0; j < f->columns; j += f->width) {
        for (ptrdiff_t i = 0; i < rows; i += high) {
            const int some = (int)(rows - i < high ? rows - i : high);
            NAME(tile)(some, f->width, a + i * a_row, a_row, 1, b + j * f->depth, f->width, f->depth,
                       c + i * c_row + j, c_row, 1);
        }
    }
}

#define ROW(array, size) ((REAL *)(array) + (t * w->batch + row) * (size))
#define STATE(array) ((REAL *)(array) + row * n)
#define FOR_ROWS for (ptrdiff_t row = from; row < to; row++) if (NAME(is_live)(w, t, row))

static INLINE int NAME(is_live)(const minorm_walk *w, ptrdiff_t t, ptrdiff_t row) {
    return !w->lengths || t < w->lengths[row];
}

static void NAME(forward_job)(const void *task, ptrdiff_t job) {
    const minorm_walk *w = task;
    const minorm_cell *k = &w->cell;
    const ptrdiff_t n = k->hidden, from = job * w->rows, to = from + w->rows < w->batch ? from + w->rows : w->batch;
    const int late = k->kind == GRU && !k->variant; /* the product of n can begin only when r is known */
    REAL *q = (REAL *)w->scratch + omp_get_thread_num() * w->scratch_size;
    REAL *values = q + w->rows * w->wide, *extra = values + w->rows * w->columns; /* where backward does not want them */
#define Q (q + (row - from) * w->wide)
#define V (w->v ? ROW(w->v, w->columns) : values + (row - from) * w->columns)
#define E (w->e ? ROW(w->e, n) : extra + (row - from) * n)
    for (ptrdiff_t s = w->begin; s < w->end; s++) {
        const ptrdiff_t t = w->reverse ? w->steps - 1 - s : s;
        NAME(multiply_rows)(&w->factors[0], to - from, (REAL *)w->h + from * n, n, q, w->wide);
        FOR_ROWS {
            REAL *a = ROW(w->a, w->columns);
            if (w->hs) memcpy(ROW(w->hs, n), STATE(w->h), n * sizeof(REAL));
            if (w->cs) memcpy(ROW(w->cs, n), STATE(w->c), n * sizeof(REAL));
            if (k->kind == RNN) NAME(rnn_step)(k, a, Q, STATE(w->h), V);
            else if (k->kind == LSTM) NAME(lstm_step)(k, a, Q, (REAL *)w->p, STATE(w->h), STATE(w->c), V, E);
            else NAME(gru_step)(k, a, Q, (REAL *)w->b, STATE(w->h), V, E);
        }
        if (late) {
            for (ptrdiff_t row = from; row < to; row++) { /* a row without a step is multiplied with the others */
                if (!NAME(is_live)(w, t, row)) memset(E, 0, n * sizeof(REAL));
            }
            REAL *e = w->e ? (REAL *)w->e + (t * w->batch + from) * n : extra;
            NAME(multiply_rows)(&w->factors[1], to - from, e, n, q + 2 * n, w->wide);
        }
        if (k->kind == GRU) FOR_ROWS {
            NAME(gru_end)(k, ROW(w->a, w->columns), Q, (REAL *)w->b, STATE(w->h), V, E);
        }
        for (ptrdiff_t row = from; row < to; row++) {
            REAL *y = (REAL *)w->y + t * w->y_step + row * w->y_row;
            if (NAME(is_live)(w, t, row)) {
                memcpy(y, STATE(w->h), n * sizeof(REAL));
                continue;
            }
            memset(y, 0, n * sizeof(REAL));
            /* Backward multiplies these by 0, so they must be finite. */
            if (w->hs) memset(ROW(w->hs, n), 0, n * sizeof(REAL));
            if (w->cs) memset(ROW(w->cs, n), 0, n * sizeof(REAL));
            if (w->v) memset(ROW(w->v, w->columns), 0, w->columns * sizeof(REAL));
        }
    }
#undef Q
#undef V
#undef E
}

static void NAME(backward_job)(const void *task, ptrdiff_t job) {
    const minorm_walk *w = task;
    const minorm_cell *k = &w->cell;
    const ptrdiff_t n = k->hidden, from = job * w->rows, to = from + w->rows < w->batch ? from + w->rows : w->batch;
    const int late = k->kind == GRU && !k->variant;
    REAL *scratch = (REAL *)w->scratch + omp_get_thread_num() * w->scratch_size;
    REAL *through = scratch + 2 * n;
    for (ptrdiff_t s = w->end; s-- > w->begin;) {
        const ptrdiff_t t = w->reverse ? w->steps - 1 - s : s;
        for (ptrdiff_t row = from; row < to; row++) {
            REAL *dh = STATE(w->h), *da = ROW(w->da, w->columns), *dq = ROW(w->dq, w->columns);
            if (!NAME(is_live)(w, t, row)) {
                memset(da, 0, w->columns * sizeof(REAL));
                memset(dq, 0, w->columns * sizeof(REAL));
                continue;
            }
            const REAL *a = ROW(w->a, w->columns), *v = ROW(w->v, w->columns);
            if (w->y) {
                const REAL *dy = (REAL *)w->y + t * w->y_step + row * w->y_row;
                for (ptrdiff_t j = 0; j < n; j++) dh[j] += dy[j];
            }
            if (k->kind == RNN) NAME(rnn_back)(k, a, v, dh, da, scratch);
            else if (k->kind == LSTM) NAME(lstm_back)(k, a, v, ROW(w->e, n), ROW(w->cs, n), (REAL *)w->p, dh,
                                                      STATE(w->c), da, scratch);
            else NAME(gru_back)(k, a, v, ROW(w->e, n), ROW(w->hs, n), dh, da, dq, scratch);
        }
        const REAL *dq = (REAL *)w->dq + (t * w->batch + from) * w->columns;
        if (late) {
            NAME(multiply_rows)(&w->factors[1], to - from, dq + 2 * n, w->columns, through, w->wide);
            FOR_ROWS {
                NAME(gru_back_end)(k, ROW(w->a, w->columns), ROW(w->v, w->columns), ROW(w->hs, n),
                                   through + (row - from) * w->wide, STATE(w->h), ROW(w->da, w->columns), scratch);
            }
        }
        NAME(multiply_rows)(&w->factors[0], to - from, dq, w->columns, through, w->wide);
        FOR_ROWS {
            for (ptrdiff_t j = 0; j < n; j++) STATE(w->h)[j] += through[(row - from) * w->wide + j];
        }
    }
}

#undef ROW
#undef STATE
#undef FOR_ROWS
