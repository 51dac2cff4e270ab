/* Rows of columns: neighbours in memory that belong to different statistics. k, d and all other factors have a number
 * for each of them, in the type computed in.
 *
 *     a += x - k,  q += (x - k)^2                           sums of the first phase
 *     a += g,      q += g * (x - mean),  g = dy * w         and backward
 *     y  = ((x - k) - d) * (c * w) + (e + u)                the second phase; c = rstd * s
 *     dx = (dy * (c * w) - p) - ((x - k) - d) * r * q
 *     dx = dy * (c * w)                                     with given statistics
 *
 * w and u are parameters that vary from row to row and not from column to column, else 1 and 0. If data comes from
 * memory, each vector prefetches a line of the row that lies `next` elements further on, and of the row after it
 * (`then`). Without this the processor reads pieces of rows slowly if the next piece does not follow in memory.
 * (Prefetching several lines at once gains nothing.) */

static INLINE void NAME(ask_twice)(const STORED *p, ptrdiff_t other, const minorm_rows *rows) {
    NAME(ask)(p + rows->next, other);
    NAME(ask)(p + rows->then, other);
}

/* One vector of the sums of `count` rows. Forward has no dy. */
static INLINE void NAME(add_columns)(const int count, const STORED *dy, ptrdiff_t other, const STORED *x,
                                     ptrdiff_t step, const REAL *k, const REAL *d, REAL w, REAL *a, REAL *q,
                                     minorm_part of) {
    const VECTOR shift = NAME(read)(k, of), rest = dy ? NAME(read)(d, of) : shift;
    VECTOR sum = NAME(read)(a, of), products = NAME(read)(q, of);
    UNROLL for (int row = 0; row < count; row++) {
        VECTOR t = NAME(load)(x + row * step, of) - shift, g;
        if (dy) t -= rest;
        t = NAME(only)(t, of);
        g = dy ? NAME(only)(NAME(load_grad)(dy + row * step, other, of) * w, of) : t;
        sum += g;
        products += g * t;
    }
    NAME(put_back)(a, sum, of);
    NAME(put_back)(q, products, of);
}

/* Add `count` rows. The elements left after whole vectors come out of the last vector. */
static INLINE void NAME(add_rows)(const int count, const STORED *dy, ptrdiff_t other, const STORED *x,
                                  const minorm_rows *rows, bool uncached, const REAL *k, const REAL *d, REAL w, REAL *a,
                                  REAL *q) {
    const ptrdiff_t n = rows->n, step = rows->step;
    ptrdiff_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        for (int row = 0; uncached && row < count; row++) {
            NAME(ask_twice)(x + row * step + i, ALONE, rows);
            if (dy) NAME(ask_twice)(dy + row * step + i, other, rows);
        }
        NAME(add_columns)(count, dy ? dy + i : NULL, other, x + i, step, k + i, dy ? d + i : NULL, w, a + i, q + i,
                          minorm_whole);
    }
    if (n < LANES) {
        NAME(add_columns)(count, dy, other, x, step, k, d, w, a, q, (minorm_part){NARROW, 0, (int)n});
    } else if (i < n) {
        const minorm_part last = {OVERLAP, (int)(i - (n - LANES)), LANES};
        i = n - LANES;
        NAME(add_columns)(count, dy ? dy + i : NULL, other, x + i, step, k + i, dy ? d + i : NULL, w, a + i, q + i,
                          last);
    }
}

/* Rows in cache are summed up four at a time, and each accumulator is loaded and stored once for all four. Rows in
 * memory go one at a time, which reads faster. Both ways add in the same order. */
static INLINE void NAME(columns_sums_of)(const STORED *dy, ptrdiff_t other, const STORED *x, const minorm_rows *rows,
                                         bool uncached, const REAL *k, const REAL *d, REAL w, REAL *a, REAL *q) {
    ptrdiff_t left = rows->count, at = 0;
    for (; rows->cached && left >= 4; left -= 4, at += 4 * rows->step)
        NAME(add_rows)(4, dy ? dy + at : NULL, other, x + at, rows, uncached, k, d, w, a, q);
    for (; left; left--, at += rows->step)
        NAME(add_rows)(1, dy ? dy + at : NULL, other, x + at, rows, uncached, k, d, w, a, q);
}

static NOINLINE void NAME(columns_sums)(const minorm_data *dy, const minorm_data *x, ptrdiff_t at,
                                        const minorm_rows *rows, const void *k, const void *d, double w, void *a,
                                        void *q) {
    const STORED *from = (const STORED *)x->items + at;
    if (!dy) NAME(columns_sums_of)(NULL, ALONE, from, rows, x->uncached, k, NULL, 1, a, q);
    else NAME(columns_sums_of)((const STORED *)dy->items + at, dy->other, from, rows, x->uncached, k, d, (REAL)w, a, q);
}

/* The second phase of a row of columns. */
typedef struct {
    const STORED *dy, *x;
    const REAL *k, *d, *r, *c, *e, *p, *q;
    REAL w, u, floor;
    ptrdiff_t other, copy;
    bool asks;
    const minorm_rows *rows;
} NAME(columns_task);

