# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# The plan of a call: the strategy, the cuts of the work, and the kind of stores for results. make_plan decides all of
# this once. The cuts follow from the nest and the types alone, so no bit of a result depends on the number of threads,
# on addresses or on the size of a register; threads only share the jobs. minorm/kernels/README.md has the table of the
# strategies.

from libc.string cimport memset

from minorm_ext.norm.kernels cimport BLOCK, ROWS, VECTOR_BYTES
from minorm_ext.norm.nest cimport Form, Nest
from minorm_ext.norm.rows cimport CHUNK, Cut, cut_row
from minorm_ext.runtime.numbers cimport ceil_div
from minorm_ext.simd.storage cimport Type, is_direct, size_of


cdef enum Strategy:
    RESIDENT  # some rows at a time, both phases while they are in cache
    STREAMED  # the same with results that go around the cache
    COLUMNS   # neighbours in memory belong to different statistics

cdef enum StorePath:
    CACHED       # into the cache; all other paths go around it
    NT_ROWS      # row by row around the cache; the ends, which share lines with other rows, into the cache
    NT_VECTORS   # vector by vector: narrow rows that fill lines, and have one parameter each or share theirs
    NT_GATHERED  # other narrow rows, which scratch memory gathers into lines first (minorm_nt_writer)

cdef enum:
    STREAM = 5 << 20   # bytes of a result that goes around the cache; it pays even if the result is read next
    # Both phases of some rows: one job
    ONE_THREAD = 24576           # elements below which a second thread costs more than it saves
    RESIDENT_BLOCK = 16384       # elements, about, of a job
    VAST = 8_000_000             # elements, about, that no cache holds: data of so many gets larger jobs,
    STREAM_BLOCK = 131072        # of this many elements for short rows, which go some at a time,
    LONG_STREAM_BLOCK = 400_000  # and of this many for long rows, if that leaves
    STREAM_JOBS = 64             # this many jobs
    LONG_JOB = 16_000_000        # a job of so many elements would delay Ctrl-C too long
    # Short rows that go together
    TOGETHER = 2048    # elements, about
    STREAMED_TOGETHER = 1024     # the same if results go around the cache, of x, or of x and dy
    NARROW = 128       # elements of a row that is gathered, or that goes with a multiple of VECTORS rows
    VECTORS = 16       # and half of it backward: vectors of statistics
    FILLING = 256      # elements of a row that goes vector by vector around the cache, at most
    SEVERAL = 4        # rows that share what is read of their parameters, at least
    PREFETCH_DISTANCE = 4096     # the first phase prefetches memory so many bytes ahead
    # Parts that all threads share
    PARTS = 64         # parts, about, of a row; or of all tiles of columns that lie side by side, together
    # Columns
    TILE = 256         # columns of a tile in cache
    BROAD_TILE = 1024  # columns of a tile from memory, at most
    LARGE = 1_500_000  # from so many elements on, about, results go around the cache
    STEP = 64          # rows of a chunk of columns
    LONG_STEP = 128    # the same in a large sample, which still has enough parts for some threads
    LARGE_SAMPLE = 98304         # elements of a large sample, at least
    BAND = 256         # rows of a part, at most, if parts of other tiles lie beside it: these find its pages known
    FOLD = 32          # most neighbours that share a statistic and a parameter and still are separate columns
    DEEP = 16          # fewest reduced rows for which this pays; there must also be half as many rows as neighbours
    OWN_CACHE = 1 << 18          # elements, about, that a processor's private cache holds
    SHARED_CACHE = 1 << 20       # of a tile of at most so many elements, the cache that all share holds some
    # Collecting gradients
    LINE = 16          # elements of a line of memory, or of two lines in double
    SETS = 64          # lines whose distance is a multiple of this share a set of the innermost cache


