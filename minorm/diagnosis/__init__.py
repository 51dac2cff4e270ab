"""diagnose finds faults in a model's normalizations, measures each fault, and says how to mend it.

    found = mn.diagnose(model, loader)
    print(found)

image_batches.py draws images, and passes.py runs the model over them twice. subject.py wraps the model: one of minorm
(recording.py sees its steps, modes.py restores it) or a module of PyTorch (pytorch/). records.py collects measurements;
measured.py has their classes. symptoms.py and statistics_symptoms.py compute the statistic of each finding, and
findings.py rates its severity. finding_words.py has the texts, and diagnosis_report.py has the result.

class_activation.py does not belong to a diagnosis: Grad-CAM shows which parts of a picture raise the score of a class.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from minorm.diagnosis import finding_words, image_batches, layer_statistics, passes, statistics_symptoms, symptoms
from minorm.diagnosis.class_activation import grad_cam
from minorm.diagnosis.diagnosis_report import Diagnosis, Finding
from minorm.diagnosis.findings import judge
from minorm.diagnosis.measured import Measured, Norm
from minorm.diagnosis.passes import measure
from minorm.support.argument_errors import checked, kind_of
from minorm.support.documented import documented

__all__ = ["Diagnosis", "Finding", "diagnose", "grad_cam"]


class _FromLoader:
    """The default of `batch_size` in `diagnose`; it means the batch size of the loader."""

    def __repr__(self) -> str:
        return "<the loader's>"


FROM_LOADER: Any = _FromLoader()


@documented(
    {},
    model="a Module, a loaded ONNX graph, or a torch.nn.Module; any device and mode",
    loader="batches x or (x, labels) that can be read more than once, or one batch, of the data that the model was "
    "trained on, because running statistics describe these data. Up to 512 images are drawn. With integer labels, the "
    "loss and the accuracy show whether evaluation mode is worse; without labels, only whether results change. None "
    "runs an ONNX graph on noise, and findings that depend on the data are left out",
    batch_size="the batch size of training; the default is the median of the loader's batches. None means that it is "
    "unknown; then there are no findings about small batches",
)
@checked
def diagnose(model: Any, loader: Iterable[Any] | None = None, *, batch_size: int | None = FROM_LOADER) -> Diagnosis:
    """Find faults in a model's normalizations: return findings with numbers, and a row of numbers for each layer.

        offset = RMS over channels of sqrt((mu - m)^2 / (s sr) + ln(s / sr)^2)

    This offset says how far running statistics (m, sr^2) are from the moments (mu, s^2) of a layer's input. The moments
    are measured while all layers use batch statistics. The model is restored afterwards. The possible findings are
    stale_statistics, untouched_statistics, momentum_convention, frozen_norm_drifts, saved_in_training,
    variance_convention, skipped_batches, train_eval_gap, small_batch, batch_of_one, large_mean, eps_swallows_variance,
    eps_underflows, vanished_scale, dead_channel, saturated_channel, undone_norm, folded_norm; docs/doctor.md has a
    section for each. In a distributed run, one rank may call this function alone. minorm does not import PyTorch, and
    uses it only if the model is a module of PyTorch.

    Raises TypeError if the model is not a Module or the loader can be read only once. Raises ValueError if the loader
    has fewer than 2 images, the model does not take them, or the model has no normalizations. Raises ArithmeticError if
    the model gives NaN.

    Example:
        >>> model = nn.Sequential(nn.Flatten(), nn.Linear(4, 3), nn.BatchNorm1d(3))
        >>> images = [mn.randn(32, 1, 2, 2) for batch in range(4)]
        >>> found = mn.diagnose(model, images)  # its statistics have never seen a batch
        >>> "untouched_statistics" in [finding.name for finding in found.findings]
        True
    """
    passes.subject_of(model)  # raises its error before the images are read
    if batch_size not in (FROM_LOADER, None) and (not isinstance(batch_size, int) or batch_size < 1):
        raise ValueError(f"diagnose: batch_size={batch_size!r}; expected an int of at least 1, or None")
    given = image_batches.drawn(loader) if loader is not None else image_batches.random(_inputs(model))
    measured = measure(model, given, given.batch_size if batch_size is FROM_LOADER else batch_size)
    judged, gap = judge(measured)
    findings = []
    for found in judged:
        symptom = found.symptom
        words = finding_words.words(symptom.name, symptom.numbers, measured.framework)
        findings.append(
            Finding(symptom.name, symptom.layer, found.severity, symptom.numbers, words.why, words.fix,
                    found.after, found.cause)
        )  # fmt: skip
    if not measured.norms and not any(finding.name == "folded_norm" for finding in findings):
        raise ValueError(
            "diagnose: the model runs no normalization; expected one with BatchNorm, GroupNorm, LayerNorm or the like"
        )
    rows = [_row(norm, measured, findings) for norm in measured.norms]
    return Diagnosis(findings, rows, 0 if measured.random else len(given), measured.batch_size, gap, measured)


def _inputs(model: Any) -> Any:
    """Return the inputs that an ONNX graph declares; raise TypeError if the model is no ONNX graph."""
    if not hasattr(model, "input_names"):
        raise TypeError(
            "diagnose: loader is None; expected batches, because only an ONNX graph declares the shape of its input"
        )
    return model.inputs


def _row(norm: Norm, measured: Measured, findings: list[Finding]) -> dict[str, Any]:
    offset = norm.offset()
    mean, var, sets = symptoms.moments(norm)
    of_data = {
        "gap": norm.gap(),
        "offset": None if offset is None else layer_statistics.rms(offset),
        "offset_limit": None if offset is None else statistics_symptoms.offset_limit(norm, measured),
        "digits_lost": symptoms.digits_lost(norm, mean, var, sets),
        "eps_over_variance": symptoms.eps_over_variance(norm, mean, var),
        "batch_error": statistics_symptoms.batch_error(norm, measured.batch_size),
    }
    return {
        "layer": norm.name,
        "kind": norm.what,
        **(dict.fromkeys(of_data) if measured.random else of_data),
        "channels": None if norm.weight is None else int(np.size(norm.weight)),
        "findings": [finding.name for finding in findings if finding.layer == norm.name],
    }
