# cython: cdivision=True
# Products of integers as jobs: weights are packed once into panels of columns; a job packs some rows of a matrix, or
# the planes of a segment of images (plan.pxd), and multiplies them by some of the panels.

from libc.stdint cimport int16_t, int32_t, intptr_t, uint8_t
from libc.string cimport memset

from minorm_ext.products.plan cimport Phase, Planes, results_of
from minorm_ext.runtime.jobs cimport threadid
from minorm_ext.runtime.numbers cimport ceil_div, cut

cdef extern from "products/integer_block.h" nogil:
    enum:
        PANEL  # columns of sums that a block computes
        ROWS   # sums take memory for a multiple of this many rows
        PANEL_STEPS  # and panels for a multiple of this many steps
        LIGHT  # 1 if products of bytes are faster for weights whose sums of pairs fit 16 bits
        DEPTHWISE  # 1 if there are kernels for depthwise convolutions
    ctypedef struct Ends "minorm_ends":
        const int32_t* offset
        const int32_t* w_zero
        const float* scale
        int32_t zero
        int32_t low
        int32_t high
    ctypedef struct Depthwise "minorm_depthwise":
        intptr_t height, width, out_height, out_width
        intptr_t stride_h, stride_w, low_h, low_w
        intptr_t rows, pitch
        intptr_t pairs
        const int32_t* taps
    int cell_group "minorm_group"()
    void begin_job "minorm_begin_integers"()
    void end_job "minorm_end_integers"()
    void product "minorm_integer_product"(
        int group, bint quads, const int32_t* a, const int32_t* rows, intptr_t row_count, const int32_t* b,
        const int32_t* steps, intptr_t depth, int32_t* c, intptr_t columns)
    void row_sums "minorm_row_sums"(
        int group, const int32_t* a, const int32_t* rows, intptr_t row_count, const int32_t* steps, intptr_t depth,
        int32_t* to)
    void places_in "minorm_places_in"(
        int group, int32_t* to, intptr_t to_row, const uint8_t* x, intptr_t place_step, intptr_t channel_step,
        intptr_t places, intptr_t channels, uint8_t flip)
    void padding_in "minorm_padding_in"(int group, int32_t* to, intptr_t places, intptr_t channels, uint8_t zero)
    void weights_in "minorm_weights_in"(
        int group, int32_t* to, const uint8_t* w, intptr_t channel_step, intptr_t column_step, intptr_t channels,
        intptr_t columns, uint8_t flip, int32_t* totals)
    void rows_out "minorm_integer_rows_out"(
        const Ends* ends, const int32_t* sums, const int32_t* row_sums, intptr_t rows, intptr_t first,
        intptr_t columns, void* y, intptr_t y_row)
    void planes_out "minorm_integer_planes_out"(
        const Ends* ends, const int32_t* sums, const int32_t* row_sums, intptr_t rows, intptr_t first,
        intptr_t columns, void* y, intptr_t y_plane, const intptr_t* place)
    void depthwise_in "minorm_depthwise_in"(
        const Depthwise* d, int16_t* to, const uint8_t* x, bint is_signed, int16_t zero)
    void depthwise_out "minorm_depthwise_out"(
        const Depthwise* d, const int16_t* plane, const int32_t* weights, const Ends* ends, intptr_t output, void* y)
    void sums_out "minorm_sums_out"(
        const Ends* ends, const void* sums, bint floats, intptr_t count, intptr_t output, void* y)
    void floats_of_bytes "minorm_floats_of_bytes"(
        const uint8_t* x, intptr_t count, bint is_signed, int32_t zero, float scale, float* y)
    void bytes_of_floats "minorm_bytes_of_floats"(
        const float* x, intptr_t count, float scale, int32_t zero, int32_t low, int32_t high, uint8_t* y)
    void bytes_of_sums "minorm_bytes_of_sums"(
        const float* a, const float* b, intptr_t count, float a_ratio, float b_ratio, float fixed, int32_t low,
        int32_t high, uint8_t* y)

cdef struct Panels:  # weights: (group, output, channel, tap) with any steps between them, as they are packed
    const uint8_t* w
    intptr_t groups, outputs, channels, taps
    intptr_t group_step, output_step, channel_step, tap_step
    uint8_t flip
    int group  # numbers of a cell
    bint quads  # does the processor add up four products of bytes, whatever the bytes?
    intptr_t cells, depth  # cells of one tap, and of all taps
    int32_t* panels
    int32_t* totals  # of each output, PANEL * panels_of for a group

