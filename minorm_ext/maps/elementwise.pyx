# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False, binding=False
# Maps over dense arrays: out[i] = f(a[i], b[i], option), one operation a few lines, one driver for all of them.
#
# Every operation is a loop over one block of elements, compiled for float and double and vectorised by gcc. The driver
# walks the blocks, over several threads when there is enough work, and writes around the cache when the output is
# larger than it. 16 bits are widened to float some elements at a time, and rounded once. Calling through a pointer
# costs nothing here: a block takes microseconds. Results cannot depend on the number of threads, since no element knows
# of another.

from cpython.exc cimport PyErr_CheckSignals
from cython.parallel cimport prange
from libc.stdint cimport uintptr_t
from libc.string cimport memcpy

from minorm_ext.runtime.buffers cimport address
from minorm_ext.simd.exp cimport exp, expm1, sigmoid as logistic, tanh as tanh_of
from minorm_ext.simd.storage cimport DOUBLE, SINGLE, Type, narrow, real, size_of, widen

cdef extern from "simd/normal.h" nogil:  # loops as those below
    void minorm_gelu_loop_f(const float*, const float*, float*, Py_ssize_t, float) noexcept
    void minorm_gelu_grad_loop_f(const float*, const float*, float*, Py_ssize_t, float) noexcept
    void minorm_gelu_tanh_loop_f(const float*, const float*, float*, Py_ssize_t, float) noexcept
    void minorm_gelu_tanh_grad_loop_f(const float*, const float*, float*, Py_ssize_t, float) noexcept
    void minorm_erf_loop_f(const float*, const float*, float*, Py_ssize_t, float) noexcept
    void minorm_erf_grad_loop_f(const float*, const float*, float*, Py_ssize_t, float) noexcept
    void minorm_gelu_loop_d(const double*, const double*, double*, Py_ssize_t, double) noexcept
    void minorm_gelu_grad_loop_d(const double*, const double*, double*, Py_ssize_t, double) noexcept
    void minorm_gelu_tanh_loop_d(const double*, const double*, double*, Py_ssize_t, double) noexcept
    void minorm_gelu_tanh_grad_loop_d(const double*, const double*, double*, Py_ssize_t, double) noexcept
    void minorm_erf_loop_d(const double*, const double*, double*, Py_ssize_t, double) noexcept
    void minorm_erf_grad_loop_d(const double*, const double*, double*, Py_ssize_t, double) noexcept

cdef extern from "simd/stream.h" nogil:
    void minorm_stream_copy(void* to, const void* source, size_t bytes) noexcept
    void minorm_stream_end() noexcept
    void minorm_ahead(const char* source, Py_ssize_t bytes) noexcept


# The functions of one element.

cdef inline real clipped(real x, real low, real high) noexcept nogil:
    """x within [low, high]; NaN stays NaN."""
    x = low if x < low else x
    return high if x > high else x


# The operations: each fills one block (gelu and erf: simd/normal.h). Gradients take dy as a, and as b what forward kept of x
# or y.

cdef void add(const real* a, const real* b, real* out, Py_ssize_t n, real option) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(n):
        out[i] = a[i] + b[i]

cdef void sub(const real* a, const real* b, real* out, Py_ssize_t n, real option) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(n):
        out[i] = a[i] - b[i]

cdef void mul(const real* a, const real* b, real* out, Py_ssize_t n, real option) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(n):
        out[i] = a[i] * b[i]

cdef void scale(const real* a, const real* b, real* out, Py_ssize_t n, real option) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(n):
        out[i] = a[i] * option

cdef void accumulate(const real* a, const real* b, real* out, Py_ssize_t n, real option) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(n):
        out[i] = out[i] + a[i]

cdef void relu(const real* a, const real* b, real* out, Py_ssize_t n, real option) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(n):
        out[i] = 0 if a[i] <= 0 else a[i]

cdef void relu_grad(const real* a, const real* b, real* out, Py_ssize_t n, real option) noexcept nogil:
    cdef Py_ssize_t i
    cdef real dy
    for i in range(n):
        dy = a[i]  # read in any case: a load that depends on a condition does not vectorise on older processors
        out[i] = 0 if b[i] <= 0 else dy

cdef void relu6(const real* a, const real* b, real* out, Py_ssize_t n, real option) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(n):
        out[i] = clipped(a[i], <real>0, <real>6)

cdef void relu6_grad(const real* a, const real* b, real* out, Py_ssize_t n, real option) noexcept nogil:
    cdef Py_ssize_t i
    cdef real dy
    for i in range(n):
        dy = a[i]
        dy = 0 if b[i] <= 0 else dy  # NaN is neither: it keeps its gradient
        out[i] = 0 if b[i] >= 6 else dy

cdef void leaky_relu(const real* a, const real* b, real* out, Py_ssize_t n, real option) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(n):
        out[i] = a[i] if a[i] > 0 else a[i] * option

cdef void leaky_relu_grad(const real* a, const real* b, real* out, Py_ssize_t n, real option) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(n):
        out[i] = a[i] if b[i] > 0 else a[i] * option

