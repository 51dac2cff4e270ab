# cython: cdivision=True
# Winograd's F(2x2, 3x3): convolutions of 3x3 with stride 1, by 16 products of tiles instead of 36.
#
#     y  = A^T [ sum over channels of (G w G^T) * (B^T x B) ] A         products
#     dw = G^T [ sum over tiles of (A dy A^T) * (B^T x B) ] G           sums
#
# A piece is the tiles of a few images, or of some rows of tiles of one. Its tiles for all channels (V, 16 x C x tiles)
# and their products (M), or the tiles of dy, lie in scratch memory in the second cache. All pieces share the
# transformed kernels; a single piece transforms them a few at a time, just before it uses them. winograd.inc.h has the
# arithmetic, minorm/kernels/cpu/conv_tiles.py the sizes, docs/adr/0007-winograd.md the reasons.

from libc.stdint cimport intptr_t
from libc.string cimport memset

from minorm_ext.conv.plan cimport SUM_BYTES, VECTOR_BYTES, Correlation, Ends, WeightGradient, ends_at
from minorm_ext.conv.weights cimport MOST_TAPS, add_total, add_up, weight_taps, weights
from minorm_ext.runtime.jobs cimport threadid
from minorm_ext.runtime.numbers cimport ceil_div, cut

cdef extern from "conv/blocks.h" nogil:
    ctypedef struct Tiles "minorm_tiles":
        intptr_t images, step, height, width, top, left, first, rows, columns
    void tiles_in(
        size_t item, int gradient, const Tiles* p, const void* x, void* v, intptr_t v_step, void* scratch)
    void tiles_out(
        size_t item, const Tiles* p, const void* m, intptr_t m_step, const Ends* ends, void* y, void* scratch)
    void kernels_in(
        size_t item, int turned, int rows, intptr_t channels, const void* w, intptr_t row_step, intptr_t channel_step,
        void* u, intptr_t u_step)
    void kernels_out(
        size_t item, intptr_t chunks, intptr_t chunk_step, const void* sums, intptr_t sums_step, intptr_t begin,
        intptr_t end, void* dw)
    void tile_products(
        size_t item, int rows, intptr_t vectors, const void* v, intptr_t v_step, intptr_t channels, const void* u,
        void* m, intptr_t m_step)

cdef enum:
    PRODUCTS = 16  # products of a tile
    VECTORS = 64  # vectors of tiles that the gradient for the weights adds up at a time

cdef struct TilePlan:
    # the shapes: channels and outputs are those of a group
    intptr_t images, groups, channels, outputs
    intptr_t height, width, result_height, result_width
    intptr_t top, left  # zeros before the source; if negative, so much of the source is cut off
    intptr_t rows, columns  # tiles of an image
    # how the work is cut
    intptr_t images_at_once, rows_at_once, strips, pieces, chunks
    intptr_t blocks, units  # blocks of outputs, and how many of their products wait to be put together into results
    # where things lie, in numbers
    intptr_t pitch  # from the tiles of a channel to those of the next
    intptr_t source_step, result_step, kernel_step  # from a product to the next: in V, in M or dy's tiles, in kernels
    intptr_t chunk_step  # from the sums of a chunk to those of the next
    intptr_t kernels  # transformed, in all; 0: there is one piece, and its jobs transform those they are about to use
    intptr_t transforms, scratch  # scratch memory of a thread: for transforming a channel, and in all


cdef inline void order_block(const Correlation* t, intptr_t group, intptr_t block, char* kernels) noexcept nogil:
    """Transform the kernels of one block of outputs, and store them in the order of their use."""
    cdef const TilePlan* p = <const TilePlan*>t.plan
    cdef intptr_t begin = cut(p.outputs, p.blocks, block)
    cdef intptr_t row_step = 9 if t.transposed else p.channels * 9
    kernels_in(
        t.item, t.transposed, <int>(cut(p.outputs, p.blocks, block + 1) - begin), p.channels,
        t.w + (group * p.outputs * p.channels * 9 + begin * row_step) * t.item, row_step,
        p.outputs * 9 if t.transposed else 9, kernels, p.kernel_step)


cdef inline void order_kernels(const void* task, Py_ssize_t unit) noexcept nogil:
    """Transform one block of kernels for all pieces of its group."""
    cdef const Correlation* t = <const Correlation*>task
    cdef const TilePlan* p = <const TilePlan*>t.plan
    cdef intptr_t group = unit // p.blocks
    cdef intptr_t place = group * PRODUCTS * p.kernel_step + cut(p.outputs, p.blocks, unit % p.blocks) * p.channels
    order_block(t, group, unit % p.blocks, t.kernels + place * t.item)


