# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False, binding=False
# Uniform numbers and dropout, made from numbered blocks (simd/philox.h): element i uses word i.
#
# A word of 32 bits is half of a word of 64 bits, the lower half first, as in NumPy. No element depends on another, so
# neither the number of threads nor the device can change a bit.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t, uintptr_t

from minorm_ext.runtime.buffers cimport address
from minorm_ext.runtime.jobs cimport parallel_for
from minorm_ext.runtime.numbers cimport ceil_div, real
from minorm_ext.simd.storage cimport DOUBLE, SINGLE, Type, narrow, nt_copy, nt_fence, prefetch, size_of, widen

cdef extern from "simd/philox.h" nogil:
    ctypedef struct Blocks "minorm_blocks":
        uint64_t before, rank
        uint64_t[2] key
    ctypedef uint32_t HalfWord "minorm_half_word"
    void philox_words "minorm_philox_words"(
        const Blocks* blocks, uint64_t first, Py_ssize_t count, uint64_t* words
    ) noexcept

cdef enum:
    PIECE = 256  # elements at once: their words and their results stay in the first-level cache
    BLOCK = 8192  # elements of a job
    PREFETCH_DISTANCE = 4096  # bytes from the computed data to the prefetched data
    SIGNAL_INTERVAL = 1 << 24  # elements between two checks of signals
    WORK = 1 << 15  # elements from which a second thread pays
    LIGHT_WORK = 1 << 18  # elements from which a second thread pays if no words are made
    CACHE = 8 << 20  # an output of more bytes is written around the cache


cdef struct Draw:  # what all jobs of a call share
    Blocks blocks
    Type type
    const char* x  # NULL: uniform numbers
    uint8_t* kept  # which elements of x
    bint decide  # True: choose the kept elements now, those whose word is at least `limit`
    uint32_t limit
    double factor  # of those that are kept
    char* out
    Py_ssize_t n
    bint nontemporal


cdef inline void uniform_piece(const Draw* d, const uint64_t* words, void* out, Py_ssize_t n) noexcept nogil:
    """Turn the upper 24 or 53 bits of each word, as many as a float or a double holds, into a fraction."""
    cdef const HalfWord* halves = <const HalfWord*>words
    cdef Py_ssize_t i
    if d.type == SINGLE:
        for i in range(n):
            (<float*>out)[i] = <float><int32_t>(halves[i] >> 8) * <float>(1.0 / (1 << 24))
    else:
        for i in range(n):
            (<double*>out)[i] = <double><int64_t>(words[i] >> 11) * (1.0 / (<int64_t>1 << 53))


cdef inline void decide_piece(const HalfWord* words, uint32_t limit, uint8_t* kept, Py_ssize_t n) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(n):
        kept[i] = words[i] >= limit


cdef inline void keep(const real* x, const uint8_t* kept, real* out, Py_ssize_t n, real factor) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(n):
        out[i] = x[i] * (factor if kept[i] else <real>0)


cdef inline void keep_piece(
    const Draw* d, const char* x, const uint8_t* kept, void* out, Py_ssize_t n
) noexcept nogil:
    """Compute some elements in float or double, and round once."""
    cdef float[PIECE] wide
    if d.type == SINGLE:
        keep(<const float*>x, kept, <float*>out, n, <float>d.factor)
    elif d.type == DOUBLE:
        keep(<const double*>x, kept, <double*>out, n, d.factor)
    else:
        widen(d.type, x, <float*>wide, n)
        keep(<const float*>wide, kept, <float*>wide, n, <float>d.factor)
        narrow(d.type, <const float*>wide, out, n)


cdef void one_job(const void* task, Py_ssize_t index) noexcept nogil:
    cdef const Draw* d = <const Draw*>task
    cdef uint64_t[PIECE] words
    cdef double[PIECE] piece
    cdef int itemsize = size_of(d.type)
    cdef int a_block = 4 if d.x == NULL and d.type == DOUBLE else 8  # elements that a block has words for
    cdef Py_ssize_t i = index * BLOCK
    cdef Py_ssize_t end = min(d.n, i + BLOCK)
    cdef Py_ssize_t n
    cdef char* out
    while i < end:
        n = min(<Py_ssize_t>PIECE, end - i)
        if d.decide or d.x == NULL:
            philox_words(&d.blocks, i // a_block, ceil_div(n, a_block), words)
        out = <char*>piece if d.nontemporal else d.out + i * itemsize
        if d.x == NULL:
            uniform_piece(d, words, out, n)
        else:
            prefetch(d.x + i * itemsize + PREFETCH_DISTANCE, n * itemsize)
            if d.decide:
                decide_piece(<const HalfWord*>words, d.limit, d.kept + i, n)
            keep_piece(d, d.x + i * itemsize, d.kept + i, out, n)
        if d.nontemporal:
            nt_copy(d.out + i * itemsize, piece, n * itemsize)
        i += n
    if d.nontemporal:
        nt_fence()


cdef int run(Draw* d, object out, int threads) except -1:
    cdef int itemsize = size_of(d.type)
    cdef Py_ssize_t work = WORK if d.decide or d.x == NULL else LIGHT_WORK
    d.out = <char*>address(out, itemsize, True, d.n)
    d.nontemporal = d.n * itemsize > CACHE and <uintptr_t>d.out % 64 == 0
    with nogil:
        parallel_for(
            one_job, d, 0, ceil_div(d.n, BLOCK), SIGNAL_INTERVAL // BLOCK, 1 if d.n < work else threads
        )
    return 0


def uniform(
    object out, Py_ssize_t n, Type type, uint64_t before, uint64_t rank, uint64_t key, uint64_t key_too, int threads
):
    """out[i] = a number on [0, 1) made from word i: 32 bits for a float, 64 for a double."""
    cdef Draw d
    d.type, d.n, d.x = type, n, NULL
    d.blocks = Blocks(before, rank, [key, key_too])
    run(&d, out, threads)


def dropout(
    object x, object kept, object out, Py_ssize_t n, Type type, uint32_t limit, double factor, uint64_t before,
    uint64_t rank, uint64_t key, uint64_t key_too, int threads
):
    """kept[i] = word i, of 32 bits, is at least `limit`; out[i] = x[i] * factor where that is true, else x[i] * 0."""
    cdef Draw d
    d.type, d.n, d.factor, d.limit, d.decide = type, n, factor, limit, True
    d.x = <const char*>address(x, size_of(type), False, n)
    d.kept = <uint8_t*>address(kept, 1, True, n)
    d.blocks = Blocks(before, rank, [key, key_too])
    run(&d, out, threads)


def keep_some(object x, object kept, object out, Py_ssize_t n, Type type, double factor, int threads):
    """out[i] = x[i] * factor where kept[i], else x[i] * 0."""
    cdef Draw d
    d.type, d.n, d.factor, d.decide = type, n, factor, False
    d.x = <const char*>address(x, size_of(type), False, n)
    d.kept = <uint8_t*>address(kept, 1, False, n)
    run(&d, out, threads)
