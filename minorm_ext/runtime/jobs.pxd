# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# Jobs, numbered, and who does them. Every thread begins with a stretch of its own, the n-th with the n-th in every pass
# over the same data: what one pass leaves in a processor's cache is there in the next, and memory is read in order. Who
# is done helps those who are not, for other programs may hold up a thread at any time. Jobs do not depend on each
# other, so no bit depends on who does them.
#
#     deal(&dealt, first, end, threads)
#     with parallel(num_threads=threads):
#         job = take(&dealt)
#         while job != NONE:
#             ...
#             job = take(&dealt)

from cpython.exc cimport PyErr_CheckSignals
from cython.parallel cimport threadid

cdef extern from * nogil:
    """
    typedef struct { ptrdiff_t next, end; } __attribute__((aligned(128))) minorm_stretch; /* lines of its own */
    static inline ptrdiff_t minorm_next(minorm_stretch *s) { return __atomic_load_n(&s->next, __ATOMIC_RELAXED); }
    static inline ptrdiff_t minorm_take(minorm_stretch *s) { return __atomic_fetch_add(&s->next, 1, __ATOMIC_RELAXED); }
    """
    ctypedef struct Stretch "minorm_stretch":
        Py_ssize_t next
        Py_ssize_t end
    Py_ssize_t minorm_next(Stretch* stretch) noexcept
    Py_ssize_t minorm_take(Stretch* stretch) noexcept

cdef enum:
    MOST = 128  # stretches: threads beyond them only help
    NONE = -1


cdef struct Jobs:
    Stretch[MOST] left
    int stretches  # behind the last, where nobody writes: next to the first, every job would cost a trip between caches


cdef inline void deal(Jobs* jobs, Py_ssize_t first, Py_ssize_t end, int threads) noexcept nogil:
    """Cut the jobs into a stretch for each thread."""
    cdef int i
    jobs.stretches = min(threads, <int>MOST)
    for i in range(jobs.stretches):
        jobs.left[i].next = first + (end - first) * i // jobs.stretches
        jobs.left[i].end = first + (end - first) * (i + 1) // jobs.stretches


cdef inline Py_ssize_t take(Jobs* jobs) noexcept nogil:
    """The next job of this thread's stretch, or of the first after it that is not done; NONE where all are taken."""
    cdef int i
    cdef Py_ssize_t job
    cdef Stretch* stretch
    for i in range(jobs.stretches):
        stretch = &jobs.left[(threadid() + i) % jobs.stretches]
        if minorm_next(stretch) < stretch.end:
            job = minorm_take(stretch)
            if job < stretch.end:
                return job
    return NONE


cdef inline int look() except -1 nogil:
    """Answer Ctrl-C, between some jobs and the next."""
    with gil:
        PyErr_CheckSignals()
    return 0
