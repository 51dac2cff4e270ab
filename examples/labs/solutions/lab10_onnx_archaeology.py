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
# # Lab 10: ONNX archaeology
#
# **The question.** A model from 2017 says `BatchNormalization`, and so does one from 2021. Same word, same five inputs,
# and yet one of them trains and the other does not. What does a node mean, and where in the file is that written?
#
# You write a small reader: it finds a node's version, its attributes and its mode, and computes what that version says.
# At the end it reads a zoo of models from ten years, six versions of BatchNormalization and two of GroupNormalization.
#
# You need labs 1 and 4, and `pip install onnx onnxruntime`. Time: about 90 minutes.

# %%
import numpy as np
import onnx
from onnx import helper, numpy_helper

from minorm.labs import zoo
from minorm.labs.visible import checker

check = checker(10, globals())

# %% tags=["plot"]
import matplotlib.pyplot as plt

from minorm.labs.pictures import show
from minorm.plots import BLUE, ORANGE, STYLE, VERMILLION

plt.rcParams.update(STYLE)

# %% [markdown]
# ## A model in a file
#
# A `ModelProto` has a graph, and the graph has nodes. A node says little: the name of its operator, the names of its
# inputs and outputs, and attributes. An optional output that nobody wants has the name `""`, or is left out at the end.

# %%
rng = np.random.default_rng(0)
x = rng.standard_normal((4, 3, 2, 2)).astype(np.float32) + 5
parameters = [np.full(3, value, np.float32) for value in (1, 0, 0, 1)]  # scale, bias, mean, variance
model = zoo.parsed(zoo.specimen("BatchNormalization", 6, x, parameters, {"epsilon": 0.001}))
node = model.graph.node[0]

# %% tags=["plot"]
print(onnx.printer.to_text(model))
print("inputs of the node: ", list(node.input))
print("outputs of the node:", list(node.output))
print("attributes:         ", {a.name: helper.get_attribute_value(a) for a in node.attribute})
print("initializers:       ", {t.name: numpy_helper.to_array(t).shape for t in model.graph.initializer})
print("operator sets:      ", [(o.domain, o.version) for o in model.opset_import])

# %% [markdown]
# ## Task 10.1: which version?
#
# The node does not say. The *model* says which operator set it was written for, one number for each domain, and an
# operator means its newest version published at or before that opset. BatchNormalization in a model of opset 13 is
# BatchNormalization 9: from 10 to 13 nobody changed it.
#
# The domain of a node is `node.domain`. ONNX's own is called `""` and also `"ai.onnx"`, in the node and in the model
# alike. ValueError where the model imports no opset of the domain, or one from before the operator was there.

# %%
PUBLISHED = {"BatchNormalization": (1, 6, 7, 9, 14, 15), "GroupNormalization": (18, 21)}


def since(model, node):
    """The version of the operator that this node of this model means."""
    # SOLUTION 10.1: the node's version
    opsets = {"" if o.domain == "ai.onnx" else o.domain: o.version for o in model.opset_import}
    domain = "" if node.domain == "ai.onnx" else node.domain
    if domain not in opsets:
        raise ValueError(f"the model imports no opset of {domain!r}")
    older = [version for version in PUBLISHED[node.op_type] if version <= opsets[domain]]
    if not older:
        raise ValueError(f"{node.op_type} came later than opset {opsets[domain]}")
    return max(older)
    # END


# %% tags=["check"]
check("10.1")

# %% [markdown]
# ## Task 10.2: what the file leaves unsaid
#
# | version | attributes, and their defaults |
# |---|---|
# | BatchNormalization 1 | consumed_inputs (no default), epsilon 1e-5, is_test 0, momentum 0.9, spatial 1 |
# | 6 | epsilon 1e-5, is_test 0, momentum 0.9, spatial 1 |
# | 7 | epsilon 1e-5, momentum 0.9, spatial 1 |
# | 9 | epsilon 1e-5, momentum 0.9 |
# | 14, 15 | epsilon 1e-5, momentum 0.9, training_mode 0 |
# | GroupNormalization 18 | epsilon 1e-5, num_groups (no default) |
# | 21 | epsilon 1e-5, num_groups (no default), stash_type 1 |
#
# `attributes(node, version)` gives all that this version has, those of the file and the defaults of the rest. An
# attribute that this version lacks is a ValueError, and so is a missing one without a default: whoever wrote
# `is_test=1` into a model of opset 7 meant something, and a reader that drops it reads another model.
#
# A file stores floats in 32 bits: 0.9 is 0.8999999761581421, and the default is that number as well.
# `helper.get_attribute_value` gives an attribute's value.


