"""Two passes over the same images, and what is kept of each layer.

E is evaluation. R, the reference, differs in one thing: normalizations that have running statistics use those of the
batch. Running statistics are compared with the moments of a layer's input in R, for what reaches it in E has been
through the layers before, and blames it for their faults.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from minorm.diagnosis import layer_statistics, modes, slopes
from minorm.diagnosis.image_batches import Images
from minorm.diagnosis.recording import Step, watched
from minorm.nn import Module
from minorm.tensor.tensor import Tensor

SAMPLED = 1024  # numbers of an output that are kept, an image, in steps that are odd: no column comes again and again


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

    def sampled(self, which: str) -> Any:
        """The outputs that were kept, in one row."""
        return np.concatenate(self.outputs[which])

    def moments(self) -> tuple[Any, Any]:
        """What came in, (N, C) each: mean and variance a sample and channel."""
        return np.concatenate(self.means), np.concatenate(self.variances)

    def whole(self) -> tuple[Any, Any]:
        """Mean and variance (C) of all that came in."""
        return layer_statistics.merged(*self.moments(), np.concatenate(self.counts) if self.counts else None)

    def gap(self) -> float | None:
        """RMS of (output in E - output in R) over the output's deviation in R; None without running statistics."""
        if self.running is None:
            return None
        e, r = self.sampled("E"), self.sampled("R")
        return layer_statistics.rms(e - r) / max(float(r.std()), 1e-12)

    def offset(self) -> Any:
        """Of each channel; None without running statistics."""
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


@dataclass
class Measured:
    """All that findings are judged by."""

    images: Images
    batch_size: int | None  # that the model trains with; None where nobody says it
    norms: list[Norm]
    activations: list[Activation]
    affine: list[Affine]
    logits: dict[str, Any]  # the model's output on all images, E and R
    order: list[str]  # the layers as they run

    @property
    def noise(self) -> float:
        """The largest error that a layer of R makes because a batch of images is no population."""
        batch = self.images.batch
        errors = [
            layer_statistics.output_error(layer_statistics.spread(*norm.moments()), min(batch, norm.virtual or batch))
            for norm in self.norms
            if norm.running and not norm.per_sample
        ]
        return max(errors, default=0.0)


def measure(model: Module, images: Images, batch_size: int | None) -> Measured:
    """Run both passes; the model is afterwards what it was before."""
    records = _Records(_ranks(model))
    logits: dict[str, list[Any]] = {"E": [], "R": []}
    device = next((p.device for p in (*model.parameters(), *model.buffers())), "cpu")
    with modes.borrowed(model):
        for which, into in (("E", modes.evaluation), ("R", modes.reference)):
            into(model)
            records.which = which
            for places, x in images.batches():
                records.first = places.start == 0
                with watched(model, records.see):
                    y = _run(model, x.to(device))
                if records.failed:
                    raise ArithmeticError(records.failed)
                logits[which].append(_array(y[0] if isinstance(y, (tuple, list)) else y))
    whole = {which: np.concatenate(parts) for which, parts in logits.items()}
    norms, activations = [*records.norms.values()], [*records.activations.values()]
    return Measured(images, batch_size, norms, activations, [*records.affine.values()], whole, [*records.order])


def _run(model: Module, x: Tensor) -> Any:
    try:
        return model(x)
    except (ValueError, TypeError) as error:
        raise type(error)(f"diagnose: the model does not take images of shape {tuple(x.shape)}: {error}") from error


def _array(x: Any) -> Any:
    """On the CPU, in float32 at least."""
    array = x.detach().cpu().array
    return array if array.dtype in (np.float32, np.float64) else np.asarray(array, np.float32)


def _ranks(model: Module) -> dict[str, int]:
    """How many ranks share the statistics of each layer."""
    groups = {name: getattr(module, "process_group", None) for name, module in model.named_modules()}
    return {name: int(group.size) for name, group in groups.items() if group is not None}


