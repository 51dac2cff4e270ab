# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False, binding=False
# Matrix products whose bits do not depend on the number of threads.
#
#     c[i][j] = bias[j] + sum over k of a[i][k] * b[k][j]
#
# The result is cut into blocks, one for each job; no two jobs write the same number. Two register blocks do the
# arithmetic (block.inc.h). `tile` has columns of c in its lanes and reads b from packed strips. `dots` has the depth in
# its lanes and needs no packing, but pays for adding up lanes at the end. It is good if c is narrow or low, and a and b
# are both contiguous along the depth, as in the output layer of a classifier.
#
# The depth is cut into `blocks` of at most DEPTH, and c collects one after the other. The cuts depend on the depth
# alone, and every number of c is one chain of multiply-adds within a block. So it cannot matter how the threads share
# rows and columns. If c is tiny and the depth long, there are too few rows and columns to share. Then the blocks of
# depth form `parts`; the shape decides their number. Each part has its own c, and these are added up in their order.

from libc.stdint cimport intptr_t
from libc.string cimport memcpy

from minorm_ext.matmul.operands cimport MOST_AXES, Operand, offset, operand
from minorm_ext.runtime.buffers cimport address
from minorm_ext.runtime.jobs cimport check_signals, parallel_for, threadid
from minorm_ext.runtime.numbers cimport ceil_div, cut, real

cdef extern from "matmul/blocks.h" nogil:
    enum:
        VECTOR_BYTES
        SUM_BYTES
        ROUNDED_ONCE "FUSED"
        MOST_ROWS
        MOST_WIDTH
        DOT_ROWS
        DOT_COLUMNS
    void tile(
        size_t item, int rows, intptr_t columns, const void* a, intptr_t a_row, intptr_t a_step, const void* b,
        intptr_t b_step, intptr_t depth, void* c, intptr_t c_row, int first)
    void dots(
        size_t item, int rows, int columns, const void* a, intptr_t a_row, const void* b, intptr_t b_row,
        intptr_t depth, void* c, intptr_t c_row, int first)
    void pack(
        size_t item, void* to, const void* b, intptr_t b_step, intptr_t b_column, intptr_t depth, intptr_t columns)

cdef enum:
    DEPTH = 384            # of a block of tiles: a strip of a, MOST_ROWS high, stays in the first cache
    DOT_DEPTH = 4096       # of a block of dots
    BLOCK_BYTES = 1024     # of a row of a packed block of b, which stays in the second cache
    BLOCK_ROWS = 4096
    STRIP_ROWS = 128       # rows of a block, at least, if strips of a are packed
    GAP = 16               # numbers between the rows of a packed strip of a, lest they share a set of the cache
    CLASH = 1024           # bytes: rows whose distance is a multiple of this share few sets of the cache
    FIRST_CACHE = 32768
    ALONE = 2000000        # multiply-adds below which a second thread costs more than it saves
    NARROW = 12            # rows or columns of c up to which dots are faster
    FEW = 8                # tiles of c, FEW_ROWS high, below which a long depth is cut into parts
    FEW_ROWS = 12

cdef double SIGNAL_INTERVAL = 1e9  # multiply-adds a thread between two checks of signals
cdef double NUMBER = 8      # multiply-adds that take as long as reading or writing a number
cdef double JOB = 300       # multiply-adds that take as long as beginning a job

FUSED = bool(ROUNDED_ONCE)  # True: convolution and matmul round a multiply-add once; False: twice


cdef struct Product:
    Operand a
    Operand b
    char* c
    char* bias
    bint relu              # after the bias
    intptr_t itemsize
    intptr_t[MOST_AXES] shape  # of the stack
    intptr_t stack         # matrices
    intptr_t rows
    intptr_t columns
    intptr_t depth
    bint dots
    intptr_t blocks        # of the depth
    intptr_t parts
    bint direct            # tiles read b in place, except a last panel that is not full
    bint strip             # tiles read a from a packed strip
    intptr_t row_blocks
    intptr_t column_blocks
    intptr_t jobs          # stack x parts x row_blocks x column_blocks
    char* partial          # the results of parts, (stack, parts, rows, columns)
    char* buffers
    intptr_t buffer        # numbers of scratch memory for each thread
    intptr_t begin         # the blocks of the depth that are being added
    intptr_t end


# ---- jobs ----------------------------------------------------------------------------------------------------------


