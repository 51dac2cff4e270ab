# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False, binding=False
# Softmax, its logarithm and the cross entropy, each over the rows of a dense (rows, n) array.
#
# A row is read several times while it is in cache: for its largest element, for the sum of exp(x - largest), and for
# the result. Rows are independent, so threads may share them in any way; inside a row the order of additions is fixed
# (reductions.pxd).

from libc.math cimport NAN
from libc.stdint cimport int64_t

from minorm_ext.elementwise.reductions cimport row_dot, row_max, row_sum
from minorm_ext.runtime.buffers cimport address
from minorm_ext.runtime.jobs cimport check_signals, parallel_for
from minorm_ext.runtime.numbers cimport ceil_div, real
from minorm_ext.simd.exp cimport exp, log

cdef enum:
    PIECE = 512  # elements of a row whose exponentials are in scratch memory at once
    WORK = 1 << 16  # elements from which a second thread pays
    BLOCK = 4096  # elements a thread takes at a time, in whole rows
    SIGNAL_INTERVAL = 1 << 24  # elements between two checks of signals
    SHORT = 12  # a row with at most so many elements is too short for vectors; below 64 row_sum adds in eight numbers
    GROUP = 16  # short rows that are computed together
    ROW = 16  # elements that take as long as what a row costs apart from its elements


cdef inline double exp_sum(const real* x, Py_ssize_t n, real top, double* shifted_sum) noexcept nogil:
    """Return sum exp(x - top), and store sum (x - top) through the pointer unless it is NULL."""
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


cdef void short_softmax(const real* x, real* y, Py_ssize_t rows, Py_ssize_t n) noexcept nogil:
    """Compute softmax, with the same bits, for rows of few elements: some rows together, column by column.

    So no row waits for the previous one, and one loop computes all their exponentials.
    """
    cdef real[GROUP] tops
    cdef double[8 * GROUP] sums
    cdef Py_ssize_t group, first, i, k, count
    for group in range(ceil_div(rows, GROUP)):
        first = group * GROUP
        count = min(<Py_ssize_t>GROUP, rows - first)
        for k in range(count):
            tops[k] = x[(first + k) * n]
        for i in range(1, n):
            for k in range(count):
                tops[k] = x[(first + k) * n + i] if x[(first + k) * n + i] > tops[k] else tops[k]
        for i in range(n):
            for k in range(count):
                y[(first + k) * n + i] = x[(first + k) * n + i] - tops[k]
    for i in range(rows * n):
        y[i] = exp(y[i])
    for group in range(ceil_div(rows, GROUP)):
        first = group * GROUP
        count = min(<Py_ssize_t>GROUP, rows - first)
        for i in range(8 * GROUP):
            sums[i] = 0
        for i in range(n):  # as row_sum adds
            for k in range(count):
                sums[i % 8 * GROUP + k] += y[(first + k) * n + i]
        for k in range(GROUP):
            tops[k] = <real>(1 / (
                ((sums[k] + sums[4 * GROUP + k]) + (sums[2 * GROUP + k] + sums[6 * GROUP + k]))
                + ((sums[GROUP + k] + sums[5 * GROUP + k]) + (sums[3 * GROUP + k] + sums[7 * GROUP + k]))
            ))
        for i in range(n):
            for k in range(count):
                y[(first + k) * n + i] = y[(first + k) * n + i] * tops[k]


cdef void softmax_grad(const real* dy, const real* y, real* dx, Py_ssize_t n) noexcept nogil:
    cdef real mean = <real>row_dot(dy, y, n)  # the mean of dy, weighted by the probabilities y
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


# The classes are the caller's memory, and another thread may change them after the check. So a class is read once and
# compared just before its use: a class outside of the row gives NaN, and is never used as an address.

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
    elif not 0 <= chosen < n:
        loss[0] = <real>NAN
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
    elif not 0 <= chosen < n:
        for i in range(n):
            dx[i] = <real>NAN
    else:
        for i in range(n):
            dx[i] = dy * (exp((x[i] - high) - low) - share)
        dx[chosen] = dx[chosen] - dy * <real>(1 - target.smoothing)


# The driver: a block of rows a job, over threads when there is enough work.

cdef enum Operation:
    SOFTMAX
    SOFTMAX_GRAD
    LOG_SOFTMAX
    LOG_SOFTMAX_GRAD
    CROSS_ENTROPY
    CROSS_ENTROPY_GRAD

numbers = {
    "softmax": SOFTMAX, "softmax_grad": SOFTMAX_GRAD, "log_softmax": LOG_SOFTMAX, "log_softmax_grad": LOG_SOFTMAX_GRAD,
}


cdef struct Rows:  # what all jobs of a call share
    Operation operation
    int itemsize
    const char* a  # x, or dy of every element
    const char* b  # what forward kept
    char* out
    char* loss  # a number for each row, or its gradient
    double* lse
    Target target
    Py_ssize_t rows
    Py_ssize_t n
    Py_ssize_t rows_of_job