# %%
def attributes(node, version):
    """Every attribute of this version by name: int, float, or list of ints."""
    # SOLUTION 10.2: attributes and defaults of this version
    defaults = {"epsilon": float(np.float32(1e-5))}
    if node.op_type == "BatchNormalization":
        defaults["momentum"] = float(np.float32(0.9))
        if version <= 7:
            defaults["spatial"] = 1
        if version <= 6:
            defaults["is_test"] = 0
        if version >= 14:
            defaults["training_mode"] = 0
        required = {"consumed_inputs"} if version == 1 else set()
    else:
        if version >= 21:
            defaults["stash_type"] = 1
        required = {"num_groups"}
    said = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    if unknown := said.keys() - defaults.keys() - required:
        raise ValueError(f"version {version} has no {', '.join(sorted(unknown))}")
    if missing := required - said.keys():
        raise ValueError(f"{', '.join(sorted(missing))} is missing")
    return defaults | said
    # END


# %% tags=["check"]
check("10.2")

# %% [markdown]
# ## Task 10.3: does it train?
#
# Three answers in ten years:
#
# - **1 and 6**: the attribute `is_test`; 0 means training, also where nobody wrote it.
# - **7 and 9**: the number of outputs. One is inference, more are training.
# - **14 and 15**: the attribute `training_mode`. With 1 the node has three outputs, with 0 it has one.
#
# A node of version 14 or 15 with another number of outputs is a ValueError. The text of the specification still says
# "outputs 1-4" there, left over from before. Some of what you read in a specification is archaeology too.


# %%
def mode(node, version):
    """ "training" or "inference"."""
    # SOLUTION 10.3: the node's mode
    found, outputs = attributes(node, version), len(node.output)
    if version <= 6:
        trains = not found["is_test"]
    elif version <= 9:
        trains = outputs > 1
    else:
        trains = found["training_mode"] == 1
        if outputs != (3 if trains else 1):
            raise ValueError(f"training_mode={int(trains)} and {outputs} outputs")
    return "training" if trains else "inference"
    # END


# %% tags=["check"]
check("10.3")

# %% [markdown]
# ### The matrix
#
# Six nodes, and what each means in a model of opset 1, 6, 7, 9, 14 and 15. Your functions fill it. (In version 1
# each also has the `consumed_inputs` that it requires.)

# %% tags=["plot"]
NODES = {
    "one output, no attribute": (["y"], {}),
    "one output, is_test=1": (["y"], {"is_test": 1}),
    "one output, spatial=0": (["y"], {"spatial": 0}),
    "five outputs, no attribute": (["y", "mean2", "var2", "batch_mean", "batch_var"], {}),
    "three outputs, training_mode=1": (["y", "mean2", "var2"], {"training_mode": 1}),
    "one output, training_mode=0": (["y"], {"training_mode": 0}),
}
MEANINGS = {"training": (VERMILLION, "white"), "inference": (BLUE, "white"), "refused": ("#E6E6E6", "#505050")}
versions = PUBLISHED["BatchNormalization"]
figure, panel = plt.subplots(figsize=(9.5, 4.3), layout="constrained")
for row, (outputs, said) in enumerate(NODES.values()):
    for column, version in enumerate(versions):
        options = said | ({"consumed_inputs": [0, 0, 0, 1, 1]} if version == 1 else {})
        try:
            meaning = mode(helper.make_node("BatchNormalization", list("xsbmv"), outputs, **options), version)
        except ValueError:
            meaning = "refused"
        colour, ink = MEANINGS[meaning]
        panel.add_patch(plt.Rectangle((column - 0.48, row - 0.46), 0.96, 0.92, color=colour))
        panel.text(column, row, meaning, color=ink, ha="center", va="center")
panel.set_xticks(range(len(versions)), [str(version) for version in versions])
panel.set_yticks(range(len(NODES)), list(NODES))
panel.set(xlim=(-0.5, len(versions) - 0.5), ylim=(len(NODES) - 0.5, -0.5))
panel.set_xlabel("version of BatchNormalization")
panel.set_title("One output, no attribute: training up to version 6, inference from 7 on")
panel.grid(False)
panel.tick_params(length=0)
for spine in panel.spines.values():
    spine.set_visible(False)
show(
    figure,
    "A table of six nodes, in rows, by six versions of BatchNormalization, in columns, each cell saying training, "
    "inference or refused. One output and no attribute is training in versions 1 and 6 and inference from 7 on.",
)

