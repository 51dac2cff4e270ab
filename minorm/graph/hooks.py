"""Functions that see a gradient on its way: `x.register_hook(hook)`.

A leaf or a Function holds its own hooks, so that a hook which holds the leaf is garbage together with it. A backward
walk without any hook pays one look at a set.
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
    """What register_hook returns: `handle.remove()` takes the hook away; as a `with` it ends with the block."""

    def __init__(self, hooks: dict[int, Hook], key: int) -> None:
        self._hooks, self._key = hooks, key

    def remove(self) -> None:
        """Take the hook away; a second time does nothing."""
        self._hooks.pop(self._key, None)

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *error: object) -> None:
        self.remove()


def register(tensor: Any, hook: Hook) -> RemovableHandle:
    """Call hook(gradient) when the walk has all of this tensor's gradient; what it returns, if anything, goes on."""
    if not tensor.requires_grad:
        raise RuntimeError("register_hook: the tensor does not require grad; expected one that does")
    source = tensor.creator or tensor
    with _registering:  # two threads may be here, and neither hook may be lost
        known = id(source) in registered
        if not known or source._hooks is None:  # a Function whose graph was freed has let go of its hooks
            source._hooks = {}
        if not known:
            registered.add(id(source))
            weakref.finalize(source, registered.discard, id(source)).atexit = False
        own = source._hooks.setdefault(tensor.output_index, {})
    number = next(_numbers)
    own[number] = hook
    return RemovableHandle(own, number)


def _hooks_of(source: Any, index: int) -> list[Hook]:
    """The hooks of output `index` of a Function, or of a leaf; a hook may register and remove hooks while it runs."""
    own = source._hooks if id(source) in registered else None
    return list(own.get(index, {}).values()) if own else []


def run(source: Any, index: int, array: Any, like: Any) -> Any:
    """The gradient of output `index` of a Function, or of a leaf, after its hooks; `like` makes Tensors for them.

    None where there are no hooks. They may keep what they saw and what they returned: the caller goes on with a copy.
    """
    hooks = _hooks_of(source, index)
    for hook in hooks:
        answer = hook(like.from_array(array))
        if answer is not None:
            array = _checked(answer, array)
    return array if hooks else None


def run_recorded(source: Any, index: int, gradient: Any) -> Any:
    """The same for a gradient that is a Tensor of the graph; a copy of what a hook returns goes on in the graph."""
    hooks = _hooks_of(source, index)
    for hook in hooks:
        answer = hook(gradient)
        if answer is not None:
            _checked(answer, gradient.array)
            gradient = answer
    return gradient.clone() if hooks else gradient


def _checked(answer: Any, array: Any) -> Any:
    """The array of what a hook returned for the gradient `array`."""
    if not hasattr(answer, "from_array"):
        raise TypeError(f"register_hook: the hook returned {kind_of(answer)}; expected a Tensor, or None")
    if answer.array.shape != array.shape or answer.array.dtype != array.dtype:
        raise ValueError(
            f"register_hook: the hook returned {answer.array.dtype} of shape {answer.array.shape}; expected "
            f"{array.dtype} of shape {array.shape}, as the gradient is"
        )
    return answer.array
