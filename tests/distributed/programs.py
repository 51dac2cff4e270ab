"""Programs that the tests run on every rank: by simulation, on threads for processes, and under mpiexec."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

import minorm as mn
import minorm.functional as F
from minorm import data, models, nn, optim
from minorm.distributed import DistributedDataParallel


def images(count: int, seed: int = 0) -> data.ArrayDataset:
    """Images in which a bright square says the class: no package and no file needed."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 10, count)
    pixels = rng.standard_normal((count, 1, 8, 8)).astype(np.float32)
    for image, label in zip(pixels, labels, strict=True):
        image[0, label // 4 * 2 : label // 4 * 2 + 2, label % 4 * 2 : label % 4 * 2 + 2] += 3
    return data.ArrayDataset(pixels, labels)


def network(group: Any, dtype: Any = np.float32, dropout: float = 0.0) -> Any:
    """The digits' CNN with SyncBatchNorm, as DistributedDataParallel."""
    model = models.digits_cnn()
    if dropout:
        model.insert(len(model) - 1, nn.Dropout(dropout))
    model = nn.SyncBatchNorm.convert_sync_batchnorm(model.to(dtype=dtype), group)
    return DistributedDataParallel(model, group)


def train(
    group: Any, steps: int = 23, batch_size: int = 64, count: int = 256, dtype: Any = np.float32, dropout: float = 0.0
) -> dict[str, Any]:
    """Train, as the documentation shows it: the losses of the whole batch and the state afterwards."""
    mn.manual_seed(1)
    model = network(group, dtype, dropout)
    optimizer = optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    loader = data.DataLoader(images(count), batch_size, shuffle=True, seed=0, shard=(group.rank, group.size))
    losses: list[float] = []
    while len(losses) < steps:
        for inputs, labels in loader:
            loss = F.cross_entropy(model(inputs.to(dtype=dtype)), labels)
            optimizer.zero_grad()
            loss = model.backward(loss, len(labels))
            optimizer.step()
            losses.append(loss.item())
            if len(losses) == steps:
                break
    model.average_buffers()
    return {"losses": losses, "state": {name: value.array.copy() for name, value in model.state_dict().items()}}


def digest(found: dict[str, Any]) -> str:
    """Return the SHA-256 of everything that `train` found, bit for bit."""
    whole = hashlib.sha256(np.array(found["losses"]).tobytes())
    for name, value in found["state"].items():
        whole.update(name.encode() + value.tobytes())
    return whole.hexdigest()


def distance(a: dict[str, Any], b: dict[str, Any]) -> float:
    """Return the relative L2 distance of two states."""
    pairs = [(a[name].astype(np.float64), b[name].astype(np.float64)) for name in a]
    far = sum(float(((x - y) ** 2).sum()) for x, y in pairs)
    return (far / sum(float((y**2).sum()) for _, y in pairs)) ** 0.5
