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
# # Lab 13: Nest and backends
#
# **The question.** How can one kernel run BatchNorm, LayerNorm and GroupNorm, on any shape and any order in memory?
#
# It never sees a shape. It sees a *nest*: at most four loops over a flat buffer. You plan the nest, run the formula
# over it, choose the inner loop that a fast kernel would take, and plug all that into a layer, which trains with it.
#
# You need lab 0 and lab 1. Time: about 60 minutes.

# %%
import numpy as np

from minorm.labs.visible import checker

check = checker(13, globals())

# %% tags=["plot"]
import matplotlib.pyplot as plt

from minorm.labs.pictures import show
from minorm.plots import BLUE, GREY, STYLE, VERMILLION

plt.rcParams.update(STYLE)

# %% [markdown]
# ## Task 13.1: steps
#
# An axis is a loop: `count` turns, and a step from one turn to the next. NumPy gives the steps as `x.strides`, in
# *bytes*. A kernel counts in *elements*, so divide by the size of an element. Three more things happen here:
#
# - An axis of length 1 is no loop. Leave it out; its step means nothing.
# - A kernel likes to go through memory in order. Sort the axes by falling step.
# - A kernel gets the address of the first element and goes forward. A flipped array has negative steps, a broadcast
#   one has steps of 0, and a slice may have gaps. A library copies such an array first. Refuse it with a `ValueError`
#   that names the strides.
#
# How do you see gaps? Go through the sorted axes from the last one: its step must be 1, and each other step must be
# the count of the next axis times its step.


