# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False, binding=False
# Matrix products and convolutions of bytes, signed or not, summed exactly in int32. The innermost block is
# integer_block.h; integer_jobs.pxd packs both sides and deals the work out to jobs.

from libc.stdint cimport int16_t, int32_t, intptr_t, uint8_t
from libc.string cimport memset

from minorm_ext.products.integer_jobs cimport (
    DEPTHWISE, LIGHT, PANEL, Depthwise, DepthwiseJobs, Ends, IntegerProduct, Panels, bytes_of_floats, bytes_of_sums,
    cell_group, depthwise_job, floats_of_bytes, matrix_job, pack_job, panel_cells, panels_of, plane_cells, plane_job,
    sum_cells, sums_out,
)
from minorm_ext.products.plan cimport Planes, fill_planes, round_of, segments_of, threads_for
from minorm_ext.runtime.buffers cimport address
from minorm_ext.runtime.jobs cimport parallel_for
from minorm_ext.runtime.numbers cimport ceil_div

COLUMNS = PANEL  # columns of a panel
GROUP = cell_group()  # numbers of a cell
IS_LIGHT_WORTH = bool(LIGHT) and GROUP == 2
LANES = PANEL // 2 if DEPTHWISE else 0  # of a vector; 0 if there are no kernels for depthwise convolutions

cdef enum:
    MOST_ROWS = 96               # rows of a job: a multiple of the rows of a block at every level
    LEFT = 1 << 17               # cells of these, at most
    AT_ONCE = 1024               # numbers that become floats on the way from bytes to bytes
    GAP = 16                     # cells between packed rows, so that they do not share a set of the cache


cdef class Weights:
    """Holds w, (groups, outputs, channels, taps) with these steps between its bytes, in packed panels.

    flip     128 if w is unsigned, else 0: the panels hold w - flip
    light    True if the absolute stored values of two channels that share a cell add up to 128 at most
    totals   an int32 array, PANEL numbers for each panel; it is filled with the sum of each output's stored numbers
    """

    cdef Panels panels
    cdef object memory, totals

    def __init__(self, w, shape, steps, int flip, bint light, int32, empty, int threads):
        cdef Panels* p = &self.panels
        cdef intptr_t last, units
        p.groups, p.outputs, p.channels, p.taps = shape
        p.group_step, p.output_step, p.channel_step, p.tap_step = steps
        last = ((p.groups - 1) * p.group_step + (p.outputs - 1) * p.output_step + (p.channels - 1) * p.channel_step
                + (p.taps - 1) * p.tap_step)
        p.w = <const uint8_t*>address(w, 1, False, last + 1)
        p.flip, p.quads = flip, cell_group() == 4
        p.group = 4 if p.quads or light else 2
        p.cells = ceil_div(p.channels, p.group)
        p.depth = p.taps * p.cells
        units = p.groups * panels_of(p)
        self.memory, self.totals = empty((units * panel_cells(p),), int32), empty((units * PANEL,), int32)
        p.panels = <int32_t*>address(self.memory, 4, True)
        p.totals = <int32_t*>address(self.totals, 4, True)
        threads = threads_for(8.0 * units * panel_cells(p), threads)
        with nogil:
            parallel_for(pack_job, p, 0, units, units, threads)

    @property
    def group(self):
        """Return how many numbers a cell holds."""
        return self.panels.group

    def column_totals(self):
        """Return the sum of the stored numbers of each output of each group: (groups, outputs)."""
        return self.totals.reshape(self.panels.groups, -1)[:, :self.panels.outputs]


cdef int take_ends(Ends* to, ends, intptr_t count) except -1:
    """Read ends = (offset, w_zero or None, (scale, zero, low, high) or None), which says how sums become results.

    Each array has `count` numbers, one for each output. Return the bytes of a result.
    """
    offset, w_zero, narrowed = ends
    to.offset = <const int32_t*>address(offset, 4, False, count)
    to.w_zero = NULL
    to.scale = NULL
    if w_zero is not None:
        to.w_zero = <const int32_t*>address(w_zero, 4, False, count)
    if narrowed is None:
        return 4
    scale, to.zero, to.low, to.high = narrowed
    to.scale = <const float*>address(scale, 4, False, count)
    return 1


