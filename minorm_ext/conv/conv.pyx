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

from cpython.exc cimport PyErr_CheckSignals
from cython.parallel cimport parallel, prange, threadid
from libc.stdint cimport intptr_t

from minorm_ext.runtime.buffers cimport address
from minorm_ext.conv.plan cimport (
    BLOCK_ROWS, QUAD, VECTOR_BYTES, Plan, begin_of, blocks_of, image_of, pack_segment, real, result_count, source_count,
    unpack_segment, weight_count,
)
from minorm_ext.conv.weights cimport merge, weight_job
from minorm_ext.runtime.jobs cimport NONE, Jobs, deal, take

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

# A wave of jobs computes at most this many multiply-adds a thread before signals are looked at: 0.2 s even without
# vector instructions worth the name.
cdef double WAVE = 5e8
cdef enum:
    WEIGHTS = 1 << 24  # that are brought into order between two looks
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
    return (count + LINE - 1) // LINE * LINE


cdef double products_of(const Plan* p) noexcept nogil:
    """All multiply-adds, and one."""
    return <double>p.images * p.result_size * p.groups * p.outputs * p.channels * p.kernel + 1


cdef intptr_t wave_of(const Plan* p, intptr_t jobs, int threads) noexcept nogil:
    """How many jobs may run between two looks at the signals."""
    return max(threads, <intptr_t>(jobs * min(1.0, threads * WAVE / products_of(p))))


cdef int threads_for(const Plan* p, int threads) noexcept nogil:
    """How many threads are worth waking: each should have some ten microseconds to do."""
    return <int>min(<double>threads, 1 + products_of(p) / WORTH)


# ---- forward, and the gradient for the input -----------------------------------------------------------------------


cdef void pack_weights(const Plan* p, real* to, const real* w, bint transposed, intptr_t unit) noexcept nogil:
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


cdef struct Job:
    intptr_t segment, segments  # the first, and how many
    intptr_t group, begin, end  # which output channels, in blocks
    intptr_t quad, quads_end  # which quads of vectors: all but in a slice
    intptr_t step  # from one packed channel to the next
    intptr_t results_step


