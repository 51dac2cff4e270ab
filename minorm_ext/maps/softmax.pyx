# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False, binding=False
# Softmax, its logarithm and the cross entropy, each over the rows of a dense (rows, n) array.
#
# A row is read while it is in cache: its largest element, then the sum of exp(x - largest), then the result. Rows are
# independent, so threads share them out as they like; inside a row the order of additions is fixed (reductions.pxd).

from cpython.exc cimport PyErr_CheckSignals
from cython.parallel cimport prange
from libc.math cimport log
from libc.stdint cimport int64_t

from minorm_ext.runtime.buffers cimport address
from minorm_ext.simd.exp cimport exp
from minorm_ext.maps.reductions cimport real, row_dot, row_max, row_sum

cdef enum:
    PIECE = 512  # elements of a row whose exponentials are held at once
    WORK = 1 << 16  # elements from which a second thread pays
    BLOCK = 4096  # elements a thread takes at a time, in whole rows
    CHUNK = 1 << 24  # elements between two looks for Ctrl-C
    ROW = 16  # elements that take as long as what a row costs apart from its elements


cdef inline double exp_sum(const real* x, Py_ssize_t n, real top, double* shifted_sum) noexcept nogil:
    """sum exp(x - top), and through the pointer, unless NULL, sum (x - top)."""
    cdef real[PIECE] piece
    cdef double total = 0
    cdef Py_ssize_t i, count
    cdef Py_ssize_t start = 0
    while start < n:
        count = min(<Py_ssize_t>PIECE, n - start)
        for i in range(count):
            piece[i] = x[start + i] - top
        if shifted_sum:
            shifted_sum[0] += row_sum(piece, count)
        for i in range(count):
            piece[i] = exp(piece[i])
        total += row_sum(piece, count)
        start += count
    return total


cdef void softmax(const real* x, const real* unused, real* y, Py_ssize_t n) noexcept nogil:
    cdef real top = row_max(x, n)
    cdef real share
    cdef Py_ssize_t i
    for i in range(n):
        y[i] = exp(x[i] - top)
    share = <real>(1 / row_sum(y, n))
    for i in range(n):
        y[i] = y[i] * share


cdef void softmax_grad(const real* dy, const real* y, real* dx, Py_ssize_t n) noexcept nogil:
    cdef real mean = <real>row_dot(dy, y, n)  # of dy, weighted by the probabilities y
    cdef Py_ssize_t i
    for i in range(n):
        dx[i] = y[i] * (dy[i] - mean)


cdef void log_softmax(const real* x, const real* unused, real* y, Py_ssize_t n) noexcept nogil:
    cdef real top = row_max(x, n)
    cdef real size = <real>log(exp_sum(x, n, top, NULL))
    cdef Py_ssize_t i
    for i in range(n):
        y[i] = (x[i] - top) - size


cdef void log_softmax_grad(const real* dy, const real* y, real* dx, Py_ssize_t n) noexcept nogil:
    cdef real total = <real>row_sum(dy, n)
    cdef Py_ssize_t i
    for i in range(n):
        dx[i] = dy[i] - exp(y[i]) * total


cdef struct Target:  # what the cross entropy of every row shares
    const int64_t* classes
    int64_t ignored
    double smoothing


cdef void cross_entropy(
    const real* x, real* loss, double* lse, Py_ssize_t n, int64_t chosen, Target target
) noexcept nogil:
    cdef real top = row_max(x, n)
    cdef double shifted_sum = 0
    cdef double size = log(exp_sum(x, n, top, &shifted_sum if target.smoothing else NULL))
    lse[0] = top + size
    if chosen == target.ignored:
        loss[0] = 0
    else:
        loss[0] = <real>(
            (1 - target.smoothing) * (size - (x[chosen] - top))
            + (target.smoothing * (size - shifted_sum / n) if target.smoothing else 0)
        )


cdef void cross_entropy_grad(
    real dy, const real* x, double lse, real* dx, Py_ssize_t n, int64_t chosen, Target target
) noexcept nogil:
    cdef real high = <real>lse  # in two parts, so that x - lse keeps lse's full precision
    cdef real low = <real>(lse - high)
    cdef real share = <real>(target.smoothing / n)
    cdef Py_ssize_t i
    if chosen == target.ignored:
        for i in range(n):
            dx[i] = 0
    else:
        for i in range(n):
            dx[i] = dy * (exp((x[i] - high) - low) - share)
        dx[chosen] = dx[chosen] - dy * <real>(1 - target.smoothing)


# The drivers: a block of rows a turn, over threads when there is enough work.

