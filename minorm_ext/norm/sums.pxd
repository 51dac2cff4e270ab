# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# Sums over runs: see sums.h.

from libc.stdint cimport uint16_t

from minorm_ext.simd.storage cimport HALF, SINGLE, Data, goes_as_float, real

cdef extern from "norm/sums.h" nogil:
    enum:
        BATCH
        BRIEF
        SOON
    void minorm_sums_float(
        const float* x, Py_ssize_t step, Py_ssize_t runs, Py_ssize_t n, float k, float* sum, float* squares
    ) noexcept
    float minorm_sample_float(const float* x, Py_ssize_t across) noexcept
    void minorm_short_sums_float(
        const float* x, const Py_ssize_t* start, Py_ssize_t rows, Py_ssize_t n, Py_ssize_t next, bint centered,
        float* k, float* sum, float* squares
    ) noexcept
    void minorm_short_grad_sums_float(
        const float* dy, const float* x, const Py_ssize_t* start, Py_ssize_t rows, const float* s, Py_ssize_t n,
        Py_ssize_t next, const float* k, const float* d, float* sum_g, float* sum_gx
    ) noexcept
    void minorm_beside_sums_float(
        const float* x, Py_ssize_t step, Py_ssize_t runs, Py_ssize_t n, Py_ssize_t rows, const float* k, float* held
    ) noexcept
    void minorm_beside_grad_sums_float(
        const float* dy, const float* x, Py_ssize_t step, Py_ssize_t runs, Py_ssize_t n, Py_ssize_t rows,
        const float* k, const float* d, float* held
    ) noexcept
    void minorm_grad_sums_float(
        const float* dy, const float* x, Py_ssize_t step, const float* s, Py_ssize_t s_step,
        Py_ssize_t runs, Py_ssize_t n, float k, float d, float* sum_g, float* sum_gx
    ) noexcept
    void minorm_sums_double(
        const double* x, Py_ssize_t step, Py_ssize_t runs, Py_ssize_t n, double k, double* sum, double* squares
    ) noexcept
    double minorm_sample_double(const double* x, Py_ssize_t across) noexcept
    void minorm_short_sums_double(
        const double* x, const Py_ssize_t* start, Py_ssize_t rows, Py_ssize_t n, Py_ssize_t next, bint centered,
        double* k, double* sum, double* squares
    ) noexcept
    void minorm_short_grad_sums_double(
        const double* dy, const double* x, const Py_ssize_t* start, Py_ssize_t rows, const double* s, Py_ssize_t n,
        Py_ssize_t next, const double* k, const double* d, double* sum_g, double* sum_gx
    ) noexcept
    void minorm_beside_sums_double(
        const double* x, Py_ssize_t step, Py_ssize_t runs, Py_ssize_t n, Py_ssize_t rows, const double* k, double* held
    ) noexcept
    void minorm_beside_grad_sums_double(
        const double* dy, const double* x, Py_ssize_t step, Py_ssize_t runs, Py_ssize_t n, Py_ssize_t rows,
        const double* k, const double* d, double* held
    ) noexcept
    void minorm_grad_sums_double(
        const double* dy, const double* x, Py_ssize_t step, const double* s, Py_ssize_t s_step,
        Py_ssize_t runs, Py_ssize_t n, double k, double d, double* sum_g, double* sum_gx
    ) noexcept
    void minorm_sums_half(
        const uint16_t* x, Py_ssize_t step, Py_ssize_t runs, Py_ssize_t n, float k, float* sum, float* squares
    ) noexcept
    float minorm_sample_half(const uint16_t* x, Py_ssize_t across) noexcept
    void minorm_short_sums_half(
        const uint16_t* x, const Py_ssize_t* start, Py_ssize_t rows, Py_ssize_t n, Py_ssize_t next, bint centered,
        float* k, float* sum, float* squares
    ) noexcept
    void minorm_short_grad_sums_half(
        const uint16_t* dy, const uint16_t* x, const Py_ssize_t* start, Py_ssize_t rows, const float* s, Py_ssize_t n,
        Py_ssize_t next, const float* k, const float* d, float* sum_g, float* sum_gx
    ) noexcept
    void minorm_beside_sums_half(
        const uint16_t* x, Py_ssize_t step, Py_ssize_t runs, Py_ssize_t n, Py_ssize_t rows, const float* k, float* held
    ) noexcept
    void minorm_beside_grad_sums_half(
        const uint16_t* dy, const uint16_t* x, Py_ssize_t step, Py_ssize_t runs, Py_ssize_t n, Py_ssize_t rows,
        const float* k, const float* d, float* held
    ) noexcept
    void minorm_grad_sums_half(
        const uint16_t* dy, const uint16_t* x, Py_ssize_t step, const float* s, Py_ssize_t s_step,
        Py_ssize_t runs, Py_ssize_t n, float k, float d, float* sum_g, float* sum_gx
    ) noexcept
    void minorm_sums_bfloat(
        const uint16_t* x, Py_ssize_t step, Py_ssize_t runs, Py_ssize_t n, float k, float* sum, float* squares
    ) noexcept
    float minorm_sample_bfloat(const uint16_t* x, Py_ssize_t across) noexcept
    void minorm_short_sums_bfloat(
        const uint16_t* x, const Py_ssize_t* start, Py_ssize_t rows, Py_ssize_t n, Py_ssize_t next, bint centered,
        float* k, float* sum, float* squares
    ) noexcept
    void minorm_short_grad_sums_bfloat(
        const uint16_t* dy, const uint16_t* x, const Py_ssize_t* start, Py_ssize_t rows, const float* s, Py_ssize_t n,
        Py_ssize_t next, const float* k, const float* d, float* sum_g, float* sum_gx
    ) noexcept
    void minorm_beside_sums_bfloat(
        const uint16_t* x, Py_ssize_t step, Py_ssize_t runs, Py_ssize_t n, Py_ssize_t rows, const float* k, float* held
    ) noexcept
    void minorm_beside_grad_sums_bfloat(
        const uint16_t* dy, const uint16_t* x, Py_ssize_t step, Py_ssize_t runs, Py_ssize_t n, Py_ssize_t rows,
        const float* k, const float* d, float* held
    ) noexcept
    void minorm_grad_sums_bfloat(
        const uint16_t* dy, const uint16_t* x, Py_ssize_t step, const float* s, Py_ssize_t s_step,
        Py_ssize_t runs, Py_ssize_t n, float k, float d, float* sum_g, float* sum_gx
    ) noexcept
    float minorm_middle_f(float a, float b, float c, float d) noexcept
    double minorm_middle_d(double a, double b, double c, double d) noexcept
    float minorm_total_f(const float* a) noexcept
    double minorm_total_d(const double* a) noexcept


