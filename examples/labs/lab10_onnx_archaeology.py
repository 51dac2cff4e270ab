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
# **The question.** A model from 2017 has a node `BatchNormalization`, and so has a model
# from 2021. The word and the five inputs are the same. But one node trains and the other
# does not. What does a node mean, and where in the file is that written?
#
# In this lab you write a small reader for ONNX files. It finds the version, the
# attributes and the mode of a node, and computes what that version specifies. At the end
# it reads a zoo of models from ten years, with six versions of BatchNormalization and two
# versions of GroupNormalization.
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
# A `ModelProto` has a graph, and the graph has nodes. A node holds only the name of its
# operator, the names of its inputs and outputs, and its attributes. Outputs may be
# optional. If an optional output is not wanted, its name is `""`, or it is left out at
# the end of the list.

# %%
rng = np.random.default_rng(0)
x = rng.standard_normal((4, 3, 2, 2)).astype(np.float32) + 5
parameters = [
    np.full(3, value, np.float32) for value in (1, 0, 0, 1)
]  # scale, bias, mean, variance
model = zoo.parsed(
    zoo.specimen("BatchNormalization", 6, x, parameters, {"epsilon": 0.001})
)
node = model.graph.node[0]

# %% tags=["plot"]
print(onnx.printer.to_text(model))
print("inputs of the node: ", list(node.input))
print("outputs of the node:", list(node.output))
print(
    "attributes:         ",
    {a.name: helper.get_attribute_value(a) for a in node.attribute},
)
shapes = {t.name: numpy_helper.to_array(t).shape for t in model.graph.initializer}
print("initializers:       ", shapes)
print("operator sets:      ", [(o.domain, o.version) for o in model.opset_import])

# %% [markdown]
# ## Task 10.1: which version?
#
# The node does not contain its version. The *model* lists the operator sets it was
# written for: one number (the opset) for each domain. An operator then means its newest
# version that was published at or before that opset. For example, BatchNormalization in a
# model of opset 13 is BatchNormalization 9, because the opsets 10 to 13 did not change
# it.
#
# `node.domain` is the domain of a node. ONNX's own domain has two names, `""` and
# `"ai.onnx"`. Both may occur in the node and in the model, and both mean the same.
#
# Raise a ValueError if the model imports no opset of the domain. Also raise one if the
# opset is older than the operator.

# %%
PUBLISHED = {"BatchNormalization": (1, 6, 7, 9, 14, 15), "GroupNormalization": (18, 21)}


def since(model, node):
    """The operator version that this node has in this model."""
    raise NotImplementedError("Task 10.1: the version of the node")


# %% tags=["check"]
check("10.1")

# %% [markdown]
# ## Task 10.2: attributes and their defaults
#
# | version | attributes and defaults |
# |---|---|
# | BatchNormalization 1 | consumed_inputs (no default), epsilon 1e-5, is_test 0, momentum 0.9, spatial 1 |
# | 6 | epsilon 1e-5, is_test 0, momentum 0.9, spatial 1 |
# | 7 | epsilon 1e-5, momentum 0.9, spatial 1 |
# | 9 | epsilon 1e-5, momentum 0.9 |
# | 14, 15 | epsilon 1e-5, momentum 0.9, training_mode 0 |
# | GroupNormalization 18 | epsilon 1e-5, num_groups (no default) |
# | 21 | epsilon 1e-5, num_groups (no default), stash_type 1 |
#
# `attributes(node, version)` returns all attributes of this version: the values in the
# file, and the defaults for the rest. Raise a ValueError in two cases:
#
# - The file has an attribute that this version does not know. An author who wrote
#   `is_test=1` into a model of opset 7 meant something. A reader that ignores the
#   attribute reads a different model.
# - An attribute without a default is missing.
#
# A file stores floats in 32 bits. So 0.9 is 0.8999999761581421, and the default is that
# number as well. `helper.get_attribute_value` returns the value of an attribute.


# %%
def attributes(node, version):
    """All attributes of this version: a dict of ints, floats and lists of ints."""
    raise NotImplementedError("Task 10.2: attributes and defaults of this version")


# %% tags=["check"]
check("10.2")

# %% [markdown]
# ## Task 10.3: training or inference?
#
# There have been three ways to write the mode:
#
# - **Versions 1 and 6** use the attribute `is_test`. 0 means training. 0 is also the
#   default.
# - **Versions 7 and 9** use the number of outputs. One output means inference, and more
#   outputs mean training.
# - **Versions 14 and 15** use the attribute `training_mode`. With 1 the node has three
#   outputs, with 0 it has one.
#
# In versions 14 and 15, raise a ValueError for any other number of outputs. The text of
# the specification still says "outputs 1-4" there. This is left over from older versions.
# Not everything in a specification is up to date.


# %%
def mode(node, version):
    """The mode of the node: "training" or "inference"."""
    raise NotImplementedError("Task 10.3: the mode of the node")


# %% tags=["check"]
check("10.3")

