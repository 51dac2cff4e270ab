# cython: cdivision=True
# The work of a job: the sum over channels and taps, with one shifted read of the packed source for each tap.
#
# It serves the forward pass and the gradient for the input, which differ by their layout and by which axis of the
# weights is summed over.

from libc.stdint cimport intptr_t

from minorm_ext.conv.plan cimport (
    QUAD, VECTOR_BYTES, Correlation, Ends, Plan, begin_of, blocks_of, ends_at, image_of, pack, unpack,
)
from minorm_ext.runtime.jobs cimport threadid
from minorm_ext.runtime.numbers cimport cut

cdef extern from "conv/blocks.h" nogil:
    void block(
        size_t item, int rows, const void* x, const intptr_t* position, intptr_t plane, intptr_t channels,
        const intptr_t* taps, intptr_t tap_count, const void* w, intptr_t w_row, intptr_t w_channel, const Ends* ends,
        void* y, const intptr_t* place, intptr_t y_step)
    void tall(
        size_t item, int height, const void* x, intptr_t pitch, const intptr_t* taps, intptr_t width, const void* w,
        const Ends* ends, void* y, const intptr_t* place)

cdef enum:
    FIRST_CACHE = 24 << 10  # bytes of the source that stay there

cdef struct Range:  # what one job computes, of one group
    intptr_t segment, segments  # the first segment, and the number of segments
    intptr_t group, begin, end  # the group, and its blocks of output channels begin .. end - 1
    intptr_t quad, quads_end  # the quads of vectors quad .. quads_end - 1
    char* packed  # the segments of all channels
    char* results  # the results of the channels of a block


cdef inline void run_quads(
    const Correlation* c, const Range* job, intptr_t s, intptr_t unit, intptr_t first, intptr_t last
) noexcept nogil:
    """Compute quads first .. last - 1 of segment number s of the job, for one block of output channels."""
    cdef const Plan* p = <const Plan*>c.plan
    cdef size_t item = c.item
    cdef intptr_t begin = begin_of(p, unit)
    cdef int rows = <int>(begin_of(p, unit + 1) - begin)
    cdef intptr_t channel = job.group * p.outputs + begin
    cdef intptr_t image = image_of(p, job.segment + s)
    cdef intptr_t at = (image * p.result.channels + channel) * p.result.size
    cdef intptr_t row_step = p.kernel if c.transposed else p.channels * p.kernel
    cdef intptr_t channel_step = p.outputs * p.kernel if c.transposed else p.kernel
    cdef const char* w = c.w + (job.group * p.outputs * p.channels * p.kernel + begin * row_step) * item
    cdef const char* x = job.packed + s * p.plane * item
    cdef char* y = job.results + s * p.results * item
    cdef intptr_t x_step = c.batch * p.plane
    cdef intptr_t y_step = c.batch * p.results
    cdef const intptr_t* position = p.position + QUAD * first
    cdef const intptr_t* place
    cdef intptr_t q
    cdef Ends ends
    at += (job.segment + s) % p.strips * p.out_move
    ends = ends_at(&c.ends, item, channel, at)
    if p.direct_in:
        x = c.x + (image * p.groups + job.group) * p.channels * p.source.size * item
        x_step = p.source.size
    if p.direct_out:
        y = c.y + at * item
        y_step = p.result.size
    else:
        ends.more = NULL  # `more` is added when the results are unpacked
    for q in range(first, last):
        place = p.place + QUAD * q
        if p.tall:
            tall(
                item, p.tall, x + position[0] * item, position[1] - position[0], p.taps, p.kernel // p.tall, w,
                &ends, y, place)
        else:
            block(
                item, rows, x, position, x_step, p.channels, p.taps + 2 * p.runs[2 * q], p.runs[2 * q + 1], w,
                row_step, channel_step, &ends, y, place, y_step)
        position += QUAD


cdef inline void correlate_group(const Correlation* c, const Range* job) noexcept nogil:
    """Compute some segments, for some blocks of the output channels of one group."""
    cdef const Plan* p = <const Plan*>c.plan
    cdef intptr_t o, s, unit, q, begin, some
    for o in range(0 if p.direct_in else p.channels):
        for s in range(job.segments):
            pack(
                p, p.source, c.item, job.packed + (o * c.batch + s) * p.plane * c.item, c.x,
                job.group * p.channels + o, job.segment + s)
    if p.direct_out and p.kernel == 1:
        # With one tap a channel, reading the source costs as much as its arithmetic. So a job keeps as many quads of
        # the source as fit the first cache there for all output channels.
        some = max(1, FIRST_CACHE // (p.channels * QUAD * VECTOR_BYTES))
        for s in range(job.segments):
            q = job.quad
            while q < job.quads_end:
                for unit in range(job.begin, job.end):
                    run_quads(c, job, s, unit, q, min(q + some, job.quads_end))
                q += some
        return
    for unit in range(job.begin, job.end):
        for s in range(job.segments):
            run_quads(c, job, s, unit, job.quad, job.quads_end)
        begin = begin_of(p, unit)
        for o in range(0 if p.direct_out else begin_of(p, unit + 1) - begin):
            for s in range(job.segments):
                unpack(
                    p, c.item, c.y, c.ends.more, job.results + (o * c.batch + s) * p.results * c.item,
                    job.group * p.outputs + begin + o, job.segment + s)


cdef inline void correlate_job(const void* task, Py_ssize_t index) noexcept nogil:
    """Compute some segments, for one part of the blocks of all groups and for one slice of the quads."""
    cdef const Correlation* c = <const Correlation*>task
    cdef const Plan* p = <const Plan*>c.plan
    cdef intptr_t part = index // c.slices % c.parts
    cdef intptr_t units = p.groups * blocks_of(p)
    cdef intptr_t unit = cut(units, c.parts, part)
    cdef intptr_t end = cut(units, c.parts, part + 1)
    cdef Range job
    job.quad = cut(p.quads, c.slices, index % c.slices)
    job.quads_end = cut(p.quads, c.slices, index % c.slices + 1)
    job.segment = index // c.slices // c.parts * c.batch
    job.segments = min(c.batch, p.segments - job.segment)
    job.packed = c.scratch + threadid() * c.own * c.item
    job.results = job.packed + p.channels * c.batch * p.plane * c.item
    while unit < end:
        job.group = unit // blocks_of(p)
        job.begin = unit % blocks_of(p)
        job.end = min(blocks_of(p), job.begin + end - unit)
        correlate_group(c, &job)
        unit += job.end - job.begin
