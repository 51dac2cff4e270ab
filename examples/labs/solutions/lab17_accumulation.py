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
# # Lab 17: BatchNorm under accumulation
#
# **The question.** A batch of 64 does not fit into memory, so you run eight micro-batches of 8 and add up their
# gradients. Is that the gradient of the batch of 64? And what do the running statistics become?
#
# First you merge gradients with the right weights, and see that this is exact with LayerNorm and wrong with
# BatchNorm. Then you find out what eight updates do to a running mean, merge the statistics of micro-batches, and
# write an accumulation in two passes that is exact with BatchNorm, too. At the end you cut a full batch on purpose,
# and write tests that are graded by the bugs that they find.
#
# You need labs 1, 2 and 4; lab 9, where the micro-batches are on several computers, is close. Time: about 75 minutes.

# %%
import numpy as np

from minorm.labs.visible import checker

check = checker(17, globals())

# %% tags=["plot"]
import matplotlib.pyplot as plt

from minorm.labs.pictures import show
from minorm.plots import BLUE, GREEN, GREY, STYLE, VERMILLION

plt.rcParams.update(STYLE)

# %% [markdown]
# ## The letters
#
# A batch has N samples, cut into k micro-batches of n_1 ... n_k. The last may be smaller: 20 samples in micro-batches
# of 8 are 8, 8 and 4. The network is small enough to see everything:
#
#     h = x @ w      xhat = (h - mean) / sqrt(var + eps)      y = xhat * s + b      loss = 1/N sum 1/2 |y - t|^2
#
# x is (N, D), h and y are (N, C). BatchNorm takes mean and var over the samples, LayerNorm over the C features.
# `batch_gradients` gives the gradients for one batch of any size, by the three terms of lab 3.


# %%
def batch_gradients(x, t, w, s, b, axis, eps=1e-5):
    """Gradients of the mean loss of this batch. axis 0 is BatchNorm, 1 is LayerNorm."""
    h = x @ w
    c = h - h.mean(axis=axis, keepdims=True)
    rstd = ((c * c).mean(axis=axis, keepdims=True) + eps) ** -0.5
    xhat = c * rstd
    dy = (xhat * s + b - t) / len(x)
    g = dy * s
    mean_g = g.mean(axis=axis, keepdims=True)
    mean_gx = (g * xhat).mean(axis=axis, keepdims=True)
    dh = rstd * (g - mean_g - xhat * mean_gx)
    return {"w": x.T @ dh, "s": (dy * xhat).sum(axis=0), "b": dy.sum(axis=0)}


# %% [markdown]
# ## Task 17.1: weights
#
# Each micro-batch has the gradient of its mean loss, 1/n_i sum. The gradient of the whole batch's mean loss is
# made of them, but not by a plain mean: a sample in a small micro-batch would count more than one in a large one.
# Which weights make each sample count 1/N?
#
# `gradients` is a list of dicts of arrays, one for each micro-batch, and `sizes` the list of n_i. Return one dict.


# %%
def merge_gradients(gradients, sizes):
    """The gradient of the batch's mean loss, from the micro-batches' mean losses."""
    # SOLUTION 17.1: the weighted mean of the gradients
    weights = [n / sum(sizes) for n in sizes]
    merged_ones = {}
    for name in gradients[0]:
        pairs = zip(weights, gradients, strict=True)
        merged_ones[name] = sum(weight * g[name] for weight, g in pairs)
    return merged_ones
    # END


# %% tags=["check"]
check("17.1")

# %% [markdown]
# ### Is it the batch's gradient?
#
# A batch of 64, cut into k equal micro-batches; their gradients are merged by your function. The picture shows how far
# that is from the gradient of the whole batch, as a share of its length. **Guess before you run it:** for which of
# the two norms is it exact? And does the error of the other grow or shrink with k?


# %%
def example(n=64, seed=0):
    """x, t and the three parameters."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, 6)) + rng.standard_normal(6)
    t, w = rng.standard_normal((n, 5)), rng.standard_normal((6, 5))
    return x, t, w, rng.uniform(0.5, 2, 5), rng.standard_normal(5)


def apart(gradients, right):
    """The distance of two gradients, as a share of the right one's length."""
    found = np.concatenate([gradients[name].ravel() for name in "wsb"])
    wanted = np.concatenate([right[name].ravel() for name in "wsb"])
    return np.linalg.norm(found - wanted) / np.linalg.norm(wanted)


