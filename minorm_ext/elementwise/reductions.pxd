# Reductions of one row, which vectorise and still add in a fixed order.
#
# A row is added in 64 accumulators, and number j takes elements j, j + 64, ... Every 4096 elements they are added to
# eight doubles, and the rest of the row goes there directly. This code fixes the order; neither the compiler nor the
# width of a register chooses it. So the order is the same on every processor and for any number of threads. No float
# ever collects more than 64 terms: a sum of a million floats keeps an error near 1e-7.

from minorm_ext.runtime.numbers cimport real


cdef inline double total_of(const double* wide) noexcept nogil:
    return ((wide[0] + wide[4]) + (wide[2] + wide[6])) + ((wide[1] + wide[5]) + (wide[3] + wide[7]))


cdef inline double row_sum(const real* x, Py_ssize_t n) noexcept nogil:
    cdef real[64] sums
    cdef double[8] wide
    cdef Py_ssize_t i = 0
    cdef Py_ssize_t end
    cdef int j, k
    for j in range(8):
        wide[j] = 0
    while i + 64 <= n:
        end = min(i + 4096, n - 63)
        for j in range(64):
            sums[j] = 0
        while i < end:
            for j in range(64):
                sums[j] += x[i + j]
            i += 64
        for k in range(8):
            for j in range(8):
                wide[j] += sums[8 * k + j]
    while i + 8 <= n:
        for j in range(8):
            wide[j] += x[i + j]
        i += 8
    for j in range(n - i):
        wide[j] += x[i + j]
    return total_of(wide)


cdef inline double row_dot(const real* x, const real* y, Py_ssize_t n) noexcept nogil:
    cdef real[64] sums
    cdef double[8] wide
    cdef Py_ssize_t i = 0
    cdef Py_ssize_t end
    cdef int j, k
    for j in range(8):
        wide[j] = 0
    while i + 64 <= n:
        end = min(i + 4096, n - 63)
        for j in range(64):
            sums[j] = 0
        while i < end:
            for j in range(64):
                sums[j] += x[i + j] * y[i + j]
            i += 64
        for k in range(8):
            for j in range(8):
                wide[j] += sums[8 * k + j]
    while i + 8 <= n:
        for j in range(8):
            wide[j] += <double>x[i + j] * y[i + j]
        i += 8
    for j in range(n - i):
        wide[j] += <double>x[i + j] * y[i + j]
    return total_of(wide)


cdef inline void fold_tops(real* tops, int half) noexcept nogil:
    """Halve the number of accumulators: keep the larger of each two."""
    cdef int j
    for j in range(half):
        tops[j] = tops[j + half] if tops[j + half] > tops[j] else tops[j]


cdef inline real row_max(const real* x, Py_ssize_t n) noexcept nogil:
    """Return the largest element, n >= 1. With a NaN in x return any element; the caller's sum then becomes NaN."""
    cdef real[64] tops
    cdef real top = x[0]
    cdef Py_ssize_t i = 0
    cdef int j
    if n >= 64:
        for j in range(64):
            tops[j] = top
        while i + 64 <= n:
            for j in range(64):
                tops[j] = x[i + j] if x[i + j] > tops[j] else tops[j]
            i += 64
        fold_tops(tops, 32)
        fold_tops(tops, 16)
        fold_tops(tops, 8)
        for j in range(8):
            top = tops[j] if tops[j] > top else top
    while i < n:
        top = x[i] if x[i] > top else top
        i += 1
    return top
