"""A training step of a network while it is rounded, beside the float step: `python -m benchmarks.quantization`."""

from __future__ import annotations

import statistics
import time
from typing import Any

import minorm as mn
import minorm.functional as F
from minorm import models, quantization

NETWORKS = {"digits": (64, 1, 8), "lenet": (32, 1, 28), "resnet20": (16, 3, 32)}  # images a batch, channels, size
STEPS = 7


def step_time(model: Any, images: mn.Tensor, steps: int = STEPS) -> float:
    """Milliseconds of a step of SGD, the median of a few."""
    labels = mn.arange(len(images)) % 10
    optimizer = mn.optim.SGD(model.parameters(), lr=0.01)
    times = []
    for _ in range(steps + 1):
        start = time.perf_counter()
        loss = F.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        times.append(1000 * (time.perf_counter() - start))
    return statistics.median(times[1:])


def row(name: str, steps: int = STEPS) -> tuple[str, float, float]:
    """A network's name, its float step and its rounded one."""
    batch, channels, size = NETWORKS[name]
    mn.manual_seed(0)
    images = mn.randn(batch, channels, size, size)
    model = models.build(name, channels, size, 10)
    qat = quantization.prepare_qat(model, images)
    return name, step_time(model, images, steps), step_time(qat, images, steps)


def main() -> None:
    """Print a line a network."""
    print("network   float ms  qat ms  times")
    for name in NETWORKS:
        _, plain, rounded = row(name)
        print(f"{name:9} {plain:8.1f} {rounded:7.1f} {rounded / plain:6.2f}")


if __name__ == "__main__":
    main()
