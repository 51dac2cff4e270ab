"""Pooling as Functions: gradients against finite differences, values against PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minorm as mn
import minorm.functional as F
from minorm.tensor.tensor import Tensor
from minorm.testing import gradcheck

CASES = [  # function, x, options
    (F.max_pool1d, (2, 3, 9), {"kernel_size": 2}),
    (F.max_pool1d, (2, 3, 9), {"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": True}),
    (F.max_pool2d, (2, 3, 8, 8), {"kernel_size": 2}),
    (F.max_pool2d, (2, 2, 7, 8), {"kernel_size": 3, "stride": 2, "padding": 1}),
    (F.max_pool2d, (2, 2, 7, 8), {"kernel_size": (3, 2), "stride": (1, 2), "dilation": (2, 1), "ceil_mode": True}),
    (F.max_pool3d, (1, 2, 4, 5, 6), {"kernel_size": 2, "stride": (1, 2, 2)}),
    (F.avg_pool1d, (2, 3, 9), {"kernel_size": 3, "stride": 2, "padding": 1}),
    (F.avg_pool2d, (2, 3, 8, 8), {"kernel_size": 2}),
    (F.avg_pool2d, (2, 2, 7, 8), {"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": True}),
    (F.avg_pool2d, (2, 2, 7, 8), {"kernel_size": 3, "stride": 2, "padding": 1, "count_include_pad": False}),
    (F.avg_pool2d, (2, 2, 6, 6), {"kernel_size": 3, "stride": 1, "divisor_override": 2}),
    (F.avg_pool3d, (1, 2, 4, 5, 6), {"kernel_size": 2, "stride": (1, 2, 2), "ceil_mode": True}),
    (F.adaptive_avg_pool1d, (2, 3, 10), {"output_size": 4}),
    (F.adaptive_avg_pool2d, (2, 3, 8, 8), {"output_size": 1}),
    (F.adaptive_avg_pool2d, (2, 3, 6, 8), {"output_size": (3, 2)}),
    (F.adaptive_avg_pool2d, (2, 3, 7, 5), {"output_size": (3, 2)}),
    (F.adaptive_avg_pool2d, (2, 3, 3, 4), {"output_size": (5, None)}),
]


def distinct(shape: Any, dtype: Any = np.float64) -> Any:
    """No two elements within a finite difference of each other."""
    return np.random.default_rng(5).permutation(np.prod(shape)).reshape(shape).astype(dtype) / 7


@pytest.mark.parametrize(("function", "shape", "options"), CASES)
def test_gradients(function: Any, shape: Any, options: Any) -> None:
    gradcheck(lambda x: function(x, **options), distinct(shape))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("function", "shape", "options"), CASES)
def test_like_pytorch(function: Any, shape: Any, options: Any, dtype: Any) -> None:
    torch = pytest.importorskip("torch")
    ours, theirs = Tensor(distinct(shape, dtype), True), torch.tensor(distinct(shape, dtype), requires_grad=True)
    y = function(ours, **options)
    expected = getattr(torch.nn.functional, function.__name__)(theirs, **options)
    np.testing.assert_allclose(y.numpy(), expected.detach().numpy(), rtol=1e-5)
    dy = np.random.default_rng(4).standard_normal(y.shape).astype(dtype)
    y.backward(dy)
    expected.backward(torch.from_numpy(dy))
    np.testing.assert_allclose(ours.grad.numpy(), theirs.grad.numpy(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("function", "shape", "options"), [case for case in CASES if "max" in case[0].__name__])
def test_indices_like_pytorch(function: Any, shape: Any, options: Any) -> None:
    torch = pytest.importorskip("torch")
    x = distinct(shape)
    y, indices = function(Tensor(x, True), **options, return_indices=True)
    _, expected = getattr(torch.nn.functional, function.__name__)(torch.tensor(x), **options, return_indices=True)
    assert y.requires_grad
    assert not indices.requires_grad
    assert indices.dtype == np.int64
    np.testing.assert_array_equal(indices.numpy(), expected.numpy())


def test_the_gradient_passes_when_indices_are_asked_for() -> None:
    x = Tensor(distinct((1, 2, 4, 4)), True)
    y, _ = F.max_pool2d(x, 2, return_indices=True)
    y.sum().backward()
    assert x.grad.numpy().sum() == y.array.size


def test_the_global_average_is_the_mean() -> None:
    x = distinct((3, 5, 7, 7), np.float32)
    np.testing.assert_allclose(
        F.adaptive_avg_pool2d(Tensor(x), 1).numpy(), x.mean(axis=(2, 3), keepdims=True), rtol=1e-6
    )


@pytest.mark.parametrize("dtype", [mn.float16, mn.bfloat16])
def test_halves(dtype: Any) -> None:
    x = mn.tensor(distinct((1, 2, 4, 4)), dtype=dtype, requires_grad=True)
    for y in (F.max_pool2d(x, 2), F.avg_pool2d(x, 2), F.adaptive_avg_pool2d(x, 3)):
        assert y.dtype == dtype
        x.grad = None
        y.sum().backward()
        assert x.grad.dtype == dtype
