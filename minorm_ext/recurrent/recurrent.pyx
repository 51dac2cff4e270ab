# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False, binding=False
# RNN, LSTM and GRU: one direction of a layer through all its steps, forward and backward.
#
# kernels/cpu/recurrent.py has already multiplied the input by W, for all steps at once. Each step still has to compute
# the state times R, and the gates (walk.inc.h, cells.inc.h). Once a call R is packed into the strips that the matrix
# product reads, unless too few steps use it to pay for that. Threads share the sequences. Every number of a product is
# one chain of multiply-adds, or the sum of a fixed number of partial sums, so bits depend on shapes alone.

from libc.stdint cimport int64_t
from libc.string cimport memset

from minorm_ext.runtime.buffers cimport address
from minorm_ext.runtime.jobs cimport check_signals, parallel_for
from minorm_ext.runtime.numbers cimport ceil_div

cdef extern from "recurrent/recurrent.h" nogil:
    enum:
        VECTOR_BYTES
        SUM_BYTES
        MOST_WIDTH
        GRU
        ROUNDED_ONCE "FUSED"
    ctypedef struct Activation "minorm_activation":
        int number
        double alpha
        double beta
    ctypedef struct Cell "minorm_cell":
        int kind
        Py_ssize_t hidden
        int at[4]
        int variant
        Activation activations[3]
        double bound
    ctypedef struct Factor "minorm_factor":
        const void* items
        Py_ssize_t depth
        Py_ssize_t columns
        Py_ssize_t width
    ctypedef struct Walk "minorm_walk":
        Cell cell
        Py_ssize_t steps
        Py_ssize_t batch
        Py_ssize_t columns
        int reverse
        const int64_t* lengths
        Factor factors[2]
        const char* b
        const char* p
        char* a
        char* v
        char* e
        char* hs
        char* cs
        char* h
        char* c
        char* y
        Py_ssize_t y_step
        Py_ssize_t y_row
        char* da
        char* dq
        char* scratch
        Py_ssize_t scratch_size
        Py_ssize_t rows
        Py_ssize_t wide
        Py_ssize_t begin
        Py_ssize_t end
    void pack_factor_float(const Factor* f, float* to, const float* b, int turned)
    void pack_factor_double(const Factor* f, double* to, const double* b, int turned)
    void forward_job_float(const void* task, Py_ssize_t job) noexcept
    void forward_job_double(const void* task, Py_ssize_t job) noexcept
    void backward_job_float(const void* task, Py_ssize_t job) noexcept
    void backward_job_double(const void* task, Py_ssize_t job) noexcept

cdef enum:
    SELDOM = 16      # rows that R is multiplied with, of all steps together, up to which it is read as it lies
    NARROW = 3       # sequences that are multiplied one by one, by wide strips
    JOB_ROWS = 24    # sequences of a job: a multiple of the rows of every register block
    ALONE = 200000   # multiply-adds of all steps below which a second thread costs more than it saves

cdef double SIGNAL_INTERVAL = 4e8  # multiply-adds a thread between two checks of signals

FUSED = bool(ROUNDED_ONCE)


cdef int describe(Walk* w, tuple cell, Py_ssize_t steps, Py_ssize_t batch, Py_ssize_t hidden, lengths) except -1:
    """Fill in the arguments that forward and backward share. cell: (kind, at, variant, activations, bound)."""
    cdef Cell* k = &w.cell
    cdef int i
    memset(w, 0, sizeof(Walk))
    kind, at, variant, activations, bound = cell
    k.kind, k.hidden, k.variant, k.bound = kind, hidden, variant, bound
    for i in range(len(at)):
        k.at[i] = at[i]
    for i in range(len(activations)):
        k.activations[i].number, k.activations[i].alpha, k.activations[i].beta = activations[i]
    w.steps, w.batch, w.columns = steps, batch, len(at) * hidden
    if lengths is not None:
        w.lengths = <const int64_t*>address(lengths, sizeof(int64_t), False, batch)
    return 0


cdef char* pointer(array, Py_ssize_t itemsize, Py_ssize_t count, bint writable) except? NULL:
    """Return the address of an array with at least this many elements; NULL for None."""
    return NULL if array is None else <char*>address(array, itemsize, writable, count)


cdef Py_ssize_t factor_size(const Factor* f):
    return ceil_div(f.columns, f.width) * f.width * f.depth if f.width else 0


cdef object factors(Walk* w, r, Py_ssize_t itemsize, bint turned, bint seldom, empty):
    """Pack R for the steps, in one piece or two, and return the memory, which must live until the last step."""
    cdef Py_ssize_t hidden = w.cell.hidden
    cdef bint late = w.cell.kind == GRU and not w.cell.variant
    cdef Py_ssize_t early = 2 * hidden if late else w.columns
    cdef Py_ssize_t lanes = VECTOR_BYTES // itemsize
    cdef Py_ssize_t width = lanes * (MOST_WIDTH if w.batch <= NARROW else 2)
    cdef char* items = pointer(r, itemsize, w.columns * hidden, False)
    cdef char* to
    cdef Factor* f
    cdef int i
    if seldom and turned and hidden >= SUM_BYTES // itemsize:
        width = 0
    for i in range(2):
        f = &w.factors[i]
        f.width = width
        f.depth = hidden if turned else (early if i == 0 else hidden)
        f.columns = (early if i == 0 else hidden) if turned else hidden
        f.items = items + (early * hidden * itemsize if i else 0)
    w.wide = w.columns + max(width, <Py_ssize_t>1)
    if not width:
        return None
    w.wide = ceil_div(w.columns, width) * width + width
    size = factor_size(&w.factors[0]) + (factor_size(&w.factors[1]) if late else 0)
    memory = empty((size,), r.dtype)
    to = <char*>address(memory, itemsize, True, size)
    for i in range(2 if late else 1):
        f = &w.factors[i]
        if itemsize == sizeof(float):
            pack_factor_float(f, <float*>to, <const float*>f.items, turned)
        else:
            pack_factor_double(f, <double*>to, <const double*>f.items, turned)
        f.items = to
        to += factor_size(f) * itemsize
    return memory


