# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# One normalization as it is handed to the jobs: pointers, loops, and how the work is cut.

from minorm_ext.norm.nest cimport Nest
from minorm_ext.norm.lanes cimport BROAD, TILE
from minorm_ext.norm.moments cimport Equation
from minorm_ext.norm.rows cimport Cut, cut_row
from minorm_ext.simd.storage cimport Data, real


cdef enum:
    ALONE = 24576      # elements below which a second thread costs more than it saves
    GROUP = 16384      # elements, about, that one job takes through both phases
    HERD = 131072      # the same for short rows from memory, of which each goes together with the next
    LONG_HERD = 400000  # and for long ones, if that leaves
    JOBS = 64          # so many jobs
    LARGE = 1_500_000  # elements whose results go around the cache, about
    VAST = 8_000_000   # elements that no cache holds, about
    PARTS = 64         # parts, about, into which a row, or what all tiles of lanes walk down together, is cut
    STEP = 64          # rows of a chunk of lanes
    LONG_STEP = 128    # the same in a sample so large that its parts are still enough for some threads
    PLENTY = 98304     # elements of such a sample, at least
    BAND = 256         # rows of a part, at most, where it lies beside those of other tiles: they find its pages known
    LONG = 16_000_000  # elements of a job that keep a thread too long from answering Ctrl-C
    FOLD = 32          # neighbours that share a statistic, and a parameter, and yet are lanes of their own, at most
    DEEP = 16          # reduced rows that they must walk down for it to pay, at least: half as many as they are
    NEAR = 1 << 17     # bytes of a row, at most, of which a processor's own cache holds a few
    OWN = 1 << 18      # elements, about, that a processor's own cache holds
    CACHE = 1 << 20    # elements of a tile of lanes, of which the cache that all share holds some
    LINE = 16          # elements of a line of memory, or of two in double
    SETS = 64          # lines after which the sets of the innermost cache begin anew

cdef enum Sums:  # where the backward pass gets sum_g and sum_gx from
    COMPUTE
    GIVEN
    ABSENT


cdef struct Work:
    Nest nest
    Equation equation
    bint single            # computed in float, else double
    bint lanes             # the unit-step loop is kept, or as good as kept: see `fold`
    bint each              # rows with a parameter for each element
    bint short             # rows are single runs that fit a chunk
    bint by_runs           # rows are short runs all over memory: see run_jobs.pxd
    Py_ssize_t rows
    Py_ssize_t columns
    double one_by_columns
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
    bint moments           # which phases
    bint apply
    bint tally             # backward: sum up dy and dy * (x - mean)
    Sums sums
    # A row is cut into parts of some chunks (rows: see Cut; lanes: a chunk is `step` rows of a tile).
    Cut cut
    Py_ssize_t chunks
    Py_ssize_t chunks_of_part
    Py_ssize_t parts
    Py_ssize_t beside      # tiles, or rows, of which memory holds a part of each and then the next of each
    # Lanes. Where few neighbours share a statistic (the channels of a group, channels-last), each is a lane of its own,
    # and `fold` lanes are merged at the end.
    Py_ssize_t fold        # lanes of a statistic
    Py_ssize_t fold_param  # parameter step from one to the next
    Py_ssize_t across      # lanes of an outer kept turn
    Py_ssize_t depth       # reduced rows, which the lanes walk down
    Py_ssize_t tile        # lanes of a tile: whole statistics
    Py_ssize_t tiles       # tiles of an outer kept turn
    Py_ssize_t at_once     # reduced rows that are taken as one
    Py_ssize_t step        # such rows of a chunk
    # Whole rows are done in jobs: a group shares its parameters, a block is some members of a group.
    Py_ssize_t groups
    Py_ssize_t members
    Py_ssize_t members_of_block
    Py_ssize_t blocks
    Py_ssize_t group_step  # from the first row of a group to the first row of the next
    Py_ssize_t member_step
    # Backward: places for sums.
    Py_ssize_t slots       # of a row: one a chunk, or a piece of a run where runs differ in their parameters, or a lane
    Py_ssize_t extent      # parameters of a row, where each element has one
    Py_ssize_t pitch       # from a block's ds to its db, and on to the ds of the next
    double* partial        # moments, or sums, of parts
    void* tallies          # sum(dy) of every slot, then sum(dy * (x - mean)), in the type computed in
    double* own            # memory of the next two, unless they are given, or NULL where a tile keeps them
    double* sum_g          # of each row
    double* sum_gx
    double* row_params     # lanes that share parameters: ds and db of each tile and reduced row
    void* collected        # rows with a parameter for each element: ds and db of each block
    void* factors          # by runs: what the second phase takes of each row
    Py_ssize_t shares      # of adding them up: see params.pxd
    double* totals         # ds, then db, of all parameters, in double


cdef inline Py_ssize_t ceil_div(Py_ssize_t a, Py_ssize_t b) noexcept nogil:
    return (a + b - 1) // b


cdef inline bint is_vast(const Work* w) noexcept nogil:
    """Does all data come from memory?"""
    return w.rows * w.columns >= VAST


cdef inline Py_ssize_t pitch_of(Py_ssize_t extent) noexcept nogil:
    """Whole lines, for a vector that lies across two costs twice; and some more where ds and db would share sets."""
    cdef Py_ssize_t lines = ceil_div(extent, LINE)
    if lines <= 1:
        return extent
    return (lines if lines % SETS else lines + 11) * LINE


cdef inline Py_ssize_t members_at_once(const Work* w) noexcept nogil:
    """How many rows one job had better take."""
    if not is_vast(w):
        return GROUP // w.columns
    return HERD // w.columns if w.short else min(LONG_HERD // w.columns, w.members // JOBS)


