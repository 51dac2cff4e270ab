# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# The jobs on short rows (LayerNorm, RMSNorm, InstanceNorm of small images): some rows at a time go through both phases,
# so that the second finds them in cache. Where results go around it, both phases ask for the rows to come.

from libc.string cimport memset

from minorm_ext.norm.nest cimport place_of
from minorm_ext.norm.apply cimport apply, apply_rows, grad, grad_rows
from minorm_ext.norm.each cimport apply_each, apply_two, grad_each, grad_two, sends_turns
from minorm_ext.norm.lines cimport (
    ACROSS, FACTORS, MORE, add_extended, apply_lines, extended, fills_lines, grad_lines, keep_last, scale_rows,
)
from minorm_ext.norm.row_jobs cimport collected_by
from minorm_ext.norm.rows cimport CHUNK
from minorm_ext.norm.short_rows cimport (
    Rows, factors_of, keep_statistics, kept_statistics, row_of, rows_follow, statistics_of, sums_of, take_rows,
)
from minorm_ext.norm.sums cimport BATCH, SOON, short_grad_sums
from minorm_ext.norm.plan cimport Work, ceil_div
from minorm_ext.simd.storage cimport (
    Data, fetch, here, minorm_outbox, minorm_outbox_close, minorm_outbox_open, minorm_outbox_place,
    minorm_outbox_send, put, real, size_of,
)

cdef enum:
    SOME = 2048      # elements of rows that go together
    FEW = 1024       # the same where results go around the cache, of x, or of x and dy: reading and writing overlap
    ABREAST = 16     # narrow rows go together in multiples of this forward, and of half backward: vectors of statistics
    NARROW = 128     # elements of a row that shares its parameters in registers, at most
    FILLED = 256     # the same of one that goes STRAIGHT around the cache
    SEVERAL = 4      # such rows, at least: fewer go in pairs as well
    MANY = 16384     # elements of wider rows, which go in pairs
    PIECE = 1024     # elements of a pair that the second phase takes at once
    EXTENDED = 512   # elements of a row that shares its parameters and goes LINED, at most
    ROOMY = 128      # elements of a row that goes BOXED, at most

cdef enum Way:  # that results take
    STORED      # into the cache; all others around it
    LINED       # line by line, whichever rows share one
    STRAIGHT    # row by row: narrow ones that fill lines and share their parameters
    BOXED       # by way of a room, where they are collected (minorm_outbox in simd/stream.h): other narrow ones
    APART       # row by row, and the ends, which share lines with other rows, by themselves


cdef inline Way way_of(
    const real* type, const Work* w, const Data* result, bint alone, bint shared
) noexcept nogil:
    """The way of rows that stand `alone`, or whose elements have parameters that rows share."""
    cdef bint fills = w.columns * size_of(result.type) % 64 == 0
    cdef bint lined = alone or (shared and w.single and w.columns <= EXTENDED and not fills)
    if not result.stream:
        return STORED
    if shared and w.columns <= FILLED and sends_turns(type, result, w.columns) and <size_t>result.items % 64 == 0:
        return STRAIGHT
    if lined and fills_lines(result, w.columns) and rows_follow(w):
        return LINED
    if result.direct and w.columns <= ROOMY and rows_follow(w):
        return BOXED
    return APART


