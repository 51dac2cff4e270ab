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
# # Lab 6: Precision
#
# **The question.** Networks store their numbers in 16 bits to halve the memory traffic, on which a normalization
# spends most of its time. What may a kernel do with such numbers, and in which type must it compute, so that its
# result is as good as 16 bits can show?
#
# You measure errors in units of the last place, round to bfloat16 by hand, keep squares
# from overflowing, write a LayerNorm that loses half a unit and no more, and then tests
# that find precision bugs in another one.
#
# You need labs 1 and 2. Time: about 75 minutes.

# %%
import numpy as np

import minorm as mn
from minorm.labs.visible import checker

check = checker(6, globals())

# %% tags=["plot"]
import matplotlib.pyplot as plt

from minorm.labs.pictures import ink, show
from minorm.plots import BLUE, GREEN, GREY, ORANGE, STYLE, VERMILLION

plt.rcParams.update(STYLE | {"text.parse_math": True})  # powers of ten on axes

# %% [markdown]
# ## Three formats
#
# A number is 1.significand times a power of two. They differ in the number of bits of
# each part:
#
# | | significand, with the leading 1 | smallest normal exponent | largest number | stored in |
# |---|---|---|---|---|
# | float32 | 24 | -126 | 3.4e38 | 4 bytes |
# | float16 | 11 | -14 | 65504 | 2 bytes |
# | bfloat16 | 8 | -126 | 3.4e38 | 2 bytes |
#
# bfloat16 is the upper half of a float32: its range with a third of its digits.
#
# ## Task 6.1: the unit in the last place
#
# From 2^e to 2^(e+1) the numbers of a format with p bits are 2^(e - p + 1) apart: that is the *ulp* of each v there.
# Below the smallest normal exponent it stays what it is there, down to 0. `np.frexp(v)` gives a fraction from 1/2 to 1
# and an exponent, exactly, which `np.log2` does not. The right result, rounded once, is never off by more than half an
# ulp. Work with the exponent: `np.spacing` and `np.nextafter` of a narrow array would do the task for you.
#
# **Write each step yourself, in the types that the task names.** The checks of this lab follow every operation of your
# functions and see the type of each result. Loops, `np.add.reduce` and `+=` are fine. Write `x.astype(np.float32)`, not
# `np.float32(x)`, and keep the numbers in NumPy: where a check cannot follow, it says "not tried".

# %%
BITS = {"float32": 24, "float16": 11, "bfloat16": 8}
SMALLEST = {"float32": -126, "float16": -14, "bfloat16": -126}
DTYPES = {name: getattr(mn, name) for name in (*BITS, "float64")}


def ulp(v, name):
    """The distance of neighbours of the format at each of v (float64), as float64."""
    raise NotImplementedError("Task 6.1: the unit in the last place")


def error_in_ulp(y, right, name):
    """|y - right| in units of the last place of the right values, which are float64."""
    raise NotImplementedError("Task 6.1: the error in units of the last place")


# %% tags=["check"]
check("6.1")

# %% [markdown]
# ### Guess before you run
#
# The next cell draws the distance to the neighbouring number, as a share of the number, from 1e-9 to 1e9. Which of the
# three formats has the lowest curve? Which of them is not flat, and where does it end?

# %% tags=["plot"]
LINES = {"float16": (VERMILLION, "-"), "bfloat16": (BLUE, "--"), "float32": (GREEN, "-.")}
figure, panel = plt.subplots(figsize=(9, 4.6), layout="constrained")
for name, (color, style) in LINES.items():
    values = 10 ** np.linspace(-9, 9, 4000)
    if name == "float16":
        values = values[(values > 3e-8) & (values < 65504)]
    share = ulp(values, name) / values
    panel.loglog(values, share, style, color=color, linewidth=1.6, label=name)
panel.axvline(65504, color=VERMILLION, linestyle=":", linewidth=1.2)
panel.text(65504 * 1.4, 0.3, "float16 ends at 65504", color=VERMILLION, va="center")
panel.set(
    title="float16 has more digits, bfloat16 has them everywhere",
    xlabel="value",
    ylabel="distance to the neighbour, as a share of the value",
)
panel.legend(loc="center right", bbox_to_anchor=(0.99, 0.32))
show(
    figure,
    "Three saw-tooth curves, both axes logarithmic: the distance to the neighbouring "
    "number as a share of the value, from 1e-9 to 1e9. Each tooth is a factor of 2. "
    "float32 is at about 1e-7 and bfloat16 at about 0.005 everywhere. float16 is at "
    "about 0.0007, ends at 65504, and rises below 0.0001.",
)

# %% [markdown]
# ## Task 6.2: float32 to bfloat16, by hand
#
# `x.view(np.uint32)` shows the bits of a float32. The upper 16 are the bfloat16 below it (nearer to 0): cutting off is
# rounding towards 0, with errors of a whole ulp. To round to the *nearest*, add half of what is cut off before cutting.
# Exactly half is a tie, and goes to the neighbour whose last bit is 0: so add 0x7FFF, and one more where the lowest bit
# that stays is 1. A carry runs into the exponent by itself, even up to infinity, which is right. A NaN goes wrong: find
# out how, and keep it a NaN. No conversion to bfloat16, please: the check sees `astype(mn.bfloat16)`.


