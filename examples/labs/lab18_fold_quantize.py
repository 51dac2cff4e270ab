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
# # Lab 18: Fold and quantize
#
# **The question.** A phone computes in bytes, and it has no BatchNorm. How does a trained network get there, and how
# wrong may it be when it arrives?
#
# First you fold each BatchNorm into the layer before it, and say how exact that is. Then you round the weights to 8
# bits, bound the error, and find out why one scale for each channel is so much better than one for all. At the end
# you see why the statistics stand still in the last epochs of training for int8.
#
# You need labs 1 and 4. Time: about 90 minutes.

# %%
import numpy as np

from minorm.labs.visible import checker

check = checker(18, globals())

# %% tags=["plot"]
import matplotlib.pyplot as plt

from minorm.labs.pictures import show
from minorm.plots import BLUE, GREEN, GREY, STYLE, VERMILLION

plt.rcParams.update(STYLE)

# %% [markdown]
# ## Task 18.1: fold
#
# A linear layer or a convolution gives z = W x + c; W has the output channels first. A BatchNorm in evaluation makes
# of it, channel by channel,
#
#     y = (z - mean) / sqrt(var + eps) * s + b
#
# where mean and var are the *running* statistics of lab 4, numbers that do not depend on x. So y is linear in x as
# well. Write a = s / sqrt(var + eps), put W x + c in place of z, and collect: which weights and which bias give y in
# one layer?
#
# `fold` gets W of shape (C, ...), such as (C, n) for a linear layer and (C, in, 3, 3) for a convolution; the other
# arguments are (C). c is None for a layer without bias. The results have the type of W. `folded_linear` uses it: the
# output (N, C) of a linear layer with its BatchNorm in evaluation, for x (N, n), computed with the folded layer.


# %%
def fold(W, c, mean, var, eps, s, b):
    """The weights and the bias of one layer that computes layer and BatchNorm."""
    raise NotImplementedError("Task 18.1: weights and bias of the folded layer")


def folded_linear(x, W, c, mean, var, eps, s, b):
    """y (N, C) of x (N, n), with one product."""
    raise NotImplementedError("Task 18.1: the output of the folded layer")


# %% tags=["check"]
check("18.1")

# %% [markdown]
# ## Task 18.2: how exact?
#
# On paper the two are equal. In floating point each operation rounds: its result is off by a factor of 1 + d with
# |d| <= u, where u = 2^-24 in float32 and 2^-53 in float64. After k roundings in a row the factor is at most 1 +
# gamma(k), with
#
#     gamma(k) = k u / (1 - k u)
#
# In z = sum x_i W_i + c, with n terms, each product passes through at most n + 1
# roundings, in whatever order they are added. The following operations (subtract, add
# eps, root, divide, multiply, add) make it n + 7, and the folded way has no more. So each
# way is within gamma(n + 7) times the sum of the *absolute values* of its terms,
#
#     |a| * (sum |x_i| |W_i| + |c| + |mean|) + |b|
#
# and the two ways are at most twice that apart. Compute this bound for each element of y, with the statistics in
# float64. It has shape (N, C).


# %%
def rounding_bound(x, W, c, mean, var, eps, s, b, u=2.0**-24):
    """How far the folded and the unfolded linear layer may be apart, for each y."""
    raise NotImplementedError("Task 18.2: a bound for the difference of the two ways")


# %% tags=["check"]
check("18.2")

# %% [markdown]
# Guess before you run: in which digit do the two ways differ in float32, and how far above that is the bound? In
# float64?


# %% tags=["plot"]
def both_ways(kind, n=64, samples=200, channels=32):
    """The differences of the two ways, and their bounds."""
    rng = np.random.default_rng(0)
    x, W = rng.standard_normal((samples, n)), rng.standard_normal((channels, n))
    c, mean, s, b = rng.standard_normal((4, channels))
    var = rng.uniform(0.5, 50, channels)
    x, W, c, mean, var, s, b = (v.astype(kind) for v in (x, W, c, mean, var, s, b))
    eps = kind(1e-5)
    apart = (x @ W.T + c - mean) / np.sqrt(var + eps) * s + b
    apart = np.abs(apart - folded_linear(x, W, c, mean, var, eps, s, b))
    wide = (v.astype(np.float64) for v in (x, W, c, mean, var))
    bound = rounding_bound(*wide, 1e-5, s, b, np.finfo(kind).eps / 2)
    return np.float64(apart).ravel(), bound.ravel()


