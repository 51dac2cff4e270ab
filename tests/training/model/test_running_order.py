"""Layers in running order, against the networks as they are written; freezing and thawing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minorm as mn
from minorm import models, nn
from minorm.training.model.running_order import GROUPS, Freezing, Layers

FORMS = {"digits": (1, 8), "lenet": (1, 28), "resnet20": (3, 32), "norms": (3, 32)}


class Backwards(nn.Module):
    """Runs its layers in another order than it holds them, one as a function."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 3)
        self.unused = nn.Linear(7, 7)
        self.second = nn.Parameter(mn.ones(4, 4, 1, 1))
        self.first = nn.Conv2d(1, 4, 3)
        self.norm = nn.BatchNorm2d(4)

    def forward(self, x: Any) -> Any:
        x = nn.functional.conv2d(self.norm(self.first(x)), self.second)
        return self.head(x.mean((2, 3)))


@pytest.mark.parametrize("name", list(FORMS))
def test_the_head_is_the_last_layer_and_every_parameter_is_in_one_group(name: str) -> None:
    channels, size = FORMS[name]
    model = models.build(name, channels, size, 5)
    found = Layers(model, channels, size)
    last = len(model) - 1
    assert found.names == [f"{last}.weight", f"{last}.bias"]
    groups = found.by_depth()
    assert len(groups) <= GROUPS + 1
    assert sorted(id(p) for group in groups for p in group) == sorted(id(p) for p in model.parameters())
    assert groups[0] == found.head
    assert model[0].weight is groups[-1][0]


def test_the_order_is_that_in_which_layers_run() -> None:
    model = Backwards()
    found = Layers(model, 1, 8)
    assert found.names == ["head.weight", "head.bias"]
    first, second = found.body
    assert [id(p) for p in second] == [id(model.second)]
    seen = [model.first.weight, model.first.bias, model.norm.weight, model.norm.bias, *model.unused.parameters()]
    assert [id(p) for p in first] == [id(p) for p in seen]
    assert [len(group) for group in found.by_depth()] == [2, 1, 6]


def test_a_model_that_ends_with_another_layer_has_no_head() -> None:
    found = Layers(nn.Sequential(nn.Conv2d(1, 4, 1), nn.Conv2d(4, 2, 3)), 1, 8)
    assert found.head == []
    with pytest.raises(ValueError, match=r"freeze=1 needs a head, but the model has none; .* The last weights are "
                       r"0\.weight \(4, 1, 1, 1\), 1\.weight \(2, 4, 3, 3\)"):  # fmt: skip
        found.check_head("freeze=1")


def test_looking_changes_nothing() -> None:
    model = models.digits_cnn().train()
    model[1].eval()
    before = {name: value.numpy().copy() for name, value in model.state_dict().items()}
    Layers(model, 1, 8)
    assert [module.training for module in model[:3]] == [True, False, True]
    assert all(np.array_equal(value.numpy(), before[name]) for name, value in model.state_dict().items())


def test_what_was_frozen_before_stays_so_when_the_rest_thaws() -> None:
    model = models.digits_cnn()
    model[1].freeze()
    model[3].weight.requires_grad = False
    freezing = Freezing(model, model[12].parameters())
    assert freezing.set(True)
    assert not freezing.set(True)
    assert [name for name, p in model.named_parameters() if p.requires_grad] == ["12.weight", "12.bias"]
    assert not model.frozen
    assert not model[12].frozen
    assert all(model[place].frozen for place in range(12))
    assert freezing.set(False)
    frozen = [name for name, p in model.named_parameters() if not p.requires_grad]
    assert frozen == ["1.weight", "1.bias", "3.weight"]
    assert [place for place in range(13) if model[place].frozen] == [1]
