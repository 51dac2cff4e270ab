"""Whatever a state from outside holds: an error says what it is about, and nothing has changed."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import minorm as mn
from minorm import nn, optim
from minorm.data import DataLoader
from minorm.optim import lr_scheduler as schedules
from minorm.support.states import check_form, check_number

WRONG: list[Any] = [None, "x", -1, 1.5, float("nan"), 1 << 80, [], [1] * 9, {}, np.zeros(5), mn.zeros(2), True]
GONE = ...


def sgd() -> Any:
    return optim.SGD(nn.Linear(2, 1).parameters(), lr=0.1, momentum=0.9)


def stepped(kind: Any, **settings: Any) -> Any:
    model = nn.Linear(2, 1)
    optimizer = kind(model.parameters(), lr=0.1, **settings)
    optimizer.after = lambda: (model(mn.ones(1, 2)).sum().backward(), optimizer.step())
    optimizer.after()
    return optimizer


def sequential() -> Any:
    optimizer = sgd()
    return schedules.SequentialLR(
        optimizer, [schedules.ConstantLR(optimizer), schedules.ExponentialLR(optimizer, 0.9)], [2]
    )


MAKERS: dict[str, Callable[[], Any]] = {
    "Generator": lambda: mn.Generator().manual_seed(1),
    "random": lambda: mn.random,
    "SGD": lambda: stepped(optim.SGD, momentum=0.9),
    "Adam": lambda: stepped(optim.Adam, amsgrad=True),
    "RMSprop": lambda: stepped(optim.RMSprop),
    "StepLR": lambda: schedules.StepLR(sgd(), 2),
    "OneCycleLR": lambda: schedules.OneCycleLR(sgd(), 0.1, total_steps=10),
    "ReduceLROnPlateau": lambda: schedules.ReduceLROnPlateau(sgd()),
    "SequentialLR": sequential,
    "ChainedScheduler": lambda: schedules.ChainedScheduler([schedules.ConstantLR(sgd())]),
    "GradScaler": lambda: mn.amp.GradScaler("cpu"),
    "DataLoader": lambda: DataLoader(list(range(10)), batch_size=2, shuffle=True),
    "Linear": lambda: nn.Linear(2, 1),
}
USES: dict[str, Callable[[Any], Any]] = {
    "Generator": lambda g: mn.rand(5000, generator=g),
    "random": lambda _: mn.rand(5000),
    "ReduceLROnPlateau": lambda s: s.step(1.0),
    "GradScaler": lambda s: s.scale(mn.ones(1)),
    "DataLoader": len,
    "Linear": lambda m: m(mn.ones(1, 2)),
}


def state_of(made: Any) -> Any:
    found = made.get_state() if hasattr(made, "get_state") else made.state_dict()
    return {name: part.numpy() if isinstance(part, mn.Tensor) else part for name, part in found.items()}


def places(part: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    items = part.items() if isinstance(part, dict) else enumerate(part) if isinstance(part, list) else ()
    for key, value in items:
        yield from places(value, (*path, key))


def malformed(good: Any) -> Iterator[Any]:
    """Yield states that are wrong as a whole, or in which one part is wrong or missing."""
    yield from (wrong for wrong in WRONG if not isinstance(wrong, float))
    for path in places(good):
        for wrong in (*WRONG, GONE):
            state = copy.deepcopy(good)
            part = state
            for key in path[:-1]:
                part = part[key]
            if wrong is GONE:
                del part[path[-1]]
            else:
                part[path[-1]] = wrong
            yield state


def refusal(put: Callable[[Any], Any], state: Any) -> Exception | None:
    try:
        put(state)
    except (ValueError, TypeError, RuntimeError) as error:
        return error
    return None


@pytest.mark.parametrize("name", MAKERS)
def test_a_malformed_state_is_refused_in_words_and_loses_nothing(name: str) -> None:
    mn.manual_seed(1)
    made = MAKERS[name]()
    good = copy.deepcopy(state_of(made))
    put = made.set_state if hasattr(made, "set_state") else made.load_state_dict
    operation = {"Generator": "set_state: ", "random": "set_state: ", "Linear": "load_state_dict: "}.get(name, name)
    use = USES.get(name, lambda made: made.after() if hasattr(made, "after") else made.step())
    refused = 0
    for state in malformed(good):
        if (error := refusal(put, state)) is None:
            with np.errstate(invalid="ignore"):  # a decay of 1.5 is a number, if no good one
                use(made)
            put(copy.deepcopy(good))
        else:
            refused += 1
            assert operation in str(error), repr(error)
            np.testing.assert_equal(state_of(made), good)
    assert refused >= 20
    put(good)


def test_what_is_asked_of_a_form() -> None:
    like = {"count": 1, "rates": [0.1], "mode": "min", "on": False, "best": None, "parts": [{}]}
    good = {"count": 2.0, "rates": (1, np.float32(2)), "mode": "max", "on": True, "best": 1.0, "parts": []}
    check_form("f", good, like)
    for name, wrong, wanted in (
        ("count", "x", "count is 'x'; expected a number"),
        ("rates", [None], "rates is a list; expected a list of numbers"),
        ("mode", 1, "mode is 1; expected a str"),
        ("on", 1, "on is 1; expected a bool"),
        ("best", "x", "best is 'x'; expected None or a number"),
        ("parts", [1], "parts is a list; expected a list as state_dict"),
    ):
        with pytest.raises(ValueError, match=f"f: {wanted}"):
            check_form("f", good | {name: wrong}, like)
    check_number("f", "n", 3, 0, whole=True)
    for number in (-1, 0.5, 10**400, float("nan"), True):
        with pytest.raises(ValueError, match=r"f: n is .*; expected an int of at least 0"):
            check_number("f", "n", number, 0, whole=True)
