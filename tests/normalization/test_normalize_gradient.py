"""The second derivative of every normalization, against finite differences in float64 and a formula in many digits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import minorm as mn
from minorm.testing import gradgradcheck

F = mn.functional


def running(channels: int = 3) -> tuple[Any, Any]:
    return mn.linspace(-0.5, 0.5, channels).double(), mn.linspace(0.5, 2.0, channels).double()


def some(*shape: int) -> Any:
    """Return a random mask: some rows are empty, some have one element."""
    mask = np.random.default_rng(5).random(shape) < 0.6
    return mn.tensor(mask)


IMAGES, VECTORS = (2, 3, 2, 2), (4, 3)
CHANNELS = (3,)
# name: the normalization as a function of x, scale, bias; the shapes of these
FORMS: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]]]] = {
    "batch": (lambda x, s, b: F.batch_norm(x, None, None, s, b, training=True), [IMAGES, CHANNELS, CHANNELS]),
    "batch of vectors": (
        lambda x, s, b: F.batch_norm(x, None, None, s, b, training=True), [VECTORS, CHANNELS, CHANNELS],
    ),
    "batch without a bias": (lambda x, s: F.batch_norm(x, None, None, s, training=True), [IMAGES, CHANNELS]),
    "batch with a bias alone": (lambda x, b: F.batch_norm(x, None, None, None, b, training=True), [IMAGES, CHANNELS]),
    "batch plain": (lambda x: F.batch_norm(x, None, None, training=True), [IMAGES]),
    "batch, a large eps": (lambda x, s: F.batch_norm(x, None, None, s, training=True, eps=0.7), [IMAGES, CHANNELS]),
    "batch of places": (
        lambda x, s, b: F.batch_norm(x, None, None, s, b, training=True), [(3, 2, 2), (2, 2), (2, 2)],
    ),
    "batch, channels last": (
        lambda x, s, b: F.batch_norm(x.permute(0, 3, 1, 2), None, None, s, b, training=True),
        [(2, 2, 2, 3), CHANNELS, CHANNELS],
    ),
    "batch masked": (
        lambda x, s, b: F.batch_norm(x, None, None, s, b, training=True, mask=some(*IMAGES)),
        [IMAGES, CHANNELS, CHANNELS],
    ),
    "batch and relu": (
        lambda x, s, b, r: F.batch_norm(x, None, None, s, b, training=True, activation="relu", residual=r),
        [IMAGES, CHANNELS, CHANNELS, IMAGES],
    ),
    "batch in evaluation": (
        lambda x, m, v, s, b: F.batch_norm(x, m, v * v + 0.3, s, b), [IMAGES, CHANNELS, CHANNELS, CHANNELS, CHANNELS],
    ),
    "batch in evaluation, masked": (
        lambda x, s, b: F.batch_norm(x, *running(), s, b, mask=some(*IMAGES)), [IMAGES, CHANNELS, CHANNELS],
    ),
    "batch in evaluation and relu": (
        lambda x, s, b: F.batch_norm(x, *running(), s, b, activation="relu"), [IMAGES, CHANNELS, CHANNELS],
    ),
    "instance": (lambda x, s, b: F.instance_norm(x, weight=s, bias=b), [IMAGES, CHANNELS, CHANNELS]),
    "instance masked": (
        lambda x, s, b: F.instance_norm(x, weight=s, bias=b, mask=some(2, 1, 2, 2)), [IMAGES, CHANNELS, CHANNELS],
    ),
    "group": (lambda x, s, b: F.group_norm(x, 2, s, b), [(2, 4, 3), (4,), (4,)]),
    "group masked": (lambda x, s: F.group_norm(x, 2, s, mask=some(2, 1, 3)), [(2, 4, 3), (4,)]),
    "layer": (lambda x, s, b: F.layer_norm(x, 4, s, b), [(2, 3, 4), (4,), (4,)]),
    "layer over two axes": (lambda x, s, b: F.layer_norm(x, (3, 4), s, b), [(2, 3, 4), (3, 4), (3, 4)]),
    "layer masked": (lambda x, s: F.layer_norm(x, 5, s, mask=some(3, 5)), [(3, 5), (5,)]),
    "rms": (lambda x, s: F.rms_norm(x, 4, s), [(2, 3, 4), (4,)]),
    "rms masked": (lambda x, s: F.rms_norm(x, 4, s, mask=some(3, 4)), [(3, 4), (4,)]),
    "mean and variance": (F.mean_variance_norm, [IMAGES]),
    "mean and variance, a large eps": (lambda x: F.mean_variance_norm(x, (0, 2), eps=0.4), [(2, 3, 4)]),
    "mean and variance masked": (lambda x: F.mean_variance_norm(x, (1,), eps=0.4, mask=some(3, 5)), [(3, 5)]),
    "any axes of five": (
        lambda x, s, b: F.normalization(x, s, b, axes=(1, 3)), [(2, 2, 2, 2, 2), (1, 2, 1, 2, 1), (1, 2, 1, 2, 1)],
    ),
    "a scale for each group": (
        lambda x, s: F.normalization(x, s, None, axes=(2,), num_groups=2), [(2, 4, 3), (2, 1, 1)],
    ),
    "filter response": (F.filter_response_norm, [IMAGES, CHANNELS, CHANNELS]),
    "ghost": (
        lambda x, s, b: F.ghost_batch_norm(x, None, None, 2, s, b, training=True),
        [(4, 3, 2), CHANNELS, CHANNELS],
    ),
    "renormalized": (
        lambda x, s, b: F.batch_renorm(x, *running(), s, b, training=True, rmax=1.05, dmax=0.1),
        [(4, 3, 2), CHANNELS, CHANNELS],
    ),
    "one value a row": (lambda x, s, b: F.layer_norm(x, 1, s, b), [(3, 1), (1,), (1,)]),
}  # fmt: skip


@pytest.mark.parametrize("name", FORMS)
def test_of_every_form(name: str, rng: np.random.Generator) -> None:
    function, shapes = FORMS[name]
    assert gradgradcheck(function, *[rng.standard_normal(shape) for shape in shapes]) < 1e-6


def of_the_sum(function: Callable[..., Any], *inputs: Any) -> Any:
    """Return the gradient of sum(y^3) for x, in the graph."""
    y = function(*inputs)
    return mn.autograd.grad((y * y * y).sum(), inputs[0], create_graph=True)[0]


OTHERS = ["batch", "batch masked", "group", "rms masked", "mean and variance, a large eps", "any axes of five"]


@pytest.mark.parametrize("name", ["layer masked", *[pytest.param(name, marks=pytest.mark.slow) for name in OTHERS]])
def test_third_derivatives(name: str, rng: np.random.Generator) -> None:
    function, shapes = FORMS[name]
    inputs = [rng.standard_normal(shape) for shape in shapes]
    assert gradgradcheck(lambda *given: of_the_sum(function, *given), *inputs) < 1e-6


def along(order: int, function: Callable[..., Any], x: Any, v: Any, w: Any, library: Any) -> list[float]:
    """Return the derivatives of <f(x + t v), w> for t at 0, from the first to that order."""
    t = library.zeros((), dtype=library.float64, requires_grad=True)
    value, found = (function(x + t * v) * w).sum(), []
    for _ in range(order):
        (value,) = library.autograd.grad(value, t, create_graph=True)
        found.append(value.item())
    return found


def exactly(order: int, x: Any, v: Any, w: Any, eps: float) -> list[float]:
    """Compute the same for a batch normalization of one channel, by Taylor's series in 60 digits."""
    mpmath = pytest.importorskip("mpmath")

    def f(t: Any) -> Any:
        moved = [mpmath.mpf(float(a)) + t * mpmath.mpf(float(b)) for a, b in zip(x, v, strict=True)]
        mean = sum(moved) / len(moved)
        var = sum((a - mean) ** 2 for a in moved) / len(moved)
        return sum((a - mean) / mpmath.sqrt(var + eps) * mpmath.mpf(float(b)) for a, b in zip(moved, w, strict=True))

    with mpmath.workdps(60):
        series = mpmath.taylor(f, 0, order)
        return [float(series[k] * mpmath.factorial(k)) for k in range(1, order + 1)]


