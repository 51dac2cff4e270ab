# cython: cdivision=True
# The tables of minorm/kernels/cpu/conv_products.py and the shapes, in the form that the jobs of a convolution read:
# jobs of bfloat16 (planes.pxd) and jobs of integers (integer_jobs.pxd). This file also decides how much of the work is
# done between two checks for Ctrl-C.

from libc.stdint cimport int32_t, intptr_t

from minorm_ext.runtime.buffers cimport address
from minorm_ext.runtime.numbers cimport ceil_div

cdef extern from "products/step.h" nogil:
    ctypedef struct Step "minorm_step":
        int32_t a
        int32_t b

cdef enum:
    SIGNAL_INTERVAL = 500000000  # multiply-adds a thread between two checks: 0.2 s even without wide vectors
    WORTH = 500000               # multiply-adds that are worth another thread

cdef struct Phase:  # results whose taps meet the source at the same distances: all, or those of one phase of a gradient
    intptr_t along, inner  # results of all strips along the axis that is cut, and across it
    intptr_t rows, places  # where the phase's tables begin
    intptr_t steps, runs, depth
    intptr_t taps, tap_count
    intptr_t weights  # steps of all phases before this one

cdef struct Planes:
    # the shapes: channels and outputs are those of a group
    intptr_t images, groups, channels, outputs
    intptr_t[3] source, plane, low  # places along d, h, w; low is where the source begins in the plane
    intptr_t source_size, plane_size, result_size, kernel
    # how the work is cut
    intptr_t fit  # images of a segment
    intptr_t strips, along, count  # strips of an image; the axis that is cut, and the results of a strip along it
    intptr_t source_move, result_move  # from a strip to the next: in places along the axis, and in numbers of y
    intptr_t most_rows  # the largest number of rows of sums
    intptr_t phase_count, weights  # number of phases, and of all their steps
    const Phase* phases
    const int32_t* rows  # for each result, where its place begins in the plane
    const intptr_t* places  # for each result, its place in y
    const Step* steps
    const int32_t* runs
    const int32_t* taps  # numbers of weights
    # of the gradient for the weights
    intptr_t together, padded  # images whose results form one depth, and the steps of that depth, rounded up
    intptr_t zeros  # number of zeros behind a plane; a panel that begins near the end of the plane reads them
    intptr_t column_panels, chunks
    const int32_t* panel_columns  # (place in the plane, number of columns) for each panel
    const int32_t* targets  # (panel, PANEL): which weight of an output, or -1


cdef inline int fill_planes(Planes* p, dict tables, dict sizes) except -1:
    """Fill in the tables and sizes; the arrays of the tables must live as long as the pointers."""
    p.images, p.groups, p.channels, p.outputs = (
        sizes["images"], sizes["groups"], sizes["channels"], sizes["outputs"])
    p.source, p.plane, p.low = sizes["source"], sizes["plane"], sizes["low"]
    p.source_size = p.source[0] * p.source[1] * p.source[2]
    p.plane_size = p.plane[0] * p.plane[1] * p.plane[2]
    p.result_size, p.kernel = sizes["result_size"], sizes["kernel"]
    p.fit, p.strips, p.along, p.count = sizes["fit"], sizes["strips"], sizes["along"], sizes["count"]
    p.source_move, p.result_move, p.most_rows = sizes["source_move"], sizes["result_move"], sizes["most_rows"]
    p.phase_count, p.weights = len(tables["phases"]), sizes["weights"]
    p.phases = <const Phase*>address(tables["phases"], sizeof(intptr_t))
    p.rows = <const int32_t*>address(tables["rows"], 4)
    p.places = <const intptr_t*>address(tables["places"], sizeof(intptr_t))
    p.steps = <const Step*>address(tables["steps"], 4)
    p.runs = <const int32_t*>address(tables["runs"], 4)
    p.taps = <const int32_t*>address(tables["taps"], 4)
    p.together, p.padded, p.zeros = sizes["together"], sizes["padded"], sizes["zeros"]
    p.chunks, p.column_panels = sizes["chunks"], len(tables["panel_columns"])
    p.panel_columns = <const int32_t*>address(tables["panel_columns"], 4)
    p.targets = <const int32_t*>address(tables["targets"], 4)
    return 0


cdef inline intptr_t segments_of(const Planes* p) noexcept nogil:
    return ceil_div(p.images, p.fit) * p.strips


cdef inline intptr_t results_of(const Planes* p, const Phase* phase, intptr_t strip) noexcept nogil:
    """Return how many results of a phase a strip has."""
    return max(0, min(p.count, phase.along - strip * p.count)) * phase.inner


cdef inline int threads_for(double work, int threads) noexcept nogil:
    """Return how many threads are worth waking: each should have about ten microseconds of work."""
    return <int>min(<double>threads, 1 + work / WORTH)


cdef inline intptr_t round_of(intptr_t jobs, double work, int threads) noexcept nogil:
    """Return how many of these jobs, with this work in all, may run between two checks of signals."""
    return max(threads, <intptr_t>(jobs * min(1.0, threads * <double>SIGNAL_INTERVAL / (work + 1))))
