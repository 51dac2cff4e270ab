# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# A tile of columns: its place in memory, and the statistics of its columns.
#
# Statistics are computed side by side for a whole tile, which vectorises: an image of 14 x 14 has a statistic for each
# 196 elements, and statistics computed one by one took a fifth of the time. Then each column gets a copy of its
# statistic's numbers (`fold` columns share one), and another copy for every row that a wide row holds.

from libc.stdint cimport uint8_t
from libc.string cimport memcpy, memset

from minorm_ext.norm.columns cimport WIDTH, Scratch, Strip, column_row, columns_of, repeat_columns
from minorm_ext.norm.moments cimport Moments, merge, rstds_of, slope_of
from minorm_ext.norm.work cimport ABSENT, Work, one_by_count, partial_sums, partial_sums_x, is_undefined
from minorm_ext.runtime.numbers cimport ceil_div, real
from minorm_ext.simd.storage cimport fetch, item


cdef struct Tile:
    Strip strip
    Py_ssize_t columns
    Py_ssize_t rows   # statistics: a column has one, or `fold` columns do
    Py_ssize_t data   # where it begins in the data
    Py_ssize_t row    # its first statistic
    Py_ssize_t param  # where its parameters begin


cdef inline Tile tile_of(const Work* w, Py_ssize_t number) noexcept nogil:
    cdef Tile tile
    cdef Py_ssize_t turn = number // w.plan.tiles
    cdef Py_ssize_t column = number % w.plan.tiles * w.plan.tile
    tile.columns = min(w.plan.tile, w.plan.across - column)
    tile.rows = tile.columns // w.plan.fold
    tile.strip.kept = tile.columns
    tile.strip.width = tile.columns * w.plan.at_once
    tile.strip.rows = ceil_div(w.plan.depth, w.plan.at_once)
    tile.strip.last = tile.columns * (w.plan.depth - (tile.strip.rows - 1) * w.plan.at_once)
    tile.strip.asked = False
    tile.data = turn * w.plan.nest.keep0.data + column
    tile.row = turn * w.plan.nest.keep1.count + column // w.plan.fold
    tile.param = turn * w.plan.nest.keep0.param + column // w.plan.fold * w.plan.nest.keep1.param
    return tile