cdef void hardswish(const real* a, const real* b, real* out, Py_ssize_t n, real option) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(n):
        out[i] = a[i] * clipped(a[i] + 3, <real>0, <real>6) / 6

cdef void hardswish_grad(const real* a, const real* b, real* out, Py_ssize_t n, real option) noexcept nogil:
    cdef Py_ssize_t i
    cdef real inner
    for i in range(n):
        inner = a[i] * (b[i] / 3 + <real>0.5)
        inner = inner if b[i] < 3 else a[i]
        out[i] = 0 if b[i] <= -3 else inner

cdef void sigmoid(const real* a, const real* b, real* out, Py_ssize_t n, real option) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(n):
        out[i] = logistic(a[i])

cdef void sigmoid_grad(const real* a, const real* b, real* out, Py_ssize_t n, real option) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(n):
        out[i] = a[i] * b[i] * (1 - b[i])

cdef void tanh(const real* a, const real* b, real* out, Py_ssize_t n, real option) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(n):
        out[i] = tanh_of(a[i])

cdef void tanh_grad(const real* a, const real* b, real* out, Py_ssize_t n, real option) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(n):
        out[i] = a[i] * (1 - b[i] * b[i])

cdef void silu(const real* a, const real* b, real* out, Py_ssize_t n, real option) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(n):
        out[i] = a[i] * logistic(a[i])

cdef void silu_grad(const real* a, const real* b, real* out, Py_ssize_t n, real option) noexcept nogil:
    cdef Py_ssize_t i
    cdef real s
    for i in range(n):
        s = logistic(b[i])
        out[i] = a[i] * (s * (1 + b[i] * (1 - s)))

cdef void elu(const real* a, const real* b, real* out, Py_ssize_t n, real option) noexcept nogil:
    cdef Py_ssize_t i
    cdef real below
    for i in range(n):
        below = option * expm1(<real>0 if a[i] > 0 else a[i])
        out[i] = a[i] if a[i] > 0 else below

cdef void elu_grad(const real* a, const real* b, real* out, Py_ssize_t n, real option) noexcept nogil:
    cdef Py_ssize_t i
    cdef real below
    for i in range(n):
        below = a[i] * (option * exp(<real>0 if b[i] > 0 else b[i]))
        out[i] = below if b[i] <= 0 else a[i]


# The table: the number of an operation -> its two loops.

ctypedef void (*FloatLoop)(const float*, const float*, float*, Py_ssize_t, float) noexcept nogil
ctypedef void (*DoubleLoop)(const double*, const double*, double*, Py_ssize_t, double) noexcept nogil

cdef FloatLoop[32] float_loops
cdef DoubleLoop[32] double_loops
cdef bint[32] heavy  # has an exponential: worth a second thread much earlier

numbers = {}  # operation's name -> its number, the first argument of `run`


cdef void enter(str name, FloatLoop float_loop, DoubleLoop double_loop, bint is_heavy):
    cdef int number = len(numbers)
    numbers[name] = number
    float_loops[number] = float_loop
    double_loops[number] = double_loop
    heavy[number] = is_heavy


enter("add", add[float], add[double], False)
enter("sub", sub[float], sub[double], False)
enter("mul", mul[float], mul[double], False)
enter("copy", NULL, NULL, False)  # of any type, so the driver does it
enter("scale", scale[float], scale[double], False)
enter("accumulate", accumulate[float], accumulate[double], False)
enter("relu", relu[float], relu[double], False)
enter("relu_grad", relu_grad[float], relu_grad[double], False)
enter("relu6", relu6[float], relu6[double], False)
enter("relu6_grad", relu6_grad[float], relu6_grad[double], False)
enter("leaky_relu", leaky_relu[float], leaky_relu[double], False)
enter("leaky_relu_grad", leaky_relu_grad[float], leaky_relu_grad[double], False)
enter("hardswish", hardswish[float], hardswish[double], False)
enter("hardswish_grad", hardswish_grad[float], hardswish_grad[double], False)
enter("sigmoid", sigmoid[float], sigmoid[double], True)
enter("sigmoid_grad", sigmoid_grad[float], sigmoid_grad[double], False)
enter("tanh", tanh[float], tanh[double], True)
enter("tanh_grad", tanh_grad[float], tanh_grad[double], False)
enter("silu", silu[float], silu[double], True)
enter("silu_grad", silu_grad[float], silu_grad[double], True)
enter("elu", elu[float], elu[double], True)
enter("elu_grad", elu_grad[float], elu_grad[double], True)
enter("gelu", minorm_gelu_loop_f, minorm_gelu_loop_d, True)
enter("gelu_grad", minorm_gelu_grad_loop_f, minorm_gelu_grad_loop_d, True)
enter("gelu_tanh", minorm_gelu_tanh_loop_f, minorm_gelu_tanh_loop_d, True)
enter("gelu_tanh_grad", minorm_gelu_tanh_grad_loop_f, minorm_gelu_tanh_grad_loop_d, True)
enter("erf", minorm_erf_loop_f, minorm_erf_loop_d, True)
enter("erf_grad", minorm_erf_grad_loop_f, minorm_erf_grad_loop_d, True)


