"""Holds what two passes over the images measure: of each layer its state, and moments of its inputs and outputs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from minorm.diagnosis import layer_statistics
from minorm.diagnosis.image_batches import Images


@dataclass
class Norm:
    """A normalization: its state, and what went through it."""

    name: str
    what: str
    eps: float
    weight: Any = None
    running: tuple[Any, Any] | None = None  # mean and variance, float64
    momentum: float | None = None
    batches: int | None = None  # that the running statistics have seen
    frozen: bool = False
    per_sample: bool = False
    virtual: int | None = None  # samples that share statistics, where they are fewer than the batch
    ranks: int = 1
    step: float = layer_statistics.STEP["float32"]  # of the numbers that come in
    means: list[Any] = field(default_factory=list)  # a sample and channel, in R
    variances: list[Any] = field(default_factory=list)
    counts: list[Any] = field(default_factory=list)
    sets: list[tuple[Any, Any]] = field(default_factory=list)  # mean and variance of each set, in R
    outputs: dict[str, list[Any]] = field(default_factory=lambda: {"E": [], "R": []})  # a sample of each output
    undone: tuple[str, float] | None = None  # the normalization before, and what it changes
    skipped: int = 0  # batches left out of the running statistics
    drifts: bool = False  # scale and bias do not train, and yet training moves the running statistics
    in_training: bool = False  # the file has it in training mode
    dtype: str = "float32"  # of the numbers that come in
    positions: int = 1  # values of a sample and channel
    moved: float | None = None  # E: RMS of (output - input) over the input's deviation, on the first batch
    folded: tuple[float, float, float] | None = None  # an identity that was folded: see layer_statistics.cancellation

    def sampled(self, which: str) -> Any:
        """Return the outputs that were kept, in one row."""
        return np.concatenate(self.outputs[which])

    def moments(self) -> tuple[Any, Any]:
        """Return mean and variance of the layer's input for each sample and channel, (N, C) each."""
        return np.concatenate(self.means), np.concatenate(self.variances)

    def whole(self) -> tuple[Any, Any]:
        """Return mean and variance (C) of all the layer's inputs."""
        return layer_statistics.merged(*self.moments(), np.concatenate(self.counts) if self.counts else None)

    def gap(self) -> float | None:
        """Return the RMS of (output in E - output in R) over the deviation in R; None without running statistics."""
        if self.running is None:
            return None
        e, r = self.sampled("E"), self.sampled("R")
        return layer_statistics.rms(e - r) / max(float(r.std()), 1e-12)

    def offset(self) -> Any:
        """Return the offset of each channel; None without running statistics."""
        if self.running is None:
            return None
        return layer_statistics.offsets(*self.whole(), *self.running, self.eps)


@dataclass
class Activation:
    """An activation in R: of each channel its largest value, and how many values lie where it is flat."""

    name: str
    what: str
    peaks: Any = 0.0
    flat: Any = 0.0
    seen: int = 0


@dataclass
class Affine:
    """A convolution or linear map with a bias before an activation, in R: moments of the product without the bias."""

    name: str
    bias: Any
    means: list[Any] = field(default_factory=list)
    variances: list[Any] = field(default_factory=list)

    def cancellation(self) -> tuple[float, float, float] | None:
        """Return the cancellation between the bias and the mean of the product, over channels."""
        moments = layer_statistics.merged(np.concatenate(self.means), np.concatenate(self.variances))
        return layer_statistics.cancellation(*moments, self.bias)


@dataclass
class Measured:
    """The measurements that all findings are based on."""

    images: Images
    batch_size: int | None  # that the model trains with; None where it is not known
    norms: list[Norm]
    activations: list[Activation]
    affine: list[Affine]
    logits: dict[str, Any]  # the model's output on all images, E and R
    order: list[str]  # the layers as they run
    framework: str = "minorm"  # whose model it is
    random: bool = False  # the images are noise: nothing is said that depends on the data

    @property
    def noise(self) -> float:
        """The largest error that a layer of R makes because a batch of images is not the whole population."""
        batch = self.images.batch
        errors = [
            layer_statistics.output_error(layer_statistics.spread(*norm.moments()), min(batch, norm.virtual or batch))
            for norm in self.norms
            if norm.running and not norm.per_sample
        ]
        return max(errors, default=0.0)