# %% [markdown]
# ## Task 10.4: what has a mean of its own?
#
# Up to version 7 an attribute `spatial` asks whether positions share their statistics, and its wording was turned round
# on the way from 6 to 7. Trust the shapes instead. x is (N, C, D1, ..., Dn):
#
# - scale of shape (C): one mean a channel, over the batch and all positions, the BatchNorm you know;
# - scale of shape (C, D1, ..., Dn): one mean for each channel *and position*, over the batch alone.
#
# And from version 9 on x may be one axis, (N): then there is one channel, and scale has the shape (1).


# %%
def batch_axes(x_shape, scale_shape):
    """The axes over which mean and var are taken, a tuple in rising order."""
    # SOLUTION 10.4: the axes that share a mean
    return (0, *range(1 + len(scale_shape), len(x_shape)))
    # END


# %% tags=["check"]
check("10.4")

# %% [markdown]
# ## Task 10.5: BatchNormalization
#
#     y = (x - mean) / sqrt(var + epsilon) * s + b
#
# In inference mean and var are inputs 4 and 5, and y is the only result. In training they are the batch's, var divides
# by m, not by m - 1, and there are more results:
#
#     new_mean = mean * momentum + batch_mean * (1 - momentum)        new_var likewise
#
# Results in order: y, new_mean, new_var, batch_mean, batch_var in versions 1 to 9; in 14 and 15 the first three.
#
# About types. y has the type of x; new_mean and new_var that of the inputs mean and var; batch_mean and batch_var that
# of x. From 14 on these may differ. Compute in float64 and round at the end: then float16 is no special case.


# %%
def batch_norm(version, training, found, x, s, b, mean, var):
    """The results, a list of arrays. found: what `attributes` gave; training: True or False."""
    # SOLUTION 10.5: one function for six versions
    axes = batch_axes(x.shape, s.shape)
    wide, s, b, old_mean, old_var = (v.astype(np.float64) for v in (x, s, b, mean, var))
    shape = [1 if axis in axes else length for axis, length in enumerate(x.shape)]
    now_mean, now_var = (wide.mean(axes), wide.var(axes)) if training else (old_mean, old_var)
    c = wide - now_mean.reshape(shape)
    y = c / np.sqrt(now_var.reshape(shape) + found["epsilon"]) * s.reshape(shape) + b.reshape(shape)
    if not training:
        return [y.astype(x.dtype)]
    now_mean, now_var = now_mean.reshape(old_mean.shape), now_var.reshape(old_var.shape)
    keep = found["momentum"]
    new_mean = old_mean * keep + now_mean * (1 - keep)
    new_var = old_var * keep + now_var * (1 - keep)
    results = [y.astype(x.dtype), new_mean.astype(mean.dtype), new_var.astype(var.dtype)]
    return results + [now_mean.astype(x.dtype), now_var.astype(x.dtype)] * (version <= 9)
    # END


# %% tags=["check"]
check("10.5")

# %% [markdown]
# ## Task 10.6: GroupNormalization
#
# A row is a sample's group of C / num_groups channels with all their positions. Version 18 has one scale and one
# bias *a group*: shape (num_groups). That was a mistake, and version 18 was withdrawn; 21 has one *a channel*: shape
# (C). Files of 18 are still around, and where num_groups and C are equal nobody notices the difference.
#
# `stash_type` (21; 18 has none, take 1) says in which type mean and variance are computed: 1 float32, 11 float64. Data
# in float16 overflow when they are squared at 256, and a mean of a million in float32 has lost the digits that matter.
# xhat, in the type of x again, meets s and b there. Computing in more bits than asked for is allowed here too.
#
# ValueError where num_groups does not divide C, or s or b has another shape than this version says. The text of 21
# has it the wrong way round: that C should divide num_groups.


# %%
def group_norm(version, found, x, s, b):
    """y."""
    # SOLUTION 10.6: one scale a group, or one a channel
    groups, channels = found["num_groups"], x.shape[1]
    if channels % groups:
        raise ValueError(f"num_groups={groups} does not divide {channels} channels")
    numbers = groups if version == 18 else channels
    if s.shape != (numbers,) or b.shape != (numbers,):
        raise ValueError(f"scale {s.shape} and bias {b.shape}; expected ({numbers},)")
    rows = x.astype(np.float64).reshape(x.shape[0], groups, -1)
    c = rows - rows.mean(-1, keepdims=True)
    xhat = c / np.sqrt((c * c).mean(-1, keepdims=True) + found["epsilon"])
    parts = xhat.reshape(x.shape[0], numbers, -1)
    y = parts * s.astype(np.float64)[:, None] + b.astype(np.float64)[:, None]
    return y.reshape(x.shape).astype(x.dtype)
    # END


# %% tags=["check"]
check("10.6")

