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
# # Lab 5: The gap between training and evaluation
#
# **The question.** A network with BatchNorm is two functions. In training mode an image's answer depends on the images
# beside it; in evaluation mode on running statistics alone. When do the two disagree, how badly, and what can be done
# for a model that was trained with tiny batches, or whose statistics are wrong?
#
# You measure the gap, work out where it comes from, repair five broken models without a single label, and fine-tune
# with batches of two.
#
# You need lab 4. Time: about 75 minutes.

# %%
import numpy as np

import minorm as mn
from minorm.labs import gap
from minorm.labs.visible import checker

check = checker(5, globals())

# %% tags=["plot"]
import matplotlib.pyplot as plt

from minorm.labs.pictures import show
from minorm.plots import BLUE, GREEN, GREY, ORANGE, STYLE, VERMILLION

plt.rcParams.update(STYLE)

# %% [markdown]
# ## The network
#
# `gap.network(seed)` takes 64 pixels through three blocks of linear, BatchNorm and ReLU to ten classes. There are no
# positions: a row, the elements that share a mean and a variance, is the batch itself, so m is the number of images
# in it. `gap.train(model, images, labels, batch_size=64)` trains it on the digits in a tenth of a second.
# `gap.norms(model)` are its BatchNorm layers; each has `running_mean`, `running_var` and `momentum`, and
# `model.train()` and `model.eval()` choose the mode.
#
# ## Task 5.1: measure it
#
# Two functions, in percent. Measuring must leave no trace: a pass in training mode moves the running statistics, unless
# it runs inside `with mn.no_stats_update():`, and the model must be handed back in the mode in which it came
# (`model.training`). `with mn.no_grad():` spares the graph.


# %%
def accuracy(model, images, labels):
    """Percent of the images that evaluation mode gets right."""
    raise NotImplementedError("Task 5.1: accuracy in evaluation mode")


def accuracy_in_training(model, images, labels, batch_size):
    """The same in training mode, batch after batch in order; images that fill no batch at the end are left out."""
    raise NotImplementedError(
        "Task 5.1: accuracy in training mode, with batches of this size"
    )


# %% tags=["check"]
check("5.1")

# %% [markdown]
# ## Task 5.2: where it comes from
#
# Let the elements of a row be independent, with the true mean and the true deviation sigma. Four small formulas
# describe a batch of m:
#
# - *How far is the batch's mean from the true one?* Its standard deviation, in units of sigma.
# - *How far is the running mean?* With momentum p, after many batches, it is a weighted sum of batch means: the
#   newest has the weight 1 - p, the one before (1 - p) p, then (1 - p) p^2, and so on. The variances of independent
#   values add up, each multiplied by its weight squared.
# - *Is the batch's variance right on average?* It divides by m, about a mean of its own. Its expected value, in units
#   of sigma^2. (Lab 4 had its inverse.)
# - *How large can xhat be at all* in a row of m, with eps = 0? One element stands apart and all others are equal:
#   compute its xhat. Nothing beats that.


# %%
def spread_of_batch_mean(m):
    """The standard deviation of a batch's mean, in sigma."""
    raise NotImplementedError(
        "Task 5.2: how far the mean of m elements is from the truth"
    )


def spread_of_running_mean(m, momentum):
    """The same of the running mean, after many batches."""
    raise NotImplementedError("Task 5.2: how far the running mean is")


def expected_variance(m):
    """The expected value of a batch's variance, in sigma^2."""
    raise NotImplementedError("Task 5.2: the batch's variance on average")


def largest_xhat(m):
    """The largest |xhat| that a row of m elements can hold."""
    raise NotImplementedError("Task 5.2: the xhat of one element that stands apart")


# %% tags=["check"]
check("5.2")

# %% [markdown]
# ### What a batch of two leaves
#
# Each dot is one element: where it truly lies, and what BatchNorm in training made of it beside m - 1 random others.

# %% tags=["plot"]
rng = np.random.default_rng(0)
figure, panels = plt.subplots(1, 3, figsize=(11.5, 4.2), sharey=True, layout="constrained")
for panel, m in zip(panels, (2, 4, 64), strict=True):
    rows = rng.standard_normal((800, m))
    xhat = (rows - rows.mean(axis=1, keepdims=True)) / np.sqrt(rows.var(axis=1, keepdims=True) + 1e-12)
    panel.plot([-3, 3], [-3, 3], "--", color=GREY, linewidth=1.5, label="evaluation")
    panel.plot(rows[:, 0], xhat[:, 0], ".", color=VERMILLION, markersize=3, label="training")
    panel.set(title=f"a batch of {m}", xlabel="distance from the true mean, in sigma", xlim=(-3, 3), ylim=(-3, 3))
