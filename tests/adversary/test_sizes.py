"""Sizes beyond what an int, or an address, can hold: each is refused at once, by an error that names the operation.

Without a check some overflow: NumPy's `tile` wrote out of bounds for 2^62 repeats, and `arange(2**63)` has no elements.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import minorm as mn
import minorm.functional as F
from minorm import nn
from minorm.kernels import cpu, reference

X, W, I = mn.ones(2, 2, 4, 4), mn.ones(2, 2, 2, 2), mn.zeros(2, 2, 4, 4).long()

# The arguments of windows are below 2^31: a stride beyond is a mistake, whatever would come of it.
WINDOWS: dict[str, Callable[[int], Any]] = {
    "conv1d, stride": lambda n: F.conv1d(X[0], mn.ones(2, 4, 1), stride=n),
    "conv2d, stride": lambda n: F.conv2d(X, W, stride=n),
    "conv2d, one stride": lambda n: F.conv2d(X, W, stride=(1, n)),
    "conv2d, padding": lambda n: F.conv2d(X, W, padding=n),
    "conv2d, a side's padding": lambda n: F.conv2d(X, W, padding=((0, n), (0, 0))),
    "conv2d, dilation": lambda n: F.conv2d(X, W, dilation=n, padding=2**31 - 1),
    "conv3d, stride": lambda n: F.conv3d(X[None], W[None], stride=n),
    "conv_transpose2d, stride": lambda n: F.conv_transpose2d(X, W, stride=n),
    "conv_transpose2d, padding": lambda n: F.conv_transpose2d(X, W, padding=n),
    "conv_transpose2d, output_padding": lambda n: F.conv_transpose2d(X, W, output_padding=n, stride=2**31 - 1),
    "max_pool1d, stride": lambda n: F.max_pool1d(X[0], 2, n),
    "max_pool2d, kernel_size": lambda n: F.max_pool2d(X, n, 1, 2**31 - 1),
    "max_pool2d, stride": lambda n: F.max_pool2d(X, 2, n),
    "max_pool2d, stride, at the end": lambda n: F.max_pool2d(X, 1, n, ceil_mode=True),
    "max_pool2d, dilation": lambda n: F.max_pool2d(X, 2, 1, 1, n),
    "avg_pool2d, stride": lambda n: F.avg_pool2d(X, 2, n),
    "avg_pool3d, stride": lambda n: F.avg_pool3d(X, 2, n),
    "adaptive_avg_pool2d, output_size": lambda n: F.adaptive_avg_pool2d(X, n),
    "adaptive_max_pool2d, output_size": lambda n: F.adaptive_max_pool2d(X, n),
    "max_unpool2d, stride": lambda n: F.max_unpool2d(X, I, 2, n),
    "unfold, stride": lambda n: F.unfold(X, 2, stride=n),
    "unfold, padding": lambda n: F.unfold(X, 2, padding=n),
    "fold, output_size": lambda n: F.fold(X.reshape(1, 4, -1), (n, n), 2),
    "Conv2d, stride": lambda n: nn.Conv2d(2, 2, 2, stride=n),
    "Conv2d, dilation": lambda n: nn.Conv2d(2, 2, 2, dilation=n),
    "Conv2d, padding": lambda n: nn.Conv2d(2, 2, 2, padding=n),
    "ConvTranspose2d, stride": lambda n: nn.ConvTranspose2d(2, 2, 2, stride=n),
    "max_pool2d, of a layer": lambda n: nn.MaxPool2d(2, n)(X),
}

# The results have more than 2^60 elements.
RESULTS: dict[str, Callable[[int], Any]] = {
    "conv2d": lambda n: F.conv2d(X, W, padding=2**31 - 1),
    "conv_transpose2d": lambda n: F.conv_transpose2d(X, W, stride=2**31 - 1),
    "adaptive_avg_pool2d": lambda n: F.adaptive_avg_pool2d(X, 2**31 - 1),
    "max_unpool2d": lambda n: F.max_unpool2d(X, I, 2, 2**31 - 1),
    "interpolate": lambda n: F.interpolate(X, size=n),
    "interpolate, by a factor": lambda n: F.interpolate(X, scale_factor=float(n)),
    "pad": lambda n: F.pad(X, (n, 0)),
    "pad, replicate": lambda n: F.pad(X, (n, 0), mode="replicate"),
    "one_hot": lambda n: F.one_hot(I, n),
    "repeat": lambda n: X.repeat(1, 1, n, n),
    "repeat, by tile": X.tile,
    "repeat_interleave": lambda n: X.repeat_interleave(n, 0),
    "repeat_interleave, counts": lambda n: X.repeat_interleave(mn.tensor([2**62, 2**62]), 0),
    "expand": lambda n: X.expand(n, -1, -1, -1, -1),
    "reshape": lambda n: X.reshape(n, n),
    "zeros": lambda n: mn.zeros(n, n),
    "ones": lambda n: mn.ones(0, n),
    "empty": mn.empty,
    "full": lambda n: mn.full((n, 2), 1),
    "new_zeros": X.new_zeros,
    "eye": mn.eye,
    "arange": mn.arange,
    "arange, from below": lambda n: mn.arange(-n, n, 0.5),
    "linspace": lambda n: mn.linspace(0, 1, n),
    "randn": lambda n: mn.randn(n, 2),
    "rand": mn.rand,
    "randperm": mn.randperm,
    "multinomial": lambda n: mn.multinomial(X[0, 0], n, True),
    "bincount": lambda n: I.reshape(-1).bincount(minlength=n),
    "histc": X.histc,
}


@pytest.mark.parametrize("name", WINDOWS)
@pytest.mark.parametrize("n", [2**31, 2**32, 2**63, 2**64, 2**100])
def test_windows(name: str, n: int) -> None:
    operation, argument = name.split(", ")[:2]
    argument = re.sub("one |a side's |of a layer", "", argument)
    with pytest.raises(ValueError, match=rf"^{operation}: {argument}.* is .*{n}.*; expected at most 2147483647"):
        WINDOWS[name](n)


@pytest.mark.parametrize("name", RESULTS)
@pytest.mark.parametrize("n", [2**60, 2**62, 2**63 - 1, 2**63, 2**64, 2**100])
def test_results(name: str, n: int) -> None:
    with pytest.raises(ValueError, match=f"^{name.split(',', maxsplit=1)[0]}: "):
        RESULTS[name](n)


@pytest.mark.parametrize("n", [2**62, 2**63, 2**64, -(2**63) - 1, -(2**100)])
def test_places_and_steps(n: int) -> None:
    x = mn.arange(6).reshape(2, 3)
    with pytest.raises(IndexError, match=r"^index: .*; x.shape is \(2, 3\)"):
        x[n]
    np.testing.assert_array_equal(x.roll(n, 1).numpy(), np.roll(x.numpy(), n % 3, 1))
    np.testing.assert_array_equal(x.diagonal(n).numpy(), [])


@pytest.mark.parametrize("stride", [65, 100, 2**31 - 1])
def test_strides_far_beyond_the_kernel(stride: int, rng: Any) -> None:
    """Most of the gradient is zeros then; a plan that looks at each of its places would take minutes."""
    size = min(2 * stride + 3, 210)
    count = (size - 3) // stride + 1
    dy, w = (rng.standard_normal(shape).astype(np.float32) for shape in ((2, 3, count, count), (3, 2, 3, 3)))
    how: tuple[Any, ...] = ((2, 2, size, size), (stride, stride), ((0, 0), (0, 0)), (1, 1), 1)
    dx = cpu.conv.grad_input(dy, w, *how)
    expected = np.zeros((2, 2, size, size))
    for i in range(count):
        for j in range(count):
            block = np.einsum("no,ochw->nchw", dy[:, :, i, j].astype(np.float64), w)
            expected[:, :, i * stride : i * stride + 3, j * stride : j * stride + 3] += block
    np.testing.assert_allclose(dx, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(reference.conv.grad_input(dy, w, *how), expected, rtol=1e-5, atol=1e-5)
