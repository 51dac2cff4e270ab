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
# # Lab 0: Axes
#
# **The question.** BatchNorm, InstanceNorm, GroupNorm and LayerNorm share one equation:
#
#     y = (x - mean) / sqrt(var + eps) * s + b
#
# What is the difference between them? There is only one: *which elements share a mean and
# a variance.*
#
# In this lab you describe this choice in four ways. You begin with axes, then write them
# as a bit mask, draw a picture, and end with the loops that run over memory. This library
# turns every normalization into such loops (`minorm/normalization/nest.py`).
#
# You need to know NumPy's axes and `reshape`. Time: about 60 minutes.
#
# Fill in each function that raises `NotImplementedError`, and run the check below it.
# When you have finished, run `minorm labs check 0 lab00_axes.ipynb` in a terminal. It
# asks the same questions with other numbers and shows your points.

# %%
import numpy as np

from minorm.labs.visible import checker

check = checker(0, globals())

# %% tags=["plot"]
import matplotlib.pyplot as plt

from minorm.labs.pictures import show
from minorm.plots import BLUE, GREY, STYLE

plt.rcParams.update(STYLE)

# %% [markdown]
# ## The letters
#
# `x` has the shape (N, C, H, W): N images, C channels in each image, and H x W pixels in
# each channel. Other data has fewer or more axes after N and C: (N, C), (N, C, L) or (N,
# C, D, H, W).
#
# - We take a mean *over* some axes. These axes are **reduced**.
# - The other axes are **kept**. There is a separate mean for each index along them.
# - All elements that share one mean form a **row**. They need not be neighbours in
#   memory.
# - `m` is the number of elements in a row.
#
# NumPy takes the mean over the reduced axes in one line:

# %%
x = np.arange(2 * 3 * 2 * 2, dtype=np.float64).reshape(2, 3, 2, 2)
print("one mean for each channel:", x.mean(axis=(0, 2, 3)))

# %% [markdown]
# ## Task 0.1: which axes?
#
# | kind | one mean for each ... | reduced |
# |---|---|---|
# | batch | channel | all axes except 1 |
# | instance | channel of each image | all axes except 0 and 1 |
# | layer | image | all axes except 0 |
# | group | group of channels of each image | see below |
#
# GroupNorm first cuts axis 1 into two axes: the group, and the channel within the group.
# The shape (N, C, H, W) becomes (N, G, C/G, H, W), which has one axis more. In this new
# array, all axes except N and G are reduced.


# %%
def reduced_axes(kind, ndim):
    """The reduced axes of data with `ndim` axes: a tuple in rising order.

    kind: "batch", "instance", "layer" or "group".
    For "group", ndim counts the axes of x before the split. The answer names axes of x
    after the split, which has ndim + 1 axes.
    """
    raise NotImplementedError("Task 0.1: the reduced axes of each kind of normalization")


# %% tags=["check"]
check("0.1")

# %% [markdown]
# ## Task 0.2: axes as a bit mask
#
# File formats and accelerators store a set of axes as one integer. Bit i is set if axis i
# is reduced. TensorRT's normalization layer takes such an integer. For example, the axes
# (0, 2, 3) give 2^0 + 2^2 + 2^3 = 13. In binary this is 1101: the rightmost digit is bit
# 0.


# %%
def to_mask(axes):
    """The integer whose bit i is set for each i in axes."""
    raise NotImplementedError("Task 0.2: a set of axes as an integer")


def to_axes(mask):
    """The axes in a mask, a tuple in rising order."""
    raise NotImplementedError("Task 0.2: the axes in an integer")


# %% tags=["check"]
check("0.2")

# %% [markdown]
# ## Task 0.3: groups
#
# The split must not move any element. Group 0 holds the first C/G channels, group 1 holds
# the next C/G channels, and so on. This is what `reshape` does.
#
# The number of groups must divide C. If it does not, the caller made a mistake: raise a
# `ValueError` that names both numbers.


