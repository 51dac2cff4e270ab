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
# # Lab 3: Backward
#
# **The question.** How does a gradient come back through a mean and a variance, when every x of a row acts on every y?
#
# First the slow way: the graph, node by node. Then the three terms that are left when it is simplified, which is all
# that any kernel computes. Yours then trains a real network, whose loss follows the library's to ten digits. At the
# end you write tests, which are graded by the bugs that they find.
#
# You need lab 1, the chain rule, and an idea of what `loss.backward()` does. Time: about 90 minutes.

# %%
import numpy as np

from minorm.labs.visible import checker

check = checker(3, globals())

# %% tags=["plot"]
import matplotlib.pyplot as plt

from minorm.labs.pictures import show
from minorm.plots import BLUE, GREY, STYLE, VERMILLION

plt.rcParams.update(STYLE | {"text.parse_math": True})  # powers of ten on axes

# %% [markdown]
# ## The letters
#
# dy is the gradient of the loss with respect to y, and likewise for dx, ds and db. Since y = xhat * s + b, the
# gradient with respect to xhat is
#
#     g = dy * s
#
# and from there on s and b are out of the way. A row has m elements; sums and means are over a row.
#
# ## Task 3.1: the graph
#
# Forward, one operation per line. Each value that backward needs has a name:
#
#     mean = 1/m sum(x)      c = x - mean      var = 1/m sum(c^2)      rstd = (var + eps)^(-1/2)      xhat = c * rstd
#
# Backward walks the lines from the last to the first. Each line takes the gradient of its result and gives one to
# each of its inputs; where a value is used twice, the gradients add up. Besides the ordinary derivatives you need
# only two rules:
#
# - where a number was *broadcast* over a row (rstd, mean), its gradient is the *sum* over the row;
# - where a row was *averaged* (into mean, into var), each element gets 1/m of the gradient.
#
# For instance the last line gives dc = g * rstd, and drstd = sum(g * c). The line before it gives the gradient dvar,
# by d(rstd)/d(var) = -1/2 rstd^3. Go on: c is used twice, and so is x.
#
# Do not use finite differences: the checks compare more digits than they have. A check also counts the numbers that
# your function computes: a backward pass takes a few operations on each element, a finite difference a whole forward
# pass for each.


# %%
def graph(x, g, axes, eps=1e-5):
    """dx for the gradient g of xhat; the statistics are over `axes`."""
    m = np.prod([x.shape[axis] for axis in axes])
    mean = x.mean(axis=axes, keepdims=True)
    c = x - mean
    var = (c * c).mean(axis=axes, keepdims=True)
    rstd = (var + eps) ** -0.5
    # SOLUTION 3.1: from xhat = c * rstd back to x, line by line
    dc = g * rstd
    drstd = (g * c).sum(axis=axes, keepdims=True)
    dvar = -0.5 * rstd**3 * drstd
    dc = dc + 2 * c * dvar / m
    dmean = -dc.sum(axis=axes, keepdims=True)
    return dc + dmean / m
    # END


# %% tags=["check"]
check("3.1")

# %% [markdown]
# ## Task 3.2: three terms
#
# Substitute the lines into each other and much cancels (docs/maths.md does it). What is left:
#
#     dx = rstd * (g - mean(g) - xhat * mean(g * xhat))
#
# Read it by what it does: the first term is the gradient as if the statistics were constants. The second takes its
# mean away, the third the part along xhat. And that must be so: adding a constant to x does not change xhat, so the
# gradient must not point there, sum(dx) = 0. Stretching x about its mean does not change xhat either, so sum(dx *
# xhat) = 0, if eps is 0.


# %%
def three_terms(g, xhat, rstd, axes):
    """dx from xhat and rstd, which has the reduced axes as axes of length 1."""
    # SOLUTION 3.2: the three-term formula
    mean_g = g.mean(axis=axes, keepdims=True)
    mean_gx = (g * xhat).mean(axis=axes, keepdims=True)
    return rstd * (g - mean_g - xhat * mean_gx)
    # END


# %% tags=["check"]
check("3.2")

# %% [markdown]
# ## Task 3.3: scale and bias
#
# y is linear in s and b, so this is easy except for one thing: *which* elements share an s? Not those that share a
# mean. In BatchNorm both are the same, a channel. In LayerNorm a mean belongs to a sample and an s to a feature. So
# the axes here are those along which s and b do *not* vary.
#
#     ds = sum(dy * xhat)        db = sum(dy)


# %%
def parameter_gradients(dy, xhat, axes):
    """ds and db, without the summed axes. axes: those along which s and b do not vary."""
    # SOLUTION 3.3: ds and db
    return (dy * xhat).sum(axis=axes), dy.sum(axis=axes)
    # END


# %% tags=["check"]
check("3.3")

# %% [markdown]
# ### Gradient flow: guess before you run
#
# The next cell builds a stack of thirty linear layers with ReLU and draws the size of the gradient of each layer's
# weights, once without and once with a BatchNorm behind each linear layer. How much of the gradient of the last layer
# reaches the first, in each of the two?

