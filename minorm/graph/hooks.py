"""Calls hooks with the gradient of a tensor during a backward pass: `x.register_hook(hook)`.

A leaf or a Function holds its hooks, so a hook that refers to a leaf is freed together with the leaf. If there are no
hooks, a backward walk only checks an empty set.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable
from typing import Any

from minorm.support.argument_errors import kind_of
from minorm.support.locks import shared_lock

Hook = Callable[[Any], Any]

registered: set[int] = set()  # the ids of leaves and Functions that have had a hook
_numbers = itertools.count()
_registering = shared_lock()


class RemovableHandle:
    """The result of register_hook. `handle.remove()` removes the hook; so does the end of a `with handle:` block."""

    def __init__(self, hooks: dict[int, Hook], key: int) -> None:
        self._hooks, self._key = hooks, key

    def remove(self) -> None:
        """Remove the hook; a second call does nothing."""
        self._hooks.pop(self._key, None)

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *error: object) -> None:
        self.remove()


def register(tensor: Any, hook: Hook) -> RemovableHandle:
    """Register a hook: a backward walk calls hook(gradient) once this tensor's gradient is complete. If the hook
    returns a Tensor, this Tensor replaces the gradient.
    """
    if not tensor.requires_grad:
        raise RuntimeError("register_hook: the tensor does not require grad; expected a tensor that requires grad")
    source = tensor.creator or tensor
    with _registering:  # two threads may register at the same time, and both hooks must stay
        known = id(source) in registered
        if not known or source._hooks is None:  # a freed Function has lost its hooks
            source._hooks = {}
        if not known:
            registered.add(id(source))
            weakref.finalize(source, registered.discard, id(source)).atexit = False
        own = source._hooks.setdefault(tensor.output_index, {})
    number = next(_numbers)
    own[number] = hook
    return RemovableHandle(own, number)


def _hooks_of(source: Any, index: int) -> list[Hook]:
    """Return the hooks of a leaf, or of output `index` of a Function.

    The result is a new list, since a running hook may add or remove hooks.
    """
    own = source._hooks if id(source) in registered else None
    return list(own.get(index, {}).values()) if own else []


def run(source: Any, index: int, array: Any, like: Any) -> Any:
    """Run the hooks of a leaf, or of output `index` of a Function, and return the gradient that results.

    array  the gradient before the hooks run
    like   any Tensor; the method `like.from_array` makes the Tensors that the hooks get

    Returns None if there are no hooks. Hooks may keep the gradients that they get or return, so the caller must copy
    the result.
    """
    hooks = _hooks_of(source, index)
    for hook in hooks:
        answer = hook(like.from_array(array))
        if answer is not None:
            array = _array_of_answer(answer, array)
    return array if hooks else None


def run_recorded(source: Any, index: int, gradient: Any) -> Any:
    """Run the hooks with a gradient that is a Tensor of the graph. If there are hooks, the result is a copy, since
    hooks may keep the gradients that they get or return.
    """
    hooks = _hooks_of(source, index)
    for hook in hooks:
        answer = hook(gradient)
        if answer is not None:
            _array_of_answer(answer, gradient.array)
            gradient = answer
    return gradient.clone() if hooks else gradient


def _array_of_answer(answer: Any, array: Any) -> Any:
    """Return a hook's answer as an array; raise an error if its shape or type differs from the gradient `array`."""
    if not hasattr(answer, "from_array"):
        raise TypeError(f"register_hook: the hook returned {kind_of(answer)}; expected a Tensor, or None")
    if answer.array.shape != array.shape or answer.array.dtype != array.dtype:
        raise ValueError(
            f"register_hook: the hook returned {answer.array.dtype} of shape {answer.array.shape}; expected "
            f"{array.dtype} of shape {array.shape}, the type and shape of the gradient"
        )
    return answer.array
