# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# One plane: the rows that each window covers, and the maximum and the average over them, forward and backward.
#
# A row of results stays in the first cache while the taps pass by, and the loop along it has no branches: the windows
# that find input at a tap form one range, known beforehand.

from libc.math cimport INFINITY
from libc.stdint cimport int32_t, intptr_t
from libc.string cimport memset

from minorm_ext.elementwise.reductions cimport row_sum
from minorm_ext.runtime.numbers cimport real

cdef extern from "pool/rows.h" nogil:
    void row_larger(float* y, int32_t* index, const float* x, intptr_t count, intptr_t step, int32_t at)
    void row_largest_of_four(float* y, int32_t* index, const float* x, intptr_t count, intptr_t below, int32_t at)


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


cdef inline bint is_whole(const Axis* axis) noexcept nogil:
    """Return whether the axis has one window that covers it whole."""
    return axis.kernel == axis.size and axis.low == 0 and axis.dilation == 1


cdef inline intptr_t rows_of(const Pool* p) noexcept nogil:
    """Return how many rows of results a plane has."""
    return p.d.windows * p.h.windows


cdef inline intptr_t place(const Axis* axis, intptr_t window, intptr_t tap) noexcept nogil:
    """Return the place of a window's tap; it is negative, or size and more, in the padding."""
    return window * axis.stride + tap * axis.dilation - axis.low


# ---- maximum -------------------------------------------------------------------------------------------------------


cdef inline void larger(
    real* y, int32_t* index, const real* x, intptr_t count, intptr_t step, intptr_t at
) noexcept nogil:
    """Let each window i of `count` take x[i * step], at place `at` + i * step, if it is larger, or NaN."""
    cdef intptr_t i
    if real is float:
        row_larger(y, index, x, count, step, <int32_t>at)
    else:
        for i in range(count):
            if x[i * step] > y[i] or x[i * step] != x[i * step]:
                y[i] = x[i * step]
                index[i] = <int32_t>(at + i * step)


cdef inline void max_whole(
    const Pool* p, const real* x, real* y, int32_t* index, intptr_t begin, intptr_t end
) noexcept nogil:
    """Find the maximum of numbers begin .. end - 1 of a plane that is one window."""
    cdef intptr_t i
    if begin == 0:
        y[0] = x[0]
        index[0] = 0
    for i in range(begin, end):
        if x[i] > y[0] or x[i] != x[i]:
            y[0] = x[i]
            index[0] = <int32_t>i


cdef inline void max_rows(
    const Pool* p, const real* x, real* y, int32_t* index, intptr_t begin, intptr_t end
) noexcept nogil:
    """Find the maxima of rows begin .. end - 1 of a plane of results."""
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


cdef inline void max_rows_back(
    const Pool* p, const real* dy, const int32_t* index, real* dx, intptr_t begin, intptr_t end
) noexcept nogil:
    """Add every gradient of some rows at the place of its maximum."""
    cdef intptr_t i
    if end - begin == rows_of(p):
        memset(dx, 0, p.source * sizeof(real))
    for i in range(begin * p.w.windows, end * p.w.windows):
        if 0 <= index[i] < p.source:  # -1: the window met the padding alone
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


cdef inline void avg_whole(
    const Pool* p, const real* x, real* y, intptr_t begin, intptr_t end, double* total
) noexcept nogil:
    """Average numbers begin .. end - 1 of a plane that is one window. total: NULL, or the sum of the slices before."""
    cdef double sum = row_sum(x + begin, end - begin)
    if begin > 0:
        sum += total[0]
    if end < p.source:
        total[0] = sum
    y[0] = <real>(sum / (<const real*>p.counts)[0])


cdef inline void avg_rows(const Pool* p, const real* x, real* y, intptr_t begin, intptr_t end) noexcept nogil:
    """Compute the averages of rows begin .. end - 1 of a plane of results."""
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


cdef inline void avg_whole_back(const Pool* p, const real* dy, real* dx, intptr_t begin, intptr_t end) noexcept nogil:
    """Set dx for numbers begin .. end - 1 of a plane that is one window."""
    cdef real share = dy[0] / (<const real*>p.counts)[0]
    cdef intptr_t i
    for i in range(begin, end):
        dx[i] = share


cdef inline void avg_rows_back(
    const Pool* p, const real* dy, real* dx, real* row, intptr_t begin, intptr_t end
) noexcept nogil:
    """Add every gradient of some rows, divided, at all places of its window. row: scratch for a row of gradients."""
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
