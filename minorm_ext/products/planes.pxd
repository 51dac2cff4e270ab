# cython: cdivision=True
# Convolutions as products. The channels of a place of the source lie side by side in a padded plane, so every tap of a
# result is a run of the depth; the tables of minorm/kernels/cpu/conv_products.py say where. A segment is the unit
# of packing: a few images, or a strip of one image.

from libc.stdint cimport int32_t, intptr_t, uint16_t, uint64_t
from libc.string cimport memset

from minorm_ext.products.blocks cimport (
    PANEL, Cell, begin_job, cells_in, chunks_out, end_job, panel_cells, planes_out, prepare, product, sum_rows,
)
from minorm_ext.products.plan cimport Phase, Planes, results_of, segments_of
from minorm_ext.runtime.jobs cimport threadid
from minorm_ext.runtime.numbers cimport ceil_div, cut

cdef struct Correlation:  # what all jobs share that compute y
    const Planes* planes
    const uint16_t* x
    const uint16_t* w
    const uint16_t* bias  # or NULL
    uint16_t* y
    bint transposed, exact
    Cell* panels  # packed weights
    char* scratch  # `own` bytes for each thread
    intptr_t own
    intptr_t parts  # of the outputs

cdef struct WeightGradient:  # what all jobs share that compute dw
    const Planes* planes
    const uint16_t* x
    const uint16_t* dy
    uint16_t* dw
    bint exact
    const int32_t* rows  # of packed gradients
    float* sums  # (chunk, group, panel, output, PANEL)
    char* scratch
    intptr_t own
    intptr_t parts  # of the panels
    intptr_t done, step  # segments of a chunk


cdef inline intptr_t plane_cells(const Planes* p) noexcept nogil:
    """Return how many cells a segment takes, with the zeros after it."""
    return p.fit * p.plane_size * p.channels + p.zeros


cdef inline void pack_row(
    const Planes* p, Cell* to, const uint16_t* x, intptr_t d, intptr_t h, intptr_t w
) noexcept nogil:
    """Pack a row of a plane from place (d, h, w) of the source on; the place may lie outside of it."""
    cdef intptr_t begin = min(p.plane[2], max(0, -w))
    cdef intptr_t end = max(begin, min(p.plane[2], p.source[2] - w))
    if not (0 <= d < p.source[0] and 0 <= h < p.source[1]):
        begin = end = 0
    memset(to, 0, begin * p.channels * sizeof(Cell))
    if begin < end:
        cells_in(
            to + begin * p.channels, p.channels, x + (d * p.source[1] + h) * p.source[2] + w + begin, 1, p.source_size,
            end - begin, p.channels)
    memset(to + end * p.channels, 0, (p.plane[2] - end) * p.channels * sizeof(Cell))


cdef inline void pack_segment(
    const Planes* p, Cell* to, const uint16_t* x, intptr_t group, intptr_t image, intptr_t images, intptr_t strip
) noexcept nogil:
    """Pack the planes of some images, for one group."""
    cdef intptr_t[3] start
    cdef intptr_t i, d, h
    start[0], start[1], start[2] = -p.low[0], -p.low[1], -p.low[2]
    start[p.along] += strip * p.source_move
    for i in range(images):
        for d in range(p.plane[0]):
            for h in range(p.plane[1]):
                pack_row(
                    p, to, x + ((image + i) * p.groups + group) * p.channels * p.source_size, start[0] + d,
                    start[1] + h, start[2])
                to += p.plane[2] * p.channels


# ---- forward, and the gradient for the input -----------------------------------------------------------------------


cdef inline intptr_t panels_of(const Planes* p) noexcept nogil:
    """Return how many panels the outputs of a group have."""
    return ceil_div(p.outputs, PANEL)


cdef inline Cell* panel_at(const Correlation* c, intptr_t group, const Phase* phase, intptr_t panel) noexcept nogil:
    """Return where the packed weights of one panel of outputs begin."""
    cdef const Planes* p = c.planes
    return c.panels + (group * p.weights + phase.weights) * panels_of(p) * PANEL + panel * panel_cells(phase.depth)


