# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# The first phases on rows: their sums, and what follows from them. Long rows go part by part.
#
# On a row of 64 elements a square root and a division take as long as all the rest. So short rows, of one chunk, go
# some at a time: first the sums of each, then the statistics of all, which vectorises.

from libc.string cimport memcpy

from minorm_ext.norm.kernels cimport ROWS, Runs, rows_sums, sample_mean, sums
from minorm_ext.norm.moments cimport (
    Moments, merge, moments_of, out_of_range, poor_shift, rounded, rstd_of, rstds_of, slope_of,
)
from minorm_ext.norm.nest cimport Loop, Place, go_on, row_data, row_param
from minorm_ext.norm.rows cimport (
    CHUNK, Span, chunk_span, counted_in, fetch_span, first_counted, gather_span, joined, runs_of,
)
from minorm_ext.norm.work cimport (
    ABSENT, Work, last_member, one_by_count, param_at, param_value, partial_sums, partial_sums_x, row_of,
    says_nothing,
)
from minorm_ext.simd.storage cimport (
    Data, Source, ask, clear, counted, gather, is_direct, item, prefetch, see, stage, staged_view,
)


# Moments of a span of elements.

cdef inline void careful_sums(const Data* x, const Runs* runs, double k, double* sum, double* squares) noexcept nogil:
    """sum(x - k) and sum((x - k)^2) in double, for squares that leave the range of the type."""
    cdef double t
    cdef Py_ssize_t run, i
    sum[0] = 0
    squares[0] = 0
    for run in range(runs.runs):
        for i in range(runs.n):
            t = item(x, runs.at + run * runs.step + i) - k
            sum[0] += t
            squares[0] += t * t


cdef inline Moments moments_of_sums(
    const Work* w, const Data* x, const Runs* runs, double first, double k, double a, double q
) noexcept nogil:
    """The moments of runs, relative to `first`, from their sums, whose shift was k. Where that proves poor, a second
    pass takes the mean they show."""
    cdef bint centered = w.equation.centered
    cdef double n = <double>runs.runs * runs.n
    cdef double shift = k
    if out_of_range(w.plan.single, n, a, q):
        careful_sums(x, runs, shift, &a, &q)
        if centered:
            shift += a / n
            careful_sums(x, runs, shift, &a, &q)
    elif centered and poor_shift(n, a, q - a * a / n):
        shift = rounded(w.plan.single, k + a / n)
        sums(NULL, x, runs.at, runs.step, NULL, 0, runs.runs, runs.n, shift, 0, &a, &q)
    return moments_of(n, shift - first, a, q, centered)


# Forward, long rows.

cdef inline Py_ssize_t last_chunk(const Work* w, Py_ssize_t part) noexcept nogil:
    return min((part + 1) * w.plan.chunks_of_part, w.plan.chunks)


cdef inline void find_origin(const Work* w, Py_ssize_t row) noexcept nogil:
    """Where a mask decides which element is the first, its place is found once, and k keeps it until the mean is
    there."""
    if w.count != NULL:
        w.k[row] = first_counted(&w.x, &w.plan.nest, row_data(&w.plan.nest, row)) if w.equation.centered else 0


cdef inline double origin_of(const Work* w, Py_ssize_t row) noexcept nogil:
    """What the mean of a row is relative to: its first element, or 0 if not centered."""
    if w.count != NULL:
        return w.k[row]
    return item(&w.x, row_data(&w.plan.nest, row)) if w.equation.centered else 0


