"""The demo's network on 8 x 8 digits, with a backend for its BatchNorm layers: what students' kernels train.

In float64 two right implementations stay together in ten digits or so over an epoch. In float32 they do not: training
is unstable to rounding, and after twenty steps a difference in the seventh digit has become one in the second.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import minorm.functional as F
from minorm import config, data, dtypes, models, nn, optim, random


def model_with(backend: Any = None, seed: int = 0) -> Any:
    """The network in float64, its BatchNorm layers with this backend; None is the library's own."""
    random.manual_seed(seed)
    model = models.digits_cnn().to(dtype=dtypes.float64)
    for layer in model.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.backend = backend
    return model


def losses(backend: Any = None, steps: int = 23, seed: int = 0) -> Any:
    """The loss of each training step, an array; 23 steps are an epoch.

    On one thread: the images are so small that two are no faster, and on a busy machine they wait for each other.
    """
    threads = config.get_num_threads()
    config.set_num_threads(1)
    try:
        return np.array(_losses(backend, steps, seed))
    finally:
        config.set_num_threads(threads)


def _losses(backend: Any, steps: int, seed: int) -> list[float]:
    model = model_with(backend, seed)
    train, _ = data.split_digits(seed=0)
    loader = data.DataLoader(train, batch_size=64, shuffle=True, seed=seed)
    optimizer = optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    found: list[float] = []
    while len(found) < steps:
        for images, labels in loader:
            loss = F.cross_entropy(model(images.to(dtype=dtypes.float64)), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            found.append(loss.item())
            if len(found) == steps:
                break
    return found
