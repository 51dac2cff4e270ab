# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False, binding=False
# Normalization over four loops: the order of the phases, and their jobs on the threads.
#
# plan.pxd decides once a call: the strategy, the cuts of the work, and the way to store results. A forward pass has two
# phases, moments and apply; a backward pass has two, sums and input. With many rows, a thread takes some rows (or a
# tile of columns) through both phases, so that the second finds the data in cache. With few rows, all threads share the
# parts of every row, first for one phase, then for the other. Both ways add up the same parts in the same order.
# phases.pxd makes a job of each piece:
#
#     rows      row_jobs.pxd: first phases in statistics.pxd, second ones in resident.pxd and streamed.pxd; those of
#               short rows, which go some at a time, in short_rows.pxd
#     columns   column_jobs.pxd: columns.pxd and column_tiles.pxd
#
# The arithmetic is in C, written once for all types: sums.inc.h, apply.inc.h, columns.inc.h (kernels.h). At the end of
# a backward pass params.pxd adds up the gradients of scale and bias. running.pxd blends running statistics.

from libc.math cimport INFINITY
from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset

from minorm_ext.norm.column_jobs cimport moments_of_part
from minorm_ext.norm.moments cimport Equation, Moments
from minorm_ext.norm.nest cimport Form, load
from minorm_ext.norm.params cimport (
    add_up_columns_rows, add_up_job, reach_of_params, shares_of, steps_of_adding, store_params,
)
from minorm_ext.norm.phases cimport job
from minorm_ext.norm.plan cimport CACHED, COLUMNS, Call, Plan, all_tiles, make_plan
from minorm_ext.norm.row_jobs cimport pieces_to_clear, pieces_to_collect, size_to_collect
from minorm_ext.norm.running cimport are_small, blend_rows, take_statistics
from minorm_ext.norm.work cimport (
    APPLY, BACKWARD, CLEAR, COLLECT, COMBINE, COMPUTE, FORWARD, INPUT, MERGE, MOMENTS, ORIGIN, SUMS, Phase, Sums, Work,
)
from minorm_ext.runtime.buffers cimport address
from minorm_ext.runtime.jobs cimport check_signals, parallel_for
from minorm_ext.simd.storage cimport ALONE, Data, Type, is_direct, size_of


cdef enum:
    SIGNAL_INTERVAL = 30_000_000  # elements between two signal checks
    ROW = 16  # a row or a column costs as much as so many elements, apart from its elements


cdef int run(Work* w, Phase phase, Py_ssize_t jobs, bint shared=True) except -1 nogil:
    """Run all jobs of a phase on the threads, or on one thread if not `shared`."""
    cdef double cost = <double>w.plan.rows * (w.plan.columns + ROW)
    cdef int threads = w.plan.threads if shared else 1
    cdef Py_ssize_t per_round = jobs
    w.phase = phase
    if w.block_param_grads != NULL:  # this is fresh memory
        cost *= 4
    if cost > SIGNAL_INTERVAL:
        per_round = max(threads, <Py_ssize_t>(jobs * (SIGNAL_INTERVAL / cost)))
    return parallel_for(job, w, 0, jobs, per_round, threads)


cdef void* scratch(Py_ssize_t items, Py_ssize_t size) except NULL nogil:
    cdef void* memory = malloc(max(items, 1) * size)
    if memory == NULL:
        with gil:
            raise MemoryError(f"norm: no memory for {items} partial sums")
    return memory


cdef double* zeroed_sums(Py_ssize_t items) except NULL nogil:
    """Allocate pairs of sums, and set them to 0."""
    cdef double* sums = <double*>scratch(items, 2 * sizeof(double))
    memset(sums, 0, items * 2 * sizeof(double))
    return sums


cdef int run_forward(Work* w) except -1 nogil:
    cdef bint columns = w.plan.strategy == COLUMNS
    cdef Py_ssize_t all = all_tiles(&w.plan) if columns else w.plan.rows
    cdef Py_ssize_t size = moments_of_part(w) * sizeof(double) if columns else sizeof(Moments)
    if w.plan.whole:
        return run(w, FORWARD, all if columns else w.plan.groups * w.plan.blocks)
    if w.moments:
        w.partial = <double*>scratch(all * w.plan.parts, size)
        if w.count != NULL:
            run(w, ORIGIN, all)
        run(w, MOMENTS, all * w.plan.parts)
        run(w, MERGE, all, False)
    if w.apply:
        run(w, APPLY, all * w.plan.parts)
    return 0


