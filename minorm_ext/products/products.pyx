# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False, binding=False
# Matrix products and convolutions of bfloat16, added up in the order of tiles on every processor
# (docs/maths-narrow-types.md).
#
# Everything uses one innermost block (block.h), which reads both sides at the places that tables list. matrices.pxd and
# planes.pxd pack the sides and divide the work into jobs; no bit depends on that.

from libc.stdint cimport int32_t, intptr_t, uint16_t

from minorm_ext.matmul.operands cimport MOST_AXES, operand
from minorm_ext.products.blocks cimport (
    FUSED, NEIGHBOURS, PANEL, STEPS, Cell, Range, panel_cells, products_exact, sum_rows, widen_range,
)
from minorm_ext.products.matrices cimport (
    DEPTH, GAP, STRIPS, Product, block_rows, multiply_job, pack_job, range_of,
)
from minorm_ext.products.plan cimport Planes, Step, fill_planes, round_of, segments_of, threads_for
from minorm_ext.products.planes cimport (
    Correlation, WeightGradient, correlate_job, depths_of, gradient_row, merge_job, pack_weights, panels_of,
    plane_cells, weight_job,
)
from minorm_ext.runtime.buffers cimport address
from minorm_ext.runtime.jobs cimport check_signals, parallel_for
from minorm_ext.runtime.numbers cimport ceil_div

COLUMNS = PANEL  # columns of a panel
BY_TABLE = NEIGHBOURS  # block.h's mark of a run whose steps are neighbours in one of the two sides only


# ---- matrices ------------------------------------------------------------------------------------------------------


cdef void swap(Product* p) noexcept:
    """c.T = b.T @ a.T: if c has one column, c.T is the same memory as one row, whose columns fill all lanes."""
    p.a, p.b = p.b, p.a
    p.a.step0, p.a.step1 = p.a.step1, p.a.step0
    p.b.step0, p.b.step1 = p.b.step1, p.b.step0
    p.rows, p.columns = p.columns, p.rows


