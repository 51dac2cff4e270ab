# The types that kernels compute in, and the integer arithmetic for cutting work into pieces.

ctypedef fused real:
    float
    double


cdef inline Py_ssize_t ceil_div(Py_ssize_t a, Py_ssize_t b) noexcept nogil:
    """Return a / b, rounded up; a >= 0, b > 0."""
    return (a + b - 1) // b


cdef inline Py_ssize_t cut(Py_ssize_t whole, Py_ssize_t pieces, Py_ssize_t piece) noexcept nogil:
    """Return where a piece begins when `whole` is cut into pieces as evenly as possible."""
    return whole * piece // pieces
