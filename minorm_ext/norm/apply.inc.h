/* The second phase on rows:
 *
 *     y  = ((x - k) - d) * r * s + b
 *     dx = (dy * s * r - p) - xhat * q,  ds += dy * xhat,  db += dy
 *     dx = dy * s * r                     where the statistics were given
 *
 * s and b have a parameter for each element, or one for a run, or are NULL; ds and db are NULL where nobody asks. k, d
 * and r are a row's statistics; p and q what its sums take off dx. A result that goes around the cache does so vector
 * by vector, as soon as it is computed, and each asks for a line of what comes `next` elements further on: so memory is
 * read and written all the time, and nothing waits in a buffer. */

static INLINE VECTOR NAME(xhat)(VECTOR x, REAL k, REAL d, REAL r) { return ((x - k) - d) * r; }

static INLINE VECTOR NAME(dx)(VECTOR scaled, VECTOR xhat, REAL p, REAL q) { return (scaled - p) - xhat * q; }

static INLINE void NAME(ask)(const STORED *p) {
    for (size_t line = 0; line < LANES * sizeof(STORED); line += 64) __builtin_prefetch((const char *)p + line, 0, 2);
}

/* Forward: c stands for r * s and c_b for b where a run has one of each. */
typedef struct {
    const STORED *x;
    const REAL *s, *b;
    REAL k, d, r, c, c_b;
    bool asks;
    ptrdiff_t next;
} NAME(apply_task);

static INLINE VECTOR NAME(y_of)(const void *task, ptrdiff_t i, minorm_part of) {
    const NAME(apply_task) *t = task;
    if (t->asks) NAME(ask)(t->x + i + t->next);
    VECTOR v = NAME(load)(t->x + i, of);
    v = NAME(xhat)(v, t->k, t->d, t->s ? t->r : t->c);
    if (t->s) v *= NAME(read)(t->s + i, of);
    return t->b ? v + NAME(read)(t->b + i, of) : v + t->c_b;
}

typedef struct {
    const STORED *dy, *x;
    const REAL *s;
    REAL *ds, *db;
    REAL k, d, r, c, p, q;
    bool asks;
    ptrdiff_t next;
} NAME(grad_task);

