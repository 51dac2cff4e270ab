"""MobileNetV2 against a twin in torch.nn, its dropout and its first weights."""

from __future__ import annotations

import pytest

import minorm as mn
from minorm import models, nn
from minorm.models.mobilenet import InvertedResidual

torch = pytest.importorskip("torch")

from benchmarks import vision  # noqa: E402  after importorskip
from tests.models.networks import images, pair, same_evaluation, same_step  # noqa: E402


class Block(nn.Module):
    """One block, and the mean over the image, so that a step of it is one of a network's."""

    def __init__(self, num_classes: int, channels: int, stride: int, factor: int) -> None:
        super().__init__()
        self.block = InvertedResidual(channels, num_classes, stride, factor)

    def forward(self, x: mn.Tensor) -> mn.Tensor:
        return self.block(x).mean((2, 3))


def twin_of(channels: int, stride: int, factor: int) -> torch.nn.Module:
    class Twin(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block = vision.Inverted(channels, 5, stride, factor)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.block(x).mean((2, 3))

    return Twin()


@pytest.mark.parametrize(("channels", "stride", "factor"), [(5, 1, 6), (5, 2, 6), (4, 1, 1)])
def test_a_block(channels: int, stride: int, factor: int) -> None:
    model, twin = pair(Block, twin_of(channels, stride, factor), channels=channels, stride=stride, factor=factor)
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
