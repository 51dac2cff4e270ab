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
# # Lab 4: Running statistics
#
# **The question.** In training, BatchNorm takes the mean and the variance from the batch.
# When a model is used, there may be a single image and no batch. BatchNorm then takes its
# *running* statistics, which it collected during training. How does it collect them? And
# why do two frameworks disagree about them, although both see the same batches and the
# same `momentum=0.1`?
#
# Four conventions are in use. Models have broken because their authors mixed them up. In
# this lab you implement all four, convert between them, and write tests that find out
# which convention a piece of code follows.
#
# You need lab 1. Time: about 75 minutes.

# %%
import numpy as np

from minorm.labs.visible import checker

check = checker(4, globals())

# %% tags=["plot"]
import matplotlib.pyplot as plt

from minorm.labs.pictures import show, slide
from minorm.plots import BLUE, GREEN, GREY, ORANGE, STYLE, VERMILLION

plt.rcParams.update(STYLE)

# %% [markdown]
# ## The rule
#
#     running = running * momentum + batch * (1 - momentum)
#
# Here momentum is the share of the *old* value that is kept. ONNX, Keras, Flax, Paddle
# and this library use the word in this way. The running mean starts at 0 and the running
# variance at 1. With these values, evaluation before any training hardly changes its
# input.
#
# ## Task 4.1: one step
#
# x has the shape (N, C) or (N, C, *positions). The running statistics have the shape (C).
# The variance of the batch is the population variance: it divides by m, the number of
# elements of a channel. Return new arrays, and do not change the old ones.


# %%
def batch_statistics(x):
    """mean and var of each channel, both of shape (C), and m.

    m is the number of elements of one channel.
    """
    # SOLUTION 4.1: mean, population variance and m of each channel
    axes = (0, *range(2, x.ndim))
    return x.mean(axis=axes), x.var(axis=axes), x.size // x.shape[1]
    # END


def update(mean, var, x, momentum=0.9):
    """The running mean and the running var after the batch x."""
    # SOLUTION 4.1: one step of the running statistics
    batch_mean, batch_var, _ = batch_statistics(x)
    new_mean = mean * momentum + batch_mean * (1 - momentum)
    new_var = var * momentum + batch_var * (1 - momentum)
    return new_mean, new_var
    # END


# %% tags=["check"]
check("4.1")

# %% [markdown]
# ## Task 4.2: m or m - 1?
#
# Inside the normalization the variance describes the batch itself, so it divides by m.
# The running variance has another purpose: it *estimates* the variance of all images.
# Statistics divides by m - 1 for such an estimate. The reason: the values of a sample lie
# closer to their own mean than to the true mean, and on average this makes the variance
# too small by exactly this factor.
#
# PyTorch and the paper use m - 1 for the running variance. ONNX uses m. If m is in the
# thousands, the difference is too small to notice. For a batch of two without positions
# it is a factor of two.


# %%
def unbiased(var, m):
    """The estimate that divides by m - 1. var divides by m, and m > 1."""
    # SOLUTION 4.2: turn the population variance into the unbiased estimate
    return var * m / (m - 1)
    # END


# %% tags=["check"]
check("4.2")

# %% [markdown]
# ## Task 4.3: equal weight for all batches
#
# With a fixed momentum the latest batches count most. The initial values 0 and 1 lose
# weight with every batch, but never all of it.
#
# `momentum=None` asks for the plain average of all batches so far. The rule stays the
# same, but the momentum changes from batch to batch. For which batch must the momentum be
# 0? What is the momentum after `seen` batches?


# %%
def cumulative_momentum(seen):
    """The momentum for the next update, after `seen` batches.

    With it, the running value is the plain average of all batches.
    """
    # SOLUTION 4.3: the momentum that gives all batches the same weight
    return seen / (seen + 1)
    # END


# %% tags=["check"]
check("4.3")

# %% [markdown]
# ### How fast and how smooth?
#
# The next cell draws the running mean over 200 batches of 16 numbers each. On the left,
# the true mean is 3 all the time. On the right, it jumps from 3 to 1 after 100 batches.
# There is one curve for each of the momentums 0.5, 0.9 and 0.99, and one for the plain
# average of all batches.