def accumulated(x, t, w, s, b, k, axis):
    """Gradients of k micro-batches, merged."""
    pieces = list(zip(np.array_split(x, k), np.array_split(t, k), strict=True))
    gradients = [batch_gradients(*piece, w, s, b, axis) for piece in pieces]
    return merge_gradients(gradients, [len(piece[0]) for piece in pieces])


# %% tags=["plot"]
x, t, *parameters = example()
COUNTS = [1, 2, 4, 8, 16, 32]
figure, panel = plt.subplots(figsize=(8.5, 4.4), layout="constrained")
LOOKS = (("BatchNorm", VERMILLION, "s--"), ("LayerNorm", BLUE, "o-"))
for axis, (name, color, style) in enumerate(LOOKS):
    right = batch_gradients(x, t, *parameters, axis)
    errors = [apart(accumulated(x, t, *parameters, k, axis), right) for k in COUNTS]
    panel.plot(COUNTS, errors, style, color=color, markersize=6, label=name)
    print(name, " ".join(f"{error:.1e}" for error in errors))
panel.set_xscale("log", base=2)
panel.set_xticks(COUNTS, COUNTS)
panel.set_yscale("symlog", linthresh=1e-16)
TICKS = ["0", "1e-16", "1e-12", "1e-8", "1e-4", "1"]
panel.set_yticks([float(tick) for tick in TICKS], TICKS)
panel.set(
    title="Accumulated gradients are the batch's with LayerNorm, not with BatchNorm",
    xlabel="micro-batches that a batch of 64 is cut into",
    ylabel="error, as a share of the gradient",
    ylim=(-1e-17, 10),
)
panel.legend(loc="center right")
show(
    figure,
    "The error of the accumulated gradient as a share of the gradient's length, "
    "logarithmic, over the number of micro-batches from 1 to 32. With LayerNorm it stays "
    "at the rounding of double precision, about 1e-16. With BatchNorm it is 0 for one "
    "micro-batch, 0.01 for two and rises to 0.13 for 32.",
)

# %% [markdown]
# The loss is a mean over samples, so its gradient is, too, as long as a sample's loss depends on that sample alone.
# With BatchNorm it depends on its micro-batch: each has its own mean and var. Accumulation computes the exact gradient
# of another function, the loss with *ghost batches* (task 17.5). For the batch of 64 you need its statistics.
#
# ## Task 17.2: one update or k
#
# A BatchNorm layer updates its running statistics in each forward pass. In PyTorch's convention
#
#     running = (1 - momentum) running + momentum * batch
#
# so k micro-batches make k updates where one was meant. After them,
#
# - which share of the old value has been replaced? `compounded(momentum, k)`;
# - which share does each micro-batch have, the first to the last? `shares(momentum, k)`, k numbers;
# - which momentum must each of k updates have, so that together they replace as much as one update with `momentum`?
#   `per_update(momentum, k)`.


# %%
def compounded(momentum, k):
    """The share of the old running value that k updates replace."""
    # SOLUTION 17.2: the momentum of k updates together
    return 1 - (1 - momentum) ** k
    # END


def shares(momentum, k):
    """The share of each of k micro-batches in the running value, in their order."""
    # SOLUTION 17.2: the share of each micro-batch
    return momentum * (1 - momentum) ** np.arange(k - 1, -1, -1)
    # END


def per_update(momentum, k):
    """The momentum with which k updates replace as much as one with `momentum`."""
    # SOLUTION 17.2: the momentum of each of k updates
    return 1 - (1 - momentum) ** (1 / k)
    # END


# %% tags=["check"]
check("17.2")

# %% [markdown]
# The next picture is a running mean that has to follow a jump of the data from 0 to 1, in batches of 64 with
# momentum 0.1, and in 16 micro-batches of 4. **Guess before you run it:** where is each of them one batch after the
# jump?

# %% tags=["plot"]
STEPS, PIECES = 40, 16
rng = np.random.default_rng(3)
batches = rng.standard_normal((STEPS, 64)) + (np.arange(STEPS) >= 10)[:, None]
RULES = (
    ("one update a batch, momentum 0.1", 1, 0.1, GREY, "-"),
    ("16 updates, momentum 0.1", PIECES, 0.1, VERMILLION, "--"),
    ("16 updates, your momentum", PIECES, per_update(0.1, PIECES), BLUE, ":"),
)
figure, panel = plt.subplots(figsize=(8.5, 4.4), layout="constrained")
for name, pieces, momentum, color, style in RULES:
    running, path = 0.0, []
    for mean in batches.reshape(STEPS * pieces, -1).mean(axis=1):
        running = (1 - momentum) * running + momentum * mean
        path.append(running)
    ends = path[pieces - 1 :: pieces]
    panel.plot(range(1, STEPS + 1), ends, style, color=color, linewidth=2.2, label=name)
