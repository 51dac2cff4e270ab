# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# Rows: the unit-step loop is reduced, so a row is `reduce0` runs of `reduce1` contiguous elements.
#
# A row is cut into chunks that fit the innermost cache. Sums over a chunk run in WIDTH accumulators, element i in
# accumulator i mod WIDTH (sums.h), and nothing is reordered. How a row is cut depends on its shape alone, so
# neither the threads nor the order in which chunks are done can change a bit.

from minorm_ext.norm.nest cimport Nest
from minorm_ext.norm.moments cimport Moments, moments_of, out_of_range, poor_shift
from minorm_ext.norm.sums cimport Span, shifted_sums
from minorm_ext.simd.storage cimport Data, fetch, item, put, real

cdef enum:
    CHUNK = 4096  # elements; in float, one chunk of x and one of y fill the first-level cache


cdef struct Cut:
    Py_ssize_t length  # elements of a run in one chunk
    Py_ssize_t pieces  # chunks of a run, if a run is longer than a chunk; else 1
    Py_ssize_t runs    # runs in one chunk, if a chunk is longer than a run; else 1
    Py_ssize_t chunks  # chunks of a row


cdef inline Cut cut_row(const Nest* nest) noexcept nogil:
    """Cut runs into pieces, or take several whole runs together."""
    cdef Cut cut
    cdef Py_ssize_t count = nest.reduce1.count
    if count >= CHUNK:
        cut.pieces = (count + CHUNK - 1) // CHUNK
        cut.length = (count + cut.pieces - 1) // cut.pieces
        cut.runs = 1
        cut.chunks = nest.reduce0.count * cut.pieces
    else:
        cut.pieces = 1
        cut.length = count
        cut.runs = CHUNK // count
        cut.chunks = (nest.reduce0.count + cut.runs - 1) // cut.runs
    return cut


cdef inline Span chunk_span(const Nest* nest, const Cut* cut, Py_ssize_t chunk) noexcept nogil:
    cdef Span at
    if cut.pieces > 1:
        at.run = chunk // cut.pieces
        at.runs = 1
        at.element = chunk % cut.pieces * cut.length
    else:
        at.run = chunk * cut.runs
        at.runs = min(cut.runs, nest.reduce0.count - at.run)
        at.element = 0
    at.length = min(cut.length, nest.reduce1.count - at.element)
    return at


cdef inline Span joined(const Nest* nest, Span at) noexcept nogil:
    """Runs that follow each other without a gap are one run, where nobody asks for the parameters of each."""
    if nest.reduce0.data == at.length:
        at.length *= at.runs
        at.runs = 1
    return at


cdef inline Py_ssize_t as_one(const Nest* nest, Span* at, Py_ssize_t* step) noexcept nogil:
    """The same for copying. Returns where the first begins in its row."""
    cdef Py_ssize_t start = at.run * nest.reduce0.data + at.element
    step[0] = at.length
    at[0] = joined(nest, at[0])
    return start


cdef inline Py_ssize_t fetch_span(
    const Data* data, const Nest* nest, Py_ssize_t row, Span at, real* room, Py_ssize_t* step
) noexcept nogil:
    """The runs of a span of the row that begins at `row`, `step` apart. Returns where the first begins: in the data, or
    in the room, where no loop takes the data as it lies."""
    cdef Py_ssize_t start, r
    if data.direct:
        step[0] = nest.reduce0.data
        return row + at.run * nest.reduce0.data + at.element
    start = row + as_one(nest, &at, step)
    for r in range(at.runs):
        fetch(data, start + r * nest.reduce0.data, at.length, room + r * at.length)
    return 0


cdef inline void put_span(
    const Data* data, const Nest* nest, Py_ssize_t row, Span at, const real* source
) noexcept nogil:
    """Bring the runs of a span from a room to where they belong."""
    cdef Py_ssize_t step, r
    cdef Py_ssize_t start = row + as_one(nest, &at, &step)
    for r in range(at.runs):
        put(data, start + r * nest.reduce0.data, at.length, source + r * at.length)


cdef inline void careful_sums(
    const Data* x, Py_ssize_t at, Py_ssize_t step, Span span, double k, double* sum, double* squares
) noexcept nogil:
    """The same in double, for squares that leave the range of the type."""
    cdef double t
    cdef Py_ssize_t r, i
    sum[0] = 0
    squares[0] = 0
    for r in range(span.runs):
        for i in range(span.length):
            t = item(x, at + r * step + i) - k
            sum[0] += t
            squares[0] += t * t


cdef inline Moments span_moments(
    const Data* x, Py_ssize_t at, Py_ssize_t step, Span span, double first, real guess, bint centered
) noexcept nogil:
    """The moments of a span, relative to the first element of its row (to 0 if not centered).

    The shift is a guess of the mean, which needs one pass.
    """
    cdef real a, q
    cdef real k = guess if centered else 0
    shifted_sums(x, at, step, span, k, &a, &q)
    return moments_of_sums(x, at, step, span, first, k, a, q, centered)


cdef inline Moments moments_of_sums(
    const Data* x, Py_ssize_t at, Py_ssize_t step, Span span, double first, real k, real a, real q, bint centered
) noexcept nogil:
    """The same from the sums, whose shift was k. Where that proves poor, a second pass takes the mean they show."""
    cdef double n = <double>span.runs * span.length
    cdef double sum, squares
    cdef double shift = k
    if out_of_range(n, a, q):
        careful_sums(x, at, step, span, shift, &sum, &squares)
        if centered:
            shift += sum / n
            careful_sums(x, at, step, span, shift, &sum, &squares)
    else:
        if centered and poor_shift(n, a, q - <double>a * a / n):
            k = <real>(k + a / n)
            shift = k
            shifted_sums(x, at, step, span, k, &a, &q)
        sum = a
        squares = q
    return moments_of(n, shift - first, sum, squares, centered)
