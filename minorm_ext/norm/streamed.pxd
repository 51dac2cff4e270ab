# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# Results around the cache. An ordinary store first reads the line that it overwrites; in a LayerNorm, these reads would
# be two of seven passes over memory. Only stores of whole lines need no such read. The loops are those of resident.pxd,
# and the plan decides how results are stored (StorePath in plan.pxd):
#
#     NT_ROWS      any rows: a loop sends the whole lines of a row vector by vector, and stores its ends
#     NT_VECTORS   narrow rows that fill lines, with parameters in registers: every vector is sent
#     NT_GATHERED  other narrow rows: into scratch memory in the innermost cache, from where whole lines are sent

from minorm_ext.norm.plan cimport NT_GATHERED
from minorm_ext.norm.rows cimport CHUNK
from minorm_ext.norm.work cimport Work
from minorm_ext.simd.storage cimport (
    Data, NtWriter, close_writer, open_writer, place_of_writer, send, size_of, unmasked, unstage, view_at,
)


cdef struct Results:  # of the short rows of a block
    const Data* all
    Data data  # of the rows that are taken
    double[CHUNK] scratch
    NtWriter writer


cdef inline void begin_results(const Work* w, const Data* data, Py_ssize_t first, Results* results) noexcept nogil:
    """Begin the results of a block whose first row begins at `first`."""
    results.all = data
    results.data = data[0]
    if w.plan.stores == NT_GATHERED:
        open_writer(&results.writer, view_at(data, first, results.scratch, w.plan.single).items, results.scratch)


cdef inline Data results_at(const Work* w, Results* results, Py_ssize_t first, bint whole) noexcept nogil:
    """Return where the loops write the results of the rows from `first` on; whole: all elements of them count."""
    cdef Data view
    if results.all.mask != NULL:
        results.data = unmasked(results.all, w.plan.single) if whole else results.all[0]
    view = view_at(&results.data, first, results.scratch, w.plan.single)
    if w.plan.stores == NT_GATHERED:
        view.items = place_of_writer(&results.writer)
        view.nontemporal = False
    return view


cdef inline void bring_results(
    const Work* w, Results* results, const Py_ssize_t* data, const Py_ssize_t* start, Py_ssize_t count
) noexcept nogil:
    """Move the results of some rows to their places, if the loops wrote them elsewhere."""
    cdef Py_ssize_t n = w.plan.columns
    cdef Py_ssize_t i
    if w.plan.stores == NT_GATHERED:
        send(&results.writer, count * n * size_of(results.data.type))
    elif not results.data.direct:
        for i in range(count):
            unstage(&results.data, data[i], n, results.scratch, start[i], w.plan.single)


cdef inline void end_results(const Work* w, Results* results) noexcept nogil:
    if w.plan.stores == NT_GATHERED:
        close_writer(&results.writer)
