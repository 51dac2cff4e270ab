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
# **The question.** Train a network, stop in the middle and go on, hand it to somebody as an ONNX file, and let them
# train it further for images that you have never seen. What must not get lost on the way, and how do you know that
# nothing did?
#
# Everything comes together: a normalization kernel of your own, a training loop, a checkpoint, a file, and
# fine-tuning. What should be equal is compared bit for bit; what should be good is measured on images that nobody
# trained on.
#
# You need labs 1, 3 and 5, and `pip install onnx onnxruntime`; lab 10 helps. Time: about 90 minutes.

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
# `capstone.Run(seed)` is a training run that has not begun: a small network with two BatchNorm layers and dropout in
# `run.model`, its `run.optimizer` (SGD with momentum), `run.scheduler` (a learning rate that falls along a cosine), and
# `run.loader`, which shuffles the digits anew each epoch. `Run(seed, backend=...)` uses another normalization kernel,
# `Run(images=..., labels=..., model=...)` other images, or a model that is there already. `minorm/labs/capstone.py` is
# short; read it.
#
# ## Task 12.1: your kernel
#
# Bring the forward and backward pass of a normalization, from labs 1 and 3 if you have them:
#
#     y = ((x - k) - d) * rstd * s + b        dx = rstd * (g - mean(g) - xhat * mean(g * xhat)),  g = dy * s
#
# `four(nest, x)` is x as (keep, keep, reduce, reduce), and a row is the last two axes; `like(nest, y4, x)` goes back.
# `parameters(nest, s)` is s so that it broadcasts, `kept(nest, v)` the same for a vector with a number a row, and
# `parameter_sums(nest, terms4)` sums over all axes along which s and b do not vary. forward returns y and
# `Statistics.of(k, d, var, rstd)`, flat vectors with mean = k + d, and `equation.rstd(var)` knows eps. Only BatchNorm
# is asked for here: everything is centered, eps stands under the root. Gradients have the types of x.

# %%
from minorm.kernels.partial import PartialBackend
from minorm.kernels.protocol import Statistics
from minorm.kernels.reference.norm import four, kept, like, parameter_sums, parameters


def forward(nest, x, s, b, equation):
    """y, and the statistics."""
    raise NotImplementedError("Task 12.1: the forward pass of a backend")


def backward(nest, dy, x, stats, s, equation, needs=(True, True)):
    """dx, ds and db; s may be None."""
    raise NotImplementedError("Task 12.1: the backward pass of a backend")


# %% tags=["check"]
check("12.1")

# %% [markdown]
# ## Task 12.2: train
#
# For each epoch and each batch of `run.loader`: the loss (`F.cross_entropy` of the model's output and the labels),
# gradients to zero, backward, a step of the optimizer, a step of the schedule. The model is in training mode while it
# trains. The losses come back in order, as numbers.


# %%
def train(run, epochs):
    """The loss of every step of so many epochs."""
    raise NotImplementedError("Task 12.2: the training loop")


# %% tags=["check"]
check("12.2")

# %% [markdown]
# ## Task 12.3: stop, and go on
#
# `save(path, run)` writes one file after some epochs. `resume(path, run)` gets a *new* run, made with any seed, perhaps
# in another process on another day, and makes it what the old one was: from there on every loss has the same bits as if
# nothing had happened.
#
# What does the next step depend on? `checkpoint.save_training(path, name=object, ...)` takes objects that have a
# `state_dict` and plain values; `checkpoint.load_training(path, name=object, ...)` puts the state of the objects named
# back and returns the rest as a dict. One thing that the run depends on is not in the run: dropout draws from minorm's
# generator, `mn.random.get_state()` and `mn.random.set_state(...)`.


# %%
def save(path, run):
    """Write everything that the next step depends on."""
    raise NotImplementedError("Task 12.3: the checkpoint")


def resume(path, run):
    """Make this run what the saved one was."""
    raise NotImplementedError("Task 12.3: and back")


# %% tags=["check"]
check("12.3")

# %% [markdown]
# ### Loss curves over each other
#
# Four epochs in float64: the library's kernels without interruption, your kernels, and a run that is stopped after two
# epochs and resumed. Your kernels add up in another order, so now and then a last digit differs. A checkpoint has no
# such excuse.

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
left.plot(steps[2::4], whole[2::4], "o", color=GREY, mfc="none", markersize=8, label="the library, uninterrupted")
left.plot(steps, kernels, "-", color=BLUE, linewidth=1.6, label="your kernels")
left.plot(steps[::4], resumed[::4], "o", color=VERMILLION, markersize=4, label="stopped and resumed (each fourth step)")
left.plot([cut + 0.5] * 2, [0, 1.3], color=GREY, linestyle=":", linewidth=1.5)
left.text(cut + 1.5, 1.2, "stopped here", color="#505050")
left.set(title="Three runs, one curve", xlabel="training step", ylabel="loss (cross entropy)")
left.legend(loc="upper right")
FLOOR = 1e-18
for values, style, colour, name in ((kernels, "-", BLUE, "your kernels"), (resumed, "o", VERMILLION, "resumed")):
    off = np.abs(values - whole)
    label = f"{name}: at most {off.max():.0e}" if off.any() else f"{name}: 0 at every step"
    right.semilogy(steps, np.maximum(off, FLOOR), style, color=colour, markersize=4, label=label)