cdef struct Plan:
    Nest nest
    Strategy strategy
    StorePath stores
    bint single            # computed in float, else double
    bint large             # data comes from memory, and results go there
    int threads
    Py_ssize_t rows
    Py_ssize_t columns
    double one_by_columns
    # A row is cut into parts of some chunks (rows: see Cut; columns: a chunk is `step` rows of a tile).
    Cut cut
    Py_ssize_t chunks
    Py_ssize_t chunks_of_part
    Py_ssize_t parts
    Py_ssize_t beside      # neighbouring tiles or rows: memory holds a part of each, then the next part of each
    bint whole             # a thread takes whole rows through both phases; else all threads share the parts of each
    # Rows
    bint short             # rows are single runs that fit a chunk, and go together,
    Py_ssize_t together    # so many at a time
    bint each              # there may be a parameter for each element;
    bint alone             # there is no such parameter;
    bint shared            # there is one, and short rows share it in registers
    Py_ssize_t next        # memory is prefetched so many elements ahead
    Py_ssize_t groups      # whole rows are done in jobs: a group shares its parameters,
    Py_ssize_t members
    Py_ssize_t members_of_block  # a block is some members of a group
    Py_ssize_t blocks
    Py_ssize_t group_step  # from the first row of a group to the first row of the next
    Py_ssize_t member_step
    # Columns. If few neighbours share a statistic (the channels of a group, channels-last), each is a separate column,
    # and the statistics of `fold` columns are merged at the end.
    Py_ssize_t fold        # columns of a statistic
    Py_ssize_t fold_param  # parameter step from one to the next
    Py_ssize_t across      # columns of a turn of the outer kept loop
    Py_ssize_t depth       # reduced rows, which the columns walk down
    Py_ssize_t tile        # columns of a tile: whole statistics
    Py_ssize_t tiles       # tiles of a turn of the outer kept loop
    Py_ssize_t at_once     # reduced rows that are taken as one
    Py_ssize_t step        # rows of a chunk, after some are taken as one
    bint rows_differ       # parameters vary from reduced row to reduced row
    # Backward: places for sums
    Py_ssize_t slots       # of a row: one a chunk, a piece of a run where runs have their own parameters, or a column
    Py_ssize_t slots_of_param  # so many neighbouring slots share a parameter and are added up first
    Py_ssize_t extent      # parameters of a row, if each element has one
    Py_ssize_t pitch       # from a block's ds to its db, and on to the ds of the next
    bint parts_meet        # do parts of a row add to the same ds and db?


cdef struct Call:          # the properties of a call that decide its plan
    Type type              # that data is stored in
    bint masked            # only some elements count
    bint backward
    bint fused             # both phases run, and the caller does not need the sums between them
    bint scale
    bint other             # forward a bias, backward gradients of scale and bias
    size_t result          # the address of y or dx
    int threads


cdef inline void make_plan(Plan* p, const Form* form, const Call* call) noexcept nogil:
    cdef Nest* n = &p.nest
    memset(p, 0, sizeof(Plan))
    p.nest = form.nest
    p.single = form.single
    p.rows = n.keep0.count * n.keep1.count
    p.columns = n.reduce0.count * n.reduce1.count
    p.one_by_columns = 1.0 / p.columns
    p.large = p.rows * p.columns * size_of(call.type) > STREAM
    p.threads = call.threads if p.rows * p.columns >= ONE_THREAD else 1
    p.groups, p.members, p.member_step, p.fold = 1, p.rows, 1, 1
    if (n.keep1.data == 1 and n.keep1.count > 1) or folds(n):
        p.strategy = COLUMNS
        p.stores = NT_ROWS if p.large else CACHED
        cut_columns(p)
    else:
        p.strategy = STREAMED if p.large else RESIDENT
        cut_rows(p, call.fused)
        p.stores = store_path(p, call)
        p.together = rows_together(p, call)
        p.next = (1 if call.backward else 2) * PREFETCH_DISTANCE // size_of(call.type) if p.large else 0
    p.whole = takes_whole_rows(p)


