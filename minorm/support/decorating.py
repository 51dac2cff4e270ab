"""Lets context managers work as decorators: `@no_grad()` is active while the body of the function runs.

The body of a generator runs when the caller takes the next item, and the body of a coroutine runs while the coroutine
is awaited. Both run after the call has returned. So the block is entered for each step of the body, and left while the
caller runs.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, ContextDecorator
from typing import Any, TypeVar

AnyCallable = TypeVar("AnyCallable", bound=Callable[..., Any])


class Block(ContextDecorator):
    """Base class of context managers that are also decorators; `_recreate_cm` of a subclass makes an equal object."""

    def __call__(self, function: AnyCallable) -> AnyCallable:
        """Return the function with the block around its body."""
        make = self._recreate_cm
        if isinstance(function, type) or inspect.isasyncgenfunction(function):
            kind = "a class" if isinstance(function, type) else "an asynchronous generator"
            raise TypeError(
                f"decorator: {function.__name__} is {kind}; expected a function, which a block such as no_grad() can "
                "decorate; write a `with` block inside the body instead"
            )
        if inspect.isgeneratorfunction(function):

            @functools.wraps(function)
            def run(*args: Any, **kwargs: Any) -> Any:
                return (yield from stepped(function(*args, **kwargs), make))

            return run  # type: ignore[return-value]
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def wait(*args: Any, **kwargs: Any) -> Any:
                return await _Steps(stepped(function(*args, **kwargs), make))

            return wait  # type: ignore[return-value]
        return super().__call__(function)

    def _recreate_cm(self) -> Any:
        raise NotImplementedError(f"{type(self).__name__} has no _recreate_cm")


def stepped(body: Any, make: Callable[[], AbstractContextManager[Any]]) -> Generator[Any, Any, Any]:
    """Run each step of a generator or coroutine inside a block `with make()`; yield and return its values."""
    step, given = body.send, None
    while True:
        try:
            with make():
                item = step(given)
        except StopIteration as end:
            return end.value
        try:
            step, given = body.send, (yield item)
        except GeneratorExit:
            with make():
                body.close()
            raise
        except BaseException as error:  # noqa: BLE001  the body may catch it
            step, given = body.throw, error


class _Steps:
    """An awaitable that runs the steps of `stepped` in place of the coroutine."""

    def __init__(self, steps: Generator[Any, Any, Any]) -> None:
        self.steps = steps

    def __await__(self) -> Generator[Any, Any, Any]:
        return self.steps
