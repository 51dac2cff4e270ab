# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# The jobs on columns: each takes a part of a tile, with its statistics and parameters. `type` only carries the type
# computed in; no code reads its value.
#
# Parameters vary from column to column or stay the same (c and b, one number a column), or they vary from reduced row
# to reduced row (w and u, one number a row; LayerNorm over the channels of N x C x H x W). The jobs do not support both
# at once.

from minorm_ext.norm.column_tiles cimport (
    Tile, column_factors, column_origins, column_params, column_shifts, column_statistics, find_origins, tile_combine,
    tile_finish, tile_of,
)
from minorm_ext.norm.columns cimport (
    WIDTH, Scratch, column_row, column_row_param, elements_in, fetch_columns, guess_columns, merge_columns,
    moments_of_columns, rows_alike, rows_from, sums_of_columns,
)
from minorm_ext.norm.kernels cimport ColumnRows, columns_apply, columns_grad, columns_params
from minorm_ext.norm.plan cimport OWN_CACHE, all_tiles
from minorm_ext.norm.work cimport ABSENT, APPLY, COMBINE, FORWARD, INPUT, MERGE, MOMENTS, ORIGIN, SUMS, Work
from minorm_ext.runtime.numbers cimport real
from minorm_ext.simd.storage cimport Source, put, see


cdef inline Py_ssize_t first_row(const Work* w, const Tile* tile, Py_ssize_t part) noexcept nogil:
    return min(part * w.plan.chunks_of_part * w.plan.step, tile.strip.rows)


# Forward.

cdef inline void tile_guess(const Work* w, Tile tile, real* guess) noexcept nogil:
    """Guess the mean of each column from all of its elements, so that every part gets the same guess."""
    cdef Py_ssize_t j
    if w.count != NULL:
        column_statistics(w, &tile, w.k + tile.row, guess)
    if w.equation.centered:
        guess_columns(&w.x, tile.data, &w.plan.nest, &tile.strip, guess)
    else:
        for j in range(tile.columns):
            guess[j] = 0


cdef inline void tile_moments(
    const Work* w, Tile tile, Py_ssize_t part, const real* guess, double* offset, double* m2, double* held
) noexcept nogil:
    """Compute the moments of a tile's columns over the rows of a part; with a mask, also how many elements `held`."""
    cdef Py_ssize_t first = first_row(w, &tile, part)
    cdef Py_ssize_t end = first_row(w, &tile, part + 1)
    cdef Py_ssize_t row = first
    cdef double origin[WIDTH]
    cdef Scratch scratch
    cdef real* k = <real*>&scratch
    cdef Py_ssize_t j
    column_origins(guess, w, &tile, origin)
    for j in range(tile.columns):
        k[j] = guess[j]
        offset[j] = m2[j] = 0
        if held != NULL:
            held[j] = 0
    while row < end:
        moments_of_columns(
            &w.x, tile.data, &w.plan.nest, &tile.strip, row, min(row + w.plan.step, end), w.equation.centered,
            elements_in(&tile.strip, first, row), origin, k, offset, m2, held,
        )
        row += w.plan.step


cdef inline void tile_apply(
    const real* type, const Work* w, Tile tile, Py_ssize_t first, Py_ssize_t end, Py_ssize_t next
) noexcept nogil:
    """Compute y of the rows first .. end - 1."""
    cdef const real* s = <const real*>w.s
    cdef const real* b = <const real*>w.b
    cdef Scratch[6] scratches
    cdef real* y_scratch = <real*>&scratches[0]
    cdef real* x_scratch = <real*>&scratches[1]
    cdef real* k = <real*>&scratches[2]
    cdef real* d = <real*>&scratches[3]
    cdef real* c = <real*>&scratches[4]
    cdef real* e = <real*>&scratches[5]
    cdef Source x, y
    cdef ColumnRows rows
    cdef bint whole = w.x.mask == NULL
    cdef real scale = 1
    cdef real bias = 0
    cdef Py_ssize_t row = first
    cdef Py_ssize_t j, at, p, stop
    cdef bint rows_differ = w.plan.rows_differ
    see(&x, &w.x, whole, x_scratch, w.plan.single)
    see(&y, &w.y, whole, y_scratch, w.plan.single)
    column_shifts(w, &tile, k, d)
    column_statistics(w, &tile, w.rstd + tile.row, c)
    if s != NULL and not rows_differ:
        column_params(w, &tile, s, e)
        for j in range(tile.strip.width):
            c[j] *= e[j]
    if b != NULL and not rows_differ:
        column_params(w, &tile, b, e)
    else:
        for j in range(tile.strip.width):
            e[j] = 0
    while row < end:
        at = tile.data + column_row(&w.plan.nest, &tile.strip, row)
        stop = row + 1 if rows_differ else end
        if w.x.mask != NULL:
            stop = rows_alike(&w.x, tile.data, &w.plan.nest, &tile.strip, row, stop, &whole)
            see(&x, &w.x, whole, x_scratch, w.plan.single)
            see(&y, &w.y, whole, y_scratch, w.plan.single)
        rows = rows_from(&x.data, &w.plan.nest, &tile.strip, row, stop)
        if next:
            rows.next = rows.then = next
        if rows_differ:
            p = tile.param + column_row_param(&w.plan.nest, row)
            scale = s[p] if s != NULL else 1
            bias = b[p] if b != NULL else 0
        j = fetch_columns(&x.data, at, rows.n, k, x_scratch)
        columns_apply(&x.view, &y.view, j, &rows, k, d, c, e, scale, bias)
        if not y.data.direct:
            put(&y.data, at, rows.n, y_scratch)
        row += rows.count