def test_four_derivatives_are_those_of_the_formula_where_pytorchs_are_not(rng: np.random.Generator) -> None:
    """PyTorch takes the statistics for constants from the third derivative on, and says nothing."""
    x, v, w = rng.standard_normal((3, 6, 1))
    expected = exactly(4, x[:, 0], v[:, 0], w[:, 0], 1e-3)

    def normalized(library: Any) -> Callable[..., Any]:
        return lambda x: library.nn.functional.batch_norm(x, None, None, training=True, eps=1e-3)

    found = along(4, normalized(mn), mn.tensor(x), mn.tensor(v), mn.tensor(w), mn)
    np.testing.assert_allclose(found, expected, rtol=1e-10)
    torch = pytest.importorskip("torch")
    try:
        theirs = along(4, normalized(torch), torch.tensor(x), torch.tensor(v), torch.tensor(w), torch)
    except RuntimeError:  # later versions refuse
        return
    np.testing.assert_allclose(theirs[:2], expected[:2], rtol=1e-10)
    assert abs(theirs[2] / expected[2] - 1) > 1e-3


@pytest.mark.parametrize("offset", [0.0, 1e4, 1e6])
@pytest.mark.parametrize("name", ["batch", "batch, channels last", "instance", "group", "layer"])
def test_float32_is_right_far_from_0(name: str, offset: float, rng: np.random.Generator) -> None:
    function, _ = FORMS[name]
    shapes = {"batch, channels last": [(16, 8, 8, 3), (3,), (3,)], "group": [(8, 4, 64), (4,), (4,)],
              "layer": [(32, 4), (4,), (4,)]}.get(name, [(16, 3, 8, 8), (3,), (3,)])  # fmt: skip
    x, s, b = (rng.standard_normal(shape) for shape in shapes)
    x = (x + offset).astype(np.float32)
    v, w = (rng.standard_normal(shapes[0]).astype(np.float32) for _ in range(2))

    def second(kind: Any) -> list[Any]:
        inputs = [
            mn.tensor(a.astype(kind), requires_grad=True) for a in (x, s.astype(np.float32), b.astype(np.float32))
        ]
        y = function(*inputs)
        given = v if y.shape == v.shape else v.transpose(0, 3, 1, 2)
        weights = mn.tensor(np.ascontiguousarray(given).astype(kind), requires_grad=True)
        (dx,) = mn.autograd.grad(y, inputs[0], weights, create_graph=True)
        return list(mn.autograd.grad(dx, [*inputs[:2], weights], mn.tensor(w.astype(kind))))

    for found, expected in zip(second(np.float32), second(np.float64), strict=True):
        apart = found.numpy() - expected.numpy()
        assert np.linalg.norm(apart) < 1e-6 * np.linalg.norm(expected.numpy())


@pytest.mark.parametrize("name", ["batch", "batch in evaluation", "batch and relu", "instance", "layer", "rms"])
def test_of_an_empty_batch(name: str) -> None:
    function, shapes = FORMS[name]
    empty = [(0, *shape[1:]) if shape in (IMAGES, shapes[0]) else shape for shape in shapes]
    inputs = [mn.ones(*shape, dtype=mn.float64, requires_grad=True) for shape in empty]
    y = function(*inputs)
    v = mn.ones_like(y).requires_grad_()
    first = mn.autograd.grad(y, inputs, v, create_graph=True)
    assert all(not g.numpy().any() for g in first)
    ends = [g.sum() for g in first if g.requires_grad]
    if ends:
        second = mn.autograd.grad(ends, [*inputs, v], create_graph=True, allow_unused=True)
        assert all(g is None or not g.numpy().any() for g in second)
