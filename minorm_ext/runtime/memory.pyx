# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False, binding=False
# A pool of reused buffers: an array that dies leaves its memory here for the next one.
#
# The operating system hands out fresh memory one page fault at a time and zeroes each page first. That costs up to ten
# times the arithmetic of an elementwise operation on a large tensor. A training step asks for the same sizes over and
# over, so the pool serves nearly every request after the first step. Its memory is 64-byte aligned, already mapped, and
# often still in cache.
#
# The pool gets address space from the system in regions, and only the touched parts of a region take memory. It cuts a
# region into chunks without gaps. A request takes the smallest idle chunk that is large enough and leaves the rest
# idle, and a chunk that becomes idle joins idle neighbours: best fit (Knuth, The Art of Computer Programming 1, section
# 2.5). The activations of a network halve from stage to stage, and their gradients come in the opposite order. With
# chunks of a fixed size, a training step held up to twice the memory that it used.
#
# A `Block` owns one chunk and is the base of the array in it. NumPy keeps the base alive as long as the array
# or any view exists; when the last of them dies, in any thread, the block's __dealloc__ makes its chunk idle. The pool
# touches its lists only while it holds the GIL, and runs no Python code meanwhile. So the lists need no separate lock,
# and a fork always sees them whole. Python without a GIL uses a mutex instead, and a fork waits for it.

from cpython.buffer cimport PyBuffer_FillInfo
from libc.stddef cimport size_t
from libc.stdint cimport uint64_t
from libc.stdlib cimport free, malloc
cimport cython

import numpy

cdef extern from "runtime/regions.h":
    const size_t MINORM_HUGE
    void* minorm_map(size_t bytes) noexcept
    void minorm_unmap(void* data, size_t bytes) noexcept
    void minorm_discard(char* data, size_t bytes) noexcept
    size_t minorm_region() noexcept

