# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# The jobs on short rows that come from memory and go to memory, and are so wide that a row does not stay in the
# innermost cache, or take longer than memory: the second phase of a row goes together with the first phase of the next.

from minorm_ext.nest cimport row_data, row_param
from minorm_ext.norm_apply cimport apply, grad
from minorm_ext.norm_far cimport apply_and_sum, grad_and_sum
from minorm_ext.norm_row_jobs cimport collected_by
from minorm_ext.norm_rows cimport grad_sums, sample_mean
from minorm_ext.norm_short_jobs cimport factors_of, row_of, statistics_of, sums_of, whole_row
from minorm_ext.norm_work cimport Work
from minorm_ext.storage cimport Data, ahead, real

cdef enum:
    WIDE = 1024   # elements of such a row, at least
    LESS = 256    # the same where elements are widened and rounded, which takes longer than memory


cdef inline bint far_pays(const Work* w, const Data* result) noexcept nogil:
    return result.items != NULL and result.stream and result.direct and w.columns >= (WIDE if w.x.as_is else LESS)


cdef inline void ask_for_samples(const Work* w, Py_ssize_t data) noexcept nogil:
    """The shift of a row is guessed from four elements: they had better be here by then."""
    cdef Py_ssize_t i
    for i in range(4):
        ahead(&w.x, data + i * (w.columns // 4), 1)


cdef inline void far_forward(const real* type, const Work* w, Py_ssize_t job) noexcept nogil:
    """The rows of a block."""
    cdef const real* s = <const real*>w.s
    cdef const real* b = <const real*>w.b
    cdef real a, q, k, d, r, c, c_b, next_k
    cdef double var, rstd
    cdef Py_ssize_t member = job % w.blocks * w.members_of_block
    cdef Py_ssize_t end = min(member + w.members_of_block, w.members)
    cdef Py_ssize_t data = row_data(&w.nest, row_of(w, job, member))
    cdef Py_ssize_t row, param, next
    sums_of(w, &w.x, &data, 1, &k, &a, &q)
    while member < end:
        row = row_of(w, job, member)
        statistics_of(w, &w.x, &data, 1, &a, &q, &k, &d, &r, &var, &rstd)
        w.k[row] = k
        w.d[row] = d
        w.var[row] = var
        w.rstd[row] = rstd
        param = row_param(&w.nest, row)
        c = r * s[param] if s and not w.each else r
        c_b = b[param] if b and not w.each else <real>-0.0
        member += 1
        if member == end:
            apply(
                &w.x, &w.y, data, s + param if s else NULL, b + param if b else NULL, w.each, 0,
                0, 1, w.columns, 0, k, d, r,
            )
        else:
            next = row_data(&w.nest, row_of(w, job, member)) - data
            next_k = sample_mean(type, &w.x, data + next, 0, whole_row(w)) if w.equation.centered else 0
            ask_for_samples(w, data + 2 * next)
            apply_and_sum(
                &w.x, &w.y, data, s + param if w.each and s else NULL, b + param if w.each and b else NULL,
                w.columns, next, k, d, r, c, c_b, next_k, &a, &q,
            )
            k = next_k
            data += next


cdef inline void far_backward(const real* type, const Work* w, Py_ssize_t job) noexcept nogil:
    """The rows of a block."""
    cdef const real* s = <const real*>w.s
    cdef real* ds = collected_by(type, w, job)
    cdef real* db = ds + w.pitch if ds else NULL
    cdef const real* each_s
    cdef real sum, sum_x, k, d, r, c, p, q
    cdef Py_ssize_t member = job % w.blocks * w.members_of_block
    cdef Py_ssize_t end = min(member + w.members_of_block, w.members)
    cdef Py_ssize_t row = row_of(w, job, member)
    cdef Py_ssize_t data = row_data(&w.nest, row)
    cdef Py_ssize_t param = row_param(&w.nest, row)
    cdef Py_ssize_t next
    each_s = s + param if w.each and s else NULL
    grad_sums(&w.dy, &w.x, data, 0, each_s, 0, whole_row(w), <real>w.k[row], <real>w.d[row], &sum, &sum_x)
    while member < end:
        k = <real>w.k[row]
        d = <real>w.d[row]
        r = <real>w.rstd[row]
        param = row_param(&w.nest, row)
        factors_of(w, row, s + param if s else NULL, sum, sum_x, &p, &q)
        c = r * s[param] if s and not w.each else r
        member += 1
        if member == end:
            grad(
                &w.dy, &w.x, &w.dx, data, s + param if s else NULL, w.each, 0, ds, db, 0, 1, w.columns, 0,
                k, d, r, p, q,
            )
        else:
            row = row_of(w, job, member)
            next = row_data(&w.nest, row) - data
            grad_and_sum(
                &w.dy, &w.x, &w.dx, data, each_s, ds, db, w.columns, next, k, d, r, c, p, q,
                <real>w.k[row], <real>w.d[row], &sum, &sum_x,
            )
            data += next
