# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# The second phase on a row that comes from memory and whose result goes around the cache: see norm_far.h.

from minorm_ext.storage cimport Data, real

cdef extern from "norm_far.h" nogil:
    void minorm_apply_far_f(
        const float* x, const float* s, const float* b, float* y, Py_ssize_t n, Py_ssize_t next,
        float k, float d, float r, float c, float c_b
    ) noexcept
    void minorm_apply_far_d(
        const double* x, const double* s, const double* b, double* y, Py_ssize_t n, Py_ssize_t next,
        double k, double d, double r, double c, double c_b
    ) noexcept
    void minorm_grad_far_f(
        const float* dy, const float* x, const float* s, float* dx, float* ds, float* db, Py_ssize_t n,
        Py_ssize_t next, float k, float d, float r, float c, float p, float q
    ) noexcept
    void minorm_grad_far_d(
        const double* dy, const double* x, const double* s, double* dx, double* ds, double* db, Py_ssize_t n,
        Py_ssize_t next, double k, double d, double r, double c, double p, double q
    ) noexcept
    void minorm_apply_and_sum_f(
        const float* x, const float* s, const float* b, float* y, Py_ssize_t n, Py_ssize_t next,
        float k, float d, float r, float c, float c_b, float k1, float* sum, float* squares
    ) noexcept
    void minorm_grad_and_sum_f(
        const float* dy, const float* x, const float* s, float* dx, float* ds, float* db, Py_ssize_t n,
        Py_ssize_t next, float k, float d, float r, float c, float p, float q, float k1, float d1,
        float* sum, float* sum_x
    ) noexcept
    void minorm_apply_and_sum_d(
        const double* x, const double* s, const double* b, double* y, Py_ssize_t n, Py_ssize_t next,
        double k, double d, double r, double c, double c_b, double k1, double* sum, double* squares
    ) noexcept
    void minorm_grad_and_sum_d(
        const double* dy, const double* x, const double* s, double* dx, double* ds, double* db, Py_ssize_t n,
        Py_ssize_t next, double k, double d, double r, double c, double p, double q, double k1, double d1,
        double* sum, double* sum_x
    ) noexcept


cdef inline bint goes_far(const Data* result) noexcept nogil:
    """Around the cache, and neither widened nor rounded on the way."""
    return result.items != NULL and result.stream and result.as_is


cdef inline void apply_far(
    const real* x, const real* s, const real* b, real* y, Py_ssize_t n, Py_ssize_t next,
    real k, real d, real r, real c, real c_b,
) noexcept nogil:
    """y = ((x - k) - d) * r * s + b; c = r * s and c_b = b where the parameters are the same all along."""
    if real is float:
        minorm_apply_far_f(x, s, b, y, n, next, k, d, r, c, c_b)
    else:
        minorm_apply_far_d(x, s, b, y, n, next, k, d, r, c, c_b)


cdef inline void grad_far(
    const real* dy, const real* x, const real* s, real* dx, real* ds, real* db, Py_ssize_t n, Py_ssize_t next,
    real k, real d, real r, real c, real p, real q,
) noexcept nogil:
    """dx = (dy * s * r - p) - xhat * q, ds += dy * xhat, db += dy; c = r * s where s is the same all along."""
    if real is float:
        minorm_grad_far_f(dy, x, s, dx, ds, db, n, next, k, d, r, c, p, q)
    else:
        minorm_grad_far_d(dy, x, s, dx, ds, db, n, next, k, d, r, c, p, q)


cdef inline void apply_and_sum(
    const real* x, const real* s, const real* b, real* y, Py_ssize_t n, Py_ssize_t next,
    real k, real d, real r, real c, real c_b, real k1, real* sum, real* squares,
) noexcept nogil:
    """The same, and the sums of the row `next` elements further on, whose shift is k1."""
    if real is float:
        minorm_apply_and_sum_f(x, s, b, y, n, next, k, d, r, c, c_b, k1, sum, squares)
    else:
        minorm_apply_and_sum_d(x, s, b, y, n, next, k, d, r, c, c_b, k1, sum, squares)


cdef inline void grad_and_sum(
    const real* dy, const real* x, const real* s, real* dx, real* ds, real* db, Py_ssize_t n, Py_ssize_t next,
    real k, real d, real r, real c, real p, real q, real k1, real d1, real* sum, real* sum_x,
) noexcept nogil:
    """The same, and the sums of the row `next` elements further on, whose mean is k1 + d1."""
    if real is float:
        minorm_grad_and_sum_f(dy, x, s, dx, ds, db, n, next, k, d, r, c, p, q, k1, d1, sum, sum_x)
    else:
        minorm_grad_and_sum_d(dy, x, s, dx, ds, db, n, next, k, d, r, c, p, q, k1, d1, sum, sum_x)
