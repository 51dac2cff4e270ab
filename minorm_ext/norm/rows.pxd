# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# Rows: the unit-step loop is reduced, so a row is `reduce0` runs of `reduce1` contiguous elements.
#
# A row is cut into chunks that fit the innermost cache: pieces of a run, or several whole runs. The cuts follow from
# its shape alone, so neither the threads nor the order of the chunks can change a bit.

from libc.stdint cimport uint8_t
from libc.string cimport memchr

from minorm_ext.norm.kernels cimport Runs
from minorm_ext.norm.nest cimport Nest
from minorm_ext.simd.storage cimport Data, counted, gather, item, stage, unstage

cdef enum:
    CHUNK = 4096  # elements; in float, one chunk of x and one of y fill the first-level cache


cdef struct Cut:
    Py_ssize_t length  # elements of a run in one chunk
    Py_ssize_t pieces  # chunks of a run, if a run is longer than a chunk; else 1
    Py_ssize_t runs    # runs in one chunk, if a chunk is longer than a run; else 1
    Py_ssize_t chunks  # chunks of a row


cdef struct Span:  # of a row: `runs` runs from `run` on, and of each `length` elements from `element` on
    Py_ssize_t data  # where it begins in the data
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


cdef inline Span chunk_span(const Nest* nest, const Cut* cut, Py_ssize_t row, Py_ssize_t chunk) noexcept nogil:
    """Return a chunk of the row whose data begins at `row`."""
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
    at.data = row + at.run * nest.reduce0.data + at.element
    return at


cdef inline Runs runs_of(const Data* data, const Nest* nest, Span span) noexcept nogil:
    """Return the runs of a span: in their own places, or side by side in scratch memory."""
    cdef Runs runs
    runs.at = span.data if data.direct else 0
    runs.step = nest.reduce0.data if data.direct else span.length
    runs.param = nest.reduce0.param
    runs.runs = span.runs
    runs.n = span.length
    runs.next = 0
    runs.k = runs.d = runs.r = runs.p = runs.q = 0
    return runs


cdef inline Span joined(const Nest* nest, Span span) noexcept nogil:
    """Join runs that follow each other without a gap into one, for callers that do not use the parameters of each."""
    if nest.reduce0.data == span.length:
        span.length *= span.runs
        span.runs = 1
    return span


cdef inline void fetch_span(const Data* data, const Nest* nest, Span span, void* scratch, bint single) noexcept nogil:
    """Stage the runs of a span side by side in scratch memory, if the loops do not read them in their own places."""
    cdef Py_ssize_t run
    if data.direct:
        return
    span = joined(nest, span)
    for run in range(span.runs):
        stage(data, span.data + run * nest.reduce0.data, span.length, scratch, run * span.length, single)


cdef inline void put_span(const Data* data, const Nest* nest, Span span, void* scratch, bint single) noexcept nogil:
    """Store the runs of a span from scratch memory in their places."""
    cdef Py_ssize_t run
    if data.direct:
        return
    span = joined(nest, span)
    for run in range(span.runs):
        unstage(data, span.data + run * nest.reduce0.data, span.length, scratch, run * span.length, single)


# Rows of which only some elements count.

cdef inline Py_ssize_t count_of(Span span) noexcept nogil:
    """Return how many elements a span has."""
    return span.runs * span.length


cdef inline Py_ssize_t counted_in(const Data* data, const Nest* nest, Span span) noexcept nogil:
    """Return how many elements of a span count."""
    cdef Py_ssize_t count = 0
    cdef Py_ssize_t run
    if data.mask == NULL:
        return count_of(span)
    span = joined(nest, span)
    for run in range(span.runs):
        count += counted(data.mask + span.data + run * nest.reduce0.data, span.length)
    return count


cdef inline void gather_span(const Data* data, const Nest* nest, Span span, void* scratch, bint single) noexcept nogil:
    """Stage the elements of a span that count, side by side."""
    cdef Py_ssize_t count = 0
    cdef Py_ssize_t run
    span = joined(nest, span)
    for run in range(span.runs):
        count += gather(data, span.data + run * nest.reduce0.data, span.length, scratch, count, single)


cdef inline double first_counted(const Data* data, const Nest* nest, Py_ssize_t row) noexcept nogil:
    """Return the first element of a row that counts, or 0."""
    cdef const uint8_t* found
    cdef Py_ssize_t run
    for run in range(nest.reduce0.count):
        found = <const uint8_t*>memchr(data.mask + row + run * nest.reduce0.data, 1, nest.reduce1.count)
        if found != NULL:
            return item(data, found - data.mask)
    return 0
