# cython: language_level=3, binding=False
"""What this build has and what this processor can: asked before any other kernel, so built for every processor.

The build bakes its findings in as macros: MINORM_LEVELS names the instruction sets it compiled for, MINORM_OPENMP
says that OpenMP passed the probe.
"""

cdef extern from *:
    """
    #ifdef MINORM_OPENMP
    #include <omp.h>
    static int minorm_openmp(void) { return _OPENMP; }
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
    static int minorm_pause(void) { return 0; }
    static int minorm_team(int threads) { return 1; }
    #endif

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
       saves the wide registers. Clang before 19 cannot ask for f16c, lzcnt and movbe; no processor has AVX2 without. */
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
    """
    int minorm_openmp() nogil
    int minorm_pause() nogil
    int minorm_team(int threads) nogil
    int minorm_has_v3() nogil
    int minorm_has_v4() nogil
    const char* MINORM_COMPILER
    const char* MINORM_LEVELS


def built_levels():
    """The instruction sets this build compiled the kernels for, simplest first."""
    return tuple((<bytes>MINORM_LEVELS).decode().split())


def supports(str level):
    """Can this processor, under this operating system, run kernels of that level?"""
    if level == "v4":
        return minorm_has_v4() != 0
    if level == "v3":
        return minorm_has_v3() != 0
    return level == "baseline"


def openmp():
    """The OpenMP version as its date, 201511 say; 0 in a serial build."""
    return minorm_openmp()


def compiler():
    """Name and version of the compiler that built the kernels."""
    return (<bytes>MINORM_COMPILER).decode().strip()


def end_threads():
    """End the calling thread's OpenMP workers; its next parallel loop starts new ones. True when that worked."""
    return minorm_pause() == 0


def team(int threads):
    """How many threads a parallel loop really gets when it asks for this many; always 1 in a serial build."""
    cdef int size
    with nogil:
        size = minorm_team(threads)
    return size