cdef inline Py_ssize_t rows_at_once(
    const Work* w, Way way, bint each, Py_ssize_t few, Py_ssize_t abreast
) noexcept nogil:
    """From memory `few` elements; in float narrow rows in multiples of `abreast`, and two at least that go APART."""
    cdef Py_ssize_t size = SOME if way == STORED else few
    cdef Py_ssize_t rows
    if each and way == STORED and w.columns > NARROW:
        size = MANY if w.x.direct else CHUNK
    rows = max(SEVERAL if way == STRAIGHT else 1, size // w.columns)
    if w.single and way == APART and w.columns <= FEW:
        rows = max(<Py_ssize_t>2, rows)
    elif w.single and w.columns <= NARROW and (way == LINED or way == BOXED):
        rows = ceil_div(rows, abreast) * abreast
    return min(<Py_ssize_t>BATCH, rows)


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
    cdef real s_room[EXTENDED + MORE]
    cdef real b_room[EXTENDED + MORE]
    cdef const real* more_s = NULL
    cdef const real* more_b = NULL
    cdef bint alone = not w.each or (s == NULL and b == NULL)  # a row shares no parameters
    cdef bint shared = w.each and s != NULL
    cdef Way way = way_of(type, w, &w.y, alone, shared)
    cdef bint each = shared and way != APART  # some rows go through a loop together
    cdef Py_ssize_t at_once = rows_at_once(w, way, each, FEW, ABREAST)
    cdef bint pairs = each and way == STORED
    cdef Py_ssize_t piece = PIECE if pairs else w.columns
    cdef Py_ssize_t begin = job % w.blocks * w.members_of_block
    cdef Py_ssize_t member = begin
    cdef Py_ssize_t end = min(member + w.members_of_block, w.members)
    cdef Py_ssize_t row = row_of(w, job, member)
    cdef Py_ssize_t next = 2 * SOON // size_of(w.x.type) if way != STORED else 0  # backward there is dy as well
    cdef Py_ssize_t n, i, at, some, param
    rows.next = place_of(&w.nest, row)
    if way == LINED and not alone:
        more_s = extended(s + rows.next.param, w.columns, s_room)
        more_b = extended(b + rows.next.param if b else NULL, w.columns, b_room)
    minorm_outbox_open(&out, here(&w.y, rows.next.data, y_room).items, y_room)
    while member < end:
        n = min(at_once, end - member)
        take_rows(w, n, &rows)
        x = here(&w.x, rows.first, x_room)
        y = here(&w.y, rows.first, y_room)
        if way == BOXED:
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
        if w.apply and way == LINED:
            scale_rows(s if alone else NULL, rows.param, r, n, c)
            for i in range(n):
                c_b[i] = b[rows.param[i]] if alone and b else <real>-0.0
            apply_lines(
                &x, &y, 0, more_s, more_b, w.columns, n, member == begin, member + n == end, next, known, ACROSS
            )
            keep_last(known, n)
            at = w.columns
        elif w.apply and alone and not y.stream:
            apply_rows(&x, &y, rows.start, n, w.columns, s, b, rows.param, k, d, r)
            at = w.columns
        elif w.apply and each and n >= SEVERAL and w.columns <= (FILLED if way == STRAIGHT else NARROW):
            param = rows.param[0]
            apply_each(&x, &y, rows.start, n, s + param, b + param if b else NULL, w.columns, next, k, d, r)
            at = w.columns
        while at < w.columns:
            some = min(piece, w.columns - at)
            i = 0
            while pairs and i + 2 <= n:
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
        if w.apply and way == BOXED:
            minorm_outbox_send(&out, n * w.columns * size_of(w.y.type))
        elif w.apply and not w.y.direct:
            for i in range(n):
                put(&w.y, rows.data[i], w.columns, y_room + rows.start[i])
        member += n
        row += n * w.member_step
    if w.apply and way == BOXED:
        minorm_outbox_close(&out)


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
    cdef real s_room[EXTENDED + MORE]
    cdef real ds_room[EXTENDED + MORE]
    cdef real db_room[EXTENDED + MORE]
    cdef const real* more_s = NULL
    cdef const real* its_s = s if w.each else NULL
    cdef bint alone = its_s == NULL and ds == NULL
    cdef bint shared = its_s != NULL and ds != NULL
    cdef Way way = way_of(type, w, &w.dx, alone, shared)
    cdef bint each = shared and way != APART
    cdef Py_ssize_t at_once = rows_at_once(w, way, each, FEW // 2, ABREAST // 2)
    cdef bint pairs = each and way == STORED
    cdef Py_ssize_t piece = PIECE if pairs else w.columns
    cdef Py_ssize_t begin = job % w.blocks * w.members_of_block
    cdef Py_ssize_t member = begin
    cdef Py_ssize_t end = min(member + w.members_of_block, w.members)
    cdef Py_ssize_t row = row_of(w, job, member)
    cdef Py_ssize_t next = SOON // size_of(w.x.type) if way != STORED else 0
    cdef Py_ssize_t n, i, at, some, param
    rows.next = place_of(&w.nest, row)
    if way == LINED and not alone:
        more_s = extended(s + rows.next.param, w.columns, s_room)
        memset(ds_room, 0, sizeof(ds_room))
        memset(db_room, 0, sizeof(db_room))
    minorm_outbox_open(&out, here(&w.dx, rows.next.data, dx_room).items, dx_room)
    while member < end:
        n = min(at_once, end - member)
        take_rows(w, n, &rows)
        x = here(&w.x, rows.first, x_room)
        dy = here(&w.dy, rows.first, dy_room)
        dx = here(&w.dx, rows.first, dx_room)
        if way == BOXED:
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
        if way == LINED:
            scale_rows(s if alone else NULL, rows.param, r, n, c)
            grad_lines(
                &dy, &x, &dx, 0, more_s, ds_room, db_room, w.columns, n, member == begin, member + n == end,
                next, known, ACROSS,
            )
            keep_last(known, n)
            at = w.columns
        elif alone and not dx.stream:
            grad_rows(&dy, &x, &dx, rows.start, n, w.columns, s, rows.param, k, d, r, p, q)
            at = w.columns
        elif each and n >= SEVERAL and w.columns <= (FILLED if way == STRAIGHT else NARROW):
            grad_each(&dy, &x, &dx, rows.start, n, s + rows.param[0], ds, db, w.columns, next, k, d, r, p, q)
            at = w.columns
        while at < w.columns:
            some = min(piece, w.columns - at)
            i = 0
            while pairs and i + 2 <= n:
                grad_two(
                    &dy, &x, &dx, rows.start + i, at, s + rows.param[i] + at, ds + at, db + at, some,
                    k + i, d + i, r + i, p + i, q + i,
                )
                i += 2
            while i < n:
                param = rows.param[i] + at
                grad(
                    &dy, &x, &dx, rows.start[i] + at, s + param if s else NULL, w.each, 0,
                    ds + at if ds else NULL, db + at if ds else NULL, 0, 1, some, rows.next.data - rows.first,
                    k[i], d[i], r[i], p[i], q[i],
                )
                i += 1
            at += some
        if way == BOXED:
            minorm_outbox_send(&out, n * w.columns * size_of(w.dx.type))
        elif not w.dx.direct:
            for i in range(n):
                put(&w.dx, rows.data[i], w.columns, dx_room + rows.start[i])
        member += n
        row += n * w.member_step
    if way == BOXED:
        minorm_outbox_close(&out)
    elif way == LINED and not alone:
        add_extended(ds, ds_room, w.columns)
        add_extended(db, db_room, w.columns)