static INLINE VECTOR NAME(columns_y_of)(const void *task, ptrdiff_t i, minorm_part of) {
    const NAME(columns_task) *t = task;
    if (t->asks) NAME(ask_twice)(t->x + i, t->other, t->rows);
    VECTOR v = (NAME(load)(t->x + i, of) - NAME(read)(t->k + i, of)) - NAME(read)(t->d + i, of);
    v = v * (NAME(read)(t->c + i, of) * t->w) + (NAME(read)(t->e + i, of) + t->u);
    return NAME(activated)(v, t->x + i, t->other, t->floor, of);
}

static INLINE VECTOR NAME(columns_dx_of)(const void *task, ptrdiff_t i, minorm_part of) {
    const NAME(columns_task) *t = task;
    if (t->asks) NAME(ask_twice)(t->x + i, ALONE, t->rows), NAME(ask_twice)(t->dy + i, t->other, t->rows);
    const VECTOR v = (NAME(load)(t->x + i, of) - NAME(read)(t->k + i, of)) - NAME(read)(t->d + i, of);
    const VECTOR taken = v * NAME(read)(t->r + i, of) * NAME(read)(t->q + i, of);
    const VECTOR g = NAME(load_grad)(t->dy + i, t->other, of);
    NAME(leave)(t->dy + i, g, t->copy, of);
    return (g * (NAME(read)(t->c + i, of) * t->w) - NAME(read)(t->p + i, of)) - taken;
}

static INLINE VECTOR NAME(columns_given_dx_of)(const void *task, ptrdiff_t i, minorm_part of) {
    const NAME(columns_task) *t = task;
    return NAME(load)(t->dy + i, of) * (NAME(read)(t->c + i, of) * t->w);
}

static INLINE void NAME(columns_run)(NAME(formula) *formula, NAME(columns_task) task, STORED *to,
                                     const minorm_rows *rows, bool nt) {
    task.rows = rows;
    task.asks = nt;
    for (ptrdiff_t left = rows->count; left; left--, to += rows->step) {
        NAME(run)(formula, &task, to, rows->n, nt, !nt);
        task.x += rows->step;
        if (task.dy) task.dy += rows->step;
    }
}

static NOINLINE void NAME(columns_apply)(const minorm_data *x, const minorm_data *y, ptrdiff_t at,
                                         const minorm_rows *rows, const void *k, const void *d, const void *c,
                                         const void *e, double w, double u) {
    const NAME(columns_task) task = {.x = (const STORED *)x->items + at, .k = k, .d = d, .c = c, .e = e, .w = (REAL)w,
                                     .u = (REAL)u, .floor = (REAL)y->floor, .other = x->other};
    STORED *to = (STORED *)y->items + at;
    NAME(columns_run)(NAME(columns_y_of), task, to, rows, y->nontemporal);
}

static NOINLINE void NAME(columns_grad)(const minorm_data *dy, const minorm_data *x, const minorm_data *dx,
                                        ptrdiff_t at, const minorm_rows *rows, bool given, const void *k, const void *d,
                                        const void *r, const void *c, const void *p, const void *q, double w) {
    const NAME(columns_task) task = {.dy = (const STORED *)dy->items + at, .x = (const STORED *)x->items + at, .k = k,
                                     .d = d, .r = r, .c = c, .p = p, .q = q, .w = (REAL)w, .other = dy->other,
                                     .copy = dy->copy};
    STORED *to = (STORED *)dx->items + at;
    if (given) NAME(columns_run)(NAME(columns_given_dx_of), task, to, rows, dx->nontemporal);
    else NAME(columns_run)(NAME(columns_dx_of), task, to, rows, dx->nontemporal);
}

/* A row that shares a parameter: ds = sum(dy * xhat), db = sum(dy) over its columns, in 32 accumulators. */
static NOINLINE void NAME(columns_params)(const minorm_data *of_dy, const minorm_data *of_x, ptrdiff_t at, ptrdiff_t n,
                                          const void *all_k, const void *all_d, const void *all_r, double *ds,
                                          double *db) {
    const STORED *dy = (const STORED *)of_dy->items + at, *x = (const STORED *)of_x->items + at;
    const REAL *k = all_k, *d = all_d, *r = all_r;
    NAME(accumulators) z = {0};
    for (ptrdiff_t i = 0; i < n; i += LANES) {
        const minorm_part of = {n - i < LANES ? NARROW : WHOLE, 0, n - i < LANES ? (int)(n - i) : LANES};
        const VECTOR g = NAME(load_grad)(dy + i, of_dy->other, of);
        const VECTOR t = (NAME(load)(x + i, of) - NAME(read)(k + i, of)) - NAME(read)(d + i, of);
        z.a[i % ACCUMULATORS / LANES] += NAME(only)(g, of);
        z.q[i % ACCUMULATORS / LANES] += NAME(only)(g * (t * NAME(read)(r + i, of)), of);
    }
    *db = NAME(total)(z.a);
    *ds = NAME(total)(z.q);
}
