"""quantize and dequantize against formulas, PyTorch's fake quantization, and the published gradient of the scale."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import minorm as mn
from minorm.functional import quantization as F


def there_and_back(x: mn.Tensor, scale: mn.Tensor, zero: mn.Tensor, axis: int = 1, block: int = 0) -> mn.Tensor:
    return F.dequantize(F.quantize(x, scale, zero, axis=axis, block_size=block), scale, zero, axis, block)


def test_half_way_goes_to_the_even_one_and_ends_hold() -> None:
    x = mn.tensor(np.array([0.5, 1.5, 2.5, -0.5, -1.5, 300, -300, np.inf, -np.inf, np.nan], np.float32))
    q = F.quantize(x, mn.tensor(np.float32(1)), dtype=mn.int8)
    assert (q.dtype, q.array.tolist()) == (np.int8, [0, 2, 2, 0, -2, 127, -128, 127, -128, 0])


@pytest.mark.parametrize("dtype", [mn.int8, mn.uint8, mn.int16, mn.uint16], ids=str)
def test_every_number_comes_back(dtype: Any) -> None:
    ends = np.iinfo(dtype)
    q = np.arange(ends.min, ends.max + 1, 7).astype(dtype)
    scale, zero = mn.tensor(np.float32(0.3)), mn.tensor(np.array(ends.min + 90, dtype))
    x = F.dequantize(mn.tensor(q), scale, zero)
    np.testing.assert_allclose(x.array, (q.astype(np.float64) - ends.min - 90) * 0.3, rtol=1e-6)
    np.testing.assert_array_equal(F.quantize(x, scale, zero).array, q)


def test_large_integers_lose_nothing_before_the_product() -> None:
    q = mn.tensor(np.array([2**30 + 3], np.int32))
    zero = mn.tensor(np.array([2**30], np.int32))
    assert F.dequantize(q, mn.tensor(np.array([1], np.float32)), zero).item() == 3


@pytest.mark.parametrize("channels", [False, True])
@pytest.mark.parametrize(("dtype", "low", "high"), [(mn.int8, -128, 127), (mn.uint8, 0, 255)], ids=str)
def test_gradients_as_pytorchs_fake_quantization(
    rng: np.random.Generator, channels: bool, dtype: Any, low: int, high: int
) -> None:
    torch = pytest.importorskip("torch")
    x = rng.normal(0, 20, (4, 3, 5)).astype(np.float32)  # some are cut off
    scale = np.array([0.11, 0.2, 0.07], np.float32)[: 3 if channels else 1]
    zero = np.array([3, 100, 20])[: 3 if channels else 1]
    weights = rng.normal(size=x.shape).astype(np.float32)
    theirs = [torch.tensor(a, requires_grad=True) for a in (x, scale)]
    if channels:
        want = torch._fake_quantize_learnable_per_channel_affine(
            *theirs, torch.tensor(zero.astype(np.float32)), 1, low, high, 1.0
        )
    else:
        want = torch._fake_quantize_learnable_per_tensor_affine(
            *theirs, torch.tensor(zero.astype(np.float32)), low, high, 1.0
        )
    (want * torch.tensor(weights)).sum().backward()
    ours = [mn.Tensor(a, True) for a in (x, scale)]
    y = there_and_back(*ours, mn.tensor(zero.astype(dtype)))
    (y * mn.tensor(weights)).sum().backward()
    np.testing.assert_allclose(y.array, want.detach().numpy(), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(ours[0].grad.array, theirs[0].grad.numpy(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(ours[1].grad.array, theirs[1].grad.numpy(), rtol=2e-4)


def test_second_gradients_pass_straight_through_as_in_pytorch(rng: np.random.Generator) -> None:
    torch = pytest.importorskip("torch")

    class Rounded(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x.round()

        @staticmethod
        def backward(ctx: Any, dy: Any) -> Any:
            return dy

    def theirs(x: Any, scale: Any) -> Any:
        return (torch.clamp(Rounded.apply(x / scale) + 100, 0, 255) - 100) * scale

    def ours(x: Any, scale: Any) -> Any:
        return there_and_back(x, scale, mn.tensor(100, mn.uint8))

    x, v, w = rng.normal(0, 20, (3, 4, 5))  # some are cut off
    found = []
    for library, function in ((mn, ours), (torch, theirs)):
        leaves = [library.tensor(a, requires_grad=True) for a in (x, np.array(0.2), v)]
        y = function(*leaves[:2])
        first = library.autograd.grad(y * y, leaves[:2], leaves[2], create_graph=True)
        second = library.autograd.grad((first[0] * library.tensor(w)).sum() + first[1] ** 2, leaves)
        found.append([g.detach().numpy() for g in (*first, *second)])
    for mine, expected in zip(*found, strict=True):
        np.testing.assert_allclose(mine, expected, rtol=1e-10, atol=1e-10)
    fixed = torch.tensor(v, requires_grad=True)
    leaf = torch.tensor(x, requires_grad=True)
    fake = torch.fake_quantize_per_tensor_affine(leaf, 0.2, 100, 0, 255)
    (g,) = torch.autograd.grad(fake, leaf, fixed, create_graph=True)
    (expected,) = torch.autograd.grad((g * g).sum(), fixed)
    mine, weights = mn.tensor(x, requires_grad=True), mn.tensor(v, requires_grad=True)
    (g,) = mn.autograd.grad(ours(mine, mn.tensor(0.2, mn.float64)), mine, weights, create_graph=True)
    np.testing.assert_allclose(mn.autograd.grad((g * g).sum(), weights)[0].numpy(), expected.numpy(), rtol=1e-12)


@pytest.mark.parametrize("length", [5, 6])
def test_blocks(rng: np.random.Generator, length: int) -> None:
    """A block's scale is that of each of its elements, the last block shorter; so are the gradients."""
    x, scale = rng.normal(0, 3, (2, length)), rng.uniform(0.01, 0.1, (2, 3))
    wide = np.repeat(scale, 2, 1)[:, :length]
    zero = np.array([[0, 3, 9], [100, 5, 6]], np.uint8)
    given = mn.Tensor(x, True), mn.Tensor(scale, True)
    y = there_and_back(*given, mn.tensor(zero), 1, 2)
    z = np.repeat(zero.astype(np.int64), 2, 1)[:, :length]
    q = np.rint(x / wide) + z
    cut = np.clip(q, 0, 255)
    np.testing.assert_allclose(y.array, (cut - z) * wide, rtol=1e-13)
    y.sum().backward()
    inside = cut == q
    np.testing.assert_array_equal(given[0].grad.array, inside * 1.0)
    each = cut - z - np.where(inside, x / wide, 0)  # Esser et al., equation 3
    np.testing.assert_allclose(
        given[1].grad.array, np.add.reduceat(each, range(0, length, 2), 1), rtol=1e-12, atol=1e-12
    )


