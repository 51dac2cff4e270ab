"""Test-time augmentation: the mean of probabilities over views, by NumPy; what takes a model takes it."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import minorm as mn
from minorm import nn
from minorm.training import TTA, evaluate, predict

IMAGES = np.random.default_rng(0).standard_normal((3, 2, 8, 8))


@pytest.fixture
def model() -> nn.Module:
    mn.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(128, 4)).to(mn.float64)


def shares(model: nn.Module, images: Any) -> Any:
    """softmax of the layer's outputs, in NumPy."""
    layer: Any = model[1]
    logits = images.reshape(len(images), -1) @ layer.weight.detach().numpy().T + layer.bias.detach().numpy()
    powers = np.exp(logits - logits.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


def turned(quarters: int) -> Any:
    return np.rot90(IMAGES, quarters, axes=(2, 3))


@pytest.mark.parametrize(
    ("views", "seen"),
    [
        ("hflip", [IMAGES, IMAGES[..., ::-1]]),
        ("vflip", [IMAGES, IMAGES[:, :, ::-1]]),
        ("hflip, vflip", [IMAGES, IMAGES[..., ::-1], IMAGES[:, :, ::-1], IMAGES[:, :, ::-1, ::-1]]),
        ("rotations", [turned(i) for i in range(4)]),
        ("rotations,hflip", [flipped for i in range(4) for flipped in (turned(i), turned(i)[..., ::-1])]),
    ],
)
def test_the_mean_over_views(model: nn.Module, views: str, seen: list[Any]) -> None:
    found = TTA(model, views)(mn.tensor(IMAGES))
    expected = np.mean([shares(model, np.ascontiguousarray(view)) for view in seen], axis=0)
    np.testing.assert_allclose(np.exp(found.detach().numpy()), expected, rtol=1e-12)


def test_crops_are_corners_and_middle_at_the_whole_size(model: nn.Module) -> None:
    torch = pytest.importorskip("torch")
    seen = [IMAGES]
    for top, left in ((0, 0), (0, 1), (1, 0), (1, 1), (0, 0)):
        window = torch.tensor(IMAGES[:, :, top : top + 7, left : left + 7])
        seen.append(torch.nn.functional.interpolate(window, (8, 8), mode="bilinear").numpy())
    expected = np.mean([shares(model, view) for view in seen], axis=0)
    found = TTA(model, "crops")(mn.tensor(IMAGES))
    np.testing.assert_allclose(np.exp(found.detach().numpy()), expected, rtol=1e-9)


def test_evaluate_and_predict_take_it(model: nn.Module) -> None:
    labels = np.array([0, 3, 1])
    p = np.mean([shares(model, IMAGES), shares(model, IMAGES[..., ::-1].copy())], axis=0)
    model.train(False)
    asked = TTA(model)
    score = evaluate(asked, [(mn.tensor(IMAGES), mn.tensor(labels))], nn.CrossEntropyLoss())
    assert score.loss == pytest.approx(-np.log(p[range(3), labels]).mean(), rel=1e-12)
    assert score.accuracy == (p.argmax(1) == labels).mean()
    found = predict(asked, mn.tensor(IMAGES))
    np.testing.assert_allclose(mn.functional.softmax(found, dim=1).numpy(), p, rtol=1e-12)
    assert not model.training, "the mode stays"


def test_an_impossible_class_stays_finite_and_16_bits_become_float32() -> None:
    class Sure(nn.Module):
        def forward(self, x: Any) -> Any:
            return (mn.tensor([[200.0, -200.0]] * len(x), dtype=mn.bfloat16), None)

    found = TTA(Sure())(mn.zeros(2, 1, 4, 4))
    assert found.dtype == mn.float32
    assert np.isfinite(found.numpy()).all()


def test_a_model_that_gives_probabilities(model: nn.Module) -> None:
    ending = nn.Sequential(model[0], model[1], nn.Softmax(dim=1))
    found, expected = TTA(ending, "vflip", True)(mn.tensor(IMAGES)), TTA(model, "vflip")(mn.tensor(IMAGES))
    np.testing.assert_allclose(found.detach().numpy(), expected.detach().numpy(), rtol=1e-12)


@pytest.mark.parametrize("views", ["flip", "", "hflip,hflip", "hflip,,crops"])
def test_unknown_views(model: nn.Module, views: str) -> None:
    with pytest.raises(
        ValueError, match=re.escape(f"TTA: views is {views!r}; expected one or more of hflip, vflip, rotations, crops")
    ):
        TTA(model, views)


def test_rotations_are_of_squares(model: nn.Module) -> None:
    with pytest.raises(
        ValueError, match=re.escape("TTA: images have shape (1, 2, 4, 8); expected (N, channels, H, W)")
    ):
        TTA(model, "rotations")(mn.zeros(1, 2, 4, 8))
