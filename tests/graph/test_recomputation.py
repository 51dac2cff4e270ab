"""Nodes that dropped their state: nothing holds them longer than the graph does, and an error leaves them waiting."""

from __future__ import annotations

import gc
import weakref

import pytest

import minorm as mn
from minorm.graph.graph import serial
from minorm.graph.recomputation import Recomputation


def test_a_graph_that_is_dropped_goes_at_once() -> None:
    """Without the garbage collector: nodes hold what restores them, which holds them weakly."""
    x = mn.ones(3, requires_grad=True)
    gc.disable()
    try:
        y = mn.utils.checkpoint.checkpoint(lambda x: mn.utils.checkpoint.checkpoint(mn.exp, x * 2).tanh(), x)
        nodes = [weakref.ref(y.creator), weakref.ref(y.creator.edges[0][0])]
        y.sum().backward(retain_graph=True)
        assert all(node() is not None for node in nodes)
        del y
        assert all(node() is None for node in nodes)
    finally:
        gc.enable()


def test_an_error_leaves_the_nodes_waiting() -> None:
    x, calls = mn.ones(3, requires_grad=True), []

    def again() -> list[mn.Tensor]:
        calls.append(1)
        if len(calls) == 1:
            raise MemoryError("not yet")
        return [(x * 2).exp()]

    begun = serial()
    y = (x * 2).exp()
    Recomputation([y], begun, again)
    with pytest.raises(MemoryError):
        y.sum().backward()
    assert x.grad is None
    y.sum().backward()
    assert calls == [1, 1]
    assert x.grad.tolist() == pytest.approx([14.778112] * 3)


def test_nodes_before_stay_as_they_are() -> None:
    x = mn.ones(3, requires_grad=True)
    before = x.exp()
    kept = dict(vars(before.creator))
    begun = serial()
    y = before.tanh()
    Recomputation([y, before], begun, lambda: [before.tanh(), before])
    assert vars(before.creator) == kept
    assert y.creator.pending is not None
    y.sum().backward()
    assert x.grad is not None
