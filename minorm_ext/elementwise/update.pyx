# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False, binding=False
# Optimizer steps: they read and write each parameter once, together with its gradient and its state.
#
# As separate array operations, a step of Adam passes over memory a dozen times. Here it is one loop. A call takes the
# lists of all parameters: a small network has dozens of tiny ones, and calls would cost more than arithmetic. The loops
# skip parameters that they do not cover (16-bit floats, odd layouts), and return the indices of these.

from cpython.buffer cimport (
    Py_buffer, PyBuffer_IsContiguous, PyBuffer_Release, PyBUF_FORMAT, PyBUF_STRIDES, PyBUF_WRITABLE, PyObject_GetBuffer,
)
from libc.math cimport sqrt, sqrtf

from minorm_ext.runtime.jobs cimport check_signals, parallel_for
from minorm_ext.runtime.numbers cimport ceil_div, real
from minorm_ext.simd.exp cimport power

cdef enum:
    BLOCK = 8192  # elements
    WORK = 1 << 18  # elements from which a second thread pays
    ADAM_WORK = 1 << 16  # the same for Adam, where each element takes a root and a division
    SIGNAL_INTERVAL = 1 << 25  # elements between two checks of signals
    PIECE = 1 << 15  # elements of a partial sum
    PIECES = 256  # partial sums between two checks


# Where the arrays of one parameter are.

cdef struct Arrays:
    int type  # 'f' or 'd'; 0: not covered
    Py_ssize_t n
    char* data[5]  # parameter, gradient, state ...


cdef int add_array(Arrays* arrays, int place, object array, bint writable) except -1:
    """Enter one more array of the same size and type; set type to 0 if the loops do not cover it."""
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


# The loops. `option` holds the settings that all parameters of a call share.

cdef struct Option:
    double lr
    double sign  # 1, or -1 to maximize
    double momentum
    double taken  # 1 - dampening
    bint nesterov
    double decay  # weight decay added to the gradient
    double shrink  # AdamW: the factor of the parameter
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


cdef struct Update:  # what all blocks of one parameter share
    Rule rule
    Arrays arrays
    Option option


cdef inline void update_block(const Update* u, real* p, Py_ssize_t i, Py_ssize_t n) noexcept nogil:
    """Update elements i to i + n of one parameter."""
    cdef real* g = <real*>u.arrays.data[1] + i
    cdef real* state = <real*>u.arrays.data[2] + i
    p += i
    if u.rule == SGD_PLAIN:
        sgd_plain(p, g, n, &u.option)
    elif u.rule == SGD_MOMENTUM:
        sgd_momentum(p, g, state, n, &u.option)
    elif u.rule == ADAM:
        adam_block(p, g, state, <real*>u.arrays.data[3] + i, <real*>u.arrays.data[4] + i, n, &u.option)
    else:
        scale_block(p, n, &u.option)


cdef void one_block(const void* task, Py_ssize_t index) noexcept nogil:
    cdef const Update* u = <const Update*>task
    cdef Py_ssize_t n = min(<Py_ssize_t>BLOCK, u.arrays.n - index * BLOCK)
    if u.arrays.type == b"f":
        update_block(u, <float*>u.arrays.data[0], index * BLOCK, n)
    else:
        update_block(u, <double*>u.arrays.data[0], index * BLOCK, n)


