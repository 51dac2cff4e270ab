"""Lab 7: returns the source text of kernels on which other kernels build."""

from __future__ import annotations

LANES = """
cdef double lane_sum(const float* x, Py_ssize_t n) noexcept nogil:
    cdef float[32] lane
    cdef double total = 0
    cdef Py_ssize_t whole = n - n % 32
    cdef Py_ssize_t i, j
    for j in range(32):
        lane[j] = 0
    for i in range(0, whole, 32):
        for j in range(32):
            lane[j] += x[i + j]
    for j in range(32):
        total += lane[j]
    for i in range(whole, n):
        total += x[i]
    return total

def lanes(size_t address, Py_ssize_t n):
    return lane_sum(<const float*>address, n)
"""

# A mean and a sum of squares of each chunk, merged in order by Chan's formula: the bits do not depend on the threads.
MOMENTS = """
cdef void moments_of(const float* x, Py_ssize_t n, double* out) noexcept nogil:
    cdef double mean = 0, squares = 0
    cdef Py_ssize_t i
    for i in range(n):
        mean += x[i]
    mean /= n
    for i in range(n):
        squares += (x[i] - mean) * (x[i] - mean)
    out[0] = mean
    out[1] = squares

def parallel_moments(size_t address, Py_ssize_t n, size_t parts, int threads):
    cdef const float* x = <const float*>address
    cdef double* out = <double*>parts
    cdef Py_ssize_t chunks = (n + CHUNK - 1) // CHUNK
    cdef Py_ssize_t i, more, seen = 0
    cdef double mean = 0, squares = 0, away
    for i in prange(chunks, nogil=True, schedule="static", num_threads=threads):
        moments_of(x + i * CHUNK, min(<Py_ssize_t>CHUNK, n - i * CHUNK), out + 2 * i)
    for i in range(chunks):
        more = min(<Py_ssize_t>CHUNK, n - i * CHUNK)
        away = out[2 * i] - mean
        squares += out[2 * i + 1] + away * away * seen * more / (seen + more)
        seen += more
        mean += away * more / seen
    return mean, squares / n
"""


def lanes_pyx() -> str:
    """Return the Cython text of a kernel that adds numbers in 32 lanes."""
    return LANES


def moments_pyx() -> str:
    """Return the Cython text of a kernel that computes mean and variance in chunks."""
    return MOMENTS
