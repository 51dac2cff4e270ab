# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# The jobs on short rows that come from memory and go to memory, and are so wide that a row does not stay in the
# innermost cache: the second phase of a row goes together with the first phase of the next.

from minorm_ext.nest cimport row_data, row_param
from minorm_ext.norm_far cimport apply_and_sum, apply_far, goes_far, grad_and_sum, grad_far
from minorm_ext.norm_row_jobs cimport collected_by
from minorm_ext.norm_rows cimport grad_sums, sample_mean
from minorm_ext.norm_short_jobs cimport factors_of, row_of, statistics_of, sums_of, whole_row
from minorm_ext.norm_work cimport Work, is_vast
from minorm_ext.storage cimport ahead, real

cdef enum:
    WIDE = 1024  # elements of such a row, at least


cdef inline bint far_forward_pays(const Work* w) noexcept nogil:
    return w.columns >= WIDE and is_vast(w) and w.x.far and goes_far(&w.y) and w.moments and w.apply


cdef inline bint far_backward_pays(const Work* w) noexcept nogil:
    return w.columns >= WIDE and is_vast(w) and w.x.far and goes_far(&w.dx)


cdef inline void ask_for_samples(const Work* w, Py_ssize_t data) noexcept nogil:
    """The shift of a row is guessed from four elements: they had better be here by then."""
    cdef Py_ssize_t i
    for i in range(4):
        ahead(&w.x, data + i * (w.columns // 4), 1)


cdef inline void far_forward(const real* type, const Work* w, Py_ssize_t job) noexcept nogil:
    """The rows of a block."""
    cdef const real* s = <const real*>w.s
    cdef const real* b = <const real*>w.b
    cdef const real* x
    cdef real* y
    cdef real a, q, k, d, r, c, c_b, next_k
    cdef double var, rstd
    cdef Py_ssize_t member = job % w.blocks * w.members_of_block
    cdef Py_ssize_t end = min(member + w.members_of_block, w.members)
    cdef Py_ssize_t data = row_data(&w.nest, row_of(w, job, member))
    cdef Py_ssize_t row, param, next
    x = <const real*>w.x.items + data
    sums_of(&x, w, 1, &k, &a, &q)
    while member < end:
        row = row_of(w, job, member)
        statistics_of(&x, w, 1, &a, &q, &k, &d, &r, &var, &rstd)
        w.k[row] = k
        w.d[row] = d
        w.var[row] = var
        w.rstd[row] = rstd
        param = row_param(&w.nest, row)
        c = r * s[param] if s and not w.each else r
        c_b = b[param] if b and not w.each else 0
        y = <real*>w.y.items + data
        member += 1
        if member == end:
            apply_far(
                x, s + param if w.each and s else NULL, b + param if w.each and b else NULL, y, w.columns, 0,
                k, d, r, c, c_b,
            )
        else:
            next = row_data(&w.nest, row_of(w, job, member)) - data
            next_k = sample_mean(x + next, 0, whole_row(w)) if w.equation.centered else 0
            ask_for_samples(w, data + 2 * next)
            apply_and_sum(
                x, s + param if w.each and s else NULL, b + param if w.each and b else NULL, y, w.columns, next,
                k, d, r, c, c_b, next_k, &a, &q,
            )
            k = next_k
            data += next
            x += next


cdef inline void far_backward(const real* type, const Work* w, Py_ssize_t job) noexcept nogil:
    """The rows of a block."""
    cdef const real* s = <const real*>w.s
    cdef real* ds = collected_by(type, w, job)
    cdef real* db = ds + w.pitch if ds else NULL
    cdef const real* x
    cdef const real* dy
    cdef const real* each_s
    cdef real* dx
    cdef real sum, sum_x, k, d, r, c, p, q
    cdef Py_ssize_t member = job % w.blocks * w.members_of_block
    cdef Py_ssize_t end = min(member + w.members_of_block, w.members)
    cdef Py_ssize_t row = row_of(w, job, member)
    cdef Py_ssize_t data = row_data(&w.nest, row)
    cdef Py_ssize_t param, next
    x = <const real*>w.x.items + data
    dy = <const real*>w.dy.items + data
    param = row_param(&w.nest, row)
    each_s = s + param if w.each and s else NULL
    grad_sums(dy, 0, x, 0, each_s, 0, whole_row(w), <real>w.k[row], <real>w.d[row], &sum, &sum_x)
    while member < end:
        k = <real>w.k[row]
        d = <real>w.d[row]
        r = <real>w.rstd[row]
        param = row_param(&w.nest, row)
        factors_of(w, row, s + param if s else NULL, sum, sum_x, &c, &p, &q)
        dx = <real*>w.dx.items + data
        member += 1
        if member == end:
            grad_far(dy, x, each_s, dx, ds, db, w.columns, 0, k, d, r, c, p, q)
        else:
            row = row_of(w, job, member)
            next = row_data(&w.nest, row) - data
            grad_and_sum(
                dy, x, each_s, dx, ds, db, w.columns, next, k, d, r, c, p, q,
                <real>w.k[row], <real>w.d[row], &sum, &sum_x,
            )
            data += next
            x += next
            dy += next
