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
# **The question.** In training BatchNorm takes mean and variance from the batch. In use there may be one image and no
# batch: then it takes *running* statistics, gathered in training. How are they gathered, and why do two frameworks,
# given the same batches and the same `momentum=0.1`, disagree about them?
#
# Four conventions are in use, and models have been broken by mixing them up. You write them, convert between them,
# and write tests that find out which one somebody else's code follows.
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
# momentum is the share of the *old* value that is kept. That is its meaning in ONNX, Keras, Flax, Paddle and this
# library. The running mean begins at 0 and the running variance at 1, which makes evaluation before any training do
# nearly nothing.
#
# ## Task 4.1: one step
#
# x is (N, C) or (N, C, *positions), the running statistics are (C). The batch's variance is the population's: it
# divides by m, the number of elements of a channel. Return new arrays and leave the old ones as they are.


# %%
def batch_statistics(x):
    """mean and var of each channel, (C) both, and m, the elements of each."""
    # SOLUTION 4.1: mean, population variance and m of each channel
    axes = (0, *range(2, x.ndim))
    return x.mean(axis=axes), x.var(axis=axes), x.size // x.shape[1]
    # END


def update(mean, var, x, momentum=0.9):
    """The running mean and var after the batch x."""
    # SOLUTION 4.1: one step of the running statistics
    batch_mean, batch_var, _ = batch_statistics(x)
    return mean * momentum + batch_mean * (1 - momentum), var * momentum + batch_var * (1 - momentum)
    # END


# %% tags=["check"]
check("4.1")

# %% [markdown]
# ## Task 4.2: N or N - 1?
#
# Inside the normalization the variance describes the batch, and divides by m. The running variance is to *estimate*
# that of all images, and for that, statistics divides by m - 1: a sample's values lie closer to their own mean than
# to the true one, by just that factor on average. PyTorch and the paper do so; ONNX does not. With m in the
# thousands nobody can tell. With a batch of two and no positions it is a factor of two.


# %%
def unbiased(var, m):
    """The estimate that divides by m - 1, from the variance that divides by m; m > 1."""
    # SOLUTION 4.2: from the population's variance to the unbiased estimate
    return var * m / (m - 1)
    # END


# %% tags=["check"]
check("4.2")

# %% [markdown]
# ## Task 4.3: all batches alike
#
# With a momentum the last batches count most, and the first values, 0 and 1, are never quite forgotten.
# `momentum=None` asks for the plain average of all batches so far. It is the same rule with a momentum that changes
# from batch to batch. After how many batches must it be 0? What is it when `seen` batches are behind us?


# %%
def cumulative_momentum(seen):
    """The momentum of the next update, after `seen` batches, that makes the running value the average of all."""
    # SOLUTION 4.3: the momentum that weighs all batches alike
    return seen / (seen + 1)
    # END


# %% tags=["check"]
check("4.3")

# %% [markdown]
# ### How fast, and how quietly?
#
# Batches of 16 numbers with a mean of 3, for 200 batches; on the right the mean jumps from 3 to 1 in the middle. Which
# momentum would you use if you knew that the data stays as it is? And in training, where it never does?

# %% tags=["plot"]
CURVES = {
    "momentum 0.5": (0.5, ORANGE, "-"),
    "momentum 0.9": (0.9, BLUE, "-"),
    "momentum 0.99": (0.99, GREEN, "--"),
    "all batches alike": (None, VERMILLION, "-."),
}


def running_means(batches, momentum):
    mean, var, found = np.zeros(1), np.ones(1), []
    for seen, x in enumerate(batches):
        mean, var = update(mean, var, x, cumulative_momentum(seen) if momentum is None else momentum)
        found.append(mean[0])
    return found


