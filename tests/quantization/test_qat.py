"""A model that trains while it is rounded: what is prepared, what freezing does, its state, and its errors."""

from __future__ import annotations

import copy
import functools
from typing import Any

import numpy as np
import pytest

import minorm as mn
import minorm.functional as F
from minorm import models, nn
from minorm import quantization as Q
from tests.quantized_models import images, trained, zoo


def switched_off(qat: Any) -> Any:
    for key in qat.fake_quant:
        qat.fake_quant[key].disable_fake_quant()
    return qat


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", list(zoo()))
def test_without_rounding_it_is_the_model(name: str, training: bool) -> None:
    mn.manual_seed(1)
    model, shape = zoo()[name]
    for part in model.modules():
        if isinstance(part, nn.Dropout):
            part.p = 0.0
    x = images(*shape)
    qat = switched_off(Q.prepare_qat(model, x)).train(training)
    model.train(training)
    np.testing.assert_allclose(qat(x).array, model(x).array, atol=2e-5)
    for ours, own in zip(qat.model.buffers(), model.buffers(), strict=True):
        np.testing.assert_allclose(ours.array, own.array, atol=1e-5)


def test_the_model_given_stays_as_it_is_and_inplace_trains_it() -> None:
    x = images(4, 1, 8, 8)
    model = models.digits_cnn()
    before = copy.deepcopy(model.state_dict())
    qat = trained(model, x)
    for key, value in model.state_dict().items():
        np.testing.assert_array_equal(value.array, before[key].array)
    assert list(qat.model.state_dict()) == list(before)
    assert Q.prepare_qat(model, x, inplace=True).model is model


def test_where_a_network_is_rounded() -> None:
    """A residual sum's arms and the sum; not between a convolution, its BatchNorm and its ReLU."""
    qat = Q.prepare_qat(models.resnet20(), images(2, 3, 8, 8))
    keys = list(qat.fake_quant)
    assert [key for key in keys if key.startswith("3_")] == [
        "3_body_0_weight", "3_body_3_weight", "3_body_0", "3_body_3", "3_norm",
    ]  # fmt: skip
    assert sum(key.endswith("_weight") for key in keys) == 22


@pytest.mark.parametrize("learned", [False, True])
def test_training_lowers_the_loss(learned: bool) -> None:
    mn.manual_seed(0)
    x, t = images(32, 1, 8, 8), mn.arange(32) % 10
    qat = Q.prepare_qat(models.digits_cnn(), x, Q.get_default_qat_qconfig(learned=learned))
    optimizer = mn.optim.SGD(qat.parameters(), lr=0.05, momentum=0.9)
    losses = []
    for _ in range(12):
        loss = F.cross_entropy(qat(x), t)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.3 * losses[0]
    scales = [p for name, p in qat.named_parameters() if name.endswith("scale")]
    assert bool(scales) == learned
    assert all(p.grad is not None for p in scales)


def test_the_learned_scales_gradient_is_divided_by_the_root_of_elements_times_steps(rng: np.random.Generator) -> None:
    """LSQ, 2.2: g = 1 / sqrt(N Q_P), N the features of one sample."""
    x = rng.normal(size=(4, 25)).astype(np.float32)
    fake = Q.LearnedFakeQuantize(dtype=mn.int8, symmetric=True)
    fake(mn.tensor(x)).sum().backward()
    s = float(fake.scale.item())
    v = x.astype(np.float64) / s
    q = np.rint(v)
    slope = np.where(q < -128, -128, np.where(q > 127, 127, q - v)).sum()
    assert fake.scale.grad.item() == pytest.approx(slope / np.sqrt(25 * 127), rel=1e-3)


def test_frozen_statistics_stay_and_their_layer_goes_on_training() -> None:
    x = images(8, 1, 8, 8)
    qat = trained(models.digits_cnn(), x, steps=2, freeze=False).train()
    Q.freeze_bn_stats(qat)
    mean, weight = (t.array.copy() for t in (qat.model[1].running_mean, qat.model[1].weight))
    optimizer = mn.optim.SGD(qat.parameters(), lr=0.1)
    (qat(x) ** 2).mean().backward()
    optimizer.step()
    np.testing.assert_array_equal(qat.model[1].running_mean.array, mean)
    assert (qat.model[1].weight.array != weight).any()
    Q.update_bn_stats(qat)
    qat(x)
    assert (qat.model[1].running_mean.array != mean).any()


def test_from_the_freeze_on_training_computes_what_evaluation_does() -> None:
    x = images(8, 1, 8, 8)
    qat = trained(models.digits_cnn(), x)
    qat.freeze_observers()
    np.testing.assert_array_equal(qat.train()(x).array, qat.eval()(x).array)


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


