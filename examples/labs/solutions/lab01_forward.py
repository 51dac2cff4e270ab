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
# # Lab 1: Forward
#
# **The question.** How much code do BatchNorm, LayerNorm, InstanceNorm, GroupNorm and
# RMSNorm need together?
#
# One function is enough. In lab 0 you saw that these norms differ only in their axes. In
# this lab you write the equation once and build all five norms from it, each in one or
# two lines. The checks compare your results with formulas in double precision. At the end
# you put your function into a layer of a real network.
#
# You need lab 0 and NumPy's broadcasting. Time: about 75 minutes.

# %%
import numpy as np

from minorm.labs.visible import checker

check = checker(1, globals())

# %% tags=["plot"]
import matplotlib.pyplot as plt

from minorm.labs.pictures import show
from minorm.plots import BLUE, GREEN, PURPLE, STYLE, VERMILLION

plt.rcParams.update(STYLE)

# %% [markdown]
# ## The mathematics
#
# A row is a set of `m` elements that share their statistics. For one row:
#
#     mean = 1/m sum(x)       var = 1/m sum((x - mean)^2)       rstd = 1 / sqrt(var + eps)
#
#     xhat = (x - mean) * rstd                                  y = xhat * s + b
#
# Note three things:
#
# - The variance divides by m, not by m - 1. It describes the m numbers that are there. It
#   is not an estimate for other numbers.
# - eps is *inside* the root. It keeps rstd finite if all elements of a row are equal.
# - RMSNorm does not subtract the mean. It takes the mean as 0, so var becomes the mean of
#   the squares. The code calls this `centered=False`.
#
# An example to check by hand: the row 1, 2, 3, 6 has the mean 3 and the variance (4 + 1 +
# 0 + 9) / 4 = 3.5. Its mean square is 50 / 4 = 12.5.
#
# ## Task 1.1: moments
#
# Keep the reduced axes as axes of length 1 (`keepdims=True`). Then x - mean broadcasts
# for any axes.


# %%
def moments(x, axes, centered=True):
    """mean and var of x over `axes`. The reduced axes stay as axes of length 1.

    With centered=False, mean is 0 and var is the mean square.
    """
    # SOLUTION 1.1: mean and population variance over the axes
    mean = x.mean(axis=axes, keepdims=True)
    if not centered:
        mean = np.zeros_like(mean)
    return mean, np.square(x - mean).mean(axis=axes, keepdims=True)
    # END


# %% tags=["check"]
check("1.1")

# %% [markdown]
# ## Task 1.2: xhat
#
# Compute xhat from the moments of task 1.1.


# %%
def normalize(x, axes, eps=1e-5, centered=True):
    """xhat = (x - mean) / sqrt(var + eps)."""
    # SOLUTION 1.2: subtract the mean, divide by the root of var + eps
    mean, var = moments(x, axes, centered)
    return (x - mean) / np.sqrt(var + eps)
    # END


# %% tags=["check"]
check("1.2")

# %% [markdown]
# ### Before and after
#
# The next cell makes data with four channels. Each channel has its own mean and its own
# spread, as channels after a convolution do. Then it normalizes the data in two ways.
# BatchNorm takes one mean for each channel. LayerNorm takes one mean over all channels of
# a sample.

# %% [markdown]
# **Guess before you run.** Sketch the histograms of the four channels after BatchNorm,
# and after LayerNorm. Will the four curves lie on top of each other?

# %% tags=["plot"]
rng = np.random.default_rng(0)
centres, spreads = np.array([-4.0, 0.0, 3.0, 8.0]), np.array([1.0, 0.4, 2.0, 0.7])
x = (rng.standard_normal((500, 16, 4)) * spreads + centres).transpose(
    0, 2, 1
)  # (N, C, L)

