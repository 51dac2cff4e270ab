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
# **The question.** A batch of 64 images is split among several computers, called *ranks*.
# Each rank has a copy of the model and computes gradients from its own images. Most
# layers need nothing from the other ranks. BatchNorm does: it takes the mean and the
# variance over images that no single rank has. What must the ranks send each other, so
# that they train like one computer with the whole batch, except for rounding?
#
# In this lab you merge the moments of parts of any size. Then you compute a gradient
# through statistics that all ranks share. Five ranks train a network with your functions
# in its layers. At the end you compute a sum that has the same bits for any number of
# computers.
#
# You need labs 1 and 3. Lab 2 helps. Time: about 90 minutes.

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
# Rank r has m_r numbers of a channel, with the mean mean_r and the variance var_r (which
# divides by m_r). Together the ranks have m = sum(m_r) numbers.
#
# - The mean of all numbers is the mean of the means only if all m_r are equal.
# - The variance of all numbers is not the mean of the variances, even if all m_r are
#   equal. The distances between the means are missing.
#
# Chan's formula computes both correctly, for any number of parts:
#
#     mean = sum(m_r * mean_r) / m
#     var  = sum(m_r * (var_r + (mean_r - mean)^2)) / m
#
# Why not add up var_r + mean_r^2 and subtract mean^2 at the end? Lab 2 has the answer.
#
# A part may be empty (m_r = 0). Then its mean and var have no meaning and are probably
# NaN. Such a part must not change the result.


# %%
def merge(m, mean, var):
    """m, mean and var of all parts together: a number and two arrays of shape (C,).

    m: one number for each part, (R,). mean and var: (R, C).
    """
    # SOLUTION 9.1: the moments of all parts together
    there = m > 0
    weight = m[there][:, None] / m.sum()
    mean, var = mean[there], var[there]
    middle = (weight * mean).sum(0)
    return m.sum(), middle, (weight * (var + (mean - middle) ** 2)).sum(0)
    # END


# %% tags=["check"]
check("9.1")

# %% [markdown]
# ### How wrong are simpler ways?
#
# A batch of 512 numbers with mean 30 and variance 1 is split among more and more ranks.
# The next plot compares four ways to compute the variance:
#
# - the mean of the variances, with parts of different sizes;
# - the mean of the variances, with parts of equal size;
# - the sums of x and x^2 over all ranks, in float32, and then E[x^2] - E[x]^2;
# - your `merge`, with parts of different sizes.

# %% [markdown]
# **Guess before you run.** Which of the first three ways has the largest error, and which
# the smallest? Which errors grow with the number of ranks?

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
    mean = np.array([part.mean(0, dtype=float) for part in parts])
    return m, mean, np.array([part.var(0, dtype=float) for part in parts])


errors = []
for ranks in RANKS:
    cuts = np.sort(rng.choice(np.arange(2, 512, 2), ranks - 1, replace=False))
    m, mean, var = moments_of(np.split(x, cuts))
    equal_parts = np.split(x, ranks)
    _, _, var_of_equal = moments_of(equal_parts)
    sums = [[part.sum(0), np.square(part).sum(0)] for part in equal_parts]
    mean_of_x, mean_of_squares = np.array(sums, np.float32).sum(0) / 512
    found = (
        var.mean(0),
        var_of_equal.mean(0),
        mean_of_squares - mean_of_x**2,
        merge(m, mean, var)[2],
    )
    errors.append([worst(v) for v in found])
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
    panel.loglog(
        RANKS, values, style, color=color, markersize=6, linewidth=1.8, label=name
    )
panel.set_xticks(RANKS, [str(ranks) for ranks in RANKS])
panel.minorticks_off()
panel.set(title="Four ways to merge variances", ylim=(1e-16, 10))
panel.set(xlabel="ranks that share 512 numbers", ylabel="relative error of the variance")
panel.legend(loc="center right", bbox_to_anchor=(0.99, 0.4))
show(
    figure,
    "Relative error of the variance on a logarithmic axis, against the number of ranks "
    "from 2 to 128, for four ways to compute it. The mean of the variances is the "
    "worst, with unequal and with equal parts: between 0.02 and 0.5. Sums of x and of "
    "its square in float32 have an error a little below 0.001. Merged moments stay near "
    "1e-14.",
)

# %% [markdown]
# **What you see.** The mean of the variances is wrong by 2 to 50 %, and the error grows
# with the number of ranks: a rank with few numbers has a small variance, and the
# distances between the means are missing. Parts of different sizes make it worse, because
# a rank with two numbers counts as much as a rank with a hundred. The sums in float32
# lose no part of the variance, but rounding costs nearly 0.1 %. Merged moments are exact
# to about 14 digits for any number of ranks.