class _Records:
    def __init__(self, ranks: dict[str, int]) -> None:
        self.ranks = ranks
        self.which, self.first = "E", True
        self.failed = ""  # what the first layer without finite numbers gave, in words
        self.norms: dict[str, Norm] = {}
        self.activations: dict[tuple[str, str, int], Activation] = {}  # one that is called twice may differ in channels
        self.affine: dict[str, Affine] = {}
        self.order: dict[str, None] = {}

    def see(self, step: Step) -> None:
        self.order.setdefault(step.name)
        if step.kind == "norm":
            self._norm(step)
        elif step.kind == "activation" and self.which == "R":
            self._activation(step)

    def _norm(self, step: Step) -> None:
        norm = self.norms.get(step.name)
        if norm is None:
            norm = self.norms[step.name] = _described(step)
            norm.ranks = self.ranks.get(step.name, 1)
            norm.step = layer_statistics.STEP.get(str(step.x.dtype), norm.step)
        y = _array(step.y)
        flat = y.reshape(len(y), -1)
        if not self.failed and not np.isfinite(y).all():
            mode = "evaluation" if self.which == "E" else "training"
            self.failed = f"diagnose: {step.name} gives NaN or infinity in {mode}; what is behind it cannot be measured"
        norm.outputs[self.which].append(flat[:, :: -(-flat.shape[1] // SAMPLED) | 1].ravel())
        if self.which == "E":
            return
        x, mask = _array(step.x), step.options.get("mask")
        mask = None if mask is None else np.broadcast_to(_array(mask) != 0, x.shape)
        if norm.running is not None or norm.what == "batch":
            if norm.running is not None and norm.running[0].ndim > 1:  # statistics of every position
                shape = (len(x), -1, 1)
                x, mask = x.reshape(shape), None if mask is None else mask.reshape(shape)
            means, variances, counts = layer_statistics.by_sample(x, mask)
            norm.means.append(means)
            norm.variances.append(variances)
            if mask is not None:
                norm.counts.append(counts)
        if norm.running is None or norm.per_sample:
            norm.sets.append(layer_statistics.by_set(x, norm.what, step.options, mask))
        if self.first and norm.undone is None:
            norm.undone = _undone(step)

    def _activation(self, step: Step) -> None:
        before = step.before
        name = before.name if before is not None and before.kind == "norm" else step.name
        x, y = _array(step.x), _array(step.y)
        axis = step.axis % y.ndim
        others, channels = tuple(i for i in range(y.ndim) if i != axis), y.shape[axis]
        record = self.activations.setdefault((name, step.what, channels), Activation(name, step.what))
        record.peaks = np.maximum(record.peaks, np.maximum(y.max(others), -y.min(others)))
        record.flat = record.flat + slopes.flat(step.what, x, step.options, others, channels)
        record.seen += y.size // channels
        if before is not None and before.kind == "affine" and before.options.get("bias") is not None:
            self._affine(before)

    def _affine(self, step: Step) -> None:
        bias = _array(step.options["bias"]).astype(np.float64)
        record = self.affine.setdefault(step.name, Affine(step.name, bias))
        y = _array(step.y)
        means, variances, _ = layer_statistics.by_sample(y if step.axis == 1 or y.ndim == 2 else np.moveaxis(y, -1, 1))
        record.means.append(means - bias)
        record.variances.append(variances)


def _described(step: Step) -> Norm:
    """The layer of a step: its options from the call, its running statistics from the module that holds them."""
    given, holder = step.options, step.holder
    weight = given.get("weight", given.get("scale"))
    eps, mean, var = given.get("eps"), given.get("running_mean"), given.get("running_var")
    if holder is None:
        eps = float(np.finfo(np.float32).eps) if eps is None else float(eps)
        norm = Norm(step.name, step.what, eps, None if weight is None else _array(weight))
        if mean is not None and var is not None:
            norm.running, norm.momentum = _both(mean, var), given.get("momentum")
            norm.per_sample = step.what == "instance"
        return norm
    mean, var = getattr(holder, "running_mean", mean), getattr(holder, "running_var", var)
    weight = getattr(holder, "weight", weight)
    statistics_kept: Any = getattr(holder, "statistics", None)  # of a loaded graph's layer, where its file describes it
    count = getattr(holder, "num_batches_tracked", None)
    return Norm(
        step.name,
        "instance" if "Instance" in type(holder).__name__ else "batch",
        float(getattr(holder, "eps", 1e-5)),
        None if weight is None else _array(weight),
        _both(mean, var),
        getattr(holder, "momentum", None),
        None if count is None else int(count.item()),
        frozen=holder.frozen or not hasattr(holder, "momentum"),
        per_sample="Instance" in type(holder).__name__ or bool(statistics_kept and statistics_kept.per_sample),
        virtual=getattr(holder, "virtual_batch_size", None),
        skipped=int(getattr(holder, "skipped_batches", 0)),
    )


def _both(mean: Any, var: Any) -> tuple[Any, Any]:
    return _array(mean).astype(np.float64), _array(var).astype(np.float64)


def _undone(step: Step) -> tuple[str, float] | None:
    """How much a normalization's output changes if the one before it, with nothing but pooling between, is left out."""
    between: list[Step] = []
    before = step.before
    while before is not None and before.kind == "passing":
        between.append(before)
        before = before.before
    if before is None or before.kind != "norm":
        return None
    x, weight = before.x, before.options.get("weight", before.options.get("scale"))
    if before.holder is not None:
        weight = getattr(before.holder, "weight", weight)
    if weight is not None:
        shape = (-1, *(1,) * (x.ndim - 2)) if before.axis == 1 and weight.ndim == 1 else tuple(weight.shape)
        if weight.ndim > 1 or weight.shape[0] == x.shape[before.axis]:
            x = x * weight.detach().sign().reshape(shape)
    for other in reversed(between):
        x = other.again(x)
    y, without = _array(step.y), _array(step.again(x))
    return before.name, layer_statistics.rms(y - without) / max(float(y.std()), 1e-12)
