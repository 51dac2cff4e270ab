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
# # Lab 14: Autograd
#
# **The question.** What does `loss.backward()` do, and where do the three terms of a normalization's gradient come
# from?
#
# You write a small autograd: arrays that remember how they were computed, and a walk back
# over that memory. Then you cut the graph of a normalization in three places and
# *measure* the gradient that comes through each path. Your measurements become three
# formulas, and at the end your autograd trains a network with BatchNorm.
#
# This lab comes before lab 3, which starts from the three formulas. You need lab 1, broadcasting in NumPy and the
# chain rule. Time: about 90 minutes.

# %%
import numpy as np

from minorm.labs.visible import checker

check = checker(14, globals())

# %% tags=["plot"]
import matplotlib.pyplot as plt

from minorm.labs.pictures import show
from minorm.plots import BLUE, GREEN, GREY, STYLE, VERMILLION

plt.rcParams.update(STYLE)

# %% [markdown]
# ## The letters
#
# An operation computes y from its inputs a, b, ... The loss is one number, computed from y in the end. **dy** is the
# gradient of the loss for y, an array of y's shape; da and db are those for a and b. An operation does not need to
# know the loss. It gets dy and answers with da and db: that is the chain rule, one operation at a time.
#
# ## Task 14.1: undo broadcasting
#
# In `a + b` with a of shape (3, 4) and b of shape (4,), NumPy uses each number of b three
# times. So each number of b acts on the loss in three ways, and its gradient is the *sum*
# of three numbers of dy. Every operation on two arrays needs this, so it gets its own
# function. Broadcasting does two things: it puts new axes in front, and it repeats axes
# of length 1. Undo both.


# %%
def unbroadcast(dy, shape):
    """dy, summed to this shape: over all axes along which an array of it was repeated."""
    # SOLUTION 14.1: sum over new axes in front, and over axes that had length 1
    dy = dy.sum(axis=tuple(range(dy.ndim - len(shape))))
    repeated = tuple(axis for axis, count in enumerate(shape) if count == 1)
    return dy.sum(axis=repeated, keepdims=True)
    # END


# %% tags=["check"]
check("14.1")

# %% [markdown]
# ## Task 14.2: operations
#
# A `Var` is a node of the graph: a value, the Vars it was computed from, and `back`, a function that takes dy and
# returns a tuple with one gradient for each input. Three operations are there as examples.


# %%
class Var:
    """An array and what made it. back(dy) gives a gradient for each input."""

    def __init__(self, value, inputs=(), back=None):
        self.value = np.asarray(value, np.float64)
        self.inputs = tuple(inputs)
        self.back = back
        self.grad = None


def add(a, b):
    """a + b."""
    return Var(
        a.value + b.value,
        (a, b),
        lambda dy: (unbroadcast(dy, a.value.shape), unbroadcast(dy, b.value.shape)),
    )


def matmul(a, b):
    """The product of two matrices."""
    return Var(a.value @ b.value, (a, b), lambda dy: (dy @ b.value.T, a.value.T @ dy))


def relu(a):
    """a where it is positive, else 0."""
    return Var(np.maximum(a.value, 0), (a,), lambda dy: (dy * (a.value > 0),))


# %% [markdown]
# Write five more:
#
# - `sub` and `mul`, where a and b may have different shapes, as in `add`;
# - `power(a, p)`, where p is a number. With p = -1/2 it is 1 / sqrt(a), and its slope is negative;
# - `sum_over` and `mean_over`. They keep the summed axes with length 1 (`keepdims=True`). In a sum each element gets
#   the gradient of its sum; in a mean of m elements it gets 1/m of that. The gradient has a's full shape.


# %%
def sub(a, b):
    """a - b."""
    # SOLUTION 14.2: value and gradients of a difference
    return Var(
        a.value - b.value,
        (a, b),
        lambda dy: (unbroadcast(dy, a.value.shape), unbroadcast(-dy, b.value.shape)),
    )
    # END


def mul(a, b):
    """a * b, element by element."""
    # SOLUTION 14.2: value and gradients of a product
    return Var(
        a.value * b.value,
        (a, b),
        lambda dy: (
            unbroadcast(dy * b.value, a.value.shape),
            unbroadcast(dy * a.value, b.value.shape),
        ),
    )
    # END


