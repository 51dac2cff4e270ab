# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# The second phase on `runs` runs of n elements, `step` apart, which begin `at` elements into their data: see
# apply.h. Parameters, `param` apart from run to run, and their gradients are in the type computed in. What comes
# next, and is asked for, lies `next` elements further on; 0 asks for nothing new.

from libc.stdint cimport uint16_t

from minorm_ext.simd.storage cimport HALF, SINGLE, Data, goes_as_float, real

cdef extern from "norm/apply.h" nogil:
    void minorm_apply_float(
        const float* x, const float* s, const float* b, bint each, Py_ssize_t param, float* y, Py_ssize_t step,
        Py_ssize_t runs, Py_ssize_t n, Py_ssize_t next, bint far, float k, float d, float r
    ) noexcept
    void minorm_grad_float(
        const float* dy, const float* x, const float* s, bint each, Py_ssize_t param, float* dx,
        float* ds, float* db, Py_ssize_t step, Py_ssize_t runs, Py_ssize_t n, Py_ssize_t next, bint far,
        float k, float d, float r, float p, float q
    ) noexcept
    void minorm_grad_given_float(
        const float* dy, const float* s, bint each, Py_ssize_t param, float* dx, Py_ssize_t step, Py_ssize_t runs,
        Py_ssize_t n, bint far, float r
    ) noexcept
    void minorm_grad_params_float(
        const float* dy, const float* x, Py_ssize_t param, float* ds, float* db, Py_ssize_t step, Py_ssize_t runs,
        Py_ssize_t n, float k, float d, float r
    ) noexcept
    void minorm_apply_double(
        const double* x, const double* s, const double* b, bint each, Py_ssize_t param, double* y, Py_ssize_t step,
        Py_ssize_t runs, Py_ssize_t n, Py_ssize_t next, bint far, double k, double d, double r
    ) noexcept
    void minorm_grad_double(
        const double* dy, const double* x, const double* s, bint each, Py_ssize_t param, double* dx,
        double* ds, double* db, Py_ssize_t step, Py_ssize_t runs, Py_ssize_t n, Py_ssize_t next, bint far,
        double k, double d, double r, double p, double q
    ) noexcept
    void minorm_grad_given_double(
        const double* dy, const double* s, bint each, Py_ssize_t param, double* dx, Py_ssize_t step, Py_ssize_t runs,
        Py_ssize_t n, bint far, double r
    ) noexcept
    void minorm_grad_params_double(
        const double* dy, const double* x, Py_ssize_t param, double* ds, double* db, Py_ssize_t step, Py_ssize_t runs,
        Py_ssize_t n, double k, double d, double r
    ) noexcept
    void minorm_apply_half(
        const uint16_t* x, const float* s, const float* b, bint each, Py_ssize_t param, uint16_t* y, Py_ssize_t step,
        Py_ssize_t runs, Py_ssize_t n, Py_ssize_t next, bint far, float k, float d, float r
    ) noexcept
    void minorm_grad_half(
        const uint16_t* dy, const uint16_t* x, const float* s, bint each, Py_ssize_t param, uint16_t* dx,
        float* ds, float* db, Py_ssize_t step, Py_ssize_t runs, Py_ssize_t n, Py_ssize_t next, bint far,
        float k, float d, float r, float p, float q
    ) noexcept
    void minorm_grad_given_half(
        const uint16_t* dy, const float* s, bint each, Py_ssize_t param, uint16_t* dx, Py_ssize_t step, Py_ssize_t runs,
        Py_ssize_t n, bint far, float r
    ) noexcept
    void minorm_grad_params_half(
        const uint16_t* dy, const uint16_t* x, Py_ssize_t param, float* ds, float* db, Py_ssize_t step, Py_ssize_t runs,
        Py_ssize_t n, float k, float d, float r
    ) noexcept
    void minorm_apply_bfloat(
        const uint16_t* x, const float* s, const float* b, bint each, Py_ssize_t param, uint16_t* y, Py_ssize_t step,
        Py_ssize_t runs, Py_ssize_t n, Py_ssize_t next, bint far, float k, float d, float r
    ) noexcept
    void minorm_grad_bfloat(
        const uint16_t* dy, const uint16_t* x, const float* s, bint each, Py_ssize_t param, uint16_t* dx,
        float* ds, float* db, Py_ssize_t step, Py_ssize_t runs, Py_ssize_t n, Py_ssize_t next, bint far,
        float k, float d, float r, float p, float q
    ) noexcept
    void minorm_grad_given_bfloat(
        const uint16_t* dy, const float* s, bint each, Py_ssize_t param, uint16_t* dx, Py_ssize_t step, Py_ssize_t runs,
        Py_ssize_t n, bint far, float r
    ) noexcept
    void minorm_grad_params_bfloat(
        const uint16_t* dy, const uint16_t* x, Py_ssize_t param, float* ds, float* db, Py_ssize_t step, Py_ssize_t runs,
        Py_ssize_t n, float k, float d, float r
    ) noexcept
    void minorm_apply_rows_float(
        const float* x, const float* s, const float* b, const Py_ssize_t* param, float* y,
        const Py_ssize_t* start, Py_ssize_t rows, Py_ssize_t n, const float* k, const float* d, const float* r
    ) noexcept
    void minorm_grad_rows_float(
        const float* dy, const float* x, const float* s, const Py_ssize_t* param, float* dx,
        const Py_ssize_t* start, Py_ssize_t rows, Py_ssize_t n,
        const float* k, const float* d, const float* r, const float* p, const float* q
    ) noexcept
    void minorm_apply_rows_double(
        const double* x, const double* s, const double* b, const Py_ssize_t* param, double* y,
        const Py_ssize_t* start, Py_ssize_t rows, Py_ssize_t n, const double* k, const double* d, const double* r
    ) noexcept
    void minorm_grad_rows_double(
        const double* dy, const double* x, const double* s, const Py_ssize_t* param, double* dx,
        const Py_ssize_t* start, Py_ssize_t rows, Py_ssize_t n,
        const double* k, const double* d, const double* r, const double* p, const double* q
    ) noexcept
    void minorm_apply_rows_half(
        const uint16_t* x, const float* s, const float* b, const Py_ssize_t* param, uint16_t* y,
        const Py_ssize_t* start, Py_ssize_t rows, Py_ssize_t n, const float* k, const float* d, const float* r
    ) noexcept
    void minorm_grad_rows_half(
        const uint16_t* dy, const uint16_t* x, const float* s, const Py_ssize_t* param, uint16_t* dx,
        const Py_ssize_t* start, Py_ssize_t rows, Py_ssize_t n,
        const float* k, const float* d, const float* r, const float* p, const float* q
    ) noexcept
    void minorm_apply_rows_bfloat(
        const uint16_t* x, const float* s, const float* b, const Py_ssize_t* param, uint16_t* y,
        const Py_ssize_t* start, Py_ssize_t rows, Py_ssize_t n, const float* k, const float* d, const float* r
    ) noexcept
    void minorm_grad_rows_bfloat(
        const uint16_t* dy, const uint16_t* x, const float* s, const Py_ssize_t* param, uint16_t* dx,
        const Py_ssize_t* start, Py_ssize_t rows, Py_ssize_t n,
        const float* k, const float* d, const float* r, const float* p, const float* q
    ) noexcept