# %% [markdown]
# ## Ranks in one process
#
# `simulate(R, program)` runs `program(rank)` R times at once, each time with another
# `rank`. It returns the list of results. A program can read `rank.number` and
# `rank.size`. It talks to the other ranks with two functions:
#
# - `rank.all_gather(array)` returns an array with what each rank sent, along a new first
#   axis.
# - `rank.all_reduce(array)` returns the sum over the ranks of what they sent.
#
# All ranks must make the same calls in the same order, with arrays of the same shape. If
# one rank does not, a real program hangs. This simulation instead reports which rank
# waits for which. MPI (mpi4py) and NCCL have functions with the same names. A message
# costs about 10 microseconds, for one number as well as for a thousand. So send few
# messages.

# %% tags=["plot"]
print(simulate(3, lambda rank: rank.all_reduce(np.array([rank.number, 1.0]))))

# %% [markdown]
# ## Task 9.2: the moments of all ranks
#
# Each rank has a count m, and two vectors mean and var with C numbers each. One call of
# `all_gather` is enough: put all three into one array. Each rank then merges for itself,
# and all ranks get the same bits.


# %%
def all_moments(rank, m, mean, var):
    """m, mean and var over all ranks, with one message.

    m: a number. mean and var: (C,).
    """
    # SOLUTION 9.2: the moments of all ranks
    sent = rank.all_gather(np.stack([np.full(mean.shape, m, np.float64), mean, var]))
    return merge(sent[:, 0, 0], sent[:, 1], sent[:, 2])
    # END


# %% tags=["check"]
check("9.2")

# %% [markdown]
# ## Task 9.3: the gradient
#
# In lab 3, the gradient for a channel with m numbers was
#
#     dx = rstd * (g - sum(g) / m - xhat * sum(g * xhat) / m),      g = dy * s
#
# The two sums come from the mean and the variance. Both depend on every x, and every y
# depends on them. Now they depend on the x of all ranks. So the sums run over all ranks,
# and m is the number of elements of all ranks. A rank has the rows of g and xhat for its
# own images, both of shape (m_r, C). Send one message.


# %%
def input_gradient(rank, g, xhat, rstd):
    """dx of this rank's rows.

    g and xhat: (m_r, C), where xhat uses the statistics of all ranks. rstd: (C,).
    """
    # SOLUTION 9.3: dx through statistics that all ranks share
    sums = np.stack(
        [g.sum(0), (g * xhat).sum(0), np.full(rstd.shape, len(g), np.float64)]
    )
    sum_g, sum_gx, m = rank.all_reduce(sums)
    return rstd * (g - sum_g / m - xhat * sum_gx / m)
    # END


# %% tags=["check"]
check("9.3")

# %% [markdown]
# ## Task 9.4: one loss
#
# The loss of the whole batch is the mean over all its images. The loss of a rank is the
# mean over *its* images. If the ranks have different numbers of images, the mean of the
# ranks' losses is not the loss of the batch.
#
# So each rank multiplies its loss by its *share* m_r / m before the backward pass. Then
# the losses and the gradients of the weights only need to be summed over the ranks. The
# multiplication must come before the backward pass, because BatchNorm already adds up
# gradients of all ranks there.
#
# Write `share`, which gets the number of images of this rank. Then write `sum_gradients`.
# The gradients are arrays of many shapes, one for each parameter. Join them into one
# vector, send it in one message, and split the sum again.


# %%
def share(rank, images):
    """The factor of this rank's loss: its images as a fraction of the whole batch."""
    # SOLUTION 9.4: the share of a rank's loss
    return images / float(rank.all_reduce(images))
    # END


def sum_gradients(rank, gradients):
    """The list of gradients, each summed over all ranks, with one message."""
    # SOLUTION 9.4: gradients summed over the ranks
    flat = rank.all_reduce(np.concatenate([gradient.ravel() for gradient in gradients]))
    ends = np.cumsum([gradient.size for gradient in gradients])
    pieces = np.split(flat, ends[:-1])
    return [piece.reshape(g.shape) for piece, g in zip(pieces, gradients, strict=True)]
    # END


# %% tags=["check"]
check("9.4")

