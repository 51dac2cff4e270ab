# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Lab 8: CUDA block reduction
#
# **The question.** A GPU runs tens of thousands of threads at once, and for a mean all of them must agree on one
# number. How do the threads of a block add up what each has, why must they wait for each other, and how does every run
# give the same bits?
#
# You write the kernel in CUDA: first a tree in shared memory, then shuffles within warps, then mean and variance of
# rows, with which a network trains. In between you write tests that find a barrier that somebody forgot.
#
# You need labs 1 and 2, a C++ compiler (g++), and lab 7 or a rough idea of C. You need no GPU: everything runs
# without one, and at the end it also runs on a GPU, if there is one. Time: about 180 minutes, in two parts of 90.

# %%
import numpy as np

from minorm.labs.cuda import KernelError, Program, without_barrier
from minorm.labs.visible import checker

check = checker(8, globals())

# %% tags=["plot"]
import matplotlib.pyplot as plt

from minorm import cuda
from minorm.labs.on_gpu import OnGpu, copying, gigabytes
from minorm.labs.pictures import show
from minorm.plots import BLUE, GREEN, GREY, ORANGE, STYLE, VERMILLION

plt.rcParams.update(STYLE)

# %% [markdown]
# ## CUDA in two minutes
#
# A kernel is a function that many threads run at once, each with the same arguments.
#
# - Threads form *blocks*, all of one size, up to 1024. `threadIdx.x` is a thread's number in its block, `blockDim.x`
#   the size of the block, `blockIdx.x` the number of the block.
# - 32 neighbours in a block are a *warp*, which the hardware runs together. One warp may be far ahead of another.
# - `__shared__ float part[1024];` is an array that the threads of one block have in common; each block has its own.
# - `__syncthreads();` is the *barrier*: no thread of the block goes on before all have come. What any of them wrote
#   before it, all see after it; without it, nobody knows.
# - Blocks cannot wait for each other.
#
# `__global__ void f(...)` is a kernel, `__device__ float g(...)` a function that kernels call. Your functions return
# *pieces*, text in CUDA, and
#
#     Program(piece, piece, ...).launch("name of the kernel", blocks, threads, arrays and numbers..., seed=0)
#
# compiles them with g++ and runs them on the CPU: one thread after the other, each up to its next barrier, in an
# order that `seed` decides. So a kernel that is right by luck is wrong for some other seed. Arrays are NumPy's, in
# float32.
#
# ## Part A: a tree and its barriers (about 90 minutes)
#
# ## Task 8.1: a block for each row
#
# x has rows of m elements, one after the other, and one block is started for each row. Block r computes
# `y = (x - mean[r]) * rstd[r]` for its row. Its threads share the row: thread t takes the elements t,
# t + blockDim.x, t + 2 blockDim.x ... so that in each turn neighbours read neighbours, which memory likes best.
# m need not be a multiple of the number of threads, and may be smaller.


# %%
def normalize_cu():
    """CUDA with `__global__ void normalize(const float* x, const float* mean, const float* rstd, float* y, int m)`."""
    # SOLUTION 8.1: a block for each row
    return """
__global__ void normalize(const float* x, const float* mean, const float* rstd, float* y, int m) {
    int start = blockIdx.x * m;
    for (int i = threadIdx.x; i < m; i += blockDim.x)
        y[start + i] = (x[start + i] - mean[blockIdx.x]) * rstd[blockIdx.x];
}
"""
    # END


# %% tags=["check"]
check("8.1")

# %% [markdown]
# ## Task 8.2: a tree in shared memory
#
# Each thread has a number v, and all must learn the sum. Let each write its v into shared memory. Then the first
# half of the threads adds the second half's numbers to its own, the first quarter the second quarter's, and so on,
# until the sum stands in part[0]: log2(blockDim.x) steps instead of blockDim.x - 1. Each number goes through so few
# additions that the sum is more exact, too.
#
#     8 threads:   a b c d | e f g h   ->   a+e b+f | c+g d+h   ->   (a+e)+(c+g) | (b+f)+(d+h)   ->   the sum
#
# There must be a barrier between the write of a number and its read by another thread, every time. All threads must
# come to it, so never put one into an `if` that not all take. And mind the end: the kernel calls your function
# again, and a fast thread then writes into `part` while a slow one has not read the sum yet.
#
# blockDim.x is a power of two, up to 1024. Barriers take time: use as many as needed, no more.