cdef enum:
    WIDTH = 32  # accumulators of a sum


cdef struct Span:  # `runs` runs from `run` on, and of each `length` elements from `element` on
    Py_ssize_t run
    Py_ssize_t runs
    Py_ssize_t element
    Py_ssize_t length


cdef inline real total(const real* a) noexcept nogil:
    """The sum of the WIDTH accumulators."""
    if real is float:
        return minorm_total_f(a)
    else:
        return minorm_total_d(a)


cdef inline real middle(real a, real b, real c, real d) noexcept nogil:
    """The mean of the two in the middle."""
    if real is float:
        return minorm_middle_f(a, b, c, d)
    else:
        return minorm_middle_d(a, b, c, d)


cdef inline real sample_mean(const real* type, const Data* x, Py_ssize_t at, Py_ssize_t step, Span span) noexcept nogil:
    """A guess of the mean from four elements from all over a span."""
    cdef Py_ssize_t across = step * (span.runs // 4) if span.runs >= 4 else span.length // 4
    if real is double:
        return minorm_sample_double(<const double*>x.items + at, across)
    else:
        if goes_as_float(x.type == SINGLE):
            return minorm_sample_float(<const float*>x.items + at, across)
        if x.type == HALF:
            return minorm_sample_half(<const uint16_t*>x.items + at, across)
        return minorm_sample_bfloat(<const uint16_t*>x.items + at, across)


cdef inline void shifted_sums(
    const Data* x, Py_ssize_t at, Py_ssize_t step, Span span, real k, real* sum, real* squares
) noexcept nogil:
    """sum(x - k) and sum((x - k)^2) over a span that begins at `at` and whose runs are `step` apart."""
    if real is double:
        minorm_sums_double(<const double*>x.items + at, step, span.runs, span.length, k, sum, squares)
    elif goes_as_float(x.type == SINGLE):
        minorm_sums_float(<const float*>x.items + at, step, span.runs, span.length, k, sum, squares)
    elif x.type == HALF:
        minorm_sums_half(<const uint16_t*>x.items + at, step, span.runs, span.length, k, sum, squares)
    else:
        minorm_sums_bfloat(<const uint16_t*>x.items + at, step, span.runs, span.length, k, sum, squares)


cdef inline void short_sums(
    const Data* x, const Py_ssize_t* start, Py_ssize_t rows, Py_ssize_t n, Py_ssize_t next, bint centered,
    real* k, real* sum, real* squares,
) noexcept nogil:
    """The same over each of some rows of n contiguous elements, at most BRIEF, whose shifts k it guesses."""
    if real is double:
        minorm_short_sums_double(<const double*>x.items, start, rows, n, next, centered, k, sum, squares)
    elif goes_as_float(x.type == SINGLE):
        minorm_short_sums_float(<const float*>x.items, start, rows, n, next, centered, k, sum, squares)
    elif x.type == HALF:
        minorm_short_sums_half(<const uint16_t*>x.items, start, rows, n, next, centered, k, sum, squares)
    else:
        minorm_short_sums_bfloat(<const uint16_t*>x.items, start, rows, n, next, centered, k, sum, squares)


cdef inline void grad_sums(
    const Data* dy, const Data* x, Py_ssize_t at, Py_ssize_t step, const real* s, Py_ssize_t s_step, Span span,
    real k, real d, real* sum_g, real* sum_gx,
) noexcept nogil:
    """sum(g) and sum(g * (x - mean)) over a span; g = dy * s where s has a parameter for each element, else dy."""
    if real is double:
        minorm_grad_sums_double(
            <const double*>dy.items + at, <const double*>x.items + at, step, s, s_step,
            span.runs, span.length, k, d, sum_g, sum_gx,
        )
    elif goes_as_float(x.type == SINGLE):
        minorm_grad_sums_float(
            <const float*>dy.items + at, <const float*>x.items + at, step, s, s_step,
            span.runs, span.length, k, d, sum_g, sum_gx,
        )
    elif x.type == HALF:
        minorm_grad_sums_half(
            <const uint16_t*>dy.items + at, <const uint16_t*>x.items + at, step, s, s_step,
            span.runs, span.length, k, d, sum_g, sum_gx,
        )
    else:
        minorm_grad_sums_bfloat(
            <const uint16_t*>dy.items + at, <const uint16_t*>x.items + at, step, s, s_step,
            span.runs, span.length, k, d, sum_g, sum_gx,
        )


cdef inline void short_grad_sums(
    const Data* dy, const Data* x, const Py_ssize_t* start, Py_ssize_t rows, const real* s, Py_ssize_t n,
    Py_ssize_t next, const real* k, const real* d, real* sum_g, real* sum_gx,
) noexcept nogil:
    """The same over each of some rows of n contiguous elements, which share s."""
    if real is double:
        minorm_short_grad_sums_double(
            <const double*>dy.items, <const double*>x.items, start, rows, s, n, next, k, d, sum_g, sum_gx,
        )
    elif goes_as_float(x.type == SINGLE):
        minorm_short_grad_sums_float(
            <const float*>dy.items, <const float*>x.items, start, rows, s, n, next, k, d, sum_g, sum_gx,
        )
    elif x.type == HALF:
        minorm_short_grad_sums_half(
            <const uint16_t*>dy.items, <const uint16_t*>x.items, start, rows, s, n, next, k, d, sum_g, sum_gx,
        )
    else:
        minorm_short_grad_sums_bfloat(
            <const uint16_t*>dy.items, <const uint16_t*>x.items, start, rows, s, n, next, k, d, sum_g, sum_gx,
        )


cdef inline void beside_sums(
    const Data* x, Py_ssize_t at, Py_ssize_t step, Py_ssize_t runs, Py_ssize_t n, Py_ssize_t rows,
    const real* k, real* held,
) noexcept nogil:
    """Of rows beside each other, over some runs of each, `step` apart: sums that go on in `held`, 2 * WIDTH a row."""
    if real is double:
        minorm_beside_sums_double(<const double*>x.items + at, step, runs, n, rows, k, held)
    elif goes_as_float(x.type == SINGLE):
        minorm_beside_sums_float(<const float*>x.items + at, step, runs, n, rows, k, held)
    elif x.type == HALF:
        minorm_beside_sums_half(<const uint16_t*>x.items + at, step, runs, n, rows, k, held)
    else:
        minorm_beside_sums_bfloat(<const uint16_t*>x.items + at, step, runs, n, rows, k, held)


cdef inline void beside_grad_sums(
    const Data* dy, const Data* x, Py_ssize_t at, Py_ssize_t step, Py_ssize_t runs, Py_ssize_t n, Py_ssize_t rows,
    const real* k, const real* d, real* held,
) noexcept nogil:
    """The same of sum(dy) and sum(dy * (x - mean))."""
    if real is double:
        minorm_beside_grad_sums_double(
            <const double*>dy.items + at, <const double*>x.items + at, step, runs, n, rows, k, d, held
        )
    elif goes_as_float(x.type == SINGLE):
        minorm_beside_grad_sums_float(
            <const float*>dy.items + at, <const float*>x.items + at, step, runs, n, rows, k, d, held
        )
    elif x.type == HALF:
        minorm_beside_grad_sums_half(
            <const uint16_t*>dy.items + at, <const uint16_t*>x.items + at, step, runs, n, rows, k, d, held
        )
    else:
        minorm_beside_grad_sums_bfloat(
            <const uint16_t*>dy.items + at, <const uint16_t*>x.items + at, step, runs, n, rows, k, d, held
        )
