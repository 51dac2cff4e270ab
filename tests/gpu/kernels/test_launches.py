"""Count the host's launches in a training step: each takes some microseconds, whatever the size."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import cudnn_double
import numpy as np
import pytest
import shim

import minorm as mn
import minorm.functional as F
from minorm import models, nn, optim


def test_a_step_of_resnet20(cuda: Any) -> None:
    mn.manual_seed(0)
    model = models.build("resnet20", 3, 8, 10).to("cuda")
    loss_function, optimizer = nn.CrossEntropyLoss(), optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    rng = np.random.default_rng(0)
    x = mn.tensor(rng.standard_normal((2, 3, 8, 8), np.float32)).to("cuda")
    y = mn.tensor(rng.integers(0, 10, 2)).to("cuda")

    def step() -> None:
        loss = loss_function(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    step()
    cuda.transfers.clear()
    before = shim.State.launches
    step()
    ours, cupys = shim.State.launches - before, cuda.transfers.launches
    # 21 convolutions, 21 normalizations with the ReLU and additions behind them, the loss, the optimizer
    assert ours <= 156
    # One product for each of the three of a convolution but the first's gradient for the images, and the linear layer's
    # three. No kernel is CuPy's own; steps with cuDNN are those of tests/gpu/test_memory_order.py.
    assert cupys == {"gemm": 3 * 21 - 1 + 3}
    assert (cuda.transfers.to_host, cuda.transfers.to_device) == (0, 0)


def test_an_absent_bias_has_no_gradient_to_compute(cuda: Any) -> None:
    x = mn.randn(2, 3, 5, 5).to("cuda")
    counts = []
    for bias in (False, True):
        layer = nn.Conv2d(3, 4, 3, bias=bias).to("cuda")
        y = layer(x)
        before = shim.State.launches
        y.backward(mn.ones_like(y))
        counts.append(shim.State.launches - before)
    assert counts[0] < counts[1]


def test_a_sum_in_place_is_one_launch(cuda: Any) -> None:
    a, b = np.random.default_rng(0).standard_normal((2, 4, 6)).astype(np.float32)
    x, y = mn.tensor(a, device="cuda"), mn.tensor(b, device="cuda")
    cuda.transfers.clear()
    before = shim.State.launches
    x.add_(y)
    assert shim.State.launches - before == 1
    assert not cuda.transfers.launches
    np.testing.assert_array_equal(x.cpu().numpy(), a + b)
    part = x[1:]
    part += x[:-1]  # its own elements, one row further up: as they were before
    np.testing.assert_array_equal(x.cpu().numpy()[1:], (a + b)[1:] + (a + b)[:-1])
    x += x
    np.testing.assert_array_equal(x.cpu().numpy()[0], 2 * (a + b)[0])
    x += 1
    np.testing.assert_array_equal(x.cpu().numpy()[0], 2 * (a + b)[0] + 1)


def test_gradients_that_are_repeated(cuda: Any) -> None:
    """The gradient of a sum or a mean is not written out before the next operation; a leaf has its own memory."""
    x = mn.tensor(np.arange(24, dtype=np.float32).reshape(2, 3, 4) - 7, device="cuda", requires_grad=True)
    for reduce, value in (
        (lambda y: y.sum(), 1.0),
        (lambda y: y.mean(), 1 / 24),
        (lambda y: y.sum((1, 2)).mean(), 1 / 2),
    ):
        x.grad = None
        loss = reduce(x.relu())
        cuda.transfers.clear()
        shim.State.ran.clear()
        loss.backward()
        assert not cuda.transfers.launches
        assert not [name for name in shim.State.ran if name.startswith(("move", "turn"))]
        np.testing.assert_allclose(x.grad.cpu().numpy(), np.where(x.cpu().numpy() > 0, value, 0), rtol=1e-6)
    x.grad = None
    x.sum().backward()
    assert x.grad.array.flags.c_contiguous
    assert x.grad.array.base is None
    np.testing.assert_array_equal(x.grad.cpu().numpy(), np.ones((2, 3, 4)))


# Blocks of networks whose operands broadcast


class SqueezeAndExcite(nn.Module):
    """y = x * gate(x), one number for each channel of each image."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.down, self.up = nn.Conv2d(8, 4, 1), nn.Conv2d(4, 8, 1)

    def forward(self, x: mn.Tensor) -> mn.Tensor:
        x = self.norm(self.stem(x))
        return x * self.up(self.down(F.adaptive_avg_pool2d(x, 1)).relu()).sigmoid()