static INLINE VECTOR NAME(dx_of)(const void *task, ptrdiff_t i, minorm_part of) {
    const NAME(grad_task) *t = task;
    if (t->asks) NAME(ask)(t->x + i + t->next), NAME(ask)(t->dy + i + t->next);
    const VECTOR g = NAME(load)(t->dy + i, of), xhat = NAME(xhat)(NAME(load)(t->x + i, of), t->k, t->d, t->r);
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

/* A line that belongs to two runs is fetched before it is written; what is stored after it waits. */
static INLINE void NAME(ask_for_edges)(const STORED *y, const minorm_runs *of) {
    const ptrdiff_t ahead = of->runs > 1 ? 4 * of->step : of->next;
    __builtin_prefetch(y + ahead, 1, 3);
    __builtin_prefetch(y + of->n + ahead, 1, 3);
}

/* The runs of a row. The compiler makes one loop of each combination of what is there. */
static INLINE void NAME(apply_runs)(const minorm_data *of_x, const minorm_data *of_y, const minorm_runs *of,
                                    const REAL *s, const REAL *b, const REAL *run_s, const REAL *run_b, bool nt,
                                    REAL k, REAL d, REAL r) {
    for (ptrdiff_t run = 0; run < of->runs; run++) {
        const ptrdiff_t at = of->at + run * of->step, param = run * of->param;
        STORED *y = (STORED *)of_y->items + at;
        const NAME(apply_task) task = {
            (const STORED *)of_x->items + at, s ? s + param : NULL, b ? b + param : NULL, k, d, r,
            run_s ? r * run_s[param] : r, run_b ? run_b[param] : (REAL)-0.0, nt && of->next, of->next};
        if (nt) NAME(ask_for_edges)(y, of);
        NAME(run)(NAME(y_of), &task, y, of->n, nt, !nt);
    }
}

static INLINE void NAME(apply_by)(const minorm_data *x, const minorm_data *y, const minorm_runs *of, const REAL *s,
                                  const REAL *b, const REAL *run_s, const REAL *run_b, double k, double d, double r) {
    if (y->nontemporal) NAME(apply_runs)(x, y, of, s, b, run_s, run_b, true, (REAL)k, (REAL)d, (REAL)r);
    else NAME(apply_runs)(x, y, of, s, b, run_s, run_b, false, (REAL)k, (REAL)d, (REAL)r);
}

static NOINLINE void NAME(apply)(const minorm_data *x, const minorm_data *y, const minorm_runs *of, const void *scales,
                                 const void *biases, bool each, double k, double d, double r) {
    const REAL *s = scales, *b = biases;
    if (!each) NAME(apply_by)(x, y, of, NULL, NULL, s, b, k, d, r);
    else if (s && b) NAME(apply_by)(x, y, of, s, b, NULL, NULL, k, d, r);
    else if (s) NAME(apply_by)(x, y, of, s, NULL, NULL, NULL, k, d, r);
    else NAME(apply_by)(x, y, of, NULL, b, NULL, NULL, k, d, r);
}

/* The same on `rows` rows of one run, which begin at `start` and have one scale and bias each, at `param`. */
static INLINE void NAME(apply_rows_of)(const minorm_data *of_x, const minorm_data *of_y, const ptrdiff_t *start,
                                       ptrdiff_t rows, ptrdiff_t n, const REAL *s, const REAL *b,
                                       const ptrdiff_t *param, ptrdiff_t next, bool nt, const double *k,
                                       const double *d, const double *r) {
    for (ptrdiff_t row = 0; row < rows; row++) {
        const REAL its_r = (REAL)r[row];
        const NAME(apply_task) task = {
            (const STORED *)of_x->items + start[row], NULL, NULL, (REAL)k[row], (REAL)d[row], its_r,
            s ? its_r * s[param[row]] : its_r, b ? b[param[row]] : (REAL)-0.0, nt, next};
        NAME(run)(NAME(y_of), &task, (STORED *)of_y->items + start[row], n, nt, !nt);
    }
}

static NOINLINE void NAME(apply_rows)(const minorm_data *x, const minorm_data *y, const ptrdiff_t *start,
                                      ptrdiff_t rows, ptrdiff_t n, const void *s, const void *b,
                                      const ptrdiff_t *param, ptrdiff_t next, const double *k, const double *d,
                                      const double *r) {
    if (y->nontemporal) NAME(apply_rows_of)(x, y, start, rows, n, s, b, param, next, true, k, d, r);
    else NAME(apply_rows_of)(x, y, start, rows, n, s, b, param, 0, false, k, d, r);
}

/* On rows that share a parameter for each element: parameters, and the sums of their gradients, are read once and stay
 * in registers, BLOCK vectors or one at a time, while the rows go by. Rows may go around the cache if they begin on
 * lines and whole vectors fill them. */
static INLINE void NAME(apply_block)(const int vectors, const bool biased, const STORED *x, const REAL *s,
                                     const REAL *b, STORED *y, bool nt, ptrdiff_t next, const ptrdiff_t *start,
                                     ptrdiff_t rows, const REAL *k, const REAL *d, const REAL *r, minorm_part of) {
    VECTOR scale[BLOCK], bias[BLOCK];
    UNROLL for (int i = 0; i < vectors; i++) {
        scale[i] = NAME(read)(s + i * LANES, of);
        if (biased) bias[i] = NAME(read)(b + i * LANES, of);
    }
    for (ptrdiff_t row = 0; row < rows; row++) {
        const ptrdiff_t begin = start[row]; /* read before results are written, which might be the same memory */
        const REAL its_k = k[row], its_d = d[row], its_r = r[row];
        UNROLL for (int i = 0; i < vectors; i++) {
            const ptrdiff_t at = begin + i * LANES;
            if (next) __builtin_prefetch(x + at + next, 0, 2);
            VECTOR v = NAME(xhat)(NAME(load)(x + at, of), its_k, its_d, its_r) * scale[i];
            if (biased) v += bias[i];
            if (nt) NAME(nt_store)(y + at, v);
            else if (of.kind == NARROW) NAME(store_some)(y + at, v, 0, of.end);
            else NAME(store)(y + at, v);
        }
    }
}

static INLINE void NAME(apply_each_of)(const bool biased, const minorm_data *of_x, const minorm_data *of_y,
                                       const ptrdiff_t *start, ptrdiff_t rows, ptrdiff_t n, const REAL *s,
                                       const REAL *b, bool nt, ptrdiff_t next, const REAL *k, const REAL *d,
                                       const REAL *r) {
    const STORED *x = (const STORED *)of_x->items;
    STORED *y = (STORED *)of_y->items;
    ptrdiff_t i = 0;
    if (n < LANES) {
        const minorm_part of = {NARROW, 0, (int)n};
        NAME(apply_block)(1, biased, x, s, b, y, false, next, start, rows, k, d, r, of);
        return;
    }
    for (; i + BLOCK * LANES <= n; i += BLOCK * LANES)
        NAME(apply_block)(BLOCK, biased, x + i, s + i, b + i, y + i, nt, next, start, rows, k, d, r, minorm_whole);
    for (; i < n; i += LANES) {
        if (n - i < LANES) i = n - LANES; /* those before are written again */
        NAME(apply_block)(1, biased, x + i, s + i, b + i, y + i, nt, next, start, rows, k, d, r, minorm_whole);
    }
}

/* Statistics in the type computed in, as they are read in every block. */
static INLINE const REAL *NAME(rounded)(const double *from, ptrdiff_t rows, REAL *to) {
    for (ptrdiff_t row = 0; row < rows; row++) to[row] = (REAL)from[row];
    return to;
}

static NOINLINE void NAME(apply_each)(const minorm_data *x, const minorm_data *y, const ptrdiff_t *start,
                                      ptrdiff_t rows, ptrdiff_t n, const void *scales, const void *biases,
                                      ptrdiff_t next, const double *all_k, const double *all_d, const double *all_r) {
    REAL scratch[3][ROWS];
    const REAL *s = scales, *b = biases, *k = NAME(rounded)(all_k, rows, scratch[0]);
    const REAL *d = NAME(rounded)(all_d, rows, scratch[1]), *r = NAME(rounded)(all_r, rows, scratch[2]);
    const bool nt = y->nontemporal;
    if (b && (nt || next)) NAME(apply_each_of)(true, x, y, start, rows, n, s, b, nt, next, k, d, r);
    else if (b) NAME(apply_each_of)(true, x, y, start, rows, n, s, b, false, 0, k, d, r);
    else if (nt || next) NAME(apply_each_of)(false, x, y, start, rows, n, s, s, nt, next, k, d, r);
    else NAME(apply_each_of)(false, x, y, start, rows, n, s, s, false, 0, k, d, r);
}

/* Backward. */
static INLINE void NAME(grad_runs)(const minorm_data *of_dy, const minorm_data *of_x, const minorm_data *of_dx,
                                   const minorm_runs *of, const REAL *s, const REAL *run_s, REAL *ds, REAL *db,
                                   bool nt, REAL k, REAL d, REAL r, REAL p, REAL q) {
    for (ptrdiff_t run = 0; run < of->runs; run++) {
        const ptrdiff_t at = of->at + run * of->step, param = run * of->param, to = of->param ? run * of->n : 0;
        STORED *dx = (STORED *)of_dx->items + at;
        const NAME(grad_task) task = {
            (const STORED *)of_dy->items + at, (const STORED *)of_x->items + at, s ? s + param : NULL,
            ds ? ds + to : NULL, ds ? db + to : NULL, k, d, r, run_s ? r * run_s[param] : r, p, q, nt && of->next,
            of->next};
        if (nt) NAME(ask_for_edges)(dx, of);
        NAME(run)(NAME(dx_of), &task, dx, of->n, nt, !nt && !ds);
    }
}

static INLINE void NAME(grad_by)(const minorm_data *dy, const minorm_data *x, const minorm_data *dx,
                                 const minorm_runs *of, const REAL *s, const REAL *run_s, REAL *ds, REAL *db, double k,
                                 double d, double r, double p, double q) {
    if (dx->nontemporal)
        NAME(grad_runs)(dy, x, dx, of, s, run_s, ds, db, true, (REAL)k, (REAL)d, (REAL)r, (REAL)p, (REAL)q);
    else NAME(grad_runs)(dy, x, dx, of, s, run_s, ds, db, false, (REAL)k, (REAL)d, (REAL)r, (REAL)p, (REAL)q);
}

static NOINLINE void NAME(grad)(const minorm_data *dy, const minorm_data *x, const minorm_data *dx,
                                const minorm_runs *of, const void *scales, bool each, void *to_s, void *to_b,
                                double k, double d, double r, double p, double q) {
    const REAL *s = scales;
    REAL *ds = to_s, *db = to_b;
    if (each && s && ds) NAME(grad_by)(dy, x, dx, of, s, NULL, ds, db, k, d, r, p, q);
    else if (each && s) NAME(grad_by)(dy, x, dx, of, s, NULL, NULL, NULL, k, d, r, p, q);
    else if (ds) NAME(grad_by)(dy, x, dx, of, NULL, NULL, ds, db, k, d, r, p, q);
    else NAME(grad_by)(dy, x, dx, of, NULL, s, NULL, NULL, k, d, r, p, q);
}

static INLINE void NAME(grad_rows_of)(const minorm_data *of_dy, const minorm_data *of_x, const minorm_data *of_dx,
                                      const ptrdiff_t *start, ptrdiff_t rows, ptrdiff_t n, const REAL *s,
                                      const ptrdiff_t *param, ptrdiff_t next, bool nt, const double *k,
                                      const double *d, const double *r, const double *p, const double *q) {
    for (ptrdiff_t row = 0; row < rows; row++) {
        const REAL its_r = (REAL)r[row];
        const NAME(grad_task) task = {
            (const STORED *)of_dy->items + start[row], (const STORED *)of_x->items + start[row], NULL, NULL, NULL,
            (REAL)k[row], (REAL)d[row], its_r, s ? its_r * s[param[row]] : its_r, (REAL)p[row], (REAL)q[row], nt, next};
        NAME(run)(NAME(dx_of), &task, (STORED *)of_dx->items + start[row], n, nt, !nt);
    }
}

static NOINLINE void NAME(grad_rows)(const minorm_data *dy, const minorm_data *x, const minorm_data *dx,
                                     const ptrdiff_t *start, ptrdiff_t rows, ptrdiff_t n, const void *s,
                                     const ptrdiff_t *param, ptrdiff_t next, const double *k, const double *d,
                                     const double *r, const double *p, const double *q) {
    if (dx->nontemporal) NAME(grad_rows_of)(dy, x, dx, start, rows, n, s, param, next, true, k, d, r, p, q);
    else NAME(grad_rows_of)(dy, x, dx, start, rows, n, s, param, 0, false, k, d, r, p, q);
}

static INLINE void NAME(grad_block)(const int vectors, const STORED *dy, const STORED *x, const REAL *s, STORED *dx,
                                    bool nt, ptrdiff_t next, REAL *ds, REAL *db, const ptrdiff_t *start,
                                    ptrdiff_t rows, const REAL *k, const REAL *d, const REAL *r, const REAL *p,
                                    const REAL *q, minorm_part of) {
    VECTOR scale[BLOCK], all_s[BLOCK], all_b[BLOCK];
    UNROLL for (int i = 0; i < vectors; i++) {
        scale[i] = NAME(read)(s + i * LANES, of);
        all_s[i] = NAME(read)(ds + i * LANES, of);
        all_b[i] = NAME(read)(db + i * LANES, of);
    }
    for (ptrdiff_t row = 0; row < rows; row++) {
        const ptrdiff_t begin = start[row];
        const REAL its_k = k[row], its_d = d[row], its_r = r[row], its_p = p[row], its_q = q[row];
        UNROLL for (int i = 0; i < vectors; i++) {
            const ptrdiff_t at = begin + i * LANES;
            if (next) __builtin_prefetch(dy + at + next, 0, 2), __builtin_prefetch(x + at + next, 0, 2);
            const VECTOR g = NAME(load)(dy + at, of), xhat = NAME(xhat)(NAME(load)(x + at, of), its_k, its_d, its_r);
            const VECTOR v = NAME(dx)(g * scale[i] * its_r, xhat, its_p, its_q);
            all_s[i] += g * xhat;
            all_b[i] += g;
            if (nt) NAME(nt_store)(dx + at, v);
            else if (of.kind == NARROW) NAME(store_some)(dx + at, v, 0, of.end);
            else NAME(store)(dx + at, v);
        }
    }
    UNROLL for (int i = 0; i < vectors; i++) {
        NAME(put_back)(ds + i * LANES, NAME(select)(all_s[i], NAME(read)(ds + i * LANES, of), of), of);
        NAME(put_back)(db + i * LANES, NAME(select)(all_b[i], NAME(read)(db + i * LANES, of), of), of);
    }
}

static INLINE void NAME(grad_each_of)(const minorm_data *of_dy, const minorm_data *of_x, const minorm_data *of_dx,
                                      const ptrdiff_t *start, ptrdiff_t rows, ptrdiff_t n, const REAL *s, REAL *ds,
                                      REAL *db, bool nt, ptrdiff_t next, const REAL *k, const REAL *d, const REAL *r,
                                      const REAL *p, const REAL *q) {
    const STORED *dy = (const STORED *)of_dy->items, *x = (const STORED *)of_x->items;
    STORED *dx = (STORED *)of_dx->items;
    ptrdiff_t i = 0;
    if (n < LANES) {
        const minorm_part of = {NARROW, 0, (int)n};
        NAME(grad_block)(1, dy, x, s, dx, false, next, ds, db, start, rows, k, d, r, p, q, of);
        return;
    }
    for (; i + BLOCK * LANES <= n; i += BLOCK * LANES)
        NAME(grad_block)(BLOCK, dy + i, x + i, s + i, dx + i, nt, next, ds + i, db + i, start, rows, k, d, r, p, q,
                         minorm_whole);
    for (; i < n; i += LANES) { /* elements that come again are not added to ds and db again */
        const ptrdiff_t again = n - i < LANES ? LANES - (n - i) : 0;
        i -= again;
        NAME(grad_block)(1, dy + i, x + i, s + i, dx + i, nt, next, ds + i, db + i, start, rows, k, d, r, p, q,
                         NAME(overlap)(again, LANES));
    }
}

static NOINLINE void NAME(grad_each)(const minorm_data *dy, const minorm_data *x, const minorm_data *dx,
                                     const ptrdiff_t *start, ptrdiff_t rows, ptrdiff_t n, const void *s, void *ds,
                                     void *db, ptrdiff_t next, const double *all_k, const double *all_d,
                                     const double *all_r, const double *all_p, const double *all_q) {
    REAL scratch[5][ROWS];
    const REAL *k = NAME(rounded)(all_k, rows, scratch[0]), *d = NAME(rounded)(all_d, rows, scratch[1]);
    const REAL *r = NAME(rounded)(all_r, rows, scratch[2]), *p = NAME(rounded)(all_p, rows, scratch[3]);
    const REAL *q = NAME(rounded)(all_q, rows, scratch[4]);
    const bool nt = dx->nontemporal;
    if (nt || next) NAME(grad_each_of)(dy, x, dx, start, rows, n, s, ds, db, nt, next, k, d, r, p, q);
    else NAME(grad_each_of)(dy, x, dx, start, rows, n, s, ds, db, false, 0, k, d, r, p, q);
}

/* dx where the statistics were given. */
static INLINE void NAME(given_runs)(const minorm_data *of_dy, const minorm_data *of_dx, const minorm_runs *of,
                                    const REAL *s, const REAL *run_s, bool nt, REAL r) {
    for (ptrdiff_t run = 0; run < of->runs; run++) {
        const ptrdiff_t at = of->at + run * of->step, param = run * of->param;
        const NAME(grad_task) task = {.dy = (const STORED *)of_dy->items + at, .s = s ? s + param : NULL, .r = r,
                                      .c = run_s ? r * run_s[param] : r};
        NAME(run)(NAME(given_dx_of), &task, (STORED *)of_dx->items + at, of->n, nt, !nt);
    }
}

static NOINLINE void NAME(given_grad)(const minorm_data *dy, const minorm_data *dx, const minorm_runs *of,
                                      const void *s, bool each, double r) {
    if (dx->nontemporal && each && s) NAME(given_runs)(dy, dx, of, s, NULL, true, (REAL)r);
    else if (dx->nontemporal) NAME(given_runs)(dy, dx, of, NULL, s, true, (REAL)r);
    else if (each && s) NAME(given_runs)(dy, dx, of, s, NULL, false, (REAL)r);
    else NAME(given_runs)(dy, dx, of, NULL, s, false, (REAL)r);
}

/* ds and db alone. */
static NOINLINE void NAME(grad_params)(const minorm_data *of_dy, const minorm_data *of_x, const minorm_runs *of,
                                       void *to_s, void *to_b, double k, double d, double r) {
    for (ptrdiff_t run = 0; run < of->runs; run++) {
        const ptrdiff_t at = of->at + run * of->step, to = of->param ? run * of->n : 0;
        const NAME(grad_task) task = {.dy = (const STORED *)of_dy->items + at, .x = (const STORED *)of_x->items + at,
                                      .ds = (REAL *)to_s + to, .db = (REAL *)to_b + to, .k = (REAL)k, .d = (REAL)d,
                                      .r = (REAL)r};
        ptrdiff_t i = 0;
        for (; i + LANES <= of->n; i += LANES) NAME(dx_of)(&task, i, minorm_whole);
        if (i < of->n) NAME(dx_of)(&task, i, (minorm_part){NARROW, 0, (int)(of->n - i)});
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
