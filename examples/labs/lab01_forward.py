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
# **The question.** How little code does it take to have BatchNorm, LayerNorm, InstanceNorm, GroupNorm and RMSNorm?
#
# One function. In lab 0 you saw that they differ only in their axes. Here you write the equation once, get all five
# from it in a line or two each, compare them with arithmetic in double precision, and at the end put yours into a
# layer of a real network.
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
# For one row, the `m` elements that share their statistics:
#
#     mean = 1/m sum(x)        var = 1/m sum((x - mean)^2)        rstd = 1 / sqrt(var + eps)
#
#     xhat = (x - mean) * rstd                                    y = xhat * s + b
#
# Three remarks. The variance divides by m and not by m - 1: it describes the m numbers that are there and estimates
# nothing. eps stands *inside* the root, and keeps rstd finite where all elements are equal. And RMSNorm leaves the mean
# out, as if it were 0: then var is the mean of the squares. The code calls that `centered=False`.
#
# By hand: the row 1, 2, 3, 6 has mean 3 and variance (4 + 1 + 0 + 9) / 4 = 3.5. Its mean square is 50 / 4 = 12.5.
#
# ## Task 1.1: moments
#
# Keep the reduced axes as axes of length 1 (`keepdims=True`), so that x - mean broadcasts whatever the axes are.


# %%
def moments(x, axes, centered=True):
    """mean and var of x over `axes`, which stay as axes of length 1. Not centered: mean is 0, var the mean square."""
    raise NotImplementedError("Task 1.1: mean and population variance over the axes")


# %% tags=["check"]
check("1.1")

# %% [markdown]
# ## Task 1.2: xhat


# %%
def normalize(x, axes, eps=1e-5, centered=True):
    """xhat = (x - mean) / sqrt(var + eps)."""
    raise NotImplementedError(
        "Task 1.2: subtract the mean and divide by the root of var + eps"
    )


# %% tags=["check"]
check("1.2")

# %% [markdown]
# ### Before and after
#
# Four channels, each with a mean and a spread of its own, as the channels behind a convolution have. What will
# BatchNorm make of them, and what will LayerNorm, which takes one mean over all four? Guess first.

# %% tags=["plot"]
rng = np.random.default_rng(0)
centres, spreads = np.array([-4.0, 0.0, 3.0, 8.0]), np.array([1.0, 0.4, 2.0, 0.7])
x = (rng.standard_normal((500, 16, 4)) * spreads + centres).transpose(0, 2, 1)  # (N, C, L)

panels = {
    "Before: each channel has its own scale": x,
    "BatchNorm: every channel has mean 0, deviation 1": normalize(x, (0, 2)),
    "LayerNorm: channels keep their distances": normalize(x, (1, 2)),
}
figure, axes = plt.subplots(1, 3, figsize=(13, 3.8), layout="constrained")
for panel, (title, values) in zip(axes, panels.items(), strict=True):
    bins = np.linspace(values.min(), values.max(), 80)
    for channel, (color, style) in enumerate(
        zip((BLUE, VERMILLION, GREEN, PURPLE), ("-", "--", "-.", ":"), strict=True)
    ):
        panel.hist(
            values[:, channel].ravel(), bins, histtype="step", color=color, linestyle=style, linewidth=1.8,
            label=f"channel {channel}",
        )  # fmt: skip
    panel.set(title=title, xlabel="value", ylabel="elements in a bin")
axes[0].legend()
show(
    figure,
    "Three panels with the histograms of four channels. Before: four peaks of different width around -4, 0, 3 and "
    "8. After BatchNorm: the four curves lie on each other, around 0. After LayerNorm: four peaks as before, still "
    "apart, on a smaller scale.",
)

# %% [markdown]
# ## Task 1.3: scale and bias
#
# So that a network can undo a normalization it does not want, each has parameters s and b that are learned. They vary
# along some neighbouring axes of x and are constant along the others: (C) along axis 1, or LayerNorm's along all
# trailing axes. NumPy lines shapes up at their *ends*; give s as many axes of length 1 behind as it takes to move it
# to where it belongs. None means no scale, or no bias.


# %%
def affine(xhat, s, b, axis):
    """y = xhat * s + b, where the first axis of s and b is `axis` of xhat. Either may be None."""
    raise NotImplementedError(
        "Task 1.3: multiply by s and add b, lined up with axis `axis`"
    )