# %% tags=["plot"]
import minorm as mn
import minorm.functional as F
from minorm import data, nn

DEPTH, WIDTH = 30, 64


def gradient_sizes(normalized):
    mn.manual_seed(0)
    layers = [nn.Flatten()]
    for _ in range(DEPTH):
        layers.append(nn.Linear(WIDTH, WIDTH))
        if normalized:
            layers.append(nn.BatchNorm1d(WIDTH))
        layers.append(nn.ReLU())
    model = nn.Sequential(*layers, nn.Linear(WIDTH, 10))
    digits, _ = data.split_digits(seed=0)
    images, labels = next(iter(data.DataLoader(digits, batch_size=256)))
    F.cross_entropy(model(images), labels).backward()
    linear = [layer for layer in model.modules() if isinstance(layer, nn.Linear)]
    return [np.linalg.norm(layer.weight.grad.numpy()) for layer in linear]


CURVES = {"without": (False, VERMILLION, "s--"), "with BatchNorm": (True, BLUE, "o-")}
figure, panel = plt.subplots(figsize=(8.5, 4.6), layout="constrained")
for name, (normalized, color, style) in CURVES.items():
    sizes = gradient_sizes(normalized)
    panel.semilogy(range(1, DEPTH + 2), sizes, style, color=color, ms=5, label=name)
panel.set(
    title="Without BatchNorm no gradient reaches the first layers",
    xlabel="linear layer, counted from the input",
    ylabel="norm of the gradient of its weights",
)
panel.legend(loc="lower right")
show(
    figure,
    "Two curves: the norm of the gradient of the weights, logarithmic, in each of 31 "
    "linear layers. With BatchNorm it falls slowly, from 100 in the first layer to "
    "0.5 in the last. Without BatchNorm it is 0.02 in the last layer and shrinks to "
    "1e-12 in the first.",
)

# %% [markdown]
# With BatchNorm the gradient does not vanish; it even grows on its way to the input, by about a fifth with each
# layer. That is a property of BatchNorm with ReLU in a plain stack, and one reason why deep networks have shortcuts.
#
# ## Task 3.4: yours, in a layer
#
# Now the backward function of a backend (`minorm/kernels/protocol.py`). As in lab 1 everything is seen as four axes,
# (keep, keep, reduce, reduce), and a row is the last two:
#
# - `four(nest, x)`, `parameters(nest, s)` and `like(nest, dx4, x)` are known from lab 1;
# - `kept(nest, v)` gives a vector with one number a row, such as `stats.rstd`, the shape that broadcasts with them;
# - `parameter_sums(nest, terms4)` sums over all axes along which s and b do not vary.
#
# The statistics carry the mean as k + d (lab 2), so xhat = ((x - k) - d) * rstd. Two things set the family's members
# apart. Where nothing is centered (RMSNorm), the term mean(g) is absent: `equation.centered` says so. And where eps
# stands outside the root (MeanVarianceNormalization), mean(g * xhat) has a factor, `slope`, else 1: the first lines
# below fetch it.

# %%
from minorm.kernels.partial import PartialBackend
from minorm.kernels.reference.norm import four, kept, like, parameter_sums, parameters


def backward(nest, dy, x, stats, s, equation, needs=(True, True)):
    """dx, ds and db; s may be None.

    needs: whether dx is wanted, and whether ds and db are; you may always return all.
    """
    x4, dy4 = four(nest, x), four(nest, dy)
    k, d, rstd = kept(nest, stats.k), kept(nest, stats.d), kept(nest, stats.rstd)
    slope = kept(nest, equation.slope(stats.var) * np.ones(nest.rows))
    # SOLUTION 3.4: dx, ds and db over the four loops of a nest
    xhat = ((x4 - k) - d) * rstd
    g = dy4 if s is None else dy4 * parameters(nest, s)
    mean_g = g.mean(axis=(2, 3), keepdims=True) if equation.centered else 0
    mean_gx = slope * (g * xhat).mean(axis=(2, 3), keepdims=True)
    dx = like(nest, rstd * (g - mean_g - xhat * mean_gx), x)
    ds, db = parameter_sums(nest, dy4 * xhat), parameter_sums(nest, dy4)
    return dx, ds.astype(x.dtype), db.astype(x.dtype)
    # END


# %% tags=["check"]
check("3.4")

# %% [markdown]
# `PartialBackend(backward=backward)` is a backend with your backward and the reference's forward. If you have lab
# 1's forward, paste it above and write `PartialBackend(forward=forward, backward=backward)`: then the normalization
# is all yours.
#
# ### Guess before you run
#
# The next cell trains the network on the digits for two epochs in float64, once with the library's kernels and once
# with your backward, and draws both losses and their difference. How large is the difference after 46 steps? (Why not
# float32? Training amplifies rounding: two correct programs differ in the second digit after twenty steps.
# `minorm/labs/digits_network.py` has the loop.)

