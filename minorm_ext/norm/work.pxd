# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# The data that all jobs of a call share: the plan, and the addresses of all arrays.

from minorm_ext.norm.moments cimport Equation
from minorm_ext.norm.plan cimport Plan
from minorm_ext.simd.storage cimport Data


cdef enum Phase:  # forward: the first five, or FORWARD; backward: all others
    ORIGIN       # with a mask: the origin of a row's mean
    MOMENTS      # of a part of a row
    MERGE        # the moments of a row's parts
    APPLY        # y of a part
    FORWARD      # all of these, of some whole rows
    CLEAR        # memory for what blocks collect
    SUMS         # of a part
    COMBINE      # the sums of a row's parts
    INPUT        # dx of a part of some rows
    BACKWARD     # these three, of some whole rows
    COLLECT      # ds and db of some parameters


cdef enum Sums:  # where the backward pass gets sum_g and sum_gx from
    COMPUTE
    GIVEN
    ABSENT


cdef struct Work:
    Plan plan
    Equation equation
    Data x                 # as it is stored
    Data dy
    Data y
    Data dx
    const void* s          # parameters and their gradients: in the type computed in
    const void* b
    void* ds
    void* db
    double* k              # statistics of each row
    double* d
    double* var
    double* rstd
    double* count          # with a mask: how many elements of each row count; else NULL
    Phase phase            # the phase that all threads are at; with strategy COLUMNS, its rows are tiles of columns
    Py_ssize_t part        # the part that all threads are at, if all rows must finish a part before the next; else -1
    bint moments           # does forward have the phases of moments, and of apply?
    bint apply
    bint needs_sums        # backward: sum up dy and dy * (x - mean)
    Sums sums
    double* partial        # moments, or sums, of parts
    double* slot_sums      # sum(dy) of every slot, then sum(dy * (x - mean))
    double* own            # memory of the next two, unless they are given; NULL if a tile keeps them
    double* sum_g          # of each row
    double* sum_gx
    double* row_params     # columns that share parameters: ds and db of each tile and reduced row
    void* block_param_grads  # rows with a parameter for each element: ds and db of each block
    Py_ssize_t shares      # number of shares into which adding up ds and db is cut: see params.pxd
    Py_ssize_t share_step
    double* totals         # ds, then db, of all parameters, in double


cdef inline void* param_at(const Work* w, const void* params, Py_ssize_t at) noexcept nogil:
    """Return the address of parameters, or of their gradients, from element `at` on; NULL without parameters."""
    return <char*>params + at * (4 if w.plan.single else 8) if params != NULL else NULL


cdef inline double param_value(const Work* w, const void* params, Py_ssize_t at) noexcept nogil:
    return (<const float*>params)[at] if w.plan.single else (<const double*>params)[at]


cdef inline double* partial_sums(const Work* w, Py_ssize_t row) noexcept nogil:
    """Return the address of the sum(dy) of a row's slots."""
    return w.slot_sums + row * w.plan.slots


cdef inline double* partial_sums_x(const Work* w, Py_ssize_t row) noexcept nogil:
    """Return the address of the sum(dy * (x - mean)) of a row's slots."""
    return w.slot_sums + (w.plan.rows + row) * w.plan.slots


cdef inline double one_by_count(const Work* w, Py_ssize_t row) noexcept nogil:
    """Return 1 / count, where count is the number of elements of a row that count; 1 if count is 0."""
    return w.plan.one_by_columns if w.count == NULL else 1 / max(w.count[row], 1.0)


cdef inline bint is_undefined(const Work* w, double n) noexcept nogil:
    """Return whether a masked statistic has too few elements: 0, or at most 1 if centered. Then its rstd is 0."""
    return w.count != NULL and n <= w.equation.centered


cdef inline Py_ssize_t row_of(const Work* w, Py_ssize_t block, Py_ssize_t member) noexcept nogil:
    """Return the number of a member's row."""
    return block // w.plan.blocks * w.plan.group_step + member * w.plan.member_step


cdef inline Py_ssize_t first_member(const Work* w, Py_ssize_t block) noexcept nogil:
    return block % w.plan.blocks * w.plan.members_of_block


cdef inline Py_ssize_t last_member(const Work* w, Py_ssize_t block) noexcept nogil:
    """Return the end of a block's members."""
    return min(first_member(w, block) + w.plan.members_of_block, w.plan.members)


cdef inline void* block_param_grads_of(const Work* w, Py_ssize_t block) noexcept nogil:
    """Return where a block collects its ds and, w.plan.pitch further, its db; NULL if it does not."""
    return param_at(w, w.block_param_grads, block * 2 * w.plan.pitch)
