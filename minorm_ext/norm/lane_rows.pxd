# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# Rows of lanes: see lane_rows.h.

from libc.stdint cimport uint16_t

from minorm_ext.simd.storage cimport HALF, SINGLE, Data, goes_as_float, real

cdef extern from "norm/lane_rows.h" nogil:
    ctypedef struct LaneRows "minorm_rows":
        Py_ssize_t count
        Py_ssize_t step  # from one to the next
        Py_ssize_t n     # lanes of each
        Py_ssize_t next  # how far on the rows lie that are asked for, where data is far
        Py_ssize_t then
        bint held        # are they in cache by now?
    void minorm_lane_sums_float(
        const float* x, const LaneRows* rows, bint far, const float* k, float* a, float* q
    ) noexcept
    void minorm_lane_grad_sums_float(
        const float* dy, const float* x, const LaneRows* rows, bint far,
        const float* k, const float* d, float w, float* a, float* q
    ) noexcept
    void minorm_lane_apply_float(
        const float* x, float* y, const LaneRows* rows, bint far,
        const float* k, const float* d, const float* c, const float* e, float w, float u
    ) noexcept
    void minorm_lane_grad_float(
        const float* dy, const float* x, float* dx, const LaneRows* rows, bint far,
        const float* k, const float* d, const float* r, const float* c, const float* p, const float* q, float w
    ) noexcept
    void minorm_lane_sums_double(
        const double* x, const LaneRows* rows, bint far, const double* k, double* a, double* q
    ) noexcept
    void minorm_lane_grad_sums_double(
        const double* dy, const double* x, const LaneRows* rows, bint far,
        const double* k, const double* d, double w, double* a, double* q
    ) noexcept
    void minorm_lane_apply_double(
        const double* x, double* y, const LaneRows* rows, bint far,
        const double* k, const double* d, const double* c, const double* e, double w, double u
    ) noexcept
    void minorm_lane_grad_double(
        const double* dy, const double* x, double* dx, const LaneRows* rows, bint far,
        const double* k, const double* d, const double* r, const double* c, const double* p, const double* q, double w
    ) noexcept
    void minorm_lane_sums_half(
        const uint16_t* x, const LaneRows* rows, bint far, const float* k, float* a, float* q
    ) noexcept
    void minorm_lane_grad_sums_half(
        const uint16_t* dy, const uint16_t* x, const LaneRows* rows, bint far,
        const float* k, const float* d, float w, float* a, float* q
    ) noexcept
    void minorm_lane_apply_half(
        const uint16_t* x, uint16_t* y, const LaneRows* rows, bint far,
        const float* k, const float* d, const float* c, const float* e, float w, float u
    ) noexcept
    void minorm_lane_grad_half(
        const uint16_t* dy, const uint16_t* x, uint16_t* dx, const LaneRows* rows, bint far,
        const float* k, const float* d, const float* r, const float* c, const float* p, const float* q, float w
    ) noexcept
    void minorm_lane_sums_bfloat(
        const uint16_t* x, const LaneRows* rows, bint far, const float* k, float* a, float* q
    ) noexcept
    void minorm_lane_grad_sums_bfloat(
        const uint16_t* dy, const uint16_t* x, const LaneRows* rows, bint far,
        const float* k, const float* d, float w, float* a, float* q
    ) noexcept
    void minorm_lane_apply_bfloat(
        const uint16_t* x, uint16_t* y, const LaneRows* rows, bint far,
        const float* k, const float* d, const float* c, const float* e, float w, float u
    ) noexcept
    void minorm_lane_grad_bfloat(
        const uint16_t* dy, const uint16_t* x, uint16_t* dx, const LaneRows* rows, bint far,
        const float* k, const float* d, const float* r, const float* c, const float* p, const float* q, float w
    ) noexcept


