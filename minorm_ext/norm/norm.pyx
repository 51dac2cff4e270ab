# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False, binding=False
# Normalization over four loops: who does what, when. phases.pxd knows which jobs a phase is; they are in
# row_jobs.pxd, short_jobs.pxd, line_jobs.pxd, far_jobs.pxd, run_jobs.pxd and
# lane_jobs.pxd. The arithmetic of rows is in sums.h (first phases), apply.h (second phases),
# lines.h, each.h and far.h, that of lanes in lane_rows.h, each with a .pxd that picks the loop for
# the type data is stored in. What is made of the sums is in rows.pxd, short_rows.pxd, maps/reductions.pxd and
# lane_tiles.pxd, and in moments.pxd what all share. At the end of a backward pass params.pxd adds up the
# gradients of scale and bias. running.pxd blends running statistics.
#
# A forward pass has two phases, moments and apply; a backward pass two, sums and input. Where there are many rows, a
# thread takes some rows (or a tile of lanes) through both phases, so that the second finds the data in cache. Where
# there are few, all threads share the parts of every row, first for one phase, then for the other. Both ways add up
# the same parts in the same order: which one is taken may depend on the threads, and no bit of a result does.

from cython.parallel cimport parallel
from libc.stdlib cimport free, malloc
from libc.string cimport memset

from minorm_ext.runtime.buffers cimport address
from minorm_ext.runtime.jobs cimport (
    NONE, Jobs, check_signals as look, next_job as take, split_jobs as deal,
)
from minorm_ext.norm.nest cimport load
from minorm_ext.norm.lane_tiles cimport by_row
from minorm_ext.norm.lines cimport FACTORS
from minorm_ext.norm.moments cimport Moments
from minorm_ext.norm.params cimport add_up_lane_rows, reach_of_params, shares, steps_of_adding, store_params
from minorm_ext.norm.phases cimport (
    ADD_UP, APPLY, BACKWARD, CLEAR, COLLECT, COMBINE, FINISH, FORWARD, INPUT, MOMENTS, SUMS, Phase, do,
)
from minorm_ext.norm.row_jobs cimport pieces_to_clear, pieces_to_collect, size_to_collect
from minorm_ext.norm.run_jobs cimport factors_across, go_by_runs, portions, sets_of_rows, take_factors
from minorm_ext.norm.running cimport blend_rows
from minorm_ext.norm.plan cimport (
    ABSENT, ALONE, COMPUTE, Sums, Work, all_tiles, blocks_beside, cut_work, parts_meet, take_whole_rows,
)
from minorm_ext.simd.storage cimport DOUBLE, SINGLE, WIDEN, Data, Type, size_of


cdef enum:
    BREATH = 30_000_000  # elements between two looks at Ctrl-C
    STREAM = 5 << 20  # bytes of a result that is written around the cache; it pays even if the result is read next
    ROW = 16  # elements that take as long as what a row or a lane costs apart from its elements


