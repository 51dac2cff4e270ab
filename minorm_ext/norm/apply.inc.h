/* The second phase on rows:
 *
 *     y  = ((x - k) - d) * r * s + b
 *     dx = (dy * s * r - p) - xhat * q,  ds += dy * xhat,  db += dy
 *     dx = dy * s * r                     with given statistics
 *
 * s and b have a parameter for each element, or one for a run, or are NULL; ds and db are NULL unless the caller wants
 * them. k, d and r are a row's statistics; p and q are the terms that its sums subtract from dx. Results around the
 * cache are stored vector by vector, as soon as they are computed. Each vector also prefetches the line `next` elements
 * further on. So reads and writes of memory never pause, and no result waits in a buffer. */

static INLINE VECTOR NAME(xhat)(VECTOR x, REAL k, REAL d, REAL r) { return ((x - k) - d) * r; }

static INLINE VECTOR NAME(dx)(VECTOR scaled, VECTOR xhat, REAL p, REAL q) { return (scaled - p) - xhat * q; }

static INLINE void NAME(ask)(const STORED *p, ptrdiff_t other) {
    for (size_t line = 0; line < LANES; line += 64 / sizeof(STORED)) {
        __builtin_prefetch(p + line, 0, 2);
        if (other != ALONE) __builtin_prefetch(p + other + line, 0, 2);
    }
}

/* Forward: c is r * s and c_b is b if a run has one of each. */
typedef struct {
    const STORED *x;
    const REAL *s, *b;
    REAL k, d, r, c, c_b;
    bool asks;
    ptrdiff_t next, other;
    REAL floor;
} NAME(apply_task);

static INLINE VECTOR NAME(y_of)(const void *task, ptrdiff_t i, minorm_part of) {
    const NAME(apply_task) *t = task;
    if (t->asks) NAME(ask)(t->x + i + t->next, t->other);
    VECTOR v = NAME(load)(t->x + i, of);
    v = NAME(xhat)(v, t->k, t->d, t->s ? t->r : t->c);
    if (t->s) v *= NAME(read)(t->s + i, of);
    v = t->b ? v + NAME(read)(t->b + i, of) : v + t->c_b;
    return NAME(activated)(v, t->x + i, t->other, t->floor, of);
}

typedef struct {
    const STORED *dy, *x;
    const REAL *s;
    REAL *ds, *db;
    REAL k, d, r, c, p, q;
    bool asks;
    ptrdiff_t next, other, copy;
} NAME(grad_task);

static INLINE VECTOR NAME(dx_of)(const void *task, ptrdiff_t i, minorm_part of) {
    const NAME(grad_task) *t = task;
    if (t->asks) NAME(ask)(t->x + i + t->next, ALONE), NAME(ask)(t->dy + i + t->next, t->other);
    const VECTOR g = NAME(load_grad)(t->dy + i, t->other, of);
    const VECTOR xhat = NAME(xhat)(NAME(load)(t->x + i, of), t->k, t->d, t->r);
    NAME(leave)(t->dy + i, g, t->copy, of);
    if (t->ds) {
        NAME(add_to)(t->ds + i, g * xhat, of);
        NAME(add_to)(t->db + i, g, of);
    }
    return NAME(dx)(t->s ? g * NAME(read)(t->s + i, of) * t->r : g * t->c, xhat, t->p, t->q);
}

static INLINE VECTOR NAME(given_dx_of)(const void *task, ptrdiff_t i, minorm_part of) {
    const NAME(grad_task) *t = task;
    const VECTOR g = NAME(load)(t->dy + i, of);
    return t->s ? g * NAME(read)(t->s + i, of) * t->r : g * t->c;
}

/* A line that belongs to two runs is fetched before it is written, and later stores wait for it. */
static INLINE void NAME(ask_for_edges)(const STORED *y, const minorm_runs *of) {
    const ptrdiff_t ahead = of->runs > 1 ? 4 * of->step : of->next;
    __builtin_prefetch(y + ahead, 1, 3);
    __builtin_prefetch(y + of->n + ahead, 1, 3);
}