cdef inline void run_quads(
    const Plan* p, const Job* job, const real* x, const real* w, const real* b, real* y, real* packed, real* results,
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
    const Plan* p, Job* job, const real* x, const real* w, const real* b, real* y, real* packed
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


cdef void correlate_job(
    const Plan* p, const real* x, const real* w, const real* b, real* y, real* packed, intptr_t batch, intptr_t parts,
    intptr_t slices, intptr_t number
) noexcept nogil:
    """Job number `number`: some segments, one part of the blocks of all groups, and a slice of the quads."""
    cdef Job job
    cdef intptr_t part = number // slices % parts
    cdef intptr_t unit = part * p.groups * blocks_of(p) // parts
    cdef intptr_t end = (part + 1) * p.groups * blocks_of(p) // parts
    job.quad = number % slices * p.quads // slices
    job.quads_end = (number % slices + 1) * p.quads // slices
    job.segment = number // slices // parts * batch
    job.segments = min(batch, p.segments - job.segment)
    job.step = batch * p.plane
    job.results_step = batch * p.results
    while unit < end:
        job.group = unit // blocks_of(p)
        job.begin = unit % blocks_of(p)
        job.end = min(blocks_of(p), job.begin + end - unit)
        correlate_group(p, &job, x, w, b, y, packed)
        unit += job.end - job.begin


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
    return aligned(p.groups * p.outputs * p.channels * p.kernel) + threads * correlate_own(p, threads)


def correlate(Layout layout, x, w, b, y, buffer, bint transposed, Py_ssize_t itemsize, int threads):
    """y = the layout's sum over x with the weights w, plus b (or None). All arrays in C order.

    ValueError where one has fewer elements than the layout reads or writes.
    """
    cdef const Plan* p = &layout.plan
    cdef void* source = address(x, itemsize, False, source_count(p))
    cdef void* weight = address(w, itemsize, False, weight_count(p))
    cdef void* bias = NULL if b is None else address(b, itemsize, False, p.groups * p.outputs)
    cdef void* result = address(y, itemsize, True, result_count(p))
    cdef void* room = address(buffer, itemsize, True, correlate_buffer(layout, threads))
    threads = threads_for(p, threads)
    if itemsize == sizeof(float):
        run_correlate[float](
            p, <const float*>source, <const float*>weight, <const float*>bias, <float*>result, <float*>room, transposed,
            threads)
    else:
        run_correlate[double](
            p, <const double*>source, <const double*>weight, <const double*>bias, <double*>result, <double*>room,
            transposed, threads)


cdef int run_correlate(
    const Plan* p, const real* x, const real* w, const real* b, real* y, real* buffer, bint transposed, int threads
) except -1:
    cdef intptr_t units = p.groups * blocks_of(p)
    cdef intptr_t batch = correlate_batch(p, threads)
    cdef intptr_t own = correlate_own(p, threads)
    cdef intptr_t parts = 1
    cdef intptr_t slices = 1
    cdef intptr_t jobs = (p.segments + batch - 1) // batch
    cdef intptr_t first = 0
    cdef Jobs dealt
    cdef intptr_t last, wave
    cdef intptr_t job = NONE
    cdef real* packed = buffer + aligned(p.groups * p.outputs * p.channels * p.kernel)
    while parts < units and (jobs * parts < 2 * threads or jobs * parts * WAVE < products_of(p)):
        parts += 1
    jobs *= parts
    if p.direct_in and p.direct_out and jobs * WAVE < products_of(p):
        slices = min(p.quads, <intptr_t>(products_of(p) / (jobs * WAVE)) + 1)
        jobs *= slices
    wave = max(1, WEIGHTS // (BLOCK_ROWS * p.channels * p.kernel))
    while first < units:
        last = min(units, first + wave)
        with nogil:
            for job in prange(first, last, num_threads=threads if p.kernel * p.channels * p.outputs > 8192 else 1):
                pack_weights(p, buffer, w, transposed, job)
        first = last
        PyErr_CheckSignals()
    first = 0
    wave = wave_of(p, jobs, threads)
    while first < jobs:
        last = min(jobs, first + wave)
        with nogil:
            deal(&dealt, first, last, threads)
            with parallel(num_threads=threads):
                job = take(&dealt)
                while job != NONE:
                    correlate_job(p, x, buffer, b, y, packed + threadid() * own, batch, parts, slices, job)
                    job = take(&dealt)
        first = last
        PyErr_CheckSignals()
    return 0


# ---- the gradient for the weights ----------------------------------------------------------------------------------


cdef intptr_t weight_batch(const Plan* p) noexcept nogil:
    """Segments that are packed at a time."""
    return max(1, min(p.fit, (p.segments + p.chunks - 1) // p.chunks))


cdef intptr_t weight_own(const Plan* p) noexcept nogil:
    """Numbers of scratch memory for each thread."""
    cdef intptr_t channels = min((p.groups * p.channels + p.parts - 1) // p.parts, p.channels)
    return aligned(weight_batch(p) * (channels * p.plane + p.outputs * p.results))


def weight_buffer(Layout layout, int threads):
    """How many numbers of scratch memory `weight_gradient` needs."""
    cdef const Plan* p = &layout.plan
    threads = threads_for(p, threads)
    cdef intptr_t outputs = p.groups * p.outputs
    return (
        aligned(p.chunks * outputs * p.channels * p.kernel) + aligned(p.chunks * outputs) + threads * weight_own(p)
    )


def weight_gradient(Layout layout, dy, x, dw, db, buffer, Py_ssize_t itemsize, int threads):
    """dw, and db (or None): the gradients of the layout's sum for its weights and its bias. All arrays in C order.

    ValueError where one has fewer elements than the layout reads or writes.
    """
    cdef const Plan* p = &layout.plan
    cdef void* source = address(x, itemsize, False, source_count(p))
    cdef void* gradient = address(dy, itemsize, False, result_count(p))
    cdef void* weight = address(dw, itemsize, True, weight_count(p))
    cdef void* bias = NULL if db is None else address(db, itemsize, True, p.groups * p.outputs)
    cdef void* room = address(buffer, itemsize, True, weight_buffer(layout, threads))
    threads = threads_for(p, threads)
    if itemsize == sizeof(float):
        run_weights[float](
            p, <const float*>source, <const float*>gradient, <float*>weight, <float*>bias, <float*>room, threads)
    else:
        run_weights[double](
            p, <const double*>source, <const double*>gradient, <double*>weight, <double*>bias, <double*>room, threads)


cdef int run_weights(
    const Plan* p, const real* x, const real* dy, real* dw, real* db, real* buffer, int threads
) except -1:
    cdef intptr_t outputs = p.groups * p.outputs
    cdef intptr_t count = outputs * p.channels * p.kernel
    cdef intptr_t batch = weight_batch(p)
    cdef intptr_t own = weight_own(p)
    cdef real* biases = buffer + aligned(p.chunks * count)
    cdef real* packed = biases + aligned(p.chunks * outputs)
    cdef intptr_t jobs = p.chunks * p.parts
    cdef intptr_t longest = (p.segments + p.chunks - 1) // p.chunks
    cdef intptr_t turn = longest  # segments of every chunk at a time
    cdef intptr_t taken = 0
    cdef double share = min(1.0, threads * WAVE / products_of(p))  # of the work, between two looks at the signals
    cdef Jobs dealt
    cdef intptr_t wave, first, last, pieces
    cdef intptr_t job = NONE
    if db == NULL:
        biases = NULL
    if share < 1:
        turn = batch * max(1, <intptr_t>(longest * share) // batch)
    wave = max(threads, <intptr_t>(jobs * min(1.0, share * longest / turn)))
    while taken < longest:
        first = 0
        while first < jobs:
            last = min(jobs, first + wave)
            with nogil:
                deal(&dealt, first, last, threads)
                with parallel(num_threads=threads):
                    job = take(&dealt)
                    while job != NONE:
                        weight_job(p, x, dy, buffer, biases, packed + threadid() * own, batch, job, taken, turn)
                        job = take(&dealt)
            first = last
            PyErr_CheckSignals()
        taken += turn
    pieces = 1 if p.chunks * count < 100000 else 4 * threads
    with nogil:
        for job in prange(pieces, num_threads=threads if pieces > 1 else 1):
            merge(dw, buffer, count, p.chunks, job * count // pieces, (job + 1) * count // pieces)
        if db != NULL:
            merge(db, biases, outputs, p.chunks, 0, outputs)
    return 0