cdef int walk(Walk* w, Py_ssize_t itemsize, bint back, int threads) except -1 nogil:
    """Walk through all steps, some at a time, so that Ctrl-C is answered."""
    cdef double work = <double>w.columns * (w.cell.hidden + 32) * w.batch  # of a step
    cdef Py_ssize_t jobs = ceil_div(w.batch, w.rows)
    cdef Py_ssize_t some = max(<Py_ssize_t>1, <Py_ssize_t>(SIGNAL_INTERVAL / work))
    cdef Py_ssize_t done = 0
    cdef Py_ssize_t last
    while done < w.steps:
        last = min(w.steps, done + some)
        w.begin, w.end = (w.steps - last, w.steps - done) if back else (done, last)
        if itemsize == sizeof(float):
            parallel_for(backward_job_float if back else forward_job_float, w, 0, jobs, jobs, threads)
        else:
            parallel_for(backward_job_double if back else forward_job_double, w, 0, jobs, jobs, threads)
        done = last
        if done < w.steps:
            check_signals()
    return 0


cdef int share_out(Walk* w, int threads) noexcept:
    """Choose how many sequences a job has, and how many threads pay."""
    if <double>w.columns * w.cell.hidden * w.batch * w.steps < ALONE:
        threads = 1
    w.rows = min(<Py_ssize_t>JOB_ROWS, ceil_div(w.batch, threads))
    return threads


def forward(
    tuple cell, a, r, b, p, h, c, y, Py_ssize_t y_step, Py_ssize_t steps, Py_ssize_t batch, Py_ssize_t hidden, lengths,
    bint reverse, tuple kept, empty, int threads
):
    """Run the steps and fill y; h and c hold the first states before the call, and the last states after it.

    a holds W x plus the biases outside of the reset; the pre-activations replace them. y_step is the distance from a
    step of y to the next, in numbers. kept is (v, e, hs, cs), to be filled for backward, or four times None. All arrays
    have one type, and all except y are dense. The caller guarantees the shapes. empty(shape, dtype) makes scratch
    memory.
    """
    cdef Walk w
    cdef Py_ssize_t itemsize = a.itemsize
    cdef Py_ssize_t states = batch * hidden
    describe(&w, cell, steps, batch, hidden, lengths)
    w.reverse = reverse
    w.a = pointer(a, itemsize, steps * batch * w.columns, True)
    w.b, w.p = pointer(b, itemsize, w.columns, False), pointer(p, itemsize, 3 * hidden, False)
    w.h, w.c = pointer(h, itemsize, states, True), pointer(c, itemsize, states, True)
    w.y, w.y_step, w.y_row = pointer(y, itemsize, steps * states, True), y_step, hidden
    v, e, hs, cs = kept
    w.v = pointer(v, itemsize, steps * batch * w.columns, True)
    w.e, w.hs = pointer(e, itemsize, steps * states, True), pointer(hs, itemsize, steps * states, True)
    w.cs = pointer(cs, itemsize, steps * states, True)
    threads = share_out(&w, threads)
    _strips = factors(&w, r, itemsize, True, steps * batch <= SELDOM, empty)
    w.scratch_size = w.rows * (w.wide + w.columns + hidden)
    scratch = empty((w.scratch_size * threads,), a.dtype)
    w.scratch = <char*>address(scratch, itemsize, True)
    with nogil:
        walk(&w, itemsize, False, threads)


def backward(
    tuple cell, tuple memory, r, p, dy, Py_ssize_t dy_step, dh, dc, Py_ssize_t steps, Py_ssize_t batch,
    Py_ssize_t hidden, lengths, bint reverse, da, dq, empty, int threads
):
    """Run the steps backward; dh and dc hold the last states' gradients before the call, the first states' after it.

    memory is (a, v, e, hs, cs) as forward left them. dy may be None. da gets the gradient of W x. dq gets the gradient
    of the product with R, and may be the same array as da.
    """
    cdef Walk w
    cdef Py_ssize_t itemsize = r.itemsize
    cdef Py_ssize_t states = batch * hidden
    cdef Py_ssize_t gates
    describe(&w, cell, steps, batch, hidden, lengths)
    gates = steps * batch * w.columns
    w.reverse = reverse
    a, v, e, hs, cs = memory
    w.a, w.v = pointer(a, itemsize, gates, False), pointer(v, itemsize, gates, False)
    w.e, w.hs = pointer(e, itemsize, steps * states, False), pointer(hs, itemsize, steps * states, False)
    w.cs, w.p = pointer(cs, itemsize, steps * states, False), pointer(p, itemsize, 3 * hidden, False)
    w.y, w.y_step, w.y_row = pointer(dy, itemsize, steps * states, False), dy_step, hidden
    w.h, w.c = pointer(dh, itemsize, states, True), pointer(dc, itemsize, states, True)
    w.da, w.dq = pointer(da, itemsize, gates, True), pointer(dq, itemsize, gates, True)
    threads = share_out(&w, threads)
    _strips = factors(&w, r, itemsize, False, False, empty)
    w.scratch_size = 2 * hidden + w.rows * w.wide
    scratch = empty((w.scratch_size * threads,), r.dtype)
    w.scratch = <char*>address(scratch, itemsize, True)
    with nogil:
        walk(&w, itemsize, True, threads)
