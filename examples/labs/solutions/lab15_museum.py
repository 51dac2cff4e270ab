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
# # Lab 15: Museum of real bugs
#
# **The question.** A user writes: "your BatchNorm is wrong". What do you do, from that sentence to the test that keeps
# the bug away for good?
#
# The museum has eight exhibits. Each is a fault of normalization that a well-known tool shipped, rebuilt here as a
# small NumPy program that gives the tool's answers. For each you go the whole way: reproduce it, shrink it, explain
# it, mend it, and write the test that stays.
#
# You need labs 1, 3 and 4. Time: about 120 minutes, in two parts of 60.

# %%
import numpy as np

from minorm.labs import museum
from minorm.labs.visible import checker

check = checker(15, globals())

# %% tags=["plot"]
import matplotlib.pyplot as plt

from minorm.labs.pictures import show
from minorm.plots import BLUE, GREY, STYLE, VERMILLION

plt.rcParams.update(STYLE)

# %% [markdown]
# ## The rooms
#
# Each room has one function. An exhibit has its room's signature, and one fault.
#
#     y, new_mean, new_var = batch_norm(x, s, b, running_mean, running_var, momentum=0.9, eps=1e-5)
#     y = group_norm(x, s, b, num_groups, eps=1e-5)
#     y = layer_norm(x, s, b, axis=-1, eps=1e-5)
#     y = lp_norm(x, p=2, axis=-1)
#
# Each should compute this, with xhat = (x - mean) / sqrt(var + eps) and y = xhat * s + b:
#
# - **batch_norm** is training. mean and var (divided by m) are the batch's, for each channel of x (N, C, ...). The new
#   running statistics are running * momentum + batch * (1 - momentum). With one value a channel, var is 0 and y is b.
# - **group_norm** cuts the C channels into num_groups groups of neighbours, and takes mean and var of each sample's
#   group. s and b have one value for each *channel* (as in ONNX from version 21 on) or one for each *group* (version
#   18), which then holds for all channels of the group. Their length says which.
# - **layer_norm** takes mean and var over all axes from `axis` to the last. s and b have the shape of these axes.
# - **lp_norm** is x / norm along one axis, with norm = (sum |x|^p)^(1/p) and p = 1 or 2. Where the norm is 0, y is 0.
#
# x is float16, float32 or float64. y has the type of x; the new running statistics have the type of the old ones.
#
# These are the plaques: who shipped it, in which version, for which operator of ONNX, and what a user complained of.
# Some faults may be mended in later versions.

# %% tags=["check"]
print(museum.guide())

# %% [markdown]
# ## Part A: show it, shrink it, explain it (about 60 minutes)
#
# A *case* is a dict of arguments. Two functions help you:
#
# - `museum.exhibit("A")(**case)` gives the exhibit's answer;
# - `museum.off("A", case)` says how far this is from the formula: the largest error, relative to the largest right
#   number or 1. NaN counts as infinity. If the shapes of a case do not fit, an error says so.

# %% tags=["check"]
visit = {"x": np.float32([[1, 2], [3, 6]]), "s": np.ones(2), "b": np.zeros(2)}
visit |= {"running_mean": np.float32([0.5, 0.5]), "running_var": np.float32([4, 4])}
for letter in "ABC":
    print(letter, f"{museum.off(letter, visit):.2g} off")

# %% [markdown]
# So C is right here. Its fault needs other numbers, as the complaint says. (The source of the exhibits is on your
# disk. Reading it is a way to find bugs too, but of the next tool you will not have the source.)
#
# ## Task 15.1: reproduce
#
# A fault that cannot be repeated cannot be mended. Write a recipe for each exhibit: a
# case on which it is more than 0.01 off.
#
# - x has at least 6 elements and comes from the generator, so each seed gives another x, and *every* seed shows the
#   fault. A bug that shows only sometimes is a recipe that is not ready.
# - The numbers are fair: a right program in the same types must agree with the formula.


