"""Convolution layers beside PyTorch's: same weights, same output, same gradients, same repr."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import minorm as mn
from minorm import nn


def fails(error, message):
    return pytest.raises(error, match=re.escape(message))


FORWARD = [
    ("Conv1d", (4, 6, 3), {"padding": 1, "stride": 2}, (2, 4, 9)),
    ("Conv1d", (4, 4, 3), {"groups": 4, "padding": "same"}, (2, 4, 9)),
    ("Conv2d", (4, 6, 3), {}, (2, 4, 7, 6)),
    ("Conv2d", (4, 6, (3, 2)), {"padding": (1, 0), "stride": (2, 1), "dilation": (1, 2), "bias": False}, (2, 4, 7, 6)),
    ("Conv2d", (4, 6, 3), {"groups": 2, "padding": "same"}, (2, 4, 7, 6)),
    ("Conv2d", (4, 6, 1), {"padding": "valid"}, (2, 4, 3, 3)),
    ("Conv3d", (2, 3, 2), {"padding": 1}, (2, 2, 3, 4, 3)),
]
TRANSPOSED = [
    ("ConvTranspose1d", (4, 6, 3), {"stride": 2, "padding": 1, "output_padding": 1}, (2, 4, 5)),
    ("ConvTranspose2d", (4, 6, 3), {"groups": 2, "dilation": 2}, (2, 4, 4, 3)),
    ("ConvTranspose2d", (4, 6, (3, 2)), {"stride": 2, "output_padding": (1, 0), "bias": False}, (2, 4, 4, 3)),
    ("ConvTranspose3d", (2, 3, 2), {"stride": 2}, (1, 2, 2, 3, 2)),
]


@pytest.mark.parametrize(("layer", "arguments", "options", "shape"), FORWARD + TRANSPOSED)
def test_twins(twins, rng, layer, arguments, options, shape):
    torch = pytest.importorskip("torch")
    twins(
        getattr(nn, layer)(*arguments, **options),
        getattr(torch.nn, layer)(*arguments, **options),
        rng.standard_normal(shape),
    )


@pytest.mark.parametrize("size", [(7, 8), (8, 9)])
def test_output_size_of_a_transposed_layer(size):
    torch = pytest.importorskip("torch")
    ours, theirs = nn.ConvTranspose2d(2, 3, 3, stride=2, padding=1), torch.nn.ConvTranspose2d(2, 3, 3, 2, 1)
    ours.load_state_dict(theirs.state_dict())
    x = mn.randn(1, 2, 4, 5)
    if size == (7, 8):
        with fails(
            ValueError, "ConvTranspose2d: output_size is (7, 8); for x.shape (1, 2, 4, 5) expected sizes from (7, 9)"
        ):
            ours(x, output_size=size)
        return
    y = ours(x, output_size=size)
    expected = theirs(torch.from_numpy(x.array), output_size=size)
    assert y.shape == tuple(expected.shape)
    assert mn.allclose(y, expected.detach().numpy(), atol=1e-6)


def test_mistakes():
    with fails(ValueError, "Conv2d: groups=2 must divide in_channels=3 and out_channels=4"):
        nn.Conv2d(3, 4, 3, groups=2)
    with fails(TypeError, "Conv2d: kernel_size is (3,); expected an int, or 2 ints, one for each axis"):
        nn.Conv2d(3, 4, (3,))
    with fails(TypeError, "Conv2d: stride is None; expected an int, or 2 ints"):
        nn.Conv2d(3, 4, 3, stride=None)
    with fails(ValueError, "Conv2d: stride is 0; expected at least 1"):
        nn.Conv2d(3, 4, 3, stride=0)
    with fails(ValueError, "Conv1d: padding is -1; expected at least 0"):
        nn.Conv1d(3, 4, 3, padding=-1)
    with fails(ValueError, "Conv2d: padding is 'full'; expected an int or 2 ints, 'same' or 'valid'"):
        nn.Conv2d(3, 4, 3, padding="full")
    with fails(ValueError, "ConvTranspose2d: padding is 'same'; expected an int or 2 ints"):
        nn.ConvTranspose2d(3, 4, 3, padding="same")
    with fails(ValueError, "Conv2d: padding='same' needs stride 1"):
        nn.Conv2d(3, 4, 3, padding="same", stride=2)
    with fails(
        ValueError, "Conv2d: padding_mode is 'mirror'; expected 'zeros' or 'reflect' or 'replicate' or 'circular'"
    ):
        nn.Conv2d(3, 4, 3, padding_mode="mirror")
    with fails(ValueError, "ConvTranspose2d: padding_mode is 'reflect'; expected 'zeros'"):
        nn.ConvTranspose2d(3, 4, 3, padding_mode="reflect")
    with fails(ValueError, "Conv3d: in_channels is 0; expected at least 1"):
        nn.Conv3d(0, 4, 3)


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("padding", [1, "same", "valid", (2, 0, 1)])
def test_padding_modes_are_pytorchs(mode: str, axes: int, padding: Any) -> None:
    torch = pytest.importorskip("torch")
    padding = padding[:axes] if isinstance(padding, tuple) else padding
    settings = {"padding": padding, "padding_mode": mode, "dilation": 2 if padding == "same" else 1}
    theirs = getattr(torch.nn, f"Conv{axes}d")(2, 3, (3, 2, 4)[:axes], dtype=torch.float64, **settings)
    ours = getattr(nn, f"Conv{axes}d")(2, 3, (3, 2, 4)[:axes], dtype=mn.float64, **settings)
    ours.load_state_dict({name: mn.tensor(value.numpy()) for name, value in theirs.state_dict().items()})
    x = np.random.default_rng(0).standard_normal((2, 2, 7, 6, 8)[: axes + 2])
    a, b = mn.tensor(x, requires_grad=True), torch.tensor(x, requires_grad=True)
    y, z = ours(a), theirs(b)
    (y * y).sum().backward()
    (z * z).sum().backward()
    np.testing.assert_allclose(y.numpy(), z.detach().numpy(), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(a.grad.numpy(), b.grad.numpy(), rtol=1e-11, atol=1e-11)
    assert f"padding_mode={mode}" in repr(ours)
    assert np.array_equal(ours(a[0]).numpy(), y.numpy()[0])
