"""Recording: the tree of calls that ran, with arguments by name, and nothing outside a trace."""

from __future__ import annotations

import threading

import pytest

import minorm as mn
from minorm.graph import trace
from minorm.ops.elementwise import Add, Mul
from minorm.support.argument_errors import named_arguments


@trace.operation
def doubled_plus(x, y=1.0, *, times=2):
    for _ in range(times - 1):
        x = x + x
    return x + y


def test_functions_are_recorded_in_order_with_named_arguments() -> None:
    a, b = mn.ones(2), mn.ones(2)
    with trace.record() as calls:
        c = a * b
        d = c + a
    assert [call.target for call in calls] == [Mul, Add]
    assert list(calls[0].arguments) == ["a", "b"]
    assert calls[0].arguments["b"] is b
    assert calls[0].result is c
    assert calls[1].arguments["a"] is c
    assert calls[1].result is d


def test_an_operation_is_one_call_with_children_and_defaults() -> None:
    x = mn.ones(2)
    with trace.record() as calls:
        y = doubled_plus(x)
    (call,) = calls
    assert call.target is doubled_plus
    assert call.arguments["x"] is x
    assert call.arguments["y"] == 1.0
    assert call.arguments["times"] == 2
    assert call.result is y
    assert [child.target for child in call.children] == [Add, Add]


def test_an_error_inside_leaves_the_trace_usable() -> None:
    with trace.record() as calls:
        with pytest.raises(ValueError, match="do not broadcast"):
            doubled_plus(mn.ones(2), mn.ones(3))
        doubled_plus(mn.ones(2))
    assert len(calls) == 2


def test_traces_nest_and_end() -> None:
    with trace.record() as outer:
        with trace.record() as inner:
            mn.ones(1) + mn.ones(1)
        mn.ones(1) * mn.ones(1)
    mn.ones(1) + 1
    assert [len(outer), len(inner)] == [1, 1]
    assert trace.state.calls is None


def test_another_thread_is_not_recorded() -> None:
    with trace.record() as calls:
        thread = threading.Thread(target=lambda: mn.ones(1) + 1)
        thread.start()
        thread.join()
    assert calls == []


def test_a_decorated_function_keeps_its_name_and_signature() -> None:
    assert doubled_plus.__name__ == "doubled_plus"
    assert list(named_arguments(doubled_plus, (1,), {})) == ["x", "y", "times"]
