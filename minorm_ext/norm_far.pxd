# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# Both phases at once, of rows that come from memory and whose results go around the cache: see norm_far.h.

from libc.stdint cimport uint16_t

from minorm_ext.storage cimport HALF, SINGLE, Data, real

cdef extern from "norm_far.h" nogil:
    void minorm_apply_and_sum_float(
        const float* x, const float* s, const float* b, float* y, Py_ssize_t n, Py_ssize_t start,
        Py_ssize_t some, Py_ssize_t next, Py_ssize_t soon,
        float k, float d, float r, float c, float c_b, float k1, float* held
    ) noexcept
    void minorm_grad_and_sum_float(
        const float* dy, const float* x, const float* s, float* dx, float* ds, float* db, Py_ssize_t n,
        Py_ssize_t start, Py_ssize_t some, Py_ssize_t next, Py_ssize_t soon,
        float k, float d, float r, float c, float p, float q, float k1, float d1, float* held
    ) noexcept
    void minorm_apply_and_sum_double(
        const double* x, const double* s, const double* b, double* y, Py_ssize_t n, Py_ssize_t start,
        Py_ssize_t some, Py_ssize_t next, Py_ssize_t soon,
        double k, double d, double r, double c, double c_b, double k1, double* held
    ) noexcept
    void minorm_grad_and_sum_double(
        const double* dy, const double* x, const double* s, double* dx, double* ds, double* db, Py_ssize_t n,
        Py_ssize_t start, Py_ssize_t some, Py_ssize_t next, Py_ssize_t soon,
        double k, double d, double r, double c, double p, double q, double k1, double d1, double* held
    ) noexcept
    void minorm_apply_and_sum_half(
        const uint16_t* x, const float* s, const float* b, uint16_t* y, Py_ssize_t n, Py_ssize_t start,
        Py_ssize_t some, Py_ssize_t next, Py_ssize_t soon,
        float k, float d, float r, float c, float c_b, float k1, float* held
    ) noexcept
    void minorm_grad_and_sum_half(
        const uint16_t* dy, const uint16_t* x, const float* s, uint16_t* dx, float* ds, float* db, Py_ssize_t n,
        Py_ssize_t start, Py_ssize_t some, Py_ssize_t next, Py_ssize_t soon,
        float k, float d, float r, float c, float p, float q, float k1, float d1, float* held
    ) noexcept
    void minorm_apply_and_sum_bfloat(
        const uint16_t* x, const float* s, const float* b, uint16_t* y, Py_ssize_t n, Py_ssize_t start,
        Py_ssize_t some, Py_ssize_t next, Py_ssize_t soon,
        float k, float d, float r, float c, float c_b, float k1, float* held
    ) noexcept
    void minorm_grad_and_sum_bfloat(
        const uint16_t* dy, const uint16_t* x, const float* s, uint16_t* dx, float* ds, float* db, Py_ssize_t n,
        Py_ssize_t start, Py_ssize_t some, Py_ssize_t next, Py_ssize_t soon,
        float k, float d, float r, float c, float p, float q, float k1, float d1, float* held
    ) noexcept


cdef inline void apply_and_sum(
    const Data* x, const Data* y, Py_ssize_t at, const real* s, const real* b, Py_ssize_t n, Py_ssize_t start,
    Py_ssize_t some, Py_ssize_t next, Py_ssize_t soon, real k, real d, real r, real c, real c_b, real k1, real* held,
) noexcept nogil:
    """`apply` on a tile, and its sums in the row `next` elements further on, whose shift is k1."""
    if real is double:
        minorm_apply_and_sum_double(
            <const double*>x.items + at, s, b, <double*>y.items + at,
            n, start, some, next, soon, k, d, r, c, c_b, k1, held,
        )
    elif x.type == SINGLE:
        minorm_apply_and_sum_float(
            <const float*>x.items + at, s, b, <float*>y.items + at,
            n, start, some, next, soon, k, d, r, c, c_b, k1, held,
        )
    elif x.type == HALF:
        minorm_apply_and_sum_half(
            <const uint16_t*>x.items + at, s, b, <uint16_t*>y.items + at,
            n, start, some, next, soon, k, d, r, c, c_b, k1, held,
        )
    else:
        minorm_apply_and_sum_bfloat(
            <const uint16_t*>x.items + at, s, b, <uint16_t*>y.items + at,
            n, start, some, next, soon, k, d, r, c, c_b, k1, held,
        )


cdef inline void grad_and_sum(
    const Data* dy, const Data* x, const Data* dx, Py_ssize_t at, const real* s, real* ds, real* db, Py_ssize_t n,
    Py_ssize_t start, Py_ssize_t some, Py_ssize_t next, Py_ssize_t soon,
    real k, real d, real r, real c, real p, real q, real k1, real d1, real* held,
) noexcept nogil:
    """`grad` on a tile, and its sums in the row `next` elements further on, whose mean is k1 + d1."""
    if real is double:
        minorm_grad_and_sum_double(
            <const double*>dy.items + at, <const double*>x.items + at, s, <double*>dx.items + at, ds, db,
            n, start, some, next, soon, k, d, r, c, p, q, k1, d1, held,
        )
    elif x.type == SINGLE:
        minorm_grad_and_sum_float(
            <const float*>dy.items + at, <const float*>x.items + at, s, <float*>dx.items + at, ds, db,
            n, start, some, next, soon, k, d, r, c, p, q, k1, d1, held,
        )
    elif x.type == HALF:
        minorm_grad_and_sum_half(
            <const uint16_t*>dy.items + at, <const uint16_t*>x.items + at, s, <uint16_t*>dx.items + at, ds, db,
            n, start, some, next, soon, k, d, r, c, p, q, k1, d1, held,
        )
    else:
        minorm_grad_and_sum_bfloat(
            <const uint16_t*>dy.items + at, <const uint16_t*>x.items + at, s, <uint16_t*>dx.items + at, ds, db,
            n, start, some, next, soon, k, d, r, c, p, q, k1, d1, held,
        )
