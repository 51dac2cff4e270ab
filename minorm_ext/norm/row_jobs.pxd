# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# The jobs on rows: which part of which row, with which statistics and parameters. `type` has the type computed in, and
# is otherwise not looked at.

from libc.string cimport memset

from minorm_ext.norm.nest cimport row_data, row_param
from minorm_ext.norm.apply cimport apply, grad, grad_given, grad_params
from minorm_ext.norm.moments cimport Moments, merge, rstd_of, slope_of
from minorm_ext.norm.rows cimport CHUNK, chunk_span, fetch_span, joined, put_span, span_moments
from minorm_ext.norm.sums cimport BATCH, SOON, Span, grad_sums, sample_mean, short_grad_sums
from minorm_ext.norm.plan cimport ABSENT, NEAR, Work, ceil_div, slots_of_param, tally, tally_x
from minorm_ext.simd.storage cimport Data, item, real, seen, size_of

cdef enum:
    COLLECTED = 256    # parameters whose gradients one job adds up
    CLEARED = 1 << 18  # elements that one job clears


cdef inline Py_ssize_t last_chunk(const Work* w, Py_ssize_t part) noexcept nogil:
    return min((part + 1) * w.chunks_of_part, w.chunks)


cdef inline Py_ssize_t param_at(const Work* w, Py_ssize_t param, Span span) noexcept nogil:
    """Where the parameters of a span begin, in a row whose parameters begin at `param`."""
    return param + span.run * w.nest.reduce0.param + span.element * w.nest.reduce1.param


# Forward.

cdef inline Moments part_moments(const real* type, const Work* w, Py_ssize_t data, Py_ssize_t part) noexcept nogil:
    """The moments of a part, relative to the row's first element. What is known of the mean guides what follows."""
    cdef Moments m
    cdef real room[CHUNK]
    cdef real guess
    cdef Data x_seen
    cdef const Data* x = seen(&w.x, room, &x_seen)
    cdef double first = item(&w.x, data)
    cdef Py_ssize_t chunk, at, step
    cdef Span span
    m.n = 0
    m.offset = 0
    m.m2 = 0
    for chunk in range(part * w.chunks_of_part, last_chunk(w, part)):
        span = chunk_span(&w.nest, &w.cut, chunk)
        at = fetch_span(&w.x, &w.nest, data, span, room, &step)
        span = joined(&w.nest, span)
        guess = <real>(first + m.offset) if m.n > 0 else sample_mean(type, x, at, step, span)
        m = merge(m, span_moments(x, at, step, span, first, guess, w.equation.centered))
    return m


cdef inline void store_statistics(
    const real* type, const Work* w, Py_ssize_t row, double first, double offset, double var
) noexcept nogil:
    """mean = first + offset becomes k + d, where k is a number of the type of the data."""
    cdef double shift = first if w.equation.centered else 0
    cdef real k = <real>(shift + offset)
    w.k[row] = k
    w.d[row] = (shift - k) + offset
    w.var[row] = var
    w.rstd[row] = rstd_of(&w.equation, var)


cdef inline Py_ssize_t to_next(const Work* w, Py_ssize_t row, Py_ssize_t member) noexcept nogil:
    """How far on the next row of a group lies, where a processor's own cache holds it beside this one. Else 0."""
    if member + 1 == w.members or w.columns * size_of(w.x.type) > NEAR:
        return 0
    return row_data(&w.nest, row + w.member_step) - row_data(&w.nest, row)


cdef inline void part_apply(
    const real* type, const Work* w, Py_ssize_t row, Py_ssize_t part, Py_ssize_t next
) noexcept nogil:
    cdef const real* s = <const real*>w.s
    cdef const real* b = <const real*>w.b
    cdef real k = <real>w.k[row]
    cdef real d = <real>w.d[row]
    cdef real r = <real>w.rstd[row]
    cdef Py_ssize_t data = row_data(&w.nest, row)
    cdef Py_ssize_t param = row_param(&w.nest, row)
    cdef Py_ssize_t chunk, at, step, p
    cdef real x_room[CHUNK]
    cdef real y_room[CHUNK]
    cdef Data x_seen, y_seen
    cdef const Data* x = seen(&w.x, x_room, &x_seen)
    cdef const Data* y = seen(&w.y, y_room, &y_seen)
    cdef Span span
    for chunk in range(part * w.chunks_of_part, last_chunk(w, part)):
        span = chunk_span(&w.nest, &w.cut, chunk)
        at = fetch_span(&w.x, &w.nest, data, span, x_room, &step)
        p = param_at(w, param, span)
        apply(
            x, y, at, s + p if s else NULL, b + p if b else NULL, w.each, w.nest.reduce0.param,
            step, span.runs, span.length, next, k, d, r,
        )
        if not w.y.direct:
            put_span(&w.y, &w.nest, data, span, y_room)