/* The runs of a row. The compiler makes a separate loop for each combination of parameters that are not NULL. */
static INLINE void NAME(apply_runs)(const minorm_data *of_x, const minorm_data *of_y, const minorm_runs *of,
                                    const REAL *s, const REAL *b, const REAL *run_s, const REAL *run_b) {
    const bool nt = of_y->nontemporal;
    const REAL r = (REAL)of->r;
    for (ptrdiff_t run = 0; run < of->runs; run++) {
        const ptrdiff_t at = of->at + run * of->step, param = run * of->param;
        STORED *y = (STORED *)of_y->items + at;
        const NAME(apply_task) task = {
            (const STORED *)of_x->items + at, s ? s + param : NULL, b ? b + param : NULL, (REAL)of->k, (REAL)of->d, r,
            run_s ? r * run_s[param] : r, run_b ? run_b[param] : (REAL)-0.0, nt && of->next, of->next, of_x->other,
            (REAL)of_y->floor};
        if (nt) NAME(ask_for_edges)(y, of);
        NAME(run)(NAME(y_of), &task, y, of->n, nt, !nt);
    }
}

static NOINLINE void NAME(apply)(const minorm_data *x, const minorm_data *y, const minorm_runs *of, const void *scales,
                                 const void *biases, bool each) {
    const REAL *s = scales, *b = biases;
    if (!each) NAME(apply_runs)(x, y, of, NULL, NULL, s, b);
    else if (s && b) NAME(apply_runs)(x, y, of, s, b, NULL, NULL);
    else if (s) NAME(apply_runs)(x, y, of, s, NULL, NULL, NULL);
    else NAME(apply_runs)(x, y, of, NULL, b, NULL, NULL);
}

/* Statistics in the type computed in, because every block reads them. */
typedef struct {
    REAL k[ROWS], d[ROWS], r[ROWS], p[ROWS], q[ROWS];
} NAME(factors);

static INLINE void NAME(rounded)(const double *from, ptrdiff_t rows, REAL *to) {
    for (ptrdiff_t row = 0; row < rows; row++) to[row] = (REAL)from[row];
}

/* y of rows that share a parameter for each element. The loop reads parameters once, BLOCK vectors or one from element
 * i on, and keeps them in registers for all rows. (Backward it does the same with the sums of their gradients.) Rows
 * may go around the cache if they begin on lines and whole vectors fill them. */
static INLINE void NAME(apply_block)(const int vectors, const bool biased, const minorm_data *of_x,
                                     const minorm_data *of_y, const minorm_short_rows *of, const NAME(factors) *all,
                                     ptrdiff_t i, const REAL *s, const REAL *b, bool nt, ptrdiff_t next,
                                     minorm_part part) {
    const STORED *x = (const STORED *)of_x->items + i;
    STORED *y = (STORED *)of_y->items + i;
    const ptrdiff_t *start = of->start, rows = of->count, other = of_x->other;
    const REAL floor = (REAL)of_y->floor;
    VECTOR scale[BLOCK], bias[BLOCK];
    UNROLL for (int v = 0; v < vectors; v++) {
        scale[v] = NAME(read)(s + i + v * LANES, part);
        if (biased) bias[v] = NAME(read)(b + i + v * LANES, part);
    }
    for (ptrdiff_t row = 0; row < rows; row++) {
        const ptrdiff_t begin = start[row]; /* read before results are written, which might be the same memory */
        const REAL k = all->k[row], d = all->d[row], r = all->r[row];
        UNROLL for (int v = 0; v < vectors; v++) {
            const ptrdiff_t at = begin + v * LANES;
            if (next) __builtin_prefetch(x + at + next, 0, 2);
            VECTOR result = NAME(xhat)(NAME(load)(x + at, part), k, d, r) * scale[v];
            if (biased) result += bias[v];
            NAME(store_part)(y + at, NAME(activated)(result, x + at, other, floor, part), nt, part);
        }
    }
}