figure, panel = plt.subplots(figsize=(8.5, 4.6), layout="constrained")
for kind, color, mark in ((np.float32, VERMILLION, "o"), (np.float64, BLUE, "s")):
    apart, bound = both_ways(kind)
    label = f"{kind.__name__}: {np.max(apart / bound):.0%} of the bound at most"
    drawn = np.maximum(apart, 1e-19)
    panel.loglog(bound, drawn, mark, color=color, markersize=2, label=label)
ticks = [1e-18, 1e-15, 1e-12, 1e-9, 1e-6, 1e-3]
panel.plot(ticks[1:], ticks[1:], "--", color=GREY, label="difference = bound")
panel.set_xticks(ticks[1:], [f"{tick:g}" for tick in ticks[1:]])
panel.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
panel.minorticks_off()
panel.set(
    title="Folding is exact up to rounding, and always below the bound",
    xlabel="your bound",
    ylabel="difference of the two ways (0 drawn at 1e-19)",
)
panel.legend(loc="upper left")
show(
    figure,
    "Difference of the folded and the unfolded layer against the bound, both "
    "logarithmic. The points of float32 lie around 1e-6, those of float64 around 1e-15. "
    "All are far below the line where the difference is the bound.",
)

# %% [markdown]
# The bound is for the worst case, in which all roundings go the same way. They do not: n of them add up like sqrt(n).
#
# ## Task 18.3: not in training
#
# In training BatchNorm takes mean and variance from the batch, and then the folded layer is wrong. How wrong? Both
# outputs are lines in z, so one is a line in the other. For each channel,
#
#     y_folded = slope * y_training + offset
#
# Find slope and offset from the batch's statistics of z = x W^T + c and the running ones (variances divide by N).
# When are they 1 and 0?


# %%
def training_line(x, W, c, mean, var, eps, s, b):
    """slope and offset, (C) both, of y_folded = slope * y_training + offset."""
    raise NotImplementedError(
        "Task 18.3: the folded output as a line in the output of training"
    )


# %% tags=["check"]
check("18.3")

# %% [markdown]
# So slope and offset change with every batch: no weights, which are the same for all batches, can do that. Who folds
# a layer that goes on training has taken the BatchNorm away.
#
# ## Task 18.4: eight bits
#
# A byte holds integers q; a number is x = (q - zero) * scale. Two forms are in use:
#
# - **affine**, for outputs of layers: q from -128 to 127. The range from low to high always includes 0, as padding
#   and ReLU make exact zeros: a low above 0 becomes 0, and so does a high below 0.
#
#       scale = (high - low) / 255        zero = -128 - round(low / scale)
#
# - **symmetric**, for weights: zero is 0, and q goes from -127 to 127, so that -x has the integer -q.
#
#       scale = max |W| / 127
#
#   with one scale for the whole tensor (axis None), or one for each channel along an axis.
#
# `round` goes to the nearest integer, ties to the even one (`np.rint`). q = clip(round(x / scale) + zero). Where all
# numbers are 0 the scale is 1. zero is a whole number from -128 to 127.


# %%
def scale_and_zero(low, high):
    """The scale and the zero point of the affine form, a float and an int."""
    raise NotImplementedError("Task 18.4: scale and zero point from the ends")


def quantize(x, scale, zero=0, least=-128):
    """q, int8 between `least` and 127. scale may be an array that broadcasts."""
    raise NotImplementedError("Task 18.4: from numbers to integers")


def dequantize(q, scale, zero=0):
    """The numbers that q stands for, in float64."""
    raise NotImplementedError("Task 18.4: from integers to numbers")


def weight_scales(W, axis=0):
    """The symmetric scales, of shape (C, 1, ...) for axis 0 and () for None."""
    raise NotImplementedError("Task 18.4: one scale for each channel, or for all")


# %% tags=["check"]
check("18.4")

# %% [markdown]
# ### The same in the library
#
# `minorm.quantization` folds and finds scales as you do, in float32.

# %% tags=["check"]
import minorm as mn
from minorm import nn
from minorm import quantization as quant

