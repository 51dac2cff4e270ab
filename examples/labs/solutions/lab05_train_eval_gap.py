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
# **The question.** A network with BatchNorm is really two functions. In training mode,
# the answer for an image depends on the other images in its batch. In evaluation mode, it
# depends on the running statistics instead. When do the two modes disagree, and by how
# much? How do you repair a model that was trained with tiny batches, or whose statistics
# are wrong?
#
# In this lab you measure the gap between the modes and find out where it comes from. Then
# you repair five broken models without any labels. At the end you fine-tune a model with
# batches of two.
#
# You need lab 4. Time: about 75 minutes.

# %%
import warnings

import numpy as np

import minorm as mn
from minorm.labs import gap
from minorm.labs.visible import checker

# One of the broken models has a momentum of 0.1 on purpose. minorm warns about it.
warnings.filterwarnings("ignore", message=".*of the old running value")

check = checker(5, globals())

# %% tags=["plot"]
import matplotlib.pyplot as plt

from minorm.labs.pictures import show
from minorm.plots import BLUE, GREEN, GREY, ORANGE, STYLE, VERMILLION

plt.rcParams.update(STYLE)

# %% [markdown]
# ## The network
#
# `gap.network(seed)` makes a network that takes 64 pixels. It has three blocks of a
# linear layer, BatchNorm and ReLU, and a last linear layer with ten outputs, one for each
# class. There are no positions, so a row is the batch itself, and m is the number of
# images in the batch.
#
# - `gap.train(model, images, labels, batch_size=64)` trains the network on the digits in
#   about a tenth of a second.
# - `gap.norms(model)` returns its BatchNorm layers. Each has `running_mean`,
#   `running_var` and `momentum`.
# - `model.train()` and `model.eval()` choose the mode.
#
# ## Task 5.1: measure the gap
#
# Write two functions that return the accuracy in percent. Measuring must not change the
# model:
#
# - A forward pass in training mode changes the running statistics. Run it inside `with
#   mn.no_stats_update():` to prevent that.
# - Put the model back into the mode in which you got it (`model.training`).
# - You need no gradients. `with mn.no_grad():` saves the memory for them.


# %%
def accuracy(model, images, labels):
    """The percentage of images that the model classifies correctly in evaluation mode."""
    # SOLUTION 5.1: accuracy in evaluation mode
    before = model.training
    model.eval()
    with mn.no_grad():
        found = model(mn.tensor(images)).numpy().argmax(axis=1)
    model.train(before)
    return 100 * np.mean(found == labels)
    # END


def accuracy_in_training(model, images, labels, batch_size):
    """The same percentage in training mode.

    Takes the batches in order. Leaves out the images at the end that do not fill a batch.
    """
    # SOLUTION 5.1: accuracy in training mode, with batches of this size
    before = model.training
    model.train()
    right, count = 0, len(images) // batch_size * batch_size
    with mn.no_grad(), mn.no_stats_update():
        for start in range(0, count, batch_size):
            batch = slice(start, start + batch_size)
            found = model(mn.tensor(images[batch])).numpy().argmax(axis=1)
            right += np.sum(found == labels[batch])
    model.train(before)
    return 100 * right / count
    # END


# %% tags=["check"]
check("5.1")

# %% [markdown]
# ## Task 5.2: where the gap comes from
#
# Assume that the elements of a row are independent, with a true mean and a true standard
# deviation sigma. Four short formulas describe a batch of m elements:
#
# - *How far is the mean of the batch from the true mean?* Give its standard deviation, in
#   units of sigma.
# - *How far is the running mean from the true mean?* With momentum p, after many batches,
#   the running mean is a weighted sum of batch means. The newest has the weight 1 - p,
#   the one before it (1 - p) p, the next (1 - p) p^2, and so on. The variances of
#   independent values add up, each multiplied by its weight squared.
# - *Is the variance of the batch right on average?* It divides by m and takes distances
#   from the batch's own mean. Give its expected value, in units of sigma^2. (Lab 4 had
#   the inverse of this factor.)
# - *How large can xhat be* in a row of m elements with eps = 0? The largest value occurs
#   if one element differs and all others are equal. Compute the xhat of that element.


# %%
def spread_of_batch_mean(m):
    """The standard deviation of the mean of a batch, in units of sigma."""
    # SOLUTION 5.2: the standard deviation of the mean of m elements
    return m**-0.5
    # END


def spread_of_running_mean(m, momentum):
    """The standard deviation of the running mean after many batches, in sigma."""
    # SOLUTION 5.2: the standard deviation of the running mean
    return np.sqrt((1 - momentum) / (1 + momentum) / m)
    # END


