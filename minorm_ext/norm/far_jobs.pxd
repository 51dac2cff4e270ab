# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# The jobs on rows that come from memory and go to memory, and are so wide that a row does not stay in the innermost
# cache, or take longer than memory: the second phase of a row goes together with the first phase of a row that follows.
# Rows whose parameters, one for each element, do not stay in the innermost cache either go through it a few together,
# piece by piece: the second phase takes the same piece of each in turn, the first still reads row after row, for that
# is how memory is fastest. Rows of short runs with a parameter each (GroupNorm) go run by run.

from libc.string cimport memset

from minorm_ext.norm.nest cimport Nest, row_data, row_param
from minorm_ext.norm.apply cimport apply, grad
from minorm_ext.norm.far cimport Piece, apply_and_sum, grad_and_sum
from minorm_ext.norm.moments cimport Moments, merge
from minorm_ext.norm.row_jobs cimport (
    collected_at, collected_by, param_at, part_apply, part_input, part_sums, row_factors, row_moments, rows_combine,
    store_statistics,
)
from minorm_ext.norm.rows cimport chunk_span, joined, moments_of_sums
from minorm_ext.norm.short_rows cimport factors_of, keep_statistics, row_of, statistics_of, sums_of, whole_row
from minorm_ext.norm.sums cimport BRIEF, Span, grad_sums, sample_mean
from minorm_ext.norm.plan cimport COMPUTE, LINE, NEAR, Work, is_vast, tally, tally_x
from minorm_ext.simd.storage cimport Data, ahead, item, real, size_of

cdef enum:
    WIDE = 1024      # elements of such a row, at least
    NARROW = 256     # the same in float where rows begin on lines and no cache holds any
    FEW = 1 << 18    # bytes of rows that go together, about, if it is not to lose them
    TOGETHER = 4     # so many, at most
    MUCH = 40 << 10  # bytes that one loop over a row reads, at least, where the innermost cache keeps too few of them
    TILE = 512       # elements of a piece of such a row
    LEAST = 256      # elements of a run, where rows go by their runs
    PIECES = 96      # of a row, at most: NEAR bytes, in chunks whose last piece is longer or shorter
    HELD = 64        # accumulators of a row: 32 of each sum


cdef inline bint run_by_run(const Work* w) noexcept nogil:
    """Do rows go by their runs, each with a parameter of its own (GroupNorm)? They follow each other without a gap, and
    none shares a line with another."""
    cdef const Nest* n = &w.nest
    if w.cut.runs == 1 or w.each or n.reduce0.param == 0 or n.reduce0.data != n.reduce1.count:
        return False
    return LEAST <= n.reduce1.count and n.reduce1.count % LINE == 0 and n.reduce0.count <= PIECES


cdef inline bint together_pays(const Work* w, const Data* result) noexcept nogil:
    """Not where elements are widened and rounded: that takes longer than memory, and one phase after the other less."""
    if result.items == NULL or not result.stream or not result.as_is:
        return False
    if w.short:
        return w.columns >= (NARROW if w.single and w.columns % LINE == 0 and is_vast(w) else WIDE)
    if w.columns * size_of(w.x.type) >= NEAR or w.chunks_of_part > 1:
        return False
    return w.cut.runs == 1 or run_by_run(w)


cdef inline bint far_forward_pays(const Work* w) noexcept nogil:
    return w.moments and together_pays(w, &w.y)


cdef inline bint far_backward_pays(const Work* w) noexcept nogil:
    """In double the loop that also collects ds and db has more to keep than there are registers."""
    return w.sums == COMPUTE and w.tally and (w.single or w.collected == NULL) and together_pays(w, &w.dx)


cdef inline bint in_tiles(const Work* w, int rows, int params) noexcept nogil:
    """Do rows share parameters, and is what goes along in one loop, of both, too much for the innermost cache?"""
    return params > 0 and w.columns * (rows * size_of(w.x.type) + params * (4 if w.single else 8)) >= MUCH


