# cython: cdivision=True
# A convolution's layout as the kernel sees it, with packing into it and unpacking from it.
#
# `Plan` holds conv_layout.py's Tables with the shapes: places count numbers, and every table is an array of intptr_t. A
# segment is the unit of packing: an image, a strip of one, or one image for each lane of a vector. Arrays are addressed
# in bytes: a number has `item` of them, and blocks.h has the loops for either size.

from libc.stdint cimport intptr_t
from libc.string cimport memset

from minorm_ext.runtime.numbers cimport ceil_div, cut

cdef extern from "conv/blocks.h" nogil:
    enum:
        QUAD
        BLOCK_ROWS
        VECTOR_BYTES
        SUM_BYTES
        AFTER
    ctypedef struct Ends "minorm_ends":
        const char* bias
        const char* epilogue
        const char* more
    void row_in(size_t item, void* to, const void* source, intptr_t step, intptr_t count)
    void row_out(size_t item, void* to, const void* source, intptr_t step, intptr_t count)
    void rows_out(size_t item, void* to, const void* first, const void* second, intptr_t firsts, intptr_t count)
    void images_in(
        size_t item, intptr_t lanes, void* to, const intptr_t* place, const void* source, intptr_t image,
        intptr_t images, intptr_t pixels)
    void images_out(size_t item, void* to, const void* source, intptr_t image, intptr_t images, intptr_t pixels)
    void add_to(size_t item, void* to, const void* more, intptr_t count)

cdef struct Row:  # of a packed channel
    intptr_t place  # where it is packed
    intptr_t d, h, w  # where it begins in an image
    intptr_t step, count  # of w

cdef struct Side:  # the source, or the results
    intptr_t[3] extent  # of a channel along d, h, w
    intptr_t size  # numbers of a channel
    intptr_t channels  # of all groups
    intptr_t move  # the distance from one strip to the next, along the axis that is cut
    intptr_t row_count, zero_count
    const Row* rows
    const intptr_t* zeros  # (place, count) of the numbers that are set to 0 before packing
    const intptr_t* pixels  # if lanes are images: the place of each pixel

cdef struct Plan:
    # the shapes: channels and outputs are those of a group; kernel is its number of taps
    intptr_t images, groups, channels, outputs, kernel
    intptr_t lanes  # of a vector: those of a register, or the number of partial sums
    Side source, result
    # the tables
    bint by_image, direct_in, direct_out
    intptr_t segments, plane, results, strips, along, out_move, quads, vectors
    const intptr_t* position
    const intptr_t* place
    const intptr_t* runs
    const intptr_t* taps
    const intptr_t* ranges
    # how the work is cut
    intptr_t fit, chunks, parts, run
    int columns
    # rows of a depthwise kernel whose quads stand below each other, else 0
    int tall

cdef struct Correlation:  # what all jobs share that compute y
    const void* plan  # a Plan or a TilePlan
    size_t item
    bint transposed
    const char* x
    const char* w
    Ends ends
    char* y
    char* kernels  # for tiles: the transformed kernels, 16 x O x C for each group
    char* scratch  # `own` numbers for each thread
    intptr_t own
    intptr_t batch  # segments a job
    intptr_t parts  # of the blocks of output channels
    intptr_t slices  # of the quads of vectors

cdef struct WeightGradient:  # what all jobs share that compute dw and db
    const void* plan
    size_t item
    const char* x
    const char* dy
    char* dw
    char* db  # NULL: the caller does not want it
    char* sums  # for every chunk, `chunk_step` numbers: the sums for dw, then those for db
    char* scratch
    intptr_t own, chunk_step
    intptr_t batch  # segments that are packed at a time
    intptr_t parts  # of the channels; every part packs all gradients again
    intptr_t done, step  # how much of every chunk is added so far, and how much a job adds
    intptr_t slices  # number of slices of dw; a job adds up all chunks for one slice


cdef inline Ends ends_at(const Ends* ends, size_t item, intptr_t channel, intptr_t at) noexcept nogil:
    """Return the ends of a channel's results from number `at` on."""
    cdef Ends moved = ends[0]
    if moved.bias != NULL:
        moved.bias += channel * item
    if moved.epilogue != NULL:
        moved.epilogue += channel * AFTER * item
    if moved.more != NULL:
        moved.more += at * item
    return moved


