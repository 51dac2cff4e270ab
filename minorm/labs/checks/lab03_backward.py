"""Lab 3: checks gradients against complex steps, invariants and the library's layers, and the student's own tests."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

import minorm.functional as F
from minorm.kernels.partial import PartialBackend
from minorm.kernels.protocol import Statistics
from minorm.kernels.reference import norm as reference
from minorm.labs import digits_network
from minorm.labs.checks.complex_step import through
from minorm.labs.checks.mistakes import lab03_backward as mistakes
from minorm.labs.checks.variants import lab03_backward as varied
from minorm.labs.checks.variants import layouts
from minorm.labs.checks.variants.lab03_backward import V, third
from minorm.labs.comparing import at_most, close, numbers, parts
from minorm.labs.following import verdicts
from minorm.labs.following.follower import Follower
from minorm.labs.lab import Lab
from minorm.normalization.equation import Equation
from minorm.normalization.nest import plan
from minorm.tensor.creation import tensor

LAB = Lab(
    3,
    "lab03_backward",
    "Backward",
    "How does a gradient come back through a mean and a variance?",
    minutes=90,
    needs=(1, 14),
    packages=("sklearn",),
    variants=V,
)
FAR = 1e6


def _xhat(x: Any, axes: tuple[int, ...], eps: float) -> tuple[Any, Any]:
    rstd = (x.var(axis=axes, keepdims=True) + eps) ** -0.5
    return (x - x.mean(axis=axes, keepdims=True)) * rstd, rstd


def _graph(student: Any, rng: np.random.Generator, shape: tuple[int, ...], axes: tuple[int, ...], eps: float) -> None:
    x, g = rng.standard_normal((2, *shape)) + 0.5
    what = f"graph, x of shape {shape}, axes {axes}, eps={eps:g}"
    close(student.graph(x, g, axes, eps), through(x, g, eps, axes), what)


def _far_graph(
    student: Any, rng: np.random.Generator, shape: tuple[int, ...], axes: tuple[int, ...], eps: float
) -> None:
    """Check `graph` on x near a million.

    There a right gradient has nine digits, and finite differences have only five.
    """
    x, g = rng.standard_normal((2, *shape))
    x = (x + FAR) - FAR  # as it is near a million, so that the gradients are equal
    xhat, rstd = _xhat(x, axes, eps)
    mean_g, mean_gx = (v.mean(axis=axes, keepdims=True) for v in (g, g * xhat))
    what = f"graph, x of shape {shape} near {FAR:,.0f}, axes {axes}, eps={eps:g}"
    close(student.graph(x + FAR, g, axes, eps), rstd * (g - mean_g - xhat * mean_gx), what, rtol=1e-7, atol=1e-8)


def _backward_pass(
    student: Any, name: str, before: tuple[Any, ...], arrays: tuple[Any, ...], after: tuple[Any, ...]
) -> None:
    """Check that the student's function computes about as many numbers as one backward pass.

    Finite differences need one pass for each element.
    """
    size = arrays[0].size
    follow, what = Follower(plain=size // 4, decisions=size), f"{name} of {size} elements"
    answer = follow.call(student, name, *before, *(follow.array(array) for array in arrays), *after)
    verdicts.types(follow, ["float64", "int64"], what)
    verdicts.work(follow, size, what)
    verdicts.same_answer(answer, student.call(name, (*before, *arrays, *after), {}), what)


def _walks_the_graph(student: Any, rng: np.random.Generator) -> None:
    _far_graph(student, rng, (3, 5), (1,), 0.3)
    _backward_pass(student, "graph", (), tuple(rng.standard_normal((2, 3, 32))), ((1,), 1e-3))


@LAB.check("3.1", "dx from the graph", points=2, visible=True)
def graph(student: Any, rng: np.random.Generator) -> None:
    _graph(student, rng, (3, 4), (1,), 1e-5)
    _graph(student, rng, (3, 2, 4), (0, 2), 1e-5)
    _walks_the_graph(student, rng)


@LAB.check("3.1", "other shapes and a large eps", points=2)
def graph_odd(student: Any, rng: np.random.Generator) -> None:
    _graph(student, rng, (2, 3, 2, 2), (2, 3), 0.3)
    _graph(student, rng, (5,), (0,), 0.3)
    _graph(student, rng, (2, 5, 1), (0, 1), 1e-2)
    _walks_the_graph(student, rng)
    _far_graph(student, rng, (3, 5), (1,), 0.3)
    x, g = rng.standard_normal((2, 4, 6)) * 0.03
    what = "graph of small numbers, eps not given"
    close(student.graph(x, g, (1,)), through(x, g, V.eps, (1,)), what)


def _is_the_formula(student: Any, rng: np.random.Generator) -> None:
    """Check that three_terms agrees with the formula to 12 digits and does the work of one pass."""
    x, g = rng.standard_normal((2, 3, 32))
    xhat, rstd = _xhat(x, (1,), 1e-3)
    right = rstd * (g - g.mean(axis=1, keepdims=True) - xhat * (g * xhat).mean(axis=1, keepdims=True))
    got = student.three_terms(g, xhat, third(rstd), (1,))
    close(got, right, "three_terms, to 12 digits", rtol=1e-12, atol=1e-12)
    _backward_pass(student, "three_terms", (), (g, xhat, third(rstd)), ((1,),))


@LAB.check("3.2", "dx from the formula", points=2, visible=True)
def three_terms(student: Any, rng: np.random.Generator) -> None:
    for shape, axes, eps in (((3, 4), (1,), 1e-5), ((3, 2, 4), (0, 2), 0.1)):
        x, g = rng.standard_normal((2, *shape)) + 0.5
        xhat, rstd = _xhat(x, axes, eps)
        what = f"three_terms, shape {shape}, axes {axes}, eps={eps:g}"
        close(student.three_terms(g, xhat, third(rstd), axes), through(x, g, eps, axes), what)
    _is_the_formula(student, rng)


@LAB.check("3.2", "sum dx = 0 and sum dx * xhat = 0")
def invariants(student: Any, rng: np.random.Generator) -> None:
    for shape, axes in (((4, 7), (1,)), ((6, 3, 5), (0, 2))):
        x, g = rng.standard_normal((2, *shape)) * 3 + 1
        xhat, rstd = _xhat(x, axes, 0.0)
        dx = numbers(student.three_terms(g, xhat, third(rstd), axes), "three_terms", f"an array of shape {shape}")
        close(dx.shape, shape, "the shape of dx")
        at_most(np.abs(dx.sum(axis=axes)).max(), 1e-10, f"|sum dx|, shape {shape}, axes {axes}, eps=0")
        at_most(np.abs((dx * xhat).sum(axis=axes)).max(), 1e-10, f"|sum dx * xhat|, shape {shape}, axes {axes}, eps=0")
        at_most(-np.abs(dx).max(), -1e-3, "minus the largest |dx|")
    _is_the_formula(student, rng)


@LAB.check("3.3", "BatchNorm's and LayerNorm's", points=2, visible=True)
def parameter_gradients(student: Any, rng: np.random.Generator) -> None:
    for shape, axes, letters in (((4, 3, 5), (0, 2), "ncl,ncl->c"), ((4, 3, 5), (0, 1), "ncl,ncl->l")):
        dy, xhat = rng.standard_normal((2, *shape))
        ds, db = parts(student.parameter_gradients(dy, xhat, axes), 2, "parameter_gradients")
        close(ds, np.einsum(letters, dy, xhat), f"ds, shape {shape}, axes {axes}")
        close(db, np.einsum(letters, dy, np.ones(shape)), f"db, shape {shape}, axes {axes}")


LAYERS = ("batch_norm", "layer_norm", "group_norm", "rms_norm", "mean_variance_norm")


def _run(layer: str, arrays: tuple[Any, ...], backend: Any) -> tuple[Any, ...]:
    """Run a normalization of minorm.functional with this backend; return dx, ds and db."""
    x, s, b, dy = (tensor(array) for array in arrays)
    for leaf in (x, s, b):
        leaf.requires_grad = True
    if layer == "batch_norm":
        y = F.batch_norm(x, None, None, s, b, True, backend=backend)
    elif layer == "layer_norm":
        y = F.layer_norm(x, x.shape[2:], backend=backend) * s.reshape(-1, 1, 1) + b.reshape(-1, 1, 1)
    elif layer == "group_norm":
        y = F.group_norm(x, 2, s, b, backend=backend)
    elif layer == "rms_norm":
        y = F.rms_norm(x, x.shape[2:], eps=1e-3, backend=backend) * s.reshape(-1, 1, 1) + b.reshape(-1, 1, 1)
    else:
        y = F.mean_variance_norm(x, eps=0.1, backend=backend) * s.reshape(-1, 1, 1) + b.reshape(-1, 1, 1)
    y.backward(dy)
    return tuple(leaf.grad.array for leaf in (x, s, b) if leaf.grad is not None)


def _in_two_parts(nest: Any, x: Any, s: Any, b: Any, equation: Any) -> tuple[Any, Any]:
    """Run the library's forward, but split the mean k + d differently: move 0.5 from d to k. Usually d is 0."""
    y, found = reference.forward(nest, x, s, b, equation)
    if not equation.centered:
        return y, found
    return y, Statistics.of(found.k + 0.5, found.d - 0.5, found.var, found.rstd)