# %%
def to_bfloat16(x):
    """The bits, uint16, of the bfloat16 nearest to each float32 of x.

    Ties go to the even one, and NaN stays NaN.
    """
    raise NotImplementedError("Task 6.2: round to the nearest bfloat16")


def from_bfloat16(bits):
    """The float32 that each bfloat16 is."""
    raise NotImplementedError("Task 6.2: widen bfloat16 to float32")


# %% tags=["check"]
check("6.2")

# %% [markdown]
# ## Task 6.3: no overflow
#
# The mean of squares is where range runs out: the square of 300 is beyond float16, that of 1e20 beyond float32. A wider
# type cures it as long as there is one. Without one, a power of two does: it costs no digit. Choose e for each row so
# that its largest element times 2^-e lies between 1/2 and 1, and with x' = x * 2^-e
#
#     sqrt(mean(x^2)) = 2^e sqrt(mean(x'^2))
#
# `np.ldexp(x, n)` is x * 2^n, also where 2^n alone would overflow. Work in the type of x, float32 or float64, and no
# wider, not even in a sum: the check brings float64 numbers of 1e200, and refuses `np.longdouble` too. A row of zeros
# gives 0. (What underflows in x'^2 is too small to matter. Why?)


# %%
def root_mean_square(x):
    """sqrt(mean(x^2)) over the last axis, which stays with length 1; in the type of x."""
    raise NotImplementedError("Task 6.3: the root mean square of rows of any size")


# %% tags=["check"]
check("6.3")

# %% [markdown]
# ## Task 6.4: store narrow, compute wide, round once
#
# A LayerNorm over the last axis. x comes in one of four types, s and b perhaps in others. Compute everything in the
# type `compute` names, "float32" or "float64": elements, sums, statistics, scale and bias. Round y, once, to the type
# of x. The check sees the type of every result on the way: neither a narrower type will do nor float64 where float32
# was asked for. How wide must it be? For 16-bit data float32 has digits to spare; whether it has the range depends on
# the data (6.3). For float32 data that should be right to half an ulp, only float64 will do.
#
# NumPy tempts you: `x.mean()` of float16 adds in float32 behind your back, `x.sum()` of bfloat16 does not. Widen first.


# %%
def layer_norm(x, s, b, eps=1e-5, compute="float32"):
    """y of x's type: normalized over the last axis, times s, plus b.

    s and b may be None.
    """
    raise NotImplementedError("Task 6.4: compute in one type, round to another")


# %% tags=["check"]
check("6.4")

# %% [markdown]
# ### The error of three recipes: guess before you run
#
# The same layer in three ways. The first rounds every single operation to 16 bits, sums included. The second computes
# statistics in float32 but rounds each of xhat, s * xhat and y, as the text of ONNX has it. The third is yours. The
# cell after the next shows the largest error of each in ulp, for rows of 16 to 16,384 elements. Which of the three get
# worse with longer rows? By how much is the second worse than yours? (Elements with |y| below 1/8 are left out: there
# s * xhat and b cancel, and float32's error is left.)


# %%
def all_in_16_bits(x, s, b, eps=1e-5):
    """Sums run along, each partial sum rounded."""
    kind = x.dtype.type

    def total(v):
        return np.add.accumulate(v, axis=-1)[..., -1:]

    c = x - total(x) / kind(x.shape[-1])
    var = total(c * c) / kind(x.shape[-1])
    return c / np.sqrt(var + kind(eps)) * s + b


def rounded_three_times(x, s, b, eps=1e-5):
    """Statistics in float32, then the affine part in 16 bits."""
    wide = x.astype(np.float32)
    c = wide - wide.mean(axis=-1, keepdims=True)
    var = (c * c).mean(axis=-1, keepdims=True)
    xhat = (c / np.sqrt(var + np.float32(eps))).astype(x.dtype)
    return xhat * s + b


