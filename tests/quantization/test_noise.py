"""Noise and the gap of folding, against formulas in float64."""

from __future__ import annotations

import numpy as np
import pytest

import minorm as mn
from minorm import models, nn
from minorm import quantization as Q
from tests.quantized_models import images, zoo


def test_the_gap_of_folding_is_that_of_the_statistics(rng: np.random.Generator) -> None:
    model = nn.Sequential(nn.Conv2d(1, 2, 1, bias=False), nn.BatchNorm2d(2, affine=False))
    x = mn.tensor(rng.normal(1, 2, (16, 1, 4, 4)).astype(np.float32))
    qat = Q.prepare_qat(model, x)
    y = model[0](x).array.astype(np.float64)
    wide = (1, -1, 1, 1)
    folded = y / np.sqrt(1 + 1e-5)  # running mean 0, variance 1
    mean, var = y.mean((0, 2, 3)), y.var((0, 2, 3))
    unfolded = (y - mean.reshape(wide)) / np.sqrt(var.reshape(wide) + 1e-5)
    want = np.sqrt(((folded - unfolded) ** 2).sum() / (folded**2).sum())
    assert Q.folding_gap(qat, [x])["1"] == pytest.approx(want, rel=1e-4)
    qat.model[1].running_mean.set_array(mean.astype(np.float32))
    qat.model[1].running_var.set_array(var.astype(np.float32))
    assert Q.folding_gap(qat, [x])["1"] < 1e-5


def test_noise_by_layer(rng: np.random.Generator) -> None:
    x = images(16, 1, 8, 8)
    qat = Q.calibrate(Q.prepare_qat(models.digits_cnn(), x), [x])
    rows = Q.measure_noise(qat, [x], lambda outputs: float(sum(y.array.sum() for y in outputs)))
    assert [row.name for row in rows] == ["0.weight", "3.weight", "7.weight", "12.weight"]
    w = qat.model[0].weight.array.astype(np.float64)
    s = np.abs(w).max((1, 2, 3), keepdims=True) / 127
    error = ((w - np.rint(w / s) * s) ** 2).sum()
    assert rows[0].weight == pytest.approx(10 * np.log10((w**2).sum() / error), abs=0.01)
    assert all(row.cost is not None and 20 < row.output < 60 for row in rows)


def test_the_noise_of_what_is_changed_in_place_afterwards() -> None:
    """y = a(x); y += b(x): the noise of a's output is not that of the sum."""
    mn.manual_seed(0)
    model, x = zoo()["in place"][0].eval(), images(6, 3, 8, 8)
    model.b.weight.set_array(100 * model.b.weight.array)
    qat = Q.calibrate(Q.prepare_qat(model, x), [x[:2], x[2:]])
    alone = Q.prepare_qat(nn.Sequential(model.a), x)
    for key, other in (("input", "input"), ("a_weight", "0_weight"), ("a", "0")):
        alone.fake_quant[other].load_state_dict(qat.fake_quant[key].state_dict())
    want, y = model.a(x).array.astype(np.float64), alone.eval()(x).array.astype(np.float64)
    rows = {row.name: row for row in Q.measure_noise(qat, [x[:2], x[2:]])}
    assert rows["a.weight"].output == pytest.approx(10 * np.log10((want**2).sum() / ((want - y) ** 2).sum()), abs=1e-3)


def test_what_is_measured_on_nothing_is_an_error() -> None:
    x = images(4, 1, 8, 8)
    qat = Q.calibrate(Q.prepare_qat(models.digits_cnn(), x), [x])
    assert len(Q.measure_noise(qat, (batch for batch in [x]))) == 4  # type: ignore[arg-type]
    for call in (Q.measure_noise, Q.folding_gap):
        with pytest.raises(ValueError, match=f"{call.__name__}: batches is empty"):
            call(qat, [])
        with pytest.raises(TypeError, match=f"{call.__name__}: model is a Linear; expected what prepare_qat returns"):
            call(nn.Linear(2, 2), [x])
    for call in (Q.measure_noise, Q.folding_gap, Q.calibrate):
        with pytest.raises(TypeError, match=r"batches is a Tensor; expected several Tensors, such as \[x\]"):
            call(qat, x)
