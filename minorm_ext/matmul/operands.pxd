# cython: cdivision=True
# The operands of a matrix product: two matrices, or two stacks of them with the same leading axes, with any steps.

from cpython.buffer cimport PyBUF_STRIDES, Py_buffer, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport intptr_t

cdef enum:
    MOST_AXES = 66  # NumPy has at most 64; a vector gets one more

cdef struct Operand:
    char* data
    intptr_t step0         # from a row to the next, in numbers
    intptr_t step1         # from a column to the next
    int lead               # number of axes of the stack
    intptr_t[MOST_AXES] steps  # along the axes of the stack


cdef inline int operand(object array, Py_ssize_t itemsize, Operand* to, intptr_t* shape) except -1:
    """Read address, steps and shape of an array of two or more axes; return 0 if an element is not aligned."""
    cdef Py_buffer view
    cdef intptr_t loose
    cdef int i
    PyObject_GetBuffer(array, &view, PyBUF_STRIDES)
    to.lead = view.ndim - 2
    if view.itemsize != itemsize or to.lead < 0:
        PyBuffer_Release(&view)
        raise TypeError("matmul: operands must be matrices, or stacks of them, of one type")
    to.data = <char*>view.buf
    loose = <intptr_t>to.data % itemsize
    for i in range(view.ndim):
        shape[i] = view.shape[i]
        loose |= view.strides[i] % itemsize
        if i < to.lead:
            to.steps[i] = view.strides[i] // itemsize
    to.step0 = view.strides[to.lead] // itemsize
    to.step1 = view.strides[to.lead + 1] // itemsize
    PyBuffer_Release(&view)
    return loose == 0


cdef inline intptr_t offset(const intptr_t* shape, const Operand* x, intptr_t index) noexcept nogil:
    """Return where matrix `index` of a stack of this shape begins in an operand."""
    cdef intptr_t at = 0
    cdef int i = x.lead - 1
    while i >= 0:
        at += index % shape[i] * x.steps[i]
        index //= shape[i]
        i -= 1
    return at
