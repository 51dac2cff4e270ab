# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# The second phases on rows, into the cache. A part of a long row goes chunk by chunk; short rows that go together share
# parameters in registers, or have one each. Parts of long rows go around the cache by the same loops (streamed.pxd).

from minorm_ext.norm.kernels cimport Runs, ShortRows, apply, apply_rows, grad, grad_rows
from minorm_ext.norm.plan cimport NT_ROWS
from minorm_ext.norm.rows cimport CHUNK, put_span
from minorm_ext.norm.short_rows cimport Rows
from minorm_ext.norm.statistics cimport Chunk, last_chunk, row_factors, take_chunk, take_with
from minorm_ext.norm.work cimport ABSENT, Work, param_at
from minorm_ext.simd.storage cimport Data, Source, see


# A part of a long row. It prefetches nothing: the next row would drive this row out of the cache (on AVX2
# a LayerNorm over 8192 elements took 1.3 times as long, a GroupNorm of 128x64x56x56 1.4 times).

cdef inline void part_apply(const Work* w, Py_ssize_t row, Py_ssize_t part) noexcept nogil:
    cdef double[CHUNK] x_scratch
    cdef double[CHUNK] y_scratch
    cdef Chunk chunk
    cdef Source y
    cdef void* s
    cdef void* b
    cdef Py_ssize_t number
    for number in range(part * w.plan.chunks_of_part, last_chunk(w, part)):
        take_chunk(w, row, number, x_scratch, &chunk)
        see(&y, &w.y, chunk.whole, y_scratch, w.plan.single)
        s, b = param_at(w, w.s, chunk.param), param_at(w, w.b, chunk.param)
        apply(&chunk.x.view, &y.view, &chunk.runs, s, b, w.plan.each)
        put_span(&y.data, &w.plan.nest, chunk.span, y_scratch, w.plan.single)


cdef inline void part_input(const Work* w, Py_ssize_t row, Py_ssize_t part, void* collected) noexcept nogil:
    """Compute dx of a part; and add to ds and db if each element has a parameter."""
    cdef double[CHUNK] x_scratch
    cdef double[CHUNK] dy_scratch
    cdef double[CHUNK] dx_scratch
    cdef Chunk chunk
    cdef Source dy, dx
    cdef const Data* result = &dx.view if w.dx.items != NULL else NULL
    cdef void* s
    cdef void* ds
    cdef void* db
    cdef double p, q
    cdef Py_ssize_t number, at
    row_factors(w, row, &p, &q)
    for number in range(part * w.plan.chunks_of_part, last_chunk(w, part)):
        take_chunk(w, row, number, x_scratch, &chunk)
        take_with(w, &chunk, &w.dy, dy_scratch, &dy)
        see(&dx, &w.dx, chunk.whole, dx_scratch, w.plan.single)
        s = param_at(w, w.s, chunk.param)
        at = (chunk.span.run * w.plan.nest.reduce1.count if chunk.runs.param else 0) + chunk.span.element
        ds, db = param_at(w, collected, at), param_at(w, collected, w.plan.pitch + at)
        chunk.runs.p, chunk.runs.q = p, q
        grad(&dy.view, &chunk.x.view, result, &chunk.runs, w.sums == ABSENT, s, w.plan.each, ds, db)
        if result != NULL:
            put_span(&dx.data, &w.plan.nest, chunk.span, dx_scratch, w.plan.single)


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
    """Return whether the parameters of all rows are in registers."""
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
