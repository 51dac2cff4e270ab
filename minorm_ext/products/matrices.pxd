# cython: cdivision=True
# The product of two matrices, or of two stacks of them. Strips of b, PANEL columns each, are packed once for all rows;
# a job packs some rows of a, and multiplies them by some strips. If the depth is so long that strips would not fit the
# memory, each job packs its strips itself, some of the depth at a time.

from libc.stdint cimport int32_t, intptr_t, uint16_t, uint64_t
from libc.string cimport memset

from minorm_ext.matmul.operands cimport MOST_AXES, Operand, offset
from minorm_ext.products.blocks cimport (
    PANEL, Cell, Range, Step, begin_job, cells_in, end_job, panel_cells, prepare, product, rows_out, sum_rows,
    widen_range,
)
from minorm_ext.runtime.jobs cimport threadid
from minorm_ext.runtime.numbers cimport cut

cdef enum:
    MOST_ROWS = 96        # rows of a job: a multiple of the rows of a block at every level
    STRIPS = 4 << 20      # cells of b that are packed at a time
    DEPTH = 16384         # up to this depth, jobs read strips that were packed for all of them
    GAP = 16              # cells between packed rows of a, lest they share a set of the cache

cdef struct Product:
    Operand a, b
    intptr_t[MOST_AXES] shape  # of the stack
    uint16_t* c
    const uint16_t* bias
    intptr_t stack, rows, columns, depth
    bint exact
    intptr_t strips, row_blocks  # of a matrix
    intptr_t parts        # number of parts of a matrix's strips; each part is another job's
    intptr_t at_once      # steps of the depth that are packed at a time
    intptr_t most         # strips that are packed at a time
    intptr_t panel_bytes  # memory of the packed strips
    intptr_t first, last  # the strips that are packed, counted through the stack
    intptr_t a_row        # from a packed row of a to the next
    Cell* panels
    const int32_t* places  # of packed rows of a
    const Step* steps
    const int32_t* runs
    char* scratch         # `own` bytes for each thread
    intptr_t own


cdef inline intptr_t block_rows(const Product* p) noexcept nogil:
    """Return how many rows a job has at most."""
    return min(MOST_ROWS, p.rows)


cdef inline void pack_strip(const Product* p, intptr_t unit, intptr_t k, intptr_t depth, Cell* to) noexcept nogil:
    """Pack `depth` rows of one strip of b, from row k on."""
    cdef intptr_t column = unit % p.strips * PANEL
    cdef intptr_t columns = min(<intptr_t>PANEL, p.columns - column)
    cdef const uint16_t* b = <const uint16_t*>p.b.data + offset(p.shape, &p.b, unit // p.strips)
    if columns < PANEL:
        memset(to, 0, depth * PANEL * sizeof(Cell))
    cells_in(to, PANEL, b + k * p.b.step0 + column * p.b.step1, p.b.step0, p.b.step1, depth, columns)
    prepare(to, depth)


cdef inline void pack_job(const void* task, Py_ssize_t unit) noexcept nogil:
    cdef const Product* p = <const Product*>task
    pack_strip(p, unit, 0, p.depth, p.panels + (unit - p.first) * panel_cells(p.depth))


cdef inline void multiply_job(const void* task, Py_ssize_t job) noexcept nogil:
    """Multiply some rows of one matrix by some of the packed strips."""
    cdef const Product* p = <const Product*>task
    cdef intptr_t part = job % p.parts
    cdef intptr_t block = job // p.parts % p.row_blocks
    cdef intptr_t index = p.first // p.strips + job // p.parts // p.row_blocks
    cdef intptr_t row = cut(p.rows, p.row_blocks, block)
    cdef intptr_t rows = cut(p.rows, p.row_blocks, block + 1) - row
    cdef intptr_t begin = max(p.first, index * p.strips)
    cdef intptr_t end = min(p.last, (index + 1) * p.strips)
    cdef intptr_t unit = begin + cut(end - begin, p.parts, part)
    cdef intptr_t last = begin + cut(end - begin, p.parts, part + 1)
    cdef Cell* left = <Cell*>(p.scratch + threadid() * p.own)
    cdef float* sums = <float*>(left + block_rows(p) * p.a_row)
    cdef Cell* strip = <Cell*>(sums + sum_rows(block_rows(p)) * PANEL)
    cdef const uint16_t* a = <const uint16_t*>p.a.data + offset(p.shape, &p.a, index) + row * p.a.step0
    cdef const uint16_t* bias
    cdef intptr_t k, depth, column, columns
    cdef bint deep = p.depth > p.at_once
    cdef uint64_t before = begin_job()
    if not deep:
        cells_in(left, p.a_row, a, p.a.step0, p.a.step1, rows, p.depth)
    while unit < last:
        column = unit % p.strips * PANEL
        columns = min(<intptr_t>PANEL, p.columns - column)
        memset(sums, 0, sum_rows(rows) * PANEL * sizeof(float))
        if not deep:
            strip = p.panels + (unit - p.first) * panel_cells(p.depth)
            product(left, p.places, rows, strip, p.steps, p.runs, p.depth, sums, columns, True, p.exact)
        k = 0
        while deep and k < p.depth:
            depth = min(p.at_once, p.depth - k)
            cells_in(left, p.a_row, a + k * p.a.step1, p.a.step0, p.a.step1, rows, depth)
            pack_strip(p, unit, k, depth, strip)
            product(left, p.places, rows, strip, p.steps, p.runs, depth, sums, columns, True, p.exact)
            k += depth
        bias = p.bias
        if bias != NULL:
            bias += column
        rows_out(sums, rows, columns, bias, p.c + (index * p.rows + row) * p.columns + column, p.columns)
        unit += 1
    end_job(before)


cdef inline Range range_of(const Product* p, const Operand* x, intptr_t rows, intptr_t columns) noexcept nogil:
    """Return the range of an operand's numbers."""
    cdef Range found
    cdef intptr_t index
    found.least, found.most = 0x7fff, 0
    for index in range(p.stack):
        widen_range(
            &found, <const uint16_t*>x.data + offset(p.shape, x, index), x.step0, x.step1, rows, columns)
    return found
