# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# Rows: the unit-step loop is reduced, so a row is `reduce0` runs of `reduce1` contiguous elements.
#
# A row is cut into chunks that fit the innermost cache. Sums over a chunk run in WIDTH accumulators, element i in
# accumulator i mod WIDTH, which the compiler turns into vectors without being allowed to reorder anything. How a row is
# cut depends on its shape alone, so neither the threads nor the order in which chunks are done can change a bit.

from minorm_ext.nest cimport Nest
from minorm_ext.norm_moments cimport Moments, out_of_range, poor_shift, real

cdef extern from "norm_total.h" nogil:
    float minorm_total_f(const float* a) noexcept
    double minorm_total_d(const double* a) noexcept


cdef enum:
    CHUNK = 8192  # elements
    WIDTH = 32    # accumulators
    REACH = 16    # elements that one of them adds up on its own


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


cdef inline real total(const real* a) noexcept nogil:
    """The sum of the WIDTH accumulators."""
    if real is float:
        return minorm_total_f(a)
    else:
        return minorm_total_d(a)


cdef inline void flush(real* total, real* part) noexcept nogil:
    """Add the accumulators to those of longer reach."""
    cdef Py_ssize_t j
    for j in range(WIDTH):
        total[j] += part[j]
        part[j] = 0


cdef inline void shifted_sums(
    const real* x, Py_ssize_t step, Span at, real k, real* sum, real* squares
) noexcept nogil:
    """sum(x - k) and sum((x - k)^2) over a span.

    An accumulator takes REACH elements before it is added to another: beside one outlier of a million standard
    deviations, hundreds of small squares added one by one would each be rounded away.
    """
    cdef real a[WIDTH]
    cdef real q[WIDTH]
    cdef real all_a[WIDTH]
    cdef real all_q[WIDTH]
    cdef real t
    cdef Py_ssize_t r, i, j, stop
    cdef Py_ssize_t taken = 0
    cdef const real* p
    for j in range(WIDTH):
        a[j] = 0
        q[j] = 0
        all_a[j] = 0
        all_q[j] = 0
    for r in range(at.runs):
        p = x + (at.run + r) * step + at.element
        i = 0
        while i + WIDTH <= at.length:
            stop = min(at.length - WIDTH, i + (REACH - 1 - taken) * WIDTH)
            while i <= stop:
                for j in range(WIDTH):
                    t = p[i + j] - k
                    a[j] += t
                    q[j] += t * t
                i += WIDTH
                taken += 1
            if taken >= REACH:
                flush(all_a, a)
                flush(all_q, q)
                taken = 0
        if i < at.length:
            for j in range(at.length - i):
                t = p[i + j] - k
                a[j] += t
                q[j] += t * t
            taken += 1
            if taken >= REACH:
                flush(all_a, a)
                flush(all_q, q)
                taken = 0
    flush(all_a, a)
    flush(all_q, q)
    sum[0] = total(all_a)
    squares[0] = total(all_q)


cdef inline void short_sums(const real* x, Py_ssize_t n, real k, real* sum, real* squares) noexcept nogil:
    """The same over n contiguous elements, at most REACH * WIDTH."""
    cdef real a[WIDTH]
    cdef real q[WIDTH]
    cdef real t
    cdef Py_ssize_t i = 0
    cdef Py_ssize_t j
    for j in range(WIDTH):
        a[j] = 0
        q[j] = 0
    while i + WIDTH <= n:
        for j in range(WIDTH):
            t = x[i + j] - k
            a[j] += t
            q[j] += t * t
        i += WIDTH
    for j in range(n - i):
        t = x[i + j] - k
        a[j] += t
        q[j] += t * t
    sum[0] = total(a)
    squares[0] = total(q)


cdef inline void careful_sums(
    const real* x, Py_ssize_t step, Span at, double k, double* sum, double* squares
) noexcept nogil:
    """The same in double, for squares that leave the range of the type."""
    cdef double t
    cdef Py_ssize_t r, i
    cdef const real* p
    sum[0] = 0
    squares[0] = 0
    for r in range(at.runs):
        p = x + (at.run + r) * step + at.element
        for i in range(at.length):
            t = p[i] - k
            sum[0] += t
            squares[0] += t * t


