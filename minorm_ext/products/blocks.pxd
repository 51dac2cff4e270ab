# cython: cdivision=True
# The types and functions of block.h for products of bfloat16.

from libc.stdint cimport int32_t, intptr_t, uint16_t, uint64_t

from minorm_ext.products.plan cimport Step
from minorm_ext.runtime.numbers cimport ceil_div

cdef extern from "products/block.h" nogil:
    enum:
        PANEL  # columns of sums that a block computes
        ROWS   # sums take memory for a multiple of this many rows
        PANEL_STEPS  # and packed panels for a multiple of this many steps
        FUSED
        STEPS
        NEIGHBOURS "BY_TABLE"
    ctypedef int Cell "minorm_cell"  # its size is the compiler's matter
    ctypedef struct Range "minorm_range":
        uint16_t least
        uint16_t most
    void product "minorm_product"(
        const Cell* a, const int32_t* rows, intptr_t row_count, const Cell* b, const Step* steps, const int32_t* runs,
        intptr_t depth, float* c, intptr_t columns, bint prepared, bint exact)
    void prepare "minorm_prepare"(Cell* panel, intptr_t depth)
    void cells_in "minorm_cells_in"(
        Cell* to, intptr_t to_row, const uint16_t* source, intptr_t row_step, intptr_t column_step, intptr_t rows,
        intptr_t columns)
    void rows_out "minorm_rows_out"(
        const float* sums, intptr_t rows, intptr_t columns, const uint16_t* bias, uint16_t* y, intptr_t y_row)
    void planes_out "minorm_planes_out"(
        const float* sums, intptr_t rows, intptr_t columns, const uint16_t* bias, uint16_t* y, intptr_t y_plane,
        const intptr_t* place)
    void chunks_out "minorm_chunks_out"(
        const float* sums, intptr_t chunk, intptr_t chunks, const int32_t* place, uint16_t* y)
    void widen_range "minorm_widen_range"(
        Range* range, const uint16_t* source, intptr_t row_step, intptr_t column_step, intptr_t rows,
        intptr_t columns)
    bint products_exact "minorm_products_exact"(Range a, Range b)
    uint64_t begin_job "minorm_begin"()
    void end_job "minorm_end"(uint64_t before)

cdef inline intptr_t panel_cells(intptr_t depth) noexcept nogil:
    """Return how many cells a packed panel has."""
    return ceil_div(depth, PANEL_STEPS) * PANEL_STEPS * PANEL


cdef inline intptr_t sum_rows(intptr_t rows) noexcept nogil:
    """Return how many rows of sums, PANEL numbers each, need memory."""
    return ceil_div(rows, ROWS) * ROWS