right.set(title="A kernel may round otherwise; a checkpoint loses no bit", xlabel="training step")
right.set(ylabel="difference from the library's loss", ylim=(FLOOR / 3, 1e-11))
right.set_yticks([FLOOR, 1e-16, 1e-14, 1e-12], ["0", "1e-16", "1e-14", "1e-12"])
right.minorticks_off()
right.legend(loc="upper left")
show(
    figure,
    "Left, the loss over the steps of training, of three runs on one curve: rings of the library, a line of your "
    "kernels, and dots of the run that was stopped in the middle and resumed. Right, the differences from the "
    "library's loss, logarithmic: your kernels at most about 1e-15, the resumed run 0 at every step.",
)

# %% [markdown]
# ## Task 12.4: a file for others
#
# `write(path, model)` exports an ONNX file, `read(path)` loads one as a module that can go on learning. Whoever reads
# the file and trains with the same seed must see the same losses as you, bit for bit; and in evaluation mode the same
# answers. The model that you write stays in the mode in which it is.
#
# `mn.onnx.export(model, x, path)` runs the model on an example x, some images: (N, 1, 8, 8), and leaves the batch's
# length free. It writes the form for *inference*, unless you say `training=True`. What is missing in that form? The
# other form has further outputs, the new running statistics; what `mn.onnx.load(path)` gives keeps them to itself, as a
# BatchNorm layer does.


# %%
def write(path, model):
    """An ONNX file from which training can go on."""
    raise NotImplementedError("Task 12.4: export the form that trains")


def read(path):
    """The model in such a file."""
    raise NotImplementedError("Task 12.4: load it")


# %% tags=["check"]
check("12.4")

# %% [markdown]
# ## Task 12.5: fine-tune
#
# Somebody reads the file and has 400 labelled digits from a mirror. The network knows half of those as they are.
# `fine_tune(model, images, labels)` trains it on them, at most ten seconds, and leaves it in evaluation mode, with
# at least 85 % of other mirrored digits right. A run of `capstone.Run(images=..., labels=..., model=..., epochs=...,
# lr=...)` makes optimizer, schedule and loader; how many epochs, which learning rate and what is frozen is up to
# you. It will also be tried on images of another camera, grey and pale, where 90 % must be right.


# %%
def fine_tune(model, images, labels):
    """Train the model for these images."""
    raise NotImplementedError("Task 12.5: fine-tune")


# %% tags=["check"]
check("12.5")

# %% [markdown]
# ### Does the file say everything?
#
# The same fine-tuning from the model in memory, from its file, and from a file in the form for inference.

# %% tags=["plot"]
images, labels, test_images, test_labels = gap.images()
mirrored, mirrored_test = gap.mirrored(images[:400]), gap.mirrored(test_images)
base = capstone.Run(0)
train(base, 4)
with tempfile.TemporaryDirectory() as folder:
    paths = [os.path.join(folder, name) for name in ("training.onnx", "inference.onnx")]
    write(paths[0], base.model)
    mn.onnx.export(base.model, mn.tensor(test_images[:2]), paths[1])
    models = {"in memory": base.model, "from your file": read(paths[0]), "from the form for inference": read(paths[1])}
curves, right_share = {}, {}
for name, model in models.items():
    curves[name] = np.array(train(capstone.Run(7, images=mirrored, labels=labels[:400], model=model, lr=0.02), 4))
    model.eval()
    with mn.no_grad():
        right_share[name] = 100 * np.mean(model(mn.tensor(mirrored_test)).numpy().argmax(axis=1) == test_labels)
figure, panel = plt.subplots(figsize=(9, 4.6), layout="constrained")
looks = ((GREY, "o"), (BLUE, "-"), (ORANGE, "^:"))
for (name, curve), (colour, style) in zip(curves.items(), looks, strict=True):
    label = f"{name}: {right_share[name]:.1f} % right at the end"
    panel.plot(range(1, len(curve) + 1), curve, style, color=colour, mfc="none", markersize=8, label=label)
panel.set(title="Through your file training goes on to the same bits; the form for inference has lost its dropout")
panel.set(xlabel="step of fine-tuning on 400 mirrored digits", ylabel="loss (cross entropy)", yscale="log")
panel.set_yticks([0.1, 0.3, 1, 3], ["0.1", "0.3", "1", "3"])
panel.minorticks_off()
panel.legend(loc="upper right")
show(
    figure,
    "Loss of fine-tuning on mirrored digits, logarithmic, from three models. In memory, as rings, and from your "
    "file, as a line through them, are the same. From the form for inference the curve soon lies a little lower, "
    "as its dropout is lost.",
)
print("same bits through the file:", np.array_equal(curves["in memory"], curves["from your file"]))

# %% [markdown]
# ## Task 12.6: all of it
#
# `everything(folder, seed)`, with your functions:
#
# 1. `capstone.Run(seed)` trains for two epochs and is saved;
# 2. a new run resumes it and trains for two more;
# 3. its model goes to `base.onnx` in the folder, and from there into a new model;
# 4. that one is fine-tuned on the first 400 mirrored digits (`gap.images()`, `gap.mirrored`) and goes to
#    `mirrored.onnx`.
#
# It returns the losses of steps 1 and 2. The grader looks at the losses, and loads both files itself.


# %%
def everything(folder, seed):
    """Train, stop, resume, export, import, fine-tune, export; the losses of the four epochs."""
    raise NotImplementedError("Task 12.6: put it together")


# %% tags=["check"]
check("12.6")

# %% [markdown]
# ## To think about
#
# 1. A checkpoint and an ONNX file both hold the weights. What does each hold that the other does not? Which would you
#    publish with a paper, and what could a reader do with it?
# 2. After fine-tuning, how many of the *unmirrored* digits are still right? Measure it. What could you do about it,
#    with the means of lab 5 or others?
# 3. Here a difference in the last digit stays one. In the deeper network of lab 3, in float32, it becomes one in the
#    second digit within an epoch. Is such a kernel wrong? How would you test it, if not by its loss curve?
