# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# The jobs on rows of short runs that follow each other, with a parameter each (GroupNorm of small images), whose
# results go around the cache: the second phase takes all runs of a block as one stretch of lines (lines.h).

from minorm_ext.norm.nest cimport Nest, row_data, row_param
from minorm_ext.norm.lines cimport ACROSS, FACTORS, apply_lines, fills_lines, grad_lines, keep_last
from minorm_ext.norm.moments cimport Moments
from minorm_ext.norm.row_jobs cimport part_sums, row_factors, row_moments, rows_combine, store_statistics, to_next
from minorm_ext.norm.short_rows cimport rows_follow
from minorm_ext.norm.sums cimport BATCH
from minorm_ext.norm.plan cimport ABSENT, Work
from minorm_ext.simd.storage cimport Data, item, real


cdef inline bint lines_pay(const Work* w, const Data* result) noexcept nogil:
    cdef const Nest* n = &w.nest
    if w.each or n.reduce0.param == 0 or n.reduce0.data != n.reduce1.count or w.cut.pieces > 1:
        return False
    return fills_lines(result, n.reduce1.count) and rows_follow(w)


cdef inline bint line_forward_pays(const Work* w) noexcept nogil:
    return w.apply and lines_pay(w, &w.y)


cdef inline bint line_backward_pays(const Work* w) noexcept nogil:
    return w.dx.items != NULL and w.sums != ABSENT and lines_pay(w, &w.dx)


cdef inline void row_lines(
    const real* type, const Work* w, Py_ssize_t row, bint opens, bint closes, Py_ssize_t next, real* known
) noexcept nogil:
    """y of a row, or dx, where there is one. `known` has the run before it, and then its last."""
    cdef const real* s = <const real*>w.s
    cdef const real* b = <const real*>w.b
    cdef const real* none = NULL
    cdef real* k = known + 1
    cdef real* d = k + ACROSS
    cdef real* c = d + ACROSS
    cdef real* r = c + ACROSS  # or b
    cdef real* p = r + ACROSS
    cdef real* q = p + ACROSS
    cdef Py_ssize_t n = w.nest.reduce1.count
    cdef Py_ssize_t step = w.nest.reduce0.param
    cdef Py_ssize_t at = row_data(&w.nest, row)
    cdef Py_ssize_t param = row_param(&w.nest, row)
    cdef Py_ssize_t left = w.nest.reduce0.count
    cdef bint backward = w.dx.items != NULL
    cdef real rstd = <real>w.rstd[row]
    cdef real its_p = 0
    cdef real its_q = 0
    cdef Py_ssize_t some, i
    if backward:
        row_factors(type, w, row, &its_p, &its_q)
    while left > 0:
        some = min(<Py_ssize_t>BATCH, left)
        left -= some
        for i in range(some):
            k[i] = <real>w.k[row]
            d[i] = <real>w.d[row]
            c[i] = rstd * s[param + i * step] if s else rstd
            if backward:
                r[i] = rstd
                p[i] = its_p
                q[i] = its_q
            else:
                r[i] = b[param + i * step] if b else <real>-0.0
        if backward:
            grad_lines(
                &w.dy, &w.x, &w.dx, at, none, NULL, NULL, n, some, opens, closes and left == 0, next, known, ACROSS
            )
        else:
            apply_lines(&w.x, &w.y, at, none, none, n, some, opens, closes and left == 0, next, known, ACROSS)
        keep_last(known, some)
        at += some * n
        param += some * step
        opens = False


cdef inline void line_forward(const real* type, const Work* w, Py_ssize_t job) noexcept nogil:
    """The rows of a block through both phases."""
    cdef real known[FACTORS * ACROSS]
    cdef Py_ssize_t begin = job % w.blocks * w.members_of_block
    cdef Py_ssize_t end = min(begin + w.members_of_block, w.members)
    cdef Py_ssize_t row, data
    cdef Moments m
    for row in range(begin, end):
        if w.moments:
            data = row_data(&w.nest, row)
            m = row_moments(type, w, data)
            store_statistics(type, w, row, item(&w.x, data), m.offset, m.m2 * w.one_by_columns)
        row_lines(type, w, row, row == begin, row + 1 == end, to_next(w, row, row), known)


cdef inline void line_backward(const real* type, const Work* w, Py_ssize_t job) noexcept nogil:
    cdef real known[FACTORS * ACROSS]
    cdef Py_ssize_t begin = job % w.blocks * w.members_of_block
    cdef Py_ssize_t end = min(begin + w.members_of_block, w.members)
    cdef Py_ssize_t row, part
    for row in range(begin, end):
        if w.tally:
            for part in range(w.parts):
                part_sums(type, w, row, part)
            rows_combine(type, w, row)
        row_lines(type, w, row, row == begin, row + 1 == end, to_next(w, row, row), known)