panel.set(
    title="16 updates forget almost at once, and keep the noise of a few samples",
    xlabel="batch of 64",
    ylabel="running mean of one channel",
)
panel.legend(loc="lower right")
show(
    figure,
    "A running mean over 40 batches; the data jump from 0 to 1 after the tenth. One "
    "update a batch with momentum 0.1 rises slowly to about 0.95. Sixteen updates with "
    "the same momentum are at 0.9 at once, and then go up and down by about 0.2. Sixteen "
    "updates with the student's momentum run along the first line and cover it.",
)

# %% [markdown]
# ## Task 17.3: merge the statistics
#
# The mean and variance of the whole batch can be had from those of the micro-batches. Statistics are a tuple
# (n, mean, var) with the population variance, which divides by n. For two of them, a and b, Chan's formula is
#
#     n = n_a + n_b      delta = mean_b - mean_a      mean = mean_a + n_b/n delta
#     var = (n_a var_a + n_b var_b) / n + n_a n_b / n^2 delta^2
#
# The last term is the variance of the means. Without it, two micro-batches with means 0 and 100 would have the
# variance of either. `statistics(h)` gives the tuple of one micro-batch, `merged(a, b)` merges two.
#
# Then the running statistics get *one* update with the merged tuple, as for the whole batch. PyTorch's running
# variance takes the unbiased estimate, var * n / (n - 1): with the n of the whole batch.


# %%
def statistics(h):
    """(n, mean, var) of a micro-batch h (n, C)."""
    # SOLUTION 17.3: size, mean and population variance
    return len(h), h.mean(axis=0), h.var(axis=0)
    # END


def merged(a, b):
    """The statistics of two micro-batches together."""
    # SOLUTION 17.3: Chan's formula
    (n_a, mean_a, var_a), (n_b, mean_b, var_b) = a, b
    n, delta = n_a + n_b, mean_b - mean_a
    var = (n_a * var_a + n_b * var_b) / n + n_a * n_b / n**2 * delta**2
    return n, mean_a + n_b / n * delta, var
    # END


def running_update(running_mean, running_var, total, momentum=0.1):
    """Both running statistics after one update with the merged tuple, as PyTorch's."""
    # SOLUTION 17.3: one update, with the unbiased variance
    n, mean, var = total
    unbiased = var * n / (n - 1)
    new_mean = (1 - momentum) * running_mean + momentum * mean
    return new_mean, (1 - momentum) * running_var + momentum * unbiased
    # END


# %% tags=["check"]
check("17.3")

# %% [markdown]
# ## Task 17.4: two passes
#
# Now the exact gradient, with one micro-batch in memory at a time. The first pass runs x @ w on each and merges the
# statistics: (N, mean, var) of the batch. The second pass normalizes each micro-batch with *them*, so its y is that
# of the whole batch. What about backward? By the three terms, with means over the *batch*,
#
#     g = dy * s        dh = rstd * (g - mean(g) - xhat * mean(g * xhat))        dw = x^T dh
#
# no micro-batch can compute dh while the others have not been seen. But dw is linear in what can be added up:
#
#     dw = rstd * s * (x^T dy - sum(x) db / N - x^T xhat * ds / N)       db = sum(dy)      ds = sum(dy * xhat)
#
# since mean(g) = s * db / N and mean(g * xhat) = s * ds / N. (Check it with a pencil: take x^T of each term.) So
# `second_pass` returns five sums of one micro-batch, in a dict:
#
#     "db"  sum(dy), (C)              "xdy"    x^T dy, (D, C)         "xsum"  sum(x) over the samples, (D)
#     "ds"  sum(dy * xhat), (C)       "xxhat"  x^T xhat, (D, C)
#
# The sums of all micro-batches are added, without any weights, and `gradients` makes dw, ds and db of them. Where does
# the weight of a ragged micro-batch come in? In dy: the loss divides by N, whatever the micro-batch's size.


# %%
def second_pass(x, t, w, s, b, total, eps=1e-5):
    """The five sums of one micro-batch. total: (N, mean, var) of the batch."""
    # SOLUTION 17.4: normalize with the batch's statistics, and add up
    n, mean, var = total
    xhat = (x @ w - mean) / np.sqrt(var + eps)
    dy = (xhat * s + b - t) / n
    sums = {"db": dy.sum(axis=0), "ds": (dy * xhat).sum(axis=0), "xsum": x.sum(axis=0)}
    return {**sums, "xdy": x.T @ dy, "xxhat": x.T @ xhat}
    # END


