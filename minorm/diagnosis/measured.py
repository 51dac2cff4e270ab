"""Holds the measurements of two passes over the images: each layer's state, and moments of its inputs and outputs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from minorm.diagnosis import layer_statistics
from minorm.diagnosis.image_batches import Images


@dataclass
class Norm:
    """A normalization: its state, and measurements of its inputs and outputs."""

    name: str
    what: str
    eps: float
    weight: Any = None
    running: tuple[Any, Any] | None = None  # mean and variance, float64
    momentum: float | None = None
    batches: int | None = None  # the number of batches that the running statistics have seen
    frozen: bool = False
    per_sample: bool = False
    virtual: int | None = None  # the number of samples that share statistics, if they are fewer than the batch
    ranks: int = 1
    step: float = layer_statistics.STEP["float32"]  # the rounding step of the input's type
    means: list[Any] = field(default_factory=list)  # of the input, for each sample and channel, in R
    variances: list[Any] = field(default_factory=list)
    counts: list[Any] = field(default_factory=list)
    sets: list[tuple[Any, Any]] = field(default_factory=list)  # mean and variance of each set, in R
    outputs: dict[str, list[Any]] = field(default_factory=lambda: {"E": [], "R": []})  # some numbers of each output
    undone: tuple[str, float] | None = None  # the normalization before, and how much it changes this one's output
    skipped: int = 0  # the number of batches left out of the running statistics
    drifts: bool = False  # True if scale and bias do not train, but training moves the running statistics
    in_training: bool = False  # True if the file has the layer in training mode
    dtype: str = "float32"  # the type of the input
    positions: int = 1  # the number of values of a sample and channel
    moved: float | None = None  # E: RMS of (output - input) over the input's deviation, on the first batch
    folded: tuple[float, float, float] | None = None  # of a folded layer: see layer_statistics.cancellation

    def sampled(self, which: str) -> Any:
        """Return the outputs that were kept in one pass, as a vector.

        The pass is "E" (evaluation) or "R" (reference).
        """
        return np.concatenate(self.outputs[which])

    def moments(self) -> tuple[Any, Any]:
        """Return two arrays (N, C): the mean and the variance of each channel of the input, for each sample."""
        return np.concatenate(self.means), np.concatenate(self.variances)

    def whole(self) -> tuple[Any, Any]:
        """Return two vectors (C): the mean and the variance of each channel, over all of the layer's inputs."""
        return layer_statistics.merged(*self.moments(), np.concatenate(self.counts) if self.counts else None)

    def gap(self) -> float | None:
        """Return RMS(e - r) / deviation(r), where e and r are the outputs in evaluation and in the reference.

        Return None if there are no running statistics.
        """
        if self.running is None:
            return None
        e, r = self.sampled("E"), self.sampled("R")
        return layer_statistics.rms(e - r) / max(float(r.std()), 1e-12)

    def offset(self) -> Any:
        """Return how far the running statistics are from the moments of the input, for each channel.

        Return None if there are no running statistics.
        """
        if self.running is None:
            return None
        return layer_statistics.offsets(*self.whole(), *self.running, self.eps)


@dataclass
class Activation:
    """An activation in the reference pass.

    `peaks` has the largest absolute value of each channel. `flat` counts the values at which the activation's slope is
    near 0.
    """

    name: str
    what: str
    peaks: Any = 0.0
    flat: Any = 0.0
    seen: int = 0


@dataclass
class Affine:
    """A convolution or linear map with a bias, before an activation.

    `means` and `variances` are those of the output without the bias.
    """

    name: str
    bias: Any
    means: list[Any] = field(default_factory=list)
    variances: list[Any] = field(default_factory=list)

    def cancellation(self) -> tuple[float, float, float] | None:
        """Compare the bias with the mean that the output has without the bias; see layer_statistics.cancellation."""
        moments = layer_statistics.merged(np.concatenate(self.means), np.concatenate(self.variances))
        return layer_statistics.cancellation(*moments, self.bias)


@dataclass
class Measured:
    """The measurements on which all findings are based."""

    images: Images
    batch_size: int | None  # the batch size of training; None if it is not known
    norms: list[Norm]
    activations: list[Activation]
    affine: list[Affine]
    logits: dict[str, Any]  # the model's output on all images, in E and in R
    order: list[str]  # the names of the layers, in running order
    framework: str = "minorm"  # of the model: "minorm" or "pytorch"
    random: bool = False  # True if the images are noise: then findings that depend on the data are left out

    @property
    def noise(self) -> float:
        """The largest error in a layer's output, in the reference pass, that comes from the finite batch size."""
        batch = self.images.batch
        errors = [
            layer_statistics.output_error(layer_statistics.spread(*norm.moments()), min(batch, norm.virtual or batch))
            for norm in self.norms
            if norm.running and not norm.per_sample
        ]
        return max(errors, default=0.0)
