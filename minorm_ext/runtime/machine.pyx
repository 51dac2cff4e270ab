# cython: language_level=3, binding=False
"""Tells what this build has and what this processor can do. It runs before any kernel, so it suits every processor.

The build passes its findings as macros: MINORM_LEVELS names the instruction sets it compiled for, and MINORM_OPENMP
says that OpenMP passed the probe.

This module also counts threads. OpenMP ends the process when it cannot make a thread: when there is no room for its
stack, or beyond a limit on processes (ulimit -u, pids.max). So we accept a number of threads only if the system can
make that many, and kernels use more than one only once these exist. Each thread of the program has its own OpenMP
threads.
"""

cdef extern from "runtime/processors.h":
    void minorm_settle(int* processors, int me, int team) nogil

cdef extern from *:
    """
    #include <pthread.h>
    #ifdef MINORM_OPENMP
    #include <omp.h>
    static int minorm_openmp(void) { return _OPENMP; }
    /* The number of processors of this process. OpenMP counts them when it is loaded, before it binds the loading
       thread to one of them if OMP_PROC_BIND, OMP_PLACES or GOMP_CPU_AFFINITY ask for that. If the places have fewer
       processors, their number counts. */
    static int minorm_processors(void) {
        int processors = omp_get_num_procs();
    #if _OPENMP >= 201511
        int placed = 0;
        for (int i = 0; i < omp_get_num_places(); i++) placed += omp_get_place_num_procs(i);
        if (placed > 0 && placed < processors) processors = placed;
    #endif
        return processors;
    }
    static int minorm_pause(void) { return omp_pause_resource_all(omp_pause_hard); }
    static int minorm_team(int threads) {
        int team = 1;
        #pragma omp parallel num_threads(threads)
        {
            #pragma omp single
            team = omp_get_num_threads();
        }
        return team;
    }
    #else
    static int minorm_openmp(void) { return 0; }
    static int minorm_processors(void) { return 0; }
    static int minorm_pause(void) { return 0; }
    static int minorm_team(int threads) { return 1; }
    #endif

    static void *minorm_wait(void *gate) {
        pthread_mutex_lock(gate);
        pthread_mutex_unlock(gate);
        return NULL;
    }

    #define MINORM_MOST_THREADS 1024

    /* How many more threads the system can make, at most `threads`, so that all exist at the same time. */
    static int minorm_can_make(int threads) {
        pthread_t made[MINORM_MOST_THREADS];
        pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
        int count = 0;
        pthread_mutex_lock(&gate);
        if (threads > MINORM_MOST_THREADS) threads = MINORM_MOST_THREADS;
        while (count < threads && pthread_create(&made[count], NULL, minorm_wait, &gate) == 0) count++;
        pthread_mutex_unlock(&gate);
        for (int i = 0; i < count; i++) pthread_join(made[i], NULL);
        return count;
    }

    static __thread int minorm_sure = 1; /* the calling thread can surely use so many; each thread has its own team */

    static int minorm_threads(int wanted) {
        if (wanted <= minorm_sure) return wanted;
        if (minorm_can_make(wanted - 1) < wanted - 1) return 1;
        minorm_team(wanted); /* OpenMP finds the stacks of the threads that just ended */
        return minorm_sure = wanted;
    }

    #if defined(__clang__)
    #define MINORM_COMPILER "clang " __clang_version__
    #elif defined(__GNUC__)
    #define MINORM_COMPILER "gcc " __VERSION__
    #else
    #define MINORM_COMPILER "unknown"
    #endif

    #ifndef MINORM_LEVELS
    #define MINORM_LEVELS "baseline"
    #endif

    /* The levels of the x86-64 psABI, as far as compilers can ask; the builtin also asks whether the operating system
       saves the wide registers. Clang before 19 cannot ask for f16c, lzcnt and movbe; every processor with AVX2 has
       them. */
    #if defined(__x86_64__)
    static int minorm_has_v3(void) {
        __builtin_cpu_init();
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")
            && __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2")
    #if !defined(__clang__) && __GNUC__ >= 11
            && __builtin_cpu_supports("f16c") && __builtin_cpu_supports("lzcnt") && __builtin_cpu_supports("movbe")
    #endif
            ;
    }
    static int minorm_has_v4(void) {
        return minorm_has_v3() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw")
            && __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq")
            && __builtin_cpu_supports("avx512vl");
    }
    #else
    static int minorm_has_v3(void) { return 0; }
    static int minorm_has_v4(void) { return 0; }
    #endif

    /* Whether the processor and Linux support tiles that multiply bfloat16 and bytes; asking changes nothing.
       Linux also has to permit tiles to this process, since they add 8 KiB to the registers of a thread wherever these
       are saved. A process keeps the permission that it asked for, and its signal stacks must have room for them. */
    #if defined(__x86_64__) && defined(__linux__)
    #include <cpuid.h>
    #include <sys/syscall.h>
    #include <unistd.h>
    static int minorm_has_amx(void) {
        unsigned a, b, c, d;
        if (!minorm_has_v4() || !__get_cpuid_count(7, 0, &a, &b, &c, &d)) return 0;
        /* tiles, and their products of bfloat16 and of bytes */
        if (!(d >> 24 & 1) || !(d >> 22 & 1) || !(d >> 25 & 1)) return 0;
        unsigned long has = 0;
        return syscall(SYS_arch_prctl, 0x1021, &has) == 0 && (has >> 18 & 1); /* ARCH_GET_XCOMP_SUPP, the tiles' data */
    }
    static int minorm_permit_amx(void) {
        return syscall(SYS_arch_prctl, 0x1023, 18) == 0; /* ARCH_REQ_XCOMP_PERM */
    }
    #else
    static int minorm_has_amx(void) { return 0; }
    static int minorm_permit_amx(void) { return 0; }
    #endif
    """
    int minorm_openmp() nogil
    int minorm_processors() nogil
    int minorm_pause() nogil
    int minorm_team(int threads) nogil
    int minorm_can_make(int threads) nogil
    int minorm_threads(int wanted) nogil
    int minorm_sure
    int MINORM_MOST_THREADS
    int minorm_has_v3() nogil
    int minorm_has_v4() nogil
    int minorm_has_amx() nogil
    int minorm_permit_amx() nogil
    const char* MINORM_COMPILER
    const char* MINORM_LEVELS


