# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# The jobs on short rows: a row is one run that fits a chunk (LayerNorm, RMSNorm, InstanceNorm of small images).
#
# On a row of 64 elements a square root and a division take as long as all the rest. So some rows go together: first the
# sums of each, then the statistics of all, which vectorises, then the second phase of each, while they are in cache.

from libc.math cimport sqrt

from minorm_ext.nest cimport row_data, row_param
from minorm_ext.norm_apply cimport apply, grad
from minorm_ext.norm_each cimport apply_two, grad_two
from minorm_ext.norm_moments cimport Moments, out_of_range, poor_shift, rstd_of, slope_of
from minorm_ext.norm_row_jobs cimport collected_by
from minorm_ext.norm_rows cimport (
    BRIEF, CHUNK, Span, grad_sums, sample_mean, shifted_sums, short_sums, span_moments,
)
from minorm_ext.norm_work cimport Work
from minorm_ext.storage cimport Data, fetch, item, put, real, seen

# Where rows in cache have a parameter for each element, two go through a loop together.
cdef enum:
    BATCH = 32         # rows that go together, at most
    FEW = 1024         # elements of them, about, where rows share nothing: few, so that reading and writing overlap
    MANY = 16384       # and where they go in pairs
    PIECE = 1024       # elements of a row that the second phase of pairs takes at once


