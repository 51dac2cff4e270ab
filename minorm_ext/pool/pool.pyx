# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False, binding=False
# Pooling computes one row of results at a time: tap after tap, the whole row of windows takes in a row of the input
# (windows.pxd).
#
# Planes are independent, so threads share them, and no result depends on the number of threads. A plane that takes too
# long for Ctrl-C is computed in slices of rows of results, one after the other.

from libc.stdint cimport int32_t, intptr_t
from libc.string cimport memset

from minorm_ext.pool.windows cimport (
    Axis, Pool, avg_rows, avg_rows_back, avg_whole, avg_whole_back, is_whole, max_rows, max_rows_back, max_whole, place,
    rows_of,
)
from minorm_ext.runtime.buffers cimport address
from minorm_ext.runtime.jobs cimport check_signals, parallel_for, threadid
from minorm_ext.runtime.numbers cimport cut, real

cdef enum:
    SIGNAL_INTERVAL = 1 << 26  # windows times taps between two checks of signals
    ALONE = 1 << 15  # fewer numbers than this are not worth a second thread


cdef class Windows:
    """Holds three axes of (size, windows, kernel, stride, low, dilation), and the tables that depend on them alone.

    taps has three numbers for every tap along the last axis: the place where window 0 applies it, the first window
    that finds input there, and the window after the last that does (intp). first has the first place in the input of
    every window along that axis, or -1 (int32). counts has the divisor for the sum of every window of a plane, in the
    data's type.
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
    intptr_t begin, end  # rows of results of a plane that are computed; numbers if it is one window
    double* total  # the sum of the slices before, if a plane is computed in slices


cdef inline void slice_of_plane(const Run* run, real* x, real* y, int32_t* index) noexcept nogil:
    """Do rows begin .. end - 1 of one plane of results, or these numbers of a plane that is one window."""
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
    """Do one plane after the other, some of its units at a time, so that Ctrl-C is answered."""
    cdef intptr_t step = max(1, <intptr_t>(units * (SIGNAL_INTERVAL / work)))
    cdef intptr_t bytes = run.pool.source * run.itemsize
    cdef intptr_t plane, at
    cdef double total = 0
    run.total = &total
    run.jobs = run.planes
    for plane in range(run.planes):
        at = 0 if run.task == MAX_BACK or run.task == AVG_BACK else bytes
        while at < bytes:  # set the gradients to 0; jobs on whole planes do that themselves
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
            # A job is at most a quarter of the work allowed between two checks; a round has four jobs for each thread.
            run.jobs = min(planes, max(<intptr_t>4 * threads, <intptr_t>(4 * planes * (work / SIGNAL_INTERVAL))))
            parallel_for(some_planes, &run, 0, run.jobs, 4 * threads, threads)
    return 0


def max_forward(Windows windows, x, y, index, Py_ssize_t itemsize, intptr_t planes, int threads):
    """Compute the maxima y of every plane of x, and their places in it (int32)."""
    run_task(windows, MAX, x, y, index, None, itemsize, planes, threads)


def max_backward(Windows windows, dy, index, dx, Py_ssize_t itemsize, intptr_t planes, int threads):
    """Compute dx: every dy at the place of its maximum, 0 elsewhere."""
    run_task(windows, MAX_BACK, dx, dy, index, None, itemsize, planes, threads)


def avg_forward(Windows windows, x, y, Py_ssize_t itemsize, intptr_t planes, int threads):
    """Compute the averages y of every plane of x."""
    run_task(windows, AVG, x, y, None, None, itemsize, planes, threads)


def avg_backward(Windows windows, dy, dx, rows, Py_ssize_t itemsize, intptr_t planes, int threads):
    """Compute dx: every dy, divided, at all places of its window. rows: scratch, a row of windows for each thread."""
    run_task(windows, AVG_BACK, dx, dy, None, rows, itemsize, planes, threads)
