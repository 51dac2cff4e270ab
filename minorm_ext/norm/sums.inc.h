/* The sums of a run of elements, forward and backward:
 *
 *     a = sum(x - k),  q = sum((x - k)^2)
 *     a = sum(g),      q = sum(g * ((x - k) - d)),  with g = dy * s, or dy where s is NULL
 *
 * They run in 32 accumulators, element i in accumulator i mod 32, and a tree adds up the accumulators. So the order
 * follows from the number of elements, whatever a register holds. On its own, gcc vectorises these sums only in some
 * loops, and keeps accumulators in memory in others. */

typedef struct {
    VECTOR a[ACCUMULATORS / LANES], q[ACCUMULATORS / LANES];
} NAME(accumulators);

/* Add `count` elements from i on, a vector at a time, to the accumulators from `first` on. Forward has no dy. */
static INLINE void NAME(add_vectors)(NAME(accumulators) *z, const int first, const int count, const STORED *dy,
                                     ptrdiff_t other, const REAL *s, const STORED *x, ptrdiff_t i, REAL k, REAL d,
                                     minorm_part of) {
    UNROLL for (int at = 0; at < count; at += LANES) {
        minorm_part its = {of.kind, of.first - at, of.end - at};
        if (its.kind == NARROW) its.end = its.end < 0 ? 0 : its.end < LANES ? its.end : LANES;
        VECTOR t = (NAME(load)(x + i + at, its) - k) - d, g = t;
        if (dy) g = NAME(load_grad)(dy + i + at, other, its);
        if (s) g *= NAME(read)(s + i + at, its);
        g = NAME(only)(g, its);
        t = NAME(only)(t, its);
        z->a[(first + at) / LANES] += g;
        z->q[(first + at) / LANES] += g * t;
    }
}

/* Add n elements. The elements left after whole 16s come out of the last 16, where those already counted become 0. */
static INLINE void NAME(add)(NAME(accumulators) *z, const STORED *dy, ptrdiff_t other, const REAL *s, const STORED *x,
                             ptrdiff_t n, REAL k, REAL d) {
    ptrdiff_t i = 0;
    for (; i + 32 <= n; i += 32) NAME(add_vectors)(z, 0, 32, dy, other, s, x, i, k, d, minorm_whole);
    if (i + 16 <= n) {
        NAME(add_vectors)(z, 0, 16, dy, other, s, x, i, k, d, minorm_whole);
        i += 16;
    }
    if (i < n && n >= 16) {
        NAME(add_vectors)(z, 16, 16, dy, other, s, x, n - 16, k, d, (minorm_part){OVERLAP, (int)(16 - (n - i)), 16});
    } else if (i < n) {
        NAME(add_vectors)(z, 16, 16, dy, other, s, x, i, k, d, (minorm_part){NARROW, 0, (int)(n - i)});
    }
}

static INLINE void NAME(gather)(NAME(accumulators) *all, const NAME(accumulators) *piece) {
    UNROLL for (int i = 0; i < ACCUMULATORS / LANES; i++) {
        all->a[i] += piece->a[i];
        all->q[i] += piece->q[i];
    }
}

/* The sum of the accumulators, as a tree; this function adds them up to 16, then 8, then 4 sums. */
static INLINE void NAME(quarters)(const VECTOR *all, REAL *four) {
    VECTOR v[16 / LANES];
    NAME(eight) half;
    const REAL *p = (const REAL *)v;
    for (int i = 0; i < 16 / LANES; i++) v[i] = all[i] + all[i + 16 / LANES];
    for (int i = 0; i < 8 / LANES; i++) v[i] += v[i + 8 / LANES];
    for (int i = 0; i < 4 / LANES; i++) v[i] += v[i + 4 / LANES];
    if (LANES == 16) half = *(const NAME(eight) *)p + *(const NAME(eight) *)(p + 8), p = (const REAL *)&half;
    if (LANES >= 8) *(NAME(four) *)four = *(const NAME(four) *)p + *(const NAME(four) *)(p + 4);
    else memcpy(four, p, 4 * sizeof(REAL));
}

/* The end of the tree: the sum of the 4. */
static INLINE REAL NAME(whole)(const REAL *four) { return (four[0] + four[2]) + (four[1] + four[3]); }

static INLINE REAL NAME(total)(const VECTOR *all) {
    REAL four[4];
    NAME(quarters)(all, four);
    return NAME(whole)(four);
}

/* The mean of the two in the middle, so that one outlier does not count: exactly c if all are c. */
static INLINE REAL NAME(middle)(REAL a, REAL b, REAL c, REAL d) {
    const REAL low_ab = b < a ? b : a, low_cd = d < c ? d : c, high_ab = b > a ? b : a, high_cd = d > c ? d : c;
    const REAL low = low_cd > low_ab ? low_cd : low_ab, high = high_cd < high_ab ? high_cd : high_ab;
    return (REAL)0.5 * low + (REAL)0.5 * high;
}

/* A guess of the mean, from four elements `across` apart. */
static INLINE REAL NAME(sample)(const STORED *x, ptrdiff_t across) {
    return NAME(middle)(NAME(one)(x), NAME(one)(x + across), NAME(one)(x + 2 * across), NAME(one)(x + 3 * across));
}