cdef int run(Update* u, int threads) except -1:
    """Update the whole of one parameter."""
    if u.arrays.n < (ADAM_WORK if u.rule == ADAM else WORK):
        threads = 1
    if u.arrays.n <= BLOCK:
        one_block(u, 0)
    else:
        with nogil:
            parallel_for(one_block, u, 0, ceil_div(u.arrays.n, BLOCK), SIGNAL_INTERVAL // BLOCK, threads)
    return 0


# The functions for Python. Lists have one entry a parameter; arrays change in place. Each returns the skipped indices.

def sgd(
    list parameters, list gradients, list buffers, double lr, double momentum, double dampening, double weight_decay,
    bint nesterov, bint maximize, int threads,
):
    cdef Update u
    cdef Py_ssize_t i
    cdef list left = []
    u.rule = SGD_MOMENTUM if momentum != 0 else SGD_PLAIN
    u.option.lr, u.option.momentum, u.option.taken, u.option.nesterov = lr, momentum, 1 - dampening, nesterov
    u.option.sign, u.option.decay = -1 if maximize else 1, weight_decay
    for i in range(len(parameters)):
        add_array(&u.arrays, 0, parameters[i], True)
        if u.arrays.type:
            add_array(&u.arrays, 1, gradients[i], False)
        if u.arrays.type and momentum != 0:
            add_array(&u.arrays, 2, buffers[i], True)
        if u.arrays.type:
            run(&u, threads)
        else:
            left.append(i)
    return left


def adam(
    list parameters, list gradients, list means, list squares, list peaks, list steps, double lr, double beta1,
    double beta2, double eps, double weight_decay, bint decoupled, bint maximize, int threads,
):
    """Make a step of Adam, or of AdamW if `decoupled`. peaks is empty without amsgrad; steps counts from 1."""
    cdef Update u
    cdef Py_ssize_t i
    cdef double step
    cdef list left = []
    u.rule = ADAM
    u.option.lr, u.option.sign = lr, -1 if maximize else 1
    u.option.beta1, u.option.beta2, u.option.eps = beta1, beta2, eps
    u.option.decay = 0 if decoupled else weight_decay
    u.option.shrink = 1 - lr * weight_decay if decoupled else 1
    u.option.amsgrad = len(peaks) > 0
    for i in range(len(parameters)):
        add_array(&u.arrays, 0, parameters[i], True)
        if u.arrays.type:
            add_array(&u.arrays, 1, gradients[i], False)
        if u.arrays.type:
            add_array(&u.arrays, 2, means[i], True)
        if u.arrays.type:
            add_array(&u.arrays, 3, squares[i], True)
        u.arrays.data[4] = u.arrays.data[3]  # not read without amsgrad
        if u.arrays.type and u.option.amsgrad:
            add_array(&u.arrays, 4, peaks[i], True)
        if u.arrays.type:
            step = steps[i]
            u.option.step_size = lr / (1 - power(beta1, step))
            u.option.unroot = 1 / sqrt(1 - power(beta2, step))
            run(&u, threads)
        else:
            left.append(i)
    return left


def scale(list arrays_in, double factor, int threads):
    """x *= factor for every array."""
    cdef Update u
    cdef Py_ssize_t i
    cdef list left = []
    u.rule = SCALE
    u.option.lr = factor
    for i in range(len(arrays_in)):
        add_array(&u.arrays, 0, arrays_in[i], True)
        if u.arrays.type:
            run(&u, threads)
        else:
            left.append(i)
    return left


cdef inline double squares(const real* x, Py_ssize_t n) noexcept nogil:
    """Return the sum of squares, in double, so that the square of a float cannot overflow."""
    cdef double[32] sums
    cdef double total = 0
    cdef Py_ssize_t i = 0
    cdef int j
    for j in range(32):
        sums[j] = 0
    while i + 32 <= n:
        for j in range(32):
            sums[j] += <double>x[i + j] * <double>x[i + j]
        i += 32
    for j in range(32):
        total += sums[j]
    while i < n:
        total += <double>x[i] * <double>x[i]
        i += 1
    return total


cdef struct SquareSum:
    Arrays arrays
    Py_ssize_t first  # piece of this round
    double[PIECES] partial


cdef void one_piece(const void* task, Py_ssize_t piece) noexcept nogil:
    cdef SquareSum* s = <SquareSum*>task
    cdef Py_ssize_t start = piece * PIECE
    cdef Py_ssize_t n = min(<Py_ssize_t>PIECE, s.arrays.n - start)
    if s.arrays.type == b"f":
        s.partial[piece - s.first] = squares(<const float*>s.arrays.data[0] + start, n)
    else:
        s.partial[piece - s.first] = squares(<const double*>s.arrays.data[0] + start, n)


def square_sum(object array, int threads):
    """Return the sum of squares as a float, added in an order that depends on the size alone; None if not covered."""
    cdef SquareSum s
    cdef double total = 0
    cdef Py_ssize_t pieces, end, piece
    add_array(&s.arrays, 0, array, False)
    if not s.arrays.type:
        return None
    if s.arrays.n < WORK:
        threads = 1
    s.first = 0
    pieces = ceil_div(s.arrays.n, PIECE)
    while s.first < pieces:
        end = min(pieces, s.first + PIECES)
        with nogil:
            parallel_for(one_piece, &s, s.first, end, PIECES, threads)
        for piece in range(s.first, end):
            total += s.partial[piece - s.first]
        s.first = end
        if s.first < pieces:
            check_signals()
    return total