def power(a, p):
    """a to the power p, a number."""
    # SOLUTION 14.2: value and gradient of a power
    return Var(a.value**p, (a,), lambda dy: (dy * p * a.value ** (p - 1),))
    # END


def sum_over(a, axes):
    """The sum of a over a tuple of axes, which stay with length 1."""
    # SOLUTION 14.2: value and gradient of a sum
    shape = a.value.shape
    total = a.value.sum(axis=axes, keepdims=True)
    return Var(total, (a,), lambda dy: (np.broadcast_to(dy, shape),))
    # END


def mean_over(a, axes):
    """The mean of a over a tuple of axes, which stay with length 1."""
    # SOLUTION 14.2: value and gradient of a mean
    shape = a.value.shape
    m = np.prod([shape[axis] for axis in axes])
    mean = a.value.mean(axis=axes, keepdims=True)
    return Var(mean, (a,), lambda dy: (np.broadcast_to(dy / m, shape),))
    # END


# %% [markdown]
# The checks send arrays, no Vars. They call the next function, which is ready.


# %%
def one_step(operation, arrays, dy, *settings):
    """Run an operation, given by its name: its value, and what its `back` makes of dy."""
    y = globals()[operation](*map(Var, arrays), *settings)
    return y.value, *y.back(np.asarray(dy))


# %% tags=["check"]
check("14.2")

# %% [markdown]
# ## Task 14.3: the walk back
#
# `backward(root, dy)` puts a gradient into `.grad` of every Var that root was computed from. Two rules:
#
# - **Add.** Where a Var is used twice, two gradients come to it, and they are added. Add with `a = a + b` and not with
#   `a += b`, which writes into an array that another Var may hold as well.
# - **Wait.** A Var must not call its `back` before *all* its gradient has come. So each Var has to stand behind every
#   Var that uses it. A list like that is a *topological order*.
#
# For the order there is an old trick. Walk from a Var to its inputs, to theirs, and so on. Visit no Var twice, and
# write a Var down only when all its inputs are written down. This list has inputs first; turn it around.
#
# Look at two bad ideas first. The graph is y = c * x, c = b * b, b = x * x. Going through y's inputs, then
# through theirs, and so on, meets x right at the start, before b. And without "visit no Var twice", forty squares
# in a row take 2^40 steps.
#
# `detach(a)` has the value of a and forgets where it came from: no gradient goes through it.


# %%
def order(root):
    """root and all Vars that it was computed from, each once and before its inputs."""
    # SOLUTION 14.3: a topological order, root first
    found, seen = [], set()

    def visit(node):
        if node in seen:
            return
        seen.add(node)
        for one in node.inputs:
            visit(one)
        found.append(node)

    visit(root)
    return found[::-1]
    # END


def backward(root, dy=1.0):
    """Set .grad of root, which is dy, and of all Vars that root was computed from."""
    # SOLUTION 14.3: go through the order; give each Var's gradient on to its inputs
    nodes = order(root)
    for node in nodes:
        node.grad = np.zeros(node.value.shape)
    root.grad = root.grad + dy
    for node in nodes:
        if node.back is not None:
            for one, gradient in zip(node.inputs, node.back(node.grad), strict=True):
                one.grad = one.grad + gradient
    # END


def detach(a):
    """The value of a, as a Var without inputs."""
    # SOLUTION 14.3: cut the graph here
    return Var(a.value)
    # END


# %% [markdown]
# Again two functions for the checks, which are ready. A *program* is a list of lines such as `("mul", (0, 1))`: an
# operation and the numbers of its inputs. The arrays that a program gets have the first numbers, and each line has the
# next one.


# %%
def order_of(graph, root):
    """The order of a graph of names, {"x": [], "b": ["x", "x"], ...}."""
    nodes = {}
    for name, inputs in graph.items():
        nodes[name] = Var(0.0, [nodes[one] for one in inputs])
    names = {id(node): name for name, node in nodes.items()}
    return [names[id(node)] for node in order(nodes[root])]


