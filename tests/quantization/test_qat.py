"""A model that trains while it is rounded: its preparation, its freeze, its state, and its errors."""

from __future__ import annotations

import copy
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


class Twice(nn.Module):
    """Another number of operations in training."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 1, 1)

    def forward(self, x: mn.Tensor) -> mn.Tensor:
        return self.conv(x) if self.training else self.conv(self.conv(x).relu())


def test_errors_name_what_cannot_be_quantized() -> None:
    x = images(2, 1, 6, 6)
    with pytest.raises(
        ValueError, match=r"layer '1' is a ConvTranspose2d, whose weight cannot be converted to integers"
    ):
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
    qat = Q.prepare_qat(Twice(), x).train()
    qat.eval()(x)
    with pytest.raises(RuntimeError, match="the same operations for every input, in training and in evaluation"):
        Q.prepare_qat(nn.Sequential(Twice(), nn.ReLU()), x).train()(x)