cdef int run_backward(Work* w) except -1 nogil:
    cdef bint columns = w.plan.strategy == COLUMNS
    cdef bint params = w.ds != NULL
    cdef bint whole = w.plan.whole
    cdef Py_ssize_t all = all_tiles(&w.plan) if columns else w.plan.rows
    cdef Py_ssize_t blocks = all if columns else w.plan.groups * w.plan.blocks
    if w.sum_g == NULL and not w.plan.short and not (columns and whole):
        w.own = <double*>scratch(2 * w.plan.rows, sizeof(double))
        w.sum_g = w.own
        w.sum_gx = w.own + w.plan.rows
    if params and w.plan.rows_differ:
        w.row_params = zeroed_sums(all * w.plan.depth)
    elif w.needs_sums and ((params and not w.plan.each) or not (columns or w.plan.short)):
        w.slot_sums = <double*>scratch(2 * w.plan.rows * w.plan.slots, sizeof(double))
    if w.needs_sums and columns and not whole:
        w.partial = <double*>scratch(all * w.plan.parts, 2 * w.plan.tile * sizeof(double))
    if w.block_param_grads != NULL:
        run(w, CLEAR, pieces_to_clear(w))
    if whole:
        run(w, BACKWARD, blocks)
    else:
        if w.needs_sums:
            run(w, SUMS, all * w.plan.parts)
            run(w, COMBINE, all, False)
        if w.dx.items == NULL and w.block_param_grads == NULL and w.row_params == NULL:
            pass
        elif w.plan.parts_meet:
            for w.part in range(w.plan.parts):
                run(w, INPUT, blocks)
            w.part = -1
        else:
            run(w, INPUT, blocks * w.plan.parts)
    if w.block_param_grads != NULL:
        run(w, COLLECT, w.plan.groups * pieces_to_collect(w))
    elif params:
        add_up_params(w)
    return 0


cdef int add_up_params(Work* w) except -1 nogil:
    """Fill ds and db if no job of rows collects them."""
    w.totals = zeroed_sums(reach_of_params(w))
    if w.row_params != NULL:
        add_up_columns_rows(w)
    else:
        w.shares = shares_of(w)
        for w.share_step in range(steps_of_adding(w)):
            if w.share_step > 0:
                check_signals()
            parallel_for(add_up_job, w, 0, w.shares, w.shares, <int>w.shares)
    return store_params(w)


cdef int begin(Work* w, bytes form, Call* call, stats, s, result, masked) except -1:
    """Prepare the work of a call: the steps that forward and backward share."""
    cdef Form f
    load(&f, form)
    call.type = <Type>f.type
    call.masked, call.scale = masked is not None, s is not None
    call.result = 0 if result is None else <size_t>address(result, size_of(call.type), True)
    memset(w, 0, sizeof(Work))
    make_plan(&w.plan, &f, call)
    w.part = -1
    w.equation = equation_of(&f)
    w.s = parameter(w, s)
    w.k = <double*>address(stats, sizeof(double))
    w.d = w.k + w.plan.rows
    w.var = w.d + w.plan.rows
    w.rstd = w.var + w.plan.rows
    if masked is not None:
        mask, count = masked
        w.x.mask = w.dy.mask = w.y.mask = w.dx.mask = <const uint8_t*>address(mask, 1)
        if count is not None:
            w.count = <double*>address(count, sizeof(double))
    return 0


cdef void* parameter(const Work* w, array, bint writable=False) except? NULL:
    if array is None:
        return NULL
    return address(array, sizeof(float) if w.plan.single else sizeof(double), writable)


cdef Equation equation_of(const Form* form) noexcept:
    cdef Equation equation
    equation.eps, equation.centered, equation.guard = form.eps, form.centered, form.guard
    return equation


cdef int bind(Data* data, const Work* w, array, Type type, bint result=False, other=None, copy=None) except -1:
    """Point `data` at an array, if there is one; at `other`, whose elements go with it; at `copy`, for a copy."""
    data.type = type
    data.direct = is_direct(type, w.plan.single) and data.mask == NULL
    data.uncached = w.plan.large and not result
    if array is not None:
        data.items = <char*>address(array, size_of(type), result)
        data.nontemporal = result and w.plan.stores != CACHED
    data.floor = -INFINITY
    data.other = data.copy = ALONE
    if other is not None:
        data.other = (<char*>address(other, size_of(type)) - data.items) // size_of(type)
    if copy is not None:
        data.copy = (<char*>address(copy, size_of(type), True) - data.items) // size_of(type)
    return 0


STRATEGIES = "resident", "streamed", "columns"
STORES = "cached", "nt_rows", "nt_vectors", "nt_gathered"


def takes_activations(Type type, bint single):
    """Return whether a ReLU can run in the same pass: it can if the loops take the data in its own place."""
    return bool(is_direct(type, single))


