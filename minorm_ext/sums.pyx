# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False, binding=False
# Sums over the last or the first axis of a dense array, in an order that depends on the shape alone.
#
# Two inner loops cover the gradients of broadcast operands: a row is added in lanes (the sum over N, H, W of a channel:
# one row each image and channel), or rows are added to a row of accumulators (the bias of a linear layer). Work is cut
# into pieces by the shape; every piece leaves a partial sum in double, and the caller adds those in order.

from cpython.exc cimport PyErr_CheckSignals
from cython.parallel cimport prange

from minorm_ext.buffers cimport address
from minorm_ext.lanes cimport real, row_sum

cdef enum:
    WIDTH = 256  # columns whose accumulators are held at once
    RUN = 32  # rows that a float accumulator collects before it goes into a double
    WORK = 1 << 18  # elements from which a second thread pays
    CHUNK = 1 << 26  # elements between two looks for Ctrl-C


cdef inline void columns_piece(
    const real* x, double* out, Py_ssize_t rows, Py_ssize_t width, Py_ssize_t stride
) noexcept nogil:
    """out[j] = sum of x[i, j] over the rows, j < width <= WIDTH."""
    cdef real[WIDTH] sums
    cdef Py_ssize_t row, j, end
    cdef Py_ssize_t start = 0
    for j in range(width):
        out[j] = 0
    while start < rows:
        end = min(start + RUN, rows)
        for j in range(width):
            sums[j] = 0
        for row in range(start, end):
            for j in range(width):
                sums[j] += x[row * stride + j]
        for j in range(width):
            out[j] += sums[j]
        start = end


cdef inline void one_row_piece(
    int itemsize, const char* x, double* out, Py_ssize_t piece, Py_ssize_t pieces, Py_ssize_t length, Py_ssize_t cut
) noexcept nogil:
    cdef Py_ssize_t row = piece // pieces
    cdef Py_ssize_t start = (piece % pieces) * cut
    cdef Py_ssize_t count = min(cut, length - start)
    if itemsize == 4:
        out[piece] = row_sum(<const float*>x + row * length + start, count)
    else:
        out[piece] = row_sum(<const double*>x + row * length + start, count)


cdef inline void one_column_piece(
    int itemsize, const char* x, double* out, Py_ssize_t piece, Py_ssize_t blocks, Py_ssize_t rows, Py_ssize_t columns,
    Py_ssize_t cut,
) noexcept nogil:
    cdef Py_ssize_t first = (piece // blocks) * cut
    cdef Py_ssize_t column = (piece % blocks) * WIDTH
    cdef Py_ssize_t count = min(cut, rows - first)
    cdef Py_ssize_t width = min(<Py_ssize_t>WIDTH, columns - column)
    cdef double* target = out + (piece // blocks) * columns + column
    if itemsize == 4:
        columns_piece(<const float*>x + first * columns + column, target, count, width, columns)
    else:
        columns_piece(<const double*>x + first * columns + column, target, count, width, columns)


def row_sums(object x, object out, Py_ssize_t rows, Py_ssize_t length, Py_ssize_t cut, int itemsize, int threads):
    """Sums of the rows of x (rows, length), cut into pieces of `cut` elements: out is float64 (rows, pieces a row)."""
    cdef const char* source = <const char*>address(x, itemsize)
    cdef double* target = <double*>address(out, 8, True)
    cdef Py_ssize_t pieces = (length + cut - 1) // cut
    cdef Py_ssize_t step = max(<Py_ssize_t>1, CHUNK // min(cut, length))
    cdef Py_ssize_t start = 0
    cdef Py_ssize_t end, piece
    if rows * length < WORK:
        threads = 1
    while start < rows * pieces:
        end = min(rows * pieces, start + step)
        with nogil:
            for piece in prange(start, end, num_threads=threads, schedule="static"):
                one_row_piece(itemsize, source, target, piece, pieces, length, cut)
        start = end
        if start < rows * pieces:
            PyErr_CheckSignals()


def column_sums(object x, object out, Py_ssize_t rows, Py_ssize_t columns, Py_ssize_t cut, int itemsize, int threads):
    """Sums over every `cut` rows of x (rows, columns): out is float64 (row pieces, columns)."""
    cdef const char* source = <const char*>address(x, itemsize)
    cdef double* target = <double*>address(out, 8, True)
    cdef Py_ssize_t blocks = (columns + WIDTH - 1) // WIDTH
    cdef Py_ssize_t pieces = (rows + cut - 1) // cut * blocks
    cdef Py_ssize_t step = max(<Py_ssize_t>1, CHUNK // (cut * WIDTH))
    cdef Py_ssize_t start = 0
    cdef Py_ssize_t end, piece
    if rows * columns < WORK:
        threads = 1
    while start < pieces:
        end = min(pieces, start + step)
        with nogil:
            for piece in prange(start, end, num_threads=threads, schedule="static"):
                one_column_piece(itemsize, source, target, piece, blocks, rows, columns, cut)
        start = end
        if start < pieces:
            PyErr_CheckSignals()