# %%
def split_groups(x, num_groups):
    """x of shape (N, C, ...) as (N, G, C/G, ...).

    Raises ValueError if num_groups does not divide C.
    """
    raise NotImplementedError("Task 0.3: cut axis 1 into groups")


# %% tags=["check"]
check("0.3")

# %% [markdown]
# ## Task 0.4: which elements share a mean with this one?
#
# Two elements are in the same row if their indices are equal along every kept axis. Write
# a function that gets one element and marks all elements of its row.


# %%
def same_row(shape, axes, index):
    """A Boolean array of `shape`: True for each element in the same row as `index`.

    axes: the reduced axes.
    """
    raise NotImplementedError(
        "Task 0.4: True for each element of the row that `index` is in"
    )


# %% tags=["check"]
check("0.4")

# %% [markdown]
# ### The picture
#
# The next cell draws four images. Each image has six channels, and each channel has five
# pixels. Each image is one line of cells, and each channel is a block of five cells. One
# row is blue: the row that contains the third channel of the second image.

# %% [markdown]
# **Guess before you run.** How many cells will be blue for BatchNorm, InstanceNorm,
# GroupNorm with 3 groups, and LayerNorm? Write down four numbers.

# %% tags=["plot"]
SHAPE, GROUPS, ELEMENT = (4, 6, 5), 3, (1, 2, 0)


def rows_of(kind):
    if kind != "group":
        return same_row(SHAPE, reduced_axes(kind, len(SHAPE)), ELEMENT)
    split = split_groups(np.zeros(SHAPE), GROUPS).shape
    group, channel = divmod(ELEMENT[1], split[2])
    index = (ELEMENT[0], group, channel, ELEMENT[2])
    return same_row(split, reduced_axes(kind, len(SHAPE)), index).reshape(SHAPE)


figure, panels = plt.subplots(2, 2, figsize=(10, 5.6), layout="constrained")
for panel, kind in zip(panels.flat, ("batch", "instance", "group", "layer"), strict=True):
    row = rows_of(kind)
    cells = row.reshape(SHAPE[0], -1)
    for (line, column), inside in np.ndenumerate(cells):
        face = BLUE if inside else "white"
        panel.add_patch(
            plt.Rectangle(
                (column, line), 1, 1, facecolor=face, edgecolor=GREY, linewidth=0.6
            )
        )
    for edge in np.arange(SHAPE[1] + 1) * SHAPE[2]:
        panel.plot(
            [edge, edge], [0, SHAPE[0]], color="black", linewidth=1.2, clip_on=False
        )
    name = (
        f"GroupNorm, {GROUPS} groups" if kind == "group" else f"{kind.capitalize()}Norm"
    )
    panel.set_title(f"{name}: m = {row.sum()} of {row.size} share a mean")
    panel.set(xlim=(0, cells.shape[1]), ylim=(SHAPE[0], 0))
    panel.set(xlabel="channel (5 pixels each)", ylabel="image")
    panel.set_xticks(SHAPE[2] * (np.arange(SHAPE[1]) + 0.5), range(SHAPE[1]))
    panel.set_yticks(np.arange(SHAPE[0]) + 0.5, range(SHAPE[0]))
    panel.tick_params(length=0)
    panel.grid(visible=False)
    panel.spines[:].set_visible(False)
figure.suptitle(
    "The cells that share one mean and one variance", fontsize=13, fontweight="bold"
)
show(
    figure,
    "Four grids of cells, one for each norm. Each grid shows 4 images with 6 channels "
    "of 5 pixels. The cells that share a mean with one element are blue. BatchNorm: one "
    "channel in all images, 20 cells. InstanceNorm: one channel of one image, 5 cells. "
    "GroupNorm with 3 groups: two neighbouring channels of one image, 10 cells. "
    "LayerNorm: all cells of one image, 30 cells.",
)

# %% [markdown]
# **What you see.** BatchNorm takes 4 x 5 = 20 cells: one channel of all images.
# InstanceNorm takes 5 cells: one channel of one image. GroupNorm takes 2 x 5 = 10 cells:
# the two channels of one group in one image. LayerNorm takes 6 x 5 = 30 cells: all
# channels of one image.

