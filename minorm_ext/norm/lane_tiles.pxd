# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# A tile of lanes: where it lies, and what is known of its lanes.
#
# What belongs to a statistic is worked out for all of a tile side by side, which vectorises: an image of 14 x 14 has a
# statistic for each 196 elements, and one by one they took a fifth of the time. Then each lane gets what its statistic
# has (`fold` lanes share one), and again for every row that a wide row holds.

from minorm_ext.norm.lanes cimport LANES, Lanes, Strip, spread_lanes
from minorm_ext.norm.moments cimport Moments, merge_here, rstds_of, slope_of
from minorm_ext.norm.plan cimport ABSENT, Work, ceil_div, tally, tally_x
from minorm_ext.simd.storage cimport fetch, real


cdef struct Tile:
    Strip strip
    Py_ssize_t lanes
    Py_ssize_t rows   # statistics: a lane has one, or `fold` lanes do
    Py_ssize_t data   # where it begins in the data
    Py_ssize_t row    # its first statistic
    Py_ssize_t param  # where its parameters begin


cdef inline Tile tile_of(const Work* w, Py_ssize_t number) noexcept nogil:
    cdef Tile tile
    cdef Py_ssize_t turn = number // w.tiles
    cdef Py_ssize_t lane = number % w.tiles * w.tile
    tile.lanes = min(w.tile, w.across - lane)
    tile.rows = tile.lanes // w.fold
    tile.strip.kept = tile.lanes
    tile.strip.width = tile.lanes * w.at_once
    tile.strip.rows = ceil_div(w.depth, w.at_once)
    tile.strip.last = tile.lanes * (w.depth - (tile.strip.rows - 1) * w.at_once)
    tile.strip.asked = False
    tile.data = turn * w.nest.keep0.data + lane
    tile.row = turn * w.nest.keep1.count + lane // w.fold
    tile.param = turn * w.nest.keep0.param + lane // w.fold * w.nest.keep1.param
    return tile


cdef inline bint by_row(const Work* w) noexcept nogil:
    """Do the parameters vary from reduced row to reduced row?"""
    return w.nest.reduce0.param != 0 or w.nest.reduce1.param != 0


cdef inline void lane_origins(const real* type, const Work* w, const Tile* tile, double* origin) noexcept nogil:
    """What the means of the lanes are relative to: their first elements, or 0 if not centered."""
    cdef Lanes room
    cdef const real* x = fetch(&w.x, tile.data, tile.lanes, <real*>&room)
    cdef Py_ssize_t j
    for j in range(tile.lanes):
        origin[j] = x[j] if w.equation.centered else 0


cdef inline void lane_statistics(const Work* w, const Tile* tile, const double* of_rows, real* to) noexcept nogil:
    """Each lane gets what its statistic has."""
    cdef Py_ssize_t i, j
    if w.fold == 1:
        for i in range(tile.rows):
            to[i] = <real>of_rows[i]
    else:
        for i in range(tile.rows):
            for j in range(w.fold):
                to[i * w.fold + j] = <real>of_rows[i]
    spread_lanes(to, &tile.strip)


cdef inline void lane_shifts(const Work* w, const Tile* tile, real* k, real* d) noexcept nogil:
    """The mean of each lane is k + d."""
    lane_statistics(w, tile, w.k + tile.row, k)
    lane_statistics(w, tile, w.d + tile.row, d)


cdef inline void lane_params(const Work* w, const Tile* tile, const real* params, real* to) noexcept nogil:
    """Each lane gets its parameter."""
    cdef const real* p = params + tile.param
    cdef Py_ssize_t i, j
    if w.fold == 1 and w.nest.keep1.param == 1:
        for j in range(tile.lanes):
            to[j] = p[j]
    else:
        for i in range(tile.rows):
            for j in range(w.fold):
                to[i * w.fold + j] = p[i * w.nest.keep1.param + j * w.fold_param]
    spread_lanes(to, &tile.strip)


# Forward.