panels[0].set_ylabel("xhat")
panels[0].legend(loc="upper left")
figure.suptitle("A batch of two leaves only the sign; a batch of 64 nearly all", x=0.01, ha="left")
show(
    figure,
    "Three scatter plots of xhat in training against the distance from the true mean, for batches of 2, 4 and 64, "
    "with the diagonal of evaluation. With 2 all points lie at +1 and -1. With 4 they are a broad cloud within "
    "+-1.7. With 64 they lie close to the diagonal.",
)

# %% [markdown]
# Such dots are what the next layer learns from. In evaluation it meets the dashed line: other numbers than it was
# trained on.
#
# ## Task 5.3: recalibrate
#
# The weights may be good while the running statistics are not: too noisy (5.2), or left over from earlier weights.
# Statistics need no labels and no gradient, so take them anew. Show the model the images in batches of `batch_size`, in
# order and without the rest that fills no batch, in training mode, each batch weighing the same. Lab 4's
# `momentum=None` averages, but mind what is there before it begins: `layer.reset_running_stats()`. Each layer gets its
# momentum back, the model its mode, and no weight changes.


# %%
def recalibrate(model, images, batch_size=256):
    """Running statistics that are the plain average over batches of these images."""
    raise NotImplementedError("Task 5.3: running statistics anew")


# %% tags=["check"]
check("5.3")

# %% [markdown]
# ### The gap against the batch size
#
# Left, one good model, trained with batches of 64 and then *used* in training mode with smaller ones, as happens when
# somebody forgets `eval()`. Right, models *trained* with small batches. Where would you have expected the gap, and in
# which direction?

# %% tags=["plot"]
SIZES = (2, 3, 4, 8, 16, 32, 64)
SEEDS = (0, 1)
images, labels, test_images, test_labels = gap.images()


def measured(batch_size, seed):
    """Accuracy in training mode with such batches, in evaluation mode, and there after recalibration."""
    model = gap.train(gap.network(seed), images, labels, batch_size, seed=seed)
    found = [
        accuracy_in_training(model, test_images, test_labels, batch_size),
        accuracy(model, test_images, test_labels),
    ]
    recalibrate(model, images)
    return [*found, accuracy(model, test_images, test_labels)]


def band(panel, sizes, values, style, color, label, **options):
    """Mean over seeds as a line, and the seeds as a band."""
    panel.plot(sizes, np.mean(values, axis=0), style, color=color, markersize=6, label=label, **options)
    panel.fill_between(sizes, np.min(values, axis=0), np.max(values, axis=0), color=color, alpha=0.15, linewidth=0)


figure, (left, right) = plt.subplots(1, 2, figsize=(12, 4.8), sharey=True, layout="constrained")
good = [gap.train(gap.network(seed), images, labels, seed=seed) for seed in SEEDS]
used = [[accuracy_in_training(model, test_images, test_labels, size) for size in SIZES] for model in good]
level = np.mean([accuracy(model, test_images, test_labels) for model in good])
left.axhline(level, color=BLUE, linestyle="--", linewidth=1.8, label="evaluation mode")
band(left, SIZES, used, "s-", VERMILLION, "training mode, batches of this size")
left.set(title="Trained with 64: small batches spoil only its use", xlabel="images in a batch when used")
trained = np.array([[measured(size, seed) for size in SIZES] for seed in SEEDS])
band(right, SIZES, trained[..., 0], "s-", VERMILLION, "training mode, batches of this size")
band(right, SIZES, trained[..., 1], "o--", BLUE, "evaluation mode")
band(right, SIZES, trained[..., 2], "^:", GREEN, "evaluation mode, recalibrated")
right.set(title="Trained with tiny ones: the weights themselves suffer", xlabel="images in a batch when trained")
for panel in (left, right):
    panel.set_xscale("log", base=2)
    panel.set_xticks(SIZES, [str(size) for size in SIZES])
    panel.minorticks_off()
    panel.legend(loc="lower right")
left.set(ylabel="test accuracy in %", ylim=(0, 102))
show(
    figure,
    "Test accuracy against the size of the batch, from 2 to 64. Left, a model trained with 64: evaluation mode is "
    "level at the top, training mode climbs from far below and nearly reaches it at 64. Right, models trained with "
    "each size: from 8 on evaluation mode is near the top and training mode below it; with 2 all are poor, also "
    "after recalibration.",
)

