"""Healthy models, and every disease planted into one: what the doctor must find, and where."""

from __future__ import annotations

import copy
import functools
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import minorm as mn
from minorm import nn, optim
from minorm.data import ArrayDataset, DataLoader

CLASSES = 4


def images(count: int = 640, size: int = 8, channels: int = 3, seed: int = 0) -> ArrayDataset:
    """Blobs and stripes in noise, of four classes: learned in a few steps, with no other package's help."""
    draw = np.random.default_rng(seed)
    labels = draw.integers(CLASSES, size=count)
    rows, columns = np.mgrid[:size, :size] / size
    patterns = np.stack([np.sin(9 * rows), np.sin(9 * columns), rows + columns, (rows - 0.5) ** 2 + columns**2])
    x = patterns[labels][:, np.newaxis] * draw.uniform(0.6, 1.4, (count, channels, 1, 1))
    x = x + 0.5 * draw.standard_normal((count, channels, size, size))
    return ArrayDataset(((x - x.mean()) / x.std()).astype(np.float32), labels)


def loader(batch_size: int = 32, data: Any = None, seed: int = 0) -> DataLoader:
    """Shuffled whole batches."""
    return DataLoader(images() if data is None else data, batch_size, shuffle=True, drop_last=True, seed=seed)


def trained(model: nn.Module, steps: int = 120, lr: float = 0.05, batches: Any = None) -> nn.Module:
    """The model after so many steps, in evaluation mode."""
    batches = loader() if batches is None else batches
    optimizer = optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    schedule = optim.lr_scheduler.OneCycleLR(optimizer, max_lr=lr, total_steps=steps, pct_start=0.25)
    loss_function, done = nn.CrossEntropyLoss(), 0
    model.train()
    while done < steps:
        for x, y in batches:
            if done == steps:
                break
            loss = loss_function(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            done += 1
    return model.eval()


def network(width: int = 16, activation: Callable[[], nn.Module] = nn.ReLU, **options: Any) -> nn.Sequential:
    """Layers 1, 4, 7 and 11 are BatchNorm, the last of them behind a Linear."""
    mn.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, width, 3, padding=1, bias=False), nn.BatchNorm2d(width, **options), activation(),
        nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width, **options), activation(),
        nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width, **options), activation(),
        nn.Flatten(), nn.Linear(64 * width, 24, bias=False), nn.BatchNorm1d(24, **options), activation(),
        nn.Linear(24, CLASSES),
    )  # fmt: skip


@functools.cache
def _healthy() -> nn.Module:
    return trained(network())


def healthy() -> Any:
    """A trained network, a new one for each who asks."""
    return copy.deepcopy(_healthy())


@dataclass
class Sick:
    """A model with a disease: the finding's name and layer, and the batches to diagnose with.

    severity    what it must be; "harm": a warning or an error
    """

    name: str
    layer: str | None
    model: nn.Module
    severity: str
    batches: Any = None
    batch_size: int | None = 32


def stale_variance() -> Sick:
    model = healthy()
    model[4].running_var *= 16.0
    return Sick("stale_statistics", "4", model, "harm")


def stale_mean() -> Sick:
    model = healthy()
    model[7].running_mean += 2 * model[7].running_var.sqrt()
    return Sick("stale_statistics", "7", model, "harm")


def untouched() -> Sick:
    """Reset the statistics of a BatchNorm, as if they were never saved."""
    model = healthy()
    model[11].reset_running_stats()  # in front of the last layer: there it harms whatever the weights are
    return Sick("untouched_statistics", "11", model, "harm")


def convention() -> Sick:
    model = network()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model[4].momentum = 0.1
    return Sick("momentum_convention", "4", trained(model), "note")


def gap() -> Sick:
    """Diagnose with images whose scale differs from that of the statistics' images."""
    model, data = healthy(), images()
    moved = ArrayDataset(data.arrays[0] * 4 + 2, data.arrays[1])
    return Sick("train_eval_gap", None, model, "harm", loader(data=moved))


def small_batch() -> Sick:
    batches = loader(2)
    return Sick("small_batch", "11", trained(network(), batches=batches, steps=300, lr=0.03), "warning", batches, 2)


def batch_of_one() -> Sick:
    return Sick("batch_of_one", "4", healthy(), "warning", loader(1), 1)


def large_mean() -> Sick:
    model = network()
    model[3] = nn.Conv2d(16, 16, 3, padding=1)
    model[3].bias.array[...] = 3e4
    return Sick("large_mean", "4", trained(model, lr=0.01), "error")