# %% [markdown]
# **Guess before you run.** Which curve reaches 3 first? Which one is the smoothest? Which
# curves reach 1 after the jump, and where does the plain average end?

# %% tags=["plot"]
CURVES = {
    "momentum 0.5": (0.5, ORANGE, "-"),
    "momentum 0.9": (0.9, BLUE, "-"),
    "momentum 0.99": (0.99, GREEN, "--"),
    "average of all batches": (None, VERMILLION, "-."),
}


def running_means(batches, momentum):
    mean, var, found = np.zeros(1), np.ones(1), []
    for seen, x in enumerate(batches):
        keep = cumulative_momentum(seen) if momentum is None else momentum
        mean, var = update(mean, var, x, keep)
        found.append(mean[0])
    return found


rng = np.random.default_rng(0)
noise = rng.standard_normal((200, 16, 1))
steady = noise + 3
jump = noise + np.where(np.arange(200) < 100, 3.0, 1.0)[:, None, None]
figure, panels = plt.subplots(1, 2, figsize=(12, 4.4), sharey=True, layout="constrained")
titles = "The mean stays at 3", "The mean jumps from 3 to 1"
for panel, batches, title in zip(panels, (steady, jump), titles, strict=True):
    dots = {"color": GREY, "markersize": 4, "label": "mean of each batch"}
    panel.plot(batches.mean(axis=(1, 2)), ".", **dots)
    for name, (momentum, color, style) in CURVES.items():
        means = running_means(batches, momentum)
        panel.plot(means, style, color=color, linewidth=1.8, label=name)
    panel.set(title=title, xlabel="batch")
panels[0].set_ylabel("running mean")
panels[0].legend(loc="lower right")
show(
    figure,
    "Running mean over 200 batches for momentum 0.5, 0.9 and 0.99 and for the average "
    "of all batches, with the means of single batches as dots. Left, the mean stays at "
    "3: momentum 0.5 arrives at once and jitters. 0.99 is smooth and has not arrived "
    "after 200 batches. The average is fast and smooth. Right, the mean jumps from 3 to "
    "1 in the middle: 0.5 and 0.9 follow, 0.99 follows slowly, and the average ends "
    "halfway.",
)

# %% [markdown]
# **What you see.** On the left, the plain average is best: it arrives with the first
# batch and gets smoother all the time. Momentum 0.99 is smooth too, but it is still below
# 3 after 200 batches. Momentum 0.5 arrives at once but jitters. On the right, momentum
# 0.5 and 0.9 follow the jump. Momentum 0.99 has only reached about 1.9 when the jump
# comes, and then it falls slowly. The plain average never forgets the first 100 batches
# and ends near 2, halfway between 3 and 1.
#
# If you know that the data does not change, use the average. During training the weights
# change, so the data behind a layer changes all the time. Then you need a momentum.

# %% [markdown]
# ### Try it with a slider
#
# The next cell shows the same jump with a slider for the momentum. (The slider needs
# `ipywidgets`. Without it, the cell draws three momentums in one picture.) Two numbers
# describe a curve. The first is the number of batches after which 1 % of the jump is
# left. The second is how much the line jitters. If batches are independent, the standard
# deviation of the line is sqrt((1 - momentum) / (1 + momentum)) times that of a batch
# mean, which is 1/4 here.

# %% [markdown]
# **Guess before you run.** Choose a momentum and guess both numbers. Then move the slider
# there, and read them in the legend.