def gradients(program, arrays, dy):
    """The value of the program's last line, and the gradient of each array."""
    values = [Var(array) for array in arrays]
    for operation, inputs, *settings in program:
        values.append(globals()[operation](*[values[one] for one in inputs], *settings))
    backward(values[-1], dy)
    leaves = values[: len(arrays)]
    grads = [np.zeros(v.value.shape) if v.grad is None else v.grad for v in leaves]
    return values[-1].value, *grads


# %% tags=["check"]
check("14.3")

# %% [markdown]
# ## Task 14.4: cut the graph
#
# Now the normalization, over some axes:
#
#     mean = mean(x)      var = mean((x - mean)^2)      rstd = (var + eps)^(-1/2)      xhat = (x - mean) * rstd
#
# x acts on xhat along three paths. In `xhat = (x - mean) * rstd`
#
# - **direct**: x itself stands there;
# - **mean**: the mean is made of x;
# - **variance**: rstd is made of x.
#
# A gradient adds up over paths, so you can measure each path alone: `detach` what the other two go through. Take care
# with the variance. It has its own x - mean, which is never cut: otherwise cutting the direct path would change the
# path through the variance as well.


# %%
def normalized(x, axes, eps, paths):
    """xhat of the Var x; gradients pass through `paths`: "direct", "mean", "variance"."""
    # SOLUTION 14.4: the normalization, with detach wherever a path is not in `paths`
    mean = mean_over(x, axes)
    centered = sub(x, mean)
    var = mean_over(mul(centered, centered), axes)
    rstd = power(add(var, Var(eps)), -0.5)
    direct = x if "direct" in paths else detach(x)
    mean = mean if "mean" in paths else detach(mean)
    rstd = rstd if "variance" in paths else detach(rstd)
    return mul(sub(direct, mean), rstd)
    # END


# %% [markdown]
# `through` is ready. It gives xhat, and the gradient for x where that of xhat is g.


# %%
def through(x, g, axes, eps, paths):
    """xhat, and the gradient of sum(g * xhat) for x through these paths."""
    x = Var(x)
    xhat = normalized(x, axes, eps, paths)
    backward(xhat, g)
    return xhat.value, np.zeros(x.value.shape) if x.grad is None else x.grad


# %% tags=["check"]
check("14.4")

# %% [markdown]
# ### The picture
#
# One row of twelve numbers, and a g that is 1 at one place and 0 elsewhere: the loss is one number of xhat.
# **Guess before you run**: one of the three paths gives every x of the row the same gradient, and one gives all of
# them but one nothing. Which are they? What does the third look like?

# %% tags=["plot"]
PATHS = ("direct", "mean", "variance")
row = np.random.default_rng(3).standard_normal((1, 12))
row[0, 7] = 3
g = np.zeros((1, 12))
g[0, 7] = 1
parts = {path: through(row, g, (1,), 1e-5, (path,))[1][0] for path in PATHS}
parts["all three"] = through(row, g, (1,), 1e-5, PATHS)[1][0]

figure, panels = plt.subplots(2, 2, figsize=(10, 6), layout="constrained", sharey=True)
colors = (BLUE, VERMILLION, GREEN, GREY)
for panel, (path, values), color in zip(panels.flat, parts.items(), colors, strict=True):
    panel.bar(range(12), values, color=color)
    panel.axhline(0, color="black", linewidth=0.8)
    panel.set_title(f"{path}: the sum is {values.sum():.2g}")
    panel.set(xlabel="place in the row", ylabel="gradient for x")
show(
    figure,
    "Four bar charts of the gradient for each of twelve x, where g is 1 at place 7. "
    "Direct: one bar of 0.58 at place 7 and zeros elsewhere. Mean: twelve equal bars "
    "slightly below 0, which add up to -0.58. Variance: bars of both signs, against "
    "the sign of xhat, which add up to 0. All three: their sum, which adds up to 0.",
)

# %% [markdown]
# ## Task 14.5: three formulas
#
# Now write what you have measured as formulas in g, xhat and rstd, without a graph. Go along each path by hand, with
# the rules of task 14.2:
#
# - direct: d(xhat)/d(x) is rstd;
# - mean: xhat falls with the mean, by rstd; all g of a row meet in its mean; a mean gives 1/m to each x;
# - variance: d(loss)/d(rstd) = sum(g * (x - mean)), d(rstd)/d(var) = -1/2 rstd^3, d(var)/d(x) = 2/m (x - mean). Put
#   these together, and write x - mean as xhat / rstd. Most of it cancels.
#
# Each result is one line. "sum, then 1/m" is a mean.