# %%
def tree_cu():
    """CUDA with `__device__ float block_sum(float v)`: the sum of v over the threads of the block, for each of them."""
    # SOLUTION 8.2: the sum of a block, by a tree in shared memory
    return """
__device__ float block_sum(float v) {
    __shared__ float part[1024];
    part[threadIdx.x] = v;
    __syncthreads();
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
        __syncthreads();
    }
    float sum = part[0];
    __syncthreads();
    return sum;
}
"""
    # END


# %% tags=["check"]
check("8.2")

# %% [markdown]
# ### What a missing barrier does
#
# Here each barrier of yours is left out in turn, and a block adds 256 ones, twice in a row, for three seeds.

# %% tags=["plot"]
TWICE = """
__global__ void twice(float* first, float* second) {
    first[threadIdx.x] = block_sum(1);
    second[threadIdx.x] = block_sum(1);
}
"""


def sums_of_ones(source, seed):
    """The sums that the threads of one block found."""
    first, second = np.zeros(256, np.float32), np.zeros(256, np.float32)
    try:
        Program(source, TWICE).launch("twice", 1, 256, first, second, seed=seed)
    except KernelError as error:
        return error
    found = np.unique([first, second])
    return (
        f"{len(found):3} different sums, from {found[0]:g} to {found[-1]:g}"
        if len(found) > 1
        else f"{found[0]:g}"
    )


for which in range(tree_cu().count("__syncthreads();")):
    for seed in range(3):
        print(
            f"without barrier {which}, seed {seed}: {sums_of_ones(without_barrier(tree_cu(), which), seed)}"
        )

# %% [markdown]
# ## Task 8.3: tests that find a missing barrier
#
# Now the kernel is somebody else's. `gpu.moments(x, threads, seed)` runs it on the rows of a float32 matrix x, a block
# for each row, with that many threads a block (a power of two, from 32 to 512), and returns mean and var of each row:
# two vectors of float32, good to about five digits wherever x is not far from 0.
#
# Write functions named test_..., which take `gpu` and assert what must hold. They run on a right kernel and on wrong
# ones. On a real GPU, a missing barrier shows in one run of a thousand; here `seed` decides who runs first. Which
# facts hold for every seed? What has the shape of x to do with the shape of the block? Is var good where mean is not
# 0?


# %%
def test_results(gpu):
    """Right means and variances: of which rows, in which blocks?"""
    # SOLUTION 8.3: shapes of rows and blocks on which bugs show
    rng = np.random.default_rng(0)
    for m, threads, offset in ((100, 64, 3), (300, 512, 3), (20, 32, 0), (257, 128, 300)):
        x = (rng.standard_normal((3, m)) * 2 + offset).astype(np.float32)
        mean, var = gpu.moments(x, threads, 0)
        wide = x.astype(np.float64)
        assert np.allclose(mean, wide.mean(1), rtol=1e-5, atol=1e-5)
        assert np.allclose(var, wide.var(1), rtol=1e-4)
    # END


def test_any_order(gpu):
    """What does not depend on who runs first?"""
    # SOLUTION 8.3: what holds for every seed
    x = np.random.default_rng(1).standard_normal((2, 700)).astype(np.float32)
    first = gpu.moments(x, 128, 0)
    for seed in range(1, 4):
        assert np.array_equal(gpu.moments(x, 128, seed), first)
    # END


# %% tags=["check"]
check("8.3")

# %% [markdown]
# ## Part B: shuffles, and a kernel that trains (about 90 minutes)
#
# This is a good place to stop: your tree is right in any order, and your tests notice when a barrier is missing. When
# you come back, run the cells above again ("Run All Above Selected Cell"); nothing else is needed.
#
# ## Task 8.4: shuffles
#
# The threads of a warp need no shared memory. `__shfl_xor_sync(0xffffffff, v, step)` gives each thread the v of the one
# whose number in the warp differs in the bit `step`; all 32 must call it, and it needs no barrier. With the steps 16,
# 8, 4, 2, 1 and `v += ` each thread of the warp ends with the warp's sum.
#
# So: first within each warp; then one thread of each warp writes its sum to shared memory; after a barrier every
# warp adds up these sums, 32 at most, by shuffles again, with 0 where there is no warp. How many barriers does that
# take, whatever the size of the block, so that the function can be called again?
#
# blockDim.x is a multiple of 32, up to 1024: 96 is one, too.


# %%
def shuffle_cu():
    """CUDA with `__device__ float block_sum(float v)`, as before, for blocks of whole warps; by shuffles."""
    # SOLUTION 8.4: the sum of a block, by shuffles
    return """
__device__ float warp_sum(float v) {
    for (int step = 16; step > 0; step /= 2) v += __shfl_xor_sync(0xffffffff, v, step);
    return v;
}
__device__ float block_sum(float v) {
    __shared__ float part[32];
    int lane = threadIdx.x % 32, warps = blockDim.x / 32;
    v = warp_sum(v);
    if (lane == 0) part[threadIdx.x / 32] = v;
    __syncthreads();
    v = warp_sum(lane < warps ? part[lane] : 0);
    __syncthreads();
    return v;
}
"""
    # END


