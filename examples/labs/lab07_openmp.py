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
# # Lab 7: OpenMP in Cython
#
# **The question.** A mean and a variance are two sums. How fast can a sum be, what stops it, and how do several threads
# share it without the result depending on how many they are?
#
# You write the kernel in Cython, from a loop that anybody would write to one that runs at the speed of memory, and that
# gives the same bits with 1 thread and with 64. Then a LayerNorm computes with it.
#
# You need labs 1 and 2, a C compiler, and a rough idea of C. Time: about 150 minutes, in two parts of 75.

# %%
import numpy as np

from minorm.labs.compiling import CHUNK, build, quickest, reader
from minorm.labs.visible import checker

check = checker(7, globals())

# %% tags=["plot"]
import matplotlib.pyplot as plt

from minorm import config
from minorm.labs.pictures import show
from minorm.plots import BLUE, GREEN, GREY, ORANGE, STYLE, VERMILLION

plt.rcParams.update(STYLE)

# %% [markdown]
# ## Cython in one minute
#
# Your functions return *pieces*, text in Cython. `build(piece, piece, ...)` makes a module of them: Cython translates
# to C, the C compiler (-O3, OpenMP) to machine code. What you need to know:
#
# - `cdef Py_ssize_t i` declares a C integer, `cdef float[32] a` an array of 32 floats;
# - `def` is a function that Python can call, `cdef double f(...) noexcept nogil` one of C, without Python inside;
# - an array arrives as its address, `x.ctypes.data`: `cdef const float* x = <const float*>address`, then `x[i]`, and
#   `x + 100` is the address of the element 100;
# - a name is declared once, at the top of a function, and `for i in range(n)` over C integers is a C loop.
#
# Nothing checks your indices. One beyond the end, and Python is gone.
#
# ## Part A: a sum at the speed of memory (about 75 minutes)
#
# ## Task 7.1: the loop that anybody would write
#
# Add x[0] to x[n - 1], one after the other, in a float.


# %%
def plain_pyx():
    """Cython with `def plain_sum(size_t address, Py_ssize_t n)`: the sum of n floats, added one after the other."""
    raise NotImplementedError("Task 7.1: the plain loop")


# %% tags=["check"]
check("7.1")

# %% [markdown]
# ## Task 7.2: lanes
#
# Each addition waits for the one before, some four cycles long, while the processor could do dozens in that time. The
# compiler may not rearrange them: floating-point sums depend on the order, and it was told to respect yours. So write
# the order that you want: 32 sums side by side, `a[j] += x[i + j]` for j from 0 to 31, which the compiler turns into
# a few wide instructions that do not wait for each other. At the end add the 32 in order, and what was left over, in a
# double.
#
# (Why is that also more exact?)


# %%
def lanes_pyx():
    """`cdef double lane_sum(const float* x, Py_ssize_t n) noexcept nogil`, and `def lanes` to call it from Python."""
    raise NotImplementedError("Task 7.2: a sum in 32 lanes")


# %% tags=["check"]
check("7.2")

# %% [markdown]
# ## Task 7.3: threads, and the same bits
#
#     for i in prange(count, nogil=True, schedule="static", num_threads=threads):
#         ...                                  # one line, best a call of a cdef function
#
# is a loop whose turns are shared among threads. The obvious thing, `total += ...` inside, works: Cython gives each
# thread a total of its own and adds them at the end. But then the order of the additions depends on the number of
# threads, and so do the last bits. A training run would not repeat itself on another machine.
#
# So the *shape* must decide who adds what. Cut x into chunks of `CHUNK` elements (a constant, 16384; the last one is
# shorter), write the sum of each chunk to a place of its own in `partial`, an array of doubles with room for all, and
# add these up at the end in order, on one thread. Any thread may have done any chunk: nobody can tell.


# %%
def parallel_pyx():
    """Cython with `def parallel_sum(size_t address, Py_ssize_t n, size_t partial, int threads)`; uses lane_sum."""
    raise NotImplementedError("Task 7.3: chunks shared among threads, added in order")


# %% tags=["check"]
check("7.3")

# %% [markdown]
# ### The roof
#
# `reader(x, threads)` reads x and does next to nothing with it: nothing that touches every element can be faster, so
# it is the roof. Left, arrays that grow out of the caches. Right, more threads, as many as this machine has. Where
# does a second thread help, where does everybody wait for memory, and where does waking the threads cost more than
# they bring? (On a machine that does other things at the same time, the last takes over.)