def expected_variance(m):
    """The expected value of the variance of a batch, in units of sigma^2."""
    # SOLUTION 5.2: the variance of a batch on average
    return (m - 1) / m
    # END


def largest_xhat(m):
    """The largest |xhat| that is possible in a row of m elements."""
    # SOLUTION 5.2: xhat of one element if all others are equal
    return np.sqrt(m - 1)
    # END


# %% tags=["check"]
check("5.2")

# %% [markdown]
# ### What a small batch does to an element
#
# In the next plot each dot is one element. Its horizontal position is its distance from
# the true mean. Its vertical position is the xhat that BatchNorm computes in training
# mode, together with m - 1 random other elements. The panels show m = 2, 4 and 64. The
# dashed line shows evaluation mode with the true statistics.

# %% [markdown]
# **Guess before you run.** Which values can xhat have in a batch of two? (Task 5.2
# helps.) How close to the dashed line will the dots be for m = 64?

# %% tags=["plot"]
rng = np.random.default_rng(0)
figure, panels = plt.subplots(
    1, 3, figsize=(11.5, 4.2), sharey=True, layout="constrained"
)
for panel, m in zip(panels, (2, 4, 64), strict=True):
    rows = rng.standard_normal((800, m))
    mean, var = rows.mean(axis=1, keepdims=True), rows.var(axis=1, keepdims=True)
    xhat = (rows - mean) / np.sqrt(var + 1e-12)
    panel.plot([-3, 3], [-3, 3], "--", color=GREY, linewidth=1.5, label="evaluation")
    panel.plot(
        rows[:, 0], xhat[:, 0], ".", color=VERMILLION, markersize=3, label="training"
    )
    panel.set(title=f"a batch of {m}", xlim=(-3, 3), ylim=(-3, 3))
    panel.set_xlabel("distance from the true mean, in sigma")
panels[0].set_ylabel("xhat")
panels[0].legend(loc="upper left")
figure.suptitle(
    "xhat in training mode against the distance from the true mean", x=0.01, ha="left"
)
show(
    figure,
    "Three scatter plots of xhat in training mode against the distance from the true "
    "mean, for batches of 2, 4 and 64. A dashed diagonal shows evaluation mode. For a "
    "batch of 2 all points lie at +1 or -1. For 4 they form a wide cloud between -1.7 "
    "and 1.7. For 64 they lie close to the diagonal.",
)

# %% [markdown]
# **What you see.** In a batch of two, xhat is always +1 or -1: only the order of the two
# elements remains. In a batch of four, no xhat is larger than sqrt(3) = 1.7. In a batch
# of 64, the dots lie close to the dashed line.
#
# The next layer learns from these dots. In evaluation mode it gets the values on the
# dashed line: other numbers than the ones it was trained on.

# %% [markdown]
# ## Task 5.3: recalibrate
#
# A model may have good weights and bad running statistics. They may be too noisy (task
# 5.2), or they may come from earlier weights. Statistics need no labels and no gradients,
# so you can collect them again. This is called recalibration.
#
# Show the model the images in training mode, in batches of `batch_size`, in order. Leave
# out the images at the end that do not fill a batch. All batches have the same weight.
# Lab 4's `momentum=None` computes this average. Call `layer.reset_running_stats()` first,
# because otherwise the old batches still count. Afterwards, each layer must have its old
# momentum and the model its old mode. No weight may change.


# %%
def recalibrate(model, images, batch_size=256):
    """Set the running statistics to the plain average over batches of these images."""
    # SOLUTION 5.3: collect the running statistics again
    before, momenta = model.training, [layer.momentum for layer in gap.norms(model)]
    for layer in gap.norms(model):
        layer.reset_running_stats()
        layer.momentum = None
    model.train()
    with mn.no_grad():
        for start in range(0, len(images) - batch_size + 1, batch_size):
            model(mn.tensor(images[start : start + batch_size]))
    for layer, momentum in zip(gap.norms(model), momenta, strict=True):
        layer.momentum = momentum
    model.train(before)
    # END


# %% tags=["check"]
check("5.3")

# %% [markdown]
# ### The gap against the batch size
#
# The next cell draws two plots. On the left, a good model was trained with batches of 64.
# It is then *used* in training mode with smaller batches. This happens if a program
# forgets `eval()`. On the right, models were *trained* with small batches. Each is
# measured in training mode, in evaluation mode, and in evaluation mode after
# recalibration.

# %% [markdown]
# **Guess before you run.** On the left: is training mode better or worse than evaluation
# mode? From which batch size on are they nearly equal? On the right: can recalibration
# repair a model that was trained with batches of two?

