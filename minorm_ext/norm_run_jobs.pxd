# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# The jobs on short runs of rows that lie beside each other: BatchNorm of small images that come from memory.
#
# A row is then pieces of some hundred bytes all over memory, which come at a third of its rate. So all rows walk along
# together, in the order of memory: in the first phase some runs of one row, then the same runs of the next; in the
# second, run by run, and what they become is collected in a room and sent in whole lines. The sums are those that
# norm_row_jobs.pxd takes, bit by bit, with the loops interchanged.

from libc.string cimport memset

from minorm_ext.nest cimport Nest
from minorm_ext.norm_apply cimport apply_rows, grad_rows
from minorm_ext.norm_moments cimport Moments, merge
from minorm_ext.norm_row_jobs cimport last_chunk, row_factors
from minorm_ext.norm_rows cimport CHUNK, chunk_span, moments_of_sums
from minorm_ext.norm_short_jobs cimport BOXED, FEW
from minorm_ext.norm_sums cimport BATCH, BRIEF, WIDTH, Span, beside_grad_sums, beside_sums, sample_mean, total
from minorm_ext.norm_work cimport OWN, Work, ceil_div
from minorm_ext.storage cimport (
    Data, here, item, minorm_outbox, minorm_outbox_close, minorm_outbox_open, minorm_outbox_place, minorm_outbox_send,
    real, size_of,
)

cdef enum:
    BESIDE = 32        # rows that take turns in the first phase: their accumulators stay in cache
    HELD = 2 * WIDTH   # accumulators of a row
    PORTION = 1 << 16  # elements, about, that one job of the second phase takes


cdef inline bint go_by_runs(const Work* w) noexcept nogil:
    """Are rows short runs beside each other, and do they come from memory?

    Where a processor's own cache holds a row from one phase to the next, runs must be shorter for this to pay.
    """
    cdef const Nest* n = &w.nest
    if w.lanes or w.each or not (w.x.far and w.x.direct) or w.rows == 1:
        return False
    if n.keep0.count > 1 or n.keep1.data != n.reduce1.count:
        return False
    if n.reduce0.count == 1 or n.reduce0.data != w.rows * n.reduce1.count or n.reduce0.param:
        return False
    return n.reduce1.count <= (BOXED if w.columns < OWN else <Py_ssize_t>BRIEF)


cdef inline Py_ssize_t sets_of_rows(const Work* w) noexcept nogil:
    """How many sets of rows that go along together in the first phase."""
    return ceil_div(w.rows, BESIDE)


