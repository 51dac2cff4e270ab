"""Lab 20: two networks of a kind for the student's `update`, and what became of them."""

from __future__ import annotations

from typing import Any

import minorm as mn
from minorm import nn

KINDS = ("linear", "images")


def prepare() -> None:
    """Build a network while files may be opened: some modules are imported when they are first needed."""
    for kind in KINDS:
        state(network(kind))


def network(kind: str) -> Any:
    """A network with the weights that it begins with."""
    mn.manual_seed(0)
    if kind == "linear":
        return nn.Sequential(nn.Linear(3, 2), nn.ReLU(), nn.Linear(2, 1, bias=False))
    return nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(12, 2))


def state(model: Any) -> dict[str, Any]:
    """Everything that a model has learned, as arrays."""
    return {name: value.numpy().copy() for name, value in model.state_dict().items()}


def averaged(module: Any, kind: str, states: list[dict[str, Any]], decay: float) -> dict[str, Any]:
    """The average after the student's update with each of these states but the first, where it begins, and the last.

    The last comes into the model afterwards, as if training went on. `models` are the model's states behind updates.
    """
    average, model = network(kind), network(kind)
    average.load_state_dict(states[0])
    models = []
    for values in states[1:-1]:
        model.load_state_dict(values)
        module.update(average, model, decay)
        models.append(state(model))
    found = state(average)
    model.load_state_dict(states[-1])
    return {"average": found, "models": models, "later": state(average)}
