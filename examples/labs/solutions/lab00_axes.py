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
# **The question.** BatchNorm, InstanceNorm, GroupNorm and LayerNorm are one equation,
#
#     y = (x - mean) / sqrt(var + eps) * s + b
#
# What, then, is the difference between them? Only this: *which elements share one mean and one variance.*
#
# In this lab you say it in four ways, each a step closer to the machine: as axes, as a bit mask, as a picture, and as
# the loops that run over memory. The last is what this library does with every normalization it knows
# (`minorm/normalization/nest.py`).
#
# You need NumPy's axes and `reshape`. Time: about 60 minutes.
#
# Fill in each function that raises `NotImplementedError` and run the check below it. At the end, in a terminal,
# `minorm labs check 0 lab00_axes.ipynb` shows what your work is worth; it asks the same with other numbers.

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
# `x` has the shape (N, C, H, W): N images of C channels, each H x W pixels. Other data has fewer or more axes behind
# N and C: (N, C), (N, C, L), (N, C, D, H, W). An axis along which a mean is *taken* is **reduced**; an axis along
# which means *differ* is **kept**. The elements that share one mean form a **row**, wherever they lie, and `m` is
# their number. A mean of `x` over its reduced axes is one line of NumPy:

# %%
x = np.arange(2 * 3 * 2 * 2, dtype=np.float64).reshape(2, 3, 2, 2)
print("one mean for each channel:", x.mean(axis=(0, 2, 3)))

# %% [markdown]
# ## Task 0.1: which axes?
#
# | kind | one mean for each ... | reduced |
# |---|---|---|
# | batch | channel | all but axis 1 |
# | instance | channel of each image | all but axes 0 and 1 |
# | layer | image | all but axis 0 |
# | group | group of channels of each image | see below |
#
# GroupNorm needs axis 1 cut in two first, into group and channel in the group, so that (N, C, H, W) becomes
# (N, G, C/G, H, W). Of that array, which has one axis more, everything but N and G is reduced.


# %%
def reduced_axes(kind, ndim):
    """The reduced axes, a tuple in rising order, of data with `ndim` axes.

    kind: "batch", "instance", "layer" or "group". For "group", ndim counts the axes of x and the answer is about x
    after the split, which has ndim + 1 axes.
    """
    # SOLUTION 0.1: the reduced axes of each kind of normalization
    first = {"batch": 1, "instance": 2, "layer": 1, "group": 2}[kind]
    last = ndim + 1 if kind == "group" else ndim
    axes = tuple(range(first, last))
    return tuple(i for i in range(ndim) if i != 1) if kind == "batch" else axes
    # END


# %% tags=["check"]
check("0.1")

# %% [markdown]
# ## Task 0.2: axes as a bit mask
#
# File formats and accelerators write a set of axes as one integer: bit i is set where axis i is reduced. TensorRT's
# normalization layer takes exactly this. Axes (0, 2, 3) are 2^0 + 2^2 + 2^3 = 13, in binary 1101, read from the right.


# %%
def to_mask(axes):
    """The integer whose bit i is set for each i in axes."""
    # SOLUTION 0.2: a set of axes as an integer
    return sum(1 << axis for axis in set(axes))
    # END


def to_axes(mask):
    """The axes in a mask, a tuple in rising order."""
    # SOLUTION 0.2: the axes in an integer
    return tuple(i for i in range(mask.bit_length()) if mask >> i & 1)
    # END


# %% tags=["check"]
check("0.2")

# %% [markdown]
# ## Task 0.3: groups
#
# The split must not move anything: group 0 is the first C/G channels, group 1 the next ones. That is what `reshape`
# does. Refuse a number of groups that does not divide C with a `ValueError`: it is the user's mistake.