# Columns.

cdef inline bint folds(const Nest* n) noexcept nogil:
    """Return whether neighbours that share a statistic are still separate columns."""
    cdef Py_ssize_t fold = n.reduce1.count
    if n.keep1.data != fold or n.reduce0.param != 0:
        return False
    return fold <= (TILE if n.reduce1.param else FOLD) and n.reduce0.count >= max(<Py_ssize_t>DEEP, fold // 2)


cdef inline void cut_columns(Plan* p) noexcept nogil:
    cdef Nest* n = &p.nest
    if folds(n):
        p.fold = n.reduce1.count
        p.fold_param = n.reduce1.param
        n.reduce1 = n.reduce0
        n.reduce0.count = 1
    p.rows_differ = n.reduce0.param != 0 or n.reduce1.param != 0
    p.slots = p.fold
    p.slots_of_param = 1
    p.across = n.keep1.count * p.fold
    p.depth = p.columns // p.fold
    p.tile = TILE // p.fold * p.fold
    p.tiles = ceil_div(p.across, p.tile)
    p.at_once = 1
    if n.reduce0.count == 1 and n.reduce1.data == p.across and n.reduce1.param == 0:
        p.at_once = max(1, min(TILE // p.across, p.depth))
    p.step = STEP if p.depth * p.across < LARGE_SAMPLE else LONG_STEP
    p.chunks = ceil_div(ceil_div(p.depth, p.at_once), p.step)
    p.chunks_of_part = ceil_div(p.chunks, ceil_div(PARTS, p.tiles))  # whatever the number of samples
    if p.tiles > 1:
        p.chunks_of_part = min(p.chunks_of_part, BAND // p.step)
    p.parts = ceil_div(p.chunks, p.chunks_of_part)
    if p.rows * p.columns >= LARGE:  # this does not change the parts: a sample has the same bits in any batch
        p.tile = BROAD_TILE // p.fold * p.fold
        p.tiles = ceil_div(p.across, p.tile)
    p.beside = p.tiles


# Rows.

cdef inline void cut_rows(Plan* p, bint fused) noexcept nogil:
    cdef const Nest* n = &p.nest
    p.cut = cut_row(n)
    p.chunks = p.cut.chunks
    p.chunks_of_part = ceil_div(p.chunks, PARTS)
    p.parts = ceil_div(p.chunks, p.chunks_of_part)
    p.beside = n.keep1.count if n.reduce0.count > 1 and n.keep1.data < n.reduce0.data else 1
    p.short = n.reduce0.count == 1 and p.chunks == 1 and fused
    p.each = n.reduce1.param != 0
    p.slots = p.slots_of_param = p.chunks
    if n.reduce0.param and not p.each:
        p.slots = n.reduce0.count * p.cut.pieces
        p.slots_of_param = p.cut.pieces
    p.members_of_block = max(1, members_at_once(p))
    if p.each:
        p.parts_meet = n.reduce0.count > 1 and n.reduce0.param == 0
        if n.keep0.param and n.keep1.param:
            p.groups, p.members, p.group_step, p.member_step = p.rows, 1, 1, 0
        elif n.keep0.param:
            p.groups, p.members, p.group_step = n.keep0.count, n.keep1.count, n.keep1.count
        elif n.keep1.param:
            p.groups, p.members, p.group_step, p.member_step = n.keep1.count, n.keep0.count, 1, n.keep1.count
        p.members_of_block = min(max(ceil_div(p.members, 32), 8), 256)
        p.extent = n.reduce1.count * (n.reduce0.count if n.reduce0.param else 1)
        p.pitch = pitch_of(p.extent)
    p.blocks = ceil_div(p.members, p.members_of_block)


cdef inline Py_ssize_t members_at_once(const Plan* p) noexcept nogil:
    """Return how many rows are best for one job."""
    if p.rows * p.columns < VAST:
        return RESIDENT_BLOCK // p.columns
    return STREAM_BLOCK // p.columns if p.short else min(LONG_STREAM_BLOCK // p.columns, p.members // STREAM_JOBS)


cdef inline Py_ssize_t pitch_of(Py_ssize_t extent) noexcept nogil:
    """Round up to whole lines: a vector across two lines costs twice. Add some lines if ds and db would share sets."""
    cdef Py_ssize_t lines = ceil_div(extent, LINE)
    if lines <= 1:
        return extent
    return (lines if lines % SETS else lines + 11) * LINE


cdef inline StorePath store_path(Plan* p, const Call* call) noexcept nogil:
    """Choose the kind of stores for results of rows, and whether rows share parameters in registers."""
    cdef Py_ssize_t lanes = VECTOR_BYTES // (4 if p.single else 8)
    cdef Py_ssize_t size = size_of(call.type)
    cdef bint direct = is_direct(call.type, p.single)
    cdef bint fills = p.columns % (lanes if lanes * size == 64 else BLOCK * lanes) == 0  # lines, without rests
    p.alone = not (p.each and (call.scale or call.other))
    p.shared = p.short and p.each and call.scale and (call.other or not call.backward)
    if not p.large:
        return CACHED
    if (p.shared or (p.short and p.alone)) and p.columns <= FILLING and direct and fills and call.result % 64 == 0:
        return NT_VECTORS
    if p.short and direct and not call.masked and p.columns <= NARROW and rows_follow(p):
        return NT_GATHERED
    p.shared = False
    return NT_ROWS


cdef inline bint rows_follow(const Plan* p) noexcept nogil:
    """Return whether the rows of a block follow each other without a gap."""
    cdef const Nest* n = &p.nest
    if p.member_step != 1:
        return n.keep0.data == p.columns
    if n.keep1.count > 1 and n.keep1.data != p.columns:
        return False
    return p.groups > 1 or n.keep0.count == 1 or n.keep0.data == n.keep1.count * p.columns


cdef inline Py_ssize_t rows_together(const Plan* p, const Call* call) noexcept nogil:
    """Return how many short rows go through the first phase before the second. (Scratch memory holds a chunk.)"""
    cdef Py_ssize_t vectors = VECTORS // 2 if call.backward else VECTORS
    cdef Py_ssize_t size = TOGETHER
    cdef bint direct = is_direct(call.type, p.single) and not call.masked
    if p.stores != CACHED:
        size = STREAMED_TOGETHER // 2 if call.backward else STREAMED_TOGETHER
    cdef Py_ssize_t rows = max(1, size // p.columns)
    if p.stores == NT_VECTORS or (p.stores == CACHED and p.shared and direct):
        rows = max(<Py_ssize_t>SEVERAL, rows)
    elif p.stores == NT_ROWS and p.single and p.columns <= STREAMED_TOGETHER:
        rows = max(<Py_ssize_t>2, rows)
    elif p.stores == NT_GATHERED and p.single:
        rows = ceil_div(rows, vectors) * vectors
    return min(<Py_ssize_t>ROWS, rows)


# Who does what.

cdef inline Py_ssize_t all_tiles(const Plan* p) noexcept nogil:
    """Return how many tiles the columns make."""
    return p.tiles * p.nest.keep0.count


cdef inline bint takes_whole_rows(const Plan* p) noexcept nogil:
    """Return whether a thread takes whole rows through both phases; otherwise all threads share each phase of each row.

    Either way gives the same bits, so this may depend on the threads.
    """
    cdef bint columns = p.strategy == COLUMNS
    cdef Py_ssize_t jobs = all_tiles(p) if columns else p.groups * p.blocks
    if p.parts == 1:
        return True
    if p.depth * min(p.tile, p.across) > SHARED_CACHE if columns else p.columns * p.members_of_block > LONG_JOB:
        return False
    if p.parts_meet:
        return True
    return p.threads == 1 or jobs >= 4 * p.threads or jobs == p.threads
