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
# # Lab 11: Find the bug
#
# **The question.** Two tools compute the same node and disagree. Which one is wrong, and what is the smallest model
# that shows it to somebody who has no time?
#
# You write the judge (a distance and float64 formulas), a machine that makes failing models small, and then you hunt:
# six planted bugs first, and after that real ones, in the tools that are installed on your machine. They are there.
#
# You need lab 1, and `pip install onnx onnxruntime`; lab 10 helps. Time: about 150 minutes, in two parts of 75.

# %%
import numpy as np

from minorm.labs import oracles
from minorm.labs.visible import checker

check = checker(11, globals())

# %% tags=["plot"]
import matplotlib.pyplot as plt

from minorm.labs.pictures import show
from minorm.plots import BLUE, ORANGE, STYLE, VERMILLION

plt.rcParams.update(STYLE)

# %% [markdown]
# ## Cases and oracles
#
# A *case* is one node and its numbers. `oracles.case` makes one, a dict that you may read and change:
#
#     oracles.case("LRN", 13, x, size=3, alpha=1.0)        operator, opset, inputs; attributes by name
#     {"operator": "LRN", "opset": 13, "inputs": [x], "attributes": {"size": 3, "alpha": 1.0}, "outputs": ["y"]}
#
# Numbers become float32. An *oracle* takes a case and gives a list of arrays: `oracles.reference` (onnx's
# ReferenceEvaluator, the standard's own implementation), `oracles.runtime` (onnxruntime, in a process of its own) and
# `oracles.minorm`. One that gives no answer raises `oracles.NoAnswer`; its `crashed` tells a crash from a refusal. All
# three can be wrong.

# %% tags=["plot"]
case = oracles.case("LpNormalization", 22, [[3, 4]], p=2, axis=-1)
for name, oracle in oracles.ORACLES.items():
    print(f"{name:12}", oracle(case)[0])

# %% [markdown]
# ## Part A: the judge and the shrinking machine (about 75 minutes)
#
# ## Task 11.1: how far apart?
#
# `disagreement(got, right)` compares two lists of arrays and returns one number, which suits numbers of any size:
#
# - for each pair of arrays, max |got - right| / max(1, max |right|), in float64; the largest of these counts;
# - infinity where the lists differ in length, two arrays differ in shape, or one has a NaN where the other has none;
# - NaN in the same places agree, and so do equal infinities; arrays without elements agree.


# %%
def disagreement(got, right):
    """0 where two answers agree; infinity where they cannot be compared."""
    # SOLUTION 11.1: one number for two answers
    if len(got) != len(right):
        return np.inf
    worst = 0.0
    for a, b in zip(got, right, strict=True):
        a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
        if a.shape != b.shape or (np.isnan(a) != np.isnan(b)).any():
            return np.inf
        differ = (a != b) & ~np.isnan(a)
        if differ.any():
            size = max(1, np.nanmax(np.abs(b)))
            off = np.max(np.abs(a[differ] - b[differ]))
            worst = max(worst, off / size if np.isfinite(size) else np.inf)
    return worst
    # END


# %% tags=["check"]
check("11.1")

# %% [markdown]
# ## Task 11.2: a formula of your own
#
# When oracles disagree somebody must decide, and the vote of the majority is no argument: two tools may have copied
# from each other. A formula in float64, short enough to be read beside the specification, is.
#
# - **LpNormalization** (axis -1, p 2): y = x / norm, and norm = (sum |x|^p)^(1/p) along the axis. Where norm is 0, y is
#   0.
# - **LRN** (size; alpha 0.0001, beta 0.75, bias 1): y = x / (bias + alpha / size * sum x^2)^beta. At channel c of x
#   (N, C, D1, ...) the sum goes over the channels from c - floor((size - 1) / 2) to c + ceil((size - 1) / 2), as far as
#   they exist.
# - **MeanVarianceNormalization** (axes [0, 2, 3]): y = (x - mean) / (std + 1e-9), with mean and std over the axes.
#
# The defaults are in brackets. An attribute that a case does not name has its default.