def gradients(sums, s, total, eps=1e-5):
    """{"w": dw, "s": ds, "b": db} of the batch, from the sums over all micro-batches."""
    # SOLUTION 17.4: the gradients from the sums
    n, _, var = total
    from_mean = np.outer(sums["xsum"], sums["db"]) / n
    from_var = sums["xxhat"] * sums["ds"] / n
    dw = (sums["xdy"] - from_mean - from_var) * s / np.sqrt(var + eps)
    return {"w": dw, "s": sums["ds"], "b": sums["db"]}
    # END


# %% tags=["check"]
check("17.4")

# %% [markdown] A batch of 66 in micro-batches of 8, so that the last has 2 samples. Its
# gradient in three ways, and how far each is from that of the whole batch. **Guess before
# you run it:** how much do the weights help, if each micro-batch has separate statistics?


# %%
def two_passes(x, t, w, s, b, size):
    """Exact gradients from micro-batches of `size`, the last one perhaps smaller."""
    places = range(0, len(x), size)
    total = statistics(x[:size] @ w)
    for start in places[1:]:
        total = merged(total, statistics(x[start : start + size] @ w))
    pieces = [(x[i : i + size], t[i : i + size]) for i in places]
    parts = [second_pass(*piece, w, s, b, total) for piece in pieces]
    sums = {name: sum(part[name] for part in parts) for name in parts[0]}
    return gradients(sums, s, total)


def one_pass(x, t, w, s, b, size):
    """The gradients of micro-batches with separate statistics, and their sizes."""
    pieces = [(x[i : i + size], t[i : i + size]) for i in range(0, len(x), size)]
    parts = [batch_gradients(*piece, w, s, b, 0) for piece in pieces]
    return parts, [len(piece[0]) for piece in pieces]


# %% tags=["plot"]
x, t, *parameters = example(n=66)
right = batch_gradients(x, t, *parameters, 0)
parts, sizes = one_pass(x, t, *parameters, size=8)
WAYS = {
    "one pass, plain mean": merge_gradients(parts, [1] * len(parts)),
    "one pass, weighted": merge_gradients(parts, sizes),
    "two passes (yours)": two_passes(x, t, *parameters, size=8),
}
for name, found in WAYS.items():
    error = apart(found, right)
    print(f"{name:<30}{error:.1e}")
assert error < 1e-12

# %% [markdown]
# ## Task 17.5: ghost batches
#
# Some people cut a full batch *on purpose*: each ghost batch of `size` samples is normalized with its own statistics,
# although all of them are in memory. The noise regularizes, and k computers need not talk to each other. Ghosts are
# neighbours in the batch; the last one may be smaller.
#
# Then what do running statistics mean? They collect the ghosts' means and variances. The variance of the batch falls
# into two parts, each sample counting the same:
#
#     within  = 1/N sum n_i var_i           between = 1/N sum n_i (mean_i - mean)^2           var = within + between
#
# Running variances of ghosts see `within` only. Evaluation normalizes with it, though its data also vary by `between`.


# %%
def ghost_norm(x, size, eps=1e-5):
    """xhat of x (N, C), each ghost batch with its own statistics."""
    # SOLUTION 17.5: normalize each ghost batch
    y = np.empty(x.shape)
    for i in range(0, len(x), size):
        c = x[i : i + size] - x[i : i + size].mean(axis=0)
        y[i : i + size] = c / np.sqrt((c * c).mean(axis=0) + eps)
    return y
    # END


def within_and_between(x, size):
    """Both parts of the batch's variance, (C) each."""
    # SOLUTION 17.5: the variance inside ghosts and that of their means
    within, between, mean = 0.0, 0.0, x.mean(axis=0)
    for i in range(0, len(x), size):
        ghost = x[i : i + size]
        within = within + len(ghost) / len(x) * ghost.var(axis=0)
        between = between + len(ghost) / len(x) * (ghost.mean(axis=0) - mean) ** 2
    return within, between
    # END


# %% tags=["check"]
check("17.5")

# %% [markdown]
# How large is `within` as a share of the variance? **Guess before you run it**, for ghosts of 2, and for a batch whose
# samples are sorted by class, as some loaders leave them.

