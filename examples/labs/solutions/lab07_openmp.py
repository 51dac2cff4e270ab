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
# You write the kernel in Cython. You begin with a plain loop. In the end, your kernel runs at the speed of memory and
# gives the same bits with 1 thread and with 64, and a LayerNorm computes with it.
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
from minorm.plots import BLUE, GREY, ORANGE, STYLE, VERMILLION

plt.rcParams.update(STYLE)

# %% [markdown]
# ## Cython in one minute
#
# Your functions return *pieces*, text in Cython. `build(piece, piece, ...)` makes a module of them: Cython translates
# to C, the C compiler (-O3, OpenMP) to machine code. You need to know this:
#
# - `cdef Py_ssize_t i` declares a C integer, `cdef float[32] a` an array of 32 floats;
# - `def` is a function that Python can call, `cdef double f(...) noexcept nogil` one of C, without Python inside;
# - an array arrives as its address, `x.ctypes.data`: `cdef const float* x = <const float*>address`, then `x[i]`, and
#   `x + 100` is the address of the element 100;
# - a name is declared once, at the top of a function, and `for i in range(n)` over C integers is a C loop.
#
# Nothing checks your indices. An index far beyond the end of an array crashes Python.
#
# ## Part A: a sum at the speed of memory (about 75 minutes)
#
# ## Task 7.1: the plain loop
#
# Add x[0] to x[n - 1], one after the other, in a float.


# %%
def plain_pyx():
    """Cython with `def plain_sum(size_t address, Py_ssize_t n)`.

    It returns the sum of n floats, added one after the other.
    """
    # SOLUTION 7.1: the plain loop
    return """
def plain_sum(size_t address, Py_ssize_t n):
    cdef const float* x = <const float*>address
    cdef float total = 0
    cdef Py_ssize_t i
    for i in range(n):
        total += x[i]
    return total
"""
    # END


# %% tags=["check"]
check("7.1")

# %% [markdown]
# ## Task 7.2: lanes
#
# Each addition waits about four cycles for the one before. The processor could do dozens of additions in that time. The
# compiler may not rearrange them, because a floating-point sum depends on the order of its additions. So write the
# order that you want: 32 sums side by side, `a[j] += x[i + j]` for j from 0 to 31. The compiler turns these into a few
# wide instructions that do not wait for each other. At the end, add the 32 sums in order, and then the elements that
# were left over, in a double.
#
# (Why is that also more exact?)


# %%
def lanes_pyx():
    """Cython with `cdef double lane_sum(const float* x, Py_ssize_t n) noexcept nogil`.

    And `def lanes(size_t address, Py_ssize_t n)`, which calls it from Python.
    """
    # SOLUTION 7.2: a sum in 32 lanes
    return """
cdef double lane_sum(const float* x, Py_ssize_t n) noexcept nogil:
    cdef float[32] a
    cdef double total = 0
    cdef Py_ssize_t i = 0, j
    for j in range(32):
        a[j] = 0
    while i + 32 <= n:
        for j in range(32):
            a[j] += x[i + j]
        i += 32
    for j in range(32):
        total += a[j]
    while i < n:
        total += x[i]
        i += 1
    return total

def lanes(size_t address, Py_ssize_t n):
    return lane_sum(<const float*>address, n)
"""
    # END


# %% tags=["check"]
check("7.2")

# %% [markdown]
# ## Task 7.3: threads, and the same bits
#
#     for i in prange(count, nogil=True, schedule="static", num_threads=threads):
#         ...                                  # one line, best a call of a cdef function
#
# is a loop whose turns are shared among threads. You could write `total += ...` inside: Cython then gives each thread
# its own total and adds these at the end. But the order of the additions then depends on the number of threads, and so
# do the last bits of the sum. A training run would not repeat itself on another machine.
#
# So the *length* of x must decide which numbers are added first. Cut x into chunks of `CHUNK` elements (a constant,
# 16384; the last chunk is shorter). Write the sum of chunk i to `partial[i]`, an array of doubles with room for all
# chunks. At the end, add these in order, on one thread. The result does not show which thread did which chunk.
#
# The check counts what each thread reads. There must be as many threads as asked for, each must read its share, and
# they must read at the same time.


# %%
def parallel_pyx():
    """Cython that defines parallel_sum; it uses lane_sum, from the piece before.

    `def parallel_sum(size_t address, Py_ssize_t n, size_t partial, int threads)`
    """
    # SOLUTION 7.3: chunks shared among threads, added in order
    return """
def parallel_sum(size_t address, Py_ssize_t n, size_t partial, int threads):
    cdef const float* x = <const float*>address
    cdef double* sums = <double*>partial
    cdef Py_ssize_t count = (n + CHUNK - 1) // CHUNK
    cdef Py_ssize_t i
    cdef double total = 0
    for i in prange(count, nogil=True, schedule="static", num_threads=threads):
        sums[i] = lane_sum(x + i * CHUNK, min(<Py_ssize_t>CHUNK, n - i * CHUNK))
    for i in range(count):
        total += sums[i]
    return total
"""
    # END