cdef inline void pack_rows(
    real* to, const real* a, intptr_t step0, intptr_t step1, int rows, intptr_t depth, intptr_t* to_row,
    intptr_t* to_step
) noexcept nogil:
    """Pack a strip of a in the order of memory, and set the steps that find its numbers."""
    cdef intptr_t i, k
    if step1 == 1:
        to_row[0], to_step[0] = DEPTH + GAP, 1
        for i in range(rows):
            memcpy(to + i * (DEPTH + GAP), a + i * step0, depth * sizeof(real))
        return
    to_row[0], to_step[0] = 1, MOST_ROWS
    for k in range(depth):
        if step0 == 1 and rows == MOST_ROWS:
            memcpy(to + k * MOST_ROWS, a + k * step1, MOST_ROWS * sizeof(real))
        else:
            for i in range(rows):
                to[k * MOST_ROWS + i] = a[k * step1 + i * step0]


cdef inline void tiles_job(
    const Product* p, const real* a, const real* b, real* c, intptr_t rows, intptr_t columns, intptr_t depth,
    bint first, real* buffer
) noexcept nogil:
    """c (+)= a @ b: pack b first, and each strip of a just before its use."""
    cdef intptr_t lanes = VECTOR_BYTES // <intptr_t>sizeof(real)
    cdef intptr_t panel = 2 * lanes
    cdef intptr_t in_place = columns // panel * panel if p.direct else 0  # columns of b that tiles read where they are
    cdef intptr_t strips = ceil_div(rows, MOST_ROWS)
    cdef intptr_t a_row = p.a.step0
    cdef intptr_t a_step = p.a.step1
    cdef real* packed = buffer + (MOST_ROWS * (DEPTH + GAP) if p.strip else 0)
    cdef intptr_t strip, row, column, width
    cdef int height
    cdef const real* left
    if p.direct and p.blocks == 1 and columns >= panel:
        in_place = columns  # the last tile overlaps the one before, which is harmless as nothing is added up
    pack(sizeof(real), packed, b + in_place * p.b.step1, p.b.step0, p.b.step1, depth, columns - in_place)
    for strip in range(strips):
        row = cut(rows, strips, strip)
        height = <int>(cut(rows, strips, strip + 1) - row)
        left = a + row * p.a.step0
        if p.strip:
            pack_rows(buffer, left, p.a.step0, p.a.step1, height, depth, &a_row, &a_step)
            left = buffer
        column = 0
        while column < in_place:
            width = MOST_WIDTH * lanes if height == 1 and in_place - column >= MOST_WIDTH * lanes else panel
            column = min(column, in_place - width)
            tile(
                sizeof(real), height, width, left, a_row, a_step, b + column, p.b.step0, depth,
                c + row * p.columns + column, p.columns, first)
            column += width
        while column < columns:
            width = min(panel, columns - column)
            tile(
                sizeof(real), height, width, left, a_row, a_step, packed + (column - in_place) * depth, panel, depth,
                c + row * p.columns + column, p.columns, first)
            column += width


cdef inline void dots_job(
    const Product* p, const real* a, const real* b, real* c, intptr_t rows, intptr_t columns, intptr_t depth, bint first
) noexcept nogil:
    """c (+)= a @ b, both contiguous along the depth."""
    cdef intptr_t row_blocks = ceil_div(rows, DOT_ROWS)
    cdef intptr_t column_blocks = ceil_div(columns, DOT_COLUMNS)
    cdef intptr_t block, other, row, column
    for block in range(row_blocks):
        row = cut(rows, row_blocks, block)
        for other in range(column_blocks):
            column = cut(columns, column_blocks, other)
            dots(
                sizeof(real), <int>(cut(rows, row_blocks, block + 1) - row),
                <int>(cut(columns, column_blocks, other + 1) - column), a + row * p.a.step0, p.a.step0,
                b + column * p.b.step1, p.b.step1, depth, c + row * p.columns + column, p.columns, first)


cdef inline void finish(const Product* p, real* c, intptr_t rows, intptr_t columns, const real* bias) noexcept nogil:
    """Add the bias to c, and apply relu if the product has one."""
    cdef intptr_t i, j
    cdef real* row
    for i in range(rows):
        row = c + i * p.columns
        if bias != NULL:
            for j in range(columns):
                row[j] += bias[j]
        if p.relu:
            for j in range(columns):
                row[j] = 0 if row[j] <= 0 else row[j]