cdef inline Py_ssize_t runs_of_portion(const Work* w) noexcept nogil:
    """How many runs of all rows one job of the second phase takes."""
    return max(1, PORTION // w.nest.reduce0.data)


cdef inline Py_ssize_t portions(const Work* w) noexcept nogil:
    return ceil_div(w.nest.reduce0.count, runs_of_portion(w))


cdef inline Py_ssize_t runs_together(const Work* w) noexcept nogil:
    """So many runs of one row, then of the next."""
    return max(1, BRIEF // w.nest.reduce1.count)


# The first phases.

cdef inline void runs_moments(const real* type, const Work* w, Py_ssize_t job) noexcept nogil:
    """One part of some rows."""
    cdef Py_ssize_t part = job % w.parts
    cdef Py_ssize_t row = job // w.parts * BESIDE
    cdef Py_ssize_t rows = min(<Py_ssize_t>BESIDE, w.rows - row)
    cdef Py_ssize_t n = w.nest.reduce1.count
    cdef Py_ssize_t step = w.nest.reduce0.data
    cdef bint centered = w.equation.centered
    cdef Py_ssize_t chunk, at, run, some, i
    cdef Moments m[BESIDE]
    cdef double first[BESIDE]
    cdef real k[BESIDE]
    cdef real held[BESIDE * HELD]
    cdef Span span
    for i in range(rows):
        m[i].n = m[i].offset = m[i].m2 = 0
        first[i] = item(&w.x, (row + i) * n)
    for chunk in range(part * w.chunks_of_part, last_chunk(w, part)):
        span = chunk_span(&w.nest, &w.cut, chunk)
        at = row * n + span.run * step
        for i in range(rows):
            k[i] = 0
            if centered:
                k[i] = <real>(first[i] + m[i].offset) if m[i].n > 0 else sample_mean(type, &w.x, at + i * n, step, span)
        memset(held, 0, rows * HELD * sizeof(real))
        run = 0
        while run < span.runs:
            some = min(runs_together(w), span.runs - run)
            beside_sums(&w.x, at + run * step, step, some, n, rows, k, held)
            run += some
        for i in range(rows):
            m[i] = merge(m[i], moments_of_sums(
                &w.x, at + i * n, step, span, first[i], k[i],
                total(held + i * HELD), total(held + i * HELD + WIDTH), centered,
            ))
    for i in range(rows):
        (<Moments*>w.partial)[(row + i) * w.parts + part] = m[i]


cdef inline void runs_sums(const real* type, const Work* w, Py_ssize_t job) noexcept nogil:
    """Fill the slots of a part of some rows: sum(dy) and sum(dy * (x - mean))."""
    cdef Py_ssize_t part = job % w.parts
    cdef Py_ssize_t row = job // w.parts * BESIDE
    cdef Py_ssize_t rows = min(<Py_ssize_t>BESIDE, w.rows - row)
    cdef Py_ssize_t n = w.nest.reduce1.count
    cdef Py_ssize_t step = w.nest.reduce0.data
    cdef Py_ssize_t chunk, at, run, some, i
    cdef double* slot
    cdef real k[BESIDE]
    cdef real d[BESIDE]
    cdef real held[BESIDE * HELD]
    cdef Span span
    for i in range(rows):
        k[i] = <real>w.k[row + i]
        d[i] = <real>w.d[row + i]
    for chunk in range(part * w.chunks_of_part, last_chunk(w, part)):
        span = chunk_span(&w.nest, &w.cut, chunk)
        at = row * n + span.run * step
        memset(held, 0, rows * HELD * sizeof(real))
        run = 0
        while run < span.runs:
            some = min(max(1, runs_together(w) // 2), span.runs - run)
            beside_grad_sums(&w.dy, &w.x, at + run * step, step, some, n, rows, k, d, held)
            run += some
        for i in range(rows):
            slot = w.partial + ((row + i) * w.slots + chunk) * 2
            slot[0] = total(held + i * HELD)
            slot[1] = total(held + i * HELD + WIDTH)


# The second phases.

cdef inline void take_factors(const real* type, const Work* w) noexcept nogil:
    """Statistics of all rows, and what the sums take off dx, in the type computed in: k, d, rstd, p and q of each."""
    cdef real* of = <real*>w.factors
    cdef Py_ssize_t row
    for row in range(w.rows):
        of[row] = <real>w.k[row]
        of[w.rows + row] = <real>w.d[row]
        of[2 * w.rows + row] = <real>w.rstd[row]
        if w.dx.items != NULL:
            row_factors(type, w, row, &of[3 * w.rows + row], &of[4 * w.rows + row])


cdef inline void runs_second(
    const real* type, const Work* w, Py_ssize_t job, const Data* to, Py_ssize_t size
) noexcept nogil:
    """y, or dx, of a portion, some runs at a time, by way of a room."""
    cdef const real* s = <const real*>w.s
    cdef const real* b = <const real*>w.b
    cdef const real* k = <const real*>w.factors
    cdef const real* d = k + w.rows
    cdef const real* r = d + w.rows
    cdef const real* p = r + w.rows
    cdef const real* q = p + w.rows
    cdef Py_ssize_t n = w.nest.reduce1.count
    cdef Py_ssize_t at_once = min(<Py_ssize_t>BATCH, max(1, size // n))
    cdef Py_ssize_t first = job * runs_of_portion(w)
    cdef Py_ssize_t at = first * w.nest.reduce0.data
    cdef Py_ssize_t end = min(first + runs_of_portion(w), w.nest.reduce0.count) * w.nest.reduce0.data
    cdef Py_ssize_t row = 0
    cdef Py_ssize_t some, i, param
    cdef Py_ssize_t start[BATCH]
    cdef Py_ssize_t params[BATCH]
    cdef real room[CHUNK]
    cdef minorm_outbox out
    cdef Data x, dy
    cdef Data result = here(to, at, room)
    for i in range(at_once):
        start[i] = i * n
        params[i] = i * w.nest.keep1.param
    minorm_outbox_open(&out, result.items, room)
    result.stream = False
    while at < end:
        some = min(at_once, w.rows - row)
        param = row * w.nest.keep1.param
        x = here(&w.x, at, room)
        result.items = minorm_outbox_place(&out)
        if w.dx.items == NULL:
            apply_rows(
                &x, &result, start, some, n, s + param if s else NULL, b + param if b else NULL, params,
                k + row, d + row, r + row,
            )
        else:
            dy = here(&w.dy, at, room)
            grad_rows(
                &dy, &x, &result, start, some, n, s + param if s else NULL, params,
                k + row, d + row, r + row, p + row, q + row,
            )
        minorm_outbox_send(&out, some * n * size_of(to.type))
        at += some * n
        row = (row + some) % w.rows
    minorm_outbox_close(&out)


cdef inline void runs_apply(const real* type, const Work* w, Py_ssize_t job) noexcept nogil:
    """y of a portion."""
    runs_second(type, w, job, &w.y, FEW)


cdef inline void runs_input(const real* type, const Work* w, Py_ssize_t job) noexcept nogil:
    """dx of a portion."""
    runs_second(type, w, job, &w.dx, FEW // 4)
