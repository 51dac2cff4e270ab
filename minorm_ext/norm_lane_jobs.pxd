# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# The jobs on lanes: which part of which tile, with which statistics and parameters.
#
# Parameters vary from lane to lane or stay the same (c and b, one number a lane), or they vary from reduced row to
# reduced row (w and v, one number a row; LayerNorm over the channels of N x C x H x W). Both at once does not fit.

from libc.string cimport memset

from minorm_ext.nest cimport Nest
from minorm_ext.norm_lanes cimport (
    LANES, STEP, Strip, lane_apply, lane_grad_input, lane_grad_sums, lane_moments, lane_row, lane_row_param,
    lane_row_params, lane_scale, lanes_of, merge_lanes, spread_lanes, turns,
)
from minorm_ext.norm_moments cimport rstd_of, slope_of
from minorm_ext.norm_rows cimport real
from minorm_ext.norm_work cimport ABSENT, Work, ceil_div


cdef struct Tile:
    Strip strip
    Py_ssize_t lanes
    Py_ssize_t data   # where it begins in the data
    Py_ssize_t row    # its first statistic
    Py_ssize_t param  # where its parameters begin


cdef inline Tile tile_of(const Work* w, Py_ssize_t number) noexcept nogil:
    cdef Tile tile
    cdef Py_ssize_t turn = number // w.tiles
    cdef Py_ssize_t lane = number % w.tiles * LANES
    tile.lanes = min(<Py_ssize_t>LANES, w.nest.keep1.count - lane)
    tile.strip.kept = tile.lanes
    tile.strip.width = tile.lanes * w.at_once
    tile.strip.rows = ceil_div(w.columns, w.at_once)
    tile.strip.last = tile.lanes * (w.columns - (tile.strip.rows - 1) * w.at_once)
    tile.data = turn * w.nest.keep0.data + lane
    tile.row = turn * w.nest.keep1.count + lane
    tile.param = turn * w.nest.keep0.param + lane * w.nest.keep1.param
    return tile


cdef inline Py_ssize_t first_row(const Work* w, const Tile* tile, Py_ssize_t part) noexcept nogil:
    return min(part * w.chunks_of_part * STEP, tile.strip.rows)


cdef inline double turns_before(const Work* w, const Tile* tile, Py_ssize_t part) noexcept nogil:
    """How many elements of each lane the parts before this one hold."""
    return turns(&tile.strip, 0, first_row(w, tile, part))


cdef inline bint by_row(const Work* w) noexcept nogil:
    """Do the parameters vary from reduced row to reduced row?"""
    return w.nest.reduce0.param != 0 or w.nest.reduce1.param != 0


# Forward.

cdef inline void tile_moments(
    const real* x, const Work* w, Tile tile, Py_ssize_t part, double* offset, double* m2
) noexcept nogil:
    """The moments of the lanes of a tile over the rows of a part."""
    cdef Py_ssize_t first = first_row(w, &tile, part)
    cdef Py_ssize_t end = first_row(w, &tile, part + 1)
    cdef Py_ssize_t row = first
    memset(offset, 0, LANES * sizeof(double))
    memset(m2, 0, LANES * sizeof(double))
    while row < end:
        lane_moments(
            x + tile.data, &w.nest, &tile.strip, row, min(row + STEP, end), w.equation.centered,
            turns(&tile.strip, first, row), offset, m2,
        )
        row += STEP


cdef inline void tile_finish(
    const real* x, const Work* w, Tile tile, const double* offset, const double* m2
) noexcept nogil:
    """Statistics from moments."""
    cdef Py_ssize_t j
    cdef double shift
    cdef real k
    for j in range(tile.lanes):
        shift = x[tile.data + j] if w.equation.centered else 0
        k = <real>(shift + offset[j])
        w.k[tile.row + j] = k
        w.d[tile.row + j] = (shift - k) + offset[j]
        w.var[tile.row + j] = m2[j] * w.one_by_columns
        w.rstd[tile.row + j] = rstd_of(&w.equation, w.var[tile.row + j])


