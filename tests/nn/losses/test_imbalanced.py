"""Focal and Dice losses as layers: their options reach the function, and ONNX computes them."""

from __future__ import annotations

import numpy as np
import pytest

import minorm as mn
import minorm.functional as F
from minorm import nn

LOGITS = mn.tensor(np.random.default_rng(0).standard_normal((4, 3)))
LABELS = mn.tensor([0, 1, 2, -100])


def test_options_reach_the_function() -> None:
    weight = mn.tensor([1.0, 2.0, 3.0], dtype=mn.float64)
    layer = nn.FocalLoss(weight, gamma=1.5, reduction="none", label_smoothing=0.1)
    expected = F.focal_loss(LOGITS, LABELS, weight, gamma=1.5, reduction="none", label_smoothing=0.1)
    assert layer(LOGITS, LABELS).equal(expected)
    dice = nn.DiceLoss(smooth=0.5, reduction="sum")
    assert dice(LOGITS, LABELS).equal(F.dice_loss(LOGITS, LABELS, smooth=0.5, reduction="sum"))
    assert dict(layer.named_buffers())["weight"].equal(weight)
    with pytest.raises(ValueError, match="FocalLoss: reduction is 'all'"):
        nn.FocalLoss(reduction="all")


def test_onnxruntime_computes_them(tmp_path: object) -> None:
    ort = pytest.importorskip("onnxruntime")
    from minorm.onnx import export

    logits, wanted = (mn.tensor(np.random.default_rng(i).random((2, 3, 4)), dtype=mn.float32) for i in (1, 2))
    labels = mn.tensor(np.array([[0, 1, 2, 1], [2, 0, -100, 1]]))
    for name, layer, target in (
        ("focal", nn.FocalLoss(gamma=1.5), wanted),
        ("dice", nn.DiceLoss(), wanted),
        ("dice of labels", nn.DiceLoss(), labels),
    ):
        path = f"{tmp_path}/{name}.onnx"
        export(layer, (logits, target), path)
        session = ort.InferenceSession(path)
        given = dict(zip((i.name for i in session.get_inputs()), (logits.numpy(), target.numpy()), strict=True))
        np.testing.assert_allclose(session.run(None, given)[0], layer(logits, target).numpy(), rtol=1e-5)