static INLINE void NAME(apply_each_of)(const bool biased, const minorm_data *x, const minorm_data *y,
                                       const minorm_short_rows *of, const NAME(factors) *all, const REAL *s,
                                       const REAL *b, bool nt, ptrdiff_t next) {
    ptrdiff_t i = 0;
    if (of->n < LANES) {
        NAME(apply_block)(1, biased, x, y, of, all, 0, s, b, false, next, (minorm_part){NARROW, 0, (int)of->n});
        return;
    }
    for (; i + BLOCK * LANES <= of->n; i += BLOCK * LANES)
        NAME(apply_block)(BLOCK, biased, x, y, of, all, i, s, b, nt, next, minorm_whole);
    for (; i < of->n; i += LANES) {
        if (of->n - i < LANES) i = of->n - LANES; /* elements before i are written again */
        NAME(apply_block)(1, biased, x, y, of, all, i, s, b, nt, next, minorm_whole);
    }
}

static INLINE void NAME(apply_each)(const minorm_data *x, const minorm_data *y, const minorm_short_rows *of,
                                    const REAL *s, const REAL *b) {
    NAME(factors) all;
    NAME(rounded)(of->k, of->count, all.k);
    NAME(rounded)(of->d, of->count, all.d);
    NAME(rounded)(of->r, of->count, all.r);
    const bool nt = y->nontemporal;
    s += of->param[0], b = b ? b + of->param[0] : NULL;
    if (b && (nt || of->next)) NAME(apply_each_of)(true, x, y, of, &all, s, b, nt, of->next);
    else if (b) NAME(apply_each_of)(true, x, y, of, &all, s, b, false, 0);
    else if (nt || of->next) NAME(apply_each_of)(false, x, y, of, &all, s, s, nt, of->next);
    else NAME(apply_each_of)(false, x, y, of, &all, s, s, false, 0);
}

/* Short rows, which share their scales and biases, or have one each. */
static NOINLINE void NAME(apply_rows)(const minorm_data *of_x, const minorm_data *of_y, const minorm_short_rows *of,
                                      const void *scales, const void *biases, bool shared) {
    const bool nt = of_y->nontemporal;
    const REAL *s = scales, *b = biases;
    if (shared) {
        NAME(apply_each)(of_x, of_y, of, s, b);
        return;
    }
    for (ptrdiff_t row = 0; row < of->count; row++) {
        const ptrdiff_t at = of->start[row], param = of->param[row];
        const REAL r = (REAL)of->r[row];
        const NAME(apply_task) task = {
            (const STORED *)of_x->items + at, NULL, NULL, (REAL)of->k[row], (REAL)of->d[row], r, s ? r * s[param] : r,
            b ? b[param] : (REAL)-0.0, nt, of->next, of_x->other, (REAL)of_y->floor};
        NAME(run)(NAME(y_of), &task, (STORED *)of_y->items + at, of->n, nt, !nt);
    }
}

/* Backward. */
static INLINE void NAME(grad_runs)(NAME(formula) *formula, const minorm_data *of_dy, const minorm_data *of_x,
                                   const minorm_data *of_dx, const minorm_runs *of, const REAL *s, const REAL *run_s,
                                   REAL *ds, REAL *db) {
    const bool nt = of_dx->nontemporal;
    const REAL r = (REAL)of->r;
    for (ptrdiff_t run = 0; run < of->runs; run++) {
        const ptrdiff_t at = of->at + run * of->step, param = run * of->param, to = of->param ? run * of->n : 0;
        STORED *dx = (STORED *)of_dx->items + at;
        const NAME(grad_task) task = {
            (const STORED *)of_dy->items + at, (const STORED *)of_x->items + at, s ? s + param : NULL,
            ds ? ds + to : NULL, ds ? db + to : NULL, (REAL)of->k, (REAL)of->d, r, run_s ? r * run_s[param] : r,
            (REAL)of->p, (REAL)of->q, nt && of->next, of->next, of_dy->other, of_dy->copy};
        if (nt) NAME(ask_for_edges)(dx, of);
        NAME(run)(formula, &task, dx, of->n, nt, !nt && !ds);
    }
}

