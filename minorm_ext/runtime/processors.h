/* Moves the threads of a team to separate processors.
 *
 * Linux may wake a sleeping worker on the processor of its team's first thread, and leave it there for milliseconds.
 * Then the two take turns, and the first waits at the end of each loop for a worker that it keeps from running. So a
 * thread that starts on the processor of another thread of its team moves to a processor that the team does not use.
 * The set of processors that it may use stays the same, and a bound thread (OMP_PROC_BIND, taskset) stays where it is.
 * docs/adr/0009-threads-move-apart.md has figures.
 */
#ifndef MINORM_PROCESSORS_H
#define MINORM_PROCESSORS_H

#ifdef __linux__
#include <sched.h>

/* Move from `here` to a processor that this thread may use and no thread of the team uses, and return it; `processors`
 * has -1 for a thread whose processor is not known yet. */
static int minorm_move(int here, const int *processors, int team) {
    cpu_set_t allowed, free;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return here; /* more processors than a cpu_set_t holds */
    free = allowed;
    for (int i = 0; i < team; i++) {
        const int taken = __atomic_load_n(&processors[i], __ATOMIC_RELAXED);
        if (taken >= 0) CPU_CLR(taken, &free);
    }
    if (CPU_COUNT(&free) == 0 || sched_setaffinity(0, sizeof free, &free) != 0) return here;
    here = sched_getcpu();
    sched_setaffinity(0, sizeof allowed, &allowed);
    return here;
}

/* Start thread `me` of the team, and store its processor in processors[me]. */
static inline void minorm_settle(int *processors, int me, int team) {
    int here = sched_getcpu(), shared = 0;
    for (int i = 0; i < team; i++) shared |= i != me && __atomic_load_n(&processors[i], __ATOMIC_RELAXED) == here;
    if (shared) here = minorm_move(here, processors, team);
    __atomic_store_n(&processors[me], here, __ATOMIC_RELAXED);
}
#else
static inline void minorm_settle(int *processors, int me, int team) {
    (void)processors, (void)me, (void)team;
}
#endif

#endif