cdef extern from *:
    """
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
    int minorm_log2(uint64_t x) noexcept
    void minorm_enter() noexcept
    void minorm_leave() noexcept
    void minorm_watch_forks() noexcept


cdef struct Chunk:
    char* data
    Py_ssize_t bytes
    Py_ssize_t touched  # how many of its first bytes may be resident
    bint idle
    Chunk* before  # its neighbours in the region
    Chunk* after
    Chunk* below  # the next idle chunk of the same size class
    Chunk* above
    Chunk* older  # all idle chunks in the order they became idle
    Chunk* newer


cdef enum:
    SMALL = 4096  # below this NumPy's own allocator is as good, and a rest is not worth a chunk
    UNIT = 512  # the bytes of a chunk are a multiple of this
    FIRST = 12  # log2(SMALL): where size classes start
    CLASSES = (48 - FIRST) * 8  # eight classes a doubling, up to 2^48 bytes
    LOOKS = 32  # a request looks at this many idle chunks of a class at most, which bounds its cost

cdef Chunk* idle[CLASSES]
minorm_watch_forks()

cdef Chunk* oldest = NULL
cdef Chunk* newest = NULL
cdef Py_ssize_t limit_bytes = <Py_ssize_t>1 << 30
cdef Py_ssize_t used_bytes = 0
cdef Py_ssize_t idle_bytes = 0  # bytes of idle chunks that may be resident
cdef Py_ssize_t peak_bytes = 0
cdef Py_ssize_t reused_count = 0
cdef Py_ssize_t fresh_count = 0


cdef inline int size_class_of(Py_ssize_t bytes) noexcept:
    """Return the size class: there are eight between a power of two and the next. Class 0 holds SMALL bytes."""
    if bytes <= SMALL:
        return 0
    cdef int power = minorm_log2(bytes - 1)
    return (power - FIRST) * 8 + (<int>((bytes - 1) >> (power - 3)) & 7) + 1


cdef inline void take_out(Chunk* chunk) noexcept:
    """Unlink an idle chunk from its class and from the order of age."""
    global oldest, newest, idle_bytes
    if chunk.above:
        chunk.above.below = chunk.below
    else:
        idle[size_class_of(chunk.bytes)] = chunk.below
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
    idle_bytes -= chunk.touched
    chunk.idle = False


cdef inline void put_in(Chunk* chunk) noexcept:
    """Make a chunk the first of its class to be reused (it may still be in cache) and the last to be released."""
    global oldest, newest, idle_bytes
    cdef int size_class = size_class_of(chunk.bytes)
    chunk.above = NULL
    chunk.below = idle[size_class]
    if chunk.below:
        chunk.below.above = chunk
    idle[size_class] = chunk
    chunk.newer = NULL
    chunk.older = newest
    if newest:
        newest.newer = chunk
    else:
        oldest = chunk
    newest = chunk
    idle_bytes += chunk.touched
    chunk.idle = True


cdef void shrink_to(Py_ssize_t bytes) noexcept:
    """Return idle memory to the system, the longest idle first, until no more than this many bytes are idle.

    With 0 bytes, also return the address space of regions without a chunk in use.
    """
    global idle_bytes
    cdef Chunk* chunk = oldest
    cdef Chunk* following
    cdef Py_ssize_t kept
    while chunk and (idle_bytes > bytes or bytes == 0):
        following = chunk.newer
        kept = max(0, chunk.touched - (idle_bytes - bytes))
        if kept == 0 and not chunk.before and not chunk.after:  # a whole region
            take_out(chunk)
            minorm_unmap(chunk.data, chunk.bytes)
            free(chunk)
        elif chunk.touched:
            minorm_discard(chunk.data + kept, chunk.touched - kept)
            idle_bytes -= chunk.touched - kept
            chunk.touched = kept
        chunk = following


cdef Chunk* smallest(Py_ssize_t bytes) noexcept:
    """Return the smallest idle chunk of at least this many bytes that a bounded search finds, or NULL."""
    cdef Chunk* found = NULL
    cdef Chunk* chunk
    cdef int size_class, looks
    for size_class in range(size_class_of(bytes), CLASSES):
        chunk = idle[size_class]
        looks = LOOKS
        while chunk and looks:
            if chunk.bytes >= bytes and (not found or chunk.bytes < found.bytes):
                found = chunk
            chunk = chunk.below
            looks -= 1
        if found:
            break
    return found


cdef Chunk* new_region(Py_ssize_t bytes) noexcept:
    """Map a region as one idle chunk: the usual size, or this many bytes if they are more. NULL without memory."""
    cdef Py_ssize_t least = (bytes + MINORM_HUGE - 1) // MINORM_HUGE * MINORM_HUGE
    cdef Py_ssize_t size = max(least, <Py_ssize_t>minorm_region())
    cdef Chunk* chunk = <Chunk*>malloc(sizeof(Chunk))
    if not chunk:
        return NULL
    chunk.data = <char*>minorm_map(size)
    if not chunk.data:
        size = least
        chunk.data = <char*>minorm_map(size)
    if not chunk.data:
        free(chunk)
        return NULL
    chunk.bytes = size
    chunk.touched = 0
    chunk.before = chunk.after = NULL
    put_in(chunk)
    return chunk


cdef void split(Chunk* chunk, Py_ssize_t bytes) noexcept:
    """Make the part of a chunk beyond these bytes a separate idle chunk, if it is large enough to be worth it."""
    if chunk.bytes - bytes < SMALL:
        return
    cdef Chunk* rest = <Chunk*>malloc(sizeof(Chunk))
    if not rest:
        return
    rest.data = chunk.data + bytes
    rest.bytes = chunk.bytes - bytes
    rest.touched = max(0, chunk.touched - bytes)
    rest.before = chunk
    rest.after = chunk.after
    if rest.after:
        rest.after.before = rest
    chunk.after = rest
    chunk.bytes = bytes
    put_in(rest)


cdef Chunk* joined(Chunk* first, Chunk* second) noexcept:
    """Join two neighbours, neither of them in a list, into one chunk."""
    if second.touched:
        first.touched = first.bytes + second.touched
    first.bytes += second.bytes
    first.after = second.after
    if first.after:
        first.after.before = first
    free(second)
    return first


cdef Chunk* obtain(Py_ssize_t bytes) noexcept:
    """Return a chunk for an array of this many bytes, or NULL."""
    global used_bytes, peak_bytes, reused_count, fresh_count
    cdef Chunk* chunk
    if bytes > <Py_ssize_t>1 << 47:
        return NULL
    bytes = (bytes + UNIT - 1) // UNIT * UNIT
    chunk = smallest(bytes)
    if not chunk:
        chunk = new_region(bytes)
    if not chunk:
        shrink_to(0)
        chunk = new_region(bytes)
    if not chunk:
        return NULL
    take_out(chunk)
    split(chunk, bytes)
    if chunk.touched >= bytes:
        reused_count += 1
    else:
        fresh_count += 1
    chunk.touched = chunk.bytes
    used_bytes += chunk.bytes
    if used_bytes > peak_bytes:
        peak_bytes = used_bytes
    return chunk


cdef void give_back(Chunk* chunk) noexcept:
    """Make a chunk idle and join it to its idle neighbours.

    The memory of a chunk that is larger than the limit for idle memory returns to the system.
    """
    global used_bytes
    used_bytes -= chunk.bytes
    if chunk.bytes > limit_bytes:
        minorm_discard(chunk.data, chunk.bytes)
        chunk.touched = 0
    if chunk.before and chunk.before.idle:
        take_out(chunk.before)
        chunk = joined(chunk.before, chunk)
    if chunk.after and chunk.after.idle:
        take_out(chunk.after)
        chunk = joined(chunk, chunk.after)
    put_in(chunk)
    shrink_to(limit_bytes)


@cython.final
@cython.freelist(64)
cdef class Block:
    """Owns one piece of pooled memory, and is the base of the array in it."""
    cdef Chunk* chunk

    def __cinit__(self):
        self.chunk = NULL

    def __getbuffer__(self, Py_buffer* view, int flags):
        PyBuffer_FillInfo(view, self, self.chunk.data, self.chunk.bytes, 0, flags)

    def __dealloc__(self):
        if self.chunk is NULL:
            return
        minorm_enter()
        give_back(self.chunk)
        minorm_leave()


cdef object array_type = numpy.ndarray
cdef object dtype_type = numpy.dtype
cdef object numpy_empty = numpy.empty
cdef object numpy_empty_like = numpy.empty_like


cdef Block new_block(Py_ssize_t bytes):
    cdef Block block = Block.__new__(Block)
    minorm_enter()
    block.chunk = obtain(bytes)
    minorm_leave()
    if block.chunk is NULL:
        raise MemoryError(
            f"empty: cannot allocate {bytes:,} bytes; {used_bytes:,} bytes are in use by other arrays of the pool; "
            "free some tensors or use a smaller batch"
        )
    return block


def empty(shape, dtype):
    """Make an uninitialised C-ordered array, 64-byte aligned, if possible in the memory of an earlier array."""
    if type(dtype) is not dtype_type and not isinstance(dtype, dtype_type):
        dtype = numpy.dtype(dtype)
    cdef tuple dimensions = shape if type(shape) is tuple else tuple(shape) if hasattr(shape, "__len__") else (shape,)
    cdef Py_ssize_t bytes = dtype.itemsize
    cdef Py_ssize_t size
    for size in dimensions:
        if size <= 0 or bytes > (<Py_ssize_t>1 << 62) // size:
            return numpy_empty(dimensions, dtype)  # nothing to store, or a mistake that NumPy reports itself
        bytes *= size
    if bytes < SMALL or dtype.hasobject:
        return numpy_empty(dimensions, dtype)
    return array_type(dimensions, dtype, new_block(bytes))


def empty_like(x):
    """Make an uninitialised array with the shape, element type and memory order (NumPy's "K") of `x`."""
    if x.flags.c_contiguous:
        return empty(x.shape, x.dtype)
    cdef Py_ssize_t bytes = x.nbytes
    if bytes < SMALL or x.dtype.hasobject:
        return numpy_empty_like(x, subok=False)
    return array_type(x.shape, x.dtype, new_block(bytes), 0, dense_strides(x))


cdef tuple dense_strides(x):
    """Return strides without gaps, with the axes from outer to inner in the same order as those of `x`."""
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
    """Keep at most this many idle bytes from now on, and return the rest to the system."""
    global limit_bytes
    if bytes < 0:
        raise ValueError(f"set_limit: bytes={bytes}; expected a number of bytes >= 0")
    minorm_enter()
    limit_bytes = bytes
    shrink_to(bytes)
    minorm_leave()


def statistics():
    """Return the bytes in use, the idle bytes, their limit, the peak, and the numbers of reused and fresh chunks."""
    return {
        "used_bytes": used_bytes,
        "idle_bytes": idle_bytes,
        "limit_bytes": limit_bytes,
        "peak_bytes": peak_bytes,
        "reused": reused_count,
        "fresh": fresh_count,
    }