def built_levels():
    """Return the instruction sets that this build compiled the kernels for, simplest first."""
    return tuple((<bytes>MINORM_LEVELS).decode().split())


def supports(str level):
    """Return whether this processor, under this operating system, has what kernels of that level need."""
    if level == "amx":
        return minorm_has_amx() != 0
    if level == "v4":
        return minorm_has_v4() != 0
    if level == "v3":
        return minorm_has_v3() != 0
    return level == "baseline"


def permits(str level):
    """Ask the operating system to let this process run kernels of that level: tiles need its permission.

    The processor must support the level. The process keeps the permission, so callers ask only for levels that may run.
    """
    return level != "amx" or minorm_permit_amx() != 0


def openmp():
    """Return the OpenMP version as its date, such as 201511; 0 in a serial build."""
    return minorm_openmp()


def processors():
    """Return how many processors OpenMP may use, wherever the calling thread is bound; 0 in a serial build."""
    return minorm_processors()


def compiler():
    """Return the name and version of the compiler that built the kernels."""
    return (<bytes>MINORM_COMPILER).decode().strip()


MOST_THREADS = MINORM_MOST_THREADS  # more than that are never used


def possible_threads(int n):
    """Return how many threads the calling thread can use, itself included: n, or fewer if the system refuses some."""
    cdef int made
    if n <= minorm_sure:
        return n
    with nogil:
        made = minorm_can_make(n - 1)
    return made + 1


cdef int threads = 1


def set_num_threads(int n):
    """Let kernels use n threads from now on."""
    global threads
    threads = n


def get_num_threads():
    """Return how many threads a kernel uses; minorm_ext/__init__.py sets the first number.

    It is 1 while the system refuses to make the others.
    """
    return minorm_threads(threads)


def end_threads():
    """End the calling thread's OpenMP workers; its next parallel loop starts new ones. Return whether that worked."""
    global minorm_sure
    minorm_sure = 1
    return minorm_pause() == 0


def team(int threads):
    """Return how many threads a parallel loop really gets when it asks for this many; always 1 in a serial build."""
    cdef int size
    with nogil:
        size = minorm_team(threads)
    return size


def settle(int other):
    """Start as the second of two threads, the first of which runs on processor `other`; return this one's processor."""
    cdef int[2] processors
    processors[0], processors[1] = other, -1
    minorm_settle(processors, 1, 2)
    return processors[1]
