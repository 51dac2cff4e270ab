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
# # Lab 12: Capstone
#
# **The question.** You train a network, stop in the middle and continue later. You export
# it as an ONNX file. Another person reads the file and continues to train, on images that
# you have never seen. What must not get lost on the way? And how do you know that nothing
# got lost?
#
# This lab combines the others: your own normalization kernel, a training loop, a
# checkpoint, an ONNX file, and fine-tuning. Results that must be equal are compared bit
# for bit. Accuracy is measured on images that were not used for training.
#
# You need labs 1, 3 and 5, and `pip install onnx onnxruntime`. Lab 10 helps. Time: about
# 90 minutes.

# %%
import os

import numpy as np

import minorm as mn
import minorm.functional as F
import minorm.onnx
from minorm import checkpoint
from minorm.labs import capstone, gap
from minorm.labs.visible import checker

check = checker(12, globals())

# %% tags=["plot"]
import tempfile

import matplotlib.pyplot as plt

from minorm.labs.pictures import show
from minorm.plots import BLUE, GREY, ORANGE, STYLE, VERMILLION

plt.rcParams.update(STYLE)

# %% [markdown]
# ## The run
#
# `capstone.Run(seed)` is a training run that has not started. It has four parts:
#
# - `run.model` is a small network with two BatchNorm layers and dropout.
# - `run.optimizer` is SGD with momentum.
# - `run.scheduler` lowers the learning rate along a cosine.
# - `run.loader` loads the digits and shuffles them in each epoch.
#
# `Run(seed, backend=...)` uses another normalization kernel. `Run(images=..., labels=...,
# model=...)` uses other images or an existing model. `minorm/labs/capstone.py` is short
# and worth reading.
#
# ## Task 12.1: your kernel
#
# Write the forward and the backward pass of a normalization. If you have done labs 1 and
# 3, use your functions from there.
#
#     y  = ((x - k) - d) * rstd * s + b
#     dx = rstd * (g - mean(g) - xhat * mean(g * xhat))        with g = dy * s
#
# These helpers are available:
#
# - `four(nest, x)` is x with the axes (keep, keep, reduce, reduce). The last two axes are
#   one row.
# - `like(nest, y4, x)` brings a result with these axes back to the shape of x.
# - `parameters(nest, s)` is s in a shape that broadcasts with the four axes.
# - `kept(nest, v)` does the same for a vector with one number for each row.
# - `parameter_sums(nest, terms4)` sums over all axes along which s and b do not vary.
# - `equation.rstd(var)` computes rstd from var, with eps inside the root.
#
# forward returns y and `Statistics.of(k, d, var, rstd)`. The statistics are flat vectors,
# and mean = k + d. Only BatchNorm is required here, so the mean is always subtracted. The
# gradients have the type of x.

# %%
from minorm.kernels.partial import PartialBackend
from minorm.kernels.protocol import Statistics
from minorm.kernels.reference.norm import four, kept, like, parameter_sums, parameters


def forward(nest, x, s, b, equation):
    """y and the statistics."""
    raise NotImplementedError("Task 12.1: the forward pass of a backend")


def backward(nest, dy, x, stats, s, equation, needs=(True, True)):
    """dx, ds and db. s may be None."""
    raise NotImplementedError("Task 12.1: the backward pass of a backend")


# %% tags=["check"]
check("12.1")

# %% [markdown]
# ## Task 12.2: train
#
# Do the following for each epoch and each batch of `run.loader`. Compute the loss, which
# is `F.cross_entropy` of the model's output and the labels. Set the gradients to zero.
# Run the backward pass. Make a step of the optimizer, and then a step of the scheduler.
# The model must be in training mode. Return the losses in order, as numbers.


# %%
def train(run, epochs):
    """Train for some epochs. Returns the loss of every step."""
    raise NotImplementedError("Task 12.2: the training loop")


# %% tags=["check"]
check("12.2")

# %% [markdown]
# ## Task 12.3: stop and continue
#
# `save(path, run)` writes one file after some epochs. `resume(path, run)` gets a *new*
# run. It was made with any seed, perhaps in another process on another day. Give it the
# state of the saved run. From then on, every loss must have the same bits as if the
# training had never stopped.
#
# What does the next step depend on? `checkpoint.save_training(path, name=object, ...)`
# takes plain values, and objects that have a `state_dict`.
# `checkpoint.load_training(path, name=object, ...)` restores the state of the named
# objects, and returns the other values as a dict. One thing is not part of the run:
# dropout uses minorm's random generator. Read and set its state with
# `mn.random.get_state()` and `mn.random.set_state(...)`.


# %%
def save(path, run):
    """Write everything that the next step depends on."""
    raise NotImplementedError("Task 12.3: write the checkpoint")