cdef inline Py_ssize_t rows_at_once(const Work* w, bint pairs, Py_ssize_t few) noexcept nogil:
    cdef Py_ssize_t size = (MANY if w.x.direct else CHUNK) if pairs else few
    return min(<Py_ssize_t>BATCH, max(1, size // w.columns))


cdef inline Py_ssize_t row_of(const Work* w, Py_ssize_t block, Py_ssize_t member) noexcept nogil:
    return block // w.blocks * w.group_step + member * w.member_step


cdef inline Span whole_row(const Work* w) noexcept nogil:
    cdef Span span
    span.run = 0
    span.runs = 1
    span.element = 0
    span.length = w.columns
    return span


cdef inline void sums_of(
    const Work* w, const Data* x, const Py_ssize_t* at, Py_ssize_t n, real* k, real* a, real* q
) noexcept nogil:
    """The shifts of n rows of x, which begin at `at`, and their sums."""
    cdef bint brief = w.columns <= BRIEF
    cdef Py_ssize_t i
    for i in range(n):
        k[i] = sample_mean(k, x, at[i], 0, whole_row(w)) if w.equation.centered else 0
        if brief:
            short_sums(x, at[i], w.columns, k[i], &a[i], &q[i])
        else:
            shifted_sums(x, at[i], 0, whole_row(w), k[i], &a[i], &q[i])


cdef inline void statistics_of(
    const Work* w, const Data* x, const Py_ssize_t* at, Py_ssize_t n, const real* a, const real* q,
    real* k, real* d, real* r, double* var, double* rstd,
) noexcept nogil:
    """k, d, var and rstd of n rows from their sums."""
    cdef double offset[BATCH]
    cdef double shift
    cdef double m = w.columns
    cdef double one = w.one_by_columns
    cdef bint centered = w.equation.centered
    cdef int odd = 0
    cdef Moments moments
    cdef Py_ssize_t i
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
                shift = item(x, at[i])
                moments = span_moments(x, at[i], 0, whole_row(w), shift, k[i], centered)
                k[i] = <real>shift if centered else 0
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


cdef inline void short_forward(const real* type, const Work* w, Py_ssize_t job) noexcept nogil:
    """The rows of a block, some at a time, through both phases."""
    cdef const real* s = <const real*>w.s
    cdef const real* b = <const real*>w.b
    cdef real x_room[CHUNK]
    cdef real y_room[CHUNK]
    cdef Data x_seen, y_seen
    cdef const Data* x = seen(&w.x, x_room, &x_seen)
    cdef const Data* y = seen(&w.y, y_room, &y_seen)
    cdef Py_ssize_t data[BATCH]
    cdef Py_ssize_t start[BATCH]  # of a row, in x and y
    cdef Py_ssize_t next[BATCH]
    cdef Py_ssize_t param[BATCH]
    cdef real a[BATCH]
    cdef real q[BATCH]
    cdef real k[BATCH]
    cdef real d[BATCH]
    cdef real r[BATCH]
    cdef double var[BATCH]
    cdef double rstd[BATCH]
    cdef bint pairs = w.each and s != NULL and b != NULL and not w.y.stream
    cdef Py_ssize_t at_once = rows_at_once(w, pairs, FEW)
    cdef Py_ssize_t piece = PIECE if pairs else w.columns
    cdef Py_ssize_t member = job % w.blocks * w.members_of_block
    cdef Py_ssize_t end = min(member + w.members_of_block, w.members)
    cdef Py_ssize_t n, i, row, at, some
    while member < end:
        n = min(at_once, end - member)
        for i in range(n):
            row = row_of(w, job, member + i)
            data[i] = row_data(&w.nest, row)
            next[i] = row_data(&w.nest, row_of(w, job, min(member + n + i, end - 1)))
            param[i] = row_param(&w.nest, row)
            start[i] = data[i] if w.x.direct else i * w.columns
            if not w.x.direct:
                fetch(&w.x, data[i], w.columns, x_room + start[i])
        if w.moments:
            sums_of(w, x, start, n, k, a, q)
            statistics_of(w, x, start, n, a, q, k, d, r, var, rstd)
        for i in range(n):
            row = row_of(w, job, member + i)
            if w.moments:
                w.k[row] = k[i]
                w.d[row] = d[i]
                w.var[row] = var[i]
                w.rstd[row] = rstd[i]
            else:
                k[i] = <real>w.k[row]
                d[i] = <real>w.d[row]
                r[i] = <real>w.rstd[row]
        at = 0 if w.apply else w.columns
        while at < w.columns:
            some = min(piece, w.columns - at)
            i = 0
            while i < n:
                if pairs and i + 2 <= n:
                    apply_two(
                        x, y, start + i, at, s + param[i] + at, b + param[i] + at, some, k + i, d + i, r + i
                    )
                    i += 2
                else:
                    apply(
                        x, y, start[i] + at, s + param[i] + at if s else NULL, b + param[i] + at if b else NULL,
                        w.each, 0, 0, 1, some, next[i] - data[i], k[i], d[i], r[i],
                    )
                    i += 1
            at += some
        if w.apply and not w.y.direct:
            for i in range(n):
                put(&w.y, data[i], w.columns, y_room + start[i])
        member += n


cdef inline void factors_of(
    const Work* w, Py_ssize_t row, const real* s, real sum, real sum_x, real* p, real* q
) noexcept nogil:
    """p and q of a row from its sums, which are kept where gradients of parameters are made of them."""
    cdef double scale = s[0] if s != NULL and not w.each else 1
    cdef double rstd = w.rstd[row] * scale * w.one_by_columns
    p[0] = <real>(rstd * sum) if w.equation.centered else 0
    q[0] = <real>(rstd * (sum_x * w.rstd[row]) * slope_of(&w.equation, w.var[row]))
    if w.partial != NULL:
        w.partial[2 * row] = sum
        w.partial[2 * row + 1] = sum_x


cdef inline void short_backward(const real* type, const Work* w, Py_ssize_t job) noexcept nogil:
    """The same for a backward pass that computes its sums and fills dx."""
    cdef const real* s = <const real*>w.s
    cdef real* ds = collected_by(type, w, job)
    cdef real* db = ds + w.pitch if ds else NULL
    cdef real x_room[CHUNK]
    cdef real dy_room[CHUNK]
    cdef real dx_room[CHUNK]
    cdef Data x_seen, dy_seen, dx_seen
    cdef const Data* x = seen(&w.x, x_room, &x_seen)
    cdef const Data* dy = seen(&w.dy, dy_room, &dy_seen)
    cdef const Data* dx = seen(&w.dx, dx_room, &dx_seen)
    cdef real sum[BATCH]
    cdef real sum_x[BATCH]
    cdef Py_ssize_t data[BATCH]
    cdef Py_ssize_t start[BATCH]
    cdef Py_ssize_t next[BATCH]
    cdef Py_ssize_t param[BATCH]
    cdef real k[BATCH]
    cdef real d[BATCH]
    cdef real r[BATCH]
    cdef real p[BATCH]
    cdef real q[BATCH]
    cdef bint each = w.each and s != NULL
    cdef bint pairs = each and ds != NULL and not w.dx.stream
    cdef Py_ssize_t at_once = rows_at_once(w, pairs, FEW // 2)
    cdef Py_ssize_t piece = PIECE if pairs else w.columns
    cdef Py_ssize_t member = job % w.blocks * w.members_of_block
    cdef Py_ssize_t end = min(member + w.members_of_block, w.members)
    cdef Py_ssize_t n, i, row, at, some
    while member < end:
        n = min(at_once, end - member)
        for i in range(n):
            row = row_of(w, job, member + i)
            data[i] = row_data(&w.nest, row)
            next[i] = row_data(&w.nest, row_of(w, job, min(member + n + i, end - 1)))
            param[i] = row_param(&w.nest, row)
            start[i] = data[i] if w.x.direct else i * w.columns
            if not w.x.direct:
                fetch(&w.x, data[i], w.columns, x_room + start[i])
                fetch(&w.dy, data[i], w.columns, dy_room + start[i])
            k[i] = <real>w.k[row]
            d[i] = <real>w.d[row]
            r[i] = <real>w.rstd[row]
        for i in range(n):
            grad_sums(
                dy, x, start[i], 0, s + param[i] if each else NULL, 0, whole_row(w), k[i], d[i], &sum[i], &sum_x[i]
            )
        for i in range(n):
            row = row_of(w, job, member + i)
            factors_of(w, row, s + param[i] if s else NULL, sum[i], sum_x[i], &p[i], &q[i])
        at = 0
        while at < w.columns:
            some = min(piece, w.columns - at)
            i = 0
            while i < n:
                if pairs and i + 2 <= n:
                    grad_two(
                        dy, x, dx, start + i, at, s + param[i] + at, ds + at, db + at, some,
                        k + i, d + i, r + i, p + i, q + i,
                    )
                    i += 2
                else:
                    grad(
                        dy, x, dx, start[i] + at, s + param[i] + at if s else NULL, w.each, 0,
                        ds + at if ds else NULL, db + at if ds else NULL, 0, 1, some, next[i] - data[i],
                        k[i], d[i], r[i], p[i], q[i],
                    )
                    i += 1
            at += some
        if not w.dx.direct:
            for i in range(n):
                put(&w.dx, data[i], w.columns, dx_room + start[i])
        member += n