def _in_layers(student: Any, rng: np.random.Generator, layers: tuple[str, ...], offset: float = 1.0) -> None:
    for layer in layers:
        shape = (3, 4, 2, 5)
        arrays = rng.standard_normal(shape) + offset, *rng.standard_normal((2, 4)), rng.standard_normal(shape)
        backend = PartialBackend(forward=_in_two_parts, backward=student.backward)
        got = parts(_run(layer, arrays, backend), 3, f"{layer} with your backward")
        for name, mine, right in zip(("dx", "ds", "db"), got, _run(layer, arrays, None), strict=True):
            what = f"{name} of {layer} with your backward, x of shape {shape}"
            if offset == FAR:
                close(mine, right, what, rtol=1e-7, atol=1e-9)
            else:  # finite differences have ten digits at most
                close(mine, right, what, rtol=1e-11, atol=1e-12)
    _is_one_pass(student, rng)


def _is_one_pass(student: Any, rng: np.random.Generator) -> None:
    x, dy = rng.standard_normal((2, 4, 2, 12))
    nest, equation = plan(x.shape, (0, 2), param=(1,)), Equation(1e-3)
    _, found = _in_two_parts(nest, x, None, None, equation)
    _backward_pass(student, "backward", (nest,), (dy, x), (found, rng.standard_normal(2), equation))


