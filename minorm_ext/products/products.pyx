# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False, binding=False
# Matrix products of bfloat16, added up in the order of a processor's tiles on every processor: docs/maths.md.
#
# Everything is one innermost block (block.h), which reads both sides where tables say. What is packed, and how it is
# dealt out to jobs, is in matrices.pxd; no bit depends on it.

from libc.stdint cimport int32_t, intptr_t, uint16_t

from minorm_ext.matmul.operands cimport operand, MOST_AXES
from minorm_ext.products.blocks cimport (
    FUSED, PANEL, ROWS, Cell, Step, products_exact, round_of, threads_for,
)
from minorm_ext.products.matrices cimport (
    DEPTH, GAP, STRIPS, Product, block_rows, multiply_job, pack_job, range_of,
)
from minorm_ext.runtime.buffers cimport address
from minorm_ext.runtime.jobs cimport check_signals, parallel_for
from minorm_ext.runtime.numbers cimport ceil_div

COLUMNS = PANEL


# ---- matrices ------------------------------------------------------------------------------------------------------


cdef void swap(Product* p) noexcept:
    """c.T = b.T @ a.T: the same memory where c has one column, and columns for all lanes."""
    p.a, p.b = p.b, p.a
    p.a.step0, p.a.step1 = p.a.step1, p.a.step0
    p.b.step0, p.b.step1 = p.b.step1, p.b.step0
    p.rows, p.columns = p.columns, p.rows


cdef int multiply_all(Product* p, intptr_t units, int threads) except -1 nogil:
    """All strips, as many at a time as may be packed."""
    cdef double work = <double>p.stack * p.rows * p.columns * p.depth
    cdef double share
    cdef intptr_t all_units = p.stack * p.strips
    cdef intptr_t indexes, jobs
    p.last = 0
    while p.last < all_units:
        p.first = p.last
        p.last = min(all_units, p.first + units)
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
    dtype) makes the result and scratch memory. None where an operand is not aligned.
    """
    cdef Product p
    cdef intptr_t[MOST_AXES] b_shape
    cdef intptr_t i, units, tables, panels
    cdef int32_t* places
    cdef Step* steps
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
    p.strips = ceil_div(p.columns, PANEL)
    p.row_blocks = ceil_div(p.rows, block_rows(&p))
    p.at_once = min(p.depth, DEPTH)
    p.a_row = p.at_once + GAP
    units = max(1, STRIPS // (PANEL * (p.at_once + 1)))
    units = min(units, p.stack * p.strips)
    panels = units * p.at_once * PANEL * sizeof(Cell) if p.depth <= p.at_once else 0
    p.own = (block_rows(&p) * p.a_row + (p.at_once * PANEL if p.depth > p.at_once else 0)) * sizeof(Cell)
    p.own += ceil_div(block_rows(&p), ROWS) * ROWS * PANEL * sizeof(float)
    p.own = ceil_div(p.own, 64) * 64
    tables = block_rows(&p) * sizeof(int32_t) + p.at_once * sizeof(Step)
    memory = empty((ceil_div(panels + threads * p.own + tables, 2),), a.dtype)
    p.panels = <Cell*>address(memory, 2, True)
    p.scratch = <char*>p.panels + panels
    places = <int32_t*>(p.scratch + threads * p.own)
    steps = <Step*>(places + block_rows(&p))
    for i in range(block_rows(&p)):
        places[i] = <int32_t>(i * p.a_row)
    for i in range(p.at_once):
        steps[i].a, steps[i].b = <int32_t>i, <int32_t>(i * PANEL)
    p.places, p.steps = places, steps
    with nogil:
        multiply_all(&p, units, threads)
    return c