def plan(bytes form, bint backward, bint scale, bint other, int threads):
    """Return the plan of a call, in words and numbers: see Plan in plan.pxd. scale: is there a scale; other: is there a
    bias or, backward, does the caller want the gradients of both."""
    cdef Plan p
    cdef Call call
    cdef Form f
    load(&f, form)
    call.type, call.masked, call.backward, call.fused = <Type>f.type, False, backward, True
    call.scale, call.other, call.result, call.threads = scale, other, 0, threads
    make_plan(&p, &f, &call)
    found = {
        "strategy": STRATEGIES[<int>p.strategy], "stores": STORES[<int>p.stores], "parts": p.parts,
        "chunks": p.chunks, "whole_rows": bool(p.whole),
    }
    if p.strategy == COLUMNS:
        found.update(together=min(p.tile, p.across) // p.fold, fold=p.fold, rows_at_once=p.at_once)
    else:
        found.update(short=bool(p.short), together=p.together if p.short else 1, shared=bool(p.shared))
        found["parameters"] = "each element" if p.each else "each run" if p.nest.reduce0.param else "each row"
    return found


def forward(bytes form, x, s, b, y, stats, bint moments, int threads, masked=None, bint relu=False, residual=None):
    """Fill stats (4 x rows, float64: k, d, var, rstd) if `moments`, else read them; fill y unless it is None.

    form: the loops, types and equation, in the format of nest.pxd. x and y have its type, no gaps, and the nest's
    order; s and b, which may be None, have the type computed in. masked: None, or a pair: a bool for each element of x,
    False where it does not count; and a count (rows, float64) that is filled with `moments`, or None. relu: y becomes
    max(y + residual, 0), if takes_activations. This function checks nothing.
    """
    cdef Work w
    cdef Call call
    call.backward, call.fused, call.other, call.threads = False, True, b is not None, threads
    begin(&w, form, &call, stats, s, y, masked)
    w.b = parameter(&w, b)
    bind(&w.x, &w, x, call.type, False, residual)
    bind(&w.y, &w, y, call.type, True)
    if relu:
        w.y.floor = 0
    w.moments = moments
    w.apply = y is not None
    try:
        with nogil:
            run_forward(&w)
    finally:
        free(w.partial)


def backward(bytes form, dy, x, stats, s, sums, results, Sums origin, empty, int threads, masked=None, relu=None):
    """Fill dx, and ds and db together, of `results`, unless they are None; ds and db have the type computed in.

    form, masked: as for `forward`. origin 0 computes the sums of g and g * xhat, and fills `sums` (2 x rows, float64)
    if it is not None; 1 takes them from there; 2 uses no sums, as with given statistics. relu: None, or the pair of y,
    the result of forward with relu, and dresidual, filled along with dx, or None. empty(shape, dtype) makes scratch
    memory: fresh pages would cost a twentieth of a large LayerNorm.
    """
    cdef Work w
    cdef Call call
    dx, ds, db = results
    y, dresidual = (None, None) if relu is None else relu
    call.backward, call.other, call.threads = True, ds is not None, threads
    call.fused = origin == COMPUTE and sums is None and dx is not None
    begin(&w, form, &call, stats, s, dx, masked)
    bind(&w.x, &w, x, call.type)
    bind(&w.dy, &w, dy, call.type, False, y, dresidual)
    bind(&w.dx, &w, dx, call.type, True)
    w.ds = parameter(&w, ds, True)
    w.db = parameter(&w, db, True)
    w.sums = origin
    w.needs_sums = origin == COMPUTE or (ds is not None and not w.plan.each and not w.plan.rows_differ)
    if sums is not None:
        w.sum_g = <double*>address(sums, sizeof(double), origin == COMPUTE)
        w.sum_gx = w.sum_g + w.plan.rows
    if ds is not None and w.plan.each:
        grads = empty(size_to_collect(&w), ds.dtype)
        w.block_param_grads = parameter(&w, grads, True)
    try:
        with nogil:
            run_backward(&w)
    finally:
        free(w.own)
        free(w.partial)
        free(w.slot_sums)
        free(w.row_params)
        free(w.totals)


def blend(mean, var, batches, Type type, stats, Py_ssize_t rows, rates, double limit):
    """Update running statistics of `type`: mean = mean * keep + the batch's mean * share, var the same with share_var,
    for rates = keep, share, share_var. Add 1 to batches, an int64, unless it is None.

    Change nothing and return False unless the squares of the batch's k, d and var add up to less than limit: numbers
    that are not finite never do. A negative limit means no limit. Return True after an update.
    """
    cdef const double* k = <const double*>address(stats, sizeof(double))
    cdef char* mean_items = <char*>address(mean, size_of(type), True)
    cdef char* var_items = <char*>address(var, size_of(type), True)
    cdef int64_t* counter = NULL if batches is None else <int64_t*>address(batches, sizeof(int64_t), True)
    cdef double keep, share, share_var
    keep, share, share_var = rates
    if limit >= 0 and not are_small(k, 3 * rows, limit):
        return False
    blend_rows(mean_items, type, k, k + rows, rows, keep, share)
    blend_rows(var_items, type, k + 2 * rows, NULL, rows, keep, share_var)
    if counter != NULL:
        counter[0] += 1
    return True


def given(bytes form, mean, var, Type type, stats, Py_ssize_t rows):
    """Fill stats (4 x rows, float64: k, d, var, rstd) from means and variances of `type`, float32 or float64."""
    cdef Form f
    load(&f, form)
    cdef Equation equation = equation_of(&f)
    take_statistics(
        &equation, f.single, address(mean, size_of(type), False, rows), address(var, size_of(type), False, rows), type,
        <double*>address(stats, sizeof(double), True, 4 * rows), rows,
    )
