# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# Columns: the unit-step loop is kept, so neighbours in memory belong to different statistics (N x C, channels-last).
#
# A tile of neighbours walks down the reduced loops together, each with its own accumulators, row after row. Where
# columns are few and rows follow each other without a gap, several rows are taken as one wide row, and their
# accumulators are folded at the end. After some rows the sums, kept in the type computed in, are merged in double.
#
# The number of columns of a tile changes no bit of a result. If data is in cache, a tile has TILE columns, so that its
# accumulators stay in the innermost cache. If data comes from memory, it has up to BROAD_TILE columns, because short
# pieces of rows are read slowly.

from libc.stdint cimport uint8_t
from libc.string cimport memset

from minorm_ext.norm.kernels cimport ColumnRows, columns_sums, middle
from minorm_ext.norm.moments cimport out_of_range, poor_shift
from minorm_ext.norm.nest cimport Nest, turn_at
from minorm_ext.runtime.numbers cimport real
from minorm_ext.simd.storage cimport Data, Source, counted, fetch_filled, item, see


cdef extern from *:
    """
    /* Scratch memory for a number of each column. No vector of them lies across two lines. */
    typedef union { float single[1296]; double twice[1296]; } __attribute__((aligned(64))) minorm_columns;
    """
    ctypedef struct Scratch "minorm_columns":
        double[1296] twice

cdef enum:
    WIDTH = 1296     # numbers of scratch memory: those of a broad tile, and 1088 bytes more than whole pages. Otherwise
    #                  a loop that writes one such memory and reads the next reads what looks like an address just
    #                  written
    ADDED = 16       # rows that an accumulator adds up before it is added to another
    AHEAD = 1024     # distance in elements, about, over which a row is prefetched: at least one row, or four if four go
    #                  together


cdef struct Strip:
    Py_ssize_t kept   # columns, each with its own statistics
    Py_ssize_t width  # columns of a row: kept, or a multiple where several rows are taken as one
    Py_ssize_t rows   # such rows
    Py_ssize_t last   # columns of the last of them
    bint asked        # were rows from memory prefetched, so that they are in cache by now?


cdef inline Py_ssize_t column_row(const Nest* nest, const Strip* strip, Py_ssize_t row) noexcept nogil:
    """Return where a row begins in the data."""
    if strip.width > strip.kept:
        return row * strip.width
    return turn_at(row, &nest.reduce0, nest.reduce1.count, nest.reduce0.data, nest.reduce1.data)


cdef inline Py_ssize_t column_row_param(const Nest* nest, Py_ssize_t row) noexcept nogil:
    """Return where a row begins in the parameters, if these vary from row to row."""
    return turn_at(row, &nest.reduce0, nest.reduce1.count, nest.reduce0.param, nest.reduce1.param)


cdef inline Py_ssize_t columns_of(const Strip* strip, Py_ssize_t row) noexcept nogil:
    return strip.width if row + 1 < strip.rows else strip.last


