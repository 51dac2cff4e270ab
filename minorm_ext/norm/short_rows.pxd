# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# Short rows that go together: where they lie, and what is known of each. A row is one run that fits a chunk.
#
# On a row of 64 elements a square root and a division take as long as all the rest. So some rows go together: first the
# sums of each, then the statistics of all, which vectorises, then the second phase of each.

from libc.string cimport memcpy

from minorm_ext.norm.nest cimport Loop, Nest, Place, go_on
from minorm_ext.norm.moments cimport Moments, out_of_range, poor_shift, rstds_of, slope_of
from minorm_ext.norm.rows cimport span_moments
from minorm_ext.norm.sums cimport BATCH, BRIEF, Span, sample_mean, shifted_sums, short_sums
from minorm_ext.norm.plan cimport Work, tally, tally_x
from minorm_ext.simd.storage cimport Data, item, real


cdef struct Rows:  # that go together
    Place next                # the row after them
    Py_ssize_t first          # where the first begins in the data
    Py_ssize_t data[BATCH]    # where each does
    Py_ssize_t start[BATCH]   # from there on, or in a room
    Py_ssize_t param[BATCH]   # where its parameters begin


cdef inline bint in_vectors(const Work* w, Py_ssize_t n) noexcept nogil:
    """Does what is known of n rows lie side by side, and is it enough for vectors to pay?"""
    return w.member_step == 1 and n >= 8


cdef inline void take_rows(const Work* w, Py_ssize_t n, Rows* rows) noexcept nogil:
    """The next n."""
    cdef const Loop* inner = &w.nest.keep1
    cdef Place first = rows.next
    cdef Py_ssize_t i
    rows.first = first.data
    if in_vectors(w, n) and first.inner + n < inner.count:
        for i in range(n):
            rows.data[i] = first.data + i * inner.data
        for i in range(n):
            rows.param[i] = first.param + i * inner.param
        rows.next.inner += n
        rows.next.data += n * inner.data
        rows.next.param += n * inner.param
    else:
        for i in range(n):
            rows.data[i] = rows.next.data
            rows.param[i] = rows.next.param
            go_on(&w.nest, &rows.next, w.member_step)
    for i in range(n):
        rows.start[i] = rows.data[i] - first.data if w.x.direct else i * w.columns


cdef inline bint rows_follow(const Work* w) noexcept nogil:
    """Do the rows of a block lie one after the other, without a gap?"""
    cdef const Nest* n = &w.nest
    if w.member_step != 1:
        return n.keep0.data == w.columns
    if n.keep1.count > 1 and n.keep1.data != w.columns:
        return False
    return w.groups > 1 or n.keep0.count == 1 or n.keep0.data == n.keep1.count * w.columns


cdef inline Py_ssize_t row_of(const Work* w, Py_ssize_t block, Py_ssize_t member) noexcept nogil:
    return block // w.blocks * w.group_step + member * w.member_step


cdef inline Span whole_row(const Work* w) noexcept nogil:
    cdef Span span
    span.run = 0
    span.runs = 1
    span.element = 0
    span.length = w.columns
    return span


cdef inline void sums_of(
    const Work* w, const Data* x, const Py_ssize_t* at, Py_ssize_t n, Py_ssize_t next, real* k, real* a, real* q
) noexcept nogil:
    """The shifts of n rows of x, which begin at `at`, and their sums."""
    cdef bint centered = w.equation.centered
    cdef Py_ssize_t i
    if w.columns <= BRIEF:
        short_sums(x, at, n, w.columns, next, centered, k, a, q)
        return
    for i in range(n):
        k[i] = sample_mean(k, x, at[i], 0, whole_row(w)) if centered else 0
        shifted_sums(x, at[i], 0, whole_row(w), k[i], &a[i], &q[i])