# %%
def steps(shape, strides, itemsize):
    """The axes as (axis, count, step in elements), the widest step first.

    ValueError where the strides, which are in bytes, do not visit one block of memory.
    """
    # SOLUTION 13.1: steps in elements, in the order of memory, and a refusal of gaps
    found = [(i, n, strides[i] // itemsize) for i, n in enumerate(shape) if n != 1]
    found.sort(key=lambda axis: -axis[2])
    expected = 1
    for _, count, step in reversed(found):
        if step != expected:
            raise ValueError(f"strides {strides} of shape {shape} do not visit one block")
        expected *= count
    return found
    # END


# %% tags=["check"]
check("13.1")

# %% [markdown]
# ## Task 13.2: the plan
#
# Each axis is **kept** (statistics differ along it) or **reduced** (statistics are taken over it). Scale and bias have
# steps as well. They vary along some axes of x, and lie in a small buffer without gaps, in the same order as those
# axes have in x's memory. Along all other axes they stay where they are: their step is 0. So a loop has three numbers:
#
#     (count, data_step, param_step)
#
# **Merge** neighbours in memory of the same kind where *both* steps allow it: the outer data step must be the inner
# data step times the inner count, and the same must hold for the parameter steps. An example is GroupNorm with x split
# into (N, G, C/G, H, W) = (8, 8, 8, 56, 56), where (2, 3, 4) are reduced and scale varies along (1, 2):
#
#     keep   (8, 200704, 0) (8, 25088, 8)        reduce   (8, 3136, 1) (3136, 1, 0)
#
# H and W have merged. N and G have not: scale moves along G and not along N. Neither have C/G and H.


# %%
def plan(shape, strides, itemsize, reduced, varies):
    """(keep, reduce): lists of (count, data_step, param_step), outer loops first.

    reduced: the reduced axes. varies: the axes along which scale and bias vary.
    """
    # SOLUTION 13.2: kept and reduced loops, merged where both steps allow it
    axes = steps(shape, strides, itemsize)
    param, step = {}, 1
    for axis, count, _ in reversed(axes):
        param[axis] = step if axis in varies else 0
        step *= count if axis in varies else 1
    keep, reduce = [], []
    for axis, count, data in axes:
        loops = reduce if axis in reduced else keep
        if loops and loops[-1][1:] == (count * data, count * param[axis]):
            count *= loops.pop()[0]
        loops.append((count, data, param[axis]))
    return keep, reduce
    # END


# %% tags=["check"]
check("13.2")

# %% [markdown]
# ## Task 13.3: run it
#
# Now the formula over the loops:
#
#     y = (x - mean) / sqrt(var + eps) * scale + bias
#
# There is no shape any more, only three flat buffers. `positions` is ready: it gives all places that some loops visit,
# in the data (`which=1`) or in the parameters (`which=2`). A row begins at each position of `keep`, and its elements
# are the positions of `reduce` from there on. The same holds for the parameters.


# %%
def positions(loops, which):
    """All positions that these loops visit, the outer loop slowest."""
    found = np.zeros(1, np.int64)
    for loop in loops:
        found = np.add.outer(found, np.arange(loop[0]) * loop[which]).ravel()
    return found


def run(flat, keep, reduce, scale, bias, eps):
    """y, as flat as x, and a mean and a var for each row. scale and bias may be None."""
    # SOLUTION 13.3: the formula over four loops
    data = np.add.outer(positions(keep, 1), positions(reduce, 1))
    param = np.add.outer(positions(keep, 2), positions(reduce, 2))
    x = flat[data].astype(np.float64)
    mean = x.mean(axis=1, keepdims=True)
    var = np.square(x - mean).mean(axis=1, keepdims=True)
    y = (x - mean) / np.sqrt(var + eps)
    if scale is not None:
        y = y * scale[param]
    if bias is not None:
        y = y + bias[param]
    result = np.empty_like(flat)
    result[data] = y
    return result, mean[:, 0], var[:, 0]
    # END


# %% tags=["check"]
check("13.3")

# %% [markdown]
# ## Task 13.4: the inner loop
#
# Memory comes in *lines* of 64 bytes, and a processor handles 4 to 16 neighbours with one instruction. So the loop with
# data step 1 should be the inner one. Three cases are worth a kernel each:
#
# | the loop with step 1 is | kernel | for instance |
# |---|---|---|
# | reduced, and its parameter step is 0 | `"rows"`: one sum, one scale for the whole run | BatchNorm, GroupNorm |
# | reduced, and its parameter step is not 0 | `"rows with parameters"`: a scale for each element | LayerNorm |
# | kept | `"columns"`: a run of neighbours has a sum each | BatchNorm of (N, C), channels-last |
#
# A single row without any loop of step 1 counts as `"rows"`. And why not go row by row always? Count what that costs:
# how many lines does *one row* touch, if it begins at the start of a line? A kernel that walks it loads them all.


# %%
def inner(keep, reduce):
    """ "rows", "rows with parameters" or "columns"."""
    # SOLUTION 13.4: the kernel for the loop with data step 1
    if any(data == 1 for _, data, _ in keep):
        return "columns"
    moves = any(data == 1 and param != 0 for _, data, param in reduce)
    return "rows with parameters" if moves else "rows"
    # END


def lines_of_row(reduce, itemsize):
    """How many lines of 64 bytes one row touches, from the start of a line."""
    # SOLUTION 13.4: the lines that a row touches
    return len(np.unique(positions(reduce, 1) * itemsize // 64))
    # END


# %% tags=["check"]
check("13.4")

# %% [markdown]
# ### The picture
#
# Five norms of float32 data, walked row by row. A bar says how often the memory of x is loaded that way, if a line is
# gone from the cache before the next row comes by. **Guess before you run**: which bars are 1, and how high can one
# get?

# %% tags=["plot"]
ROW_MAJOR = np.zeros((16, 32, 14, 14), np.float32)
LAST = np.zeros((16, 14, 14, 32), np.float32).transpose(0, 3, 1, 2)
NORMS = {
    "BatchNorm": (ROW_MAJOR, (0, 2, 3), (1,)),
    "GroupNorm": (ROW_MAJOR.reshape(16, 4, 8, 14, 14), (2, 3, 4), (1, 2)),
    "LayerNorm": (ROW_MAJOR.reshape(16, 32, 196), (2,), (2,)),
    "BatchNorm, channels-last": (LAST, (0, 2, 3), (1,)),
    "BatchNorm, spatial=0": (ROW_MAJOR, (0,), (1, 2, 3)),
}
kinds, loaded = [], []
for x, reduced, varies in NORMS.values():
    keep, reduce = plan(x.shape, x.strides, x.itemsize, reduced, varies)
    rows = len(positions(keep, 1))
    kinds.append(inner(keep, reduce))
    loaded.append(rows * lines_of_row(reduce, x.itemsize) * 64 / x.nbytes)

figure, panel = plt.subplots(figsize=(9, 4), layout="constrained")
colors = [VERMILLION if kind == "columns" else BLUE for kind in kinds]
bars = panel.barh(range(len(NORMS)), loaded, color=colors)
labels = [f"{times:.1f} times: {kind}" for times, kind in zip(loaded, kinds, strict=True)]
panel.bar_label(bars, labels, padding=4)
panel.set_yticks(range(len(NORMS)), NORMS)
panel.invert_yaxis()
panel.set(
    title="Walked row by row, a norm of columns loads each line again and again",
    xlabel="how often x is loaded from memory",
    xlim=(0, 24),
)
show(
    figure,
    "Five bars: how often x is loaded when a kernel walks row by row. BatchNorm, "
    "GroupNorm and LayerNorm in row-major order: about once, with the inner loop rows, "
    "or rows with parameters for LayerNorm. BatchNorm channels-last and BatchNorm with "
    "spatial=0: 16 times, with the inner loop columns.",
)

# %% [markdown]
# ## Task 13.5: a backend
#
# A layer calls the `forward` of its backend with a nest, x, scale, bias and the equation, and wants y and the
# statistics back. A nest says of each axis whether it is reduced and whether the parameters vary. It has the library's
# loops as well, but the check takes them away: the loops are yours.
#
# - `x.reshape(nest.shape)` is x after the group split, without a copy;
# - `nest.axes[i].reduced` and `nest.axes[i].varies` describe its axes;
# - `memory(nest, x)` is ready: x as a flat buffer, which shares x's memory;
# - s and b lie as task 13.2 says; in LayerNorm they may have several axes, so make them flat with `reshape(-1)`;
# - `Statistics.of(mean, d, var, rstd)` are the statistics, where the mean is carried as mean + d (lab 2): let d be
#   zeros. `equation.eps` is eps, and `equation.rstd(var)` is rstd.

# %%
from minorm.kernels.partial import PartialBackend
from minorm.kernels.protocol import Statistics


def memory(nest, x):
    """x as a flat buffer in the order of memory. It shares x's memory."""
    return x.reshape(nest.shape).transpose(nest.order).reshape(-1)


def forward(nest, x, s, b, equation):
    """y, an array like x, and the statistics; s and b may be None."""
    # SOLUTION 13.5: your plan and your run, as a backend's forward
    split = x.reshape(nest.shape)
    reduced = [i for i, axis in enumerate(nest.axes) if axis.reduced]
    varies = [i for i, axis in enumerate(nest.axes) if axis.varies]
    keep, reduce = plan(split.shape, split.strides, x.itemsize, reduced, varies)
    s, b = (None if v is None else v.reshape(-1) for v in (s, b))
    flat, mean, var = run(memory(nest, x), keep, reduce, s, b, equation.eps)
    y = np.empty_like(x)
    memory(nest, y)[...] = flat
    return y, Statistics.of(mean, 0 * mean, var, equation.rstd(var))
    # END


# %% tags=["check"]
check("13.5")

# %% [markdown]
# The network of lab 3 with your backend in its BatchNorm layers. The gradients come from the reference, which takes
# your statistics.

# %% tags=["plot"]
from minorm.labs import digits_network

STEPS = 12
library = digits_network.losses(None, STEPS)
mine = digits_network.losses(PartialBackend(forward=forward), STEPS)
figure, panel = plt.subplots(figsize=(8.5, 4.2), layout="constrained")
turns = range(1, STEPS + 1)
panel.plot(turns, library, "o", color=GREY, mfc="none", markersize=8, label="the library")
panel.plot(turns, mine, "--", color=BLUE, linewidth=1.8, label="your backend")
panel.set(
    title=f"The two losses differ by at most {np.abs(mine - library).max():.0e}",
    xlabel="training step",
    ylabel="loss (cross entropy)",
)
panel.legend()
show(
    figure,
    "The loss falls, with ups and downs, over 12 training steps: rings of "
    "the library's kernels, and through "
    "them the dashed line of your backend.",
)
assert np.allclose(mine, library, rtol=1e-6)

# %% [markdown]
# ## Task 13.6: tests that find wrong planners
#
# Each test gets a `planner` with one function, `planner.plan(shape, strides, itemsize, reduced, varies)`, and passes
# if it raises nothing. Your tests run with the right planner, and all of them must pass. They also run with wrong
# planners, and each of these must fail a test. People make these mistakes: merged where scale is broadcast, steps in
# bytes, kept and reduced swapped, axes of length 1 kept, nothing merged, negative steps taken as positive ones.
#
# Short cases that you can plan by hand are best. A refusal arrives as a `ValueError`.


# %%
def test_loops(planner):
    """Loops that are known by hand."""
    # SOLUTION 13.6: cases planned by hand
    keep, reduce = planner.plan((2, 3, 1, 5), (60, 20, 20, 4), 4, (0, 3), (1,))
    assert list(map(tuple, keep)) == [(3, 5, 1)]
    assert list(map(tuple, reduce)) == [(2, 15, 0), (5, 1, 0)]
    keep, reduce = planner.plan((2, 3, 4, 5), (480, 160, 40, 8), 8, (2, 3), (1,))
    assert list(map(tuple, keep)) == [(2, 60, 0), (3, 20, 1)]
    assert list(map(tuple, reduce)) == [(20, 1, 0)]
    # END


def test_refusals(planner):
    """Strides that no plan exists for."""
    # SOLUTION 13.6: strides that a planner must refuse
    for strides in ((-12, 4), (0, 4), (24, 4)):
        try:
            planner.plan((2, 3), strides, 4, (1,), (0,))
        except ValueError:
            continue
        raise AssertionError(f"strides {strides} were planned")
    # END


# %% tags=["check"]
check("13.6")

# %% [markdown]
# ## To think about
#
# 1. InstanceNorm with a scale for each channel keeps two loops, N and C, though they are neighbours in memory. What
#    would go wrong if they were merged? When may they be?
# 2. LayerNorm over the last axis of an array that lies in memory the other way round has columns for an inner loop.
#    Why is that no disaster for the speed?
# 3. A flipped array visits one block of memory, too. What would a kernel need to take it without a copy, and is it
#    worth it?
# 4. Your backend gathers by index arrays. How many bytes of indices does it read for each float32 of x, and what does
#    a kernel with four loops read instead?
