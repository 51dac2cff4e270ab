# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False, binding=False
# Maps over dense arrays: out[i] = f(a[i], b[i], option), one operation a line (operations.inc.h), one driver for all.
#
# Every operation is a loop over one block of elements, compiled for float and double and vectorised by gcc. The driver
# walks the blocks, over several threads when there is enough work, and writes around the cache when the output is
# larger than the cache. It widens 16 bits to float some elements at a time, and rounds once. Calling through a pointer
# costs almost nothing here: a block takes microseconds. No element depends on another, so results cannot depend on the
# number of threads.

from libc.stdint cimport uintptr_t
from libc.string cimport memcpy

from minorm_ext.runtime.buffers cimport address
from minorm_ext.runtime.jobs cimport parallel_for, threadid
from minorm_ext.runtime.numbers cimport ceil_div
from minorm_ext.simd.storage cimport DOUBLE, SINGLE, Type, narrow, size_of, widen

cdef extern from "elementwise/operations.h" nogil:
    enum:
        HEAVY
        OPERATION_COUNT
    ctypedef struct Operation "operation":
        const char* name
        void (*in_float)(const float* a, const float* b, float* y, Py_ssize_t n, float option) noexcept nogil
        void (*in_double)(const double* a, const double* b, double* y, Py_ssize_t n, double option) noexcept nogil
        int weight
    const Operation* operations
    enum:
        COLUMNS "EPILOGUE_COLUMNS"
    void minorm_epilogue(const float* row, float* y, Py_ssize_t n)

cdef extern from "simd/stream.h" nogil:
    void minorm_nt_copy(void* to, const void* source, size_t bytes) noexcept
    void minorm_nt_fence() noexcept
    void minorm_prefetch(const void* source, Py_ssize_t bytes) noexcept

numbers = {operations[i].name.decode(): i for i in range(OPERATION_COUNT)}  # name -> the first argument of `run`
cdef int ACCUMULATE = numbers["accumulate"]
cdef int COPY = numbers["copy"]

cdef enum:
    BLOCK = 8192  # elements; a multiple of every vector, so that blocks start aligned
    PIECE = 256  # elements that are computed in the first-level cache before they are stored around the caches
    PREFETCH_DISTANCE = 4096  # bytes from the computed data to the prefetched data, if results go around the cache
    SIGNAL_INTERVAL = 1 << 22  # elements between two checks of signals: at most 0.2 s of the slowest operation
    LIGHT_WORK = 1 << 18  # elements from which a second thread pays
    HEAVY_WORK = 1 << 16
    CACHE = 8 << 20  # an output of more bytes is written around the cache; it pays even if it is read next


cdef struct Map:  # what all blocks of a call share
    int number  # of the operation
    Type type
    const char* a
    const char* b  # a itself if there is no second operand
    char* out
    Py_ssize_t n
    double option
    bint nontemporal  # results go around the cache


cdef void sixteen_bits(const Map* m, const char* a, const char* b, char* out, Py_ssize_t n) noexcept nogil:
    """Compute some elements of float16 or bfloat16, in float in the innermost cache."""
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
    """Compute some elements, and store them in the output."""
    if m.number == COPY:
        memcpy(out, a, n * size_of(m.type))
    elif m.type == SINGLE:
        operations[m.number].in_float(<const float*>a, <const float*>b, <float*>out, n, <float>m.option)
    elif m.type == DOUBLE:
        operations[m.number].in_double(<const double*>a, <const double*>b, <double*>out, n, m.option)
    else:
        sixteen_bits(m, a, b, out, n)


cdef inline void around_the_cache(const Map* m, const char* a, const char* b, char* out, Py_ssize_t n) noexcept nogil:
    """Compute some elements a little at a time, and store them without reading their cache lines first."""
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

    The caller guarantees layout and `type` (minorm_ext/simd/storage.pxd). `out` may be `a` or `b` only in accumulate,
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


# ---- several operations, one after the other -----------------------------------------------------------------------
#
# A chain takes a block of elements through all its steps while the block is in the first cache, so that memory is read
# and written once. Every step is the loop of `run`, so the bits are those of separate maps, one after the other. 16
# bits are rounded after each step, as in separate maps.

cdef enum:
    MOST_STEPS = 16
    MOST_SOURCES = 40  # operands, 17 at most, and results of steps, 16 at most
    CHAIN_BLOCK = 2048  # elements of a block, about; a block has whole periods


cdef struct Step:
    int number  # of the operation
    int a  # the number of a source: an operand, or, after all operands, the scratch array of a step's result
    int b
    int y
    double option


cdef struct Chain:
    Step[MOST_STEPS] steps
    int count
    int operands
    int arrays  # of scratch memory for each thread
    Type type
    Py_ssize_t itemsize
    const char* source[MOST_SOURCES]
    Py_ssize_t[MOST_SOURCES] step  # from a block to the next; 0 where all blocks read the same elements
    char* scratch
    char* out
    Py_ssize_t n
    Py_ssize_t block  # elements
    bint nontemporal


cdef void one_chain(const void* task, Py_ssize_t index) noexcept nogil:
    cdef const Chain* c = <const Chain*>task
    cdef Py_ssize_t n = min(c.block, c.n - index * c.block)
    cdef Py_ssize_t bytes = c.block * c.itemsize
    cdef char* own = c.scratch + threadid() * c.arrays * bytes
    cdef char* out = c.out + index * bytes
    cdef char* at[MOST_SOURCES]
    cdef const Step* s
    cdef char* y = out
    cdef Map m
    cdef int i
    m.type = c.type
    for i in range(c.operands):
        at[i] = <char*>c.source[i] + index * c.step[i]
    for i in range(c.arrays):
        at[c.operands + i] = own + i * bytes
    for i in range(c.count):
        s = &c.steps[i]
        y = out if i == c.count - 1 and not c.nontemporal else at[s.y]
        m.number, m.option = s.number, s.option
        compute(&m, at[s.a], at[s.b], y, n)
    if c.nontemporal:
        minorm_nt_copy(out, y, n * c.itemsize)
        minorm_nt_fence()


