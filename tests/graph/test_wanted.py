"""Wanted finds what leads to the Tensors that are asked for."""

from __future__ import annotations

import pytest

import minorm as mn
from minorm.graph.wanted import Wanted, place_of


def test_what_leads_to_a_leaf_and_what_passes_it_by() -> None:
    x, w = (mn.ones(2, requires_grad=True) for _ in range(2))
    a, b = x * 2, w * 2
    y = a * b
    wanted = Wanted([x], [y])
    assert wanted.has(*place_of_parts(y))
    assert wanted.has(x, 0)
    assert not wanted.has(w, 0)
    assert y.creator is not None
    assert wanted.among(y.creator.edges) == (True, False)


def place_of_parts(tensor: mn.Tensor) -> tuple[object, int]:
    source = tensor if tensor.creator is None else tensor.creator
    assert place_of(tensor) == (id(source), tensor.output_index)
    return source, tensor.output_index


def test_one_output_of_several() -> None:
    x = mn.ones(3, requires_grad=True)
    values, places = x.sort()
    first, second = (values * values).split([1, 2])
    wanted = Wanted([first], [second.sum() + first.sum()])
    assert wanted.has(*place_of_parts(first))
    assert not wanted.has(*place_of_parts(second))
    assert not places.requires_grad


def test_a_graph_may_be_deeper_than_a_stack() -> None:
    x = mn.ones(1, requires_grad=True)
    y = x
    for _ in range(5000):
        y = y * 1.0
    assert Wanted([x], [y]).has(*place_of_parts(y))


def test_behind_what_was_freed_nothing_is_known() -> None:
    x, w = (mn.ones(2, requires_grad=True) for _ in range(2))
    part = x.exp()
    part.sum().backward()
    with pytest.raises(RuntimeError, match="graph of Exp was freed"):
        Wanted([w], [(part * w).sum()])