rng = np.random.default_rng(0)
noise = rng.standard_normal((200, 16, 1))
steady, jump = noise + 3, noise + np.where(np.arange(200) < 100, 3.0, 1.0)[:, None, None]
figure, panels = plt.subplots(1, 2, figsize=(12, 4.4), sharey=True, layout="constrained")
titles = "Large momentum: quiet, but slow to begin", "Slow to follow, too; the average of all never forgets"
for panel, batches, title in zip(panels, (steady, jump), titles, strict=True):
    panel.plot(batches.mean(axis=(1, 2)), ".", color=GREY, markersize=4, label="mean of each batch")
    for name, (momentum, color, style) in CURVES.items():
        panel.plot(running_means(batches, momentum), style, color=color, linewidth=1.8, label=name)
    panel.set(title=title, xlabel="batch")
panels[0].set_ylabel("running mean")
panels[0].legend(loc="lower right")
show(
    figure,
    "Running mean over 200 batches for momentum 0.5, 0.9, 0.99 and for all batches alike, with the means of single "
    "batches as dots. Left, the mean stays at 3: 0.5 is there at once and jitters, 0.99 is smooth and not there "
    "after 200 batches, the average is both quick and smooth. Right, the mean jumps from 3 to 1 in the middle: 0.5 "
    "and 0.9 follow, 0.99 slowly, and the average ends halfway.",
)

# %% [markdown]
# ### Your hand on the momentum
#
# The same jump, and a slider (with `ipywidgets`; without, three momentums in one picture). Move it, and predict before
# you let go: after how many batches is 1 % of the jump left, and how much does the line tremble? If batches are
# independent, the line's deviation is sqrt((1 - momentum) / (1 + momentum)) of a batch mean's, which is 1/4 here.


# %% tags=["plot"]
def follow(*momentums):
    """The running mean at the jump, for one momentum or several."""
    figure, panel = plt.subplots(figsize=(9, 4.2), layout="constrained")
    panel.plot(jump.mean(axis=(1, 2)), ".", color=GREY, markersize=4, label="mean of each batch")
    for momentum, color, style in zip(momentums, (BLUE, VERMILLION, GREEN), ("-", "--", "-."), strict=False):
        left = np.log(0.01) / np.log(momentum)
        trembles = np.sqrt((1 - momentum) / (1 + momentum)) / 4
        name = f"momentum {momentum:g}: 1 % left after {left:.0f} batches, deviation {trembles:.3f}"
        panel.plot(running_means(jump, momentum), style, color=color, linewidth=2, label=name)
    panel.set(title="Quick and restless, or calm and late", xlabel="batch", ylabel="running mean", ylim=(-0.2, 5.4))
    panel.legend(loc="upper right")
    show(
        figure,
        "Running mean over 200 batches, whose mean jumps from 3 to 1 in the middle, with momentum "
        f"{' and '.join(map(str, momentums))}. The smaller the momentum, the sooner the line follows, and the more it "
        "trembles with the means of single batches.",
    )


slide(follow, "momentum", [0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.97, 0.98, 0.99], first=0.9, without=(0.3, 0.9, 0.98))

# %% [markdown]
# ## Task 4.4: four conventions
#
# | convention | momentum is | its default | the variance that is blended in |
# |---|---|---|---|
# | "onnx" | the share of the old value | 0.9 | divides by m |
# | "keras" | the share of the old value | 0.99 | divides by m |
# | "pytorch" | the share of the **new** value | 0.1 | divides by m - 1 |
# | "paper" | not there: all batches count alike | | divides by m - 1 |
#
# (Keras from version 3 on. The paper is Ioffe and Szegedy 2015, Algorithm 2.) Start from mean 0 and variance 1, and
# compute what each convention holds after every batch. The batches may differ in size. `momentum=None` asks for the
# default.


# %%
def trajectory(batches, convention, momentum=None):
    """A list with the running (mean, var) after each batch, in one of the four conventions."""
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
        mean, var = mean * (1 - share) + batch_mean * share, var * (1 - share) + batch_var * share
        found.append((mean, var))
    return found
    # END


