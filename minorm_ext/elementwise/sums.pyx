# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False, binding=False
# Sums over the middle axis of an array (batches, rows, columns), in an order that depends on the shape alone.
#
# A sum over any axes of a dense array is one or more of these, one after the other (minorm/kernels/cpu/sums.py). With
# a single column the numbers to be added lie side by side (reductions.pxd). Otherwise whole rows are added to a row of
# accumulators; where rows are short, some of them count as one long row, and are folded at the end.
#
# The shape decides how the work is cut into pieces: some batches, or some rows and columns of one batch. A piece adds
# at most 4096 numbers of a batch in the type of x before it goes on in double. If a batch has several pieces, their
# sums are added in order.

from minorm_ext.elementwise.reductions cimport row_sum
from minorm_ext.runtime.buffers cimport address
from minorm_ext.runtime.jobs cimport parallel_for
from minorm_ext.runtime.numbers cimport ceil_div, real

cdef enum:
    WIDTH = 1024         # columns whose accumulators are held at once
    RUN = 32             # rows that an accumulator of x's type collects before it goes into a double
    PIECE = 1 << 16      # elements, about, of a piece
    FOLD = 16            # long rows, at least, for which folding pays
    WORK = 1 << 18       # elements from which a second thread pays
    SIGNAL_INTERVAL = 1 << 26  # elements between two checks of signals


cdef struct Sum:
    const char* x
    char* out
    double* partial      # (batches, pieces, columns), used where pieces > 1
    bint single          # x is float, else double
    bint single_out
    double divisor       # the result is the sum divided by this
    Py_ssize_t batches
    Py_ssize_t rows
    Py_ssize_t columns
    Py_ssize_t batches_at_once  # batches of a job
    Py_ssize_t cut       # rows of a piece
    Py_ssize_t pieces
    Py_ssize_t strips    # number of strips of at most WIDTH columns
    Py_ssize_t fold      # rows that count as one


cdef inline void columns_sum(
    const real* x, double* out, Py_ssize_t rows, Py_ssize_t width, Py_ssize_t stride
) noexcept nogil:
    """out[j] = sum of x[i, j] over the rows, j < width <= WIDTH."""
    cdef real[WIDTH] sums
    cdef Py_ssize_t j, row, end
    cdef Py_ssize_t start = 0
    for j in range(width):
        out[j] = 0
    while start < rows:
        end = min(start + RUN, rows)
        for j in range(width):
            sums[j] = 0
        row = start
        while row + 4 <= end:
            for j in range(width):
                sums[j] += (
                    (x[row * stride + j] + x[(row + 1) * stride + j])
                    + (x[(row + 2) * stride + j] + x[(row + 3) * stride + j]))
            row += 4
        while row < end:
            for j in range(width):
                sums[j] += x[row * stride + j]
            row += 1
        for j in range(width):
            out[j] += sums[j]
        start = end