cdef inline Py_ssize_t rows_of(Py_ssize_t elements, Py_ssize_t n) noexcept nogil:
    return max(<Py_ssize_t>1, elements // n)


ctypedef void (*FloatRow)(const float*, const float*, float*, Py_ssize_t) noexcept nogil
ctypedef void (*DoubleRow)(const double*, const double*, double*, Py_ssize_t) noexcept nogil

cdef FloatRow[4] float_rows = [softmax[float], softmax_grad[float], log_softmax[float], log_softmax_grad[float]]
cdef DoubleRow[4] double_rows = [softmax[double], softmax_grad[double], log_softmax[double], log_softmax_grad[double]]

numbers = {"softmax": 0, "softmax_grad": 1, "log_softmax": 2, "log_softmax_grad": 3}


cdef inline void some_rows(
    int number, int itemsize, const char* a, const char* b, char* out, Py_ssize_t first, Py_ssize_t end, Py_ssize_t n
) noexcept nogil:
    cdef Py_ssize_t row, offset
    for row in range(first, end):
        offset = row * n * itemsize
        if itemsize == 4:
            float_rows[number](<const float*>(a + offset), <const float*>(b + offset), <float*>(out + offset), n)
        else:
            double_rows[number](<const double*>(a + offset), <const double*>(b + offset), <double*>(out + offset), n)


def run(int number, object a, object b, object out, Py_ssize_t rows, Py_ssize_t n, int itemsize, int threads):
    """Operation `number` on every row of dense (rows, n) arrays of one float type; b may be None. n >= 1."""
    cdef const char* first = <const char*>address(a, itemsize)
    cdef const char* second = first if b is None else <const char*>address(b, itemsize)
    cdef char* target = <char*>address(out, itemsize, True)
    cdef Py_ssize_t step = rows_of(BLOCK, n)
    cdef Py_ssize_t start = 0
    cdef Py_ssize_t end, block
    if rows * n < WORK:
        threads = 1
    while start < rows:
        end = min(rows, start + max(step, rows_of(CHUNK, n + ROW)))
        with nogil:
            for block in prange((end - start + step - 1) // step, num_threads=threads, schedule="static"):
                some_rows(
                    number, itemsize, first, second, target, start + block * step,
                    min(end, start + (block + 1) * step), n,
                )
        start = end
        if start < rows:
            PyErr_CheckSignals()


cdef Py_ssize_t wrong_target(Target target, Py_ssize_t rows, Py_ssize_t n) except -2:
    """The first row whose target is neither a class nor the ignored index, or -1."""
    cdef Py_ssize_t row
    cdef Py_ssize_t start = 0
    while start < rows:
        with nogil:
            for row in range(start, min(rows, start + CHUNK)):
                if (target.classes[row] < 0 or target.classes[row] >= n) and target.classes[row] != target.ignored:
                    return row
        start += CHUNK
        if start < rows:
            PyErr_CheckSignals()
    return -1


cdef inline void some_losses(
    int itemsize, const char* x, char* loss, double* lse, Py_ssize_t first, Py_ssize_t end, Py_ssize_t n, Target target
) noexcept nogil:
    cdef Py_ssize_t row
    for row in range(first, end):
        if itemsize == 4:
            cross_entropy(<const float*>x + row * n, <float*>loss + row, lse + row, n, target.classes[row], target)
        else:
            cross_entropy(<const double*>x + row * n, <double*>loss + row, lse + row, n, target.classes[row], target)


cdef inline void some_loss_grads(
    int itemsize, const char* dy, const char* x, const double* lse, char* dx, Py_ssize_t first, Py_ssize_t end,
    Py_ssize_t n, Target target,
) noexcept nogil:
    cdef Py_ssize_t row
    for row in range(first, end):
        if itemsize == 4:
            cross_entropy_grad(
                (<const float*>dy)[row], <const float*>x + row * n, lse[row], <float*>dx + row * n, n,
                target.classes[row], target,
            )
        else:
            cross_entropy_grad(
                (<const double*>dy)[row], <const double*>x + row * n, lse[row], <double*>dx + row * n, n,
                target.classes[row], target,
            )


def losses(
    object x, object classes, object loss, object lse, Py_ssize_t rows, Py_ssize_t n, int64_t ignored, double smoothing,
    int itemsize, int threads,
):
    """Cross entropy of every row of x (rows, n): fills loss (rows,) and, in float64, lse = log sum exp (rows,).

    classes is int64 (rows,). Returns the first row with a wrong class, before anything is written, else -1. n >= 1.
    """
    cdef Target target
    target.classes, target.ignored, target.smoothing = <const int64_t*>address(classes, 8), ignored, smoothing
    cdef const char* source = <const char*>address(x, itemsize)
    cdef char* loss_out = <char*>address(loss, itemsize, True)
    cdef double* lse_out = <double*>address(lse, 8, True)
    cdef Py_ssize_t wrong = wrong_target(target, rows, n)
    cdef Py_ssize_t step = rows_of(BLOCK, n)
    cdef Py_ssize_t start = 0
    cdef Py_ssize_t end, block
    if wrong >= 0:
        return wrong
    if rows * n < WORK:
        threads = 1
    while start < rows:
        end = min(rows, start + max(step, rows_of(CHUNK, n + ROW)))
        with nogil:
            for block in prange((end - start + step - 1) // step, num_threads=threads, schedule="static"):
                some_losses(
                    itemsize, source, loss_out, lse_out, start + block * step,
                    min(end, start + (block + 1) * step), n, target,
                )
        start = end
        if start < rows:
            PyErr_CheckSignals()
    return -1


def loss_grads(
    object dy, object x, object classes, object lse, object dx, Py_ssize_t rows, Py_ssize_t n, int64_t ignored,
    double smoothing, int itemsize, int threads,
):
    """The gradient of `losses` for x, given dy (rows,); the classes were checked then."""
    cdef Target target
    target.classes, target.ignored, target.smoothing = <const int64_t*>address(classes, 8), ignored, smoothing
    cdef const char* dy_in = <const char*>address(dy, itemsize)
    cdef const char* source = <const char*>address(x, itemsize)
    cdef const double* lse_in = <const double*>address(lse, 8)
    cdef char* out = <char*>address(dx, itemsize, True)
    cdef Py_ssize_t step = rows_of(BLOCK, n)
    cdef Py_ssize_t start = 0
    cdef Py_ssize_t end, block
    if rows * n < WORK:
        threads = 1
    while start < rows:
        end = min(rows, start + max(step, rows_of(CHUNK, n + ROW)))
        with nogil:
            for block in prange((end - start + step - 1) // step, num_threads=threads, schedule="static"):
                some_loss_grads(
                    itemsize, dy_in, source, lse_in, out, start + block * step,
                    min(end, start + (block + 1) * step), n, target,
                )
        start = end
        if start < rows:
            PyErr_CheckSignals()
