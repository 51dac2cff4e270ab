# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False, binding=False
# Convolution without im2col: pack the source once, then every tap of the kernel is a shifted read of it.
#
#     y[o][p] = b[o] + sum over channels c and taps t of  w[o][c][t] * packed[c][position[p] + shift[t]]
#
# A job packs the channels of a few images (or of a strip of one) into a buffer that fits the second cache, and computes
# all output channels from it, up to six at a time. A block of 6 channels x 4 vectors of results stays in registers
# while all channels and taps pass by (block.inc.h). The layout decides whether the lanes of a vector are neighbouring
# pixels or images, and where everything lies. minorm/kernels/cpu/conv_layout.py explains it and fills the tables;
# plan.pxd packs and unpacks by them. Kernels of 3x3 can use another way, Winograd's (winograd.pxd), if it pays;
# conv_plan.py chooses. Both ways have two sums. `correlate` (correlation.pxd) serves the forward pass and the gradient
# for the input. `weight_gradient` (weights.pxd) cuts its work into chunks by shapes alone and adds them up in their
# order, so that no bit depends on the number of threads.

from libc.stdint cimport intptr_t

from minorm_ext.conv.correlation cimport correlate_job
from minorm_ext.conv.plan cimport (
    AFTER, BLOCK_ROWS, QUAD, SUM_BYTES, VECTOR_BYTES, Correlation, Ends, Plan, Row, Side, WeightGradient, blocks_of,
)
from minorm_ext.conv.weights cimport add_chunks, add_segments
from minorm_ext.conv.winograd cimport PRODUCTS, TilePlan, add_sums, order_kernels, product_job, sum_job
from minorm_ext.runtime.buffers cimport address
from minorm_ext.runtime.jobs cimport Job, check_signals, parallel_for
from minorm_ext.runtime.numbers cimport ceil_div

# Multiply-adds a thread computes between two checks of signals: 0.2 s even with hardly any vector instructions.
cdef double SIGNAL_INTERVAL = 5e8
cdef enum:
    LINE = 16  # numbers in a cache line, at most
    WEIGHTS = 1 << 24  # weights that are reordered between two checks
    MERGE_WORK = 100000  # numbers from which a second thread pays when chunks are added up
    PACK_WORK = 8192  # weights from which a second thread pays when weights are reordered
cdef double WORTH = 5e5  # multiply-adds that are worth another thread

VECTORS = QUAD  # vectors of results in a block
BLOCK = BLOCK_ROWS  # output channels of a block


def lanes(Py_ssize_t itemsize, bint sums):
    """Return how many numbers of this size a vector has: a register of results, or a fixed number of partial sums."""
    return (SUM_BYTES if sums else VECTOR_BYTES) // itemsize


cdef inline intptr_t aligned(intptr_t count) noexcept nogil:
    """Round a count of numbers up, so that they end on a cache line if they begin on one."""
    return ceil_div(count, LINE) * LINE


cdef double share_of(double work, int threads) noexcept nogil:
    """Return the share of this many multiply-adds that the threads may do between two checks of signals."""
    return min(1.0, threads * SIGNAL_INTERVAL / work)


cdef intptr_t round_of(intptr_t jobs, double work, int threads) noexcept nogil:
    """Return how many of these jobs, with this work in all, may run between two checks of signals."""
    return max(threads, <intptr_t>(jobs * share_of(work, threads)))


cdef int threads_for(double work, int threads) noexcept nogil:
    """Return how many threads are worth waking: each should have about ten microseconds of work."""
    return <int>min(<double>threads, 1 + work / WORTH)


cdef intptr_t parts_for(double work, intptr_t jobs, intptr_t most, intptr_t wanted) noexcept nogil:
    """Return the number of parts to cut a job into: enough for the threads and for Ctrl-C, but at most `most`."""
    cdef intptr_t parts = 1
    while parts < most and (jobs * parts < wanted or work > parts * SIGNAL_INTERVAL):
        parts += 1
    return parts