cdef inline void apply(
    const Data* x, const Data* y, Py_ssize_t at, const real* s, const real* b, bint each, Py_ssize_t param,
    Py_ssize_t step, Py_ssize_t runs, Py_ssize_t n, Py_ssize_t next, real k, real d, real r,
) noexcept nogil:
    """y = ((x - k) - d) * r * s + b."""
    if real is double:
        minorm_apply_double(
            <const double*>x.items + at, s, b, each, param, <double*>y.items + at,
            step, runs, n, next, y.stream, k, d, r,
        )
    elif goes_as_float(x.type == SINGLE):
        minorm_apply_float(
            <const float*>x.items + at, s, b, each, param, <float*>y.items + at,
            step, runs, n, next, y.stream, k, d, r,
        )
    elif x.type == HALF:
        minorm_apply_half(
            <const uint16_t*>x.items + at, s, b, each, param, <uint16_t*>y.items + at,
            step, runs, n, next, y.stream, k, d, r,
        )
    else:
        minorm_apply_bfloat(
            <const uint16_t*>x.items + at, s, b, each, param, <uint16_t*>y.items + at,
            step, runs, n, next, y.stream, k, d, r,
        )


cdef inline void grad(
    const Data* dy, const Data* x, const Data* dx, Py_ssize_t at, const real* s, bint each, Py_ssize_t param,
    real* ds, real* db, Py_ssize_t step, Py_ssize_t runs, Py_ssize_t n, Py_ssize_t next,
    real k, real d, real r, real p, real q,
) noexcept nogil:
    """dx = (dy * s * r - p) - xhat * q, ds += dy * xhat, db += dy."""
    if real is double:
        minorm_grad_double(
            <const double*>dy.items + at, <const double*>x.items + at, s, each, param, <double*>dx.items + at,
            ds, db, step, runs, n, next, dx.stream, k, d, r, p, q,
        )
    elif goes_as_float(x.type == SINGLE):
        minorm_grad_float(
            <const float*>dy.items + at, <const float*>x.items + at, s, each, param, <float*>dx.items + at,
            ds, db, step, runs, n, next, dx.stream, k, d, r, p, q,
        )
    elif x.type == HALF:
        minorm_grad_half(
            <const uint16_t*>dy.items + at, <const uint16_t*>x.items + at, s, each, param, <uint16_t*>dx.items + at,
            ds, db, step, runs, n, next, dx.stream, k, d, r, p, q,
        )
    else:
        minorm_grad_bfloat(
            <const uint16_t*>dy.items + at, <const uint16_t*>x.items + at, s, each, param, <uint16_t*>dx.items + at,
            ds, db, step, runs, n, next, dx.stream, k, d, r, p, q,
        )


