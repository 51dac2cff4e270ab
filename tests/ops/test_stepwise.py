"""Functions without a slope, and the quotient of integers against exact arithmetic."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import minorm as mn
from minorm.ops.stepwise import Quotient, Stepwise


@pytest.mark.parametrize("step", ["floor", "ceil", "rint", "sign", "isnan", "isinf"])
@pytest.mark.parametrize("dtype", [mn.float16, mn.bfloat16, mn.float32, mn.float64])
def test_steps(step, dtype):
    x = np.array([-2.5, -1.5, -0.2, 0.0, 0.5, 1.5, np.inf, np.nan]).astype(dtype)
    y = Stepwise.apply(mn.Tensor(x, requires_grad=True), step=step)
    assert not y.requires_grad
    np.testing.assert_array_equal(y.array.astype(float), getattr(np, step)(x.astype(np.float64)).astype(float))
    assert y.dtype == (mn.bool if step.startswith("is") else dtype)


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.int64, np.uint8, np.uint64])
def test_quotients_are_rounded_towards_zero(dtype):
    low = -7 if np.issubdtype(dtype, np.signedinteger) else 1
    a, b = np.meshgrid(np.arange(low, 8), [n for n in range(low, 8) if n])
    y = Quotient.apply(mn.Tensor(a.astype(dtype)), mn.Tensor(b.astype(dtype)))
    assert y.dtype == dtype
    exact = [int(Fraction(int(p), int(q))) for p, q in zip(a.flat, b.flat, strict=True)]
    np.testing.assert_array_equal(y.array.ravel(), exact)


def test_division_by_zero_is_no_error():
    assert Quotient.apply(mn.tensor([3]), mn.tensor([0])).tolist() == [0]


def test_a_truncated_quotient_has_gradients_of_0():
    """As PyTorch's, also where b is 0."""
    a, b = mn.tensor([1.0, -7.0, 5.0, 0.0], requires_grad=True), mn.tensor([0.0, 2.0, -0.0, 0.0], requires_grad=True)
    with np.errstate(all="ignore"):
        y = a.div(b, rounding_mode="trunc")
        np.testing.assert_array_equal(y.detach().numpy(), [np.inf, -3.0, -np.inf, np.nan])
        y.sum().backward()
    np.testing.assert_array_equal(a.grad.numpy(), 0.0)
    np.testing.assert_array_equal(b.grad.numpy(), 0.0)
