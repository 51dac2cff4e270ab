# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# Numbered jobs on several threads: the one way in which kernels use threads, and answer Ctrl-C meanwhile.
#
#     cdef void one_row(const void* task, Py_ssize_t index) noexcept nogil:
#         (<const Task*>task).y[index] = ...
#
#     with nogil:
#         parallel_for(one_row, &task, 0, rows, per_round, threads)
#
# Every thread begins with a range of its own, the n-th with the n-th in every pass over the same data: what one pass
# leaves in a processor's cache is there in the next, and memory is read in order. Idle threads steal work, for other
# programs may hold up a thread at any time. Jobs do not depend on each other, so no bit depends on who does them.

from cpython.exc cimport PyErr_CheckSignals
from cython.parallel cimport parallel, threadid

cdef extern from * nogil:
    """
    typedef struct { ptrdiff_t next, end; } __attribute__((aligned(128))) minorm_job_range; /* cache lines of its own */
    static inline ptrdiff_t minorm_first_job(minorm_job_range *r) {
        return __atomic_load_n(&r->next, __ATOMIC_RELAXED);
    }
    static inline ptrdiff_t minorm_take_job(minorm_job_range *r) {
        return __atomic_fetch_add(&r->next, 1, __ATOMIC_RELAXED);
    }
    """
    ctypedef struct JobRange "minorm_job_range":
        Py_ssize_t next
        Py_ssize_t end
    Py_ssize_t minorm_first_job(JobRange* jobs) noexcept
    Py_ssize_t minorm_take_job(JobRange* jobs) noexcept

cdef enum:
    MAX_RANGES = 128  # threads beyond them have no range of their own and only steal
    NONE = -1

ctypedef void (*Job)(const void* task, Py_ssize_t index) noexcept nogil


cdef struct Jobs:
    JobRange[MAX_RANGES] ranges
    int count  # behind the last, where nobody writes: next to the first, every job would cost a trip between caches


cdef inline void split_jobs(Jobs* jobs, Py_ssize_t first, Py_ssize_t end, int threads) noexcept nogil:
    """Cut the jobs into a range for each thread."""
    cdef int i
    jobs.count = min(threads, <int>MAX_RANGES)
    for i in range(jobs.count):
        jobs.ranges[i].next = first + (end - first) * i // jobs.count
        jobs.ranges[i].end = first + (end - first) * (i + 1) // jobs.count


cdef inline Py_ssize_t next_job(Jobs* jobs) noexcept nogil:
    """The next job of this thread's range, or of the first range after it that is not done; NONE where all are."""
    cdef int i
    cdef Py_ssize_t job
    cdef JobRange* own
    for i in range(jobs.count):
        own = &jobs.ranges[(threadid() + i) % jobs.count]
        if minorm_first_job(own) < own.end:
            job = minorm_take_job(own)
            if job < own.end:
                return job
    return NONE


cdef inline int check_signals() except -1 nogil:
    """Answer Ctrl-C: KeyboardInterrupt, or whatever else a handler raises."""
    with gil:
        PyErr_CheckSignals()
    return 0


cdef inline void one_round(Job job, const void* task, Py_ssize_t first, Py_ssize_t end, int threads) noexcept nogil:
    """Jobs first .. end - 1, by so many threads."""
    cdef Jobs jobs
    cdef Py_ssize_t index = first
    if threads == 1 or end - first <= 1:
        while index < end:
            job(task, index)
            index += 1
        return
    split_jobs(&jobs, first, end, threads)
    with parallel(num_threads=threads):
        index = next_job(&jobs)
        while index != NONE:
            job(task, index)
            index = next_job(&jobs)


cdef inline int parallel_for(
    Job job, const void* task, Py_ssize_t first, Py_ssize_t end, Py_ssize_t per_round, int threads
) except -1 nogil:
    """job(task, index) for all first <= index < end, by so many threads; signals are checked every `per_round` jobs.

    How long Ctrl-C waits is the caller's choice: a round should take no more than 0.2 s. A job finds scratch memory of
    its own by threadid(), which is below `threads`.
    """
    cdef Py_ssize_t last
    while first < end:
        last = end if end - first <= per_round else first + max(<Py_ssize_t>1, per_round)
        one_round(job, task, first, last, threads)
        first = last
        if first < end:
            check_signals()
    return 0
