# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# Short rows, of one run that fits a chunk, go some at a time: first the sums of each, then the statistics of all, which
# vectorises. On a row of 64 elements a square root and a division take as long as all the rest.

from libc.string cimport memcpy

from minorm_ext.norm.kernels cimport ROWS, Runs, rows_sums, sample_mean, sums
from minorm_ext.norm.moments cimport Moments, out_of_range, poor_shift, rounded, rstds_of, slope_of
from minorm_ext.norm.nest cimport Loop, Place, go_on
from minorm_ext.norm.rows cimport CHUNK
from minorm_ext.norm.statistics cimport moments_of_sums
from minorm_ext.norm.work cimport (
    Work, is_undefined, last_member, one_by_count, param_at, param_value, partial_sums, partial_sums_x, row_of,
)
from minorm_ext.simd.storage cimport Data, ask, clear, counted, gather, is_direct, item, prefetch, stage, staged_view


cdef struct Rows:
    Place next                # the row after them
    Py_ssize_t row            # number of the first
    Py_ssize_t count
    Py_ssize_t first          # where the first begins in the data
    Py_ssize_t data[ROWS]     # where each row begins in the data
    Py_ssize_t start[ROWS]    # the same relative to `first`, or in scratch memory
    Py_ssize_t param[ROWS]    # where its parameters begin
    Py_ssize_t number[ROWS]   # with a mask: the number of each row, since rows without elements are left out,
    Py_ssize_t counted[ROWS]  # and how many of its elements count
    double k[ROWS]
    double d[ROWS]
    double var[ROWS]
    double rstd[ROWS]
    double p[ROWS]            # backward
    double q[ROWS]


# Which rows.

cdef inline bint is_side_by_side(const Work* w, Py_ssize_t count) noexcept nogil:
    """Return whether the statistics of some rows lie side by side, and are enough for vectors to pay."""
    return w.plan.member_step == 1 and count >= 8 and w.x.mask == NULL


cdef inline Py_ssize_t number_of(const Work* w, const Rows* rows, Py_ssize_t i) noexcept nogil:
    return rows.row + i * w.plan.member_step if w.x.mask == NULL else rows.number[i]


cdef inline void take_rows(const Work* w, Py_ssize_t row, Py_ssize_t count, Rows* rows) noexcept nogil:
    """Take the next rows, from number `row` on."""
    cdef const Loop* inner = &w.plan.nest.keep1
    cdef Place first = rows.next
    cdef Py_ssize_t i
    rows.row = row
    rows.count = count
    rows.first = first.data
    if is_side_by_side(w, count) and first.inner + count < inner.count:
        for i in range(count):
            rows.data[i] = first.data + i * inner.data
        for i in range(count):
            rows.param[i] = first.param + i * inner.param
        rows.next.inner += count
        rows.next.data += count * inner.data
        rows.next.param += count * inner.param
    else:
        for i in range(count):
            rows.data[i] = rows.next.data
            rows.param[i] = rows.next.param
            go_on(&w.plan.nest, &rows.next, w.plan.member_step)
    for i in range(count):
        rows.start[i] = rows.data[i] - first.data if w.x.direct else i * w.plan.columns


cdef inline void skip_empty_row(const Work* w, Py_ssize_t row, Py_ssize_t data, const Data* result) noexcept nogil:
    """Write 0 as the results of a row without elements."""
    if w.moments:
        w.k[row] = w.d[row] = w.var[row] = w.rstd[row] = w.count[row] = 0
    if w.slot_sums != NULL:
        partial_sums(w, row)[0] = partial_sums_x(w, row)[0] = 0
    if result.items != NULL:
        clear(result, data, w.plan.columns)