cdef inline Moments part_moments(const Work* w, Py_ssize_t row, Py_ssize_t part) noexcept nogil:
    """Of a part of a row, relative to its origin. The shift of a chunk is what is known of the mean so far, or a guess:
    that needs one pass. Where only some elements of a chunk count, it is these, side by side."""
    cdef Moments m
    cdef Py_ssize_t data = row_data(&w.plan.nest, row)
    cdef double[CHUNK] scratch
    cdef Source x
    cdef double first = origin_of(w, row)
    cdef double k, a, q
    cdef Py_ssize_t chunk
    cdef Py_ssize_t count = 0
    cdef Runs runs
    cdef Span span
    see(&x, &w.x, w.x.mask == NULL, scratch, w.plan.single)
    m.n = m.offset = m.m2 = 0
    for chunk in range(part * w.plan.chunks_of_part, last_chunk(w, part)):
        span = chunk_span(&w.plan.nest, &w.plan.cut, chunk)
        if w.x.mask != NULL:
            count = counted_in(&w.x, &w.plan.nest, data, span)
            if count == 0:
                continue
            see(&x, &w.x, count == span.runs * span.length, scratch, w.plan.single)
        if x.data.mask == NULL:
            fetch_span(&x.data, &w.plan.nest, data, span, scratch, w.plan.single)
            runs = runs_of(&x.data, &w.plan.nest, data, joined(&w.plan.nest, span))
        else:
            gather_span(&w.x, &w.plan.nest, data, span, scratch, w.plan.single)
            runs.at, runs.runs, runs.n, runs.step = 0, 1, count, 0
        k = 0
        if w.equation.centered and m.n > 0:
            k = rounded(w.plan.single, first + m.offset)
        elif w.equation.centered:
            k = sample_mean(&x.view, runs.at, runs.step * (runs.runs // 4) if runs.runs >= 4 else runs.n // 4)
        sums(NULL, &x.view, runs.at, runs.step, NULL, 0, runs.runs, runs.n, k, 0, &a, &q)
        m = merge(m, moments_of_sums(w, &x.view, &runs, first, k, a, q))
    return m


cdef inline void store_statistics(const Work* w, Py_ssize_t row, Moments m) noexcept nogil:
    """mean = origin + offset becomes k + d, where k is a number of the type computed in."""
    cdef double shift = origin_of(w, row)
    cdef double k = rounded(w.plan.single, shift + m.offset)
    w.k[row] = k
    w.d[row] = (shift - k) + m.offset
    if w.count != NULL:
        w.count[row] = m.n
    w.var[row] = m.m2 * one_by_count(w, row)
    w.rstd[row] = 0 if says_nothing(w, m.n) else rstd_of(&w.equation, w.var[row])


cdef inline void row_statistics(const Work* w, Py_ssize_t row) noexcept nogil:
    """All parts of a row, one after the other."""
    cdef Moments m
    cdef Py_ssize_t part
    find_origin(w, row)
    m = part_moments(w, row, 0)
    for part in range(1, w.plan.parts):
        m = merge(m, part_moments(w, row, part))
    store_statistics(w, row, m)


# Second phases, and backward, long rows.

cdef inline bint all_count(const Work* w, Py_ssize_t data, Span span) noexcept nogil:
    return counted_in(&w.x, &w.plan.nest, data, span) == span.runs * span.length


cdef inline void see_both(
    const Work* w, Py_ssize_t row, Source* x, void* x_scratch, const Data* other, Source* with_x, void* other_scratch,
    bint whole
) noexcept nogil:
    """Take x and what goes with it, y or dy, of a row or of a piece of it. Where an element does not count the loops
    see the mean in x, for nothing may come of it but 0."""
    see(x, &w.x, whole, x_scratch, w.plan.single)
    see(with_x, other, whole, other_scratch, w.plan.single)
    x.data.fill = w.k[row]


cdef inline void sums_of_runs(
    const Data* dy, const Data* x, const Runs* runs, double k, double d, double* sum_dy, double* sum_dyx
) noexcept nogil:
    """Fill a slot for each run."""
    cdef Py_ssize_t start[ROWS]
    cdef double all_k[ROWS]
    cdef double all_d[ROWS]
    cdef Py_ssize_t run = 0
    cdef Py_ssize_t some, i
    for i in range(ROWS):
        all_k[i], all_d[i] = k, d
    while run < runs.runs:
        some = min(<Py_ssize_t>ROWS, runs.runs - run)
        for i in range(some):
            start[i] = runs.at + (run + i) * runs.step
        rows_sums(dy, x, start, some, NULL, runs.n, runs.next, False, all_k, all_d, sum_dy + run, sum_dyx + run)
        run += some


cdef inline void part_sums(const Work* w, Py_ssize_t row, Py_ssize_t part) noexcept nogil:
    """Fill the slots of a part: sum(dy) and sum(dy * (x - mean)), with g for dy where each element has a parameter."""
    cdef const void* s = w.s if w.plan.each else NULL
    cdef Py_ssize_t data = row_data(&w.plan.nest, row)
    cdef Py_ssize_t param = row_param(&w.plan.nest, row)
    cdef double[CHUNK] x_scratch
    cdef double[CHUNK] dy_scratch
    cdef Source x, dy
    cdef double* sum_dy = partial_sums(w, row)
    cdef double* sum_dyx = partial_sums_x(w, row)
    cdef Py_ssize_t chunk
    cdef Runs runs
    cdef Span span
    for chunk in range(part * w.plan.chunks_of_part, last_chunk(w, part)):
        span = chunk_span(&w.plan.nest, &w.plan.cut, chunk)
        see_both(w, row, &x, x_scratch, &w.dy, &dy, dy_scratch, all_count(w, data, span))
        fetch_span(&x.data, &w.plan.nest, data, span, x_scratch, w.plan.single)
        fetch_span(&dy.data, &w.plan.nest, data, span, dy_scratch, w.plan.single)
        runs = runs_of(&x.data, &w.plan.nest, data, span)
        if w.plan.slots == w.plan.chunks:
            sums(
                &dy.view, &x.view, runs.at, runs.step,
                param_at(w, s, param + span.run * runs.param + span.element * w.plan.nest.reduce1.param), runs.param,
                runs.runs, runs.n, w.k[row], w.d[row], sum_dy + chunk, sum_dyx + chunk,
            )
        else:  # short runs, each with a parameter of its own
            runs.next = w.plan.next
            sums_of_runs(&dy.view, &x.view, &runs, w.k[row], w.d[row], sum_dy + span.run, sum_dyx + span.run)


cdef inline void row_sums(const Work* w, Py_ssize_t row) noexcept nogil:
    """Add up the slots of a row, always in the same order, into sum_g and sum_gx."""
    cdef const void* s = w.s if not w.plan.each else NULL
    cdef const double* sum_dy = partial_sums(w, row)
    cdef const double* sum_dyx = partial_sums_x(w, row)
    cdef double sum_g = 0
    cdef double sum_gx = 0
    cdef double scale
    cdef Py_ssize_t at = row_param(&w.plan.nest, row)
    cdef Py_ssize_t pieces = w.plan.slots_of_param
    cdef Py_ssize_t run, slot
    for run in range(w.plan.slots // pieces):
        scale = param_value(w, s, at) if s != NULL else 1
        for slot in range(run * pieces, (run + 1) * pieces):
            sum_g += scale * sum_dy[slot]
            sum_gx += scale * sum_dyx[slot]
        at += w.plan.nest.reduce0.param
    w.sum_g[row] = sum_g
    w.sum_gx[row] = sum_gx * w.rstd[row]


cdef inline void row_factors(const Work* w, Py_ssize_t row, double* p, double* q) noexcept nogil:
    """What the sums take off dx: p + q * xhat."""
    p[0] = q[0] = 0
    if w.sums != ABSENT:
        if w.equation.centered:
            p[0] = w.rstd[row] * w.sum_g[row] * one_by_count(w, row)
        q[0] = w.rstd[row] * w.sum_gx[row] * slope_of(&w.equation, w.var[row]) * one_by_count(w, row)


# Short rows that go together.

cdef struct Rows:
    Place next                # the row after them
    Py_ssize_t row            # number of the first
    Py_ssize_t count
    Py_ssize_t first          # where the first begins in the data
    Py_ssize_t data[ROWS]     # where each does
    Py_ssize_t start[ROWS]    # from there on, or in scratch memory
    Py_ssize_t param[ROWS]    # where its parameters begin
    Py_ssize_t number[ROWS]   # with a mask: its own, for rows without elements are left out,
    Py_ssize_t counted[ROWS]  # and how many of its elements count
    double k[ROWS]
    double d[ROWS]
    double var[ROWS]
    double rstd[ROWS]
    double p[ROWS]            # backward
    double q[ROWS]


cdef inline bint in_vectors(const Work* w, Py_ssize_t count) noexcept nogil:
    """Does what is known of some rows lie side by side, and is it enough for vectors to pay?"""
    return w.plan.member_step == 1 and count >= 8 and w.x.mask == NULL


cdef inline Py_ssize_t number_of(const Work* w, const Rows* rows, Py_ssize_t i) noexcept nogil:
    return rows.row + i * w.plan.member_step if w.x.mask == NULL else rows.number[i]


cdef inline void take_rows(const Work* w, Py_ssize_t row, Py_ssize_t count, Rows* rows) noexcept nogil:
    """The next rows, from number `row` on."""
    cdef const Loop* inner = &w.plan.nest.keep1
    cdef Place first = rows.next
    cdef Py_ssize_t i
    rows.row = row
    rows.count = count
    rows.first = first.data
    if in_vectors(w, count) and first.inner + count < inner.count:
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


cdef inline void leave_out(const Work* w, Py_ssize_t row, Py_ssize_t data, const Data* result) noexcept nogil:
    """A row without elements."""
    if w.moments:
        w.k[row] = w.d[row] = w.var[row] = w.rstd[row] = w.count[row] = 0
    if w.slot_sums != NULL:
        partial_sums(w, row)[0] = partial_sums_x(w, row)[0] = 0
    if result.items != NULL:
        clear(result, data, w.plan.columns)


cdef inline Py_ssize_t next_rows(
    const Work* w, Py_ssize_t block, Py_ssize_t member, const Data* result, Rows* rows, bint* whole
) noexcept nogil:
    """Take the next rows, from a member of the block on; the member after them. With a mask those that have elements:
    such of which all count, or such of which not; what a `whole` row gives does not depend on the rows beside it."""
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
            leave_out(w, row, place.data, result)
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
    """Stage them in scratch memory, if the loops do not take them where they lie."""
    cdef Py_ssize_t i
    if not data.direct:
        for i in range(rows.count):
            data.fill = fills[i] if data.mask != NULL and fills != NULL else 0
            if data.mask != NULL and w.plan.next:
                ask(data, rows.data[i] + w.plan.next, w.plan.columns)
            stage(data, rows.data[i], w.plan.columns, scratch, rows.start[i], w.plan.single)


cdef inline void sums_of_counted(const Work* w, Rows* rows, void* scratch, double* a, double* q) noexcept nogil:
    """The sums of rows of which only some elements count: of these, side by side."""
    cdef Data x = staged_view(&w.x, scratch, w.plan.single)
    cdef Py_ssize_t i
    for i in range(rows.count):
        gather(&w.x, rows.data[i], w.plan.columns, scratch, 0, w.plan.single)
        rows.k[i] = sample_mean(&x, 0, rows.counted[i] // 4) if w.equation.centered else 0
        sums(NULL, &x, 0, 0, NULL, 0, 1, rows.counted[i], rows.k[i], 0, &a[i], &q[i])


cdef inline void rows_statistics(const Work* w, const Data* x, Rows* rows, bint whole) noexcept nogil:
    """k, d, var and rstd of rows, from their sums. x lies there where all elements of the rows count."""
    cdef double[CHUNK] scratch
    cdef Data gathered = staged_view(&w.x, scratch, w.plan.single)
    cdef double a[ROWS]
    cdef double q[ROWS]
    cdef double n[ROWS]
    cdef double one[ROWS]
    cdef double shift
    cdef bint single = w.plan.single
    cdef bint centered = w.equation.centered
    cdef Py_ssize_t count = rows.count
    cdef Py_ssize_t odd = 0
    cdef Moments m
    cdef Runs run
    cdef Py_ssize_t i
    if whole:
        rows_sums(NULL, x, rows.start, count, NULL, w.plan.columns, w.plan.next, centered, rows.k, NULL, a, q)
    else:
        sums_of_counted(w, rows, scratch, a, q)
    for i in range(count):
        n[i] = w.plan.columns if whole else rows.counted[i]
        one[i] = w.plan.one_by_columns if whole else 1 / n[i]
    for i in range(count):
        odd |= out_of_range(single, n[i], a[i], q[i])
        rows.d[i] = a[i] * one[i]  # so far, the mean relative to k
        rows.var[i] = q[i]
    if centered:
        for i in range(count):
            rows.var[i] = max(rows.var[i] - a[i] * rows.d[i], 0.0)
            odd |= poor_shift(n[i], a[i], rows.var[i])
    if odd:
        for i in range(count):
            if out_of_range(single, n[i], a[i], q[i]) or (centered and poor_shift(n[i], a[i], rows.var[i])):
                run.at, run.runs, run.n, run.step = rows.start[i], 1, <Py_ssize_t>n[i], 0
                if not whole:
                    run.at = 0
                    gather(&w.x, rows.data[i], w.plan.columns, scratch, 0, single)
                    x = &gathered
                shift = item(x, run.at)
                m = moments_of_sums(w, x, &run, shift, rows.k[i], a[i], q[i])
                rows.k[i] = shift if centered else 0
                rows.d[i] = m.offset
                rows.var[i] = m.m2
    for i in range(count):
        rows.var[i] *= one[i]
        if centered:
            shift = rows.k[i]
            rows.k[i] = rounded(single, shift + rows.d[i])
            rows.d[i] += shift - rows.k[i]
        else:
            rows.d[i] = 0
    rstds_of(&w.equation, rows.var, rows.rstd, count)
    for i in range(0 if whole else count):
        if says_nothing(w, n[i]):
            rows.rstd[i] = 0


cdef inline void store_rows_statistics(const Work* w, const Rows* rows) noexcept nogil:
    cdef Py_ssize_t size = rows.count * sizeof(double)
    cdef Py_ssize_t i, at
    for i in range(0 if w.count == NULL else rows.count):
        w.count[rows.number[i]] = rows.counted[i]
    if in_vectors(w, rows.count):
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
    if in_vectors(w, rows.count):
        memcpy(rows.k, w.k + rows.row, size)
        memcpy(rows.d, w.d + rows.row, size)
        memcpy(rows.rstd, w.rstd + rows.row, size)
    else:
        for i in range(rows.count):
            at = number_of(w, rows, i)
            rows.k[i], rows.d[i], rows.rstd[i] = w.k[at], w.d[at], w.rstd[at]


cdef inline void rows_factors(const Work* w, const Data* dy, const Data* x, Rows* rows) noexcept nogil:
    """p and q of rows from their sums, which are kept where ds and db are made of them. See row_factors."""
    cdef const void* s = w.s if w.plan.each else NULL
    cdef bint centered = w.equation.centered
    cdef double one[ROWS]
    cdef double sum[ROWS]
    cdef double sum_x[ROWS]
    cdef double scale
    cdef Py_ssize_t i
    rows_sums(
        dy, x, rows.start, rows.count, param_at(w, s, rows.param[0]), w.plan.columns, w.plan.next, False, rows.k,
        rows.d, sum, sum_x,
    )
    if w.slot_sums != NULL and w.x.mask == NULL:
        memcpy(partial_sums(w, rows.row), sum, rows.count * sizeof(double))
        memcpy(partial_sums_x(w, rows.row), sum_x, rows.count * sizeof(double))
    elif w.slot_sums != NULL:
        for i in range(rows.count):
            partial_sums(w, rows.number[i])[0] = sum[i]
            partial_sums_x(w, rows.number[i])[0] = sum_x[i]
    if w.s != NULL and not w.plan.each:
        for i in range(rows.count):
            scale = param_value(w, w.s, rows.param[i])
            sum[i] *= scale
            sum_x[i] *= scale
    for i in range(rows.count):
        one[i] = w.plan.one_by_columns if w.count == NULL else one_by_count(w, rows.number[i])
    for i in range(rows.count):
        rows.p[i] = rows.rstd[i] * sum[i] * one[i] if centered else 0
    if w.equation.guard:
        for i in range(rows.count):
            sum_x[i] = sum_x[i] * rows.rstd[i]
            rows.q[i] = (
                rows.rstd[i] * sum_x[i] * slope_of(&w.equation, w.var[number_of(w, rows, i)]) * one[i]
            )
    else:
        for i in range(rows.count):
            rows.q[i] = rows.rstd[i] * (sum_x[i] * rows.rstd[i]) * one[i]