@LAB.check("3.4", "your backward in BatchNorm", points=2, visible=True)
def in_batch_norm(student: Any, rng: np.random.Generator) -> None:
    _in_layers(student, rng, LAYERS[:1])


@LAB.check("3.4", "in Layer- and GroupNorm")
def in_layer_norm(student: Any, rng: np.random.Generator) -> None:
    _in_layers(student, rng, LAYERS[1:3], FAR)


@LAB.check("3.4", "in RMSNorm, which is not centered")
def in_rms_norm(student: Any, rng: np.random.Generator) -> None:
    _in_layers(student, rng, LAYERS[3:4])


@LAB.check("3.4", "in MeanVarianceNorm, eps outside the root")
def in_mean_variance_norm(student: Any, rng: np.random.Generator) -> None:
    _in_layers(student, rng, LAYERS[4:])


@functools.cache
def _library(steps: int, seed: int) -> Any:
    """Train the digits' network with the library's kernels; return the losses."""
    return digits_network.losses(None, steps, seed)


@LAB.check("3.4", "the digits network trains as with the library", points=2, seconds=60)
def trains(student: Any, rng: np.random.Generator) -> None:
    seed = int(rng.integers(1000))
    got = digits_network.losses(PartialBackend(backward=student.backward), 12, seed)
    close(got, _library(12, seed), "the losses of 12 steps with your backward", rtol=1e-6)
    _is_one_pass(student, rng)