cdef inline void fold_moments(
    const Work* w, const Tile* tile, double* origin, double* offset, double* m2
) noexcept nogil:
    """Merge the lanes of each statistic. The statistics end up side by side at the front."""
    cdef Moments all, one
    cdef double shift
    cdef Py_ssize_t i, j
    for i in range(tile.rows):
        j = i * w.fold
        shift = origin[j]
        all.n = one.n = w.depth
        all.offset = offset[j]
        all.m2 = m2[j]
        for j in range(i * w.fold + 1, (i + 1) * w.fold):
            one.offset = (origin[j] - shift) + offset[j]
            one.m2 = m2[j]
            all = merge_here(all, one)
        origin[i] = shift
        offset[i] = all.offset
        m2[i] = all.m2


cdef inline void tile_finish(
    const real* type, const Work* w, const Tile* tile, double* offset, double* m2
) noexcept nogil:
    """Statistics from the moments of lanes, which are used up."""
    cdef double origin[LANES]
    cdef double* k = w.k + tile.row
    cdef double* d = w.d + tile.row
    cdef double* var = w.var + tile.row
    cdef double one = w.one_by_columns
    cdef Py_ssize_t i
    lane_origins(type, w, tile, origin)
    if w.fold > 1:
        fold_moments(w, tile, origin, offset, m2)
    for i in range(tile.rows):
        k[i] = <real>(origin[i] + offset[i])
        d[i] = (origin[i] - k[i]) + offset[i]
    for i in range(tile.rows):
        var[i] = m2[i] * one
    rstds_of(&w.equation, var, w.rstd + tile.row, tile.rows)


# Backward.

cdef inline void tile_combine(
    const real* type, const Work* w, const Tile* tile, const double* dy, const double* dyx, double* g, double* gx
) noexcept nogil:
    """The sums of g = dy * s for each statistic, from those of its lanes in their order; these go into ds and db."""
    cdef const double* rstd = w.rstd + tile.row
    cdef Lanes room
    cdef real* scale = <real*>&room
    cdef real* kept
    cdef real* kept_x
    cdef Py_ssize_t i, j
    if w.tallies != NULL:
        kept = tally(type, w, tile.row)
        kept_x = tally_x(type, w, tile.row)
        for j in range(tile.lanes):
            kept[j] = <real>dy[j]
        for j in range(tile.lanes):
            kept_x[j] = <real>dyx[j]
    if w.s != NULL and not by_row(w):
        lane_params(w, tile, <const real*>w.s, scale)
    else:
        for j in range(tile.lanes):
            scale[j] = 1
    if w.fold == 1:
        for i in range(tile.rows):
            g[i] = dy[i] * scale[i]
            gx[i] = dyx[i] * scale[i] * rstd[i]
    else:
        for i in range(tile.rows):
            g[i] = gx[i] = 0
            for j in range(i * w.fold, (i + 1) * w.fold):
                g[i] += dy[j] * scale[j]
                gx[i] += dyx[j] * scale[j] * rstd[i]


cdef inline void lane_factors(
    const Work* w, const Tile* tile, const double* g, const double* gx, real* p, real* q
) noexcept nogil:
    """What the sums take off dx: p + q * xhat. See row_factors in row_jobs.pxd."""
    cdef const double* rstd = w.rstd + tile.row
    cdef double one = w.one_by_columns
    cdef double of_dy[LANES]
    cdef double of_x[LANES]
    cdef Py_ssize_t i
    for i in range(tile.rows):
        of_dy[i] = of_x[i] = 0
    if w.sums != ABSENT:
        if w.equation.centered:
            for i in range(tile.rows):
                of_dy[i] = rstd[i] * g[i] * one
        for i in range(tile.rows):
            of_x[i] = rstd[i] * gx[i] * one
        if w.equation.guard:
            for i in range(tile.rows):
                of_x[i] *= slope_of(&w.equation, w.var[tile.row + i])
    lane_statistics(w, tile, of_dy, p)
    lane_statistics(w, tile, of_x, q)