/* ds and db alone. */
static INLINE void NAME(grad_params)(const minorm_data *of_dy, const minorm_data *of_x, const minorm_runs *of,
                                     REAL *ds, REAL *db) {
    for (ptrdiff_t run = 0; run < of->runs; run++) {
        const ptrdiff_t at = of->at + run * of->step, to = of->param ? run * of->n : 0;
        const NAME(grad_task) task = {
            .dy = (const STORED *)of_dy->items + at, .x = (const STORED *)of_x->items + at, .ds = ds + to,
            .db = db + to, .k = (REAL)of->k, .d = (REAL)of->d, .r = (REAL)of->r, .other = of_dy->other,
            .copy = ALONE};
        ptrdiff_t i = 0;
        for (; i + LANES <= of->n; i += LANES) NAME(dx_of)(&task, i, minorm_whole);
        if (i < of->n) NAME(dx_of)(&task, i, (minorm_part){NARROW, 0, (int)(of->n - i)});
    }
}

/* dx is NULL if the caller does not want it. given: true if the statistics are given, so that nothing is subtracted. */
static NOINLINE void NAME(grad)(const minorm_data *dy, const minorm_data *x, const minorm_data *dx,
                                const minorm_runs *of, bool given, const void *scales, bool each, void *ds, void *db) {
    const REAL *s = scales;
    if (dx && given && each) NAME(grad_runs)(NAME(given_dx_of), dy, x, dx, of, s, NULL, NULL, NULL);
    else if (dx && given) NAME(grad_runs)(NAME(given_dx_of), dy, x, dx, of, NULL, s, NULL, NULL);
    if (!dx || given) {
        if (ds) NAME(grad_params)(dy, x, of, ds, db);
    } else if (each && s && ds) NAME(grad_runs)(NAME(dx_of), dy, x, dx, of, s, NULL, ds, db);
    else if (each && s) NAME(grad_runs)(NAME(dx_of), dy, x, dx, of, s, NULL, NULL, NULL);
    else if (ds) NAME(grad_runs)(NAME(dx_of), dy, x, dx, of, NULL, NULL, ds, db);
    else NAME(grad_runs)(NAME(dx_of), dy, x, dx, of, NULL, s, NULL, NULL);
}

static INLINE void NAME(grad_block)(const int vectors, const minorm_data *of_dy, const minorm_data *of_x,
                                    const minorm_data *of_dx, const minorm_short_rows *of, const NAME(factors) *all,
                                    ptrdiff_t i, const REAL *s, REAL *ds, REAL *db, bool nt, ptrdiff_t next,
                                    minorm_part part) {
    const STORED *dy = (const STORED *)of_dy->items + i, *x = (const STORED *)of_x->items + i;
    STORED *dx = (STORED *)of_dx->items + i;
    const ptrdiff_t *start = of->start, rows = of->count, other = of_dy->other, copy = of_dy->copy;
    VECTOR scale[BLOCK], all_s[BLOCK], all_b[BLOCK];
    s += i, ds += i, db += i;
    UNROLL for (int v = 0; v < vectors; v++) {
        scale[v] = NAME(read)(s + v * LANES, part);
        all_s[v] = NAME(read)(ds + v * LANES, part);
        all_b[v] = NAME(read)(db + v * LANES, part);
    }
    for (ptrdiff_t row = 0; row < rows; row++) {
        const ptrdiff_t begin = start[row];
        const REAL k = all->k[row], d = all->d[row], r = all->r[row], p = all->p[row], q = all->q[row];
        UNROLL for (int v = 0; v < vectors; v++) {
            const ptrdiff_t at = begin + v * LANES;
            if (next) __builtin_prefetch(dy + at + next, 0, 2), __builtin_prefetch(x + at + next, 0, 2);
            const VECTOR g = NAME(load_grad)(dy + at, other, part);
            const VECTOR xhat = NAME(xhat)(NAME(load)(x + at, part), k, d, r);
            const VECTOR result = NAME(dx)(g * scale[v] * r, xhat, p, q);
            NAME(leave)(dy + at, g, copy, part);
            all_s[v] += g * xhat;
            all_b[v] += g;
            NAME(store_part)(dx + at, result, nt, part);
        }
    }
    UNROLL for (int v = 0; v < vectors; v++) {
        NAME(put_back)(ds + v * LANES, NAME(select)(all_s[v], NAME(read)(ds + v * LANES, part), part), part);
        NAME(put_back)(db + v * LANES, NAME(select)(all_b[v], NAME(read)(db + v * LANES, part), part), part);
    }
}