cdef inline intptr_t blocks_of(const Plan* p) noexcept nogil:
    """Return how many blocks the output channels of a group are split into."""
    return ceil_div(p.outputs, BLOCK_ROWS)


cdef inline intptr_t begin_of(const Plan* p, intptr_t block) noexcept nogil:
    """Return the first output channel of a block; the blocks are as equal as possible."""
    return cut(p.outputs, blocks_of(p), block)


cdef inline intptr_t image_of(const Plan* p, intptr_t segment) noexcept nogil:
    """Return the first image of a segment."""
    return segment * p.lanes if p.by_image else segment // p.strips


cdef inline intptr_t within(intptr_t count, intptr_t first, intptr_t step, intptr_t end) noexcept nogil:
    """Return how many of the `count` places first, first + step, ... come before the end."""
    return max(0, min(count, (end - first + step - 1) // step))


cdef inline intptr_t row_at(const Side* side, intptr_t along, intptr_t strip, intptr_t i, Row* row) noexcept nogil:
    """Return where row number i of a strip begins in its channel, and fill `row` with its part inside the channel."""
    cdef intptr_t before
    row[0] = side.rows[i]
    if along == 0:
        row.d += strip * side.move
    elif along == 1:
        row.h += strip * side.move
    else:
        row.w += strip * side.move
        before = within(row.count, row.w, row.step, 0)
        row.count = within(row.count, row.w, row.step, side.extent[2]) - before
        row.w += before * row.step
        row.place += before
    if not (0 <= row.d < side.extent[0] and 0 <= row.h < side.extent[1]):
        row.count = 0
    return (row.d * side.extent[1] + row.h) * side.extent[2] + row.w


cdef inline void pack(
    const Plan* p, Side side, size_t item, char* plane, const char* x, intptr_t channel, intptr_t segment
) noexcept nogil:
    """Pack one channel of one segment into its plane: from the source, or, in a forward plan, from the gradients dy."""
    cdef intptr_t image = image_of(p, segment)
    cdef intptr_t strip = segment % p.strips
    cdef intptr_t i, at
    cdef Row row
    x += (image * side.channels + channel) * side.size * item
    for i in range(side.zero_count):
        memset(plane + side.zeros[2 * i] * item, 0, side.zeros[2 * i + 1] * item)
    if p.by_image:
        images_in(item, p.lanes, plane, side.pixels, x, side.channels * side.size, p.images - image, side.size)
    for i in range(side.row_count):
        at = row_at(&side, p.along, strip, i, &row)
        row_in(item, plane + row.place * item, x + at * item, row.step, row.count)


cdef inline void unpack(
    const Plan* p, size_t item, char* y, const char* more, const char* results, intptr_t channel, intptr_t segment
) noexcept nogil:
    """Store the results of one channel of one segment in their places in y, and add the numbers of `more`, if any."""
    cdef const Side* side = &p.result
    cdef intptr_t image = image_of(p, segment)
    cdef intptr_t strip = segment % p.strips
    cdef intptr_t step = side.channels * side.size
    cdef intptr_t first = image * step + channel * side.size
    cdef intptr_t whole = side.size
    cdef intptr_t i = 0
    cdef intptr_t at
    cdef Row row, other
    y += first * item
    if p.by_image:
        images_out(item, y, results, step, p.images - image, side.size)
    while i < side.row_count:
        at = row_at(side, p.along, strip, i, &row)
        i += 1
        if row.step == 2 and side.extent[2] > 1:  # the other half of this row follows in the table
            row_at(side, p.along, strip, i, &other)
            i += 1
            rows_out(
                item, y + at * item, results + row.place * item, results + other.place * item, row.count, other.count)
        else:
            row_out(item, y + at * item, results + row.place * item, row.step, row.count)
    if more != NULL:
        if not p.by_image:  # a strip is of the first axis that has several results: they follow each other
            whole = side.move * (side.size // side.extent[p.along])
        more += first * item
        for i in range(min(p.lanes, p.images - image) if p.by_image else 1):
            at = (i * step + strip * whole) * item
            add_to(item, y + at, more + at, min(side.size - strip * whole, whole))
