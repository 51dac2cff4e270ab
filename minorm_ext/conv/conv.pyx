# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False, binding=False
# Convolution without im2col: pack the source once, then every tap of the kernel is a shifted read of it.
#
#     y[o][p] = b[o] + sum over channels c and taps t of  w[o][c][t] * packed[c][position[p] + shift[t]]
#
# A job packs the channels of a few images (or of a strip of one) into a buffer that fits the second cache, and computes
# all output channels from it, up to six at a time: a block of 6 channels x 4 vectors of results stays in registers
# while all channels and taps pass by (block.inc.h). What the lanes of a vector are, neighbouring pixels or images, and
# where everything lies, is the layout's matter: minorm/kernels/cpu/conv_layout.py explains it and fills the tables,
# plan.pxd packs and unpacks by them. Kernels of 3x3 have another way where it pays, Winograd's (winograd.pxd), and
# conv_plan.py chooses. Both have two sums: `correlate` (correlation.pxd) for the forward pass and the gradient for the
# input, and `weight_gradient` (weights.pxd), which cuts its work into chunks by shapes alone and adds them up in their
# order, so that no bit depends on the number of threads.

from libc.stdint cimport intptr_t

from minorm_ext.conv.correlation cimport Correlation, correlate_job
from minorm_ext.conv.plan cimport (
    AFTER, BLOCK_ROWS, QUAD, SUM_BYTES, VECTOR_BYTES, Ends, Plan, blocks_of, result_count, source_count, weight_count,
)
from minorm_ext.conv.weights cimport WeightGradient, add_chunks, add_segments
from minorm_ext.conv.winograd cimport (
    PRODUCTS, TilePlan, TileProducts, TileSums, add_sums, order_kernels, product_job, sum_job,
)
from minorm_ext.runtime.buffers cimport address
from minorm_ext.runtime.jobs cimport check_signals, parallel_for
from minorm_ext.runtime.numbers cimport ceil_div

# Multiply-adds a thread computes between two checks of signals: 0.2 s even without vector instructions worth the name.
cdef double SIGNAL_INTERVAL = 5e8
cdef enum:
    LINE = 16  # numbers in a cache line, at most
    WEIGHTS = 1 << 24  # that are brought into order between two checks
    MERGE_WORK = 100000  # numbers from which a second thread pays where chunks are added up
    PACK_WORK = 8192  # and where weights are brought into order
cdef double WORTH = 5e5  # multiply-adds that are worth another thread

VECTORS = QUAD  # of results in a block
BLOCK = BLOCK_ROWS  # its output channels


def lanes(Py_ssize_t itemsize, bint sums):
    """How many numbers of this size a vector has: of results a register, of partial sums as many on every level."""
    return (SUM_BYTES if sums else VECTOR_BYTES) // itemsize


cdef inline intptr_t aligned(intptr_t count) noexcept nogil:
    """Numbers that begin and end on a cache line."""
    return ceil_div(count, LINE) * LINE


cdef double share_of(double work, int threads) noexcept nogil:
    """How much of so many multiply-adds may be done between two checks of signals."""
    return min(1.0, threads * SIGNAL_INTERVAL / work)


cdef int threads_for(double work, int threads) noexcept nogil:
    """How many threads are worth waking: each should have some ten microseconds to do."""
    return <int>min(<double>threads, 1 + work / WORTH)


cdef intptr_t parts_for(double work, intptr_t jobs, intptr_t most, intptr_t wanted) noexcept nogil:
    """Into how many parts, `most` at most, jobs of so much work are cut: threads want jobs, and Ctrl-C an answer."""
    cdef intptr_t parts = 1
    while parts < most and (jobs * parts < wanted or work > parts * SIGNAL_INTERVAL):
        parts += 1
    return parts


cdef Ends ends_of(tuple arrays, Py_ssize_t itemsize, intptr_t channels, intptr_t results) except *:
    """What becomes of the sums of so many channels, from arrays or None."""
    cdef Ends ends
    b, epilogue, more = arrays
    ends.bias = ends.epilogue = ends.more = NULL
    if b is not None:
        ends.bias = <const char*>address(b, itemsize, False, channels)
    if epilogue is not None:
        ends.epilogue = <const char*>address(epilogue, itemsize, False, channels * AFTER)
    if more is not None:
        ends.more = <const char*>address(more, itemsize, False, results)
    return ends


