"""The section on the worst images: each beside its Grad-CAM, which is that of the class it is taken for."""

from __future__ import annotations

import base64
import io
import re
from typing import Any

import numpy as np
import pytest

import minorm as mn
from minorm import nn
from minorm.cli.views import worst_images
from minorm.data import ArrayDataset, DataLoader, Normalize
from minorm.diagnosis import grad_cam
from minorm.training.files.outcome import outcome

NAMES = ["a", "<b>", "c"]


def loader_of(count: int = 12) -> DataLoader:
    rng = np.random.default_rng(0)
    images = rng.random((count, 1, 8, 8)).astype(np.float32)
    return DataLoader(ArrayDataset(images, rng.integers(0, 3, count)), 5, transform=Normalize([0.5], [0.2]))


def test_each_stands_beside_what_speaks_for_its_class() -> None:
    image = pytest.importorskip("PIL.Image")
    mn.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 6, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(24, 3))
    loader = loader_of()
    found = outcome(model, loader)
    text = worst_images.html(model, found, loader, NAMES)
    wrong = found.worst(99)
    drawn = [np.asarray(image.open(io.BytesIO(base64.b64decode(b)))) for b in re.findall('base64,([^"]+)', text)]
    assert len(drawn) == 2 * len(wrong)
    row = int(wrong[0])  # also its place among the images, as none is broken
    pixels = np.asarray(loader.dataset[row][0])
    assert np.array_equal(drawn[0], np.rint(pixels[0] * 255).astype(np.uint8))
    given = (mn.tensor(pixels)[None] - 0.5) / 0.2
    heat = grad_cam(model, given, target=int(found.predicted[row])).numpy()[0]
    mixed = (1 - 0.75 * heat) * drawn[0] + 0.75 * heat * np.array([230, 97, 0])[:, None, None]
    assert np.abs(drawn[1].transpose(2, 0, 1) - mixed).max() < 1
    assert "<b>&lt;b&gt;</b>" in text
    assert "<b><b>" not in text


class Numbers(nn.Module):
    """Leaves the graph: NumPy takes no Tensor that requires grad."""

    def forward(self, x: Any) -> Any:
        return mn.tensor(x.numpy()[:, :, 0, :3].sum(1))


@pytest.mark.parametrize(
    ("model", "why"),
    [
        (nn.Sequential(nn.Flatten(), nn.Linear(64, 3)), "the model has no feature maps N x C x height x width"),
        (Numbers(), ""),
    ],
)
def test_a_model_without_feature_maps_has_no_heat_and_says_why(model: nn.Module, why: str) -> None:
    loader = loader_of()
    found = outcome(model, loader)
    text = worst_images.html(model, found, loader, NAMES)
    assert f"There is no Grad-CAM: {why}" in text
    assert text.count("<img") == len(found.worst(99)) > 0


def test_where_all_are_right_there_is_no_section() -> None:
    class Right(nn.Module):
        def forward(self, x: Any) -> Any:
            return x.mean((1, 2, 3)).reshape(-1, 1) * mn.tensor([[-1.0, 1.0]])

    images = np.ones((4, 1, 8, 8), np.float32) * np.array([-1, 1, 1, -1])[:, None, None, None]
    loader = DataLoader(ArrayDataset(images.astype(np.float32), np.array([0, 1, 1, 0])), 4)
    assert worst_images.html(Right(), outcome(Right(), loader), loader, NAMES) == ""
