"""diagnose blames a non-finite loss on the data before the parameters, and on those before the learning rate."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import minorm as mn
from minorm import data, nn, optim
from minorm.training import NonFiniteLoss, evaluate, train_epoch

CURE = "a lower learning rate is the usual cure"


def images(count: int = 8) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((count, 3, 4)).astype(np.float32)


def values(count: int = 8) -> np.ndarray:
    return np.random.default_rng(1).standard_normal((count, 2)).astype(np.float32)


def network() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(12, 6), nn.BatchNorm1d(6), nn.Linear(6, 2))


def message(
    model: nn.Module, x: Any, y: Any, loss_function: Callable[..., Any] | None = None, training: bool = True
) -> str:
    loader = data.DataLoader(data.ArrayDataset(x, y), 4)
    loss_function = loss_function or nn.MSELoss()
    with pytest.raises(NonFiniteLoss) as caught, np.errstate(all="ignore"):
        if training:
            train_epoch(model, loader, loss_function, optim.SGD(model.parameters(), lr=1e-3))
        else:
            evaluate(model, loader, loss_function)
    return str(caught.value)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({(6, 1, 2): np.nan}, "1 NaN, the first at [2, 1, 2]"),
        ({(4, 0, 0): np.inf}, "1 infinity, the first at [0, 0, 0]"),
        ({(5, 0, 1): -np.inf, (5, 0, 0): np.inf, (7, 2, 3): np.nan}, "1 NaN and 2 infinities, the first at [1, 0, 0]"),
    ],
)
def test_the_inputs_first(training: bool, changes: dict[Any, float], found: str) -> None:
    x, y, model = images(), values(), network()
    y[6] = np.nan
    for place, value in changes.items():
        x[place] = value
    text = message(model, x, y, training=training)
    assert text.startswith("the loss is ")
    assert f"after 4 images of this epoch; the inputs of this batch hold {found}; check the data" in text
    assert "learning rate" not in text


def test_then_the_targets() -> None:
    y = values()
    y[2, 1] = np.nan
    model = network()
    model[1].weight.array[0, 0] = np.nan
    assert message(model, images(), y) == (
        "the loss is nan after 0 images of this epoch; the targets of this batch hold 1 NaN, the first at [2, 1]; "
        "check the data and their transforms"
    )


@pytest.mark.parametrize("ignore_index", [-100, 1])
def test_a_batch_that_is_ignored_as_a_whole(ignore_index: int) -> None:
    loss_function = nn.CrossEntropyLoss(ignore_index=ignore_index)
    text = message(network(), images(), np.full(8, ignore_index), loss_function)
    assert f"every target of this batch is ignore_index={ignore_index}, so the loss is a mean over nothing" in text
    assert "learning rate" not in text
    text = message(network(), images(), np.full(8, -100), mn.functional.cross_entropy)
    assert "every target of this batch is ignore_index=-100" in text


def test_then_the_parameters() -> None:
    model = network()
    model[1].weight.array[2, 3] = np.nan
    model[3].bias.array[:] = np.inf
    assert message(model, images(), values()) == (
        "the loss is nan after 0 images of this epoch; the data are finite, but the parameter '1.weight' holds 1 NaN, "
        f"the first at [2, 3], the first of 2 such, so an earlier step went wrong; {CURE}"
    )


def test_then_the_buffers_in_evaluation() -> None:
    model = network()
    model[2].running_mean.array[1] = np.nan
    text = message(model, images(), values(), training=False)
    assert (
        "the data are finite, but the buffer '2.running_mean' holds 1 NaN, the first at [1], so an earlier step" in text
    )
    model = network()
    model[1].bias.array[0] = np.nan  # the forward pass writes it into the statistics; they are not to blame
    assert "the parameter '1.bias' holds" in message(model, images(), values())


def test_the_learning_rate_last() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 2))
    model[1].weight.array[:] = 1e30
    assert message(model, images() * np.float32(1e30), values()).endswith(
        f"; inputs, targets and parameters are finite, so numbers inside the model overflow; {CURE}"
    )


def test_a_step_too_long_is_still_blamed_on_the_learning_rate() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 2))
    loader = data.DataLoader(data.ArrayDataset(images(64), values(64)), 4)
    with pytest.raises(NonFiniteLoss, match=CURE), np.errstate(all="ignore"):
        train_epoch(model, loader, nn.MSELoss(), optim.SGD(model.parameters(), lr=1e30))
