# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# The second phase on rows that share a parameter for each element: see each.h. Parameters and their gradients are
# in the type computed in.

from libc.stdint cimport uint16_t

from minorm_ext.simd.storage cimport HALF, SINGLE, Data, goes_as_float, real, size_of

cdef extern from "norm/each.h" nogil:
    enum:
        BLOCK "MINORM_BLOCK"
        TURN_f "MINORM_TURN_f"
        TURN_d "MINORM_TURN_d"
    void minorm_apply_each_float(
        const float* x, const float* s, const float* b, float* y, bint far, Py_ssize_t next,
        const Py_ssize_t* start, Py_ssize_t rows, Py_ssize_t n, const float* k, const float* d, const float* r
    ) noexcept
    void minorm_grad_each_float(
        const float* dy, const float* x, const float* s, float* dx, bint far,
        Py_ssize_t next, float* ds, float* db, const Py_ssize_t* start, Py_ssize_t rows, Py_ssize_t n,
        const float* k, const float* d, const float* r, const float* p, const float* q
    ) noexcept
    void minorm_apply_each_double(
        const double* x, const double* s, const double* b, double* y, bint far, Py_ssize_t next,
        const Py_ssize_t* start, Py_ssize_t rows, Py_ssize_t n, const double* k, const double* d, const double* r
    ) noexcept
    void minorm_grad_each_double(
        const double* dy, const double* x, const double* s, double* dx, bint far,
        Py_ssize_t next, double* ds, double* db, const Py_ssize_t* start, Py_ssize_t rows, Py_ssize_t n,
        const double* k, const double* d, const double* r, const double* p, const double* q
    ) noexcept
    void minorm_apply_each_half(
        const uint16_t* x, const float* s, const float* b, uint16_t* y, bint far, Py_ssize_t next,
        const Py_ssize_t* start, Py_ssize_t rows, Py_ssize_t n, const float* k, const float* d, const float* r
    ) noexcept
    void minorm_grad_each_half(
        const uint16_t* dy, const uint16_t* x, const float* s, uint16_t* dx, bint far,
        Py_ssize_t next, float* ds, float* db, const Py_ssize_t* start, Py_ssize_t rows, Py_ssize_t n,
        const float* k, const float* d, const float* r, const float* p, const float* q
    ) noexcept
    void minorm_apply_each_bfloat(
        const uint16_t* x, const float* s, const float* b, uint16_t* y, bint far, Py_ssize_t next,
        const Py_ssize_t* start, Py_ssize_t rows, Py_ssize_t n, const float* k, const float* d, const float* r
    ) noexcept
    void minorm_grad_each_bfloat(
        const uint16_t* dy, const uint16_t* x, const float* s, uint16_t* dx, bint far,
        Py_ssize_t next, float* ds, float* db, const Py_ssize_t* start, Py_ssize_t rows, Py_ssize_t n,
        const float* k, const float* d, const float* r, const float* p, const float* q
    ) noexcept
    void minorm_apply_two_float(
        const float* x, const float* s, const float* b, float* y, const Py_ssize_t* start, Py_ssize_t n,
        const float* k, const float* d, const float* r
    ) noexcept
    void minorm_grad_two_float(
        const float* dy, const float* x, const float* s, float* dx, float* ds, float* db,
        const Py_ssize_t* start, Py_ssize_t n,
        const float* k, const float* d, const float* r, const float* p, const float* q
    ) noexcept
    void minorm_apply_two_double(
        const double* x, const double* s, const double* b, double* y, const Py_ssize_t* start, Py_ssize_t n,
        const double* k, const double* d, const double* r
    ) noexcept
    void minorm_grad_two_double(
        const double* dy, const double* x, const double* s, double* dx, double* ds, double* db,
        const Py_ssize_t* start, Py_ssize_t n,
        const double* k, const double* d, const double* r, const double* p, const double* q
    ) noexcept
    void minorm_apply_two_half(
        const uint16_t* x, const float* s, const float* b, uint16_t* y, const Py_ssize_t* start, Py_ssize_t n,
        const float* k, const float* d, const float* r
    ) noexcept
    void minorm_grad_two_half(
        const uint16_t* dy, const uint16_t* x, const float* s, uint16_t* dx, float* ds, float* db,
        const Py_ssize_t* start, Py_ssize_t n,
        const float* k, const float* d, const float* r, const float* p, const float* q
    ) noexcept
    void minorm_apply_two_bfloat(
        const uint16_t* x, const float* s, const float* b, uint16_t* y, const Py_ssize_t* start, Py_ssize_t n,
        const float* k, const float* d, const float* r
    ) noexcept
    void minorm_grad_two_bfloat(
        const uint16_t* dy, const uint16_t* x, const float* s, uint16_t* dx, float* ds, float* db,
        const Py_ssize_t* start, Py_ssize_t n,
        const float* k, const float* d, const float* r, const float* p, const float* q
    ) noexcept


