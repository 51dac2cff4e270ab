"""Turns steps into records: one for each normalization, activation and linear map with a bias."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from minorm.diagnosis import layer_statistics, slopes
from minorm.diagnosis.measured import Activation, Affine, Norm
from minorm.diagnosis.recording import Step

NEGLIGIBLE_CHANGE = 1e-3  # a change of less than this share of the input's deviation; that of sqrt(1 + eps) is less
SAMPLED = 1024  # numbers kept of each image's output; their distance is odd, so that all columns are sampled


def array_of(x: Any) -> Any:
    """Return x as an array on the CPU, in float32 at least."""
    array = x.detach().cpu().array
    return array if array.dtype in (np.float32, np.float64) else np.asarray(array, np.float32)


class Records:
    """Collects measurements from the steps that `see` gets.

    `which` is the pass that runs: "E" for evaluation, "R" for the reference. `first` is True during the first batch.
    """

    def __init__(self, ranks: dict[str, int], drifting: set[str], in_training: set[str]) -> None:
        self.ranks, self.drifting, self.in_training = ranks, drifting, in_training
        self.which, self.first = "E", True
        self.failed = ""  # a message about the first layer that gave NaN or infinity
        self.norms: dict[str, Norm] = {}
        self.activations: dict[tuple[str, str, int], Activation] = {}  # by name, kind and channels
        self.affine: dict[str, Affine] = {}
        self.before_identities: dict[str, Affine] = {}  # by the name of the normalization
        self.order: dict[str, None] = {}

    def see(self, step: Step) -> None:
        """Record the measurements of a step."""
        self.order.setdefault(step.name)
        if step.kind == "norm":
            self._norm(step)
        elif step.kind == "activation" and self.which == "R":
            self._activation(step)

    def _norm(self, step: Step) -> None:
        norm = self.norms.get(step.name)
        if norm is None:
            norm = self.norms[step.name] = _described(step)
            norm.ranks, norm.dtype = self.ranks.get(step.name, 1), str(step.x.dtype)
            norm.step = layer_statistics.STEP.get(norm.dtype, norm.step)
            norm.in_training = step.name in self.in_training
            norm.drifts = step.name in self.drifting and norm.running is not None
        y = array_of(step.y)
        flat = y.reshape(len(y), -1)
        if not self.failed and not np.isfinite(y).all():
            mode = "evaluation" if self.which == "E" else "training"
            self.failed = (
                f"diagnose: {step.name} gives NaN or infinity in {mode}; the layers after it cannot be measured"
            )
        norm.outputs[self.which].append(flat[:, :: -(-flat.shape[1] // SAMPLED) | 1].ravel())
        if self.which == "E":
            self._identity(step, norm)
            return
        x, mask = array_of(step.x), step.options.get("mask")
        mask = None if mask is None else np.broadcast_to(array_of(mask) != 0, x.shape)
        if norm.running is not None or norm.what == "batch":
            norm.positions = math.prod(x.shape[2:])
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

    def _identity(self, step: Step, norm: Norm) -> None:
        """Record how much a layer changes its input in evaluation.

        If the input stays unchanged, also record the bias before the layer, into which the layer may have been folded.
        """
        if norm.running is None:
            return
        if self.first:
            x = array_of(step.x)
            norm.moved = layer_statistics.rms(array_of(step.y) - x) / max(float(x.std()), 1e-12)
        before = step.before
        if norm.moved is not None and norm.moved < NEGLIGIBLE_CHANGE and before is not None and _has_bias(before):
            self._affine(before, self.before_identities.setdefault(step.name, _affine_of(before)))

    def folded(self) -> set[str]:
        """Return the normalizations that were folded into the step before them, according to pass E.

        An export folds every layer that it can fold. So if one layer was folded, all other layers that change nothing
        were folded too, even if their means are near 0.
        """
        found = {name: affine.cancellation() for name, affine in self.before_identities.items()}
        if not any(each is not None and layer_statistics.cancels(*each) for each in found.values()):
            return set()
        for name, each in found.items():
            self.norms[name].folded = each
        return {name for name, each in found.items() if each is not None}

    def _activation(self, step: Step) -> None:
        before = step.before
        name = before.name if before is not None and before.kind == "norm" else step.name
        x, y = array_of(step.x), array_of(step.y)
        axis = step.axis % y.ndim
        others, channels = tuple(i for i in range(y.ndim) if i != axis), y.shape[axis]
        record = self.activations.setdefault((name, step.what, channels), Activation(name, step.what))
        record.peaks = np.maximum(record.peaks, np.maximum(y.max(others), -y.min(others)))
        record.flat = record.flat + slopes.flat(step.what, x, step.options, others, channels)
        record.seen += y.size // channels
        if before is not None and _has_bias(before):
            self._affine(before, self.affine.setdefault(before.name, _affine_of(before)))

    def _affine(self, step: Step, record: Affine) -> None:
        y = array_of(step.y)
        means, variances, _ = layer_statistics.by_sample(y if step.axis == 1 or y.ndim == 2 else np.moveaxis(y, -1, 1))
        record.means.append(means - record.bias)
        record.variances.append(variances)


def _has_bias(step: Step) -> bool:
    return step.kind == "affine" and step.options.get("bias") is not None


def _affine_of(step: Step) -> Affine:
    return Affine(step.name, array_of(step.options["bias"]).astype(np.float64))


def _described(step: Step) -> Norm:
    """Return a Norm that describes the step.

    The options are those of the call. The running statistics are those of the module that holds them.
    """
    given, holder = step.options, step.holder
    weight = given.get("weight", given.get("scale"))
    eps, mean, var = given.get("eps"), given.get("running_mean"), given.get("running_var")
    if holder is None:
        eps = float(np.finfo(np.float32).eps) if eps is None else float(eps)
        norm = Norm(step.name, step.what, eps, None if weight is None else array_of(weight))
        if mean is not None and var is not None:
            norm.running, norm.momentum = _both(mean, var), given.get("momentum")
            norm.per_sample = step.what == "instance"
        return replace(norm, **step.facts)
    mean, var = getattr(holder, "running_mean", mean), getattr(holder, "running_var", var)
    weight = getattr(holder, "weight", weight)
    statistics_kept: Any = getattr(holder, "statistics", None)  # of a loaded graph's layer, if its file describes it
    count = getattr(holder, "num_batches_tracked", None)
    return Norm(
        step.name,
        "instance" if "Instance" in type(holder).__name__ else "batch",
        float(getattr(holder, "eps", 1e-5)),
        None if weight is None else array_of(weight),
        _both(mean, var),
        getattr(holder, "momentum", None),
        None if count is None else int(count.item()),
        frozen=holder.frozen or not hasattr(holder, "momentum"),
        per_sample="Instance" in type(holder).__name__ or bool(statistics_kept and statistics_kept.per_sample),
        virtual=getattr(holder, "virtual_batch_size", None),
        skipped=int(getattr(holder, "skipped_batches", 0)),
    )


def _both(mean: Any, var: Any) -> tuple[Any, Any]:
    return array_of(mean).astype(np.float64), array_of(var).astype(np.float64)


def _undone(step: Step) -> tuple[str, float] | None:
    """Find the norm just before this norm, if at most pooling is between the two norms.

    Return the earlier norm's name, and how much this norm's output changes without the earlier norm.
    """
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
    y, without = array_of(step.y), array_of(step.again(x))
    return before.name, layer_statistics.rms(y - without) / max(float(y.std()), 1e-12)
