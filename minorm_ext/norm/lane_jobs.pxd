# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# The jobs on lanes: which part of which tile, with which statistics and parameters. `type` has the type computed in,
# and is otherwise not looked at.
#
# Parameters vary from lane to lane or stay the same (c and b, one number a lane), or they vary from reduced row to
# reduced row (w and u, one number a row; LayerNorm over the channels of N x C x H x W). Both at once does not fit.

from minorm_ext.norm.lane_rows cimport LaneRows, lane_apply, lane_grad
from minorm_ext.norm.lane_tiles cimport (
    Tile, by_row, lane_factors, lane_origins, lane_params, lane_shifts, lane_statistics, tile_combine, tile_finish,
    tile_of,
)
from minorm_ext.norm.lanes cimport (
    LANES, Lanes, fetch_lanes, lane_grad_sums, lane_guess, lane_moments, lane_row, lane_row_param,
    lane_row_params, lane_scale, merge_lanes, rows_from, turns,
)
from minorm_ext.norm.plan cimport ABSENT, OWN, Work, all_tiles
from minorm_ext.simd.storage cimport Data, fetch, place, put, real, seen


cdef inline Py_ssize_t first_row(const Work* w, const Tile* tile, Py_ssize_t part) noexcept nogil:
    return min(part * w.chunks_of_part * w.step, tile.strip.rows)


cdef inline double turns_before(const Work* w, const Tile* tile, Py_ssize_t part) noexcept nogil:
    """How many elements of each lane the parts before this one hold."""
    return turns(&tile.strip, 0, first_row(w, tile, part))


# Forward.

cdef inline void tile_guess(const Work* w, Tile tile, real* guess) noexcept nogil:
    """Of the mean of each lane, from all parts: however many there are, they find the same."""
    cdef Py_ssize_t j
    if w.equation.centered:
        lane_guess(&w.x, tile.data, &w.nest, &tile.strip, guess)
    else:
        for j in range(tile.lanes):
            guess[j] = 0


cdef inline void tile_moments(
    const Work* w, Tile tile, Py_ssize_t part, const real* guess, double* offset, double* m2
) noexcept nogil:
    """The moments of the lanes of a tile over the rows of a part."""
    cdef Py_ssize_t first = first_row(w, &tile, part)
    cdef Py_ssize_t end = first_row(w, &tile, part + 1)
    cdef Py_ssize_t row = first
    cdef double origin[LANES]
    cdef Lanes room
    cdef real* k = <real*>&room
    cdef Py_ssize_t j
    lane_origins(guess, w, &tile, origin)
    for j in range(tile.lanes):
        k[j] = guess[j]
        offset[j] = m2[j] = 0
    while row < end:
        lane_moments(
            &w.x, tile.data, &w.nest, &tile.strip, row, min(row + w.step, end), w.equation.centered,
            turns(&tile.strip, first, row), origin, k, offset, m2,
        )
        row += w.step


cdef inline void tile_apply(
    const real* type, const Work* w, Tile tile, Py_ssize_t first, Py_ssize_t end, Py_ssize_t next
) noexcept nogil:
    """y of the rows first .. end - 1."""
    cdef const real* s = <const real*>w.s
    cdef const real* b = <const real*>w.b
    cdef Lanes[6] rooms
    cdef real* y_room = <real*>&rooms[0]
    cdef real* x_room = <real*>&rooms[1]
    cdef real* k = <real*>&rooms[2]
    cdef real* d = <real*>&rooms[3]
    cdef real* c = <real*>&rooms[4]
    cdef real* e = <real*>&rooms[5]
    cdef Data x_seen, y_seen
    cdef const Data* x = seen(&w.x, x_room, &x_seen)
    cdef const Data* y = seen(&w.y, y_room, &y_seen)
    cdef LaneRows rows
    cdef real scale = 1
    cdef real bias = 0
    cdef Py_ssize_t row = first
    cdef Py_ssize_t j, at, p
    cdef bint rows_differ = by_row(w)
    lane_shifts(w, &tile, k, d)
    lane_statistics(w, &tile, w.rstd + tile.row, c)
    if s != NULL and not rows_differ:
        lane_params(w, &tile, s, e)
        for j in range(tile.strip.width):
            c[j] *= e[j]
    if b != NULL and not rows_differ:
        lane_params(w, &tile, b, e)
    else:
        for j in range(tile.strip.width):
            e[j] = 0
    while row < end:
        at = tile.data + lane_row(&w.nest, &tile.strip, row)
        rows = rows_from(&w.x, &w.nest, &tile.strip, row, row + 1 if rows_differ else end)
        if next:
            rows.next = rows.then = next
        if rows_differ:
            p = tile.param + lane_row_param(&w.nest, row)
            scale = s[p] if s != NULL else 1
            bias = b[p] if b != NULL else 0
        lane_apply(x, y, fetch_lanes(&w.x, at, rows.n, x_room), &rows, k, d, c, e, scale, bias)
        if not w.y.direct:
            put(&w.y, at, rows.n, y_room)
        row += rows.count