# %% [markdown]
# ## Task 10.7: the zoo
#
# Put it together. A model has one node; x is its first input, the others are initializers, found by their names, and
# the results have the names of the node's outputs. An output called `""` is not wanted.


# %%
def run(model, x):
    """The results that the node names, a dict of arrays."""
    # SOLUTION 10.7: read a model and run it
    (node,) = model.graph.node
    arrays = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    parameters = [arrays[name] for name in node.input[1:]]
    version = since(model, node)
    found = attributes(node, version)
    if node.op_type == "GroupNormalization":
        results = [group_norm(version, found, x, *parameters)]
    else:
        results = batch_norm(version, mode(node, version) == "training", found, x, *parameters)
    return {name: value for name, value in zip(node.output, results, strict=False) if name}
    # END


# %% tags=["check"]
check("10.7")

# %% [markdown]
# ### What a wrong reading costs
#
# Readers that nobody tested against old files make these mistakes; each was found in a tool that people use. How far is
# what they compute from what the file means?

# %% tags=["plot"]
rng = np.random.default_rng(1)
x = (3 * rng.standard_normal((16, 4, 5, 5)) + 2).astype(np.float32)
batch = [rng.uniform(0.5, 1.5, 4).astype(np.float32), *rng.standard_normal((2, 4)).astype(np.float32)]
batch.append(np.full(4, 4, np.float32))
eps, keep = 1e-5, 0.9
small = (x - x.mean((0, 2, 3), keepdims=True)) * np.float32(0.03)


def distance(wrong, right):
    """Root mean square of the error, in percent of the root mean square of what is right."""
    wrong, right = np.asarray(wrong, np.float64), np.asarray(right, np.float64)
    return 100 * np.sqrt(np.mean((wrong - right) ** 2) / np.mean(right**2))


train = batch_norm(9, True, {"epsilon": eps, "momentum": keep}, x, *batch)
infer = batch_norm(9, False, {"epsilon": eps, "momentum": keep}, x, *batch)
inverted = batch_norm(9, True, {"epsilon": eps, "momentum": 1 - keep}, x, *batch)
loose = batch_norm(9, True, {"epsilon": 1e-2, "momentum": keep}, small, *batch)[0]
tight = batch_norm(9, True, {"epsilon": eps, "momentum": keep}, small, *batch)[0]
s, b = rng.uniform(0.5, 1.5, 2), rng.standard_normal(2)
grouped = group_norm(18, {"num_groups": 2, "epsilon": eps}, x, s, b)
tiled = group_norm(21, {"num_groups": 2, "epsilon": eps}, x, np.tile(s, 2), np.tile(b, 2))
costs = {
    "BN 6 without is_test, read as inference: y": distance(infer[0], train[0]),
    "BN 14, momentum taken for PyTorch's: new mean": distance(inverted[1], train[1]),
    "BN 9, 1 / sqrt(var + eps) for the variance: batch_var": distance(1 / np.sqrt(train[4] + eps), train[4]),
    "epsilon=0.01 dropped, data of size 0.1: y": distance(tight, loose),
    "GN 18, scales of groups tiled over channels: y": distance(tiled, grouped),
    "BN 14, variance divided by m - 1: new var": distance(
        train[2] + x.var((0, 2, 3)) / (x.size // 4 - 1) * (1 - keep), train[2]
    ),
}
costs = dict(sorted(costs.items(), key=lambda item: item[1]))
figure, panel = plt.subplots(figsize=(9.5, 4.0), layout="constrained")
bars = panel.barh(list(costs), list(costs.values()), color=ORANGE)
panel.bar_label(bars, fmt="%.3g %%", padding=3)
panel.set_xscale("log")
panel.set(xlim=(0.01, 2000), xlabel="distance from what the file means, in % (root mean square)")
figure.suptitle("Every misreading runs without a word; only one is small enough to miss", x=0.01, ha="left")
panel.grid(axis="y", visible=False)
show(
    figure,
    "Bars of six misreadings, sorted, with the error each makes in percent, logarithmic. The variance divided by m "
    "- 1 is the smallest, far below 1 %; the others make errors of tens of percent and more.",
)

# %% [markdown]
# ## To think about
#
# 1. The official converter from opset 6 to 7 drops `is_test` and keeps one output. For which nodes is that right, and
#    what does it do to the others? What should it write instead?
# 2. A model of opset 14 with momentum 0.1 and a model of PyTorch with momentum 0.1 are trained for a hundred steps.
#    Whose running mean is noisier? How would you tell from a file alone that somebody has mixed the two up?
# 3. GroupNormalization 18 was withdrawn, but not the files. Would you read them, refuse them, or convert them? What do
#    you do about one in which num_groups and C are equal?
