/* Numbered jobs on several threads: jobs.pxd says how kernels use them.
 *
 * Every thread begins with its own range of jobs: thread n with range n, in every pass over the same data. So each pass
 * finds in a processor's cache the data that the previous pass left there, and reads memory in order. Idle threads
 * steal work, because other programs may hold up a thread at any time. Jobs do not depend on each other, so no bit
 * depends on which thread does them.
 */
#ifndef MINORM_JOBS_H
#define MINORM_JOBS_H

#include <stddef.h>
#ifdef _OPENMP
#include <omp.h>
#else
static inline int omp_get_thread_num(void) { return 0; }
#endif
#include "runtime/processors.h"

#define MAX_RANGES 128 /* further threads have no range and only steal */

typedef void (*minorm_job)(const void *task, ptrdiff_t index);

typedef struct {
    ptrdiff_t next, end;
} __attribute__((aligned(128))) minorm_job_range; /* ranges share no cache lines */

typedef struct {
    minorm_job_range ranges[MAX_RANGES];
    int processors[MAX_RANGES]; /* where each thread started: processors.h */
    int count; /* not beside the first range: threads write to that, and every read of count would miss the cache */
} minorm_jobs;

/* Cut the jobs first .. end - 1 into a range for each thread. */
static inline void minorm_split_jobs(minorm_jobs *jobs, ptrdiff_t first, ptrdiff_t end, int threads) {
    jobs->count = threads < MAX_RANGES ? threads : MAX_RANGES;
    for (int i = 0; i < jobs->count; i++) {
        jobs->processors[i] = -1;
        jobs->ranges[i].next = first + (end - first) * i / jobs->count;
        jobs->ranges[i].end = first + (end - first) * (i + 1) / jobs->count;
    }
}

/* The next job of this thread's range, or of the first unfinished range after it; -1 if all ranges are done. */
static inline ptrdiff_t minorm_next_job(minorm_jobs *jobs) {
    for (int i = 0; i < jobs->count; i++) {
        minorm_job_range *range = &jobs->ranges[(omp_get_thread_num() + i) % jobs->count];
        if (__atomic_load_n(&range->next, __ATOMIC_RELAXED) < range->end) {
            const ptrdiff_t job = __atomic_fetch_add(&range->next, 1, __ATOMIC_RELAXED);
            if (job < range->end) return job;
        }
    }
    return -1;
}

/* Not inlined: the compiler would put a copy of every job into each of the two loops. */
#if defined(__clang__)
__attribute__((noinline))
#else
__attribute__((noipa))
#endif
static void minorm_run_jobs(minorm_job job, const void *task, ptrdiff_t first, ptrdiff_t end, int threads) {
    minorm_jobs jobs;
    if (threads == 1 || end - first <= 1) {
        for (ptrdiff_t index = first; index < end; index++) job(task, index);
        return;
    }
    minorm_split_jobs(&jobs, first, end, threads);
    minorm_settle(jobs.processors, 0, jobs.count); /* the first stays where its caller runs */
#pragma omp parallel num_threads(threads)
    {
        const int me = omp_get_thread_num();
        if (0 < me && me < jobs.count) minorm_settle(jobs.processors, me, jobs.count);
        for (ptrdiff_t index = minorm_next_job(&jobs); index >= 0; index = minorm_next_job(&jobs)) job(task, index);
    }
}

#endif
