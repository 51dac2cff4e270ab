# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False, binding=False
# Pooling, one row of results at a time: tap after tap, the whole row of windows meets a row of the input.
#
# A row of results stays in the first cache while the taps pass by, and the loop along it has no branches: which windows
# meet the input with a tap is one range, known beforehand. Planes are independent, so they are shared out to threads,
# and nothing depends on how many there are. Planes too large to answer Ctrl-C between go in slices of rows of results,
# one after the other.

from libc.math cimport INFINITY
from libc.stdint cimport int32_t, intptr_t
from libc.string cimport memset

from minorm_ext.maps.reductions cimport row_sum
from minorm_ext.runtime.buffers cimport address
from minorm_ext.runtime.jobs cimport check_signals, parallel_for, threadid
from minorm_ext.runtime.numbers cimport cut, real

cdef extern from "pool/rows.h" nogil:
    void row_larger(float* y, int32_t* index, const float* x, intptr_t count, intptr_t step, int32_t at)
    void row_largest_of_four(float* y, int32_t* index, const float* x, intptr_t count, intptr_t below, int32_t at)

cdef enum:
    SIGNAL_INTERVAL = 1 << 26  # windows times taps between two checks of signals
    ALONE = 1 << 15  # fewer numbers than this are not worth a second thread


cdef struct Axis:
    intptr_t size, windows, kernel, stride, low, dilation


cdef struct Pool:
    Axis d, h, w
    const intptr_t* taps
    const int32_t* first
    const void* counts
    intptr_t source, results  # numbers of a plane
    bint whole   # the one window is the whole plane
    bint by_two  # windows of 2 x 2 side by side


cdef class Windows:
    """Three axes of (size, windows, kernel, stride, low, dilation), and what depends on them alone.

    taps: for every tap along the last axis the place that window 0 meets with it, the first window that meets the input
    with it, and the one after the last (intp). first: for every window along that axis the first place that it meets,
    or -1 (int32). counts: what the sum of every window of a plane is divided by, of the type of the data.
    """

    cdef Pool pool
    cdef tuple kept

    def __init__(self, tuple axes, taps, first, counts):
        cdef Pool* p = &self.pool
        self.kept = (taps, first, counts)  # the arrays live as long as the pointers
        p.taps = <const intptr_t*>address(taps, sizeof(intptr_t))
        p.d, p.h, p.w = axis_of(axes[0]), axis_of(axes[1]), axis_of(axes[2])
        p.first = <const int32_t*>address(first, sizeof(int32_t))
        p.counts = address(counts, counts.itemsize)
        p.source = p.d.size * p.h.size * p.w.size
        p.results = p.d.windows * p.h.windows * p.w.windows
        p.whole = p.results == 1 and is_whole(&p.d) and is_whole(&p.h) and is_whole(&p.w)
        p.by_two = (
            p.d.kernel == 1 and p.h.kernel == 2 and p.w.kernel == 2 and p.w.stride == 2
            and p.d.low == 0 and p.h.low == 0 and place(&p.h, p.h.windows - 1, 1) < p.h.size
            and p.w.low == 0 and p.w.dilation == 1 and 2 * p.w.windows <= p.w.size
        )


cdef Axis axis_of(tuple numbers):
    cdef Axis axis
    axis.size, axis.windows, axis.kernel, axis.stride, axis.low, axis.dilation = numbers
    return axis


cdef bint is_whole(const Axis* axis) noexcept nogil:
    """Is its one window the whole axis?"""
    return axis.kernel == axis.size and axis.low == 0 and axis.dilation == 1


cdef inline intptr_t rows_of(const Pool* p) noexcept nogil:
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
    const Pool* p, const real* x, real* y, int32_t* index, intptr_t begin, intptr_t end
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


cdef void max_rows(const Pool* p, const real* x, real* y, int32_t* index, intptr_t begin, intptr_t end) noexcept nogil:
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
    const Pool* p, const real* dy, const int32_t* index, real* dx, intptr_t begin, intptr_t end
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


cdef void avg_whole(const Pool* p, const real* x, real* y, intptr_t begin, intptr_t end, double* total) noexcept nogil:
    """The plane is one window: its numbers begin .. end - 1. total: of the slices before, if it goes in slices."""
    cdef double sum = row_sum(x + begin, end - begin)
    if begin > 0:
        sum += total[0]
    if end < p.source:
        total[0] = sum
    y[0] = <real>(sum / (<const real*>p.counts)[0])


cdef void avg_rows(const Pool* p, const real* x, real* y, intptr_t begin, intptr_t end) noexcept nogil:
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


cdef void avg_whole_back(const Pool* p, const real* dy, real* dx, intptr_t begin, intptr_t end) noexcept nogil:
    """The plane is one window: its numbers begin .. end - 1."""
    cdef real share = dy[0] / (<const real*>p.counts)[0]
    cdef intptr_t i
    for i in range(begin, end):
        dx[i] = share


cdef void avg_rows_back(
    const Pool* p, const real* dy, real* dx, real* row, intptr_t begin, intptr_t end
) noexcept nogil:
    """Every gradient of some rows, divided, to all that its window met. row: scratch for a row of them."""
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