LOOKS = (BLUE, "-"), (VERMILLION, "--"), (GREEN, "-."), (PURPLE, ":")
panels = {
    "Before": x,
    "After BatchNorm": normalize(x, (0, 2)),
    "After LayerNorm": normalize(x, (1, 2)),
}
figure, axes = plt.subplots(1, 3, figsize=(13, 3.8), layout="constrained")
for panel, (title, values) in zip(axes, panels.items(), strict=True):
    bins = np.linspace(values.min(), values.max(), 80)
    for channel, (color, style) in enumerate(LOOKS):
        panel.hist(
            values[:, channel].ravel(),
            bins,
            histtype="step",
            color=color,
            linestyle=style,
            linewidth=1.8,
            label=f"channel {channel}",
        )
    panel.set(title=title, xlabel="value", ylabel="elements in a bin")
axes[0].legend()
show(
    figure,
    "Three panels with histograms of four channels. Before: four peaks of different "
    "width around -4, 0, 3 and 8. After BatchNorm: the four curves lie on top of each "
    "other, around 0. After LayerNorm: four separate peaks as before, on a smaller "
    "scale.",
)

# %% [markdown]
# **What you see.** After BatchNorm every channel has mean 0 and standard deviation 1, so
# the four curves lie on top of each other. After LayerNorm the four peaks are still
# separate. LayerNorm scales all channels of a sample together, so the differences between
# channels remain.

# %% [markdown]
# ## Task 1.3: scale and bias
#
# Each normalization has learned parameters: the scale s and the bias b. With them, a
# network can undo a normalization that does not help. s and b vary along some
# neighbouring axes of x and are constant along the others. For BatchNorm they have the
# shape (C) and vary along axis 1. For LayerNorm they vary along all trailing axes.
#
# NumPy aligns shapes at their *ends*. Append axes of length 1 to s and b until they stand
# at the right axis. None means that there is no scale, or no bias.


# %%
def affine(xhat, s, b, axis):
    """y = xhat * s + b. The first axis of s and b is axis `axis` of xhat.

    s, b, or both may be None.
    """
    # SOLUTION 1.3: multiply by s and add b, aligned with axis `axis`
    y = xhat
    for parameter, apply in ((s, np.multiply), (b, np.add)):
        if parameter is not None:
            behind = xhat.ndim - axis - parameter.ndim
            y = apply(y, parameter.reshape(parameter.shape + (1,) * behind))
    return y
    # END


# %% tags=["check"]
check("1.3")

# %% [markdown]
# ## Task 1.4: five norms
#
# Now each norm only needs its axes. x has the shape (N, C, *positions) with any number of
# position axes. `batch_norm`, `layer_norm` and `rms_norm` must also work if there are no
# position axes.
#
# `normalized_shape` is a tuple: the last part of x's shape. LayerNorm and RMSNorm reduce
# these axes. GroupNorm splits axis 1, normalizes, and returns to x's shape. Only then
# does it apply s and b of shape (C).


# %%
def batch_norm(x, s=None, b=None, eps=1e-5):
    """One mean and one var for each channel. s and b have the shape (C)."""
    # SOLUTION 1.4: BatchNorm from normalize and affine
    return affine(normalize(x, (0, *range(2, x.ndim)), eps), s, b, 1)
    # END


def instance_norm(x, s=None, b=None, eps=1e-5):
    """One mean and one var for each channel of each sample. s and b: (C)."""
    # SOLUTION 1.4: InstanceNorm from normalize and affine
    return affine(normalize(x, tuple(range(2, x.ndim)), eps), s, b, 1)
    # END