# %%
def reproduce(letter, seed):
    """A case on which the exhibit is wrong, with random numbers."""
    rng = np.random.default_rng(seed)
    # SOLUTION 15.1: a recipe for each exhibit
    if letter in "ABC":
        x = rng.standard_normal((1 if letter == "C" else 8, 6)) * 3 + 5
        case = {"x": x, "s": np.ones(6), "b": np.zeros(6)}
        return {**case, "running_mean": np.zeros(6), "running_var": np.ones(6)}
    if letter == "D":
        x = (rng.standard_normal((2, 4, 5)) + 10_000).astype(np.float32)
        return {"x": x, "s": np.ones(4), "b": np.zeros(4), "num_groups": 2}
    if letter == "E":
        x = rng.standard_normal((2, 4, 5)) * 3 + 5
        return {"x": x, "s": np.ones(2), "b": np.zeros(2), "num_groups": 2}
    if letter == "F":
        x, ones = rng.standard_normal((2, 3, 4)) + np.arange(3)[:, None], np.ones((3, 4))
        return {"x": x, "s": ones, "b": 0 * ones, "axis": 1}
    if letter == "G":
        x = np.float32(1e20 * rng.standard_normal((2, 5)))
        return {"x": x, "s": np.ones(5), "b": np.zeros(5)}
    return {"x": rng.uniform(300, 900, (2, 5)).astype(np.float16)}
    # END


# %% tags=["check"]
check("15.1")

# %% [markdown]
# ## Task 15.2: shrink
#
# A maintainer has ten minutes for your report. Give each exhibit's smallest case: the
# fewest elements of x on which it is still more than 0.01 off. Only x counts.
# Its numbers must be short as well: at most 6 characters each as `f"{v:g}"` prints them,
# such as 10002, -0.5 or 1e+20.
#
# Start from a case of yours and leave out axes and places as long as the fault shows (lab 11 has a machine for that).
# Or think: how many numbers does the fault need at least?


# %%
def smallest(letter):
    """The case of this exhibit with the fewest elements of x."""
    # SOLUTION 15.2: the smallest case of each exhibit
    one = np.ones(1)
    if letter in "ABC":
        case = {"x": np.array([[3.0]]), "s": one, "b": 0 * one}
        return {**case, "running_mean": 0 * one, "running_var": one}
    if letter == "D":
        x = np.float32([[[10_000, 10_002]]])
        return {"x": x, "s": one, "b": 0 * one, "num_groups": 1}
    if letter == "E":
        return {"x": np.array([[0.0, 5.0]]), "s": one, "b": 0 * one, "num_groups": 1}
    if letter == "F":
        ones = np.ones((2, 1))
        return {"x": np.array([[0.0], [2.0]]), "s": ones, "b": 0 * ones, "axis": 0}
    if letter == "G":
        return {"x": np.float32([0, 1e20]), "s": np.ones(2), "b": np.zeros(2)}
    return {"x": np.float16([300])}
    # END


# %% tags=["check"]
check("15.2")

# %% [markdown]
# ### Guess before you run
#
# D, G and H hide until numbers are large. The next picture moves the numbers and draws how far each is off: D with an
# offset, G and H with a factor. Guess first, from what you know of the types: float32 keeps 24 binary digits and ends
# at 3.4e38, float16 ends at 65504. At which offset does D go wrong, at which size do G and H?

# %% tags=["plot"]
base = np.random.default_rng(0).standard_normal(32)


def moved(letter, size):
    """A case of 32 numbers, shifted (D) or stretched (G, H) by this size."""
    if letter == "D":
        x = (base + size).astype(np.float32).reshape(1, 1, 32)
        return {"x": x, "s": np.ones(1), "b": np.zeros(1), "num_groups": 1}
    if letter == "G":
        x = (base * size).astype(np.float32)
        return {"x": x, "s": np.ones(32), "b": np.zeros(32), "eps": 0.0}
    return {"x": (np.array([0.6, 0.8]) * size).astype(np.float16)}