# ---- by shifted reads ----------------------------------------------------------------------------------------------


cdef const intptr_t* pointer(dict tables, str name) except? NULL:
    return <const intptr_t*>address(tables[name], sizeof(intptr_t))


cdef double products_of(const Plan* p) noexcept nogil:
    """All multiply-adds, and one."""
    return <double>p.images * p.result_size * p.groups * p.outputs * p.channels * p.kernel + 1


cdef intptr_t correlate_batch(const Plan* p, int threads) noexcept nogil:
    """Segments a job: as many as the cache takes, but so that every thread gets several jobs."""
    return max(1, min(p.fit, p.segments // (4 * threads)))


cdef intptr_t correlate_own(const Plan* p, int threads) noexcept nogil:
    """Numbers of scratch memory for each thread."""
    return aligned(correlate_batch(p, threads) * (p.channels * p.plane + BLOCK_ROWS * p.results))


cdef intptr_t weight_batch(const Plan* p) noexcept nogil:
    """Segments that are packed at a time."""
    return max(1, min(p.fit, ceil_div(p.segments, p.chunks)))


cdef intptr_t weight_own(const Plan* p) noexcept nogil:
    """Numbers of scratch memory for each thread."""
    cdef intptr_t channels = min(ceil_div(p.groups * p.channels, p.parts), p.channels)
    return aligned(weight_batch(p) * (channels * p.plane + p.outputs * p.results))


cdef class Layout:
    """The tables of conv_layout.py and the shapes, as the kernel reads them."""

    cdef Plan plan
    cdef object tables

    def __init__(self, dict tables, dict sizes):
        cdef Plan* p = &self.plan
        self.tables = tables  # the arrays live as long as the pointers
        p.images, p.groups, p.channels = sizes["images"], sizes["groups"], sizes["channels"]
        p.outputs, p.kernel, p.lanes = sizes["outputs"], sizes["kernel"], sizes["lanes"]
        for i in range(3):
            p.source[i], p.result[i] = sizes["source"][i], sizes["result"][i]
        p.source_size = p.source[0] * p.source[1] * p.source[2]
        p.result_size = p.result[0] * p.result[1] * p.result[2]
        p.fit, p.chunks, p.parts = sizes["fit"], sizes["chunks"], sizes["parts"]
        p.run, p.columns, p.tall = sizes["run"], sizes["columns"], tables["tall"]
        p.by_image, p.direct_in, p.direct_out = tables["by_image"], tables["direct_in"], tables["direct_out"]
        p.segments, p.plane, p.results = tables["segments"], tables["plane"], tables["results"]
        p.strips, p.along, p.row_step = tables["strips"], tables["along"], tables["row_step"]
        p.source_move, p.result_move = tables["source_move"], tables["result_move"]
        p.out_move, p.vectors, p.quads = tables["out_move"], tables["vectors"], len(tables["runs"])
        p.rows_in_count, p.rows_out_count = len(tables["rows_in"]), len(tables["rows_out"])
        p.zeros_count = len(tables["zeros"])
        p.rows_in, p.rows_out = pointer(tables, "rows_in"), pointer(tables, "rows_out")
        p.pixels_in, p.zeros = pointer(tables, "pixels_in"), pointer(tables, "zeros")
        p.position, p.place = pointer(tables, "position"), pointer(tables, "place")
        p.runs, p.taps, p.ranges = pointer(tables, "runs"), pointer(tables, "taps"), pointer(tables, "ranges")

    def correlate_buffer(self, int threads):
        """How many numbers of scratch memory `correlate` needs."""
        cdef const Plan* p = &self.plan
        threads = threads_for(products_of(p), threads)
        return threads * correlate_own(p, threads)

    def correlate(self, x, w, tuple ends, y, buffer, bint transposed, Py_ssize_t itemsize, int threads):
        """y = the layout's sum over x with the weights w. All arrays in C order.

        ends: a bias, an epilogue of AFTER numbers a channel, and another y to be added; None for what there is not.
        ValueError where one has fewer elements than the layout reads or writes.
        """
        cdef const Plan* p = &self.plan
        cdef Correlation c
        cdef intptr_t units = p.groups * blocks_of(p)
        cdef double work = products_of(p)
        cdef intptr_t jobs
        c.plan, c.item, c.transposed = p, itemsize, transposed
        c.x = <const char*>address(x, itemsize, False, source_count(p))
        c.w = <const char*>address(w, itemsize, False, weight_count(p))
        c.ends = ends_of(ends, itemsize, p.groups * p.outputs, result_count(p))
        c.y = <char*>address(y, itemsize, True, result_count(p))
        c.scratch = <char*>address(buffer, itemsize, True, self.correlate_buffer(threads))
        threads = threads_for(work, threads)
        c.batch, c.own = correlate_batch(p, threads), correlate_own(p, threads)
        c.slices = 1
        jobs = ceil_div(p.segments, c.batch)
        c.parts = parts_for(work / jobs, jobs, units, 2 * threads)
        jobs *= c.parts
        if p.direct_in and p.direct_out and jobs * SIGNAL_INTERVAL < work:
            c.slices = min(p.quads, <intptr_t>(work / (jobs * SIGNAL_INTERVAL)) + 1)
            jobs *= c.slices
        with nogil:
            parallel_for(correlate_job, &c, 0, jobs, max(threads, <intptr_t>(jobs * share_of(work, threads))), threads)
            check_signals()

    def weight_buffer(self, int threads):
        """How many numbers of scratch memory `weight_gradient` needs."""
        cdef const Plan* p = &self.plan
        threads = threads_for(products_of(p), threads)
        return (
            aligned(p.chunks * weight_count(p)) + aligned(p.chunks * p.groups * p.outputs) + threads * weight_own(p)
        )

    def weight_gradient(self, dy, x, dw, db, buffer, Py_ssize_t itemsize, int threads):
        """dw, and db (or None): the gradients of the sum for its weights and its bias. All arrays in C order.

        ValueError where one has fewer elements than the layout reads or writes.
        """
        cdef const Plan* p = &self.plan
        cdef WeightGradient g
        cdef intptr_t jobs = p.chunks * p.parts
        cdef intptr_t longest = ceil_div(p.segments, p.chunks)
        cdef intptr_t per_round
        cdef double share
        g.plan, g.item, g.outputs = p, itemsize, p.groups * p.outputs
        g.x = <const char*>address(x, itemsize, False, source_count(p))
        g.dy = <const char*>address(dy, itemsize, False, result_count(p))
        g.dw = <char*>address(dw, itemsize, True, weight_count(p))
        g.db = NULL if db is None else <char*>address(db, itemsize, True, g.outputs)
        g.chunks_dw = <char*>address(buffer, itemsize, True, self.weight_buffer(threads))
        g.chunks_db = g.chunks_dw + aligned(p.chunks * weight_count(p)) * itemsize
        g.scratch = g.chunks_db + aligned(p.chunks * g.outputs) * itemsize
        threads = threads_for(products_of(p), threads)
        g.batch, g.own = weight_batch(p), weight_own(p)
        share = share_of(products_of(p), threads)
        g.step = longest if share == 1 else g.batch * max(1, <intptr_t>(longest * share) // g.batch)
        per_round = max(threads, <intptr_t>(jobs * min(1.0, share * longest / g.step)))
        g.pieces = 1 if p.chunks * weight_count(p) < MERGE_WORK else 4 * threads
        g.done = 0
        with nogil:
            while g.done < longest:
                parallel_for(add_segments, &g, 0, jobs, per_round, threads)
                check_signals()
                g.done += g.step
            parallel_for(add_chunks, &g, 0, g.pieces, g.pieces, threads)


# ---- by Winograd's tiles -------------------------------------------------------------------------------------------


cdef double tile_work(const TilePlan* p) noexcept nogil:
    return <double>PRODUCTS * p.images * p.rows * p.columns * p.groups * p.channels * p.outputs + 1


cdef intptr_t tile_results(const TilePlan* p) noexcept nogil:
    return p.images * p.groups * p.outputs * p.result_height * p.result_width


cdef class Winograd:
    """The shapes of a convolution by Winograd's F(2x2, 3x3), and how its tiles are cut: the sizes of conv_tiles.py."""

    cdef TilePlan plan

    def __init__(self, dict sizes):
        self.plan = sizes

    def correlate_buffer(self, int threads):
        cdef const TilePlan* p = &self.plan
        return PRODUCTS * p.groups * p.kernel_step + threads_for(tile_work(p), threads) * p.scratch

    def correlate(self, x, w, tuple ends, y, buffer, bint transposed, Py_ssize_t itemsize, int threads):
        """Layout.correlate's y, by the products of tiles."""
        cdef const TilePlan* p = &self.plan
        cdef TileProducts t
        cdef double work = tile_work(p)
        cdef intptr_t jobs = p.pieces * p.groups
        t.plan, t.item, t.transposed = p, itemsize, transposed
        t.x = <const char*>address(x, itemsize, False, p.images * p.groups * p.channels * p.height * p.width)
        t.w = <const char*>address(w, itemsize, False, 9 * p.groups * p.outputs * p.channels)
        t.ends = ends_of(ends, itemsize, p.groups * p.outputs, tile_results(p))
        t.y = <char*>address(y, itemsize, True, tile_results(p))
        t.kernels = <char*>address(buffer, itemsize, True, self.correlate_buffer(threads))
        t.scratch = t.kernels + PRODUCTS * p.groups * p.kernel_step * itemsize
        threads = threads_for(work, threads)
        t.parts = parts_for(work / jobs, jobs, p.blocks, 2 * threads)
        jobs *= t.parts
        with nogil:
            parallel_for(
                order_kernels, &t, 0, p.groups * p.blocks, WEIGHTS // (BLOCK_ROWS * p.channels * 9),
                threads if 9 * p.channels * p.outputs > PACK_WORK else 1)
            check_signals()
            parallel_for(product_job, &t, 0, jobs, max(threads, <intptr_t>(jobs * share_of(work, threads))), threads)
            check_signals()

    def weight_buffer(self, int threads):
        cdef const TilePlan* p = &self.plan
        return p.chunks * p.chunk_step + threads_for(tile_work(p), threads) * p.scratch

    def weight_gradient(self, dy, x, dw, db, buffer, Py_ssize_t itemsize, int threads):
        """Layout.weight_gradient's dw and db, by the products of tiles."""
        cdef const TilePlan* p = &self.plan
        cdef TileSums t
        cdef double work = tile_work(p)
        cdef intptr_t jobs = p.chunks * p.groups
        cdef intptr_t longest = ceil_div(p.pieces, p.chunks)
        cdef double share
        t.plan, t.item = p, itemsize
        t.x = <const char*>address(x, itemsize, False, p.images * p.groups * p.channels * p.height * p.width)
        t.dy = <const char*>address(dy, itemsize, False, tile_results(p))
        t.dw = <char*>address(dw, itemsize, True, 9 * p.groups * p.outputs * p.channels)
        t.db = NULL if db is None else <char*>address(db, itemsize, True, p.groups * p.outputs)
        t.sums = <char*>address(buffer, itemsize, True, self.weight_buffer(threads))
        t.scratch = t.sums + p.chunks * p.chunk_step * itemsize
        threads = threads_for(work, threads)
        t.parts = parts_for(work / (p.pieces * p.groups), jobs, p.channels, threads)
        jobs *= t.parts
        share = share_of(work, threads)
        t.step = max(1, <intptr_t>(longest * share))
        t.slices = 1 if p.chunks * p.chunk_step < MERGE_WORK else 4 * threads
        t.done = 0
        with nogil:
            while t.done < longest:
                parallel_for(
                    sum_job, &t, 0, jobs, max(threads, <intptr_t>(jobs * min(1.0, share * longest / t.step))), threads)
                check_signals()
                t.done += t.step
            parallel_for(add_sums, &t, 0, p.groups * t.slices, p.groups * t.slices, threads)