# %% [markdown]
# ### The matrix
#
# The next cell draws a table. Each row is one node, and each column is a version of
# BatchNormalization. Your functions fill the table with "training", "inference" or
# "refused". (In version 1 each node also has the required attribute `consumed_inputs`.)

# %% [markdown]
# **Guess before you run.** The first row is a node with one output and no attribute. In
# which versions does it train? Fill in the row on paper.

# %% tags=["plot"]
NODES = {
    "one output, no attribute": (["y"], {}),
    "one output, is_test=1": (["y"], {"is_test": 1}),
    "one output, spatial=0": (["y"], {"spatial": 0}),
    "five outputs, no attribute": (["y", "mean2", "var2", "batch_mean", "batch_var"], {}),
    "three outputs, training_mode=1": (["y", "mean2", "var2"], {"training_mode": 1}),
    "one output, training_mode=0": (["y"], {"training_mode": 0}),
}
MEANINGS = {
    "training": (VERMILLION, "white"),
    "inference": (BLUE, "white"),
    "refused": ("#E6E6E6", "#505050"),
}
versions = PUBLISHED["BatchNormalization"]
figure, panel = plt.subplots(figsize=(9.5, 4.3), layout="constrained")
for row, (outputs, said) in enumerate(NODES.values()):
    for column, version in enumerate(versions):
        options = dict(said, consumed_inputs=[0, 0, 0, 1, 1]) if version == 1 else said
        made = helper.make_node("BatchNormalization", list("xsbmv"), outputs, **options)
        try:
            meaning = mode(made, version)
        except ValueError:
            meaning = "refused"
        colour, ink = MEANINGS[meaning]
        corner = (column - 0.48, row - 0.46)
        panel.add_patch(plt.Rectangle(corner, 0.96, 0.92, color=colour))
        panel.text(column, row, meaning, color=ink, ha="center", va="center")
panel.set_xticks(range(len(versions)), [str(version) for version in versions])
panel.set_yticks(range(len(NODES)), list(NODES))
panel.set(xlim=(-0.5, len(versions) - 0.5), ylim=(len(NODES) - 0.5, -0.5))
panel.set_xlabel("version of BatchNormalization")
panel.set_title("What six nodes mean in each version of BatchNormalization")
panel.grid(False)
panel.tick_params(length=0)
for spine in panel.spines.values():
    spine.set_visible(False)
show(
    figure,
    "A table with six nodes in rows and six versions of BatchNormalization in columns. "
    "Each cell says training, inference or refused. A node with one output and no "
    "attribute means training in versions 1 and 6, and inference from version 7 on.",
)

# %% [markdown]
# **What you see.** The node with one output and no attribute trains up to version 6. From
# version 7 on, the same node means inference.

# %% [markdown]
# ## Task 10.4: which elements share a mean?
#
# Up to version 7 there is an attribute `spatial`. It says whether the positions share
# their statistics. Its wording was reversed between versions 6 and 7. Use the shapes
# instead. x has the shape (N, C, D1, ..., Dn).
#
# - If scale has the shape (C), there is one mean for each channel, taken over the batch
#   and all positions. This is the usual BatchNorm.
# - If scale has the shape (C, D1, ..., Dn), there is one mean for each channel *and
#   position*, taken over the batch only.
#
# From version 9 on, x may have a single axis, (N). Then there is one channel, and scale
# has the shape (1).


# %%
def batch_axes(x_shape, scale_shape):
    """The axes over which mean and var are taken: a tuple in rising order."""
    raise NotImplementedError("Task 10.4: the axes that share a mean")


# %% tags=["check"]
check("10.4")

# %% [markdown]
# ## Task 10.5: BatchNormalization
#
#     y = (x - mean) / sqrt(var + epsilon) * s + b
#
# In inference, mean and var are the inputs 4 and 5, and y is the only result. In
# training, mean and var come from the batch. var divides by m, not by m - 1. There are
# more results:
#
#     new_mean = mean * momentum + batch_mean * (1 - momentum)
#     new_var  = var  * momentum + batch_var  * (1 - momentum)
#
# The order of the results is y, new_mean, new_var, batch_mean, batch_var in versions 1 to
# 9. Versions 14 and 15 return the first three.
#
# The types: y, batch_mean and batch_var have the type of x. new_mean and new_var have the
# types of the inputs mean and var. From version 14 on, these types may differ from that
# of x. Compute in float64 and round at the end. Then float16 needs no special case.


# %%
def batch_norm(version, training, found, x, s, b, mean, var):
    """The list of results. training: True or False. found: the result of `attributes`."""
    raise NotImplementedError("Task 10.5: one function for six versions")


# %% tags=["check"]
check("10.5")