# %% tags=["check"]
check("8.4")

# %% [markdown]
# ### Why not `atomicAdd`?
#
# `atomicAdd(&sum, v)` adds to one number in memory, and hardware sees to it that nothing gets lost: one line instead of
# all of the above. But who comes first is different each time. Right, ten runs of each: the same 4096 numbers, added in
# float32. Left, what a sum costs in barriers.

# %% tags=["plot"]
SUMS = """
__global__ void sums(const float* x, float* out, int m) {
    float v = 0;
    for (int i = threadIdx.x; i < m; i += blockDim.x) v += x[blockIdx.x * m + i];
    v = block_sum(v);
    if (threadIdx.x == 0) out[blockIdx.x] = v;
}
"""
ATOMIC = """
__device__ float block_sum(float v) {
    __shared__ float sum;
    if (threadIdx.x == 0) sum = 0;
    __syncthreads();
    atomicAdd(&sum, v);
    __syncthreads();
    return sum;
}
"""
WAYS = (
    ("tree in shared memory", tree_cu(), BLUE, "o-"),
    ("shuffles", shuffle_cu(), GREEN, "s-"),
    ("atomicAdd", ATOMIC, VERMILLION, "^:"),
)
SIZES = [32, 64, 128, 256, 512, 1024]
x = np.random.default_rng(8).random(4096, np.float32)
exact = x.astype(np.float64).sum()
out = np.zeros(1, np.float32)
figure, (left, right) = plt.subplots(1, 2, figsize=(12.5, 4.6), layout="constrained")
for name, piece, color, style in WAYS:
    program = Program(piece, SUMS)
    if name != "atomicAdd":
        counts = [program.launch("sums", 1, threads, x, out, x.size) for threads in SIZES]
        left.plot(
            SIZES, counts, style, color=color, markersize=6, linewidth=1.8, label=name
        )
    errors = []
    for seed in range(10):
        program.launch("sums", 1, 512, x, out, x.size, seed=seed)
        errors.append((float(out[0]) - exact) / np.spacing(np.float32(exact)))
    right.plot(
        range(10), errors, style, color=color, markersize=7, linewidth=1.6, label=name
    )
left.set_xscale("log", base=2)
left.set_xticks(SIZES, [str(size) for size in SIZES])
left.set(title="Shuffles need two barriers, however large the block", ylim=(0, None))
left.set(xlabel="threads in the block", ylabel="barriers for one sum")
left.legend(loc="center right")
right.axhline(0, color=GREY, linewidth=1)
right.set(
    title="Atomics give another sum in each run",
    xlabel="run (seed)",
    ylabel="error, units in the last place",
)
right.set_xticks(range(10))
right.legend(loc="best")
show(
    figure,
    "Left, barriers for one sum against threads in the block, 32 to 1024: the tree needs 7 to 12, one more with "
    "each doubling, shuffles always two. Right, the error of a sum in units in the last place over ten runs: tree "
    "and shuffles are flat lines, atomicAdd gives another value in nearly each run.",
)

# %% [markdown]
# ## Task 8.5: moments of rows
#
# A kernel, a block for each row, that uses your block_sum and survives any offset, all in float32 (lab 2). First pass:
# k, the mean as one float. Second pass: d, the mean of x - k, which is what k lacks, and the mean of (x - k)^2. Then
# var = mean((x - k)^2) - d^2, where d is tiny. Thread 0 writes k, d and var of its row. `block_sum` stands before your
# piece.


# %%
def moments_cu():
    """CUDA with `__global__ void moments(const float* x, float* k, float* d, float* var, int m)`; uses block_sum."""
    # SOLUTION 8.5: k, d and var of every row, in float32
    return """
__global__ void moments(const float* x, float* k, float* d, float* var, int m) {
    const float* row = x + blockIdx.x * m;
    float sum = 0, squares = 0;
    for (int i = threadIdx.x; i < m; i += blockDim.x) sum += row[i];
    float shift = block_sum(sum) / m;
    sum = 0;
    for (int i = threadIdx.x; i < m; i += blockDim.x) {
        float away = row[i] - shift;
        sum += away;
        squares += away * away;
    }
    float rest = block_sum(sum) / m;
    squares = block_sum(squares) / m;
    if (threadIdx.x == 0) {
        k[blockIdx.x] = shift;
        d[blockIdx.x] = rest;
        var[blockIdx.x] = squares - rest * rest;
    }
}
"""
    # END


