# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# The gradients of scale and bias, if a parameter belongs to whole rows, runs or columns. The jobs have left sums of
# each; this file adds them up, in double and in their order in memory. If each element has its own parameter,
# collect_piece in row_jobs.pxd does it.

from minorm_ext.norm.columns cimport column_row_param
from minorm_ext.norm.nest cimport Nest
from minorm_ext.norm.plan cimport COLUMNS, all_tiles
from minorm_ext.norm.work cimport Work, partial_sums, partial_sums_x
from minorm_ext.runtime.jobs cimport check_signals
from minorm_ext.runtime.numbers cimport ceil_div

cdef enum:
    SUMS_AT_ONCE = 2_000_000  # between two signal checks
    SHARED = 16384            # sums, at least, where more than one thread adds up


cdef inline Py_ssize_t reach_of_params(const Work* w) noexcept nogil:
    """Return the distance from the first parameter to the end of the last."""
    cdef const Nest* n = &w.plan.nest
    return 1 + (
        (n.keep0.count - 1) * n.keep0.param + (n.keep1.count - 1) * n.keep1.param
        + (n.reduce0.count - 1) * n.reduce0.param + (n.reduce1.count - 1) * n.reduce1.param
        + (w.plan.fold - 1) * w.plan.fold_param
    )


cdef inline Py_ssize_t shares_of(const Work* w) noexcept nogil:
    """Return how many threads add up, each for its share of the inner kept turns. Several threads need turns with
    separate parameters: then no two add to the same total."""
    if w.plan.nest.keep1.param == 0 or w.plan.rows * w.plan.slots < SHARED:
        return 1
    return min(<Py_ssize_t>w.plan.threads, w.plan.nest.keep1.count)


cdef inline Py_ssize_t turns_at_once(const Work* w) noexcept nogil:
    """Return the number of outer kept turns between two signal checks."""
    return max(1, SUMS_AT_ONCE // (w.plan.nest.keep1.count * w.plan.slots))


cdef inline Py_ssize_t cuts_of_turn(const Work* w) noexcept nogil:
    """Return the number of pieces of an outer turn: 1 unless it has too many sums for one step."""
    return min(w.plan.nest.keep1.count, 1 + w.plan.nest.keep1.count * w.plan.slots // SUMS_AT_ONCE)


cdef inline Py_ssize_t steps_of_adding(const Work* w) noexcept nogil:
    """Return the number of steps, with a signal check after each; a step covers all shares."""
    return ceil_div(w.plan.nest.keep0.count, turns_at_once(w)) * cuts_of_turn(w)


cdef inline void add_up_row(
    double* ds, double* db, const double* dy, const double* dyx, Py_ssize_t runs, Py_ssize_t pieces, Py_ssize_t step,
    double rstd,
) noexcept nogil:
    """Add the sums of a row to ds and db of its runs, or those of some columns; their parameters lie `step` apart."""
    cdef Py_ssize_t run, slot
    cdef double sum_dy, sum_dyx
    for run in range(runs):
        sum_dy = dy[run * pieces]
        sum_dyx = dyx[run * pieces]
        for slot in range(run * pieces + 1, (run + 1) * pieces):
            sum_dy += dy[slot]
            sum_dyx += dyx[slot]
        ds[run * step] += sum_dyx * rstd
        db[run * step] += sum_dy


cdef inline void add_up_single(
    double* ds, double* db, const double* dy, const double* dyx, const double* rstd, Py_ssize_t rows
) noexcept nogil:
    """Add the sums of rows that have one sum each, and parameters side by side, in vectors."""
    cdef Py_ssize_t i
    for i in range(rows):
        ds[i] += dyx[i] * rstd[i]
    for i in range(rows):
        db[i] += dy[i]


cdef inline void add_up_job(const void* task, Py_ssize_t share) noexcept nogil:
    """Add up one share of the current step: some inner turns of some outer ones, without a division for each row."""
    cdef const Work* w = <const Work*>task
    cdef const Nest* n = &w.plan.nest
    cdef const double* dy = partial_sums(w, 0)
    cdef const double* dyx = partial_sums_x(w, 0)
    cdef Py_ssize_t job = w.share_step * w.shares + share
    cdef Py_ssize_t cuts = cuts_of_turn(w) * w.shares
    cdef Py_ssize_t first = n.keep1.count * (job % cuts) // cuts
    cdef Py_ssize_t end = n.keep1.count * (job % cuts + 1) // cuts
    cdef Py_ssize_t pieces = w.plan.slots_of_param
    cdef Py_ssize_t sums = w.plan.slots
    cdef Py_ssize_t step = w.plan.fold_param if w.plan.strategy == COLUMNS else n.reduce0.param
    cdef Py_ssize_t outer = job // cuts * turns_at_once(w)
    cdef Py_ssize_t last = min(outer + turns_at_once(w), n.keep0.count)
    cdef Py_ssize_t runs = sums // pieces
    cdef Py_ssize_t _inner, row, at
    cdef double* ds = w.totals
    cdef double* db = ds + reach_of_params(w)
    while outer < last:
        row = outer * n.keep1.count + first
        at = outer * n.keep0.param + first * n.keep1.param
        if sums == 1 and n.keep1.param == 1:
            add_up_single(ds + at, db + at, dy + row, dyx + row, w.rstd + row, end - first)
        else:
            for _inner in range(first, end):
                add_up_row(ds + at, db + at, dy + row * sums, dyx + row * sums, runs, pieces, step, w.rstd[row])
                row += 1
                at += n.keep1.param
        outer += 1


cdef inline int add_up_columns_rows(const Work* w) except -1 nogil:
    """Add up the gradients of columns that share the parameters of their reduced rows."""
    cdef const double* sums = w.row_params
    cdef double* db = w.totals + reach_of_params(w)
    cdef Py_ssize_t tile, row, at
    cdef Py_ssize_t added = 0
    for tile in range(all_tiles(&w.plan)):
        for row in range(w.plan.depth):
            at = tile // w.plan.tiles * w.plan.nest.keep0.param + column_row_param(&w.plan.nest, row)
            w.totals[at] += sums[0]
            db[at] += sums[1]
            sums += 2
            added += 1
            if added % SUMS_AT_ONCE == 0:
                check_signals()
    return 0


cdef inline int store_params(const Work* w) except -1 nogil:
    """Store ds and db from their totals, in the type computed in."""
    cdef Py_ssize_t reach = reach_of_params(w)
    cdef Py_ssize_t i
    for i in range(reach):
        if w.plan.single:
            (<float*>w.ds)[i] = <float>w.totals[i]
            (<float*>w.db)[i] = <float>w.totals[reach + i]
        else:
            (<double*>w.ds)[i] = w.totals[i]
            (<double*>w.db)[i] = w.totals[reach + i]
        if i % SUMS_AT_ONCE == SUMS_AT_ONCE - 1:
            check_signals()
    return 0
