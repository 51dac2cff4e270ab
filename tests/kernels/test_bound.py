"""Functions whose nest, equation and type are bound compute what the protocol's do with these arguments."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from minorm.kernels import cpu, reference
from minorm.kernels.bound import BoundBackend, bound
from minorm.kernels.protocol import Statistics
from minorm.normalization.equation import Equation
from minorm.normalization.nest import plan

F4, F8 = np.dtype(np.float32), np.dtype(np.float64)
NEST = plan((6, 3, 4), (0, 2), 1, (1,))
EQUATIONS = [Equation(1e-3), Equation(1e-3, False), Equation(1e-3, True, True)]


def same(found: Any, expected: Any) -> None:
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("norm", [cpu.norm, reference.norm], ids=["cpu", "reference"])
@pytest.mark.parametrize("equation", EQUATIONS, ids=str)
@pytest.mark.parametrize(("stored", "dtype"), [(F4, None), (F4, F8), (F8, None)])
def test_each_function(norm: Any, equation: Equation, stored: Any, dtype: Any) -> None:
    rng = np.random.default_rng(0)
    x, dy, other = rng.standard_normal((3, *NEST.shape)).astype(stored)
    s, b, sums = *rng.standard_normal((2, 3)).astype(stored), rng.standard_normal((2, 3))
    mask = rng.random(NEST.shape) < 0.7
    ours = bound(norm, NEST, equation, stored, dtype)
    named = {} if dtype is None else {"dtype": dtype}
    y, stats = ours.forward(x, s, b)
    same((y, stats.block), _parts(norm.forward(NEST, x, s, b, equation, **named)))
    for given in ({"mask": mask}, {"activation": "relu", "residual": other}):
        z, found = ours.forward(x, s, b, **given)
        same((z, found.block), _parts(norm.forward(NEST, x, s, b, equation, **named, **given)))
        same([ours.apply(x, stats, s, b, **given)], [norm.apply(NEST, x, stats, s, b, **named, **given)])
    same(ours.moments(x), norm.moments(NEST, x, equation.centered, **named))
    needs = (True, True)
    same(ours.backward(dy, x, stats, s, needs), norm.backward(NEST, dy, x, stats, s, equation, needs, **named))
    same(ours.grad_sums(dy, x, stats, s), norm.grad_sums(NEST, dy, x, stats, s, **named))
    same(ours.grad_params(dy, x, stats), norm.grad_params(NEST, dy, x, stats, **named))
    for pair in (sums, (None, None)):
        same(
            [ours.grad_input(dy, x, stats, s, *pair)], [norm.grad_input(NEST, dy, x, stats, s, *pair, **named)]
        )  # fmt: skip


def _parts(found: Any) -> Any:
    return found[0], found[1].block


@pytest.mark.parametrize("equation", EQUATIONS, ids=str)
@pytest.mark.parametrize("kind", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize("computed", [F4, F8])
@pytest.mark.parametrize("strided", [False, True])
def test_statistics_that_are_given(equation: Equation, kind: Any, computed: Any, strided: bool) -> None:
    """The kernel gives the bits of NumPy's formula; values that are not finite among them."""
    rng = np.random.default_rng(1)
    mean = np.array([*rng.standard_normal(5) * 1e3, 0, np.inf, np.nan], kind)
    var = np.array([*rng.random(5), 0, 2, np.nan], kind)
    if strided:
        mean, var = np.repeat(mean, 2)[::2], np.repeat(var, 2)[::2]
    nest = plan((4, 8), (0,), 1, (1,))
    with np.errstate(invalid="ignore"):  # inf - inf, where NumPy does it
        found = bound(cpu.norm, nest, equation, F4, computed).statistics(mean, var)
    wide = mean.astype(np.float64)
    k = mean.astype(computed).astype(np.float64)
    std = np.sqrt(var.astype(np.float64))
    with np.errstate(invalid="ignore", divide="ignore"):
        d = np.zeros(8) if kind == computed else wide - k
        rstd = np.where(std == 0, 0, 1 / (std + 1e-3)) if equation.guard else 1 / np.sqrt(var.astype(np.float64) + 1e-3)
        other = Statistics.given(mean, var, equation, computed)
    np.testing.assert_array_equal(found.block, [k, d, var, rstd])
    np.testing.assert_array_equal(other.block, found.block)


def test_a_backend_is_told_only_what_is_there() -> None:
    seen: list[Any] = []

    class Listening:
        def __getattr__(self, name: str) -> Any:
            return lambda *arrays, **given: seen.append((name, len(arrays), sorted(given)))

    x: Any = np.zeros(NEST.shape, F4)
    plain = BoundBackend(Listening(), NEST, Equation(), F4)
    plain.forward(x, None, None)
    plain.backward(x, x, None, None, (True, True))  # type: ignore[arg-type]
    plain.moments(x)
    BoundBackend(Listening(), NEST, Equation(), F4, F8).grad_sums(x, x, None, None, mask=x)  # type: ignore[arg-type]
    assert seen == [("forward", 5, []), ("backward", 7, []), ("moments", 3, []), ("grad_sums", 5, ["dtype", "mask"])]
