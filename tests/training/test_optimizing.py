"""The optimizer's groups, schedules from the first step to the last, and the average of the weights."""

from __future__ import annotations

import numpy as np
import pytest

import minorm as mn
from minorm import models, nn
from minorm.quantization import QATModel
from minorm.training.optimizing import (
    averaged,
    begin_epoch,
    first_frozen,
    is_ready,
    make_optimizer,
    make_scheduler,
    prepared,
)
from minorm.training.settings import Settings


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


@pytest.mark.parametrize("schedule", ["constant", "step", "cosine", "onecycle"])
def test_a_warm_up_rises_to_the_largest_rate(schedule: str) -> None:
    settings = Settings(schedule=schedule, lr=0.1, epochs=5, warmup_epochs=2)
    model = nn.Linear(3, 3)
    optimizer = make_optimizer(settings, model)
    scheduler = make_scheduler(settings, optimizer, 50)
    rates = []
    for _ in range(50):
        rates.append(optimizer.param_groups[0]["lr"])
        scheduler.step()
    assert 0 < rates[0] <= 0.01
    assert rates[:20] == sorted(rates[:20])
    assert max(rates) == pytest.approx(0.1)
    assert rates.index(max(rates)) in (19, 20)
    assert max(rates[21:]) <= 0.1 + 1e-9
    again = make_scheduler(settings, make_optimizer(settings, model), 50)
    again.load_state_dict(scheduler.state_dict())
    assert again.get_last_lr() == scheduler.get_last_lr()


def test_the_average_follows_its_formula() -> None:
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    average = averaged(Settings(ema=0.9), model)
    assert average is not None
    wanted = np.zeros(())
    for n in range(60):
        for tensor in (*model.parameters(), model[1].running_mean):
            tensor.array[...] = n
        model[1].num_batches_tracked.array[...] = n
        average.update_parameters(model)
        decay = min(0.9, (1 + n) / (10 + n)) if n else 0
        wanted = wanted * decay + n * (1 - decay)
    for found in (average.module[0].weight, average.module[1].running_mean):
        assert np.allclose(found.numpy(), wanted, rtol=1e-5)
    assert average.module[1].running_mean.dtype == mn.float32
    assert averaged(Settings(), model) is None


@pytest.mark.parametrize(("epochs", "first"), [(1, 1), (2, 2), (4, 3), (8, 6), (10, 8)])
def test_the_last_quarter_of_a_run_with_qat_is_frozen(epochs: int, first: int) -> None:
    assert first_frozen(epochs) == first
    model = prepared(Settings(qat="int8"), models.digits_cnn(), 1, 8)
    assert isinstance(model, QATModel)
    begin_epoch(model, first - 1, epochs)
    assert not model.bn_frozen.item()
    assert model.fake_quant["input"].observer_enabled.item()
    begin_epoch(model, first, epochs)
    assert model.bn_frozen.item()
    assert not model.fake_quant["input"].observer_enabled.item()
    assert model.fake_quant["0_weight"].observer_enabled.item()


def test_without_qat_the_model_stays_what_it_is() -> None:
    model = models.digits_cnn()
    assert prepared(Settings(), model, 1, 8) is model
    begin_epoch(model, 7, 8)
    assert not is_ready(model)
    assert not is_ready(prepared(Settings(qat="uint8"), model, 1, 8)), "no batch has passed"


@pytest.mark.parametrize("schedule", ["onecycle", "cosine", "step", "constant"])
@pytest.mark.parametrize(("freeze", "warmup"), [(1, 0), (1, 1), (1, 2), (2, 0), (2, 1), (2, 2)])
def test_the_schedule_begins_again_at_the_thaw(schedule: str, freeze: int, warmup: int) -> None:
    """The rates are those of two runs; the first has a last epoch without warm-up."""

    def rates(epochs: int, freeze: int, warmup: int) -> list[float]:
        settings = Settings(epochs=epochs, freeze=freeze, schedule=schedule, warmup_epochs=warmup)
        optimizer = make_optimizer(settings, nn.Linear(2, 2))
        scheduler, found = make_scheduler(settings, optimizer, 5 * epochs), list[float]()
        for _ in range(5 * epochs):
            found.append(optimizer.param_groups[0]["lr"])
            if scheduler is not None:
                scheduler.step()
        return found

    assert rates(6, freeze, warmup) == rates(freeze, 0, min(warmup, freeze - 1)) + rates(6 - freeze, 0, warmup)
