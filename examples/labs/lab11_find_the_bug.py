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
# **The question.** Two tools compute the same node and get different results. Which tool
# is wrong? And what is the smallest model that proves it to a busy developer?
#
# First you write two tools of your own: a judge (a distance and some formulas in
# float64), and a function that makes failing models smaller. Then you search for bugs.
# You start with six planted bugs. After that come real bugs, in the tools that are
# installed on your computer. They are there.
#
# You need lab 1, and `pip install onnx onnxruntime`. Lab 10 helps. Time: about 150
# minutes, in two parts of 75.

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
# A *case* is one node and its numbers. `oracles.case` makes a case: a dict that you may
# read and change. The arguments are the operator, the opset and the inputs. Attributes
# are passed by name.
#
#     oracles.case("LRN", 13, x, size=3, alpha=1.0)
#
# returns
#
#     {"operator": "LRN", "opset": 13, "inputs": [x],
#      "attributes": {"size": 3, "alpha": 1.0}, "outputs": ["y"]}
#
# The numbers become float32. An *oracle* takes a case and returns a list of arrays. There
# are three oracles:
#
# - `oracles.reference` is ONNX's own implementation, the ReferenceEvaluator.
# - `oracles.runtime` is onnxruntime, in a separate process.
# - `oracles.minorm` is this library.
#
# An oracle without an answer raises `oracles.NoAnswer`. Its attribute `crashed` is True
# after a crash and False if the oracle refused the case. All three oracles can be wrong.

# %% tags=["plot"]
case = oracles.case("LpNormalization", 22, [[3, 4]], p=2, axis=-1)
for name, oracle in oracles.ORACLES.items():
    print(f"{name:12}", oracle(case)[0])

# %% [markdown]
# ## Part A: the judge and the shrinking function (about 75 minutes)
#
# ## Task 11.1: how far apart?
#
# `disagreement(got, right)` compares two lists of arrays and returns one number. It must
# work for numbers of any size:
#
# - For each pair of arrays, compute max |got - right| / max(1, max |right|) in float64.
#   Return the largest of these numbers.
# - Return infinity if the lists have different lengths, if two arrays have different
#   shapes, or if one array has a NaN where the other has none.
# - NaN in the same places agree. Equal infinities agree. Arrays without elements agree.


# %%
def disagreement(got, right):
    """0 if two answers agree, infinity if they cannot be compared."""
    raise NotImplementedError("Task 11.1: one number for the distance of two answers")


# %% tags=["check"]
check("11.1")

# %% [markdown]
# ## Task 11.2: your own formula
#
# If two oracles disagree, you must find out which is right. A majority vote is not enough,
# because one tool may have copied from another. A formula in float64 is better, if it is
# short enough to compare with the specification line by line.
#
# - **LpNormalization** (axis -1, p 2): y = x / norm with norm = (sum |x|^p)^(1/p) along
#   the axis. If norm is 0, y is 0.
# - **LRN** (size; alpha 0.0001, beta 0.75, bias 1): y = x / (bias + alpha / size * sum
#   x^2)^beta for x of shape (N, C, D1, ...). For channel c, the sum includes the channels
#   from c - floor((size - 1) / 2) to c + ceil((size - 1) / 2), as far as they exist.
# - **MeanVarianceNormalization** (axes [0, 2, 3]): y = (x - mean) / (std + 1e-9), with
#   mean and std over the axes.
#
# The brackets give the defaults. If a case does not name an attribute, use its default.


# %%
def formula(case):
    """The right answer to a case of these operators: a list of one float64 array."""
    raise NotImplementedError("Task 11.2: three operators in float64")


# %% tags=["check"]
check("11.2")

# %% [markdown]
# ## Task 11.3: make it small
#
# Maintainers do not read a bug report with 180 numbers. `smallest(case, fails)` gets a
# case with one input for which `fails(case)` is true. It looks for a smaller case that
# fails as well. Try a change, and keep it if the case still fails. Continue until no
# change helps:
#
# - *Fewer elements*: keep one half of an axis, or remove one index of an axis.
# - *Simpler numbers*: replace an element by 0, by 1, or by a whole number.
#
# An axis keeps at least one index. Try shapes first, because a smaller shape needs fewer
# questions about numbers. `fails` may run a slow tool, so call it at most 2000 times. (A
# case of 180 elements needs about 100 calls.) Do not change the given case: `dict(case,
# inputs=[x])` is a copy with another input.


