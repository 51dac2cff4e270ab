# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False, binding=False
# Convolution without im2col: pack the source once, then every tap of the kernel is a shifted read of it.
#
#     y[o][p] = b[o] + sum over channels c and taps t of  w[o][c][t] * packed[c][position[p] + shift[t]]
#
# A job packs the channels of a few images (or of a strip of one) into a buffer that fits the second cache, and computes
# all output channels from it, up to six at a time: a block of 6 channels x 4 vectors of results stays in registers
# while all channels and taps pass by (block.inc.h). What the lanes of a vector are, neighbouring pixels or images, and
# where everything lies, is the layout's matter: minorm/kernels/cpu/conv_layout.py explains it and fills the tables,
# plan.pxd packs and unpacks by them.
#
# `correlate` serves the forward pass and the gradient for the input, which differ by their layout and by which axis of
# the weights is summed over. `weight_gradient` (weights.pxd) cuts its work into chunks of segments that depend on
# shapes alone, and adds up the chunks in their order, so that no bit depends on the number of threads.

from libc.stdint cimport intptr_t

from minorm_ext.conv.plan cimport (
    BLOCK_ROWS, QUAD, VECTOR_BYTES, Plan, begin_of, blocks_of, image_of, pack_segment, result_count, source_count,
    unpack_segment, weight_count,
)
from minorm_ext.conv.weights cimport WeightGradient, add_chunks, add_segments
from minorm_ext.runtime.buffers cimport address
from minorm_ext.runtime.jobs cimport check_signals, parallel_for, threadid
from minorm_ext.runtime.numbers cimport ceil_div, cut, real

cdef extern from "conv/blocks.h" nogil:
    void block(
        size_t item, int rows, const void* x, const intptr_t* position, intptr_t plane, intptr_t channels,
        const intptr_t* taps, intptr_t tap_count, const void* w, intptr_t kernel, const void* bias, void* y,
        const intptr_t* place, intptr_t y_step)
    void tall(
        size_t item, int height, const void* x, intptr_t pitch, const intptr_t* taps, intptr_t width, const void* w,
        const void* bias, void* y, intptr_t y_pitch)

cdef enum:
    LINE = 16  # numbers in a cache line, at most

# Multiply-adds a thread computes between two checks of signals: 0.2 s even without vector instructions worth the name.
cdef double SIGNAL_INTERVAL = 5e8
cdef enum:
    WEIGHTS = 1 << 24  # that are brought into order between two checks
    MERGE_WORK = 100000  # numbers from which a second thread pays where chunks are added up
    PACK_WORK = 8192  # and where weights are brought into order
cdef double WORTH = 5e5  # multiply-adds that are worth another thread

VECTORS = QUAD  # of results in a block
BLOCK = BLOCK_ROWS  # its output channels


def lanes(Py_ssize_t itemsize):
    """How many numbers of this size a vector holds."""
    return VECTOR_BYTES // itemsize


cdef class Layout:
    """The tables of conv_layout.py and the shapes, as the kernel reads them."""

    cdef Plan plan
    cdef object tables

    def __init__(self, dict tables, dict sizes):
        cdef Plan* p = &self.plan
        self.tables = tables  # the arrays live as long as the pointers
        p.images, p.groups, p.channels = sizes["images"], sizes["groups"], sizes["channels"]
        p.outputs, p.kernel = sizes["outputs"], sizes["kernel"]
        for i in range(3):
            p.source[i], p.result[i] = sizes["source"][i], sizes["result"][i]
        p.source_size = p.source[0] * p.source[1] * p.source[2]
        p.result_size = p.result[0] * p.result[1] * p.result[2]
        p.fit, p.chunks, p.parts = sizes["fit"], sizes["chunks"], sizes["parts"]
        p.run, p.columns, p.tall = sizes["run"], sizes["columns"], tables["tall"]
        p.by_image, p.direct_in, p.direct_out = tables["by_image"], tables["direct_in"], tables["direct_out"]
        p.segments, p.plane, p.results = tables["segments"], tables["plane"], tables["results"]
        p.strips, p.along, p.row_step = tables["strips"], tables["along"], tables["row_step"]
        p.source_move, p.result_move = tables["source_move"], tables["result_move"]
        p.out_move, p.vectors, p.quads = tables["out_move"], tables["vectors"], len(tables["runs"])
        p.rows_in_count, p.rows_out_count = len(tables["rows_in"]), len(tables["rows_out"])
        p.zeros_count = len(tables["zeros"])
        p.rows_in, p.rows_out = pointer(tables, "rows_in"), pointer(tables, "rows_out")
        p.pixels_in, p.zeros = pointer(tables, "pixels_in"), pointer(tables, "zeros")
        p.position, p.place = pointer(tables, "position"), pointer(tables, "place")
        p.runs, p.taps, p.ranges = pointer(tables, "runs"), pointer(tables, "taps"), pointer(tables, "ranges")