# %% tags=["plot"]
def rates(functions, size):
    """GB/s of each function, which reads `size` floats; small arrays are read some times in a row."""
    repeat = max(1, (1 << 21) // size)
    loops = [lambda f=f: [f() for _ in range(repeat)] for f in functions]
    return [4e-9 * size * repeat / seconds for seconds in quickest(loops, 15)]


def summing(kernels, x, threads):
    """parallel_sum of x, ready to be called."""
    partial = np.empty(x.size // CHUNK + 1)
    return lambda: kernels.parallel_sum(
        x.ctypes.data, x.size, partial.ctypes.data, threads
    )


kernels = build(plain_pyx(), lanes_pyx(), parallel_pyx())
SIZES = [1 << power for power in range(16, 26)]
most = config.get_num_threads()
CURVES = (
    ("plain loop", VERMILLION, "s-"),
    ("lanes", ORANGE, "^-"),
    (f"lanes and chunks, {most} threads", BLUE, "o-"),
    ("the roof: reading alone", GREY, ":"),
)
found = []
for size in SIZES:
    x = np.ones(size, np.float32)
    plain, lanes = (
        lambda f=f, x=x: f(x.ctypes.data, x.size)
        for f in (kernels.plain_sum, kernels.lanes)
    )
    *speeds, one, all_of_them = rates(
        [plain, lanes, summing(kernels, x, most), reader(x, 1), reader(x, most)], size
    )
    found.append([*speeds, max(one, all_of_them)])
figure, (left, right) = plt.subplots(1, 2, figsize=(12.5, 4.8), layout="constrained")
for (name, color, style), values in zip(CURVES, np.transpose(found), strict=True):
    left.loglog(
        [4 * size for size in SIZES],
        values,
        style,
        color=color,
        markersize=5,
        linewidth=1.8,
        label=name,
    )
left.set(
    title="Lanes reach the roof of reading; the plain loop never does",
    ylabel="GB/s",
    ylim=(0.3, None),
)
left.set_xticks(
    [1 << 18, 1 << 20, 1 << 22, 1 << 24, 1 << 27],
    ["0.25 MB", "1 MB", "4 MB", "17 MB", "134 MB"],
)
left.minorticks_off()
left.set_xlabel("size of the array")
left.legend(loc="lower right")
counts = range(1, most + 1)
for size, name, color, style in (
    (1 << 21, "8 MB", BLUE, "o-"),
    (1 << 25, "134 MB", VERMILLION, "s--"),
):
    x = np.ones(size, np.float32)
    speeds = np.array(rates([summing(kernels, x, threads) for threads in counts], size))
    right.plot(
        counts,
        speeds / speeds[0],
        style,
        color=color,
        markersize=7,
        linewidth=1.8,
        label=f"sum of {name}",
    )
    read = np.array(rates([reader(x, threads) for threads in counts], size))
    right.plot(
        counts,
        read / speeds[0],
        ":",
        color=color,
        linewidth=1.8,
        label=f"the roof: reading {name}",
    )
right.plot(
    counts,
    counts,
    "-",
    color=GREY,
    linewidth=1,
    label="twice the threads, twice the speed",
)
right.set(
    title="From memory, threads only help up to its roof",
    xlabel="threads",
    ylabel="speed-up over one thread",
)
right.set(ylim=(0, None), xticks=list(counts)[:: max(1, most // 8)])
right.legend(loc="best")
show(
    figure,
    "Left, GB per second against the size of the array, both logarithmic, of the plain loop, lanes, lanes with all "
    "threads, and reading alone. The plain loop is lowest; lanes come near to reading. Right, speed-up against the "
    "number of threads for 8 MB and 134 MB, with reading as the roof of each, and the line of perfect speed-up. "
    "The numbers depend on this machine.",
)

# %% [markdown]
# ## Part B: a mean and a variance, in a layer (about 75 minutes)
#
# This is a good place to stop: you have a sum as fast as reading, with the same bits for any number of threads. When
# you come back, run the cells above again ("Run All Above Selected Cell"); nothing else is needed.
#
# ## Task 7.4: moments
#
# Now mean and variance, at any offset (lab 2). Each chunk makes two passes: its mean, then M = sum((x - mean)^2)
# about that; the second pass finds the chunk in the cache. Use double lanes here, `cdef double[16] a`. Chunk i
# writes its two numbers to parts[2 * i] and parts[2 * i + 1]. The chunks are then merged, in order, by Chan's
# formula: with n1 elements so far and n2 more,
#
#     delta = mean2 - mean1     mean = mean1 + delta * n2/n     M = M1 + M2 + delta^2 * n1 * n2/n     n = n1 + n2


# %%
def moments_pyx():
    """Cython with `def parallel_moments(size_t address, Py_ssize_t n, size_t parts, int threads)`: mean, var; n > 0."""
    raise NotImplementedError("Task 7.4: mean and population variance, in chunks")


# %% tags=["check"]
check("7.4")

# %% [markdown]
# ## Task 7.5: yours, in a layer
#
# The `moments` of a backend, as in lab 2: `four(nest, x)` has a row in its last two axes. Make the rows contiguous
# float32, (rows, m), give each to your kernel, and return k, d and var: three float64 vectors, a number for each row,
# where k is the mean rounded to float32 and k + d the mean. With `centered` False (RMSNorm) k = d = 0, and var is the
# mean of the squares, which is var + mean^2.

# %%
from minorm.kernels.partial import PartialBackend
from minorm.kernels.reference.norm import four

THREADS = 2


def moments(nest, x, centered):
    """k, d and var of every row, from parallel_moments."""
    raise NotImplementedError("Task 7.5: the statistics of every row, from your kernel")


# %% tags=["check"]
check("7.5")

# %% [markdown]
# And it trains. The demo's network on the digits, with statistics from your kernel in all its BatchNorm layers. The
# network is float64 and your kernel reads float32, so the losses agree to five digits or so, not to ten.

# %% tags=["plot"]
from minorm.labs import digits_network

library, mine = (
    digits_network.losses(None),
    digits_network.losses(PartialBackend(moments=moments)),
)
for step in (0, 10, 22):
    print(
        f"step {step:2}: loss {library[step]:.6f} with the library's kernels, {mine[step]:.6f} with your statistics"
    )
assert np.allclose(mine, library, rtol=1e-2)

# %% [markdown]
# ## To think about
#
# 1. Your rows go to the kernel one after the other, each shared among all threads. When would it be better to give each
#    thread whole rows? (`minorm/kernels/README.md` says what this library does.)
# 2. The moments read x twice, and yet run at nearly the speed of one reading. Why? How large could CHUNK be before that
#    ends?
# 3. A GPU has tens of thousands of threads. What remains of this scheme there, and where would you add the partial
#    sums?