# %%
def split_groups(x, num_groups):
    """x (N, C, ...) as (N, G, C/G, ...). ValueError where num_groups does not divide C."""
    # SOLUTION 0.3: cut axis 1 into groups
    n, c = x.shape[:2]
    if num_groups < 1 or c % num_groups:
        raise ValueError(f"num_groups={num_groups} must divide channels={c}")
    return x.reshape(n, num_groups, c // num_groups, *x.shape[2:])
    # END


# %% tags=["check"]
check("0.3")

# %% [markdown]
# ## Task 0.4: who shares a statistic with me?
#
# Two elements are in the same row exactly where their indices agree along every kept axis. Say it for one element
# and all the others at once.


# %%
def same_row(shape, axes, index):
    """An array of `shape`, True for each element that shares its mean with the element at `index`.

    axes: the reduced ones.
    """
    # SOLUTION 0.4: True for each element of the row that `index` is in
    row = np.zeros(shape, bool)
    row[tuple(slice(None) if axis in axes else i for axis, i in enumerate(index))] = True
    return row
    # END


# %% tags=["check"]
check("0.4")

# %% [markdown]
# ### The picture
#
# Four images of six channels of five pixels each. Each image is a line, and each channel is a block of five cells.
# One row is blue: the one that contains the third channel of the second image. Before you run the cell: how many
# cells will be blue in each panel?

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
        panel.add_patch(
            plt.Rectangle((column, line), 1, 1, facecolor=BLUE if inside else "white", edgecolor=GREY, linewidth=0.6)
        )
    for edge in range(SHAPE[1] + 1):
        panel.plot([edge * SHAPE[2]] * 2, [0, SHAPE[0]], color="black", linewidth=1.2, clip_on=False)
    name = f"GroupNorm, {GROUPS} groups" if kind == "group" else f"{kind.capitalize()}Norm"
    panel.set_title(f"{name}: m = {row.sum()} of {row.size} share a mean")
    panel.set(xlim=(0, cells.shape[1]), ylim=(SHAPE[0], 0), xlabel="channel (5 pixels each)", ylabel="image")
    panel.set_xticks(SHAPE[2] * (np.arange(SHAPE[1]) + 0.5), range(SHAPE[1]))
    panel.set_yticks(np.arange(SHAPE[0]) + 0.5, range(SHAPE[0]))
    panel.tick_params(length=0)
    panel.grid(visible=False)
    panel.spines[:].set_visible(False)
figure.suptitle("The cells that share one mean and one variance", fontsize=13, fontweight="bold")
show(
    figure,
    "Four grids of 4 images by 6 channels of 5 pixels, one for each norm; the cells that share a mean with one "
    "element are blue. BatchNorm: one channel in all images, 20 cells. InstanceNorm: one channel of one image, 5. "
    "GroupNorm with 3 groups: two neighbouring channels of one image, 10. LayerNorm: all of one image, 30.",
)

# %% [markdown]
# ## Task 0.5: from axes to loops
#
# Memory has no axes. An array lies there as one line of numbers, and each axis is a loop with a count of turns and a
# step, the distance in elements from one turn to the next. In x of shape (2, 3, 4, 5), in row-major order, axis 3 is
# 5 turns of step 1, axis 2 is 4 turns of step 5, axis 1 is 3 turns of step 20, axis 0 is 2 turns of step 60.
#
# BatchNorm keeps axis 1 and reduces 0, 2 and 3. But 2 and 3 are neighbours of the same kind, and 4 turns of step 5
# around 5 turns of step 1 are simply 20 turns of step 1. **Merge them**: neighbours of the same kind become one loop
# where the outer step is the inner step times the inner count. What is left is
#
#     keep   (3, 20)
#     reduce (2, 60) (20, 1)
#
# Axes of length 1 are no loops at all, and leaving them out lets their neighbours meet. Every normalization that people
# use comes down to at most two loops of each kind: *four loops*. (The real `nest.plan` also carries the step of scale
# and bias along, and merges only where that fits as well.)


# %%
def loops(shape, axes):
    """(keep, reduce): two lists of (count, step), outer loops first, of a row-major array. axes: the reduced ones."""
    # SOLUTION 0.5: the loops over kept and over reduced axes, neighbours of the same kind merged
    keep, reduce = [], []
    step = int(np.prod(shape))
    for axis, count in enumerate(shape):
        step //= count
        if count == 1:
            continue
        found = reduce if axis in axes else keep
        if found and found[-1][1] == count * step:
            found[-1] = (found[-1][0] * count, step)
        else:
            found.append((count, step))
    return keep, reduce
    # END


# %% tags=["check"]
check("0.5")

# %% [markdown]
# ## Task 0.6: run them
#
# Now the loops do the work: take a mean with nothing but a flat line of numbers and the two lists. The positions that a
# list of loops visits are all sums `i0*step0 + i1*step1 + ...`, where i0 runs over count0 and so on; an empty list
# visits position 0 alone. Write `positions`, and then the means, one for each kept position.


# %%
def positions(some_loops):
    """All positions that these loops visit, outer loop slowest: a list of integers."""
    # SOLUTION 0.6: where a list of loops goes
    found = [0]
    for count, step in some_loops:
        found = [p + i * step for p in found for i in range(count)]
    return found
    # END


def means_by_loops(flat, keep, reduce):
    """The mean of each row of `flat`, a one-dimensional array, as a one-dimensional array."""
    # SOLUTION 0.6: the mean of each row, by walking the loops
    inside = np.array(positions(reduce))
    return np.array([flat[start + inside].mean() for start in positions(keep)])
    # END


# %% tags=["check"]
check("0.6")

# %% [markdown]
# ### Axes, masks and loops agree
#
# The same means in two ways, for every set of axes of a small array:

# %% tags=["check"]
x = np.random.default_rng(0).standard_normal((2, 3, 1, 4))
for mask in range(1, 16):
    axes = to_axes(mask)
    keep, reduce = loops(x.shape, axes)
    assert np.allclose(means_by_loops(x.ravel(), keep, reduce), x.mean(axis=axes).ravel())
print("15 masks agree; the last one's loops are", keep, reduce)

# %% [markdown]
# The library answers the same question. `mn.explain` runs the function on memory that nobody reads, and shows the
# loops that its kernels would get:

# %% tags=["check"]
import minorm as mn
import minorm.functional as F

print(mn.explain(F.batch_norm, (32, 64, 56, 56)).nest)
print("yours:", *loops((32, 64, 56, 56), (0, 2, 3)))

# %% [markdown]
# ## To think about
#
# 1. With one image in the batch, two of the four panels look alike. Which, and what does that say about training with
#    tiny batches?
# 2. A channels-last array has the shape (N, C, H, W) but lies in memory as N, H, W, C. Which loops does BatchNorm get
#    there, and why does a fast kernel for them look different from one for the row-major array?
# 3. Of the 31 sets of axes of a five-dimensional array, two need more than two loops of a kind. Find them with `loops`.