EDGES = {
    "D": (2.0**12, "offset", "4096, whose square\nneeds all 24 digits"),
    "G": (3.4e38**0.5, "size", "1.8e19, whose square\nis 3.4e38"),
    "H": (65504**0.5, "norm", "256, whose square\nis 65536"),
}
TICKS = {"D": [1, 1e2, 1e4], "G": [1, 1e10, 1e20, 1e30], "H": [1, 1e2, 1e4]}
figure, panels = plt.subplots(1, 3, figsize=(12, 4.2), layout="constrained", sharey=True)
for panel, letter in zip(panels, EDGES, strict=True):
    edge, name, words = EDGES[letter]
    ticks = TICKS[letter]
    sizes = np.geomspace(1, ticks[-1], 61)
    errors = np.array([museum.off(letter, moved(letter, size)) for size in sizes])
    panel.loglog(sizes, np.clip(errors, 1e-9, 10), "o-", color=VERMILLION, markersize=4)
    panel.axhline(0.01, color=GREY, linestyle=":")
    panel.axvline(edge, color=BLUE, linestyle="--", label=words)
    panel.set_title(f"Exhibit {letter}, {museum.PLAQUES[letter].tool}")
    panel.set_xlabel(f"{name} of the numbers")
    panel.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    panel.set_yticks([1e-8, 1e-6, 1e-4, 1e-2, 1], ["1e-8", "1e-6", "1e-4", "0.01", "1"])
    panel.minorticks_off()
    panel.legend(loc="upper left")
panels[0].set(ylabel="how far off (infinity and NaN drawn at 10)", ylim=(5e-10, 3e3))
show(
    figure,
    "Three panels: how far exhibits D, G and H are off, against the size of their "
    "numbers, both logarithmic. D's error grows with the square of the offset, to 1 at "
    "about 4096. G is right up to 1e19 and H up to 256; then their errors jump to 1.",
)

# %% [markdown]
# D goes wrong slowly, G and H at once: D rounds, G and H leave the range of their type. (The errors of 1e-4 on the left
# of H are the rounding of float16 itself.)
#
# ## Task 15.3: explain
#
# Now the cause. A formula tells *that* a program is wrong; a **property** can tell *why*. For each exhibit write a
# test of one property that its cause breaks, and that the room's other faults leave alone. Each test gets `norm`, a
# function with the room's signature, and is run on
#
# - two right programs, which round in different places: it must pass;
# - the other exhibits of the room, and a neighbour with yet another fault: it must pass;
# - the exhibit and *siblings*, other programs with the same cause: an assertion must fail.
#
# So the comparison with the formula on random numbers finds everything and explains nothing: it is not enough.
# Properties that norms have: y does not change when ... (lab 1); with momentum 1 or 0.5 ...; two ways to say the same
# (a reshaped x, a repeated scale) give the same. Choose numbers on which the other faults of the room stay hidden.
#
# The neighbours: in room batch_norm a running variance that divides by m - 1; in group_norm sums in order in float32
# (three digits are left at 10000); in layer_norm float64 computed in float32; in lp_norm 0 / 0, and for p = 1 the sum
# of x instead of |x|.


# %%
def cause_A(norm):
    """In training, y does not ..."""
    # SOLUTION 15.3: a property that A breaks
    x = np.random.default_rng(0).standard_normal((5, 3)) + 1
    s, b = np.array([1.0, 2.0, -1.0]), np.array([0.0, 1.0, 2.0])
    fresh, _, _ = norm(x, s, b, np.zeros(3), np.ones(3))
    old, _, _ = norm(x, s, b, np.full(3, 7.0), np.full(3, 9.0))
    np.testing.assert_allclose(fresh, old, rtol=1e-9, atol=1e-9)
    # END


def cause_B(norm):
    """With this momentum the running statistics ..."""
    # SOLUTION 15.3: a property that B breaks
    x = np.random.default_rng(1).standard_normal((5, 3)) + 1
    mean, var = np.array([1.0, 2.0, 3.0]), np.array([4.0, 5.0, 6.0])
    _, new_mean, new_var = norm(x, np.ones(3), np.zeros(3), mean, var, momentum=1.0)
    np.testing.assert_allclose(new_mean, mean, rtol=1e-9)
    np.testing.assert_allclose(new_var, var, rtol=1e-9)
    # END


