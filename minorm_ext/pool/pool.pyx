# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False, binding=False
# Pooling, one row of results at a time: tap after tap, the whole row of windows meets a row of the input.
#
# A row of results stays in the first cache while the taps pass by, and the loop along it has no branches: which windows
# meet the input with a tap is one range, known beforehand. Planes are independent, so they are shared out to threads,
# and nothing depends on how many there are. Planes too large to answer Ctrl-C between go in slices of rows of results,
# one after the other.

from cpython.exc cimport PyErr_CheckSignals
from cython.parallel cimport parallel, threadid
from libc.math cimport INFINITY
from libc.stdint cimport int32_t, intptr_t
from libc.string cimport memset

from minorm_ext.runtime.buffers cimport address
from minorm_ext.runtime.jobs cimport NONE, Jobs, deal, take
from minorm_ext.maps.reductions cimport real, row_sum

cdef extern from "pool/rows.h" nogil:
    void row_larger(float* y, int32_t* index, const float* x, intptr_t count, intptr_t step, int32_t at)
    void row_largest_of_four(float* y, int32_t* index, const float* x, intptr_t count, intptr_t below, int32_t at)

cdef enum:
    WAVE = 1 << 26  # windows times taps between two looks at the signals
    ALONE = 1 << 15  # fewer numbers than this are not worth a second thread


cdef struct Axis:
    intptr_t size, windows, kernel, stride, low, dilation


cdef class Windows:
    """Three axes of (size, windows, kernel, stride, low, dilation), and what depends on them alone.

    taps: for every tap along the last axis the place that window 0 meets with it, the first window that meets the input
    with it, and the one after the last (intp). first: for every window along that axis the first place that it meets,
    or -1 (int32). counts: what the sum of every window of a plane is divided by, of the type of the data.
    """

    cdef Axis d, h, w
    cdef const intptr_t* taps
    cdef const int32_t* first
    cdef const void* counts
    cdef intptr_t source, results
    cdef bint whole, by_two
    cdef tuple kept

    def __init__(self, tuple axes, taps, first, counts):
        self.kept = (taps, first, counts)
        self.taps = <const intptr_t*>address(taps, sizeof(intptr_t))
        self.d, self.h, self.w = axis_of(axes[0]), axis_of(axes[1]), axis_of(axes[2])
        self.first = <const int32_t*>address(first, sizeof(int32_t))
        self.counts = address(counts, counts.itemsize)
        self.source = self.d.size * self.h.size * self.w.size
        self.results = self.d.windows * self.h.windows * self.w.windows
        self.whole = self.results == 1 and is_whole(&self.d) and is_whole(&self.h) and is_whole(&self.w)
        self.by_two = (
            self.d.kernel == 1 and self.h.kernel == 2 and self.w.kernel == 2 and self.w.stride == 2
            and self.d.low == 0 and self.h.low == 0 and place(&self.h, self.h.windows - 1, 1) < self.h.size
            and self.w.low == 0 and self.w.dilation == 1 and 2 * self.w.windows <= self.w.size
        )


cdef Axis axis_of(tuple numbers):
    cdef Axis axis
    axis.size, axis.windows, axis.kernel, axis.stride, axis.low, axis.dilation = numbers
    return axis


cdef bint is_whole(const Axis* axis) noexcept nogil:
    """Is its one window the whole axis?"""
    return axis.kernel == axis.size and axis.low == 0 and axis.dilation == 1


cdef inline intptr_t rows_of(Windows p) noexcept nogil:
    """How many rows of results a plane has."""
    return p.d.windows * p.h.windows


cdef inline intptr_t place(const Axis* axis, intptr_t window, intptr_t tap) noexcept nogil:
    """The place that a window meets with a tap; negative, or size and more, in the padding."""
    return window * axis.stride + tap * axis.dilation - axis.low


# ---- maximum -------------------------------------------------------------------------------------------------------


cdef inline void larger(
    real* y, int32_t* index, const real* x, intptr_t count, intptr_t step, intptr_t at
) noexcept nogil:
    """`count` windows take x[i * step], which stands at `at` + i * step, where it is larger, or NaN."""
    cdef intptr_t i
    if real is float:
        row_larger(y, index, x, count, step, <int32_t>at)
    else:
        for i in range(count):
            if x[i * step] > y[i] or x[i * step] != x[i * step]:
                y[i] = x[i * step]
                index[i] = <int32_t>(at + i * step)