cdef Ends ends_of(tuple arrays, Py_ssize_t itemsize, intptr_t channels, intptr_t results) except *:
    """Return the last steps of the sums of these channels; each array may be None."""
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


cdef int add_in_steps(
    WeightGradient* g, Job add, intptr_t jobs, intptr_t longest, Job merge, intptr_t merges, double share, int threads
) except -1:
    """Add up all chunks step by step, `longest` in the longest, then merge them; answer Ctrl-C meanwhile."""
    cdef intptr_t per_round = max(threads, <intptr_t>(jobs * min(1.0, share * longest / g.step)))
    with nogil:
        while g.done < longest:
            parallel_for(add, g, 0, jobs, per_round, threads)
            check_signals()
            g.done += g.step
        parallel_for(merge, g, 0, merges, merges, threads)
    return 0


cdef class Way:
    """Computes both sums of a convolution of one shape: the base class takes the arguments that all ways share.

    A way says how much scratch memory each sum needs (`correlate_buffer`, `weight_buffer`: numbers), and does the work.
    """

    cdef intptr_t x_count, w_count, y_count, outputs  # elements of the arrays; outputs are those of all groups
    cdef double work  # multiply-adds, and one

    cdef void measure(self, dict sizes, intptr_t taps, intptr_t source, intptr_t result):
        """Take the sizes of the arrays; source and result are those of a channel."""
        self.outputs = sizes["groups"] * sizes["outputs"]
        self.w_count = self.outputs * sizes["channels"] * taps
        self.x_count = sizes["images"] * sizes["groups"] * sizes["channels"] * source
        self.y_count = sizes["images"] * self.outputs * result

    cpdef intptr_t correlate_buffer(self, int threads):
        raise NotImplementedError

    cpdef intptr_t weight_buffer(self, int threads):
        raise NotImplementedError

    cdef int add_products(self, Correlation* c, int threads) except -1:
        raise NotImplementedError

    cdef int add_gradients(self, WeightGradient* g, int threads) except -1:
        raise NotImplementedError

    def correlate(self, x, w, tuple ends, y, buffer, bint transposed, Py_ssize_t itemsize, int threads):
        """y = the sum over x with the weights w. All arrays in C order.

        ends: a bias, an epilogue of AFTER numbers a channel, and another y to add; each may be None.
        Raises ValueError if an array has fewer elements than the sum reads or writes.
        """
        cdef Correlation c
        c.item, c.transposed = itemsize, transposed
        c.x = <const char*>address(x, itemsize, False, self.x_count)
        c.w = <const char*>address(w, itemsize, False, self.w_count)
        c.ends = ends_of(ends, itemsize, self.outputs, self.y_count)
        c.y = <char*>address(y, itemsize, True, self.y_count)
        c.scratch = <char*>address(buffer, itemsize, True, self.correlate_buffer(threads))
        self.add_products(&c, threads_for(self.work, threads))

    def weight_gradient(self, dy, x, dw, db, buffer, Py_ssize_t itemsize, int threads):
        """Fill dw, and db unless it is None: the gradients of the sum for its weights and its bias. All in C order.

        Raises ValueError if an array has fewer elements than the sum reads or writes.
        """
        cdef WeightGradient g
        g.item, g.done = itemsize, 0
        g.x = <const char*>address(x, itemsize, False, self.x_count)
        g.dy = <const char*>address(dy, itemsize, False, self.y_count)
        g.dw = <char*>address(dw, itemsize, True, self.w_count)
        g.db = NULL if db is None else <char*>address(db, itemsize, True, self.outputs)
        g.sums = <char*>address(buffer, itemsize, True, self.weight_buffer(threads))
        self.add_gradients(&g, threads_for(self.work, threads))


# ---- by shifted reads ----------------------------------------------------------------------------------------------


cdef const intptr_t* pointer(table) except? NULL:
    return <const intptr_t*>address(table, sizeof(intptr_t))


