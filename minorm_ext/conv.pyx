# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False, binding=False
# Convolution without im2col: pack the source once, then every tap of the kernel is a shifted read of it.
#
#     y[o][p] = b[o] + sum over channels c and taps t of  w[o][c][t] * packed[c][position[p] + shift[t]]
#
# A job packs the channels of a few images (or of a strip of one) into a buffer that fits the second cache, and computes
# all output channels from it, up to six at a time: a block of 6 channels x 4 vectors of results stays in registers
# while all channels and taps pass by (conv_block.h). What the lanes of a vector are, neighbouring pixels or images, and
# where everything lies, is the layout's matter: minorm/kernels/cpu/conv_layout.py explains and fills the tables.
#
# `correlate` serves the forward pass and the gradient for the input, which differ by their layout and by which axis of
# the weights is summed over. `weight_gradient` packs the source the same way, and the gradients as results would be;
# each weight is then a sum over vectors of results. The work is cut into chunks of segments that depend on shapes
# alone, and the chunks are added up in their order, so that no bit depends on the number of threads.

from cpython.exc cimport PyErr_CheckSignals
from cython.parallel cimport prange, threadid
from libc.stdint cimport intptr_t
from libc.string cimport memset

from minorm_ext.buffers cimport address

cdef extern from "conv_blocks.h" nogil:
    enum:
        VECTORS_OF_BLOCK "QUAD"
        BLOCK_ROWS
        VECTOR_BYTES
    void block(
        size_t item, int rows, const void* x, const intptr_t* position, intptr_t plane, intptr_t channels,
        const intptr_t* taps, intptr_t tap_count, const void* w, intptr_t kernel, const void* bias, void* y,
        const intptr_t* place, intptr_t y_step)
    void weights(
        size_t item, int rows, const void* x, const intptr_t* shift, const intptr_t* position, intptr_t x_segment,
        const void* dy, const intptr_t* place, intptr_t dy_step, intptr_t dy_segment, intptr_t first, intptr_t last,
        intptr_t segments, void* dw, intptr_t dw_step, int real_taps)
    void row_in(
        size_t item, void* to, const void* row, intptr_t width, intptr_t first, intptr_t step, intptr_t count)
    void row_out(size_t item, void* to, const void* source, intptr_t step, intptr_t count)
    void images_in(
        size_t item, void* to, const intptr_t* place, const void* source, intptr_t image, intptr_t images,
        intptr_t pixels)
    void images_out(size_t item, void* to, const void* source, intptr_t image, intptr_t images, intptr_t pixels)
    double total(size_t item, const void* x, intptr_t count)
    int taps_of_block(int rows)

ctypedef fused real:
    float
    double

QUAD = VECTORS_OF_BLOCK

# A wave of jobs computes at most this many multiply-adds a thread before signals are looked at: 0.2 s even without
# vector instructions worth the name.
cdef double WAVE = 5e8


def lanes(Py_ssize_t itemsize):
    """How many numbers of this size a vector holds."""
    return VECTOR_BYTES // itemsize


cdef class Layout:
    """The tables of conv_layout.py and the shapes, as the kernel reads them."""

    cdef intptr_t images, groups, channels, outputs, kernel, source_size, result_size
    cdef intptr_t[3] source, result
    cdef bint by_image
    cdef intptr_t segments, plane, results, strips, along, source_move, result_move, row_step, row_length, vectors
    cdef intptr_t rows_in_count, rows_out_count, zeros_count, quads
    cdef const intptr_t* rows_in
    cdef const intptr_t* rows_out
    cdef const intptr_t* pixels_in
    cdef const intptr_t* zeros
    cdef const intptr_t* position
    cdef const intptr_t* place
    cdef const intptr_t* runs
    cdef const intptr_t* taps
    cdef const intptr_t* ranges
    cdef intptr_t fit, chunks, parts, run
    cdef object tables

    def __init__(self, dict tables, dict sizes):
        self.tables = tables  # the arrays live as long as the pointers
        self.images, self.groups, self.channels = sizes["images"], sizes["groups"], sizes["channels"]
        self.outputs, self.kernel = sizes["outputs"], sizes["kernel"]
        for i in range(3):
            self.source[i], self.result[i] = sizes["source"][i], sizes["result"][i]
        self.source_size = self.source[0] * self.source[1] * self.source[2]
        self.result_size = self.result[0] * self.result[1] * self.result[2]
        self.fit, self.chunks, self.parts, self.run = sizes["fit"], sizes["chunks"], sizes["parts"], sizes["run"]
        self.by_image, self.segments, self.plane = tables["by_image"], tables["segments"], tables["plane"]
        self.results, self.strips, self.along = tables["results"], tables["strips"], tables["along"]
        self.source_move, self.result_move = tables["source_move"], tables["result_move"]
        self.row_step, self.row_length = tables["row_step"], tables["row_length"]
        self.vectors, self.quads = tables["vectors"], len(tables["runs"])
        self.rows_in_count, self.rows_out_count = len(tables["rows_in"]), len(tables["rows_out"])
        self.zeros_count = len(tables["zeros"])
        self.rows_in, self.rows_out = pointer(tables, "rows_in"), pointer(tables, "rows_out")
        self.pixels_in, self.zeros = pointer(tables, "pixels_in"), pointer(tables, "zeros")
        self.position, self.place = pointer(tables, "position"), pointer(tables, "place")
        self.runs, self.taps = pointer(tables, "runs"), pointer(tables, "taps")
        self.ranges = pointer(tables, "ranges")