# %%
def formula(case):
    """What a case of these three operators means: a list of one float64 array."""
    # SOLUTION 11.2: three operators in float64
    x, said = np.asarray(case["inputs"][0], np.float64), case["attributes"]
    if case["operator"] == "LpNormalization":
        p = said.get("p", 2)
        norm = (np.abs(x) ** p).sum(axis=said.get("axis", -1), keepdims=True) ** (1 / p)
        return [x / np.where(norm == 0, 1, norm)]
    if case["operator"] == "LRN":
        size, channels = said["size"], x.shape[1]
        sums = np.empty_like(x)
        for c in range(channels):
            first, last = max(0, c - (size - 1) // 2), min(channels - 1, c + size // 2)
            sums[:, c] = (x[:, first : last + 1] ** 2).sum(axis=1)
        base = said.get("bias", 1.0) + said.get("alpha", 0.0001) / size * sums
        return [x / base ** said.get("beta", 0.75)]
    axes = tuple(said.get("axes", (0, 2, 3)))
    return [(x - x.mean(axes, keepdims=True)) / (x.std(axes, keepdims=True) + 1e-9)]
    # END


# %% tags=["check"]
check("11.2")

# %% [markdown]
# ## Task 11.3: make it small
#
# Nobody reads a bug report with 180 numbers in it. `smallest(case, fails)` gets a case with one input for which
# `fails(case)` is true, and looks for a smaller one for which it still is. Try something, keep it if it still fails,
# and go on until nothing more helps:
#
# - *fewer elements*: half of an axis; an axis without one of its places;
# - *simpler numbers*: an element becomes 0, or 1, or a whole number.
#
# An axis keeps at least one place. Shapes first, as each step there saves many questions about numbers. `fails` may run
# a slow tool, so ask at most 2000 times (a case of 180 elements takes about 100). The case that you are given stays as
# it was: `dict(case, inputs=[x])` is a copy with another input.


# %%
def smallest(case, fails):
    """A smaller case of the same node that fails as well."""

    # SOLUTION 11.3: shrink it as long as it fails
    def smaller(x):
        """Simpler arrays, the boldest first."""
        for axis, length in enumerate(x.shape):
            if length > 1:
                yield np.take(x, range(length // 2), axis)
                yield np.take(x, range(length // 2, length), axis)
        for axis, length in enumerate(x.shape):
            for place in range(length if length > 2 else 0):
                yield np.delete(x, place, axis)
        for place in np.ndindex(x.shape):
            for simple in (0, 1, np.rint(x[place])):
                if (x[place] not in (0, 1) and x[place] != simple) or (x[place] == 1 and simple == 0):
                    changed = x.copy()
                    changed[place] = simple
                    yield changed

    def search(found):
        for x in smaller(found["inputs"][0]):
            tried = dict(found, inputs=[x])
            if fails(tried):
                return tried
        return None

    while (better := search(case)) is not None:
        case = better
    return case
    # END


# %% tags=["check"]
check("11.3")

# %% [markdown]
# ## Part B: the hunt (about 75 minutes)
#
# This is a good place to stop: your tools are ready, and what follows only uses them. When you come back, run the
# cells above again ("Run All Above Selected Cell"); nothing else is needed.
#
# ## Task 11.4: six suspects
#
# `oracles.suspect("A")` is an implementation with a planted bug; there are six. Show each at work: a case on which
# it disagrees with the formula by more than 0.001. Size counts: one point for a case, another for the fewest
# elements possible. (Their source is on your disk. Reading it is a way to find bugs too, but not the one this lab is
# about: you will not have the source of the next tool.)
#
# | suspect | operator | | suspect | operator |
# |---|---|---|---|---|
# | A | LpNormalization | | D | LRN |
# | B | LpNormalization | | E | MeanVarianceNormalization |
# | C | LRN | | F | MeanVarianceNormalization |
#
# So that nobody wins with numbers on which everything breaks, minorm must agree with the formula on your case. Draw
# cases at random, with many shapes, attributes, zeros, offsets; what fails goes through `smallest`. `hunt` below does
# that for a shape and attributes of your choice.


# %%
def wrong(oracle):
    """`fails` for `smallest`: does this oracle disagree with the formula, or crash? A refusal is no failure."""

    def fails(case):
        try:
            return disagreement(oracle(case), formula(case)) > 1e-3
        except oracles.NoAnswer as failure:
            return failure.crashed

    return fails


def hunt(oracle, operator, shape, tries=100, seed=0, scale=1.0, offset=0.0, **attributes):
    """The smallest failing case from random ones of this shape, or None."""
    rng = np.random.default_rng(seed)
    for _ in range(tries):
        x = scale * rng.integers(-3, 4, shape) + offset
        case = oracles.case(operator, 13, x, **attributes)
        if wrong(oracle)(case):
            return smallest(case, wrong(oracle))
    return None


def planted():
    """A case for each suspect: {"A": case, ...}."""
    # SOLUTION 11.4: a small case for each suspect
    two = np.array([1.0, 0.0])
    return {
        "A": oracles.case("LpNormalization", 13, [0]),
        "B": oracles.case("LpNormalization", 13, [[1, 1]], axis=0),
        "C": oracles.case("LRN", 13, two.reshape(1, 2, 1, 1) + 1, size=2, alpha=1.0),
        "D": oracles.case("LRN", 13, np.ones((1, 1, 1, 1)), size=3, alpha=1.0),
        "E": oracles.case("MeanVarianceNormalization", 13, two.reshape(2, 1, 1, 1)),
        "F": oracles.case("MeanVarianceNormalization", 13, 2 * two.reshape(1, 1, 1, 2) + 10_000),
    }
    # END


# %% tags=["check"]
check("11.4")

# %% [markdown]
# ### How a case shrinks
#
# Each suspect with a random case of 180 elements that it fails, and what is left of it after so many questions.

# %% tags=["plot"]
LARGE = {
    "A": ("LpNormalization", {"axis": 1}, {"scale": 0.0}),
    "B": ("LpNormalization", {"axis": 1}, {}),
    "C": ("LRN", {"size": 4, "alpha": 1.0}, {}),
    "D": ("LRN", {"size": 3, "alpha": 1.0}, {}),
    "E": ("MeanVarianceNormalization", {}, {}),
    "F": ("MeanVarianceNormalization", {}, {"offset": 20_000.0}),
}
figure, panels = plt.subplots(2, 3, figsize=(10.5, 5.4), sharex=True, sharey=True, layout="constrained")
for panel, (name, (operator, said, numbers)) in zip(panels.flat, LARGE.items(), strict=True):
    sizes = [180]
    x = np.random.default_rng(3).normal(0, 2, (3, 5, 4, 3)) * numbers.get("scale", 1.0) + numbers.get("offset", 0.0)
    fails = wrong(oracles.suspect(name))

    def counted(case, fails=fails, sizes=sizes):
        """`fails`, and how large the smallest case was that did."""
        answer = fails(case)
        sizes.append(min(oracles.size(case), sizes[-1]) if answer else sizes[-1])
        return answer

    found = smallest(oracles.case(operator, 13, x, **said), counted)
    panel.step(range(len(sizes)), sizes, where="post", color=BLUE, linewidth=2)
    panel.plot(len(sizes) - 1, sizes[-1], "o", color=VERMILLION, markersize=8)
    panel.set(title=f"{name}, {operator}: {sizes[-1]} left", yscale="log")
    panel.set_yticks([1, 3, 10, 30, 100, 180], ["1", "3", "10", "30", "100", "180"])
    panel.minorticks_off()
for panel in panels[1]:
    panel.set_xlabel("questions asked")
for panel in panels[:, 0]:
    panel.set_ylabel("elements left")
figure.suptitle(
    "From 180 elements to a few in some dozen questions (C has windows of 4: attributes count too)", x=0.01, ha="left"
)
show(
    figure,
    "Six panels, one for each suspect A to F: elements left of the failing case, logarithmic, against questions "
    "asked. Each falls in steps from 180 to a few.",
)

# %% [markdown]
# ## Task 11.5: the real thing
#
# Now the tools that people use, in the versions that are installed here. These are known to be wrong:
#
# | who | operator | a hint |
# |---|---|---|
# | reference | LpNormalization | what is a norm of negative numbers? |
# | reference | LRN | over which axis does the window move? |
# | reference | BatchNormalization | opset 9 to 13, one output: whose mean should be used? |
# | onnxruntime | MeanVarianceNormalization | constant data |
# | onnxruntime | GroupNormalization | a mean that is large beside the standard deviation |
# | onnxruntime | BatchNormalization | opset 9, five outputs: the fifth; or let it crash |
#
# Show each with a case: the tool's answer and the formula are more than 0.01 apart, or the tool crashes, while
# another of the three oracles agrees with the formula to 0.001. A refusal is no bug. Again the fewest elements
# count, including those of scale, bias, mean and variance. `oracles.formula` is that of BatchNormalization (inputs
# x, scale, bias, mean, var) and GroupNormalization (21; x, scale, bias). Outputs are named with `outputs=["y",
# "mean", ...]`; an output that is not wanted is `""`.
#
# If a tool has been fixed in the version you have, any case earns the point, and you may be glad.


# %%
def defects():
    """{"reference, LRN": case, ...} for the six rows of the table."""
    # SOLUTION 11.5: a small case for each real bug
    one = np.ones((1, 1, 1, 1))
    two = np.array([10_000.0, 10_002.0]).reshape(1, 1, 2)
    five = ["y", "mean", "var", "batch_mean", "batch_var"]
    return {
        "reference, LpNormalization": oracles.case("LpNormalization", 22, [-1], p=1),
        "reference, LRN": oracles.case("LRN", 13, np.ones((1, 2, 1, 1)), size=1, alpha=1.0),
        "reference, BatchNormalization": oracles.case("BatchNormalization", 9, one, [1], [0], [0], [1]),
        "onnxruntime, MeanVarianceNormalization": oracles.case("MeanVarianceNormalization", 13, one),
        "onnxruntime, GroupNormalization": oracles.case("GroupNormalization", 21, two, [1], [0], num_groups=1),
        "onnxruntime, BatchNormalization": oracles.case("BatchNormalization", 9, one, [1], [0], [0], [1], outputs=five),
    }
    # END


# %% tags=["check"]
check("11.5")

# %% [markdown]
# ### Who disagrees with whom
#
# Your six cases, and the model that crashes onnxruntime, given to all three oracles.

# %% tags=["plot"]
CASES = defects()
CASES["onnxruntime, BatchNormalization in training"] = oracles.case(
    "BatchNormalization", 15, np.ones((1, 1, 1, 1)), [1], [0], [0], [1], outputs=["y", "", ""], training_mode=1
)
GOOD, BAD, WORST, NONE = ("#DCEBF5", "black"), (ORANGE, "white"), (VERMILLION, "white"), ("#E6E6E6", "#505050")


def verdict(oracle, case):
    """What stands in a cell, and its colours."""
    known = case["operator"] in ("BatchNormalization", "GroupNormalization")
    right = (oracles.formula if known else formula)(case)
    try:
        off = disagreement(oracle(case), right)
    except oracles.NoAnswer as failure:
        return ("crashes", *WORST) if failure.crashed else ("refuses", *NONE)
    if off < 1e-3:
        return ("agrees", *GOOD)
    return ("NaN", *WORST) if np.isinf(off) else (f"off by {off:.3g}", *BAD)


figure, panel = plt.subplots(figsize=(9.5, 4.6), layout="constrained")
labels = []
for row, case in enumerate(CASES.values()):
    outputs = f", {len(case['outputs'])} outputs" if len(case["outputs"]) > 1 else ""
    labels.append(f"{case['operator']} {case['opset']}{outputs}: {oracles.size(case)} in all")
    for column, oracle in enumerate(oracles.ORACLES.values()):
        text, colour, ink = verdict(oracle, case)
        panel.add_patch(plt.Rectangle((column - 0.48, row - 0.46), 0.96, 0.92, color=colour))
        panel.text(column, row, text, color=ink, ha="center", va="center")
panel.set_xticks(range(3), list(oracles.ORACLES))
panel.set_yticks(range(len(CASES)), labels)
panel.set_ylabel("operator, opset: elements of its inputs")
panel.set(xlim=(-0.5, 2.5), ylim=(len(CASES) - 0.5, -0.5), xlabel="oracle, against the formula in float64")
figure.suptitle("One to five numbers are enough to show that a tool is wrong", x=0.01, ha="left")
panel.grid(False)
panel.tick_params(length=0)
for spine in panel.spines.values():
    spine.set_visible(False)
show(
    figure,
    "A table of seven cases, in rows, by three oracles, in columns: reference, onnxruntime and minorm. Each cell "
    "says agrees, how far off, NaN, crashes or refuses. minorm agrees everywhere; in the row of GroupNormalization "
    "the two others are off by the same amount.",
)

# %% [markdown]
# ## To think about
#
# 1. Where two oracles agree against the third, is the third wrong? Find the row in the picture that answers.
# 2. minorm agrees everywhere in this picture, because its authors had the list of defects before they tested. How would
#    you choose cases that nobody has thought of? What can a formula in float64 not find?
# 3. Take one of your six cases and write the report: a title, the model, expected and got, versions. What would you
#    want to read if you had to fix it?
