# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# Numbered jobs on several threads. All kernels use threads in this way alone, and check for Ctrl-C between rounds of
# jobs. jobs.h says which thread does which job.
#
#     cdef void one_row(const void* task, Py_ssize_t index) noexcept nogil:
#         (<const Task*>task).y[index] = ...
#
#     with nogil:
#         parallel_for(one_row, &task, 0, rows, per_round, threads)

from cpython.exc cimport PyErr_CheckSignals

ctypedef void (*Job)(const void* task, Py_ssize_t index) noexcept nogil

cdef extern from "runtime/jobs.h" nogil:
    int threadid "omp_get_thread_num"() noexcept  # the number of the thread that does this job
    void run_jobs "minorm_run_jobs"(Job job, const void* task, Py_ssize_t first, Py_ssize_t end, int threads) noexcept


cdef inline int check_signals() except -1 nogil:
    """Answer Ctrl-C: raise KeyboardInterrupt, or another exception that a handler raises."""
    with gil:
        PyErr_CheckSignals()
    return 0


cdef inline int parallel_for(
    Job job, const void* task, Py_ssize_t first, Py_ssize_t end, Py_ssize_t per_round, int threads
) except -1 nogil:
    """Call job(task, index) for all first <= index < end on these threads, and check signals every `per_round` jobs.

    The caller chooses how long Ctrl-C waits: a round should take no more than 0.2 s. A job finds its own scratch memory
    by threadid(), which is below `threads`.
    """
    cdef Py_ssize_t last
    while first < end:
        last = end if end - first <= per_round else first + max(<Py_ssize_t>1, per_round)
        run_jobs(job, task, first, last, threads)
        first = last
        if first < end:
            check_signals()
    return 0
