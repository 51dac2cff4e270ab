"""Builds lab 5's network, trains it, and breaks it in five ways. Each mean in it is taken over the batch alone.

The network has BatchNorm layers between its linear layers. As an image has no positions there, each mean is over
exactly as many elements as the batch has images. In the demo's convolutions, each image has hundreds of positions, so
the effect of tiny batches does not show.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

import minorm.functional as F
from minorm import config, data, nn, optim
from minorm.devices import generators
from minorm.tensor.creation import tensor

WIDTH = 64
BROKEN = ("lost", "inverted", "poisoned", "camera", "frozen")


@functools.cache
def images() -> tuple[Any, Any, Any, Any]:
    """Return the digits as read-only arrays: training images and labels, test images and labels."""
    x, labels, x_test, labels_test = (
        np.stack(values) for part in data.split_digits(seed=0) for values in _columns(part)
    )
    for array in (x, labels, x_test, labels_test):
        array.setflags(write=False)
    return x, labels, x_test, labels_test


def _columns(part: Any) -> tuple[list[Any], list[Any]]:
    """Return the images and the labels of a dataset."""
    samples = [part[place] for place in range(len(part))]
    return [image for image, _ in samples], [label for _, label in samples]


def camera(pictures: Any) -> Any:
    """Return the same digits as another camera sees them: grey and pale."""
    return (0.25 * pictures + 0.6).astype(np.float32)


def network(seed: int = 0, momentum: float = 0.9) -> Any:
    """Build a network from 64 pixels over three blocks of linear layer, BatchNorm and ReLU to ten classes."""
    generators.manual_seed(seed)
    layers: list[Any] = [nn.Flatten()]
    for _ in range(3):
        norm = nn.BatchNorm1d(WIDTH)
        norm.momentum = momentum
        layers += [nn.Linear(WIDTH, WIDTH, bias=False), norm, nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(WIDTH, 10))


def norms(model: Any) -> list[Any]:
    """Return the BatchNorm layers of a model."""
    return [layer for layer in model.modules() if isinstance(layer, nn.BatchNorm1d)]


def train(
    model: Any, pictures: Any, labels: Any, batch_size: int = 64, epochs: int = 4, lr: float = 0.1, seed: int = 0
) -> Any:
    """Train with SGD with momentum; the learning rate is lower for batches below 32. Return the model.

    Training uses one thread: two threads are no faster here, and on a busy machine they wait for each other.
    """
    threads = config.get_num_threads()
    config.set_num_threads(1)
    try:
        optimizer = optim.SGD(
            [p for p in model.parameters() if p.requires_grad], lr=lr * min(1, batch_size / 32), momentum=0.9
        )
        order = np.random.default_rng(seed)
        for _ in range(epochs):
            model.train()
            places = order.permutation(len(pictures))
            for start in range(0, len(pictures) - batch_size + 1, batch_size):
                batch = places[start : start + batch_size]
                loss = F.cross_entropy(model(tensor(pictures[batch])), tensor(labels[batch]))
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
    finally:
        config.set_num_threads(threads)
    return model


def broken(kind: str, seed: int = 0) -> tuple[Any, Any, Any, Any]:
    """Return (model, training images, test images, test labels); the trained model is broken and in evaluation mode.

    `kind` says what is wrong:

    lost      the running statistics were not saved, and have the values 0 and 1
    inverted  PyTorch's momentum=0.1 was taken as the share of the old value, and the model saw batches of four
    poisoned  one batch had an image of NaN
    camera    the images come from a new camera, without labels
    frozen    the statistics were lost and the layers frozen, so that training mode does not move them
    """
    x, labels, x_test, labels_test = images()
    model = train(network(seed), x, labels, seed=seed)
    for layer in norms(model):
        if kind in ("lost", "frozen"):
            layer.reset_running_stats()
        if kind == "frozen":
            layer.freeze()
        elif kind == "inverted":
            layer.momentum = 0.1
        elif kind == "poisoned":
            layer.running_mean.array[::3] = np.nan
            layer.running_var.array[::3] = np.nan
    if kind == "inverted":
        train(model, x, labels, batch_size=4, epochs=1, lr=0.0, seed=seed)
    elif kind == "camera":
        x, x_test = camera(x), camera(x_test)
    return model.eval(), x, x_test, labels_test


def mirrored(pictures: Any) -> Any:
    """Return the digits mirrored."""
    return np.ascontiguousarray(pictures[..., ::-1])
