# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# Both phases at once, of rows that come from memory and whose results go around the cache: see far.h.

from minorm_ext.simd.storage cimport Data, real

cdef extern from "norm/far.h" nogil:
    void minorm_apply_and_sum_float(
        const float* x, const float* s, const float* b, float* y, Py_ssize_t n, bint begins, bint ends,
        const float* x1, Py_ssize_t n1, bint opens, bint closes,
        float k, float d, float r, float c, float c_b, float k1, float* held
    ) noexcept
    void minorm_grad_and_sum_float(
        const float* dy, const float* x, const float* s, float* dx, float* ds, float* db,
        Py_ssize_t n, bint begins, bint ends, const float* dy1, const float* x1, const float* s1,
        Py_ssize_t n1, bint opens, bint closes,
        float k, float d, float r, float c, float p, float q, float k1, float d1, float* held
    ) noexcept
    void minorm_apply_and_sum_double(
        const double* x, const double* s, const double* b, double* y, Py_ssize_t n, bint begins, bint ends,
        const double* x1, Py_ssize_t n1, bint opens, bint closes,
        double k, double d, double r, double c, double c_b, double k1, double* held
    ) noexcept
    void minorm_grad_and_sum_double(
        const double* dy, const double* x, const double* s, double* dx, double* ds, double* db,
        Py_ssize_t n, bint begins, bint ends, const double* dy1, const double* x1, const double* s1,
        Py_ssize_t n1, bint opens, bint closes,
        double k, double d, double r, double c, double p, double q, double k1, double d1, double* held
    ) noexcept


cdef struct Piece:         # of a row
    # In the second phase:
    Py_ssize_t data        # where it begins, seen from the row
    Py_ssize_t length
    Py_ssize_t param       # where its parameters begin, seen from the row's
    Py_ssize_t collected   # and their gradients, in what a block collects
    bint begins            # a run, so that no line of the result is shared with what lies before
    bint ends
    # In the first:
    Py_ssize_t start       # where it begins, seen from the row
    Py_ssize_t count       # of elements
    Py_ssize_t sum         # to which it belongs: one of a chunk, or of a run
    bint opens             # a sum
    bint closes


cdef inline void apply_and_sum(
    const Data* x, const Data* y, Py_ssize_t at, const real* s, const real* b, const Piece* piece,
    Py_ssize_t at1, const Piece* piece1, real k, real d, real r, real c, real c_b, real k1, real* held,
) noexcept nogil:
    """`apply` on a piece that begins at `at`, and the sums of one that begins at `at1`, whose shift is k1."""
    if real is double:
        minorm_apply_and_sum_double(
            <const double*>x.items + at, s, b, <double*>y.items + at, piece.length, piece.begins, piece.ends,
            <const double*>x.items + at1, piece1.count, piece1.opens, piece1.closes, k, d, r, c, c_b, k1, held,
        )
    else:
        minorm_apply_and_sum_float(
            <const float*>x.items + at, s, b, <float*>y.items + at, piece.length, piece.begins, piece.ends,
            <const float*>x.items + at1, piece1.count, piece1.opens, piece1.closes, k, d, r, c, c_b, k1, held,
        )


cdef inline void grad_and_sum(
    const Data* dy, const Data* x, const Data* dx, Py_ssize_t at, const real* s, real* ds, real* db,
    const Piece* piece, Py_ssize_t at1, const real* s1, const Piece* piece1,
    real k, real d, real r, real c, real p, real q, real k1, real d1, real* held,
) noexcept nogil:
    """`grad` on a piece that begins at `at`, and the sums of one that begins at `at1`, whose mean is k1 + d1."""
    if real is double:
        minorm_grad_and_sum_double(
            <const double*>dy.items + at, <const double*>x.items + at, s, <double*>dx.items + at, ds, db,
            piece.length, piece.begins, piece.ends, <const double*>dy.items + at1, <const double*>x.items + at1, s1,
            piece1.count, piece1.opens, piece1.closes, k, d, r, c, p, q, k1, d1, held,
        )
    else:
        minorm_grad_and_sum_float(
            <const float*>dy.items + at, <const float*>x.items + at, s, <float*>dx.items + at, ds, db,
            piece.length, piece.begins, piece.ends, <const float*>dy.items + at1, <const float*>x.items + at1, s1,
            piece1.count, piece1.opens, piece1.closes, k, d, r, c, p, q, k1, d1, held,
        )