# %%
def smallest(case, fails):
    """A smaller case of the same node that also fails."""

    raise NotImplementedError("Task 11.3: shrink the case as long as it fails")


# %% tags=["check"]
check("11.3")

# %% [markdown]
# ## Part B: the search (about 75 minutes)
#
# This is a good place to stop. Your tools are ready, and the next tasks only use them.
# When you come back, run all cells above again ("Run All Above Selected Cell"). You need
# nothing else.
#
# ## Task 11.4: six suspects
#
# There are six implementations with a planted bug. `oracles.suspect("A")` returns the
# first one. Find a case for each suspect on which it disagrees with the formula by more
# than 0.001. You get one point for a case, and another point if it has the fewest
# elements possible. (You could read the source of the suspects on your disk. That finds
# bugs too, but you will not have the source of the next tool.)
#
# | suspect | operator | | suspect | operator |
# |---|---|---|---|---|
# | A | LpNormalization | | D | LRN |
# | B | LpNormalization | | E | MeanVarianceNormalization |
# | C | LRN | | F | MeanVarianceNormalization |
#
# Some numbers break every implementation. They do not count: minorm must agree with the
# formula on your case. Draw random cases with many shapes and attributes, with zeros and
# with offsets. Give each failing case to `smallest`. The function `hunt` below does this
# for one shape and one set of attributes.


# %%
def wrong(oracle):
    """A `fails` for `smallest`: True if the oracle disagrees with the formula or crashes.

    A refusal does not count as a failure.
    """

    def fails(case):
        try:
            return disagreement(oracle(case), formula(case)) > 1e-3
        except oracles.NoAnswer as failure:
            return failure.crashed

    return fails


def hunt(oracle, operator, shape, tries=100, seed=0, scale=1.0, offset=0.0, **attributes):
    """The smallest failing case among random cases of this shape, or None."""
    rng = np.random.default_rng(seed)
    for _ in range(tries):
        x = scale * rng.integers(-3, 4, shape) + offset
        case = oracles.case(operator, 13, x, **attributes)
        if wrong(oracle)(case):
            return smallest(case, wrong(oracle))
    return None


def planted():
    """A case for each suspect: {"A": case, ...}."""
    raise NotImplementedError("Task 11.4: a small case for each suspect")


# %% tags=["check"]
check("11.4")

# %% [markdown]
# ### How a case shrinks
#
# The next cell gives each suspect a random case with 180 elements on which it fails. Then
# it runs your `smallest` and draws how many elements are left after each question.

# %% [markdown]
# **Guess before you run.** How many elements will be left at the end, and after how many
# questions? C gets windows of size 4. Can its case become as small as your own case for
# C?

# %% tags=["plot"]
LARGE = {
    "A": ("LpNormalization", {"axis": 1}, {"scale": 0.0}),
    "B": ("LpNormalization", {"axis": 1}, {}),
    "C": ("LRN", {"size": 4, "alpha": 1.0}, {}),
    "D": ("LRN", {"size": 3, "alpha": 1.0}, {}),
    "E": ("MeanVarianceNormalization", {}, {}),
    "F": ("MeanVarianceNormalization", {}, {"offset": 20_000.0}),
}
figure, panels = plt.subplots(
    2, 3, figsize=(10.5, 5.4), sharex=True, sharey=True, layout="constrained"
)
for panel, (name, (operator, said, numbers)) in zip(
    panels.flat, LARGE.items(), strict=True
):
    sizes = [180]
    x = np.random.default_rng(3).normal(0, 2, (3, 5, 4, 3))
    x = x * numbers.get("scale", 1.0) + numbers.get("offset", 0.0)
    fails = wrong(oracles.suspect(name))

    def counted(case, fails=fails, sizes=sizes):
        """Call `fails`, and record the size of the smallest failing case so far."""
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
figure.suptitle("How six failing cases shrink", x=0.01, ha="left")
show(
    figure,
    "Six panels, one for each suspect A to F. Each shows the elements that are left of "
    "the failing case, on a logarithmic axis, against the number of questions asked. "
    "Each curve falls in steps from 180 to a few elements.",
)

# %% [markdown]
# **What you see.** Every case shrinks to one, two or three elements with fewer than 50
# questions. C keeps three elements, because its windows have size 4. Your own case for C
# needs only two elements with windows of size 2. So try small attributes too: `smallest`
# does not change them.

