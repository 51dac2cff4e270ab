"""Settings: usual values where nothing is said, errors that name what was wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from minorm import models, nn
from minorm.training.settings import MODEL_FOR, Settings, load_data, loaders, make_optimizer, make_scheduler


def test_what_is_not_said_is_the_usual() -> None:
    assert [Settings(data=name).model for name in MODEL_FOR] == list(MODEL_FOR.values())
    assert [Settings(optimizer=name).lr for name in ("sgd", "adam", "adamw")] == [0.05, 0.003, 0.003]
    assert Settings(lr=0.5, model="resnet20").model == "resnet20"


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"data": "imagenet"}, "data is 'imagenet'; expected one of digits, mnist, fashion, cifar10"),
        ({"model": "vgg"}, "model is 'vgg'; expected one of digits, lenet"),
        ({"optimizer": "lamb"}, "optimizer is 'lamb'; expected one of sgd, adam, adamw"),
        ({"schedule": "none"}, "schedule is 'none'; expected one of constant"),
        ({"epochs": 0}, "epochs is 0; expected at least 1"),
        ({"batch_size": 0}, "batch_size is 0; expected at least 1"),
        ({"lr": -1.0}, "lr is -1.0; expected a positive number"),
        ({"lr": float("nan")}, "lr is nan; expected a positive number"),
        ({"weight_decay": -1.0}, "weight_decay is -1.0; expected 0 or a positive number"),
        ({"label_smoothing": 2.0}, "label_smoothing is 2.0; expected a number from 0 to 1"),
        ({"seed": -1}, "seed is -1; expected 0 or more"),
    ],
)
def test_wrong_settings(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Settings(**wrong)


def test_a_folder_is_needed_for_all_but_the_digits() -> None:
    with pytest.raises(ValueError, match="nothing is downloaded; say where it is: --path DIR"):
        load_data("mnist", None)


def test_digits_come_in_whole_batches_with_mean_0_and_deviation_1() -> None:
    pytest.importorskip("sklearn")
    train, test = loaders(Settings(batch_size=100), *load_data("digits", None))
    batches = [images.numpy() for images, _ in train]
    assert {len(batch) for batch in batches} == {100}
    assert abs(np.mean(batches)) < 0.02
    assert abs(np.std(batches) - 1) < 0.02
    assert sum(len(labels) for _, labels in test) == 359


def test_scales_and_biases_do_not_decay() -> None:
    model = models.digits_cnn()
    decaying, others = make_optimizer(Settings(weight_decay=0.1), model).param_groups
    assert (decaying["weight_decay"], others["weight_decay"]) == (0.1, 0.0)
    assert {p.ndim for p in decaying["params"]} == {2, 4}
    assert {p.ndim for p in others["params"]} == {1}


@pytest.mark.parametrize(
    ("schedule", "first", "last"),
    [("constant", 0.1, 0.1), ("step", 0.1, 0.001), ("cosine", 0.1, 0.0), ("onecycle", 0.004, 0.0)],
)
@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw"])
def test_schedules_run_from_the_first_step_to_the_last(
    schedule: str, first: float, last: float, optimizer: str
) -> None:
    settings = Settings(schedule=schedule, optimizer=optimizer, lr=0.1)
    model = nn.Linear(3, 3)
    optimizer_ = make_optimizer(settings, model)
    scheduler = make_scheduler(settings, optimizer_, 30)
    rates = []
    for _ in range(30):
        rates.append(optimizer_.param_groups[0]["lr"])
        for p in model.parameters():
            p.grad = p.detach()
        optimizer_.step()
        if scheduler is not None:
            scheduler.step()
    assert rates[0] == pytest.approx(first)
    assert rates[-1] == pytest.approx(last, abs=2e-3)
    assert max(rates) == pytest.approx(0.1, rel=0.01)
