# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# Means and variances of pieces, and their merging: Chan's formula, in double, relative to a shift.
#
# The data itself is never summed. Of each piece the kernels sum x - k, with a k close to the piece's mean, in the type
# computed in. The pieces, whose offsets are relative to one common shift, are merged in double, always in the same
# order.

from libc.math cimport sqrt


cdef struct Moments:
    double n       # how many elements
    double offset  # their mean minus the shift
    double m2      # sum of squared distances from their mean


cdef struct Equation:  # minorm/normalization/equation.py
    double eps
    bint centered
    bint guard


cdef inline Moments moments_of(double n, double ahead, double sum, double squares, bint centered) noexcept nogil:
    """Return the moments of n elements from sum(x - k) and sum((x - k)^2); k lies `ahead` of the shift."""
    cdef Moments m
    cdef double one = 1 / n
    m.n = n
    m.offset = ahead + sum * one if centered else 0
    m.m2 = max(squares - sum * sum * one, 0.0) if centered else squares
    return m


cdef inline Moments merge(Moments a, Moments b) noexcept nogil:
    """Merge the moments of two pieces by Chan's formula."""
    cdef double n = a.n + b.n
    cdef double delta = b.offset - a.offset
    cdef double share = b.n / n
    if a.n == 0:
        return b
    a.offset += delta * share
    a.m2 = a.m2 + b.m2 + delta * delta * (a.n * share)
    a.n = n
    return a


cdef inline double rounded(bint single, double value) noexcept nogil:
    """Round to the type computed in."""
    return <float>value if single else value


cdef inline bint poor_shift(double n, double a, double m2) noexcept nogil:
    """Return whether a shift was two standard deviations or more from the mean: then m2 = q - a*a/n has lost digits."""
    return a * a > 4 * n * m2


cdef inline Py_ssize_t out_of_range(bint single, double n, double a, double q) noexcept nogil:
    """Did squares that add up to q leave the range of their type? (All elements equal is fine; NaN is out of range.)"""
    cdef double smallest = 1e-30 if single else 1e-290
    cdef double largest = 1e38 if single else 1e307
    return (((q > smallest * n) & (q < largest)) | ((q == 0) & (a == 0))) ^ 1


cdef inline double rstd_of(const Equation* equation, double var) noexcept nogil:
    """1 / sqrt(var + eps), or 1 / (sqrt(var) + eps) with the guard and 0 where var is 0."""
    if equation.guard:
        return 0 if var == 0 else 1 / (sqrt(var) + equation.eps)
    return 1 / sqrt(var + equation.eps)


cdef inline void rstds_of(const Equation* equation, const double* var, double* rstd, Py_ssize_t n) noexcept nogil:
    """Compute rstd of many variances at once."""
    cdef Py_ssize_t i
    if equation.guard:
        for i in range(n):
            rstd[i] = rstd_of(equation, var[i])
    else:
        for i in range(n):
            rstd[i] = 1 / sqrt(var[i] + equation.eps)


cdef inline double slope_of(const Equation* equation, double var) noexcept nogil:
    """Return the factor of mean(g * xhat) in dx: (std + eps) / std with the guard, or 0 if std is 0."""
    cdef double std
    if not equation.guard:
        return 1
    std = sqrt(var)
    return 0 if std == 0 else (std + equation.eps) / std