cdef inline void statistics_of(
    const Work* w, const Data* x, const Py_ssize_t* at, Py_ssize_t n, const real* a, const real* q,
    real* k, real* d, real* r, double* var, double* rstd,
) noexcept nogil:
    """k, d, var and rstd of n rows from their sums."""
    cdef double offset[BATCH]
    cdef double shift
    cdef double m = w.columns
    cdef double one = w.one_by_columns
    cdef bint centered = w.equation.centered
    cdef int odd = 0
    cdef Moments moments
    cdef Py_ssize_t i
    for i in range(n):
        odd |= out_of_range(m, a[i], q[i])
        offset[i] = a[i] * one
        var[i] = q[i]
    if centered:
        for i in range(n):
            var[i] = max(var[i] - a[i] * offset[i], 0.0)
            odd |= poor_shift(m, a[i], var[i])
    if odd:
        for i in range(n):
            if out_of_range(m, a[i], q[i]) or (centered and poor_shift(m, a[i], var[i])):
                shift = item(x, at[i])
                moments = span_moments(x, at[i], 0, whole_row(w), shift, k[i], centered)
                k[i] = <real>shift if centered else 0
                offset[i] = moments.offset
                var[i] = moments.m2
    for i in range(n):
        var[i] *= one
        if centered:
            shift = k[i]
            k[i] = <real>(shift + offset[i])
            d[i] = <real>((shift - k[i]) + offset[i])
        else:
            d[i] = 0
    rstds_of(&w.equation, var, rstd, n)
    for i in range(n):
        r[i] = <real>rstd[i]


cdef inline void keep_statistics(
    const Work* w, Py_ssize_t row, Py_ssize_t n, const real* k, const real* d, const double* var, const double* rstd
) noexcept nogil:
    """Of n rows from `row` on."""
    cdef Py_ssize_t i, at
    if in_vectors(w, n):
        for i in range(n):
            w.k[row + i] = k[i]
        for i in range(n):
            w.d[row + i] = d[i]
        memcpy(w.var + row, var, n * sizeof(double))
        memcpy(w.rstd + row, rstd, n * sizeof(double))
    else:
        for i in range(n):
            at = row + i * w.member_step
            w.k[at] = k[i]
            w.d[at] = d[i]
            w.var[at] = var[i]
            w.rstd[at] = rstd[i]


cdef inline void kept_statistics(
    const Work* w, Py_ssize_t row, Py_ssize_t n, real* k, real* d, real* r
) noexcept nogil:
    cdef Py_ssize_t i, at
    if in_vectors(w, n):
        for i in range(n):
            k[i] = <real>w.k[row + i]
        for i in range(n):
            d[i] = <real>w.d[row + i]
        for i in range(n):
            r[i] = <real>w.rstd[row + i]
    else:
        for i in range(n):
            at = row + i * w.member_step
            k[i] = <real>w.k[at]
            d[i] = <real>w.d[at]
            r[i] = <real>w.rstd[at]


cdef inline void factors_of(
    const Work* w, Py_ssize_t row, Py_ssize_t n, const real* s, const Py_ssize_t* param,
    const real* sum, const real* sum_x, real* p, real* q,
) noexcept nogil:
    """p and q of n rows from `row` on, from their sums, which are kept where ds and db are made of them."""
    cdef bint centered = w.equation.centered
    cdef double rstd[BATCH]
    cdef double scaled[BATCH]
    cdef Py_ssize_t i, at
    if in_vectors(w, n):
        memcpy(rstd, w.rstd + row, n * sizeof(double))
    else:
        for i in range(n):
            rstd[i] = w.rstd[row + i * w.member_step]
    for i in range(n):
        scaled[i] = rstd[i] * w.one_by_columns
    if s != NULL and not w.each:
        for i in range(n):
            scaled[i] = rstd[i] * s[param[i]] * w.one_by_columns
    for i in range(n):
        p[i] = <real>(scaled[i] * sum[i]) if centered else 0
    for i in range(n):
        q[i] = <real>(scaled[i] * (sum_x[i] * rstd[i]))
    if w.equation.guard:
        for i in range(n):
            at = row + i * w.member_step
            q[i] = <real>(scaled[i] * (sum_x[i] * rstd[i]) * slope_of(&w.equation, w.var[at]))
    if w.tallies != NULL:
        memcpy(tally(sum, w, row), sum, n * sizeof(real))
        memcpy(tally_x(sum, w, row), sum_x, n * sizeof(real))
