# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# The second phases on rows, into the cache. A part of a long row goes chunk by chunk; short rows that go together share
# parameters in registers, or have one each. Parts of long rows go around the cache by the same loops (streamed.pxd).

from minorm_ext.norm.kernels cimport (
    Runs, ShortRows, apply, apply_rows, grad, grad_rows,
)
from minorm_ext.norm.nest cimport row_data, row_param
from minorm_ext.norm.plan cimport NT_ROWS
from minorm_ext.norm.rows cimport CHUNK, Span, chunk_span, fetch_span, put_span, runs_of
from minorm_ext.norm.statistics cimport Rows, all_count, last_chunk, row_factors, see_both
from minorm_ext.norm.work cimport ABSENT, Work, param_at
from minorm_ext.simd.storage cimport Data, Source, see


# A part of a long row. It asks for nothing ahead: a row that comes next would drive this one out of the cache (on AVX2
# a LayerNorm over 8192 elements took 1.3 times as long, a GroupNorm of 128x64x56x56 1.4 times).

cdef inline void part_apply(const Work* w, Py_ssize_t row, Py_ssize_t part) noexcept nogil:
    cdef Py_ssize_t data = row_data(&w.plan.nest, row)
    cdef Py_ssize_t param = row_param(&w.plan.nest, row)
    cdef double[CHUNK] x_scratch
    cdef double[CHUNK] y_scratch
    cdef Source x, y
    cdef Py_ssize_t chunk, at
    cdef Runs runs
    cdef Span span
    for chunk in range(part * w.plan.chunks_of_part, last_chunk(w, part)):
        span = chunk_span(&w.plan.nest, &w.plan.cut, chunk)
        see_both(w, row, &x, x_scratch, &w.y, &y, y_scratch, all_count(w, data, span))
        fetch_span(&x.data, &w.plan.nest, data, span, x_scratch, w.plan.single)
        runs = runs_of(&x.data, &w.plan.nest, data, span)
        at = param + span.run * runs.param + span.element * w.plan.nest.reduce1.param
        runs.k, runs.d, runs.r = w.k[row], w.d[row], w.rstd[row]
        apply(&x.view, &y.view, &runs, param_at(w, w.s, at), param_at(w, w.b, at), w.plan.each)
        put_span(&y.data, &w.plan.nest, data, span, y_scratch, w.plan.single)


cdef inline void part_input(const Work* w, Py_ssize_t row, Py_ssize_t part, void* collected) noexcept nogil:
    """dx of a part; and add to ds and db where each element has a parameter."""
    cdef Py_ssize_t data = row_data(&w.plan.nest, row)
    cdef Py_ssize_t param = row_param(&w.plan.nest, row)
    cdef double[CHUNK] x_scratch
    cdef double[CHUNK] dy_scratch
    cdef double[CHUNK] dx_scratch
    cdef Source x, dy, dx
    cdef void* s
    cdef void* ds
    cdef void* db
    cdef double p, q
    cdef Py_ssize_t chunk, at
    cdef Runs runs
    cdef Span span
    cdef bint whole
    row_factors(w, row, &p, &q)
    for chunk in range(part * w.plan.chunks_of_part, last_chunk(w, part)):
        span = chunk_span(&w.plan.nest, &w.plan.cut, chunk)
        whole = all_count(w, data, span)
        see_both(w, row, &x, x_scratch, &w.dy, &dy, dy_scratch, whole)
        see(&dx, &w.dx, whole, dx_scratch, w.plan.single)
        fetch_span(&x.data, &w.plan.nest, data, span, x_scratch, w.plan.single)
        fetch_span(&dy.data, &w.plan.nest, data, span, dy_scratch, w.plan.single)
        runs = runs_of(&x.data, &w.plan.nest, data, span)
        s = param_at(w, w.s, param + span.run * runs.param + span.element * w.plan.nest.reduce1.param)
        at = (span.run * w.plan.nest.reduce1.count if runs.param else 0) + span.element
        ds = param_at(w, collected, at)
        db = param_at(w, collected, w.plan.pitch + at)
        runs.k, runs.d, runs.r, runs.p, runs.q = w.k[row], w.d[row], w.rstd[row], p, q
        grad(
            &dy.view, &x.view, &dx.view if w.dx.items != NULL else NULL, &runs, w.sums == ABSENT, s, w.plan.each, ds, db
        )
        if w.dx.items != NULL:
            put_span(&dx.data, &w.plan.nest, data, span, dx_scratch, w.plan.single)


# Short rows that go together. x, dy, y and dx are views that begin with the first.

cdef inline ShortRows all_of(const Work* w, Rows* rows) noexcept nogil:
    cdef ShortRows all
    all.count, all.n, all.next = rows.count, w.plan.columns, w.plan.next
    all.start, all.param = rows.start, rows.param
    all.k, all.d, all.r, all.p, all.q = rows.k, rows.d, rows.rstd, rows.p, rows.q
    return all


cdef inline Runs one_run(const Work* w, const Rows* rows, Py_ssize_t i) noexcept nogil:
    cdef Runs run
    run.at, run.runs, run.n, run.step, run.param = rows.start[i], 1, w.plan.columns, 0, 0
    run.next = rows.next.data - rows.first
    run.k, run.d, run.r, run.p, run.q = rows.k[i], rows.d[i], rows.rstd[i], rows.p[i], rows.q[i]
    return run


cdef inline bint in_registers(const Work* w) noexcept nogil:
    """Are the parameters of all the rows?"""
    return w.plan.shared or (w.plan.alone and w.plan.stores != NT_ROWS)


cdef inline void short_apply(const Work* w, const Data* x, const Data* y, Rows* rows) noexcept nogil:
    cdef ShortRows all = all_of(w, rows)
    cdef Py_ssize_t i, at
    cdef Runs run
    if in_registers(w):
        apply_rows(x, y, &all, w.s, w.b, w.plan.shared)
        return
    for i in range(rows.count):
        run, at = one_run(w, rows, i), rows.param[i]
        apply(x, y, &run, param_at(w, w.s, at), param_at(w, w.b, at), w.plan.each)


cdef inline void short_grad(
    const Work* w, const Data* dy, const Data* x, const Data* dx, Rows* rows, void* ds
) noexcept nogil:
    cdef ShortRows all = all_of(w, rows)
    cdef void* db = param_at(w, ds, w.plan.pitch)
    cdef Py_ssize_t i
    cdef Runs run
    if in_registers(w):
        grad_rows(dy, x, dx, &all, w.s, w.plan.shared, ds, db)
        return
    for i in range(rows.count):
        run = one_run(w, rows, i)
        grad(dy, x, dx, &run, False, param_at(w, w.s, rows.param[i]), w.plan.each, ds, db)
