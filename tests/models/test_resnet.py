"""ResNets against twins in torch.nn, and what is random or optional in them."""

from __future__ import annotations

import numpy as np
import pytest

import minorm as mn
from minorm import models, nn
from minorm.models.resnet import BasicBlock, Bottleneck, ResNet

pytest.importorskip("torch")

from benchmarks import vision
from tests.models.networks import images, pair, same_evaluation, same_step
from tests.models.undrawn import undrawn

WHOLE = {
    "resnet18": (models.resnet18, vision.resnet18),
    "resnet34": (models.resnet34, vision.resnet34),
    "resnet50": (models.resnet50, vision.resnet50),
}


@pytest.mark.parametrize("bottleneck", [False, True], ids=["basic", "bottleneck"])
def test_one_block_a_stage(bottleneck: bool) -> None:
    block = Bottleneck if bottleneck else BasicBlock
    model, twin = pair(
        lambda num_classes: ResNet(block, (1, 2, 1, 1), num_classes), vision.ResNet((1, 2, 1, 1), bottleneck, 5)
    )
    same_evaluation(model, twin, images(2, 32))
    same_step(model, twin, images(4, 32))


@pytest.mark.slow
@pytest.mark.parametrize("name", WHOLE)
def test_whole_networks(name: str) -> None:
    make, twin = WHOLE[name]
    model, other = pair(make, twin(classes=5))
    same_evaluation(model, other, images(2, 32))
    same_step(model, other, images(4, 32))


def test_zero_init_residual_makes_blocks_the_identity() -> None:
    for block in (BasicBlock, Bottleneck):
        model = ResNet(block, (2, 1, 1, 1), 5, zero_init_residual=True).eval()
        x = mn.randn(2, 64 * block.expansion, 8, 8).relu()
        np.testing.assert_array_equal(model.layer1[1](x).numpy(), x.numpy())


def test_weights_begin_with_variance_2_by_fan_out() -> None:
    model = ResNet(Bottleneck, (1, 1, 1, 1))
    for layer in model.modules():
        if isinstance(layer, nn.Conv2d) and layer.weight.numel() > 100_000:
            fan_out = layer.out_channels * layer.kernel_size[0] ** 2
            assert layer.weight.std().item() == pytest.approx((2 / fan_out) ** 0.5, rel=0.02)


def test_what_it_refuses() -> None:
    with undrawn(), pytest.raises(ValueError, match="ResNet: num_classes is 0; expected at least 1"):
        models.resnet18(num_classes=0)
    with pytest.raises(TypeError, match=r"ResNet: channels is 1\.5; expected an int"):
        models.resnet50(channels=1.5)  # type: ignore[arg-type]