cdef void max_whole(
    Windows p, const real* x, real* y, int32_t* index, intptr_t begin, intptr_t end
) noexcept nogil:
    """The plane is one window: its numbers begin .. end - 1."""
    cdef intptr_t i
    if begin == 0:
        y[0] = x[0]
        index[0] = 0
    for i in range(begin, end):
        if x[i] > y[0] or x[i] != x[i]:
            y[0] = x[i]
            index[0] = <int32_t>i


cdef void max_rows(Windows p, const real* x, real* y, int32_t* index, intptr_t begin, intptr_t end) noexcept nogil:
    """Rows begin .. end - 1 of a plane of results."""
    cdef intptr_t row, d, h, i, j, k, u, v, at, first, last
    cdef bint any_row
    y += begin * p.w.windows
    index += begin * p.w.windows
    for row in range(begin, end):
        d = row // p.h.windows
        h = row % p.h.windows
        if real is float and p.by_two:
            at = (place(&p.d, d, 0) * p.h.size + place(&p.h, h, 0)) * p.w.size
            row_largest_of_four(y, index, x + at, p.w.windows, p.h.dilation * p.w.size, <int32_t>at)
            y += p.w.windows
            index += p.w.windows
            continue
        any_row = False
        for i in range(p.d.kernel):
            u = place(&p.d, d, i)
            if u < 0 or u >= p.d.size:
                continue
            for j in range(p.h.kernel):
                v = place(&p.h, h, j)
                if v < 0 or v >= p.h.size:
                    continue
                at = (u * p.h.size + v) * p.w.size
                if not any_row:
                    any_row = True
                    for k in range(p.w.windows):
                        y[k] = -INFINITY
                        index[k] = <int32_t>(at + p.first[k]) if p.first[k] >= 0 else -1
                for k in range(p.w.kernel):
                    at = (u * p.h.size + v) * p.w.size + p.taps[3 * k]
                    first = p.taps[3 * k + 1]
                    last = p.taps[3 * k + 2]
                    larger(
                        y + first, index + first, x + at + first * p.w.stride, last - first, p.w.stride,
                        at + first * p.w.stride)
        if not any_row:
            for k in range(p.w.windows):
                y[k] = -INFINITY
                index[k] = -1
        y += p.w.windows
        index += p.w.windows


cdef void max_rows_back(
    Windows p, const real* dy, const int32_t* index, real* dx, intptr_t begin, intptr_t end
) noexcept nogil:
    """Every gradient of some rows back to the place its maximum came from."""
    cdef intptr_t i
    if end - begin == rows_of(p):
        memset(dx, 0, p.source * sizeof(real))
    for i in range(begin * p.w.windows, end * p.w.windows):
        if index[i] >= 0:
            dx[index[i]] += dy[i]


# ---- average -------------------------------------------------------------------------------------------------------


cdef inline void add(real* y, const real* x, intptr_t first, intptr_t last, intptr_t step) noexcept nogil:
    cdef intptr_t i
    for i in range(first, last):
        y[i] += x[i * step]


cdef inline void add_back(real* dx, const real* dy, intptr_t first, intptr_t last, intptr_t step) noexcept nogil:
    cdef intptr_t i
    for i in range(first, last):
        dx[i * step] += dy[i]


cdef void avg_whole(Windows p, const real* x, real* y, intptr_t begin, intptr_t end, double* total) noexcept nogil:
    """The plane is one window: its numbers begin .. end - 1. total: of the slices before, if it goes in slices."""
    cdef double sum = row_sum(x + begin, end - begin)
    if begin > 0:
        sum += total[0]
    if end < p.source:
        total[0] = sum
    y[0] = <real>(sum / (<const real*>p.counts)[0])


