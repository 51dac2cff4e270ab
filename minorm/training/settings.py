"""Settings: all choices that determine the results of a training run, as one record for the checkpoint."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, fields
from numbers import Integral, Real
from typing import Any

from minorm import models
from minorm.support.documented import documented
from minorm.training.model.own_code import is_file, is_graph

MODEL_FOR = {
    "digits": "digits", "mnist": "lenet", "fashion": "lenet", "cifar10": "resnet20",
    "folder": "resnet20", "numpy": "resnet20",
}  # fmt: skip
USUAL_DATA = "digits"
OPTIMIZERS = ("sgd", "adam", "adamw")
SCHEDULES = ("constant", "step", "cosine", "onecycle")
CLASS_WEIGHTS = ("none", "balanced")
DTYPES = ("float32", "bfloat16")
QAT = ("none", "uint8", "int8")
LOSSES = ("cross_entropy", "focal")
LARGEST = 8192  # side of an image
KINDS: dict[Any, tuple[Any, str]] = {
    "int": (Integral, "a whole number"), "float": (Real, "a number"), "str": (str, "a text"),
    "bool": (bool, "True or False"), "int | str": ((Integral, str), "a whole number, or 'all'"),
}  # fmt: skip
STRONGEST = 30  # change of RandAugment
USUAL = -1  # for an augmentation: the usual value for the data set
ALL = "all"  # for `freeze`: all epochs


@documented(
    {},
    data='"digits", "mnist", "fashion", "cifar10", "folder" or "numpy"',
    model="a name of minorm.models, FILE.py:FUNCTION, or FILE.onnx, which stands for the graph of the file with its "
    'weights and a head for the classes; "" is the usual model for the data',
    epochs="the number of passes over the training images",
    batch_size="the number of images per batch",
    lr="the largest learning rate; 0 stands for the usual rate: 0.05 for sgd, 0.003 for adam and adamw",
    optimizer='"sgd", "adam" or "adamw"',
    schedule='how the learning rate changes: "constant", "step", "cosine" or "onecycle"',
    weight_decay="the multiple of the weights that is added to their gradients",
    label_smoothing="the smoothing s: a label t becomes (1 - s) * t + s / C",
    seed="the seed of the weights, the order and the transforms: the same seed gives the same bits",
    ranks="the number of ranks that share each batch; the number of processes changes no bits",
    image_size="the height and width of a folder's images",
    hflip="the probability that an image is mirrored; -1 stands for 0.5 for cifar10, and for 0 otherwise",
    crop_padding="the number of pixels by which an image is padded before a random window is cut; -1 stands for 4 for "
    "cifar10, and for 0 otherwise",
    cutout="the side of the square that is cut out, in pixels",
    color_jitter="how far the factors of brightness, contrast and saturation may differ from 1",
    mixup="alpha of MixUp, 0 for none",
    cutmix="alpha of CutMix, 0 for none; not together with mixup",
    class_weights='"none", or "balanced", which weighs classes in inverse proportion to their counts',
    clip_grad="the largest norm of all gradients, 0 for no limit",
    warmup_epochs="the number of epochs in which the rate rises",
    accumulate="the number of batches per step",
    ema="the decay of the weights' moving average, 0 for none",
    early_stopping="the number of epochs without a better score after which the run ends; 0 never ends it early",
    dtype='the type of weights and activations, "float32" or "bfloat16"',
    crop_scale="the smallest share of an image that a random crop keeps, resized to the whole; 1 crops nothing",
    freeze='the number of epochs in which only the head is trained, or "all"; then the schedule of the learning rate '
    "begins again",
    layer_decay="the factor of the learning rate from each layer to the layer before it, beginning at the head",
    mean='the mean of each channel for pixels from 0 to 1, as "0.485,0.456,0.406" or one number; "" is the usual mean',
    std="the standard deviation of each channel, in the same form as the mean",
    new_head="True initializes the last layer anew, even if the file of initial weights has the same classes",
    loss='"cross_entropy", or "focal", which gives easy images less weight',
    vflip="the probability that an image is turned upside down",
    rotate="the largest angle by which an image is turned, in degrees, in both directions",
    perspective="the strength of the perspective distortion of half of the images, 0 to 1",
    blur="the largest standard deviation of a Gaussian blur, in pixels",
    rand_augment='"N,M": N random changes of RandAugment for each image, with strength M from 0 to 30; "none" for no '
    "change",
    fold='"I/K": the I-th of K folds of the training images is used for validation, and the other folds for training; '
    '"none" for no folds',
    trivial_augment="True applies one random change of TrivialAugmentWide to each image",
    qat='"uint8" or "int8": train for an int8 model with activations of this type; "none" trains a float model',
)
@dataclass(frozen=True)
class Settings:
    """The settings of a run; the defaults train the digits in a second. `choose_settings` chooses them for your images.

    Raises ValueError, which names the setting, if a setting has a wrong type or is outside its range.

    Example:
        >>> mn.training.Settings(optimizer="adam").lr
        0.003
    """

    data: str = USUAL_DATA
    model: str = ""
    epochs: int = 8
    batch_size: int = 64
    lr: float = 0.0
    optimizer: str = "sgd"
    schedule: str = "onecycle"
    weight_decay: float = 5e-4
    label_smoothing: float = 0.1
    seed: int = 0
    ranks: int = 1
    image_size: int = 64
    hflip: float = USUAL
    crop_padding: int = USUAL
    cutout: int = 0
    color_jitter: float = 0.0
    mixup: float = 0.0
    cutmix: float = 0.0
    class_weights: str = "none"
    clip_grad: float = 0.0
    warmup_epochs: int = 0
    accumulate: int = 1
    ema: float = 0.0
    early_stopping: int = 0
    dtype: str = "float32"
    crop_scale: float = 1.0
    qat: str = "none"
    freeze: int | str = 0
    layer_decay: float = 1.0
    mean: str = ""
    std: str = ""
    new_head: bool = False
    loss: str = "cross_entropy"
    vflip: float = 0.0
    rotate: float = 0.0
    perspective: float = 0.0
    blur: float = 0.0
    rand_augment: str = "none"
    trivial_augment: bool = False
    fold: str = "none"

    def __post_init__(self) -> None:
        for field in fields(self):
            value, (kind, said) = getattr(self, field.name), KINDS[field.type]
            _expect(isinstance(value, kind) and isinstance(value, bool) == (kind is bool), field.name, value, said)
            if isinstance(value, Integral) and field.name != "seed":  # no float holds 10**400
                _expect(abs(int(value)) < 1 << 63, field.name, value, "less than 2^63")
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
        known = self.model in models.BY_NAME or is_file(self.model) or is_graph(self.model)
        _expect(known, "model", self.model, f"one of {', '.join(models.BY_NAME)}, FILE.py:FUNCTION or FILE.onnx")
        for name, choices in (
            ("optimizer", OPTIMIZERS), ("schedule", SCHEDULES), ("class_weights", CLASS_WEIGHTS), ("dtype", DTYPES),
            ("qat", QAT), ("loss", LOSSES),
        ):  # fmt: skip
            _expect(getattr(self, name) in choices, name, getattr(self, name), f"one of {', '.join(choices)}")
        for name in ("epochs", "batch_size", "ranks", "image_size", "accumulate"):
            _expect(getattr(self, name) >= 1, name, getattr(self, name), "at least 1")
        for name in ("seed", "crop_padding", "cutout", "warmup_epochs", "early_stopping"):
            _expect(getattr(self, name) >= 0, name, getattr(self, name), "0 or more")
        _expect(self.image_size <= LARGEST, "image_size", self.image_size, f"at most {LARGEST}")
        for name in ("weight_decay", "color_jitter", "mixup", "cutmix", "clip_grad", "blur"):
            _expect(0 <= getattr(self, name) < math.inf, name, getattr(self, name), "0 or a positive number")
        for name in ("label_smoothing", "hflip", "vflip", "perspective"):
            _expect(0 <= getattr(self, name) <= 1, name, getattr(self, name), "a number from 0 to 1")
        _expect(0 < self.crop_scale <= 1, "crop_scale", self.crop_scale, "a number above 0 and at most 1")
        _expect(0 <= self.rotate <= 180, "rotate", self.rotate, "degrees from 0 to 180")
        _expect(changes_of(self.rand_augment) is not None, "rand_augment", self.rand_augment,
                '"N,M", N changes of a strength M from 0 to 30, such as "2,9"')  # fmt: skip
        _expect(self.fold == "none" or fold_of(self.fold) is not None, "fold", self.fold,
                '"I/K", the I-th of K folds, such as "1/5"')  # fmt: skip
        _expect(0 < self.lr < math.inf, "lr", self.lr, "a positive number")
        _expect(0 <= self.ema < 1, "ema", self.ema, "0, or a decay below 1, such as 0.999")
        _expect(
            not (self.mixup and self.cutmix),
            "cutmix",
            self.cutmix,
            "0, because mixup is on and only one of them is possible",
        )
        for name, expected in (("dtype", "float32"), ("ranks", 1), ("ema", 0)):
            _expect(self.qat == "none" or getattr(self, name) == expected, name, getattr(self, name),
                    f"{expected!r} with qat={self.qat!r}")  # fmt: skip
        frozen = self.freeze == ALL or (not isinstance(self.freeze, str) and 0 <= self.freeze <= self.epochs)
        _expect(frozen, "freeze", self.freeze, f"a whole number from 0 to {self.epochs}, or {ALL!r}")
        _expect(0 < self.layer_decay <= 1, "layer_decay", self.layer_decay, "a number above 0 and at most 1")
        for name in ("mean", "std"):
            values, above = numbers(getattr(self, name)), "" if name == "mean" else ", above 0"
            fits = values is not None and (name == "mean" or min(values, default=1.0) > 0)
            _expect(fits, name, getattr(self, name), f"one number for each channel, as '0.5,0.5,0.5'{above}")
        thawed = self.epochs - self.frozen_epochs or self.epochs  # the frozen epochs and the others each have a warm-up
        after = "" if thawed == self.epochs else f", the epochs after freeze={self.freeze}"
        _expect(self.warmup_epochs < thawed, "warmup_epochs", self.warmup_epochs, f"fewer than {thawed}{after}")

    @property
    def frozen_epochs(self) -> int:
        """The number of epochs in which all layers but the head are frozen."""
        return self.epochs if self.freeze == ALL else int(self.freeze)


def numbers(text: str) -> list[float] | None:
    """Return the numbers in a text such as "0.5,0.4,0.3"; return None for any other text."""
    try:
        found = [float(part) for part in text.split(",")] if text else []
    except ValueError:
        return None
    return found if all(map(math.isfinite, found)) else None


def changes_of(rand_augment: str) -> tuple[int, int] | None:
    """Return (N, M), the number of changes and their strength, for a text "N,M".

    Return (0, 0) for "none", and None for any other text.
    """
    found = re.fullmatch(r"(\d{1,3}),(\d{1,2})", "0,0" if rand_augment == "none" else rand_augment, re.ASCII)
    if found is None or int(found[2]) > STRONGEST:
        return None
    return int(found[1]), int(found[2])


def fold_of(text: str) -> tuple[int, int] | None:
    """Return (I, K) for a text "I/K" with 1 <= I <= K and K >= 2; return None for any other text."""
    found = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text, re.ASCII)
    return (int(found[1]), int(found[2])) if found and 1 <= int(found[1]) <= int(found[2]) >= 2 else None


def _expect(holds: bool, name: str, value: object, expected: str) -> None:
    if not holds:
        raise ValueError(f"{name} is {value!r}; expected {expected}")