cdef inline Py_ssize_t in_turn(const Work* w, Py_ssize_t turn, Py_ssize_t beside) noexcept nogil:
    """Which job comes at this turn: as memory has them, a part of all that lie beside each other, then the next."""
    if beside == 1:
        return turn
    return (turn // (beside * w.parts) * beside + turn % beside) * w.parts + turn // beside % w.parts


cdef int spread(
    const Work* w, Phase phase, Py_ssize_t jobs, int threads, Py_ssize_t first=0, Py_ssize_t step=1,
    Py_ssize_t beside=1
) except -1 nogil:
    """Do some jobs of a phase, first, first + step ..., on the threads; answer Ctrl-C now and then."""
    cdef Jobs dealt
    cdef Py_ssize_t begin = 0
    cdef Py_ssize_t end
    cdef Py_ssize_t job = NONE
    cdef double cost = <double>w.rows * (w.columns + ROW) * (4 if w.collected != NULL else 1)  # that is fresh memory
    cdef Py_ssize_t at_once = jobs if cost <= BREATH else max(threads, <Py_ssize_t>(jobs * (BREATH / cost)))
    while begin < jobs:
        end = min(jobs, begin + at_once)
        if threads == 1 or jobs == 1:
            for job in range(begin, end):
                do(w, phase, first + in_turn(w, job, beside) * step)
        else:
            deal(&dealt, begin, end, threads)
            with parallel(num_threads=threads):
                job = take(&dealt)
                while job != NONE:
                    do(w, phase, first + in_turn(w, job, beside) * step)
                    job = take(&dealt)
        begin = end
        if begin < jobs:
            look()
    return 0


cdef void* room(Py_ssize_t items, Py_ssize_t size) except NULL nogil:
    """Scratch memory."""
    cdef void* memory = malloc(max(items, 1) * size)
    if memory == NULL:
        with gil:
            raise MemoryError(f"norm: no memory for {items} partial sums")
    return memory


cdef double* pairs(Py_ssize_t items) except NULL nogil:
    """Pairs of sums that are still 0."""
    cdef double* sums = <double*>room(items, 2 * sizeof(double))
    memset(sums, 0, items * 2 * sizeof(double))
    return sums


cdef int run_second(Work* w, Phase phase, int threads) except -1 nogil:
    """The second phase of rows that go by runs."""
    w.factors = room(FACTORS * factors_across(w), sizeof(double))
    if w.single:
        take_factors(<const float*>NULL, w)
    else:
        take_factors(<const double*>NULL, w)
    return spread(w, phase, portions(w), threads)


cdef int run_forward(Work* w, int threads) except -1 nogil:
    cdef Py_ssize_t all = all_tiles(w) if w.lanes else w.rows
    cdef Py_ssize_t walks = sets_of_rows(w) if w.by_runs else all
    if take_whole_rows(w, threads):
        return spread(w, FORWARD, all if w.lanes else w.groups * w.blocks, threads)
    if w.moments:
        w.partial = <double*>room(all * w.parts, max(sizeof(Moments), 2 * w.tile * sizeof(double) if w.lanes else 0))
        spread(w, MOMENTS, walks * w.parts, threads, 0, 1, walks if w.by_runs else w.beside)
        spread(w, FINISH, all, 1)
    if w.apply and w.by_runs:
        run_second(w, APPLY, threads)
    elif w.apply:
        spread(w, APPLY, all * w.parts, threads, 0, 1, w.beside)
    return 0


cdef int add_up_params(Work* w, int threads) except -1 nogil:
    """Fill ds and db where no job of rows collects them."""
    cdef Py_ssize_t step
    w.totals = pairs(reach_of_params(w))
    if w.row_params != NULL:
        add_up_lane_rows(w)
    else:
        w.shares = shares(w, threads)
        for step in range(steps_of_adding(w)):
            if step > 0:
                look()
            spread(w, ADD_UP, w.shares, <int>w.shares, step * w.shares)
    if w.single:
        return store_params(<const float*>NULL, w)
    return store_params(<const double*>NULL, w)


cdef int run_backward(Work* w, int threads) except -1 nogil:
    cdef Py_ssize_t all = all_tiles(w) if w.lanes else w.rows
    cdef Py_ssize_t walks = sets_of_rows(w) if w.by_runs else all
    cdef Py_ssize_t blocks = all if w.lanes else w.groups * w.blocks
    cdef bint params = w.ds != NULL
    cdef bint whole = take_whole_rows(w, threads)
    cdef Py_ssize_t part
    if w.sum_g == NULL and not w.short and not (w.lanes and whole):
        w.own = <double*>room(2 * w.rows, sizeof(double))
        w.sum_g = w.own
        w.sum_gx = w.own + w.rows
    if params and w.lanes and by_row(w):
        w.row_params = pairs(all * w.depth)
    elif w.tally and ((params and not w.each) or not (w.lanes or w.short)):
        w.tallies = room(2 * w.rows * w.slots, sizeof(float) if w.single else sizeof(double))
    if w.tally and w.lanes and not whole:
        w.partial = <double*>room(all * w.parts, 2 * w.tile * sizeof(double))
    if w.collected != NULL:
        spread(w, CLEAR, pieces_to_clear(w), threads)
    if whole:
        spread(w, BACKWARD, blocks, threads)
    else:
        if w.tally:
            spread(w, SUMS, walks * w.parts, threads, 0, 1, walks if w.by_runs else w.beside)
            spread(w, COMBINE, all, 1)
        if w.by_runs:
            if w.dx.items != NULL:
                run_second(w, INPUT, threads)
        elif w.each and parts_meet(w):
            for part in range(w.parts):
                spread(w, INPUT, blocks, threads, part, w.parts)
        elif w.dx.items != NULL or w.collected != NULL or w.row_params != NULL:
            spread(w, INPUT, blocks * w.parts, threads, 0, 1, blocks_beside(w))
    if w.collected != NULL:
        spread(w, COLLECT, w.groups * pieces_to_collect(w), threads)
    elif params:
        add_up_params(w, threads)
    return 0


cdef int begin(Work* w, bytes code, bint single, stats, s, double eps, bint centered, bint guard) except -1:
    """What forward and backward have in common."""
    memset(w, 0, sizeof(Work))
    load(&w.nest, code)
    cut_work(w)
    w.single = single
    w.equation.eps = eps
    w.equation.centered = centered
    w.equation.guard = guard
    w.s = parameter(w, s)
    w.k = <double*>address(stats, sizeof(double))
    w.d = w.k + w.rows
    w.var = w.d + w.rows
    w.rstd = w.var + w.rows
    return 0


cdef void* parameter(const Work* w, array, bint writable=False) except? NULL:
    if array is None:
        return NULL
    return address(array, sizeof(float) if w.single else sizeof(double), writable)


cdef int bind(Data* data, const Work* w, array, Type type, bint result=False) except -1:
    """Point at an array, if there is one. Results too large to stay in the cache go around it."""
    cdef bint large = w.rows * w.columns * size_of(type) > STREAM
    data.type = type
    data.as_is = type == (SINGLE if w.single else DOUBLE)
    data.direct = data.as_is or (w.single and WIDEN)
    data.far = large and not result
    if array is not None:
        data.items = <char*>address(array, size_of(type), result)
        data.stream = large and result
    return 0


def form(bytes code, Type type, bint single):
    """Which inner loop takes these loops over data of `type`, and how many statistics advance together in it."""
    cdef Work w
    memset(&w, 0, sizeof(Work))
    load(&w.nest, code)
    cut_work(&w)
    w.single = single
    bind(&w.x, &w, None, type)
    if w.lanes:
        return "lanes", min(w.tile, w.across) // w.fold
    if go_by_runs(&w):
        return "runs of all rows", w.rows
    rows = "short rows" if w.short else "rows"
    return (rows + ", a parameter for each element" if w.each else rows), 1


def forward(
    bytes code, Type type, bint single, x, s, b, y, stats,
    double eps, bint centered, bint guard, bint moments, int threads
):
    """Fill stats (4 x rows, float64: k, d, var, rstd) if `moments`, else read them; fill y unless it is None.

    x and y: of `type`, gapless, in the nest's order. Computed in float if `single`, else in double; s and b, which may
    be None, are of that type. Nothing is checked here.
    """
    cdef Work w
    begin(&w, code, single, stats, s, eps, centered, guard)
    w.b = parameter(&w, b)
    bind(&w.x, &w, x, type)
    bind(&w.y, &w, y, type, True)
    w.moments = moments
    w.apply = y is not None
    w.by_runs = go_by_runs(&w)
    if w.rows * w.columns < ALONE:
        threads = 1
    try:
        with nogil:
            run_forward(&w, threads)
    finally:
        free(w.partial)
        free(w.factors)


def backward(
    bytes code, Type type, bint single, dy, x, stats, s, sums, dx, ds, db,
    double eps, bint centered, bint guard, Sums origin, empty, int threads
):
    """Fill whichever of dx, and ds and db together, are not None; these two are of the type computed in.

    origin 0 computes the sums of g and g * xhat, and fills `sums` (2 x rows, float64) if it is not None; 1 takes them
    from there; 2 is without them, as where the statistics were given. empty(shape, dtype) makes scratch memory: fresh
    pages would cost a twentieth of a large LayerNorm.
    """
    cdef Work w
    begin(&w, code, single, stats, s, eps, centered, guard)
    bind(&w.x, &w, x, type)
    bind(&w.dy, &w, dy, type)
    bind(&w.dx, &w, dx, type, True)
    w.ds = parameter(&w, ds, True)
    w.db = parameter(&w, db, True)
    w.sums = origin
    w.by_runs = origin != ABSENT and go_by_runs(&w)
    w.tally = origin == COMPUTE or (ds is not None and not (w.each or w.lanes and by_row(&w)))
    if w.rows * w.columns < ALONE:
        threads = 1
    w.short &= origin == COMPUTE and sums is None and dx is not None
    if sums is not None:
        w.sum_g = <double*>address(sums, sizeof(double), origin == COMPUTE)
        w.sum_gx = w.sum_g + w.rows
    if ds is not None and w.each:
        collected = empty(size_to_collect(&w), ds.dtype)
        w.collected = parameter(&w, collected, True)
    try:
        with nogil:
            run_backward(&w, threads)
    finally:
        free(w.own)
        free(w.partial)
        free(w.tallies)
        free(w.row_params)
        free(w.factors)
        free(w.totals)


def blend(mean, var, Type type, stats, Py_ssize_t rows, double keep, double share, double share_var):
    """mean = mean * keep + the batch's mean * share, var the same with share_var: running statistics, of `type`."""
    cdef char* mean_items = <char*>address(mean, size_of(type), True)
    cdef char* var_items = <char*>address(var, size_of(type), True)
    cdef const double* k = <const double*>address(stats, sizeof(double))
    blend_rows(mean_items, type, k, k + rows, rows, keep, share)
    blend_rows(var_items, type, k + 2 * rows, NULL, rows, keep, share_var)
