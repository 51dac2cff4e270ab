# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False, binding=False
# Optimizer steps: each parameter is read and written once, together with its gradient and its state.
#
# Written out in array operations, a step of Adam passes over memory a dozen times. Here it is one loop. A call takes
# the lists of all parameters: a small network has dozens of tiny ones, and calls would cost more than arithmetic.
# What the loops do not cover (16-bit floats, odd layouts) is reported back by index and left untouched.

from cpython.buffer cimport (
    Py_buffer, PyBuffer_IsContiguous, PyBuffer_Release, PyBUF_FORMAT, PyBUF_STRIDES, PyBUF_WRITABLE, PyObject_GetBuffer,
)
from cpython.exc cimport PyErr_CheckSignals
from cython.parallel cimport prange
from libc.math cimport pow, sqrt, sqrtf

from minorm_ext.maps.reductions cimport real

cdef enum:
    BLOCK = 4096  # elements
    WORK = 1 << 18  # elements from which a second thread pays
    ADAM_WORK = 1 << 16  # the same where each takes a root and a division
    CHUNK = 1 << 25  # elements between two looks for Ctrl-C
    PIECE = 1 << 15  # elements of a partial sum
    PIECES = 256  # partial sums between two looks


# Where the arrays of one parameter are.

cdef struct Arrays:
    int type  # 'f' or 'd'; 0: not covered
    Py_ssize_t n
    char* data[5]  # parameter, gradient, state ...


cdef int add_array(Arrays* arrays, int place, object array, bint writable) except -1:
    """Enter one more array of the same size and type; sets type to 0 where the loops do not cover it."""
    cdef Py_buffer view
    cdef int found
    try:
        PyObject_GetBuffer(array, &view, PyBUF_STRIDES | PyBUF_FORMAT | (PyBUF_WRITABLE if writable else 0))
    except (ValueError, BufferError, TypeError):  # bfloat16, read-only memory, no array
        arrays.type = 0
        return 0
    found = view.format[0] if view.format[1] == 0 else 0
    if not PyBuffer_IsContiguous(&view, b"C") or (found != b"f" and found != b"d"):
        arrays.type = 0
    elif place == 0:
        arrays.type = found
        arrays.n = view.len // view.itemsize
    elif found != arrays.type or view.len != arrays.n * view.itemsize:
        arrays.type = 0
    arrays.data[place] = <char*>view.buf
    PyBuffer_Release(&view)
    return 0


# The loops. `option` holds what one call shares.

cdef struct Option:
    double lr
    double sign  # -1: climb instead
    double momentum
    double taken  # 1 - dampening
    bint nesterov
    double decay  # weight decay added to the gradient
    double shrink  # AdamW: what the parameter is multiplied by
    double beta1
    double beta2
    double eps
    double step_size  # Adam: lr / (1 - beta1^step)
    double unroot  # Adam: 1 / sqrt(1 - beta2^step)
    bint amsgrad


cdef inline real root(real x) noexcept nogil:
    return sqrtf(x) if real is float else sqrt(x)


cdef inline void sgd_plain(real* p, const real* g, Py_ssize_t n, const Option* option) noexcept nogil:
    cdef real lr = <real>option.lr, sign = <real>option.sign, decay = <real>option.decay
    cdef Py_ssize_t i
    if decay == 0:
        lr = lr * sign
        for i in range(n):
            p[i] = p[i] - lr * g[i]
    else:
        for i in range(n):
            p[i] = p[i] - lr * (sign * g[i] + decay * p[i])


cdef inline void sgd_momentum(real* p, const real* g, real* m, Py_ssize_t n, const Option* option) noexcept nogil:
    cdef real lr = <real>option.lr, sign = <real>option.sign, decay = <real>option.decay
    cdef real momentum = <real>option.momentum, taken = <real>option.taken
    cdef real ahead = momentum if option.nesterov else 1
    cdef real now = 1 if option.nesterov else 0
    cdef bint decaying = decay != 0
    cdef real slope
    cdef Py_ssize_t i
    for i in range(n):
        slope = sign * g[i]
        if decaying:
            slope = slope + decay * p[i]
        m[i] = momentum * m[i] + taken * slope
        if now:
            p[i] = p[i] - lr * (slope + ahead * m[i])
        else:
            p[i] = p[i] - lr * m[i]