def test_a_block_beyond_any_length() -> None:
    x, scale = mn.ones(2, 3), mn.ones(2, 1)
    y = F.dequantize(F.quantize(x, scale, block_size=2**60), scale, block_size=2**60)
    np.testing.assert_array_equal(y.array, x.array)


def test_integers_alone_have_no_gradient() -> None:
    x = mn.Tensor(np.ones(3, np.float32), True)
    q = F.quantize(x, mn.tensor(np.float32(0.1)))
    assert not q.requires_grad
    assert not F.dequantize(q + 0, mn.tensor(np.float32(0.1))).requires_grad  # what was computed forgets the way back
    with mn.no_grad():
        assert type(F.quantize(x, mn.tensor(np.float32(0.1)))) is mn.Tensor


@pytest.mark.parametrize("x", [[-3.0, 0, 5], [2.0, 3, 4], [-4.0, -3, -1], [0.0, 0, 0], []], ids=str)
def test_dynamic(x: Any) -> None:
    x = np.array(x, np.float32)
    q, scale, zero = F.dynamic_quantize(mn.tensor(x))
    low, high = min(0, x.min(initial=0)), max(0, x.max(initial=0))
    assert scale.item() == pytest.approx((high - low) / 255 or 1)
    assert (q.dtype, zero.dtype) == (np.uint8, np.uint8)
    np.testing.assert_allclose((q.array.astype(int) - int(zero.item())) * scale.item(), x, atol=scale.item() * 0.51)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x, s: F.quantize(x, s, dtype=mn.int32), TypeError, "quantize: the result would be int32; expected"),
        (lambda x, s: F.quantize(x, s, mn.zeros(1, dtype=mn.int8)), ValueError, "quantize: zero_point has shape (1,)"),
        (lambda x, s: F.quantize(x, mn.ones(4)), ValueError, "quantize: scale has shape (4,); expected one number"),
        (lambda x, s: F.quantize(x, mn.ones(2, 3), block_size=2), ValueError, "or (2, 2) for x (2, 3)"),
        (lambda x, s: F.quantize(x, s.to(mn.int32)), TypeError, "quantize: scale is int32; expected a float type"),
        (lambda x, s: F.quantize(x, mn.ones(3), axis=4), IndexError, "quantize: dim=4 is out of range for shape"),
        (F.dequantize, TypeError, "dequantize: x is float32; expected integers"),
        (lambda x, s: F.dequantize(x.to(mn.int8), s, s), TypeError, "dequantize: zero_point is float32, x is int8"),
    ],
)  # fmt: skip
def test_mistakes(call: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=re.escape(message)):
        call(mn.ones(2, 3), mn.tensor(np.float32(0.1)))