cdef void avg_rows(Windows p, const real* x, real* y, intptr_t begin, intptr_t end) noexcept nogil:
    """Rows begin .. end - 1 of a plane of results."""
    cdef intptr_t at, d, h, i, j, k, u, v, first, last
    cdef const real* row
    cdef const real* below
    cdef const real* counts = <const real*>p.counts + begin * p.w.windows
    y += begin * p.w.windows
    for at in range(begin, end):
        d = at // p.h.windows
        h = at % p.h.windows
        if p.by_two:
            row = x + (place(&p.d, d, 0) * p.h.size + place(&p.h, h, 0)) * p.w.size
            below = row + p.h.dilation * p.w.size
            for k in range(p.w.windows):
                y[k] = (row[2 * k] + row[2 * k + 1] + below[2 * k] + below[2 * k + 1]) / counts[k]
            y += p.w.windows
            counts += p.w.windows
            continue
        for k in range(p.w.windows):
            y[k] = 0
        for i in range(p.d.kernel):
            u = place(&p.d, d, i)
            if u < 0 or u >= p.d.size:
                continue
            for j in range(p.h.kernel):
                v = place(&p.h, h, j)
                if v < 0 or v >= p.h.size:
                    continue
                for k in range(p.w.kernel):
                    row = x + (u * p.h.size + v) * p.w.size + p.taps[3 * k]
                    first = p.taps[3 * k + 1]
                    last = p.taps[3 * k + 2]
                    if p.w.stride == 1:
                        add(y, row, first, last, 1)
                    elif p.w.stride == 2:
                        add(y, row, first, last, 2)
                    else:
                        add(y, row, first, last, p.w.stride)
        for k in range(p.w.windows):
            y[k] = y[k] / counts[k]
        y += p.w.windows
        counts += p.w.windows


cdef void avg_whole_back(Windows p, const real* dy, real* dx, intptr_t begin, intptr_t end) noexcept nogil:
    """The plane is one window: its numbers begin .. end - 1."""
    cdef real share = dy[0] / (<const real*>p.counts)[0]
    cdef intptr_t i
    for i in range(begin, end):
        dx[i] = share


cdef void avg_rows_back(Windows p, const real* dy, real* dx, real* row, intptr_t begin, intptr_t end) noexcept nogil:
    """Every gradient of some rows, divided, to all that its window met. row: room for a row of them."""
    cdef intptr_t at, d, h, i, j, k, u, v, first, last
    cdef real* target
    cdef real* below
    cdef const real* counts = <const real*>p.counts + begin * p.w.windows
    dy += begin * p.w.windows
    if end - begin == rows_of(p):
        memset(dx, 0, p.source * sizeof(real))
    for at in range(begin, end):
        d = at // p.h.windows
        h = at % p.h.windows
        for k in range(p.w.windows):
            row[k] = dy[k] / counts[k]
        dy += p.w.windows
        counts += p.w.windows
        if p.by_two:
            target = dx + (place(&p.d, d, 0) * p.h.size + place(&p.h, h, 0)) * p.w.size
            below = target + p.h.dilation * p.w.size
            for k in range(p.w.windows):
                target[2 * k] += row[k]
                target[2 * k + 1] += row[k]
                below[2 * k] += row[k]
                below[2 * k + 1] += row[k]
            continue
        for i in range(p.d.kernel):
            u = place(&p.d, d, i)
            if u < 0 or u >= p.d.size:
                continue
            for j in range(p.h.kernel):
                v = place(&p.h, h, j)
                if v < 0 or v >= p.h.size:
                    continue
                for k in range(p.w.kernel):
                    target = dx + (u * p.h.size + v) * p.w.size + p.taps[3 * k]
                    first = p.taps[3 * k + 1]
                    last = p.taps[3 * k + 2]
                    if p.w.stride == 1:
                        add_back(target, row, first, last, 1)
                    elif p.w.stride == 2:
                        add_back(target, row, first, last, 2)
                    else:
                        add_back(target, row, first, last, p.w.stride)


# ---- all planes ----------------------------------------------------------------------------------------------------

cdef enum Task:
    MAX, MAX_BACK, AVG, AVG_BACK


cdef inline void slice_of_plane(
    Windows p, Task task, real* x, real* y, int32_t* index, real* row, double* total, intptr_t begin, intptr_t end
) noexcept nogil:
    """Rows begin .. end - 1 of one plane of results, or so many numbers of the plane that is one window."""
    if task == MAX and p.whole:
        max_whole(p, x, y, index, begin, end)
    elif task == MAX:
        max_rows(p, x, y, index, begin, end)
    elif task == MAX_BACK:
        max_rows_back(p, y, index, x, begin, end)
    elif task == AVG and p.whole:
        avg_whole(p, x, y, begin, end, total)
    elif task == AVG:
        avg_rows(p, x, y, begin, end)
    elif p.whole:
        avg_whole_back(p, y, x, begin, end)
    else:
        avg_rows_back(p, y, x, row, begin, end)