cdef inline void rows_moments(const real* type, const Work* w, Py_ssize_t job) noexcept nogil:
    """One part of one row."""
    (<Moments*>w.partial)[job] = part_moments(type, w, row_data(&w.nest, job // w.parts), job % w.parts)


cdef inline void rows_finish(const real* type, const Work* w, Py_ssize_t row) noexcept nogil:
    """Merge the parts of a row."""
    cdef Moments m = (<Moments*>w.partial)[row * w.parts]
    cdef Py_ssize_t part
    for part in range(1, w.parts):
        m = merge(m, (<Moments*>w.partial)[row * w.parts + part])
    store_statistics(type, w, row, item(&w.x, row_data(&w.nest, row)), m.offset, m.m2 * w.one_by_columns)


cdef inline void rows_apply(const real* type, const Work* w, Py_ssize_t job) noexcept nogil:
    """One part of one row."""
    part_apply(type, w, job // w.parts, job % w.parts, 0)


cdef inline Moments row_moments(const real* type, const Work* w, Py_ssize_t data) noexcept nogil:
    """The moments of the row that begins at `data`."""
    cdef Moments m = part_moments(type, w, data, 0)
    cdef Py_ssize_t part
    for part in range(1, w.parts):
        m = merge(m, part_moments(type, w, data, part))
    return m


cdef inline void rows_whole_forward(const real* type, const Work* w, Py_ssize_t job) noexcept nogil:
    """The rows of a block through both phases."""
    cdef Moments m
    cdef Py_ssize_t member, row, part, data
    cdef Py_ssize_t first = job % w.blocks * w.members_of_block
    for member in range(first, min(first + w.members_of_block, w.members)):
        row = job // w.blocks * w.group_step + member * w.member_step
        if w.moments:
            data = row_data(&w.nest, row)
            m = row_moments(type, w, data)
            store_statistics(type, w, row, item(&w.x, data), m.offset, m.m2 * w.one_by_columns)
        if w.apply:
            for part in range(w.parts):
                part_apply(type, w, row, part, to_next(w, row, member))


# Backward.

cdef inline void run_sums(
    const Data* dy, const Data* x, Py_ssize_t at, Py_ssize_t step, Py_ssize_t runs, Py_ssize_t n, real k, real d,
    real* sum_dy, real* sum_dyx,
) noexcept nogil:
    """Fill a slot for each of at most BATCH runs."""
    cdef Py_ssize_t start[BATCH]
    cdef real all_k[BATCH]
    cdef real all_d[BATCH]
    cdef Py_ssize_t soon = SOON // size_of(x.type) if x.far else 0
    cdef Py_ssize_t i
    for i in range(runs):
        start[i] = at + i * step
        all_k[i] = k
        all_d[i] = d
    short_grad_sums(dy, x, start, runs, <const real*>NULL, n, soon, all_k, all_d, sum_dy, sum_dyx)


cdef inline void part_sums(const real* type, const Work* w, Py_ssize_t row, Py_ssize_t part) noexcept nogil:
    """Fill the slots of a part: sum(dy) and sum(dy * (x - mean)), with g for dy where each element has a parameter."""
    cdef const real* s = NULL
    cdef real k = <real>w.k[row]
    cdef real d = <real>w.d[row]
    cdef Py_ssize_t data = row_data(&w.nest, row)
    cdef real* sum_dy = tally(type, w, row)
    cdef real* sum_dyx = tally_x(type, w, row)
    cdef Py_ssize_t chunk, run, some, at, step, slot
    cdef real x_room[CHUNK]
    cdef real dy_room[CHUNK]
    cdef Data x_seen, dy_seen
    cdef const Data* x = seen(&w.x, x_room, &x_seen)
    cdef const Data* dy = seen(&w.dy, dy_room, &dy_seen)
    cdef Span span
    for chunk in range(part * w.chunks_of_part, last_chunk(w, part)):
        span = chunk_span(&w.nest, &w.cut, chunk)
        fetch_span(&w.x, &w.nest, data, span, x_room, &step)
        at = fetch_span(&w.dy, &w.nest, data, span, dy_room, &step)
        if w.slots == w.chunks:
            if w.each and w.s != NULL:
                s = <const real*>w.s + row_param(&w.nest, row) + span.run * w.nest.reduce0.param + span.element
            grad_sums(dy, x, at, step, s, w.nest.reduce0.param, span, k, d, sum_dy + chunk, sum_dyx + chunk)
        else:  # short runs, each with a parameter of its own
            run = 0
            while run < span.runs:
                some = min(<Py_ssize_t>BATCH, span.runs - run)
                slot = span.run + run
                run_sums(dy, x, at + run * step, step, some, span.length, k, d, sum_dy + slot, sum_dyx + slot)
                run += some


cdef inline void rows_combine(const real* type, const Work* w, Py_ssize_t row) noexcept nogil:
    """Add up the slots of a row, always in the same order, into sum_g and sum_gx."""
    cdef const real* s = <const real*>w.s if not w.each else NULL
    cdef const real* sum_dy = tally(type, w, row)
    cdef const real* sum_dyx = tally_x(type, w, row)
    cdef double sum_g = 0
    cdef double sum_gx = 0
    cdef double scale
    cdef Py_ssize_t at = row_param(&w.nest, row)
    cdef Py_ssize_t pieces = slots_of_param(w)
    cdef Py_ssize_t run, slot
    for run in range(w.slots // pieces):
        scale = s[at] if s else 1
        for slot in range(run * pieces, (run + 1) * pieces):
            sum_g += scale * sum_dy[slot]
            sum_gx += scale * sum_dyx[slot]
        at += w.nest.reduce0.param
    w.sum_g[row] = sum_g
    w.sum_gx[row] = sum_gx * w.rstd[row]


cdef inline void row_factors(const real* type, const Work* w, Py_ssize_t row, real* p, real* q) noexcept nogil:
    """What the sums take off dx: p + q * xhat."""
    p[0] = 0
    q[0] = 0
    if w.sums != ABSENT:
        if w.equation.centered:
            p[0] = <real>(w.rstd[row] * w.sum_g[row] * w.one_by_columns)
        q[0] = <real>(w.rstd[row] * w.sum_gx[row] * slope_of(&w.equation, w.var[row]) * w.one_by_columns)


cdef inline Py_ssize_t collected_at(const Work* w, Span span) noexcept nogil:
    """Where in what a block collects the gradients of a span's parameters begin."""
    return (span.run * w.nest.reduce1.count if w.nest.reduce0.param else 0) + span.element


cdef inline void part_input(
    const real* type, const Work* w, Py_ssize_t row, Py_ssize_t part, real* ds, Py_ssize_t next
) noexcept nogil:
    """dx of a part; and add to ds and db where each element has a parameter."""
    cdef const real* s = <const real*>w.s
    cdef const real* its_s
    cdef real k = <real>w.k[row]
    cdef real d = <real>w.d[row]
    cdef real r = <real>w.rstd[row]
    cdef Py_ssize_t data = row_data(&w.nest, row)
    cdef Py_ssize_t param = row_param(&w.nest, row)
    cdef real p, q
    cdef Py_ssize_t chunk, at, step, j
    cdef real x_room[CHUNK]
    cdef real dy_room[CHUNK]
    cdef real dx_room[CHUNK]
    cdef real* its_ds = NULL
    cdef real* its_db = NULL
    cdef Data x_seen, dy_seen, dx_seen
    cdef const Data* x = seen(&w.x, x_room, &x_seen)
    cdef const Data* dy = seen(&w.dy, dy_room, &dy_seen)
    cdef const Data* dx = seen(&w.dx, dx_room, &dx_seen)
    cdef Span span
    row_factors(type, w, row, &p, &q)
    for chunk in range(part * w.chunks_of_part, last_chunk(w, part)):
        span = chunk_span(&w.nest, &w.cut, chunk)
        fetch_span(&w.x, &w.nest, data, span, x_room, &step)
        at = fetch_span(&w.dy, &w.nest, data, span, dy_room, &step)
        its_s = s + param_at(w, param, span) if s else NULL
        if ds != NULL:
            j = collected_at(w, span)
            its_ds = ds + j
            its_db = ds + w.pitch + j
        if w.sums != ABSENT and w.dx.items != NULL:
            grad(
                dy, x, dx, at, its_s, w.each, w.nest.reduce0.param, its_ds, its_db,
                step, span.runs, span.length, next, k, d, r, p, q,
            )
        elif w.dx.items != NULL:
            grad_given(dy, dx, at, its_s, w.each, w.nest.reduce0.param, step, span.runs, span.length, r)
        if ds != NULL and (w.sums == ABSENT or w.dx.items == NULL):
            grad_params(
                dy, x, at, w.nest.reduce0.param, its_ds, its_db, step, span.runs, span.length, k, d, r
            )
        if w.dx.items != NULL and not w.dx.direct:
            put_span(&w.dx, &w.nest, data, span, dx_room)


cdef inline void rows_sums(const real* type, const Work* w, Py_ssize_t job) noexcept nogil:
    """One part of one row."""
    part_sums(type, w, job // w.parts, job % w.parts)


cdef inline real* collected_by(const real* type, const Work* w, Py_ssize_t block) noexcept nogil:
    """Where a block collects its ds, and w.pitch further its db; NULL where it does not."""
    return <real*>w.collected + block * 2 * w.pitch if w.collected != NULL else NULL


cdef inline void rows_input(const real* type, const Work* w, Py_ssize_t job) noexcept nogil:
    """One part of the rows of one block."""
    cdef Py_ssize_t block = job // w.parts
    cdef Py_ssize_t first = block % w.blocks * w.members_of_block
    cdef Py_ssize_t member
    cdef real* ds = collected_by(type, w, block)
    for member in range(first, min(first + w.members_of_block, w.members)):
        part_input(type, w, block // w.blocks * w.group_step + member * w.member_step, job % w.parts, ds, 0)


cdef inline void rows_whole_backward(const real* type, const Work* w, Py_ssize_t job) noexcept nogil:
    """The rows of a block through both phases."""
    cdef Py_ssize_t member, row, part
    cdef Py_ssize_t first = job % w.blocks * w.members_of_block
    cdef real* ds = collected_by(type, w, job)
    for member in range(first, min(first + w.members_of_block, w.members)):
        row = job // w.blocks * w.group_step + member * w.member_step
        if w.tally:
            for part in range(w.parts):
                part_sums(type, w, row, part)
            rows_combine(type, w, row)
        if w.dx.items != NULL or ds != NULL:
            for part in range(w.parts):
                part_input(type, w, row, part, ds, to_next(w, row, member))


cdef inline Py_ssize_t size_to_collect(const Work* w) noexcept nogil:
    """How many elements all blocks collect."""
    return w.groups * w.blocks * 2 * w.pitch


cdef inline Py_ssize_t pieces_to_clear(const Work* w) noexcept nogil:
    """How many jobs that makes."""
    return ceil_div(size_to_collect(w), CLEARED)


cdef inline void rows_clear(const real* type, const Work* w, Py_ssize_t job) noexcept nogil:
    """Nothing is collected yet in a piece."""
    cdef Py_ssize_t first = job * CLEARED
    memset(<real*>w.collected + first, 0, min(<Py_ssize_t>CLEARED, size_to_collect(w) - first) * sizeof(real))


cdef inline Py_ssize_t pieces_to_collect(const Work* w) noexcept nogil:
    """How many jobs the parameters of a group make."""
    return ceil_div(w.extent, COLLECTED)


cdef inline void rows_collect(const real* type, const Work* w, Py_ssize_t job) noexcept nogil:
    """Add up what the blocks of a group have collected for some parameters, in the order of the blocks."""
    cdef real* ds = <real*>w.ds
    cdef real* db = <real*>w.db
    cdef Py_ssize_t group = job // pieces_to_collect(w)
    cdef const real* collected = <const real*>w.collected + group * w.blocks * 2 * w.pitch
    cdef Py_ssize_t start = row_param(&w.nest, group * w.group_step)
    cdef Py_ssize_t n = w.nest.reduce1.count
    cdef Py_ssize_t first = job % pieces_to_collect(w) * COLLECTED
    cdef Py_ssize_t end = min(first + COLLECTED, w.extent)
    cdef Py_ssize_t j, block, lanes, at_param
    cdef const real* at
    cdef double total_s[COLLECTED]
    cdef double total_b[COLLECTED]
    while first < end:
        lanes = min(end - first, n - first % n)
        at_param = start + first // n * w.nest.reduce0.param + first % n
        for j in range(lanes):
            total_s[j] = 0
            total_b[j] = 0
        for block in range(w.blocks):
            at = collected + block * 2 * w.pitch + first
            for j in range(lanes):
                total_s[j] += at[j]
                total_b[j] += at[w.pitch + j]
        for j in range(lanes):
            ds[at_param + j] = <real>total_s[j]
            db[at_param + j] = <real>total_b[j]
        first += lanes
