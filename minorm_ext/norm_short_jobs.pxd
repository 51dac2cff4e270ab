# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# The jobs on short rows: a row is one run that fits a chunk (LayerNorm, RMSNorm, InstanceNorm of small images).
#
# On a row of 64 elements a square root and a division take as long as all the rest. So some rows go together: first the
# sums of each, then the statistics of all, which vectorises, then the second phase of each, while they are in cache.
#
# Results that go around the cache do so in whole lines. Rows so short that many lines belong to two of them are
# collected in a room (minorm_outbox in stream.h) and go there together, and the first phase asks for what comes next.

from libc.string cimport memcpy

from minorm_ext.nest cimport Loop, Nest, Place, go_on, place_of
from minorm_ext.norm_apply cimport apply, apply_rows, grad, grad_rows
from minorm_ext.norm_each cimport apply_each, apply_two, grad_each, grad_two, sends_turns
from minorm_ext.norm_lines cimport ACROSS, FACTORS, apply_lines, fills_lines, grad_lines, keep_last, scale_rows
from minorm_ext.norm_moments cimport Moments, out_of_range, poor_shift, rstds_of, slope_of
from minorm_ext.norm_row_jobs cimport collected_by, tally, tally_x
from minorm_ext.norm_rows cimport CHUNK, span_moments
from minorm_ext.norm_sums cimport BATCH, BRIEF, SOON, Span, sample_mean, shifted_sums, short_grad_sums, short_sums
from minorm_ext.norm_work cimport Work
from minorm_ext.storage cimport (
    Data, fetch, here, item, minorm_outbox, minorm_outbox_close, minorm_outbox_open, minorm_outbox_place,
    minorm_outbox_send, put, real, size_of,
)

cdef enum:
    SOME = 2048        # elements of rows that go together
    FEW = 1024         # the same where results go around the cache: reading and writing overlap
    NARROW = 128       # elements of a row that shares its parameters in registers, at most
    SEVERAL = 4        # such rows, at least: fewer go in pairs as well
    MANY = 16384       # elements of wider rows, which go in pairs
    PIECE = 1024       # elements of a pair that the second phase takes at once
    STRAIGHT = 256     # the same where results go around the cache as they are
    BOXED = 128        # elements of a row whose results go around the cache by way of a room, at most


cdef struct Rows:  # that go together
    Place next                # the row after them
    Py_ssize_t first          # where the first begins in the data
    Py_ssize_t data[BATCH]    # where each does
    Py_ssize_t start[BATCH]   # from there on, or in a room
    Py_ssize_t param[BATCH]   # where its parameters begin


cdef inline bint in_vectors(const Work* w, Py_ssize_t n) noexcept nogil:
    """Does what is known of n rows lie side by side, and is it enough for vectors to pay?"""
    return w.member_step == 1 and n >= 8


cdef inline void take_rows(const Work* w, Py_ssize_t n, Rows* rows) noexcept nogil:
    """The next n."""
    cdef const Loop* inner = &w.nest.keep1
    cdef Place first = rows.next
    cdef Py_ssize_t i
    rows.first = first.data
    if in_vectors(w, n) and first.inner + n < inner.count:
        for i in range(n):
            rows.data[i] = first.data + i * inner.data
        for i in range(n):
            rows.param[i] = first.param + i * inner.param
        rows.next.inner += n
        rows.next.data += n * inner.data
        rows.next.param += n * inner.param
    else:
        for i in range(n):
            rows.data[i] = rows.next.data
            rows.param[i] = rows.next.param
            go_on(&w.nest, &rows.next, w.member_step)
    for i in range(n):
        rows.start[i] = rows.data[i] - first.data if w.x.direct else i * w.columns


cdef inline bint rows_follow(const Work* w) noexcept nogil:
    """Do the rows of a block lie one after the other, without a gap?"""
    cdef const Nest* n = &w.nest
    if w.member_step != 1:
        return n.keep0.data == w.columns
    if n.keep1.count > 1 and n.keep1.data != w.columns:
        return False
    return w.groups > 1 or n.keep0.count == 1 or n.keep0.data == n.keep1.count * w.columns


cdef inline bint go_boxed(const Work* w, const Data* result) noexcept nogil:
    """Do results go around the cache by way of a room? Where rows are so short that lines which two share would cost
    more."""
    return result.direct and result.stream and w.columns <= BOXED and rows_follow(w)


cdef inline bint go_in_lines(const Work* w, const Data* result) noexcept nogil:
    """Do results go around the cache line by line, whichever rows share it? They may where a row has no parameters, or
    the same for all its elements."""
    return fills_lines(result, w.columns) and rows_follow(w)


