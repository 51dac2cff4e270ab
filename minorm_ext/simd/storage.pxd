# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# Data is stored in one of four types, and kernels compute in float or double. Data is `direct` if the type stored in is
# the type computed in; or if it has 16 bits, is computed in float, and the processor has vectors that convert: then the
# loops widen and round in registers. A kernel fetches all other data a little at a time and puts its results back, so
# that it widens data only inside the first-level cache. A view says where the loops find the data: in its own place, or
# in scratch memory.
#
# Masked data is staged too: the loops see a fill in place of an element that does not count, and the result there is
# stored as 0. If all elements of a piece count, the kernel treats it like data without a mask.
#
#     p = fetch(&w.x, at, n, scratch)    where the elements lie, or `scratch` with the same elements widened
#     put(&w.y, at, n, scratch)          round what is in scratch memory; around the cache where results go that way

from libc.stdint cimport uint8_t, uint16_t
from libc.string cimport memcpy, memset

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
        bint uncached     # the data is read from memory, not from cache
        const uint8_t* mask  # a byte for each element, 1 where it counts; NULL: all count
        double fill       # the loops see this in place of elements that do not count
        double floor      # results at or below this number become this number
        Py_ssize_t other  # distance from each element to one that goes with it, or ALONE
        Py_ssize_t copy   # distance to where a copy of each element goes, as it was read with that other, or ALONE
    enum:
        ALONE
    enum:
        WIDEN  # 1 if loops read 16 bits in their own place
    double minorm_wide_half(uint16_t h) noexcept
    double minorm_wide_bfloat(uint16_t h) noexcept
    void minorm_widen_f(Type type, const void* source, float* to, Py_ssize_t n) noexcept
    void minorm_widen_d(Type type, const void* source, double* to, Py_ssize_t n) noexcept
    void minorm_narrow_f(Type type, const float* source, void* to, Py_ssize_t n) noexcept
    void minorm_narrow_d(Type type, const double* source, void* to, Py_ssize_t n) noexcept

cdef extern from "simd/mask.h" nogil:
    Py_ssize_t counted "minorm_counted"(const uint8_t* mask, Py_ssize_t n) noexcept
    void minorm_keep_f(const float* source, const uint8_t* mask, float fill, float* to, Py_ssize_t n) noexcept
    void minorm_keep_d(const double* source, const uint8_t* mask, double fill, double* to, Py_ssize_t n) noexcept
    void minorm_keep_each_f(
        const float* source, const uint8_t* mask, const float* fills, float* to, Py_ssize_t n
    ) noexcept
    void minorm_keep_each_d(
        const double* source, const uint8_t* mask, const double* fills, double* to, Py_ssize_t n
    ) noexcept
    Py_ssize_t minorm_gather_f(const float* source, const uint8_t* mask, float* to, Py_ssize_t n) noexcept
    Py_ssize_t minorm_gather_d(const double* source, const uint8_t* mask, double* to, Py_ssize_t n) noexcept

cdef extern from "simd/stream.h" nogil:
    void nt_copy "minorm_nt_copy"(void* to, const void* source, size_t bytes) noexcept
    void nt_clear "minorm_nt_clear"(void* to, size_t bytes) noexcept
    void nt_fence "minorm_nt_fence"() noexcept
    void prefetch "minorm_prefetch"(const void* source, Py_ssize_t bytes) noexcept
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


cdef inline bint is_direct(Type type, bint single) noexcept nogil:
    """Return whether loops take data of this type in its own place."""
    return type == (SINGLE if single else DOUBLE) or (WIDEN and single and type < SINGLE)


cdef inline double item(const Data* data, Py_ssize_t at) noexcept nogil:
    """Return one element."""
    if data.type == SINGLE:
        return (<const float*>data.items)[at]
    if data.type == DOUBLE:
        return (<const double*>data.items)[at]
    if data.type == HALF:
        return minorm_wide_half((<const uint16_t*>data.items)[at])
    return minorm_wide_bfloat((<const uint16_t*>data.items)[at])


cdef inline void widen(Type type, const void* source, real* to, Py_ssize_t n) noexcept nogil:
    """Widen n elements from a narrower type."""
    if real is float:
        minorm_widen_f(type, source, to, n)
    else:
        minorm_widen_d(type, source, to, n)


cdef inline void narrow(Type type, const real* source, void* to, Py_ssize_t n) noexcept nogil:
    """Round n elements once, to a narrower type."""
    if real is float:
        minorm_narrow_f(type, source, to, n)
    else:
        minorm_narrow_d(type, source, to, n)


cdef inline const real* fetch(const Data* data, Py_ssize_t at, Py_ssize_t n, real* scratch) noexcept nogil:
    """Return n elements from `at` on, in the type computed in: in their own place, or widened in scratch memory."""
    if data.type == (SINGLE if sizeof(real) == sizeof(float) else DOUBLE):
        return <const real*>data.items + at
    widen(data.type, data.items + at * size_of(data.type), scratch, n)
    return scratch


cdef inline void keep(const real* source, const uint8_t* mask, real fill, real* to, Py_ssize_t n) noexcept nogil:
    """Copy the elements that count, and `fill` in place of the others; source and `to` may be the same."""
    if real is float:
        minorm_keep_f(source, mask, fill, to, n)
    else:
        minorm_keep_d(source, mask, fill, to, n)


