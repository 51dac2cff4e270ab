# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# Rows: the unit-step loop is reduced, so a row is `reduce0` runs of `reduce1` contiguous elements.
#
# A row is cut into chunks that fit the innermost cache. Sums over a chunk run in WIDTH accumulators, element i in
# accumulator i mod WIDTH (norm_sums.h), and nothing is reordered. How a row is cut depends on its shape alone, so
# neither the threads nor the order in which chunks are done can change a bit.

from libc.stdint cimport uint16_t

from minorm_ext.nest cimport Nest
from minorm_ext.norm_moments cimport Moments, out_of_range, poor_shift
from minorm_ext.storage cimport HALF, SINGLE, Data, fetch, item, put, real

cdef extern from "norm_sums.h" nogil:
    enum:
        BRIEF
    void minorm_sums_float(
        const float* x, Py_ssize_t step, Py_ssize_t runs, Py_ssize_t n, float k, float* sum, float* squares
    ) noexcept
    float minorm_sample_float(const float* x, Py_ssize_t across) noexcept
    void minorm_short_sums_float(
        const float* x, const Py_ssize_t* start, Py_ssize_t rows, Py_ssize_t n, Py_ssize_t next, bint centered,
        float* k, float* sum, float* squares
    ) noexcept
    void minorm_short_grad_sums_float(
        const float* dy, const float* x, const Py_ssize_t* start, Py_ssize_t rows, const float* s, Py_ssize_t n,
        Py_ssize_t next, const float* k, const float* d, float* sum_g, float* sum_gx
    ) noexcept
    void minorm_grad_sums_float(
        const float* dy, const float* x, Py_ssize_t step, const float* s, Py_ssize_t s_step,
        Py_ssize_t runs, Py_ssize_t n, float k, float d, float* sum_g, float* sum_gx
    ) noexcept
    void minorm_sums_double(
        const double* x, Py_ssize_t step, Py_ssize_t runs, Py_ssize_t n, double k, double* sum, double* squares
    ) noexcept
    double minorm_sample_double(const double* x, Py_ssize_t across) noexcept
    void minorm_short_sums_double(
        const double* x, const Py_ssize_t* start, Py_ssize_t rows, Py_ssize_t n, Py_ssize_t next, bint centered,
        double* k, double* sum, double* squares
    ) noexcept
    void minorm_short_grad_sums_double(
        const double* dy, const double* x, const Py_ssize_t* start, Py_ssize_t rows, const double* s, Py_ssize_t n,
        Py_ssize_t next, const double* k, const double* d, double* sum_g, double* sum_gx
    ) noexcept
    void minorm_grad_sums_double(
        const double* dy, const double* x, Py_ssize_t step, const double* s, Py_ssize_t s_step,
        Py_ssize_t runs, Py_ssize_t n, double k, double d, double* sum_g, double* sum_gx
    ) noexcept
    void minorm_sums_half(
        const uint16_t* x, Py_ssize_t step, Py_ssize_t runs, Py_ssize_t n, float k, float* sum, float* squares
    ) noexcept
    float minorm_sample_half(const uint16_t* x, Py_ssize_t across) noexcept
    void minorm_short_sums_half(
        const uint16_t* x, const Py_ssize_t* start, Py_ssize_t rows, Py_ssize_t n, Py_ssize_t next, bint centered,
        float* k, float* sum, float* squares
    ) noexcept
    void minorm_short_grad_sums_half(
        const uint16_t* dy, const uint16_t* x, const Py_ssize_t* start, Py_ssize_t rows, const float* s, Py_ssize_t n,
        Py_ssize_t next, const float* k, const float* d, float* sum_g, float* sum_gx
    ) noexcept
    void minorm_grad_sums_half(
        const uint16_t* dy, const uint16_t* x, Py_ssize_t step, const float* s, Py_ssize_t s_step,
        Py_ssize_t runs, Py_ssize_t n, float k, float d, float* sum_g, float* sum_gx
    ) noexcept
    void minorm_sums_bfloat(
        const uint16_t* x, Py_ssize_t step, Py_ssize_t runs, Py_ssize_t n, float k, float* sum, float* squares
    ) noexcept
    float minorm_sample_bfloat(const uint16_t* x, Py_ssize_t across) noexcept
    void minorm_short_sums_bfloat(
        const uint16_t* x, const Py_ssize_t* start, Py_ssize_t rows, Py_ssize_t n, Py_ssize_t next, bint centered,
        float* k, float* sum, float* squares
    ) noexcept
    void minorm_short_grad_sums_bfloat(
        const uint16_t* dy, const uint16_t* x, const Py_ssize_t* start, Py_ssize_t rows, const float* s, Py_ssize_t n,
        Py_ssize_t next, const float* k, const float* d, float* sum_g, float* sum_gx
    ) noexcept
    void minorm_grad_sums_bfloat(
        const uint16_t* dy, const uint16_t* x, Py_ssize_t step, const float* s, Py_ssize_t s_step,
        Py_ssize_t runs, Py_ssize_t n, float k, float d, float* sum_g, float* sum_gx
    ) noexcept
    float minorm_middle_f(float a, float b, float c, float d) noexcept
    double minorm_middle_d(double a, double b, double c, double d) noexcept
    float minorm_total_f(const float* a) noexcept
    double minorm_total_d(const double* a) noexcept


