# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False, binding=False
# A pool of reused buffers: an array that dies leaves its memory here for the next one of its size.
#
# The kernel hands out fresh memory one page fault at a time and zeroes each page first, which costs up to ten times the
# arithmetic of an elementwise operation on a large tensor. A training step asks for the same sizes over and over, so
# nearly every request after the first step is served from here: 64-byte aligned, already mapped, often still in cache.
#
# A `Block` owns one piece of memory and is the base of the array in it. NumPy keeps the base alive as long as the array
# or any view exists; when the last of them dies, in whatever thread, the block's __dealloc__ puts its memory
# on the free list of its size class. All lists are touched with the GIL held and without running any Python code, so
# they need no lock of their own, and a fork always sees them whole. Python without a GIL takes a mutex in its place,
# which a fork waits for.

from cpython.buffer cimport PyBuffer_FillInfo
from libc.stddef cimport size_t
from libc.stdint cimport uint64_t
from libc.stdlib cimport free, malloc
cimport cython

import numpy

cdef extern from *:
    """
    #include <stdlib.h>
    #include <stdint.h>
    #include <sys/mman.h>

    #define MINORM_HUGE ((size_t)2 << 20) /* one huge page: what larger memory is aligned to and cut in */

    /* Memory of this many bytes, or NULL. Large memory is mapped on its own: giving it back really returns it. */
    static void *minorm_acquire(size_t bytes) {
        if (bytes < MINORM_HUGE) {
            void *small = NULL;
            return posix_memalign(&small, 64, bytes) ? NULL : small;
        }
        char *start = mmap(NULL, bytes + MINORM_HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (start == MAP_FAILED) return NULL;
        size_t head = (size_t)(-(uintptr_t)start) & (MINORM_HUGE - 1); /* cut both ends off: what is left is aligned */
        if (head) munmap(start, head);
        munmap(start + head + bytes, MINORM_HUGE - head);
    #ifdef MADV_HUGEPAGE
        madvise(start + head, bytes, MADV_HUGEPAGE); /* advice: without huge pages everything still works */
    #endif
        return start + head;
    }

    static void minorm_release(void *data, size_t bytes) {
        if (bytes < MINORM_HUGE) free(data);
        else munmap(data, bytes);
    }

    #define minorm_log2(x) (63 - __builtin_clzll(x))

    #ifdef Py_GIL_DISABLED
    #include <pthread.h>
    static pthread_mutex_t minorm_pool = PTHREAD_MUTEX_INITIALIZER; /* the lists and their counts */
    static void minorm_enter(void) { pthread_mutex_lock(&minorm_pool); }
    static void minorm_leave(void) { pthread_mutex_unlock(&minorm_pool); }
    static void minorm_watch_forks(void) { pthread_atfork(minorm_enter, minorm_leave, minorm_leave); }
    #else
    static void minorm_enter(void) {}
    static void minorm_leave(void) {}
    static void minorm_watch_forks(void) {}
    #endif
    """
    void minorm_enter() noexcept
    void minorm_leave() noexcept
    void minorm_watch_forks() noexcept
    void* minorm_acquire(size_t bytes) noexcept
    void minorm_release(void* data, size_t bytes) noexcept
    int minorm_log2(uint64_t x) noexcept


cdef struct Chunk:
    char* data
    Py_ssize_t bytes
    int size_class
    Chunk* below  # the next idle chunk of the same class
    Chunk* above
    Chunk* older  # idle chunks of all classes in the order they became idle
    Chunk* newer


cdef enum:
    SMALL = 4096  # below this NumPy's own allocator is as good
    FIRST = 12  # log2(SMALL): where size classes start
    CLASSES = (48 - FIRST) * 8  # eight classes a doubling, up to 2^48 bytes
    # Classes in which a request looks for idle memory, up to twice its size. The activations of a network halve from
    # stage to stage: with chunks of one class alone a training step held twice what it used, and with four times the
    # size large chunks went to small requests, and more was held again.
    REACH = 9

cdef Chunk* idle[CLASSES]
minorm_watch_forks()

cdef Chunk* oldest = NULL
cdef Chunk* newest = NULL
cdef Py_ssize_t limit_bytes = <Py_ssize_t>1 << 30
cdef Py_ssize_t used_bytes = 0
cdef Py_ssize_t idle_bytes = 0
cdef Py_ssize_t peak_bytes = 0
cdef Py_ssize_t reused_count = 0
cdef Py_ssize_t fresh_count = 0


