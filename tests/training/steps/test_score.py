"""Score: accuracy is right / counted, of labels and of pixels; targets without classes have no accuracy."""

from __future__ import annotations

import numpy as np
import pytest

import minorm as mn
from minorm import data, nn, optim
from minorm.training import Score, evaluate, predict, train_epoch


def test_pixels_of_masks_count_one_each() -> None:
    rng = np.random.default_rng(0)
    images, masks = rng.standard_normal((10, 3, 8, 8)).astype(np.float32), rng.integers(0, 5, (10, 8, 8))
    model, loader = nn.Conv2d(3, 5, 1), data.DataLoader(data.ArrayDataset(images, masks), 4)
    score = evaluate(model, loader, nn.CrossEntropyLoss())
    right = predict(model, mn.tensor(images)).numpy().argmax(axis=1) == masks
    assert score.accuracy == right.mean()
    assert (score.correct, score.counted, score.images) == (right.sum(), 10 * 64, 10)


@pytest.mark.parametrize("ignore_index", [-100, 255, 2, 0])
def test_ignored_pixels_do_not_count(ignore_index: int) -> None:
    rng = np.random.default_rng(0)
    images, masks = rng.standard_normal((10, 3, 8, 8)).astype(np.float32), rng.integers(0, 5, (10, 8, 8))
    masks[rng.random(masks.shape) < 0.3] = ignore_index
    model, loader = nn.Conv2d(3, 5, 1), data.DataLoader(data.ArrayDataset(images, masks), 4)
    predicted = predict(model, mn.tensor(images)).numpy().argmax(axis=1)
    counted = masks != ignore_index
    expected = (predicted == masks)[counted].mean()
    loss_function = nn.CrossEntropyLoss(ignore_index=ignore_index)
    score = evaluate(model, loader, loss_function)
    assert score.accuracy == expected
    assert score.counted == counted.sum()
    optimizer = optim.SGD(model.parameters(), lr=0.0)
    assert train_epoch(model, loader, loss_function, optimizer).accuracy == expected
    if not 0 <= ignore_index < 5:  # a function does not say what it ignores, but this is no class

        def function(logits: mn.Tensor, labels: mn.Tensor) -> mn.Tensor:
            return mn.functional.cross_entropy(logits, labels, ignore_index=ignore_index)

        assert evaluate(model, loader, function).accuracy == expected


@pytest.mark.parametrize("outputs", [1, 2])
def test_a_regression_has_no_accuracy(outputs: int) -> None:
    rng = np.random.default_rng(0)
    values = rng.standard_normal((10, outputs)).astype(np.float32)
    dataset = data.ArrayDataset(rng.standard_normal((10, 3)).astype(np.float32), values)
    model, loader = nn.Linear(3, outputs), data.DataLoader(dataset, 4)
    score = evaluate(model, loader, nn.MSELoss())
    assert score.accuracy is None
    assert score.loss == pytest.approx(
        np.mean((predict(model, mn.tensor(dataset[:][0])).numpy() - values) ** 2), rel=1e-5
    )
    assert train_epoch(model, loader, nn.MSELoss(), optim.SGD(model.parameters(), lr=0.1)).accuracy is None


def test_soft_labels_and_several_outputs_have_no_accuracy() -> None:
    rng = np.random.default_rng(0)
    dataset = data.ArrayDataset(
        rng.standard_normal((6, 3)).astype(np.float32), rng.dirichlet(np.ones(4), 6).astype(np.float32)
    )
    assert evaluate(nn.Linear(3, 4), data.DataLoader(dataset, 3), nn.CrossEntropyLoss()).accuracy is None

    class Two(nn.Module):
        def forward(self, x: mn.Tensor) -> tuple[mn.Tensor, mn.Tensor]:
            return x, x * 2

    score = evaluate(Two(), data.DataLoader(dataset, 3), lambda outputs, _: (outputs[0] - outputs[1]).mean())
    assert score.accuracy is None
    assert score.images == 6


def test_an_empty_score_divides_by_nothing() -> None:
    score = Score()
    assert (score.loss, score.accuracy, score.images_per_second) == (0, 0, 0)


def test_a_score_shows_itself() -> None:
    model, loader = (
        nn.Linear(3, 4),
        data.DataLoader(data.ArrayDataset(np.ones((8, 3), np.float32), np.zeros(8, int)), 4),
    )
    score = evaluate(model, loader, nn.CrossEntropyLoss())
    assert repr(score).startswith(f"Score(8 images, loss={score.loss:.6g}, accuracy={score.accuracy:.4f}, ")
    assert repr(score).endswith(" images/s)")