cdef const intptr_t* pointer(dict tables, str name) except? NULL:
    return <const intptr_t*>address(tables[name], sizeof(intptr_t))


cdef inline intptr_t aligned(intptr_t count) noexcept nogil:
    """Numbers that begin and end on a cache line."""
    return ceil_div(count, LINE) * LINE


cdef double products_of(const Plan* p) noexcept nogil:
    """All multiply-adds, and one."""
    return <double>p.images * p.result_size * p.groups * p.outputs * p.channels * p.kernel + 1


cdef double share_of(const Plan* p, int threads) noexcept nogil:
    """How much of the work may be done between two checks of signals."""
    return min(1.0, threads * SIGNAL_INTERVAL / products_of(p))


cdef int threads_for(const Plan* p, int threads) noexcept nogil:
    """How many threads are worth waking: each should have some ten microseconds to do."""
    return <int>min(<double>threads, 1 + products_of(p) / WORTH)


# ---- forward, and the gradient for the input -----------------------------------------------------------------------


cdef struct Correlation:  # what all jobs of a call share
    const Plan* plan
    size_t item  # bytes of a number
    const char* x
    const char* w
    const char* b
    char* y
    char* weights  # in the order in which they are used
    char* scratch  # `own` numbers for each thread
    intptr_t own
    bint transposed
    intptr_t batch  # segments a job
    intptr_t parts  # of the blocks of output channels of all groups
    intptr_t slices  # of the quads of vectors


cdef struct Range:  # what one job computes
    intptr_t segment, segments  # the first, and how many
    intptr_t group, begin, end  # which output channels, in blocks
    intptr_t quad, quads_end  # which quads of vectors
    intptr_t step  # from one packed channel to the next
    intptr_t results_step


cdef void order_weights(const Plan* p, real* to, const real* w, bint transposed, intptr_t unit) noexcept nogil:
    """The weights of one block in the order in which they are used: channel, tap, output channel of the block."""
    cdef intptr_t group = unit // blocks_of(p)
    cdef intptr_t begin = begin_of(p, unit % blocks_of(p))
    cdef intptr_t rows = begin_of(p, unit % blocks_of(p) + 1) - begin
    cdef intptr_t row_step = p.kernel if transposed else p.channels * p.kernel
    cdef intptr_t channel_step = p.outputs * p.kernel if transposed else p.kernel
    cdef intptr_t c, t, i
    w += group * p.outputs * p.channels * p.kernel + begin * row_step
    to += (group * p.outputs + begin) * p.channels * p.kernel
    for c in range(p.channels):
        for i in range(rows):
            for t in range(p.kernel):
                to[(c * p.kernel + t) * rows + i] = w[c * channel_step + i * row_step + t]


cdef void order_job(const void* task, Py_ssize_t unit) noexcept nogil:
    cdef const Correlation* c = <const Correlation*>task
    if c.item == sizeof(float):
        order_weights(c.plan, <float*>c.weights, <const float*>c.w, c.transposed, unit)
    else:
        order_weights(c.plan, <double*>c.weights, <const double*>c.w, c.transposed, unit)


cdef inline void run_quads(
    const Plan* p, const Range* job, const real* x, const real* w, const real* b, real* y, real* packed, real* results,
    intptr_t s, intptr_t unit, intptr_t first, intptr_t last
) noexcept nogil:
    """Quads first .. last - 1 of segment number s of the job, for one block of output channels."""
    cdef intptr_t begin = begin_of(p, unit)
    cdef intptr_t rows = begin_of(p, unit + 1) - begin
    cdef intptr_t channel = job.group * p.outputs + begin
    cdef intptr_t image = image_of(p, job.segment + s, sizeof(real))
    cdef intptr_t q
    cdef intptr_t x_step = job.step
    cdef intptr_t y_step = job.results_step
    cdef const intptr_t* position
    cdef const intptr_t* place
    if p.direct_in:
        x += (image * p.groups + job.group) * p.channels * p.source_size
        x_step = p.source_size
    else:
        x = packed + s * p.plane
    if p.direct_out:
        y += (image * p.groups * p.outputs + channel) * p.result_size
        y += (job.segment + s) % p.strips * p.out_move
        y_step = p.result_size
    else:
        y = results + s * p.results
    if b != NULL:
        b += channel
    w += channel * p.channels * p.kernel
    if p.tall:
        for q in range(first, last):
            position = p.position + QUAD * q
            place = p.place + QUAD * q
            tall(
                sizeof(real), p.tall, x + position[0], position[1] - position[0], p.taps, p.kernel // p.tall, w, b,
                y + place[0], place[1] - place[0])
        return
    for q in range(first, last):
        block(
            sizeof(real), <int>rows, x, p.position + QUAD * q, x_step, p.channels, p.taps + 2 * p.runs[2 * q],
            p.runs[2 * q + 1], w, p.kernel, b, y, p.place + QUAD * q, y_step)


