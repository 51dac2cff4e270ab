"""The pooling functions accept documented arguments, and say what is wrong with the others."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import minorm as mn
import minorm.functional as F

X = mn.tensor(np.arange(36, dtype=np.float32).reshape(1, 1, 6, 6))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: F.max_pool2d(X.reshape(6, 6), 2), ValueError, r"max_pool2d: x has 2 dimensions; expected 4"),
        (lambda: F.max_pool2d(X.numpy(), 2), TypeError, "max_pool2d: x is ndarray; expected a Tensor"),
        (lambda: F.max_pool2d(X, 2.0), TypeError, "kernel_size is 2.0; expected an int or a tuple of 2 ints"),
        (lambda: F.max_pool2d(X, 0), ValueError, "kernel_size is 0; expected kernel_size >= 1"),
        (lambda: F.max_pool2d(X, 2, stride=(1, 2, 3)), TypeError, "stride is"),
        (
            lambda: F.max_pool2d(X, 3, padding=2),
            ValueError,
            "padding is 2, kernel_size is 3; expected padding <= kernel_size // 2",
        ),
        (lambda: F.avg_pool2d(X, 7), ValueError, r"kernel is larger than the padded input: the kernel spans \(7, 7\)"),
        (
            lambda: F.avg_pool2d(X, 2, divisor_override=0),
            ValueError,
            "divisor_override is 0; expected an int that is not 0",
        ),
        (lambda: F.avg_pool2d(mn.tensor([[[[1, 2]]]]), 1), TypeError, "avg_pool2d: x is int64; expected a float type"),
        (lambda: F.adaptive_avg_pool2d(X, 0), ValueError, "output_size is 0; expected output_size >= 1"),
        (lambda: F.adaptive_avg_pool2d(X, (1, 2, 3)), TypeError, "expected an int or a tuple of 2 ints"),
        (lambda: F.adaptive_avg_pool1d(X, 1), ValueError, "adaptive_avg_pool1d: x has 4 dimensions; expected 3"),
    ],
)
def test_errors(call: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        call()


def test_padding_on_one_side() -> None:
    y = F.max_pool2d(X, 2, padding=((0, 1), (1, 0)))
    np.testing.assert_array_equal(y.numpy()[0, 0], [[6, 8, 10], [18, 20, 22], [30, 32, 34]])
    y = F.avg_pool2d(X, 2, padding=((0, 1), (1, 0)), count_include_pad=False)
    np.testing.assert_array_equal(y.numpy()[0, 0, 0], [3, 4.5, 6.5])


def test_dilated_averages() -> None:
    """ONNX's AveragePool has them, PyTorch's does not."""
    y = F.avg_pool2d(X, 2, stride=1, dilation=3)
    np.testing.assert_array_equal(y.numpy()[0, 0, 0], [(0 + 3 + 18 + 21) / 4 + i for i in range(3)])


def test_maxima_of_integers() -> None:
    y, indices = F.max_pool2d(mn.tensor(np.arange(16).reshape(1, 1, 4, 4)), 2, return_indices=True)
    assert y.numpy().tolist() == indices.numpy().tolist() == [[[[5, 7], [13, 15]]]]


def test_no_images() -> None:
    x = mn.tensor(np.zeros((0, 3, 4, 4), np.float32))
    assert F.max_pool2d(x, 2).shape == F.avg_pool2d(x, 2).shape == (0, 3, 2, 2)
    assert F.adaptive_avg_pool2d(x, 3).shape == (0, 3, 3, 3)


GRIDS: dict[int, list[list[Any]]] = {  # kernel, stride, padding, dilation, size
    1: [[1, 2, 3, 5], [None, 1, 2, 3, 5], [0, 1, 2, 3], [1, 2, 3], [(1,), (2,), (3,), (4,), (6,), (7,), (8,)]],
    2: [[1, 3, (3, 2), (2, 5)], [None, 1, 2, (1, 3)], [0, 1, (1, 0)], [1, 2], [(1, 1), (3, 3), (4, 5), (1, 9)]],
    3: [[2, 3, (1, 3, 2)], [None, 1, 2, 3], [0, 1, 2, (0, 1, 1)], [1, 2], [(1, 1, 1), (2, 2, 2), (3, 4, 5)]],
}


def settings(rank: int) -> Iterator[tuple[str, dict[str, Any], tuple[int, ...]]]:
    for k, s, p, d, size in itertools.product(*GRIDS[rank]):
        for ceil in (False, True):
            given = {"kernel_size": k, "stride": s, "padding": p, "ceil_mode": ceil}
            yield f"max_pool{rank}d", {**given, "dilation": d}, size
            if d == 1:
                yield f"avg_pool{rank}d", {**given, "count_include_pad": True}, size
                yield f"avg_pool{rank}d", {**given, "count_include_pad": False}, size


@pytest.mark.parametrize("rank", [2, 1, 3])
def test_every_setting_that_pytorch_takes_and_no_other(rank: int) -> None:
    """With PyTorch's values and gradients; avg_pool3d alone takes small inputs that PyTorch refuses (differences.md).

    A window that meets no element has the maximum -inf and passes no gradient on; PyTorch's writes outside of x.
    """
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(3)
    taken = refused = larger = 0
    for name, options, size in settings(rank):
        array = rng.standard_normal((2, 2, *size))
        ours, theirs = mn.Tensor(array, True), torch.tensor(array, requires_grad=True)
        try:
            expected = getattr(torch.nn.functional, name)(theirs, **options)
        except RuntimeError as error:
            if "smaller than kernel size" not in str(error):
                with pytest.raises(ValueError, match=f"{name}: .*expected"):
                    getattr(F, name)(ours, **options)
                refused += 1
            continue
        y = getattr(F, name)(ours, **options)
        where = (name, options, size)
        assert y.shape == tuple(expected.shape), where
        np.testing.assert_allclose(y.array, expected.detach().numpy(), rtol=1e-12, atol=1e-12, err_msg=str(where))
        dy = rng.standard_normal(y.shape)
        y.backward(dy)
        assert np.isfinite(ours.grad.array).all(), where
        if np.isfinite(y.array).all():
            expected.backward(torch.from_numpy(dy))
            np.testing.assert_allclose(ours.grad.array, theirs.grad.numpy(), 1e-11, 1e-11, err_msg=str(where))
        taken += 1
        k = options["kernel_size"]
        larger += any(n < m for n, m in zip(size, k if isinstance(k, tuple) else (k,) * rank, strict=True))
    assert min(taken - 400, refused - 300, larger - 50) > 0, (taken, refused, larger)  # the grid holds what it is for


def test_the_average_of_a_plane_far_smaller_than_the_window() -> None:
    for dtype in (mn.float64, mn.float32, mn.float16):
        x = mn.randn(2, 3, 7, 7).to(dtype).requires_grad_(True)
        wide = x.array.astype(np.float64)
        np.testing.assert_allclose(F.max_pool2d(x, 2560, ceil_mode=True).array, wide.max((2, 3), keepdims=True))
        y = F.avg_pool2d(x, 2560, ceil_mode=True)
        np.testing.assert_allclose(y.array, wide.mean((2, 3), keepdims=True), rtol=1e-3, atol=1e-4)
        y.sum().backward()
        np.testing.assert_allclose(x.grad.array, np.full(x.shape, 1 / 49), rtol=1e-3)


@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize(("name", "settings"), [("max_pool", {"kernel_size": 2}), ("avg_pool", {"kernel_size": 2}),
                                                ("max_pool", {"kernel_size": 2, "return_indices": True}),
                                                ("adaptive_avg_pool", {"output_size": 3})])  # fmt: skip
def test_one_sample_is_a_batch_of_one(name: str, settings: Any, axes: int) -> None:
    torch = pytest.importorskip("torch")
    x = np.random.default_rng(0).standard_normal((3, 5, 6, 4)[: axes + 1])
    found = getattr(F, f"{name}{axes}d")(mn.tensor(x), **settings)
    expected = getattr(torch.nn.functional, f"{name}{axes}d")(torch.tensor(x), **settings)
    both = zip(found, expected, strict=True) if isinstance(found, tuple) else [(found, expected)]
    for ours, theirs in both:
        assert ours.shape == tuple(theirs.shape)
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-13)
