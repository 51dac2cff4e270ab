# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# The jobs on rows: some rows through both phases of a pass, or one phase of a part of some.

from libc.string cimport memset

from minorm_ext.norm.kernels cimport COLLECTED, add_collected
from minorm_ext.norm.moments cimport Moments, merge
from minorm_ext.norm.nest cimport place_of, row_param
from minorm_ext.norm.resident cimport part_apply, part_input, short_apply, short_grad
from minorm_ext.norm.rows cimport CHUNK
from minorm_ext.norm.short_rows cimport (
    Rows, fetch_rows, load_rows_statistics, next_rows, rows_factors, rows_statistics, store_rows_statistics,
)
from minorm_ext.norm.statistics cimport (
    find_origin, part_moments, part_sums, row_statistics, row_sums, store_statistics,
)
from minorm_ext.norm.streamed cimport Results, begin_results, bring_results, end_results, results_at
from minorm_ext.norm.work cimport (
    APPLY, CLEAR, COLLECT, COMBINE, FORWARD, INPUT, MERGE, MOMENTS, ORIGIN, SUMS, Work, block_param_grads_of,
    first_member, last_member, param_at, row_of,
)
from minorm_ext.runtime.numbers cimport ceil_div
from minorm_ext.simd.storage cimport DOUBLE, SINGLE, Data, Type, unmasked, view_at

cdef enum:
    CLEARED = 1 << 18  # elements that one job clears


# Both phases of the rows of a block.

cdef inline void short_forward(const Work* w, Py_ssize_t block) noexcept nogil:
    cdef double[CHUNK] x_scratch
    cdef Results results
    cdef Data data, x, y
    cdef Rows rows
    cdef Py_ssize_t member = first_member(w, block)
    cdef Py_ssize_t end = last_member(w, block)
    cdef bint whole
    rows.next = place_of(&w.plan.nest, row_of(w, block, member))
    begin_results(w, &w.y, rows.next.data, &results)
    while member < end:
        member = next_rows(w, block, member, &w.y, &rows, &whole)
        if rows.count == 0:
            break
        data = unmasked(&w.x, w.plan.single) if whole else w.x
        x = view_at(&data, rows.first, x_scratch, w.plan.single)
        y = results_at(w, &results, rows.first, whole)
        if whole:
            fetch_rows(w, &data, &rows, NULL, x_scratch)
        if w.moments:
            rows_statistics(w, &x, &rows, whole)
            store_rows_statistics(w, &rows)
        else:
            load_rows_statistics(w, &rows)
        if not whole:
            fetch_rows(w, &data, &rows, rows.k, x_scratch)
        if w.apply:
            short_apply(w, &x, &y, &rows)
            bring_results(w, &results, rows.data, rows.start, rows.count)
    if w.apply:
        end_results(w, &results)


cdef inline void short_backward(const Work* w, Py_ssize_t block) noexcept nogil:
    cdef double[CHUNK] x_scratch
    cdef double[CHUNK] dy_scratch
    cdef Results results
    cdef Data x_data, dy_data, x, dy, dx
    cdef Rows rows
    cdef void* ds = block_param_grads_of(w, block)
    cdef Py_ssize_t member = first_member(w, block)
    cdef Py_ssize_t end = last_member(w, block)
    cdef bint whole
    rows.next = place_of(&w.plan.nest, row_of(w, block, member))
    begin_results(w, &w.dx, rows.next.data, &results)
    while member < end:
        member = next_rows(w, block, member, &w.dx, &rows, &whole)
        if rows.count == 0:
            break
        x_data = unmasked(&w.x, w.plan.single) if whole else w.x
        dy_data = unmasked(&w.dy, w.plan.single) if whole else w.dy
        x = view_at(&x_data, rows.first, x_scratch, w.plan.single)
        dy = view_at(&dy_data, rows.first, dy_scratch, w.plan.single)
        dx = results_at(w, &results, rows.first, whole)
        load_rows_statistics(w, &rows)
        fetch_rows(w, &x_data, &rows, rows.k, x_scratch)
        fetch_rows(w, &dy_data, &rows, NULL, dy_scratch)
        rows_factors(w, &dy, &x, &rows)
        short_grad(w, &dy, &x, &dx, &rows, ds)
        bring_results(w, &results, rows.data, rows.start, rows.count)
    end_results(w, &results)


cdef inline void rows_forward(const Work* w, Py_ssize_t block) noexcept nogil:
    cdef Py_ssize_t member, row, part
    if w.plan.short:
        short_forward(w, block)
        return
    for member in range(first_member(w, block), last_member(w, block)):
        row = row_of(w, block, member)
        if w.moments:
            row_statistics(w, row)
        if w.apply:
            for part in range(w.plan.parts):
                part_apply(w, row, part)