cdef intptr_t measure(Product* p, int threads) noexcept:
    """Cut the work, and return how many bytes of scratch memory it takes."""
    cdef bint deep = p.depth > DEPTH
    p.at_once = min(p.depth, DEPTH)
    p.strips, p.row_blocks = ceil_div(p.columns, PANEL), ceil_div(p.rows, block_rows(p))
    p.most = max(1, min(STRIPS // (PANEL * (p.at_once + 1)), p.stack * p.strips))
    p.a_row = ceil_div(p.at_once, GAP) * GAP + GAP  # with this the sums behind the rows are aligned
    p.own = (block_rows(p) * p.a_row + (panel_cells(p.at_once) if deep else 0)) * sizeof(Cell)
    p.own += sum_rows(block_rows(p)) * PANEL * sizeof(float)
    p.own = ceil_div(p.own, 64) * 64
    p.panel_bytes = 0 if deep else p.most * panel_cells(p.depth) * sizeof(Cell)
    return p.panel_bytes + threads * p.own + p.at_once * sizeof(Step) + sizeof(int32_t) * (
        block_rows(p) + ceil_div(p.at_once, STEPS))


cdef void lay_out(Product* p, char* memory, int threads) noexcept:
    """Divide this memory into scratch arrays and tables, and fill the tables with places in packed rows and strips."""
    cdef Step* steps
    cdef int32_t* places
    cdef int32_t* runs
    cdef intptr_t i
    p.panels = <Cell*>memory
    p.scratch = memory + p.panel_bytes
    steps = <Step*>(p.scratch + threads * p.own)
    places = <int32_t*>(steps + p.at_once)
    runs = places + block_rows(p)
    for i in range(p.at_once):
        steps[i].a, steps[i].b = <int32_t>i, <int32_t>(i * PANEL)
    for i in range(block_rows(p)):
        places[i] = <int32_t>(i * p.a_row)
    for i in range(ceil_div(p.at_once, STEPS)):
        runs[i] = PANEL
    p.places, p.steps, p.runs = places, steps, runs


cdef int multiply_all(Product* p, int threads) except -1 nogil:
    """Multiply all strips, and pack as many at a time as the memory allows."""
    cdef double work = <double>p.stack * p.rows * p.columns * p.depth
    cdef double share
    cdef intptr_t all_units = p.stack * p.strips
    cdef intptr_t indexes, jobs
    p.last = 0
    while p.last < all_units:
        p.first = p.last
        p.last = min(all_units, p.first + p.most)
        if p.last - p.first >= p.strips:  # whole matrices
            p.last -= p.last % p.strips
        indexes = ceil_div(p.last, p.strips) - p.first // p.strips
        share = <double>(p.last - p.first) / all_units
        if p.depth <= p.at_once:
            parallel_for(
                pack_job, p, p.first, p.last, round_of(p.last - p.first, work * share / p.rows * 8, threads), threads)
        p.parts = min(p.strips, p.last - p.first)
        if p.depth <= p.at_once:
            p.parts = min(p.parts, ceil_div(2 * threads, indexes * p.row_blocks) if threads > 1 else 1)
        jobs = indexes * p.row_blocks * p.parts
        parallel_for(multiply_job, p, 0, jobs, round_of(jobs, work * share, threads), threads)
        if p.last < all_units:
            check_signals()
    return 0


def multiply(a, b, bias, empty, int threads):
    """a @ b + bias: a (..., rows, depth), b (..., depth, columns), bias (columns) or None, all of bfloat16.

    a and b have any steps and the same leading axes, which are a stack of matrices; bias is in C order. empty(shape,
    dtype) makes the result and scratch memory. Return None if an operand is not aligned.
    """
    cdef Product p
    cdef intptr_t[MOST_AXES] b_shape
    cdef intptr_t i
    cdef object c, memory
    if not operand(a, 2, &p.a, p.shape) or not operand(b, 2, &p.b, b_shape):
        return None
    p.rows, p.depth, p.columns = p.shape[p.a.lead], p.shape[p.a.lead + 1], b_shape[p.b.lead + 1]
    if p.depth != b_shape[p.b.lead]:
        raise ValueError(f"matmul: a is {a.shape}, b is {b.shape}; expected a's last axis to equal b's last but one")
    p.stack = 1
    for i in range(p.a.lead):
        p.stack *= p.shape[i]
    c = empty((p.rows, p.columns) if p.a.lead == 0 else (*a.shape[:p.a.lead + 1], p.columns), a.dtype)
    if p.stack * p.rows * p.columns == 0:
        return c
    p.c = <uint16_t*>address(c, 2, True)
    p.bias = <const uint16_t*>address(bias, 2, False, p.columns) if bias is not None else NULL
    p.exact = FUSED or products_exact(range_of(&p, &p.a, p.rows, p.depth), range_of(&p, &p.b, p.depth, p.columns))
    if p.columns == 1 and bias is None:
        swap(&p)
    threads = threads_for(<double>p.stack * p.rows * p.columns * p.depth, threads)
    memory = empty((ceil_div(measure(&p, threads), 64) * 32,), a.dtype)
    lay_out(&p, <char*>address(memory, 2, True), threads)
    with nogil:
        multiply_all(&p, threads)
    return c


# ---- convolutions --------------------------------------------------------------------------------------------------


cdef Range range_of_array(array, intptr_t count) except *:
    """Return the range of an array's numbers; without a look at them if multiply-adds are rounded once."""
    cdef Range found
    found.least, found.most = 0x7fff, 0
    if not FUSED:
        widen_range(&found, <const uint16_t*>address(array, 2, False, count), count, 1, 1, count)
    return found


cdef class Convolution:
    """Holds the tables of conv_products.py and the shapes in the form that the jobs read."""

    cdef Planes planes
    cdef object tables
    cdef intptr_t x_count, w_count, y_count, outputs  # elements of the arrays; outputs are those of all groups
    cdef double work  # multiply-adds

    def __init__(self, dict tables, dict sizes):
        cdef Planes* p = &self.planes
        self.tables = tables  # the arrays live as long as the pointers
        fill_planes(p, tables, sizes)
        self.outputs = p.groups * p.outputs
        self.w_count = self.outputs * p.channels * p.kernel
        self.x_count = p.images * p.groups * p.channels * p.source_size
        self.y_count = p.images * self.outputs * p.result_size
        self.work = <double>p.images * sizes["work"]
        if plane_cells(p) >= 1 << 31:
            raise ValueError(
                f"conv: an image, or a strip of it, takes {plane_cells(p)} numbers with its padding; "
                "expected less than 2^31 in bfloat16"
            )

    def correlate(self, x, w, b, y, empty, bint transposed, int threads):
        """y = the sum over x with the weights w, plus the bias b or None. All arrays in C order."""
        cdef const Planes* p = &self.planes
        cdef Correlation c
        cdef intptr_t jobs, panels, units
        c.planes, c.transposed = p, transposed
        c.x = <const uint16_t*>address(x, 2, False, self.x_count)
        c.w = <const uint16_t*>address(w, 2, False, self.w_count)
        c.bias = NULL
        if b is not None:
            c.bias = <const uint16_t*>address(b, 2, False, self.outputs)
        c.y = <uint16_t*>address(y, 2, True, self.y_count)
        c.exact = FUSED or products_exact(range_of_array(x, self.x_count), range_of_array(w, self.w_count))
        threads = threads_for(self.work, threads)
        panels = p.groups * p.weights * panels_of(p) * PANEL * sizeof(Cell)
        c.own = ceil_div(plane_cells(p), 32) * 32 * sizeof(Cell) + sum_rows(p.most_rows) * PANEL * sizeof(float)
        c.own = ceil_div(c.own, 64) * 64
        memory = empty((ceil_div(panels + threads * c.own, 64) * 32,), x.dtype)
        c.panels = <Cell*>address(memory, 2, True)
        c.scratch = <char*>c.panels + panels
        jobs = segments_of(p) * p.groups
        c.parts = max(1, min(panels_of(p), 2 * threads // jobs)) if threads > 1 else 1
        jobs *= c.parts
        units = p.groups * p.phase_count * panels_of(p)
        with nogil:
            parallel_for(pack_weights, &c, 0, units, units, threads)
            parallel_for(correlate_job, &c, 0, jobs, round_of(jobs, self.work, threads), threads)

    def weight_gradient(self, dy, x, dw, empty, int threads):
        """dw = the gradient of the sum over x for its weights. All arrays in C order."""
        cdef const Planes* p = &self.planes
        cdef WeightGradient g
        cdef intptr_t jobs, i, sums, longest
        cdef int32_t* rows
        g.planes, g.done = p, 0
        g.x = <const uint16_t*>address(x, 2, False, self.x_count)
        g.dy = <const uint16_t*>address(dy, 2, False, self.y_count)
        g.dw = <uint16_t*>address(dw, 2, True, self.w_count)
        g.exact = FUSED or products_exact(range_of_array(dy, self.y_count), range_of_array(x, self.x_count))
        threads = threads_for(self.work, threads)
        sums = p.chunks * p.groups * p.column_panels * sum_rows(p.outputs) * PANEL * sizeof(float)
        if p.outputs * gradient_row(p) >= 1 << 31:  # the offsets of rows are int32
            raise ValueError(
                f"conv: the results of a strip take {p.outputs * gradient_row(p)} numbers; expected less than 2^31")
        g.own = (ceil_div(plane_cells(p), 32) * 32 + p.outputs * gradient_row(p)) * sizeof(Cell)
        g.own = ceil_div(g.own, 64) * 64
        memory = empty((ceil_div(sums + threads * g.own + p.outputs * sizeof(int32_t), 64) * 32,), x.dtype)
        g.sums = <float*>address(memory, 2, True)
        g.scratch = <char*>g.sums + sums
        rows = <int32_t*>(g.scratch + threads * g.own)
        for i in range(p.outputs):
            rows[i] = <int32_t>(i * gradient_row(p))
        g.rows = rows
        jobs = p.chunks * p.groups
        g.parts = max(1, min(p.column_panels, 2 * threads // jobs)) if threads > 1 else 1
        jobs *= g.parts
        longest = ceil_div(ceil_div(depths_of(p), p.chunks) * p.together, p.fit) * p.strips
        i = round_of(longest * jobs, self.work, threads)
        g.step = max(1, min(longest, i // jobs))
        with nogil:
            while g.done < longest:
                parallel_for(weight_job, &g, 0, jobs, round_of(jobs, self.work * g.step / longest, threads), threads)
                g.done += g.step
                check_signals()
            parallel_for(merge_job, &g, 0, self.outputs, self.outputs, threads)