cdef inline bint go_straight(const real* type, const Work* w, const Data* result) noexcept nogil:
    """Are results of narrow rows whole lines, which go around the cache as they are?"""
    return w.columns <= STRAIGHT and sends_turns(type, result, w.columns) and <size_t>result.items % 64 == 0


cdef inline Py_ssize_t rows_at_once(
    const Work* w, bint each, bint straight, bint far, Py_ssize_t few
) noexcept nogil:
    cdef Py_ssize_t size = few if far else SOME
    if each and not far and w.columns > NARROW:
        size = MANY if w.x.direct else CHUNK
    return min(<Py_ssize_t>BATCH, max(SEVERAL if straight else 1, size // w.columns))


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
    const Work* w, const Data* x, const Py_ssize_t* at, Py_ssize_t n, Py_ssize_t next, real* k, real* a, real* q
) noexcept nogil:
    """The shifts of n rows of x, which begin at `at`, and their sums."""
    cdef bint centered = w.equation.centered
    cdef Py_ssize_t i
    if w.columns <= BRIEF:
        short_sums(x, at, n, w.columns, next, centered, k, a, q)
        return
    for i in range(n):
        k[i] = sample_mean(k, x, at[i], 0, whole_row(w)) if centered else 0
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
    rstds_of(&w.equation, var, rstd, n)
    for i in range(n):
        r[i] = <real>rstd[i]


cdef inline void keep_statistics(
    const Work* w, Py_ssize_t row, Py_ssize_t n, const real* k, const real* d, const double* var, const double* rstd
) noexcept nogil:
    """Of n rows from `row` on."""
    cdef Py_ssize_t i, at
    if in_vectors(w, n):
        for i in range(n):
            w.k[row + i] = k[i]
        for i in range(n):
            w.d[row + i] = d[i]
        memcpy(w.var + row, var, n * sizeof(double))
        memcpy(w.rstd + row, rstd, n * sizeof(double))
    else:
        for i in range(n):
            at = row + i * w.member_step
            w.k[at] = k[i]
            w.d[at] = d[i]
            w.var[at] = var[i]
            w.rstd[at] = rstd[i]


cdef inline void kept_statistics(
    const Work* w, Py_ssize_t row, Py_ssize_t n, real* k, real* d, real* r
) noexcept nogil:
    cdef Py_ssize_t i, at
    if in_vectors(w, n):
        for i in range(n):
            k[i] = <real>w.k[row + i]
        for i in range(n):
            d[i] = <real>w.d[row + i]
        for i in range(n):
            r[i] = <real>w.rstd[row + i]
    else:
        for i in range(n):
            at = row + i * w.member_step
            k[i] = <real>w.k[at]
            d[i] = <real>w.d[at]
            r[i] = <real>w.rstd[at]


cdef inline void short_forward(const real* type, const Work* w, Py_ssize_t job) noexcept nogil:
    """The rows of a block, some at a time, through both phases."""
    cdef const real* s = <const real*>w.s
    cdef const real* b = <const real*>w.b
    cdef real x_room[CHUNK]
    cdef real y_room[CHUNK]
    cdef Data x, y
    cdef Rows rows
    cdef minorm_outbox out
    cdef real a[BATCH]
    cdef real q[BATCH]
    cdef real known[FACTORS * ACROSS]
    cdef real* k = known + 1
    cdef real* d = k + ACROSS
    cdef real* c = d + ACROSS
    cdef real* c_b = c + ACROSS
    cdef real r[BATCH]
    cdef double var[BATCH]
    cdef double rstd[BATCH]
    cdef bint alone = not w.each or (s == NULL and b == NULL)  # a row shares no parameters
    cdef bint lined = alone and go_in_lines(w, &w.y)
    cdef bint straight = w.each and s != NULL and go_straight(type, w, &w.y)
    cdef bint boxed = not lined and not straight and go_boxed(w, &w.y)
    cdef bint each = w.each and s != NULL and (straight or boxed or not w.y.stream)
    cdef Py_ssize_t at_once = rows_at_once(w, each, straight, w.y.stream, FEW)
    cdef Py_ssize_t piece = PIECE if each else w.columns
    cdef Py_ssize_t begin = job % w.blocks * w.members_of_block
    cdef Py_ssize_t member = begin
    cdef Py_ssize_t end = min(member + w.members_of_block, w.members)
    cdef Py_ssize_t row = row_of(w, job, member)
    cdef Py_ssize_t next = SOON // size_of(w.x.type) if lined or straight or boxed else 0
    cdef Py_ssize_t n, i, at, some, param
    rows.next = place_of(&w.nest, row)
    minorm_outbox_open(&out, here(&w.y, rows.next.data, y_room).items, y_room)
    while member < end:
        n = min(at_once, end - member)
        take_rows(w, n, &rows)
        x = here(&w.x, rows.first, x_room)
        y = here(&w.y, rows.first, y_room)
        if boxed:
            y.items = minorm_outbox_place(&out)
            y.stream = False
        if not w.x.direct:
            for i in range(n):
                fetch(&w.x, rows.data[i], w.columns, x_room + rows.start[i])
        if w.moments:
            sums_of(w, &x, rows.start, n, next, k, a, q)
            statistics_of(w, &x, rows.start, n, a, q, k, d, r, var, rstd)
            keep_statistics(w, row, n, k, d, var, rstd)
        else:
            kept_statistics(w, row, n, k, d, r)
        at = 0 if w.apply else w.columns
        if w.apply and lined:
            scale_rows(s, rows.param, r, n, c)
            for i in range(n):
                c_b[i] = b[rows.param[i]] if b else <real>-0.0
            apply_lines(&x, &y, 0, w.columns, n, member == begin, member + n == end, next, known, ACROSS)
            keep_last(known, n)
            at = w.columns
        elif w.apply and alone and not y.stream:
            apply_rows(&x, &y, rows.start, n, w.columns, s, b, rows.param, k, d, r)
            at = w.columns
        elif w.apply and each and n >= SEVERAL and (straight or w.columns <= NARROW):
            param = rows.param[0]
            apply_each(&x, &y, rows.start, n, s + param, b + param if b else NULL, w.columns, next, k, d, r)
            at = w.columns
        while at < w.columns:
            some = min(piece, w.columns - at)
            i = 0
            while each and not straight and i + 2 <= n:
                param = rows.param[i] + at
                apply_two(
                    &x, &y, rows.start + i, at, s + param, b + param if b else NULL, some, k + i, d + i, r + i
                )
                i += 2
            while i < n:
                param = rows.param[i] + at
                apply(
                    &x, &y, rows.start[i] + at, s + param if s else NULL, b + param if b else NULL, w.each, 0,
                    0, 1, some, rows.next.data - rows.first, k[i], d[i], r[i],
                )
                i += 1
            at += some
        if w.apply and boxed:
            minorm_outbox_send(&out, n * w.columns * size_of(w.y.type))
        elif w.apply and not w.y.direct:
            for i in range(n):
                put(&w.y, rows.data[i], w.columns, y_room + rows.start[i])
        member += n
        row += n * w.member_step
    if w.apply and boxed:
        minorm_outbox_close(&out)


cdef inline void factors_of(
    const Work* w, Py_ssize_t row, Py_ssize_t n, const real* s, const Py_ssize_t* param,
    const real* sum, const real* sum_x, real* p, real* q,
) noexcept nogil:
    """p and q of n rows from `row` on, from their sums, which are kept where ds and db are made of them."""
    cdef bint centered = w.equation.centered
    cdef double rstd[BATCH]
    cdef double scaled[BATCH]
    cdef Py_ssize_t i, at
    if in_vectors(w, n):
        memcpy(rstd, w.rstd + row, n * sizeof(double))
    else:
        for i in range(n):
            rstd[i] = w.rstd[row + i * w.member_step]
    for i in range(n):
        scaled[i] = rstd[i] * w.one_by_columns
    if s != NULL and not w.each:
        for i in range(n):
            scaled[i] = rstd[i] * s[param[i]] * w.one_by_columns
    for i in range(n):
        p[i] = <real>(scaled[i] * sum[i]) if centered else 0
    for i in range(n):
        q[i] = <real>(scaled[i] * (sum_x[i] * rstd[i]))
    if w.equation.guard:
        for i in range(n):
            at = row + i * w.member_step
            q[i] = <real>(scaled[i] * (sum_x[i] * rstd[i]) * slope_of(&w.equation, w.var[at]))
    if w.tallies != NULL:
        memcpy(tally(sum, w, row), sum, n * sizeof(real))
        memcpy(tally_x(sum, w, row), sum_x, n * sizeof(real))


cdef inline void short_backward(const real* type, const Work* w, Py_ssize_t job) noexcept nogil:
    """The same for a backward pass that computes its sums and fills dx."""
    cdef const real* s = <const real*>w.s
    cdef real* ds = collected_by(type, w, job)
    cdef real* db = ds + w.pitch if ds else NULL
    cdef real x_room[CHUNK]
    cdef real dy_room[CHUNK]
    cdef real dx_room[CHUNK]
    cdef Data x, dy, dx
    cdef Rows rows
    cdef minorm_outbox out
    cdef real sum[BATCH]
    cdef real sum_x[BATCH]
    cdef real known[FACTORS * ACROSS]
    cdef real* k = known + 1
    cdef real* d = k + ACROSS
    cdef real* c = d + ACROSS
    cdef real* r = c + ACROSS
    cdef real* p = r + ACROSS
    cdef real* q = p + ACROSS
    cdef const real* its_s = s if w.each else NULL
    cdef bint lined = its_s == NULL and ds == NULL and go_in_lines(w, &w.dx)
    cdef bint straight = its_s != NULL and ds != NULL and go_straight(type, w, &w.dx)
    cdef bint boxed = not lined and not straight and go_boxed(w, &w.dx)
    cdef bint each = its_s != NULL and ds != NULL and (straight or boxed or not w.dx.stream)
    cdef Py_ssize_t at_once = rows_at_once(w, each, straight, w.dx.stream, FEW // 2)
    cdef Py_ssize_t piece = PIECE if each else w.columns
    cdef Py_ssize_t begin = job % w.blocks * w.members_of_block
    cdef Py_ssize_t member = begin
    cdef Py_ssize_t end = min(member + w.members_of_block, w.members)
    cdef Py_ssize_t row = row_of(w, job, member)
    cdef Py_ssize_t next = SOON // size_of(w.x.type) if lined or straight or boxed else 0
    cdef Py_ssize_t n, i, at, some, param
    rows.next = place_of(&w.nest, row)
    minorm_outbox_open(&out, here(&w.dx, rows.next.data, dx_room).items, dx_room)
    while member < end:
        n = min(at_once, end - member)
        take_rows(w, n, &rows)
        x = here(&w.x, rows.first, x_room)
        dy = here(&w.dy, rows.first, dy_room)
        dx = here(&w.dx, rows.first, dx_room)
        if boxed:
            dx.items = minorm_outbox_place(&out)
            dx.stream = False
        if not w.x.direct:
            for i in range(n):
                fetch(&w.x, rows.data[i], w.columns, x_room + rows.start[i])
                fetch(&w.dy, rows.data[i], w.columns, dy_room + rows.start[i])
        kept_statistics(w, row, n, k, d, r)
        short_grad_sums(
            &dy, &x, rows.start, n, its_s + rows.param[0] if its_s else NULL, w.columns, next, k, d, sum, sum_x,
        )
        factors_of(w, row, n, s, rows.param, sum, sum_x, p, q)
        at = 0
        if lined:
            scale_rows(s, rows.param, r, n, c)
            grad_lines(&dy, &x, &dx, 0, w.columns, n, member == begin, member + n == end, next, known, ACROSS)
            keep_last(known, n)
            at = w.columns
        elif its_s == NULL and ds == NULL and not dx.stream:
            grad_rows(&dy, &x, &dx, rows.start, n, w.columns, s, rows.param, k, d, r, p, q)
            at = w.columns
        elif each and n >= SEVERAL and (straight or w.columns <= NARROW):
            grad_each(&dy, &x, &dx, rows.start, n, s + rows.param[0], ds, db, w.columns, next, k, d, r, p, q)
            at = w.columns
        while at < w.columns:
            some = min(piece, w.columns - at)
            i = 0
            while each and not straight and i + 2 <= n:
                grad_two(
                    &dy, &x, &dx, rows.start + i, at, s + rows.param[i] + at, ds + at, db + at, some,
                    k + i, d + i, r + i, p + i, q + i,
                )
                i += 2
            while i < n:
                param = rows.param[i] + at
                grad(
                    &dy, &x, &dx, rows.start[i] + at, s + param if s else NULL, w.each, 0,
                    ds + at if ds else NULL, db + at if ds else NULL, 0, 1, some, rows.next.data - rows.first, k[i], d[i], r[i], p[i], q[i],
                )
                i += 1
            at += some
        if boxed:
            minorm_outbox_send(&out, n * w.columns * size_of(w.dx.type))
        elif not w.dx.direct:
            for i in range(n):
                put(&w.dx, rows.data[i], w.columns, dx_room + rows.start[i])
        member += n
        row += n * w.member_step
    if boxed:
        minorm_outbox_close(&out)