cdef inline void adam_block(
    real* p, const real* g, real* mean, real* square, real* peak, Py_ssize_t n, const Option* option
) noexcept nogil:
    cdef real sign = <real>option.sign, decay = <real>option.decay, shrink = <real>option.shrink
    cdef real rest1 = <real>(1 - option.beta1), beta2 = <real>option.beta2, rest2 = <real>(1 - option.beta2)
    cdef real eps = <real>option.eps, step_size = <real>option.step_size, correction = <real>option.unroot
    cdef bint decaying = decay != 0
    cdef real slope, top, value
    cdef Py_ssize_t i
    if not option.amsgrad:
        for i in range(n):
            slope = sign * g[i]
            value = p[i]
            if decaying:
                slope = slope + decay * value
            value = value * shrink
            mean[i] = mean[i] + rest1 * (slope - mean[i])
            square[i] = beta2 * square[i] + rest2 * slope * slope
            p[i] = value - step_size * mean[i] / (root(square[i]) * correction + eps)
    else:
        for i in range(n):
            slope = sign * g[i]
            value = p[i]
            if decaying:
                slope = slope + decay * value
            value = value * shrink
            mean[i] = mean[i] + rest1 * (slope - mean[i])
            square[i] = beta2 * square[i] + rest2 * slope * slope
            top = peak[i] if peak[i] > square[i] else square[i]
            peak[i] = top
            p[i] = value - step_size * mean[i] / (root(top) * correction + eps)


cdef inline void scale_block(real* x, Py_ssize_t n, const Option* option) noexcept nogil:
    cdef real factor = <real>option.lr
    cdef Py_ssize_t i
    for i in range(n):
        x[i] = x[i] * factor


cdef enum Rule:
    SGD_PLAIN
    SGD_MOMENTUM
    ADAM
    SCALE


cdef inline void one_block(
    Rule rule, char** data, int item, Py_ssize_t i, Py_ssize_t n, const Option* o
) noexcept nogil:
    """Elements i to i + n of one parameter."""
    cdef Py_ssize_t at = i * item
    if item == 4:
        if rule == SGD_PLAIN:
            sgd_plain(<float*>(data[0] + at), <const float*>(data[1] + at), n, o)
        elif rule == SGD_MOMENTUM:
            sgd_momentum(<float*>(data[0] + at), <const float*>(data[1] + at), <float*>(data[2] + at), n, o)
        elif rule == ADAM:
            adam_block(
                <float*>(data[0] + at), <const float*>(data[1] + at), <float*>(data[2] + at), <float*>(data[3] + at),
                <float*>(data[4] + at), n, o,
            )
        else:
            scale_block(<float*>(data[0] + at), n, o)
    elif rule == SGD_PLAIN:
        sgd_plain(<double*>(data[0] + at), <const double*>(data[1] + at), n, o)
    elif rule == SGD_MOMENTUM:
        sgd_momentum(<double*>(data[0] + at), <const double*>(data[1] + at), <double*>(data[2] + at), n, o)
    elif rule == ADAM:
        adam_block(
            <double*>(data[0] + at), <const double*>(data[1] + at), <double*>(data[2] + at), <double*>(data[3] + at),
            <double*>(data[4] + at), n, o,
        )
    else:
        scale_block(<double*>(data[0] + at), n, o)


