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
# # Lab 9: SyncBatchNorm
#
# **The question.** A batch of 64 images is cut among several computers, the *ranks*. Each has a copy of the model and
# computes gradients from its own images. For most layers that is all the same; BatchNorm takes mean and variance over
# images that no rank has. What must the ranks tell each other, so that they train as one computer with the whole batch
# would, to the last digit or nearly?
#
# You merge moments, of parts that may be of any size, then take a gradient back through statistics that others share;
# five ranks train a network, with your functions in its layers; and in the end you make a sum come out with the same
# bits, however many computers share it.
#
# You need labs 1 and 3; lab 2 helps. Time: about 90 minutes.

# %%
import numpy as np

from minorm.labs import digits_network
from minorm.labs.ranks import simulate
from minorm.labs.visible import checker

check = checker(9, globals())

# %% tags=["plot"]
import matplotlib.pyplot as plt

from minorm.labs.pictures import show
from minorm.plots import BLUE, GREEN, GREY, ORANGE, STYLE, VERMILLION

plt.rcParams.update(STYLE)

# %% [markdown]
# ## Task 9.1: merging moments
#
# Rank r has m_r numbers of a channel, with mean_r and var_r (dividing by m_r). Together they have m = sum(m_r)
# numbers. Their mean is not the mean of the means, unless all m_r are equal. And their variance is not the mean of
# the variances, not even then: it lacks how far the means are apart. Both are right in Chan's formula, here for any
# number of parts at once:
#
#     mean = sum(m_r * mean_r) / m
#     var  = sum(m_r * (var_r + (mean_r - mean)^2)) / m
#
# (Why not var_r + mean_r^2, from which mean^2 is subtracted at the end? Lab 2 knows.)
#
# A part without numbers counts for nothing, whatever stands in its mean and var: NaN, most likely.


# %%
def merge(m, mean, var):
    """m, mean and var of all parts together: a number and two (C,). Given are m: (R,), mean and var: (R, C)."""
    raise NotImplementedError("Task 9.1: the moments of all parts together")


# %% tags=["check"]
check("9.1")

# %% [markdown]
# ### How wrong the obvious ways are
#
# A batch of 512 with mean 30 and variance 1 is cut among more and more ranks. The fewer numbers a rank has, the more
# the mean of the variances forgets; and in unequal parts, a rank with two numbers counts as much as one with a
# hundred. Summing x and x^2 over the ranks in float32, and taking E[x^2] - E[x]^2, needs one message as well and
# forgets nothing; but see for yourself.

# %% tags=["plot"]
rng = np.random.default_rng(0)
x = (rng.standard_normal((512, 32)) + 30).astype(np.float32)
big = x.var(0, dtype=np.float64)
RANKS = [2, 4, 8, 16, 32, 64, 128]


def worst(var):
    """The largest relative error of the variances."""
    return max(float(np.abs(var / big - 1).max()), 1e-16)


def moments_of(parts):
    """m, mean and var of each part."""
    m = np.array([len(part) for part in parts], np.float64)
    return m, *np.array([[part.mean(0, dtype=float), part.var(0, dtype=float)] for part in parts]).transpose(1, 0, 2)


errors = []
for ranks in RANKS:
    m, mean, var = moments_of(np.split(x, np.sort(rng.choice(np.arange(2, 512, 2), ranks - 1, replace=False))))
    _, _, var_of_equal = moments_of(np.split(x, ranks))
    sums = np.array([[part.sum(0), np.square(part).sum(0)] for part in np.split(x, ranks)], np.float32).sum(0) / 512
    errors.append(
        [worst(v) for v in (var.mean(0), var_of_equal.mean(0), sums[1] - sums[0] ** 2, merge(m, mean, var)[2])]
    )
figure, panel = plt.subplots(figsize=(9, 4.6), layout="constrained")
for (name, color, style), values in zip(
    (
        ("mean of the variances, unequal parts", VERMILLION, "s--"),
        ("mean of the variances, equal parts", GREEN, "D-."),
        ("sums of x and x², float32", ORANGE, "^:"),
        ("merged, unequal parts", BLUE, "o-"),
    ),
    np.transpose(errors),
    strict=True,
):
    panel.loglog(RANKS, values, style, color=color, markersize=6, linewidth=1.8, label=name)
panel.set_xticks(RANKS, [str(ranks) for ranks in RANKS])
panel.minorticks_off()
panel.set(title="Merged moments are exact, however many ranks there are", ylim=(1e-16, 10))
panel.set(xlabel="ranks that share 512 numbers", ylabel="relative error of the variance")
panel.legend(loc="center right", bbox_to_anchor=(0.99, 0.4))
show(
    figure,
    "Relative error of the variance, logarithmic, against the number of ranks from 2 to 128, in four ways. The "
    "mean of the variances is the worst, with parts unequal and equal, between 0.02 and 0.5. Sums of x and of its "
    "square in float32 are off by somewhat less than 0.001. Merged moments stay near 1e-14.",
)