cdef inline Py_ssize_t next_rows(
    const Work* w, Py_ssize_t block, Py_ssize_t member, const Data* result, Rows* rows, bint* whole
) noexcept nogil:
    """Take the next rows, from a member of the block on, and return the member after them. With a mask, skip rows
    without elements, and take either `whole` rows, of which all elements count, or only other rows. So the results of a
    whole row do not depend on the rows beside it."""
    cdef Py_ssize_t n = w.plan.columns
    cdef Py_ssize_t end = last_member(w, block)
    cdef Py_ssize_t row = row_of(w, block, member)
    cdef Py_ssize_t count, i
    cdef Place place = rows.next
    cdef bint direct
    whole[0] = True
    if w.x.mask == NULL:
        take_rows(w, row, min(w.plan.together, end - member), rows)
        return member + rows.count
    rows.count = 0
    while member < end and rows.count < w.plan.together:
        if w.plan.next:
            prefetch(w.x.mask + place.data + w.plan.next, n)
        count = counted(w.x.mask + place.data, n)
        if rows.count == 0:
            whole[0] = count == n > 1
            rows.first = place.data
        if count == 0:
            skip_empty_row(w, row, place.data, result)
        elif (count == n > 1) != whole[0]:
            break
        else:
            i = rows.count
            rows.number[i], rows.counted[i], rows.data[i], rows.param[i] = row, count, place.data, place.param
            rows.count += 1
        go_on(&w.plan.nest, &place, w.plan.member_step)
        member += 1
        row += w.plan.member_step
    rows.next = place
    direct = whole[0] and is_direct(w.x.type, w.plan.single)
    for i in range(rows.count):
        rows.start[i] = rows.data[i] - rows.first if direct else i * n
    return member


cdef inline void fetch_rows(
    const Work* w, Data* data, const Rows* rows, const double* fills, void* scratch
) noexcept nogil:
    """Stage the rows in scratch memory, if the loops do not read them in their own places."""
    cdef Py_ssize_t i
    if not data.direct:
        for i in range(rows.count):
            data.fill = fills[i] if data.mask != NULL and fills != NULL else 0
            if data.mask != NULL and w.plan.next:
                ask(data, rows.data[i] + w.plan.next, w.plan.columns)
            stage(data, rows.data[i], w.plan.columns, scratch, rows.start[i], w.plan.single)


# Their statistics.