static NOINLINE double NAME(sample_mean)(const minorm_data *x, ptrdiff_t at, ptrdiff_t across) {
    return NAME(sample)((const STORED *)x->items + at, across);
}

/* Add up `runs` runs, `step` apart in the data and `s_step` apart in s. An accumulator takes about 16 elements before
 * it is added to the totals. Otherwise hundreds of small squares, added one by one to the square of an outlier a
 * million standard deviations away, would vanish in rounding. */
static INLINE void NAME(sums_of)(NAME(accumulators) *all, const STORED *dy, ptrdiff_t other, const REAL *s,
                                 const STORED *x, ptrdiff_t step, ptrdiff_t s_step, ptrdiff_t runs, ptrdiff_t n, REAL k,
                                 REAL d) {
    const ptrdiff_t together = n < PIECE ? PIECE / n : 1;
    for (ptrdiff_t first = 0; first < runs; first += together)
        for (ptrdiff_t i = 0; i < n; i += PIECE) {
            NAME(accumulators) piece = {0};
            for (ptrdiff_t r = first; r < runs && r < first + together; r++)
                NAME(add)(&piece, dy ? dy + r * step + i : NULL, other, s ? s + r * s_step + i : NULL, x + r * step + i,
                          n - i < PIECE ? n - i : PIECE, k, d);
            NAME(gather)(all, &piece);
        }
}

/* Forward dy is NULL; s may be. */
static NOINLINE void NAME(sums)(const minorm_data *of_dy, const minorm_data *of_x, ptrdiff_t at, ptrdiff_t step,
                                const void *scales, ptrdiff_t s_step, ptrdiff_t runs, ptrdiff_t n, double k, double d,
                                double *a, double *q) {
    const STORED *dy = of_dy ? (const STORED *)of_dy->items + at : NULL, *x = (const STORED *)of_x->items + at;
    const REAL *s = scales;
    NAME(accumulators) all = {0};
    if (!dy) NAME(sums_of)(&all, NULL, ALONE, NULL, x, step, 0, runs, n, (REAL)k, 0);
    else if (!s) NAME(sums_of)(&all, dy, of_dy->other, NULL, x, step, 0, runs, n, (REAL)k, (REAL)d);
    else NAME(sums_of)(&all, dy, of_dy->other, s, x, step, s_step, runs, n, (REAL)k, (REAL)d);
    *a = NAME(total)(all.a);
    *q = NAME(total)(all.q);
}

/* The same for one row of n elements, without the end of the tree. */
static INLINE void NAME(row_sums)(const STORED *dy, ptrdiff_t other, const REAL *s, const STORED *x, ptrdiff_t n,
                                  ptrdiff_t next, REAL k, REAL d, REAL *four_a, REAL *four_q) {
    NAME(accumulators) all = {0};
    if (next && dy) minorm_prefetch(dy + next, n * sizeof(STORED));
    if (next && other != ALONE) minorm_prefetch(dy + other + next, n * sizeof(STORED));
    if (next) minorm_prefetch(x + next, n * sizeof(STORED));
    NAME(add)(&all, dy, other, s, x, n < PIECE ? n : PIECE, k, d);
    if (n > PIECE)
        NAME(sums_of)(&all, dy ? dy + PIECE : NULL, other, s ? s + PIECE : NULL, x + PIECE, 0, 0, 1, n - PIECE, k, d);
    NAME(quarters)(all.a, four_a);
    NAME(quarters)(all.q, four_q);
}

/* The same for some rows, which share s. Forward, the shift k of each row is a guess of its mean if `guesses`, else 0.
 * Each row prefetches the data `next` elements further on, if `next` is not 0. The end of the tree is computed for all
 * rows together, in vectors. */
static NOINLINE void NAME(rows_sums)(const minorm_data *of_dy, const minorm_data *of_x, const ptrdiff_t *start,
                                     ptrdiff_t rows, const void *s, ptrdiff_t n, ptrdiff_t next, bool guesses,
                                     double *k, const double *d, double *a, double *q) {
    REAL four_a[ROWS][4], four_q[ROWS][4];
    for (ptrdiff_t row = 0; row < rows; row++) {
        const STORED *dy = of_dy ? (const STORED *)of_dy->items + start[row] : NULL;
        const STORED *x = (const STORED *)of_x->items + start[row];
        REAL *fa = four_a[row], *fq = four_q[row];
        const REAL shift = dy ? (REAL)k[row] : guesses ? NAME(sample)(x, n / 4) : 0;
        if (!dy) NAME(row_sums)(NULL, ALONE, NULL, x, n, next, shift, 0, fa, fq), k[row] = shift;
        else if (!s) NAME(row_sums)(dy, of_dy->other, NULL, x, n, next, shift, (REAL)d[row], fa, fq);
        else NAME(row_sums)(dy, of_dy->other, s, x, n, next, shift, (REAL)d[row], fa, fq);
    }
    for (ptrdiff_t row = 0; row < rows; row++) {
        a[row] = NAME(whole)(four_a[row]);
        q[row] = NAME(whole)(four_q[row]);
    }
}