cdef inline const real* fetch_filled(
    const Data* data, Py_ssize_t at, Py_ssize_t n, const real* fills, real* scratch
) noexcept nogil:
    """Fetch n elements; elements that do not count are replaced by their number in `fills`, or by 0 if that is NULL."""
    cdef const real* source = fetch(data, at, n, scratch)
    if data.mask == NULL:
        return source
    if fills == NULL:
        keep(source, data.mask + at, 0, scratch, n)
    elif real is float:
        minorm_keep_each_f(source, data.mask + at, fills, scratch, n)
    else:
        minorm_keep_each_d(source, data.mask + at, fills, scratch, n)
    return scratch


cdef inline void put(const Data* data, Py_ssize_t at, Py_ssize_t n, real* source) noexcept nogil:
    """Store n elements from scratch memory in their places, in the type stored in; 0 for elements that do not count."""
    cdef double line[LINE]
    cdef Py_ssize_t done = 0
    cdef Py_ssize_t some
    cdef int size = size_of(data.type)
    cdef bint narrower = data.type != (SINGLE if sizeof(real) == sizeof(float) else DOUBLE)
    if data.mask != NULL:
        keep(source, data.mask + at, 0, source, n)
    if not data.nontemporal:
        if narrower:
            narrow(data.type, source, data.items + at * size, n)
        else:
            memcpy(data.items + at * size, source, n * size)
        return
    if not narrower:
        nt_copy(data.items + at * size, source, n * size)
        return
    while done < n:
        some = min(<Py_ssize_t>LINE, n - done)
        narrow(data.type, source + done, line, some)
        nt_copy(data.items + (at + done) * size, line, some * size)
        done += some


cdef inline void bring(const Data* data, Py_ssize_t at, Py_ssize_t n, real* to) noexcept nogil:
    """Bring n elements from `at` on to scratch memory, in the type computed in."""
    cdef const real* source = fetch(data, at, n, to)
    if data.mask != NULL:
        keep(source, data.mask + at, <real>data.fill, to, n)


cdef inline void stage(
    const Data* data, Py_ssize_t at, Py_ssize_t n, void* scratch, Py_ssize_t to, bint single
) noexcept nogil:
    """Bring n elements from `at` on to element `to` of scratch memory, in float or double."""
    if single:
        bring(data, at, n, <float*>scratch + to)
    else:
        bring(data, at, n, <double*>scratch + to)


cdef inline void clear(const Data* data, Py_ssize_t at, Py_ssize_t n) noexcept nogil:
    """Set n results from `at` on to 0."""
    cdef int size = size_of(data.type)
    if data.nontemporal:
        nt_clear(data.items + at * size, n * size)
    else:
        memset(data.items + at * size, 0, n * size)


cdef inline void ask(const Data* data, Py_ssize_t at, Py_ssize_t n) noexcept nogil:
    """Prefetch n elements from `at` on, which will soon be staged."""
    prefetch(data.items + at * size_of(data.type), n * size_of(data.type))


cdef inline Py_ssize_t gather(
    const Data* data, Py_ssize_t at, Py_ssize_t n, void* scratch, Py_ssize_t to, bint single
) noexcept nogil:
    """Stage only the elements that count, side by side, and return how many they are."""
    cdef float* floats = <float*>scratch + to
    cdef double* doubles = <double*>scratch + to
    if single:
        return minorm_gather_f(fetch(data, at, n, floats), data.mask + at, floats, n)
    return minorm_gather_d(fetch(data, at, n, doubles), data.mask + at, doubles, n)


cdef inline void unstage(
    const Data* data, Py_ssize_t at, Py_ssize_t n, void* scratch, Py_ssize_t start, bint single
) noexcept nogil:
    """Store n staged elements in their places."""
    if single:
        put(data, at, n, <float*>scratch + start)
    else:
        put(data, at, n, <double*>scratch + start)


cdef inline Data unmasked(const Data* data, bint single) noexcept nogil:
    """Return the same data without its mask, for pieces in which all elements count."""
    cdef Data view = data[0]
    view.mask = NULL
    view.direct = is_direct(data.type, single)
    return view


cdef inline void stage_view(Data* view, void* scratch, bint single) noexcept nogil:
    """Make a view of the data in scratch memory, in the type computed in."""
    view.items = <char*>scratch
    view.type = SINGLE if single else DOUBLE
    view.direct = True
    view.nontemporal = view.uncached = False


cdef inline Data staged_view(const Data* data, void* scratch, bint single) noexcept nogil:
    """Return the loops' view of the data: in its own place, or in scratch memory."""
    cdef Data view = data[0]
    if not data.direct:
        stage_view(&view, scratch, single)
    return view


cdef struct Source:
    Data data  # in its own place; without its mask if all elements count
    Data view  # where the loops find it


cdef inline void see(Source* source, const Data* data, bint all_count, void* scratch, bint single) noexcept nogil:
    """Point `source` at data, or at a piece of it; all_count: True if all of its elements count."""
    source.data = data[0]
    if all_count:
        source.data.mask = NULL
        source.data.direct = is_direct(data.type, single)
    source.view = source.data
    if not source.data.direct:
        stage_view(&source.view, scratch, single)


cdef inline Data view_at(const Data* data, Py_ssize_t at, void* scratch, bint single) noexcept nogil:
    """Return the loops' view of the data from `at` on."""
    cdef Data view = staged_view(data, scratch, single)
    if data.direct and data.items != NULL:
        view.items += at * size_of(data.type)
    return view


cdef inline void finish(const Data* data) noexcept nogil:
    """End a job: its results that went around the cache reach memory before other threads learn that it is done."""
    if data.nontemporal:
        nt_fence()