def resume(path, run):
    """Give this run the state of the saved run."""
    raise NotImplementedError("Task 12.3: read the checkpoint")


# %% tags=["check"]
check("12.3")

# %% [markdown]
# ### Three loss curves
#
# The next cell trains for four epochs in float64, three times: with the library's kernels
# and without a stop, with your kernels, and with a stop after two epochs. It draws the
# three loss curves, and the differences from the first run.

# %% [markdown]
# **Guess before you run.** How large will the difference be for your kernels? How large
# will it be for the resumed run?

# %% tags=["plot"]
EPOCHS = 4
mine = PartialBackend(forward=forward, backward=backward)
whole = np.array(train(capstone.Run(0, dtype=np.float64), EPOCHS))
kernels = np.array(train(capstone.Run(0, backend=mine, dtype=np.float64), EPOCHS))
with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "half.safetensors")
    first = capstone.Run(0, dtype=np.float64)
    resumed = train(first, EPOCHS // 2)
    save(path, first)
    second = capstone.Run(99, dtype=np.float64)
    resume(path, second)
    resumed = np.array(resumed + train(second, EPOCHS // 2))
steps, cut = np.arange(1, len(whole) + 1), len(whole) // 2
figure, (left, right) = plt.subplots(1, 2, figsize=(12, 4.6), layout="constrained")
rings = {"color": GREY, "mfc": "none", "markersize": 8}
left.plot(steps[2::4], whole[2::4], "o", **rings, label="the library, no stop")
left.plot(steps, kernels, "-", color=BLUE, linewidth=1.6, label="your kernels")
dots = {"color": VERMILLION, "markersize": 4}
left.plot(steps[::4], resumed[::4], "o", **dots, label="resumed (every fourth step)")
left.plot([cut + 0.5] * 2, [0, 1.3], color=GREY, linestyle=":", linewidth=1.5)
left.text(cut + 1.5, 1.2, "stopped here", color="#505050")
left.set(
    title="Loss of three runs", xlabel="training step", ylabel="loss (cross entropy)"
)
left.legend(loc="upper right")
FLOOR = 1e-18
looks = (kernels, "-", BLUE, "your kernels"), (resumed, "o", VERMILLION, "resumed")
for values, style, colour, name in looks:
    off = np.maximum(np.abs(values - whole), FLOOR)
    most = f"at most {off.max():.0e}" if off.max() > FLOOR else "0 at every step"
    label = f"{name}: {most}"
    right.semilogy(steps, off, style, color=colour, markersize=4, label=label)
right.set(title="Difference from the first run", xlabel="training step")
right.set(ylabel="difference from the library's loss", ylim=(FLOOR / 3, 1e-11))
right.set_yticks([FLOOR, 1e-16, 1e-14, 1e-12], ["0", "1e-16", "1e-14", "1e-12"])
right.minorticks_off()
right.legend(loc="upper left")
show(
    figure,
    "Left, the loss of three runs at each training step, all on one curve: rings for "
    "the library, a line for your kernels, and dots for the run that was stopped in the "
    "middle and resumed. Right, the differences from the library's loss on a "
    "logarithmic axis: at most about 1e-15 for your kernels, and 0 at every step for "
    "the resumed run.",
)

# %% [markdown]
# **What you see.** The three curves look the same. Your kernels add numbers in another
# order, so their losses differ in the last digit. The resumed run has no such reason to
# differ, and its difference is 0 at every step.

# %% [markdown]
# ## Task 12.4: a file for others
#
# `write(path, model)` exports an ONNX file. `read(path)` loads such a file as a module
# that can continue to learn. If another person reads your file and trains with the same
# seed, the losses must have the same bits as yours. The answers in evaluation mode must
# be the same as well. `write` must leave the model in its mode.
#
# `mn.onnx.export(model, x, path)` runs the model on an example x: some images of shape
# (N, 1, 8, 8). The file then works for any batch size. By default, export writes the form
# for *inference*. What is missing in this form? With `training=True` it writes the form
# for training. That form has more outputs: the new running statistics.
# `mn.onnx.load(path)` returns a module that handles them itself, like a BatchNorm layer.


# %%
def write(path, model):
    """Write an ONNX file with which training can continue."""
    raise NotImplementedError("Task 12.4: export the form for training")


def read(path):
    """The model in such a file."""
    raise NotImplementedError("Task 12.4: load the model")


# %% tags=["check"]
check("12.4")

# %% [markdown]
# ## Task 12.5: fine-tune
#
# Another person reads your file and has 400 labelled digits that are mirrored. The
# network reads about half of them correctly.
#
# `fine_tune(model, images, labels)` trains the model on these images for at most ten
# seconds and leaves it in evaluation mode. Afterwards it must classify at least 85 % of
# other mirrored digits correctly. `capstone.Run(images=..., labels=..., model=...,
# epochs=..., lr=...)` makes the optimizer, the scheduler and the loader. You choose the
# number of epochs, the learning rate, and which layers are frozen. The check also tries
# grey and pale images from another camera. There at least 90 % must be correct.


# %%
def fine_tune(model, images, labels):
    """Train the model on these images."""
    raise NotImplementedError("Task 12.5: fine-tune the model")


# %% tags=["check"]
check("12.5")

# %% [markdown]
# ### Is everything in the file?
#
# The next cell runs the same fine-tuning three times: from the model in memory, from your
# file, and from a file in the form for inference.

# %% [markdown]
# **Guess before you run.** Which of the three loss curves will be identical? Will the
# third curve lie above or below them, and why?

# %% tags=["plot"]
images, labels, test_images, test_labels = gap.images()
mirrored, mirrored_test = gap.mirrored(images[:400]), gap.mirrored(test_images)
base = capstone.Run(0)
train(base, 4)
with tempfile.TemporaryDirectory() as folder:
    paths = [os.path.join(folder, name) for name in ("training.onnx", "inference.onnx")]
    write(paths[0], base.model)
    mn.onnx.export(base.model, mn.tensor(test_images[:2]), paths[1])
    models = {
        "in memory": base.model,
        "from your file": read(paths[0]),
        "from the form for inference": read(paths[1]),
    }
curves, right_share = {}, {}
for name, model in models.items():
    run = capstone.Run(7, images=mirrored, labels=labels[:400], model=model, lr=0.02)
    curves[name] = np.array(train(run, 4))
    model.eval()
    with mn.no_grad():
        found = model(mn.tensor(mirrored_test)).numpy().argmax(axis=1)
    right_share[name] = 100 * np.mean(found == test_labels)
figure, panel = plt.subplots(figsize=(9, 4.6), layout="constrained")
looks = ((GREY, "o"), (BLUE, "-"), (ORANGE, "^:"))
for (name, curve), (colour, style) in zip(curves.items(), looks, strict=True):
    label = f"{name}: {right_share[name]:.1f} % right at the end"
    look = {"color": colour, "mfc": "none", "markersize": 8}
    panel.plot(range(1, len(curve) + 1), curve, style, **look, label=label)
panel.set(title="Fine-tuning from three models", yscale="log")
panel.set_xlabel("step of fine-tuning on 400 mirrored digits")
panel.set_ylabel("loss (cross entropy)")
panel.set_yticks([0.1, 0.3, 1, 3], ["0.1", "0.3", "1", "3"])
panel.minorticks_off()
panel.legend(loc="upper right")
show(
    figure,
    "Loss of fine-tuning on mirrored digits on a logarithmic axis, from three models. "
    "The curve from memory (rings) and the curve from your file (a line through the "
    "rings) are the same. The curve from the form for inference soon lies a little "
    "lower, because it has no dropout.",
)
same = np.array_equal(curves["in memory"], curves["from your file"])
print("the same bits from memory and from the file:", same)

# %% [markdown]
# **What you see.** The curves from memory and from your file have the same bits. The form
# for inference has no dropout, so its training loss soon lies a little lower.

# %% [markdown]
# ## Task 12.6: everything together
#
# `everything(folder, seed)` uses your functions:
#
# 1. `capstone.Run(seed)` trains for two epochs and is saved.
# 2. A new run resumes it and trains for two more epochs.
# 3. Its model is written to `base.onnx` in the folder, and read back as a new model.
# 4. The new model is fine-tuned on the first 400 mirrored digits (`gap.images()`,
#    `gap.mirrored`) and written to `mirrored.onnx`.
#
# It returns the losses of steps 1 and 2. The grader looks at the losses, and loads both
# files itself.


# %%
def everything(folder, seed):
    """Train, stop, resume, export, import, fine-tune and export.

    Returns the losses of the four epochs.
    """
    raise NotImplementedError("Task 12.6: put everything together")


# %% tags=["check"]
check("12.6")

# %% [markdown]
# ## To think about
#
# 1. A checkpoint and an ONNX file both hold the weights. What else does each of them
#    hold? Which one would you publish with a paper, and what could a reader do with it?
# 2. After fine-tuning, how many of the *unmirrored* digits does the model still classify
#    correctly? Measure it. What could you do about it, with the methods of lab 5 or
#    others?
# 3. In this lab, a difference in the last digit stays a difference in the last digit. In
#    the deeper network of lab 3, in float32, it grows to the second digit within one
#    epoch. Is such a kernel wrong? How would you test it, if not by its loss curve?