def _implementation(
    fewer: int = 0,
    eps_outside: bool = False,
    terms: tuple[int, int] = (1, 1),
    axes: str = "all but C",
    accumulate: Any = np.float64,
    raw_ds: bool = False,
    eps_as: Callable[[float], float] = float,
    scaled: bool = True,
    rstd_power: int = 1,
    mean_db: bool = False,
    early_bias: bool = False,
) -> dict[str, Any]:
    """Make forward(x, s, b, eps) and backward(dy, x, s, eps) of a BatchNorm with a planted bug.

    The axes of x have the variant's order.
    """

    def mean_of(values: Any) -> Any:
        over = (0,) if axes == "N" else (0, *range(2, values.ndim))
        m = np.prod([values.shape[axis] for axis in over])
        return values.astype(accumulate).sum(axis=over, keepdims=True, dtype=accumulate).astype(np.float64) / m, m

    def normalized(x: Any, eps: float) -> tuple[Any, Any]:
        mean, m = mean_of(x)
        var = mean_of((x - mean) ** 2)[0] * (m / max(m - fewer, 1))
        eps = eps_as(eps)
        rstd = 1 / (var**0.5 + eps) if eps_outside else (var + eps) ** -0.5
        return (x - mean) * rstd, rstd

    def along(s: Any, x: Any) -> Any:
        return np.reshape(s, (-1, *[1] * (x.ndim - 2)))

    def arrays(*values: Any) -> list[Any]:
        return [layouts.plain(np.asarray(value, np.float64), V.layout) for value in values]

    def forward(x: Any, s: Any, b: Any, eps: float | None = None) -> Any:
        (x,) = arrays(x)
        xhat = normalized(x, V.eps if eps is None else eps)[0]
        y = (xhat + along(b, x)) * along(s, x) if early_bias else xhat * along(s, x) + along(b, x)
        return layouts.laid(y, V.layout)

    def backward(dy: Any, x: Any, s: Any, eps: float | None = None) -> Any:
        dy, x = arrays(dy, x)
        xhat, rstd = normalized(x, V.eps if eps is None else eps)
        g = dy * along(s, x) if scaled else dy
        dx = rstd**rstd_power * (g - terms[0] * mean_of(g)[0] - terms[1] * xhat * mean_of(g * xhat)[0])
        over = (0, *range(2, x.ndim))
        ds, db = (dy * (x if raw_ds else xhat)).sum(axis=over), dy.sum(axis=over)
        return layouts.laid(dx, V.layout), ds, db / (dy.size / db.size if mean_db else 1)

    return {"forward": forward, "backward": backward}


BUGS = {
    varied.FEWER: _implementation(fewer=1),
    varied.OUTSIDE: _implementation(eps_outside=True),
    varied.SQUARED: _implementation(eps_as=lambda eps: eps**2),
    varied.IGNORED: _implementation(eps_as=lambda _: V.eps),
    varied.NO_MEAN: _implementation(terms=(0, 1)),
    varied.NO_XHAT: _implementation(terms=(1, 0)),
    varied.NO_SCALE: _implementation(scaled=False),
    varied.RSTD_TWICE: _implementation(rstd_power=2),
    varied.BATCH_ALONE: _implementation(axes="N"),
    varied.HALF: _implementation(accumulate=np.float16),
    varied.RAW_DS: _implementation(raw_ds=True),
    varied.MEAN_DB: _implementation(mean_db=True),
    varied.EARLY_BIAS: _implementation(early_bias=True),
}
LAB.mutants("3.5", _implementation(), lambda: {name: BUGS[name] for name in V.bugs}, visible=True)
LAB.recognizer = mistakes.RECOGNIZER
