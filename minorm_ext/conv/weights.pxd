# The gradient of a convolution for its weights: dw[o][c][t] = the sum over pixels of dy[o] * x[c] shifted by t.
#
# The source is packed as for the forward pass, and the gradients as its results would be. A block of output channels
# and taps keeps one vector of sums for each pair, runs over all vectors of results, and adds up the lanes at the end.
# The gradients of a block are read again for every input channel, so a run is no longer than the first cache allows.

from libc.stdint cimport intptr_t
from libc.string cimport memset

from minorm_ext.conv.plan cimport Plan, begin_of, blocks_of, image_of, pack_results, pack_segment, real

cdef extern from "conv/blocks.h" nogil:
    void weights(
        size_t item, int rows, int columns, const void* x, const intptr_t* shift, const intptr_t* position,
        intptr_t x_segment, const void* dy, const intptr_t* place, intptr_t dy_step, intptr_t dy_segment,
        intptr_t first, intptr_t last, intptr_t segments, void* dw, intptr_t dw_step, int real_taps)
    double total(size_t item, const void* x, intptr_t count)
    int weight_taps(int rows, int columns)

cdef enum:
    MOST_COLUMNS = 16


cdef inline void weight_sums(
    const Plan* p, const real* x, intptr_t step, intptr_t x_segment, const real* dy, intptr_t dy_step,
    intptr_t dy_segment, intptr_t segments, intptr_t channels, real* dw
) noexcept nogil:
    """dw[o][c][t] += the sum over vectors of dy[o] * x[c] shifted by t, `run` vectors at a time, block by block."""
    cdef intptr_t several = max(1, p.run // p.vectors)  # segments at a time
    cdef intptr_t s = 0
    cdef intptr_t b, o, k, i, t, q, first, last, found
    cdef intptr_t[MOST_COLUMNS] shift
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
        image = image_of(p, segment, sizeof(real))
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
                    db[group * p.outputs + o] += <real>total(
                        sizeof(real), dy_at + o * dy_step + s * dy_segment,
                        p.result_size // p.strips if p.direct_out else p.results)
        weight_sums(
            p, x_at, step, x_segment, dy_at, dy_step, dy_segment, segments, channels,
            dw + (group * p.outputs * p.channels + channel) * p.kernel)
        segment += segments


cdef inline void weight_job(
    const Plan* p, const real* x, const real* dy, real* dw, real* db, real* packed, intptr_t batch, intptr_t job,
    intptr_t taken, intptr_t turn
) noexcept nogil:
    """One chunk of segments, and of the input channels of all groups one part: into the chunk's own dw and db.

    One turn of it: `taken` segments are done, and up to `turn` more are added.
    """
    cdef intptr_t chunk = job // p.parts
    cdef intptr_t part = job % p.parts
    cdef intptr_t unit = part * p.groups * p.channels // p.parts
    cdef intptr_t end = (part + 1) * p.groups * p.channels // p.parts
    cdef intptr_t segment = chunk * p.segments // p.chunks + taken
    cdef intptr_t segments_end = min(segment + turn, (chunk + 1) * p.segments // p.chunks)
    cdef intptr_t group, channel, channels, o
    dw += chunk * p.groups * p.outputs * p.channels * p.kernel
    if db != NULL:
        db += chunk * p.groups * p.outputs
    while unit < end:
        group = unit // p.channels
        channel = unit % p.channels
        channels = min(end - unit, p.channels - channel)
        for o in range(p.outputs if taken == 0 else 0):
            memset(
                dw + ((group * p.outputs + o) * p.channels + channel) * p.kernel, 0,
                channels * p.kernel * sizeof(real))
            if db != NULL and channel == 0:
                db[group * p.outputs + o] = 0
        weight_group(p, x, dy, dw, db, packed, batch, group, channel, channels, segment, segments_end)
        unit += channels


cdef inline void merge(
    real* to, const real* chunks, intptr_t count, intptr_t number, intptr_t begin, intptr_t end
) noexcept nogil:
    """to[begin .. end - 1] = the chunks' sums, in the order of the chunks."""
    cdef intptr_t i, c
    for i in range(begin, end):
        to[i] = chunks[i]
    for c in range(1, number):
        for i in range(begin, end):
            to[i] += chunks[c * count + i]