cdef inline Py_ssize_t moments_of_part(const Work* w) noexcept nogil:
    """Return how many numbers the moments of a tile take: offset and m2, a tile further, of each column; with a mask
    also how many elements count."""
    return (2 if w.count == NULL else 3) * w.plan.tile


cdef inline double* held_of(const Work* w, double* moments) noexcept nogil:
    return NULL if w.count == NULL else moments + 2 * w.plan.tile


cdef inline void part_of_moments(const real* type, const Work* w, Py_ssize_t job) noexcept nogil:
    """One part of one tile."""
    cdef Tile tile = tile_of(w, job // w.plan.parts)
    cdef double* offset = w.partial + job * moments_of_part(w)
    cdef real guess[WIDTH]
    tile_guess(w, tile, guess)
    tile_moments(w, tile, job % w.plan.parts, guess, offset, offset + w.plan.tile, held_of(w, offset))


cdef inline void merge_part(
    const Work* w, const Tile* tile, Py_ssize_t part, double* all, double* one
) noexcept nogil:
    """Merge a part into those before it."""
    cdef double before = elements_in(&tile.strip, 0, first_row(w, tile, part))
    cdef double after = elements_in(&tile.strip, 0, first_row(w, tile, part + 1))
    merge_columns(
        tile.columns, before, all, all + w.plan.tile, after - before, one, one + w.plan.tile, held_of(w, all),
        held_of(w, one),
    )


cdef inline void columns_merge(const real* type, const Work* w, Py_ssize_t job) noexcept nogil:
    """Merge the parts of one tile, in their order."""
    cdef Tile tile = tile_of(w, job)
    cdef double* all = w.partial + job * w.plan.parts * moments_of_part(w)
    cdef Py_ssize_t part
    for part in range(1, w.plan.parts):
        merge_part(w, &tile, part, all, all + part * moments_of_part(w))
    tile_finish(type, w, &tile, all, all + w.plan.tile, held_of(w, all))


cdef inline void part_of_apply(const real* type, const Work* w, Py_ssize_t job) noexcept nogil:
    cdef Tile tile = tile_of(w, job // w.plan.parts)
    cdef Py_ssize_t part = job % w.plan.parts
    tile_apply(type, w, tile, first_row(w, &tile, part), first_row(w, &tile, part + 1), 0)


cdef inline bint asks_next(const Work* w) noexcept nogil:
    """Return whether the second phase of a tile prefetches the next tile: the private cache must have room."""
    return w.plan.depth * min(w.plan.tile, w.plan.across) <= OWN_CACHE


cdef inline Py_ssize_t to_next_tile(const Work* w, Py_ssize_t job) noexcept nogil:
    """Return the distance to the tile of the next job, or 0 without prefetching."""
    if job + 1 == all_tiles(&w.plan) or not asks_next(w):
        return 0
    return tile_of(w, job + 1).data - tile_of(w, job).data


cdef inline void columns_forward(const real* type, const Work* w, Py_ssize_t job) noexcept nogil:
    """One tile through both phases."""
    cdef Tile tile = tile_of(w, job)
    cdef double all[3 * WIDTH]
    cdef double one[3 * WIDTH]
    cdef real guess[WIDTH]
    cdef Py_ssize_t part
    tile.strip.asked = asks_next(w)
    if w.moments:
        find_origins(w, &tile)
        tile_guess(w, tile, guess)
        tile_moments(w, tile, 0, guess, all, all + w.plan.tile, held_of(w, all))
        for part in range(1, w.plan.parts):
            tile_moments(w, tile, part, guess, one, one + w.plan.tile, held_of(w, one))
            merge_part(w, &tile, part, all, one)
        tile_finish(type, w, &tile, all, all + w.plan.tile, held_of(w, all))
    if w.apply:
        tile_apply(type, w, tile, 0, tile.strip.rows, to_next_tile(w, job))


# Backward.

cdef inline void tile_sums(
    const real* type, const Work* w, Tile tile, Py_ssize_t part, double* sum_dy, double* sum_dyx
) noexcept nogil:
    """sum(dy) and sum(dy * (x - mean)) of the columns; with g instead of dy if parameters vary from row to row."""
    cdef const real* s = <const real*>w.s + tile.param if w.s != NULL and w.plan.rows_differ else NULL
    cdef Scratch[4] scratches
    cdef real* a = <real*>&scratches[0]
    cdef real* q = <real*>&scratches[1]
    cdef real* k = <real*>&scratches[2]
    cdef real* d = <real*>&scratches[3]
    cdef Py_ssize_t j
    cdef Py_ssize_t row = first_row(w, &tile, part)
    cdef Py_ssize_t end = first_row(w, &tile, part + 1)
    column_shifts(w, &tile, k, d)
    for j in range(tile.columns):
        sum_dy[j] = sum_dyx[j] = 0
    while row < end:
        sums_of_columns(
            &w.dy, &w.x, tile.data, &w.plan.nest, &tile.strip, row, min(row + w.plan.step, end), k, d, s, a, q
        )
        for j in range(tile.columns):
            sum_dy[j] += a[j]
            sum_dyx[j] += q[j]
        row += w.plan.step


cdef inline void tile_input(
    const real* type, const Work* w, Py_ssize_t number, Tile tile, const double* sum_g, const double* sum_gx,
    Py_ssize_t first, Py_ssize_t end, Py_ssize_t next
) noexcept nogil:
    """Compute dx of the rows first .. end - 1; and ds and db of each row if parameters vary from row to row."""
    cdef const real* s = <const real*>w.s
    cdef Scratch[9] scratches
    cdef real* dx_scratch = <real*>&scratches[0]
    cdef real* x_scratch = <real*>&scratches[1]
    cdef real* dy_scratch = <real*>&scratches[2]
    cdef real* r = <real*>&scratches[3]
    cdef real* c = <real*>&scratches[4]
    cdef real* p = <real*>&scratches[5]
    cdef real* q = <real*>&scratches[6]
    cdef real* k = <real*>&scratches[7]
    cdef real* d = <real*>&scratches[8]
    cdef Source x, dy, dx
    cdef ColumnRows rows
    cdef bint whole = w.x.mask == NULL
    cdef real scale = 1
    cdef Py_ssize_t row = first
    cdef Py_ssize_t j, at, stop
    cdef bint rows_differ = w.plan.rows_differ
    cdef double* sums
    see(&x, &w.x, whole, x_scratch, w.plan.single)
    see(&dy, &w.dy, whole, dy_scratch, w.plan.single)
    see(&dx, &w.dx, whole, dx_scratch, w.plan.single)
    column_shifts(w, &tile, k, d)
    column_statistics(w, &tile, w.rstd + tile.row, r)
    if s != NULL and not rows_differ:
        column_params(w, &tile, s, c)
        for j in range(tile.strip.width):
            c[j] *= r[j]
    else:
        c = r
    column_factors(w, &tile, sum_g, sum_gx, p, q)
    while row < end:
        at = tile.data + column_row(&w.plan.nest, &tile.strip, row)
        stop = row + 1 if rows_differ else end
        if w.x.mask != NULL:
            stop = rows_alike(&w.x, tile.data, &w.plan.nest, &tile.strip, row, stop, &whole)
            see(&x, &w.x, whole, x_scratch, w.plan.single)
            see(&dy, &w.dy, whole, dy_scratch, w.plan.single)
            see(&dx, &w.dx, whole, dx_scratch, w.plan.single)
        rows = rows_from(&x.data, &w.plan.nest, &tile.strip, row, stop)
        if next:
            rows.next = rows.then = next
        if rows_differ and s != NULL:
            scale = s[tile.param + column_row_param(&w.plan.nest, row)]
        j = fetch_columns(&x.data, at, rows.n, k, x_scratch)
        fetch_columns(&dy.data, at, rows.n, <const real*>NULL, dy_scratch)
        if w.dx.items != NULL:
            columns_grad(&dy.view, &x.view, &dx.view, j, &rows, w.sums == ABSENT, k, d, r, c, p, q, scale)
        if w.dx.items != NULL and not dx.data.direct:
            put(&dx.data, at, rows.n, dx_scratch)
        if w.row_params != NULL:
            sums = w.row_params + (number * w.plan.depth + row) * 2
            columns_params(&dy.view, &x.view, j, rows.n, k, d, r, &sums[0], &sums[1])
        row += rows.count


cdef inline void part_of_sums(const real* type, const Work* w, Py_ssize_t job) noexcept nogil:
    """One part of one tile."""
    cdef Tile tile = tile_of(w, job // w.plan.parts)
    cdef double* sum_dy = w.partial + job * 2 * w.plan.tile
    tile_sums(type, w, tile, job % w.plan.parts, sum_dy, sum_dy + w.plan.tile)


cdef inline void add_sums(const Work* w, const Tile* tile, double* all, const double* part) noexcept nogil:
    """Add a part's sums of dy and, a tile further, of dy * (x - mean)."""
    cdef Py_ssize_t j
    for j in range(tile.columns):
        all[j] += part[j]
        all[w.plan.tile + j] += part[w.plan.tile + j]


cdef inline void columns_combine(const real* type, const Work* w, Py_ssize_t job) noexcept nogil:
    """Add up the parts of one tile, in their order."""
    cdef Tile tile = tile_of(w, job)
    cdef double* all = w.partial + job * w.plan.parts * 2 * w.plan.tile
    cdef Py_ssize_t part
    for part in range(1, w.plan.parts):
        add_sums(w, &tile, all, all + part * 2 * w.plan.tile)
    tile_combine(type, w, &tile, all, all + w.plan.tile, w.sum_g + tile.row, w.sum_gx + tile.row)


cdef inline void part_of_input(const real* type, const Work* w, Py_ssize_t job) noexcept nogil:
    cdef Tile tile = tile_of(w, job // w.plan.parts)
    cdef Py_ssize_t part = job % w.plan.parts
    tile_input(
        type, w, job // w.plan.parts, tile, w.sum_g + tile.row, w.sum_gx + tile.row,
        first_row(w, &tile, part), first_row(w, &tile, part + 1), 0,
    )


cdef inline void columns_backward(const real* type, const Work* w, Py_ssize_t job) noexcept nogil:
    """One tile through both phases."""
    cdef Tile tile = tile_of(w, job)
    cdef double all[2 * WIDTH]
    cdef double one[2 * WIDTH]
    cdef double both[2 * WIDTH]
    cdef double* sum_g = both
    cdef double* sum_gx = both + WIDTH
    cdef Py_ssize_t part
    tile.strip.asked = asks_next(w)
    if w.sum_g != NULL:
        sum_g = w.sum_g + tile.row
        sum_gx = w.sum_gx + tile.row
    if w.needs_sums:
        tile_sums(type, w, tile, 0, all, all + w.plan.tile)
        for part in range(1, w.plan.parts):
            tile_sums(type, w, tile, part, one, one + w.plan.tile)
            add_sums(w, &tile, all, one)
        tile_combine(type, w, &tile, all, all + w.plan.tile, sum_g, sum_gx)
    if w.dx.items != NULL or w.row_params != NULL:
        tile_input(type, w, job, tile, sum_g, sum_gx, 0, tile.strip.rows, to_next_tile(w, job))


cdef inline void columns_job(const real* type, const Work* w, Py_ssize_t index) noexcept nogil:
    """Do a piece of a phase: a tile, or a part of one."""
    cdef Tile tile
    if w.phase == FORWARD:
        columns_forward(type, w, index)
    elif w.phase == ORIGIN:
        tile = tile_of(w, index)
        find_origins(w, &tile)
    elif w.phase == MOMENTS:
        part_of_moments(type, w, index)
    elif w.phase == MERGE:
        columns_merge(type, w, index)
    elif w.phase == APPLY:
        part_of_apply(type, w, index)
    elif w.phase == SUMS:
        part_of_sums(type, w, index)
    elif w.phase == COMBINE:
        columns_combine(type, w, index)
    elif w.phase == INPUT:
        part_of_input(type, w, index)
    else:
        columns_backward(type, w, index)
