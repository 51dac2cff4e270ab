"""Scales without training: those of what the float model computes, and a model that stays as it was."""

from __future__ import annotations

import numpy as np
import pytest

from minorm import models
from minorm import quantization as Q
from tests.quantized_models import images


def test_calibration_gives_scales_without_training() -> None:
    x = images(8, 1, 8, 8)
    model = models.digits_cnn()
    qat = Q.calibrate(Q.prepare_qat(model, x), [x, (x, None)])
    assert qat.has_scales
    assert qat.training
    assert qat.fake_quant["input"].scale.item() == pytest.approx((x.max() - x.min()).item() / 255, rel=1e-5)
    for key, value in model.state_dict().items():
        np.testing.assert_array_equal(value.array, qat.model.state_dict()[key].array)
    with pytest.raises(ValueError, match="batches is empty"):
        Q.calibrate(qat, [])
    with pytest.raises(TypeError, match="model is a Sequential; expected what prepare_qat returns"):
        Q.calibrate(model, [x])  # type: ignore[arg-type]
