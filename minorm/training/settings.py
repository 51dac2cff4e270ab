"""Settings: everything that decides the bits of a training run, in one plain record that a checkpoint can hold."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from minorm import data, models, nn, optim
from minorm.data import DataLoader
from minorm.data.transforms import Transform

MODEL_FOR = {"digits": "digits", "mnist": "lenet", "fashion": "lenet", "cifar10": "resnet20"}
CLASSES = 10  # all four sets have ten
MEAN_STD = {  # of the training images, by channel: inputs around 0 with deviation 1
    "digits": ([0.305], [0.376]),
    "mnist": ([0.1307], [0.3081]),
    "fashion": ([0.2860], [0.3530]),
    "cifar10": ([0.4914, 0.4822, 0.4465], [0.2470, 0.2435, 0.2616]),
}
OPTIMIZERS = ("sgd", "adam", "adamw")
SCHEDULES = ("constant", "step", "cosine", "onecycle")


@dataclass(frozen=True)
class Settings:
    """The defaults train the digits in a second."""

    data: str = "digits"
    model: str = ""  # "" means the usual one for the data
    epochs: int = 8
    batch_size: int = 64
    lr: float = 0.0  # 0 means the usual one: 0.05 for sgd, 0.003 for adam and adamw
    optimizer: str = "sgd"
    schedule: str = "onecycle"
    weight_decay: float = 5e-4
    label_smoothing: float = 0.1
    seed: int = 0
    ranks: int = 1  # that share each batch; how many processes carry them decides no bits

    def __post_init__(self) -> None:
        _expect(self.data in MODEL_FOR, "data", self.data, f"one of {', '.join(MODEL_FOR)}")
        if not self.model:
            object.__setattr__(self, "model", MODEL_FOR[self.data])
        if self.lr == 0:
            object.__setattr__(self, "lr", 0.05 if self.optimizer == "sgd" else 0.003)
        _expect(self.model in models.BY_NAME, "model", self.model, f"one of {', '.join(models.BY_NAME)}")
        _expect(self.optimizer in OPTIMIZERS, "optimizer", self.optimizer, f"one of {', '.join(OPTIMIZERS)}")
        _expect(self.schedule in SCHEDULES, "schedule", self.schedule, f"one of {', '.join(SCHEDULES)}")
        _expect(self.epochs >= 1, "epochs", self.epochs, "at least 1")
        _expect(self.batch_size >= 1, "batch_size", self.batch_size, "at least 1")
        _expect(0 < self.lr < math.inf, "lr", self.lr, "a positive number")
        _expect(0 <= self.weight_decay < math.inf, "weight_decay", self.weight_decay, "0 or a positive number")
        _expect(0 <= self.label_smoothing <= 1, "label_smoothing", self.label_smoothing, "a number from 0 to 1")
        _expect(self.seed >= 0, "seed", self.seed, "0 or more")
        _expect(self.ranks >= 1, "ranks", self.ranks, "at least 1")


def load_data(name: str, folder: Any, seed: int = 0) -> tuple[Any, Any]:
    """(train, test) datasets by name; the digits need no folder, and are split 80/20 by `seed`."""
    if name == "digits":
        return data.split_digits(seed)
    if folder is None:
        raise ValueError(f"{name} is read from a folder and nothing is downloaded; say where it is: --path DIR")
    readers: dict[str, Callable[[Any], tuple[Any, Any]]] = {
        "mnist": data.load_mnist,
        "fashion": data.load_fashion_mnist,
        "cifar10": data.load_cifar10,
    }
    return readers[name](folder)


def loaders(settings: Settings, train: Any, test: Any, rank: int = 0) -> tuple[DataLoader, DataLoader]:
    """Whole shuffled batches to train on, for CIFAR-10 cropped and mirrored at random; the test images in order. Of
    each this rank's share.
    """
    shard = (rank, settings.ranks)
    normalize = data.Normalize(*MEAN_STD[settings.data])
    transforms: list[Transform] = [normalize]
    if settings.data == "cifar10":
        transforms += [data.RandomCrop(32, padding=4), data.RandomHorizontalFlip()]
    return (
        DataLoader(
            train,
            settings.batch_size,
            shuffle=True,
            drop_last=True,
            transform=data.Compose(transforms),
            seed=settings.seed,
            shard=shard,
        ),
        DataLoader(test, 256, transform=normalize, seed=0, shard=shard),
    )


def make_optimizer(settings: Settings, model: nn.Module) -> Any:
    """The optimizer; weights decay, but not biases and the scales and biases of normalizations."""
    weights = [p for p in model.parameters() if p.ndim > 1]
    others = [p for p in model.parameters() if p.ndim <= 1]
    groups = [{"params": weights, "weight_decay": settings.weight_decay}, {"params": others, "weight_decay": 0.0}]
    if settings.optimizer == "sgd":
        return optim.SGD(groups, lr=settings.lr, momentum=0.9, nesterov=True)
    return {"adam": optim.Adam, "adamw": optim.AdamW}[settings.optimizer](groups, lr=settings.lr)


def make_scheduler(settings: Settings, optimizer: Any, steps: int) -> Any:
    """The learning rate as a function of the batches done, of `steps` in all; None for a constant one."""
    schedules = optim.lr_scheduler
    if settings.schedule == "step":  # a tenth after each third
        return schedules.StepLR(optimizer, step_size=math.ceil(steps / 3), gamma=0.1)
    if settings.schedule == "cosine":
        return schedules.CosineAnnealingLR(optimizer, T_max=steps)
    if settings.schedule == "onecycle":
        return schedules.OneCycleLR(optimizer, max_lr=settings.lr, total_steps=steps, pct_start=0.25)
    return None


def _expect(holds: bool, name: str, value: Any, expected: str) -> None:
    if not holds:
        raise ValueError(f"{name} is {value!r}; expected {expected}")
