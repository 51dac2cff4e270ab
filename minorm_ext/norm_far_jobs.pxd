# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# The jobs on short rows that come from memory and go to memory, and are so wide that a row does not stay in the
# innermost cache, or take longer than memory: the second phase of a row goes together with the first phase of the next.
# Rows that are wider still go through it tile by tile, a few together.

from minorm_ext.nest cimport row_data, row_param
from minorm_ext.norm_apply cimport apply, grad
from minorm_ext.norm_far cimport apply_and_sum, grad_and_sum
from minorm_ext.norm_row_jobs cimport collected_by
from minorm_ext.norm_rows cimport grad_sums, sample_mean
from minorm_ext.norm_short_jobs cimport factors_of, row_of, statistics_of, sums_of, whole_row
from minorm_ext.norm_work cimport Work
from minorm_ext.storage cimport Data, ahead, real, size_of

cdef enum:
    WIDE = 1024   # elements of such a row, at least
    LESS = 256    # the same where elements are widened and rounded, which takes longer than memory
    SOON = 1024   # elements by which memory is asked for before a first phase comes to it
    MUCH = 48 << 10  # bytes that one loop over a row reads, at least, where the innermost cache keeps too few of them
    TILE = 512    # elements of a row that such rows go through at a time,
    TOGETHER = 4  # one after the other
    HELD = 64     # accumulators of a row: 32 of each sum


cdef inline bint far_pays(const Work* w, const Data* result) noexcept nogil:
    return result.items != NULL and result.stream and result.direct and w.columns >= (WIDE if w.x.as_is else LESS)


