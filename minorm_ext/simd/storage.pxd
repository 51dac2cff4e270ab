# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# Data lies in memory in one of four types and is computed with in float or double. What is computed in its own type,
# and 16 bits computed in float, are taken where they lie: the loops widen and round in registers (vec.h), if the
# processor has vectors that do. For all else a kernel fetches a little at a time and puts its results back; nothing but
# what lies in the first-level cache is ever widened.
#
#     p = fetch(&w.x, at, n, room)       where the elements lie, or `room` with the same elements widened
#     q = place(&w.y, at, room)          where results may be written: in place, or `room`
#     put(&w.y, at, n, q)                round what is in the room; or send it around the cache
#
# Data of the type computed in is used where it lies: fetch and place are then one addition, put is nothing.

from libc.stdint cimport uint16_t

ctypedef fused real:
    float
    double

cdef extern from "simd/convert.h" nogil:
    enum:
        WIDEN  # loops take 16 bits as they lie
    bint goes_as_float "MINORM_GOES_AS_FLOAT"(bint single) noexcept
    double minorm_wide_half(uint16_t h) noexcept
    double minorm_wide_bfloat(uint16_t h) noexcept
    void minorm_widen_half_f(const uint16_t* source, float* to, Py_ssize_t n) noexcept
    void minorm_widen_half_d(const uint16_t* source, double* to, Py_ssize_t n) noexcept
    void minorm_widen_bfloat_f(const uint16_t* source, float* to, Py_ssize_t n) noexcept
    void minorm_widen_bfloat_d(const uint16_t* source, double* to, Py_ssize_t n) noexcept
    void minorm_widen_float_d(const float* source, double* to, Py_ssize_t n) noexcept
    void minorm_narrow_half_f(const float* source, uint16_t* to, Py_ssize_t n) noexcept
    void minorm_narrow_half_d(const double* source, uint16_t* to, Py_ssize_t n) noexcept
    void minorm_narrow_bfloat_f(const float* source, uint16_t* to, Py_ssize_t n) noexcept
    void minorm_narrow_bfloat_d(const double* source, uint16_t* to, Py_ssize_t n) noexcept
    void minorm_narrow_float_d(const double* source, float* to, Py_ssize_t n) noexcept

cdef extern from "simd/stream.h" nogil:
    void minorm_stream_copy(void* to, const void* source, size_t bytes) noexcept
    ctypedef struct minorm_outbox:
        pass
    void minorm_outbox_open(minorm_outbox* out, void* to, void* room) noexcept
    char* minorm_outbox_place(minorm_outbox* out) noexcept
    void minorm_outbox_send(minorm_outbox* out, size_t bytes) noexcept
    void minorm_outbox_close(minorm_outbox* out) noexcept
    void minorm_stream_end() noexcept
    void minorm_ahead(const char* source, Py_ssize_t bytes) noexcept


cdef enum Type:
    HALF
    BFLOAT
    SINGLE
    DOUBLE

cdef enum:
    LINE = 1024  # elements that are rounded at once on their way around the cache


cdef struct Data:
    char* items   # NULL: no such data
    Type type     # that it is stored in
    bint as_is    # that is the type computed in
    bint direct   # some loops take it where it lies: as it is, or 16 bits that they widen to float
    bint stream   # results go around the cache
    bint far      # this is read from memory, not from cache


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


cdef inline void widen(Type type, const char* source, real* to, Py_ssize_t n) noexcept nogil:
    if real is float:
        if type == HALF:
            minorm_widen_half_f(<const uint16_t*>source, to, n)
        else:
            minorm_widen_bfloat_f(<const uint16_t*>source, to, n)
    else:
        if type == HALF:
            minorm_widen_half_d(<const uint16_t*>source, to, n)
        elif type == BFLOAT:
            minorm_widen_bfloat_d(<const uint16_t*>source, to, n)
        else:
            minorm_widen_float_d(<const float*>source, to, n)


cdef inline void narrow(Type type, const real* source, char* to, Py_ssize_t n) noexcept nogil:
    if real is float:
        if type == HALF:
            minorm_narrow_half_f(source, <uint16_t*>to, n)
        else:
            minorm_narrow_bfloat_f(source, <uint16_t*>to, n)
    else:
        if type == HALF:
            minorm_narrow_half_d(source, <uint16_t*>to, n)
        elif type == BFLOAT:
            minorm_narrow_bfloat_d(source, <uint16_t*>to, n)
        else:
            minorm_narrow_float_d(source, <float*>to, n)


cdef inline const real* fetch(const Data* data, Py_ssize_t at, Py_ssize_t n, real* room) noexcept nogil:
    """n elements from `at` on, in the type computed in."""
    if data.as_is:
        return <const real*>data.items + at
    widen(data.type, data.items + at * size_of(data.type), room, n)
    return room


cdef inline const Data* seen(const Data* data, const real* room, Data* in_room) noexcept nogil:
    """The data as the loops see it: as it is, or what of it is in a room, in the type computed in."""
    if data.direct:
        return data
    in_room[0] = data[0]
    in_room.items = <char*>room
    in_room.type = SINGLE if real is float else DOUBLE
    in_room.as_is = in_room.direct = True
    in_room.stream = in_room.far = False
    return in_room


cdef inline Data here(const Data* data, Py_ssize_t at, real* room) noexcept nogil:
    """The data from `at` on; or a room, for data that the loops do not take where it lies."""
    cdef Data part = data[0]
    if not data.direct:
        seen(data, room, &part)
    elif data.items != NULL:
        part.items += at * size_of(data.type)
    return part


cdef inline real* place(const Data* data, Py_ssize_t at, real* room) noexcept nogil:
    """Where to write the elements from `at` on."""
    return <real*>data.items + at if data.as_is and not data.stream else room


cdef inline void put(const Data* data, Py_ssize_t at, Py_ssize_t n, const real* source) noexcept nogil:
    """Bring n elements from where `place` said to where they belong."""
    cdef double line[LINE]
    cdef Py_ssize_t done = 0
    cdef Py_ssize_t some
    cdef int size
    if data.as_is and not data.stream:
        return
    size = size_of(data.type)
    if data.as_is:
        minorm_stream_copy(data.items + at * size, source, n * size)
    elif not data.stream:
        narrow(data.type, source, data.items + at * size, n)
    else:
        while done < n:
            some = min(<Py_ssize_t>LINE, n - done)
            narrow(data.type, source + done, <char*>line, some)
            minorm_stream_copy(data.items + (at + done) * size, line, some * size)
            done += some


cdef inline void ahead(const Data* data, Py_ssize_t at, Py_ssize_t n) noexcept nogil:
    """n elements from `at` on will be fetched soon: let them come while something else is done."""
    if data.far:
        minorm_ahead(data.items + at * size_of(data.type), n * size_of(data.type))


cdef inline void finish(const Data* data) noexcept nogil:
    """After a job: what went around the cache is in memory."""
    if data.stream:
        minorm_stream_end()
