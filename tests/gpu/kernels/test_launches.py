"""Count the host's launches in a training step: each takes some microseconds, whatever the size."""

from __future__ import annotations

from typing import Any

import numpy as np
import shim

import minorm as mn
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