# %% [markdown]
# ## Task 11.5: real bugs
#
# Now take the tools that people use, in the versions that are installed here. These
# results are known to be wrong:
#
# | tool | operator | hint |
# |---|---|---|
# | reference | LpNormalization | what is the norm of negative numbers? |
# | reference | LRN | along which axis does the window move? |
# | reference | BatchNormalization | opset 9 to 13, one output: which mean must be used? |
# | onnxruntime | MeanVarianceNormalization | constant data |
# | onnxruntime | GroupNormalization | a mean that is large compared with the standard deviation |
# | onnxruntime | BatchNormalization | opset 9, five outputs: look at the fifth; or make it crash |
#
# Find a case for each row. The tool's answer must differ from the formula by more than
# 0.01, or the tool must crash. At the same time, another of the three oracles must agree
# with the formula to 0.001. A refusal is not a bug. The fewest elements count again,
# including those of scale, bias, mean and variance.
#
# `oracles.formula` has the formulas of BatchNormalization (inputs x, scale, bias, mean,
# var) and of GroupNormalization 21 (inputs x, scale, bias). Name the outputs with
# `outputs=["y", "mean", ...]`. The name `""` means that an output is not wanted.
#
# If your version of a tool has been fixed, any case earns the point.


# %%
def defects():
    """{"reference, LRN": case, ...} for the six rows of the table."""
    raise NotImplementedError("Task 11.5: a small case for each real bug")


# %% tags=["check"]
check("11.5")

# %% [markdown]
# ### Who disagrees with whom?
#
# The next cell gives your six cases to all three oracles, and compares their answers with
# the formula. It adds a seventh case: a model that crashes onnxruntime.

# %% [markdown]
# **Guess before you run.** In how many of the 21 cells will an oracle be wrong? Is there
# a case on which two oracles agree with each other and both are wrong?

# %% tags=["plot"]
CASES = defects()
CASES["onnxruntime, BatchNormalization in training"] = oracles.case(
    "BatchNormalization",
    15,
    np.ones((1, 1, 1, 1)),
    [1],
    [0],
    [0],
    [1],
    outputs=["y", "", ""],
    training_mode=1,
)
GOOD, BAD = ("#DCEBF5", "black"), (ORANGE, "white")
WORST, NONE = (VERMILLION, "white"), ("#E6E6E6", "#505050")


def verdict(oracle, case):
    """The text of a cell, and its colours."""
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
    name = f"{case['operator']} {case['opset']}{outputs}"
    labels.append(f"{name}: {oracles.size(case)}")
    for column, oracle in enumerate(oracles.ORACLES.values()):
        text, colour, ink = verdict(oracle, case)
        corner = (column - 0.48, row - 0.46)
        panel.add_patch(plt.Rectangle(corner, 0.96, 0.92, color=colour))
        panel.text(column, row, text, color=ink, ha="center", va="center")
panel.set_xticks(range(3), list(oracles.ORACLES))
panel.set_yticks(range(len(CASES)), labels)
panel.set_ylabel("operator, opset, outputs: elements of its inputs")
panel.set_xlabel("oracle, compared with the formula in float64")
panel.set(xlim=(-0.5, 2.5), ylim=(len(CASES) - 0.5, -0.5))
figure.suptitle("Seven cases and three oracles", x=0.01, ha="left")
panel.grid(False)
panel.tick_params(length=0)
for spine in panel.spines.values():
    spine.set_visible(False)
show(
    figure,
    "A table with seven cases in rows and three oracles in columns: reference, "
    "onnxruntime and minorm. Each cell says agrees, how far off, NaN, crashes or "
    "refuses. minorm agrees in every row. In the row of GroupNormalization the other "
    "two are off by the same amount.",
)

# %% [markdown]
# **What you see.** Eight of the 21 cells are wrong: six answers differ from the formula,
# one is NaN, and one tool crashes. In the row of GroupNormalization, reference and
# onnxruntime agree with each other, and both are wrong. At most five numbers are enough
# to show each bug.

# %% [markdown]
# ## To think about
#
# 1. If two oracles agree and the third does not, is the third one wrong? Find the row in
#    the picture that answers this.
# 2. minorm agrees in every row of this picture, because its authors knew these defects
#    before they tested. How would you choose cases that are in no test yet? What can a
#    formula in float64 not find?
# 3. Take one of your six cases and write a bug report: a title, the model, the expected
#    and the actual result, and the versions. What would you want to read if you had to
#    fix the bug?