cdef inline void one_row(const Rows* r, const real* a, Py_ssize_t row) noexcept nogil:
    cdef Py_ssize_t n = r.n
    cdef const real* b = <const real*>r.b + row * n
    cdef real* out = <real*>r.out + row * n
    cdef real* loss = <real*>r.loss + row
    a += row * n
    if r.operation == SOFTMAX:
        softmax(a, b, out, n)
    elif r.operation == SOFTMAX_GRAD:
        softmax_grad(a, b, out, n)
    elif r.operation == LOG_SOFTMAX:
        log_softmax(a, b, out, n)
    elif r.operation == LOG_SOFTMAX_GRAD:
        log_softmax_grad(a, b, out, n)
    elif r.operation == CROSS_ENTROPY:
        cross_entropy(a, loss, r.lse + row, n, r.target.classes[row], r.target)
    else:
        cross_entropy_grad(loss[0], a, r.lse[row], out, n, r.target.classes[row], r.target)


cdef void some_rows(const void* task, Py_ssize_t index) noexcept nogil:
    cdef const Rows* r = <const Rows*>task
    cdef Py_ssize_t begin = index * r.rows_of_job
    cdef Py_ssize_t end = min(r.rows, begin + r.rows_of_job)
    cdef Py_ssize_t row
    if r.operation == SOFTMAX and r.n <= SHORT:
        if r.itemsize == sizeof(float):
            short_softmax(<const float*>r.a + begin * r.n, <float*>r.out + begin * r.n, end - begin, r.n)
        else:
            short_softmax(<const double*>r.a + begin * r.n, <double*>r.out + begin * r.n, end - begin, r.n)
        return
    for row in range(begin, end):
        if r.itemsize == sizeof(float):
            one_row(r, <const float*>r.a, row)
        else:
            one_row(r, <const double*>r.a, row)


cdef int run_rows(Rows* r, int threads) except -1:
    cdef Py_ssize_t per_round
    r.rows_of_job = max(<Py_ssize_t>1, BLOCK // r.n)
    per_round = max(<Py_ssize_t>1, SIGNAL_INTERVAL // ((r.n + ROW) * r.rows_of_job))
    if r.rows * r.n < WORK:
        threads = 1
    with nogil:
        parallel_for(some_rows, r, 0, ceil_div(r.rows, r.rows_of_job), per_round, threads)
    return 0


def run(int number, object a, object b, object out, Py_ssize_t rows, Py_ssize_t n, int itemsize, int threads):
    """Run operation `number` on every row of dense (rows, n) arrays of one float type; b may be None. n >= 1."""
    cdef Rows r
    r.operation, r.rows, r.n, r.itemsize = <Operation>number, rows, n, itemsize
    r.a = <const char*>address(a, itemsize)
    r.b = r.a if b is None else <const char*>address(b, itemsize)
    r.out = <char*>address(out, itemsize, True)
    r.loss, r.lse = NULL, NULL
    run_rows(&r, threads)


cdef Py_ssize_t wrong_target(Target target, Py_ssize_t rows, Py_ssize_t n) except -2 nogil:
    """Return the first row whose target is neither a class nor the ignored index, or -1."""
    cdef Py_ssize_t row
    cdef int64_t chosen
    for row in range(rows):
        chosen = target.classes[row]
        if not 0 <= chosen < n and chosen != target.ignored:
            return row
        if row % SIGNAL_INTERVAL == SIGNAL_INTERVAL - 1:
            check_signals()
    return -1


def losses(
    object x, object classes, object loss, object lse, Py_ssize_t rows, Py_ssize_t n, int64_t ignored, double smoothing,
    int itemsize, int threads,
):
    """Compute the cross entropy of every row of x (rows, n): fill loss (rows,) and, in float64, lse = log sum exp.

    classes is int64 (rows,). Returns the first row with a wrong class, before anything is written, else -1. n >= 1.
    """
    cdef Rows r
    cdef Py_ssize_t wrong
    r.operation, r.rows, r.n, r.itemsize = CROSS_ENTROPY, rows, n, itemsize
    r.target.classes, r.target.ignored, r.target.smoothing = <const int64_t*>address(classes, 8), ignored, smoothing
    r.a = <const char*>address(x, itemsize)
    r.b, r.out = NULL, NULL
    r.loss = <char*>address(loss, itemsize, True)
    r.lse = <double*>address(lse, 8, True)
    with nogil:
        wrong = wrong_target(r.target, rows, n)
    if wrong < 0:
        run_rows(&r, threads)
    return wrong


def loss_grads(
    object dy, object x, object classes, object lse, object dx, Py_ssize_t rows, Py_ssize_t n, int64_t ignored,
    double smoothing, int itemsize, int threads,
):
    """Compute the gradient of `losses` for x, given dy (rows,); NaN in a row whose class has changed to a wrong one."""
    cdef Rows r
    r.operation, r.rows, r.n, r.itemsize = CROSS_ENTROPY_GRAD, rows, n, itemsize
    r.target.classes, r.target.ignored, r.target.smoothing = <const int64_t*>address(classes, 8), ignored, smoothing
    r.a = <const char*>address(x, itemsize)
    r.b = NULL
    r.out = <char*>address(dx, itemsize, True)
    r.loss = <char*>address(dy, itemsize)
    r.lse = <double*>address(lse, 8)
    run_rows(&r, threads)