cdef inline ColumnRows rows_from(
    const Data* data, const Nest* nest, const Strip* strip, Py_ssize_t row, Py_ssize_t end
) noexcept nogil:
    """Return the rows from `row` on, before `end`, that the loops take at once: evenly apart, and of one width. It is a
    single row if the loops do not take the data in its own place."""
    cdef ColumnRows rows
    rows.n = columns_of(strip, row)
    rows.step = strip.width if strip.width > strip.kept else nest.reduce1.data
    rows.cached = strip.asked or not data.uncached
    rows.next = rows.step * max(4 if rows.cached else 1, AHEAD // strip.width)
    rows.then = 2 * rows.next
    if strip.last < strip.width:
        end = min(end, strip.rows - 1)
    if nest.reduce0.count > 1:
        end = min(end, row + nest.reduce1.count - row % nest.reduce1.count)
    rows.count = max(1, end - row) if data.direct else 1
    return rows


cdef inline double elements_in(const Strip* strip, Py_ssize_t first, Py_ssize_t end) noexcept nogil:
    """Return how many elements of each column the rows first .. end - 1 hold."""
    cdef Py_ssize_t whole = (end - first) * strip.width
    return (whole - (strip.width - strip.last if end == strip.rows else 0)) // strip.kept


cdef inline void repeat_columns(real* values, const Strip* strip) noexcept nogil:
    """Repeat the values of the kept columns for every row that a wide row holds."""
    cdef Py_ssize_t j
    for j in range(strip.kept, strip.width):
        values[j] = values[j - strip.kept]


cdef inline void fold_columns(real* sums, const Strip* strip) noexcept nogil:
    """Add up the sums of the same column."""
    cdef Py_ssize_t start = strip.kept
    cdef Py_ssize_t j
    while start < strip.width:
        for j in range(strip.kept):
            sums[j] += sums[start + j]
        start += strip.kept


cdef inline void clear_columns(real* a, real* q, Py_ssize_t columns) noexcept nogil:
    cdef Py_ssize_t j
    for j in range(columns):
        a[j] = q[j] = 0


cdef inline void gather_columns(real* all_a, real* all_q, real* a, real* q, Py_ssize_t columns) noexcept nogil:
    """Add the sums of some rows to the totals, and reset them to 0."""
    cdef Py_ssize_t j
    for j in range(columns):
        all_a[j] += a[j]
        all_q[j] += q[j]
        a[j] = q[j] = 0


cdef inline Py_ssize_t fetch_columns(
    const Data* data, Py_ssize_t at, Py_ssize_t columns, const real* fills, real* scratch
) noexcept nogil:
    """Return where a row begins for the loops: in the data, or, if they do not take it in its place, in the scratch,
    with `fills` or 0 in place of elements that do not count."""
    if data.direct:
        return at
    fetch_filled(data, at, columns, fills, scratch)
    return 0


cdef inline Py_ssize_t rows_alike(
    const Data* x, Py_ssize_t at, const Nest* nest, const Strip* strip, Py_ssize_t row, Py_ssize_t end, bint* whole
) noexcept nogil:
    """Return the end of the rows, from `row` on, that are taken at once. With a mask, these are rows in which all
    elements count, or a single other row."""
    cdef Py_ssize_t n
    whole[0] = True
    if x.mask == NULL:
        return end
    n = columns_of(strip, row)
    whole[0] = counted(x.mask + at + column_row(nest, strip, row), n) == n
    row += 1
    while whole[0] and row < end and columns_of(strip, row) == n:
        if counted(x.mask + at + column_row(nest, strip, row), n) < n:
            break
        row += 1
    return row


cdef inline void count_columns(
    const uint8_t* mask, const Nest* nest, const Strip* strip, Py_ssize_t first, Py_ssize_t end, double* counts
) noexcept nogil:
    """Count the elements of each column that count in the rows first .. end - 1, which are at most 255."""
    cdef uint8_t some[WIDTH]
    cdef const uint8_t* of_row
    cdef Py_ssize_t row, j, start
    memset(some, 0, strip.width)
    for row in range(first, end):
        of_row = mask + column_row(nest, strip, row)
        for j in range(columns_of(strip, row)):
            some[j] += of_row[j]
    for j in range(strip.kept):
        counts[j] = some[j]
    start = strip.kept
    while start < strip.width:
        for j in range(strip.kept):
            counts[j] += some[start + j]
        start += strip.kept


cdef inline void add_rows(
    const Data* dy, const Data* x, Py_ssize_t at, const Nest* nest, const Strip* strip, Py_ssize_t first,
    Py_ssize_t end, const real* k, const real* d, const real* s, real* a, real* q
) noexcept nogil:
    """Add the terms of the rows first .. end - 1 to a and q, row after row: x - k and its square; with dy, g and
    g * (x - mean)."""
    cdef Scratch[2] scratches
    cdef real* x_scratch = <real*>&scratches[0]
    cdef real* dy_scratch = <real*>&scratches[1]
    cdef Source of_x, of_dy
    cdef ColumnRows rows
    cdef real w = 1
    cdef Py_ssize_t row = first
    cdef Py_ssize_t begin, stop
    cdef bint single = sizeof(real) == sizeof(float)
    cdef bint whole = x.mask == NULL
    see(&of_x, x, whole, x_scratch, single)
    if dy != NULL:
        see(&of_dy, dy, whole, dy_scratch, single)
    while row < end:
        stop = end if s == NULL else row + 1
        if x.mask != NULL:
            stop = rows_alike(x, at, nest, strip, row, stop, &whole)
            see(&of_x, x, whole, x_scratch, single)
            if dy != NULL:
                see(&of_dy, dy, whole, dy_scratch, single)
        rows = rows_from(&of_x.data, nest, strip, row, stop)
        begin = fetch_columns(&of_x.data, at + column_row(nest, strip, row), rows.n, k, x_scratch)
        if dy != NULL:
            fetch_columns(&of_dy.data, at + column_row(nest, strip, row), rows.n, <const real*>NULL, dy_scratch)
        if s != NULL:
            w = s[column_row_param(nest, row)]
        columns_sums(&of_dy.view if dy != NULL else NULL, &of_x.view, begin, &rows, k, d, w, a, q)
        row += rows.count


cdef inline void sums_of_columns(
    const Data* dy, const Data* x, Py_ssize_t at, const Nest* nest, const Strip* strip, Py_ssize_t first,
    Py_ssize_t end, const real* k, const real* d, const real* s, real* sum, real* products
) noexcept nogil:
    """sum(x - k) and sum((x - k)^2) of each column over the rows first .. end - 1. With dy: sum(g) and
    sum(g * (x - mean)), where g = dy * s with a parameter s for each row, or g = dy without s."""
    cdef Scratch[2] some
    cdef real* a = <real*>&some[0]
    cdef real* q = <real*>&some[1]
    cdef Py_ssize_t row = first + ADDED
    clear_columns(sum, products, strip.width)
    add_rows(dy, x, at, nest, strip, first, min(row, end), k, d, s, sum, products)
    if row < end:
        clear_columns(a, q, strip.width)
    while row < end:
        add_rows(dy, x, at, nest, strip, row, min(row + ADDED, end), k, d, s, a, q)
        gather_columns(sum, products, a, q, strip.width)
        row += ADDED
    fold_columns(sum, strip)
    fold_columns(products, strip)


cdef inline void careful_column(
    const Data* x, Py_ssize_t at, const Nest* nest, const Strip* strip, Py_ssize_t first, Py_ssize_t end, double k,
    double* sum, double* squares
) noexcept nogil:
    """Compute the same for one column in double, for squares that leave the range of the type."""
    cdef double t
    cdef Py_ssize_t row, column, place
    sum[0] = 0
    squares[0] = 0
    for row in range(first, end):
        column = 0
        while column < columns_of(strip, row):
            place = at + column_row(nest, strip, row) + column
            if x.mask == NULL or x.mask[place]:
                t = item(x, place) - k
                sum[0] += t
                squares[0] += t * t
            column += strip.kept


cdef inline void guess_columns(
    const Data* x, Py_ssize_t at, const Nest* nest, const Strip* strip, real* k
) noexcept nogil:
    """Guess each column's mean: the middle of four elements spread over the column. In place of an element that does
    not count, use the origin in k."""
    cdef Py_ssize_t per = strip.width // strip.kept  # rows that a wide row holds
    cdef Py_ssize_t all = <Py_ssize_t>elements_in(strip, 0, strip.rows)
    cdef real scratch[4 * WIDTH]
    cdef const real* p[4]
    cdef Py_ssize_t i, j, turn
    for i in range(4):
        turn = i * all // 4
        j = column_row(nest, strip, turn // per) + turn % per * strip.kept
        p[i] = fetch_filled(x, at + j, strip.kept, k, scratch + i * WIDTH)
    for j in range(strip.kept):
        k[j] = <real>middle(p[0][j], p[1][j], p[2][j], p[3][j])


cdef inline void merge_column(
    bint centered, double one_by_n, double share, double weight, double ahead, double sum, double squares,
    double* offset, double* m2
) noexcept nogil:
    """Merge n elements, whose sums are about a shift `ahead` of the origin, into offset and m2."""
    cdef double mean = sum * one_by_n
    cdef double delta = (ahead + mean) - offset[0]
    if centered:
        offset[0] += delta * share
        m2[0] += max(squares - sum * mean, 0.0) + delta * delta * weight
    else:
        m2[0] += squares


cdef inline void nearer_shifts(
    const Data* x, Py_ssize_t at, const Nest* nest, const Strip* strip, Py_ssize_t first, Py_ssize_t end,
    const double* counts, real* k, real* a, real* q
) noexcept nogil:
    """Replace poor shifts by the mean, and sum up again; the other columns keep their shifts, and so their sums."""
    cdef bint single = sizeof(real) == sizeof(float)
    cdef double n
    cdef Py_ssize_t j
    for j in range(strip.kept):
        n = max(counts[j], 1.0)
        if poor_shift(n, a[j], q[j] - <double>a[j] * a[j] / n) and not out_of_range(single, n, a[j], q[j]):
            k[j] = <real>(k[j] + a[j] / n)
    repeat_columns(k, strip)
    sums_of_columns(NULL, x, at, nest, strip, first, end, k, <const real*>NULL, <const real*>NULL, a, q)


cdef inline void moments_of_columns(
    const Data* x, Py_ssize_t at, const Nest* nest, const Strip* strip, Py_ssize_t first,
    Py_ssize_t end, bint centered, double before, const double* origin, real* k, double* offset, double* m2,
    double* held
) noexcept nogil:
    """Merge the rows first .. end - 1 into offset and m2, which hold `before` elements so far; with a mask `held`, a
    number for each column, which these rows are added to.

    offset is relative to origin, the column's first element, or to 0 if not centered; k is a guess of the mean, and
    then the mean of what is there, or 0. See moments_of_sums in statistics.pxd.
    """
    cdef Scratch[2] scratches
    cdef real* a = <real*>&scratches[0]
    cdef real* q = <real*>&scratches[1]
    cdef double counts[WIDTH]  # of these rows
    cdef double n = elements_in(strip, first, end)
    cdef double one_by_n = 1 / n
    cdef double share = n / (n + before)
    cdef double weight = before * share
    cdef double shift, sum, squares
    cdef bint single = sizeof(real) == sizeof(float)
    cdef int poor = 0
    cdef int careful = 0
    cdef Py_ssize_t columns = strip.kept
    cdef Py_ssize_t j
    if held != NULL:
        count_columns(x.mask + at, nest, strip, first, end, counts)
    else:
        for j in range(columns):
            counts[j] = n
    repeat_columns(k, strip)
    sums_of_columns(NULL, x, at, nest, strip, first, end, k, <const real*>NULL, <const real*>NULL, a, q)
    for j in range(columns):
        careful |= out_of_range(single, counts[j], a[j], q[j])
    if centered:
        for j in range(columns):
            if held != NULL:
                one_by_n = 1 / max(counts[j], 1.0)
            poor |= poor_shift(counts[j], a[j], q[j] - <double>a[j] * a[j] * one_by_n)
        if poor:
            nearer_shifts(x, at, nest, strip, first, end, counts, k, a, q)
            for j in range(columns):
                careful |= out_of_range(single, counts[j], a[j], q[j])
    if careful or held != NULL:
        for j in range(columns):
            shift, sum, squares, n = k[j], a[j], q[j], counts[j]
            if n == 0:
                continue
            if held != NULL:
                one_by_n = 1 / n
                share = n / (n + held[j])
                weight = held[j] * share
                held[j] += n
            if out_of_range(single, n, a[j], q[j]):
                shift = 0
                if centered:
                    shift = origin[j] if held != NULL else item(x, at + column_row(nest, strip, first) + j)
                careful_column(x, at + j, nest, strip, first, end, shift, &sum, &squares)
                if centered:
                    shift += sum * one_by_n
                    careful_column(x, at + j, nest, strip, first, end, shift, &sum, &squares)
            merge_column(centered, one_by_n, share, weight, shift - origin[j], sum, squares, &offset[j], &m2[j])
    else:
        for j in range(columns):
            merge_column(centered, one_by_n, share, weight, k[j] - origin[j], a[j], q[j], &offset[j], &m2[j])
    if centered:
        for j in range(columns):
            k[j] = <real>(origin[j] + offset[j])


cdef inline void merge_columns(
    Py_ssize_t columns, double before, double* offset, double* m2, double n, const double* offset2, const double* m22,
    double* held, const double* held2
) noexcept nogil:
    """Merge n more elements, summed up elsewhere, into offset and m2, which hold `before`; with a mask `held2` a column
    into what holds `held`."""
    cdef double share = n / (n + before)
    cdef double delta
    cdef Py_ssize_t j
    if held != NULL:
        for j in range(columns):
            if held2[j] == 0:
                continue
            share = held2[j] / (held2[j] + held[j])
            delta = offset2[j] - offset[j]
            offset[j] += delta * share
            m2[j] += m22[j] + delta * delta * (held[j] * share)
            held[j] += held2[j]
        return
    for j in range(columns):
        delta = offset2[j] - offset[j]
        offset[j] += delta * share
        m2[j] += m22[j] + delta * delta * (before * share)