cdef enum:
    CHUNK = 4096  # elements; in float, one chunk of x and one of y fill the first-level cache
    WIDTH = 32    # accumulators of a sum


cdef struct Cut:
    Py_ssize_t length  # elements of a run in one chunk
    Py_ssize_t pieces  # chunks of a run, if a run is longer than a chunk; else 1
    Py_ssize_t runs    # runs in one chunk, if a chunk is longer than a run; else 1
    Py_ssize_t chunks  # chunks of a row


cdef struct Span:  # `runs` runs from `run` on, and of each `length` elements from `element` on
    Py_ssize_t run
    Py_ssize_t runs
    Py_ssize_t element
    Py_ssize_t length


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


cdef inline real total(const real* a) noexcept nogil:
    """The sum of the WIDTH accumulators."""
    if real is float:
        return minorm_total_f(a)
    else:
        return minorm_total_d(a)


cdef inline void shifted_sums(
    const Data* x, Py_ssize_t at, Py_ssize_t step, Span span, real k, real* sum, real* squares
) noexcept nogil:
    """sum(x - k) and sum((x - k)^2) over a span that begins at `at` and whose runs are `step` apart."""
    if real is double:
        minorm_sums_double(<const double*>x.items + at, step, span.runs, span.length, k, sum, squares)
    elif x.type == SINGLE:
        minorm_sums_float(<const float*>x.items + at, step, span.runs, span.length, k, sum, squares)
    elif x.type == HALF:
        minorm_sums_half(<const uint16_t*>x.items + at, step, span.runs, span.length, k, sum, squares)
    else:
        minorm_sums_bfloat(<const uint16_t*>x.items + at, step, span.runs, span.length, k, sum, squares)


cdef inline void short_sums(
    const Data* x, const Py_ssize_t* start, Py_ssize_t rows, Py_ssize_t n, Py_ssize_t next, bint centered,
    real* k, real* sum, real* squares,
) noexcept nogil:
    """The same over each of some rows of n contiguous elements, at most BRIEF, whose shifts k it guesses."""
    if real is double:
        minorm_short_sums_double(<const double*>x.items, start, rows, n, next, centered, k, sum, squares)
    elif x.type == SINGLE:
        minorm_short_sums_float(<const float*>x.items, start, rows, n, next, centered, k, sum, squares)
    elif x.type == HALF:
        minorm_short_sums_half(<const uint16_t*>x.items, start, rows, n, next, centered, k, sum, squares)
    else:
        minorm_short_sums_bfloat(<const uint16_t*>x.items, start, rows, n, next, centered, k, sum, squares)


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