# %% tags=["check"]
check("1.3")

# %% [markdown]
# ## Task 1.4: five norms
#
# Now each is a question of axes. x is (N, C, *positions) with any number of position axes; batch and layer
# normalization also work without any. `normalized_shape` is a tuple, the trailing part of x's shape that LayerNorm
# and RMSNorm reduce. GroupNorm splits axis 1, normalizes, and goes back to x's shape before s and b (C) come in.


# %%
def batch_norm(x, s=None, b=None, eps=1e-5):
    """Mean and var of each channel; s and b (C)."""
    raise NotImplementedError("Task 1.4: BatchNorm from normalize and affine")


def instance_norm(x, s=None, b=None, eps=1e-5):
    """Mean and var of each channel of each sample; s and b (C)."""
    raise NotImplementedError("Task 1.4: InstanceNorm from normalize and affine")


def group_norm(x, num_groups, s=None, b=None, eps=1e-5):
    """Mean and var of each group of channels of each sample; s and b (C)."""
    raise NotImplementedError("Task 1.4: GroupNorm from normalize and affine")


def layer_norm(x, normalized_shape, s=None, b=None, eps=1e-5):
    """Mean and var over the trailing axes; s and b have the shape normalized_shape."""
    raise NotImplementedError("Task 1.4: LayerNorm from normalize and affine")


def rms_norm(x, normalized_shape, s=None, eps=1e-5):
    """x / sqrt(mean square + eps) over the trailing axes; s has the shape normalized_shape."""
    raise NotImplementedError("Task 1.4: RMSNorm from normalize and affine")


# %% tags=["check"]
check("1.4")

# %% [markdown]
# ## Task 1.5: yours, in a layer
#
# The layers of this library do not care who computes. `nn.BatchNorm2d(16, backend=mine)` takes any object with the
# functions of `minorm/kernels/protocol.py`. What all norms have in common is called the *nest* there: the loops of
# lab 0. Three helpers turn loops into NumPy again:
#
# - `four(nest, x)` is x with the axes (keep, keep, reduce, reduce). A row is the last two axes, always;
# - `parameters(nest, s)` is s or b with the same four axes, of length 1 where it does not vary;
# - `like(nest, y4, x)` brings a result with these four axes back into the shape of x.
#
# `equation` has eps, centered, and `equation.rstd(var)`, which knows where eps belongs. A backend's forward returns
# y and the statistics, `Statistics.of(k, d, var, rstd)`: four flat float64 vectors with one number for each row,
# where mean = k + d. Why a mean takes two numbers is the subject of lab 2; here k is the mean and d is 0.

# %%
from minorm.kernels.partial import PartialBackend
from minorm.kernels.protocol import Statistics
from minorm.kernels.reference.norm import four, like, parameters


def forward(nest, x, s, b, equation):
    """y and the statistics; s and b may be None."""
    raise NotImplementedError("Task 1.5: the forward pass over the four loops of a nest")


# %% tags=["check"]
check("1.5")

# %% [markdown]
# Now train with it. `PartialBackend` takes everything that you have not written from the library's reference, the
# backward pass for instance (that is lab 3). The demo's network on 8 x 8 digits, one epoch, twice: with the library's
# kernels and with your forward. `digits.losses` is a training loop of ten lines, worth reading.

# %% tags=["plot"]
from minorm.labs import digits_network

library, mine = digits_network.losses(None), digits_network.losses(PartialBackend(forward=forward))
for step in (0, 10, 22):
    print(f"step {step:2}: loss {library[step]:.9f} with the library's forward, {mine[step]:.9f} with yours")
assert np.allclose(mine, library, rtol=1e-6)

# %% [markdown]
# ## To think about
#
# 1. Multiply x by 1000 and add 7. Which of the five norms give the same y as before, nearly, and which do not? What
#    does eps have to do with "nearly"?
# 2. A convolution in front of a BatchNorm is usually built with `bias=False`. Why? Would you do the same in front of an
#    RMSNorm?
# 3. `group_norm` with one group and `layer_norm` over (C, H, W) have the same statistics. Are they the same layer? Look
#    at s and b.