cdef inline void pack_weights(const void* task, Py_ssize_t unit) noexcept nogil:
    """Pack the weights of one group, phase and panel of outputs: tap by tap, and channel by channel in each tap."""
    cdef const Correlation* c = <const Correlation*>task
    cdef const Planes* p = c.planes
    cdef intptr_t panel = unit % panels_of(p)
    cdef const Phase* phase = p.phases + unit // panels_of(p) % p.phase_count
    cdef intptr_t group = unit // panels_of(p) // p.phase_count
    cdef intptr_t columns = min(<intptr_t>PANEL, p.outputs - panel * PANEL)
    cdef intptr_t channel_step = p.kernel * (p.outputs if c.transposed else 1)
    cdef intptr_t output_step = p.kernel * (1 if c.transposed else p.channels)
    cdef const uint16_t* w = c.w + group * p.outputs * p.channels * p.kernel + panel * PANEL * output_step
    cdef Cell* to = panel_at(c, group, phase, panel)
    cdef intptr_t t
    if columns < PANEL:
        memset(to, 0, phase.depth * PANEL * sizeof(Cell))
    for t in range(phase.tap_count):
        cells_in(
            to + t * p.channels * PANEL, PANEL, w + p.taps[phase.taps + t], channel_step, output_step, p.channels,
            columns)
    prepare(to, phase.depth)


cdef inline void correlate_job(const void* task, Py_ssize_t job) noexcept nogil:
    """Compute one segment of one group, for some panels of its outputs."""
    cdef const Correlation* c = <const Correlation*>task
    cdef const Planes* p = c.planes
    cdef intptr_t part = job % c.parts
    cdef intptr_t group = job // c.parts % p.groups
    cdef intptr_t segment = job // c.parts // p.groups
    cdef intptr_t image = segment // p.strips * p.fit
    cdef intptr_t images = min(p.fit, p.images - image)
    cdef intptr_t strip = segment % p.strips
    cdef Cell* plane = <Cell*>(c.scratch + threadid() * c.own)
    cdef float* sums = <float*>(plane + ceil_div(plane_cells(p), 32) * 32)
    cdef const Phase* phase
    cdef const uint16_t* bias
    cdef intptr_t f, panel, columns, count, rows, output, i
    cdef uint64_t before = begin_job()
    pack_segment(p, plane, c.x, group, image, images, strip)
    for f in range(p.phase_count):
        phase = p.phases + f
        count = results_of(p, phase, strip)
        rows = count * images
        for panel in range(cut(panels_of(p), c.parts, part), cut(panels_of(p), c.parts, part + 1)):
            columns = min(<intptr_t>PANEL, p.outputs - panel * PANEL)
            output = group * p.outputs + panel * PANEL
            memset(sums, 0, sum_rows(rows) * PANEL * sizeof(float))
            product(
                plane, p.rows + phase.rows, rows, panel_at(c, group, phase, panel), p.steps + phase.steps,
                p.runs + phase.runs, phase.depth, sums, columns, True, c.exact)
            bias = c.bias
            if bias != NULL:
                bias += output
            for i in range(images):
                planes_out(
                    sums + i * count * PANEL, count, columns, bias,
                    c.y + ((image + i) * p.groups * p.outputs + output) * p.result_size + strip * p.result_move,
                    p.result_size, p.places + phase.places)
    end_job(before)


# ---- the gradient for the weights ----------------------------------------------------------------------------------


cdef inline float* sums_at(const WeightGradient* g, intptr_t chunk, intptr_t group, intptr_t panel) noexcept nogil:
    cdef const Planes* p = g.planes
    return g.sums + ((chunk * p.groups + group) * p.column_panels + panel) * sum_rows(p.outputs) * PANEL


