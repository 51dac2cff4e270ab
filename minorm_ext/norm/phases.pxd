# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# The phases of a normalization as jobs: each does one piece of a phase, of rows or of columns.

from minorm_ext.norm.column_jobs cimport (
    columns_backward, columns_combine, columns_forward, columns_merge, part_of_apply, part_of_input, part_of_moments,
    part_of_sums,
)
from minorm_ext.norm.column_tiles cimport Tile, find_origins, tile_of
from minorm_ext.norm.plan cimport COLUMNS, Plan
from minorm_ext.norm.resident cimport part_apply
from minorm_ext.norm.row_jobs cimport rows_backward, rows_forward, rows_input, rows_merge, rows_moments
from minorm_ext.norm.statistics cimport find_origin, part_sums, row_sums
from minorm_ext.norm.work cimport Work
from minorm_ext.simd.storage cimport finish


cdef inline Py_ssize_t in_memory_order(const Plan* p, Py_ssize_t index, Py_ssize_t beside) noexcept nogil:
    """Which part comes at this index: as memory has them, a part of all that lie beside each other, then the next."""
    if beside == 1:
        return index
    return (index // (beside * p.parts) * beside + index % beside) * p.parts + index // beside % p.parts


cdef inline void forward_job(const void* task, Py_ssize_t index) noexcept nogil:
    """A block of rows, or a tile of columns: moments and apply."""
    cdef const Work* w = <const Work*>task
    if w.plan.strategy != COLUMNS:
        rows_forward(w, index)
    elif w.plan.single:
        columns_forward(<const float*>NULL, w, index)
    else:
        columns_forward(<const double*>NULL, w, index)
    finish(&w.y)


cdef inline void origin_job(const void* task, Py_ssize_t index) noexcept nogil:
    """A row, or a tile: what its mean is relative to."""
    cdef const Work* w = <const Work*>task
    cdef Tile tile
    if w.plan.strategy != COLUMNS:
        find_origin(w, index)
    else:
        tile = tile_of(w, index)
        find_origins(w, &tile)


cdef inline void moments_job(const void* task, Py_ssize_t index) noexcept nogil:
    """A part."""
    cdef const Work* w = <const Work*>task
    cdef Py_ssize_t part = in_memory_order(&w.plan, index, w.plan.beside)
    if w.plan.strategy != COLUMNS:
        rows_moments(w, part)
    elif w.plan.single:
        part_of_moments(<const float*>NULL, w, part)
    else:
        part_of_moments(<const double*>NULL, w, part)


cdef inline void merge_job(const void* task, Py_ssize_t index) noexcept nogil:
    """The parts of a row or tile."""
    cdef const Work* w = <const Work*>task
    if w.plan.strategy != COLUMNS:
        rows_merge(w, index)
    elif w.plan.single:
        columns_merge(<const float*>NULL, w, index)
    else:
        columns_merge(<const double*>NULL, w, index)


cdef inline void apply_job(const void* task, Py_ssize_t index) noexcept nogil:
    """A part."""
    cdef const Work* w = <const Work*>task
    cdef Py_ssize_t part = in_memory_order(&w.plan, index, w.plan.beside)
    if w.plan.strategy != COLUMNS:
        part_apply(w, part // w.plan.parts, part % w.plan.parts)
    elif w.plan.single:
        part_of_apply(<const float*>NULL, w, part)
    else:
        part_of_apply(<const double*>NULL, w, part)
    finish(&w.y)


cdef inline void backward_job(const void* task, Py_ssize_t index) noexcept nogil:
    """A block or tile: sums and input."""
    cdef const Work* w = <const Work*>task
    if w.plan.strategy != COLUMNS:
        rows_backward(w, index)
    elif w.plan.single:
        columns_backward(<const float*>NULL, w, index)
    else:
        columns_backward(<const double*>NULL, w, index)
    finish(&w.dx)


cdef inline void sums_job(const void* task, Py_ssize_t index) noexcept nogil:
    """A part."""
    cdef const Work* w = <const Work*>task
    cdef Py_ssize_t part = in_memory_order(&w.plan, index, w.plan.beside)
    if w.plan.strategy != COLUMNS:
        part_sums(w, part // w.plan.parts, part % w.plan.parts)
    elif w.plan.single:
        part_of_sums(<const float*>NULL, w, part)
    else:
        part_of_sums(<const double*>NULL, w, part)


cdef inline void combine_job(const void* task, Py_ssize_t index) noexcept nogil:
    """The parts of a row or tile."""
    cdef const Work* w = <const Work*>task
    if w.plan.strategy != COLUMNS:
        row_sums(w, index)
    elif w.plan.single:
        columns_combine(<const float*>NULL, w, index)
    else:
        columns_combine(<const double*>NULL, w, index)


cdef inline void input_job(const void* task, Py_ssize_t index) noexcept nogil:
    """A part of a block or tile."""
    cdef const Work* w = <const Work*>task
    cdef Py_ssize_t beside = w.plan.beside
    if w.plan.strategy != COLUMNS:
        rows_input(w, in_memory_order(&w.plan, index, beside if beside == 1 else w.plan.blocks))
    elif w.plan.single:
        part_of_input(<const float*>NULL, w, in_memory_order(&w.plan, index, beside))
    else:
        part_of_input(<const double*>NULL, w, in_memory_order(&w.plan, index, beside))
    finish(&w.dx)


cdef inline void input_of_one_part_job(const void* task, Py_ssize_t index) noexcept nogil:
    """The same part of each block of rows."""
    cdef const Work* w = <const Work*>task
    rows_input(w, index * w.plan.parts + w.part)
    finish(&w.dx)
