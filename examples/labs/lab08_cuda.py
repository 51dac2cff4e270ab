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
# number. How do the threads of a block add their numbers, why must they wait for each other, and how does every run
# give the same bits?
#
# You write the kernel in CUDA: first a tree in shared memory, then shuffles within warps, then mean and variance of
# rows. A network trains with them. In between, you write tests that find a missing barrier in another kernel.
#
# You need labs 1 and 2, a C++ compiler (g++), and lab 7 or a rough idea of C. You need no GPU: everything runs
# without one. If there is a GPU, your kernels run on it at the end. Time: about 180 minutes, in two parts of 90.

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
# - `__syncthreads();` is the *barrier*: no thread of the block goes on before all have come. After it, all threads see
#   what any of them wrote before it. Without it, a thread may read an old number.
# - Blocks cannot wait for each other.
#
# `__global__ void f(...)` is a kernel, `__device__ float g(...)` a function that kernels call. Your functions return
# *pieces*, text in CUDA, and
#
#     Program(piece, piece, ...).launch("name of the kernel", blocks, threads, arrays and numbers..., seed=0)
#
# compiles them with g++ and runs them on the CPU: one thread after the other, each up to its next barrier, in an
# order that `seed` decides. So a kernel that is right by luck is wrong for another seed. Arrays are NumPy's, in
# float32. Kernels compute in `float` too: on many GPUs `double` is 32 or 64 times as slow. After a launch,
# `program.work` counts what each thread of each block did, such as its reads of shared memory.
#
# ## Part A: a tree and its barriers (about 90 minutes)
#
# ## Task 8.1: a block for each row
#
# x has rows of m elements, one after the other. Each row gets a block. Block r computes `y = (x - mean[r]) * rstd[r]`
# for its row. Its threads share the row: thread t takes the elements t, t + blockDim.x, t + 2 blockDim.x ... In each
# turn, neighbouring threads then read neighbouring elements, which is fastest. m need not be a multiple of the number
# of threads, and may be smaller. The check counts what each thread writes.


# %%
def normalize_cu():
    """CUDA that defines the kernel normalize.

    It takes `const float* x, const float* mean, const float* rstd, float* y, int m`.
    """
    raise NotImplementedError("Task 8.1: a block for each row")


# %% tags=["check"]
check("8.1")

# %% [markdown]
# ## Task 8.2: a tree in shared memory
#
# Each thread has a number v, and all must learn the sum. Let each write its v into shared memory. Then the first
# half of the threads adds the second half's numbers to its own, the first quarter the second quarter's, and so on,
# until the sum stands in part[0]. This takes log2(blockDim.x) steps instead of blockDim.x - 1. Each number goes through
# few additions, so the sum is also more exact.
#
#     8 threads:   a b c d | e f g h   ->   a+e b+f | c+g d+h   ->   (a+e)+(c+g) | (b+f)+(d+h)   ->   the sum
#
# Whenever one thread writes a number and another reads it, a barrier must stand between. All threads must come to it,
# so never put a barrier into an `if` that not all threads take. And mind the end: the kernel calls your function again,
# and a fast thread then writes into `part` while a slow one has not read the sum yet.
#
# blockDim.x is a power of two, up to 1024. Barriers take time: use as many as needed, no more. The check counts what
# each thread reads: about two numbers in each step. A thread that adds up all numbers alone reads too many.


# %%
def tree_cu():
    """CUDA with `__device__ float block_sum(float v)`.

    It gives each thread the sum of v over all threads of the block.
    """
    raise NotImplementedError("Task 8.2: the sum of a block, by a tree in shared memory")


# %% tags=["check"]
check("8.2")

# %% [markdown]
# ### What a missing barrier does
#
# The next cell leaves out each of your barriers in turn. Then a block adds 256 ones, twice in a row, for three seeds.

# %% [markdown]
# **Guess before you run.** Which barrier does the most harm when it is missing? And which shows only in the second sum?

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
    if len(found) == 1:
        return f"{found[0]:g}"
    return f"{len(found):3} different sums, from {found[0]:g} to {found[-1]:g}"


for which in range(tree_cu().count("__syncthreads();")):
    source = without_barrier(tree_cu(), which)
    for seed in range(3):
        print(f"without barrier {which}, seed {seed}: {sums_of_ones(source, seed)}")