static INLINE void NAME(grad_each_of)(const minorm_data *dy, const minorm_data *x, const minorm_data *dx,
                                      const minorm_short_rows *of, const NAME(factors) *all, const REAL *s, REAL *ds,
                                      REAL *db, bool nt, ptrdiff_t next) {
    ptrdiff_t i = 0;
    if (of->n < LANES) {
        NAME(grad_block)(1, dy, x, dx, of, all, 0, s, ds, db, false, next, (minorm_part){NARROW, 0, (int)of->n});
        return;
    }
    for (; i + BLOCK * LANES <= of->n; i += BLOCK * LANES)
        NAME(grad_block)(BLOCK, dy, x, dx, of, all, i, s, ds, db, nt, next, minorm_whole);
    for (; i < of->n; i += LANES) { /* elements that are computed twice are added to ds and db once */
        const ptrdiff_t again = of->n - i < LANES ? LANES - (of->n - i) : 0;
        i -= again;
        NAME(grad_block)(1, dy, x, dx, of, all, i, s, ds, db, nt, next, NAME(overlap)(again, LANES));
    }
}

static INLINE void NAME(grad_each)(const minorm_data *dy, const minorm_data *x, const minorm_data *dx,
                                   const minorm_short_rows *of, const REAL *s, REAL *ds, REAL *db) {
    NAME(factors) all;
    NAME(rounded)(of->k, of->count, all.k);
    NAME(rounded)(of->d, of->count, all.d);
    NAME(rounded)(of->r, of->count, all.r);
    NAME(rounded)(of->p, of->count, all.p);
    NAME(rounded)(of->q, of->count, all.q);
    const bool nt = dx->nontemporal;
    s += of->param[0];
    if (nt || of->next) NAME(grad_each_of)(dy, x, dx, of, &all, s, ds, db, nt, of->next);
    else NAME(grad_each_of)(dy, x, dx, of, &all, s, ds, db, false, 0);
}

static NOINLINE void NAME(grad_rows)(const minorm_data *of_dy, const minorm_data *of_x, const minorm_data *of_dx,
                                     const minorm_short_rows *of, const void *scales, bool shared, void *ds, void *db) {
    const bool nt = of_dx->nontemporal;
    const REAL *s = scales;
    if (shared) {
        NAME(grad_each)(of_dy, of_x, of_dx, of, s, ds, db);
        return;
    }
    for (ptrdiff_t row = 0; row < of->count; row++) {
        const ptrdiff_t at = of->start[row];
        const REAL r = (REAL)of->r[row];
        const NAME(grad_task) task = {
            (const STORED *)of_dy->items + at, (const STORED *)of_x->items + at, NULL, NULL, NULL, (REAL)of->k[row],
            (REAL)of->d[row], r, s ? r * s[of->param[row]] : r, (REAL)of->p[row], (REAL)of->q[row], nt, of->next,
            of_dy->other, of_dy->copy};
        NAME(run)(NAME(dx_of), &task, (STORED *)of_dx->items + at, of->n, nt, !nt);
    }
}

/* Add up what `blocks` blocks, `pitch` apart, have collected for n parameters, in the order of the blocks. */
static NOINLINE void NAME(add_collected)(const void *collected, ptrdiff_t at, ptrdiff_t pitch, ptrdiff_t blocks,
                                         ptrdiff_t n, void *to, ptrdiff_t to_at) {
    double total[COLLECTED] = {0};
    for (ptrdiff_t block = 0; block < blocks; block++) {
        const REAL *from = (const REAL *)collected + at + block * pitch;
        for (ptrdiff_t i = 0; i < n; i++) total[i] += from[i];
    }
    for (ptrdiff_t i = 0; i < n; i++) ((REAL *)to + to_at)[i] = (REAL)total[i];
}