# The driver.

cdef enum:
    BLOCK = 4096  # elements; a multiple of every vector, so that blocks start aligned
    PIECE = 256  # elements that go through the first-level cache on their way around the others
    AHEAD = 4096  # bytes from what is computed to what is asked for, on the way around the cache
    CHUNK = 1 << 22  # elements between two looks for Ctrl-C: at most 0.2 s of the slowest operation
    LIGHT_WORK = 1 << 18  # elements from which a second thread pays
    HEAVY_WORK = 1 << 16
    CACHE = 8 << 20  # an output of more bytes is written around the cache; it pays even if it is read next


cdef void sixteen_bits(
    int number, Type type, const char* a, const char* b, char* out, Py_ssize_t n, double option
) noexcept nogil:
    """A block of float16 or bfloat16, computed in float in the innermost cache."""
    cdef float[PIECE] a_room, b_room, room
    cdef const float* second = a_room
    cdef int itemsize = size_of(type)
    cdef Py_ssize_t i = 0
    cdef Py_ssize_t count
    while i < n:
        count = min(<Py_ssize_t>PIECE, n - i)
        widen(type, a + i * itemsize, <float*>a_room, count)
        if b != a:
            widen(type, b + i * itemsize, <float*>b_room, count)
            second = b_room
        if number == ACCUMULATE:
            widen(type, out + i * itemsize, <float*>room, count)
        float_loops[number](a_room, second, room, count, <float>option)
        narrow(type, <const float*>room, out + i * itemsize, count)
        i += count


cdef inline void one_block(
    int number, Type type, const char* a, const char* b, char* out, Py_ssize_t n, double option, bint around
) noexcept nogil:
    cdef double[PIECE] piece
    cdef int itemsize = size_of(type)
    cdef Py_ssize_t i = 0
    cdef Py_ssize_t count
    if around and number == COPY:
        while i < n:
            count = min(<Py_ssize_t>PIECE, n - i)
            minorm_ahead(a + i * itemsize + AHEAD, count * itemsize)
            minorm_stream_copy(out + i * itemsize, a + i * itemsize, count * itemsize)
            i += count
        minorm_stream_end()
    elif around:
        while i < n:
            count = min(<Py_ssize_t>PIECE, n - i)
            minorm_ahead(a + i * itemsize + AHEAD, count * itemsize)
            if b != a:
                minorm_ahead(b + i * itemsize + AHEAD, count * itemsize)
            one_block(number, type, a + i * itemsize, b + i * itemsize, <char*>piece, count, option, False)
            minorm_stream_copy(out + i * itemsize, piece, count * itemsize)
            i += count
        minorm_stream_end()
    elif number == COPY:
        memcpy(out, a, n * itemsize)
    elif type == SINGLE:
        float_loops[number](<const float*>a, <const float*>b, <float*>out, n, <float>option)
    elif type == DOUBLE:
        double_loops[number](<const double*>a, <const double*>b, <double*>out, n, option)
    else:
        sixteen_bits(number, type, a, b, out, n, option)


cdef void all_blocks(
    int number, Type type, const char* a, const char* b, char* out, Py_ssize_t n, double option, bint around,
    int threads,
) noexcept nogil:
    cdef Py_ssize_t block
    cdef Py_ssize_t step = BLOCK * size_of(type)
    for block in prange((n + BLOCK - 1) // BLOCK, num_threads=threads, schedule="static"):
        one_block(
            number, type, a + block * step, b + block * step, out + block * step,
            min(<Py_ssize_t>BLOCK, n - block * BLOCK), option, around,
        )


def run(int number, object a, object b, object out, Py_ssize_t n, Type type, double option, int threads):
    """out[i] = operation(a[i], b[i], option) for the n elements of dense arrays of one layout; b may be None.

    The caller vouches for layout and `type` (minorm_ext/simd/storage.pxd). `out` may be `a` or `b` only in accumulate, which
    reads it as well.
    """
    cdef int itemsize = size_of(type)
    cdef const char* a_data = <const char*>address(a, itemsize)
    cdef const char* b_data = a_data if b is None else <const char*>address(b, itemsize)
    cdef char* out_data = <char*>address(out, itemsize, True)
    cdef Py_ssize_t start = 0
    cdef Py_ssize_t offset
    cdef bint around = n * itemsize > CACHE and <uintptr_t>out_data % 64 == 0 and number != ACCUMULATE
    if threads <= 1 or n < (HEAVY_WORK if heavy[number] else LIGHT_WORK):
        threads = 1
        if n <= BLOCK:
            one_block(number, type, a_data, b_data, out_data, n, option, False)
            return
    while start < n:
        offset = start * itemsize
        with nogil:
            all_blocks(
                number, type, a_data + offset, b_data + offset, out_data + offset,
                min(<Py_ssize_t>CHUNK, n - start), option, around, threads,
            )
        start += CHUNK
        if start < n:
            PyErr_CheckSignals()


cdef int ACCUMULATE = numbers["accumulate"]
cdef int COPY = numbers["copy"]
