"""Functions that see a gradient on its way: `x.register_hook(hook)`.

They are kept by the id of a leaf or a Function and the index of its output, apart from both: who has none pays one
look at a dict in a backward walk.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable
from typing import Any

from minorm.support.argument_errors import kind_of

Hook = Callable[[Any], Any]

registered: dict[tuple[int, int], dict[int, Hook]] = {}
_numbers = itertools.count()


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
    key = id(source), tensor.output_index
    fresh: dict[int, Hook] = {}
    own = registered.setdefault(key, fresh)  # one step: two threads may be here, and neither hook may be lost
    if own is fresh:
        weakref.finalize(source, registered.pop, key, None).atexit = False
    number = next(_numbers)
    own[number] = hook
    return RemovableHandle(own, number)


def run(source: Any, index: int, array: Any, like: Any) -> Any:
    """The gradient of output `index` of a Function, or of a leaf, after its hooks; `like` makes Tensors for them.

    None where there are no hooks. They may keep what they saw and what they returned: the caller goes on with a copy.
    """
    hooks = list(registered.get((id(source), index), {}).values())
    for hook in hooks:
        answer = hook(like.from_array(array))
        if answer is not None:
            array = _checked(answer, array)
    return array if hooks else None


def run_recorded(source: Any, index: int, gradient: Any) -> Any:
    """The same for a gradient that is a Tensor of the graph; what a hook returns goes on in the graph."""
    for hook in list(registered.get((id(source), index), {}).values()):
        answer = hook(gradient)
        if answer is not None:
            _checked(answer, gradient.array)
            gradient = answer
    return gradient


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
