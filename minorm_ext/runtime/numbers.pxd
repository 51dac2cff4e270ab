# The types that kernels compute in, and the rounding that cutting work into pieces takes.

ctypedef fused real:
    float
    double


cdef inline Py_ssize_t ceil_div(Py_ssize_t a, Py_ssize_t b) noexcept nogil:
    """a / b, rounded up; a >= 0, b > 0."""
    return (a + b - 1) // b


cdef inline Py_ssize_t cut(Py_ssize_t whole, Py_ssize_t pieces, Py_ssize_t piece) noexcept nogil:
    """Where a piece begins when `whole` is cut into pieces as evenly as possible."""
    return whole * piece // pieces