cdef inline Py_ssize_t rows_together(const Work* w, int arrays) noexcept nogil:
    return max(1, min(<Py_ssize_t>TOGETHER, FEW // (w.columns * arrays * size_of(w.x.type))))


cdef inline int cut_pieces(const Work* w, bint tiles, Piece* pieces) noexcept nogil:
    """The pieces of every row: tiles, or whole chunks. Returns how many."""
    cdef Py_ssize_t chunk, i, many, element
    cdef Piece* piece = pieces
    cdef Span span
    for chunk in range(w.chunks):
        span = chunk_span(&w.nest, &w.cut, chunk)
        many = max(1, (span.length + TILE // 2) // TILE) if tiles else 1
        for i in range(many):
            element = span.element + i * TILE
            piece.data = span.run * w.nest.reduce0.data + element
            piece.length = TILE if i < many - 1 else span.element + span.length - element
            piece.param = param_at(w, 0, span) + i * TILE * w.nest.reduce1.param
            piece.collected = collected_at(w, span) + i * TILE
            piece.begins = element == 0
            piece.ends = element + piece.length == w.nest.reduce1.count
            piece.start = piece.data
            piece.count = piece.length
            piece.sum = chunk
            piece.opens = i == 0
            piece.closes = i == many - 1
            piece += 1
    return piece - pieces


cdef inline int cut_runs(const Work* w, bint by_chunks, Piece* pieces) noexcept nogil:
    """The runs of every row; those of a chunk share a sum, where sums are taken by chunks. Returns how many."""
    cdef Py_ssize_t n = w.nest.reduce1.count
    cdef Py_ssize_t i, chunk, first, last
    cdef Span span
    for chunk in range(w.chunks):
        span = chunk_span(&w.nest, &w.cut, chunk)
        for i in range(span.runs):
            first = i * n // BRIEF * BRIEF if by_chunks else i * n  # pieces of one sum are multiples of BRIEF
            last = (i + 1) * n // BRIEF * BRIEF if by_chunks and i + 1 < span.runs else (i + 1) * n
            pieces.data = (span.run + i) * n
            pieces.length = n
            pieces.param = (span.run + i) * w.nest.reduce0.param
            pieces.collected = 0
            pieces.begins = True
            pieces.ends = True
            pieces.start = span.run * n + first
            pieces.count = last - first
            pieces.sum = chunk if by_chunks else span.run + i
            pieces.opens = not by_chunks or i == 0
            pieces.closes = not by_chunks or i == span.runs - 1
            pieces += 1
    return w.nest.reduce0.count


cdef struct Turn:
    Py_ssize_t i   # the row in its second phase
    Py_ssize_t j   # the row in its first
    int mine       # piece of i
    int its        # piece of j


cdef inline bint advance(Turn* turn, Py_ssize_t rows, int pieces) noexcept nogil:
    """The second phase goes on to the same piece of the next row, the first to the next piece of its row. Was that its
    last?"""
    turn.i += 1
    if turn.i == rows:
        turn.i = 0
        turn.mine += 1
    turn.its += 1
    if turn.its < pieces:
        return False
    turn.its = 0
    turn.j += 1
    return True


cdef inline void ask_for_samples(const Work* w, Py_ssize_t at, Py_ssize_t length) noexcept nogil:
    """The shift of a chunk is guessed from four elements: they had better be here by then."""
    cdef Py_ssize_t i
    for i in range(4):
        ahead(&w.x, at + i * (length // 4), 1)


cdef inline void far_forward(const real* type, const Work* w, Py_ssize_t job) noexcept nogil:
    """The rows of a block."""
    cdef const real* s = <const real*>w.s
    cdef const real* b = <const real*>w.b
    cdef bint centered = w.equation.centered
    cdef Piece pieces[PIECES]
    cdef const Piece* here  # of a row in its second phase
    cdef const Piece* there  # of one in its first
    cdef real held[HELD]
    cdef Py_ssize_t data[TOGETHER]
    cdef Py_ssize_t next[TOGETHER]
    cdef Py_ssize_t param[TOGETHER]
    cdef real a[TOGETHER]
    cdef real q[TOGETHER]
    cdef real k[TOGETHER]
    cdef real d[TOGETHER]
    cdef real r[TOGETHER]
    cdef real next_k[TOGETHER]
    cdef double var[TOGETHER]
    cdef double rstd[TOGETHER]
    cdef Moments m[TOGETHER]
    cdef Moments of_chunk
    cdef Span span
    cdef Py_ssize_t member = job % w.blocks * w.members_of_block
    cdef Py_ssize_t end = min(member + w.members_of_block, w.members)
    cdef bint tiles = in_tiles(w, 2, w.each * ((s != NULL) + (b != NULL)))
    cdef Py_ssize_t together = rows_together(w, 1) if tiles else 1
    cdef int many = cut_runs(w, True, pieces) if run_by_run(w) else cut_pieces(w, tiles, pieces)
    cdef Py_ssize_t n = min(together, end - member)
    cdef Py_ssize_t first = row_of(w, job, 0)
    cdef Py_ssize_t i, j, more, row, part, p, at
    cdef Turn turn
    cdef real k1 = 0
    for i in range(n):
        data[i] = row_data(&w.nest, first + (member + i) * w.member_step)
        if not w.short:
            m[i] = row_moments(type, w, data[i])
    if w.short:
        sums_of(w, &w.x, data, n, 0, k, a, q)
    while n > 0:
        if w.short:
            statistics_of(w, &w.x, data, n, a, q, k, d, r, var, rstd)
            keep_statistics(w, first + member * w.member_step, n, k, d, var, rstd)
        for i in range(n):
            row = first + (member + i) * w.member_step
            param[i] = row_param(&w.nest, row)
            if not w.short:
                store_statistics(type, w, row, item(&w.x, data[i]), m[i].offset, m[i].m2 * w.one_by_columns)
                k[i] = <real>w.k[row]
                d[i] = <real>w.d[row]
                r[i] = <real>w.rstd[row]
        more = min(together, end - member - n)
        for i in range(more):
            next[i] = row_data(&w.nest, first + (member + n + i) * w.member_step)
        memset(&turn, 0, sizeof(Turn))
        while turn.j < more:
            i = turn.i
            j = turn.j
            here = &pieces[turn.mine]
            there = &pieces[turn.its]
            at = next[j] + there.start
            if there.opens:
                span = joined(&w.nest, chunk_span(&w.nest, &w.cut, there.sum))
                k1 = sample_mean(type, &w.x, at, 0, span) if centered else 0
                ask_for_samples(w, at + span.length, span.length)
            p = param[i] + here.param
            apply_and_sum(
                &w.x, &w.y, data[i] + here.data, s + p if s and w.each else NULL, b + p if b and w.each else NULL,
                here, at, there, k[i], d[i], r[i], r[i] * s[p] if s and not w.each else r[i],
                b[p] if b and not w.each else <real>-0.0, k1, held,
            )
            if there.closes and w.short:
                next_k[j] = k1
                a[j] = held[0]
                q[j] = held[1]
            elif there.closes:
                at = next[j] + span.run * w.nest.reduce0.data + span.element
                of_chunk = moments_of_sums(
                    &w.x, at, 0, span, item(&w.x, next[j]), k1, held[0], held[1], centered
                )
                m[j] = merge(m[j], of_chunk) if there.sum else of_chunk
            advance(&turn, more, many)
        for i in range(more, n):
            if w.short:
                apply(
                    &w.x, &w.y, data[i], s + param[i] if s else NULL, b + param[i] if b else NULL, w.each, 0, 0, 1,
                    w.columns, 0, k[i], d[i], r[i],
                )
            else:
                for part in range(w.parts):
                    part_apply(type, w, first + (member + i) * w.member_step, part, 0)
        for i in range(more):
            k[i] = next_k[i]
            data[i] = next[i]
        member += n
        n = more


cdef inline void far_backward(const real* type, const Work* w, Py_ssize_t job) noexcept nogil:
    """The rows of a block."""
    cdef const real* s = <const real*>w.s
    cdef real* ds = collected_by(type, w, job)
    cdef real* db = ds + w.pitch if ds else NULL
    cdef bint each = w.each and s != NULL
    cdef Piece pieces[PIECES]
    cdef const Piece* here
    cdef const Piece* there
    cdef real held[HELD]
    cdef Py_ssize_t rows[TOGETHER]
    cdef Py_ssize_t data[TOGETHER]
    cdef Py_ssize_t next[TOGETHER]
    cdef Py_ssize_t param[TOGETHER]
    cdef real sum[TOGETHER]
    cdef real sum_x[TOGETHER]
    cdef real p[TOGETHER]
    cdef real q[TOGETHER]
    cdef Py_ssize_t member = job % w.blocks * w.members_of_block
    cdef Py_ssize_t end = min(member + w.members_of_block, w.members)
    cdef bint tiles = in_tiles(w, 4, each + 2 * (ds != NULL))
    cdef Py_ssize_t together = rows_together(w, 2) if tiles else 1
    cdef int many = cut_runs(w, False, pieces) if run_by_run(w) else cut_pieces(w, tiles, pieces)
    cdef Py_ssize_t n = min(together, end - member)
    cdef Py_ssize_t first = row_of(w, job, 0)
    cdef Py_ssize_t i, j, more, row, part
    cdef Turn turn
    cdef const real* its_s
    cdef real r
    for i in range(n):
        row = first + (member + i) * w.member_step
        data[i] = row_data(&w.nest, row)
        if w.short:
            grad_sums(
                &w.dy, &w.x, data[i], 0, s + row_param(&w.nest, row) if each else NULL, 0, whole_row(w),
                <real>w.k[row], <real>w.d[row], &sum[i], &sum_x[i],
            )
        else:
            for part in range(w.parts):
                part_sums(type, w, row, part)
            rows_combine(type, w, row)
    while n > 0:
        for i in range(n):
            rows[i] = first + (member + i) * w.member_step
            param[i] = row_param(&w.nest, rows[i])
            if not w.short:
                row_factors(type, w, rows[i], &p[i], &q[i])
        if w.short:
            factors_of(w, rows[0], n, s, param, sum, sum_x, p, q)
        more = min(together, end - member - n)
        for i in range(more):
            next[i] = row_data(&w.nest, rows[i] + n * w.member_step)
        memset(&turn, 0, sizeof(Turn))
        while turn.j < more:
            i = turn.i
            j = turn.j
            here = &pieces[turn.mine]
            there = &pieces[turn.its]
            row = rows[j] + n * w.member_step
            r = <real>w.rstd[rows[i]]
            its_s = s + param[i] + here.param if s else NULL
            grad_and_sum(
                &w.dy, &w.x, &w.dx, data[i] + here.data, its_s if w.each else NULL, ds + here.collected if ds else NULL,
                db + here.collected if ds else NULL, here, next[j] + there.start,
                s + param[j] + there.param if each else NULL, there,
                <real>w.k[rows[i]], <real>w.d[rows[i]], r, r * its_s[0] if s and not w.each else r, p[i], q[i],
                <real>w.k[row], <real>w.d[row], held,
            )
            if there.closes and w.short:
                sum[j] = held[0]
                sum_x[j] = held[1]
            elif there.closes:
                tally(type, w, row)[there.sum] = held[0]
                tally_x(type, w, row)[there.sum] = held[1]
            if advance(&turn, more, many) and not w.short:
                rows_combine(type, w, row)
        for i in range(more, n):
            if w.short:
                grad(
                    &w.dy, &w.x, &w.dx, data[i], s + param[i] if s else NULL, w.each, 0, ds, db, 0, 1, w.columns, 0,
                    <real>w.k[rows[i]], <real>w.d[rows[i]], <real>w.rstd[rows[i]], p[i], q[i],
                )
            else:
                for part in range(w.parts):
                    part_input(type, w, rows[i], part, ds, 0)
        for i in range(more):
            data[i] = next[i]
        member += n
        n = more