cdef inline void lanes_moments(const real* type, const Work* w, Py_ssize_t job) noexcept nogil:
    """One part of one tile."""
    cdef Tile tile = tile_of(w, job // w.parts)
    cdef double* offset = w.partial + job * 2 * w.tile
    cdef real guess[LANES]
    tile_guess(w, tile, guess)
    tile_moments(w, tile, job % w.parts, guess, offset, offset + w.tile)


cdef inline void lanes_finish(const real* type, const Work* w, Py_ssize_t job) noexcept nogil:
    """Merge the parts of one tile, in their order."""
    cdef Tile tile = tile_of(w, job)
    cdef Py_ssize_t part
    cdef double* all = w.partial + job * w.parts * 2 * w.tile
    cdef double* one
    cdef double before
    for part in range(1, w.parts):
        one = all + part * 2 * w.tile
        before = turns_before(w, &tile, part)
        merge_lanes(
            tile.lanes, before, all, all + w.tile, turns_before(w, &tile, part + 1) - before, one, one + w.tile
        )
    tile_finish(type, w, &tile, all, all + w.tile)


cdef inline void lanes_apply(const real* type, const Work* w, Py_ssize_t job) noexcept nogil:
    cdef Tile tile = tile_of(w, job // w.parts)
    cdef Py_ssize_t part = job % w.parts
    tile_apply(type, w, tile, first_row(w, &tile, part), first_row(w, &tile, part + 1), 0)


cdef inline bint asks_next(const Work* w) noexcept nogil:
    """Does the second phase of a tile ask for the next tile? If a processor's own cache has room for it."""
    return w.depth * min(w.tile, w.across) <= OWN


cdef inline Py_ssize_t to_next_tile(const Work* w, Py_ssize_t job) noexcept nogil:
    """How far on the tile of the next job lies, or 0."""
    cdef Py_ssize_t next = job + 1
    if next == all_tiles(w) or not asks_next(w):
        return 0
    return (next // w.tiles - job // w.tiles) * w.nest.keep0.data + (next % w.tiles - job % w.tiles) * w.tile


cdef inline void lanes_whole_forward(const real* type, const Work* w, Py_ssize_t job) noexcept nogil:
    """One tile through both phases."""
    cdef Tile tile = tile_of(w, job)
    cdef double all[2 * LANES]
    cdef double one[2 * LANES]
    cdef real guess[LANES]
    cdef double before
    cdef Py_ssize_t part
    tile.strip.asked = asks_next(w)
    if w.moments:
        tile_guess(w, tile, guess)
        tile_moments(w, tile, 0, guess, all, all + w.tile)
        for part in range(1, w.parts):
            tile_moments(w, tile, part, guess, one, one + w.tile)
            before = turns_before(w, &tile, part)
            merge_lanes(
                tile.lanes, before, all, all + w.tile, turns_before(w, &tile, part + 1) - before, one, one + w.tile
            )
        tile_finish(type, w, &tile, all, all + w.tile)
    if w.apply:
        tile_apply(type, w, tile, 0, tile.strip.rows, to_next_tile(w, job))


# Backward.

cdef inline void tile_sums(
    const Work* w, Tile tile, Py_ssize_t part, const real* k, const real* d, double* sum_dy, double* sum_dyx
) noexcept nogil:
    """sum(dy) and sum(dy * (x - mean)) of the lanes; of g instead of dy where parameters vary from row to row."""
    cdef const real* s = <const real*>w.s
    cdef Py_ssize_t j
    cdef Py_ssize_t row = first_row(w, &tile, part)
    cdef Py_ssize_t end = first_row(w, &tile, part + 1)
    for j in range(tile.lanes):
        sum_dy[j] = sum_dyx[j] = 0
    while row < end:
        lane_grad_sums(
            &w.dy, &w.x, tile.data, &w.nest, &tile.strip, row, min(row + w.step, end), k, d,
            s + tile.param if s != NULL and by_row(w) else NULL, sum_dy, sum_dyx,
        )
        row += w.step


cdef inline void tile_input(
    const Work* w, Py_ssize_t number, Tile tile, const real* k, const real* d,
    const double* sum_g, const double* sum_gx, Py_ssize_t first, Py_ssize_t end, Py_ssize_t next
) noexcept nogil:
    """dx of the rows first .. end - 1; and ds and db of each where parameters vary from row to row."""
    cdef const real* s = <const real*>w.s
    cdef Lanes[7] rooms
    cdef real* dx_room = <real*>&rooms[0]
    cdef real* x_room = <real*>&rooms[1]
    cdef real* dy_room = <real*>&rooms[2]
    cdef real* r = <real*>&rooms[3]
    cdef real* c = <real*>&rooms[4]
    cdef real* p = <real*>&rooms[5]
    cdef real* q = <real*>&rooms[6]
    cdef Data x_seen, dy_seen, dx_seen
    cdef const Data* x = seen(&w.x, x_room, &x_seen)
    cdef const Data* dy = seen(&w.dy, dy_room, &dy_seen)
    cdef const Data* dx = seen(&w.dx, dx_room, &dx_seen)
    cdef real* to
    cdef LaneRows rows
    cdef real scale = 1
    cdef Py_ssize_t row = first
    cdef Py_ssize_t j, at
    cdef bint rows_differ = by_row(w)
    cdef bint one_by_one = rows_differ or w.row_params != NULL or w.sums == ABSENT
    cdef double* sums
    lane_statistics(w, &tile, w.rstd + tile.row, r)
    if s != NULL and not rows_differ:
        lane_params(w, &tile, s, c)
        for j in range(tile.strip.width):
            c[j] *= r[j]
    else:
        c = r
    lane_factors(w, &tile, sum_g, sum_gx, p, q)
    while row < end:
        at = tile.data + lane_row(&w.nest, &tile.strip, row)
        rows = rows_from(&w.x, &w.nest, &tile.strip, row, row + 1 if one_by_one else end)
        if next:
            rows.next = rows.then = next
        if rows_differ and s != NULL:
            scale = s[tile.param + lane_row_param(&w.nest, row)]
        if w.dx.items != NULL and w.sums != ABSENT:
            j = fetch_lanes(&w.x, at, rows.n, x_room)
            fetch_lanes(&w.dy, at, rows.n, dy_room)
            lane_grad(dy, x, dx, j, &rows, k, d, r, c, p, q, scale)
            if not w.dx.direct:
                put(&w.dx, at, rows.n, dx_room)
        elif w.dx.items != NULL:
            to = place(&w.dx, at, dx_room)
            lane_scale(fetch(&w.dy, at, rows.n, dy_room), to, rows.n, c, scale)
            put(&w.dx, at, rows.n, to)
        if w.row_params != NULL:
            sums = w.row_params + (number * w.depth + row) * 2
            lane_row_params(
                fetch(&w.dy, at, rows.n, dy_room), fetch(&w.x, at, rows.n, x_room), rows.n, k, d, r,
                &sums[0], &sums[1],
            )
        row += rows.count


cdef inline void lanes_sums(const real* type, const Work* w, Py_ssize_t job) noexcept nogil:
    """One part of one tile."""
    cdef Tile tile = tile_of(w, job // w.parts)
    cdef double* sum_dy = w.partial + job * 2 * w.tile
    cdef Lanes[2] rooms
    cdef real* k = <real*>&rooms[0]
    cdef real* d = <real*>&rooms[1]
    lane_shifts(w, &tile, k, d)
    tile_sums(w, tile, job % w.parts, k, d, sum_dy, sum_dy + w.tile)


cdef inline void add_sums(const Work* w, const Tile* tile, double* all, const double* part) noexcept nogil:
    """Of dy, and a tile further of dy * (x - mean)."""
    cdef Py_ssize_t j
    for j in range(tile.lanes):
        all[j] += part[j]
        all[w.tile + j] += part[w.tile + j]


cdef inline void lanes_combine(const real* type, const Work* w, Py_ssize_t job) noexcept nogil:
    """Add up the parts of one tile, in their order."""
    cdef Tile tile = tile_of(w, job)
    cdef double* all = w.partial + job * w.parts * 2 * w.tile
    cdef Py_ssize_t part
    for part in range(1, w.parts):
        add_sums(w, &tile, all, all + part * 2 * w.tile)
    tile_combine(type, w, &tile, all, all + w.tile, w.sum_g + tile.row, w.sum_gx + tile.row)


cdef inline void lanes_input(const real* type, const Work* w, Py_ssize_t job) noexcept nogil:
    cdef Tile tile = tile_of(w, job // w.parts)
    cdef Py_ssize_t part = job % w.parts
    cdef Lanes[2] rooms
    cdef real* k = <real*>&rooms[0]
    cdef real* d = <real*>&rooms[1]
    lane_shifts(w, &tile, k, d)
    tile_input(
        w, job // w.parts, tile, k, d, w.sum_g + tile.row, w.sum_gx + tile.row,
        first_row(w, &tile, part), first_row(w, &tile, part + 1), 0,
    )


cdef inline void lanes_whole_backward(const real* type, const Work* w, Py_ssize_t job) noexcept nogil:
    """One tile through both phases."""
    cdef Tile tile = tile_of(w, job)
    cdef double all[2 * LANES]
    cdef double one[2 * LANES]
    cdef double room[2 * LANES]
    cdef Lanes[2] rooms
    cdef real* k = <real*>&rooms[0]
    cdef real* d = <real*>&rooms[1]
    cdef double* sum_g = room
    cdef double* sum_gx = room + LANES
    cdef Py_ssize_t part
    tile.strip.asked = asks_next(w)
    if w.sum_g != NULL:
        sum_g = w.sum_g + tile.row
        sum_gx = w.sum_gx + tile.row
    lane_shifts(w, &tile, k, d)
    if w.tally:
        tile_sums(w, tile, 0, k, d, all, all + w.tile)
        for part in range(1, w.parts):
            tile_sums(w, tile, part, k, d, one, one + w.tile)
            add_sums(w, &tile, all, one)
        tile_combine(type, w, &tile, all, all + w.tile, sum_g, sum_gx)
    if w.dx.items != NULL or w.row_params != NULL:
        tile_input(w, job, tile, k, d, sum_g, sum_gx, 0, tile.strip.rows, to_next_tile(w, job))