cdef inline void lane_add(
    const Data* x, Py_ssize_t at, const LaneRows* rows, const real* k, real* a, real* q
) noexcept nogil:
    """a += x - k, q += (x - k)^2."""
    if real is double:
        minorm_lane_sums_double(<const double*>x.items + at, rows, x.far, k, a, q)
    elif goes_as_float(x.type == SINGLE):
        minorm_lane_sums_float(<const float*>x.items + at, rows, x.far, k, a, q)
    elif x.type == HALF:
        minorm_lane_sums_half(<const uint16_t*>x.items + at, rows, x.far, k, a, q)
    else:
        minorm_lane_sums_bfloat(<const uint16_t*>x.items + at, rows, x.far, k, a, q)


cdef inline void lane_grad_add(
    const Data* dy, const Data* x, Py_ssize_t at, const LaneRows* rows, const real* k, const real* d, real w,
    real* a, real* q,
) noexcept nogil:
    """a += g, q += g * (x - mean); g = dy * w."""
    if real is double:
        minorm_lane_grad_sums_double(
            <const double*>dy.items + at, <const double*>x.items + at, rows, x.far, k, d, w, a, q
        )
    elif goes_as_float(x.type == SINGLE):
        minorm_lane_grad_sums_float(
            <const float*>dy.items + at, <const float*>x.items + at, rows, x.far, k, d, w, a, q
        )
    elif x.type == HALF:
        minorm_lane_grad_sums_half(
            <const uint16_t*>dy.items + at, <const uint16_t*>x.items + at, rows, x.far, k, d, w, a, q
        )
    else:
        minorm_lane_grad_sums_bfloat(
            <const uint16_t*>dy.items + at, <const uint16_t*>x.items + at, rows, x.far, k, d, w, a, q
        )


cdef inline void lane_apply(
    const Data* x, const Data* y, Py_ssize_t at, const LaneRows* rows,
    const real* k, const real* d, const real* c, const real* e, real w, real u,
) noexcept nogil:
    """y = ((x - k) - d) * (c * w) + (e + u)."""
    if real is double:
        minorm_lane_apply_double(
            <const double*>x.items + at, <double*>y.items + at, rows, y.stream, k, d, c, e, w, u
        )
    elif goes_as_float(x.type == SINGLE):
        minorm_lane_apply_float(
            <const float*>x.items + at, <float*>y.items + at, rows, y.stream, k, d, c, e, w, u
        )
    elif x.type == HALF:
        minorm_lane_apply_half(
            <const uint16_t*>x.items + at, <uint16_t*>y.items + at, rows, y.stream, k, d, c, e, w, u
        )
    else:
        minorm_lane_apply_bfloat(
            <const uint16_t*>x.items + at, <uint16_t*>y.items + at, rows, y.stream, k, d, c, e, w, u
        )


cdef inline void lane_grad(
    const Data* dy, const Data* x, const Data* dx, Py_ssize_t at, const LaneRows* rows,
    const real* k, const real* d, const real* r, const real* c, const real* p, const real* q, real w,
) noexcept nogil:
    """dx = (dy * (c * w) - p) - ((x - k) - d) * r * q."""
    if real is double:
        minorm_lane_grad_double(
            <const double*>dy.items + at, <const double*>x.items + at, <double*>dx.items + at,
            rows, dx.stream, k, d, r, c, p, q, w,
        )
    elif goes_as_float(x.type == SINGLE):
        minorm_lane_grad_float(
            <const float*>dy.items + at, <const float*>x.items + at, <float*>dx.items + at,
            rows, dx.stream, k, d, r, c, p, q, w,
        )
    elif x.type == HALF:
        minorm_lane_grad_half(
            <const uint16_t*>dy.items + at, <const uint16_t*>x.items + at, <uint16_t*>dx.items + at,
            rows, dx.stream, k, d, r, c, p, q, w,
        )
    else:
        minorm_lane_grad_bfloat(
            <const uint16_t*>dy.items + at, <const uint16_t*>x.items + at, <uint16_t*>dx.items + at,
            rows, dx.stream, k, d, r, c, p, q, w,
        )