def huge_mean() -> Sick:
    data = images()
    batches = loader(data=ArrayDataset(1e4 + data.arrays[0], data.arrays[1]))
    return Sick(
        "large_mean", "0", trained(nn.Sequential(nn.BatchNorm2d(3), *network()), batches=batches), "error", batches
    )


def tiny_variance() -> Sick:
    model = network()
    model[3].weight.array[...] *= 1e-4
    model[3].weight.requires_grad = False
    return Sick("eps_swallows_variance", "4", trained(model, steps=60), "warning")


def vanished_scale() -> Sick:
    model = healthy()
    model[4].weight.array[:10] *= 1e-6
    return Sick("vanished_scale", "4", model, "warning")


def dead_channels() -> Sick:
    model = healthy()
    model[7].bias.array[...] = -100
    return Sick("dead_channel", "7", model, "warning")


def saturated() -> Sick:
    model = trained(network(activation=nn.Tanh))
    model[4].bias.array[...] = 20
    return Sick("saturated_channel", "4", model, "warning")


def undone() -> Sick:
    mn.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.Identity(), nn.Dropout(0.1),
        nn.BatchNorm2d(16), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, CLASSES),
    )  # fmt: skip
    return Sick("undone_norm", "4", trained(model), "warning")


def folded() -> Sick:
    """Fold BatchNorm 4 into convolution 3."""
    model = healthy()
    norm, conv = model[4], nn.Conv2d(16, 16, 3, padding=1)
    scale = norm.weight / (norm.running_var + norm.eps).sqrt()
    conv.weight.array[...] = (model[3].weight * scale.reshape(-1, 1, 1, 1)).array
    conv.bias.array[...] = (norm.bias - norm.running_mean * scale).array
    model[3], model[4] = conv, nn.Identity()
    return Sick("folded_norm", "3", model.eval(), "note")


def skipped() -> Sick:
    """A layer that has met 20 batches with an infinity beside the 120 it trained on."""
    model = healthy()
    model[4].train()
    for _ in range(20):
        model[4](mn.full((2, 16, 2, 2), float("inf")))
    return Sick("skipped_batches", "4", model.eval(), "warning")


def frozen_by_its_parameters() -> Sick:
    """In training mode, with scale and bias that require no grad."""
    model = healthy()
    model[4].requires_grad_(False)
    return Sick("frozen_norm_drifts", "4", model.train(), "warning")


def divided_by_one_less() -> Sick:
    """Take statistics as PyTorch does, behind a Linear in batches of 4."""
    model, few = healthy(), loader(4)
    model[11] = nn.BatchNorm1d(24, momentum=None, unbiased_running_var=True)
    model[11].load_state_dict(healthy()[11].state_dict())
    model[11].reset_running_stats()
    model[11].train()
    for x, _ in few:
        model(x)
    return Sick("variance_convention", "11", model.eval(), "note", few, 4)


def half_eps() -> Sick:
    model = healthy()
    model[7].eps = 1e-8
    return Sick("eps_underflows", "7", model, "note")


def folded_and_left() -> Sick:
    """Fold layers 1 and 4 into the convolutions before them, and leave a BatchNorm that changes nothing."""
    model = healthy()
    for place in (0, 3):
        norm, conv = model[place + 1], nn.Conv2d(3 if place == 0 else 16, 16, 3, padding=1)
        scale = norm.weight / (norm.running_var + norm.eps).sqrt()
        conv.weight.array[...] = (model[place].weight * scale.reshape(-1, 1, 1, 1)).array
        conv.bias.array[...] = (norm.bias - norm.running_mean * scale).array
        model[place], model[place + 1] = conv, nn.BatchNorm2d(16)
    return Sick("folded_norm", "4", model.eval(), "note")


PLANTED: dict[str, Callable[[], Sick]] = {
    f.__name__: f
    for f in (
        stale_variance, stale_mean, untouched, convention, gap, small_batch, batch_of_one, large_mean, huge_mean,
        tiny_variance, vanished_scale, dead_channels, saturated, undone, folded,
        skipped, frozen_by_its_parameters, divided_by_one_less, half_eps, folded_and_left,
    )
}  # fmt: skip
IN_NO_FILE = ("small_batch", "batch_of_one", "skipped", "frozen_by_its_parameters", "divided_by_one_less")
IN_FILES = [name for name in PLANTED if name not in IN_NO_FILE]