# %% [markdown]
# ## Task 8.3: tests that find a missing barrier
#
# Now another person has written the kernel. `gpu.moments(x, threads, seed)` runs it on the rows of a float32 matrix x.
# Each row gets a block of `threads` threads (a power of two, from 32 to 512). It returns mean and var of each row: two
# vectors of float32, right to about five digits where x is not far from 0.
#
# Write functions named test_..., which take `gpu` and assert what must hold. They run on a right kernel and on wrong
# ones. On a real GPU, a missing barrier may show in one run of a thousand. Here `seed` decides which thread runs first.
# Which facts hold for every seed? What does the shape of x have to do with the shape of the block? Is var good where
# mean is not 0?


# %%
def test_results(gpu):
    """Right means and variances: of which rows, in which blocks?"""
    raise NotImplementedError("Task 8.3: shapes of rows and blocks on which bugs show")


def test_any_order(gpu):
    """What does not depend on who runs first?"""
    raise NotImplementedError("Task 8.3: what holds for every seed")


# %% tags=["check"]
check("8.3")

# %% [markdown]
# ## Part B: shuffles, and a kernel that trains (about 90 minutes)
#
# This is a good place to stop: your tree is right in any order, and your tests notice when a barrier is missing. When
# you come back, run the cells above again ("Run All Above Selected Cell"). You need nothing else.
#
# ## Task 8.4: shuffles
#
# The threads of a warp need no shared memory. `__shfl_xor_sync(0xffffffff, v, step)` gives each thread the v of the
# thread whose number in the warp differs in the bit `step`. All 32 threads must call it, and it needs no barrier. With
# `v += ` and the steps 16, 8, 4, 2, 1, each thread of the warp ends with the warp's sum.
#
# So add first within each warp, by shuffles. Then one thread of each warp writes its sum to shared memory. After a
# barrier, every warp adds these sums, 32 at most, by shuffles again, with 0 where there is no warp. How many barriers
# does that take, whatever the size of the block, if the function can be called again?
#
# blockDim.x is a multiple of 32, up to 1024, so it may be 96. The check counts shuffles and reads of shared memory, and
# tries whether the sum depends on each shuffle.


# %%
def shuffle_cu():
    """CUDA with `__device__ float block_sum(float v)`, by shuffles.

    It does the same as before, for blocks of whole warps.
    """
    raise NotImplementedError("Task 8.4: the sum of a block, by shuffles")


# %% tags=["check"]
check("8.4")

# %% [markdown]
# ### Why not `atomicAdd`?
#
# `atomicAdd(&sum, v)` adds v to one number in memory, and the hardware takes care that no addition is lost. That is one
# line instead of all of the above. The next cell compares the three ways. On the left, it counts the barriers of one
# sum. On the right, it adds the same 4096 numbers in float32, in ten runs of each way.

# %% [markdown]
# **Guess before you run.**
#
# 1. How many barriers does a sum over 32 threads take, by the tree and by shuffles? And over 1024 threads?
# 2. Which of the three ways give the same bits in all ten runs?

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
LINE = {"linewidth": 1.8, "markersize": 6}
x = np.random.default_rng(8).random(4096, np.float32)
exact = x.astype(np.float64).sum()
out = np.zeros(1, np.float32)
figure, (left, right) = plt.subplots(1, 2, figsize=(12.5, 4.6), layout="constrained")
for name, piece, color, style in WAYS:
    program = Program(piece, SUMS)
    if name != "atomicAdd":
        counts = [program.launch("sums", 1, size, x, out, x.size) for size in SIZES]
        left.plot(SIZES, counts, style, color=color, label=name, **LINE)
    errors = []
    for seed in range(10):
        program.launch("sums", 1, 512, x, out, x.size, seed=seed)
        errors.append((float(out[0]) - exact) / np.spacing(np.float32(exact)))
    right.plot(range(10), errors, style, color=color, label=name, **LINE)
left.set_xscale("log", base=2)
left.set_xticks(SIZES, [str(size) for size in SIZES])
left.set(title="Shuffles need two barriers, however large the block", ylim=(0, None))
left.set(xlabel="threads in the block", ylabel="barriers for one sum")
left.legend(loc="center right")
right.axhline(0, color=GREY, linewidth=1)
right.set(title="Atomics give another sum in nearly each run", xlabel="run (seed)")
right.set(ylabel="error, units in the last place")
right.set_xticks(range(10))
right.legend(loc="best")
show(
    figure,
    "Left, barriers for one sum against threads in the block, 32 to 1024. The tree needs "
    "7 to 12 barriers, one more with each doubling. Shuffles always need two. Right, the "
    "error of a sum in units in the last place, in ten runs. The lines of the tree and "
    "of the shuffles are flat. The line of atomicAdd jumps up and down from run to run.",
)