cdef Py_ssize_t chain_block(Py_ssize_t period):
    return period * max(<Py_ssize_t>1, CHAIN_BLOCK // period)


def chain_scratch(Py_ssize_t operands, Py_ssize_t arrays, Py_ssize_t period, int threads):
    """Return how many numbers of scratch memory `chain` needs."""
    return chain_block(period) * (operands + threads * arrays)


def chain(
    tuple steps, int arrays, list operands, Py_ssize_t period, out, scratch, Py_ssize_t n, Type type, int threads
):
    """out = the result of the last step; each step is (operation, a, b, y, option), for the n elements of dense arrays.

    a, b and y are numbers of sources: the operands, and after them the scratch `arrays`. b equals a if a step has no
    second operand, and y equals neither. An operand is a pair: an array, and how many elements it has: n, `period`, or
    1. An operand with fewer than n is repeated. The caller guarantees layout and `type`.
    """
    cdef Chain c
    cdef Py_ssize_t itemsize = size_of(type)
    cdef Py_ssize_t bytes, filled, given
    cdef char* to
    cdef int i
    c.count, c.operands, c.arrays, c.n = len(steps), len(operands), arrays, n
    c.type, c.itemsize = type, itemsize
    if c.count > MOST_STEPS or arrays > c.count or c.count + c.operands > MOST_SOURCES:
        raise ValueError(f"chain: {c.count} steps on {c.operands} operands; expected at most {MOST_STEPS}")
    c.block = chain_block(period)
    bytes = c.block * itemsize
    to = <char*>address(scratch, itemsize, True, chain_scratch(c.operands, arrays, period, threads))
    for i in range(c.operands):
        array, given = operands[i]
        c.source[i] = <const char*>address(array, itemsize, False, given)
        c.step[i] = bytes
        if given != n:
            memcpy(to, c.source[i], given * itemsize)
            filled = given
            while filled < c.block:  # double the filled part until it fills the block
                memcpy(to + filled * itemsize, to, min(filled, c.block - filled) * itemsize)
                filled = min(2 * filled, c.block)
            c.source[i], c.step[i] = to, 0
            to += bytes
    for i in range(c.count):
        c.steps[i].number, c.steps[i].a, c.steps[i].b, c.steps[i].y, c.steps[i].option = steps[i]
    c.scratch = to
    c.out = <char*>address(out, itemsize, True, n)
    c.nontemporal = n * itemsize > CACHE and <uintptr_t>c.out % 64 == 0 and bytes % 64 == 0
    if n < HEAVY_WORK:
        threads = 1
    with nogil:
        parallel_for(one_chain, &c, 0, ceil_div(n, c.block), SIGNAL_INTERVAL // (c.block * c.count), threads)


# ---- the epilogue of a convolution of 16 bits ----------------------------------------------------------------------

cdef struct Finish:
    const char* source
    Type source_type  # float, or the result's type
    char* out
    Type type
    const float* table  # of minorm/kernels/epilogue.py, COLUMNS numbers a channel
    Py_ssize_t channels, size  # size: elements of a plane


cdef void one_plane(const void* task, Py_ssize_t index) noexcept nogil:
    """Finish one channel of one image: round it unless it is rounded, apply the table's row, and round again."""
    cdef const Finish* f = <const Finish*>task
    cdef float[PIECE] wide
    cdef char[2 * PIECE] rounded
    cdef const float* row = f.table + index % f.channels * COLUMNS
    cdef const char* source = f.source + index * f.size * size_of(f.source_type)
    cdef char* out = f.out + index * f.size * size_of(f.type)
    cdef const char* at
    cdef Py_ssize_t i = 0
    cdef Py_ssize_t count
    while i < f.size:
        count = min(<Py_ssize_t>PIECE, f.size - i)
        at = source + i * size_of(f.source_type)
        if f.source_type == SINGLE:
            narrow(f.type, <const float*>at, <char*>rounded, count)
            at = rounded
        widen(f.type, at, <float*>wide, count)
        minorm_epilogue(row, <float*>wide, count)
        narrow(f.type, <const float*>wide, out + i * size_of(f.type), count)
        i += count


def finish(source, Type source_type, table, out, Type type, Py_ssize_t planes, Py_ssize_t size, int threads):
    """out = the epilogue of `planes` planes of `size` elements each, rounded to `type` before and after it.

    table has a row for each channel, float32 (minorm/kernels/epilogue.py). `out` may be `source`. The caller
    guarantees layout and types.
    """
    cdef Finish f
    f.source_type, f.type, f.size = source_type, type, size
    f.channels = table.shape[0]
    f.table = <const float*>address(table, sizeof(float), False, f.channels * COLUMNS)
    f.source = <const char*>address(source, size_of(source_type), False, planes * size)
    f.out = <char*>address(out, size_of(type), True, planes * size)
    if planes * size < LIGHT_WORK:
        threads = 1
    with nogil:
        parallel_for(one_plane, &f, 0, planes, max(<Py_ssize_t>1, SIGNAL_INTERVAL // max(<Py_ssize_t>1, size)), threads)