cdef inline real sample_mean(const real* x, Py_ssize_t step, Span at) noexcept nogil:
    """The mean of four elements from all over a span: exactly c where all are c."""
    cdef Py_ssize_t across = step * (at.runs // 4) if at.runs >= 4 else at.length // 4
    cdef const real* p = x + at.run * step + at.element
    cdef real quarter = <real>0.25
    return (quarter * p[0] + quarter * p[across]) + (quarter * p[2 * across] + quarter * p[3 * across])


cdef inline Moments span_moments(const real* x, Py_ssize_t step, Span at, real guess, bint centered) noexcept nogil:
    """The moments of a span of the row x, relative to x[0] (to 0 if not centered).

    The shift is a guess of the mean, which needs one pass; when it proves poor, a second pass takes the mean that the
    first has found.
    """
    cdef Moments m
    cdef double n = <double>at.runs * at.length
    cdef double one = 1 / n
    cdef double sum, squares, shift
    cdef real a, q
    cdef real k = guess if centered else 0
    shift = k
    shifted_sums(x, step, at, k, &a, &q)
    if out_of_range(n, a, q):
        careful_sums(x, step, at, shift, &sum, &squares)
        if centered:
            shift += sum / n
            careful_sums(x, step, at, shift, &sum, &squares)
    else:
        if centered and poor_shift(n, a, q - <double>a * a * one):
            k = <real>(k + a * one)
            shift = k
            shifted_sums(x, step, at, k, &a, &q)
        sum = a
        squares = q
    m.n = n
    m.offset = (shift - x[0]) + sum * one if centered else 0
    m.m2 = max(squares - sum * sum * one, 0.0) if centered else squares
    return m


cdef inline void apply_same(
    const real* x, real* y, Py_ssize_t n, real k, real d, real c, real b
) noexcept nogil:
    """y = ((x - k) - d) * c + b with c = rstd * s: the parameters are the same all along."""
    cdef Py_ssize_t i
    for i in range(n):
        y[i] = ((x[i] - k) - d) * c + b


cdef inline void apply_each(
    const real* x, real* y, Py_ssize_t n, real k, real d, real r, const real* s, const real* b
) noexcept nogil:
    """y = ((x - k) - d) * rstd * s + b with a parameter for each element; s or b may be absent."""
    cdef Py_ssize_t i
    if s != NULL and b != NULL:
        for i in range(n):
            y[i] = ((x[i] - k) - d) * r * s[i] + b[i]
    elif s != NULL:
        for i in range(n):
            y[i] = ((x[i] - k) - d) * r * s[i]
    else:
        for i in range(n):
            y[i] = ((x[i] - k) - d) * r + b[i]


cdef inline void grad_sums_same(
    const real* dy, const real* x, Py_ssize_t step, Span at, real k, real d, double* sum_dy, double* sum_dyx
) noexcept nogil:
    """sum(dy) and sum(dy * (x - mean)) over a span."""
    cdef real a[WIDTH]
    cdef real q[WIDTH]
    cdef Py_ssize_t r, i, j
    cdef const real* p
    cdef const real* g
    for j in range(WIDTH):
        a[j] = 0
        q[j] = 0
    for r in range(at.runs):
        p = x + (at.run + r) * step + at.element
        g = dy + (at.run + r) * step + at.element
        i = 0
        while i + WIDTH <= at.length:
            for j in range(WIDTH):
                a[j] += g[i + j]
                q[j] += g[i + j] * ((p[i + j] - k) - d)
            i += WIDTH
        for j in range(at.length - i):
            a[j] += g[i + j]
            q[j] += g[i + j] * ((p[i + j] - k) - d)
    sum_dy[0] = total(a)
    sum_dyx[0] = total(q)


cdef inline void grad_sums_each(
    const real* dy, const real* x, Py_ssize_t step, const real* s, Py_ssize_t s_step, Span at, real k, real d,
    double* sum_g, double* sum_gx,
) noexcept nogil:
    """sum(g) and sum(g * (x - mean)) over a span, where g = dy * s has a parameter for each element."""
    cdef real a[WIDTH]
    cdef real q[WIDTH]
    cdef real t
    cdef Py_ssize_t r, i, j
    cdef const real* p
    cdef const real* g
    cdef const real* w
    for j in range(WIDTH):
        a[j] = 0
        q[j] = 0
    for r in range(at.runs):
        p = x + (at.run + r) * step + at.element
        g = dy + (at.run + r) * step + at.element
        w = s + (at.run + r) * s_step + at.element
        i = 0
        while i + WIDTH <= at.length:
            for j in range(WIDTH):
                t = g[i + j] * w[i + j]
                a[j] += t
                q[j] += t * ((p[i + j] - k) - d)
            i += WIDTH
        for j in range(at.length - i):
            t = g[i + j] * w[i + j]
            a[j] += t
            q[j] += t * ((p[i + j] - k) - d)
    sum_g[0] = total(a)
    sum_gx[0] = total(q)


cdef inline void grad_input_same(
    const real* dy, const real* x, real* dx, Py_ssize_t n, real k, real d, real r, real c, real p, real q
) noexcept nogil:
    """dx = dy * c - p - xhat * q with c = rstd * s, p = rstd * mean(g), q = rstd * mean(g * xhat)."""
    cdef Py_ssize_t i
    for i in range(n):
        dx[i] = (dy[i] * c - p) - ((x[i] - k) - d) * r * q


cdef inline void grad_input_each(
    const real* dy, const real* x, const real* s, real* dx, Py_ssize_t n, real k, real d, real r, real p, real q
) noexcept nogil:
    """The same with a parameter for each element."""
    cdef Py_ssize_t i
    for i in range(n):
        dx[i] = (dy[i] * s[i] * r - p) - ((x[i] - k) - d) * r * q


cdef inline void scale_same(const real* dy, real* dx, Py_ssize_t n, real c) noexcept nogil:
    """dx = dy * rstd * s: the statistics were given."""
    cdef Py_ssize_t i
    for i in range(n):
        dx[i] = dy[i] * c


cdef inline void scale_each(const real* dy, const real* s, real* dx, Py_ssize_t n, real r) noexcept nogil:
    """The same with a parameter for each element."""
    cdef Py_ssize_t i
    for i in range(n):
        dx[i] = dy[i] * s[i] * r


cdef inline void grad_params_each(
    const real* dy, const real* x, real* ds, real* db, Py_ssize_t n, real k, real d, real r
) noexcept nogil:
    """ds += dy * xhat, db += dy."""
    cdef Py_ssize_t i
    for i in range(n):
        ds[i] += dy[i] * (((x[i] - k) - d) * r)
        db[i] += dy[i]
