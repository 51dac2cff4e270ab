# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# The jobs on short rows: a row is one run that fits a chunk (LayerNorm, RMSNorm, InstanceNorm of small images).
#
# On a row of 64 elements a square root and a division take as long as all the rest. So some rows go together: first the
# sums of each, then the statistics of all, which vectorises, then the second phase of each, while they are in cache.

from libc.math cimport sqrt

from minorm_ext.nest cimport row_data, row_param
from minorm_ext.norm_moments cimport Moments, out_of_range, poor_shift, real, rstd_of, slope_of
from minorm_ext.norm_row_jobs cimport collected_by
from minorm_ext.norm_rows cimport (
    REACH, WIDTH, Span, apply_each, apply_same, grad_input_each, grad_input_same, grad_params_each, grad_sums,
    sample_mean, shifted_sums, short_sums, span_moments,
)
from minorm_ext.norm_work cimport Work

cdef enum:
    BATCH = 32           # rows that go together, at most
    BATCH_SIZE = 1024    # elements of them, at most, unless one row has more; few, so that reading and writing overlap


cdef inline Py_ssize_t row_of(const Work* w, Py_ssize_t block, Py_ssize_t member) noexcept nogil:
    return block // w.blocks * w.group_step + member * w.member_step


cdef inline Span whole_row(const Work* w) noexcept nogil:
    cdef Span span
    span.run = 0
    span.runs = 1
    span.element = 0
    span.length = w.columns
    return span


cdef inline void statistics_of(
    const real* x, const Work* w, const Py_ssize_t* data, Py_ssize_t n, real* k, real* d, real* r,
    double* var, double* rstd
) noexcept nogil:
    """k, d, var and rstd of n rows that begin at x + data."""
    cdef real a[BATCH]
    cdef real q[BATCH]
    cdef double offset[BATCH]
    cdef double shift
    cdef double m = w.columns
    cdef double one = w.one_by_columns
    cdef bint centered = w.equation.centered
    cdef bint brief = w.columns <= REACH * WIDTH
    cdef int odd = 0
    cdef Moments moments
    cdef Py_ssize_t i
    for i in range(n):
        k[i] = sample_mean(x + data[i], 0, whole_row(w)) if centered else 0
        if brief:
            short_sums(x + data[i], w.columns, k[i], &a[i], &q[i])
        else:
            shifted_sums(x + data[i], 0, whole_row(w), k[i], &a[i], &q[i])
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
                moments = span_moments(x + data[i], 0, whole_row(w), k[i], centered)
                k[i] = x[data[i]] if centered else 0
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
    if w.equation.guard:
        for i in range(n):
            rstd[i] = rstd_of(&w.equation, var[i])
    else:
        for i in range(n):
            rstd[i] = 1 / sqrt(var[i] + w.equation.eps)
    for i in range(n):
        r[i] = <real>rstd[i]