# %% tags=["plot"]
def follow(*momentums):
    """Draw the running mean at the jump, for one or more momentums."""
    figure, panel = plt.subplots(figsize=(9, 4.2), layout="constrained")
    dots = {"color": GREY, "markersize": 4, "label": "mean of each batch"}
    panel.plot(jump.mean(axis=(1, 2)), ".", **dots)
    looks = (BLUE, "-"), (VERMILLION, "--"), (GREEN, "-.")
    for momentum, (color, style) in zip(momentums, looks, strict=False):
        left = np.log(0.01) / np.log(momentum)
        jitter = np.sqrt((1 - momentum) / (1 + momentum)) / 4
        name = (
            f"momentum {momentum:g}: 1 % left after {left:.0f} batches, "
            f"deviation {jitter:.3f}"
        )
        means = running_means(jump, momentum)
        panel.plot(means, style, color=color, linewidth=2, label=name)
    panel.set(title="The mean jumps from 3 to 1", ylim=(-0.2, 5.4))
    panel.set(xlabel="batch", ylabel="running mean")
    panel.legend(loc="upper right")
    show(
        figure,
        "Running mean over 200 batches, whose mean jumps from 3 to 1 in the middle, with "
        f"momentum {' and '.join(map(str, momentums))}. With a smaller momentum the line "
        "follows sooner, and it jitters more with the means of single batches.",
    )


VALUES = [0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.97, 0.98, 0.99]
slide(follow, "momentum", VALUES, first=0.9, without=(0.3, 0.9, 0.98))

# %% [markdown]
# **What you see.** A small momentum follows the jump sooner and jitters more. A large
# momentum is smooth and follows late. No momentum is both fast and smooth.

# %% [markdown]
# ## Task 4.4: four conventions
#
# | convention | momentum is | default | variance of the batch |
# |---|---|---|---|
# | "onnx" | the share of the old value | 0.9 | divides by m |
# | "keras" | the share of the old value | 0.99 | divides by m |
# | "pytorch" | the share of the **new** value | 0.1 | divides by m - 1 |
# | "paper" | not used: all batches have equal weight | | divides by m - 1 |
#
# ("keras" means Keras 3 and later. "paper" means Ioffe and Szegedy 2015, Algorithm 2.)
#
# Start with mean 0 and variance 1. Compute the running statistics after every batch, in
# each convention. The batches may have different sizes. `momentum=None` means the
# default.


# %%
def trajectory(batches, convention, momentum=None):
    """A list of the running (mean, var) after each batch, in one convention."""
    # SOLUTION 4.4: the running statistics after each batch
    new_share = {"onnx": 0.1, "keras": 0.01, "pytorch": 0.1, "paper": None}[convention]
    if momentum is not None and convention != "paper":
        new_share = momentum if convention == "pytorch" else 1 - momentum
    channels = batches[0].shape[1]
    mean, var, found = np.zeros(channels), np.ones(channels), []
    for seen, x in enumerate(batches):
        batch_mean, batch_var, m = batch_statistics(x)
        if convention in ("pytorch", "paper"):
            batch_var = unbiased(batch_var, m)
        share = 1 - cumulative_momentum(seen) if new_share is None else new_share
        mean = mean * (1 - share) + batch_mean * share
        var = var * (1 - share) + batch_var * share
        found.append((mean, var))
    return found
    # END


# %% tags=["check"]
check("4.4")

# %% [markdown]
# The layers of this library follow "onnx". With `unbiased_running_var=True` they take
# PyTorch's variance. The next cell compares them with your trajectories:

# %% tags=["check"]
import minorm as mn
from minorm import nn

batches = [np.random.default_rng(i).standard_normal((8, 3)) * 2 + 1 for i in range(5)]
for unbiased_var, convention in ((False, "onnx"), (True, "pytorch")):
    layer = nn.BatchNorm1d(
        3, dtype=mn.float64, momentum=0.9, unbiased_running_var=unbiased_var
    )
    for x in batches:
        layer(mn.tensor(x))
    mean, var = trajectory(batches, convention)[-1]
    assert np.allclose(layer.running_mean.numpy(), mean)
    assert np.allclose(layer.running_var.numpy(), var)
    print(f"{convention:8} running var {var}")

# %% [markdown]
# ## Task 4.5: from PyTorch to ONNX
#
# You want to convert a PyTorch model to ONNX. The momentum is easy to convert. The
# running variance takes more work. The part that comes from the batches is too large by
# the factor m / (m - 1). The part that is left of the initial 1 is not.
#
# Assume that all `batches` updates had the same m and the same momentum. How much of the
# running variance is left of the initial 1? Subtract this part, correct the rest, and add
# the part again.