# %% tags=["plot"]
rng = np.random.default_rng(5)
classes = np.repeat(np.arange(8), 64)
sorted_x = rng.standard_normal((512, 50)) + rng.standard_normal((8, 50))[classes]
SIZES = [2, 4, 8, 16, 32, 64, 128, 256, 512]
figure, panel = plt.subplots(figsize=(8.5, 4.4), layout="constrained")
for name, x, color, style in (
    ("in random order", rng.permutation(sorted_x), BLUE, "o-"),
    ("sorted by class", sorted_x, VERMILLION, "s--"),
):
    seen = [np.mean(within_and_between(x, size)[0] / x.var(axis=0)) for size in SIZES]
    panel.plot(SIZES, seen, style, color=color, markersize=6, label=name)
sizes = np.array(SIZES)
panel.plot(sizes, 1 - 1 / sizes, ":", color=GREEN, linewidth=2, label="1 - 1 / size")
panel.set_xscale("log", base=2)
panel.set_xticks(SIZES, SIZES)
panel.set(
    title="Small or sorted ghosts do not see the whole variance",
    xlabel="samples in a ghost batch",
    ylabel="within, as a share of the variance",
    ylim=(0, 1.05),
)
panel.legend(loc="lower right")
show(
    figure,
    "The variance within ghost batches as a share of the batch's, over the size of a "
    "ghost from 2 to 512. In random order it follows 1 - 1 / size, from 0.5 to 1. Sorted "
    "by class it rises from 0.25 to 0.5 at ghosts of 64, which are one class, and goes "
    "on to 1 only then.",
)

# %% [markdown]
# In random order the factor n / (n - 1) of an unbiased estimate repairs it, with the *ghost's* n. Sorted by class
# nothing does: classes differ in their means, and no ghost sees two of them.
#
# ## Task 17.6: tests that find bugs
#
# As in lab 4: your tests run on a right implementation, where all must pass, and on wrong ones, where one must fail;
# each bug found is a point. `acc` has three functions, for lists of k arrays and sizes:
#
#     gradient = acc.gradient(gradients, sizes)
#     mean, var = acc.statistics(means, variances, sizes)
#     new_mean, new_var = acc.running(running_mean, running_var, means, variances, sizes, momentum=0.1)
#
# The variances are the population's, as in task 17.3. `running` makes one update with the merged statistics. The bugs:
# gradients averaged without weights; a ragged last micro-batch that counts as a full one; the variance of the means
# left out; variances averaged without weights; momentum applied k times; a biased running variance.


# %%
def test_gradient(acc):
    """The merged gradient."""
    # SOLUTION 17.6: a test of acc.gradient
    parts = list(np.random.default_rng(0).standard_normal((3, 4)))
    expected = (8 * parts[0] + 8 * parts[1] + 3 * parts[2]) / 19
    np.testing.assert_allclose(acc.gradient(parts, [8, 8, 3]), expected, rtol=1e-12)
    # END


def test_statistics(acc):
    """Merged statistics, and one update with them."""
    # SOLUTION 17.6: a test of acc.statistics and acc.running
    h = np.random.default_rng(1).standard_normal((19, 3)) * np.arange(1, 20)[:, None]
    pieces = [h[:8], h[8:16], h[16:]]
    means, variances = [p.mean(axis=0) for p in pieces], [p.var(axis=0) for p in pieces]
    mean, var = acc.statistics(means, variances, [8, 8, 3])
    np.testing.assert_allclose(mean, h.mean(axis=0), rtol=1e-10)
    np.testing.assert_allclose(var, h.var(axis=0), rtol=1e-10)
    old = np.ones(3), 2 * np.ones(3)
    mean, var = acc.running(*old, means, variances, [8, 8, 3], momentum=0.3)
    np.testing.assert_allclose(mean, 0.7 + 0.3 * h.mean(axis=0), rtol=1e-10)
    np.testing.assert_allclose(var, 1.4 + 0.3 * h.var(axis=0, ddof=1), rtol=1e-10)
    # END


# %% tags=["check"]
check("17.6")

# %% [markdown]
# ## To think about
#
# 1. Your second pass is exact because one linear layer stands below the BatchNorm. What would you have to keep or
#    compute once more for a network with ten layers below it, and with a second BatchNorm above?
# 2. Accumulation in one pass, with LayerNorm or GroupNorm, is exact. Dropout is drawn anew for each micro-batch. Is
#    the accumulated gradient still that of the batch?
# 3. A loss over tokens divides by the number of tokens, and micro-batches have sentences of unequal length. Which
#    n_i belong in your weights, and what do people get who divide by the number of sentences?
# 4. A user accumulates over 8 micro-batches and sets momentum to 0.1 / 8. How far off is
#    that from your momentum, for 0.1 and for 0.9?
