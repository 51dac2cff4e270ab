# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# Lanes: the unit-step loop is kept, so neighbours in memory belong to different statistics (N x C, channels-last).
#
# A tile of neighbours walks down the reduced loops together, each with its own accumulators, row after row. Where lanes
# are few and rows follow each other without a gap, several rows are taken as one wide row, and their accumulators are
# folded at the end. After some rows the sums, kept in the type of the data, are merged in double.
#
# How many lanes a tile has changes no bit of a result. In cache it has TILE, so that its accumulators stay in the
# innermost one; from memory up to BROAD, for pieces of a row that are not followed by the next are read slowly.

from minorm_ext.norm.nest cimport Nest
from minorm_ext.norm.lane_rows cimport LaneRows, lane_add, lane_grad_add
from minorm_ext.norm.moments cimport out_of_range, poor_shift
from minorm_ext.norm.sums cimport WIDTH, middle, total
from minorm_ext.simd.storage cimport Data, fetch, item, real, seen


cdef extern from *:
    """
    /* Room for a number of each lane. No vector of them lies across two lines. */
    typedef union { float single[1296]; double twice[1296]; } __attribute__((aligned(64))) minorm_lanes;
    """
    ctypedef struct Lanes "minorm_lanes":
        double[1296] twice

cdef enum:
    TILE = 256    # lanes of a tile in cache
    BROAD = 1024  # and from memory, at most
    LANES = 1296  # room for them, and 1088 bytes more than a page: a loop that writes one such room and reads the next
    #               would else read what looks like an address just written
    SOME = 16     # rows that an accumulator adds up before it is added to another
    SOON = 1024   # elements, about, by which a row is asked for before it is needed: no less than one row, or than four
    #               where four go together


cdef struct Strip:
    Py_ssize_t kept   # lanes with statistics of their own
    Py_ssize_t width  # lanes of a row: kept, or a multiple where several rows are taken as one
    Py_ssize_t rows   # such rows
    Py_ssize_t last   # lanes of the last of them
    bint asked        # were far rows asked for before, so that they are near by now?


cdef inline Py_ssize_t lane_row(const Nest* nest, const Strip* strip, Py_ssize_t row) noexcept nogil:
    """Where a row begins in the data."""
    if strip.width > strip.kept:
        return row * strip.width
    if nest.reduce0.count == 1:
        return row * nest.reduce1.data  # spares a division, which is most of the work when lanes are few
    return row // nest.reduce1.count * nest.reduce0.data + row % nest.reduce1.count * nest.reduce1.data


cdef inline Py_ssize_t lane_row_param(const Nest* nest, Py_ssize_t row) noexcept nogil:
    """Where it begins in the parameters, if these vary from row to row."""
    if nest.reduce0.count == 1:
        return row * nest.reduce1.param
    return row // nest.reduce1.count * nest.reduce0.param + row % nest.reduce1.count * nest.reduce1.param


cdef inline Py_ssize_t lanes_of(const Strip* strip, Py_ssize_t row) noexcept nogil:
    return strip.width if row + 1 < strip.rows else strip.last