class SpatialAttention(nn.Module):
    """y = x * mask(x), one number for each place of each image; and a gate times a mask."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.look = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(1, 1, 3, padding=1)

    def forward(self, x: mn.Tensor) -> mn.Tensor:
        x = self.stem(x)
        mask, gate = self.look(x.mean(1, keepdim=True)).sigmoid(), F.adaptive_avg_pool2d(x, 1)
        return x * mask + gate * mask


class LayerScale(nn.Module):
    """y = x + scale * f(x) - shift, each with a number for each channel."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.scale, self.shift = nn.Parameter(mn.ones(8, 1, 1)), nn.Parameter(mn.ones(8, 1, 1))

    def forward(self, x: mn.Tensor) -> mn.Tensor:
        x = self.stem(x)
        return x + self.scale * -x.relu() - self.shift


class Attention(nn.Module):
    """Scores plus a bias of each head plus a mask of each text, and a scale for each feature."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(8, 8) for _ in range(3))
        self.scale, self.bias = nn.Parameter(mn.full((8,), 0.1)), nn.Parameter(mn.randn(2, 6, 6))
        self.register_buffer("mask", mn.randn(2, 1, 1, 6))

    def forward(self, x: mn.Tensor) -> mn.Tensor:
        texts, length, features = x.shape
        q, k, v = (f(x).reshape(texts, length, 2, 4).transpose(1, 2) for f in (self.q, self.k, self.v))
        weights = F.softmax(q @ k.mT * 0.5 + self.bias + self.mask, -1)
        y = weights @ v + F.scaled_dot_product_attention(q, k, v, attn_mask=self.mask)
        return x + self.scale * y.transpose(1, 2).reshape(texts, length, features)


@pytest.fixture
def cudnn(cuda: Any, monkeypatch: Any) -> Iterator[Any]:
    from minorm.kernels.gpu import conv_cudnn

    monkeypatch.setattr(conv_cudnn, "cudnn", cudnn_double)
    conv_cudnn._call.cache_clear()
    yield cudnn_double
    conv_cudnn._call.cache_clear()


@pytest.mark.parametrize("how", ["float32", "bfloat16"])
@pytest.mark.parametrize("kind", [SqueezeAndExcite, SpatialAttention, LayerScale, Attention])
def test_what_broadcasts_is_computed_by_our_kernels(kind: Any, how: str, cudnn: Any, cuda: Any) -> None:
    """Forward and backward, with images in rows and with the channels last. The gradients are those of the CPU."""
    mn.manual_seed(0)
    model = kind()
    rng = np.random.default_rng(0)
    text = kind is Attention
    x = mn.tensor(rng.standard_normal((2, 6, 8) if text else (2, 3, 5, 6), np.float32))
    dy = mn.tensor(rng.standard_normal((2, 6, 8) if text else (2, 8, 5, 6), np.float32))
    half = how == "bfloat16"

    def gradients(device: str, order: Any) -> list[Any]:
        model.zero_grad()
        model.to(device)
        given, back = (a.to(device).to(memory_format=order) for a in (x, dy))
        if device == "cuda":
            model(given)  # which makes what is kept
            cuda.transfers.clear()
        with mn.autocast(device, dtype=mn.bfloat16) if half else contextlib.nullcontext():
            y = model(given)
        y.backward(back.to(y.dtype))
        if device == "cuda":
            assert set(cuda.transfers.launches) == ({"gemm"} if text else {"cudnn"})
        return [y.detach().cpu().numpy(), *[p.grad.cpu().numpy() for p in model.parameters()]]

    wanted = gradients("cpu", None)
    for order in (None,) if text else (mn.contiguous_format, mn.channels_last):
        for found, right in zip(gradients("cuda", order), wanted, strict=True):
            largest = float(np.abs(right.astype(np.float32)).max())
            difference = np.abs(found.astype(np.float32) - right.astype(np.float32)).max()
            assert difference <= (4e-2 if half else 2e-5) * max(largest, 1.0)
