# A convolution's layout as the kernel sees it, and the ways into it and out of it.
#
# `Plan` is conv_layout.py's Tables with the shapes: places are counted in numbers, and every table is an array of
# intptr_t. A segment is what is packed by itself: an image, a strip of one, or as many images as a vector has lanes.

from libc.stdint cimport intptr_t
from libc.string cimport memset

from minorm_ext.runtime.numbers cimport ceil_div, cut, real

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
    void rows_out(
        size_t item, void* to, const void* first, const void* second, intptr_t firsts, intptr_t count)
    void images_in(
        size_t item, intptr_t lanes, void* to, const intptr_t* place, const void* source, intptr_t image,
        intptr_t images, intptr_t pixels)
    void images_out(size_t item, void* to, const void* source, intptr_t image, intptr_t images, intptr_t pixels)

cdef struct Plan:
    # the shapes: channels and outputs are those of a group; kernel is its number of taps
    intptr_t images, groups, channels, outputs, kernel
    intptr_t lanes  # of a vector: as many as a register, or as partial sums
    intptr_t[3] source
    intptr_t[3] result
    intptr_t source_size, result_size
    # the tables
    bint by_image, direct_in, direct_out
    intptr_t segments, plane, results, strips, along, source_move, result_move, out_move, row_step
    intptr_t rows_in_count, rows_out_count, zeros_count, quads, vectors
    const intptr_t* rows_in
    const intptr_t* rows_out
    const intptr_t* pixels_in
    const intptr_t* zeros
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


cdef inline Ends ends_at(const Ends* ends, size_t item, intptr_t channel, intptr_t at) noexcept nogil:
    """Those of the results from number `at` on, of a channel."""
    cdef Ends moved = ends[0]
    if moved.bias != NULL:
        moved.bias += channel * item
    if moved.epilogue != NULL:
        moved.epilogue += channel * AFTER * item
    if moved.more != NULL:
        moved.more += at * item
    return moved


cdef inline intptr_t source_count(const Plan* p) noexcept nogil:
    """Elements of the array that a plan reads, dy for the gradient for the input."""
    return p.images * p.groups * p.channels * p.source_size


cdef inline intptr_t result_count(const Plan* p) noexcept nogil:
    """Elements of the array that it computes, or reads as the gradient of its results."""
    return p.images * p.groups * p.outputs * p.result_size


cdef inline intptr_t weight_count(const Plan* p) noexcept nogil:
    """Elements of the weights."""
    return p.groups * p.outputs * p.channels * p.kernel


cdef inline intptr_t blocks_of(const Plan* p) noexcept nogil:
    """How many blocks the output channels of a group are split into."""
    return ceil_div(p.outputs, BLOCK_ROWS)


cdef inline intptr_t begin_of(const Plan* p, intptr_t block) noexcept nogil:
    """The first output channel of a block; they are as alike as possible."""
    return cut(p.outputs, blocks_of(p), block)


cdef inline intptr_t image_of(const Plan* p, intptr_t segment) noexcept nogil:
    """The first image of a segment."""
    return segment * p.lanes if p.by_image else segment // p.strips


