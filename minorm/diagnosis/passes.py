"""Run two passes over the same images, and record measurements of each layer.

Pass E is evaluation. Pass R, the reference, differs from E in one point: normalizations with running statistics use
batch statistics instead. A layer's running statistics are compared with the moments of its input in R. In E, the faults
of earlier layers would change the input, and the wrong layer would be blamed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from minorm.diagnosis.image_batches import Images
from minorm.diagnosis.measured import Measured
from minorm.diagnosis.pytorch import arrays
from minorm.diagnosis.pytorch.model import TorchModel
from minorm.diagnosis.records import Records, array_of
from minorm.diagnosis.subject import OurModel, Subject
from minorm.nn import Module
from minorm.support.argument_errors import kind_of


def subject_of(model: Any) -> Subject:
    """Return the Subject that runs a Module of minorm or of PyTorch; raise TypeError for any other model."""
    if isinstance(model, Module):
        return OurModel(model)
    if arrays.is_module(model):
        return TorchModel(model)
    raise TypeError(f"diagnose: model is a {kind_of(model)}; expected a Module, or a torch.nn.Module")


def measure(model: Any, images: Images, batch_size: int | None) -> Measured:
    """Run the model in evaluation (pass E) and as the reference (pass R).

    Return the measurements, and restore the model.
    """
    subject = subject_of(model)
    records = Records(subject.ranks(), subject.drifting(), subject.saved_in_training())
    logits: dict[str, list[Any]] = {"E": [], "R": []}
    with subject.borrowed():
        for which in ("E", "R"):
            if which == "E":
                subject.evaluation()
            else:
                subject.reference(records.folded())
            records.which = which
            for places, x in images.batches():
                records.first = places.start == 0
                with subject.watched(records.see):
                    y = subject.run(x)
                if records.failed:
                    raise ArithmeticError(records.failed)
                logits[which].append(array_of(y))
    whole = {which: np.concatenate(parts) for which, parts in logits.items()}
    norms, activations = [*records.norms.values()], [*records.activations.values()]
    return Measured(
        images, batch_size, norms, activations, [*records.affine.values()], whole, [*records.order],
        subject.framework, images.random,
    )  # fmt: skip