mn.manual_seed(0)
conv, norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)
norm(conv(mn.randn(16, 3, 8, 8)))
parts = conv.weight, conv.bias, norm.running_mean, norm.running_var
theirs = quant.fuse_conv_bn_weights(*parts, norm.eps, norm.weight, norm.bias)
W, c, mean, var, s, b = (v.detach().numpy() for v in (*parts, norm.weight, norm.bias))
mine = fold(W, c, mean, var, norm.eps, s, b)
for ours, library in zip(mine, theirs, strict=True):
    np.testing.assert_allclose(ours, library.detach().numpy(), rtol=1e-5, atol=1e-6)
observer = quant.PerChannelMinMaxObserver(dtype=mn.int8, symmetric=True, quant_min=-127)
observer(mn.tensor(mine[0]))
scales = observer.calculate_qparams()[0].numpy()
np.testing.assert_allclose(weight_scales(mine[0]).ravel(), scales, rtol=1e-6)
observer = quant.MinMaxObserver(dtype=mn.int8)
observer(mn.tensor([-1.0, 4.1]))
print("the library:", *observer.calculate_qparams())
print("yours:      ", *scale_and_zero(-1.0, 4.1))

# %% [markdown]
# ## Task 18.5: how wrong, and how much better?
#
# Write x^ and W^ for the rounded numbers. Each is within half a step of the true one, unless it was clipped. Then
#
#     x^ W^ - x W = x (W^ - W) + (x^ - x) W^        and |W^| <= |W| + W_scale / 2
#
# `quantization_bound` is what follows for |sum x^_i W^_i - sum x_i W_i|, for each output (N, C) of a linear layer.
# It is checked with numbers on which all errors point the same way: it must hold there, and be at most ten times too
# wide.
#
# **And why scales of channels?** Rounding to a step is off by about step / sqrt(12), the deviation of a number that
# is uniform between -1/2 and 1/2 step. With one scale for all channels, the widest channel chooses everybody's step.
# `gain` predicts by what factor the *mean square* error of the weights is smaller with a scale for each channel (axis
# 0), from the scales alone; all channels have equally many weights.


# %%
def quantization_bound(x, W, x_scale, W_scale):
    """How far off each y may be: x (N, n), W (C, n), x_scale a number, W_scale (C)."""
    raise NotImplementedError("Task 18.5: a bound for the error of the output")


def gain(W):
    """The mean square error with one scale, divided by that with one for each channel."""
    raise NotImplementedError("Task 18.5: the gain of one scale per channel")


# %% tags=["check"]
check("18.5")

# %% [markdown]
# ### Folding spreads the scales
#
# Weights of 32 filters that are all of one size, and BatchNorms whose a = s / sqrt(var + eps) lies between 0.05 and 5.
# Guess before you run: how many of the 8 bits are left to the smallest filter after folding, with one scale for all?
# And what does a scale for each channel gain, before and after?

# %% tags=["plot"]
rng = np.random.default_rng(1)
plain = rng.standard_normal((32, 64))
slopes = np.geomspace(0.05, 5, 32)[:, None]


def relative_errors(W, axis):
    """The error of each filter's weights, in units of the filter."""
    scale = weight_scales(W, axis)
    off = dequantize(quantize(W, scale, 0, -127), scale) - W
    return np.sqrt((off**2).mean(axis=1) / (W**2).mean(axis=1))


figure, panels = plt.subplots(1, 2, figsize=(11, 4.4), layout="constrained", sharey=True)
for panel, when in zip(panels, ("Before", "After"), strict=True):
    W = plain if when == "Before" else plain * slopes
    one, each = relative_errors(W, None), relative_errors(W, 0)
    panel.semilogy(one, "s", color=VERMILLION, label="one scale for all")
    panel.semilogy(each, "o", color=BLUE, label="a scale for each channel")
    panel.set_title(f"{when} folding: gain {gain(W):.1f}")
    panel.set_xlabel("filter, by its a" if when == "After" else "filter")
    panel.set_yticks([0.003, 0.01, 0.1, 1], ["0.3 %", "1 %", "10 %", "100 %"])
    panel.minorticks_off()
panels[0].set_ylabel("error of the weights, in units of the filter")
panels[0].legend(loc="upper left")
show(
    figure,
    "Error of the weights of 32 filters, logarithmic. Before folding both kinds of "
    "scales are off by 0.5 to 1 %. After folding a scale for each channel is as before; "
    "with one scale for all the error is 0.8 % for the filter with the largest a and "
    "70 % for the smallest.",
)