cdef inline void folded_sum(
    const real* x, double* out, Py_ssize_t rows, Py_ssize_t columns, Py_ssize_t fold
) noexcept nogil:
    """Compute the same for few columns without a gap: take `fold` rows as a long one, then add up its sums."""
    cdef double[WIDTH] sums
    cdef Py_ssize_t width = fold * columns
    cdef Py_ssize_t rest = rows % fold * columns
    cdef Py_ssize_t j, i
    columns_sum(x, sums, rows // fold, width, width)
    x += rows // fold * width
    for j in range(rest):
        sums[j] += x[j]
    for j in range(columns):
        out[j] = sums[j]
    for i in range(1, fold):
        for j in range(columns):
            out[j] += sums[i * columns + j]


cdef inline void put(const Sum* s, Py_ssize_t at, const double* sums, Py_ssize_t count) noexcept nogil:
    """Store finished sums."""
    cdef Py_ssize_t i
    for i in range(count):
        if s.single_out:
            (<float*>s.out)[at + i] = <float>(sums[i] / s.divisor)
        else:
            (<double*>s.out)[at + i] = sums[i] / s.divisor


cdef inline void sum_piece(const Sum* s, const real* x, Py_ssize_t job) noexcept nogil:
    """Sum some batches, or a piece of one, in one strip of columns."""
    cdef double[WIDTH] sums
    cdef Py_ssize_t strip = job % s.strips
    cdef Py_ssize_t piece = job // s.strips % s.pieces
    cdef Py_ssize_t batch = job // s.strips // s.pieces * s.batches_at_once
    cdef Py_ssize_t last = min(batch + s.batches_at_once, s.batches)
    cdef Py_ssize_t column = strip * WIDTH
    cdef Py_ssize_t width = min(<Py_ssize_t>WIDTH, s.columns - column)
    cdef Py_ssize_t row = piece * s.cut
    cdef Py_ssize_t rows = min(s.cut, s.rows - row)
    cdef Py_ssize_t i
    cdef const real* source
    while batch < last:
        source = x + (batch * s.rows + row) * s.columns + column
        if s.columns == 1:
            sums[0] = row_sum(source, rows)
        elif s.fold > 1:
            folded_sum(source, sums, rows, s.columns, s.fold)
        else:
            columns_sum(source, sums, rows, width, s.columns)
        if s.pieces == 1:
            put(s, batch * s.columns + column, sums, width)
        else:
            for i in range(width):
                s.partial[(batch * s.pieces + piece) * s.columns + column + i] = sums[i]
        batch += 1


cdef void one_job(const void* task, Py_ssize_t job) noexcept nogil:
    cdef const Sum* s = <const Sum*>task
    if s.single:
        sum_piece(s, <const float*>s.x, job)
    else:
        sum_piece(s, <const double*>s.x, job)


cdef void add_pieces(const Sum* s) noexcept nogil:
    """Add up the sums of each batch's pieces, in their order."""
    cdef Py_ssize_t batch, piece, column
    cdef double* sums
    for batch in range(s.batches):
        sums = s.partial + batch * s.pieces * s.columns
        for piece in range(1, s.pieces):
            for column in range(s.columns):
                sums[column] += sums[piece * s.columns + column]
        put(s, batch * s.columns, sums, s.columns)


def sum_middle(
    x, out, Py_ssize_t batches, Py_ssize_t rows, Py_ssize_t columns, double divisor, empty, int threads
):
    """out (batches, columns) = sum of x (batches, rows, columns) over the rows, divided by divisor.

    x and out are C-ordered, each float32 or float64; no count is 0. empty(doubles) makes scratch memory.
    """
    cdef Sum s
    cdef Py_ssize_t jobs
    cdef object memory
    s.single, s.single_out = x.itemsize == sizeof(float), out.itemsize == sizeof(float)
    s.x = <const char*>address(x, sizeof(float) if s.single else sizeof(double))
    s.out = <char*>address(out, sizeof(float) if s.single_out else sizeof(double), True)
    s.batches, s.rows, s.columns, s.divisor = batches, rows, columns, divisor
    s.strips = ceil_div(columns, WIDTH)
    s.pieces = ceil_div(rows * min(columns, <Py_ssize_t>WIDTH), PIECE)
    s.cut = ceil_div(rows, s.pieces)
    s.pieces = ceil_div(rows, s.cut)
    s.fold = max(1, min(s.cut // FOLD, WIDTH // columns)) if columns > 1 else 1
    s.batches_at_once = max(1, PIECE // 4 // (rows * columns))
    if s.pieces > 1:
        memory = empty(batches * s.pieces * columns)
        s.partial = <double*>address(memory, sizeof(double), True)
    if batches * rows * columns < WORK:
        threads = 1
    jobs = ceil_div(batches, s.batches_at_once) * s.pieces * s.strips
    with nogil:
        parallel_for(one_job, &s, 0, jobs, max(threads, SIGNAL_INTERVAL // PIECE), threads)
    if s.pieces > 1:
        add_pieces(&s)
