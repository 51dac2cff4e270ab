"""Fake quantization against PyTorch's, a formula in float64, and finite differences of what it lets through."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minorm as mn
import minorm.functional as F


def formula(x: Any, scale: Any, zero: Any, low: int, high: int) -> Any:
    """In float64, with the division in float32 as ONNX has it."""
    q = np.rint((x / scale).astype(np.float64)) + zero
    return (np.clip(q, low, high) - zero) * scale.astype(np.float64)


@pytest.mark.parametrize(("low", "high", "zero"), [(0, 255, 100), (-128, 127, 3), (-127, 127, 0)])
def test_values_and_gradients_per_tensor(rng: np.random.Generator, low: int, high: int, zero: int) -> None:
    x = rng.normal(0, 10, (4, 5)).astype(np.float32)
    scale = np.array(0.11, np.float32)
    given, weights = mn.Tensor(x, True), rng.normal(size=x.shape).astype(np.float32)
    y = F.fake_quantize_per_tensor_affine(given, float(scale), zero, low, high)
    (y * mn.tensor(weights)).sum().backward()
    np.testing.assert_allclose(y.array, formula(x, scale, zero, low, high), rtol=1e-6, atol=1e-6)
    inside = (np.rint(x / scale) + zero >= low) & (np.rint(x / scale) + zero <= high)
    assert 0 < inside.sum() < inside.size
    np.testing.assert_array_equal(given.grad.array, weights * inside)


def test_values_and_gradients_are_pytorchs(rng: np.random.Generator) -> None:
    torch = pytest.importorskip("torch")
    x = rng.normal(0, 10, (100, 3, 5)).astype(np.float32)
    scale, zero = np.array([0.11, 0.2, 0.07], np.float32), np.array([0, 3, -4], np.int32)
    theirs = torch.tensor(x, requires_grad=True)
    want = torch.fake_quantize_per_channel_affine(theirs, torch.tensor(scale), torch.tensor(zero), 1, -128, 127)
    want.sum().backward()
    ours = mn.Tensor(x, True)
    y = F.fake_quantize_per_channel_affine(ours, mn.tensor(scale), mn.tensor(zero), 1, -128, 127)
    y.sum().backward()
    apart = np.abs(y.array - want.detach().numpy())  # PyTorch multiplies by 1 / scale: a tie now and then
    assert (apart > 1e-5).mean() < 1e-3
    assert apart.max() < 0.21
    np.testing.assert_array_equal(ours.grad.array, theirs.grad.numpy())


def test_the_scales_gradient_is_pytorchs(rng: np.random.Generator) -> None:
    torch = pytest.importorskip("torch")
    x = rng.normal(0, 20, (4, 3, 5)).astype(np.float32)
    scale, weights = np.array([0.11, 0.2, 0.07], np.float32), rng.normal(size=x.shape).astype(np.float32)
    theirs = torch.tensor(scale, requires_grad=True)
    want = torch._fake_quantize_learnable_per_channel_affine(torch.tensor(x), theirs, torch.zeros(3), 1, -127, 127, 1.0)
    (want * torch.tensor(weights)).sum().backward()
    ours = mn.Tensor(scale, True)
    y = F.fake_quantize_per_channel_affine(mn.tensor(x), ours, mn.zeros(3, dtype=mn.int32), 1, -127, 127)
    (y * mn.tensor(weights)).sum().backward()
    np.testing.assert_allclose(ours.grad.array, theirs.grad.numpy(), rtol=2e-4)


def test_gradients_of_gradients(rng: np.random.Generator) -> None:
    """The first one is dy where x was not cut off: of the loss y^3 its derivative is 6 y, let through once more."""
    x = mn.Tensor(rng.normal(size=6) * 2, True)
    scale = mn.tensor(np.array(0.25))
    y = F.fake_quantize_per_tensor_affine(x, scale, 0, -4, 4)
    [first] = mn.autograd.grad((y**3).sum(), [x], create_graph=True)
    [second] = mn.autograd.grad(first.sum(), [x])
    inside = np.abs(np.rint(x.array / 0.25)) <= 4
    np.testing.assert_allclose(second.array, 6 * y.array * inside, rtol=1e-12)


@pytest.mark.parametrize("dtype", [mn.float16, mn.float64])
def test_other_floats_are_rounded_in_their_type(rng: np.random.Generator, dtype: Any) -> None:
    x = rng.normal(size=50)
    y = F.fake_quantize_per_tensor_affine(mn.tensor(x, dtype=dtype), 0.125, 0, -127, 127)
    assert y.dtype == dtype
    np.testing.assert_array_equal(y.array.astype(np.float64), np.rint(x.astype(dtype) / 0.125) * 0.125)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda x: F.fake_quantize_per_tensor_affine(x, 1.0, 0, 5, 5), "quant_min is 5, quant_max is 5"),
        (lambda x: F.fake_quantize_per_tensor_affine(x, mn.ones(2), 0, 0, 5), r"scale has shape \(2,\); expected one"),
        (
            lambda x: F.fake_quantize_per_channel_affine(x, mn.ones(2), mn.zeros(2), 1, 0, 5),
            r"scale has shape \(2,\); expected \(3,\), one number for each index along axis 1 of x; x.shape is ",
        ),
        (
            lambda x: F.fake_quantize_per_channel_affine(x, mn.ones(2), mn.zeros(2), 7, 0, 5),
            r"dim=7 is out of range for shape \(2, 3\)",
        ),
        (lambda x: F.fake_quantize_per_tensor_affine(x.long(), 1.0, 0, 0, 5), "x is int64; expected a float type"),
        (lambda x: F.fake_quantize_per_tensor_affine(x, 0.0, 0, 0, 5), "scale=0.0; expected a positive number"),
        (lambda x: F.fake_quantize_per_tensor_affine(x, float("nan"), 0, 0, 5), "scale=nan; expected a positive"),
        (lambda x: F.fake_quantize_per_tensor_affine(x, 1.0, 6, 0, 5), "zero_point=6; expected 0 to 5"),
        (lambda x: F.fake_quantize_per_tensor_affine(x, 1.0, 0.5, 0, 5), "zero_point is 0.5; expected an int"),
        (lambda x: F.fake_quantize_per_tensor_affine(x, 1.0, 0, 0.5, 5), "quant_min is 0.5; expected an int"),
    ],
)
def test_errors_say_what_was_given(call: Any, words: str) -> None:
    with pytest.raises((TypeError, ValueError, IndexError), match=words):
        call(mn.ones(2, 3))