cdef inline intptr_t gradient_row(const Planes* p) noexcept nogil:
    """Return the number of cells from a packed output channel of dy to the next."""
    return p.most_rows + 16


cdef inline intptr_t depths_of(const Planes* p) noexcept nogil:
    return ceil_div(p.images, p.together)


cdef inline void pack_gradients(
    const WeightGradient* g, Cell* to, intptr_t group, intptr_t image, intptr_t images, intptr_t strip, intptr_t count
) noexcept nogil:
    """Pack the gradients of some results of each output of a group, image after image."""
    cdef const Planes* p = g.planes
    cdef const uint16_t* dy
    cdef intptr_t i
    for i in range(images):
        dy = g.dy + ((image + i) * p.groups + group) * p.outputs * p.result_size + strip * p.result_move
        cells_in(to + i * count, gradient_row(p), dy, p.result_size, 1, p.outputs, count)


cdef inline void weight_job(const void* task, Py_ssize_t job) noexcept nogil:
    """Add the next segments of one chunk, for one group and some panels of its columns."""
    cdef const WeightGradient* g = <const WeightGradient*>task
    cdef const Planes* p = g.planes
    cdef intptr_t part = job % g.parts
    cdef intptr_t group = job // g.parts % p.groups
    cdef intptr_t chunk = job // g.parts // p.groups
    cdef intptr_t begin = cut(depths_of(p), p.chunks, chunk) * p.together
    cdef intptr_t end = min(p.images, cut(depths_of(p), p.chunks, chunk + 1) * p.together)
    cdef intptr_t last_segment = min(g.done + g.step, ceil_div(end - begin, p.fit) * p.strips)
    cdef intptr_t first = cut(p.column_panels, g.parts, part)
    cdef intptr_t last = cut(p.column_panels, g.parts, part + 1)
    cdef Cell* plane = <Cell*>(g.scratch + threadid() * g.own)
    cdef Cell* left = plane + ceil_div(plane_cells(p), 32) * 32
    cdef intptr_t segment, image, images, strip, count, depth, i, panel
    cdef uint64_t before = begin_job()
    if g.done == 0:
        memset(sums_at(g, chunk, group, first), 0, (last - first) * sum_rows(p.outputs) * PANEL * sizeof(float))
    memset(plane + plane_cells(p) - p.zeros, 0, p.zeros * sizeof(Cell))  # the missing steps at the end read these zeros
    for i in range(p.outputs):
        left[i * gradient_row(p) + p.most_rows] = 0
    for segment in range(g.done, last_segment):
        strip = segment % p.strips
        image = begin + segment // p.strips * p.fit
        images = min(p.fit, end - image)
        count = results_of(p, p.phases, strip)
        depth = images // p.together * p.padded + images % p.together * count if p.strips == 1 else count
        pack_segment(p, plane, g.x, group, image, images, strip)
        pack_gradients(g, left, group, image, images, strip, count)
        for panel in range(first, last):
            product(
                left, g.rows, p.outputs, plane + p.panel_columns[2 * panel], p.steps, p.runs, depth,
                sums_at(g, chunk, group, panel), p.panel_columns[2 * panel + 1], False, g.exact)
    end_job(before)


cdef inline void merge_job(const void* task, Py_ssize_t output) noexcept nogil:
    """Add up the weights' gradients of one output of all groups, from the sums of all chunks."""
    cdef const WeightGradient* g = <const WeightGradient*>task
    cdef const Planes* p = g.planes
    cdef intptr_t chunk = p.groups * p.column_panels * sum_rows(p.outputs) * PANEL
    cdef intptr_t group = output // p.outputs
    cdef intptr_t panel
    cdef uint64_t before = begin_job()
    for panel in range(p.column_panels):
        chunks_out(
            sums_at(g, 0, group, panel) + output % p.outputs * PANEL, chunk, p.chunks, p.targets + panel * PANEL,
            g.dw + output * p.channels * p.kernel)
    end_job(before)