cdef struct IntegerProduct:  # what all jobs share
    const Panels* w
    const uint8_t* x
    uint8_t flip, zero  # of x: the zero point as it is stored
    Ends ends
    char* y
    intptr_t itemsize  # of y
    char* scratch  # `own` bytes for each thread
    intptr_t own
    intptr_t parts  # of the panels
    # of matrices
    intptr_t rows, block_rows, row_blocks, a_row
    const int32_t* places  # of packed rows
    const int32_t* steps
    # of convolutions
    const Planes* planes


cdef struct DepthwiseJobs:  # what all jobs share
    Depthwise shape
    const uint8_t* x
    const int32_t* weights  # pairs of each output
    bint is_signed
    int16_t zero
    intptr_t channels, multiple  # number of channels, and of outputs of each channel
    Ends ends
    char* y
    intptr_t itemsize
    int16_t* scratch  # `own` numbers for each thread
    intptr_t own


cdef inline void depthwise_job(const void* task, Py_ssize_t plane) noexcept nogil:
    """Convolve one channel of one image into its outputs."""
    cdef const DepthwiseJobs* p = <const DepthwiseJobs*>task
    cdef intptr_t size = p.shape.out_height * p.shape.out_width * p.itemsize
    cdef int16_t* packed = p.scratch + threadid() * p.own
    cdef intptr_t i, output
    depthwise_in(&p.shape, packed, p.x + plane * p.shape.height * p.shape.width, p.is_signed, p.zero)
    for i in range(p.multiple):
        output = plane % p.channels * p.multiple + i
        depthwise_out(
            &p.shape, packed, p.weights + output * p.shape.pairs, &p.ends, output,
            p.y + (plane * p.multiple + i) * size)


cdef inline intptr_t panels_of(const Panels* w) noexcept nogil:
    """Return how many panels the outputs of a group have."""
    return ceil_div(w.outputs, PANEL)


cdef inline intptr_t panel_cells(const Panels* w) noexcept nogil:
    return ceil_div(w.depth, PANEL_STEPS) * PANEL_STEPS * PANEL


cdef inline intptr_t sum_cells(intptr_t rows) noexcept nogil:
    """Return how many numbers the sums of one panel take, with the sum of each row."""
    return ceil_div(rows, ROWS) * ROWS * (PANEL + 1)


cdef inline void pack_job(const void* task, Py_ssize_t unit) noexcept nogil:
    """Pack one panel of one group."""
    cdef const Panels* w = <const Panels*>task
    cdef intptr_t group = unit // panels_of(w)
    cdef intptr_t panel = unit % panels_of(w)
    cdef int32_t* to = w.panels + unit * panel_cells(w)
    cdef int32_t* totals = w.totals + unit * PANEL
    cdef intptr_t t
    memset(totals, 0, PANEL * sizeof(int32_t))
    for t in range(w.taps):
        weights_in(
            w.group, to + t * w.cells * PANEL,
            w.w + group * w.group_step + panel * PANEL * w.output_step + t * w.tap_step, w.channel_step,
            w.output_step, w.channels, min(<intptr_t>PANEL, w.outputs - panel * PANEL), w.flip, totals)
    memset(to + w.depth * PANEL, 0, (panel_cells(w) - w.depth * PANEL) * sizeof(int32_t))


cdef inline void multiply(
    const IntegerProduct* p, intptr_t panel, const int32_t* left, const int32_t* places, const int32_t* steps,
    intptr_t rows, int32_t* sums
) noexcept nogil:
    """Compute the sums of rows by a panel; `panel` counts through all groups."""
    cdef const Panels* w = p.w
    memset(sums, 0, ceil_div(rows, ROWS) * ROWS * PANEL * sizeof(int32_t))
    product(
        w.group, w.quads, left, places, rows, w.panels + panel * panel_cells(w), steps, w.depth, sums,
        min(<intptr_t>PANEL, w.outputs - panel % panels_of(w) * PANEL))


cdef inline void matrix_job(const void* task, Py_ssize_t job) noexcept nogil:
    """Compute some rows of one matrix of the stack, for some panels of columns."""
    cdef const IntegerProduct* p = <const IntegerProduct*>task
    cdef const Panels* w = p.w
    cdef intptr_t part = job % p.parts
    cdef intptr_t row = job // p.parts % p.row_blocks * p.block_rows
    cdef intptr_t group = job // p.parts // p.row_blocks
    cdef intptr_t rows = min(p.block_rows, p.rows - row)
    cdef int32_t* left = <int32_t*>(p.scratch + threadid() * p.own)
    cdef int32_t* sums = left + p.block_rows * p.a_row
    cdef int32_t* of_rows = sums + sum_cells(p.block_rows) - ceil_div(p.block_rows, ROWS) * ROWS
    cdef intptr_t panel
    begin_job()
    places_in(
        w.group, left, p.a_row, p.x + (group * p.rows + row) * w.channels, w.channels, 1, rows, w.channels, p.flip)
    if p.ends.w_zero != NULL:
        row_sums(w.group, left, p.places, rows, p.steps, w.depth, of_rows)
    for panel in range(cut(panels_of(w), p.parts, part), cut(panels_of(w), p.parts, part + 1)):
        multiply(p, group * panels_of(w) + panel, left, p.places, p.steps, rows, sums)
        rows_out(
            &p.ends, sums, of_rows, rows, group * w.outputs + panel * PANEL,
            min(<intptr_t>PANEL, w.outputs - panel * PANEL),
            p.y + ((group * p.rows + row) * w.outputs + panel * PANEL) * p.itemsize, w.outputs)
    end_job()