def cause_C(norm):
    """One value a channel: y is ..., and the running statistics ..."""
    # SOLUTION 15.3: a property that C breaks
    x, b = np.array([[2.0, 5.0]]), np.array([0.5, -1.0])
    mean, var = x[0], np.array([4.0, 8.0])  # this mean hides A, and momentum 0.5 hides B
    y, _, new_var = norm(x, np.ones(2), b, mean, var, momentum=0.5)
    np.testing.assert_allclose(y, [b], atol=1e-9)
    np.testing.assert_allclose(new_var, var / 2, rtol=1e-9)
    # END


def cause_D(norm):
    """y does not change when ..."""
    # SOLUTION 15.3: a property that D breaks
    x = np.random.default_rng(3).integers(-3, 4, (2, 4, 9)).astype(np.float32)
    s, b = np.ones(4, np.float32), np.zeros(4, np.float32)  # of channels: E stays hidden
    far = norm(x + np.float32(10_000), s, b, 2)
    np.testing.assert_allclose(far, norm(x, s, b, 2), atol=0.02)
    # END


def cause_E(norm):
    """A scale for each group is the same as ..."""
    # SOLUTION 15.3: a property that E breaks
    x = np.random.default_rng(4).standard_normal((2, 6, 5))
    s, b = np.array([1.0, 2.0, -3.0]), np.array([0.0, 1.0, 5.0])
    right = norm(x, np.repeat(s, 2), np.repeat(b, 2), 3)
    np.testing.assert_allclose(norm(x, s, b, 3), right, rtol=1e-5, atol=1e-5)
    # END


def cause_F(norm):
    """Several axes are the same as ..."""
    # SOLUTION 15.3: a property that F breaks
    rng = np.random.default_rng(5)
    x, s, b = rng.standard_normal((2, 3, 4)), *rng.standard_normal((2, 3, 4))
    flat = norm(x.reshape(2, 12), s.ravel(), b.ravel())
    several = norm(x, s, b, axis=1).reshape(2, 12)
    np.testing.assert_allclose(several, flat, rtol=1e-4, atol=1e-4)
    # END


def cause_G(norm):
    """y does not change when ..."""
    # SOLUTION 15.3: a property that G breaks
    x = np.random.default_rng(6).integers(-3, 4, (2, 9)).astype(np.float32)
    s, b = np.ones(9, np.float32), np.zeros(9, np.float32)
    large = norm(x * np.float32(2.0**67), s, b, eps=0.0)
    np.testing.assert_allclose(large, norm(x, s, b, eps=0.0), atol=1e-4)
    # END


def cause_H(norm):
    """y does not change when ..."""
    # SOLUTION 15.3: a property that H breaks
    x = np.array([[300, 400], [500, 1200]], np.float16)
    np.testing.assert_allclose(norm(x), norm(x / np.float16(128)), atol=2e-3)
    # END


# %% tags=["check"]
check("15.3")

# %% [markdown]
# ### Turn the plaques round
#
# On the back of each is the page that tells of the fault: a file of less than a kilobyte, the right answer, and what
# each tool gave. `minorm conform docs/conformance/variance-by-squares.onnx` asks the tools that you have. Did you
# find the causes that stand there?

# %% tags=["check"]
print(museum.guide(causes=True))

# %% [markdown]
# ## Part B: mend it, and keep it away (about 60 minutes)
#
# This is a good place to stop. When you come back, run the cells above again ("Run All Above Selected Cell").
#
# ## Task 15.4: mend
#
# Write the four functions as they should be, with NumPy alone. Calling minorm, PyTorch or another library is seen and
# refused: you are the one who writes it. The checks try what broke the exhibits: batches of one, large offsets,
# numbers of 1e20, float16, several axes, scales of groups, rows of zeros, and odd shapes.