# %% [markdown]
# From batches of eight on, evaluation is nearly as good as it gets, while training mode is still worse: each image
# suffers from its neighbours. With batches of two nothing helps afterwards: the network has learned from signs alone.
#
# ## Task 5.4: repair
#
# Five models need repair, `gap.broken(kind)`: all were good once, with more than 96 % of the test digits right, and
# their linear layers still are.
#
# | kind | what happened |
# |---|---|
# | lost | the running statistics were not saved |
# | inverted | momentum=0.1, which here means 0.1 of the *old*, and batches of four |
# | poisoned | one image was NaN |
# | camera | the images come from a new camera, grey and pale; it has no labels yet |
# | frozen | the statistics were lost, and the layers are frozen, so that training mode does not move them |
#
# `repair` gets a model and training images of the kind that it will be used on, and must bring it back above 95 % in
# evaluation mode. No weight may change. It is not told the kind. (`layer.freeze()` sets `layer.frozen`, and takes
# the gradients of its parameters; `layer.unfreeze()` undoes both.)


# %%
def repair(model, images):
    """Give the model running statistics with which it works again, and leave it in evaluation mode."""
    raise NotImplementedError("Task 5.4: repair it, whatever it has")


# %% tags=["check"]
check("5.4")

# %% tags=["plot"]
before, after = [], []
for kind in gap.BROKEN:
    model, own_images, own_test_images, own_test_labels = gap.broken(kind)
    before.append(accuracy(model, own_test_images, own_test_labels))
    repair(model, own_images)
    after.append(accuracy(model, own_test_images, own_test_labels))
figure, panel = plt.subplots(figsize=(8.5, 4.2), layout="constrained")
places = np.arange(len(gap.BROKEN))
for values, shift, color, hatch, name in ((before, -0.2, ORANGE, "//", "broken"), (after, 0.2, BLUE, "", "repaired")):
    bars = panel.bar(places + shift, values, 0.38, color=color, hatch=hatch, edgecolor="white", label=name)
    panel.bar_label(bars, fmt="%.0f", padding=2)
panel.set_xticks(places, gap.BROKEN)
panel.set(title="Statistics alone bring all five back", ylabel="test accuracy in %", ylim=(0, 118))
panel.legend(loc="upper right", ncols=2)
show(
    figure,
    "Pairs of bars of the test accuracy of five models, broken and repaired: lost, inverted, poisoned, camera, "
    "frozen. Broken they are between about 10 and 80 %, repaired all above 95 %.",
)

# %% [markdown]
# ## Task 5.5: freeze
#
# A good model is to read digits in a mirror. There are 400 labelled ones, and this machine has memory for batches of
# two. You know by now what batches of two do. So the BatchNorm layers must stay what they are while the linear
# layers learn: statistics, scale and bias fixed, whatever mode the model is put in (the loop calls `model.train()`
# before each epoch), and not for ever: `unfreeze` follows.


# %%
def freeze_norms(model):
    """Fix the BatchNorm layers; everything else goes on learning."""
    raise NotImplementedError("Task 5.5: fix the BatchNorm layers and nothing else")


# %% tags=["check"]
check("5.5")

# %% tags=["plot"]
images, labels, test_images, test_labels = gap.images()
mirrored, mirrored_test = gap.mirrored(images), gap.mirrored(test_images)
curves = {"batches of two": [], "batches of two, BatchNorm frozen": []}
for name, curve in curves.items():
    model = gap.train(gap.network(), images, labels)
    recalibrate(model, mirrored)
    if "frozen" in name:
        freeze_norms(model)
    curve.append(accuracy(model, mirrored_test, test_labels))
    for epoch in range(8):
        gap.train(model, mirrored[:400], labels[:400], batch_size=2, epochs=1, lr=0.03, seed=epoch)
        curve.append(accuracy(model, mirrored_test, test_labels))
figure, panel = plt.subplots(figsize=(8.5, 4.4), layout="constrained")
for (name, curve), style, color in zip(curves.items(), ("s--", "o-"), (VERMILLION, BLUE), strict=True):
    panel.plot(curve, style, color=color, markersize=6, label=name)
panel.set(title="Fine-tuning with batches of two works once BatchNorm stands still", ylim=(0, 100))
panel.set(xlabel="epochs of fine-tuning on 400 mirrored digits", ylabel="test accuracy in % (evaluation mode)")
panel.legend(loc="center right")
show(
    figure,
    "Test accuracy over 8 epochs of fine-tuning with batches of two. With BatchNorm frozen it climbs and stays "
    "high. Without, it stays far below.",
)

# %% [markdown]
# ## To think about
#
# 1. Which of the five models would have looked healthy in training, loss falling and accuracy fine? What would you log
#    to notice?
# 2. Recalibration averages the variances of batches. By lab 2's formula, what does their average lack, compared with
#    the variance of all images together, and for which batch size does it matter?
# 3. LayerNorm and GroupNorm take their statistics from one image. Which of the five accidents can happen to them? Why
#    is BatchNorm used at all? (docs/which-normalization.md has their errors at every size of batch, in one picture.)