def group_norm(x, num_groups, s=None, b=None, eps=1e-5):
    """One mean and one var for each group of channels of each sample. s and b: (C)."""
    # SOLUTION 1.4: GroupNorm from normalize and affine
    n, c = x.shape[:2]
    split = x.reshape(n, num_groups, c // num_groups, *x.shape[2:])
    xhat = normalize(split, tuple(range(2, split.ndim)), eps)
    return affine(xhat.reshape(x.shape), s, b, 1)
    # END


def layer_norm(x, normalized_shape, s=None, b=None, eps=1e-5):
    """Mean and var over the trailing axes. s and b have the shape normalized_shape."""
    # SOLUTION 1.4: LayerNorm from normalize and affine
    first = x.ndim - len(normalized_shape)
    return affine(normalize(x, tuple(range(first, x.ndim)), eps), s, b, first)
    # END


def rms_norm(x, normalized_shape, s=None, eps=1e-5):
    """x / sqrt(mean square + eps) over the trailing axes. s: normalized_shape."""
    # SOLUTION 1.4: RMSNorm from normalize and affine
    first = x.ndim - len(normalized_shape)
    xhat = normalize(x, tuple(range(first, x.ndim)), eps, centered=False)
    return affine(xhat, s, None, first)
    # END


# %% tags=["check"]
check("1.4")

# %% [markdown]
# ## Task 1.5: your code in a layer
#
# The layers of this library can use any code that computes a normalization.
# `nn.BatchNorm2d(16, backend=mine)` takes any object with the functions of
# `minorm/kernels/protocol.py`. One such function is `forward(nest, x, s, b, equation)`.
#
# `nest` holds the loops of lab 0. Every normalization has such a nest. Three helpers turn
# the loops into NumPy arrays:
#
# - `four(nest, x)` is x with the axes (keep, keep, reduce, reduce). The last two axes are
#   always one row.
# - `parameters(nest, s)` is s (or b) with the same four axes. An axis has length 1 if s
#   does not vary along it.
# - `like(nest, y4, x)` brings a result with these four axes back to the shape of x.
#
# `equation` holds `eps` and `centered`. `equation.rstd(var)` computes rstd from var.
#
# A backend's forward returns y and the statistics, `Statistics.of(k, d, var, rstd)`.
# These are four flat float64 vectors with one number for each row, and mean = k + d. Lab
# 2 shows why a mean is stored in two numbers. Here k is the mean and d is 0.

# %%
from minorm.kernels.partial import PartialBackend
from minorm.kernels.protocol import Statistics
from minorm.kernels.reference.norm import four, like, parameters


def forward(nest, x, s, b, equation):
    """y and the statistics. s and b may be None."""
    # SOLUTION 1.5: the forward pass over the four loops of a nest
    x4 = four(nest, x)
    mean, var = moments(x4, (2, 3), equation.centered)
    rstd = equation.rstd(var)
    y4 = (x4 - mean) * rstd
    if s is not None:
        y4 = y4 * parameters(nest, s)
    if b is not None:
        y4 = y4 + parameters(nest, b)
    mean, var, rstd = (statistic.ravel() for statistic in (mean, var, rstd))
    return like(nest, y4, x), Statistics.of(mean, 0 * mean, var, rstd)
    # END


# %% tags=["check"]
check("1.5")

# %% [markdown]
# Now train a network with your function. `PartialBackend` takes every function that you
# have not written from the library's reference backend. The backward pass is one of them:
# you write it in lab 3.
#
# The next cell trains a small network on 8 x 8 digits for one epoch. It does this twice:
# with the library's kernels and with your forward. `digits_network.losses` is a training
# loop of ten lines. It is worth reading.

# %% [markdown]
# **Guess before you run.** How far apart will the two losses be at the end of the epoch?
# In which digit will you see the first difference?

# %% tags=["plot"]
from minorm.labs import digits_network

library = digits_network.losses(None)
mine = digits_network.losses(PartialBackend(forward=forward))
for step in (0, 10, 22):
    print(f"step {step:2}: loss {library[step]:.15f} with the library's forward")
    print(f"              {mine[step]:.15f} with yours")
print(f"largest relative difference: {np.abs(mine / library - 1).max():.1e}")
assert np.allclose(mine, library, rtol=1e-6)

# %% [markdown]
# **What you see.** The two losses agree to about 14 digits. Your forward computes the
# same formula, but it adds the numbers in another order, so the rounding differs.

# %% [markdown]
# ## To think about
#
# 1. Multiply x by 1000 and add 7. Which of the five norms give nearly the same y as
#    before? Which do not? What does eps have to do with "nearly"?
# 2. A convolution before a BatchNorm is usually built with `bias=False`. Why? Would you
#    do the same before an RMSNorm?
# 3. `group_norm` with one group and `layer_norm` over (C, H, W) have the same statistics.
#    Are they the same layer? Look at s and b.