cdef struct Run:  # what all jobs of a call share; backward, x and y are their gradients
    const Pool* pool
    Task task
    Py_ssize_t itemsize
    char* x
    char* y
    int32_t* index
    char* rows  # a row of windows for each thread
    intptr_t planes, jobs
    intptr_t begin, end  # rows of results of a plane that are computed, or numbers where it is one window
    double* total  # of the slices before, where a plane goes in slices


cdef inline void slice_of_plane(const Run* run, real* x, real* y, int32_t* index) noexcept nogil:
    """Rows begin .. end - 1 of one plane of results, or so many numbers of the plane that is one window."""
    cdef const Pool* p = run.pool
    if run.task == MAX and p.whole:
        max_whole(p, x, y, index, run.begin, run.end)
    elif run.task == MAX:
        max_rows(p, x, y, index, run.begin, run.end)
    elif run.task == MAX_BACK:
        max_rows_back(p, y, index, x, run.begin, run.end)
    elif run.task == AVG and p.whole:
        avg_whole(p, x, y, run.begin, run.end, run.total)
    elif run.task == AVG:
        avg_rows(p, x, y, run.begin, run.end)
    elif p.whole:
        avg_whole_back(p, y, x, run.begin, run.end)
    else:
        avg_rows_back(p, y, x, <real*>run.rows + threadid() * p.w.windows, run.begin, run.end)


cdef inline void planes_of_job(const Run* run, real* x, real* y, intptr_t job) noexcept nogil:
    cdef intptr_t i
    for i in range(cut(run.planes, run.jobs, job), cut(run.planes, run.jobs, job + 1)):
        slice_of_plane(run, x + i * run.pool.source, y + i * run.pool.results, run.index + i * run.pool.results)


cdef void some_planes(const void* task, Py_ssize_t job) noexcept nogil:
    cdef const Run* run = <const Run*>task
    if run.itemsize == sizeof(float):
        planes_of_job(run, <float*>run.x, <float*>run.y, job)
    else:
        planes_of_job(run, <double*>run.x, <double*>run.y, job)


cdef int in_slices(Run* run, intptr_t units, double work) except -1 nogil:
    """Every plane for itself, and only so many of its units at a time, so that Ctrl-C is answered."""
    cdef intptr_t step = max(1, <intptr_t>(units * (SIGNAL_INTERVAL / work)))
    cdef intptr_t bytes = run.pool.source * run.itemsize
    cdef intptr_t plane, at
    cdef double total = 0
    run.total = &total
    run.jobs = run.planes
    for plane in range(run.planes):
        at = 0 if run.task == MAX_BACK or run.task == AVG_BACK else bytes
        while at < bytes:  # whole planes do it themselves
            memset(run.x + plane * bytes + at, 0, min(<intptr_t>SIGNAL_INTERVAL, bytes - at))
            check_signals()
            at += SIGNAL_INTERVAL
        run.begin = 0
        while run.begin < units:
            run.end = min(units, run.begin + step)
            some_planes(run, plane)
            check_signals()
            run.begin = run.end
    return 0


cdef int run_task(
    Windows windows, Task task, x, y, index, rows, Py_ssize_t itemsize, intptr_t planes, int threads
) except -1:
    cdef const Pool* p = &windows.pool
    cdef bint forward = task == MAX or task == AVG
    cdef double work = <double>p.results * p.d.kernel * p.h.kernel * p.w.kernel + p.source + 1  # of a plane
    cdef intptr_t units = p.source if p.whole and task != MAX_BACK else rows_of(p)
    cdef Run run
    run.pool, run.task, run.itemsize, run.planes = p, task, itemsize, planes
    run.x = <char*>address(x, itemsize, not forward)
    run.y = <char*>address(y, itemsize, forward)
    run.rows = NULL if rows is None else <char*>address(rows, itemsize, True)
    run.index = NULL if index is None else <int32_t*>address(index, sizeof(int32_t), task == MAX)
    if planes * p.source < ALONE:
        threads = 1
    run.begin, run.end, run.total = 0, units, NULL
    with nogil:
        if work > SIGNAL_INTERVAL:
            in_slices(&run, units, work)
        else:
            # A job is at most a quarter of what may be done between two checks, and a round four of them a thread.
            run.jobs = min(planes, max(<intptr_t>4 * threads, <intptr_t>(4 * planes * (work / SIGNAL_INTERVAL))))
            parallel_for(some_planes, &run, 0, run.jobs, 4 * threads, threads)
    return 0


def max_forward(Windows windows, x, y, index, Py_ssize_t itemsize, intptr_t planes, int threads):
    """The maxima y of every plane of x, and where they stand in it (int32)."""
    run_task(windows, MAX, x, y, index, None, itemsize, planes, threads)


def max_backward(Windows windows, dy, index, dx, Py_ssize_t itemsize, intptr_t planes, int threads):
    """dx: every dy at the place its maximum came from, 0 elsewhere."""
    run_task(windows, MAX_BACK, dx, dy, index, None, itemsize, planes, threads)


def avg_forward(Windows windows, x, y, Py_ssize_t itemsize, intptr_t planes, int threads):
    """The averages y of every plane of x."""
    run_task(windows, AVG, x, y, None, None, itemsize, planes, threads)


def avg_backward(Windows windows, dy, dx, rows, Py_ssize_t itemsize, intptr_t planes, int threads):
    """dx: every dy, divided, at all places its window met. rows: scratch, a row of windows for each thread."""
    run_task(windows, AVG_BACK, dx, dy, None, rows, itemsize, planes, threads)
