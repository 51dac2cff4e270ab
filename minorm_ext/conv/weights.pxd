# The gradient of a convolution for its weights: dw[o][c][t] = the sum over pixels of dy[o] * x[c] shifted by t.
#
# The source is packed as for the forward pass, and the gradients as its results would be. A block of output channels
# and taps keeps one vector of sums for each pair, runs over all vectors of results, and adds up the lanes at the end.
# The gradients of a block are read again for every input channel, so a run is no longer than the first cache allows.

from libc.stdint cimport intptr_t
from libc.string cimport memset

from minorm_ext.conv.plan cimport Plan, begin_of, blocks_of, image_of, pack_results, pack_segment, weight_count
from minorm_ext.runtime.jobs cimport threadid
from minorm_ext.runtime.numbers cimport cut, real

cdef extern from "conv/blocks.h" nogil:
    enum:
        MOST_TAPS
    void weights(
        size_t item, int rows, int columns, const void* x, const intptr_t* shift, const intptr_t* position,
        intptr_t x_segment, const void* dy, const intptr_t* place, intptr_t dy_step, intptr_t dy_segment,
        intptr_t first, intptr_t last, intptr_t segments, void* dw, intptr_t dw_step, int real_taps)
    void add_total(size_t item, void* to, const void* x, intptr_t count)
    void add_up(size_t item, void* to, const void* chunks, intptr_t step, intptr_t number, intptr_t begin, intptr_t end)
    int weight_taps(int rows, int columns)


