# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# Running statistics: running = running * keep + batch * share, in double and rounded once.
# minorm/normalization/running.py says when. This file also converts given statistics into the form of the kernels.

from minorm_ext.norm.moments cimport Equation, rounded, rstds_of
from minorm_ext.simd.storage cimport DOUBLE, SINGLE, Data, Type, fetch, put

cdef enum:
    AT_ONCE = 256  # statistics at a time


cdef inline bint are_small(const double* values, Py_ssize_t n, double limit) noexcept nogil:
    """Return whether the squares add up to less than limit; never with a NaN or an infinite value."""
    cdef double squares = 0
    cdef Py_ssize_t i
    for i in range(n):
        squares += values[i] * values[i]
    return squares < limit


cdef inline void blend_rows(
    char* running, Type type, const double* k, const double* d, Py_ssize_t n, double keep, double share
) noexcept nogil:
    """Blend the batch's k + d, or k if d is NULL, into the running numbers, to NumPy's bits."""
    cdef double[AT_ONCE] scratch
    cdef double[AT_ONCE] kept
    cdef Data data
    cdef const double* old
    cdef double* new
    cdef Py_ssize_t at = 0
    cdef Py_ssize_t some, i
    data.items = running
    data.type = type
    data.nontemporal = False
    data.mask = NULL
    while at < n:
        some = min(<Py_ssize_t>AT_ONCE, n - at)
        old = fetch(&data, at, some, scratch)
        new = <double*>running + at if type == DOUBLE else scratch
        for i in range(some):
            kept[i] = old[i] * keep
            new[i] = (k[at + i] + (d[at + i] if d != NULL else 0)) * share
        for i in range(some):
            new[i] += kept[i]
        if type != DOUBLE:
            put(&data, at, some, new)
        at += some


cdef inline double item_of(const void* items, Type type, Py_ssize_t i) noexcept nogil:
    """Return an element of float32 or float64."""
    return (<const double*>items)[i] if type == DOUBLE else (<const float*>items)[i]


cdef inline void take_statistics(
    const Equation* equation, bint single, const void* means, const void* variances, Type type, double* k, Py_ssize_t n
) noexcept nogil:
    """Fill in the numbers that moments would have computed: n times k, then n times d, var and rstd."""
    cdef bint exact = (type == SINGLE) == single  # a mean of the type computed in is all k
    cdef double* d = k + n
    cdef double* var = d + n
    cdef double mean
    cdef Py_ssize_t i
    for i in range(n):
        mean = item_of(means, type, i)
        k[i] = rounded(single, mean)
        d[i] = 0 if exact else mean - k[i]
        var[i] = item_of(variances, type, i)
    rstds_of(equation, var, var + n, n)
