"""Builds lab 12's training run: a small network with BatchNorm and dropout, optimizer, schedule and loader.

A `Run` holds everything that its next step depends on, except minorm's random generator, which dropout draws from.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from minorm import data, nn, optim
from minorm.devices import dtypes, generators
from minorm.labs import gap

EPOCHS = 4
BATCH = 64


def network(backend: Any = None) -> Any:
    """Build two convolutions with BatchNorm, then pooling, dropout and ten classes. BatchNorm uses this backend."""
    norms = [nn.BatchNorm2d(16), nn.BatchNorm2d(32)]
    for norm in norms:
        norm.backend = backend
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1, bias=False),
        norms[0],
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1, bias=False),
        norms[1],
        nn.ReLU(),
        nn.Flatten(),
        nn.Dropout(0.2),
        nn.Linear(32 * 4 * 4, 10),
    )


class Run:
    """A training run that has not begun: `model`, `optimizer`, `scheduler`, `loader`.

    seed     the seed of the weights, of dropout and of the order of the images
    backend  the backend of the BatchNorm layers; if it is None, the library's own
    dtype    the type of weights and images
    images, labels  the training data; by default the training digits
    model    a model to train in place of the network, such as a loaded model
    """

    def __init__(
        self,
        seed: int = 0,
        backend: Any = None,
        dtype: Any = dtypes.float32,
        images: Any = None,
        labels: Any = None,
        model: Any = None,
        epochs: int = EPOCHS,
        lr: float = 0.05,
    ) -> None:
        generators.manual_seed(seed)
        if images is None:
            images, labels = gap.images()[:2]
        self.model = network(backend).to(dtype=dtype) if model is None else model
        images = data.ArrayDataset(np.asarray(images, dtype), np.asarray(labels))
        self.loader = data.DataLoader(images, batch_size=BATCH, shuffle=True, drop_last=True, seed=seed)
        trained = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        self.optimizer = optim.SGD(trained, lr=lr, momentum=0.9)
        self.scheduler = optim.lr_scheduler.CosineAnnealingLR(self.optimizer, epochs * len(self.loader))