# %% tags=["plot"]
SIZES = (2, 3, 4, 8, 16, 32, 64)
SEEDS = (0, 1)
images, labels, test_images, test_labels = gap.images()


def measured(batch_size, seed):
    """Accuracy in training mode, in evaluation mode, and after recalibration."""
    model = gap.train(gap.network(seed), images, labels, batch_size, seed=seed)
    found = [
        accuracy_in_training(model, test_images, test_labels, batch_size),
        accuracy(model, test_images, test_labels),
    ]
    recalibrate(model, images)
    return [*found, accuracy(model, test_images, test_labels)]


def band(panel, sizes, values, style, color, label, **options):
    """Draw the mean over seeds as a line, and the range of the seeds as a band."""
    mean, low, high = (f(values, axis=0) for f in (np.mean, np.min, np.max))
    panel.plot(sizes, mean, style, color=color, markersize=6, label=label, **options)
    panel.fill_between(sizes, low, high, color=color, alpha=0.15, linewidth=0)


figure, (left, right) = plt.subplots(
    1, 2, figsize=(12, 4.8), sharey=True, layout="constrained"
)
good = [gap.train(gap.network(seed), images, labels, seed=seed) for seed in SEEDS]
used = [
    [accuracy_in_training(model, test_images, test_labels, size) for size in SIZES]
    for model in good
]
level = np.mean([accuracy(model, test_images, test_labels) for model in good])
left.axhline(level, color=BLUE, linestyle="--", linewidth=1.8, label="evaluation mode")
band(left, SIZES, used, "s-", VERMILLION, "training mode, batches of this size")
left.set(title="Trained with batches of 64", xlabel="images in a batch when used")
trained = np.array([[measured(size, seed) for size in SIZES] for seed in SEEDS])
band(
    right, SIZES, trained[..., 0], "s-", VERMILLION, "training mode, batches of this size"
)
band(right, SIZES, trained[..., 1], "o--", BLUE, "evaluation mode")
band(right, SIZES, trained[..., 2], "^:", GREEN, "evaluation mode, recalibrated")
right.set(title="Trained with small batches", xlabel="images in a batch when trained")
for panel in (left, right):
    panel.set_xscale("log", base=2)
    panel.set_xticks(SIZES, [str(size) for size in SIZES])
    panel.minorticks_off()
    panel.legend(loc="lower right")
left.set(ylabel="test accuracy in %", ylim=(0, 102))
show(
    figure,
    "Test accuracy against the size of the batch, from 2 to 64. Left, a model trained "
    "with 64: evaluation mode is a flat line at the top. Training mode rises from far "
    "below and nearly reaches it at 64. Right, models trained with each size: from 8 "
    "on, evaluation mode is near the top and training mode is below it. With 2 all "
    "three are poor, also after recalibration.",
)

# %% [markdown]
# **What you see.** On the left, training mode is worse for every batch size, because each
# image is disturbed by the other images of its batch. With 64 images the two modes are
# nearly equal. On the right, evaluation mode is nearly as good as possible from a batch
# size of eight on. A model that was trained with batches of two stays poor after
# recalibration: its weights were trained on the signs only.

# %% [markdown]
# ## Task 5.4: repair
#
# Five models need repair. `gap.broken(kind)` makes them. Each of them was good once, with
# more than 96 % of the test digits right. The linear layers are still good.
#
# | kind | what happened |
# |---|---|
# | lost | the running statistics were not saved |
# | inverted | momentum=0.1 was set, which here means 0.1 of the *old* value, and the batches had four images |
# | poisoned | one image was NaN |
# | camera | the images come from a new camera and are grey and pale; there are no labels yet |
# | frozen | the statistics were lost, and the layers are frozen, so training mode does not change the statistics |
#
# `repair` gets a model and training images of the kind on which it will be used.
# Afterwards the model must have more than 95 % of the test digits right in evaluation
# mode. No weight may change. `repair` does not know the kind.
#
# `layer.freeze()` sets `layer.frozen` and turns off the gradients of the layer's
# parameters. `layer.unfreeze()` undoes both.


# %%
def repair(model, images):
    """Give the model working running statistics, and leave it in evaluation mode."""
    # SOLUTION 5.4: repair the model, whatever is broken
    frozen = [layer for layer in gap.norms(model) if layer.frozen]
    for layer in frozen:
        layer.unfreeze()
    recalibrate(model, images)
    for layer in frozen:
        layer.freeze()
    model.eval()
    # END


# %% tags=["check"]
check("5.4")

