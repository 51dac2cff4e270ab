"""The small networks: one definition for two libraries, and what they compute."""

from __future__ import annotations

import numpy as np
import pytest

import minorm as mn
from minorm import models

SHAPES = {"digits": (1, 8), "lenet": (1, 28), "resnet20": (3, 32), "norms": (3, 32)}


@pytest.mark.parametrize("name", SHAPES)
def test_logits_of_every_model(name: str) -> None:
    channels, size = SHAPES[name]
    model = models.build(name, channels, size, 7)
    assert model(mn.randn(2, channels, size, size)).shape == (2, 7)


@pytest.mark.parametrize("name", SHAPES)
def test_state_dict_keys_and_shapes_are_those_of_torch(name: str) -> None:
    torch = pytest.importorskip("torch")
    channels, size = SHAPES[name]
    ours = models.build(name, channels, size, 10).state_dict()
    theirs = models.build(name, channels, size, 10, torch.nn).state_dict()
    assert {k: v.shape for k, v in ours.items()} == {k: tuple(v.shape) for k, v in theirs.items()}
    assert list(ours) == list(theirs)


def test_sizes_of_the_published_networks() -> None:
    def weights(name: str) -> int:
        return sum(p.numel() for p in models.build(name, *SHAPES[name], 10).parameters())

    assert weights("resnet20") == pytest.approx(0.27e6, rel=0.02)  # He et al. 2015, table 6
    assert weights("digits") < 30_000


def test_every_convolution_before_a_normalization_has_no_bias() -> None:
    for name, (channels, size) in SHAPES.items():
        model = models.build(name, channels, size, 10)
        assert all(m.bias is None for m in model.modules() if type(m).__name__ == "Conv2d")
        assert np.isfinite(model(mn.randn(2, channels, size, size)).numpy()).all()
