"""Hooks: functions that a module calls before and after `forward`, and in backward.

    handle = module.register_forward_hook(lambda module, inputs, output: print(output.shape))
    handle.remove()

A backward hook must know when the gradient enters a module and when it leaves. So the module's inputs and outputs pass
through the Function `GradientProbe`: its forward is the identity, and its backward reports the gradient.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from minorm.graph.grad_mode import is_grad_enabled
from minorm.graph.gradient_probe import GradientProbe
from minorm.tensor.tensor import Tensor

_numbers = itertools.count(1)
BEFORE, AFTER, BACKWARD = "before", "after", "backward"


class RemovableHandle:
    """The handle of a registered hook: `remove()`, or the end of a `with` block, removes the hook."""

    def __init__(self, hooks: dict[int, Any], number: int) -> None:
        self._hooks, self.id = hooks, number

    def remove(self) -> None:
        """Remove the hook, so that it is not called any more."""
        self._hooks.pop(self.id, None)

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *error: object) -> None:
        self.remove()


def register(hooks: dict[str, dict[int, Any]], when: str, hook: Any, first: bool, **options: bool) -> RemovableHandle:
    """Add `hook` to the hooks of a module for the moment `when`. Return a handle that can remove the hook. With
    first=True, the hook will run before the hooks that are there already.
    """
    if not callable(hook):
        raise TypeError(f"register hook: hook is a {type(hook).__name__}; expected a function")
    own, number = hooks.setdefault(when, {}), next(_numbers)
    number = -number if first else number
    own[number] = hook, options  # one assignment, so a thread that runs the module now sees all other hooks
    return RemovableHandle(own, number)


def _in_order(hooks: dict[str, dict[int, Any]], when: str) -> list[Any]:
    """Return the hooks in order of their numbers. Hooks with prepend=True have negative numbers, so the hook that was
    prepended last runs first.
    """
    own = hooks.get(when)
    return [entry for _, entry in sorted(own.copy().items())] if own else []


def call(module: Any, hooks: dict[str, dict[int, Any]], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call the hooks that run before forward, then forward, then the hooks that run after forward."""
    for hook, options in _in_order(hooks, BEFORE):
        result = hook(module, args, kwargs) if options["with_kwargs"] else hook(module, args)
        if options["with_kwargs"] and result is not None:
            args, kwargs = result
        elif result is not None:
            args = result if isinstance(result, tuple) else (result,)
    watch = Watch(module, _in_order(hooks, BACKWARD)) if hooks.get(BACKWARD) and is_grad_enabled() else None
    if watch is not None:
        args = watch.entering(args)
    result = module.forward(*args, **kwargs)
    for hook, options in _in_order(hooks, AFTER):
        changed = hook(module, args, kwargs, result) if options["with_kwargs"] else hook(module, args, result)
        result = result if changed is None else changed
    return result if watch is None else watch.leaving(result)


class Watch:
    """Watches one call of a module with backward hooks."""

    def __init__(self, module: Any, hooks: list[Any]) -> None:
        self.module, self.hooks = module, hooks
        self.inputs = self.watched = 0
        self.places: list[int] = []
        self.coming: tuple[Any, ...] = ()

    def entering(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the arguments. Arguments that require grad pass through a GradientProbe."""
        self.places = [i for i, x in enumerate(args) if isinstance(x, Tensor) and x.requires_grad]
        self.inputs = len(args)
        return _replaced(args, self.places, self._left)

    def leaving(self, result: Any) -> Any:
        """Return the results. Results that require grad pass through a GradientProbe."""
        parts = result if isinstance(result, tuple) else (result,)
        places = [i for i, x in enumerate(parts) if isinstance(x, Tensor) and x.requires_grad]
        self.outputs, self.out_places = len(parts), places
        found = _replaced(parts, places, self._entered)
        return found if isinstance(result, tuple) else found[0]

    def _entered(self, gradients: tuple[Any, ...]) -> tuple[Any, ...]:
        coming: list[Any] = [None] * self.outputs
        for place, gradient in zip(self.out_places, gradients, strict=True):
            coming[place] = _as_tensor(gradient)
        self.coming = tuple(coming)
        if not self.places:
            self._tell((None,) * self.inputs)
        return gradients

    def _left(self, gradients: tuple[Any, ...]) -> tuple[Any, ...]:
        leaving: list[Any] = [None] * self.inputs
        for place, gradient in zip(self.places, gradients, strict=True):
            leaving[place] = _as_tensor(gradient)
        found = self._tell(tuple(leaving))
        if any(isinstance(gradient, Tensor) for gradient in gradients):  # with create_graph=True they are Tensors
            return tuple(found[place] for place in self.places)
        return tuple(None if found[place] is None else found[place].array for place in self.places)

    def _tell(self, leaving: tuple[Any, ...]) -> tuple[Any, ...]:
        for hook, _ in self.hooks:
            changed = hook(self.module, leaving, self.coming)
            if changed is not None:
                leaving = changed if isinstance(changed, tuple) else (changed,)
        return leaving


def _as_tensor(gradient: Any) -> Any:
    return gradient if gradient is None or isinstance(gradient, Tensor) else Tensor(gradient)


def _replaced(parts: tuple[Any, ...], places: list[int], told: Callable[..., Any]) -> tuple[Any, ...]:
    if not places:
        return parts
    crossed = GradientProbe.apply(*[parts[i] for i in places], told=told)
    found = dict(zip(places, crossed if len(places) > 1 else (crossed,), strict=True))
    return tuple(found.get(i, part) for i, part in enumerate(parts))