cdef inline real middle(real a, real b, real c, real d) noexcept nogil:
    """The mean of the two in the middle."""
    if real is float:
        return minorm_middle_f(a, b, c, d)
    else:
        return minorm_middle_d(a, b, c, d)


cdef inline real sample_mean(const real* type, const Data* x, Py_ssize_t at, Py_ssize_t step, Span span) noexcept nogil:
    """A guess of the mean from four elements from all over a span."""
    cdef Py_ssize_t across = step * (span.runs // 4) if span.runs >= 4 else span.length // 4
    if real is double:
        return minorm_sample_double(<const double*>x.items + at, across)
    else:
        if x.type == SINGLE:
            return minorm_sample_float(<const float*>x.items + at, across)
        if x.type == HALF:
            return minorm_sample_half(<const uint16_t*>x.items + at, across)
        return minorm_sample_bfloat(<const uint16_t*>x.items + at, across)


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
    cdef Moments m
    cdef double n = <double>span.runs * span.length
    cdef double one = 1 / n
    cdef double sum, squares
    cdef double shift = k
    if out_of_range(n, a, q):
        careful_sums(x, at, step, span, shift, &sum, &squares)
        if centered:
            shift += sum / n
            careful_sums(x, at, step, span, shift, &sum, &squares)
    else:
        if centered and poor_shift(n, a, q - <double>a * a * one):
            k = <real>(k + a * one)
            shift = k
            shifted_sums(x, at, step, span, k, &a, &q)
        sum = a
        squares = q
    m.n = n
    m.offset = (shift - first) + sum * one if centered else 0
    m.m2 = max(squares - sum * sum * one, 0.0) if centered else squares
    return m


cdef inline void grad_sums(
    const Data* dy, const Data* x, Py_ssize_t at, Py_ssize_t step, const real* s, Py_ssize_t s_step, Span span,
    real k, real d, real* sum_g, real* sum_gx,
) noexcept nogil:
    """sum(g) and sum(g * (x - mean)) over a span; g = dy * s where s has a parameter for each element, else dy."""
    if real is double:
        minorm_grad_sums_double(
            <const double*>dy.items + at, <const double*>x.items + at, step, s, s_step,
            span.runs, span.length, k, d, sum_g, sum_gx,
        )
    elif x.type == SINGLE:
        minorm_grad_sums_float(
            <const float*>dy.items + at, <const float*>x.items + at, step, s, s_step,
            span.runs, span.length, k, d, sum_g, sum_gx,
        )
    elif x.type == HALF:
        minorm_grad_sums_half(
            <const uint16_t*>dy.items + at, <const uint16_t*>x.items + at, step, s, s_step,
            span.runs, span.length, k, d, sum_g, sum_gx,
        )
    else:
        minorm_grad_sums_bfloat(
            <const uint16_t*>dy.items + at, <const uint16_t*>x.items + at, step, s, s_step,
            span.runs, span.length, k, d, sum_g, sum_gx,
        )


cdef inline void short_grad_sums(
    const Data* dy, const Data* x, const Py_ssize_t* start, Py_ssize_t rows, const real* s, Py_ssize_t n,
    Py_ssize_t next, const real* k, const real* d, real* sum_g, real* sum_gx,
) noexcept nogil:
    """The same over each of some rows of n contiguous elements, which share s."""
    if real is double:
        minorm_short_grad_sums_double(
            <const double*>dy.items, <const double*>x.items, start, rows, s, n, next, k, d, sum_g, sum_gx,
        )
    elif x.type == SINGLE:
        minorm_short_grad_sums_float(
            <const float*>dy.items, <const float*>x.items, start, rows, s, n, next, k, d, sum_g, sum_gx,
        )
    elif x.type == HALF:
        minorm_short_grad_sums_half(
            <const uint16_t*>dy.items, <const uint16_t*>x.items, start, rows, s, n, next, k, d, sum_g, sum_gx,
        )
    else:
        minorm_short_grad_sums_bfloat(
            <const uint16_t*>dy.items, <const uint16_t*>x.items, start, rows, s, n, next, k, d, sum_g, sum_gx,
        )