def multiply(x, Weights weights, int flip, ends, y, intptr_t rows, empty, int32, int threads):
    """y = x w: x (groups, rows, channels) and y (groups, rows, outputs) in C order, weights of one tap.

    flip     128 if x is signed, else 0: products use x + flip as unsigned bytes
    """
    cdef IntegerProduct p
    cdef const Panels* w = &weights.panels
    cdef intptr_t jobs, i
    cdef double work
    p.w, p.flip, p.zero, p.rows = w, flip, 0, rows
    p.x = <const uint8_t*>address(x, 1, False, w.groups * rows * w.channels)
    p.itemsize = take_ends(&p.ends, ends, w.groups * w.outputs)
    p.y = <char*>address(y, p.itemsize, True, w.groups * rows * w.outputs)
    p.a_row = ceil_div(w.cells, GAP) * GAP + GAP
    p.block_rows = max(<intptr_t>1, min(min(<intptr_t>MOST_ROWS, rows), LEFT // p.a_row))
    p.row_blocks = ceil_div(rows, p.block_rows)
    work = <double>w.groups * rows * w.outputs * w.channels
    threads = threads_for(work, threads)
    jobs = w.groups * p.row_blocks
    p.parts = max(<intptr_t>1, min(panels_of(w), 2 * threads // jobs)) if threads > 1 else 1
    jobs *= p.parts
    p.own = ceil_div((p.block_rows * p.a_row + sum_cells(p.block_rows)) * sizeof(int32_t), 64) * 64
    memory = empty((ceil_div(threads * p.own, 4) + p.block_rows + w.cells,), int32)
    p.scratch = <char*>address(memory, 4, True)
    cdef int32_t* places = <int32_t*>(p.scratch + threads * p.own)
    cdef int32_t* steps = places + p.block_rows
    for i in range(p.block_rows):
        places[i] = <int32_t>(i * p.a_row)
    for i in range(w.cells):
        steps[i] = <int32_t>i
    p.places, p.steps = places, steps
    with nogil:
        parallel_for(matrix_job, &p, 0, jobs, round_of(jobs, work, threads), threads)


cdef class IntegerConvolution:
    """Holds the tables of conv_products.py, which are made for cells instead of channels."""

    cdef Planes planes
    cdef object tables
    cdef double work  # number of multiplications / 4

    def __init__(self, dict tables, dict sizes):
        self.tables = tables  # the arrays live as long as the pointers
        fill_planes(&self.planes, tables, sizes)
        self.work = <double>self.planes.images * sizes["work"]

    def correlate(self, x, Weights weights, int flip, int zero, ends, y, empty, int32, int threads):
        """y = the sum over x with the weights. x and y in C order; zero is x's zero point in its stored form."""
        cdef IntegerProduct p
        cdef const Planes* o = &self.planes
        cdef const Panels* w = &weights.panels
        cdef intptr_t jobs
        cdef double work = self.work * w.group
        if (o.groups, o.outputs, o.channels, o.kernel) != (w.groups, w.outputs, w.cells, w.taps):
            raise ValueError("conv: the weights are packed for another shape")
        p.w, p.planes, p.flip, p.zero = w, o, flip, zero
        p.x = <const uint8_t*>address(x, 1, False, o.images * o.groups * w.channels * o.source_size)
        p.itemsize = take_ends(&p.ends, ends, w.groups * w.outputs)
        p.y = <char*>address(y, p.itemsize, True, o.images * o.groups * o.outputs * o.result_size)
        p.steps = <const int32_t*>address(self.tables["distances"], 4, False, w.depth)
        if plane_cells(&p) >= 1 << 31:
            raise ValueError(
                f"conv: an image, or a strip of it, takes {plane_cells(&p)} cells with its padding; "
                "expected less than 2^31")
        threads = threads_for(work, threads)
        jobs = segments_of(o) * o.groups
        p.parts = max(<intptr_t>1, min(panels_of(w), 2 * threads // jobs)) if threads > 1 else 1
        jobs *= p.parts
        p.own = ceil_div((plane_cells(&p) + sum_cells(o.most_rows)) * sizeof(int32_t), 64) * 64
        memory = empty((threads * p.own // 4,), int32)
        p.scratch = <char*>address(memory, 4, True)
        with nogil:
            parallel_for(plane_job, &p, 0, jobs, round_of(jobs, work, threads), threads)


cdef class DepthwiseConvolution:
    """Computes a depthwise convolution over two axes. The weights are int16, with their zero points already subtracted.

    sizes    height, width, out_height, out_width, stride_h, stride_w, low_h, low_w, rows, pitch: as depthwise.h says
    taps     int32, where each tap begins in the packed plane, two for each pair
    weights  int16, (channels * multiple, 2 * pairs)
    """

    cdef DepthwiseJobs jobs
    cdef object taps, weights
    cdef intptr_t images

    def __init__(self, intptr_t images, intptr_t channels, intptr_t multiple, sizes, taps, weights):
        cdef DepthwiseJobs* p = &self.jobs
        cdef Depthwise* d = &p.shape
        self.taps, self.weights, self.images = taps, weights, images  # they live as long as the pointers
        p.channels, p.multiple = channels, multiple
        (d.height, d.width, d.out_height, d.out_width, d.stride_h, d.stride_w, d.low_h, d.low_w, d.rows,
         d.pitch) = sizes
        d.pairs = len(taps) // 2
        d.taps = <const int32_t*>address(taps, 4, False, 2 * d.pairs)
        p.weights = <const int32_t*>address(weights, 2, False, channels * multiple * 2 * d.pairs)
        p.own = ceil_div(d.rows * d.stride_w * d.pitch, 64) * 64

    def correlate(self, x, bint is_signed, int zero, ends, y, empty, int32, int threads):
        """y = the sum over x with the weights. x and y in C order."""
        cdef DepthwiseJobs p = self.jobs
        cdef intptr_t planes = self.images * p.channels
        cdef intptr_t size = p.shape.out_height * p.shape.out_width * p.multiple
        cdef double work = <double>planes * size * p.shape.pairs * 2
        p.is_signed, p.zero = is_signed, zero
        p.x = <const uint8_t*>address(x, 1, False, planes * p.shape.height * p.shape.width)
        p.itemsize = take_ends(&p.ends, ends, p.channels * p.multiple)
        p.y = <char*>address(y, p.itemsize, True, planes * size)
        threads = threads_for(work, threads)
        memory = empty((threads * p.own // 2,), int32)
        p.scratch = <int16_t*>address(memory, 4, True)
        memset(p.scratch, 0, threads * p.own * sizeof(int16_t))
        with nogil:
            parallel_for(depthwise_job, &p, 0, planes, round_of(planes, work, threads), threads)


def finish(sums, bint floats, ends, y, intptr_t stack, intptr_t outputs):
    """y = the results of sums, (stack, outputs, the rest) in C order: int32, or whole numbers in float32."""
    cdef Ends to_y
    cdef intptr_t itemsize = take_ends(&to_y, ends, outputs)
    cdef intptr_t size, i
    size = sums.size // (stack * outputs)
    cdef const char* given = <const char*>address(sums, 4, False, stack * outputs * size)
    cdef char* to = <char*>address(y, itemsize, True, stack * outputs * size)
    with nogil:
        for i in range(stack * outputs):
            sums_out(&to_y, given + i * size * 4, floats, size, i % outputs, to + i * size * itemsize)


def floats_of(x, bint is_signed, int zero, float scale, y):
    """y = (x - zero) * scale in float32; x holds bytes, and both arrays are in C order."""
    cdef intptr_t count = x.size
    cdef const uint8_t* given = <const uint8_t*>address(x, 1, False, count)
    cdef float* to = <float*>address(y, 4, True, count)
    with nogil:
        floats_of_bytes(given, count, is_signed, zero, scale, to)


def bytes_of(x, float scale, int zero, int low, int high, y):
    """y = round(x / scale) + zero, limited to low .. high; x is float32, y holds bytes, and both are in C order."""
    cdef intptr_t count = x.size
    cdef const float* given = <const float*>address(x, 4, False, count)
    cdef uint8_t* to = <uint8_t*>address(y, 1, True, count)
    with nogil:
        bytes_of_floats(given, count, scale, zero, low, high, to)


def add(a, b, signs, factors, ends, y):
    """y = round(a * factors[0] + (b * factors[1] + factors[2])), limited to the two ends; all arrays hold bytes."""
    cdef float[AT_ONCE] wide_a
    cdef float[AT_ONCE] wide_b
    cdef intptr_t count = a.size, i = 0, some
    cdef const uint8_t* of_a = <const uint8_t*>address(a, 1, False, count)
    cdef const uint8_t* of_b = <const uint8_t*>address(b, 1, False, count)
    cdef uint8_t* to = <uint8_t*>address(y, 1, True, count)
    cdef bint a_signed, b_signed
    cdef int low, high
    cdef float a_ratio, b_ratio, fixed
    a_signed, b_signed = signs
    a_ratio, b_ratio, fixed = factors
    low, high = ends
    with nogil:
        while i < count:
            some = min(count - i, <intptr_t>AT_ONCE)
            floats_of_bytes(of_a + i, some, a_signed, 0, 1, wide_a)
            floats_of_bytes(of_b + i, some, b_signed, 0, 1, wide_b)
            bytes_of_sums(wide_a, wide_b, some, a_ratio, b_ratio, fixed, low, high, to + i)
            i += some