# %%
def onnx_momentum(torch_momentum):
    """PyTorch's momentum, converted to ONNX's convention."""
    # SOLUTION 4.5: convert PyTorch's momentum to ONNX's
    return 1 - torch_momentum
    # END


def onnx_running_var(torch_running_var, torch_momentum, batches, m):
    """The running variance that ONNX's convention gives for the same batches.

    All batches have the same m.
    """
    # SOLUTION 4.5: convert PyTorch's running variance to ONNX's
    initial = (1 - torch_momentum) ** batches
    return (torch_running_var - initial) * (m - 1) / m + initial
    # END


# %% tags=["check"]
check("4.5")

# %% [markdown]
# ## Task 4.6: tests that find bugs
#
# This works as in lab 3. The check runs your tests on a correct implementation, where all
# tests must pass. Then it runs them on wrong implementations, where at least one test
# must fail. You get a point for each bug that your tests find. `norm` has two functions:
#
#     y, new_mean, new_var = norm.train(x, mean, var, momentum=0.9, eps=1e-5)
#     y = norm.evaluate(x, mean, var, eps=1e-5)
#
# They follow ONNX's convention and have no scale and no bias. x is a float64 array of
# shape (N, C) or (N, C, L). The running mean and var have the shape (C). In training, y
# comes from the statistics of the batch and does not depend on the running statistics.
#
# Choose your test data with care. Some bugs show only if there are positions, some only
# if the variance or m is small, and some only if mean and var are not 0 and 1.
#
# minorm's normalizations, torch and similar libraries are closed while your tests run, as
# in task 3.5. Compare with a formula, a property, or your own functions of this file.


# %%
def test_training(norm):
    """Test what norm.train returns."""
    # SOLUTION 4.6: test norm.train
    rng = np.random.default_rng(0)
    for shape in ((3, 2), (3, 2, 4)):
        axes = (0, *range(2, len(shape)))
        along = (-1, *[1] * (len(shape) - 2))
        x = 0.1 * rng.standard_normal(shape) + 2
        mean, var = np.array([5.0, -1.0]), np.array([0.3, 4.0])
        y, new_mean, new_var = norm.train(x, mean, var, momentum=0.8, eps=1e-3)
        of_mean, of_var = x.mean(axis=axes), x.var(axis=axes)
        expected = (x - of_mean.reshape(along)) / np.sqrt(of_var.reshape(along) + 1e-3)
        np.testing.assert_allclose(y, expected, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(new_mean, 0.8 * mean + 0.2 * of_mean, rtol=1e-9)
        np.testing.assert_allclose(new_var, 0.8 * var + 0.2 * of_var, rtol=1e-9)
    # END


def test_evaluation(norm):
    """Test what norm.evaluate returns."""
    # SOLUTION 4.6: test norm.evaluate
    x = np.random.default_rng(1).standard_normal((3, 2, 4))
    mean, var = np.array([1.0, -2.0]), np.array([0.01, 4.0])
    expected = (x - mean[:, None]) / np.sqrt(var + 1e-2)[:, None]
    y = norm.evaluate(x, mean, var, eps=1e-2)
    np.testing.assert_allclose(y, expected, rtol=1e-9)
    # END


# %% tags=["check"]
check("4.6")

# %% [markdown]
# ## To think about
#
# 1. A user takes PyTorch's `momentum=0.1` and passes it to a library in which momentum
#    is the share of the old value. What happens to the running statistics? How does this
#    show in the accuracy on the test set? Does it show in the training loss?
# 2. With momentum 0.99, how many batches does it take until less than 1 % of the initial
#    variance 1 is left? How many batches of 64 are in one epoch of the digits?
# 3. The average of the batches' variances is not the variance of all data together, even
#    if each variance divides by m - 1. What is missing? (See Chan's formula in lab 2.)
