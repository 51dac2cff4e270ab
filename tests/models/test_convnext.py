"""ConvNeXt against a twin in torch.nn, which of its blocks are left out how often, and how its weights begin."""

from __future__ import annotations

import numpy as np
import pytest

import minorm as mn
from minorm import models, nn
from minorm.models.convnext import CNBlock, ConvNeXt

pytest.importorskip("torch")

from benchmarks import vision
from tests.models.networks import images, pair, same_evaluation, same_step
from tests.models.undrawn import undrawn


def test_a_narrow_network() -> None:
    widths, depths = (8, 12, 16, 20), (1, 1, 2, 1)
    model, twin = pair(
        lambda num_classes: ConvNeXt(widths, depths, num_classes=num_classes), vision.ConvNeXt(widths, depths, 5)
    )
    same_evaluation(model, twin, images(2, 32))
    same_step(model, twin, images(2, 64))


@pytest.mark.slow
def test_the_whole_network() -> None:
    model, twin = pair(models.convnext_tiny, vision.convnext_tiny(classes=5))
    same_evaluation(model, twin, images(2, 32))
    same_step(model, twin, images(2, 32))


def test_later_blocks_are_left_out_more_often() -> None:
    with undrawn():
        model = models.convnext_tiny(stochastic_depth_prob=0.3)
    layers = [layer for layer in model.modules() if isinstance(layer, nn.StochasticDepth)]
    assert [layer.p for layer in layers] == pytest.approx([0.3 * i / 17 for i in range(18)])
    assert {layer.mode for layer in layers} == {"row"}


def test_a_block_that_is_left_out_passes_its_input_on() -> None:
    block, x = CNBlock(4, drop=1.0), mn.randn(2, 4, 8, 8)
    nn.init.ones_(block.layer_scale)
    np.testing.assert_array_equal(block(x).numpy(), x.numpy())
    assert np.abs((block.eval()(x) - x).numpy()).max() > 1e-3


def test_one_block_in_all() -> None:
    model = ConvNeXt((8, 12), (1, 0), stochastic_depth_prob=0.5)
    assert [layer.p for layer in model.modules() if isinstance(layer, nn.StochasticDepth)] == [0.0]


def test_how_weights_begin() -> None:
    model = ConvNeXt((96, 192), (1, 1))
    assert model.features[2][1].weight.std().item() == pytest.approx(0.02, rel=0.03)
    assert model.classifier[2].weight.std().item() == pytest.approx(0.02, rel=0.03)
    assert not model.features[1][0].block[0].bias.numpy().any()
    assert model.features[1][0].layer_scale.shape == (96, 1, 1)
    np.testing.assert_array_equal(model.features[1][0].layer_scale.numpy(), np.float32(1e-6))
