"""Places of a loaded graph: nothing can be put in or taken out, for its nodes would not see it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

import minorm as mn
from minorm import nn

pytest.importorskip("onnx")

import minorm.onnx as mo


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2))
        self.scale = nn.Parameter(mn.ones(1))

    def forward(self, x: Any) -> Any:
        return self.body(x) * self.scale


def assign(name: str, value: Any) -> Callable[[Any], None]:
    return lambda module: setattr(module, name, value)


CHANGES: dict[str, Callable[[Any], Any]] = {
    "assign a place": assign("body", nn.Linear(1, 1)),
    "assign None": assign("body", None),
    "assign a layer below": lambda model: setattr(model.body, "1", nn.Identity()),
    "add a module": assign("head", nn.Linear(2, 2)),
    "add_module": lambda model: model.body.add_module("more", nn.ReLU()),
    "assign a Parameter": assign("scale", nn.Parameter(mn.ones(1))),
    "assign a Tensor": lambda model: setattr(model.body, "weight", mn.ones(1)),
    "register_parameter": lambda model: model.register_parameter("more", nn.Parameter(mn.ones(1))),
    "register_buffer": lambda model: model.body.register_buffer("more", mn.ones(1)),
    "delete a place": lambda model: delattr(model, "body"),
}


@pytest.mark.parametrize("copied", [False, True])
@pytest.mark.parametrize("change", CHANGES)
def test_a_loaded_graph_cannot_be_rebuilt(change: str, copied: bool) -> None:
    model = mo.load(mo.export(Net(), mn.randn(1, 1, 4, 4)))
    model = copy.deepcopy(model) if copied else model
    before = repr(model), list(model.state_dict())
    with pytest.raises(TypeError, match=r"nodes of a loaded graph would not use it.*outputs="):
        CHANGES[change](model)
    assert (repr(model), list(model.state_dict())) == before


def test_what_is_no_part_of_it_may_be_set() -> None:
    model = mo.load(mo.export(Net(), mn.randn(1, 1, 4, 4)))
    model.note = "mine"
    model.body.note = 3
    del model.note
    model.train().freeze()
    assert model.frozen
    assert model.body.note == 3