cdef inline void grad_given(
    const Data* dy, const Data* dx, Py_ssize_t at, const real* s, bint each, Py_ssize_t param,
    Py_ssize_t step, Py_ssize_t runs, Py_ssize_t n, real r,
) noexcept nogil:
    """dx = dy * s * r: the statistics were given."""
    if real is double:
        minorm_grad_given_double(
            <const double*>dy.items + at, s, each, param, <double*>dx.items + at, step, runs, n, dx.stream, r,
        )
    elif goes_as_float(dy.type == SINGLE):
        minorm_grad_given_float(
            <const float*>dy.items + at, s, each, param, <float*>dx.items + at, step, runs, n, dx.stream, r,
        )
    elif dy.type == HALF:
        minorm_grad_given_half(
            <const uint16_t*>dy.items + at, s, each, param, <uint16_t*>dx.items + at, step, runs, n, dx.stream, r,
        )
    else:
        minorm_grad_given_bfloat(
            <const uint16_t*>dy.items + at, s, each, param, <uint16_t*>dx.items + at, step, runs, n, dx.stream, r,
        )


cdef inline void grad_params(
    const Data* dy, const Data* x, Py_ssize_t at, Py_ssize_t param, real* ds, real* db,
    Py_ssize_t step, Py_ssize_t runs, Py_ssize_t n, real k, real d, real r,
) noexcept nogil:
    """ds += dy * xhat, db += dy."""
    if real is double:
        minorm_grad_params_double(
            <const double*>dy.items + at, <const double*>x.items + at, param, ds, db, step, runs, n, k, d, r,
        )
    elif goes_as_float(x.type == SINGLE):
        minorm_grad_params_float(
            <const float*>dy.items + at, <const float*>x.items + at, param, ds, db, step, runs, n, k, d, r,
        )
    elif x.type == HALF:
        minorm_grad_params_half(
            <const uint16_t*>dy.items + at, <const uint16_t*>x.items + at, param, ds, db, step, runs, n, k, d, r,
        )
    else:
        minorm_grad_params_bfloat(
            <const uint16_t*>dy.items + at, <const uint16_t*>x.items + at, param, ds, db, step, runs, n, k, d, r,
        )


cdef inline void apply_rows(
    const Data* x, const Data* y, const Py_ssize_t* start, Py_ssize_t rows, Py_ssize_t n,
    const real* s, const real* b, const Py_ssize_t* param, const real* k, const real* d, const real* r,
) noexcept nogil:
    """`apply` on near rows of one run, which begin at `start` and have one scale and bias each, at `param`."""
    if real is double:
        minorm_apply_rows_double(
            <const double*>x.items, s, b, param, <double*>y.items, start, rows, n, k, d, r,
        )
    elif goes_as_float(x.type == SINGLE):
        minorm_apply_rows_float(
            <const float*>x.items, s, b, param, <float*>y.items, start, rows, n, k, d, r,
        )
    elif x.type == HALF:
        minorm_apply_rows_half(
            <const uint16_t*>x.items, s, b, param, <uint16_t*>y.items, start, rows, n, k, d, r,
        )
    else:
        minorm_apply_rows_bfloat(
            <const uint16_t*>x.items, s, b, param, <uint16_t*>y.items, start, rows, n, k, d, r,
        )


cdef inline void grad_rows(
    const Data* dy, const Data* x, const Data* dx, const Py_ssize_t* start, Py_ssize_t rows, Py_ssize_t n,
    const real* s, const Py_ssize_t* param, const real* k, const real* d, const real* r, const real* p, const real* q,
) noexcept nogil:
    """`grad` on such rows."""
    if real is double:
        minorm_grad_rows_double(
            <const double*>dy.items, <const double*>x.items, s, param, <double*>dx.items,
            start, rows, n, k, d, r, p, q,
        )
    elif goes_as_float(x.type == SINGLE):
        minorm_grad_rows_float(
            <const float*>dy.items, <const float*>x.items, s, param, <float*>dx.items,
            start, rows, n, k, d, r, p, q,
        )
    elif x.type == HALF:
        minorm_grad_rows_half(
            <const uint16_t*>dy.items, <const uint16_t*>x.items, s, param, <uint16_t*>dx.items,
            start, rows, n, k, d, r, p, q,
        )
    else:
        minorm_grad_rows_bfloat(
            <const uint16_t*>dy.items, <const uint16_t*>x.items, s, param, <uint16_t*>dx.items,
            start, rows, n, k, d, r, p, q,
        )