# %% tags=["check"]
check("7.3")

# %% [markdown]
# ### The roof
#
# `reader(x, threads)` reads x and does almost nothing with it. No kernel that reads every element can be faster, so we
# call its speed the roof. The plot below has two panels. On the left, arrays grow until they no longer fit into the
# caches. On the right, the number of threads grows, up to the number that this machine has.

# %% [markdown]
# **Guess before you run.**
#
# 1. How near does the plain loop come to the roof? And the loop with lanes?
# 2. 8 MB may fit into a cache, 134 MB do not. For which of them does a second thread help more?
# 3. Starting the threads takes some microseconds. For which sizes is that more than they save?
#
# (If the machine does other work at the same time, threads help less.)


# %% tags=["plot"]
def rates(functions, size):
    """GB/s of each function, which reads `size` floats; it reads small arrays often."""
    repeat = max(1, (1 << 21) // size)
    loops = [lambda f=f: [f() for _ in range(repeat)] for f in functions]
    return [4e-9 * size * repeat / seconds for seconds in quickest(loops, 15)]


def summing(kernels, x, threads):
    """parallel_sum of x, ready to be called."""
    partial = np.empty(x.size // CHUNK + 1)

    def call():
        places = x.ctypes.data, x.size, partial.ctypes.data  # and keeps both arrays
        return kernels.parallel_sum(*places, threads)

    return call


def alone(function, x):
    """A function of one thread, ready to be called on x."""
    return lambda: function(x.ctypes.data, x.size)


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
    singles = [alone(kernels.plain_sum, x), alone(kernels.lanes, x)]
    sums = [*singles, summing(kernels, x, most)]
    *speeds, one, all_of_them = rates([*sums, reader(x, 1), reader(x, most)], size)
    found.append([*speeds, max(one, all_of_them)])
THIN, THICK = {"linewidth": 1.8, "markersize": 5}, {"linewidth": 1.8, "markersize": 7}
figure, (left, right) = plt.subplots(1, 2, figsize=(12.5, 4.8), layout="constrained")
for (name, color, style), values in zip(CURVES, np.transpose(found), strict=True):
    sizes = [4 * size for size in SIZES]
    left.loglog(sizes, values, style, color=color, label=name, **THIN)
left.set(title="Lanes reach the roof of reading; the plain loop never does")
left.set(ylabel="GB/s", ylim=(0.3, None))
ticks = {18: "0.25 MB", 20: "1 MB", 22: "4 MB", 24: "17 MB", 27: "134 MB"}
left.set_xticks([1 << power for power in ticks], list(ticks.values()))
left.minorticks_off()
left.yaxis.set_major_formatter("{x:g}")
left.set_xlabel("size of the array")
left.legend(loc="lower right")
counts, gains = range(1, most + 1), []
LARGE = ((1 << 21, "8 MB", BLUE, "o-"), (1 << 25, "134 MB", VERMILLION, "s--"))
for size, name, color, style in LARGE:
    x = np.ones(size, np.float32)
    speeds = np.array(rates([summing(kernels, x, threads) for threads in counts], size))
    label = f"sum of {name}"
    right.plot(counts, speeds / speeds[0], style, color=color, label=label, **THICK)
    gains.append(f"{max(speeds) / speeds[0]:.1f} times for {name}")
    read = np.array(rates([reader(x, threads) for threads in counts], size))
    roof = read / speeds[0]
    label = f"the roof: reading {name}"
    right.plot(counts, roof, ":", color=color, linewidth=1.8, label=label)
straight = "twice the threads, twice the speed"
right.plot(counts, counts, "-", color=GREY, linewidth=1, label=straight)
right.set(title="From memory, threads only help up to its roof", xlabel="threads")
right.set(ylabel="speed-up over one thread")
right.set(ylim=(0, None), xticks=list(counts)[:: max(1, most // 8)])
right.legend(loc="best")
show(
    figure,
    "Left, GB per second against the size of the array, both axes logarithmic. The plain "
    f"loop is the lowest curve, at about {np.median(found, axis=0)[0]:.1f} GB per second "
    "for all sizes. The curve of lanes lies far above it, near the dotted roof of "
    "reading, and falls where the array no longer fits into the caches. The curve of "
    "lanes with all threads begins low, because starting threads takes time, and comes "
    "near to the roof for large arrays. Right, the speed-up of the sum against the "
    "number of threads, beside the dotted roof of reading and the grey line of perfect "
    "speed-up. The best speed-up "
    f"on this machine is {' and '.join(gains)}.",
)

# %% [markdown]
# ## Part B: a mean and a variance, in a layer (about 75 minutes)
#
# This is a good place to stop: your sum is as fast as reading, and has the same bits for any number of threads. When
# you come back, run the cells above again ("Run All Above Selected Cell"). You need nothing else.
#
# ## Task 7.4: moments
#
# Now compute mean and variance, at any offset (lab 2). Read each chunk twice: first for its mean, then for
# M = sum((x - mean)^2). The second pass finds the chunk in the cache. Use double lanes here, `cdef double[16] a`. Write
# the two numbers of chunk i to parts[2 * i] and parts[2 * i + 1]. Then merge the chunks, in order, by Chan's formula.
# With n1 elements so far and n2 more,
#
#     delta = mean2 - mean1     mean = mean1 + delta * n2/n     M = M1 + M2 + delta^2 * n1 * n2/n     n = n1 + n2
#
# The check counts what each thread reads, as in 7.3.


# %%
def moments_pyx():
    """Cython that defines parallel_moments; it returns mean and var, for n > 0.

    `def parallel_moments(size_t address, Py_ssize_t n, size_t parts, int threads)`
    """
    # SOLUTION 7.4: mean and population variance, in chunks
    return """
cdef void chunk_moments(const float* x, Py_ssize_t n, double* part) noexcept nogil:
    cdef double[16] a
    cdef double mean = 0, m2 = 0
    cdef Py_ssize_t whole = n // 16 * 16
    cdef Py_ssize_t i, j
    for j in range(16):
        a[j] = 0
    for i in range(0, whole, 16):
        for j in range(16):
            a[j] += x[i + j]
    for j in range(16):
        mean += a[j]
        a[j] = 0
    for i in range(whole, n):
        mean += x[i]
    mean = mean / n
    for i in range(0, whole, 16):
        for j in range(16):
            a[j] += (x[i + j] - mean) * (x[i + j] - mean)
    for j in range(16):
        m2 += a[j]
    for i in range(whole, n):
        m2 += (x[i] - mean) * (x[i] - mean)
    part[0] = mean
    part[1] = m2

def parallel_moments(size_t address, Py_ssize_t n, size_t parts, int threads):
    cdef const float* x = <const float*>address
    cdef double* part = <double*>parts
    cdef Py_ssize_t count = (n + CHUNK - 1) // CHUNK
    cdef Py_ssize_t i, n2
    cdef Py_ssize_t n1 = 0
    cdef double mean = 0, m2 = 0, delta
    for i in prange(count, nogil=True, schedule="static", num_threads=threads):
        chunk_moments(x + i * CHUNK, min(<Py_ssize_t>CHUNK, n - i * CHUNK), part + 2 * i)
    for i in range(count):
        n2 = min(<Py_ssize_t>CHUNK, n - i * CHUNK)
        delta = part[2 * i] - mean
        mean += delta * n2 / (n1 + n2)
        m2 += part[2 * i + 1] + delta * delta * n1 * n2 / (n1 + n2)
        n1 += n2
    return mean, m2 / n
"""
    # END


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
    # SOLUTION 7.5: the statistics of every row, from your kernel
    kernel = build(moments_pyx()).parallel_moments
    rows = np.ascontiguousarray(four(nest, x), np.float32).reshape(nest.rows, -1)
    parts = np.empty(2 * (rows.shape[1] // CHUNK + 1))
    places = parts.ctypes.data
    pairs = [kernel(row.ctypes.data, row.size, places, THREADS) for row in rows]
    mean, var = np.array(pairs).T
    if not centered:
        return 0 * mean, 0 * mean, var + mean**2
    k = mean.astype(np.float32).astype(np.float64)
    return k, mean - k, var
    # END


# %% tags=["check"]
check("7.5")

# %% [markdown]
# ### It trains
#
# The demo's network learns the digits, once with the library's kernels, once with statistics from your kernel in all
# its BatchNorm layers. The network computes in float64, and your kernel reads float32.

# %% [markdown]
# **Guess before you run.** In how many digits do the two losses agree?

# %% tags=["plot"]
from minorm.labs import digits_network

library = digits_network.losses(None)
mine = digits_network.losses(PartialBackend(moments=moments))
for step in (0, 10, 22):
    print(f"step {step:2}: loss {library[step]:.9f} with the library's kernels,", end=" ")
    print(f"{mine[step]:.9f} with your statistics")
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