cdef int run(Rule rule, Arrays* arrays, const Option* option, int threads) except -1:
    """The whole of one parameter."""
    cdef int item = 4 if arrays.type == b"f" else 8
    cdef Py_ssize_t start = 0
    cdef Py_ssize_t end, block
    if threads <= 1 or arrays.n < (ADAM_WORK if rule == ADAM else WORK):
        threads = 1
        if arrays.n <= BLOCK:
            one_block(rule, arrays.data, item, 0, arrays.n, option)
            return 0
    while start < arrays.n:
        end = min(arrays.n, start + CHUNK)
        with nogil:
            for block in prange((end - start + BLOCK - 1) // BLOCK, num_threads=threads, schedule="static"):
                one_block(
                    rule, arrays.data, item, start + block * BLOCK,
                    min(<Py_ssize_t>BLOCK, end - start - block * BLOCK), option,
                )
        start = end
        if start < arrays.n:
            PyErr_CheckSignals()
    return 0


# What Python calls. Lists have one entry a parameter; arrays are changed in place. Each returns the indices left out.

def sgd(
    list parameters, list gradients, list buffers, double lr, double momentum, double dampening, double weight_decay,
    bint nesterov, bint maximize, int threads,
):
    cdef Option option
    cdef Arrays arrays
    cdef Py_ssize_t i
    cdef list left = []
    option.lr, option.momentum, option.taken, option.nesterov = lr, momentum, 1 - dampening, nesterov
    option.sign, option.decay = -1 if maximize else 1, weight_decay
    for i in range(len(parameters)):
        add_array(&arrays, 0, parameters[i], True)
        if arrays.type:
            add_array(&arrays, 1, gradients[i], False)
        if arrays.type and momentum != 0:
            add_array(&arrays, 2, buffers[i], True)
        if arrays.type:
            run(SGD_MOMENTUM if momentum != 0 else SGD_PLAIN, &arrays, &option, threads)
        else:
            left.append(i)
    return left


def adam(
    list parameters, list gradients, list means, list squares, list peaks, list steps, double lr, double beta1,
    double beta2, double eps, double weight_decay, bint decoupled, bint maximize, int threads,
):
    """peaks is empty without amsgrad; steps counts from 1."""
    cdef Option option
    cdef Arrays arrays
    cdef Py_ssize_t i
    cdef double step
    cdef list left = []
    option.lr, option.sign, option.beta1, option.beta2, option.eps = lr, -1 if maximize else 1, beta1, beta2, eps
    option.decay = 0 if decoupled else weight_decay
    option.shrink = 1 - lr * weight_decay if decoupled else 1
    option.amsgrad = len(peaks) > 0
    for i in range(len(parameters)):
        add_array(&arrays, 0, parameters[i], True)
        if arrays.type:
            add_array(&arrays, 1, gradients[i], False)
        if arrays.type:
            add_array(&arrays, 2, means[i], True)
        if arrays.type:
            add_array(&arrays, 3, squares[i], True)
        arrays.data[4] = arrays.data[3]  # not read without amsgrad
        if arrays.type and option.amsgrad:
            add_array(&arrays, 4, peaks[i], True)
        if arrays.type:
            step = steps[i]
            option.step_size = lr / (1 - pow(beta1, step))
            option.unroot = 1 / sqrt(1 - pow(beta2, step))
            run(ADAM, &arrays, &option, threads)
        else:
            left.append(i)
    return left


def scale(list arrays_in, double factor, int threads):
    """x *= factor for every array."""
    cdef Option option
    cdef Arrays arrays
    cdef Py_ssize_t i
    cdef list left = []
    option.lr = factor
    for i in range(len(arrays_in)):
        add_array(&arrays, 0, arrays_in[i], True)
        if arrays.type:
            run(SCALE, &arrays, &option, threads)
        else:
            left.append(i)
    return left


cdef inline double squares(const real* x, Py_ssize_t n) noexcept nogil:
    """The sum of squares, in double, where no float overflows."""
    cdef double[32] lanes
    cdef double total = 0
    cdef Py_ssize_t i = 0
    cdef int j
    for j in range(32):
        lanes[j] = 0
    while i + 32 <= n:
        for j in range(32):
            lanes[j] += <double>x[i + j] * <double>x[i + j]
        i += 32
    for j in range(32):
        total += lanes[j]
    while i < n:
        total += <double>x[i] * <double>x[i]
        i += 1
    return total


cdef inline void squares_of_piece(const char* data, int type, Py_ssize_t i, Py_ssize_t n, double* out) noexcept nogil:
    out[0] = squares(<const float*>data + i, n) if type == b"f" else squares(<const double*>data + i, n)


def square_sum(object array, int threads):
    """The sum of squares as a float, in an order that depends on the size alone; None where it is not covered."""
    cdef Arrays arrays
    cdef double[PIECES] parts
    cdef double total = 0
    cdef Py_ssize_t start = 0
    cdef Py_ssize_t count, part, rest
    add_array(&arrays, 0, array, False)
    if not arrays.type:
        return None
    if arrays.n < WORK:
        threads = 1
    while start < arrays.n:
        rest = arrays.n - start
        count = min(<Py_ssize_t>PIECES, (rest + PIECE - 1) // PIECE)
        with nogil:
            for part in prange(count, num_threads=threads, schedule="static"):
                squares_of_piece(
                    arrays.data[0], arrays.type, start + part * PIECE, min(<Py_ssize_t>PIECE, rest - part * PIECE),
                    &parts[part],
                )
        for part in range(count):
            total += parts[part]
        start += PIECES * PIECE
        if start < arrays.n:
            PyErr_CheckSignals()
    return total
