# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# The second phase on rows that follow each other, around the cache, a line of memory at a time: see lines.h.

from libc.stdint cimport uint16_t

from minorm_ext.norm.sums cimport BATCH
from minorm_ext.simd.storage cimport HALF, SINGLE, Data, goes_as_float, real, size_of

cdef extern from "norm/lines.h" nogil:
    enum:
        FACTORS
    void minorm_apply_lines_float(
        const float* x, const float* s, const float* b, float* y, Py_ssize_t n, Py_ssize_t rows,
        bint opens, bint closes, Py_ssize_t next, const float* of, Py_ssize_t across
    ) noexcept
    void minorm_grad_lines_float(
        const float* dy, const float* x, const float* s, float* dx, float* ds, float* db,
        Py_ssize_t n, Py_ssize_t rows, bint opens, bint closes, Py_ssize_t next, const float* of, Py_ssize_t across
    ) noexcept
    void minorm_apply_lines_double(
        const double* x, const double* s, const double* b, double* y, Py_ssize_t n, Py_ssize_t rows,
        bint opens, bint closes, Py_ssize_t next, const double* of, Py_ssize_t across
    ) noexcept
    void minorm_grad_lines_double(
        const double* dy, const double* x, const double* s, double* dx, double* ds, double* db,
        Py_ssize_t n, Py_ssize_t rows, bint opens, bint closes, Py_ssize_t next, const double* of, Py_ssize_t across
    ) noexcept
    void minorm_apply_lines_half(
        const uint16_t* x, const float* s, const float* b, uint16_t* y, Py_ssize_t n, Py_ssize_t rows,
        bint opens, bint closes, Py_ssize_t next, const float* of, Py_ssize_t across
    ) noexcept
    void minorm_grad_lines_half(
        const uint16_t* dy, const uint16_t* x, const float* s, uint16_t* dx, float* ds, float* db,
        Py_ssize_t n, Py_ssize_t rows, bint opens, bint closes, Py_ssize_t next, const float* of, Py_ssize_t across
    ) noexcept
    void minorm_apply_lines_bfloat(
        const uint16_t* x, const float* s, const float* b, uint16_t* y, Py_ssize_t n, Py_ssize_t rows,
        bint opens, bint closes, Py_ssize_t next, const float* of, Py_ssize_t across
    ) noexcept
    void minorm_grad_lines_bfloat(
        const uint16_t* dy, const uint16_t* x, const float* s, uint16_t* dx, float* ds, float* db,
        Py_ssize_t n, Py_ssize_t rows, bint opens, bint closes, Py_ssize_t next, const float* of, Py_ssize_t across
    ) noexcept


cdef enum:
    MORE = 16           # elements of a turn, at most
    ACROSS = BATCH + 1  # from what is known of a row to what else is: so much of the row before, and of BATCH rows


cdef inline bint fills_lines(const Data* result, Py_ssize_t n) noexcept nogil:
    """Does a result go around the cache, and are rows of n elements as long as a line?"""
    return result.direct and result.stream and n * size_of(result.type) >= 64


cdef inline void scale_rows(
    const real* s, const Py_ssize_t* param, const real* r, Py_ssize_t n, real* c
) noexcept nogil:
    """rstd * s of n rows, whose parameters are at `param`."""
    cdef Py_ssize_t i
    for i in range(n):
        c[i] = r[i] * s[param[i]] if s else r[i]


cdef inline void keep_last(real* known, Py_ssize_t n) noexcept nogil:
    """The last of n rows is the one before those that come next."""
    cdef int f
    for f in range(FACTORS):
        known[f * ACROSS] = known[f * ACROSS + n]


cdef inline const real* extended(const real* s, Py_ssize_t n, real* room) noexcept nogil:
    """n parameters, and then the first of them once more; NULL if there are none."""
    cdef Py_ssize_t i
    if s == NULL:
        return NULL
    for i in range(n + MORE):
        room[i] = s[i % n]
    return room


cdef inline void add_extended(real* total, const real* room, Py_ssize_t n) noexcept nogil:
    """Add what such turns have collected to gradients of n parameters."""
    cdef Py_ssize_t i
    for i in range(n):
        total[i] += room[i]
    for i in range(MORE):
        total[i % n] += room[n + i]


cdef inline void apply_lines(
    const Data* x, const Data* y, Py_ssize_t at, const real* s, const real* b, Py_ssize_t n, Py_ssize_t rows,
    bint opens, bint closes, Py_ssize_t next, const real* known, Py_ssize_t across,
) noexcept nogil:
    """y of rows of n elements, the first of which begins at `at`. s and b, if rows share them, are `extended`."""
    if real is double:
        minorm_apply_lines_double(
            <const double*>x.items + at, s, b, <double*>y.items + at, n, rows, opens, closes, next, known, across
        )
    elif goes_as_float(x.type == SINGLE):
        minorm_apply_lines_float(
            <const float*>x.items + at, s, b, <float*>y.items + at, n, rows, opens, closes, next, known, across
        )
    elif x.type == HALF:
        minorm_apply_lines_half(
            <const uint16_t*>x.items + at, s, b, <uint16_t*>y.items + at, n, rows, opens, closes, next, known, across
        )
    else:
        minorm_apply_lines_bfloat(
            <const uint16_t*>x.items + at, s, b, <uint16_t*>y.items + at, n, rows, opens, closes, next, known, across
        )


cdef inline void grad_lines(
    const Data* dy, const Data* x, const Data* dx, Py_ssize_t at, const real* s, real* ds, real* db, Py_ssize_t n,
    Py_ssize_t rows, bint opens, bint closes, Py_ssize_t next, const real* known, Py_ssize_t across,
) noexcept nogil:
    """dx of them."""
    if real is double:
        minorm_grad_lines_double(
            <const double*>dy.items + at, <const double*>x.items + at, s, <double*>dx.items + at, ds, db,
            n, rows, opens, closes, next, known, across,
        )
    elif goes_as_float(x.type == SINGLE):
        minorm_grad_lines_float(
            <const float*>dy.items + at, <const float*>x.items + at, s, <float*>dx.items + at, ds, db,
            n, rows, opens, closes, next, known, across,
        )
    elif x.type == HALF:
        minorm_grad_lines_half(
            <const uint16_t*>dy.items + at, <const uint16_t*>x.items + at, s, <uint16_t*>dx.items + at, ds, db,
            n, rows, opens, closes, next, known, across,
        )
    else:
        minorm_grad_lines_bfloat(
            <const uint16_t*>dy.items + at, <const uint16_t*>x.items + at, s, <uint16_t*>dx.items + at, ds, db,
            n, rows, opens, closes, next, known, across,
        )
