"""Trains the demo's network on 8 x 8 digits with a student's backend in its BatchNorm layers.

In float64 the losses of two right implementations agree to about ten digits over an epoch. In float32 they do not:
training amplifies rounding errors, and after twenty steps a difference in the seventh digit has become a difference in
the second digit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import minorm.functional as F
from minorm import config, data, models, nn, optim
from minorm.devices import dtypes, generators
from minorm.labs.ranks import Rank, simulate
from minorm.tensor.creation import tensor


def model_with(backend: Any = None, seed: int = 0) -> Any:
    """Build the network in float64. Its BatchNorm layers use `backend` or, if it is None, the library's own backend."""
    generators.manual_seed(seed)
    model = models.digits_cnn().to(dtype=dtypes.float64)
    for layer in model.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.backend = backend
    return model


def losses(backend: Any = None, steps: int = 23, seed: int = 0) -> Any:
    """Return the loss of each training step as an array; 23 steps are an epoch.

    Training uses one thread. The images are so small that two threads are no faster, and on a busy machine the threads
    wait for each other.
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


def losses_over_ranks(
    cuts: Sequence[int],
    backend: Callable[[Rank], Any] | None,
    share: Callable[[Rank, int], float],
    sum_gradients: Callable[[Rank, list[Any]], list[Any]],
    steps: int = 23,
    seed: int = 0,
) -> Any:
    """Return the losses when each batch of 64 is cut among ranks, which train equal copies of the model.

    cuts           where each batch is cut: (10, 50) gives three ranks 10, 40 and 14 images, and fewer in the last batch
    backend        makes the backend of a rank's BatchNorm layers; if it is None, each rank normalizes with its own
                   statistics
    share          returns a rank's share in the loss of the whole batch, from the rank's number of images
    sum_gradients  returns the gradients of all parameters, summed over the ranks
    """
    copies = [model_with(None, seed) for _ in range(len(cuts) + 1)]
    train, _ = data.split_digits(seed=0)
    loader = data.DataLoader(train, batch_size=64, shuffle=True, seed=seed)
    batches: list[tuple[Any, Any]] = []
    while len(batches) < steps:
        batches.extend((images.array, labels.array) for images, labels in loader)

    def program(rank: Rank) -> list[float]:
        model = copies[rank.number]
        for layer in model.modules():
            if isinstance(layer, nn.BatchNorm2d):
                layer.backend = backend(rank) if backend else None
        optimizer = optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        found = []
        for images, labels in batches[:steps]:
            places = [cut * len(images) // 64 for cut in cuts]
            mine = [tensor(np.split(part, places)[rank.number]) for part in (images, labels)]
            loss = F.cross_entropy(model(mine[0].to(dtype=dtypes.float64)), mine[1]) * share(rank, len(mine[0]))
            optimizer.zero_grad()
            loss.backward()
            gradients = [parameter.grad for parameter in model.parameters()]
            for gradient, total in zip(gradients, sum_gradients(rank, [g.array for g in gradients]), strict=True):
                gradient.array[...] = total
            optimizer.step()
            found.append(float(rank.all_reduce(loss.item())))
        return found

    threads = config.get_num_threads()
    config.set_num_threads(1)
    try:
        return np.array(simulate(len(copies), program)[0])
    finally:
        config.set_num_threads(threads)
