# The sum over channels and taps, by one shifted read of the packed source for each tap: what a job does.
#
# It serves the forward pass and the gradient for the input, which differ by their layout and by which axis of the
# weights is summed over.

from libc.stdint cimport intptr_t

from minorm_ext.conv.plan cimport (
    BLOCK_ROWS, QUAD, Ends, Plan, begin_of, blocks_of, ends_at, image_of, pack_segment, unpack_segment,
)
from minorm_ext.runtime.jobs cimport threadid
from minorm_ext.runtime.numbers cimport cut, real

cdef extern from "conv/blocks.h" nogil:
    void block(
        size_t item, int rows, const void* x, const intptr_t* position, intptr_t plane, intptr_t channels,
        const intptr_t* taps, intptr_t tap_count, const void* w, intptr_t w_row, intptr_t w_channel, const void* bias,
        void* y, const intptr_t* place, intptr_t y_step)
    void finish(size_t item, int rows, const Ends* ends, void* y, const intptr_t* place, intptr_t y_step)
    void tall(
        size_t item, int height, const void* x, intptr_t pitch, const intptr_t* taps, intptr_t width, const void* w,
        const void* bias, void* y, const intptr_t* place)

cdef struct Correlation:  # what all jobs of a call share
    const Plan* plan
    size_t item  # bytes of a number
    const char* x
    const char* w
    Ends ends
    char* y
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


cdef inline void run_quads(
    const Correlation* c, const Range* job, const real* x, const real* w, real* y, real* packed, real* results,
    intptr_t s, intptr_t unit, intptr_t first, intptr_t last
) noexcept nogil:
    """Quads first .. last - 1 of segment number s of the job, for one block of output channels."""
    cdef const Plan* p = c.plan
    cdef intptr_t begin = begin_of(p, unit)
    cdef intptr_t rows = begin_of(p, unit + 1) - begin
    cdef intptr_t channel = job.group * p.outputs + begin
    cdef intptr_t image = image_of(p, job.segment + s)
    cdef intptr_t at = (image * p.groups * p.outputs + channel) * p.result_size
    cdef intptr_t x_step = job.step
    cdef intptr_t y_step = job.results_step
    cdef intptr_t row_step = p.kernel if c.transposed else p.channels * p.kernel
    cdef intptr_t channel_step = p.outputs * p.kernel if c.transposed else p.kernel
    cdef Ends ends
    cdef intptr_t q
    cdef const intptr_t* position = p.position + QUAD * first
    if p.direct_in:
        x += (image * p.groups + job.group) * p.channels * p.source_size
        x_step = p.source_size
    else:
        x = packed + s * p.plane
    at += (job.segment + s) % p.strips * p.out_move
    ends = ends_at(&c.ends, sizeof(real), channel, at)
    if p.direct_out:
        y += at
        y_step = p.result_size
    else:
        y = results + s * p.results
        ends.more = NULL  # it is added where they are unpacked
    w += job.group * p.outputs * p.channels * p.kernel + begin * row_step
    for q in range(first, last):
        if p.tall:
            tall(
                sizeof(real), p.tall, x + position[0], position[1] - position[0], p.taps, p.kernel // p.tall, w,
                ends.bias, y, p.place + QUAD * q)
        else:
            block(
                sizeof(real), <int>rows, x, position, x_step, p.channels, p.taps + 2 * p.runs[2 * q],
                p.runs[2 * q + 1], w, row_step, channel_step, ends.bias, y, p.place + QUAD * q, y_step)
        position += QUAD
        if ends.epilogue != NULL or ends.more != NULL:
            finish(sizeof(real), <int>rows, &ends, y, p.place + QUAD * q, y_step)


cdef inline void correlate_group(
    const Correlation* c, const Range* job, const real* x, const real* w, real* y, real* packed
) noexcept nogil:
    """Some segments, and of the output channels of one group some blocks."""
    cdef const Plan* p = c.plan
    cdef real* results = packed + p.channels * job.step
    cdef intptr_t o, s, unit, q
    for o in range(p.channels):
        for s in range(job.segments if not p.direct_in else 0):
            pack_segment(
                p, packed + o * job.step + s * p.plane, x, job.group * p.channels + o, job.segment + s)
    if p.direct_out and p.kernel == 1:
        # With one tap a channel, reading the source costs as much as its arithmetic: a quad of it stays in cache for
        # all output channels.
        for s in range(job.segments):
            for q in range(job.quad, job.quads_end):
                for unit in range(job.begin, job.end):
                    run_quads(c, job, x, w, y, packed, results, s, unit, q, q + 1)
        return
    for unit in range(job.begin, job.end):
        for s in range(job.segments):
            run_quads(c, job, x, w, y, packed, results, s, unit, job.quad, job.quads_end)
        if not p.direct_out:
            for o in range(begin_of(p, unit), begin_of(p, unit + 1)):
                for s in range(job.segments):
                    unpack_segment(
                        p, y, <const real*>c.ends.more,
                        results + (o - begin_of(p, unit)) * job.results_step + s * p.results,
                        job.group * p.outputs + o, job.segment + s)


cdef inline void correlate_range(const Correlation* c, const real* x, intptr_t index) noexcept nogil:
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
            c, &job, x, <const real*>c.w, <real*>c.y, <real*>c.scratch + threadid() * c.own)
        unit += job.end - job.begin


cdef inline void correlate_job(const void* task, Py_ssize_t index) noexcept nogil:
    cdef const Correlation* c = <const Correlation*>task
    if c.item == sizeof(float):
        correlate_range(c, <const float*>c.x, index)
    else:
        correlate_range(c, <const double*>c.x, index)