cdef inline void weight_sums(
    const Plan* p, const real* x, intptr_t step, intptr_t x_segment, const real* dy, intptr_t dy_step,
    intptr_t dy_segment, intptr_t segments, intptr_t channels, real* dw
) noexcept nogil:
    """dw[o][c][t] += the sum over vectors of dy[o] * x[c] shifted by t, `run` vectors at a time, block by block."""
    cdef intptr_t several = max(1, p.run // p.vectors)  # segments at a time
    cdef intptr_t s = 0
    cdef intptr_t b, o, k, i, t, q, first, last, found
    cdef intptr_t[MOST_TAPS] shift
    cdef int rows, taps
    while s < segments:
        q = 0
        while q < p.vectors:
            for b in range(blocks_of(p)):
                o = begin_of(p, b)
                rows = <int>(begin_of(p, b + 1) - o)
                taps = weight_taps(rows, p.columns)
                k = 0
                while k < channels * p.kernel:
                    found = min(taps, channels * p.kernel - k)
                    first = q + p.run
                    last = q
                    for i in range(found):
                        t = (k + i) % p.kernel
                        shift[i] = (k + i) // p.kernel * step + p.ranges[3 * t]
                        first = min(first, p.ranges[3 * t + 1])
                        last = max(last, p.ranges[3 * t + 2])
                    weights(
                        sizeof(real), rows, p.columns, x + s * x_segment, shift, p.position, x_segment,
                        dy + o * dy_step + s * dy_segment, p.place, dy_step, dy_segment, max(first, q),
                        min(last, q + p.run), min(several, segments - s), dw + o * p.channels * p.kernel + k,
                        p.channels * p.kernel, <int>found)
                    k += taps
            q += p.run
        s += several


cdef inline void weight_group(
    const Plan* p, const real* x, const real* dy, real* dw, real* db, real* packed, intptr_t batch, intptr_t group,
    intptr_t channel, intptr_t channels, intptr_t segment, intptr_t end
) noexcept nogil:
    """The segments up to `end`, for some input channels of one group."""
    cdef intptr_t step = batch * p.plane
    cdef intptr_t dy_step = batch * p.results
    cdef intptr_t x_segment = p.plane
    cdef intptr_t dy_segment = p.results
    cdef real* gradients = packed + channels * step
    cdef intptr_t all_channels = p.groups * p.channels
    cdef intptr_t segments, image, c, s, o
    cdef const real* x_at
    cdef const real* dy_at
    while segment < end:
        segments = min(batch, end - segment)
        image = image_of(p, segment)
        if p.direct_in:
            x_at = x + (image * all_channels + group * p.channels + channel) * p.source_size
            step, x_segment = p.source_size, all_channels * p.source_size
        else:
            x_at = packed
            for c in range(channels):
                for s in range(segments):
                    pack_segment(
                        p, packed + c * step + s * p.plane, x, group * p.channels + channel + c, segment + s)
        if p.direct_out:
            dy_at = dy + (image * p.groups + group) * p.outputs * p.result_size + segment % p.strips * p.out_move
            dy_step, dy_segment = p.result_size, p.groups * p.outputs * p.result_size
        else:
            dy_at = gradients
            for o in range(p.outputs):
                for s in range(segments):
                    pack_results(
                        p, gradients + o * dy_step + s * p.results, dy, group * p.outputs + o, segment + s)
        if db != NULL and channel == 0:
            for o in range(p.outputs):
                for s in range(segments):
                    add_total(
                        sizeof(real), db + group * p.outputs + o, dy_at + o * dy_step + s * dy_segment,
                        p.result_size // p.strips if p.direct_out else p.results)
        weight_sums(
            p, x_at, step, x_segment, dy_at, dy_step, dy_segment, segments, channels,
            dw + (group * p.outputs * p.channels + channel) * p.kernel)
        segment += segments


cdef struct WeightGradient:  # what all jobs of a call share
    const Plan* plan
    size_t item  # bytes of a number
    const char* x
    const char* dy
    char* dw
    char* db  # NULL: nobody wants it
    char* chunks_dw  # dw and db of every chunk
    char* chunks_db
    char* scratch  # `own` numbers for each thread
    intptr_t own
    intptr_t outputs  # of all groups
    intptr_t batch  # segments that are packed at a time
    intptr_t done  # segments of every chunk so far
    intptr_t step  # how many a job adds
    intptr_t pieces  # of dw, in which the chunks are added up


cdef inline void add_segments_to(const WeightGradient* g, real* dw, real* db, intptr_t index) noexcept nogil:
    """Some segments of one chunk, and of the input channels of all groups one part: into the chunk's own dw and db."""
    cdef const Plan* p = g.plan
    cdef intptr_t chunk = index // p.parts
    cdef intptr_t part = index % p.parts
    cdef intptr_t units = cut(p.groups * p.channels, p.parts, part)
    cdef intptr_t units_end = cut(p.groups * p.channels, p.parts, part + 1)
    cdef intptr_t first = cut(p.segments, p.chunks, chunk) + g.done
    cdef intptr_t end = min(first + g.step, cut(p.segments, p.chunks, chunk + 1))
    cdef intptr_t segment = first
    cdef intptr_t step = max(1, end - first)
    cdef intptr_t unit, group, channel, channels, o
    if p.channels == 1 and not p.by_image and p.run < 2 * p.vectors:
        step = 1  # depthwise: planes go one by one in any case, and so they do as they lie in memory
    dw += chunk * weight_count(p)
    if db != NULL:
        db += chunk * g.outputs
    while segment < end or segment == first:
        unit = units
        while unit < units_end:
            group = unit // p.channels
            channel = unit % p.channels
            channels = min(units_end - unit, p.channels - channel)
            for o in range(p.outputs if g.done == 0 and segment == first else 0):
                memset(
                    dw + ((group * p.outputs + o) * p.channels + channel) * p.kernel, 0,
                    channels * p.kernel * sizeof(real))
                if db != NULL and channel == 0:
                    db[group * p.outputs + o] = 0
            weight_group(
                p, <const real*>g.x, <const real*>g.dy, dw, db, <real*>g.scratch + threadid() * g.own, g.batch, group,
                channel, channels, segment, min(segment + step, end))
            unit += channels
        segment += step


cdef inline void add_segments(const void* task, Py_ssize_t index) noexcept nogil:
    cdef const WeightGradient* g = <const WeightGradient*>task
    if g.item == sizeof(float):
        add_segments_to(g, <float*>g.chunks_dw, <float*>g.chunks_db if g.db != NULL else NULL, index)
    else:
        add_segments_to(g, <double*>g.chunks_dw, <double*>g.chunks_db if g.db != NULL else NULL, index)


cdef inline void add_chunks(const void* task, Py_ssize_t index) noexcept nogil:
    """A piece of dw from those of the chunks, and with the first piece all of db."""
    cdef const WeightGradient* g = <const WeightGradient*>task
    cdef intptr_t number = g.plan.chunks
    cdef intptr_t count = weight_count(g.plan)
    cdef intptr_t begin = cut(count, g.pieces, index)
    cdef intptr_t end = cut(count, g.pieces, index + 1)
    add_up(g.item, g.dw, g.chunks_dw, count, number, begin, end)
    if g.db != NULL and index == 0:
        add_up(g.item, g.db, g.chunks_db, g.outputs, number, 0, g.outputs)
