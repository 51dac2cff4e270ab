"""no_grad and its kin: as blocks, as decorators with and without parentheses, and for good."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import minorm as mn


@pytest.mark.parametrize("mode", [mn.no_grad, mn.inference_mode, lambda: mn.set_grad_enabled(False)])
def test_a_block_and_a_decorator(mode: Callable[[], Any]) -> None:
    x = mn.ones(2, requires_grad=True)
    with mode():
        assert not mn.is_grad_enabled()
        assert not (x * 2).requires_grad
    assert (x * 2).requires_grad
    double = mode()(lambda y: y * 2)
    assert mn.is_grad_enabled()
    assert not double(x).requires_grad
    assert (x * 2).requires_grad


def test_a_decorator_without_parentheses() -> None:
    x = mn.ones(2, requires_grad=True)
    for mode in (mn.no_grad, mn.inference_mode):
        assert not mode(lambda y: y * 2)(x).requires_grad
    with mn.no_grad():
        assert mn.enable_grad(lambda y: y * 2)(x).requires_grad
        assert (mn.inference_mode(False)(lambda y: y * 2))(x).requires_grad


def test_set_grad_enabled_holds_from_the_call_on() -> None:
    try:
        mn.set_grad_enabled(False)
        assert not mn.is_grad_enabled()
        with mn.set_grad_enabled(True):
            assert mn.is_grad_enabled()
        assert not mn.is_grad_enabled()
    finally:
        mn.set_grad_enabled(True)
    assert mn.is_grad_enabled()


def test_an_error_inside_ends_the_block() -> None:
    with pytest.raises(KeyError), mn.no_grad():
        raise KeyError
    assert mn.is_grad_enabled()
