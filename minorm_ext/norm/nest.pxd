# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# The nest in the kernels' form: four loops of count, data step and parameter step, which minorm/normalization/nest.py
# finds; and the form of a call: the nest and the other arguments that stay the same from call to call.

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int64_t
from libc.string cimport memcpy


cdef struct Loop:
    int64_t count
    int64_t data
    int64_t param


cdef struct Nest:
    Loop keep0    # outer kept loop
    Loop keep1    # inner kept loop
    Loop reduce0  # outer reduced loop
    Loop reduce1  # inner reduced loop


cdef struct Form:  # minorm/kernels/cpu/norm.py packs it
    Nest nest
    int64_t type      # that data is stored in
    int64_t single    # computed in float, else in double
    int64_t centered  # minorm/normalization/equation.py
    int64_t guard
    double eps


cdef inline int load(Form* form, bytes code) except -1:
    """Read the bytes of a form. They are too few where `Nest.code` is empty: the nest has more loops than a kernel."""
    if code is None or PyBytes_GET_SIZE(code) != sizeof(Form):
        raise ValueError("kernel: this nest has more than two loops of a kind; rearrange the data first")
    memcpy(form, PyBytes_AS_STRING(code), sizeof(Form))
    return 0


cdef inline Py_ssize_t turn_at(
    Py_ssize_t turn, const Loop* outer, Py_ssize_t inner_count, Py_ssize_t outer_step, Py_ssize_t inner_step
) noexcept nogil:
    """Return the place where a turn of two nested loops begins."""
    if outer.count == 1:
        return turn * inner_step  # spares two divisions, which are most of the work when rows are short, or columns few
    return turn // inner_count * outer_step + turn % inner_count * inner_step


cdef inline Py_ssize_t row_data(const Nest* nest, Py_ssize_t row) noexcept nogil:
    """Return where the data of a row begins."""
    return turn_at(row, &nest.keep0, nest.keep1.count, nest.keep0.data, nest.keep1.data)


cdef inline Py_ssize_t row_param(const Nest* nest, Py_ssize_t row) noexcept nogil:
    """Return where the parameters of a row begin."""
    return turn_at(row, &nest.keep0, nest.keep1.count, nest.keep0.param, nest.keep1.param)


cdef struct Place:  # a row
    Py_ssize_t inner  # turn of the inner kept loop
    Py_ssize_t data   # where its data begins
    Py_ssize_t param


cdef inline Place place_of(const Nest* nest, Py_ssize_t row) noexcept nogil:
    cdef Place place
    place.inner = row % nest.keep1.count
    place.data = row_data(nest, row)
    place.param = row_param(nest, row)
    return place


cdef inline void go_on(const Nest* nest, Place* place, Py_ssize_t step) noexcept nogil:
    """Go to the next row, if step is 1, or to the next turn of the outer kept loop, without dividing."""
    if step == 1:
        place.inner += 1
        place.data += nest.keep1.data
        place.param += nest.keep1.param
        if place.inner < nest.keep1.count:
            return
        place.inner = 0
        place.data -= nest.keep1.count * nest.keep1.data
        place.param -= nest.keep1.count * nest.keep1.param
    place.data += nest.keep0.data
    place.param += nest.keep0.param
