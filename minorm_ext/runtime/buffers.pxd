# Turns arrays into pointers: kernels take their arguments through `address`.
#
# A typed memoryview argument costs about 0.7 us and silently accepts None; asking the buffer protocol for the pointer
# alone costs a seventh of that. The caller holds the array for the whole call, and NumPy never moves the data of an
# array while a reference to it exists, so `address` may release the view at once.

from cpython.buffer cimport (
    Py_buffer, PyBuffer_Release, PyBUF_STRIDES, PyBUF_WRITABLE, PyObject_GetBuffer,
)


cdef inline void* address(object array, Py_ssize_t itemsize, bint writable=False, Py_ssize_t count=0) except? NULL:
    """Return the address of element [0, 0, ...] of an array with at least `count` elements.

    Raises TypeError for None or another item size, ValueError for read-only memory or fewer elements.
    """
    cdef Py_buffer view
    cdef void* pointer
    PyObject_GetBuffer(array, &view, PyBUF_STRIDES | (PyBUF_WRITABLE if writable else 0))
    pointer = view.buf
    if view.itemsize != itemsize:
        itemsize_found = view.itemsize
        PyBuffer_Release(&view)
        raise TypeError(f"kernel: array items have {itemsize_found} bytes; expected {itemsize}")
    if view.len < count * itemsize:
        length_found = view.len // itemsize
        PyBuffer_Release(&view)
        raise ValueError(f"kernel: array has {length_found} elements; expected at least {count}")
    PyBuffer_Release(&view)
    return pointer
