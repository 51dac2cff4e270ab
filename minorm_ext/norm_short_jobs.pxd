# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# The jobs on short rows: a row is one run that fits a chunk (LayerNorm, RMSNorm, InstanceNorm of small images).
#
# On a row of 64 elements a square root and a division take as long as all the rest. So some rows go together: first the
# sums of each, then the statistics of all, which vectorises, then the second phase of each, while they are in cache.

from libc.math cimport sqrt

from minorm_ext.nest cimport row_data, row_param
from minorm_ext.norm_far cimport apply_far, goes_far, grad_far
from minorm_ext.norm_moments cimport Moments, out_of_range, poor_shift, rstd_of, slope_of
from minorm_ext.norm_row_jobs cimport collected_by
from minorm_ext.norm_rows cimport (
    BRIEF, CHUNK, Span, apply_each, apply_two, apply_same, grad_two, grad_input_each, grad_input_same,
    grad_one, grad_params_each, grad_sums, sample_mean, shifted_sums, short_sums, span_moments,
)
from minorm_ext.norm_work cimport Work, is_vast
from minorm_ext.storage cimport Data, ahead, fetch, in_room, item, place, put, real

# Where rows share a parameter for each element, two go through a loop together; but most often not from memory, where
# one after the other is faster.
cdef enum:
    BATCH = 32         # rows that go together, at most
    FEW = 1024         # elements of them, about, where rows share nothing: few, so that reading and writing overlap
    MANY = 16384       # and where they share a parameter for each element
    PIECE = 1024       # elements of a row that the second phase takes at once
    FAR_PIECE = 256    # the same where data comes from memory or results are rounded


