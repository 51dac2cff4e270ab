"""MobileNetV2 against a twin in torch.nn, its dropout and its first weights."""

from __future__ import annotations

import pytest

from minorm import models, nn
from minorm.models.mobilenet import InvertedResidual

torch = pytest.importorskip("torch")

from benchmarks import vision  # noqa: E402  after importorskip
from tests.models.networks import images, pair, same_evaluation, same_step, with_mean  # noqa: E402


@pytest.mark.parametrize(("channels", "stride", "factor"), [(5, 1, 6), (5, 2, 6), (4, 1, 1)])
def test_a_block(channels: int, stride: int, factor: int) -> None:
    sizes = (channels, 5, stride, factor)
    model, twin = pair(
        lambda **_: with_mean(nn, InvertedResidual(*sizes)), with_mean(torch.nn, vision.Inverted(*sizes))
    )
    same_evaluation(model, twin, images(2, 8, channels))
    same_step(model, twin, images(4, 8, channels))


def test_the_whole_network_in_evaluation() -> None:
    model, twin = pair(models.mobilenet_v2, vision.mobilenet_v2(classes=5))
    same_evaluation(model, twin, images(2, 32))


@pytest.mark.slow
def test_a_step_of_the_whole_network() -> None:
    model, twin = pair(models.mobilenet_v2, vision.mobilenet_v2(classes=5))
    same_step(model, twin, images(4, 64))


def test_how_the_classifier_begins() -> None:
    model = models.mobilenet_v2(dropout=0.4)
    assert model.classifier[0].p == 0.4
    assert model.classifier[1].weight.std().item() == pytest.approx(0.01, rel=0.02)
    assert not model.classifier[1].bias.numpy().any()
    with pytest.raises(ValueError, match="MobileNetV2: dropout is 2; expected a probability, 0 <= dropout <= 1"):
        models.mobilenet_v2(dropout=2)