cdef inline void tile_apply(const real* x, const Work* w, Tile tile, Py_ssize_t part) noexcept nogil:
    cdef const real* s = <const real*>w.s
    cdef const real* b = <const real*>w.b
    cdef real* y = <real*>w.y
    cdef real k[LANES]
    cdef real d[LANES]
    cdef real c[LANES]
    cdef real e[LANES]
    cdef Py_ssize_t j, row, at, p
    cdef bint rows_differ = by_row(w)
    cdef bint per_lane = not rows_differ
    for j in range(tile.lanes):
        p = tile.param + j * w.nest.keep1.param
        k[j] = <real>w.k[tile.row + j]
        d[j] = <real>w.d[tile.row + j]
        c[j] = <real>w.rstd[tile.row + j]
        if s != NULL and per_lane:
            c[j] *= s[p]
        e[j] = b[p] if b != NULL and per_lane else 0
    spread_lanes(k, &tile.strip)
    spread_lanes(d, &tile.strip)
    spread_lanes(c, &tile.strip)
    spread_lanes(e, &tile.strip)
    for row in range(first_row(w, &tile, part), first_row(w, &tile, part + 1)):
        at = tile.data + lane_row(&w.nest, &tile.strip, row)
        p = tile.param + lane_row_param(&w.nest, row)
        lane_apply(
            x + at, y + at, lanes_of(&tile.strip, row), k, d, c, e,
            s[p] if rows_differ and s != NULL else 1, b[p] if rows_differ and b != NULL else 0,
        )