cdef inline bint folds(const Nest* n) noexcept nogil:
    """Are neighbours that share a statistic lanes of their own nevertheless?"""
    cdef Py_ssize_t fold = n.reduce1.count
    if n.keep1.data != fold or n.reduce0.param != 0:
        return False
    return fold <= (TILE if n.reduce1.param else FOLD) and n.reduce0.count >= max(<Py_ssize_t>DEEP, fold // 2)


cdef inline void cut_work(Work* w) noexcept nogil:
    """Fill in how the work is cut; it depends on the nest alone."""
    cdef Nest* n = &w.nest
    w.rows = n.keep0.count * n.keep1.count
    w.columns = n.reduce0.count * n.reduce1.count
    w.one_by_columns = 1.0 / w.columns
    w.lanes = n.keep1.data == 1 and n.keep1.count > 1
    w.fold = 1
    if folds(n):
        w.lanes = True
        w.fold = n.reduce1.count
        w.fold_param = n.reduce1.param
        n.reduce1 = n.reduce0
        n.reduce0.count = 1
    w.each = not w.lanes and n.reduce1.param != 0
    w.groups, w.members, w.group_step, w.member_step = 1, w.rows, 0, 1
    if w.lanes:
        w.slots = w.fold
        w.across = n.keep1.count * w.fold
        w.depth = w.columns // w.fold
        w.tile = TILE // w.fold * w.fold
        w.tiles = ceil_div(w.across, w.tile)
        w.at_once = 1
        if n.reduce0.count == 1 and n.reduce1.data == w.across and n.reduce1.param == 0:
            w.at_once = max(1, min(TILE // w.across, w.depth))
        w.step = STEP if w.depth * w.across < PLENTY else LONG_STEP
        w.chunks = ceil_div(ceil_div(w.depth, w.at_once), w.step)
        w.chunks_of_part = ceil_div(w.chunks, ceil_div(PARTS, w.tiles))  # whatever the number of samples
        if w.tiles > 1:
            w.chunks_of_part = min(w.chunks_of_part, BAND // w.step)
        w.parts = ceil_div(w.chunks, w.chunks_of_part)
        if w.rows * w.columns >= LARGE:  # parts are what they are anyhow: a sample has the same bits in any batch
            w.tile = BROAD // w.fold * w.fold
            w.tiles = ceil_div(w.across, w.tile)
        w.beside = w.tiles
        return
    w.cut = cut_row(n)
    w.chunks = w.cut.chunks
    w.chunks_of_part = ceil_div(w.chunks, PARTS)
    w.parts = ceil_div(w.chunks, w.chunks_of_part)
    w.beside = n.keep1.count if n.reduce0.count > 1 and n.keep1.data < n.reduce0.data else 1
    w.short = n.reduce0.count == 1 and w.chunks == 1
    w.slots = n.reduce0.count * w.cut.pieces if n.reduce0.param and not w.each else w.chunks
    w.members_of_block = max(1, members_at_once(w))
    if w.each:
        if n.keep0.param and n.keep1.param:
            w.groups, w.members, w.group_step, w.member_step = w.rows, 1, 1, 0
        elif n.keep0.param:
            w.groups, w.members, w.group_step, w.member_step = n.keep0.count, n.keep1.count, n.keep1.count, 1
        elif n.keep1.param:
            w.groups, w.members, w.group_step, w.member_step = n.keep1.count, n.keep0.count, 1, n.keep1.count
        w.members_of_block = min(max(ceil_div(w.members, 32), 8), 256)
        w.extent = n.reduce1.count * (n.reduce0.count if n.reduce0.param else 1)
        w.pitch = pitch_of(w.extent)
    w.blocks = ceil_div(w.members, w.members_of_block)


cdef inline Py_ssize_t all_tiles(const Work* w) noexcept nogil:
    """How many tiles the lanes make."""
    return w.tiles * w.nest.keep0.count


cdef inline Py_ssize_t blocks_beside(const Work* w) noexcept nogil:
    """`beside`, of blocks."""
    return w.beside if w.lanes or w.beside == 1 else w.blocks


cdef inline Py_ssize_t slots_of_param(const Work* w) noexcept nogil:
    """How many slots of a row, one after the other, share a parameter and are added up first. Lanes never are."""
    if w.lanes:
        return 1
    return w.cut.pieces if w.nest.reduce0.param and not w.each else w.slots


cdef inline real* tally(const real* type, const Work* w, Py_ssize_t row) noexcept nogil:
    """Where the sum(dy) of a row's slots begin."""
    return <real*>w.tallies + row * w.slots


cdef inline real* tally_x(const real* type, const Work* w, Py_ssize_t row) noexcept nogil:
    """Where their sum(dy * (x - mean)) begin."""
    return <real*>w.tallies + (w.rows + row) * w.slots


cdef inline bint parts_meet(const Work* w) noexcept nogil:
    """Rows with a parameter for each element: do parts of a row add to the same ds and db?"""
    return w.nest.reduce0.count > 1 and w.nest.reduce0.param == 0


cdef inline bint take_whole_rows(const Work* w, int threads) noexcept nogil:
    """Does a thread take whole rows through both phases, or do all threads share every phase of every row?

    Either way gives the same bits, so this may depend on the threads.
    """
    cdef Py_ssize_t jobs = all_tiles(w) if w.lanes else w.groups * w.blocks
    if w.by_runs:
        return False
    if w.parts == 1:
        return True
    if w.depth * min(w.tile, w.across) > CACHE if w.lanes else w.columns * w.members_of_block > LONG:
        return False
    if w.each and parts_meet(w):
        return True
    return threads == 1 or jobs >= 4 * threads or jobs == threads
