"""The error function's inverse, logit, atan2, logaddexp and xlogy; PyTorch's samples are in tests/pytorch."""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest

import minorm as mn
from minorm.testing import gradcheck, gradgradcheck

UNARY: dict[str, Callable[[Any], Any]] = {
    "erfinv": lambda x: x.erfinv(),
    "logit": lambda x: (x * 0.4 + 0.5).logit(),
    "logit between bounds": lambda x: (x * 0.4 + 0.5).logit(eps=0.2),
}
BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "atan2": lambda a, b: a.atan2(b),
    "logaddexp": lambda a, b: a.logaddexp(b),
    "xlogy": lambda a, b: a.xlogy(b * b + 0.1),
}


def test_erfinv_is_the_inverse_to_the_last_digits(rng: np.random.Generator) -> None:
    shares = np.concatenate([rng.uniform(-1, 1, 500), 1 - 10.0 ** -rng.uniform(1, 15, 100), [1e-300, 0.85, -0.85]])
    normal = NormalDist()
    # The quantile of the tail from the other side, where 1 - x loses no digit.
    expected = [math.copysign(-normal.inv_cdf((1 - abs(x)) / 2), x) / math.sqrt(2) for x in shares]
    found = mn.tensor(shares).erfinv().numpy()
    middle = abs(shares) < 1e-3  # where x / 2 + 1 / 2 loses them
    np.testing.assert_allclose(found[~middle], np.array(expected)[~middle], rtol=1e-14)
    np.testing.assert_allclose(found[middle], shares[middle] * math.sqrt(math.pi) / 2, rtol=1e-6)
    assert found[-3] == pytest.approx(1e-300 * math.sqrt(math.pi) / 2, rel=1e-14)
    ends = mn.tensor([-1.0, 1.0, -1.5, 2.0]).erfinv().numpy()
    np.testing.assert_array_equal(ends, [-np.inf, np.inf, np.nan, np.nan])


@pytest.mark.parametrize("name", [*UNARY, *BINARY])
def test_gradients(name: str, rng: np.random.Generator) -> None:
    function: Callable[..., Any] = (UNARY | BINARY)[name]
    shapes = [(2, 3)] if name in UNARY else [(2, 3), (3,)]
    inputs = [rng.uniform(-0.9, 0.9, shape) for shape in shapes]
    assert gradcheck(function, *inputs) < 1e-6
    assert gradgradcheck(function, *inputs) < 1e-6


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", [*UNARY, *BINARY])
def test_sixteen_bits_are_rounded_once(name: str, dtype: str, rng: np.random.Generator) -> None:
    """The values, and gradients, of float64, rounded."""
    kind, exact = getattr(mn, dtype), {"float16": 2.0**-10, "bfloat16": 2.0**-7}[dtype]
    shapes = [(40,)] if name in UNARY else [(40,), (40,)]
    plain: dict[str, Any] = {
        "erfinv": UNARY["erfinv"], "logit": lambda x: x.logit(), "logit between bounds": lambda x: x.logit(0.25),
        **BINARY, "xlogy": lambda a, b: a.xlogy(b),
    }  # fmt: skip
    halves = [mn.tensor(rng.uniform(0.05, 0.9, shape), dtype=kind, requires_grad=True) for shape in shapes]
    wide = [x.detach().double().requires_grad_() for x in halves]
    found, expected = plain[name](*halves), plain[name](*wide)
    assert found.dtype == kind
    np.testing.assert_allclose(found.detach().double().numpy(), expected.detach().numpy(), rtol=exact, atol=1e-7)
    weights = mn.tensor(rng.uniform(0.5, 1.0, found.shape), dtype=kind)
    slopes = mn.autograd.grad(expected, wide, weights.double())
    for create_graph in (False, True):
        ours = mn.autograd.grad(found, halves, weights, retain_graph=True, create_graph=create_graph)
        for one, other in zip(ours, slopes, strict=True):
            assert one.dtype == kind
            np.testing.assert_allclose(one.detach().double().numpy(), other.numpy(), rtol=2 * exact, atol=1e-6)


def test_sixteen_bits_far_out() -> None:
    """Where squares and differences leave the range of float16."""
    a, b = (mn.tensor([3e4, 1e-3], dtype=mn.float16, requires_grad=True) for _ in range(2))
    a.atan2(b).sum().backward()
    assert a.grad is not None
    np.testing.assert_allclose(a.grad.float().numpy(), 0.5 / a.detach().float().numpy(), rtol=2e-3, atol=6e-8)
    (first,) = mn.autograd.grad(a.atan2(b).sum(), a, create_graph=True)
    np.testing.assert_array_equal(first.detach().numpy(), a.grad.numpy())
    low = mn.tensor([-6e4], dtype=mn.float16)
    assert low.logaddexp(-low).tolist() == [60000.0]


def test_integers_give_floats() -> None:
    n = mn.tensor([0, 1])
    for y in (n.erfinv(), n.logit(), n.atan2(n), n.logaddexp(n), n.xlogy(n)):
        assert y.dtype == mn.float32
    np.testing.assert_allclose(mn.xlogy(2, n + 1).numpy(), [0, 2 * math.log(2)], rtol=1e-6)


def test_in_place() -> None:
    x = mn.tensor([0.5, -0.5])
    assert x.erfinv_() is x
    np.testing.assert_allclose(x.numpy(), [0.4769363, -0.4769363], rtol=1e-6)


def test_two_float_types_are_an_error() -> None:
    a, b = mn.ones(2), mn.ones(2, dtype=mn.float64)
    for name in ("atan2", "logaddexp", "xlogy"):
        with pytest.raises(TypeError, match=f"{name}: operands are float32 and float64; expected one float type"):
            getattr(a, name)(b)
        with pytest.raises(ValueError, match=rf"{name}: shapes \(2,\) and \(3,\) do not broadcast"):
            getattr(a, name)(mn.ones(3))