# %% [markdown]
# ## Task 8.5: moments of rows
#
# Write a kernel that computes the moments of rows in float32, at any offset (lab 2). Each row gets a block, whose
# threads share its elements as in 8.1 and add up by your block_sum. The first pass computes k, the mean as one float.
# The second pass computes d, the mean of x - k, which is the rounding error of k, and the mean of (x - k)^2. Then
# var = mean((x - k)^2) - d^2, where d is tiny. Thread 0 writes k, d and var of its row. `block_sum` stands before your
# piece. The check counts what each thread reads.


# %%
def moments_cu():
    """CUDA that defines the kernel moments; it uses block_sum.

    `__global__ void moments(const float* x, float* k, float* d, float* var, int m)`
    """
    raise NotImplementedError("Task 8.5: k, d and var of every row, in float32")


# %% tags=["check"]
check("8.5")

# %% [markdown]
# ## Task 8.6: yours, in a layer
#
# Write the `moments` of a backend. `four(nest, x)` has a row in its last two axes. Make the rows contiguous float32,
# (nest.rows, m), launch your kernel once for all of them, and return k, d and var as float64 vectors. With `centered`
# False (RMSNorm) k = d = 0, and var is the mean of the squares: var + (k + d)^2.

# %%
from minorm.kernels.partial import PartialBackend
from minorm.kernels.reference.norm import four

THREADS = 64


def moments(nest, x, centered):
    """k, d and var of every row, from one launch of your kernel."""
    raise NotImplementedError("Task 8.6: the statistics of every row, from one launch")


# %% tags=["check"]
check("8.6")

# %% [markdown]
# ### It trains
#
# The demo's network learns the digits, once with the library's kernels, once with statistics from your kernel in all
# its BatchNorm layers. The network computes in float64, and your kernel in float32.

# %% [markdown]
# **Guess before you run.** In how many digits do the two losses agree?

# %% tags=["plot"]
from minorm.labs import digits_network

library = digits_network.losses(None, 6)
mine = digits_network.losses(PartialBackend(moments=moments), 6)
for step in (0, 2, 5):
    print(f"step {step:2}: loss {library[step]:.9f} with the library's kernels,", end=" ")
    print(f"{mine[step]:.9f} with your statistics")
assert np.allclose(mine, library, rtol=1e-2)

# %% [markdown]
# ## On a GPU, if you have one
#
# CuPy compiles the same text for the GPU. The next cell compares the results with those from the CPU. Then it measures
# your moments kernel on rows of different lengths, beside copying, which is the roof. A byte counts once for each time
# that it must move: moments read x, a copy reads and writes.

# %% [markdown]
# **Guess before you run.** Your kernel reads x twice. For which rows can it come near the roof, and for which only to
# half of it? (On a GPU, caches hold a row of 10,000 elements easily.)

# %% tags=["plot"]
if not cuda.is_available():
    print("There is no GPU here (or no CuPy), so this cell measures nothing.")
else:
    rows = np.random.default_rng(9).standard_normal((64, 5000)).astype(np.float32)
    found = [np.zeros((3, 64), np.float32) for _ in range(2)]
    Program(shuffle_cu(), moments_cu()).launch("moments", 64, 256, rows, *found[0], 5000)
    OnGpu(shuffle_cu(), moments_cu()).run("moments", 64, 256, rows, *found[1], 5000)
    apart, name = np.abs(found[0] - found[1]).max(), cuda.get_device_name()
    print(f"largest difference between CPU and {name}: {apart:.2g}")
    LENGTHS = [1 << power for power in range(8, 21, 2)]
    figure, panel = plt.subplots(figsize=(9, 4.6), layout="constrained")
    roof, seen = copying(), []
    for name, piece, color, style in WAYS[:2]:
        speeds = gigabytes(OnGpu(piece, moments_cu()), LENGTHS, threads=256)
        panel.semilogx(LENGTHS, speeds, style, color=color, label=name, **LINE)
        seen.append(f"{name} from {min(speeds):.0f} to {max(speeds):.0f}")
    panel.xaxis.set_major_formatter("{x:,.0f}")
    panel.axhline(roof, color=GREY, linestyle=":", label="the roof: copying")
    panel.set(title="How much of the bandwidth rows of your kernel get", ylim=(0, None))
    panel.set(xlabel="elements in a row (134 MB in all)", ylabel="GB/s")
    panel.legend(loc="best")
    show(
        figure,
        "GB per second of your moments kernel on this GPU against the elements in a row, "
        f"on a logarithmic axis: {' and '.join(seen)}. The speed of copying is a dotted "
        f"line at {roof:.0f}.",
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