# %%
def three_terms(g, xhat, rstd, axes):
    """The gradients for x through the direct path, the mean and the variance.

    Three arrays of g's shape. rstd has the reduced axes with length 1.
    """
    # SOLUTION 14.5: a formula for each path
    mean_g = g.mean(axis=axes, keepdims=True)
    mean_gx = (g * xhat).mean(axis=axes, keepdims=True)
    return g * rstd, -rstd * mean_g + 0 * g, -rstd * xhat * mean_gx
    # END


# %% [markdown]
# Your graph and your formulas could share a mistake. So ask a third judge, who knows nothing about either: move one x
# by h and see how f = sum(g * xhat) changes,
#
#     df/dx is about (f(x + h) - f(x - h)) / 2h
#
# for one element of x after the other. It is slow and only nearly right, and it needs no calculus.


# %%
def slopes(x, g, axes, eps, h=1e-5):
    """The gradient of f = sum(g * xhat) for x, by central differences with step h."""

    def f(x):
        c = x - x.mean(axis=axes, keepdims=True)
        var = (c * c).mean(axis=axes, keepdims=True)
        return (g * c / np.sqrt(var + eps)).sum()

    # SOLUTION 14.5: move each element of x by h, both ways
    found = np.zeros(x.shape)
    for index in np.ndindex(x.shape):
        right, left = x.copy(), x.copy()
        right[index] += h
        left[index] -= h
        found[index] = (f(right) - f(left)) / (2 * h)
    return found
    # END


# %% tags=["check"]
check("14.5")

# %% [markdown]
# ### Graph, formula, differences
#
# All three compute in float64, which has 16 digits. **Guess before you run**: how many digits do graph and formula
# share? Is the smallest h the best one?

# %% tags=["plot"]
rng = np.random.default_rng(0)
x, g = rng.standard_normal((2, 4, 6))
xhat, graph = through(x, g, (1,), 1e-5, PATHS)
rstd = 1 / np.sqrt(x.var(axis=1, keepdims=True) + 1e-5)
formula = sum(three_terms(g, xhat, rstd, (1,)))
steps = np.logspace(-13, 0, 27)
errors = [np.abs(slopes(x, g, (1,), 1e-5, h) - formula).max() for h in steps]

figure, panel = plt.subplots(figsize=(8.5, 4.6), layout="constrained")
panel.loglog(steps, errors, "o-", color=BLUE, markersize=5, label="central differences")
apart = max(np.abs(graph - formula).max(), 1e-17)
panel.axhline(apart, color=VERMILLION, linestyle="--", label="the graph")
panel.set(
    title=f"The graph is {apart:.0e} away, differences {min(errors):.0e} at best",
    xlabel="step h",
    ylabel="largest distance from the formula",
)
powers = range(-12, 1, 3)
panel.set_xticks([10.0**n for n in powers], [f"1e{n}" for n in powers])
powers = range(-16, 1, 4)
panel.set_yticks([10.0**n for n in powers], [f"1e{n}" for n in powers])
panel.legend()
show(
    figure,
    "Distance of central differences from the formula against the step h, both "
    "logarithmic: a V. At h = 1e-13 it is about 1e-2, falls to about 1e-10 at h = "
    "1e-5 and rises to 1 at h = 1. A dashed line below 1e-15, far under the V, is the "
    "distance of the graph from the formula.",
)

# %% [markdown]
# ## Task 14.6: it trains
#
# Two moons, a cloud of points for each. The network has one hidden layer with a BatchNorm, and its output is negative
# for one moon and positive for the other:
#
#     h = x @ w1      xhat = h, normalized over the batch      a = relu(xhat * s + b)      out = a @ w2 + c
#     loss = mean((out - target)^2)
#
# where target is -1 or 1. Write the network from the operations above, and the loop: forward, backward, then
# `p = p - rate * gradient` for every parameter p. Make new Vars in each step, so that no step sees an old graph.


# %%
EPS = 1e-5


