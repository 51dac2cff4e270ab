"""Sequential, ModuleList, ModuleDict."""

from __future__ import annotations

import re
from collections import OrderedDict

import pytest

import minorm as mn
from minorm import nn


def fails(error, message):
    return pytest.raises(error, match=re.escape(message))


def test_sequential_runs_and_indexes():
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    assert model(mn.ones(5, 3)).shape == (5, 2)
    assert len(model) == 3
    assert isinstance(model[1], nn.ReLU)
    assert model[-1] is list(model)[2]
    part = model[1:]
    assert isinstance(part, nn.Sequential)
    assert list(part.state_dict()) == ["2.weight", "2.bias"]
    assert part[1] is model[2]
    model.append(nn.Tanh())
    assert isinstance(model[3], nn.Tanh)
    model[1] = nn.Sigmoid()
    assert isinstance(model[1], nn.Sigmoid)
    del model[0]
    assert list(model.state_dict()) == ["1.weight", "1.bias"]
    model.insert(0, nn.Identity())
    assert list(model.state_dict()) == ["2.weight", "2.bias"]
    assert len(nn.Sequential()) == 0
    x = mn.ones(1)
    assert nn.Sequential()(x) is x


def test_sequential_of_names():
    model = nn.Sequential(OrderedDict(a=nn.Linear(1, 1), b=nn.ReLU()))
    assert list(model.state_dict()) == ["a.weight", "a.bias"]
    assert model.b is model[1]
    del model[0]
    assert [n for n, _ in model.named_children()] == ["b"]


def test_sequential_mistakes():
    with fails(TypeError, "Sequential: got one list; expected modules as separate arguments; unpack it"):
        nn.Sequential([nn.ReLU()])
    with fails(TypeError, "add_module: Sequential.1 got a type; expected an nn.Module or None"):
        nn.Sequential(nn.ReLU(), nn.ReLU)
    with fails(IndexError, "Sequential: index 1 is out of range for 1 modules"):
        nn.Sequential(nn.ReLU())[1]


def test_module_list():
    layers = nn.ModuleList(nn.Linear(2, 2) for _ in range(3))
    assert len(layers) == 3
    assert [n for n, _ in layers.named_parameters()][:2] == ["0.weight", "0.bias"]
    assert isinstance(layers[:2], nn.ModuleList)
    assert len(layers[1:]) == 2
    assert next(iter(layers[1:].state_dict())) == "0.weight"
    layers.extend([nn.ReLU()]).append(nn.Tanh())
    assert len(layers) == 5
    with fails(NotImplementedError, "ModuleList has no forward; loop over it, or use nn.Sequential"):
        layers(mn.ones(1))


def test_module_dict():
    layers = nn.ModuleDict({"a": nn.Linear(1, 1)})
    layers["b"] = nn.ReLU()
    assert list(layers) == list(layers.keys()) == ["a", "b"]
    assert next(iter(layers.values())) is layers["a"]
    assert dict(layers.items())["b"] is layers["b"]
    assert "a" in layers
    assert len(layers) == 2
    assert list(layers.state_dict()) == ["a.weight", "a.bias"]
    del layers["a"]
    with fails(KeyError, "ModuleDict has no module 'a'; it holds: b"):
        layers["a"]
    with fails(NotImplementedError, "ModuleDict has no forward"):
        layers(1)