cdef inline void ask_for_samples(const Work* w, Py_ssize_t data) noexcept nogil:
    """The shift of a row is guessed from four elements: they had better be here by then."""
    cdef Py_ssize_t i
    for i in range(4):
        ahead(&w.x, data + i * (w.columns // 4), 1)


cdef inline bint in_tiles(const Work* w, int rows, int params) noexcept nogil:
    """Do rows share parameters, and is what goes along in one loop, of both, too much for the innermost cache?"""
    return params > 0 and w.columns * (rows * size_of(w.x.type) + params * (4 if w.single else 8)) >= MUCH


cdef inline Py_ssize_t soon_after(const Work* w, Py_ssize_t end, Py_ssize_t some, Py_ssize_t next) noexcept nogil:
    """Where, seen from a row, that lies which is read soon, after a tile that ends at `end`: the next tile of the row
    `next` elements further on, or the first tile of the row that follows that one at the same distance."""
    if some == w.columns:
        return next + SOON  # no tiles
    return next + some if end < w.columns else 2 * next - (end - some)


cdef inline void far_forward(const real* type, const Work* w, Py_ssize_t job) noexcept nogil:
    """The rows of a block."""
    cdef const real* s = <const real*>w.s
    cdef const real* b = <const real*>w.b
    cdef const real* row_s[TOGETHER]
    cdef const real* row_b[TOGETHER]
    cdef real held[TOGETHER * HELD]
    cdef Py_ssize_t data[TOGETHER]
    cdef Py_ssize_t next[TOGETHER]
    cdef real a[TOGETHER]
    cdef real q[TOGETHER]
    cdef real k[TOGETHER]
    cdef real d[TOGETHER]
    cdef real r[TOGETHER]
    cdef real next_k[TOGETHER]
    cdef double var[TOGETHER]
    cdef double rstd[TOGETHER]
    cdef Py_ssize_t member = job % w.blocks * w.members_of_block
    cdef Py_ssize_t end = min(member + w.members_of_block, w.members)
    cdef bint tiles = in_tiles(w, 2, w.each * ((s != NULL) + (b != NULL)))
    cdef Py_ssize_t together = TOGETHER if tiles else 1
    cdef Py_ssize_t some = TILE if tiles else w.columns
    cdef Py_ssize_t n = min(together, end - member)
    cdef Py_ssize_t first = row_of(w, job, 0)
    cdef Py_ssize_t i, m, row, param, start
    for i in range(n):
        data[i] = row_data(&w.nest, first + (member + i) * w.member_step)
    sums_of(w, &w.x, data, n, k, a, q)
    while n > 0:
        statistics_of(w, &w.x, data, n, a, q, k, d, r, var, rstd)
        m = min(together, end - member - n)
        for i in range(n):
            row = first + (member + i) * w.member_step
            param = row_param(&w.nest, row)
            row_s[i] = s + param if s else NULL
            row_b[i] = b + param if b else NULL
            w.k[row] = k[i]
            w.d[row] = d[i]
            w.var[row] = var[i]
            w.rstd[row] = rstd[i]
            if i < m:
                next[i] = row_data(&w.nest, row + n * w.member_step) - data[i]
                next_k[i] = sample_mean(type, &w.x, data[i] + next[i], 0, whole_row(w)) if w.equation.centered else 0
                ask_for_samples(w, data[i] + 2 * next[i])
        start = 0
        while start < w.columns:
            for i in range(m):
                apply_and_sum(
                    &w.x, &w.y, data[i], row_s[i] if w.each else NULL, row_b[i] if w.each else NULL, w.columns, start,
                    some, next[i], soon_after(w, start + some, some, next[i]), k[i], d[i], r[i],
                    r[i] * row_s[i][0] if s and not w.each else r[i],
                    row_b[i][0] if b and not w.each else <real>-0.0, next_k[i], held + i * HELD,
                )
            start += some
        for i in range(m, n):
            apply(&w.x, &w.y, data[i], row_s[i], row_b[i], w.each, 0, 0, 1, w.columns, 0, k[i], d[i], r[i])
        for i in range(m):
            k[i] = next_k[i]
            a[i] = held[i * HELD]
            q[i] = held[i * HELD + 1]
            data[i] += next[i]
        member += n
        n = m


cdef inline void far_backward(const real* type, const Work* w, Py_ssize_t job) noexcept nogil:
    """The rows of a block."""
    cdef const real* s = <const real*>w.s
    cdef real* ds = collected_by(type, w, job)
    cdef real* db = ds + w.pitch if ds else NULL
    cdef const real* row_s[TOGETHER]
    cdef real held[TOGETHER * HELD]
    cdef Py_ssize_t data[TOGETHER]
    cdef Py_ssize_t next[TOGETHER]
    cdef real sum[TOGETHER]
    cdef real sum_x[TOGETHER]
    cdef real p[TOGETHER]
    cdef real q[TOGETHER]
    cdef Py_ssize_t member = job % w.blocks * w.members_of_block
    cdef Py_ssize_t end = min(member + w.members_of_block, w.members)
    cdef bint tiles = in_tiles(w, 4, (w.each and s != NULL) + 2 * (ds != NULL))
    cdef Py_ssize_t together = TOGETHER if tiles else 1
    cdef Py_ssize_t some = TILE if tiles else w.columns
    cdef Py_ssize_t n = min(together, end - member)
    cdef Py_ssize_t first = row_of(w, job, 0)
    cdef Py_ssize_t i, m, row, next_row, start
    cdef real r
    for i in range(n):
        row = first + (member + i) * w.member_step
        data[i] = row_data(&w.nest, row)
        grad_sums(
            &w.dy, &w.x, data[i], 0, s + row_param(&w.nest, row) if s and w.each else NULL, 0, whole_row(w),
            <real>w.k[row], <real>w.d[row], &sum[i], &sum_x[i],
        )
    while n > 0:
        m = min(together, end - member - n)
        for i in range(n):
            row = first + (member + i) * w.member_step
            row_s[i] = s + row_param(&w.nest, row) if s else NULL
            factors_of(w, row, row_s[i], sum[i], sum_x[i], &p[i], &q[i])
            if i < m:
                next[i] = row_data(&w.nest, row + n * w.member_step) - data[i]
        start = 0
        while start < w.columns:
            for i in range(m):
                row = first + (member + i) * w.member_step
                next_row = row + n * w.member_step
                r = <real>w.rstd[row]
                grad_and_sum(
                    &w.dy, &w.x, &w.dx, data[i], row_s[i] if w.each else NULL, ds, db, w.columns, start,
                    some, next[i], soon_after(w, start + some, some, next[i]), <real>w.k[row], <real>w.d[row], r,
                    r * row_s[i][0] if s and not w.each else r, p[i], q[i],
                    <real>w.k[next_row], <real>w.d[next_row], held + i * HELD,
                )
            start += some
        for i in range(m, n):
            row = first + (member + i) * w.member_step
            grad(
                &w.dy, &w.x, &w.dx, data[i], row_s[i], w.each, 0, ds, db, 0, 1, w.columns, 0,
                <real>w.k[row], <real>w.d[row], <real>w.rstd[row], p[i], q[i],
            )
        for i in range(m):
            sum[i] = held[i * HELD]
            sum_x[i] = held[i * HELD + 1]
            data[i] += next[i]
        member += n
        n = m