# %% [markdown]
# ## Task 0.5: from axes to loops
#
# Memory has no axes. An array is stored there as one long line of numbers. Each axis
# becomes a loop with a count and a step. The count is the number of turns. The step is
# the distance between two turns, measured in elements. For x of shape (2, 3, 4, 5) in
# row-major order:
#
# | axis | count | step |
# |---|---|---|
# | 0 | 2 | 60 |
# | 1 | 3 | 20 |
# | 2 | 4 | 5 |
# | 3 | 5 | 1 |
#
# BatchNorm keeps axis 1 and reduces the axes 0, 2 and 3. The axes 2 and 3 are neighbours
# of the same kind. So 4 turns of step 5 around 5 turns of step 1 are the same as 20 turns
# of step 1. **Merge them:** two neighbours of the same kind become one loop if the outer
# step equals the inner step times the inner count. The merged loop has the inner step.
# This is left:
#
#     keep   (3, 20)
#     reduce (2, 60) (20, 1)
#
# Leave out axes of length 1: they are not loops. Their neighbours may then become
# neighbours of each other and merge.
#
# Every normalization in common use needs at most two loops of each kind, so *four loops*
# in all. (The real `nest.plan` also tracks the steps of scale and bias. It merges two
# loops only if those steps fit as well.)


# %%
def loops(shape, axes):
    """(keep, reduce) of a row-major array: two lists of (count, step), outer loops first.

    axes: the reduced axes.
    """
    raise NotImplementedError(
        "Task 0.5: the kept and the reduced loops, neighbours of one kind merged"
    )


# %% tags=["check"]
check("0.5")

# %% [markdown]
# ## Task 0.6: run the loops
#
# Now compute a mean from the flat line of numbers and the two lists of loops, and nothing
# else. A list of loops visits these positions:
#
#     position = i0 * step0 + i1 * step1 + ...
#
# Here i0 runs from 0 to count0 - 1, i1 runs from 0 to count1 - 1, and so on. An empty
# list of loops visits position 0 only.
#
# Write `positions` first. Then write `means_by_loops`, which takes one mean for each kept
# position.


# %%
def positions(some_loops):
    """A list of all positions that these loops visit. The outer loop is the slowest."""
    raise NotImplementedError("Task 0.6: the positions that a list of loops visits")


def means_by_loops(flat, keep, reduce):
    """The mean of each row, as a one-dimensional array.

    flat: the elements in the order of memory, a one-dimensional array.
    """
    raise NotImplementedError("Task 0.6: the mean of each row, taken with the loops")


# %% tags=["check"]
check("0.6")

# %% [markdown]
# ### Axes, masks and loops agree
#
# The next cell takes the same means in two ways, for every set of axes of a small array:

# %% tags=["check"]
x = np.random.default_rng(0).standard_normal((2, 3, 1, 4))
for mask in range(1, 16):
    axes = to_axes(mask)
    keep, reduce = loops(x.shape, axes)
    assert np.allclose(means_by_loops(x.ravel(), keep, reduce), x.mean(axis=axes).ravel())
print("15 masks agree; the last one's loops are", keep, reduce)

# %% [markdown]
# The library answers the same question. `mn.explain` plans the function without computing
# anything, and shows the loops that its kernels would get:

# %% tags=["check"]
import minorm as mn
import minorm.functional as F

print(mn.explain(F.batch_norm, (32, 64, 56, 56)).nest)
print("yours:", *loops((32, 64, 56, 56), (0, 2, 3)))

# %% [markdown]
# ## To think about
#
# 1. Suppose the batch holds one image only. Two of the four panels then look alike. Which
#    two? What does that say about training with very small batches?
# 2. A channels-last array has the shape (N, C, H, W) but its memory order is N, H, W, C.
#    Which loops does BatchNorm get there? Why does a fast kernel for these loops look
#    different from a kernel for the row-major array?
# 3. An array with five axes has 31 sets of reduced axes. Two of them need more than two
#    loops of one kind. Find them with `loops`.
