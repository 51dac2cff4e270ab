/* Copies of REAL by a mask. `from` and `to` may be the same memory: no copy reads a place after it stored another value
 * there. */

#define LANES (VECTOR_BYTES / (int)sizeof(REAL))
#define VECTOR NAME(minorm_kept)
#define BITS NAME(minorm_kept_bits)

typedef REAL VECTOR __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(REAL)), may_alias));
typedef INTEGER BITS __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(REAL)), may_alias));

/* A vector with the numbers of x that count, and `fill` in place of the others. */
static INLINE VECTOR NAME(minorm_select)(const uint8_t *mask, VECTOR x, VECTOR fill) {
    BITS counts;
    NAME(minorm_spread)(mask, (INTEGER *)&counts);
    return (VECTOR)(((BITS)x & counts) | ((BITS)fill & ~counts));
}

/* Copy the elements that count, and write `fill` in place of the others. The last vector overlaps the one before; the
 * elements that it repeats do not change. */
static NOINLINE void NAME(minorm_keep)(const REAL *from, const uint8_t *mask, REAL fill, REAL *to, ptrdiff_t n) {
    const VECTOR fills = fill - (VECTOR){0};
    ptrdiff_t i = 0;
    for (; n < LANES && i < n; i++) to[i] = mask[i] ? from[i] : fill;
    for (; i < n; i += LANES) {
        if (n - i < LANES) i = n - LANES;
        *(VECTOR *)(to + i) = NAME(minorm_select)(mask + i, *(const VECTOR *)(from + i), fills);
    }
}

/* The same with a separate fill for each place. */
static NOINLINE void NAME(minorm_keep_each)(const REAL *from, const uint8_t *mask, const REAL *fills, REAL *to,
                                            ptrdiff_t n) {
    ptrdiff_t i = 0;
    for (; n < LANES && i < n; i++) to[i] = mask[i] ? from[i] : fills[i];
    for (; i < n; i += LANES) {
        if (n - i < LANES) i = n - LANES;
        const VECTOR fill = *(const VECTOR *)(fills + i);
        *(VECTOR *)(to + i) = NAME(minorm_select)(mask + i, *(const VECTOR *)(from + i), fill);
    }
}

/* Copy the elements that count side by side, and return their number. This writes memory for n. */
static NOINLINE ptrdiff_t NAME(minorm_gather)(const REAL *from, const uint8_t *mask, REAL *to, ptrdiff_t n) {
    const int some = NAME(MINORM_SOME);
    ptrdiff_t i = 0, count = 0;
    for (; i + some <= n; i += some) count += NAME(minorm_gather_some)(from + i, mask + i, to + count);
    for (; i < n; i++) {
        to[count] = from[i];
        count += mask[i];
    }
    return count;
}

#undef REAL
#undef INTEGER
#undef NAME
#undef LANES
#undef VECTOR
#undef BITS