cdef inline void short_forward(const real* x, const Work* w, Py_ssize_t job) noexcept nogil:
    """The rows of a block, some at a time, through both phases."""
    cdef real* y = <real*>w.y
    cdef const real* s = <const real*>w.s
    cdef const real* b = <const real*>w.b
    cdef Py_ssize_t data[BATCH]
    cdef real k[BATCH]
    cdef real d[BATCH]
    cdef real r[BATCH]
    cdef double var[BATCH]
    cdef double rstd[BATCH]
    cdef Py_ssize_t at_once = min(<Py_ssize_t>BATCH, max(1, BATCH_SIZE // w.columns))
    cdef Py_ssize_t member = job % w.blocks * w.members_of_block
    cdef Py_ssize_t end = min(member + w.members_of_block, w.members)
    cdef Py_ssize_t n, i, row, p
    while member < end:
        n = min(at_once, end - member)
        for i in range(n):
            data[i] = row_data(&w.nest, row_of(w, job, member + i))
        if w.moments:
            statistics_of(x, w, data, n, k, d, r, var, rstd)
            for i in range(n):
                row = row_of(w, job, member + i)
                w.k[row] = k[i]
                w.d[row] = d[i]
                w.var[row] = var[i]
                w.rstd[row] = rstd[i]
        if w.apply:
            for i in range(n):
                row = row_of(w, job, member + i)
                p = row_param(&w.nest, row)
                if not w.moments:
                    k[i] = <real>w.k[row]
                    d[i] = <real>w.d[row]
                    r[i] = <real>w.rstd[row]
                if w.each and (s != NULL or b != NULL):
                    apply_each(
                        x + data[i], y + data[i], w.columns, k[i], d[i], r[i],
                        s + p if s else NULL, b + p if b else NULL,
                    )
                else:
                    apply_same(
                        x + data[i], y + data[i], w.columns, k[i], d[i], r[i] * s[p] if s else r[i], b[p] if b else 0
                    )
        member += n


cdef inline void short_backward(const real* x, const Work* w, Py_ssize_t job) noexcept nogil:
    """The same for a backward pass that computes its sums and fills dx."""
    cdef const real* dy = <const real*>w.dy
    cdef real* dx = <real*>w.dx
    cdef const real* s = <const real*>w.s
    cdef real* ds = collected_by(x, w, job)
    cdef real sum[BATCH]
    cdef real sum_x[BATCH]
    cdef Py_ssize_t data[BATCH]
    cdef Py_ssize_t param[BATCH]
    cdef real k[BATCH]
    cdef real d[BATCH]
    cdef real r[BATCH]
    cdef real c[BATCH]
    cdef real p[BATCH]
    cdef real q[BATCH]
    cdef bint each = w.each and s != NULL
    cdef double rstd, scale
    cdef Py_ssize_t at_once = min(<Py_ssize_t>BATCH, max(1, BATCH_SIZE // 2 // w.columns))
    cdef Py_ssize_t member = job % w.blocks * w.members_of_block
    cdef Py_ssize_t end = min(member + w.members_of_block, w.members)
    cdef Py_ssize_t n, i, row
    while member < end:
        n = min(at_once, end - member)
        for i in range(n):
            row = row_of(w, job, member + i)
            data[i] = row_data(&w.nest, row)
            param[i] = row_param(&w.nest, row)
            k[i] = <real>w.k[row]
            d[i] = <real>w.d[row]
            r[i] = <real>w.rstd[row]
        for i in range(n):
            if each:
                grad_sums(
                    dy + data[i], x + data[i], 0, s + param[i], 0, whole_row(w), k[i], d[i], &sum[i], &sum_x[i]
                )
            else:
                grad_sums(
                    dy + data[i], x + data[i], 0, <const real*>NULL, 0, whole_row(w), k[i], d[i], &sum[i], &sum_x[i]
                )
        for i in range(n):
            row = row_of(w, job, member + i)
            scale = 1
            if s != NULL and not each:
                scale = s[param[i]]
            c[i] = r[i] * <real>scale
            rstd = w.rstd[row] * scale * w.one_by_columns
            p[i] = <real>(rstd * sum[i]) if w.equation.centered else 0
            q[i] = <real>(rstd * (sum_x[i] * w.rstd[row]) * slope_of(&w.equation, w.var[row]))
            if w.partial != NULL:
                w.partial[2 * row] = sum[i]
                w.partial[2 * row + 1] = sum_x[i]
        for i in range(n):
            if each:
                grad_input_each(
                    dy + data[i], x + data[i], s + param[i], dx + data[i], w.columns, k[i], d[i], r[i], p[i], q[i]
                )
            else:
                grad_input_same(dy + data[i], x + data[i], dx + data[i], w.columns, k[i], d[i], r[i], c[i], p[i], q[i])
            if ds != NULL:
                grad_params_each(dy + data[i], x + data[i], ds, ds + w.extent, w.columns, k[i], d[i], r[i])
        member += n
