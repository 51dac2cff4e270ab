# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# The jobs on rows of several chunks that come from memory and go to memory: the second phase of a row, chunk by chunk,
# together with the first phase of the next, as norm_far_jobs.pxd does it with rows of one chunk. A row has left the
# innermost cache when its second phase begins, but not the processor's own.

from minorm_ext.nest cimport row_data, row_param
from minorm_ext.norm_far cimport apply_and_sum, grad_and_sum
from minorm_ext.norm_far_jobs cimport HELD, SOON
from minorm_ext.norm_moments cimport Moments, merge
from minorm_ext.norm_row_jobs cimport (
    collected_at, collected_by, param_at, part_apply, part_input, part_sums, row_factors, row_moments, rows_combine,
    store_statistics,
)
from minorm_ext.norm_rows cimport Span, chunk_span, moments_of_sums, sample_mean
from minorm_ext.norm_work cimport COMPUTE, Work
from minorm_ext.storage cimport Data, ahead, item, real, size_of

cdef enum:
    NEAR = 1 << 17  # bytes of a row, at most, of which a processor's own cache holds a few


cdef inline bint long_pays(const Work* w, const Data* result) noexcept nogil:
    return (
        result.items != NULL and result.stream and result.direct and w.columns * size_of(w.x.type) < NEAR
        and w.cut.runs == 1 and w.chunks_of_part == 1
    )


cdef inline void ask_for_samples(const Work* w, Py_ssize_t data, Py_ssize_t chunk) noexcept nogil:
    """The shift of a chunk is guessed from four elements: they had better be here by then."""
    cdef Span span = chunk_span(&w.nest, &w.cut, min(chunk, w.chunks - 1))
    cdef Py_ssize_t i
    for i in range(4):
        ahead(&w.x, data + span.run * w.nest.reduce0.data + span.element + i * (span.length // 4), 1)


cdef inline void long_forward(const real* type, const Work* w, Py_ssize_t job) noexcept nogil:
    """The rows of a block."""
    cdef const real* s = <const real*>w.s
    cdef const real* b = <const real*>w.b
    cdef real held[HELD]
    cdef Py_ssize_t member = job % w.blocks * w.members_of_block
    cdef Py_ssize_t end = min(member + w.members_of_block, w.members)
    cdef Py_ssize_t row = job // w.blocks * w.group_step + member * w.member_step
    cdef Py_ssize_t data = row_data(&w.nest, row)
    cdef Moments m = row_moments(type, w, data)
    cdef Moments of_chunk
    cdef Py_ssize_t param, next, chunk, part, at, p
    cdef real k, d, r, next_k
    cdef double first
    cdef Span span
    while True:
        first = item(&w.x, data)
        store_statistics(type, w, row, first, m.offset, m.m2 * w.one_by_columns)
        member += 1
        if member == end:
            break
        next = row_data(&w.nest, row + w.member_step) - data
        param = row_param(&w.nest, row)
        first = item(&w.x, data + next)
        k = <real>w.k[row]
        d = <real>w.d[row]
        r = <real>w.rstd[row]
        ask_for_samples(w, data + next, 0)
        for chunk in range(w.chunks):
            ask_for_samples(w, data + next, chunk + 1)
            span = chunk_span(&w.nest, &w.cut, chunk)
            at = data + span.run * w.nest.reduce0.data + span.element
            p = param_at(w, param, span)
            next_k = sample_mean(type, &w.x, at + next, 0, span) if w.equation.centered else 0
            apply_and_sum(
                &w.x, &w.y, at, s + p if s and w.each else NULL, b + p if b and w.each else NULL, span.length, 0,
                span.length, next, next + SOON, k, d, r, r * s[p] if s and not w.each else r,
                b[p] if b and not w.each else <real>-0.0, next_k, held,
            )
            of_chunk = moments_of_sums(
                &w.x, at + next, 0, span, first, next_k, held[0], held[1], w.equation.centered
            )
            m = merge(m, of_chunk) if chunk else of_chunk
        row += w.member_step
        data += next
    for part in range(w.parts):
        part_apply(type, w, row, part)


cdef inline void long_backward(const real* type, const Work* w, Py_ssize_t job) noexcept nogil:
    """The rows of a block."""
    cdef const real* s = <const real*>w.s
    cdef real* ds = collected_by(type, w, job)
    cdef real held[HELD]
    cdef Py_ssize_t member = job % w.blocks * w.members_of_block
    cdef Py_ssize_t end = min(member + w.members_of_block, w.members)
    cdef Py_ssize_t row = job // w.blocks * w.group_step + member * w.member_step
    cdef Py_ssize_t data = row_data(&w.nest, row)
    cdef Py_ssize_t param, next, next_row, chunk, part, at, to, where
    cdef double* slots
    cdef real k, d, r, p, q
    cdef Span span
    for part in range(w.parts):
        part_sums(type, w, row, part)
    rows_combine(type, w, row)
    while member + 1 < end:
        member += 1
        next_row = row + w.member_step
        next = row_data(&w.nest, next_row) - data
        param = row_param(&w.nest, row)
        slots = w.partial + next_row * w.slots * 2
        k = <real>w.k[row]
        d = <real>w.d[row]
        r = <real>w.rstd[row]
        row_factors(type, w, row, &p, &q)
        for chunk in range(w.chunks):
            span = chunk_span(&w.nest, &w.cut, chunk)
            at = data + span.run * w.nest.reduce0.data + span.element
            where = param_at(w, param, span)
            to = collected_at(w, span)
            grad_and_sum(
                &w.dy, &w.x, &w.dx, at, s + where if s and w.each else NULL, ds + to if ds else NULL,
                ds + w.pitch + to if ds else NULL, span.length, 0, span.length, next, next + SOON, k, d, r,
                r * s[where] if s and not w.each else r, p, q, <real>w.k[next_row], <real>w.d[next_row], held,
            )
            slots[2 * chunk] = held[0]
            slots[2 * chunk + 1] = held[1]
        rows_combine(type, w, next_row)
        row = next_row
        data += next
    for part in range(w.parts):
        part_input(type, w, row, part, ds)