cdef inline Py_ssize_t rows_at_once(const Work* w, bint share, Py_ssize_t few) noexcept nogil:
    cdef Py_ssize_t size = few
    if share:
        size = MANY if w.x.as_is else CHUNK
    return min(<Py_ssize_t>BATCH, max(1, size // w.columns))


cdef inline Py_ssize_t piece_of(const Work* w, const Data* result) noexcept nogil:
    return FAR_PIECE if w.x.far or result.stream or not result.as_is else PIECE


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
    cdef real y_room[2 * FAR_PIECE]
    cdef const real* x[BATCH]
    cdef real* y[2]
    cdef Py_ssize_t data[BATCH]
    cdef Py_ssize_t next[BATCH]
    cdef Py_ssize_t param[BATCH]
    cdef Py_ssize_t start[BATCH]
    cdef real a[BATCH]
    cdef real q[BATCH]
    cdef real k[BATCH]
    cdef real d[BATCH]
    cdef real r[BATCH]
    cdef double var[BATCH]
    cdef double rstd[BATCH]
    cdef bint each = w.each and (s != NULL or b != NULL)
    cdef bint share = w.each and s != NULL and b != NULL and w.apply and not w.x.far
    cdef bint far = w.x.far and goes_far(&w.y)
    cdef bint direct = far or w.x.as_is
    cdef Data seen = w.x if direct else in_room(&w.x, x_room)  # by the sums
    cdef Py_ssize_t at_once = rows_at_once(w, share, FEW)
    cdef Py_ssize_t piece = piece_of(w, &w.y)
    cdef Py_ssize_t member = job % w.blocks * w.members_of_block
    cdef Py_ssize_t end = min(member + w.members_of_block, w.members)
    cdef Py_ssize_t n, i, m, together, row, at, some
    while member < end:
        n = min(at_once, end - member)
        for i in range(n):
            row = row_of(w, job, member + i)
            data[i] = row_data(&w.nest, row)
            next[i] = row_data(&w.nest, row_of(w, job, min(member + n + i, end - 1))) if w.x.far else 0
            param[i] = row_param(&w.nest, row)
            start[i] = data[i] if direct else i * w.columns
            if not far:
                x[i] = fetch(&w.x, data[i], w.columns, x_room + i * w.columns)
        if w.moments:
            sums_of(w, &seen, start, n, k, a, q)
            statistics_of(w, &seen, start, n, a, q, k, d, r, var, rstd)
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
        if far and w.apply:
            for i in range(n):
                apply_far(
                    &w.x, &w.y, data[i], s + param[i] if each and s else NULL, b + param[i] if each and b else NULL,
                    w.columns, next[i] - data[i], k[i], d[i], r[i],
                    r[i] * s[param[i]] if s and not each else r[i], b[param[i]] if b and not each else 0,
                )
        at = w.columns if far or not w.apply else 0
        while at < w.columns:
            some = min(piece, w.columns - at)
            i = 0
            while i < n:
                together = 2 if share and i + 2 <= n else 1
                for m in range(together):
                    ahead(&w.x, next[i + m] + at, some)
                    y[m] = place(&w.y, data[i + m] + at, y_room + m * FAR_PIECE)
                if together == 2:
                    apply_two(x + i, at, s + param[i] + at, b + param[i] + at, y, some, k + i, d + i, r + i)
                elif each:
                    apply_each(
                        x[i] + at, y[0], some, k[i], d[i], r[i],
                        s + param[i] + at if s else NULL, b + param[i] + at if b else NULL,
                    )
                else:
                    apply_same(
                        x[i] + at, y[0], some, k[i], d[i], r[i] * s[param[i]] if s else r[i], b[param[i]] if b else 0
                    )
                for m in range(together):
                    put(&w.y, data[i + m] + at, some, y[m])
                i += together
            at += some
        member += n


cdef inline void factors_of(
    const Work* w, Py_ssize_t row, const real* s, real sum, real sum_x, real* c, real* p, real* q
) noexcept nogil:
    """c, p and q of a row from its sums, which are kept where gradients of parameters are made of them."""
    cdef double scale = s[0] if s != NULL and not w.each else 1
    cdef double rstd = w.rstd[row] * scale * w.one_by_columns
    c[0] = <real>w.rstd[row] * <real>scale
    p[0] = <real>(rstd * sum) if w.equation.centered else 0
    q[0] = <real>(rstd * (sum_x * w.rstd[row]) * slope_of(&w.equation, w.var[row]))
    if w.partial != NULL:
        w.partial[2 * row] = sum
        w.partial[2 * row + 1] = sum_x


cdef inline void short_backward(const real* type, const Work* w, Py_ssize_t job) noexcept nogil:
    """The same for a backward pass that computes its sums and fills dx."""
    cdef const real* s = <const real*>w.s
    cdef real* ds = collected_by(type, w, job)
    cdef real x_room[CHUNK]
    cdef real dy_room[CHUNK]
    cdef real dx_room[2 * FAR_PIECE]
    cdef const real* x[BATCH]
    cdef const real* dy[BATCH]
    cdef real* dx[2]
    cdef real sum[BATCH]
    cdef real sum_x[BATCH]
    cdef Py_ssize_t data[BATCH]
    cdef Py_ssize_t next[BATCH]
    cdef Py_ssize_t param[BATCH]
    cdef Py_ssize_t start[BATCH]
    cdef real k[BATCH]
    cdef real d[BATCH]
    cdef real r[BATCH]
    cdef real c[BATCH]
    cdef real p[BATCH]
    cdef real q[BATCH]
    cdef bint each = w.each and s != NULL
    cdef bint share = each and ds != NULL
    cdef bint far = w.x.far and goes_far(&w.dx) and (not share or is_vast(w))
    cdef bint direct = far or w.x.as_is
    cdef Data seen = w.x if direct else in_room(&w.x, x_room)
    cdef Data seen_dy = w.dy if direct else in_room(&w.dy, dy_room)
    cdef Py_ssize_t at_once = rows_at_once(w, share and not far, FEW // 2)
    cdef Py_ssize_t piece = piece_of(w, &w.dx)
    cdef Py_ssize_t member = job % w.blocks * w.members_of_block
    cdef Py_ssize_t end = min(member + w.members_of_block, w.members)
    cdef Py_ssize_t n, i, m, together, row, at, some
    while member < end:
        n = min(at_once, end - member)
        for i in range(n):
            row = row_of(w, job, member + i)
            data[i] = row_data(&w.nest, row)
            next[i] = row_data(&w.nest, row_of(w, job, min(member + n + i, end - 1))) if w.x.far else 0
            param[i] = row_param(&w.nest, row)
            start[i] = data[i] if direct else i * w.columns
            if not far:
                x[i] = fetch(&w.x, data[i], w.columns, x_room + i * w.columns)
                dy[i] = fetch(&w.dy, data[i], w.columns, dy_room + i * w.columns)
            k[i] = <real>w.k[row]
            d[i] = <real>w.d[row]
            r[i] = <real>w.rstd[row]
        for i in range(n):
            grad_sums(
                &seen_dy, start[i], 0, &seen, start[i], 0, s + param[i] if each else NULL, 0, whole_row(w), k[i], d[i],
                &sum[i], &sum_x[i],
            )
        for i in range(n):
            row = row_of(w, job, member + i)
            factors_of(w, row, s + param[i] if s else NULL, sum[i], sum_x[i], &c[i], &p[i], &q[i])
        if far:
            for i in range(n):
                grad_far(
                    &w.dy, &w.x, &w.dx, data[i], s + param[i] if each else NULL, ds, ds + w.pitch if ds else NULL,
                    w.columns, next[i] - data[i], k[i], d[i], r[i], c[i], p[i], q[i],
                )
        at = w.columns if far else 0
        while at < w.columns:
            some = min(piece, w.columns - at)
            i = 0
            while i < n:
                together = 2 if share and i + 2 <= n else 1
                for m in range(together):
                    ahead(&w.x, next[i + m] + at, some)
                    ahead(&w.dy, next[i + m] + at, some)
                    dx[m] = place(&w.dx, data[i + m] + at, dx_room + m * FAR_PIECE)
                if together == 2:
                    grad_two(
                        dy + i, x + i, at, s + param[i] + at, dx, ds + at, ds + w.pitch + at, some,
                        k + i, d + i, r + i, p + i, q + i,
                    )
                elif share:
                    grad_one(
                        dy[i] + at, x[i] + at, s + param[i] + at, dx[0], ds + at, ds + w.pitch + at, some,
                        k + i, d + i, r + i, p + i, q + i,
                    )
                elif each:
                    grad_input_each(
                        dy[i] + at, x[i] + at, s + param[i] + at, dx[0], some, k[i], d[i], r[i], p[i], q[i]
                    )
                else:
                    grad_input_same(dy[i] + at, x[i] + at, dx[0], some, k[i], d[i], r[i], c[i], p[i], q[i])
                if ds != NULL and not share:
                    grad_params_each(dy[i] + at, x[i] + at, ds + at, ds + w.pitch + at, some, k[i], d[i], r[i])
                for m in range(together):
                    put(&w.dx, data[i + m] + at, some, dx[m])
                i += together
            at += some
        member += n