cdef inline void pack_row(
    const IntegerProduct* p, int32_t* to, const uint8_t* x, intptr_t d, intptr_t h, intptr_t w
) noexcept nogil:
    """Pack a row of a plane from place (d, h, w) of the source on; the place may lie outside of it."""
    cdef const Planes* o = p.planes
    cdef const Panels* of = p.w
    cdef intptr_t begin = min(o.plane[2], max(0, -w))
    cdef intptr_t end = max(begin, min(o.plane[2], o.source[2] - w))
    if not (0 <= d < o.source[0] and 0 <= h < o.source[1]):
        begin = end = 0
    padding_in(of.group, to, begin, of.channels, p.zero)
    if begin < end:
        places_in(
            of.group, to + begin * of.cells, of.cells, x + (d * o.source[1] + h) * o.source[2] + w + begin, 1,
            o.source_size, end - begin, of.channels, p.flip)
    padding_in(of.group, to + end * of.cells, o.plane[2] - end, of.channels, p.zero)


cdef inline void pack_segment(
    const IntegerProduct* p, int32_t* to, intptr_t group, intptr_t image, intptr_t images, intptr_t strip
) noexcept nogil:
    """Pack the planes of some images, for one group."""
    cdef const Planes* o = p.planes
    cdef intptr_t[3] start
    cdef intptr_t i, d, h
    start[0], start[1], start[2] = -o.low[0], -o.low[1], -o.low[2]
    start[o.along] += strip * o.source_move
    for i in range(images):
        for d in range(o.plane[0]):
            for h in range(o.plane[1]):
                pack_row(
                    p, to, p.x + ((image + i) * o.groups + group) * p.w.channels * o.source_size, start[0] + d,
                    start[1] + h, start[2])
                to += o.plane[2] * p.w.cells


cdef inline intptr_t plane_cells(const IntegerProduct* p) noexcept nogil:
    """Return how many cells a segment takes, in whole lines of the cache."""
    return ceil_div(p.planes.fit * p.planes.plane_size * p.w.cells, 16) * 16


cdef inline void plane_job(const void* task, Py_ssize_t job) noexcept nogil:
    """Compute one segment of one group, for some panels of its outputs."""
    cdef const IntegerProduct* p = <const IntegerProduct*>task
    cdef const Panels* w = p.w
    cdef const Planes* o = p.planes
    cdef const Phase* phase = o.phases
    cdef intptr_t part = job % p.parts
    cdef intptr_t group = job // p.parts % o.groups
    cdef intptr_t segment = job // p.parts // o.groups
    cdef intptr_t image = segment // o.strips * o.fit
    cdef intptr_t images = min(o.fit, o.images - image)
    cdef intptr_t strip = segment % o.strips
    cdef intptr_t count = results_of(o, phase, strip)
    cdef int32_t* plane = <int32_t*>(p.scratch + threadid() * p.own)
    cdef int32_t* sums = plane + plane_cells(p)
    cdef int32_t* of_rows = sums + sum_cells(o.most_rows) - ceil_div(o.most_rows, ROWS) * ROWS
    cdef intptr_t panel, i, output, place
    begin_job()
    pack_segment(p, plane, group, image, images, strip)
    if p.ends.w_zero != NULL:
        row_sums(w.group, plane, o.rows + phase.rows, count * images, p.steps, w.depth, of_rows)
    for panel in range(cut(panels_of(w), p.parts, part), cut(panels_of(w), p.parts, part + 1)):
        multiply(p, group * panels_of(w) + panel, plane, o.rows + phase.rows, p.steps, count * images, sums)
        output = group * w.outputs + panel * PANEL
        for i in range(images):
            place = ((image + i) * o.groups * w.outputs + output) * o.result_size + strip * o.result_move
            planes_out(
                &p.ends, sums + i * count * PANEL, of_rows + i * count, count, output,
                min(<intptr_t>PANEL, w.outputs - panel * PANEL), p.y + place * p.itemsize, o.result_size,
                o.places + phase.places)
    end_job()