def network(x, w1, s, b, w2, c):
    """The output for each row of x; all are Vars, and so is the output."""
    # SOLUTION 14.6: linear, BatchNorm, ReLU, linear
    xhat = normalized(matmul(x, w1), (0,), EPS, ("direct", "mean", "variance"))
    return add(matmul(relu(add(mul(xhat, s), b)), w2), c)
    # END


def train(x, target, parameters, steps, rate):
    """The loss before each step, an array, and the parameters after the last step.

    x, target and parameters (w1, s, b, w2, c) are arrays. target has the shape (N, 1).
    """
    # SOLUTION 14.6: gradient descent with your autograd
    losses = []
    for _ in range(steps):
        leaves = [Var(p) for p in parameters]
        error = sub(network(Var(x), *leaves), Var(target))
        loss = mean_over(mul(error, error), (0, 1))
        backward(loss)
        losses.append(loss.value.item())
        parameters = [leaf.value - rate * leaf.grad for leaf in leaves]
    return np.array(losses), parameters
    # END


# %% tags=["check"]
check("14.6")

# %% [markdown]
# **Guess before you run**: the picture shows where the trained network changes its mind. How would that border look
# without a hidden layer?


# %%
def moons(count, seed):
    """Points (count, 2) of two half circles with noise, and -1 or 1 for each."""
    rng = np.random.default_rng(seed)
    angle = np.pi * rng.random(count)
    upper = rng.random(count) < 0.5
    x = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    x[~upper] = (1, 0.5) - x[~upper]
    x = x + 0.12 * rng.standard_normal(x.shape)
    return x, np.where(upper, 1.0, -1.0)[:, None]


def start(width, seed):
    """Parameters to begin with: w1, s, b, w2, c."""
    rng = np.random.default_rng(seed)
    w1, w2 = rng.standard_normal((2, width)), rng.standard_normal((width, 1)) / width**0.5
    b = 0.5 * rng.standard_normal((1, width))
    return [w1, np.ones((1, width)), b, w2, np.zeros((1, 1))]


# %% tags=["plot"]
points, target = moons(300, 0)
losses, trained = train(points, target, start(16, 1), 400, 0.05)
side = 120
across, up = np.meshgrid(np.linspace(-1.6, 2.6, side), np.linspace(-1.1, 1.6, side))
# the grid behind them would change the statistics: keep those of the points
w1, s, b, w2, c = trained
hidden = points @ w1
grid = np.stack([across.ravel(), up.ravel()], axis=1) @ w1
grid = (grid - hidden.mean(axis=0)) / np.sqrt(hidden.var(axis=0) + EPS)
output = (np.maximum(grid * s + b, 0) @ w2 + c).reshape(side, side)

figure, (left, right) = plt.subplots(1, 2, figsize=(11.5, 4.4), layout="constrained")
left.plot(losses, color=BLUE, linewidth=1.8)
left.set(
    title="Your autograd trains it", xlabel="training step", ylabel="mean square loss"
)
right.contour(across, up, output, levels=[0], colors=[GREY], linewidths=2)
for sign, color, marker in ((1, BLUE, "o"), (-1, VERMILLION, "^")):
    these = points[target[:, 0] == sign]
    right.plot(*these.T, marker, color=color, markersize=4)
correct = (np.sign(network(*map(Var, (points, *trained))).value) == target).mean()
right.set(
    title=f"{correct:.1%} of the points are on their side",
    xlabel="first number",
    ylabel="second number",
)
show(
    figure,
    "Left, the loss falls over 400 training steps, from 0.55 to below 0.1. Right, two "
    "half moons of points that reach into each other, one blue with circles, one red "
    "with triangles; a grey line, where the output is 0, winds between them.",
)

# %% [markdown]
# ## To think about
#
# 1. The mean acts on xhat in one more way: it stands in the variance, too. Why is there no fourth term?
# 2. The graph keeps every value of the forward pass until backward has run. Which arrays does the normalization keep
#    in your graph, and which does the formula need? What does that mean for the memory of a large network?
# 3. In reverse mode one walk gives the gradients of one loss for a million parameters. When would you rather go
#    forward, from an input to all outputs?
# 4. What does `detach` do to a gradient, and what does it not do to a value? Where would you use it when you train
#    with running statistics?
