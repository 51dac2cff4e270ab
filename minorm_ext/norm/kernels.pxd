# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# The loops of kernels.h; that file explains what each computes.

from minorm_ext.simd.storage cimport Data, Type

cdef extern from "norm/kernels.h" nogil:
    enum:
        ROWS       # rows that go together, at most
        BLOCK      # vectors of parameters that stay in registers
        COLLECTED  # number of parameters whose gradients are added up at once
        VECTOR_BYTES
    ctypedef struct Runs "minorm_runs":
        Py_ssize_t at, step, param, runs, n, next
        double k, d, r, p, q
    ctypedef struct ShortRows "minorm_short_rows":
        Py_ssize_t count, n, next
        const Py_ssize_t* start
        const Py_ssize_t* param
        const double* k
        const double* d
        const double* r
        const double* p
        const double* q
    ctypedef struct ColumnRows "minorm_rows":
        Py_ssize_t count, step, n, next, then
        bint cached
    double sample_mean "norm_sample_mean"(const Data* x, Py_ssize_t at, Py_ssize_t across) noexcept
    void sums "norm_sums"(
        const Data* dy, const Data* x, Py_ssize_t at, Py_ssize_t step, const void* s, Py_ssize_t s_step,
        Py_ssize_t runs, Py_ssize_t n, double k, double d, double* a, double* q
    ) noexcept
    void rows_sums "norm_rows_sums"(
        const Data* dy, const Data* x, const Py_ssize_t* start, Py_ssize_t rows, const void* s, Py_ssize_t n,
        Py_ssize_t next, bint guesses, double* k, const double* d, double* a, double* q
    ) noexcept
    void apply "norm_apply"(
        const Data* x, const Data* y, const Runs* of, const void* s, const void* b, bint each
    ) noexcept
    void apply_rows "norm_apply_rows"(
        const Data* x, const Data* y, const ShortRows* of, const void* s, const void* b, bint shared
    ) noexcept
    void grad "norm_grad"(
        const Data* dy, const Data* x, const Data* dx, const Runs* of, bint given, const void* s, bint each, void* ds,
        void* db
    ) noexcept
    void grad_rows "norm_grad_rows"(
        const Data* dy, const Data* x, const Data* dx, const ShortRows* of, const void* s, bint shared, void* ds,
        void* db
    ) noexcept
    void columns_sums "norm_columns_sums"(
        const Data* dy, const Data* x, Py_ssize_t at, const ColumnRows* rows, const void* k, const void* d, double w,
        void* a, void* q
    ) noexcept
    void columns_apply "norm_columns_apply"(
        const Data* x, const Data* y, Py_ssize_t at, const ColumnRows* rows, const void* k, const void* d,
        const void* c, const void* e, double w, double u
    ) noexcept
    void columns_grad "norm_columns_grad"(
        const Data* dy, const Data* x, const Data* dx, Py_ssize_t at, const ColumnRows* rows, bint given, const void* k,
        const void* d, const void* r, const void* c, const void* p, const void* q, double w
    ) noexcept
    void columns_params "norm_columns_params"(
        const Data* dy, const Data* x, Py_ssize_t at, Py_ssize_t n, const void* k, const void* d, const void* r,
        double* ds, double* db
    ) noexcept
    void add_collected "norm_add_collected"(
        Type computed, const void* collected, Py_ssize_t at, Py_ssize_t pitch, Py_ssize_t blocks, Py_ssize_t n,
        void* to, Py_ssize_t to_at
    ) noexcept
    double middle "middle_double"(double a, double b, double c, double d) noexcept