cdef inline int size_class_of(Py_ssize_t bytes) noexcept:
    """Eight classes between a power of two and the next: fresh chunks waste at most an eighth. 0 holds SMALL bytes."""
    if bytes <= SMALL:
        return 0
    cdef int power = minorm_log2(bytes - 1)
    return (power - FIRST) * 8 + (<int>((bytes - 1) >> (power - 3)) & 7) + 1


cdef inline Py_ssize_t class_bytes(int size_class) noexcept:
    """The bytes of the largest array in this class: a multiple of 512, and of the page where memory is mapped."""
    if size_class == 0:
        return SMALL
    return <Py_ssize_t>(9 + (size_class - 1) % 8) << ((size_class - 1) // 8 + FIRST - 3)


cdef inline void take_out(Chunk* chunk) noexcept:
    """Unlink an idle chunk from its class and from the order of age."""
    global oldest, newest, idle_bytes
    if chunk.above:
        chunk.above.below = chunk.below
    else:
        idle[chunk.size_class] = chunk.below
    if chunk.below:
        chunk.below.above = chunk.above
    if chunk.older:
        chunk.older.newer = chunk.newer
    else:
        oldest = chunk.newer
    if chunk.newer:
        chunk.newer.older = chunk.older
    else:
        newest = chunk.older
    idle_bytes -= chunk.bytes


cdef inline void put_in(Chunk* chunk) noexcept:
    """Make a chunk the first of its class to be reused (it may still be in cache) and the last to be released."""
    global oldest, newest, idle_bytes
    chunk.above = NULL
    chunk.below = idle[chunk.size_class]
    if chunk.below:
        chunk.below.above = chunk
    idle[chunk.size_class] = chunk
    chunk.newer = NULL
    chunk.older = newest
    if newest:
        newest.newer = chunk
    else:
        oldest = chunk
    newest = chunk
    idle_bytes += chunk.bytes


cdef void shrink_to(Py_ssize_t bytes) noexcept:
    """Release idle chunks, oldest first, until no more than this many bytes are idle."""
    cdef Chunk* chunk
    while idle_bytes > bytes and oldest:
        chunk = oldest
        take_out(chunk)
        minorm_release(chunk.data, chunk.bytes)
        free(chunk)


cdef Chunk* obtain(Py_ssize_t bytes, int reach) noexcept:
    """A chunk for an array of this many bytes: an idle one, else a fresh one, else NULL.

    The smallest idle one is taken of its own class and the next ones, `reach` in all.
    """
    global used_bytes, peak_bytes, reused_count, fresh_count
    cdef int size_class = size_class_of(bytes)
    if size_class >= CLASSES:
        return NULL
    cdef Chunk* chunk = NULL
    cdef int larger
    for larger in range(size_class, min(size_class + reach, CLASSES)):
        chunk = idle[larger]
        if chunk:
            break
    if chunk:
        take_out(chunk)
        reused_count += 1
    else:
        chunk = <Chunk*>malloc(sizeof(Chunk))
        if not chunk:
            return NULL
        chunk.size_class = size_class
        chunk.bytes = class_bytes(size_class)
        chunk.data = <char*>minorm_acquire(chunk.bytes)
        if not chunk.data:
            shrink_to(0)
            chunk.data = <char*>minorm_acquire(chunk.bytes)
        if not chunk.data:
            free(chunk)
            return NULL
        fresh_count += 1
    used_bytes += chunk.bytes
    if used_bytes > peak_bytes:
        peak_bytes = used_bytes
    return chunk


@cython.final
@cython.freelist(64)
cdef class Block:
    """Owner of one piece of pooled memory; the base of the array in it."""
    cdef Chunk* chunk

    def __cinit__(self):
        self.chunk = NULL

    def __getbuffer__(self, Py_buffer* view, int flags):
        PyBuffer_FillInfo(view, self, self.chunk.data, self.chunk.bytes, 0, flags)

    def __dealloc__(self):
        global used_bytes
        cdef Chunk* chunk = self.chunk
        if chunk is NULL:
            return
        minorm_enter()
        used_bytes -= chunk.bytes
        if chunk.bytes > limit_bytes:
            minorm_release(chunk.data, chunk.bytes)
            free(chunk)
        else:
            shrink_to(limit_bytes - chunk.bytes)
            put_in(chunk)
        minorm_leave()


cdef object array_type = numpy.ndarray
cdef object dtype_type = numpy.dtype
cdef object numpy_empty = numpy.empty
cdef object numpy_empty_like = numpy.empty_like


cdef Block new_block(Py_ssize_t bytes, int reach=REACH):
    cdef Block block = Block.__new__(Block)
    minorm_enter()
    block.chunk = obtain(bytes, reach)
    minorm_leave()
    if block.chunk is NULL:
        raise MemoryError(
            f"empty: cannot allocate {bytes:,} bytes; {used_bytes:,} bytes are in use by other arrays of the pool; "
            "free some tensors or use a smaller batch"
        )
    return block


cdef object array_of(shape, dtype, int reach):
    if type(dtype) is not dtype_type and not isinstance(dtype, dtype_type):
        dtype = numpy.dtype(dtype)
    cdef tuple dimensions = shape if type(shape) is tuple else tuple(shape) if hasattr(shape, "__len__") else (shape,)
    cdef Py_ssize_t bytes = dtype.itemsize
    cdef Py_ssize_t size
    for size in dimensions:
        if size <= 0 or bytes > (<Py_ssize_t>1 << 62) // size:
            return numpy_empty(dimensions, dtype)  # nothing to store, or a mistake that NumPy words itself
        bytes *= size
    if bytes < SMALL or dtype.hasobject:
        return numpy_empty(dimensions, dtype)
    return array_type(dimensions, dtype, new_block(bytes, reach))


def empty(shape, dtype):
    """An uninitialised C-ordered array, 64-byte aligned, in memory that an earlier array left behind where possible."""
    return array_of(shape, dtype, REACH)


def scratch(shape, dtype):
    """`empty` for what dies with the kernel that asks for it, which may borrow idle memory of any size."""
    return array_of(shape, dtype, CLASSES)


def empty_like(x):
    """An uninitialised array of the shape, element type and memory order (NumPy's "K") of `x`."""
    if x.flags.c_contiguous:
        return empty(x.shape, x.dtype)
    cdef Py_ssize_t bytes = x.nbytes
    if bytes < SMALL or x.dtype.hasobject:
        return numpy_empty_like(x, subok=False)
    return array_type(x.shape, x.dtype, new_block(bytes), 0, dense_strides(x))


cdef tuple dense_strides(x):
    """Strides without gaps, whose axes go from outer to inner in the order of those of `x`."""
    cdef tuple shape = x.shape
    cdef Py_ssize_t[64] steps  # NumPy arrays have at most 64 axes
    cdef int[64] order
    cdef int rank = len(shape)
    cdef int axis, place
    cdef Py_ssize_t step
    for axis, step in enumerate(x.strides):
        steps[axis] = step if step >= 0 else -step
        place = axis
        while place > 0 and steps[order[place - 1]] < steps[axis]:  # insertion keeps equal steps in their order
            order[place] = order[place - 1]
            place -= 1
        order[place] = axis
    step = x.itemsize
    for place in range(rank - 1, -1, -1):
        steps[order[place]] = step
        step *= <Py_ssize_t>shape[order[place]]
    return tuple([steps[axis] for axis in range(rank)])


def empty_cache():
    """Give all idle memory back to the system."""
    minorm_enter()
    shrink_to(0)
    minorm_leave()


def set_limit(Py_ssize_t bytes):
    """Let at most this many bytes lie idle."""
    global limit_bytes
    if bytes < 0:
        raise ValueError(f"set_limit: bytes={bytes}; expected a number of bytes >= 0")
    minorm_enter()
    limit_bytes = bytes
    shrink_to(bytes)
    minorm_leave()


def statistics():
    """Bytes in use, idle, at most idle and at the peak of use; how many requests found idle memory or needed fresh."""
    return {
        "used_bytes": used_bytes,
        "idle_bytes": idle_bytes,
        "limit_bytes": limit_bytes,
        "peak_bytes": peak_bytes,
        "reused": reused_count,
        "fresh": fresh_count,
    }