cdef const intptr_t* pointer(dict tables, str name) except? NULL:
    return <const intptr_t*>address(tables[name], sizeof(intptr_t))


# ---- packing -------------------------------------------------------------------------------------------------------


cdef void pack(
    Layout p, real* to, intptr_t step, const real* x, intptr_t all_channels, intptr_t first, intptr_t channels,
    intptr_t segment, intptr_t segments
) noexcept nogil:
    """Channels first, first + 1, ... of some segments of the source; `step` from one packed channel to the next."""
    cdef intptr_t c, s, i, image, d, h, strip
    cdef intptr_t move_d = 0
    cdef intptr_t move_h = 0
    cdef const real* source
    cdef const intptr_t* row
    cdef real* plane
    for c in range(channels):
        for s in range(segments):
            plane = to + c * step + s * p.plane
            for i in range(p.zeros_count):
                memset(plane + p.zeros[2 * i], 0, p.zeros[2 * i + 1] * sizeof(real))
            if p.by_image:
                image = (segment + s) * (VECTOR_BYTES // <intptr_t>sizeof(real))
                source = x + (image * all_channels + first + c) * p.source_size
                images_in(
                    sizeof(real), plane, p.pixels_in, source, all_channels * p.source_size, p.images - image,
                    p.source_size)
                continue
            image = (segment + s) // p.strips
            strip = (segment + s) % p.strips
            source = x + (image * all_channels + first + c) * p.source_size
            if p.along == 0:
                move_d = strip * p.source_move
            else:
                move_h = strip * p.source_move
            for i in range(p.rows_in_count):
                row = p.rows_in + 4 * i
                d = row[1] + move_d
                h = row[2] + move_h
                if 0 <= d < p.source[0] and 0 <= h < p.source[1]:
                    row_in(
                        sizeof(real), plane + row[0], source + (d * p.source[1] + h) * p.source[2], p.source[2], row[3],
                        p.row_step, p.row_length)
                else:
                    memset(plane + row[0], 0, p.row_length * sizeof(real))


cdef void unpack(
    Layout p, real* y, intptr_t all_channels, intptr_t first, intptr_t channels, intptr_t segment, intptr_t segments,
    real* results, intptr_t step, bint back
) noexcept nogil:
    """Results to channels first, first + 1, ... of y; or back, from y to results, with zeros where there are none."""
    cdef intptr_t c, s, i, image, d, h, strip
    cdef intptr_t move_d = 0
    cdef intptr_t move_h = 0
    cdef real* target
    cdef real* plane
    cdef const intptr_t* row
    for c in range(channels):
        for s in range(segments):
            plane = results + c * step + s * p.results
            if p.by_image:
                image = (segment + s) * (VECTOR_BYTES // <intptr_t>sizeof(real))
                target = y + (image * all_channels + first + c) * p.result_size
                if back:
                    images_in(
                        sizeof(real), plane, p.place, target, all_channels * p.result_size, p.images - image,
                        p.result_size)
                else:
                    images_out(
                        sizeof(real), target, plane, all_channels * p.result_size, p.images - image, p.result_size)
                continue
            image = (segment + s) // p.strips
            strip = (segment + s) % p.strips
            target = y + (image * all_channels + first + c) * p.result_size
            if p.along == 0:
                move_d = strip * p.result_move
            else:
                move_h = strip * p.result_move
            if back:
                memset(plane, 0, p.results * sizeof(real))
            for i in range(p.rows_out_count):
                row = p.rows_out + 6 * i
                d = row[1] + move_d
                h = row[2] + move_h
                if d >= p.result[0] or h >= p.result[1]:
                    continue
                d = (d * p.result[1] + h) * p.result[2] + row[3]
                if back:
                    row_out(sizeof(real), plane + row[0], target + d, 1, row[5])  # forward, the step is 1
                else:
                    row_out(sizeof(real), target + d, plane + row[0], row[4], row[5])


# ---- forward, and the gradient for the input -----------------------------------------------------------------------


cdef inline intptr_t blocks_of(intptr_t outputs) noexcept nogil:
    """How many blocks the output channels of a group are split into, as evenly as possible."""
    return (outputs + BLOCK_ROWS - 1) // BLOCK_ROWS


cdef void pack_weights(Layout p, real* to, const real* w, bint transposed, intptr_t unit) noexcept nogil:
    """The weights of one block in the order in which they are used: channel, tap, output channel of the block."""
    cdef intptr_t blocks = blocks_of(p.outputs)
    cdef intptr_t group = unit // blocks
    cdef intptr_t begin = unit % blocks * p.outputs // blocks
    cdef intptr_t rows = (unit % blocks + 1) * p.outputs // blocks - begin
    cdef intptr_t row_step = p.kernel if transposed else p.channels * p.kernel
    cdef intptr_t channel_step = p.outputs * p.kernel if transposed else p.kernel
    cdef intptr_t c, t, i
    w += group * p.outputs * p.channels * p.kernel + begin * row_step
    to += (group * p.outputs + begin) * p.channels * p.kernel
    for c in range(p.channels):
        for i in range(rows):
            for t in range(p.kernel):
                to[(c * p.kernel + t) * rows + i] = w[c * channel_step + i * row_step + t]


cdef void correlate_job(
    Layout p, const real* x, const real* w, const real* b, real* y, real* buffer, intptr_t batch, intptr_t parts,
    intptr_t job
) noexcept nogil:
    """Some segments, and of their output channels one part."""
    cdef intptr_t segment = job // parts * batch
    cdef intptr_t segments = min(batch, p.segments - segment)
    cdef intptr_t blocks = blocks_of(p.outputs)
    cdef intptr_t units = p.groups * blocks
    cdef intptr_t part = job % parts
    cdef intptr_t step = batch * p.plane
    cdef intptr_t results_step = batch * p.results
    cdef real* results = buffer + p.channels * step
    cdef intptr_t packed = -1
    cdef intptr_t unit, group, begin, rows, first, s, q
    cdef const real* bias
    for unit in range(part * units // parts, (part + 1) * units // parts):
        group = unit // blocks
        begin = unit % blocks * p.outputs // blocks
        rows = (unit % blocks + 1) * p.outputs // blocks - begin
        first = group * p.outputs + begin
        bias = b
        if bias != NULL:
            bias += first
        if group != packed:
            pack(p, buffer, step, x, p.groups * p.channels, group * p.channels, p.channels, segment, segments)
            packed = group
        for s in range(segments):
            for q in range(p.quads):
                block(
                    sizeof(real), <int>rows, buffer + s * p.plane, p.position + VECTORS_OF_BLOCK * q, step, p.channels,
                    p.taps + 2 * p.runs[2 * q], p.runs[2 * q + 1], w + first * p.channels * p.kernel, p.kernel, bias,
                    results + s * p.results, p.place + VECTORS_OF_BLOCK * q, results_step)
        unpack(p, y, p.groups * p.outputs, first, rows, segment, segments, results, results_step, False)


def correlate_buffer(Layout p, int threads):
    """How many numbers of scratch memory `correlate` needs."""
    cdef intptr_t batch = correlate_batch(p, threads)
    cdef intptr_t weights = p.groups * p.outputs * p.channels * p.kernel
    return aligned(weights) + threads * aligned(batch * (p.channels * p.plane + BLOCK_ROWS * p.results))


cdef enum:
    ALIGNED = 16  # numbers in a cache line, at most


cdef inline intptr_t aligned(intptr_t count) noexcept nogil:
    return (count + ALIGNED - 1) // ALIGNED * ALIGNED


cdef intptr_t correlate_batch(Layout p, int threads) noexcept nogil:
    """Segments a job: as many as the cache takes, but so that every thread gets several jobs."""
    return max(1, min(p.fit, p.segments // (4 * threads)))


def correlate(Layout p, x, w, b, y, buffer, bint transposed, Py_ssize_t itemsize, int threads):
    """y = the sum of the layout `p` over x with the weights w, plus b (or None). All arrays in C order."""
    cdef void* bias = NULL if b is None else address(b, itemsize)
    if itemsize == sizeof(float):
        run_correlate[float](
            p, <const float*>address(x, itemsize), <const float*>address(w, itemsize), <const float*>bias,
            <float*>address(y, itemsize, True), <float*>address(buffer, itemsize, True), transposed, threads)
    else:
        run_correlate[double](
            p, <const double*>address(x, itemsize), <const double*>address(w, itemsize), <const double*>bias,
            <double*>address(y, itemsize, True), <double*>address(buffer, itemsize, True), transposed, threads)


cdef int run_correlate(
    Layout p, const real* x, const real* w, const real* b, real* y, real* buffer, bint transposed, int threads
) except -1:
    cdef intptr_t units = p.groups * blocks_of(p.outputs)
    cdef intptr_t batch = correlate_batch(p, threads)
    cdef intptr_t parts = 1
    cdef intptr_t jobs = (p.segments + batch - 1) // batch
    cdef intptr_t own = aligned(batch * (p.channels * p.plane + BLOCK_ROWS * p.results))
    cdef intptr_t first = 0
    cdef intptr_t last, wave, job
    cdef real* buffers = buffer + aligned(p.groups * p.outputs * p.channels * p.kernel)
    while jobs * parts < 2 * threads and parts < units:
        parts += 1
    jobs *= parts
    wave = wave_of(p, jobs, threads)
    with nogil:
        for job in prange(units, num_threads=threads if p.kernel * p.channels * p.outputs > 8192 else 1):
            pack_weights(p, buffer, w, transposed, job)
    while first < jobs:
        last = min(jobs, first + wave)
        with nogil:
            for job in prange(first, last, num_threads=threads, schedule="dynamic", chunksize=1):
                correlate_job(p, x, buffer, b, y, buffers + threadid() * own, batch, parts, job)
        first = last
        PyErr_CheckSignals()
    return 0


cdef intptr_t wave_of(Layout p, intptr_t jobs, int threads) noexcept nogil:
    """How many jobs may run between two looks at the signals."""
    cdef double products = <double>p.images * p.result_size * p.groups * p.outputs * p.channels * p.kernel
    return max(threads, <intptr_t>(jobs * min(1.0, threads * WAVE / (products + 1))))


# ---- the gradient for the weights ----------------------------------------------------------------------------------


cdef void weight_job(
    Layout p, const real* x, const real* dy, real* dw, real* db, real* buffer, intptr_t batch, intptr_t job
) noexcept nogil:
    """One chunk of segments, and of the input channels one part: into the chunk's own dw and db."""
    cdef intptr_t chunk = job // p.parts
    cdef intptr_t part = job % p.parts
    cdef intptr_t begin = chunk * p.segments // p.chunks
    cdef intptr_t end = (chunk + 1) * p.segments // p.chunks
    cdef intptr_t units = p.groups * p.channels
    cdef intptr_t unit = part * units // p.parts
    cdef intptr_t units_end = (part + 1) * units // p.parts
    cdef intptr_t step = batch * p.plane
    cdef intptr_t dy_step = batch * p.results
    cdef real* gradients = buffer + min(units_end - unit, p.channels) * step
    cdef intptr_t group, channel, channels, segment, segments, o
    dw += chunk * p.groups * p.outputs * p.channels * p.kernel
    if db != NULL:
        db += chunk * p.groups * p.outputs
    while unit < units_end:
        group = unit // p.channels
        channel = unit % p.channels
        channels = min(units_end - unit, p.channels - channel)
        for o in range(p.outputs):
            memset(
                dw + ((group * p.outputs + o) * p.channels + channel) * p.kernel, 0,
                channels * p.kernel * sizeof(real))
            if db != NULL and channel == 0:
                db[group * p.outputs + o] = 0
        segment = begin
        while segment < end:
            segments = min(batch, end - segment)
            pack(p, buffer, step, x, p.groups * p.channels, unit, channels, segment, segments)
            unpack(
                p, <real*>dy, p.groups * p.outputs, group * p.outputs, p.outputs, segment, segments, gradients, dy_step,
                True)
            if db != NULL and channel == 0:
                for o in range(p.outputs):
                    db[group * p.outputs + o] += <real>total(
                        sizeof(real), gradients + o * dy_step, segments * p.results)
            weight_sums(p, buffer, step, gradients, dy_step, segments, channels,
                        dw + (group * p.outputs * p.channels + channel) * p.kernel)
            segment += segments
        unit += channels


cdef void weight_sums(
    Layout p, const real* x, intptr_t step, const real* dy, intptr_t dy_step, intptr_t segments, intptr_t channels,
    real* dw
) noexcept nogil:
    """dw[o][c][t] += the sum over all vectors of dy[o] * x[c] shifted by t, block by block."""
    cdef intptr_t blocks = blocks_of(p.outputs)
    cdef intptr_t b, o, k, i, c, t, s, first, last, found
    cdef int rows, taps
    cdef intptr_t[16] shift
    s = 0
    while s < segments:
        for b in range(blocks):
            o = b * p.outputs // blocks
            rows = <int>((b + 1) * p.outputs // blocks - o)
            taps = taps_of_block(rows)
            k = 0
            while k < channels * p.kernel:
                found = min(taps, channels * p.kernel - k)
                first = p.vectors
                last = 0
                for i in range(found):
                    c = (k + i) // p.kernel
                    t = (k + i) % p.kernel
                    shift[i] = c * step + p.ranges[3 * t]
                    first = min(first, p.ranges[3 * t + 1])
                    last = max(last, p.ranges[3 * t + 2])
                weights(
                    sizeof(real), rows, x + s * p.plane, shift, p.position, p.plane, dy + o * dy_step + s * p.results,
                    p.place, dy_step, p.results, first, last, min(p.run, segments - s),
                    dw + o * p.channels * p.kernel + k, p.channels * p.kernel, <int>found)
                k += taps
        s += p.run


cdef void merge(
    real* to, const real* chunks, intptr_t count, intptr_t number, intptr_t begin, intptr_t end
) noexcept nogil:
    """to[begin .. end - 1] = the chunks' sums, in the order of the chunks."""
    cdef intptr_t i, c
    for i in range(begin, end):
        to[i] = chunks[i]
    for c in range(1, number):
        for i in range(begin, end):
            to[i] += chunks[c * count + i]


cdef intptr_t weight_batch(Layout p) noexcept nogil:
    return max(1, min(p.fit, (p.segments + p.chunks - 1) // p.chunks))


cdef intptr_t weight_buffer_of_thread(Layout p) noexcept nogil:
    cdef intptr_t units = (p.groups * p.channels + p.parts - 1) // p.parts
    return aligned(weight_batch(p) * (min(units, p.channels) * p.plane + p.outputs * p.results))


def weight_buffer(Layout p, int threads):
    """How many numbers of scratch memory `weight_gradient` needs."""
    cdef intptr_t outputs = p.groups * p.outputs
    return (
        aligned(p.chunks * outputs * p.channels * p.kernel) + aligned(p.chunks * outputs)
        + threads * weight_buffer_of_thread(p)
    )


def weight_gradient(Layout p, dy, x, dw, db, buffer, Py_ssize_t itemsize, int threads):
    """dw, and db (or None): the gradients of the layout's sum for its weights and its bias."""
    cdef void* bias = NULL if db is None else address(db, itemsize, True)
    if itemsize == sizeof(float):
        run_weights[float](
            p, <const float*>address(x, itemsize), <const float*>address(dy, itemsize),
            <float*>address(dw, itemsize, True), <float*>bias, <float*>address(buffer, itemsize, True), threads)
    else:
        run_weights[double](
            p, <const double*>address(x, itemsize), <const double*>address(dy, itemsize),
            <double*>address(dw, itemsize, True), <double*>bias, <double*>address(buffer, itemsize, True), threads)


cdef int run_weights(
    Layout p, const real* x, const real* dy, real* dw, real* db, real* buffer, int threads
) except -1:
    cdef intptr_t outputs = p.groups * p.outputs
    cdef intptr_t count = outputs * p.channels * p.kernel
    cdef intptr_t batch = weight_batch(p)
    cdef intptr_t own = weight_buffer_of_thread(p)
    cdef real* chunks = buffer
    cdef real* biases = chunks + aligned(p.chunks * count)
    cdef real* buffers = biases + aligned(p.chunks * outputs)
    cdef intptr_t jobs = p.chunks * p.parts
    cdef intptr_t wave = wave_of(p, jobs, threads)
    cdef intptr_t first = 0
    cdef intptr_t last, job, pieces
    if db == NULL:
        biases = NULL
    while first < jobs:
        last = min(jobs, first + wave)
        with nogil:
            for job in prange(first, last, num_threads=threads, schedule="dynamic", chunksize=1):
                weight_job(p, x, dy, chunks, biases, buffers + threadid() * own, batch, job)
        first = last
        PyErr_CheckSignals()
    pieces = 1 if p.chunks * count < 100000 else 4 * threads
    with nogil:
        for job in prange(pieces, num_threads=threads if pieces > 1 else 1):
            merge(dw, chunks, count, p.chunks, job * count // pieces, (job + 1) * count // pieces)
        if db != NULL:
            merge(db, biases, outputs, p.chunks, 0, outputs)
    return 0
