"""Settings: everything that decides the bits of a training run, in one plain record that a checkpoint can hold."""

from __future__ import annotations

import math
from dataclasses import dataclass

from minorm import models

MODEL_FOR = {
    "digits": "digits", "mnist": "lenet", "fashion": "lenet", "cifar10": "resnet20",
    "folder": "resnet20", "numpy": "resnet20",
}  # fmt: skip
OPTIMIZERS = ("sgd", "adam", "adamw")
SCHEDULES = ("constant", "step", "cosine", "onecycle")
CLASS_WEIGHTS = ("none", "balanced")
DTYPES = ("float32", "bfloat16")
USUAL = -1  # of an augmentation: what the data set usually has


@dataclass(frozen=True)
class Settings:
    """The defaults train the digits in a second."""

    data: str = "digits"
    model: str = ""  # a name, or FILE.py:FUNCTION; "" means the usual one for the data
    epochs: int = 8
    batch_size: int = 64
    lr: float = 0.0  # 0 means the usual one: 0.05 for sgd, 0.003 for adam and adamw
    optimizer: str = "sgd"
    schedule: str = "onecycle"
    weight_decay: float = 5e-4
    label_smoothing: float = 0.1
    seed: int = 0
    ranks: int = 1  # that share each batch; how many processes carry them decides no bits
    image_size: int = 64  # of a folder's images
    hflip: float = USUAL  # the probability that an image is mirrored; usually 0, 0.5 for cifar10
    crop_padding: int = USUAL  # pixels around an image that a window moves in; usually 0, 4 for cifar10
    cutout: int = 0  # side of a square without picture
    color_jitter: float = 0.0  # how far brightness, contrast and saturation may leave 1
    mixup: float = 0.0  # alpha, 0 for none
    cutmix: float = 0.0
    class_weights: str = "none"
    clip_grad: float = 0.0  # the largest norm of all gradients, 0 for no limit
    warmup_epochs: int = 0
    accumulate: int = 1  # batches a step
    ema: float = 0.0  # decay of the weights' moving average, 0 for none
    early_stopping: int = 0  # epochs without a better score, 0 for no end
    dtype: str = "float32"  # of weights and activations

    def __post_init__(self) -> None:
        _expect(self.data in MODEL_FOR, "data", self.data, f"one of {', '.join(MODEL_FOR)}")
        augmented = self.data == "cifar10"
        for name, usual, found in (
            ("model", "", MODEL_FOR[self.data]),
            ("lr", 0, 0.05 if self.optimizer == "sgd" else 0.003),
            ("hflip", USUAL, 0.5 if augmented else 0.0),
            ("crop_padding", USUAL, 4 if augmented else 0),
        ):
            if getattr(self, name) == usual:
                object.__setattr__(self, name, found)
        known = self.model in models.BY_NAME or ".py:" in self.model
        _expect(known, "model", self.model, f"one of {', '.join(models.BY_NAME)}, or FILE.py:FUNCTION")
        for name, choices in (
            ("optimizer", OPTIMIZERS), ("schedule", SCHEDULES), ("class_weights", CLASS_WEIGHTS), ("dtype", DTYPES),
        ):  # fmt: skip
            _expect(getattr(self, name) in choices, name, getattr(self, name), f"one of {', '.join(choices)}")
        for name in ("epochs", "batch_size", "ranks", "image_size", "accumulate"):
            _expect(getattr(self, name) >= 1, name, getattr(self, name), "at least 1")
        for name in ("seed", "crop_padding", "cutout", "warmup_epochs", "early_stopping"):
            _expect(getattr(self, name) >= 0, name, getattr(self, name), "0 or more")
        for name in ("weight_decay", "color_jitter", "mixup", "cutmix", "clip_grad"):
            _expect(0 <= getattr(self, name) < math.inf, name, getattr(self, name), "0 or a positive number")
        for name in ("label_smoothing", "hflip"):
            _expect(0 <= getattr(self, name) <= 1, name, getattr(self, name), "a number from 0 to 1")
        _expect(0 < self.lr < math.inf, "lr", self.lr, "a positive number")
        _expect(0 <= self.ema < 1, "ema", self.ema, "0, or a decay below 1, such as 0.999")
        _expect(not (self.mixup and self.cutmix), "cutmix", self.cutmix, "0, as mixup is on: one of the two")
        _expect(self.warmup_epochs < self.epochs, "warmup_epochs", self.warmup_epochs, f"fewer than {self.epochs}")
        _expect(self.ranks == 1 or self.accumulate == 1, "accumulate", self.accumulate, "1 where ranks share a batch")


def _expect(holds: bool, name: str, value: object, expected: str) -> None:
    if not holds:
        raise ValueError(f"{name} is {value!r}; expected {expected}")
