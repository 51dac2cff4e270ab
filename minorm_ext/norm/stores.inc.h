/* Vectors in the type computed in, REAL, of data that is stored as STORED, and the loop that all second phases share:
 * it computes a formula for each vector of a run, and stores the results. */

#define LANES ((int)(VECTOR_BYTES / sizeof(REAL)))
#define VECTOR NAME(vector)
#define MASK NAME(mask)

typedef REAL VECTOR __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(REAL)), may_alias));
typedef INTEGER MASK __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(REAL)), may_alias));
typedef REAL NAME(eight) __attribute__((vector_size(8 * sizeof(REAL)), aligned(sizeof(REAL)), may_alias));
typedef REAL NAME(four) __attribute__((vector_size(4 * sizeof(REAL)), aligned(sizeof(REAL)), may_alias));

/* All bits of the elements that count. */
static INLINE MASK NAME(counting)(minorm_part of) {
    static const INTEGER places[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    const MASK place = *(const MASK *)places;
    return (place >= (INTEGER)of.first) & (place < (INTEGER)of.end);
}

/* `after` for elements that count, `before` for the others. */
static INLINE VECTOR NAME(select)(VECTOR after, VECTOR before, minorm_part of) {
    const MASK mask = NAME(counting)(of);
    return of.kind != OVERLAP ? after : (VECTOR)(((MASK)after & mask) | ((MASK)before & ~mask));
}

static INLINE VECTOR NAME(only)(VECTOR v, minorm_part of) {
    return of.kind == WHOLE ? v : (VECTOR)((MASK)v & NAME(counting)(of));
}

/* Parameters: in the type computed in. */
static INLINE VECTOR NAME(read)(const REAL *p, minorm_part of) {
    VECTOR v;
    if (of.kind != NARROW) return *(const VECTOR *)p;
    minorm_load_some(&v, p, sizeof(v), of.end * sizeof(REAL));
    return v;
}

/* Store a vector in its place; elements that do not count keep their value. */
static INLINE void NAME(put_back)(REAL *to, VECTOR v, minorm_part of) {
    if (of.kind == NARROW) minorm_copy_some(to, &v, of.end * sizeof(REAL));
    else *(VECTOR *)to = v;
}

/* *sum += v, of the elements that count. */
static INLINE void NAME(add_to)(REAL *sum, VECTOR v, minorm_part of) {
    const VECTOR before = NAME(read)(sum, of);
    NAME(put_back)(sum, NAME(select)(before + v, before, of), of);
}

/* Data: in the type stored in. */
#ifdef WIDENED
static INLINE VECTOR NAME(load)(const STORED *p, minorm_part of) {
    VECTOR v;
    STORED some[LANES];
    if (of.kind == NARROW) minorm_load_some(some, p, sizeof(some), of.end * sizeof(STORED));
    NAME(minorm_widen_vector)(of.kind == NARROW ? some : p, (float *)&v);
    return v;
}

static INLINE void NAME(store)(STORED *to, VECTOR v) { NAME(minorm_narrow_vector)((const float *)&v, to); }
static INLINE REAL NAME(one)(const STORED *p) { return NAME(minorm_wide)(*p); }

static INLINE VECTOR NAME(as_stored)(VECTOR v) {
    STORED rounded[LANES];
    NAME(store)(rounded, v);
    return NAME(load)(rounded, minorm_whole);
}
#else
static INLINE VECTOR NAME(load)(const STORED *p, minorm_part of) { return NAME(read)(p, of); }
static INLINE void NAME(store)(STORED *to, VECTOR v) { *(VECTOR *)to = v; }
static INLINE REAL NAME(one)(const STORED *p) { return *p; }
static INLINE VECTOR NAME(as_stored)(VECTOR v) { return v; }
#endif

/* An activation. Forward, x->other leads to a residual, which is added to y after y is rounded for storing. Then a
 * number no larger than the floor becomes the floor; NaN stays. Backward, dy->other leads to this y, and dy becomes 0
 * where y is 0. */
static INLINE VECTOR NAME(activated)(VECTOR v, const STORED *x, ptrdiff_t other, REAL floor, minorm_part of) {
    if (other != ALONE) v = NAME(as_stored)(v) + NAME(load)(x + other, of);
    const MASK low = v <= floor;
    return (VECTOR)(((MASK)v & ~low) | ((MASK)((VECTOR){0} + floor) & low));
}

static INLINE VECTOR NAME(load_grad)(const STORED *dy, ptrdiff_t other, minorm_part of) {
    const VECTOR g = NAME(load)(dy, of);
    return other == ALONE ? g : (VECTOR)((MASK)g & ~(NAME(load)(dy + other, of) <= (REAL)0));
}

/* Store around the cache: `to` is a multiple of the bytes that this writes. */
static INLINE void NAME(nt_store)(STORED *to, VECTOR v) {
    STORED rounded[LANES];
    NAME(store)(rounded, v);
    minorm_nt_store(to, rounded, sizeof(rounded));
}

/* Store the elements first .. end - 1 in their places. (A store with a mask took 20 times as long from memory.) */
static INLINE void NAME(store_some)(STORED *to, VECTOR v, int first, int end) {
    STORED rounded[LANES];
    NAME(store)(rounded, v);
    minorm_copy_some(to + first, rounded + first, (end - first) * sizeof(STORED));
}

static INLINE void NAME(store_part)(STORED *to, VECTOR v, bool nt, minorm_part of) {
    if (nt) NAME(nt_store)(to, v);
    else if (of.kind == NARROW) NAME(store_some)(to, v, 0, of.end);
    else NAME(store)(to, v);
}

/* Store load_grad's result a second time, as the gradient of the residual, which lies dy->copy further on. */
static INLINE void NAME(leave)(const STORED *dy, VECTOR g, ptrdiff_t copy, minorm_part of) {
    if (copy != ALONE) NAME(store_part)((STORED *)dy + copy, g, false, of);
}

/* A second phase's result for the vector from element i on, computed from `task`. */
typedef VECTOR NAME(formula)(const void *task, ptrdiff_t i, minorm_part of);

static INLINE minorm_part NAME(overlap)(ptrdiff_t first, ptrdiff_t end) {
    return (minorm_part){OVERLAP, first < 0 ? 0 : (int)first, end < LANES ? (int)end : LANES};
}

/* Compute a run of n elements; `formula` is a constant wherever this is inlined.
 *
 * Only whole lines of 64 bytes go around the cache: the elements before the first line and after the last are stored in
 * the ordinary way. The elements left after whole vectors are computed together with some elements before them;
 * these are stored `again` if that changes nothing. */
static INLINE void NAME(run)(NAME(formula) *formula, const void *task, STORED *y, ptrdiff_t n, bool nt, bool again) {
    const ptrdiff_t lead = nt ? (ptrdiff_t)(-(uintptr_t)y % 64 / sizeof(STORED)) : 0;
    const ptrdiff_t whole = nt ? n - (ptrdiff_t)((uintptr_t)(y + n) % 64 / sizeof(STORED)) : n;
    ptrdiff_t i = 0;
    if (n < lead + LANES) {
        for (; i < n; i += LANES) {
            const minorm_part of = {NARROW, 0, n - i < LANES ? (int)(n - i) : LANES};
            NAME(store_some)(y + i, formula(task, i, of), 0, of.end);
        }
        return;
    }
    for (; i < lead; i += LANES) {
        const minorm_part of = NAME(overlap)(0, lead - i);
        NAME(store_some)(y + i, formula(task, i, of), 0, of.end);
    }
    if (nt) for (i = lead; i + LANES <= whole; i += LANES) NAME(nt_store)(y + i, formula(task, i, minorm_whole));
    else for (; i + LANES <= n; i += LANES) NAME(store)(y + i, formula(task, i, minorm_whole));
    for (; i < n; i += LANES) {
        const ptrdiff_t at = i + LANES < n ? i : n - LANES;
        const minorm_part of = NAME(overlap)(i - at, n - at);
        const VECTOR v = formula(task, at, of);
        if (again) NAME(store)(y + at, v);
        else NAME(store_some)(y + at, v, of.first, of.end);
    }
}