def largest_error(recipe, name, m):
    """The largest error in ulp over rows of m numbers with mean 2 and deviation 1."""
    rng = np.random.default_rng(m)
    x = (rng.standard_normal((max(4, 4096 // m), m)) + 2).astype(DTYPES[name])
    s, b = rng.standard_normal((2, m)).astype(DTYPES[name])
    wide, s64, b64 = (v.astype(np.float64) for v in (x, s, b))
    c = wide - wide.mean(axis=-1, keepdims=True)
    right = c / np.sqrt(c.var(axis=-1, keepdims=True) + 1e-5) * s64 + b64
    return np.max(error_in_ulp(recipe(x, s, b), right, name)[np.abs(right) > 1 / 8])


# %% tags=["plot"]
RECIPES = {
    "every operation in 16 bits": all_in_16_bits,
    "statistics in float32,\nrounded three times": rounded_three_times,
    "computed in float32,\nrounded once (yours)": layer_norm,
}
LENGTHS = [4**k for k in range(2, 8)]
figure, panels = plt.subplots(1, 2, figsize=(13, 3.9), sharey=True, layout="constrained")
for panel, name in zip(panels, ("float16", "bfloat16"), strict=True):
    rows = [[largest_error(f, name, m) for m in LENGTHS] for f in RECIPES.values()]
    errors = np.array(rows)
    shades = {"cmap": "cividis", "vmin": -0.5, "vmax": 4.2}
    picture = panel.imshow(np.log10(errors), aspect="auto", **shades)
    for (row, column), error in np.ndenumerate(errors):
        text = f"{error:.2g}" if error < 100 else f"{error:,.0f}"
        color = ink(picture.cmap(picture.norm(np.log10(error))))
        panel.text(column, row, text, ha="center", va="center", color=color)
    panel.set_xticks(range(len(LENGTHS)), LENGTHS)
    panel.set_yticks(range(len(RECIPES)), list(RECIPES))
    panel.set(title=name, xlabel="elements of a row, m")
    panel.grid(False)
bar = figure.colorbar(picture, ax=panels, label="largest error in ulp", ticks=range(5))
bar.ax.set_yticklabels(["1", "10", "100", "1,000", "10,000"])
title = "Compute wide and round once: half a unit, however long the row"
figure.suptitle(title, x=0.01, ha="left")
show(
    figure,
    "Two coloured tables, for float16 and bfloat16: the largest error in ulp of three "
    "recipes, one in each row, for 16 to 16,384 elements, in columns. With every "
    "operation in 16 bits the error grows with the length, from about 30 to more than "
    "10,000 ulp. Rounded three times it is 6 to 13 ulp. Computed in float32 and "
    "rounded once it is half an ulp everywhere.",
)

# %% [markdown]
# ## Task 6.5: yours, in any layer
#
# Now as the forward function of a backend (labs 1 and 2): `four(nest, x)` has the axes (keep, keep, reduce, reduce),
# a row is the last two, `parameters(nest, s)` broadcasts along, `like(nest, y4, x)` brings y4 into x's shape and
# type, rounding it. `dtype` is the type to compute in; None means float32 for the two 16-bit types, and otherwise
# x's own type. In RMSNorm (`equation.centered` is False) the mean is 0. `equation.rstd(var)` knows where eps
# belongs. `Statistics.of` takes four flat float64 vectors, k, d, var and rstd, where the mean is k + d. As in 6.4, the
# check sees the type of every result on the way to y, and the library's own `forward` is closed to your function.

# %%
from minorm.kernels.partial import PartialBackend
from minorm.kernels.protocol import Statistics
from minorm.kernels.reference.norm import four, like, parameters


def forward(nest, x, s, b, equation, dtype=None):
    """y and the statistics; s and b may be None, and of other types than x."""
    raise NotImplementedError("Task 6.5: the forward pass, computed in dtype")


# %% tags=["check"]
check("6.5")

# %% [markdown]
# ## Task 6.6: tests that find bugs
#
# As in labs 3 and 4: your tests run on a right implementation, where all must pass, and on wrong ones, where one must
# fail; each bug found is a point. `norm` has one function,
#
#     y = norm.layer_norm(x, s, b, eps=1e-5)
#
# over the last axis of x (rows, m), float16 or bfloat16, s and b (m) of the same type. It computes in float32, with
# statistics in float64, and rounds once. The bugs: sums, squares, the mean or eps in 16 bits; rounding three times;
# rounding towards 0; N - 1; eps outside the root. Some show only where numbers are large, or small beside eps, and some
# only to a sharp bound.
#
# How far off may a right y be? Half an ulp from the rounding, and what float32 does before: a few 1e-7 of |s * xhat|
# and of |b|. Allow 0.5 ulp + 2e-6 (|s * xhat| + |b|).
#
# As in task 3.5, an oracle is a formula in your test, a property or your own function of this file, such as the
# `layer_norm` of task 6.4. The library's normalizations, torch and the like are closed while your tests run.


# %%
def within_bounds(norm, x, s, b, eps):
    """Assert that norm.layer_norm is right about x."""
    raise NotImplementedError("Task 6.6: the formula in float64 and a sharp bound")


def test_rows(norm):
    """Rows of many kinds."""
    raise NotImplementedError("Task 6.6: the rows on which bugs show")


# %% tags=["check"]
check("6.6")

# %% [markdown]
# ## To think about
#
# 1. Ten thousand ones, added one by one in bfloat16, give 256. And in float16? How would a sum in pairs (a tree) do,
#    and why is it still not enough for a variance?
# 2. A layer's weights are bfloat16 and an optimizer's step changes one by a thousandth of it. What happens? What do
#    people keep beside such weights?
# 3. With compute float32 and float32 data, your y is off by several ulp where float64 would be off by half an ulp.
#    When would you pay for that? (ONNX calls the choice stash_type, TensorRT compute precision.)
