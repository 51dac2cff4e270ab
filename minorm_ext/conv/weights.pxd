# cython: cdivision=True
# The gradient of a convolution for its weights: dw[o][c][t] = the sum over pixels of dy[o] * x[c] shifted by t.
#
# The source is packed as in the forward pass, and dy is packed in the form of its results. A block of output channels
# and taps keeps one vector of sums for each pair, runs over all vectors of results, and adds up the lanes at the end.
# The gradients of a block are read again for every input channel, so a run is no longer than the first cache allows.

from libc.stdint cimport intptr_t
from libc.string cimport memset

from minorm_ext.conv.plan cimport Plan, WeightGradient, begin_of, blocks_of, image_of, pack
from minorm_ext.runtime.jobs cimport threadid
from minorm_ext.runtime.numbers cimport cut

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
    const Plan* p, size_t item, const char* x, intptr_t step, intptr_t x_segment, const char* dy, intptr_t dy_step,
    intptr_t dy_segment, intptr_t segments, intptr_t channels, char* dw
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
                        item, rows, p.columns, x + s * x_segment * item, shift, p.position, x_segment,
                        dy + (o * dy_step + s * dy_segment) * item, p.place, dy_step, dy_segment, max(first, q),
                        min(last, q + p.run), min(several, segments - s), dw + (o * p.channels * p.kernel + k) * item,
                        p.channels * p.kernel, <int>found)
                    k += taps
            q += p.run
        s += several


cdef inline void weight_group(
    const WeightGradient* g, char* dw, char* db, intptr_t group, intptr_t channel, intptr_t channels, intptr_t segment,
    intptr_t end
) noexcept nogil:
    """Add the segments up to `end`, for some input channels of one group; db may be NULL."""
    cdef const Plan* p = <const Plan*>g.plan
    cdef size_t item = g.item
    cdef intptr_t step = g.batch * p.plane
    cdef intptr_t dy_step = g.batch * p.results
    cdef intptr_t x_segment = p.plane
    cdef intptr_t dy_segment = p.results
    cdef char* packed = g.scratch + threadid() * g.own * item
    cdef char* gradients = packed + channels * step * item
    cdef const char* x = packed
    cdef const char* dy = gradients
    cdef intptr_t segments, image, c, s, o
    if p.direct_in:
        step, x_segment = p.source.size, p.source.channels * p.source.size
    if p.direct_out:
        dy_step, dy_segment = p.result.size, p.result.channels * p.result.size
    while segment < end:
        segments = min(g.batch, end - segment)
        image = image_of(p, segment)
        if p.direct_in:
            x = g.x + (image * p.source.channels + group * p.channels + channel) * p.source.size * item
        if p.direct_out:
            dy = g.dy + (
                (image * p.groups + group) * p.outputs * p.result.size + segment % p.strips * p.out_move) * item
        for s in range(segments):
            for c in range(0 if p.direct_in else channels):
                pack(
                    p, p.source, item, packed + (c * step + s * x_segment) * item, g.x,
                    group * p.channels + channel + c, segment + s)
            for o in range(0 if p.direct_out else p.outputs):
                pack(
                    p, p.result, item, gradients + (o * dy_step + s * dy_segment) * item, g.dy,
                    group * p.outputs + o, segment + s)
            for o in range(p.outputs if db != NULL and channel == 0 else 0):
                add_total(
                    item, db + (group * p.outputs + o) * item, dy + (o * dy_step + s * dy_segment) * item,
                    p.result.size // p.strips if p.direct_out else p.results)
        weight_sums(
            p, item, x, step, x_segment, dy, dy_step, dy_segment, segments, channels,
            dw + (group * p.outputs * p.channels + channel) * p.kernel * item)
        segment += segments


cdef inline void add_segments(const void* task, Py_ssize_t index) noexcept nogil:
    """Add some segments of one chunk, for one part of all groups' input channels, to the chunk's own dw and db."""
    cdef const WeightGradient* g = <const WeightGradient*>task
    cdef const Plan* p = <const Plan*>g.plan
    cdef intptr_t chunk = index // p.parts
    cdef intptr_t part = index % p.parts
    cdef intptr_t units = cut(p.groups * p.channels, p.parts, part)
    cdef intptr_t units_end = cut(p.groups * p.channels, p.parts, part + 1)
    cdef intptr_t first = cut(p.segments, p.chunks, chunk) + g.done
    cdef intptr_t end = min(first + g.step, cut(p.segments, p.chunks, chunk + 1))
    cdef intptr_t segment = first
    cdef intptr_t step = max(1, end - first)
    cdef char* dw = g.sums + chunk * g.chunk_step * g.item
    cdef char* db = dw + p.groups * p.outputs * p.channels * p.kernel * g.item if g.db != NULL else NULL
    cdef intptr_t unit, group, channel, channels, o
    if p.channels == 1 and not p.by_image and p.run < 2 * p.vectors:
        step = 1  # depthwise: planes are packed one by one anyway; this is the order in which they lie in memory
    while segment < end or segment == first:
        unit = units
        while unit < units_end:
            group = unit // p.channels
            channel = unit % p.channels
            channels = min(units_end - unit, p.channels - channel)
            for o in range(group * p.outputs, (group + 1) * p.outputs if g.done == 0 and segment == first else 0):
                memset(dw + (o * p.channels + channel) * p.kernel * g.item, 0, channels * p.kernel * g.item)
                if db != NULL and channel == 0:
                    memset(db + o * g.item, 0, g.item)
            weight_group(g, dw, db, group, channel, channels, segment, min(segment + step, end))
            unit += channels
        segment += step


cdef inline void add_chunks(const void* task, Py_ssize_t index) noexcept nogil:
    """Add up a slice of dw from all chunks, and with the first slice all of db."""
    cdef const WeightGradient* g = <const WeightGradient*>task
    cdef const Plan* p = <const Plan*>g.plan
    cdef intptr_t count = p.groups * p.outputs * p.channels * p.kernel
    cdef intptr_t begin = cut(count, g.slices, index)
    cdef intptr_t end = cut(count, g.slices, index + 1)
    add_up(g.item, g.dw, g.sums, g.chunk_step, p.chunks, begin, end)
    if g.db != NULL and index == 0:
        add_up(g.item, g.db, g.sums + count * g.item, g.chunk_step, p.chunks, 0, p.groups * p.outputs)