cdef inline intptr_t within(intptr_t count, intptr_t first, intptr_t step, intptr_t end) noexcept nogil:
    """How many of the places first, first + step, ... (count of them) come before the end."""
    return max(0, min(count, (end - first + step - 1) // step))


cdef inline void pack_segment(
    const Plan* p, real* plane, const real* x, intptr_t channel, intptr_t segment
) noexcept nogil:
    """One channel of one segment of the source x into its plane."""
    cdef intptr_t image = image_of(p, segment)
    cdef intptr_t strip = segment % p.strips
    cdef intptr_t move_d = strip * p.source_move if p.along == 0 else 0
    cdef intptr_t move_h = strip * p.source_move if p.along == 1 else 0
    cdef intptr_t move_w = strip * p.source_move if p.along == 2 else 0
    cdef intptr_t step = p.groups * p.channels * p.source_size
    cdef intptr_t i, d, h, w, before, count
    cdef const intptr_t* row
    x += image * step + channel * p.source_size
    for i in range(p.zeros_count):
        memset(plane + p.zeros[2 * i], 0, p.zeros[2 * i + 1] * sizeof(real))
    if p.by_image:
        images_in(sizeof(real), p.lanes, plane, p.pixels_in, x, step, p.images - image, p.source_size)
    for i in range(p.rows_in_count):
        row = p.rows_in + 5 * i
        d = row[1] + move_d
        h = row[2] + move_h
        if 0 <= d < p.source[0] and 0 <= h < p.source[1]:
            w = row[3] + move_w
            count = row[4]
            before = 0
            if p.along == 2:
                before = within(count, w, p.row_step, 0)
                count = within(count, w, p.row_step, p.source[2]) - before
            row_in(
                sizeof(real), plane + row[0] + before,
                x + (d * p.source[1] + h) * p.source[2] + w + before * p.row_step, p.row_step, count)


cdef inline void unpack_segment(
    const Plan* p, real* y, const real* more, const real* results, intptr_t channel, intptr_t segment
) noexcept nogil:
    """The results of one channel of one segment to where they belong in y, plus what `more` (or NULL) has there."""
    cdef intptr_t image = image_of(p, segment)
    cdef intptr_t strip = segment % p.strips
    cdef intptr_t move_d = strip * p.result_move if p.along == 0 else 0
    cdef intptr_t move_h = strip * p.result_move if p.along == 1 else 0
    cdef intptr_t move_w = strip * p.result_move if p.along == 2 else 0
    cdef intptr_t width = p.result[2] - move_w
    cdef intptr_t step = p.groups * p.outputs * p.result_size
    cdef intptr_t at = image * step + channel * p.result_size
    cdef intptr_t whole = p.result_size
    cdef intptr_t i = 0
    cdef intptr_t d, h, j
    cdef const intptr_t* row
    y += at
    if p.by_image:
        images_out(sizeof(real), y, results, step, p.images - image, p.result_size)
    while i < p.rows_out_count:
        row = p.rows_out + 6 * i
        d = row[1] + move_d
        h = row[2] + move_h
        i += 1
        if row[4] == 2 and p.result[2] > 1:  # the other half of this row follows in the table
            i += 1
            if d < p.result[0] and h < p.result[1]:
                rows_out(
                    sizeof(real), y + (d * p.result[1] + h) * p.result[2] + move_w, results + row[0], results + row[6],
                    within(row[5], 0, 2, width), within(row[11], 1, 2, width))
        elif d < p.result[0] and h < p.result[1]:
            row_out(
                sizeof(real), y + (d * p.result[1] + h) * p.result[2] + move_w + row[3], results + row[0], row[4],
                within(row[5], row[3], row[4], width))
    if more != NULL:
        if not p.by_image:  # a strip is of the first axis that has several results: they follow each other
            whole = p.result_move * (p.result_size // p.result[p.along])
        for i in range(min(p.lanes, p.images - image) if p.by_image else 1):
            for j in range(i * step + strip * whole, i * step + min(p.result_size, (strip + 1) * whole)):
                y[j] += more[at + j]


cdef inline void pack_results(
    const Plan* p, real* results, const real* dy, intptr_t channel, intptr_t segment
) noexcept nogil:
    """The way back, for a forward plan: dy where results would be, and zeros where there are none."""
    cdef intptr_t image = image_of(p, segment)
    cdef intptr_t strip = segment % p.strips
    cdef intptr_t move_d = strip * p.result_move if p.along == 0 else 0
    cdef intptr_t move_h = strip * p.result_move if p.along == 1 else 0
    cdef intptr_t move_w = strip * p.result_move if p.along == 2 else 0
    cdef intptr_t step = p.groups * p.outputs * p.result_size
    cdef intptr_t i, d, h
    cdef const intptr_t* row
    dy += image * step + channel * p.result_size
    if p.by_image:
        images_in(sizeof(real), p.lanes, results, p.place, dy, step, p.images - image, p.result_size)
    else:
        memset(results, 0, p.results * sizeof(real))
    for i in range(p.rows_out_count):
        row = p.rows_out + 6 * i
        d = row[1] + move_d
        h = row[2] + move_h
        if d < p.result[0] and h < p.result[1]:
            row_in(
                sizeof(real), results + row[0], dy + (d * p.result[1] + h) * p.result[2] + move_w, 1,
                within(row[5], 0, 1, p.result[2] - move_w))