cdef inline void sums_of_counted(const Work* w, Rows* rows, void* scratch, double* a, double* q) noexcept nogil:
    """Compute the sums of rows in which only some elements count; gather these side by side."""
    cdef Data x = staged_view(&w.x, scratch, w.plan.single)
    cdef Py_ssize_t i
    for i in range(rows.count):
        gather(&w.x, rows.data[i], w.plan.columns, scratch, 0, w.plan.single)
        rows.k[i] = sample_mean(&x, 0, rows.counted[i] // 4) if w.equation.centered else 0
        sums(NULL, &x, 0, 0, NULL, 0, 1, rows.counted[i], rows.k[i], 0, &a[i], &q[i])


cdef inline void moments_again(
    const Work* w, const Data* x, Rows* rows, Py_ssize_t i, bint whole, double a, double q, void* scratch
) noexcept nogil:
    """Compute d and var again for a row whose squares left the range of their type, or whose shift was poor.

    var is not divided yet.
    """
    cdef Data gathered = staged_view(&w.x, scratch, w.plan.single)
    cdef double first
    cdef Moments m
    cdef Runs run
    run.at, run.runs, run.n, run.step = rows.start[i], 1, w.plan.columns, 0
    if not whole:
        run.at, run.n = 0, rows.counted[i]
        gather(&w.x, rows.data[i], w.plan.columns, scratch, 0, w.plan.single)
        x = &gathered
    first = item(x, run.at)
    m = moments_of_sums(w, x, &run, first, rows.k[i], a, q)
    rows.k[i] = first if w.equation.centered else 0
    rows.d[i], rows.var[i] = m.offset, m.m2


cdef inline void rows_statistics(const Work* w, const Data* x, Rows* rows, bint whole) noexcept nogil:
    """Compute k, d, var and rstd of rows from their sums. x holds them if all elements of the rows count."""
    cdef double[CHUNK] scratch
    cdef double a[ROWS]
    cdef double q[ROWS]
    cdef double n[ROWS]
    cdef double one_by_n[ROWS]
    cdef double shift
    cdef bint single = w.plan.single
    cdef bint centered = w.equation.centered
    cdef Py_ssize_t count = rows.count
    cdef Py_ssize_t poor = 0
    cdef Py_ssize_t i
    if whole:
        rows_sums(NULL, x, rows.start, count, NULL, w.plan.columns, w.plan.next, centered, rows.k, NULL, a, q)
    else:
        sums_of_counted(w, rows, scratch, a, q)
    for i in range(count):
        n[i] = w.plan.columns if whole else rows.counted[i]
        one_by_n[i] = w.plan.one_by_columns if whole else 1 / n[i]
    for i in range(count):
        poor |= out_of_range(single, n[i], a[i], q[i])
        rows.d[i] = a[i] * one_by_n[i]  # so far, the mean relative to k
        rows.var[i] = q[i]
    if centered:
        for i in range(count):
            rows.var[i] = max(rows.var[i] - a[i] * rows.d[i], 0.0)
            poor |= poor_shift(n[i], a[i], rows.var[i])
    for i in range(count if poor else 0):
        if out_of_range(single, n[i], a[i], q[i]) or (centered and poor_shift(n[i], a[i], rows.var[i])):
            moments_again(w, x, rows, i, whole, a[i], q[i], scratch)
    for i in range(count):
        rows.var[i] *= one_by_n[i]
        if centered:
            shift = rows.k[i]
            rows.k[i] = rounded(single, shift + rows.d[i])
            rows.d[i] += shift - rows.k[i]
        else:
            rows.d[i] = 0
    rstds_of(&w.equation, rows.var, rows.rstd, count)
    for i in range(0 if whole else count):
        if is_undefined(w, n[i]):
            rows.rstd[i] = 0


cdef inline void store_rows_statistics(const Work* w, const Rows* rows) noexcept nogil:
    cdef Py_ssize_t size = rows.count * sizeof(double)
    cdef Py_ssize_t i, at
    for i in range(0 if w.count == NULL else rows.count):
        w.count[rows.number[i]] = rows.counted[i]
    if is_side_by_side(w, rows.count):
        memcpy(w.k + rows.row, rows.k, size)
        memcpy(w.d + rows.row, rows.d, size)
        memcpy(w.var + rows.row, rows.var, size)
        memcpy(w.rstd + rows.row, rows.rstd, size)
    else:
        for i in range(rows.count):
            at = number_of(w, rows, i)
            w.k[at], w.d[at], w.var[at], w.rstd[at] = rows.k[i], rows.d[i], rows.var[i], rows.rstd[i]


cdef inline void load_rows_statistics(const Work* w, Rows* rows) noexcept nogil:
    cdef Py_ssize_t size = rows.count * sizeof(double)
    cdef Py_ssize_t i, at
    if is_side_by_side(w, rows.count):
        memcpy(rows.k, w.k + rows.row, size)
        memcpy(rows.d, w.d + rows.row, size)
        memcpy(rows.rstd, w.rstd + rows.row, size)
    else:
        for i in range(rows.count):
            at = number_of(w, rows, i)
            rows.k[i], rows.d[i], rows.rstd[i] = w.k[at], w.d[at], w.rstd[at]


cdef inline void rows_factors(const Work* w, const Data* dy, const Data* x, Rows* rows) noexcept nogil:
    """Compute p and q of rows from their sums, and keep these if ds and db are made of them. See row_factors."""
    cdef const void* s = w.s if w.plan.each else NULL
    cdef double one_by_n[ROWS]
    cdef double sum[ROWS]
    cdef double sum_x[ROWS]
    cdef double scale
    cdef Py_ssize_t i
    rows_sums(
        dy, x, rows.start, rows.count, param_at(w, s, rows.param[0]), w.plan.columns, w.plan.next, False, rows.k,
        rows.d, sum, sum_x,
    )
    for i in range(rows.count if w.slot_sums != NULL else 0):
        partial_sums(w, number_of(w, rows, i))[0] = sum[i]
        partial_sums_x(w, number_of(w, rows, i))[0] = sum_x[i]
    if w.s != NULL and not w.plan.each:
        for i in range(rows.count):
            scale = param_value(w, w.s, rows.param[i])
            sum[i] *= scale
            sum_x[i] *= scale
    for i in range(rows.count):
        one_by_n[i] = w.plan.one_by_columns if w.count == NULL else one_by_count(w, rows.number[i])
    for i in range(rows.count):
        rows.p[i] = rows.rstd[i] * sum[i] * one_by_n[i] if w.equation.centered else 0
    for i in range(rows.count):
        rows.q[i] = rows.rstd[i] * (sum_x[i] * rows.rstd[i])
    for i in range(rows.count if w.equation.guard else 0):
        rows.q[i] *= slope_of(&w.equation, w.var[number_of(w, rows, i)])
    for i in range(rows.count):
        rows.q[i] *= one_by_n[i]
