# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# The gradients of scale and bias where a parameter belongs to whole rows, runs or lanes: the jobs have left sums of
# each, which one thread adds up here, in double and in the order in which they lie. Where each element has a
# parameter of its own, rows_collect in norm_row_jobs.pxd does it.
#
# total[2 * i] is ds of parameter i, total[2 * i + 1] its db.

from minorm_ext.jobs cimport look
from minorm_ext.norm_lanes cimport lane_row_param
from minorm_ext.norm_work cimport Work, all_tiles, slots_of_param
from minorm_ext.storage cimport real

cdef enum:
    SUMS_AT_ONCE = 2_000_000  # between two looks at Ctrl-C


cdef inline Py_ssize_t reach_of_params(const Work* w) noexcept nogil:
    """How far apart the first parameter and the end of the last lie."""
    return 1 + (
        (w.nest.keep0.count - 1) * w.nest.keep0.param + (w.nest.keep1.count - 1) * w.nest.keep1.param
        + (w.nest.reduce0.count - 1) * w.nest.reduce0.param + (w.nest.reduce1.count - 1) * w.nest.reduce1.param
        + (w.fold - 1) * w.fold_param
    )


cdef inline void add_up_row(
    double* total, const double* sums, Py_ssize_t runs, Py_ssize_t pieces, Py_ssize_t step, double rstd
) noexcept nogil:
    """Add the slots of a row to ds and db of its runs, whose parameters lie `step` apart."""
    cdef Py_ssize_t _run, _slot
    cdef double dy, dyx
    if pieces == 1:
        for _run in range(runs):
            total[0] += sums[1] * rstd
            total[1] += sums[0]
            sums += 2
            total += 2 * step
        return
    for _run in range(runs):
        dy = 0
        dyx = 0
        for _slot in range(pieces):
            dy += sums[0]
            dyx += sums[1]
            sums += 2
        total[0] += dyx * rstd
        total[1] += dy
        total += 2 * step


cdef inline int add_up_rows(double* total, const Work* w) except -1 nogil:
    """Rows; the turns of the inner kept loop follow each other, so nothing is divided."""
    cdef const double* sums = w.partial
    cdef Py_ssize_t pieces = slots_of_param(w)
    cdef Py_ssize_t runs = w.slots // pieces
    cdef Py_ssize_t row
    cdef Py_ssize_t at = 0
    cdef Py_ssize_t outer = 0  # where an outer turn begins
    cdef Py_ssize_t inner = 0  # turns
    cdef Py_ssize_t added = 0
    for row in range(w.rows):
        add_up_row(total + 2 * at, sums, runs, pieces, w.nest.reduce0.param, w.rstd[row])
        sums += 2 * w.slots
        inner += 1
        at += w.nest.keep1.param
        if inner == w.nest.keep1.count:
            inner = 0
            outer += w.nest.keep0.param
            at = outer
        added += w.slots
        if added > SUMS_AT_ONCE:
            added = 0
            look()
    return 0


cdef inline int add_up_lanes(double* total, const Work* w) except -1 nogil:
    """Lanes with parameters of their own, without dividing either."""
    cdef const double* dy = w.sum_dy
    cdef const double* dyx = w.sum_dyx
    cdef const double* rstd = w.rstd
    cdef double* at
    cdef Py_ssize_t i, outer, inner
    cdef Py_ssize_t added = 0
    for outer in range(w.nest.keep0.count):
        for inner in range(w.nest.keep1.count):
            at = total + 2 * (outer * w.nest.keep0.param + inner * w.nest.keep1.param)
            for i in range(w.fold):
                at[2 * i * w.fold_param] += dyx[i] * rstd[0]
                at[2 * i * w.fold_param + 1] += dy[i]
            dy += w.fold
            dyx += w.fold
            rstd += 1
            added += w.fold
            if added > SUMS_AT_ONCE:
                added = 0
                look()
    return 0


cdef inline int add_up_lane_rows(double* total, const Work* w) except -1 nogil:
    """Lanes that share the parameters of their reduced rows."""
    cdef const double* sums = w.row_params
    cdef Py_ssize_t tile, row, at
    cdef Py_ssize_t added = 0
    for tile in range(all_tiles(w)):
        for row in range(w.depth):
            at = tile // w.tiles * w.nest.keep0.param + lane_row_param(&w.nest, row)
            total[2 * at] += sums[0]
            total[2 * at + 1] += sums[1]
            sums += 2
            added += 1
            if added % SUMS_AT_ONCE == 0:
                look()
    return 0


cdef inline int store_params(const real* type, const Work* w) except -1 nogil:
    """ds and db from their totals, in the type computed in."""
    cdef real* ds = <real*>w.ds
    cdef real* db = <real*>w.db
    cdef Py_ssize_t i
    for i in range(reach_of_params(w)):
        ds[i] = <real>w.totals[2 * i]
        db[i] = <real>w.totals[2 * i + 1]
        if i % SUMS_AT_ONCE == SUMS_AT_ONCE - 1:
            look()
    return 0


cdef inline int add_up_params(const Work* w) except -1 nogil:
    """Fill ds and db. w.totals are 0 before."""
    if w.row_params != NULL:
        add_up_lane_rows(w.totals, w)
    elif w.lanes:
        add_up_lanes(w.totals, w)
    else:
        add_up_rows(w.totals, w)
    if w.single:
        return store_params(<const float*>NULL, w)
    return store_params(<const double*>NULL, w)
