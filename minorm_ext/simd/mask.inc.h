/* Copies by a mask, of REAL. `from` and `to` may be the same memory: no element is read after its place was written. */

/* Elements that count, and `fill` in place of the others. */
static NOINLINE void NAME(minorm_keep)(const REAL *from, const uint8_t *mask, REAL fill, REAL *to, ptrdiff_t n) {
    _Pragma("GCC ivdep") for (ptrdiff_t i = 0; i < n; i++) {
        const REAL x = from[i];
        to[i] = mask[i] ? x : fill;
    }
}

/* The same where each place has a fill of its own. */
static NOINLINE void NAME(minorm_keep_each)(const REAL *from, const uint8_t *mask, const REAL *fills, REAL *to,
                                            ptrdiff_t n) {
    _Pragma("GCC ivdep") for (ptrdiff_t i = 0; i < n; i++) {
        const REAL x = from[i], fill = fills[i];
        to[i] = mask[i] ? x : fill;
    }
}

/* Elements that count, side by side; how many they are. Memory for n is written. */
static NOINLINE ptrdiff_t NAME(minorm_gather)(const REAL *from, const uint8_t *mask, REAL *to, ptrdiff_t n) {
    uint64_t eight;
    ptrdiff_t i = 0, count = 0;
    for (; i + 8 <= n; i += 8) {
        memcpy(&eight, mask + i, 8);
        if (eight == ALL_EIGHT) memmove(to + count, from + i, 8 * sizeof(REAL));
        else if (eight) NAME(minorm_gather_eight)(from + i, eight, to + count);
        count += minorm_counted_of_eight(eight);
    }
    for (; i < n; i++) {
        to[count] = from[i];
        count += mask[i];
    }
    return count;
}

#undef REAL
#undef NAME