cdef inline void add_blocks(const Product* p, const real* a, intptr_t job) noexcept nogil:
    """Add the current blocks of the depth, for one block of c."""
    cdef intptr_t column_block = job % p.column_blocks
    cdef intptr_t row_block = job // p.column_blocks % p.row_blocks
    cdef intptr_t part = job // p.column_blocks // p.row_blocks % p.parts
    cdef intptr_t index = job // p.column_blocks // p.row_blocks // p.parts
    cdef intptr_t panel = 2 * (VECTOR_BYTES // <intptr_t>sizeof(real))
    cdef intptr_t panels = ceil_div(p.columns, panel)
    cdef intptr_t column = cut(panels, p.column_blocks, column_block) * panel
    cdef intptr_t columns = min(p.columns, cut(panels, p.column_blocks, column_block + 1) * panel) - column
    cdef intptr_t row = cut(p.rows, p.row_blocks, row_block)
    cdef intptr_t rows = cut(p.rows, p.row_blocks, row_block + 1) - row
    cdef const real* b = <const real*>p.b.data + offset(p.shape, &p.b, index) + column * p.b.step1
    cdef const real* bias = <const real*>p.bias
    cdef real* c = <real*>(p.c if p.parts == 1 else p.partial)
    cdef real* buffer = <real*>p.buffers + threadid() * p.buffer
    cdef intptr_t first = cut(p.blocks, p.parts, part)
    cdef intptr_t block, k, depth
    a += offset(p.shape, &p.a, index) + row * p.a.step0
    c += ((index * p.parts + part) * p.rows + row) * p.columns + column
    for block in range(max(p.begin, first), min(p.end, cut(p.blocks, p.parts, part + 1))):
        k = cut(p.depth, p.blocks, block)
        depth = cut(p.depth, p.blocks, block + 1) - k
        if p.dots:
            dots_job(p, a + k, b + k, c, rows, columns, depth, block == first)
        else:
            tiles_job(p, a + k * p.a.step1, b + k * p.b.step0, c, rows, columns, depth, block == first, buffer)
    if p.parts == 1 and p.end == p.blocks:
        finish(p, c, rows, columns, bias + column if bias != NULL else NULL)


cdef void one_job(const void* task, Py_ssize_t job) noexcept nogil:
    cdef const Product* p = <const Product*>task
    if p.itemsize == sizeof(float):
        add_blocks(p, <const float*>p.a.data, job)
    else:
        add_blocks(p, <const double*>p.a.data, job)


cdef void merge(const Product* p, real* c, const real* bias) noexcept nogil:
    """c = the sum of the parts, in double, plus the bias."""
    cdef intptr_t size = p.rows * p.columns
    cdef const real* partial = <const real*>p.partial
    cdef intptr_t index, i, part
    cdef double total
    for index in range(p.stack):
        for i in range(size):
            total = 0
            for part in range(p.parts):
                total += partial[(index * p.parts + part) * size + i]
            if bias != NULL:
                total += bias[i % p.columns]
            c[index * size + i] = <real>total


# ---- the call ------------------------------------------------------------------------------------------------------


cdef void choose(Product* p) noexcept:
    """Choose how to do the arithmetic. Bits depend on `dots`, `blocks` and `parts` alone, and these on the shapes."""
    cdef intptr_t lanes = VECTOR_BYTES // p.itemsize
    cdef intptr_t sums = SUM_BYTES // p.itemsize
    cdef intptr_t tiles = p.stack * ceil_div(p.rows, FEW_ROWS) * ceil_div(p.columns, 2 * sums)
    cdef intptr_t depth
    p.dots = min(p.rows, p.columns) <= NARROW and p.a.step1 == 1 and p.b.step0 == 1 and p.depth >= sums
    p.blocks = ceil_div(p.depth, DOT_DEPTH if p.dots else DEPTH)
    p.parts = min(p.blocks, ceil_div(2 * FEW, tiles)) if tiles < FEW else 1
    # Packing pays where a strip is read many times, or where reading it in place would miss the first cache.
    depth = ceil_div(p.depth, p.blocks)
    p.direct = p.b.step1 == 1 and (
        p.rows <= 2 * MOST_ROWS or depth * abs(p.b.step0) * p.itemsize <= FIRST_CACHE)
    p.strip = p.columns > 4 * lanes and (
        p.a.step0 * p.itemsize % CLASH == 0 if p.a.step1 == 1
        else depth * abs(p.a.step1) * p.itemsize > FIRST_CACHE)


cdef int share_out(Product* p, int threads) noexcept:
    """Cut c into jobs, and return how many threads are worth it."""
    cdef intptr_t panels = ceil_div(p.columns * p.itemsize, 2 * VECTOR_BYTES)
    if <double>p.rows * p.columns * p.depth * p.stack < ALONE:
        threads = 1
    p.column_blocks = ceil_div(p.columns * p.itemsize, BLOCK_BYTES)
    p.row_blocks = ceil_div(p.rows, BLOCK_ROWS)
    p.jobs = p.stack * p.parts
    if threads > 1:  # first cut columns: each cut of rows packs the same strips of b again
        if p.strip and p.columns <= p.rows:  # a cut of columns packs the same strips of a again
            while p.jobs * p.column_blocks * p.row_blocks < 4 * threads and p.row_blocks < p.rows // STRIP_ROWS:
                p.row_blocks += 1
        while p.jobs * p.column_blocks * p.row_blocks < 4 * threads and p.column_blocks < panels // 2:
            p.column_blocks += 1
        while p.jobs * p.column_blocks * p.row_blocks < 2 * threads and p.row_blocks < p.rows // MOST_ROWS:
            p.row_blocks += 1
    p.jobs *= p.column_blocks * p.row_blocks
    p.buffer = 0
    if not p.dots:
        p.buffer = MOST_ROWS * (DEPTH + GAP) if p.strip else 0
        panels = 1 if p.direct else ceil_div(panels, p.column_blocks)
        p.buffer += panels * 2 * VECTOR_BYTES // p.itemsize * ceil_div(p.depth, p.blocks)
    return threads


cdef void swap(Product* p) noexcept:
    """c.T = b.T @ a.T: if c has one column, c.T is the same memory as one long row, which fills whole vectors."""
    cdef Operand a = p.a
    p.a = p.b
    p.b = a
    p.a.step0, p.a.step1 = p.a.step1, p.a.step0
    p.b.step0, p.b.step1 = p.b.step1, p.b.step0
    p.rows, p.columns = p.columns, p.rows


cdef int run(Product* p, int threads) except -1 nogil:
    """Run all jobs, some at a time, and for these some blocks of the depth at a time, so that Ctrl-C is answered."""
    cdef double read = (<double>p.rows + p.columns) * p.depth + <double>p.rows * p.columns
    cdef double work = (p.stack * (<double>p.rows * p.columns * p.depth + NUMBER * read) + JOB * p.jobs) / threads
    cdef intptr_t rounds = max(1, min(p.jobs // threads, <intptr_t>(work / SIGNAL_INTERVAL)))
    cdef intptr_t at_once = ceil_div(p.jobs, rounds * threads) * threads  # the same number for each thread
    cdef intptr_t blocks = max(1, <intptr_t>(p.blocks * min(1.0, SIGNAL_INTERVAL / work * p.jobs / at_once)))
    cdef intptr_t first = 0
    cdef intptr_t last
    while first < p.jobs:
        last = min(p.jobs, first + at_once)
        p.end = 0
        while p.end < p.blocks:
            p.begin = p.end
            p.end = min(p.blocks, p.begin + blocks)
            parallel_for(one_job, p, first, last, last - first, threads)
            if p.end < p.blocks or last < p.jobs:
                check_signals()
        first = last
    return 0


def multiply(a, b, bias, empty, int threads, bint stepwise=False, bint relu=False):
    """a @ b + bias, or relu(a @ b + bias): a (..., rows, depth), b (..., depth, columns), bias (columns) or None.

    All are float32 or all float64; a and b have any steps and the same leading axes, a stack of matrices; bias is in C
    order. stepwise rounds the product before adding the bias, as two operations do; with relu it must be True.
    empty(shape, dtype) makes the result and scratch memory. Return None if an operand is not aligned.
    """
    cdef Product p
    cdef intptr_t[MOST_AXES] b_shape
    cdef intptr_t i, partial, scratch
    cdef double[2048] small  # scratch memory of small products
    cdef object c, memory
    p.itemsize, p.relu = a.itemsize, relu
    if not operand(a, p.itemsize, &p.a, p.shape) or not operand(b, p.itemsize, &p.b, b_shape):
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
    if p.depth == 0:
        c[...] = 0 if bias is None else bias
        return c.clip(0) if relu else c
    p.c = <char*>address(c, p.itemsize, True)
    p.bias = <char*>address(bias, p.itemsize) if bias is not None else NULL
    if p.columns == 1 and bias is None and not (p.a.step1 == 1 and p.b.step0 == 1):
        swap(&p)
    choose(&p)
    threads = share_out(&p, threads)
    partial = p.stack * p.parts * p.rows * p.columns if p.parts > 1 else 0
    scratch = p.buffer * threads
    p.buffers = <char*>small
    if (partial + scratch) * p.itemsize > <intptr_t>sizeof(small):
        memory = empty((partial + scratch,), a.dtype)
        p.buffers = <char*>address(memory, p.itemsize, True)
    p.partial = p.buffers + scratch * p.itemsize
    with nogil:
        run(&p, threads)
    if p.parts > 1 and p.itemsize == sizeof(float):
        merge(&p, <float*>p.c, <const float*>(NULL if stepwise else p.bias))
        if stepwise:
            finish(&p, <float*>p.c, p.stack * p.rows, p.columns, <const float*>p.bias)
    elif p.parts > 1:
        merge(&p, <double*>p.c, <const double*>(NULL if stepwise else p.bias))
        if stepwise:
            finish(&p, <double*>p.c, p.stack * p.rows, p.columns, <const double*>p.bias)
    return c
