"""What the pooling functions accept, and what they say about the rest."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minorm as mn
import minorm.functional as F

X = mn.tensor(np.arange(36, dtype=np.float32).reshape(1, 1, 6, 6))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: F.max_pool2d(X.reshape(1, 6, 6), 2), ValueError, r"max_pool2d: x has 3 dimensions; expected 4"),
        (lambda: F.max_pool2d(X.numpy(), 2), TypeError, "max_pool2d: x is ndarray; expected a Tensor"),
        (lambda: F.max_pool2d(X, 2.0), TypeError, "kernel_size is 2.0; expected an int or a tuple of 2 ints"),
        (lambda: F.max_pool2d(X, 0), ValueError, "kernel_size is 0; expected kernel_size >= 1"),
        (lambda: F.max_pool2d(X, 2, stride=(1, 2, 3)), TypeError, "stride is"),
        (lambda: F.max_pool2d(X, 3, padding=2), ValueError, "padding is 2, kernel_size is 3; expected padding <= half"),
        (lambda: F.avg_pool2d(X, 7), ValueError, r"kernel is larger than the padded input: it spans \(7, 7\)"),
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
