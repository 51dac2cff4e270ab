# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# The first phases on long rows: the moments of a row, or its sums, part by part and chunk by chunk, and what follows
# from them. Those of short rows are in short_rows.pxd.

from minorm_ext.norm.kernels cimport ROWS, Runs, rows_sums, sample_mean, sums
from minorm_ext.norm.moments cimport (
    Moments, merge, moments_of, out_of_range, poor_shift, rounded, rstd_of, slope_of,
)
from minorm_ext.norm.nest cimport row_data, row_param
from minorm_ext.norm.rows cimport (
    CHUNK, Span, chunk_span, count_of, counted_in, fetch_span, first_counted, gather_span, joined, runs_of,
)
from minorm_ext.norm.work cimport (
    ABSENT, Work, is_undefined, one_by_count, param_at, param_value, partial_sums, partial_sums_x,
)
from minorm_ext.simd.storage cimport Data, Source, item, see


# A chunk of a long row.

cdef struct Chunk:
    Span span
    bint whole        # do all its elements count?
    Source x          # and how the loops find them
    Runs runs         # of x, with the statistics of the row
    Py_ssize_t param  # where its parameters begin


cdef inline Py_ssize_t last_chunk(const Work* w, Py_ssize_t part) noexcept nogil:
    return min((part + 1) * w.plan.chunks_of_part, w.plan.chunks)


cdef inline void take_with(
    const Work* w, const Chunk* chunk, const Data* data, void* scratch, Source* source
) noexcept nogil:
    """Find the data that goes with the x of a chunk, such as dy."""
    see(source, data, chunk.whole, scratch, w.plan.single)
    fetch_span(&source.data, &w.plan.nest, chunk.span, scratch, w.plan.single)


cdef inline void take_chunk(
    const Work* w, Py_ssize_t row, Py_ssize_t number, void* scratch, Chunk* chunk
) noexcept nogil:
    """Take a chunk of a row whose mean is known, and x. In place of an element that does not count, the loops see the
    mean, so that it contributes only 0."""
    chunk.span = chunk_span(&w.plan.nest, &w.plan.cut, row_data(&w.plan.nest, row), number)
    chunk.whole = counted_in(&w.x, &w.plan.nest, chunk.span) == count_of(chunk.span)
    see(&chunk.x, &w.x, chunk.whole, scratch, w.plan.single)
    chunk.x.data.fill = w.k[row]
    fetch_span(&chunk.x.data, &w.plan.nest, chunk.span, scratch, w.plan.single)
    chunk.runs = runs_of(&chunk.x.data, &w.plan.nest, chunk.span)
    chunk.runs.k, chunk.runs.d, chunk.runs.r = w.k[row], w.d[row], w.rstd[row]
    chunk.param = row_param(&w.plan.nest, row)
    chunk.param += chunk.span.run * chunk.runs.param + chunk.span.element * w.plan.nest.reduce1.param


# Moments, and the statistics that follow from them.

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
    """Return the moments of runs, relative to `first`, from their sums, whose shift was k. If k proves poor, a second
    pass takes the mean that the sums show."""
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


cdef inline void find_origin(const Work* w, Py_ssize_t row) noexcept nogil:
    """Find the first element that counts, if there is a mask; k holds it until the mean is known."""
    if w.count != NULL:
        w.k[row] = first_counted(&w.x, &w.plan.nest, row_data(&w.plan.nest, row)) if w.equation.centered else 0


cdef inline double origin_of(const Work* w, Py_ssize_t row) noexcept nogil:
    """Return the origin of a row's mean: its first element, or 0 if not centered."""
    if w.count != NULL:
        return w.k[row]
    return item(&w.x, row_data(&w.plan.nest, row)) if w.equation.centered else 0