# %% [markdown]
# ## Ranks in one process
#
# `simulate(R, program)` runs `program(rank)` R times at once, each time with another `rank`, and returns the list of
# results. A program knows `rank.number` and `rank.size`, and talks to the others with
#
# - `rank.all_gather(array)`: an array with what each rank sent, along a new first axis;
# - `rank.all_reduce(array)`: the sum over the ranks of what they sent.
#
# All ranks must call the same, in the same order, with arrays of one shape; where one did not, a real program would
# hang, and this one says who waits for whom. With MPI (mpi4py) or NCCL the collectives have the same names. A message
# costs the same 10 microseconds or so whether it carries one number or a thousand: so send few.

# %% tags=["plot"]
print(simulate(3, lambda rank: rank.all_reduce(np.array([rank.number, 1.0]))))

# %% [markdown]
# ## Task 9.2: everybody's moments
#
# Each rank has a count m, and mean and var, two vectors of C numbers. One call of `all_gather` is enough: put the three
# into one array. Every rank then merges for itself, and all get the same bits.


# %%
def all_moments(rank, m, mean, var):
    """m, mean and var of the numbers of all ranks, in one message. m: a number, mean and var: (C,)."""
    raise NotImplementedError("Task 9.2: the moments of all ranks")


# %% tags=["check"]
check("9.2")

# %% [markdown]
# ## Task 9.3: the gradient
#
# In lab 3, for a channel with m numbers,
#
#     dx = rstd * (g - sum(g) / m - xhat * sum(g * xhat) / m),      g = dy * s
#
# The two sums came from the mean and the variance, which depend on every x and act on every y. Now they depend on
# the x of all ranks, so the sums run over all ranks, and m is the number of all. A rank has the rows of g and xhat
# of its own images, both (m_r, C). Send one message.


# %%
def input_gradient(rank, g, xhat, rstd):
    """dx of this rank's rows; g and xhat: (m_r, C), xhat from the statistics of all ranks, rstd: (C,)."""
    raise NotImplementedError("Task 9.3: dx through statistics that all ranks share")


# %% tags=["check"]
check("9.3")

# %% [markdown]
# ## Task 9.4: one loss
#
# The whole batch's loss is the mean over its images. A rank's loss is the mean over *its* images; the mean of the
# ranks' losses is another number, unless all have equally many images. So each rank multiplies its loss by its *share*
# m_r / m before it goes backward: then the losses, and with them the gradients of all weights, only need to be summed
# over the ranks. (It must be before: inside BatchNorm, gradients of all ranks are already added to each other.)
#
# Write the share, from the number of images that this rank has, and the sum of the gradients. These are arrays of many
# shapes, one a parameter: send them in one message, end to end, and take the sum apart again.


# %%
def share(rank, images):
    """The factor of this rank's loss: how much of the whole batch are its images?"""
    raise NotImplementedError("Task 9.4: the share of a rank's loss")


def sum_gradients(rank, gradients):
    """The gradients, a list of arrays, each summed over all ranks; in one message."""
    raise NotImplementedError("Task 9.4: gradients summed over the ranks")


# %% tags=["check"]
check("9.4")

# %% [markdown]
# ## Task 9.5: a layer that talks to the others
#
# A backend for a BatchNorm layer of this rank. `norm` are the library's reference functions, which know this rank's
# images only; put your merging between them and the layer. `nest.rows` is the number of channels C, `nest.columns` the
# m of this rank.
#
# - `moments(nest, x, centered)` returns k, d and var, three float64 vectors of C numbers: k is the mean, rounded to the
#   type of x, and k + d the mean. `norm.moments` gives them for this rank.
# - `grad_sums(nest, dy, x, stats, s)` returns sum(g) and sum(g * xhat), which `norm.grad_sums` gives for this rank.
#   Afterwards the library divides both by *this rank's* m, for it knows of no other. Make sure that the right
#   quotients come out.
#
# One message each. ds and db need nothing: they are gradients of parameters, which `sum_gradients` sums.

# %%
from minorm.kernels.partial import PartialBackend
from minorm.kernels.reference import norm


def sync_backend(rank):
    """PartialBackend whose statistics and sums are those of all ranks."""

    raise NotImplementedError("Task 9.5: a backend that talks to the other ranks")


# %% tags=["check"]
check("9.5")

# %% [markdown]
# ### Five ranks train as one
#
# Batches of 64 digits, cut at 4, 12, 24 and 40: five ranks with 4, 8, 12, 16 and 24 images. Your functions are in
# every BatchNorm layer, in the loss and in the sum of the gradients (`digits.losses_over_ranks` is thirty lines:
# read it). Beside it, each rank normalizes with its own statistics, which is how most people train.

# %% tags=["plot"]
CUTS = (4, 12, 24, 40)
one = digits_network.losses(None)
synced = digits_network.losses_over_ranks(CUTS, sync_backend, share, sum_gradients)
alone = digits_network.losses_over_ranks(CUTS, None, share, sum_gradients)
figure, (left, right) = plt.subplots(1, 2, figsize=(12.5, 4.6), layout="constrained")
steps = np.arange(1, len(one) + 1)
left.plot(steps, one, "o", color=GREY, mfc="none", markersize=10, label="one computer, the whole batch")
for name, losses, color, style in (
    ("five ranks, each its own statistics", alone, VERMILLION, "s--"),
    ("five ranks, merged statistics", synced, BLUE, "o-"),
):
    left.plot(steps, losses, style, color=color, markersize=5, linewidth=1.4, label=name)
    right.plot(steps, np.abs(losses - one), style, color=color, markersize=5, label=name)