cdef void correlate_group(
    const Plan* p, const Range* job, const real* x, const real* w, const real* b, real* y, real* packed
) noexcept nogil:
    """Some segments, and of the output channels of one group some blocks."""
    cdef real* results = packed + p.channels * job.step
    cdef intptr_t c, s, unit, q
    for c in range(p.channels):
        for s in range(job.segments if not p.direct_in else 0):
            pack_segment(
                p, packed + c * job.step + s * p.plane, x, job.group * p.channels + c, job.segment + s)
    if p.direct_out and p.kernel == 1:
        # With one tap a channel, reading the source costs as much as its arithmetic: a quad of it stays in cache for
        # all output channels.
        for s in range(job.segments):
            for q in range(job.quad, job.quads_end):
                for unit in range(job.begin, job.end):
                    run_quads(p, job, x, w, b, y, packed, results, s, unit, q, q + 1)
        return
    for unit in range(job.begin, job.end):
        for s in range(job.segments):
            run_quads(p, job, x, w, b, y, packed, results, s, unit, job.quad, job.quads_end)
        if not p.direct_out:
            for c in range(begin_of(p, unit), begin_of(p, unit + 1)):
                for s in range(job.segments):
                    unpack_segment(
                        p, y, results + (c - begin_of(p, unit)) * job.results_step + s * p.results,
                        job.group * p.outputs + c, job.segment + s)


cdef void correlate_range(const Correlation* c, const real* x, intptr_t index) noexcept nogil:
    """Some segments, one part of the blocks of all groups, and a slice of the quads."""
    cdef const Plan* p = c.plan
    cdef Range job
    cdef intptr_t part = index // c.slices % c.parts
    cdef intptr_t units = p.groups * blocks_of(p)
    cdef intptr_t unit = cut(units, c.parts, part)
    cdef intptr_t end = cut(units, c.parts, part + 1)
    job.quad = cut(p.quads, c.slices, index % c.slices)
    job.quads_end = cut(p.quads, c.slices, index % c.slices + 1)
    job.segment = index // c.slices // c.parts * c.batch
    job.segments = min(c.batch, p.segments - job.segment)
    job.step = c.batch * p.plane
    job.results_step = c.batch * p.results
    while unit < end:
        job.group = unit // blocks_of(p)
        job.begin = unit % blocks_of(p)
        job.end = min(blocks_of(p), job.begin + end - unit)
        correlate_group(
            p, &job, x, <const real*>c.weights, <const real*>c.b, <real*>c.y,
            <real*>c.scratch + threadid() * c.own)
        unit += job.end - job.begin


cdef void correlate_job(const void* task, Py_ssize_t index) noexcept nogil:
    cdef const Correlation* c = <const Correlation*>task
    if c.item == sizeof(float):
        correlate_range(c, <const float*>c.x, index)
    else:
        correlate_range(c, <const double*>c.x, index)