cdef inline void lanes_moments(const real* x, const Work* w, Py_ssize_t job) noexcept nogil:
    """One part of one tile."""
    cdef double* offset = w.partial + job * 2 * LANES
    tile_moments(x, w, tile_of(w, job // w.parts), job % w.parts, offset, offset + LANES)


cdef inline void lanes_finish(const real* x, const Work* w, Py_ssize_t job) noexcept nogil:
    """Merge the parts of one tile, in their order."""
    cdef Tile tile = tile_of(w, job)
    cdef Py_ssize_t part
    cdef double* all = w.partial + job * w.parts * 2 * LANES
    cdef double* one
    cdef double before
    for part in range(1, w.parts):
        one = all + part * 2 * LANES
        before = turns_before(w, &tile, part)
        merge_lanes(
            tile.lanes, before, all, all + LANES, turns_before(w, &tile, part + 1) - before, one, one + LANES
        )
    tile_finish(x, w, tile, all, all + LANES)


cdef inline void lanes_apply(const real* x, const Work* w, Py_ssize_t job) noexcept nogil:
    tile_apply(x, w, tile_of(w, job // w.parts), job % w.parts)


cdef inline void lanes_whole_forward(const real* x, const Work* w, Py_ssize_t job) noexcept nogil:
    """One tile through both phases."""
    cdef Tile tile = tile_of(w, job)
    cdef double all[2 * LANES]
    cdef double one[2 * LANES]
    cdef double before
    cdef Py_ssize_t part
    if w.moments:
        tile_moments(x, w, tile, 0, all, all + LANES)
        for part in range(1, w.parts):
            tile_moments(x, w, tile, part, one, one + LANES)
            before = turns_before(w, &tile, part)
            merge_lanes(
                tile.lanes, before, all, all + LANES, turns_before(w, &tile, part + 1) - before, one, one + LANES
            )
        tile_finish(x, w, tile, all, all + LANES)
    if w.apply:
        for part in range(w.parts):
            tile_apply(x, w, tile, part)


# Backward.

cdef inline void tile_sums(
    const real* x, const Work* w, Tile tile, Py_ssize_t part, double* sum_dy, double* sum_dyx
) noexcept nogil:
    """sum(dy) and sum(dy * (x - mean)) of the lanes; of g instead of dy where parameters vary from row to row."""
    cdef const real* s = <const real*>w.s
    cdef real k[LANES]
    cdef real d[LANES]
    cdef Py_ssize_t j
    cdef Py_ssize_t row = first_row(w, &tile, part)
    cdef Py_ssize_t end = first_row(w, &tile, part + 1)
    for j in range(tile.lanes):
        k[j] = <real>w.k[tile.row + j]
        d[j] = <real>w.d[tile.row + j]
    spread_lanes(k, &tile.strip)
    spread_lanes(d, &tile.strip)
    memset(sum_dy, 0, LANES * sizeof(double))
    memset(sum_dyx, 0, LANES * sizeof(double))
    while row < end:
        lane_grad_sums(
            <const real*>w.dy + tile.data, x + tile.data, &w.nest, &tile.strip, row, min(row + STEP, end), k, d,
            s + tile.param if s != NULL and by_row(w) else NULL, sum_dy, sum_dyx,
        )
        row += STEP


cdef inline void tile_combine(
    const real* x, const Work* w, Tile tile, const double* dy, const double* dyx
) noexcept nogil:
    """The sums of each lane, and of g = dy * s."""
    cdef const real* s = <const real*>w.s
    cdef Py_ssize_t j
    cdef double scale = 1
    for j in range(tile.lanes):
        if s != NULL and not by_row(w):
            scale = s[tile.param + j * w.nest.keep1.param]
        w.sum_dy[tile.row + j] = dy[j]
        w.sum_dyx[tile.row + j] = dyx[j]
        w.sum_g[tile.row + j] = dy[j] * scale
        w.sum_gx[tile.row + j] = dyx[j] * scale * w.rstd[tile.row + j]


cdef inline void tile_input(const real* x, const Work* w, Py_ssize_t number, Tile tile, Py_ssize_t part) noexcept nogil:
    """dx; and ds and db of each row where parameters vary from row to row."""
    cdef const real* s = <const real*>w.s
    cdef const real* dy = <const real*>w.dy
    cdef real* dx = <real*>w.dx
    cdef real k[LANES]
    cdef real d[LANES]
    cdef real r[LANES]
    cdef real c[LANES]
    cdef real p[LANES]
    cdef real q[LANES]
    cdef real scale
    cdef Py_ssize_t j, row, at, lanes
    cdef bint rows_differ = by_row(w)
    cdef double rstd
    cdef double* sums
    for j in range(tile.lanes):
        rstd = w.rstd[tile.row + j]
        k[j] = <real>w.k[tile.row + j]
        d[j] = <real>w.d[tile.row + j]
        r[j] = <real>rstd
        c[j] = r[j]
        if s != NULL and not rows_differ:
            c[j] *= s[tile.param + j * w.nest.keep1.param]
        if w.sums != ABSENT:
            p[j] = <real>(rstd * w.sum_g[tile.row + j] * w.one_by_columns) if w.equation.centered else 0
            q[j] = <real>(rstd * w.sum_gx[tile.row + j] * slope_of(&w.equation, w.var[tile.row + j]) * w.one_by_columns)
        else:
            p[j] = 0
            q[j] = 0
    spread_lanes(k, &tile.strip)
    spread_lanes(d, &tile.strip)
    spread_lanes(r, &tile.strip)
    spread_lanes(c, &tile.strip)
    spread_lanes(p, &tile.strip)
    spread_lanes(q, &tile.strip)
    for row in range(first_row(w, &tile, part), first_row(w, &tile, part + 1)):
        at = tile.data + lane_row(&w.nest, &tile.strip, row)
        lanes = lanes_of(&tile.strip, row)
        scale = s[tile.param + lane_row_param(&w.nest, row)] if rows_differ and s != NULL else 1
        if dx != NULL and w.sums == ABSENT:
            lane_scale(dy + at, dx + at, lanes, c, scale)
        elif dx != NULL:
            lane_grad_input(dy + at, x + at, dx + at, lanes, k, d, r, c, p, q, scale)
        if w.row_params != NULL:
            sums = w.row_params + (number * w.columns + row) * 2
            lane_row_params(dy + at, x + at, lanes, k, d, r, &sums[0], &sums[1])


cdef inline void lanes_sums(const real* x, const Work* w, Py_ssize_t job) noexcept nogil:
    """One part of one tile."""
    cdef double* sum_dy = w.partial + job * 2 * LANES
    tile_sums(x, w, tile_of(w, job // w.parts), job % w.parts, sum_dy, sum_dy + LANES)


cdef inline void lanes_combine(const real* x, const Work* w, Py_ssize_t job) noexcept nogil:
    """Add up the parts of one tile, in their order."""
    cdef double* all = w.partial + job * w.parts * 2 * LANES
    cdef Py_ssize_t part, j
    for part in range(1, w.parts):
        for j in range(2 * LANES):
            all[j] += all[part * 2 * LANES + j]
    tile_combine(x, w, tile_of(w, job), all, all + LANES)


cdef inline void lanes_input(const real* x, const Work* w, Py_ssize_t job) noexcept nogil:
    tile_input(x, w, job // w.parts, tile_of(w, job // w.parts), job % w.parts)


cdef inline void lanes_whole_backward(const real* x, const Work* w, Py_ssize_t job) noexcept nogil:
    """One tile through both phases."""
    cdef Tile tile = tile_of(w, job)
    cdef double all[2 * LANES]
    cdef double one[2 * LANES]
    cdef Py_ssize_t part, j
    if w.tally:
        tile_sums(x, w, tile, 0, all, all + LANES)
        for part in range(1, w.parts):
            tile_sums(x, w, tile, part, one, one + LANES)
            for j in range(2 * LANES):
                all[j] += one[j]
        tile_combine(x, w, tile, all, all + LANES)
    if w.dx != NULL or w.row_params != NULL:
        for part in range(w.parts):
            tile_input(x, w, job, tile, part)