cdef inline void find_origins(const Work* w, const Tile* tile) noexcept nogil:
    """Find the first element of each statistic that counts, if there is a mask; k holds it until the mean is known."""
    cdef uint8_t sought[WIDTH]
    cdef uint8_t found
    cdef const uint8_t* mask
    cdef Py_ssize_t left = tile.rows
    cdef Py_ssize_t row, i, j, column, start
    if w.count == NULL:
        return
    for i in range(tile.rows):
        w.k[tile.row + i] = 0
    memset(sought, w.equation.centered, tile.strip.width)
    for row in range(tile.strip.rows if w.equation.centered else 0):
        start = tile.data + column_row(&w.plan.nest, &tile.strip, row)
        mask = w.x.mask + start
        found = 0
        for j in range(columns_of(&tile.strip, row)):
            found |= mask[j] & sought[j]
        if not found:
            continue
        for j in range(columns_of(&tile.strip, row)):
            if mask[j] & sought[j]:
                column = j % tile.columns
                column -= column % w.plan.fold
                w.k[tile.row + column // w.plan.fold] = item(&w.x, start + j)
                left -= 1
                while column < tile.strip.width:  # the same column of the other rows that are taken as one
                    memset(sought + column, 0, w.plan.fold)
                    column += tile.columns
        if left == 0:
            return


cdef inline void column_origins(const real* type, const Work* w, const Tile* tile, double* origin) noexcept nogil:
    """Find the origins of the columns' means: their first elements, or 0 if not centered."""
    cdef Scratch scratch
    cdef const real* x
    cdef Py_ssize_t j
    if w.count != NULL:
        column_statistics(w, tile, w.k + tile.row, origin)
        return
    x = fetch(&w.x, tile.data, tile.columns, <real*>&scratch)
    for j in range(tile.columns):
        origin[j] = x[j] if w.equation.centered else 0


cdef inline void column_statistics(const Work* w, const Tile* tile, const double* of_rows, real* to) noexcept nogil:
    """Copy the number of each statistic to its columns."""
    cdef Py_ssize_t i, j
    if w.plan.fold == 1:
        for i in range(tile.rows):
            to[i] = <real>of_rows[i]
    else:
        for i in range(tile.rows):
            for j in range(w.plan.fold):
                to[i * w.plan.fold + j] = <real>of_rows[i]
    repeat_columns(to, &tile.strip)


cdef inline void column_shifts(const Work* w, const Tile* tile, real* k, real* d) noexcept nogil:
    """Copy k and d of each statistic to its columns: the mean of a column is k + d."""
    column_statistics(w, tile, w.k + tile.row, k)
    column_statistics(w, tile, w.d + tile.row, d)


cdef inline void column_params(const Work* w, const Tile* tile, const real* params, real* to) noexcept nogil:
    """Copy the parameter of each column."""
    cdef const real* p = params + tile.param
    cdef Py_ssize_t i, j
    if w.plan.fold == 1 and w.plan.nest.keep1.param == 1:
        for j in range(tile.columns):
            to[j] = p[j]
    else:
        for i in range(tile.rows):
            for j in range(w.plan.fold):
                to[i * w.plan.fold + j] = p[i * w.plan.nest.keep1.param + j * w.plan.fold_param]
    repeat_columns(to, &tile.strip)


# Forward.

cdef inline void fold_moments(
    const Work* w, const Tile* tile, double* origin, double* offset, double* m2, double* held
) noexcept nogil:
    """Merge the columns of each statistic; with a mask, they have `held` elements each. Afterwards the statistics are
    side by side at the front."""
    cdef Moments all, one
    cdef double shift
    cdef Py_ssize_t i, j
    for i in range(tile.rows):
        j = i * w.plan.fold
        shift = origin[j]
        all.n = one.n = w.plan.depth
        if held != NULL:
            all.n = held[j]
        all.offset = offset[j]
        all.m2 = m2[j]
        for j in range(i * w.plan.fold + 1, (i + 1) * w.plan.fold):
            one.offset = (origin[j] - shift) + offset[j]
            one.m2 = m2[j]
            if held != NULL:
                one.n = held[j]
            all = merge(all, one)
        origin[i] = shift
        offset[i] = all.offset
        m2[i] = all.m2
        if held != NULL:
            held[i] = all.n


cdef inline void tile_finish(
    const real* type, const Work* w, const Tile* tile, double* offset, double* m2, double* held
) noexcept nogil:
    """Compute the statistics from the moments of columns, and overwrite these."""
    cdef double origin[WIDTH]
    cdef double* k = w.k + tile.row
    cdef double* d = w.d + tile.row
    cdef double* var = w.var + tile.row
    cdef double one = w.plan.one_by_columns
    cdef Py_ssize_t i
    column_origins(type, w, tile, origin)
    if w.plan.fold > 1:
        fold_moments(w, tile, origin, offset, m2, held)
    for i in range(tile.rows):
        k[i] = <real>(origin[i] + offset[i])
        d[i] = (origin[i] - k[i]) + offset[i]
    for i in range(tile.rows):
        var[i] = m2[i] * one
    for i in range(0 if held == NULL else tile.rows):
        w.count[tile.row + i] = held[i]
        var[i] = m2[i] * one_by_count(w, tile.row + i)
    rstds_of(&w.equation, var, w.rstd + tile.row, tile.rows)
    for i in range(0 if held == NULL else tile.rows):
        if is_undefined(w, held[i]):
            w.rstd[tile.row + i] = 0


# Backward.

cdef inline void tile_combine(
    const real* type, const Work* w, const Tile* tile, const double* dy, const double* dyx, double* g, double* gx
) noexcept nogil:
    """Compute the sums of g = dy * s for each statistic from its columns' sums, in order; ds and db use these too."""
    cdef const double* rstd = w.rstd + tile.row
    cdef Scratch scratch
    cdef real* scale = <real*>&scratch
    cdef Py_ssize_t i, j
    if w.slot_sums != NULL:
        memcpy(partial_sums(w, tile.row), dy, tile.columns * sizeof(double))
        memcpy(partial_sums_x(w, tile.row), dyx, tile.columns * sizeof(double))
    if w.s != NULL and not w.plan.rows_differ:
        column_params(w, tile, <const real*>w.s, scale)
    else:
        for j in range(tile.columns):
            scale[j] = 1
    if w.plan.fold == 1:
        for i in range(tile.rows):
            g[i] = dy[i] * scale[i]
            gx[i] = dyx[i] * scale[i] * rstd[i]
    else:
        for i in range(tile.rows):
            g[i] = gx[i] = 0
            for j in range(i * w.plan.fold, (i + 1) * w.plan.fold):
                g[i] += dy[j] * scale[j]
                gx[i] += dyx[j] * scale[j] * rstd[i]


cdef inline void column_factors(
    const Work* w, const Tile* tile, const double* g, const double* gx, real* p, real* q
) noexcept nogil:
    """Compute the terms that the sums subtract from dx: p + q * xhat. See row_factors in statistics.pxd."""
    cdef const double* rstd = w.rstd + tile.row
    cdef double one = w.plan.one_by_columns
    cdef double of_dy[WIDTH]
    cdef double of_x[WIDTH]
    cdef Py_ssize_t i
    for i in range(tile.rows):
        of_dy[i] = of_x[i] = 0
    if w.sums != ABSENT:
        if w.equation.centered:
            for i in range(tile.rows):
                of_dy[i] = rstd[i] * g[i] * (one if w.count == NULL else one_by_count(w, tile.row + i))
        for i in range(tile.rows):
            of_x[i] = rstd[i] * gx[i] * (one if w.count == NULL else one_by_count(w, tile.row + i))
        if w.equation.guard:
            for i in range(tile.rows):
                of_x[i] *= slope_of(&w.equation, w.var[tile.row + i])
    column_statistics(w, tile, of_dy, p)
    column_statistics(w, tile, of_x, q)
