"""Arithmetic against NumPy, gradients against finite differences, broadcasting by property."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis.extra.numpy import mutually_broadcastable_shapes

import minorm as mn
from minorm.ops import elementwise
from minorm.testing import gradcheck

BINARY = {
    "add": (lambda a, b: a + b, np.add),
    "sub": (lambda a, b: a - b, np.subtract),
    "mul": (lambda a, b: a * b, np.multiply),
    "div": (lambda a, b: a / b, np.divide),
    "pow": (lambda a, b: a**b, np.power),
    "maximum": (mn.maximum, np.maximum),
    "minimum": (mn.minimum, np.minimum),
}
UNARY = {
    "neg": (lambda x: -x, np.negative),
    "abs": (abs, np.abs),
    "exp": (mn.exp, np.exp),
    "log": (mn.log, np.log),
    "sqrt": (mn.sqrt, np.sqrt),
    "sin": (mn.sin, np.sin),
    "cos": (mn.cos, np.cos),
    "clip": (lambda x: x.clip(0.8, 1.5), lambda x: np.clip(x, 0.8, 1.5)),
    "clip_low": (lambda x: x.clip(min=1.0), lambda x: np.maximum(x, 1.0)),
    "copy": (lambda x: x.clone(), np.copy),
}


@pytest.mark.parametrize("name", BINARY)
@given(shapes=mutually_broadcastable_shapes(num_shapes=2, max_dims=3, max_side=3))
def test_binary_values_and_gradients(name: str, shapes) -> None:
    ours, theirs = BINARY[name]
    rng = np.random.default_rng(1)
    a, b = (rng.uniform(0.5, 2.0, s) for s in shapes.input_shapes)
    np.testing.assert_allclose(ours(mn.tensor(a), mn.tensor(b)).array, theirs(a, b), rtol=1e-15)
    gradcheck(ours, np.asarray(a), np.asarray(b))


@pytest.mark.parametrize("name", UNARY)
def test_unary_values_and_gradients(name: str, rng) -> None:
    ours, theirs = UNARY[name]
    x = rng.uniform(0.5, 2.0, (3, 4))
    units = 1 if name in ("exp", "log") else 0  # of the last place: these two are kernels of ours
    np.testing.assert_array_max_ulp(ours(mn.tensor(x)).array, theirs(x), units)
    gradcheck(ours, x)


def test_pow_at_zero_has_finite_gradients() -> None:
    base = mn.tensor([0.0, 0.0, 2.0], requires_grad=True)
    power = mn.tensor([0.0, 2.0, 0.0], requires_grad=True)
    (base**power).sum().backward()
    np.testing.assert_array_equal(base.grad.array, [0, 0, 0])
    assert np.isfinite(power.grad.array).all()


def test_ties_share_the_gradient() -> None:
    a, b = mn.tensor([1.0, 2.0], requires_grad=True), mn.tensor([1.0, 3.0], requires_grad=True)
    mn.maximum(a, b).sum().backward()
    np.testing.assert_array_equal(a.grad.array, [0.5, 0])
    np.testing.assert_array_equal(b.grad.array, [0.5, 1])


def test_where_sends_each_gradient_home(rng) -> None:
    condition = rng.random((3, 4)) > 0.5
    gradcheck(lambda a, b: mn.where(condition, a, b), rng.standard_normal((3, 4)), rng.standard_normal(4))
    assert mn.where(mn.tensor([True, False]), 1.0, mn.zeros(2)).tolist() == [1, 0]
    with pytest.raises(TypeError, match="where: condition is float32; expected bool"):
        mn.where(mn.ones(2), 1.0, mn.zeros(2))


def test_comparisons_give_bools_without_gradient() -> None:
    x = mn.tensor([1.0, 2.0, 3.0], requires_grad=True)
    for result, expected in (
        (x > 2, [0, 0, 1]),
        (x >= 2, [0, 1, 1]),
        (x < 2, [1, 0, 0]),
        (x <= 2, [1, 1, 0]),
        (x == 2, [0, 1, 0]),
        (x != 2, [1, 0, 1]),
    ):
        assert result.dtype == mn.bool
        assert not result.requires_grad
        assert result.tolist() == [bool(e) for e in expected]


@pytest.mark.parametrize(
    ("shape", "full"),
    [((7,), (900, 500, 7)), ((900, 1, 1), (900, 500, 7)), ((1, 500, 1), (900, 500, 7)), ((), (900, 500, 7))],
)
def test_a_large_broadcast_gradient_is_summed_in_blocks(shape, full, rng, monkeypatch) -> None:
    """The blocks add up to the whole, and no temporary of the full size is made."""
    largest = 0

    def multiply(a, b):
        nonlocal largest
        product = a * b
        largest = max(largest, product.size)
        return product

    dy, other = rng.standard_normal(full), rng.standard_normal(full)
    got = elementwise.gradient_of(shape, multiply, dy, other)
    axes = tuple(i for i, n in enumerate((1,) * (3 - len(shape)) + shape) if n == 1)
    np.testing.assert_allclose(got, (dy * other).sum(axis=axes).reshape(shape), rtol=1e-10, atol=1e-9)
    assert largest <= elementwise.BLOCK


def test_half_sums_are_taken_in_float32() -> None:
    b = mn.zeros(1, dtype=mn.bfloat16, requires_grad=True)
    (mn.ones(10_000, dtype=mn.bfloat16) + b).sum().backward()
    assert float(b.grad.array[0]) == pytest.approx(10_000, rel=2**-8)


@pytest.mark.parametrize("dtype", [mn.float16, mn.bfloat16, mn.float32, mn.int8, mn.uint64])
def test_clip_keeps_the_type(dtype) -> None:
    x = np.array([0, 1, 5, 9]).astype(dtype)
    for low, high in ((1, 6), (1, None), (None, 6)):
        y = mn.Tensor(x).clip(low, high)
        assert y.dtype == dtype
        np.testing.assert_array_equal(y.array.astype(float), np.clip(x.astype(float), low, high))
