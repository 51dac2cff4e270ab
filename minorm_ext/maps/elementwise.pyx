# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False, binding=False
# Maps over dense arrays: out[i] = f(a[i], b[i], option), one operation a line (operations.inc.h), one driver for all.
#
# Every operation is a loop over one block of elements, compiled for float and double and vectorised by gcc. The driver
# walks the blocks, over several threads when there is enough work, and writes around the cache when the output is
# larger than it. 16 bits are widened to float some elements at a time, and rounded once. Calling through a pointer
# costs nothing here: a block takes microseconds. Results cannot depend on the number of threads, since no element knows
# of another.

from libc.stdint cimport uintptr_t
from libc.string cimport memcpy

from minorm_ext.runtime.buffers cimport address
from minorm_ext.runtime.jobs cimport parallel_for
from minorm_ext.runtime.numbers cimport ceil_div
from minorm_ext.simd.storage cimport DOUBLE, SINGLE, Type, narrow, size_of, widen

cdef extern from "maps/operations.h" nogil:
    enum:
        HEAVY
        OPERATION_COUNT
    ctypedef struct Operation "operation":
        const char* name
        void (*in_float)(const float* a, const float* b, float* y, Py_ssize_t n, float option) noexcept nogil
        void (*in_double)(const double* a, const double* b, double* y, Py_ssize_t n, double option) noexcept nogil
        int weight
    const Operation* operations

cdef extern from "simd/stream.h" nogil:
    void minorm_nt_copy(void* to, const void* source, size_t bytes) noexcept
    void minorm_nt_fence() noexcept
    void minorm_prefetch(const void* source, Py_ssize_t bytes) noexcept

numbers = {operations[i].name.decode(): i for i in range(OPERATION_COUNT)}  # name -> the first argument of `run`
cdef int ACCUMULATE = numbers["accumulate"]
cdef int COPY = numbers["copy"]

cdef enum:
    BLOCK = 8192  # elements; a multiple of every vector, so that blocks start aligned
    PIECE = 256  # elements that go through the first-level cache on their way around the others
    PREFETCH_DISTANCE = 4096  # bytes from what is computed to what is asked for, on the way around the cache
    SIGNAL_INTERVAL = 1 << 22  # elements between two checks of signals: at most 0.2 s of the slowest operation
    LIGHT_WORK = 1 << 18  # elements from which a second thread pays
    HEAVY_WORK = 1 << 16
    CACHE = 8 << 20  # an output of more bytes is written around the cache; it pays even if it is read next


cdef struct Map:  # what all blocks of a call share
    int number  # of the operation
    Type type
    const char* a
    const char* b  # a itself where there is no second operand
    char* out
    Py_ssize_t n
    double option
    bint nontemporal  # results go around the cache


cdef void sixteen_bits(const Map* m, const char* a, const char* b, char* out, Py_ssize_t n) noexcept nogil:
    """Some elements of float16 or bfloat16, computed in float in the innermost cache."""
    cdef float[PIECE] wide_a, wide_b, wide_out
    cdef const float* second = wide_a
    cdef int itemsize = size_of(m.type)
    cdef Py_ssize_t i = 0
    cdef Py_ssize_t count
    while i < n:
        count = min(<Py_ssize_t>PIECE, n - i)
        widen(m.type, a + i * itemsize, <float*>wide_a, count)
        if b != a:
            widen(m.type, b + i * itemsize, <float*>wide_b, count)
            second = wide_b
        if m.number == ACCUMULATE:
            widen(m.type, out + i * itemsize, <float*>wide_out, count)
        operations[m.number].in_float(wide_a, second, wide_out, count, <float>m.option)
        narrow(m.type, <const float*>wide_out, out + i * itemsize, count)
        i += count


cdef inline void compute(const Map* m, const char* a, const char* b, char* out, Py_ssize_t n) noexcept nogil:
    """Some elements, which go where they belong."""
    if m.number == COPY:
        memcpy(out, a, n * size_of(m.type))
    elif m.type == SINGLE:
        operations[m.number].in_float(<const float*>a, <const float*>b, <float*>out, n, <float>m.option)
    elif m.type == DOUBLE:
        operations[m.number].in_double(<const double*>a, <const double*>b, <double*>out, n, m.option)
    else:
        sixteen_bits(m, a, b, out, n)


cdef inline void around_the_cache(const Map* m, const char* a, const char* b, char* out, Py_ssize_t n) noexcept nogil:
    """Some elements, computed a little at a time and stored without first being read into a cache line."""
    cdef double[PIECE] piece
    cdef int itemsize = size_of(m.type)
    cdef Py_ssize_t i = 0
    cdef Py_ssize_t count, at
    while i < n:
        count = min(<Py_ssize_t>PIECE, n - i)
        at = i * itemsize
        minorm_prefetch(a + at + PREFETCH_DISTANCE, count * itemsize)
        if b != a:
            minorm_prefetch(b + at + PREFETCH_DISTANCE, count * itemsize)
        if m.number == COPY:
            minorm_nt_copy(out + at, a + at, count * itemsize)
        else:
            compute(m, a + at, b + at, <char*>piece, count)
            minorm_nt_copy(out + at, piece, count * itemsize)
        i += count
    minorm_nt_fence()


cdef void one_block(const void* task, Py_ssize_t index) noexcept nogil:
    cdef const Map* m = <const Map*>task
    cdef Py_ssize_t at = index * BLOCK * size_of(m.type)
    cdef Py_ssize_t n = min(<Py_ssize_t>BLOCK, m.n - index * BLOCK)
    if m.nontemporal:
        around_the_cache(m, m.a + at, m.b + at, m.out + at, n)
    else:
        compute(m, m.a + at, m.b + at, m.out + at, n)


def run(int number, object a, object b, object out, Py_ssize_t n, Type type, double option, int threads):
    """out[i] = operation(a[i], b[i], option) for the n elements of dense arrays of one layout; b may be None.

    The caller vouches for layout and `type` (minorm_ext/simd/storage.pxd). `out` may be `a` or `b` only in accumulate,
    which reads it as well.
    """
    cdef int itemsize = size_of(type)
    cdef Map m
    m.number, m.type, m.n, m.option = number, type, n, option
    m.a = <const char*>address(a, itemsize)
    m.b = m.a if b is None else <const char*>address(b, itemsize)
    m.out = <char*>address(out, itemsize, True)
    m.nontemporal = n * itemsize > CACHE and <uintptr_t>m.out % 64 == 0 and number != ACCUMULATE
    if n < (HEAVY_WORK if operations[number].weight == HEAVY else LIGHT_WORK):
        threads = 1
    if n <= BLOCK:
        one_block(&m, 0)
    else:
        with nogil:
            parallel_for(one_block, &m, 0, ceil_div(n, BLOCK), SIGNAL_INTERVAL // BLOCK, threads)
