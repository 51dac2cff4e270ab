"""EfficientNet-B0 against a twin in torch.nn, and which of its blocks are left out how often."""

from __future__ import annotations

import numpy as np
import pytest

import minorm as mn
from minorm import models, nn
from minorm.models.efficientnet import MBConv

torch = pytest.importorskip("torch")

from benchmarks import vision  # noqa: E402  after importorskip
from tests.models.networks import images, pair, same_evaluation, same_step, with_mean  # noqa: E402
from tests.models.undrawn import undrawn  # noqa: E402


@pytest.mark.parametrize(("channels", "kernel", "stride", "factor"), [(5, 5, 1, 6), (8, 3, 2, 6), (4, 3, 1, 1)])
def test_a_block(channels: int, kernel: int, stride: int, factor: int) -> None:
    sizes = (channels, 5, kernel, stride, factor)
    model, twin = pair(lambda **_: with_mean(nn, MBConv(*sizes, drop=0.0)), with_mean(torch.nn, vision.MBConv(*sizes)))
    same_evaluation(model, twin, images(2, 8, channels))
    same_step(model, twin, images(4, 8, channels))


def test_the_whole_network_in_evaluation() -> None:
    model, twin = pair(models.efficientnet_b0, vision.efficientnet_b0(classes=5))
    same_evaluation(model, twin, images(2, 32))


@pytest.mark.slow
def test_a_step_of_the_whole_network() -> None:
    model, twin = pair(models.efficientnet_b0, vision.efficientnet_b0(classes=5))
    same_step(model, twin, images(4, 64))


def test_later_blocks_are_left_out_more_often() -> None:
    with undrawn():
        model = models.efficientnet_b0(dropout=0.3, stochastic_depth_prob=0.4)
    layers = [layer for layer in model.modules() if isinstance(layer, nn.StochasticDepth)]
    assert [layer.p for layer in layers] == pytest.approx([0.4 * i / 16 for i in range(16)])
    assert {layer.mode for layer in layers} == {"row"}
    assert model.classifier[0].p == 0.3


def test_a_block_that_is_left_out_passes_its_input_on() -> None:
    block, x = MBConv(4, 4, 3, 1, 6, drop=1.0), mn.randn(2, 4, 8, 8)
    np.testing.assert_array_equal(block(x).numpy(), x.numpy())
    assert np.abs((block.eval()(x) - x).numpy()).max() > 1e-3
    block = MBConv(4, 8, 3, 1, 6, drop=1.0)  # without a shortcut it is never left out
    assert np.abs(block(x).numpy()).max() > 1e-3


def test_how_the_classifier_begins() -> None:
    weight = models.efficientnet_b0(num_classes=100).classifier[1].weight
    assert 0.099 < weight.abs().max().item() <= 0.1
    assert weight.std().item() == pytest.approx(0.1 / 3**0.5, rel=0.02)
    with pytest.raises(ValueError, match="EfficientNet: stochastic_depth_prob is -1; expected a probability"):
        models.efficientnet_b0(stochastic_depth_prob=-1)
