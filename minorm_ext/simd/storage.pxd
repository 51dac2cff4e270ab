# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# Data lies in memory in one of four types and is computed with in float or double. What is computed in its own type,
# and 16 bits computed in float, is `direct`: the loops widen and round in registers, if the processor has vectors that
# do. All else a kernel fetches a little at a time and puts its results back; nothing but what lies in the first-level
# cache is ever widened. A view says where the loops find the data: where it lies, or staged in scratch memory.
#
#     p = fetch(&w.x, at, n, scratch)    where the elements lie, or `scratch` with the same elements widened
#     put(&w.y, at, n, scratch)          round what is in scratch memory; around the cache where results go that way

from libc.stdint cimport uint16_t

from minorm_ext.runtime.numbers cimport real

cdef extern from "simd/convert.h" nogil:
    ctypedef enum Type "minorm_type":
        HALF "MINORM_HALF"
        BFLOAT "MINORM_BFLOAT"
        SINGLE "MINORM_SINGLE"
        DOUBLE "MINORM_DOUBLE"
    ctypedef struct Data "minorm_data":
        char* items       # NULL: no such data
        Type type         # that it is stored in
        bint direct       # loops take it where it lies
        bint nontemporal  # results go around the cache
        bint uncached     # this is read from memory, not from cache
    enum:
        WIDEN  # loops take 16 bits as they lie
    double minorm_wide_half(uint16_t h) noexcept
    double minorm_wide_bfloat(uint16_t h) noexcept
    void minorm_widen_f(Type type, const void* source, float* to, Py_ssize_t n) noexcept
    void minorm_widen_d(Type type, const void* source, double* to, Py_ssize_t n) noexcept
    void minorm_narrow_f(Type type, const float* source, void* to, Py_ssize_t n) noexcept
    void minorm_narrow_d(Type type, const double* source, void* to, Py_ssize_t n) noexcept

cdef extern from "simd/stream.h" nogil:
    void nt_copy "minorm_nt_copy"(void* to, const void* source, size_t bytes) noexcept
    void nt_fence "minorm_nt_fence"() noexcept
    ctypedef struct NtWriter "minorm_nt_writer":
        pass
    void open_writer "minorm_nt_writer_open"(NtWriter* writer, void* to, void* scratch) noexcept
    char* place_of_writer "minorm_nt_writer_place"(NtWriter* writer) noexcept
    void send "minorm_nt_writer_send"(NtWriter* writer, size_t bytes) noexcept
    void close_writer "minorm_nt_writer_close"(NtWriter* writer) noexcept

cdef enum:
    LINE = 1024  # elements that are rounded at once on their way around the cache


cdef inline int size_of(Type type) noexcept nogil:
    return 2 if type == HALF or type == BFLOAT else 4 if type == SINGLE else 8


cdef inline double item(const Data* data, Py_ssize_t at) noexcept nogil:
    """One element."""
    if data.type == SINGLE:
        return (<const float*>data.items)[at]
    if data.type == DOUBLE:
        return (<const double*>data.items)[at]
    if data.type == HALF:
        return minorm_wide_half((<const uint16_t*>data.items)[at])
    return minorm_wide_bfloat((<const uint16_t*>data.items)[at])


cdef inline void widen(Type type, const void* source, real* to, Py_ssize_t n) noexcept nogil:
    """n elements, from a narrower type."""
    if real is float:
        minorm_widen_f(type, source, to, n)
    else:
        minorm_widen_d(type, source, to, n)


cdef inline void narrow(Type type, const real* source, void* to, Py_ssize_t n) noexcept nogil:
    """n elements, rounded once."""
    if real is float:
        minorm_narrow_f(type, source, to, n)
    else:
        minorm_narrow_d(type, source, to, n)


cdef inline const real* fetch(const Data* data, Py_ssize_t at, Py_ssize_t n, real* scratch) noexcept nogil:
    """n elements from `at` on, in the type computed in."""
    if data.type == (SINGLE if sizeof(real) == sizeof(float) else DOUBLE):
        return <const real*>data.items + at
    widen(data.type, data.items + at * size_of(data.type), scratch, n)
    return scratch


cdef inline void put(const Data* data, Py_ssize_t at, Py_ssize_t n, const real* source) noexcept nogil:
    """Bring n elements from scratch memory to where they belong, in a narrower type."""
    cdef double line[LINE]
    cdef Py_ssize_t done = 0
    cdef Py_ssize_t some
    cdef int size = size_of(data.type)
    if not data.nontemporal:
        narrow(data.type, source, data.items + at * size, n)
        return
    while done < n:
        some = min(<Py_ssize_t>LINE, n - done)
        narrow(data.type, source + done, line, some)
        nt_copy(data.items + (at + done) * size, line, some * size)
        done += some


cdef inline void stage(
    const Data* data, Py_ssize_t at, Py_ssize_t n, void* scratch, Py_ssize_t to, bint single
) noexcept nogil:
    """Bring n elements from `at` on to element `to` of scratch memory, in float or double."""
    if single:
        fetch(data, at, n, <float*>scratch + to)
    else:
        fetch(data, at, n, <double*>scratch + to)


cdef inline void unstage(
    const Data* data, Py_ssize_t at, Py_ssize_t n, const void* scratch, Py_ssize_t start, bint single
) noexcept nogil:
    """And back."""
    if single:
        put(data, at, n, <const float*>scratch + start)
    else:
        put(data, at, n, <const double*>scratch + start)


cdef inline Data staged_view(const Data* data, void* scratch, bint single) noexcept nogil:
    """What the loops see of data: as it lies, or what of it is in scratch memory, in the type computed in."""
    cdef Data view = data[0]
    if not data.direct:
        view.items = <char*>scratch
        view.type = SINGLE if single else DOUBLE
        view.direct = True
        view.nontemporal = view.uncached = False
    return view


cdef inline Data view_at(const Data* data, Py_ssize_t at, void* scratch, bint single) noexcept nogil:
    """The same from `at` on."""
    cdef Data view = staged_view(data, scratch, single)
    if data.direct and data.items != NULL:
        view.items += at * size_of(data.type)
    return view


cdef inline void finish(const Data* data) noexcept nogil:
    """After a job: what went around the cache is in memory."""
    if data.nontemporal:
        nt_fence()
