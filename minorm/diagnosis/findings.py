"""Turn symptoms into findings: compare the outputs of both modes, rate each finding, find causes and consequences.

A finding about running statistics is more severe than a note only if the model is worse in evaluation. If a layer
destroys the values that pass through it, the findings of later layers are consequences, and only notes. The gap between
the modes is a symptom too. If a layer explains the gap, the user should mend that layer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from minorm.diagnosis import layer_statistics
from minorm.diagnosis.measured import Measured
from minorm.diagnosis.symptom import ERROR, NOTE, WARNING, Symptom
from minorm.diagnosis.symptoms import of

STATISTICS = ("untouched_statistics", "momentum_convention", "stale_statistics")
DESTROYING = ("eps_swallows_variance", "vanished_scale", "dead_channel", "saturated_channel")
OWN = (
    "vanished_scale",
    "momentum_convention",
    "skipped_batches",
    "small_batch",
    "batch_of_one",
    "undone_norm",
    "folded_norm",
    "frozen_norm_drifts",
    "saved_in_training",
    "variance_convention",
    "eps_underflows",
)


@dataclass(frozen=True)
class Gap:
    """Compares the model in evaluation (pass E) with the reference (pass R).

    If there are no labels, loss and accuracy are None.
    """

    changed: float | None  # share of predictions that differ; None if outputs are not classes
    moved: float  # RMS of the difference over the outputs' deviation
    shows: bool  # whether the gap is more than the images' own noise explains
    harms: bool  # whether evaluation is clearly worse
    loss: tuple[float, float] | None = None  # in E, in R
    accuracy: tuple[float, float] | None = None  # in E, in R

    @property
    def numbers(self) -> dict[str, Any]:
        """Return a dict from names to the numbers of this gap that are known."""
        numbers: dict[str, Any] = {} if self.changed is None else {"changed": self.changed}
        numbers["moved"] = self.moved
        if self.loss and self.accuracy:
            numbers |= {"loss_evaluation": self.loss[0], "loss_reference": self.loss[1]}
            numbers |= {"accuracy_evaluation": self.accuracy[0], "accuracy_reference": self.accuracy[1]}
        return numbers


@dataclass(frozen=True)
class Judged:
    """A symptom with its severity.

    `after` is the layer that caused the symptom. `cause` is the layer whose finding explains the symptom. Both may be
    None.
    """

    symptom: Symptom
    severity: str
    after: str | None = None
    cause: str | None = None


def judge(measured: Measured) -> tuple[list[Judged], Gap | None]:
    """Return the findings, ordered by severity and layer, and the Gap between the modes.

    The gap is None if the model uses no running statistics, or if it ran on noise.
    """
    in_use = any(norm.running and norm.folded is None for norm in measured.norms)
    gap = gap_of(measured) if in_use and not measured.random else None
    judged = [_judged(symptom, gap) for symptom in _without_followers(list(of(measured)))]
    judged = _consequences(judged, measured)
    if gap is not None and gap.shows:
        judged.append(_gap_finding(gap, judged, measured))
    return sorted(judged, key=lambda found: (ERROR, WARNING, NOTE).index(found.severity)), gap


def _judged(symptom: Symptom, gap: Gap | None) -> Judged:
    if not symptom.harms or symptom.level == NOTE:
        return Judged(symptom, symptom.level)
    return Judged(symptom, _severity(gap))


def _severity(gap: Gap | None) -> str:
    """Return the severity of a symptom that matters only if evaluation is worse.

    Unless `gap` shows that, it is a note.
    """
    if gap is None or not gap.harms:
        return NOTE
    return ERROR if (gap.changed or 0.0) > 0.1 else WARNING


def _without_followers(symptoms: list[Symptom]) -> list[Symptom]:
    """If a layer has a vanished scale, dead channels and saturated channels, keep only the first symptom."""
    order = ("vanished_scale", "dead_channel", "saturated_channel")
    first: dict[str | None, int] = {}
    for symptom in symptoms:
        if symptom.name in order:
            place = order.index(symptom.name)
            first[symptom.layer] = min(place, first.get(symptom.layer, place))
    return [s for s in symptoms if s.name not in order or order.index(s.name) == first[s.layer]]


def _gap_finding(gap: Gap, judged: list[Judged], measured: Measured) -> Judged:
    order = [norm.name for norm in measured.norms if norm.running]
    blamed = {found.symptom.layer: found for found in judged if found.symptom.name in STATISTICS}
    layer = next((name for name in order if name in blamed), None)
    severity, cause = _severity(gap), layer
    if layer is not None:
        blame = blamed[layer]
        told = blame.severity != NOTE or blame.after is not None  # False if it is only a note because it is frozen
        severity, cause = NOTE if told and layer != order[0] else severity, blame.after or layer
    return Judged(Symptom("train_eval_gap", None, severity, gap.numbers), severity, cause=cause)


def _consequences(judged: list[Judged], measured: Measured) -> list[Judged]:
    """Find the first layer with a finding that destroys the values passing through it.

    Turn the findings of later layers into notes that name this layer.
    """
    order: dict[str | None, int] = {name: place for place, name in enumerate(measured.order)}
    sources = [found.symptom.layer for found in judged if found.symptom.name in DESTROYING and found.severity != NOTE]
    if not sources:
        return judged
    first = min(sources, key=lambda name: order.get(name, len(order)))
    place = order.get(first, len(order))
    result = []
    for found in judged:
        symptom = found.symptom
        behind = symptom.layer is not None and order.get(symptom.layer, -1) > place
        if behind and symptom.name not in OWN:
            found = replace(found, severity=NOTE, after=first)
        result.append(found)
    return result


def gap_of(measured: Measured) -> Gap:
    """Compare the outputs of evaluation (pass E) and the reference (pass R).

    If there are labels, compare losses and accuracies too.
    """
    e, r = measured.logits["E"].astype(np.float64), measured.logits["R"].astype(np.float64)
    count, noise = len(e), measured.noise
    moved = layer_statistics.rms(e - r) / max(float(r.std()), 1e-12)
    changed = float((e.argmax(1) != r.argmax(1)).mean()) if e.ndim >= 2 and e.shape[1] > 1 else None
    slack = 3 * math.sqrt(0.02 / count) + 2 * noise**2
    shows = moved > max(0.5, 4 * noise) or (changed is not None and changed > 0.02 + slack)
    labels = measured.images.labels
    if labels is None or e.ndim < 2 or labels.shape != (len(e), *e.shape[2:]):
        harms = moved > max(1.0, 4 * noise) or (changed or 0.0) > 0.1 + slack
        return Gap(changed, moved, shows, harms)
    losses = [_losses(logits, labels) for logits in (e, r)]
    right = [_per_sample(logits.argmax(1) == labels) for logits in (e, r)]
    loss, accuracy = tuple(float(x.mean()) for x in losses), tuple(float(x.mean()) for x in right)
    harms = (loss[0] > 2 * loss[1] + 0.1 and _is_significant(losses[0] - losses[1])) or (
        accuracy[1] - accuracy[0] >= 0.05 and _is_significant(right[1] - right[0])
    )
    return Gap(changed, moved, shows or harms, harms, loss, accuracy)  # type: ignore[arg-type]


def _losses(logits: Any, labels: Any) -> Any:
    """Return the cross entropy of each sample; outputs that are already probabilities get no softmax."""
    if logits.min() >= 0 and np.allclose(logits.sum(1), 1, atol=1e-3):
        logs = np.log(np.maximum(logits, 1e-30))
    else:
        shifted = logits - logits.max(1, keepdims=True)
        logs = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
    known = np.clip(labels, 0, logits.shape[1] - 1)
    return _per_sample(-np.take_along_axis(logs, known[:, np.newaxis], 1)[:, 0])


def _per_sample(values: Any) -> Any:
    return values.reshape(len(values), -1).mean(1)


def _is_significant(difference: Any) -> bool:
    """Return whether the mean of paired differences is more than 3 standard errors above 0."""
    return float(difference.mean()) > 3 * float(difference.std(ddof=1)) / math.sqrt(len(difference))