# %% tags=["check"]
check("8.5")

# %% [markdown]
# ## Task 8.6: yours, in a layer
#
# The `moments` of a backend: `four(nest, x)` has a row in its last two axes. Make the rows contiguous float32,
# (nest.rows, m), launch your kernel once for all of them, and return k, d and var as float64 vectors. With `centered`
# False (RMSNorm) k = d = 0, and var is the mean of the squares: var + (k + d)^2.

# %%
from minorm.kernels.partial import PartialBackend
from minorm.kernels.reference.norm import four

THREADS = 64


def moments(nest, x, centered):
    """k, d and var of every row, from one launch of your kernel."""
    # SOLUTION 8.6: the statistics of every row, from one launch
    rows = np.ascontiguousarray(four(nest, x), np.float32).reshape(nest.rows, -1)
    found = np.zeros((3, nest.rows), np.float32)
    program = Program(shuffle_cu(), moments_cu())
    program.launch("moments", nest.rows, THREADS, rows, *found, rows.shape[1])
    k, d, var = found.astype(np.float64)
    return (k, d, var) if centered else (0 * k, 0 * d, var + (k + d) ** 2)
    # END


# %% tags=["check"]
check("8.6")

# %% [markdown]
# And it trains. The demo's network on the digits, with statistics from your kernel in all its BatchNorm layers. The
# network is float64 and your kernel reads float32, so the losses agree to five digits or so, not to ten.

# %% tags=["plot"]
from minorm.labs import digits_network

library, mine = (
    digits_network.losses(None, 6),
    digits_network.losses(PartialBackend(moments=moments), 6),
)
for step in (0, 2, 5):
    print(
        f"step {step:2}: loss {library[step]:.6f} with the library's kernels, {mine[step]:.6f} with your statistics"
    )
assert np.allclose(mine, library, rtol=1e-2)

# %% [markdown]
# ## On a GPU, where there is one
#
# The same text, through CuPy: results against those from the CPU, and the speed of your moments kernel for rows of
# different lengths, beside that of copying. A byte is counted once for each time it must move: moments read x, a copy
# reads and writes. Your kernel reads x twice, so where a row fits into no cache it can reach half the roof; on a GPU,
# caches hold a row of 10,000 easily.

# %% tags=["plot"]
if not cuda.is_available():
    print(
        "There is no GPU here (or no CuPy): nothing to measure. The shim says what is right, not what is fast."
    )
else:
    rows = np.random.default_rng(9).standard_normal((64, 5000)).astype(np.float32)
    found = [np.zeros((3, 64), np.float32) for _ in range(2)]
    Program(shuffle_cu(), moments_cu()).launch("moments", 64, 256, rows, *found[0], 5000)
    OnGpu(shuffle_cu(), moments_cu()).run("moments", 64, 256, rows, *found[1], 5000)
    print(
        f"largest difference between CPU and {cuda.get_device_name()}: {np.abs(found[0] - found[1]).max():.2g}"
    )
    LENGTHS = [1 << power for power in range(8, 21, 2)]
    figure, panel = plt.subplots(figsize=(9, 4.6), layout="constrained")
    for name, piece, color, style in WAYS[:2]:
        speeds = gigabytes(OnGpu(piece, moments_cu()), LENGTHS, threads=256)
        panel.semilogx(
            LENGTHS, speeds, style, color=color, markersize=6, linewidth=1.8, label=name
        )
    panel.axhline(copying(), color=GREY, linestyle=":", label="the roof: copying")
    panel.set(title="How much of the bandwidth rows of your kernel get", ylim=(0, None))
    panel.set(xlabel="elements in a row (134 MB in all)", ylabel="GB/s")
    panel.legend(loc="best")
    show(
        figure,
        "GB per second of your moments kernel on this GPU against the elements in a row, logarithmic, with the "
        "tree and with shuffles, and the speed of copying as a dotted line above.",
    )

# %% [markdown]
# ## To think about
#
# 1. The hardware runs the threads of a warp together, and old programs leave the barriers out once a step of the tree
#    fits into one: from half = 16 on. Why is that wrong, on the GPUs since 2017 and in the eyes of a compiler?
# 2. A BatchNorm may have 16 channels and a GPU has 132 multiprocessors: a block for each row leaves most of them idle.
#    Blocks cannot wait for each other. How would you share a row among blocks, with the same bits in each run?
# 3. Your kernel reads x twice. For which rows could it read once, and where would the elements wait in between?
#    (`minorm/kernels/gpu` in the library's source is one answer.)