# %% [markdown]
# ## Task 9.5: a layer that talks to the other ranks
#
# Write a backend for the BatchNorm layers of one rank. `norm` holds the library's
# reference functions. They see only the images of this rank. Put your merging between
# these functions and the layer. `nest.rows` is the number of channels C. `nest.columns`
# is the m of this rank.
#
# - `moments(nest, x, centered)` returns k, d and var, three float64 vectors with C
#   numbers. k is the mean, rounded to the type of x. k + d is the exact mean.
#   `norm.moments` computes them for this rank.
# - `grad_sums(nest, dy, x, stats, s)` returns sum(g) and sum(g * xhat). `norm.grad_sums`
#   computes them for this rank. The library then divides both by the m of *this rank*,
#   because it knows no other m. Make sure that the quotients are right.
#
# Send one message in each function. ds and db need no message here: they are gradients of
# parameters, and `sum_gradients` sums those.

# %%
from minorm.kernels.partial import PartialBackend
from minorm.kernels.reference import norm


def sync_backend(rank):
    """A PartialBackend with the statistics and the gradient sums of all ranks."""

    # SOLUTION 9.5: a backend that talks to the other ranks
    def moments(nest, x, centered):
        k, d, var = norm.moments(nest, x, centered)
        _, mean, var = all_moments(rank, nest.columns, k + d, var)
        k = mean.astype(x.dtype).astype(np.float64)
        return k, mean - k, var

    def grad_sums(nest, dy, x, stats, s):
        here = np.full(nest.rows, nest.columns, np.float64)
        sums = norm.grad_sums(nest, dy, x, stats, s)
        m, sum_g, sum_gx = rank.all_reduce(np.stack([here, *sums]))
        return sum_g * (here / m), sum_gx * (here / m)

    return PartialBackend(moments=moments, grad_sums=grad_sums)
    # END


# %% tags=["check"]
check("9.5")

# %% [markdown]
# ### Five ranks train together
#
# Batches of 64 digits are cut at 4, 12, 24 and 40. So five ranks have 4, 8, 12, 16 and 24
# images. Your functions are in every BatchNorm layer, in the loss, and in the sum of the
# gradients. (`digits_network.losses_over_ranks` has thirty lines and is worth reading.)
# For comparison, five other ranks normalize with their own statistics only. This is how
# most people train.

# %% [markdown]
# **Guess before you run.** How far will the losses of the five ranks be from those of one
# computer: with merged statistics, and with separate statistics?

# %% tags=["plot"]
CUTS = (4, 12, 24, 40)
one = digits_network.losses(None)
synced = digits_network.losses_over_ranks(CUTS, sync_backend, share, sum_gradients)
alone = digits_network.losses_over_ranks(CUTS, None, share, sum_gradients)
figure, (left, right) = plt.subplots(1, 2, figsize=(12.5, 4.6), layout="constrained")
steps = np.arange(1, len(one) + 1)
rings = {"color": GREY, "mfc": "none", "markersize": 10}
left.plot(steps, one, "o", **rings, label="one computer, the whole batch")
for name, losses, color, style in (
    ("five ranks, separate statistics", alone, VERMILLION, "s--"),
    ("five ranks, merged statistics", synced, BLUE, "o-"),
):
    look = {"color": color, "markersize": 5, "label": name}
    left.plot(steps, losses, style, linewidth=1.4, **look)
    right.plot(steps, np.abs(losses - one), style, **look)
left.set(title="Loss of the whole batch", ylim=(0, None))
left.set(xlabel="step", ylabel="loss of the whole batch (cross entropy)")
left.legend(loc="upper right")
right.set_yscale("symlog", linthresh=1e-17)
TICKS = [0, 1e-16, 1e-12, 1e-8, 1e-4, 1]
right.set_yticks(
    TICKS, [f"{tick:.0e}" if 0 < tick < 1 else f"{tick:g}" for tick in TICKS]
)
right.set(title="Distance from the loss of one computer", ylim=(-3e-18, 10))
right.set(xlabel="step", ylabel="absolute difference of the losses")
right.legend(loc="center right")
show(
    figure,
    "Left, the loss of the whole batch at each step. Rings show one computer, points "
    "inside the rings show five ranks with merged statistics, and squares show five "
    "ranks with separate statistics, which lie a little beside the rings. Right, the "
    "distance from the loss of one computer on a logarithmic axis: below 1e-15 with "
    "merged statistics, between 0.0001 and 0.1 with separate statistics.",
)
for name, losses in (("merged statistics", synced), ("separate statistics", alone)):
    print(f"five ranks with {name}: difference at most {np.abs(losses - one).max():.1e}")
assert np.allclose(synced, one, rtol=1e-9)

# %% [markdown]
# **What you see.** With merged statistics, the losses of five ranks agree with those of
# one computer to about 15 digits. Only the rounding differs. With separate statistics,
# they differ from the first step on, by up to about 0.1.

