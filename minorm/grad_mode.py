"""Whether operations leave a graph behind: each thread's own answer, changed for a while or from here on.

with no_grad(): ...             @no_grad()  or  @no_grad  on a function
set_grad_enabled(False)         from here on; as a `with` it ends there
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ContextDecorator
from typing import Any, TypeVar

from minorm.mistakes import checked

AnyCallable = TypeVar("AnyCallable", bound=Callable[..., Any])


class _Mode(threading.local):
    recording = True


mode = _Mode()


def is_grad_enabled() -> bool:
    """False inside `no_grad`, True otherwise; each thread has its own answer."""
    return mode.recording


class _Within(ContextDecorator):
    """A mode for a block or a function; one object may be entered again while it is open."""

    def __init__(self, recording: bool) -> None:
        self.recording, self.before = recording, list[bool]()

    def __enter__(self) -> None:
        self.before.append(mode.recording)
        mode.recording = self.recording

    def __exit__(self, *error: object) -> None:
        mode.recording = self.before.pop()

    def _recreate_cm(self) -> _Within:
        return _Within(self.recording)  # threads may run the decorated function at once


@checked
def no_grad(function: AnyCallable | None = None) -> Any:
    """Inside, operations leave no graph behind: results do not require grad. Works as a decorator too."""
    return _Within(False) if function is None else _Within(False)(function)


@checked
def enable_grad(function: AnyCallable | None = None) -> Any:
    """Inside, operations leave a graph behind again, also within `no_grad`."""
    return _Within(True) if function is None else _Within(True)(function)


@checked
def inference_mode(mode: Any = True) -> Any:
    """no_grad() by its other name; inference_mode(False) records as usual."""
    return _Within(False)(mode) if callable(mode) else _Within(not mode)


class set_grad_enabled(_Within):  # noqa: N801  PyTorch's name
    """Record from here on, or no longer; `with set_grad_enabled(training):` ends with the block."""

    def __init__(self, mode: bool) -> None:
        super().__init__(bool(mode))
        self.__enter__()
        self.open = True  # what the call itself began, the first `with` ends

    def __enter__(self) -> None:
        if getattr(self, "open", False):
            self.open = False
        else:
            super().__enter__()

    def __call__(self, function: AnyCallable) -> AnyCallable:
        """As a decorator it holds inside the function alone."""
        self.__exit__()
        return super().__call__(function)