# %% [markdown]
# The next plot shows the accuracy of the five models before and after your repair.

# %% [markdown]
# **Guess before you run.** Which of the five models is the worst before the repair? Is
# any of them still better than guessing, which gets 10 % right?

# %% tags=["plot"]
before, after = [], []
for kind in gap.BROKEN:
    model, own_images, own_test_images, own_test_labels = gap.broken(kind)
    before.append(accuracy(model, own_test_images, own_test_labels))
    repair(model, own_images)
    after.append(accuracy(model, own_test_images, own_test_labels))
figure, panel = plt.subplots(figsize=(8.5, 4.2), layout="constrained")
places = np.arange(len(gap.BROKEN))
looks = ((before, -0.2, ORANGE, "//", "broken"), (after, 0.2, BLUE, "", "repaired"))
for values, shift, color, hatch, name in looks:
    bars = panel.bar(
        places + shift,
        values,
        0.38,
        color=color,
        hatch=hatch,
        edgecolor="white",
        label=name,
    )
    panel.bar_label(bars, fmt="%.0f", padding=2)
panel.set_xticks(places, gap.BROKEN)
panel.set(title="Five models, broken and repaired", ylim=(0, 118))
panel.set_ylabel("test accuracy in %")
panel.legend(loc="upper right", ncols=2)
show(
    figure,
    "Pairs of bars with the test accuracy of five models: lost, inverted, poisoned, "
    "camera and frozen. The broken models are between about 10 and 80 %. All repaired "
    "models are above 95 %.",
)

# %% [markdown]
# **What you see.** The poisoned model is the worst. NaN reaches every answer, so only
# about 10 % are right by chance. The other four have between about 55 and 75 % right.
# After the repair all five have about 97 % right. New statistics were enough, and no
# weight had to change.

# %% [markdown]
# ## Task 5.5: freeze
#
# A good model has to learn to read mirrored digits. There are 400 labelled digits, and
# the memory of this machine is enough for batches of two. You have seen what batches of
# two do to BatchNorm. So keep the BatchNorm layers as they are while the linear layers
# learn.
#
# Statistics, scale and bias must stay fixed in any mode. (The training loop calls
# `model.train()` before each epoch.) The layers must be able to learn again later, after
# `unfreeze`.


# %%
def freeze_norms(model):
    """Fix the BatchNorm layers. All other layers continue to learn."""
    # SOLUTION 5.5: fix the BatchNorm layers and nothing else
    for layer in gap.norms(model):
        layer.freeze()
    # END


# %% tags=["check"]
check("5.5")

# %% [markdown]
# The next cell fine-tunes a model on the mirrored digits with batches of two. It does
# this twice: as usual, and with your `freeze_norms`. Both models are recalibrated on
# mirrored images first.

# %% [markdown]
# **Guess before you run.** How many percent of the mirrored digits will each model get
# right after eight epochs?

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
        gap.train(
            model,
            mirrored[:400],
            labels[:400],
            batch_size=2,
            epochs=1,
            lr=0.03,
            seed=epoch,
        )
        curve.append(accuracy(model, mirrored_test, test_labels))
figure, panel = plt.subplots(figsize=(8.5, 4.4), layout="constrained")
looks = ("s--", VERMILLION), ("o-", BLUE)
for (name, curve), (style, color) in zip(curves.items(), looks, strict=True):
    panel.plot(curve, style, color=color, markersize=6, label=name)
panel.set(title="Fine-tuning with batches of two", ylim=(0, 100))
panel.set_xlabel("epochs of fine-tuning on 400 mirrored digits")
panel.set_ylabel("test accuracy in % (evaluation mode)")
panel.legend(loc="center right")
show(
    figure,
    "Test accuracy over 8 epochs of fine-tuning with batches of two. With BatchNorm "
    "frozen it rises and stays high. Without freezing it stays far below.",
)

# %% [markdown]
# **What you see.** With frozen BatchNorm layers the accuracy rises from below 40 % to
# more than 90 %. Without freezing it ends near 40 %, about where it started.

# %% [markdown]
# ## To think about
#
# 1. Which of the five models would have looked healthy during training, with a falling
#    loss and a good accuracy? What would you log to notice the problem?
# 2. Recalibration averages the variances of the batches. According to lab 2's formula,
#    what is missing in this average, compared with the variance of all images together?
#    For which batch sizes does it matter?
# 3. LayerNorm and GroupNorm take their statistics from a single image. Which of the five
#    accidents can happen to them? Why does anybody still use BatchNorm?
#    (docs/which-normalization.md shows the errors of all of them for every batch size in
#    one picture.)