# %% [markdown]
# ## Task 9.6: the same bits
#
# Fifteen equal digits are not all digits. Run the same training on two computers instead
# of one: are the results equal to the last bit? A sum of floats depends on the order,
# because (a + b) + c is not always a + (b + c).
#
# Take eight ranks with one vector each. A *process* (one computer, for example) runs one
# or more ranks. Suppose every process first adds up the vectors of its ranks in order,
# and the partial sums are added afterwards:
#
#     one process     ((((((0 + 1) + 2) + 3) + 4) + 5) + 6) + 7
#     two processes   (((0 + 1) + 2) + 3) + (((4 + 5) + 6) + 7)
#
# The brackets differ, and so do the bits. A tree of sums avoids this. Add neighbours
# first, then neighbouring pairs, and so on. If a level has an odd number of vectors, the
# last one moves up unchanged. With 1, 2, 4 or 8 processes, the ranks of each process form
# a complete subtree.
#
# Write the sum as a tree. Then write the sum over processes. Each process runs the same
# number of the eight ranks. Each process sends one vector in one message.


# %%
def tree_sum(vectors):
    """The sum of S vectors, added as a tree. vectors: (S, n)."""
    # SOLUTION 9.6: the sum as a tree
    level = list(vectors)
    while len(level) > 1:
        pairs = [a + b for a, b in zip(level[::2], level[1::2], strict=False)]
        level = pairs + level[2 * len(pairs) :]
    return level[0]
    # END


def sum_over(process, vectors):
    """The sum of the vectors of all processes, (n,), with the same bits for 1, 2, 4 or 8.

    process: like a rank, with all_gather. vectors: (8 / process.size, n).
    """
    # SOLUTION 9.6: the sum over processes
    return tree_sum(process.all_gather(tree_sum(vectors)))
    # END


# %% tags=["check"]
check("9.6")

# %% [markdown]
# The next cell adds eight random vectors of 1000 numbers with 1, 2, 4 and 8 processes. It
# counts the numbers that differ from the result of one process.

# %% [markdown]
# **Guess before you run.** How many of the 1000 numbers will differ if each process adds
# in order? How many will differ with your tree?

# %% tags=["plot"]
sizes_of_values = 10.0 ** rng.integers(-3, 4, (8, 1))
vectors = (rng.standard_normal((8, 1000)) * sizes_of_values).astype(np.float32)


def in_order(process, mine):
    """Each process adds its own vectors in order, then come the partial sums."""
    return np.add.accumulate(process.all_gather(np.add.accumulate(mine)[-1]))[-1]


for name, way in (("added in order", in_order), ("added as a tree", sum_over)):
    sums = []
    for size in (1, 2, 4, 8):
        shares = np.split(vectors, size)

        def program(process, way=way, shares=shares):
            return way(process, shares[process.number])

        sums.append(simulate(size, program)[0])
    two, four, eight = (int(np.count_nonzero(found != sums[0])) for found in sums[1:])
    print(f"{name}, numbers that differ from those of 1 process:")
    print(f"    {two} with 2 processes, {four} with 4, {eight} with 8")

# %% [markdown]
# **What you see.** In order, several hundred of the 1000 numbers differ with 2 and with 4
# processes. With 8 processes none differ, because each process then has one vector and
# the order is the same as with one process. With the tree no number differs, for any
# number of processes.
#
# `minorm.distributed` adds in the same way and merges statistics in the same tree. So
# training gives the same file, however many processes run the ranks. Its ranks are the
# ranks of this lab. With mpi4py and an MPI (`pip install mpi4py mpich`) you can save this
# notebook as a Python file and run it on two real processes. The numbers will be the
# same:
#
#     mpiexec -n 2 python lab09_sync_batch_norm.py

# %% [markdown]
# ## To think about
#
# 1. The running variance divides by m - 1 if you ask for it. Which m is it in your
#    synchronized layers? Which m should it be? How large is the error with two images on
#    each rank and 7 x 7 pixels?
# 2. How many messages does one step cost in a network with 50 BatchNorm layers? Which of
#    them can run while the rank computes something else? For which must it wait?
# 3. Six ranks run on two processes. Which sums can each process compute alone, if the
#    tree is to stay the same? What about four processes?
# 4. Most people train large batches on many ranks without SyncBatchNorm, and it works.
#    When does it fail? Think of how many images a rank has in detection or segmentation,
#    and of the small batches in lab 5. (docs/which-normalization.md shows how small is
#    too small.)