cdef inline Tiles tiles_of(const TilePlan* p, intptr_t piece) noexcept nogil:
    """Return the tiles of a piece, without the plane they are cut from."""
    cdef Tiles tiles
    tiles.images = min(p.images_at_once, p.images - piece // p.strips * p.images_at_once)
    tiles.first = piece % p.strips * p.rows_at_once
    tiles.rows = min(p.rows_at_once, p.rows - tiles.first)
    tiles.columns = p.columns
    return tiles


cdef inline char* scratch_of(const TilePlan* p, size_t item, char* v) noexcept nogil:
    """Return the free scratch memory behind V, the tiles of a piece, and its products or its results' gradients."""
    return v + PRODUCTS * (p.source_step + p.result_step) * item


cdef inline void cut_tiles(
    const TilePlan* p, size_t item, intptr_t piece, bint gradient, const char* x, intptr_t channel, intptr_t channels,
    char* v
) noexcept nogil:
    """Cut the tiles of a piece for some channels: of the source, or, stored after those, of its results' gradients."""
    cdef intptr_t all_channels = p.groups * (p.outputs if gradient else p.channels)
    cdef char* scratch = scratch_of(p, item, v)
    cdef Tiles tiles = tiles_of(p, piece)
    cdef intptr_t plane, c
    tiles.height = p.result_height if gradient else p.height
    tiles.width = p.result_width if gradient else p.width
    tiles.top = 0 if gradient else p.top
    tiles.left = 0 if gradient else p.left
    plane = tiles.height * tiles.width
    tiles.step = all_channels * plane
    x += (piece // p.strips * p.images_at_once * all_channels + channel) * plane * item
    if gradient:
        v += PRODUCTS * p.source_step * item
    memset(scratch, 0, p.transforms * item)
    for c in range(channels):
        tiles_in(
            item, gradient, &tiles, x + c * plane * item, v + c * p.pitch * item,
            p.result_step if gradient else p.source_step, scratch)


cdef inline void product_job(const void* task, Py_ssize_t index) noexcept nogil:
    """Compute one piece of one group, for one part of the output channels."""
    cdef const Correlation* t = <const Correlation*>task
    cdef const TilePlan* p = <const TilePlan*>t.plan
    cdef intptr_t part = index % t.parts
    cdef intptr_t group = index // t.parts % p.groups
    cdef intptr_t piece = index // t.parts // p.groups
    cdef intptr_t plane = p.result_height * p.result_width
    cdef intptr_t channel = (piece // p.strips * p.images_at_once * p.groups + group) * p.outputs
    cdef char* v = t.scratch + threadid() * p.scratch * t.item
    cdef char* m = v + PRODUCTS * p.source_step * t.item
    cdef char* u = t.kernels + group * PRODUCTS * p.kernel_step * t.item
    cdef intptr_t first = 0  # the output of the first kernels in that memory
    cdef intptr_t unit = cut(p.blocks, t.parts, part)
    cdef intptr_t units_end = cut(p.blocks, t.parts, part + 1)
    cdef intptr_t begin, o, k, i, last
    cdef Ends ends
    cdef Tiles tiles = tiles_of(p, piece)
    cdef intptr_t vectors = ceil_div(tiles.images * tiles.rows * tiles.columns * t.item, VECTOR_BYTES)
    tiles.step, tiles.height, tiles.width = p.groups * p.outputs * plane, p.result_height, p.result_width
    cut_tiles(p, t.item, piece, False, t.x, group * p.channels, p.channels, v)
    while unit < units_end:
        last = min(units_end, unit + p.units)
        begin = cut(p.outputs, p.blocks, unit)
        if p.kernels == 0:
            u = scratch_of(p, t.item, v) + p.transforms * t.item
            first = begin
            for i in range(unit, last):
                order_block(t, group, i, u + (cut(p.outputs, p.blocks, i) - first) * p.channels * t.item)
        for k in range(PRODUCTS):
            for i in range(unit, last):
                o = cut(p.outputs, p.blocks, i)
                tile_products(
                    t.item, <int>(cut(p.outputs, p.blocks, i + 1) - o), vectors, v + k * p.source_step * t.item,
                    p.pitch, p.channels, u + (k * p.kernel_step + (o - first) * p.channels) * t.item,
                    m + (k * p.result_step + (o - begin) * p.pitch) * t.item, p.pitch)
        for o in range(begin, cut(p.outputs, p.blocks, last)):
            ends = ends_at(&t.ends, t.item, group * p.outputs + o, (channel + o) * plane)
            tiles_out(
                t.item, &tiles, m + (o - begin) * p.pitch * t.item, p.result_step, &ends,
                t.y + (channel + o) * plane * t.item, scratch_of(p, t.item, v))
        unit = last


cdef inline void sum_products(
    const TilePlan* p, size_t item, const char* v, const char* dy, intptr_t tiles, intptr_t channels, char* sums
) noexcept nogil:
    """sums[o][c] += over tiles dy[o] * v[c], for one of the 16 products."""
    cdef intptr_t[VECTORS] place
    cdef intptr_t[MOST_TAPS] shift
    cdef intptr_t lanes = SUM_BYTES // <intptr_t>item
    cdef intptr_t first = 0
    cdef intptr_t b, c, i, o
    cdef int rows, taps
    for i in range(VECTORS):
        place[i] = i * lanes
    for i in range(MOST_TAPS):
        shift[i] = i * p.pitch
    while first < tiles:
        for b in range(p.blocks):
            o = cut(p.outputs, p.blocks, b)
            rows = <int>(cut(p.outputs, p.blocks, b + 1) - o)
            taps = weight_taps(rows, 4)
            c = 0
            while c < channels:
                weights(
                    item, rows, 4, v + (c * p.pitch + first) * item, shift, place, 0, dy + (o * p.pitch + first) * item,
                    place, p.pitch, 0, 0, min(VECTORS, ceil_div(tiles - first, lanes)), 1,
                    sums + (o * p.channels + c) * item, p.channels, <int>min(taps, channels - c))
                c += taps
        first += VECTORS * lanes


cdef inline void sum_job(const void* task, Py_ssize_t index) noexcept nogil:
    """Add some pieces of one chunk, for one group and some of its channels, to the chunk's own sums."""
    cdef const WeightGradient* t = <const WeightGradient*>task
    cdef const TilePlan* p = <const TilePlan*>t.plan
    cdef intptr_t part = index % t.parts
    cdef intptr_t group = index // t.parts % p.groups
    cdef intptr_t chunk = index // t.parts // p.groups
    cdef intptr_t channel = cut(p.channels, t.parts, part)
    cdef intptr_t channels = cut(p.channels, t.parts, part + 1) - channel
    cdef intptr_t piece = cut(p.pieces, p.chunks, chunk) + t.done
    cdef intptr_t end = min(piece + t.step, cut(p.pieces, p.chunks, chunk + 1))
    cdef char* v = t.scratch + threadid() * p.scratch * t.item
    cdef char* dy = v + PRODUCTS * p.source_step * t.item
    cdef char* all_sums = t.sums + chunk * t.chunk_step * t.item
    cdef char* sums = all_sums + (group * PRODUCTS * p.kernel_step + channel) * t.item
    cdef char* bias = all_sums + (p.groups * PRODUCTS * p.kernel_step + group * p.outputs) * t.item
    cdef intptr_t lanes = SUM_BYTES // <intptr_t>t.item
    cdef intptr_t k, i, tiles, rest
    cdef Tiles some
    if t.done == 0:
        for k in range(PRODUCTS):
            for i in range(p.outputs):
                memset(sums + (k * p.kernel_step + i * p.channels) * t.item, 0, channels * t.item)
        if part == 0:
            memset(bias, 0, p.outputs * t.item)
    while piece < end:
        cut_tiles(p, t.item, piece, False, t.x, group * p.channels + channel, channels, v)
        cut_tiles(p, t.item, piece, True, t.dy, group * p.outputs, p.outputs, v)
        some = tiles_of(p, piece)
        tiles = some.images * some.rows * some.columns
        rest = ceil_div(tiles, lanes) * lanes - tiles
        for k in range(PRODUCTS):
            for i in range(channels if rest else 0):
                memset(v + (k * p.source_step + i * p.pitch + tiles) * t.item, 0, rest * t.item)
            for i in range(p.outputs if rest else 0):
                memset(dy + (k * p.result_step + i * p.pitch + tiles) * t.item, 0, rest * t.item)
            sum_products(
                p, t.item, v + k * p.source_step * t.item, dy + k * p.result_step * t.item, tiles, channels,
                sums + k * p.kernel_step * t.item)
        for i in range(p.outputs if part == 0 and t.db != NULL else 0):  # product 1, 1 sums the gradients of a tile
            add_total(t.item, bias + i * t.item, dy + (5 * p.result_step + i * p.pitch) * t.item, tiles + rest)
        piece += 1


cdef inline void add_sums(const void* task, Py_ssize_t index) noexcept nogil:
    """Compute a slice of dw of one group from the sums of all chunks; with the first slice all of db."""
    cdef const WeightGradient* t = <const WeightGradient*>task
    cdef const TilePlan* p = <const TilePlan*>t.plan
    cdef intptr_t group = index // t.slices
    cdef intptr_t count = p.outputs * p.channels
    cdef const char* bias = t.sums + PRODUCTS * p.groups * p.kernel_step * t.item
    kernels_out(
        t.item, p.chunks, t.chunk_step, t.sums + PRODUCTS * group * p.kernel_step * t.item, p.kernel_step,
        cut(count, t.slices, index % t.slices), cut(count, t.slices, index % t.slices + 1),
        t.dw + group * count * 9 * t.item)
    if index == 0 and t.db != NULL:
        add_up(t.item, t.db, bias, t.chunk_step, p.chunks, 0, p.groups * p.outputs)