cdef Side side_of(list extent, intptr_t channels, intptr_t move, tuple tables) except *:
    cdef Side side
    rows, zeros, pixels = tables
    side.extent = extent
    side.size = extent[0] * extent[1] * extent[2]
    side.channels, side.move, side.row_count, side.zero_count = channels, move, len(rows), len(zeros)
    side.rows, side.zeros, side.pixels = <const Row*>pointer(rows), pointer(zeros), pointer(pixels)
    return side


cdef class Layout(Way):
    """Computes by shifted reads: holds the tables of conv_layout.py and the shapes in the kernel's form."""

    cdef Plan plan
    cdef object tables

    def __init__(self, dict tables, dict sizes):
        cdef Plan* p = &self.plan
        self.tables = tables  # the arrays live as long as the pointers
        p.images, p.groups, p.channels = sizes["images"], sizes["groups"], sizes["channels"]
        p.outputs, p.kernel, p.lanes = sizes["outputs"], sizes["kernel"], sizes["lanes"]
        p.fit, p.chunks, p.parts = sizes["fit"], sizes["chunks"], sizes["parts"]
        p.run, p.columns, p.tall = sizes["run"], sizes["columns"], tables["tall"]
        p.source = side_of(sizes["source"], p.groups * p.channels, tables["source_move"], tables["packed_rows"])
        p.result = side_of(sizes["result"], p.groups * p.outputs, tables["result_move"], tables["result_rows"])
        p.by_image, p.direct_in, p.direct_out = tables["by_image"], tables["direct_in"], tables["direct_out"]
        p.segments, p.plane, p.results = tables["segments"], tables["plane"], tables["results"]
        p.strips, p.along, p.out_move = tables["strips"], tables["along"], tables["out_move"]
        p.vectors, p.quads = tables["vectors"], len(tables["runs"])
        p.position, p.place = pointer(tables["position"]), pointer(tables["place"])
        p.runs, p.taps, p.ranges = pointer(tables["runs"]), pointer(tables["taps"]), pointer(tables["ranges"])
        self.measure(sizes, p.kernel, p.source.size, p.result.size)
        self.work = <double>p.result.size * p.images * self.w_count + 1

    cdef intptr_t correlate_batch(self, int threads):
        """Return the segments of a job: as many as fit the cache, but so few that every thread gets several jobs."""
        return max(1, min(self.plan.fit, self.plan.segments // (4 * threads)))

    cdef intptr_t correlate_own(self, int threads):
        """Numbers of scratch memory for each thread."""
        cdef const Plan* p = &self.plan
        return aligned(self.correlate_batch(threads) * (p.channels * p.plane + BLOCK_ROWS * p.results))

    cpdef intptr_t correlate_buffer(self, int threads):
        threads = threads_for(self.work, threads)
        return threads * self.correlate_own(threads)

    cdef int add_products(self, Correlation* c, int threads) except -1:
        cdef const Plan* p = &self.plan
        cdef intptr_t jobs
        c.plan, c.batch, c.own, c.slices = p, self.correlate_batch(threads), self.correlate_own(threads), 1
        jobs = ceil_div(p.segments, c.batch)
        c.parts = parts_for(self.work / jobs, jobs, p.groups * blocks_of(p), 2 * threads)
        jobs *= c.parts
        if p.direct_in and p.direct_out and jobs * SIGNAL_INTERVAL < self.work:
            c.slices = min(p.quads, <intptr_t>(self.work / (jobs * SIGNAL_INTERVAL)) + 1)
            jobs *= c.slices
        with nogil:
            parallel_for(correlate_job, c, 0, jobs, round_of(jobs, self.work, threads), threads)
            check_signals()
        return 0

    cdef intptr_t weight_batch(self):
        """Return how many segments are packed at a time."""
        return max(1, min(self.plan.fit, ceil_div(self.plan.segments, self.plan.chunks)))

    cdef intptr_t weight_own(self):
        """Numbers of scratch memory for each thread."""
        cdef const Plan* p = &self.plan
        cdef intptr_t channels = min(ceil_div(p.groups * p.channels, p.parts), p.channels)
        return aligned(self.weight_batch() * (channels * p.plane + p.outputs * p.results))

    cpdef intptr_t weight_buffer(self, int threads):
        threads = threads_for(self.work, threads)
        return self.plan.chunks * aligned(self.w_count + self.outputs) + threads * self.weight_own()

    cdef int add_gradients(self, WeightGradient* g, int threads) except -1:
        cdef const Plan* p = &self.plan
        cdef intptr_t jobs = p.chunks * p.parts
        cdef intptr_t longest = ceil_div(p.segments, p.chunks)
        cdef double share = share_of(self.work, threads)
        g.plan, g.batch, g.own = p, self.weight_batch(), self.weight_own()
        g.chunk_step = aligned(self.w_count + self.outputs)
        g.scratch = g.sums + p.chunks * g.chunk_step * g.item
        g.step = longest if share == 1 else g.batch * max(1, <intptr_t>(longest * share) // g.batch)
        g.slices = 1 if p.chunks * self.w_count < MERGE_WORK else 4 * threads
        return add_in_steps(g, add_segments, jobs, longest, add_chunks, g.slices, share, threads)


# ---- by Winograd's tiles -------------------------------------------------------------------------------------------


cdef class Winograd(Way):
    """Computes by Winograd's F(2x2, 3x3): holds the shapes and the cuts of the tiles, the sizes of conv_tiles.py."""

    cdef TilePlan plan

    def __init__(self, dict sizes):
        cdef const TilePlan* p = &self.plan
        self.plan = sizes
        self.measure(sizes, 9, p.height * p.width, p.result_height * p.result_width)
        self.work = <double>PRODUCTS * p.images * p.rows * p.columns * self.outputs * p.channels + 1

    cpdef intptr_t correlate_buffer(self, int threads):
        cdef const TilePlan* p = &self.plan
        return p.kernels + threads_for(self.work, threads) * p.scratch

    cdef int add_products(self, Correlation* c, int threads) except -1:
        cdef const TilePlan* p = &self.plan
        cdef intptr_t jobs = p.pieces * p.groups
        c.plan, c.kernels = p, c.scratch
        c.scratch += p.kernels * c.item
        c.parts = parts_for(self.work / jobs, jobs, p.blocks, 2 * threads)
        jobs *= c.parts
        with nogil:
            parallel_for(
                order_kernels, c, 0, p.groups * p.blocks if p.kernels else 0, WEIGHTS // (BLOCK_ROWS * p.channels * 9),
                threads if 9 * p.channels * p.outputs > PACK_WORK else 1)
            check_signals()
            parallel_for(product_job, c, 0, jobs, round_of(jobs, self.work, threads), threads)
            check_signals()
        return 0

    cpdef intptr_t weight_buffer(self, int threads):
        return self.plan.chunks * self.plan.chunk_step + threads_for(self.work, threads) * self.plan.scratch

    cdef int add_gradients(self, WeightGradient* g, int threads) except -1:
        cdef const TilePlan* p = &self.plan
        cdef intptr_t jobs = p.chunks * p.groups
        cdef intptr_t longest = ceil_div(p.pieces, p.chunks)
        cdef double share = share_of(self.work, threads)
        g.plan, g.chunk_step = p, p.chunk_step
        g.scratch = g.sums + p.chunks * p.chunk_step * g.item
        g.parts = parts_for(self.work / (p.pieces * p.groups), jobs, p.channels, threads)
        jobs *= g.parts
        g.step = max(1, <intptr_t>(longest * share))
        g.slices = 1 if p.chunks * p.chunk_step < MERGE_WORK else 4 * threads
        return add_in_steps(g, sum_job, jobs, longest, add_sums, p.groups * g.slices, share, threads)
