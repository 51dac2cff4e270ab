"""DeformConv against a formula that goes through every pixel, with gradients of all that it reads."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import minorm as mn
import minorm.onnx as mo
from minorm.testing import gradcheck

RNG = np.random.default_rng(4)


def between(image: Any, y: float, x: float) -> float:
    """The image at a place between its pixels; what lies outside is 0."""
    top, left = int(np.floor(y)), int(np.floor(x))
    total = 0.0
    for i, j in itertools.product((top, top + 1), (left, left + 1)):
        if 0 <= i < image.shape[0] and 0 <= j < image.shape[1]:
            total += image[i, j] * (1 - abs(y - i)) * (1 - abs(x - j))
    return total


def formula(x: Any, w: Any, offset: Any, b: Any, mask: Any, stride: int, pad: int, groups: int, parts: int) -> Any:
    (n, c), (m, each, kh, kw), (oh, ow) = x.shape[:2], w.shape, offset.shape[2:]
    moved, weights = offset.reshape(n, parts, kh, kw, 2, oh, ow), mask.reshape(n, parts, kh, kw, oh, ow)
    y = np.zeros((n, m, oh, ow)) + b.reshape(-1, 1, 1)
    for s, o, k, i, j in itertools.product(range(n), range(m), range(each), range(oh), range(ow)):
        channel = (o // (m // groups)) * each + k
        part = channel // (c // parts)
        for p, q in itertools.product(range(kh), range(kw)):
            dy, dx = moved[s, part, p, q, :, i, j]
            value = between(x[s, channel], i * stride - pad + p + dy, j * stride - pad + q + dx)
            y[s, o, i, j] += w[o, k, p, q] * weights[s, part, p, q, i, j] * value
    return y


@pytest.mark.parametrize(("groups", "parts", "stride"), [(1, 1, 1), (2, 1, 2), (1, 2, 1), (2, 4, 2)])
def test_it_is_the_formula(one_node: Any, groups: int, parts: int, stride: int) -> None:
    x, w = RNG.normal(size=(2, 4, 5, 4)), RNG.normal(size=(2, 4 // groups, 2, 2))
    size = ((5 + 2 - 2) // stride + 1, (4 + 2 - 2) // stride + 1)
    offset, b = RNG.normal(0, 1.3, (2, parts * 8, *size)), RNG.normal(size=2)
    mask = RNG.uniform(size=(2, parts * 4, *size))
    arrays = [x, w, offset, b, mask]
    options = {"group": groups, "offset_group": parts, "strides": (stride,) * 2, "pads": (1, 1, 1, 1)}
    for since in (19, 22):
        model = mo.load(one_node("DeformConv", arrays, since, **options))
        y = model(*map(mn.Tensor, arrays))
        np.testing.assert_allclose(y.array, formula(x, w, offset, b, mask, stride, 1, groups, parts), atol=1e-12)
    if (groups, parts, stride) == (2, 1, 2):
        gradcheck(model, *arrays)


def test_volumes(one_node: Any) -> None:
    """Without offsets it is a convolution, over three axes too."""
    x, w = RNG.normal(size=(1, 2, 4, 5, 3)), RNG.normal(size=(3, 2, 2, 1, 2))
    offset = np.zeros((1, 3 * 4, 3, 5, 2))
    model = mo.load(one_node("DeformConv", [x, w, offset], 19))
    taps = np.lib.stride_tricks.sliding_window_view(x, w.shape[2:], (2, 3, 4))
    want = np.einsum("ncdhwijk,ocijk->nodhw", taps, w)
    np.testing.assert_allclose(model(*map(mn.Tensor, (x, w, offset))).array, want, atol=1e-12)


def test_other_shapes_are_errors(one_node: Any) -> None:
    x, w, offset = RNG.normal(size=(1, 2, 4, 4)), RNG.normal(size=(3, 2, 2, 2)), RNG.normal(size=(1, 8, 3, 3))
    for arrays, options, message in (
        ([x, w, offset[:, :6]], {}, r"offset has shape \(1, 6, 3, 3\)"),
        ([x, w[:, :1], offset], {}, r"W \(3, 1, 2, 2\), group is 1"),
        ([x, w, offset], {"offset_group": 3}, "offset_group 3"),
        ([x, w, offset, None, offset], {}, "mask"),
    ):
        model = mo.load(one_node("DeformConv", arrays, 19, **options))
        with pytest.raises(ValueError, match=message):
            model(*[mn.Tensor(a) for a in arrays if a is not None])
