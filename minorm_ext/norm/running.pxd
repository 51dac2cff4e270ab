# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# Running statistics: running = running * keep + batch * share, in double and rounded once. minorm/normalization/running.py says when.

from minorm_ext.simd.storage cimport DOUBLE, Data, Type, fetch, put

cdef enum:
    AT_ONCE = 256  # statistics at a time


cdef inline bint are_small(const double* values, Py_ssize_t n, double limit) noexcept nogil:
    """Do the squares add up to less than limit? Not where a value is NaN or infinite."""
    cdef double squares = 0
    cdef Py_ssize_t i
    for i in range(n):
        squares += values[i] * values[i]
    return squares < limit


cdef inline void blend_rows(
    char* running, Type type, const double* k, const double* d, Py_ssize_t n, double keep, double share
) noexcept nogil:
    """The batch has k + d, or k where d is NULL: NumPy's bits."""
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