# %% [markdown]
# ## Task 10.6: GroupNormalization
#
# A row is one group of one sample: C / num_groups channels with all their positions.
# Version 18 has one scale and one bias for each *group*, of shape (num_groups). That was
# a mistake, and version 18 was withdrawn. Version 21 has one scale and one bias for each
# *channel*, of shape (C). Files with version 18 still exist. If num_groups equals C, both
# give the same result.
#
# `stash_type` gives the type in which mean and variance are computed: 1 means float32 and
# 11 means float64. It exists in version 21 only; for version 18 take 1. This matters:
# float16 values of 256 overflow when they are squared, and float32 loses the important
# digits of data with a mean of a million. xhat is then converted back to the type of x,
# and s and b are applied in that type. You may compute with more bits than requested.
#
# Raise a ValueError if num_groups does not divide C. Also raise one if s or b has a
# different shape from the one that this version requires. (The specification of version
# 21 has the first condition the wrong way round. It says that C should divide
# num_groups.)


# %%
def group_norm(version, found, x, s, b):
    """The result y. found: the result of `attributes`."""
    raise NotImplementedError("Task 10.6: one scale for each group, or for each channel")


# %% tags=["check"]
check("10.6")

# %% [markdown]
# ## Task 10.7: the zoo
#
# Put everything together. Each model has one node. x is the first input of the node. The
# other inputs are initializers, which you find by name. The results have the names of the
# outputs of the node. Leave out outputs with the name `""`.


# %%
def run(model, x):
    """The results that the node names: a dict of arrays."""
    raise NotImplementedError("Task 10.7: read a model and run it")


# %% tags=["check"]
check("10.7")

# %% [markdown]
# ### What does a wrong reading cost?
#
# The next cell makes six mistakes of readers on purpose. Each of them was found in a tool
# that people use. For each mistake, it compares the computed result with what the file
# means.
#
# | mistake | result that is compared |
# |---|---|
# | BN 6 without is_test is read as inference | y |
# | the momentum of BN 14 is taken as PyTorch's | new_mean |
# | BN 9 returns 1 / sqrt(var + eps) instead of the variance | batch_var |
# | epsilon=0.01 is ignored, for data of size 0.1 | y |
# | the scales of GN 18 are tiled over the channels, not repeated | y |
# | the variance of BN 14 divides by m - 1 | new_var |

# %% [markdown]
# **Guess before you run.** Which of these mistakes is so small that a test with a loose
# bound misses it?

# %% tags=["plot"]
rng = np.random.default_rng(1)
x = (3 * rng.standard_normal((16, 4, 5, 5)) + 2).astype(np.float32)
batch = [rng.uniform(0.5, 1.5, 4), *rng.standard_normal((2, 4)), np.full(4, 4)]
batch = [parameter.astype(np.float32) for parameter in batch]
eps, keep = 1e-5, 0.9
small = (x - x.mean((0, 2, 3), keepdims=True)) * np.float32(0.03)


def distance(wrong, right):
    """The root mean square of the error, in percent of that of the right result."""
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
more = x.var((0, 2, 3)) / (x.size // 4 - 1)  # what m - 1 adds to the variance
costs = {
    "BN 6 without is_test, read as inference: y": distance(infer[0], train[0]),
    "BN 14, PyTorch's momentum: new_mean": distance(inverted[1], train[1]),
    "BN 9, 1 / sqrt(var + eps): batch_var": distance(
        1 / np.sqrt(train[4] + eps), train[4]
    ),
    "epsilon=0.01 ignored, data of size 0.1: y": distance(tight, loose),
    "GN 18, scales tiled over channels: y": distance(tiled, grouped),
    "BN 14, divided by m - 1: new_var": distance(train[2] + more * (1 - keep), train[2]),
}
costs = dict(sorted(costs.items(), key=lambda item: item[1]))
figure, panel = plt.subplots(figsize=(9.5, 4.0), layout="constrained")
bars = panel.barh(list(costs), list(costs.values()), color=ORANGE)
panel.bar_label(bars, fmt="%.3g %%", padding=3)
panel.set_xscale("log")
panel.set(xlim=(0.01, 2000), xlabel="error in % (root mean square)")
figure.suptitle("Errors of six mistakes of readers", x=0.01, ha="left")
panel.grid(axis="y", visible=False)
show(
    figure,
    "Six bars, sorted, one for each mistake of a reader. Each bar shows the error in "
    "percent on a logarithmic axis. The variance divided by m - 1 has the smallest "
    "error, far below 1 %. The other errors are tens of percent and more.",
)

# %% [markdown]
# **What you see.** Only the variance that divides by m - 1 is easy to miss: its error is
# about 0.05 %, because m is 400 here and a single step adds a tenth of it. The other
# mistakes change the result by 20 % or more, and none of them gives an error message.

# %% [markdown]
# ## To think about
#
# 1. The official converter from opset 6 to 7 removes `is_test` and keeps one output. For
#    which nodes is this right? What does it do to the others? What should it write
#    instead?
# 2. A model of opset 14 with momentum 0.1 and a PyTorch model with momentum 0.1 are
#    trained for a hundred steps. Whose running mean is noisier? How could you see from a
#    file alone that its author mixed up the two momentums?
# 3. GroupNormalization 18 was withdrawn, but its files still exist. Would you read them,
#    refuse them, or convert them? What do you do with a file in which num_groups equals
#    C?
