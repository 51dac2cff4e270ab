"""Quantization-aware training on a GPU: the losses, scales and integers of the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minorm as mn
import minorm.functional as F
from minorm import models, optim, quantization

OBSERVERS = {
    "min-max": quantization.MinMaxObserver,
    "moving": quantization.MovingAverageMinMaxObserver,
    "channels": quantization.PerChannelMinMaxObserver,
    "moving channels": quantization.MovingAveragePerChannelMinMaxObserver,
    "percentile": quantization.PercentileObserver,
    "mse": quantization.MSEObserver,
}


@pytest.mark.usefixtures("cuda")
@pytest.mark.parametrize("name", OBSERVERS)
@pytest.mark.parametrize("dtype", [mn.int8, mn.uint8])
def test_observers(name: str, dtype: Any) -> None:
    found = {}
    for device in ("cpu", "cuda"):
        rng = np.random.default_rng(0)
        observer = OBSERVERS[name](dtype=dtype).to(device)
        for _ in range(3):
            observer(mn.tensor(rng.standard_normal((3, 4, 5)), mn.float32).to(device))
        found[device] = [tensor.cpu().numpy() for tensor in observer.calculate_qparams()]
    for one, other in zip(*found.values(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


@pytest.mark.usefixtures("cuda")
@pytest.mark.parametrize("name", ["lenet", "norms"])
def test_training_that_rounds(name: str) -> None:
    rng = np.random.default_rng(2)
    images = mn.tensor(rng.standard_normal((8, 3, 12, 12)), mn.float32)
    labels = mn.tensor(rng.integers(0, 10, 8))
    found: dict[str, Any] = {}
    for device in ("cpu", "cuda"):
        mn.manual_seed(4)
        net = quantization.prepare_qat(models.build(name, 3, 12, 10).to(device), images.to(device))
        optimizer = optim.SGD(net.parameters(), 0.002, momentum=0.9)
        losses = []
        for step in range(3):
            if step == 2:
                quantization.freeze_bn_stats(net)
            optimizer.zero_grad()
            loss = F.cross_entropy(net(images.to(device)), labels.to(device))
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        int8 = quantization.convert(net)
        y = int8(images.to(device))
        assert y.device.type == device
        found[device] = losses, y.cpu().numpy()
    # Sums in another order move a number over the middle between two integers now and then.
    np.testing.assert_allclose(found["cuda"][0], found["cpu"][0], rtol=2e-2)
    step = np.diff(np.unique(found["cpu"][1])).min()
    np.testing.assert_allclose(found["cuda"][1], found["cpu"][1], rtol=0.02, atol=2 * step)
    with pytest.raises(RuntimeError, match="its integers are on cuda:0; expected them on the CPU"):
        int8.to("cuda")(images)