def test_the_state_goes_into_another_model_and_training_goes_on_to_the_same_bits() -> None:
    x = images(8, 1, 8, 8)

    def step(model: Any) -> None:
        model.train()
        optimizer = mn.optim.SGD(model.parameters(), lr=0.1)
        optimizer.zero_grad()
        (model(x) ** 2).mean().backward()
        optimizer.step()

    for learned in (False, True):
        qconfig = Q.get_default_qat_qconfig(learned=learned)
        qat = trained(models.digits_cnn(), x, qconfig)
        other = Q.prepare_qat(models.digits_cnn(), x, qconfig)
        other.load_state_dict(qat.state_dict())
        assert other.bn_frozen.item() == 1
        step(qat)
        step(other)
        for key, value in qat.state_dict().items():
            np.testing.assert_array_equal(value.array, other.state_dict()[key].array)


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


def test_a_scale_is_not_rounded_to_the_type_of_what_passes() -> None:
    """1/3 has 8 bits in bfloat16, and its multiples would leave the grid that integers have."""
    fake = Q.FakeQuantize(Q.MinMaxObserver, dtype=mn.int8, symmetric=True)
    fake(mn.tensor([-42.5, 42.5]))  # 127.5 steps of a third
    x = np.linspace(-40, 40, 50).astype(np.float32)
    y = fake.eval()(mn.tensor(x).to(mn.bfloat16))
    assert y.dtype == mn.bfloat16
    want = np.rint(mn.tensor(x).to(mn.bfloat16).array.astype(np.float64) * 3) / 3
    np.testing.assert_array_equal(y.array, want.astype(y.array.dtype))


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


def weights(**others: Any) -> Q.QConfig:
    options = {"dtype": mn.int8, "symmetric": True, "quant_min": -127, **others}
    return Q.QConfig(Q.FakeQuantize, functools.partial(Q.FakeQuantize, Q.PerChannelMinMaxObserver, **options))


@pytest.mark.parametrize(
    ("qconfig", "words"),
    [
        (weights(quant_min=-128), r"makes int8, -128 to 127, symmetric with scales along axis 0; expected symmetric"),
        (weights(dtype=mn.uint8, quant_min=0), r"makes uint8, 0 to 255, symmetric"),
        (weights(symmetric=False), r"makes int8, -127 to 127, affine with scales along axis 0"),
        (weights(ch_axis=1), r"symmetric with scales along axis 1"),
        (
            Q.QConfig(functools.partial(Q.FakeQuantize, Q.PerChannelMinMaxObserver), Q.default_qat_qconfig.weight),
            r"qconfig.activation\(\) makes affine with scales along axis 0; expected one scale",
        ),
    ],
)
def test_a_qconfig_whose_integers_no_convolution_takes_is_refused(qconfig: Q.QConfig, words: str) -> None:
    with pytest.raises(ValueError, match=f"prepare_qat: .*{words}"):
        Q.prepare_qat(nn.Sequential(nn.Conv2d(1, 2, 3)), images(2, 1, 6, 6), qconfig)


class Twice(nn.Module):
    """Another number of operations in training."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 1, 1)

    def forward(self, x: mn.Tensor) -> mn.Tensor:
        return self.conv(x) if self.training else self.conv(self.conv(x).relu())


def test_errors_name_what_cannot_be_quantized() -> None:
    x = images(2, 1, 6, 6)
    with pytest.raises(ValueError, match=r"layer '1' is a ConvTranspose2d, whose weight cannot become integers"):
        Q.prepare_qat(nn.Sequential(nn.Conv2d(1, 2, 3), nn.ConvTranspose2d(2, 1, 3)), x)
    qat = Q.prepare_qat(nn.Sequential(nn.Conv2d(1, 2, 3), nn.ConvTranspose2d(2, 1, 3)), x, exclude=("1",))
    assert "1_weight" not in qat.fake_quant
    with pytest.raises(ValueError, match=r"exclude names 'head', which is no module of Sequential; expected one of 0"):
        Q.prepare_qat(nn.Sequential(nn.Conv2d(1, 2, 3)), x, exclude=("head",))
    with pytest.raises(ValueError, match="ReLU has no convolution and no linear layer to quantize"):
        Q.prepare_qat(nn.ReLU(), x)
    with pytest.raises(TypeError, match="model is a function; expected an nn"):
        Q.prepare_qat(lambda x: x, x)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="weight is float64; expected float32"):
        Q.prepare_qat(nn.Sequential(nn.Conv2d(1, 2, 3)).double(), x.double())
    with pytest.raises(TypeError, match=r"exclude is '10'; expected a tuple of paths, such as \('10',\)"):
        Q.prepare_qat(nn.Sequential(nn.Conv2d(1, 2, 3)), x, exclude="10")
    with pytest.raises(TypeError, match="model is a QATModel; expected a float model"):
        Q.prepare_qat(Q.prepare_qat(nn.Sequential(nn.Conv2d(1, 2, 3)), x), x)
    with pytest.raises(TypeError, match="example_inputs is int"):
        Q.prepare_qat(nn.Conv2d(1, 2, 3), 5)
    with pytest.raises(ValueError, match="activation='int4'; expected 'uint8' or 'int8'"):
        Q.get_default_qat_qconfig("int4")
    qat = Q.prepare_qat(Twice(), x).train()
    qat.eval()(x)
    with pytest.raises(RuntimeError, match="does the same for every input, and in training as in evaluation"):
        Q.prepare_qat(nn.Sequential(Twice(), nn.ReLU()), x).train()(x)