cdef inline void rows_backward(const Work* w, Py_ssize_t block) noexcept nogil:
    cdef Py_ssize_t member, row, part
    cdef void* ds = block_param_grads_of(w, block)
    if w.plan.short:
        short_backward(w, block)
        return
    for member in range(first_member(w, block), last_member(w, block)):
        row = row_of(w, block, member)
        if w.needs_sums:
            for part in range(w.plan.parts):
                part_sums(w, row, part)
            row_sums(w, row)
        if w.dx.items != NULL or ds != NULL:
            for part in range(w.plan.parts):
                part_input(w, row, part, ds)


# One phase.

cdef inline void rows_merge(const Work* w, Py_ssize_t row) noexcept nogil:
    """Merge the moments of the parts of a row."""
    cdef Moments m = (<Moments*>w.partial)[row * w.plan.parts]
    cdef Py_ssize_t part
    for part in range(1, w.plan.parts):
        m = merge(m, (<Moments*>w.partial)[row * w.plan.parts + part])
    store_statistics(w, row, m)


cdef inline void rows_input(const Work* w, Py_ssize_t block, Py_ssize_t part) noexcept nogil:
    """Compute dx of a part of the rows of a block."""
    cdef Py_ssize_t member
    for member in range(first_member(w, block), last_member(w, block)):
        part_input(w, row_of(w, block, member), part, block_param_grads_of(w, block))


# Collecting ds and db block by block, if rows have a parameter for each element.

cdef inline Py_ssize_t size_to_collect(const Work* w) noexcept nogil:
    """Return how many elements all blocks collect."""
    return w.plan.groups * w.plan.blocks * 2 * w.plan.pitch


cdef inline Py_ssize_t pieces_to_clear(const Work* w) noexcept nogil:
    """Return how many jobs it takes to clear these elements."""
    return ceil_div(size_to_collect(w), CLEARED)


cdef inline void clear_piece(const Work* w, Py_ssize_t piece) noexcept nogil:
    """Set the collected sums of a piece to 0."""
    cdef Py_ssize_t first = piece * CLEARED
    cdef Py_ssize_t count = min(<Py_ssize_t>CLEARED, size_to_collect(w) - first)
    memset(param_at(w, w.block_param_grads, first), 0, count * (sizeof(float) if w.plan.single else sizeof(double)))


cdef inline Py_ssize_t pieces_to_collect(const Work* w) noexcept nogil:
    """Return how many jobs the parameters of a group make."""
    return ceil_div(w.plan.extent, COLLECTED)


cdef inline void collect_piece(const Work* w, Py_ssize_t piece) noexcept nogil:
    """Add up what the blocks of a group have collected for some parameters, in the order of the blocks."""
    cdef Py_ssize_t group = piece // pieces_to_collect(w)
    cdef Py_ssize_t start = row_param(&w.plan.nest, group * w.plan.group_step)
    cdef Py_ssize_t pitch = w.plan.pitch
    cdef Py_ssize_t at = group * w.plan.blocks * 2 * pitch
    cdef Py_ssize_t n = w.plan.nest.reduce1.count
    cdef Py_ssize_t first = piece % pieces_to_collect(w) * COLLECTED
    cdef Py_ssize_t end = min(first + COLLECTED, w.plan.extent)
    cdef Type type = SINGLE if w.plan.single else DOUBLE
    cdef Py_ssize_t count, to
    while first < end:
        count = min(end - first, n - first % n)
        to = start + first // n * w.plan.nest.reduce0.param + first % n
        add_collected(type, w.block_param_grads, at + first, 2 * pitch, w.plan.blocks, count, w.ds, to)
        add_collected(type, w.block_param_grads, at + pitch + first, 2 * pitch, w.plan.blocks, count, w.db, to)
        first += count


cdef inline void rows_job(const Work* w, Py_ssize_t index) noexcept nogil:
    """Do a piece of a phase: a block of rows, a row, or a part of one."""
    cdef Py_ssize_t whole = index // w.plan.parts
    cdef Py_ssize_t part = index % w.plan.parts
    if w.phase == FORWARD:
        rows_forward(w, index)
    elif w.phase == ORIGIN:
        find_origin(w, index)
    elif w.phase == MOMENTS:
        (<Moments*>w.partial)[index] = part_moments(w, whole, part)
    elif w.phase == MERGE:
        rows_merge(w, index)
    elif w.phase == APPLY:
        part_apply(w, whole, part)
    elif w.phase == CLEAR:
        clear_piece(w, index)
    elif w.phase == SUMS:
        part_sums(w, whole, part)
    elif w.phase == COMBINE:
        row_sums(w, index)
    elif w.phase == INPUT:
        rows_input(w, whole, part)
    elif w.phase == COLLECT:
        collect_piece(w, index)
    else:
        rows_backward(w, index)
