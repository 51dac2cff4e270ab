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
# # Lab 2: Stable variance
#
# **The question.** Ten numbers are near ten million, and differ by about one. What is their variance, in float32?
#
# Five formulas that are equal on paper give five answers, and some are wrong by a factor of a billion. A network
# whose activations have a large mean and a small spread meets this in every BatchNorm. You will write the five,
# measure them, and put the best into a layer, where it beats those of the large frameworks.
#
# You need lab 1, and to know that float32 has 24 binary digits: neighbours near 1 are 2^-23, that is 1.2e-7, apart,
# and neighbours near ten million are 1 apart. Time: about 75 minutes.

# %%
import numpy as np

from minorm.labs.visible import checker

check = checker(2, globals())

# %% tags=["plot"]
import matplotlib.pyplot as plt

from minorm.labs.pictures import show
from minorm.plots import BLUE, GREEN, GREY, ORANGE, PURPLE, STYLE, VERMILLION

plt.rcParams.update(STYLE | {"text.parse_math": True})  # powers of ten on axes

# %% [markdown]
# ## The rules
#
# Each function takes `x` with n values along axis 0. There may be further axes: columns,
# each with its own variance, so that many experiments run at once. **All arithmetic is in
# the type of x**, and so is the answer: no float64 on the way when x is float32. The
# variance divides by n.
#
# Careful with Python's own numbers: `float32_array / 7` stays float32, but `np.float64(7)` and float64 arrays do not.
#
# **Write each formula yourself.** The checks follow every operation that your function does with x: its name, the type
# of its result, and which values of x it reads. `np.var`, `np.std` and `np.cov` are refused, and so is float64. Loops,
# `np.add.reduce`, `np.einsum` and `+=` are all fine. Keep the numbers in NumPy: where you call `float(v)`, `x.tolist()`
# or `np.array(memoryview(x))`, a check can no longer follow, and says "not tried".
#
# ## Task 2.1: naive
#
#     var = mean(x^2) - mean(x)^2
#
# One pass over the data, and the formula of every textbook. Write it as it stands.


# %%
def naive(x):
    """mean(x^2) - mean(x)^2 over axis 0."""
    raise NotImplementedError("Task 2.1: the mean square less the squared mean")


# %% tags=["check"]
check("2.1")

# %% [markdown]
# The check expects yours to fail where the formula must: with a mean of 10,000 both terms are 10^8, where neighbours
# in float32 are 8 apart. A variance of 1 cannot come out of their difference.
#
# ## Task 2.2: two passes
#
#     mean = mean(x)        var = mean((x - mean)^2)


# %%
def two_pass(x):
    """The mean first, then the mean of the squared distances from it."""
    raise NotImplementedError("Task 2.2: the mean square of x - mean")


# %% tags=["check"]
check("2.2")

# %% [markdown]
# ## Task 2.3: Welford
#
# Sometimes the data passes only once, one value at a time, as from a sensor. Welford (1962) keeps a mean and M, the
# sum of squared distances from *the mean so far*. The i-th value (i = 1, 2, ...) changes them by
#
#     delta = x_i - mean        mean = mean + delta / i        M = M + delta * (x_i - mean)
#
# where the last mean is the new one. In the end var = M / n.


# %%
def welford(x):
    """One value after the other: mean and M as above."""
    raise NotImplementedError("Task 2.3: one value after the other")


# %% tags=["check"]
check("2.3")

# %% [markdown]
# ## Task 2.4: Chan
#
# Threads, caches and machines each see a piece. Chan, Golub and LeVeque (1979) show how two pieces with counts n1
# and n2, means mean1 and mean2, and sums M1 and M2 become one:
#
#     n = n1 + n2        delta = mean2 - mean1
#     mean = mean1 + delta * n2 / n
#     M = M1 + M2 + delta^2 * n1 * n2 / n
#
# (Welford is the case n2 = 1.) Cut x with `np.array_split(x, pieces)`, take mean and M of each piece by two passes,
# and combine them from left to right. This is what runs in every kernel of this library, and, across machines, in
# SyncBatchNorm.


# %%
def combine(first, second):
    """(n, mean, M) of two pieces together."""
    raise NotImplementedError("Task 2.4: two pieces as one")


def chan(x, pieces=8):
    """The variance from so many pieces, or fewer where x has fewer values."""
    raise NotImplementedError("Task 2.4: the pieces, combined from left to right")


# %% tags=["check"]
check("2.4")

# %% [markdown]
# ## Task 2.5: shifted
#
# All four formulas share one problem: the mean of large numbers is a large number, with few digits left for what
# matters. So do not form it. Choose *any* number k near the data, of the data's own type, and look at x - k. That
# subtraction is exact, or nearly so: where x and k are within a factor of two of each other, float arithmetic makes no
# error at all (Sterbenz). The rest is small numbers:
#
#     d = mean(x - k)        var = mean((x - k)^2) - d^2        mean = k + d
#
# It looks like the naive formula, and it is, but around k. The mean of the first four values is a good k: one value
# alone might be an outlier. The mean is never put together; it *is* the pair (k, d).


# %%
def shifted(x):
    """k, d and var, around k = the mean of the first four values."""
    raise NotImplementedError("Task 2.5: k, d and the variance around k")


# %% tags=["check"]
check("2.5")