cdef inline LaneRows rows_from(
    const Data* data, const Nest* nest, const Strip* strip, Py_ssize_t row, Py_ssize_t end
) noexcept nogil:
    """The rows from `row` on, before `end`, that the loops take at once: evenly apart, and of one width. A row alone
    where they do not take the data as it lies."""
    cdef LaneRows rows
    rows.n = lanes_of(strip, row)
    rows.step = strip.width if strip.width > strip.kept else nest.reduce1.data
    rows.held = strip.asked or not data.far
    rows.next = rows.step * max(4 if rows.held else 1, SOON // strip.width)
    rows.then = 2 * rows.next
    if strip.last < strip.width:
        end = min(end, strip.rows - 1)
    if nest.reduce0.count > 1:
        end = min(end, row + nest.reduce1.count - row % nest.reduce1.count)
    rows.count = max(1, end - row) if data.direct else 1
    return rows


cdef inline double turns(const Strip* strip, Py_ssize_t first, Py_ssize_t end) noexcept nogil:
    """How many elements of each lane the rows first .. end - 1 hold."""
    cdef Py_ssize_t whole = (end - first) * strip.width
    return (whole - (strip.width - strip.last if end == strip.rows else 0)) // strip.kept


cdef inline void spread_lanes(real* values, const Strip* strip) noexcept nogil:
    """Repeat what belongs to the kept lanes for every row that a wide row holds."""
    cdef Py_ssize_t j
    for j in range(strip.kept, strip.width):
        values[j] = values[j - strip.kept]


cdef inline void fold_lanes(real* sums, const Strip* strip) noexcept nogil:
    """Add up what belongs to the same lane."""
    cdef Py_ssize_t start = strip.kept
    cdef Py_ssize_t j
    while start < strip.width:
        for j in range(strip.kept):
            sums[j] += sums[start + j]
        start += strip.kept


cdef inline void clear_lanes(real* a, real* q, Py_ssize_t lanes) noexcept nogil:
    cdef Py_ssize_t j
    for j in range(lanes):
        a[j] = q[j] = 0


cdef inline void gather_lanes(real* all_a, real* all_q, real* a, real* q, Py_ssize_t lanes) noexcept nogil:
    """Add what some rows have, and begin anew."""
    cdef Py_ssize_t j
    for j in range(lanes):
        all_a[j] += a[j]
        all_q[j] += q[j]
        a[j] = q[j] = 0


cdef inline Py_ssize_t fetch_lanes(const Data* data, Py_ssize_t at, Py_ssize_t lanes, real* room) noexcept nogil:
    """Where a row begins for the loops: in the data, or, where they do not take it as it lies, in the room."""
    if data.direct:
        return at
    fetch(data, at, lanes, room)
    return 0


cdef inline void add_rows(
    const Data* x, Py_ssize_t at, const Nest* nest, const Strip* strip, Py_ssize_t first, Py_ssize_t end,
    const real* k, real* a, real* q
) noexcept nogil:
    """Add x - k and (x - k)^2 of the rows first .. end - 1 to a and q, one after the other."""
    cdef Lanes room
    cdef Data x_seen
    cdef const Data* from_x = seen(x, <real*>&room, &x_seen)
    cdef LaneRows rows
    cdef Py_ssize_t row = first
    while row < end:
        rows = rows_from(x, nest, strip, row, end)
        lane_add(from_x, fetch_lanes(x, at + lane_row(nest, strip, row), rows.n, <real*>&room), &rows, k, a, q)
        row += rows.count


cdef inline void lane_sums(
    const Data* x, Py_ssize_t at, const Nest* nest, const Strip* strip, Py_ssize_t first, Py_ssize_t end,
    const real* k, real* sum, real* squares
) noexcept nogil:
    """sum(x - k) and sum((x - k)^2) of each lane over the rows first .. end - 1."""
    cdef Lanes[2] some
    cdef real* a = <real*>&some[0]
    cdef real* q = <real*>&some[1]
    cdef Py_ssize_t row = first + SOME
    clear_lanes(sum, squares, strip.width)
    add_rows(x, at, nest, strip, first, min(row, end), k, sum, squares)
    if row < end:
        clear_lanes(a, q, strip.width)
    while row < end:
        add_rows(x, at, nest, strip, row, min(row + SOME, end), k, a, q)
        gather_lanes(sum, squares, a, q, strip.width)
        row += SOME
    fold_lanes(sum, strip)
    fold_lanes(squares, strip)


cdef inline void careful_lane(
    const Data* x, Py_ssize_t at, const Nest* nest, const Strip* strip, Py_ssize_t first, Py_ssize_t end, double k,
    double* sum, double* squares
) noexcept nogil:
    """The same for one lane in double, for squares that leave the range of the type."""
    cdef double t
    cdef Py_ssize_t row, lane
    sum[0] = 0
    squares[0] = 0
    for row in range(first, end):
        lane = 0
        while lane < lanes_of(strip, row):
            t = item(x, at + lane_row(nest, strip, row) + lane) - k
            sum[0] += t
            squares[0] += t * t
            lane += strip.kept


cdef inline void lane_guess(
    const Data* x, Py_ssize_t at, const Nest* nest, const Strip* strip, real* k
) noexcept nogil:
    """A guess of each lane's mean: the middle of four elements from all over."""
    cdef Py_ssize_t per = strip.width // strip.kept  # turns of a row
    cdef Py_ssize_t all = <Py_ssize_t>turns(strip, 0, strip.rows)
    cdef real room[4 * LANES]
    cdef const real* p[4]
    cdef Py_ssize_t i, j, turn
    for i in range(4):
        turn = i * all // 4
        j = lane_row(nest, strip, turn // per) + turn % per * strip.kept
        p[i] = fetch(x, at + j, strip.kept, room + i * LANES)
    for j in range(strip.kept):
        k[j] = middle(p[0][j], p[1][j], p[2][j], p[3][j])


cdef inline void merge_lane(
    double one, double share, double weight, double ahead, double sum, double squares, double* offset, double* m2
) noexcept nogil:
    """Merge n = 1 / one elements, whose sums are about a shift `ahead` of the origin, into offset and m2."""
    cdef double mean = sum * one
    cdef double delta = (ahead + mean) - offset[0]
    offset[0] += delta * share
    m2[0] += max(squares - sum * mean, 0.0) + delta * delta * weight


cdef inline void nearer_shifts(
    const Data* x, Py_ssize_t at, const Nest* nest, const Strip* strip, Py_ssize_t first, Py_ssize_t end,
    double n, real* k, real* a, real* q
) noexcept nogil:
    """Where a shift is poor take the mean, and sum up again; the other lanes keep theirs, and so their sums."""
    cdef Py_ssize_t j
    for j in range(strip.kept):
        if poor_shift(n, a[j], q[j] - <double>a[j] * a[j] / n) and not out_of_range(n, a[j], q[j]):
            k[j] = <real>(k[j] + a[j] / n)
    spread_lanes(k, strip)
    lane_sums(x, at, nest, strip, first, end, k, a, q)


cdef inline void lane_moments(
    const Data* x, Py_ssize_t at, const Nest* nest, const Strip* strip, Py_ssize_t first,
    Py_ssize_t end, bint centered, double before, const double* origin, real* k, double* offset, double* m2
) noexcept nogil:
    """Merge the rows first .. end - 1 into offset and m2, which hold `before` elements so far.

    offset is relative to origin, the lane's first element, or to 0 if not centered; k is a guess of the mean, and then
    the mean of what is there, or 0. See span_moments in rows.pxd.
    """
    cdef Lanes[4] rooms
    cdef real* a = <real*>&rooms[0]
    cdef real* q = <real*>&rooms[1]
    cdef double* odd_offset = rooms[2].twice  # of lanes whose squares are out of range
    cdef double* odd_m2 = rooms[3].twice
    cdef double n = turns(strip, first, end)
    cdef double one = 1 / n
    cdef double share = n / (n + before)
    cdef double weight = before * share
    cdef double shift, sum, squares
    cdef int bad = 0
    cdef int odd = 0
    cdef Py_ssize_t lanes = strip.kept
    cdef Py_ssize_t j
    spread_lanes(k, strip)
    lane_sums(x, at, nest, strip, first, end, k, a, q)
    for j in range(lanes):
        odd |= out_of_range(n, a[j], q[j])
    if centered:
        for j in range(lanes):
            bad |= poor_shift(n, a[j], q[j] - <double>a[j] * a[j] * one)
        if bad:
            nearer_shifts(x, at, nest, strip, first, end, n, k, a, q)
            for j in range(lanes):
                odd |= out_of_range(n, a[j], q[j])
    if odd:
        for j in range(lanes):
            odd_offset[j] = offset[j]
            odd_m2[j] = m2[j]
            if out_of_range(n, a[j], q[j]):
                shift = item(x, at + lane_row(nest, strip, first) + j) if centered else 0
                careful_lane(x, at + j, nest, strip, first, end, shift, &sum, &squares)
                if centered:
                    shift += sum * one
                    careful_lane(x, at + j, nest, strip, first, end, shift, &sum, &squares)
                    merge_lane(one, share, weight, shift - origin[j], sum, squares, &odd_offset[j], &odd_m2[j])
                else:
                    odd_m2[j] += squares
    if centered:
        for j in range(lanes):
            merge_lane(one, share, weight, k[j] - origin[j], a[j], q[j], &offset[j], &m2[j])
            k[j] = <real>(origin[j] + offset[j])
    else:
        for j in range(lanes):
            m2[j] += q[j]
    if odd:
        for j in range(lanes):
            if out_of_range(n, a[j], q[j]):
                offset[j] = odd_offset[j]
                m2[j] = odd_m2[j]
                if centered:
                    k[j] = <real>(origin[j] + offset[j])


cdef inline void merge_lanes(
    Py_ssize_t lanes, double before, double* offset, double* m2, double n, const double* offset2, const double* m22
) noexcept nogil:
    """Merge n more elements, summed up elsewhere, into offset and m2, which hold `before`."""
    cdef double share = n / (n + before)
    cdef double delta
    cdef Py_ssize_t j
    for j in range(lanes):
        delta = offset2[j] - offset[j]
        offset[j] += delta * share
        m2[j] += m22[j] + delta * delta * (before * share)


cdef inline void add_grad_rows(
    const Data* dy, const Data* x, Py_ssize_t at, const Nest* nest, const Strip* strip, Py_ssize_t first,
    Py_ssize_t end, const real* k, const real* d, const real* s, real* a, real* q
) noexcept nogil:
    """Add g and g * (x - mean) of the rows first .. end - 1 to a and q, one after the other."""
    cdef Lanes[2] rooms
    cdef real* dy_room = <real*>&rooms[0]
    cdef real* x_room = <real*>&rooms[1]
    cdef Data x_seen, dy_seen
    cdef const Data* from_x = seen(x, x_room, &x_seen)
    cdef const Data* from_dy = seen(dy, dy_room, &dy_seen)
    cdef LaneRows rows
    cdef real w = 1
    cdef Py_ssize_t row = first
    cdef Py_ssize_t begin
    while row < end:
        rows = rows_from(x, nest, strip, row, end if s == NULL else row + 1)
        begin = fetch_lanes(x, at + lane_row(nest, strip, row), rows.n, x_room)
        fetch_lanes(dy, at + lane_row(nest, strip, row), rows.n, dy_room)
        if s != NULL:
            w = s[lane_row_param(nest, row)]
        lane_grad_add(from_dy, from_x, begin, &rows, k, d, w, a, q)
        row += rows.count


cdef inline void lane_grad_sums(
    const Data* dy, const Data* x, Py_ssize_t at, const Nest* nest, const Strip* strip, Py_ssize_t first,
    Py_ssize_t end, const real* k, const real* d, const real* s, double* sum_g, double* sum_gx,
) noexcept nogil:
    """Add sum(g) and sum(g * (x - mean)) of each lane over the rows first .. end - 1.

    s is a parameter for each row, or absent: then g = dy.
    """
    cdef Lanes[4] rooms
    cdef real* all_a = <real*>&rooms[0]
    cdef real* all_q = <real*>&rooms[1]
    cdef real* a = <real*>&rooms[2]
    cdef real* q = <real*>&rooms[3]
    cdef Py_ssize_t row = first + SOME
    cdef Py_ssize_t j
    clear_lanes(all_a, all_q, strip.width)
    add_grad_rows(dy, x, at, nest, strip, first, min(row, end), k, d, s, all_a, all_q)
    if row < end:
        clear_lanes(a, q, strip.width)
    while row < end:
        add_grad_rows(dy, x, at, nest, strip, row, min(row + SOME, end), k, d, s, a, q)
        gather_lanes(all_a, all_q, a, q, strip.width)
        row += SOME
    fold_lanes(all_a, strip)
    fold_lanes(all_q, strip)
    for j in range(strip.kept):
        sum_g[j] += all_a[j]
        sum_gx[j] += all_q[j]


cdef inline void lane_scale(const real* dy, real* dx, Py_ssize_t lanes, const real* c, real w) noexcept nogil:
    """One row where the statistics were given: dx = dy * rstd * s."""
    cdef Py_ssize_t j
    for j in range(lanes):
        dx[j] = dy[j] * (c[j] * w)


cdef inline void lane_row_params(
    const real* dy, const real* x, Py_ssize_t lanes, const real* k, const real* d, const real* r, double* ds, double* db
) noexcept nogil:
    """One row that shares a parameter: ds = sum(dy * xhat), db = sum(dy) over the lanes."""
    cdef real a[WIDTH]
    cdef real q[WIDTH]
    cdef Py_ssize_t i = 0
    cdef Py_ssize_t j
    for j in range(WIDTH):
        a[j] = 0
        q[j] = 0
    while i + WIDTH <= lanes:
        for j in range(WIDTH):
            a[j] += dy[i + j]
            q[j] += dy[i + j] * (((x[i + j] - k[i + j]) - d[i + j]) * r[i + j])
        i += WIDTH
    for j in range(lanes - i):
        a[j] += dy[i + j]
        q[j] += dy[i + j] * (((x[i + j] - k[i + j]) - d[i + j]) * r[i + j])
    db[0] = total(a)
    ds[0] = total(q)