cdef inline bint sends_turns(const real* type, const Data* result, Py_ssize_t n) noexcept nogil:
    """Can rows of n elements be sent around the cache turn by turn, and no line in halves?"""
    cdef Py_ssize_t turn = TURN_d if real is double else TURN_f
    cdef Py_ssize_t bytes = turn * size_of(result.type)
    if not (result.direct and result.stream) or n * size_of(result.type) % 64 != 0:
        return False
    return n % (turn if bytes == 64 else BLOCK * turn) == 0


cdef inline void apply_each(
    const Data* x, const Data* y, const Py_ssize_t* start, Py_ssize_t rows, const real* s, const real* b, Py_ssize_t n,
    Py_ssize_t next, const real* k, const real* d, const real* r,
) noexcept nogil:
    """`apply` on rows that begin at `start`; b may be NULL. Each turn asks for what lies `next` further on."""
    if real is double:
        minorm_apply_each_double(
            <const double*>x.items, s, b, <double*>y.items, y.stream, next, start, rows, n, k, d, r
        )
    elif goes_as_float(x.type == SINGLE):
        minorm_apply_each_float(
            <const float*>x.items, s, b, <float*>y.items, y.stream, next, start, rows, n, k, d, r
        )
    elif x.type == HALF:
        minorm_apply_each_half(
            <const uint16_t*>x.items, s, b, <uint16_t*>y.items, y.stream, next, start, rows, n, k, d, r
        )
    else:
        minorm_apply_each_bfloat(
            <const uint16_t*>x.items, s, b, <uint16_t*>y.items, y.stream, next, start, rows, n, k, d, r
        )


cdef inline void grad_each(
    const Data* dy, const Data* x, const Data* dx, const Py_ssize_t* start, Py_ssize_t rows, const real* s, real* ds,
    real* db, Py_ssize_t n, Py_ssize_t next, const real* k, const real* d, const real* r, const real* p, const real* q,
) noexcept nogil:
    """`grad` on rows that begin at `start`."""
    if real is double:
        minorm_grad_each_double(
            <const double*>dy.items, <const double*>x.items, s, <double*>dx.items, dx.stream, next, ds, db,
            start, rows, n, k, d, r, p, q
        )
    elif goes_as_float(x.type == SINGLE):
        minorm_grad_each_float(
            <const float*>dy.items, <const float*>x.items, s, <float*>dx.items, dx.stream, next, ds, db,
            start, rows, n, k, d, r, p, q
        )
    elif x.type == HALF:
        minorm_grad_each_half(
            <const uint16_t*>dy.items, <const uint16_t*>x.items, s, <uint16_t*>dx.items, dx.stream, next, ds, db,
            start, rows, n, k, d, r, p, q
        )
    else:
        minorm_grad_each_bfloat(
            <const uint16_t*>dy.items, <const uint16_t*>x.items, s, <uint16_t*>dx.items, dx.stream, next, ds, db,
            start, rows, n, k, d, r, p, q
        )


cdef inline void apply_two(
    const Data* x, const Data* y, const Py_ssize_t* start, Py_ssize_t at, const real* s, const real* b, Py_ssize_t n,
    const real* k, const real* d, const real* r,
) noexcept nogil:
    """`apply` on two rows that begin at start[0] and start[1], from `at` on; b may be NULL."""
    if real is double:
        minorm_apply_two_double(
            <const double*>x.items + at, s, b, <double*>y.items + at, start, n, k, d, r,
        )
    elif goes_as_float(x.type == SINGLE):
        minorm_apply_two_float(
            <const float*>x.items + at, s, b, <float*>y.items + at, start, n, k, d, r,
        )
    elif x.type == HALF:
        minorm_apply_two_half(
            <const uint16_t*>x.items + at, s, b, <uint16_t*>y.items + at, start, n, k, d, r,
        )
    else:
        minorm_apply_two_bfloat(
            <const uint16_t*>x.items + at, s, b, <uint16_t*>y.items + at, start, n, k, d, r,
        )


cdef inline void grad_two(
    const Data* dy, const Data* x, const Data* dx, const Py_ssize_t* start, Py_ssize_t at, const real* s, real* ds,
    real* db, Py_ssize_t n, const real* k, const real* d, const real* r, const real* p, const real* q,
) noexcept nogil:
    """`grad` on two such rows."""
    if real is double:
        minorm_grad_two_double(
            <const double*>dy.items + at, <const double*>x.items + at, s, <double*>dx.items + at, ds, db,
            start, n, k, d, r, p, q,
        )
    elif goes_as_float(x.type == SINGLE):
        minorm_grad_two_float(
            <const float*>dy.items + at, <const float*>x.items + at, s, <float*>dx.items + at, ds, db,
            start, n, k, d, r, p, q,
        )
    elif x.type == HALF:
        minorm_grad_two_half(
            <const uint16_t*>dy.items + at, <const uint16_t*>x.items + at, s, <uint16_t*>dx.items + at, ds, db,
            start, n, k, d, r, p, q,
        )
    else:
        minorm_grad_two_bfloat(
            <const uint16_t*>dy.items + at, <const uint16_t*>x.items + at, s, <uint16_t*>dx.items + at, ds, db,
            start, n, k, d, r, p, q,
        )