# %% tags=["check"]
check("4.4")

# %% [markdown]
# This library's layers follow "onnx", and `unbiased_running_var=True` makes the variance PyTorch's. Do you agree?

# %% tags=["check"]
import minorm as mn
from minorm import nn

batches = [np.random.default_rng(i).standard_normal((8, 3)) * 2 + 1 for i in range(5)]
for options, convention in (({"momentum": 0.9}, "onnx"), ({"momentum": 0.9, "unbiased_running_var": True}, "pytorch")):
    layer = nn.BatchNorm1d(3, dtype=mn.float64, **options)
    for x in batches:
        layer(mn.tensor(x))
    mean, var = trajectory(batches, convention)[-1]
    assert np.allclose(layer.running_mean.numpy(), mean)
    assert np.allclose(layer.running_var.numpy(), var)
    print(f"{convention:8} running var {var}")

# %% [markdown]
# ## Task 4.5: moving house
#
# A PyTorch model moves to ONNX. Its momentum is easy. Its running variance is not: each batch's share is too large by
# m / (m - 1), while what is left of the initial 1 is not. After `batches` updates with the same m and momentum, how
# much of the running variance is the initial 1? Take that out, correct the rest, and put it back.


# %%
def onnx_momentum(torch_momentum):
    """The momentum in ONNX's meaning."""
    # SOLUTION 4.5: PyTorch's momentum as ONNX's
    return 1 - torch_momentum
    # END


def onnx_running_var(torch_running_var, torch_momentum, batches, m):
    """The running variance that ONNX's convention would have come to over the same batches, all with this m."""
    # SOLUTION 4.5: PyTorch's running variance as ONNX's
    initial = (1 - torch_momentum) ** batches
    return (torch_running_var - initial) * (m - 1) / m + initial
    # END


# %% tags=["check"]
check("4.5")

# %% [markdown]
# ## Task 4.6: tests that find bugs
#
# As in lab 3, your tests are run on a right implementation, where all must pass, and on wrong ones, where one must
# fail; each bug found is a point. `norm` has
#
#     y, new_mean, new_var = norm.train(x, mean, var, momentum=0.9, eps=1e-5)
#     y = norm.evaluate(x, mean, var, eps=1e-5)
#
# in ONNX's convention, without scale and bias, for float64 x (N, C) or (N, C, L) and running mean and var (C). In
# training y comes from the batch's statistics and does not depend on the running ones. Some bugs show only with
# positions, some only where the variance or m is small, some only where mean and var are not 0 and 1.
# As in task 3.5, minorm's normalizations, torch and the like are closed while your tests run: use a formula, a property
# or your own functions of this file.


# %%
def test_training(norm):
    """What train must return."""
    # SOLUTION 4.6: a test of norm.train
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
    """What evaluate must return."""
    # SOLUTION 4.6: a test of norm.evaluate
    x = np.random.default_rng(1).standard_normal((3, 2, 4))
    mean, var = np.array([1.0, -2.0]), np.array([0.01, 4.0])
    expected = (x - mean[:, None]) / np.sqrt(var + 1e-2)[:, None]
    np.testing.assert_allclose(norm.evaluate(x, mean, var, eps=1e-2), expected, rtol=1e-9)
    # END


# %% tags=["check"]
check("4.6")

# %% [markdown]
# ## To think about
#
# 1. Somebody passes PyTorch's `momentum=0.1` to a library that means the share of the old value. What happens to the
#    running statistics, and how would it show in the accuracy on the test set? Would the training loss tell?
# 2. How many batches does it take with momentum 0.99 until less than 1 % of the initial variance 1 is left? How long
#    is an epoch of the digits with batches of 64?
# 3. The average of the batches' variances, even the unbiased ones, is not the variance of all the data together. What
#    is missing? (Chan's formula in lab 2 has it.)
