"""The loop: it learns, it counts right, it stops at a loss that is no number, and evaluation changes nothing."""

from __future__ import annotations

import numpy as np
import pytest

import minorm as mn
from minorm import data, nn, optim
from minorm.training import NonFiniteLoss, evaluate, predict, train_epoch


def blobs(count: int = 96) -> data.ArrayDataset:
    """Three clouds of points, easy to tell apart."""
    rng = np.random.default_rng(0)
    labels = np.arange(count) % 3
    centers = np.array([[4, 0], [-4, 0], [0, 4]])
    return data.ArrayDataset((centers[labels] + rng.standard_normal((count, 2))).astype(np.float32), labels)


def small_model() -> nn.Module:
    return nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))


def test_an_epoch_counts_every_image_and_training_learns() -> None:
    model, loss_function = small_model(), nn.CrossEntropyLoss()
    optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    loader = data.DataLoader(blobs(), batch_size=16, shuffle=True)
    seen: list[int] = []
    scores = [
        train_epoch(model, loader, loss_function, optimizer, after_step=lambda s: seen.append(s.images))
        for _ in range(5)
    ]
    assert seen[:6] == [16, 32, 48, 64, 80, 96]
    assert scores[0].images == 96
    assert scores[-1].loss < scores[0].loss
    assert scores[-1].accuracy > 0.95
    assert scores[-1].images_per_second > 0
    assert evaluate(model, loader, loss_function).accuracy > 0.95


def test_the_schedule_moves_once_a_batch() -> None:
    model = small_model()
    optimizer = optim.SGD(model.parameters(), lr=1.0)
    scheduler = optim.lr_scheduler.StepLR(optimizer, step_size=3, gamma=0.1)
    train_epoch(model, data.DataLoader(blobs(), 16), nn.CrossEntropyLoss(), optimizer, scheduler)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.01)


def test_evaluation_is_right_and_changes_nothing() -> None:
    model, dataset = small_model(), blobs(50)
    model[1].running_mean.array[:] = 0.5
    before = {name: value.numpy().copy() for name, value in model.state_dict().items()}
    score = evaluate(model, data.DataLoader(dataset, 16), nn.CrossEntropyLoss())
    assert model.training
    for name, value in model.state_dict().items():
        np.testing.assert_array_equal(value.numpy(), before[name], err_msg=name)
    images, labels = dataset[:]
    logits = predict(model, mn.tensor(images))
    assert not logits.requires_grad
    loss = mn.functional.cross_entropy(logits, mn.tensor(labels)).item()
    assert score.loss == pytest.approx(loss, rel=1e-5)  # the last batch is smaller, and counts less
    assert score.accuracy == np.mean(logits.numpy().argmax(axis=1) == labels)


def test_evaluation_leaves_the_mode_after_an_error_too() -> None:
    model = small_model()
    with pytest.raises(
        TypeError, match=r"evaluate: a batch is a tuple of Tensor, Tensor, Tensor; expected \(inputs, ta"
    ):
        evaluate(model, [(mn.ones(1), mn.ones(1), mn.ones(1))], nn.MSELoss())
    assert model.training
    samples = [{"x": np.ones(2, np.float32), "y": 1}] * 3
    with pytest.raises(TypeError) as caught:
        train_epoch(model, data.DataLoader(samples, 3), nn.CrossEntropyLoss(), None)
    assert str(caught.value) == (
        "train_epoch: a batch is a dict with the keys ['x', 'y']; expected (inputs, targets), two Tensors; for other "
        "batches write a loop of your own"
    )


def test_a_loss_that_is_no_number_stops_before_the_step() -> None:
    model = small_model()
    before = [p.numpy().copy() for p in model.parameters()]
    dataset = blobs()
    dataset.arrays[0][20] = np.nan
    with pytest.raises(NonFiniteLoss) as caught:
        train_epoch(model, data.DataLoader(dataset, 16), nn.CrossEntropyLoss(), optim.SGD(model.parameters(), lr=0.0))
    assert str(caught.value) == (
        "the loss is nan after 16 images of this epoch; the inputs of this batch hold 2 NaN, the first at [4, 0]; "
        "check the data and their transforms"
    )
    for p, old in zip(model.parameters(), before, strict=True):
        np.testing.assert_array_equal(p.numpy(), old)