# %%
def batch_norm(x, s, b, running_mean, running_var, momentum=0.9, eps=1e-5):
    """y in the type of x, and the new running mean and var in the type of the old."""
    # SOLUTION 15.4: training, as it should be
    axes, along = (0, *range(2, x.ndim)), (-1, *[1] * (x.ndim - 2))
    wide = x.astype(np.float64)
    mean, var = wide.mean(axis=axes), wide.var(axis=axes)
    xhat = (wide - mean.reshape(along)) / np.sqrt(var.reshape(along) + eps)
    y = (xhat * s.reshape(along) + b.reshape(along)).astype(x.dtype)
    new_mean = running_mean.astype(np.float64) * momentum + mean * (1 - momentum)
    new_var = running_var.astype(np.float64) * momentum + var * (1 - momentum)
    return y, new_mean.astype(running_mean.dtype), new_var.astype(running_var.dtype)
    # END


def group_norm(x, s, b, num_groups, eps=1e-5):
    """y in the type of x; s and b of each channel or of each group."""
    # SOLUTION 15.4: groups, as they should be
    channels, along = x.shape[1], (-1, *[1] * (x.ndim - 2))
    groups = x.astype(np.float64).reshape(len(x), num_groups, -1)
    c = groups - groups.mean(axis=2, keepdims=True)
    xhat = (c / np.sqrt((c * c).mean(axis=2, keepdims=True) + eps)).reshape(x.shape)
    s, b = (np.repeat(v, channels // len(v)).reshape(along) for v in (s, b))
    return (xhat * s + b).astype(x.dtype)
    # END


def layer_norm(x, s, b, axis=-1, eps=1e-5):
    """y in the type of x; over all axes from `axis` to the last."""
    # SOLUTION 15.4: several axes, and numbers of any size
    axes = tuple(range(axis % x.ndim, x.ndim))
    wide = x.astype(np.float64)
    c = wide - wide.mean(axis=axes, keepdims=True)
    xhat = c / np.sqrt((c * c).mean(axis=axes, keepdims=True) + eps)
    return (xhat * s + b).astype(x.dtype)
    # END


def lp_norm(x, p=2, axis=-1):
    """x / norm in the type of x, and 0 where the norm is 0."""
    # SOLUTION 15.4: a norm that does not overflow
    wide = x.astype(np.float64)
    norm = (np.abs(wide) ** p).sum(axis=axis, keepdims=True) ** (1 / p)
    return (wide / np.where(norm == 0, 1, norm)).astype(x.dtype)
    # END


# %% tags=["check"]
check("15.4")

# %% [markdown]
# ### Before and after
#
# Your smallest cases, given to the exhibits and to your functions.

# %% tags=["plot"]
FUNCTIONS = (batch_norm, group_norm, layer_norm, lp_norm)
MENDED = {function.__name__: function for function in FUNCTIONS}


def widened(case):
    """The same case in float64: there none of the eight is difficult."""
    return {k: np.float64(v) if np.ndim(v) else v for k, v in case.items()}


before, after = [], []
for letter, plaque in museum.PLAQUES.items():
    case, mended = smallest(letter), MENDED[plaque.function]
    before.append(min(museum.off(letter, case), 10))
    after.append(max(museum.distance(mended(**case), mended(**widened(case))), 1e-9))

figure, panel = plt.subplots(figsize=(9.5, 4.4), layout="constrained")
panel.vlines(range(8), after, before, color=GREY, linewidth=1, zorder=1)
panel.plot(before, "s", color=VERMILLION, markersize=9, label="the exhibit")
panel.plot(after, "o", color=BLUE, markersize=9, label="mended")
panel.set_yscale("log")
panel.set_yticks([1e-9, 1e-6, 1e-3, 1], ["1e-9", "1e-6", "0.001", "1"])
panel.minorticks_off()
names = [f"{letter}\n{plaque.tool}" for letter, plaque in museum.PLAQUES.items()]
panel.set_xticks(range(8), names, fontsize=8)
panel.set(
    title="From wrong in the first digit to right in the type of x",
    ylabel="how far off (from 1e-9 to 10)",
    ylim=(3e-10, 3000),
)
panel.legend(loc="upper right", ncols=2)
show(
    figure,
    "For each exhibit A to H how far it is off on its smallest case, logarithmic, and "
    "how far the mended function is. The exhibits are 1 to 10 off or more, the mended "
    "functions less than 1e-7.",
)

# %% [markdown]
# ## Task 15.5: the test that stays
#
# The faults come back in other clothes: a developer makes the variance faster, another
# converts a model. Write the tests that stay in the repository. Each test gets `norm`,
# which has all four functions:
#
#     y, new_mean, new_var = norm.batch_norm(x, s, b, running_mean, running_var, momentum=0.9, eps=1e-5)
#     norm.group_norm(...)     norm.layer_norm(...)     norm.lp_norm(...)
#
# All tests must pass on a right implementation. On each of six wrong ones, at least one must fail; each fault that you
# find is a point. They are siblings of the exhibits, and not all are those that you have met. A regression test may
# compare with a number that you worked out by hand, with a formula, or with a property.


# %%
def test_batch_norm(norm):
    """The right results of training."""
    # SOLUTION 15.5: a regression test of batch_norm
    x = np.array([[1.0, 2.0], [3.0, 6.0]])
    s, b = np.array([1.0, 2.0]), np.array([0.0, 1.0])
    mean, var = np.full(2, 0.5), np.full(2, 9.0)
    y, new_mean, new_var = norm.batch_norm(x, s, b, mean, var, momentum=0.9, eps=0.0)
    np.testing.assert_allclose(y, [[-1, -1], [1, 3]], atol=1e-9)
    np.testing.assert_allclose(new_mean, [0.65, 0.85])
    np.testing.assert_allclose(new_var, [8.2, 8.5])
    y, _, new_var = norm.batch_norm(x[:1], s, b, mean, var, momentum=0.9)
    np.testing.assert_allclose(y, [b], atol=1e-9)
    np.testing.assert_allclose(new_var, [8.1, 8.1])
    # END


def test_group_norm(norm):
    """Offsets, and scales of groups."""
    # SOLUTION 15.5: a regression test of group_norm
    x = np.float32([[[10_001], [10_003], [10_005], [10_009]]])
    s, b = np.array([1.0, 2.0]), np.array([0.0, 1.0])
    y = norm.group_norm(x, s, b, 2, eps=0.0)
    np.testing.assert_allclose(y.ravel(), [-1, 1, -1, 3], atol=1e-4)
    # END


def test_layer_norm(norm):
    """Several axes, and large numbers."""
    # SOLUTION 15.5: a regression test of layer_norm
    x, s = np.array([[[1.0, 1.0], [3.0, 3.0]]]), np.array([[1.0, 2.0], [3.0, 4.0]])
    y = norm.layer_norm(x, s, 0 * s, axis=1, eps=0.0)
    np.testing.assert_allclose(y, [[[-1, -2], [3, 4]]], atol=1e-9)
    y = norm.layer_norm(np.float32([[0, 1e20]]), np.ones(2), np.zeros(2))
    np.testing.assert_allclose(y, [[-1, 1]], atol=1e-6)
    # END


def test_lp_norm(norm):
    """float16, signs and zeros."""
    # SOLUTION 15.5: a regression test of lp_norm
    y = norm.lp_norm(np.float16([[300, -400], [0, 0]]))
    np.testing.assert_allclose(y, [[0.6, -0.8], [0, 0]], atol=1e-3)
    y = norm.lp_norm(np.array([[-3.0, 5.0]]), p=1)
    np.testing.assert_allclose(y, [[-0.375, 0.625]])
    # END


# %% tags=["check"]
check("15.5")

# %% [markdown]
# ## To think about
#
# 1. Exhibits D and G both square numbers in float32. Why does one lose digits slowly and the other everything at once?
#    Which of the two would a test with random numbers of size 1 find?
# 2. Onnxruntime, TVM and PaddlePaddle have the variance of exhibit D, with the same digits. Is it therefore right, in
#    some sense? What would you say to a maintainer who answers "PyTorch users never have such offsets"?
# 3. Exhibit C hands a batch of one through; PyTorch refuses it with an error; ONNX's formula gives y = b. Which would
#    you choose in a library, and for whom?
# 4. Your test of 15.3 must pass on programs with other faults, your tests of 15.5 need not. What is each good for, on
#    the day when a test fails?
