# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# The phases of a normalization as jobs. A job does one piece of the phase that all threads are at: of rows
# (row_jobs.pxd), or of columns in the type computed in (column_jobs.pxd).

from minorm_ext.norm.column_jobs cimport columns_job
from minorm_ext.norm.plan cimport COLUMNS
from minorm_ext.norm.row_jobs cimport rows_job
from minorm_ext.norm.work cimport APPLY, INPUT, MOMENTS, SUMS, Work
from minorm_ext.simd.storage cimport finish


cdef inline Py_ssize_t in_memory_order(const Work* w, Py_ssize_t index) noexcept nogil:
    """Return the part at this index, in the order of memory: the first part of all neighbours, then the next part."""
    cdef Py_ssize_t parts = w.plan.parts
    cdef Py_ssize_t beside = w.plan.beside
    if beside == 1:
        return index
    if w.phase == INPUT and w.plan.strategy != COLUMNS:  # here a part is one of a block of rows
        beside = w.plan.blocks
    return (index // (beside * parts) * beside + index % beside) * parts + index // beside % parts


cdef inline void job(const void* task, Py_ssize_t index) noexcept nogil:
    cdef const Work* w = <const Work*>task
    if w.part >= 0:
        index = index * w.plan.parts + w.part
    elif w.phase in (MOMENTS, APPLY, SUMS, INPUT):
        index = in_memory_order(w, index)
    if w.plan.strategy != COLUMNS:
        rows_job(w, index)
    elif w.plan.single:
        columns_job(<const float*>NULL, w, index)
    else:
        columns_job(<const double*>NULL, w, index)
    finish(&w.y)
    finish(&w.dx)