# %% [markdown]
# ### Guess before you run
#
# The next cell draws the error of your five functions. It takes 64 columns of 1,000 normally distributed numbers and
# moves them further and further away from 0, from 1 to ten million. The error is the largest among the columns,
# against the variance in float64 of the same float32 numbers. Which curves rise like the offset? Which rise like its
# square? Does any of them stay flat? Write your guesses down.

# %% tags=["plot"]
METHODS = {
    "naive": (naive, VERMILLION, "o"),
    "two passes": (two_pass, ORANGE, "s"),
    "Welford": (welford, PURPLE, "^"),
    "Chan, 8 pieces": (chan, GREEN, "D"),
    "shifted": (lambda x: shifted(x)[2], BLUE, "*"),
}
OFFSETS = 10.0 ** np.arange(8)


def errors(method):
    """The largest relative error of the variance at each offset."""
    noise = np.random.default_rng(0).standard_normal((1000, 64))
    found = []
    for offset in OFFSETS:
        x = (noise + offset).astype(np.float32)
        right = x.astype(np.float64).var(axis=0)
        found.append(np.abs(method(x) / right - 1).max())
    return found


figure, panel = plt.subplots(figsize=(8.5, 5.2), layout="constrained")
for name, (method, color, marker) in METHODS.items():
    panel.loglog(OFFSETS, errors(method), marker + "-", color=color, ms=8, label=name)
panel.axhline(1, color=GREY, linestyle=":")
panel.text(1, 1.4, "above this line no digit is right", color=GREY)
panel.axhline(2.0**-24, color=GREY, linestyle=":")
panel.text(1, 1.4e-8, "below this line float32 cannot be better", color=GREY)
panel.set(
    title="Only a shift keeps the digits of a variance",
    xlabel="mean of the data, in standard deviations",
    ylabel="largest relative error of the variance",
    ylim=(1e-8, 1e11),
)
panel.legend(loc="upper left", ncols=2)
show(
    figure,
    "Five curves, both axes logarithmic: the relative error of the variance against "
    "the mean of the data, from 1 to 10 million deviations. The naive formula rises "
    "like the square of the mean, and from 1000 on no digit is right. Welford, Chan "
    "and two passes rise later and more slowly, from 100 or 1000 on. The shifted "
    "formula stays near 0.00001, and below a millionth at the two largest means.",
)

# %% [markdown]
# ## Task 2.6: in a layer
#
# Now write it as a piece of a backend. `moments(nest, x, centered)` returns k, d and var, one number for each row,
# as flat float64 vectors. x may be float32. Then k must be a number of x's type, and x - k must be computed in x's
# type, where it is exact. `four(nest, x)` gives x with the axes (keep, keep, reduce, reduce). Here float64 is allowed
# in *sums* (`dtype=np.float64`): it costs little, and a float32 sum of a million terms has few right digits. Without
# centering, k = d = 0 and var is the mean square. The check follows this function too, and the library's own `moments`
# is closed to it.

# %%
from minorm.kernels.partial import PartialBackend
from minorm.kernels.reference.norm import four


def moments(nest, x, centered):
    """k, d and var of each row, float64 vectors; k are numbers of x's type."""
    raise NotImplementedError("Task 2.6: k, d and var of each row of a nest")


# %% tags=["check"]
check("2.6")

# %% [markdown]
# ### Guess before you run
#
# The next cell runs the layer `nn.BatchNorm2d(16, backend=PartialBackend(moments=moments))` on data with a mean of ten
# million. It compares three backends: one with the naive variance, yours, and the library's. How large is the error of
# each y? What does the layer do where a variance comes out negative?

# %% tags=["check"]
import minorm as mn
from minorm import nn


def naive_moments(nest, x, centered):
    mean = four(nest, x).mean(axis=(2, 3)).ravel()
    return mean, 0 * mean, np.square(four(nest, x)).mean(axis=(2, 3)).ravel() - mean**2


x = (np.random.default_rng(0).standard_normal((32, 16, 16, 16)) + 1e7).astype(np.float32)
exact = x.astype(np.float64)
mean, var = (f((0, 2, 3), keepdims=True) for f in (exact.mean, exact.var))
exact = (exact - mean) / np.sqrt(var + 1e-5)
for name, backend in {
    "naive": PartialBackend(moments=naive_moments),
    "yours": PartialBackend(moments=moments),
    "library": None,
}.items():
    with np.errstate(invalid="ignore"):
        y = nn.BatchNorm2d(16, backend=backend)(mn.tensor(x)).numpy()
    print(f"{name:8} largest error of y {np.abs(y - exact).max():.1e}")

# %% [markdown]
# The naive variance is negative in some channel, and the square root of that is NaN. On this data PyTorch is wrong by
# 0.44 and onnxruntime by 0.92 (docs/maths.md has the table).

# %% [markdown]
# ## To think about
#
# 1. Between the offsets 10^5 and 10^6 the shifted formula gets *better*. The data has changed there: print a few
#    values. What is left to compute?
# 2. Multiply the data by 1000 and leave the mean where it is, in standard deviations. Does the picture change? And
#    what if you only add data that lies exactly at 0, half of it?
# 3. Why is k the mean of four values, and not of one, and not of all? Think of an outlier of 10^6 at the front, and of
#    how often the data is read.