cdef void run_planes(
    Windows p, Task task, real* x, real* y, int32_t* index, real* row, double* total, intptr_t plane, intptr_t planes,
    intptr_t begin, intptr_t end
) noexcept nogil:
    """A slice of the planes plane .. planes - 1; backward, x and y are their gradients."""
    cdef intptr_t i
    for i in range(plane, planes):
        slice_of_plane(
            p, task, x + i * p.source, y + i * p.results, index + i * p.results, row, total, begin, end)


cdef int run(
    Windows p, Task task, real* x, real* y, int32_t* index, real* rows, intptr_t planes, int threads
) except -1:
    """All planes, in waves short enough to look at signals between them."""
    cdef double work = <double>p.results * p.d.kernel * p.h.kernel * p.w.kernel + p.source + 1  # of a plane
    cdef intptr_t wave = <intptr_t>(WAVE / work) + 1
    cdef intptr_t units = p.source if p.whole and task != MAX_BACK else rows_of(p)
    cdef intptr_t slice = max(1, <intptr_t>(units * min(1.0, WAVE / work)))
    cdef intptr_t begin = 0
    cdef Jobs dealt
    cdef intptr_t unit, count, pieces
    cdef intptr_t piece = NONE
    cdef double total = 0  # of a plane that goes in slices, and so alone
    while begin < planes:
        count = min(planes - begin, wave)
        pieces = min(count, 4 * threads) if threads > 1 else 1
        if slice < units and (task == MAX_BACK or task == AVG_BACK):
            for unit in range(0, p.source, WAVE // 4):
                memset(x + begin * p.source + unit, 0, min(<intptr_t>(WAVE // 4), p.source - unit) * sizeof(real))
                PyErr_CheckSignals()
        for unit in range(0, units, slice):
            with nogil:
                deal(&dealt, 0, pieces, threads)
                with parallel(num_threads=threads):
                    piece = take(&dealt)
                    while piece != NONE:
                        run_planes(
                            p, task, x, y, index, rows + threadid() * p.w.windows, &total,
                            begin + piece * count // pieces, begin + (piece + 1) * count // pieces,
                            unit, min(unit + slice, units))
                        piece = take(&dealt)
            PyErr_CheckSignals()
        begin += count
    return 0


cdef int run_task(
    Windows p, Task task, x, y, index, rows, Py_ssize_t itemsize, intptr_t planes, int threads
) except -1:
    cdef bint forward = task == MAX or task == AVG
    cdef void* x_at = address(x, itemsize, not forward)
    cdef void* y_at = address(y, itemsize, forward)
    cdef void* rows_at = NULL if rows is None else address(rows, itemsize, True)
    cdef int32_t* index_at = NULL if index is None else <int32_t*>address(index, sizeof(int32_t), task == MAX)
    if planes * p.source < ALONE:
        threads = 1
    if itemsize == sizeof(float):
        return run[float](p, task, <float*>x_at, <float*>y_at, index_at, <float*>rows_at, planes, threads)
    return run[double](p, task, <double*>x_at, <double*>y_at, index_at, <double*>rows_at, planes, threads)


def max_forward(Windows p, x, y, index, Py_ssize_t itemsize, intptr_t planes, int threads):
    """The maxima y of every plane of x, and where they stand in it (int32)."""
    run_task(p, MAX, x, y, index, None, itemsize, planes, threads)


def max_backward(Windows p, dy, index, dx, Py_ssize_t itemsize, intptr_t planes, int threads):
    """dx: every dy at the place its maximum came from, 0 elsewhere."""
    run_task(p, MAX_BACK, dx, dy, index, None, itemsize, planes, threads)


def avg_forward(Windows p, x, y, Py_ssize_t itemsize, intptr_t planes, int threads):
    """The averages y of every plane of x."""
    run_task(p, AVG, x, y, None, None, itemsize, planes, threads)


def avg_backward(Windows p, dy, dx, rows, Py_ssize_t itemsize, intptr_t planes, int threads):
    """dx: every dy, divided, at all places its window met. rows: room for a row of windows for each thread."""
    run_task(p, AVG_BACK, dx, dy, None, rows, itemsize, planes, threads)
