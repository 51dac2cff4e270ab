# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# The jobs on short runs of rows that lie beside each other: BatchNorm of small images that come from memory.
#
# A row is then pieces of some hundred bytes all over memory, which come at a third of its rate. So all rows walk along
# together, in the order of memory: in the first phase some runs of one row, then the same runs of the next; in the
# second, run by run, and what they become is collected in a room and sent in whole lines. The sums are those that
# row_jobs.pxd takes, bit by bit, with the loops interchanged.

from libc.string cimport memset

from minorm_ext.norm.nest cimport Nest
from minorm_ext.norm.apply cimport apply_rows, grad_rows
from minorm_ext.norm.lines cimport FACTORS, apply_lines, fills_lines, grad_lines
from minorm_ext.norm.moments cimport Moments, merge
from minorm_ext.norm.row_jobs cimport last_chunk, row_factors
from minorm_ext.norm.rows cimport CHUNK, chunk_span, moments_of_sums
from minorm_ext.norm.short_jobs cimport FEW, ROOMY
from minorm_ext.norm.sums cimport BATCH, BRIEF, WIDTH, Span, beside_grad_sums, beside_sums, sample_mean, total
from minorm_ext.norm.plan cimport OWN, Work, ceil_div, tally, tally_x
from minorm_ext.simd.storage cimport (
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
    return n.reduce1.count <= (ROOMY if w.columns < OWN else <Py_ssize_t>BRIEF)


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
            tally(type, w, row + i)[chunk] = total(held + i * HELD)
            tally_x(type, w, row + i)[chunk] = total(held + i * HELD + WIDTH)


# The second phases.

cdef inline Py_ssize_t factors_across(const Work* w) noexcept nogil:
    """From one factor of all rows to the next: the row before the first is the last."""
    return w.rows + 1


cdef inline void take_factors(const real* type, const Work* w) noexcept nogil:
    """What the second phase takes of all rows, in the type computed in: see lines.h."""
    cdef const real* s = <const real*>w.s
    cdef const real* b = <const real*>w.b
    cdef real* of = <real*>w.factors
    cdef Py_ssize_t across = factors_across(w)
    cdef Py_ssize_t row, param
    cdef real* its
    cdef real r
    for row in range(w.rows):
        its = of + 1 + row
        param = row * w.nest.keep1.param
        r = <real>w.rstd[row]
        its[0] = <real>w.k[row]
        its[across] = <real>w.d[row]
        its[2 * across] = r * s[param] if s else r
        if w.dx.items == NULL:
            its[3 * across] = b[param] if b else <real>-0.0
        else:
            its[3 * across] = r
            row_factors(type, w, row, &its[4 * across], &its[5 * across])
    for row in range(FACTORS):
        of[row * across] = of[row * across + w.rows]


cdef inline void runs_second(
    const real* type, const Work* w, Py_ssize_t job, const Data* to, Py_ssize_t size
) noexcept nogil:
    """y, or dx, of a portion: some runs at a time, by way of a room; or all rows at a time, where runs fill lines."""
    cdef const real* s = <const real*>w.s
    cdef const real* none = NULL
    cdef const real* of = <const real*>w.factors
    cdef Py_ssize_t across = factors_across(w)
    cdef const real* k = of + 1
    cdef const real* d = k + across
    cdef const real* c = d + across
    cdef const real* r = c + across  # or b
    cdef const real* p = r + across
    cdef const real* q = p + across
    cdef Py_ssize_t n = w.nest.reduce1.count
    cdef bint lined = fills_lines(to, n)
    cdef Py_ssize_t at_once = w.rows if lined else min(<Py_ssize_t>BATCH, max(1, size // n))
    cdef Py_ssize_t first = job * runs_of_portion(w)
    cdef Py_ssize_t begin = first * w.nest.reduce0.data
    cdef Py_ssize_t end = min(first + runs_of_portion(w), w.nest.reduce0.count) * w.nest.reduce0.data
    cdef Py_ssize_t at = begin
    cdef Py_ssize_t row = 0
    cdef Py_ssize_t some, i
    cdef Py_ssize_t start[BATCH]
    cdef Py_ssize_t each[BATCH]
    cdef Py_ssize_t params[BATCH]
    cdef real room[CHUNK]
    cdef minorm_outbox out
    cdef Data x, dy
    cdef Data result = here(to, at, room)
    for i in range(BATCH):
        start[i] = i * n
        each[i] = i
        params[i] = i * w.nest.keep1.param
    minorm_outbox_open(&out, result.items, room)
    result.stream = False
    while at < end:
        some = min(at_once, w.rows - row)
        x = here(&w.x, at, room)
        dy = here(&w.dy, at, room)
        if not lined:
            result.items = minorm_outbox_place(&out)
        if lined and w.dx.items == NULL:
            apply_lines(&w.x, to, at, none, none, n, some, at == begin, at + some * n == end, 0, of, across)
        elif lined:
            grad_lines(&w.dy, &w.x, to, at, none, NULL, NULL, n, some, at == begin, at + some * n == end, 0, of, across)
        elif w.dx.items == NULL:
            apply_rows(&x, &result, start, some, n, none, r + row, each, k + row, d + row, c + row)
        else:
            grad_rows(
                &dy, &x, &result, start, some, n, s + row * w.nest.keep1.param if s else NULL, params,
                k + row, d + row, r + row, p + row, q + row,
            )
        if not lined:
            minorm_outbox_send(&out, some * n * size_of(to.type))
        at += some * n
        row = (row + some) % w.rows
    if not lined:
        minorm_outbox_close(&out)


cdef inline void runs_apply(const real* type, const Work* w, Py_ssize_t job) noexcept nogil:
    """y of a portion."""
    runs_second(type, w, job, &w.y, FEW)


cdef inline void runs_input(const real* type, const Work* w, Py_ssize_t job) noexcept nogil:
    """dx of a portion."""
    runs_second(type, w, job, &w.dx, FEW // 4)