# %% [markdown]
# With one scale for all, the smallest filter is left with the integers -1, 0 and 1, not even 2 bits. A scale
# for each channel does not notice the folding at all: W and a W have the same integers, since a goes into the
# scale. That is no accident, and it is what the next task is about.
#
# ## Task 18.6: training for int8
#
# *Quantization-aware training* (QAT) rounds the folded weights in each step, so that the
# network learns to live with it. While the statistics are the batch's, a = s / sqrt(var +
# eps) changes from batch to batch, and with it the folded weights a W. Some jump from one
# integer to the next although W has not changed, and the loss shakes. Two cures are in
# use: a scale for each channel, and *frozen* statistics for the last epochs, when
# BatchNorm is what will be folded.
#
# `jumps` counts: W is (C, ...), `slopes` is (batches, C), the a of each batch. How many integers of a W change from
# each batch to the next? An array of batches - 1 numbers.


# %%
def jumps(W, slopes, axis=0):
    """How many integers of the folded weights change between batches; axis None or 0."""
    raise NotImplementedError("Task 18.6: integers that change from batch to batch")


# %% tags=["check"]
check("18.6")

# %% [markdown]
# ### A hundred batches
#
# Batches of 16 through one layer whose weights stand still. From batch 60 on the statistics are frozen. Guess: with
# which of the two kinds of scales do you need the freeze for the weights? And do you need it for something else?

# %% tags=["plot"]
rng = np.random.default_rng(2)
W, found, apart = rng.standard_normal((32, 64)), [], []
running = np.zeros(32), np.full(32, 64.0)  # what is known of z
one, none = np.ones(32), np.zeros(32)
for batch in range(100):
    x = rng.standard_normal((16, 64))
    z = x @ W.T
    mean, var = (z.mean(axis=0), z.var(axis=0)) if batch < 60 else running
    found.append(1 / np.sqrt(var + 1e-5))
    trained = (z - mean) * found[-1]
    device = folded_linear(x, W, none, *running, 1e-5, one, none)
    apart.append(np.abs(trained - device).mean())
found = np.array(found)

figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
left.plot(jumps(W, found, None), "-", color=VERMILLION, label="one scale for all")
left.plot(jumps(W, found, 0), "--", color=BLUE, label="a scale for each channel")
left.set(title="Integers that jump", xlabel="batch", ylabel=f"of {W.size} integers")
left.legend()
right.plot(apart, "-", color=GREEN)
right.set(title="How far training is from the device", xlabel="batch")
right.set_ylabel("mean difference of y, whose deviation is 1")
for panel in (left, right):
    panel.axvline(60, color=GREY, linestyle=":")
show(
    figure,
    "Left: with one scale for all, most of the 2048 integers change at each batch, until "
    "the statistics are frozen at batch 60; with a scale for each channel none does. "
    "Right: training and the folded layer differ by about a quarter of a deviation until "
    "batch 60, and not at all afterwards.",
)

# %% [markdown]
# So scales of channels keep the integers still. But the layer's bias (c - mean) a + b still has the batch's mean in
# training and the running one on the device. Only frozen statistics make training compute what the device will
# compute. In the library that is `freeze_bn_stats`:

# %% tags=["check"]
mn.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 4))
batches = [3 * mn.randn(8, 8) + 1 for _ in range(20)]
qat = quant.prepare_qat(model, batches[0])
for x in batches:
    qat(x)


def largest_gap():
    """Between training and evaluation, on one batch."""
    trained = qat.train()(batches[0]).detach().numpy()
    return np.abs(trained - qat.eval()(batches[0]).detach().numpy()).max()


print(f"statistics of the batch: training and evaluation differ by {largest_gap():.3f}")
qat.apply(quant.freeze_bn_stats)
print(f"frozen statistics:       training and evaluation differ by {largest_gap():.3f}")

# %% [markdown]
# ## To think about
#
# 1. A BatchNorm stands *before* a convolution with zero padding. Can it be folded into it? What goes wrong at the
#    border, and which padding would be right?
# 2. A channel of a BatchNorm has a running variance of 1e-12, since its input has always been 0, and eps is 1e-5. What
#    are a and the folded weights, and what happens if one input is not 0? What would eps = 0 do?
# 3. Your bound of 18.5 assumes that nothing is clipped. An observer that leaves out the largest 0.1 % of the outputs
#    makes steps smaller. For which of the two terms of the error is that good, and where does it show?
# 4. The weights' integers are from -127 to 127, and -128 is not used. What is the gain, what is the price, and why is
#    it different for outputs of layers?