left.set(title="With merged statistics, five ranks train as one", ylim=(0, None))
left.set(xlabel="step", ylabel="loss of the whole batch (cross entropy)")
left.legend(loc="upper right")
right.set_yscale("symlog", linthresh=1e-17)
right.set_yticks([0, 1e-16, 1e-12, 1e-8, 1e-4, 1], ["0", "1e-16", "1e-12", "1e-8", "1e-4", "1"])
right.set(title="Merged, only rounding makes a difference", ylim=(-3e-18, 10))
right.set(xlabel="step", ylabel="distance from one computer's loss")
right.legend(loc="center right")
show(
    figure,
    "Left, the loss of the whole batch at each step: rings of one computer, points of five ranks with merged "
    "statistics inside them, and five ranks with statistics of their own, which drift a little off. Right, the "
    "distance from one computer's loss, logarithmic: merged below 1e-15, own statistics between 0.0001 and 0.1.",
)
for name, losses in (("merged statistics", synced), ("statistics of their own", alone)):
    print(f"ranks with {name}: largest difference from one computer's loss {np.abs(losses - one).max():.1e}")
assert np.allclose(synced, one, rtol=1e-9)

# %% [markdown]
# ## Task 9.6: the same bits
#
# Fifteen digits are not all: run the same training on two computers instead of one, and is it the same to the last
# bit? Sums of floats depend on their order, (a + b) + c is not a + (b + c). Let eight ranks have a vector each, and
# let a *process*, a computer say, carry several ranks. If every process first adds up what it carries, and the parts
# are added afterwards,
#
#     one process     ((((((0 + 1) + 2) + 3) + 4) + 5) + 6) + 7
#     two processes   (((0 + 1) + 2) + 3) + (((4 + 5) + 6) + 7)
#
# the brackets differ, and so do the bits. Now set the brackets as in a tree: neighbours are added, then pairs of
# neighbours, and so on; where a level has an odd number, the last goes up alone. With 1, 2, 4 or 8 processes the
# ranks of each are a whole subtree.
#
# Write the sum as a tree, and with it the sum over processes, each of which carries equally many of the eight ranks.
# Each sends one vector, in one message.


# %%
def tree_sum(vectors):
    """The sum of vectors: (S, n) over S, added as a tree."""
    raise NotImplementedError("Task 9.6: the sum as a tree")


def sum_over(process, vectors):
    """The sum of the vectors of all processes, (n,), the same bits for 1, 2, 4 and 8 of them. This one has vectors:
    (8 / process.size, n); it speaks like a rank, with all_gather.
    """
    raise NotImplementedError("Task 9.6: the sum over processes")


# %% tags=["check"]
check("9.6")

# %% tags=["plot"]
vectors = (rng.standard_normal((8, 1000)) * 10.0 ** rng.integers(-3, 4, (8, 1))).astype(np.float32)


def in_order(process, mine):
    """What a process carries first, then the parts, in their order."""
    return np.add.accumulate(process.all_gather(np.add.accumulate(mine)[-1]))[-1]


for name, way in (("added in order", in_order), ("added as a tree", sum_over)):
    sums = []
    for size in (1, 2, 4, 8):
        shares = np.split(vectors, size)
        sums.append(simulate(size, lambda process, way=way, shares=shares: way(process, shares[process.number]))[0])
    differ = [int(np.count_nonzero(found != sums[0])) for found in sums]
    print(f"{name}: of 1000 numbers, {differ[1]}, {differ[2]} and {differ[3]} differ between 1 process and 2, 4, 8")

# %% [markdown]
# `minorm.distributed` adds up like that, and merges statistics in the same tree: whoever carries the ranks, training
# gives the same file. The ranks of this lab are its ranks. With mpi4py and an MPI (`pip install mpi4py mpich`) save the
# notebook as a Python file, and two processes carry them for real, with the same numbers:
#
#     mpiexec -n 2 python lab09_sync_batch_norm.py

# %% [markdown]
# ## To think about
#
# 1. The running variance divides by m - 1, if it is asked to. By which m does it in your synced layers, and by which
#    should it? How wrong is it with two images a rank and 7 x 7 pixels?
# 2. How many messages does a step cost, in a network with 50 BatchNorm layers? Which of them can run while the rank
#    computes something else, and which keep it waiting?
# 3. Six ranks on two processes: which sums can each process add up alone, if the tree is to stay the same? And on four?
# 4. Most people train large batches over many ranks without SyncBatchNorm, and it works. When does it not? (Think of
#    what a rank holds in detection or segmentation; and of what the small batches of lab 5 did.
#    docs/which-normalization.md shows how small is too small.)