cdef inline Moments part_moments(const Work* w, Py_ssize_t row, Py_ssize_t part) noexcept nogil:
    """Return the moments of a part of a row, relative to its origin. A chunk's shift is the mean of the data so far,
    or a guess: that needs one pass. If only some elements of a chunk count, they are taken side by side."""
    cdef Moments m
    cdef double[CHUNK] scratch
    cdef Source x
    cdef double first = origin_of(w, row)
    cdef double k, a, q
    cdef Py_ssize_t number, count
    cdef Runs runs
    cdef Span span
    m.n = m.offset = m.m2 = 0
    for number in range(part * w.plan.chunks_of_part, last_chunk(w, part)):
        span = chunk_span(&w.plan.nest, &w.plan.cut, row_data(&w.plan.nest, row), number)
        count = counted_in(&w.x, &w.plan.nest, span)
        if count == 0:
            continue
        see(&x, &w.x, count == count_of(span), scratch, w.plan.single)
        if x.data.mask == NULL:
            fetch_span(&x.data, &w.plan.nest, span, scratch, w.plan.single)
            runs = runs_of(&x.data, &w.plan.nest, joined(&w.plan.nest, span))
        else:
            gather_span(&w.x, &w.plan.nest, span, scratch, w.plan.single)
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
    """Store mean = origin + offset as k + d, where k is a number of the type computed in."""
    cdef double shift = origin_of(w, row)
    cdef double k = rounded(w.plan.single, shift + m.offset)
    w.k[row] = k
    w.d[row] = (shift - k) + m.offset
    if w.count != NULL:
        w.count[row] = m.n
    w.var[row] = m.m2 * one_by_count(w, row)
    w.rstd[row] = 0 if is_undefined(w, m.n) else rstd_of(&w.equation, w.var[row])


cdef inline void row_statistics(const Work* w, Py_ssize_t row) noexcept nogil:
    """Compute the statistics of a row from all its parts, one after the other."""
    cdef Moments m
    cdef Py_ssize_t part
    find_origin(w, row)
    m = part_moments(w, row, 0)
    for part in range(1, w.plan.parts):
        m = merge(m, part_moments(w, row, part))
    store_statistics(w, row, m)


# Backward: the sums, and the terms that they subtract from dx.

cdef inline void sums_of_runs(
    const Data* dy, const Data* x, const Runs* runs, double* sum_dy, double* sum_dyx
) noexcept nogil:
    """Fill a slot for each run."""
    cdef Py_ssize_t start[ROWS]
    cdef double all_k[ROWS]
    cdef double all_d[ROWS]
    cdef Py_ssize_t run = 0
    cdef Py_ssize_t some, i
    for i in range(ROWS):
        all_k[i], all_d[i] = runs.k, runs.d
    while run < runs.runs:
        some = min(<Py_ssize_t>ROWS, runs.runs - run)
        for i in range(some):
            start[i] = runs.at + (run + i) * runs.step
        rows_sums(dy, x, start, some, NULL, runs.n, runs.next, False, all_k, all_d, sum_dy + run, sum_dyx + run)
        run += some


cdef inline void part_sums(const Work* w, Py_ssize_t row, Py_ssize_t part) noexcept nogil:
    """Fill the slots of a part: sum(dy) and sum(dy * (x - mean)), with g for dy if each element has a parameter."""
    cdef const void* s = w.s if w.plan.each else NULL
    cdef double[CHUNK] x_scratch
    cdef double[CHUNK] dy_scratch
    cdef Chunk chunk
    cdef Source dy
    cdef Runs* runs = &chunk.runs
    cdef double* sum_dy = partial_sums(w, row)
    cdef double* sum_dyx = partial_sums_x(w, row)
    cdef Py_ssize_t number
    for number in range(part * w.plan.chunks_of_part, last_chunk(w, part)):
        take_chunk(w, row, number, x_scratch, &chunk)
        take_with(w, &chunk, &w.dy, dy_scratch, &dy)
        if w.plan.slots == w.plan.chunks:
            sums(
                &dy.view, &chunk.x.view, runs.at, runs.step, param_at(w, s, chunk.param), runs.param, runs.runs, runs.n,
                runs.k, runs.d, sum_dy + number, sum_dyx + number,
            )
        else:  # short runs, each with its own parameter
            runs.next = w.plan.next
            sums_of_runs(&dy.view, &chunk.x.view, runs, sum_dy + chunk.span.run, sum_dyx + chunk.span.run)


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
    """Compute the terms that the sums subtract from dx: p + q * xhat."""
    p[0] = q[0] = 0
    if w.sums != ABSENT:
        if w.equation.centered:
            p[0] = w.rstd[row] * w.sum_g[row] * one_by_count(w, row)
        q[0] = w.rstd[row] * w.sum_gx[row] * slope_of(&w.equation, w.var[row]) * one_by_count(w, row)