# %% tags=["plot"]
from minorm.labs import digits_network

STEPS = 46
library = digits_network.losses(None, STEPS)
mine = digits_network.losses(PartialBackend(backward=backward), STEPS)
steps = range(1, STEPS + 1)
figure, (left, right) = plt.subplots(1, 2, figsize=(11.5, 4.2), layout="constrained")
left.plot(steps, library, "o", color=GREY, mfc="none", label="the library's kernels")
left.plot(steps, mine, "--", color=BLUE, linewidth=1.8, label="your backward")
left.set(title="Your backward trains the network")
left.set(xlabel="training step", ylabel="loss (cross entropy)")
left.legend()
right.plot(steps, np.abs(mine - library), "o-", color=VERMILLION, markersize=4)
right.set_yscale("symlog", linthresh=1e-17)
ticks = ["0", "1e-16", "1e-12", "1e-8", "1e-4", "1"]
right.set_yticks([float(tick) for tick in ticks], ticks)
right.set(
    title=f"The two losses differ by at most {np.abs(mine - library).max():.0e}",
    xlabel="training step",
    ylabel="difference of the losses",
    ylim=(-3e-18, 1),
)
show(
    figure,
    "Left, the loss over 46 training steps falls. Rings show the library's kernels, "
    "and the line of your backward goes through them. Right, the difference of the "
    "two losses at each step, logarithmic: it stays close to the rounding of double "
    "precision.",
)
assert np.allclose(mine, library, rtol=1e-6)

# %% [markdown]
# ## Task 3.5: tests that find bugs
#
# Who tests the tests? Here, bugs do. Each test gets `norm`, an implementation of BatchNorm with two functions,
#
#     y = norm.forward(x, s, b, eps=1e-5)
#     dx, ds, db = norm.backward(dy, x, s, eps=1e-5)
#
# for float64 arrays x and dy (N, C) or (N, C, L), s and b (C). A test passes when it raises nothing. Yours are run
# with the right implementation, where all must pass, and with wrong ones, where at least one must fail. Each bug
# found is a point. They are bugs that people meet: the variance divided by m - 1, eps outside the root, a term of dx
# missing, statistics over the wrong axes, sums in float16.
#
# Write as many functions `test_...(norm)` as you like. Good oracles: the formula in the test, a case done by hand, a
# property that must hold, a finite difference ((f(x + h) - f(x - h)) / 2h, with f a weighted sum of y). Note that
# some bugs show only where the variance is small, or where there are positions.
#
# **Honest tests.** Your own functions of this file do, such as `three_terms` or
# your backward from task 3.4: you wrote them. A comparison with another person's
# normalization does not: it finds every bug, but you have not tested what you know. So
# `minorm.functional`, the layers of `minorm.nn`, minorm's backends, torch, onnxruntime
# and the like are closed while your tests run, and a test that calls them fails with a
# message.


# %%
def test_forward(norm):
    """The properties of y."""
    # SOLUTION 3.5: a test of norm.forward
    rng = np.random.default_rng(0)
    for shape in ((4, 3), (3, 2, 5)):
        axes = (0, *range(2, len(shape)))
        x = 0.01 * rng.standard_normal(shape) + 1
        s, b = rng.standard_normal((2, shape[1]))
        along = (-1, *[1] * (len(shape) - 2))
        mean, var = x.mean(axis=axes, keepdims=True), x.var(axis=axes, keepdims=True)
        expected = (x - mean) / np.sqrt(var + 1e-3) * s.reshape(along) + b.reshape(along)
        y = norm.forward(x, s, b, eps=1e-3)
        np.testing.assert_allclose(y, expected, rtol=1e-8, atol=1e-10)
    # END


def test_backward(norm):
    """The properties of dx, ds and db."""
    # SOLUTION 3.5: a test of norm.backward
    rng = np.random.default_rng(1)
    x, dy = rng.standard_normal((2, 3, 2, 4))
    s, b = rng.standard_normal((2, 2))
    gradients = norm.backward(dy, x, s)
    for gradient, value in zip(gradients, (x, s, b), strict=True):
        for index in np.ndindex(value.shape):
            before, sides = value[index], []
            for h in (1e-5, -1e-5):
                value[index] = before + h
                sides.append((norm.forward(x, s, b) * dy).sum())
            value[index] = before
            assert abs((sides[0] - sides[1]) / 2e-5 - gradient[index]) < 1e-6
    # END


# %% tags=["check"]
check("3.5")

# %% [markdown]
# ## To think about
#
# 1. With eps > 0 the sum of dx * xhat is not quite 0. What is it? Look at the mean of xhat^2, which is not quite 1.
# 2. In evaluation mean and var are constants. What is dx then, and what goes wrong in fine-tuning when the forward
#    pass uses one mode and backward the other?
# 3. A row of two elements: what can xhat be, and what does that leave of dx? What does it say about BatchNorm with a
#    batch of two?