cdef intptr_t correlate_batch(const Plan* p, int threads) noexcept nogil:
    """Segments a job: as many as the cache takes, but so that every thread gets several jobs."""
    return max(1, min(p.fit, p.segments // (4 * threads)))


cdef intptr_t correlate_own(const Plan* p, int threads) noexcept nogil:
    """Numbers of scratch memory for each thread."""
    return aligned(correlate_batch(p, threads) * (p.channels * p.plane + BLOCK_ROWS * p.results))


def correlate_buffer(Layout layout, int threads):
    """How many numbers of scratch memory `correlate` needs."""
    cdef const Plan* p = &layout.plan
    threads = threads_for(p, threads)
    return aligned(weight_count(p)) + threads * correlate_own(p, threads)


def correlate(Layout layout, x, w, b, y, buffer, bint transposed, Py_ssize_t itemsize, int threads):
    """y = the layout's sum over x with the weights w, plus b (or None). All arrays in C order.

    ValueError where one has fewer elements than the layout reads or writes.
    """
    cdef const Plan* p = &layout.plan
    cdef Correlation c
    cdef intptr_t units = p.groups * blocks_of(p)
    cdef intptr_t jobs
    c.plan, c.item, c.transposed = p, itemsize, transposed
    c.x = <const char*>address(x, itemsize, False, source_count(p))
    c.w = <const char*>address(w, itemsize, False, weight_count(p))
    c.b = NULL
    if b is not None:
        c.b = <const char*>address(b, itemsize, False, p.groups * p.outputs)
    c.y = <char*>address(y, itemsize, True, result_count(p))
    c.weights = <char*>address(buffer, itemsize, True, correlate_buffer(layout, threads))
    c.scratch = c.weights + aligned(weight_count(p)) * itemsize
    threads = threads_for(p, threads)
    c.batch, c.own = correlate_batch(p, threads), correlate_own(p, threads)
    c.parts = c.slices = 1
    jobs = ceil_div(p.segments, c.batch)
    while c.parts < units and (jobs * c.parts < 2 * threads or jobs * c.parts * SIGNAL_INTERVAL < products_of(p)):
        c.parts += 1
    jobs *= c.parts
    if p.direct_in and p.direct_out and jobs * SIGNAL_INTERVAL < products_of(p):
        c.slices = min(p.quads, <intptr_t>(products_of(p) / (jobs * SIGNAL_INTERVAL)) + 1)
        jobs *= c.slices
    with nogil:
        parallel_for(
            order_job, &c, 0, units, WEIGHTS // (BLOCK_ROWS * p.channels * p.kernel),
            threads if p.kernel * p.channels * p.outputs > PACK_WORK else 1)
        check_signals()
        parallel_for(correlate_job, &c, 0, jobs, max(threads, <intptr_t>(jobs * share_of(p, threads))), threads)
        check_signals()


# ---- the gradient for the weights ----------------------------------------------------------------------------------


cdef intptr_t weight_batch(const Plan* p) noexcept nogil:
    """Segments that are packed at a time."""
    return max(1, min(p.fit, ceil_div(p.segments, p.chunks)))


cdef intptr_t weight_own(const Plan* p) noexcept nogil:
    """Numbers of scratch memory for each thread."""
    cdef intptr_t channels = min(ceil_div(p.groups * p.channels, p.parts), p.channels)
    return aligned(weight_batch(p) * (channels * p.plane + p.outputs * p.results))


def weight_buffer(Layout layout, int threads):
    """How many numbers of scratch memory `weight_gradient` needs."""
    cdef const Plan* p = &layout.plan
    threads = threads_for(p, threads)
    return (
        aligned(p.chunks * weight_count(p)) + aligned(p.chunks * p.groups * p.outputs) + threads * weight_own(p)
    )


def weight_gradient(Layout layout, dy, x, dw, db, buffer, Py_ssize_t itemsize, int threads):
    """dw, and db (or None): the gradients of the layout's sum for its weights and its bias. All arrays in C order.

    ValueError where one has fewer elements than the layout reads or writes.
    """
    cdef const Plan* p = &layout.plan
    cdef WeightGradient g
    cdef intptr_t jobs = p.chunks * p.parts
    cdef intptr_t longest = ceil_div(p.segments, p.chunks)
    cdef intptr_t per_round
    cdef double share
    g.plan, g.item, g.outputs = p, itemsize, p.groups * p.outputs
    g.x = <const char*>address(x, itemsize, False, source_count(p))
    g.dy = <const char*>address(dy, itemsize, False, result_count(p))
    g.dw = <char*>address(dw, itemsize, True, weight_count(p))
    g.db = NULL if db is None else <char*>address(db, itemsize, True, g.outputs)
    g.chunks_dw = <char*>address(buffer, itemsize, True, weight_buffer(layout, threads))
    g.chunks_db = g.chunks_dw + aligned(p.chunks * weight_count(p)) * itemsize
    g.scratch = g.chunks_db + aligned(p.chunks * g.outputs) * itemsize
    threads = threads_for(p, threads)
    g.batch, g.own = weight_batch(p), weight_own(p)
    share = share_of(p, threads)
    g.step = longest if share == 1 else g.batch * max(1, <intptr_t>(longest * share) // g.batch)
    per_round = max(threads, <intptr_t>(jobs * min(1.0, share * longest / g.step)))
    g.pieces = 1 if p.chunks * weight_count(p) < MERGE_WORK else 4 * threads
    g.done = 0
    with nogil:
        while g.done < longest:
            parallel_for(add_segments, &g, 0, jobs, per_round, threads)
            check_signals()
            g.done += g.step
        parallel_for(add_chunks, &g, 0, g.pieces, g.pieces, threads)
